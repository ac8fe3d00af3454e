"""Which target layers SGLang hands to a draft; releases 0.5.16 and 0.5.23 (by their source).

SGLang reads ``eagle_config.eagle_aux_hidden_state_layer_ids`` alone, and falls back to its default
without a word. Most models add 1 to each id (id k is the output of block k); DeepSeek and Kimi
models do so only where the first id is 1; gpt-oss does unless, from 0.5.23, the last id is the
number of layers.
"""

from collections.abc import Collection, Mapping
from typing import Any

from eaglemon.core.problems import Problem, Severity
from eaglemon.core.wiring import (
    KEY,
    NESTED,
    Capture,
    ConfigChange,
    TargetShape,
    change,
    default_slots,
    ids_at,
    release_of,
    settle,
)

_LATENT = frozenset(
    {"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm4_moe_lite"}
)
_PLUS_ONE = frozenset(
    {
        "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "glm4",
        "glm4_moe", "gemma2", "gemma3", "gemma3_text", "bailing_moe", "bailing_moe_v2",
        "minimax_m3",
    }
)  # fmt: skip
_EMBEDDING_SERVED = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})
_CONDITIONAL_SINCE = (0, 5, 11)
"""Releases before always added 1 for DeepSeek and Kimi models (sglang#25454, 2026-05)."""
_SETTLED = (0, 5, 16)
_LATER = (0, 5, 23)


class SglangWiring:
    """SGLang's rules."""

    engine = "sglang"
    title = "SGLang"
    releases: tuple[str, ...] = ("0.5.16", "0.5.23")

    def captures(
        self, config: Mapping[str, Any], target: TargetShape, version: str | None = None
    ) -> tuple[Capture, ...]:
        """Return what is captured, for ``version`` or for all known releases."""
        if version is not None:
            return (self._capture(config, target, release_of(version), version),)
        known = [(_SETTLED, "0.5.16"), (_LATER, "0.5.23")]
        if target.model_type in _LATENT:
            known.insert(0, ((0, 5, 10), "up to 0.5.10"))
        return tuple(self._capture(config, target, *release) for release in known)

    def wire(
        self,
        config: Mapping[str, Any],
        slots: tuple[int, ...],
        target: TargetShape,
        version: str | None = None,
    ) -> ConfigChange:
        """Return the configuration that makes SGLang capture ``slots``."""
        return change(self, config, slots, target, key=NESTED, version=version)

    def tensor_problems(
        self, config: Mapping[str, Any], roles: Collection[str], version: str | None = None
    ) -> list[Problem]:
        """Return which tensors SGLang drops or replaces without a word."""
        problems = []
        eagle = config.get("eagle_config")
        nested = eagle if isinstance(eagle, Mapping) else {}
        before_fc = bool(config.get("norm_before_fc") or nested.get("norm_before_fc"))
        old = version is None or release_of(version) < _LATER
        if "input_norm.weight" in roles and before_fc and old:
            problems.append(
                _dropped("input_norm.weight", "SGLang before 0.5.23 does not know norm_before_fc")
            )
        if config.get("norm_before_residual"):
            problems.append(
                _dropped("norm_before_residual", "SGLang does not know it and adds the raw state")
            )
        if config.get("norm_output"):
            problems.append(
                Problem(
                    where="norm_output",
                    message="SGLang feeds the normed output to the next step; SpecForge trains "
                    "on the output before the norm",
                    hint="compare survival of steps 2 and later, offline and served",
                    severity=Severity.WARNING,
                    slug="norm-output-recurrence",
                )
            )
        return problems

    def remedies(self, version: str | None = None) -> Mapping[str, tuple[str, ...]]:
        """Return SGLang's settings by verdict; names as in 0.5.16 and 0.5.23."""
        before = version is not None and release_of(version) < _LATER
        norms = "norm_before_fc needs 0.5.23" if before else "it reads fc_norm and norm_before_fc"
        return {
            "wrong-algorithm": ("SGLang: --speculative-algorithm EAGLE3",),
            "norms": (f"SGLang: {norms}", "SGLang: it never reads norm_before_residual"),
            "recurrence": (
                "SGLang feeds the normed output to later steps where norm_output is set",
                "SGLang: start once with --disable-cuda-graph to rule out the draft's graph",
            ),
            "serving": (
                (
                    "SGLang: an unquantised draft beside a quantised target needs "
                    "--speculative-draft-model-quantization unquant"
                ),
            ),
            "rope-or-context": (
                (
                    "SGLang: --context-length; a draft with fewer positions than the target needs "
                    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 to start"
                ),
            ),
            "overhead": (
                (
                    "SGLang: --speculative-eagle-topk 1, fewer --speculative-num-steps, and "
                    "--cuda-graph-max-bs-decode of at least the requests at a time"
                ),
            ),
        }

    def _capture(
        self,
        config: Mapping[str, Any],
        target: TargetShape,
        release: tuple[int, ...],
        versions: str,
    ) -> Capture:
        ids = ids_at(config, NESTED)
        notes = _notes(config, target, ids, release)
        key = None if ids is None else NESTED
        if ids is None:
            slots = default_slots(target.layers)
        else:
            slots = tuple(layer + _added(ids, target, release) for layer in ids)
        crash = ""
        if 0 in slots and target.model_type == "llama" and release < _LATER:
            crash = "TypeError: the embedding is captured before there is a residual"
        elif 0 in slots and target.model_type not in _EMBEDDING_SERVED | _LATENT:
            notes = (*notes, "capture of the embedding: read in the source, not run")
        # gpt-oss 0.5.23 alone can take the output of the last block.
        beyond = target.model_type == "gpt_oss" and release >= _LATER
        return settle(
            Capture(
                engine=self.title, versions=versions, slots=slots, key=key, crash=crash, notes=notes
            ),
            slots,
            highest=target.layers if beyond else target.layers - 1,
        )


def _added(ids: tuple[int, ...], target: TargetShape, release: tuple[int, ...]) -> int:
    """Return what is added to each id."""
    if target.model_type in _LATENT and release >= _CONDITIONAL_SINCE:
        return 1 if ids[0] == 1 else 0
    if target.model_type == "gpt_oss" and release >= _LATER:
        return 0 if max(ids) == target.layers else 1
    return 1


def _notes(
    config: Mapping[str, Any],
    target: TargetShape,
    ids: tuple[int, ...] | None,
    release: tuple[int, ...],
) -> tuple[str, ...]:
    notes = []
    if ids is None:
        notes.append("no ids where SGLang looks, its default is used")
        if ids_at(config, KEY) is not None:
            notes.append(f"the top-level {KEY} is ignored")
    if target.model_type not in _PLUS_ONE | _LATENT | {"gpt_oss"}:
        notes.append(f"model type {target.model_type!r} is not among the known: +1 is assumed")
    if target.model_type in _LATENT and _CONDITIONAL_SINCE <= release < _SETTLED:
        notes.append("releases 0.5.11 to 0.5.15 were not read: the rule of 0.5.16 is assumed")
    eagle = config.get("eagle_config")
    if isinstance(eagle, Mapping) and eagle.get("use_aux_hidden_state") is False:
        notes.append("use_aux_hidden_state is false: only the last hidden state is handed over")
    return tuple(notes)


def _dropped(where: str, message: str) -> Problem:
    return Problem(
        where=where,
        message=f"{message}: served differently than trained, without an error",
        severity=Severity.WARNING,
        slug="norm-ignored",
    )


RULES = SglangWiring()
