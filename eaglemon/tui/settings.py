"""How the console behaves, apart from what it shows."""

from dataclasses import dataclass, field
from datetime import tzinfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often things are drawn or asked, in seconds; tests use zeros."""

    refresh_s: float = 0.25
    """Between two pictures: tables are drawn four times a second at most."""
    tick_s: float = 1.0
    """Between two looks at the clock, so that ages go on while every host is silent."""
    check_s: float = 0.4
    """From the last key in the launch form until the host is asked about it."""
    themes_s: float = 1.0
    """Between two looks at the theme files."""
    log_s: float = 0.1
    """Between two writes to a log view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of one console."""

    title: str = "eaglemon"
    read_only: bool = False
    recording: bool = False
    """What is shown is a recording; it is read-only too."""
    zone: tzinfo | None = None
    """Zone of clock times; ``None`` is the local one."""
    kill_grace_s: float = 2.0
    """How long a killed server may take to end by itself."""
    pace: Pace = field(default_factory=Pace)
