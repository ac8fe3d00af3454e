"""Profiles: everything needed to start a server, as plain values.

A profile is read from TOML by ``eaglemon.io.config``; engines turn it into a command line.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

FlagValue: TypeAlias = (
    str | int | float | bool | tuple[str | int | float, ...] | Mapping[str, object]
)
"""``True`` gives the bare flag, ``False`` leaves it out, a mapping is passed as JSON."""


_NOT_BEHAVIOUR = (
    "name",
    "source",
    "description",
    "reference",
    "limits",
    "stall_limits",
    "hooks",
    "probe",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How the server speculates, in SGLang's terms; vLLM's K is ``draft_tokens - 1``."""

    algorithm: str = "EAGLE3"
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    """Tokens verified per step, the bonus position included: the ceiling of the accept length."""

    @property
    def ceiling(self) -> int | None:
        """Largest possible accept length (tokens per verify step), where known."""
        if self.draft_tokens is not None and self.steps is not None:
            return min(self.draft_tokens, self.steps + 1)
        return self.draft_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits of a server's life, in seconds."""

    ready_s: float = 1800.0
    """From launch to ready; large targets load for many minutes."""
    health_connect_s: float = 3.0
    health_total_s: float = 25.0
    """SGLang answers 503 by itself after 20 s: waiting a little longer hears it."""
    health_interval_s: float = 0.5
    """Between polls while starting."""
    ready_interval_s: float = 10.0
    """Between polls once ready: each costs SGLang a generation."""
    first_token_s: float = 120.0
    stop_grace_s: float = 15.0
    release_s: float = 60.0
    """From the last process gone until the GPU memory must be back."""
    health_most_s: float = 2.0
    """Longest pause between polls of a start whose port is still closed."""
    hung_s: float = 90.0
    """A ready server that no longer generates is told within this time, and so is one whose port
    is open and whose health path answers nothing."""
    hook_s: float = 120.0
    """For one hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Shell lines that run on the host around a server's life, in its working folder."""

    before_launch: tuple[str, ...] = ()
    """One after the other before the server; one that fails stops the launch."""
    after_stop: tuple[str, ...] = ()
    """Once the server is gone and its memory is back; one that fails is a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDefaults:
    """What a probe of this server does unless told otherwise."""

    workload: str = "chat"
    requests: int = 16
    concurrency: int = 1
    warmup: int = 2
    max_tokens: int = 128
    temperature: float = 0.0
    ignore_eos: bool = False
    duration_s: float | None = None
    seed: int | None = None
    nonce: bool = True
    """Whether each prompt begins differently, so that no prefix cache helps."""
    flush: bool = False
    from_host: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named way to start one server."""

    name: str
    engine: str
    """``sglang`` or ``vllm``."""
    model: str
    description: str = ""
    draft: str | None = None
    speculation: Speculation | None = None
    """``None`` is a baseline without speculation."""
    address: str = "127.0.0.1"
    port: int
    gpus: tuple[int, ...] | None = None
    """Indexes in PCI order for ``CUDA_VISIBLE_DEVICES``; ``None`` leaves the choice to the host."""
    served_name: str | None = None
    python: str = "python3"
    """Interpreter on the host that has the engine."""
    venv: str | None = None
    """Folder of a virtual environment on the host, in place of ``python``."""
    conda: str | None = None
    """Name or folder of a conda environment, entered with ``conda run``."""
    container: str | None = None
    """Running container, entered with ``docker exec``; ``podman:NAME`` with ``podman exec``."""
    launcher: str | None = None
    """``module`` (``python -m``) or ``script`` (console script); ``None``: the engine's usual."""
    command: tuple[str, ...] = ()
    """Start of the command line in place of the engine's own, e.g. ``["vllm", "serve"]``."""
    workdir: str | None = None
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    """Engine flags by their long name without dashes, in the order they are passed."""
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    stall_limits: Mapping[str, float] = field(default_factory=dict)
    """Seconds without any movement after which a phase counts as stalled, by its slug."""
    hooks: Hooks = field(default_factory=Hooks)
    reference: str = ""
    """Where this pair and its settings are published."""
    probe: ProbeDefaults = field(default_factory=ProbeDefaults)
    source: str = ""
    """File it was read from."""

    @property
    def direct(self) -> bool:
        """Whether the engine is in a Python of the host itself: in no container, in no conda."""
        return self.container is None and self.conda is None

    def digest(self) -> str:
        """Return 12 hex digits over what decides the server's behaviour (not name or source)."""
        values = asdict(self)
        for key in _NOT_BEHAVIOUR:
            del values[key]
        text = json.dumps(values, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
