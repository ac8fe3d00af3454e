"""How a simulated engine shall behave, from its environment."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FAULTS = frozenset(
    {
        "oom",
        "hang",
        "bind",
        "ignore-term",
        "slow-load",
        "crash-first-request",
        "crash-ready",
        "stall",
        "no-log",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The knobs of the simulation."""

    folder: Path | None = None
    """Folder of the simulated host (``EAGLEMON_SIM_DIR``); ``None`` holds no GPU memory."""
    speed: float = 1.0
    """Start-up and shutdown run this many times faster; decoding keeps its own pace."""
    faults: frozenset[str] = frozenset()
    wrong_wiring: bool = False
    """The draft is fed other layers than it was trained on, whatever its path says."""
    seed: int = 1
    accept_rates: tuple[float, ...] = ()
    """Own conditional acceptance per draft position."""
    decode_step_s: float | None = None
    """Own time of a decode step without speculation."""
    verify_step_s: float | None = None
    """Own time of a draft-and-verify step."""
    visible_gpus: tuple[int, ...] | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def sleep(self, seconds: float) -> None:
        """Sleep simulated seconds of a start-up."""
        if seconds > 0:
            time.sleep(seconds / self.speed)

    def real_s(self, seconds: float) -> float:
        """Return how long simulated seconds of a start-up take here."""
        return seconds / self.speed


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read ``EAGLEMON_SIM_*`` and ``CUDA_VISIBLE_DEVICES``; raises ``ValueError`` on nonsense."""
    folder = environ.get("EAGLEMON_SIM_DIR")
    faults = frozenset(filter(None, environ.get("EAGLEMON_SIM_FAULT", "").split(",")))
    if faults - FAULTS:
        known = ", ".join(sorted(FAULTS))
        raise ValueError(f"unknown EAGLEMON_SIM_FAULT {sorted(faults - FAULTS)}; known: {known}")
    devices = environ.get("CUDA_VISIBLE_DEVICES")
    return Settings(
        folder=Path(folder) if folder else None,
        speed=float(environ.get("EAGLEMON_SIM_SPEED", "1")),
        faults=faults,
        wrong_wiring=environ.get("EAGLEMON_SIM_WIRING") == "wrong",
        seed=int(environ.get("EAGLEMON_SIM_SEED", "1")),
        accept_rates=_numbers(environ.get("EAGLEMON_SIM_ACCEPT", "")),
        decode_step_s=_milliseconds(environ.get("EAGLEMON_SIM_STEP_MS")),
        verify_step_s=_milliseconds(environ.get("EAGLEMON_SIM_VERIFY_MS")),
        visible_gpus=None
        if devices is None
        else tuple(int(part) for part in devices.split(",") if part.strip().isdigit()),
        environ=dict(environ),
    )


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(",") if part)


def _milliseconds(text: str | None) -> float | None:
    return float(text) / 1000.0 if text else None
