"""SGLang's flags and the rules that its profiles must keep (0.5.16 to 0.5.23)."""

from collections.abc import Mapping
from typing import Final

from eaglemon.core.problems import Problem, Severity, did_you_mean
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.engines.command import common_problems, number_problem
from eaglemon.engines.releases import FlagSpan, span_problems
from eaglemon.engines.sglang.known_flags import KNOWN_FLAGS

ALGORITHMS: Final = frozenset(
    {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO"}
)
_NEEDS_DRAFT: Final = frozenset({"EAGLE3", "STANDALONE", "DFLASH", "DSPARK"})
_EAGLE_FAMILY: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
_TREE_WITH_PAGES: Final = frozenset({"flashinfer", "fa3", "triton"})
_TP_FLAGS: Final = ("tp-size", "tensor-parallel-size", "tp")

OWNED: Final[Mapping[str, str]] = {
    "model-path": "model",
    "model": "model",
    "host": "address",
    "port": "port",
    "served-model-name": "served_name",
    "speculative-algorithm": "speculation.algorithm",
    "speculative-draft-model-path": "draft",
    "speculative-draft-model": "draft",
    "speculative-num-steps": "speculation.steps",
    "speculative-eagle-topk": "speculation.topk",
    "speculative-num-draft-tokens": "speculation.draft_tokens",
}
"""Flags that keys of a profile set."""

_SEEN: Final = (0, 5, 16)
_NEXT: Final = (0, 5, 23)


def _gone(hint: str) -> FlagSpan:
    return FlagSpan(last_seen=_SEEN, gone_in=_NEXT, hint=hint)


def _new() -> FlagSpan:
    return FlagSpan(missing_in=_SEEN, first_seen=_NEXT, hint="leave it out, or update sglang")


SPANS: Final[Mapping[str, FlagSpan]] = {
    "cuda-graph-max-bs": _gone("use cuda-graph-max-bs-decode, which both releases know"),
    "cuda-graph-bs": _gone("use cuda-graph-bs-decode, which both releases know"),
    "speculative-skip-dp-mlp-sync": _gone("leave it out"),
    "torchao-config": _gone("leave it out"),
    "enable-expert-distribution-metrics": _gone("leave it out"),
    "elastic-ep-rejoin": _gone("leave it out"),
    "keep-mm-feature-on-device": _gone("leave it out"),
    "speculative-use-block-verification": _new(),
    "speculative-draft-kv-cache-dtype": _new(),
    "speculative-draft-sink-size": _new(),
    "speculative-dsa-topk-backend": _new(),
    "speculative-domino-candidate-pool-size": _new(),
    "speculative-enable-w4a4-mxfp4-megamoe": _new(),
    "uno-lora-path": _new(),
    "gated-launch-port": _new(),
    "aux-hidden-state-capture": _new(),
    "enable-return-aux-hidden-states": _new(),
    "return-aux-hidden-state-layer-ids": _new(),
    "load-publish-endpoint": _new(),
    "startup-weight-load-mode": _new(),
    "return-output-ids": _new(),
}
"""Flags that only one of 0.5.16 and 0.5.23 takes; releases between them were not looked at."""


def sglang_problems(profile: Profile, version: str | None = None) -> list[Problem]:
    """Return what is wrong with a profile for this release of SGLang (``None``: not known)."""
    problems = common_problems(
        profile, known=KNOWN_FLAGS | set(SPANS), owned=OWNED, tp_flags=_TP_FLAGS
    )
    problems += number_problem(profile, "mem-fraction-static", 0.0, 1.0, low_open=True)
    problems += number_problem(profile, "max-running-requests", 1, 1_000_000)
    problems += number_problem(profile, "watchdog-timeout", 1, 1_000_000)
    problems += span_problems(profile, SPANS, engine="sglang", version=version)
    if profile.speculation is None:
        if profile.draft is not None:
            problems.append(
                Problem(
                    where="draft",
                    message="a draft is named but nothing says how to speculate",
                    hint="add [speculation], or leave the draft out",
                    slug="draft-unused",
                )
            )
        return problems
    return problems + _speculation_problems(profile, profile.speculation)


def _speculation_problems(profile: Profile, speculation: Speculation) -> list[Problem]:
    problems: list[Problem] = []
    algorithm = speculation.algorithm.upper()
    if algorithm not in ALGORITHMS:
        problems.append(
            Problem(
                where="speculation.algorithm",
                message=f"{speculation.algorithm} is not an algorithm this console knows",
                hint=did_you_mean(algorithm, ALGORITHMS),
                severity=Severity.WARNING,
                slug="unknown-algorithm",
            )
        )
    if profile.draft is None and algorithm in _NEEDS_DRAFT:
        problems.append(
            _error(
                "draft",
                f"{algorithm} needs a draft; without one the target is loaded as its own draft",
                "name the draft's folder or repository",
                "draft-missing",
            )
        )
    if algorithm in {"EAGLE", "NEXTN"} and _is_eagle3(profile.draft):
        problems.append(
            _error(
                "speculation.algorithm",
                f"{algorithm} runs an EAGLE-3 draft without error, but accepts almost nothing",
                "use EAGLE3",
                "eagle-for-eagle3-draft",
            )
        )
    if algorithm in _EAGLE_FAMILY:
        problems += _shape_problems(speculation)
    return problems + _backend_problems(profile, speculation)


def _shape_problems(speculation: Speculation) -> list[Problem]:
    steps, topk, tokens = speculation.steps, speculation.topk, speculation.draft_tokens
    named = {"steps": steps, "topk": topk, "draft_tokens": tokens}
    missing = [name for name, value in named.items() if value is None]
    if 0 < len(missing) < 3:
        return [
            _error(
                "speculation",
                f"{' and '.join(missing)} missing: sglang takes all of steps, topk and "
                "draft_tokens, or none",
                "give all three, or none for its own choice",
                "speculation-incomplete",
            )
        ]
    if steps is None or topk is None or tokens is None:
        return []
    low = {"steps": 1, "topk": 1, "draft_tokens": 2}
    problems = [
        _error(
            f"speculation.{name}", f"{value} is out of range", f"use {low[name]} or more", _RANGE
        )
        for name, value in named.items()
        if value is not None and value < low[name]
    ]
    if problems:
        return problems
    if topk == 1 and tokens != steps + 1:
        return [
            _error(
                "speculation.draft_tokens",
                f"topk 1 verifies steps + 1 = {steps + 1} tokens; sglang would replace {tokens}",
                f"set draft_tokens = {steps + 1}",
                "topk1-draft-tokens",
            )
        ]
    nodes = topk + (steps - 1) * topk * topk + 1
    if tokens > nodes:
        return [
            _error(
                "speculation.draft_tokens",
                f"a tree of {steps} steps with topk {topk} has only {nodes} tokens",
                f"set draft_tokens to at most {nodes}",
                "draft-tokens-exceed-tree",
            )
        ]
    return []


def _backend_problems(profile: Profile, speculation: Speculation) -> list[Problem]:
    if speculation.topk is None or speculation.topk <= 1:
        return []
    names = ("attention-backend", "decode-attention-backend", "speculative-draft-attention-backend")
    paged = str(profile.flags.get("page-size", 1)) != "1"
    problems = []
    for name in names:
        backend = profile.flags.get(name)
        if backend is None:
            continue
        if backend == "trtllm_mha" or (paged and backend not in _TREE_WITH_PAGES):
            problems.append(
                _error(
                    f"flags.{name}",
                    f"{backend} cannot verify a tree (topk {speculation.topk})"
                    + (" with pages of several tokens" if paged else ""),
                    "set topk = 1, or use flashinfer, fa3 or triton",
                    "topk-attention-backend",
                )
            )
    return problems


def _is_eagle3(draft: str | None) -> bool:
    name = (draft or "").lower().replace("-", "").replace("_", "")
    return "eagle3" in name


def _error(where: str, message: str, hint: str, slug: str) -> Problem:
    return Problem(where=where, message=message, hint=hint, slug=slug)


_RANGE: Final = "out-of-range"
