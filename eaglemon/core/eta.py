"""Time left of a start: from earlier starts of the same profile on the host, else from rates.

Always a range: earlier starts differ among themselves, and a rate is only that of the part behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from eaglemon.core.phases import PHASE_ORDER, Phase
from eaglemon.core.views import PhaseState, PhaseView

Range = tuple[float, float]
"""Seconds, low and high."""

_ONE_START = (0.75, 1.5)
"""Around the only earlier start: caches may be cold or warm this time."""
_FEW = 4
"""From this many earlier starts on, the fastest and slowest quarter are left out."""
_RATE = (0.7, 1.6)
_RATE_NEEDS_DONE = 2


class EtaSource(StrEnum):
    """What an estimate rests on."""

    EARLIER = "earlier starts"
    RATE = "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """What is left of a start, at one moment."""

    ready_s: Range | None = None
    """Seconds until the first token; ``None`` until it can be told."""
    source: EtaSource | None = None
    starts: int = 0
    """Earlier starts that it rests on."""


Times = Mapping[Phase, float]
"""Seconds that each phase of one earlier start took; phases that did not occur are left out."""


def estimate(
    phases: Sequence[PhaseView], earlier: Sequence[Times]
) -> tuple[tuple[PhaseView, ...], Eta]:
    """Return the phases with the range of seconds left of each, and the whole.

    ``phases`` are those of ``StartupTrack.views``. Phases after ``ready`` are no start.
    """
    done = tuple(
        replace(view, eta_s=_left(view, earlier)) if _is_ahead(view) else view for view in phases
    )
    ahead = [view for view in done if _is_ahead(view)]
    known = [view.eta_s for view in ahead if view.eta_s is not None]
    if earlier and ahead and len(known) == len(ahead):
        low, high = sum(low for low, _ in known), sum(high for _, high in known)
        return done, Eta(ready_s=(low, high), source=EtaSource.EARLIER, starts=len(earlier))
    return done, Eta(source=EtaSource.RATE if known else None)


def _is_ahead(view: PhaseView) -> bool:
    early = PHASE_ORDER.index(view.phase) < PHASE_ORDER.index(Phase.READY)
    return early and view.state in {PhaseState.PENDING, PhaseState.ACTIVE}


def _left(view: PhaseView, earlier: Sequence[Times]) -> Range | None:
    active = view.state is PhaseState.ACTIVE
    elapsed_s = (view.elapsed_s or 0.0) if active else 0.0
    rated = _from_rate(view) if active else None
    if not earlier:
        return rated
    took = sorted(times[view.phase] for times in earlier if view.phase in times)
    if not took:
        # It did not occur before: nothing to wait for, unless it is under way.
        return rated if active else (0.0, 0.0)
    low, high = _middle(took, missing=len(earlier) - len(took))
    if elapsed_s > high:
        # Longer than ever: only its own rate can tell.
        return rated
    return max(0.0, low - elapsed_s), high - elapsed_s


def _middle(took: Sequence[float], *, missing: int) -> Range:
    if len(took) == 1:
        low, high = took[0] * _ONE_START[0], took[0] * _ONE_START[1]
    else:
        cut = len(took) // 4 if len(took) >= _FEW else 0
        kept = took[cut : len(took) - cut]
        low, high = kept[0], kept[-1]
    return (0.0 if missing else low), high


def _from_rate(view: PhaseView) -> Range | None:
    stage = view.stages[-1] if view.stages else None
    done, total, elapsed_s = view.done, view.total, view.elapsed_s
    if stage is not None and stage.total is not None:
        # Further stages of unknown length follow: the rate tells of this one only.
        done, total, elapsed_s = stage.done, stage.total, stage.elapsed_s
    if not done or total is None or elapsed_s is None or done < _RATE_NEEDS_DONE:
        return None
    left_s = elapsed_s * max(0, total - done) / done
    return left_s * _RATE[0], left_s * _RATE[1]
