"""Views of a running experiment: what a screen or a progress line shows. Built in ``app``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eaglemon.core.experiment import ExperimentPlan, Leg
from eaglemon.core.experiment_machine import State
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.problems import Problem
from eaglemon.core.verdict import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """What one lane of measurements is doing; without ``parallel`` there is one."""

    state: State
    leg: Leg | None = None
    """The present or next measurement."""
    server_id: str | None = None
    """The server that is started, measured or stopped now: the snapshot shows the rest of it."""
    probe: ProbeProgress | None = None
    waits_for: str = ""
    """Why it stands still, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentView:
    """An experiment of this console."""

    plan: ExperimentPlan
    lanes: tuple[LaneView, ...] = ()
    done: tuple[Leg, ...] = ()
    """Measurements that are stored, in order."""
    failures: Mapping[int, str] = field(default_factory=dict)
    """Diagnosis by arm."""
    given_up: Mapping[int, str] = field(default_factory=dict)
    """Why an arm was measured no further although it works, by arm."""
    findings: Findings | None = None
    """As of the last whole round, at the end of all; ``None`` before the first round."""
    elapsed_s: float = 0.0
    """Since this console began or resumed it."""
    remaining_s: float | None = None
    """At the pace so far, before the first measurement by earlier starts; ``None``: not known."""
    outcome: str = ""
    """``done``, ``narrow``, ``time-up``, ``cancelled`` or ``failed``; empty while it runs."""
    notes: tuple[str, ...] = ()
    """What a person should know: servers left behind, what could not be restored."""

    @property
    def total(self) -> int:
        """Measurements planned."""
        return len(self.plan.legs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What an experiment will do, told before it is confirmed."""

    plan: ExperimentPlan
    differences: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = ()
    """Per later arm: its name, and (setting, value of the first arm, its own value)."""
    starts: int = 0
    running: tuple[str, ...] = ()
    """Servers that run already and are measured as they are."""
    in_the_way: tuple[str, ...] = ()
    """Servers that run and will be stopped."""
    expected_s: float | None = None
    """About how long; ``None`` where no start of these profiles is known yet."""
    smallest_effect: float | None = None
    """Share by which arms must differ to be noticed, at a usual spread over prompts."""
    refused: tuple[tuple[tuple[str, ...], Problem], ...] = ()
    """What stands against starting servers now: (names of the arms, why)."""
    warned: tuple[tuple[tuple[str, ...], Problem], ...] = ()
    """What else is to be known of those starts, without keeping them: as ``refused``."""
    baseline_missing: bool = False
    """Every arm speculates: nothing tells whether speculation pays at all."""

    @property
    def startable(self) -> int:
        """Arms that nothing is known to stand against."""
        return len({arm.name for arm in self.plan.arms}.difference(*(n for n, _ in self.refused)))
