"""Which target layers vLLM hands to a draft; release 0.32 (by its source, V1 also seen running).

Ids are taken as they stand: id i is the residual stream entering block i. The V1 model runner reads
the top-level key, then the nested one; the V2 runner the top-level key, then
``eagle_config.layer_ids`` alone. Without Triton (on a CPU) the V1 runner is used.
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
    settle,
)

_V2_NESTED = "eagle_config.layer_ids"
_RUNNERS = (("V1 model runner", (KEY, NESTED)), ("V2 model runner", (KEY, _V2_NESTED)))
_NO_EMBEDDING = frozenset({"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25"})


class VllmWiring:
    """vLLM's rules."""

    engine = "vllm"
    title = "vLLM"
    releases: tuple[str, ...] = ("0.32",)

    def captures(
        self, config: Mapping[str, Any], target: TargetShape, version: str | None = None
    ) -> tuple[Capture, ...]:
        """Return what both model runners capture; the rules are those of 0.32."""
        return tuple(
            self._capture(config, target, variant, keys, version or "0.32")
            for variant, keys in _RUNNERS
        )

    def wire(
        self,
        config: Mapping[str, Any],
        slots: tuple[int, ...],
        target: TargetShape,
        version: str | None = None,
    ) -> ConfigChange:
        """Return the configuration that makes vLLM capture ``slots``: both runners read it."""
        return change(self, config, slots, target, key=KEY, version=version)

    def tensor_problems(
        self, config: Mapping[str, Any], roles: Collection[str], version: str | None = None
    ) -> list[Problem]:
        """Return which tensors vLLM drops without a word; the same in all known releases."""
        if "input_norm.weight" not in roles or config.get("norm_before_fc"):
            return []
        release = version or "0.32"
        return [
            Problem(
                where="input_norm.weight",
                message=f"vLLM {release} drops it where norm_before_fc is not set",
                hint="set norm_before_fc if the draft was trained with it",
                severity=Severity.WARNING,
                slug="norm-ignored",
            )
        ]

    def remedies(self, version: str | None = None) -> Mapping[str, tuple[str, ...]]:
        """Return vLLM's settings by verdict; the same in all known releases."""
        del version
        return {
            "wrong-algorithm": ('vLLM: "method": "eagle3" in --speculative-config',),
            "norms": (
                "vLLM: it reads norm_before_residual, fc_norm and norm_before_fc of config.json",
            ),
            "recurrence": ("vLLM: start once with --enforce-eager to rule out the draft's graph",),
            "serving": (
                "vLLM: beside an fp8 KV cache or a quantised target, try the draft without either",
            ),
            "rope-or-context": ("vLLM: --max-model-len",),
            "overhead": ('vLLM: a lower "num_speculative_tokens", and no --enforce-eager',),
        }

    def _capture(
        self,
        config: Mapping[str, Any],
        target: TargetShape,
        variant: str,
        keys: tuple[str, ...],
        versions: str,
    ) -> Capture:
        key = next((name for name in keys if ids_at(config, name) is not None), None)
        ids = None if key is None else ids_at(config, key)
        slots = default_slots(target.layers) if ids is None else ids
        notes: tuple[str, ...] = ()
        if ids is None:
            notes = ("no ids where it looks, the default is used",)
            if ids_at(config, NESTED) is not None:
                notes = (*notes, f"{NESTED} is ignored")
        crash = ""
        if 0 in slots and target.model_type in _NO_EMBEDDING:
            crash = "TypeError: this model adds the embedding to a residual that is not there"
        elif min(slots) < 0:
            crash = "a negative id is never captured: the engine dies at the first request"
        return settle(
            Capture(
                engine=self.title,
                versions=versions,
                variant=variant,
                slots=slots,
                key=key,
                crash=crash,
                notes=notes,
            ),
            slots,
            highest=target.layers,
        )


RULES = VllmWiring()
