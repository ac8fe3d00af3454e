"""What is remembered of experiments and starts: the values that the store keeps and gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.verdict import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a server was measured on; ``None`` and empty where nothing tells."""

    host: str
    engine: str
    engine_version: str | None = None
    engine_revision: str | None = None
    """Git revision of an engine that is installed from a working tree."""
    driver_version: str | None = None
    gpus: tuple[str, ...] = ()
    """Names of the GPUs in use, in order."""
    command_line: str = ""
    """As it was started, secrets masked."""
    digest: str = ""
    """``Profile.digest()``."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """Arguments as the engine resolved them, by name."""
    notes: tuple[str, ...] = ()
    """What could not be found out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """A server that ran before and had to make room."""

    server_id: str
    host: str
    profile: str
    shell_line: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """What its profile was changed by, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchIntent:
    """A launch that was begun for an experiment, noted before it was carried out."""

    number: int
    arm: int
    host: str
    profile: str
    shell_line: str
    before: frozenset[str]
    """Servers known before: one of the same command line that is not among them is ours."""
    server_id: str | None = None
    """``None`` when the console was killed before it knew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """How long one phase of a start took."""

    phase: str
    started_s: float | None
    elapsed_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """One start of a server, for the time left of later ones."""

    server_id: str
    host: str
    profile: str
    digest: str
    engine: str
    launched_at: float
    """Unix seconds."""
    ready_s: float | None = None
    """From launch to the first token; ``None`` when it never came."""
    cause: str | None = None
    """Why it failed."""
    phases: tuple[PhaseTime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord:
    """An experiment as the store has it."""

    plan: ExperimentPlan
    created_at: float
    """Unix seconds."""
    ended_at: float | None = None
    outcome: str = ""
    """Empty while it is under way, or where its console was killed."""
    under_way: bool = False
    """A console of this computer is at it."""
    failures: Mapping[int, str] = field(default_factory=dict)
    """Diagnosis by arm."""
    given_up: Mapping[int, str] = field(default_factory=dict)
    """Why an arm was measured no further although it works, by arm."""
    environments: Mapping[int, Environment] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    startups: tuple[Startup, ...] = ()
    """Starts made for it."""
    displaced: tuple[Displaced, ...] = ()
    intents: tuple[LaunchIntent, ...] = ()
    """Launches whose servers it has not stopped."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(arm.name for arm in self.plan.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSummary:
    """One line of the list of experiments."""

    id: str
    kind: str
    arms: tuple[str, ...]
    hosts: tuple[str, ...]
    created_at: float
    ended_at: float | None
    outcome: str
    trials: int
    requests: int
    under_way: bool = False
    """A console of this computer is at it."""

    @property
    def ending(self) -> str:
        """The outcome, or why there is none, in two words at most."""
        return self.outcome or ("under way" if self.under_way else "cut off")
