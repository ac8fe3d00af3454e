"""What the files of a draft say without running it: names, shapes, settings and wiring.

Needs no torch. Reads headers, the vocabulary mapping and, within a bound, the values of the
weights for any that is not finite.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eaglemon.core.draft_views import InspectView
from eaglemon.core.problems import Problem
from eaglemon.core.wiring import KEY, NESTED, TargetShape, ids_at
from eaglemon.draft.checkpoint import Checkpoint, open_checkpoint, read_json
from eaglemon.draft.findings import (
    flag_problems,
    id_problems,
    target_problems,
    tensor_problems,
    vocabulary_problems,
)
from eaglemon.draft.finite import scan
from eaglemon.draft.layout import (
    DraftSettings,
    captured_layers,
    roles_of,
    settings_of,
    target_body,
    target_shape,
    uses_mla,
)
from eaglemon.engines.wiring import WIRING
from eaglemon.errors import ConfigError

_ID_KEYS = (KEY, NESTED, "eagle_config.layer_ids")


def inspect(
    folder: Path,
    *,
    target: Path | None = None,
    token_counts: Mapping[int, int] | None = None,
    trust_pickle: bool = False,
) -> InspectView:
    """Read a draft's folder and say what engines make of it.

    ``target`` is the target's folder (its ``config.json`` suffices); ``token_counts`` tells how
    often each target id occurs in the text to be served. Raises ``ConfigError`` for unreadable
    files; what can be read and is wrong is a problem in the view.
    """
    draft = open_checkpoint(folder, trust_pickle=trust_pickle)
    problems: list[Problem] = []
    settings = _settings(draft, problems)
    roles = roles_of(draft.tensors)
    captured = None
    if settings is not None:
        captured = _captured(draft, settings, problems)
        if captured is not None and not uses_mla(draft.tensors):
            problems += tensor_problems(draft, settings, roles, captured)
        problems += vocabulary_problems(draft, settings, roles)
    problems += flag_problems(draft.config, roles, settings)
    shape = None if target is None else _target(target, settings, problems)
    captures = tuple(
        capture
        for rules in WIRING.values()
        if shape is not None
        for capture in rules.captures(draft.config, shape)
    )
    places = [(key, ids_at(draft.config, key)) for key in _ID_KEYS]
    found = tuple((key, ids) for key, ids in places if ids is not None)
    finite = scan(draft)
    problems += [
        *_nesting_problems(draft.config),
        *finite.problems,
        *id_problems(found, captured, shape),
        *_unread_ids(draft.config, [key for key, ids in places if ids is None]),
    ]
    coverage = None
    if token_counts and settings is not None:
        coverage = coverage_of(draft, roles, settings, token_counts)
    return InspectView(
        folder=str(folder),
        architecture=_architecture(draft.config),
        layout=_layout(draft.tensors),
        attention="mla" if uses_mla(draft.tensors) else "llama",
        parameters=_parameters(draft),
        dtypes=tuple(sorted({info.dtype for info in draft.tensors.values()})),
        hidden_size=settings.hidden_size if settings else None,
        target_hidden_size=settings.target_hidden_size if settings else None,
        captured=captured,
        vocabulary=settings.vocabulary if settings else None,
        draft_vocabulary=settings.draft_vocabulary if settings else None,
        max_positions=settings.max_positions if settings else None,
        target_layers=shape.layers if shape else None,
        target_type=shape.model_type if shape else None,
        coverage=coverage,
        layer_ids=found,
        captures=captures,
        problems=tuple(problems),
        looked_at=finite.told,
    )


def configured_slots(draft_folder: Path, target_folder: Path) -> tuple[tuple[int, ...], ...]:
    """Return what the known engines would capture for a draft's configuration, each once."""
    config = read_json(draft_folder / "config.json")
    shape = target_shape(target_body(read_json(target_folder / "config.json")))
    slots = [
        capture.slots
        for rules in WIRING.values()
        if shape is not None
        for capture in rules.captures(config, shape)
        if capture.slots
    ]
    return tuple(dict.fromkeys(slots))


def roles_name(name: str) -> str:
    """Return a tensor's role from its name in the file."""
    return next(iter(roles_of([name])))


def coverage_of(
    draft: Checkpoint,
    roles: Mapping[str, str],
    settings: DraftSettings,
    token_counts: Mapping[int, int],
) -> float | None:
    """Return the share of counted tokens that the draft can propose; ``None`` without tokens."""
    total = sum(token_counts.values())
    if not total:
        return None
    if "d2t" not in roles:
        return 1.0 if settings.draft_vocabulary == settings.vocabulary else None
    known = {place + offset for place, offset in enumerate(draft.integers(roles["d2t"]))}
    return sum(count for token, count in token_counts.items() if token in known) / total


def read_token_counts(path: Path) -> dict[int, int]:
    """Read ``{"token id": count}`` or a list of counts by id; raises ``ConfigError``."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        return {int(token): int(count) for token, count in pairs}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{path}: no token counts", hint='write {"token id": count, ...} as JSON'
        ) from error


def _settings(draft: Checkpoint, problems: list[Problem]) -> DraftSettings | None:
    try:
        return settings_of(draft.config)
    except ConfigError as error:
        message = error.message.removeprefix("config.json: ")
        problems.append(Problem(where="config.json", message=message, hint=error.hint))
        return None


def _captured(draft: Checkpoint, settings: DraftSettings, problems: list[Problem]) -> int | None:
    try:
        return captured_layers(draft, settings)
    except ConfigError as error:
        message = error.message.removeprefix(f"{draft.folder}: ")
        problems.append(Problem(where="fc", message=message, hint=error.hint))
        return None


def _target(
    folder: Path, settings: DraftSettings | None, problems: list[Problem]
) -> TargetShape | None:
    body = target_body(read_json(folder / "config.json"))
    shape = target_shape(body)
    if shape is None:
        problems.append(Problem(where="target", message="its config.json has no num_hidden_layers"))
    if settings is not None:
        problems += target_problems(settings, body)
    return shape


def _nesting_problems(config: Mapping[str, Any]) -> list[Problem]:
    nested = config.get("eagle_config")
    if nested is None or isinstance(nested, Mapping):
        return []
    return [
        Problem(
            where="eagle_config",
            message="is no JSON object: engines fail, or find no layer ids in it",
            hint="write the ids with 'eaglemon draft set-layers'",
        )
    ]


def _unread_ids(config: Mapping[str, Any], unread: Sequence[str]) -> list[Problem]:
    return [
        Problem(
            where=key,
            message="is no list of whole numbers: engines fail or fall back to their default",
            hint="write the ids with 'eaglemon draft set-layers'",
        )
        for key in unread
        if _has(config, key)
    ]


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "unknown"


def _parameters(draft: Checkpoint) -> int:
    """Return the number of weights; the vocabulary mapping is none."""
    return sum(
        math.prod(info.shape)
        for info in draft.tensors.values()
        if roles_name(info.name) not in {"d2t", "t2d"}
    )


def _has(config: Mapping[str, Any], path: str) -> bool:
    value: object = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value is not None


def _layout(names: Mapping[str, object]) -> str:
    plain = [name.removeprefix("model.") for name in names]
    for prefix in ("midlayer", "layers.0"):
        if any(name.startswith(f"{prefix}.") for name in plain):
            return prefix
    return "unknown"
