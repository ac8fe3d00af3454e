"""The wiring rules of all engines: which target layers each hands to a draft."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eaglemon.core.problems import did_you_mean
from eaglemon.core.wiring import TargetShape, WiringRules
from eaglemon.engines.sglang.wiring import RULES as SGLANG_RULES
from eaglemon.engines.vllm.wiring import RULES as VLLM_RULES
from eaglemon.errors import UsageError

WIRING: Mapping[str, WiringRules] = MappingProxyType(
    {SGLANG_RULES.engine: SGLANG_RULES, VLLM_RULES.engine: VLLM_RULES}
)


def able_releases(
    config: Mapping[str, Any], slots: tuple[int, ...], target: TargetShape
) -> tuple[tuple[str, str, str], ...]:
    """Return engine, release and what limits the trust, for each that can capture ``slots``."""
    able: dict[tuple[str, str], str] = {}
    for rules in WIRING.values():
        for release in rules.releases:
            captures = rules.wire(config, slots, target, release).captures
            for found in captures:
                if not found.crash and found.slots == tuple(sorted(slots)):
                    able.setdefault((rules.engine, release), "; ".join(found.notes))
    return tuple((engine, release, notes) for (engine, release), notes in able.items())


def wiring_of(engine: str) -> WiringRules:
    """Return the rules of this engine; raises ``UsageError`` naming the nearest one."""
    rules = WIRING.get(engine)
    if rules is None:
        raise UsageError(f"unknown engine {engine!r}", hint=did_you_mean(engine, WIRING))
    return rules
