"""Wiring as values: which layers of the target an engine hands to a draft.

Slots are numbered as in ``core.draft_views``: 0 is the embedding output, i the residual stream
entering block i, N the output of the last of N blocks before the final norm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

KEY = "eagle_aux_hidden_state_layer_ids"
"""Name of the layer ids in a draft's ``config.json``."""
NESTED = f"eagle_config.{KEY}"
"""The same, one level down, as SpecForge writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """What the rules need to know of a target."""

    layers: int
    model_type: str
    """``model_type`` of its ``config.json``: ``llama``, ``deepseek_v3``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What one release of an engine captures for a draft's configuration."""

    engine: str
    versions: str
    """Releases it holds for: ``0.5.16``, ``0.32``."""
    variant: str = ""
    """Part of the engine, where parts differ: ``V2 model runner``."""
    slots: tuple[int, ...] | None
    """Captured slots in the order they are joined; ``None`` where it does not get that far."""
    key: str | None
    """Key the ids come from; ``None`` when defaults are used."""
    crash: str = ""
    """Why the server dies with this configuration; empty where it does not."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Engine, releases and variant in words."""
        return " ".join(word for word in (self.engine, self.versions, self.variant) if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A draft's ``config.json`` as it should be for one engine."""

    config: Mapping[str, Any]
    """The whole new content."""
    ids: tuple[int, ...] | None
    """Ids written, in the engine's convention; ``None`` where they cannot be expressed."""
    key: str
    captures: tuple[Capture, ...]
    """What will be captured afterwards."""
    warnings: tuple[str, ...] = ()


class WiringRules(Protocol):
    """What one engine does with layer ids; pure."""

    engine: str
    title: str

    def captures(
        self, config: Mapping[str, Any], target: TargetShape, version: str | None = None
    ) -> tuple[Capture, ...]:
        """Return what is captured, for ``version`` or for all known releases."""
        ...

    def wire(
        self,
        config: Mapping[str, Any],
        slots: tuple[int, ...],
        target: TargetShape,
        version: str | None = None,
    ) -> ConfigChange:
        """Return the configuration that makes the engine capture ``slots``."""
        ...

    def expected_tensors(self, version: str | None = None) -> frozenset[str]:
        """Return roles (see the draft's layout) that this engine reads besides the needed ones."""
        ...


def ids_at(config: Mapping[str, Any], path: str) -> tuple[int, ...] | None:
    """Return the layer ids at a dotted key; ``None`` where there are none, or no numbers."""
    value: object = config
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    if not isinstance(value, list | tuple) or not value:
        return None
    numbers = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    return numbers if len(numbers) == len(value) else None


def with_ids(config: Mapping[str, Any], path: str, ids: tuple[int, ...]) -> dict[str, Any]:
    """Return a copy of ``config`` with the ids at a dotted key of at most two parts."""
    outer, _, inner = path.rpartition(".")
    if not outer:
        return {**config, inner: list(ids)}
    part = config.get(outer)
    return {**config, outer: {**(part if isinstance(part, Mapping) else {}), inner: list(ids)}}


def default_slots(layers: int) -> tuple[int, ...]:
    """Return what engines capture without ids: low, middle and high."""
    return (2, layers // 2, layers - 3)
