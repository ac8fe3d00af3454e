"""Wiring as values: which layers of the target an engine hands to a draft.

Slots are numbered as in ``core.draft_views``: 0 is the embedding output, i the residual stream
entering block i, N the output of the last of N blocks before the final norm.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from eaglemon.core.problems import Problem

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
    releases: tuple[str, ...]
    """Those whose rules are known, oldest first."""

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

    def tensor_problems(
        self, config: Mapping[str, Any], roles: Collection[str], version: str | None = None
    ) -> list[Problem]:
        """Return which tensors the engine drops or reads in a way that the draft does not mean.

        ``roles`` are tensor names in the terms of ``eaglemon.draft.layout``.
        """
        ...

    def remedies(self, version: str | None = None) -> Mapping[str, tuple[str, ...]]:
        """Return what to set in this engine, by the name of a verdict on the draft."""
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


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``0.5.16.post1`` gives (0, 5, 16)."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in numbers[1].split(".")) if numbers else ()


def release_rules(rules: WiringRules, version: str | None) -> tuple[str | None, str]:
    """Return the version to judge by, and a warning where it is none that is known.

    What is no release number is judged as if it were not given: by all known releases. A release
    that nobody has looked at has the rules of the newest known one before it, else of the oldest.
    """
    if version is None:
        return None, ""
    release = release_of(version)
    if not release:
        known = ", ".join(rules.releases)
        return None, f"{version!r} is no release of {rules.title}: judged by {known}"
    numbers = [release_of(one) for one in rules.releases]
    if any(release[: len(one)] == one for one in numbers):
        return version, ""
    before = [name for name, one in zip(rules.releases, numbers, strict=True) if one <= release]
    used = before[-1] if before else rules.releases[0]
    return version, f"{rules.title} {version} is no known release: the rules of {used} are used"


def settle(capture: Capture, slots: Collection[int], *, highest: int) -> Capture:
    """Fill in what is captured when ``slots`` are asked for.

    Engines store a layer when they pass it: in ascending order, each once, and those above
    ``highest`` or below 0 never. A draft's ``fc`` has a fixed width, so a missing one is fatal.
    """
    passed = tuple(sorted(slot for slot in set(slots) if 0 <= slot <= highest))
    crash = capture.crash
    if len(passed) < len(slots) and not crash:
        never = sorted(slot for slot in set(slots) if slot not in passed)
        what = f"block input {never[0]} does not exist" if never else "a layer is named twice"
        crash = f"{what}: {len(passed)} of {len(slots)} layers reach fc, which does not fit"
    notes = capture.notes
    if list(slots) != sorted(slots):
        notes = (*notes, "captured in ascending order, not in that of the ids")
    return replace(capture, slots=passed, crash=crash, notes=notes)


def order_for(slots: Collection[int]) -> tuple[int, ...]:
    """Return the permutation of ``fc``'s column blocks that makes ``slots`` ascend."""
    wanted = list(slots)
    return tuple(sorted(range(len(wanted)), key=lambda place: wanted[place]))


def change(
    rules: WiringRules,
    config: Mapping[str, Any],
    slots: tuple[int, ...],
    target: TargetShape,
    *,
    key: str,
    version: str | None,
) -> ConfigChange:
    """Write the ids at ``key`` that make an engine capture ``slots``; shared by the engines.

    Both conventions (as given, and one less) are tried by the engine's own rules.
    """
    warnings: list[str] = []
    ascending = tuple(sorted(set(slots)))
    if ascending != slots:
        order = ",".join(str(place) for place in order_for(slots))
        warnings.append(
            f"{rules.title} captures in ascending order: also run "
            f"'eaglemon draft repair DIR --permute {order}'"
            if len(ascending) == len(slots)
            else "no engine captures one layer twice: this wiring cannot be served"
        )
    tried: list[tuple[int, tuple[int, ...], dict[str, Any], tuple[Capture, ...]]] = []
    for less in (0, 1):
        ids = tuple(slot - less for slot in ascending)
        config_then = with_ids(config, key, ids)
        captures = rules.captures(config_then, target, version)
        right = [found for found in captures if found.slots == ascending]
        served = sum(1 for found in right if not found.crash)
        tried.append((served * 100 + len(right), ids, config_then, captures))
    score, ids, content, captures = max(tried, key=lambda item: item[0])
    for found in captures:
        if found.slots != ascending:
            warnings.append(f"{found.name} would capture {list(found.slots or ())} with these ids")
        elif found.crash:
            warnings.append(f"{found.name} crashes: {found.crash}")
    return ConfigChange(
        config=content,
        ids=ids if score else None,
        key=key,
        captures=captures,
        warnings=tuple(warnings),
    )
