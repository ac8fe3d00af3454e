"""What can be wrong with a draft's files: each check returns problems with their fixes."""

from collections.abc import Mapping, Sequence
from typing import Any

from eaglemon.core.problems import Problem, Severity
from eaglemon.core.wiring import TargetShape
from eaglemon.draft.checkpoint import Checkpoint
from eaglemon.draft.layout import DraftSettings, optional_shapes, rope_of, shapes_of
from eaglemon.engines.wiring import WIRING

_FAR = 100.0
"""A norm's epsilon that differs from the target's by less does not matter."""
_MAYBE = Severity.WARNING


def tensor_problems(
    draft: Checkpoint, settings: DraftSettings, roles: Mapping[str, str], captured: int
) -> list[Problem]:
    """Compare names and shapes with what engines read; they skip and invent without a word."""
    needed = shapes_of(settings, captured)
    allowed = {**optional_shapes(settings, captured), **needed}
    problems = []
    for role, shape in needed.items():
        if role not in roles:
            full = settings.draft_vocabulary == settings.vocabulary
            borrowed = role == "lm_head.weight" and full
            problems.append(_missing(role, shape, borrowed=borrowed))
    for role, name in roles.items():
        info = draft.tensors[name]
        if role not in allowed:
            problems.append(
                Problem(
                    where=name,
                    message="no engine knows this tensor, and skips it without a word",
                    hint="rename it, or check what the draft was trained with",
                    severity=Severity.WARNING,
                    slug="unknown-tensor",
                )
            )
        elif info.shape != allowed[role]:
            problems.append(
                Problem(
                    where=name,
                    message=f"is {list(info.shape)}, the configuration asks for "
                    f"{list(allowed[role])}",
                    slug="tensor-shape",
                )
            )
    return problems


def _missing(role: str, shape: Sequence[int], *, borrowed: bool) -> Problem:
    if borrowed:
        return Problem(
            where=role,
            message="missing, the target's is used",
            severity=Severity.WARNING,
            slug="borrowed-head",
        )
    return Problem(
        where=role,
        message=f"missing ({list(shape)}): engines leave it random or at ones without a word",
        hint="save the whole draft",
        slug="missing-tensor",
    )


def vocabulary_problems(
    draft: Checkpoint, settings: DraftSettings, roles: Mapping[str, str]
) -> list[Problem]:
    """Check that ``d2t`` and ``t2d`` are complete, within the vocabulary and agree."""
    problems: list[Problem] = []

    def wrong(where: str, message: str, hint: str = "") -> None:
        problems.append(Problem(where=where, message=message, hint=hint, slug="vocabulary"))

    if "d2t" not in roles:
        return problems
    offsets = draft.integers(roles["d2t"])
    ids = [place + offset for place, offset in enumerate(offsets)]
    size = settings.vocabulary
    smaller = settings.draft_vocabulary < size
    if len(offsets) != settings.draft_vocabulary:
        wrong("d2t", f"has {len(offsets)} entries for draft_vocab_size {settings.draft_vocabulary}")
    if smaller and not any(offsets):
        wrong("d2t", "is all zeros: draft id k would stand for target id k")
    outside = [place for place, target in enumerate(ids) if not 0 <= target < size]
    if outside:
        absolute = len(set(offsets)) == len(offsets) and all(0 <= i < size for i in offsets)
        wrong(
            "d2t",
            f"maps {len(outside)} draft ids outside of the target's {size}",
            "it holds absolute ids, engines expect offsets" if absolute else "",
        )
    elif len(set(ids)) != len(ids):
        wrong("d2t", f"maps {len(ids) - len(set(ids))} draft ids to the same target ids")
    if "t2d" in roles:
        marked = {place for place, value in enumerate(draft.integers(roles["t2d"])) if value}
        if marked != set(ids):
            differing = len(marked ^ set(ids))
            wrong("t2d", f"disagrees with d2t on {differing} target ids", "save both anew")
    return problems


def flag_problems(
    config: Mapping[str, Any], roles: Mapping[str, str], settings: DraftSettings | None
) -> list[Problem]:
    """Compare norm flags with the norm weights, and with what each engine knows."""
    problems = []
    if settings is not None:
        for flag, role in (
            ("fc_norm", "fc_norm.0.weight"),
            ("norm_before_fc", "input_norm.weight"),
        ):
            if role in roles and not getattr(settings, flag):
                problems.append(
                    Problem(
                        where=flag,
                        message=f"is not set, but there is {role}: engines leave it unused",
                        hint=f"set {flag} in config.json if the draft was trained with it",
                        severity=Severity.WARNING,
                        slug="norm-flag",
                    )
                )
    for rules in WIRING.values():
        problems += rules.tensor_problems(config, roles.keys())
    return problems


def target_problems(settings: DraftSettings, body: Mapping[str, Any]) -> list[Problem]:
    """Compare sizes, RoPE and context with the target's configuration."""
    problems: list[Problem] = []

    def differs(where: str, mine: object, theirs: object, hint: str, severity: Severity) -> None:
        if theirs is not None and mine != theirs:
            problems.append(
                Problem(
                    where=where,
                    message=f"the draft has {mine}, the target {theirs}",
                    hint=hint,
                    severity=severity,
                    slug="target-mismatch",
                )
            )

    differs(
        "hidden_size",
        settings.target_hidden_size,
        body.get("hidden_size"),
        "set target_hidden_size, or this is a draft for another target",
        Severity.ERROR,
    )
    differs("vocab_size", settings.vocabulary, body.get("vocab_size"), "", Severity.ERROR)
    rope = rope_of(body)
    differs(
        "rope",
        dict(sorted(settings.rope.items())),
        dict(sorted(rope.items())),
        "right only if the draft was trained so",
        Severity.WARNING,
    )
    eps = body.get("rms_norm_eps")
    if isinstance(eps, float) and not 1 / _FAR < settings.rms_eps / eps < _FAR:
        differs("rms_norm_eps", settings.rms_eps, eps, "see what it was trained with", _MAYBE)
    positions = body.get("max_position_embeddings")
    if isinstance(positions, int) and settings.max_positions < positions:
        problems.append(
            Problem(
                where="max_position_embeddings",
                message=f"the draft has {settings.max_positions:,}, the target {positions:,}: "
                "longer prompts read beyond its RoPE table",
                hint="limit the context, or raise it if the draft was trained for more",
                severity=Severity.WARNING,
                slug="draft-context",
            )
        )
    return problems


def id_problems(
    found: Sequence[tuple[str, tuple[int, ...]]], captured: int | None, shape: TargetShape | None
) -> list[Problem]:
    """Check the layer ids found under ``(key, ids)`` against ``fc`` and the target."""
    problems = []
    for key, ids in found:
        if captured is not None and len(ids) != captured:
            problems.append(
                Problem(where=key, message=f"has {len(ids)} ids, fc joins {captured} layers")
            )
        if shape is not None and max(ids) > shape.layers:
            problems.append(
                Problem(
                    where=key,
                    message=f"id {max(ids)} is beyond the target's {shape.layers} layers",
                    hint="this is a draft for a deeper target",
                )
            )
    if len({ids for _, ids in found}) > 1:
        problems.append(
            Problem(
                where="layer ids",
                message="keys disagree: " + "; ".join(f"{key} {list(ids)}" for key, ids in found),
                hint="right only where each engine reads its own convention",
                severity=Severity.WARNING,
            )
        )
    return problems
