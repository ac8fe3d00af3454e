"""The wiring rules of all engines: which target layers each hands to a draft."""

from collections.abc import Mapping
from types import MappingProxyType

from eaglemon.core.problems import did_you_mean
from eaglemon.core.wiring import WiringRules
from eaglemon.engines.sglang.wiring import RULES as SGLANG_RULES
from eaglemon.engines.vllm.wiring import RULES as VLLM_RULES
from eaglemon.errors import UsageError

WIRING: Mapping[str, WiringRules] = MappingProxyType(
    {SGLANG_RULES.engine: SGLANG_RULES, VLLM_RULES.engine: VLLM_RULES}
)


def wiring_of(engine: str) -> WiringRules:
    """Return the rules of this engine; raises ``UsageError`` naming the nearest one."""
    rules = WIRING.get(engine)
    if rules is None:
        raise UsageError(f"unknown engine {engine!r}", hint=did_you_mean(engine, WIRING))
    return rules
