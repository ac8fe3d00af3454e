"""vLLM's flags and the rules that its profiles must keep (0.32; older releases differ)."""

import json
from collections.abc import Mapping
from typing import Any, Final

from eaglemon.core.problems import Problem, Severity, did_you_mean
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.engines.command import common_problems, number_problem, tensor_parallel
from eaglemon.engines.releases import FlagSpan, span_problems
from eaglemon.engines.vllm.known_flags import KNOWN_FLAGS

METHODS: Final = frozenset(
    {
        "eagle",
        "eagle3",
        "mtp",
        "ngram",
        "ngram_gpu",
        "suffix",
        "draft_model",
        "medusa",
        "mlp_speculator",
        "extract_hidden_states",
        "dflash",
        "dspark",
    }
)
_NEEDS_DRAFT: Final = frozenset({"eagle", "eagle3", "medusa", "draft_model", "dflash", "dspark"})
_TP_FLAGS: Final = ("tensor-parallel-size", "tp")

OWNED: Final[Mapping[str, str]] = {
    "model": "model",
    "host": "address",
    "port": "port",
    "served-model-name": "served_name",
    "spec-method": "speculation.algorithm",
    "spec-model": "draft",
    "spec-tokens": "speculation.draft_tokens",
}
"""Flags that keys of a profile set."""

_OLD: Final = (0, 8)
_V1: Final = (0, 20)


def _gone(hint: str) -> FlagSpan:
    return FlagSpan(last_seen=_OLD, gone_in=_V1, hint=hint)


SPANS: Final[Mapping[str, FlagSpan]] = {
    "speculative-model": _gone("use draft and [speculation]"),
    "num-speculative-tokens": _gone("use [speculation]"),
    "speculative-draft-tensor-parallel-size": _gone(
        "use draft_tensor_parallel_size in the table speculative-config"
    ),
    "disable-prefix-caching": _gone("write no-enable-prefix-caching"),
}
"""Flags of vLLM 0.6 to 0.8 that 0.20 refuses; releases between them were not looked at."""


def speculative_config(profile: Profile) -> dict[str, object] | None:
    """Return the speculative config of a profile, ``None`` for a baseline.

    The profile's own ``speculative-config`` flag, where it is a table, adds to it or replaces.
    """
    speculation = profile.speculation
    given = profile.flags.get("speculative-config")
    more = dict(given) if isinstance(given, Mapping) else {}
    if speculation is None:
        return more or None
    config: dict[str, object] = {"method": method_of(speculation)}
    if profile.draft is not None:
        config["model"] = profile.draft
    tokens = proposed_tokens(speculation)
    if tokens is not None:
        config["num_speculative_tokens"] = tokens
    return {**config, **more}


def method_of(speculation: Speculation) -> str:
    """Return vLLM's name of the algorithm."""
    name = speculation.algorithm.lower()
    return {"nextn": "mtp", "standalone": "draft_model"}.get(name, name)


def proposed_tokens(speculation: Speculation) -> int | None:
    """Return the proposed tokens per step: SGLang counts the bonus token too, vLLM does not."""
    if speculation.draft_tokens is not None:
        return speculation.draft_tokens - 1
    return speculation.steps


def vllm_problems(profile: Profile, version: str | None = None) -> list[Problem]:
    """Return what is wrong with a profile for this release of vLLM (``None``: not known)."""
    problems = common_problems(
        profile, known=KNOWN_FLAGS | set(SPANS), owned=OWNED, tp_flags=_TP_FLAGS, loose=True
    )
    problems += number_problem(profile, "gpu-memory-utilization", 0.0, 1.0, low_open=True)
    problems += number_problem(profile, "max-num-seqs", 1, 1_000_000)
    problems += span_problems(profile, SPANS, engine="vllm", version=version)
    given = profile.flags.get("speculative-config")
    if given is not None and not isinstance(given, Mapping):
        problems += _text_problems(given)
        if isinstance(given, str) and profile.speculation is not None:
            problems.append(
                _error(
                    "flags.speculative-config",
                    "speculation is given twice",
                    "use [speculation], or a table that adds to it",
                    "flag-owned-by-profile",
                )
            )
    elif given is not None and profile.speculation is None:
        problems += config_problems(given, profile)
    if profile.speculation is None:
        if profile.draft is not None:
            problems.append(
                _error(
                    "draft",
                    "a draft is named but nothing says how to speculate",
                    "add [speculation], or leave the draft out",
                    "draft-unused",
                )
            )
        return problems
    config = speculative_config(profile) or {}
    return problems + _speculation_problems(profile.speculation) + config_problems(config, profile)


def config_problems(config: Mapping[str, Any], profile: Profile) -> list[Problem]:
    """Return what is wrong with a speculative config."""
    where = "speculation"
    method = config.get("method")
    problems: list[Problem] = []
    if method is None:
        problems.append(
            _error(
                where,
                "no method: vllm guesses eagle3 only from the draft's path",
                'set method to "eagle3"',
                "vllm-method-missing",
            )
        )
    elif method not in METHODS:
        problems.append(
            Problem(
                where=where,
                message=f"{method} is not a method this console knows",
                hint=did_you_mean(str(method), METHODS),
                severity=Severity.WARNING,
                slug="unknown-algorithm",
            )
        )
    draft = config.get("model")
    if draft is None and method in _NEEDS_DRAFT:
        problems.append(_error(where, f"{method} needs a draft", "name the draft", "draft-missing"))
    name = str(draft or "").lower().replace("-", "").replace("_", "")
    if method == "eagle" and "eagle3" in name:
        problems.append(
            _error(
                where,
                "the draft is an EAGLE-3 draft",
                "use the method eagle3",
                "eagle-for-eagle3-draft",
            )
        )
    tokens = config.get("num_speculative_tokens")
    if tokens is None:
        if draft is not None:
            problems.append(
                _error(
                    where,
                    "num_speculative_tokens is missing",
                    "set draft_tokens: one more than the tokens to propose",
                    "vllm-tokens-missing",
                )
            )
    elif not isinstance(tokens, int) or tokens < 1:
        problems.append(
            _error(where, f"{tokens} proposed tokens", "propose 1 or more", "out-of-range")
        )
    return problems + _parallel_problems(config, profile)


def _parallel_problems(config: Mapping[str, Any], profile: Profile) -> list[Problem]:
    problems = []
    if "tensor_parallel_size" in config:
        problems.append(
            _error(
                "speculation",
                "tensor_parallel_size is no key of a speculative config",
                "use draft_tensor_parallel_size",
                "draft-tp-invalid",
            )
        )
    draft_tp = config.get("draft_tensor_parallel_size")
    target_tp = tensor_parallel(profile, _TP_FLAGS) or 1
    if draft_tp is not None and draft_tp not in {1, target_tp}:
        problems.append(
            _error(
                "speculation",
                f"the draft's tensor parallel size {draft_tp} is neither 1 nor the target's",
                f"use 1 or {target_tp}",
                "draft-tp-invalid",
            )
        )
    return problems


def _speculation_problems(speculation: Speculation) -> list[Problem]:
    problems = []
    steps, tokens = speculation.steps, speculation.draft_tokens
    if speculation.topk is not None and speculation.topk != 1:
        problems.append(
            _error(
                "speculation.topk",
                "vllm proposes one chain, no tree",
                "set topk = 1",
                "vllm-topk",
            )
        )
    if steps is not None and tokens is not None and tokens != steps + 1:
        problems.append(
            _error(
                "speculation.draft_tokens",
                f"a chain of {steps} steps verifies {steps + 1} tokens",
                f"set draft_tokens = {steps + 1}",
                "topk1-draft-tokens",
            )
        )
    return problems


def _text_problems(given: object) -> list[Problem]:
    where = "flags.speculative-config"
    try:
        config = json.loads(given) if isinstance(given, str) else None
    except ValueError as error:
        return [
            _error(where, f"not JSON: {error}", "write it as a table", "bad-speculative-config")
        ]
    if not isinstance(config, dict):
        return [_error(where, "not a JSON object", "write it as a table", "bad-speculative-config")]
    return []


def _error(where: str, message: str, hint: str, slug: str) -> Problem:
    return Problem(where=where, message=message, hint=hint, slug=slug)
