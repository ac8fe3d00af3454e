"""What is known of a GPU host: its link, its facts, its GPUs and who uses them.

Missing is not zero: every reading that a driver may refuse is ``None`` when it did.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class LinkState(StrEnum):
    """State of the connection to a host, as shown on screen."""

    IDLE = "idle"
    CONNECTING = "connecting"
    UP = "up"
    STALE = "stale"
    DEGRADED = "degraded"
    DOWN = "down"


JUMP_WORDS = " (jump host "
"""Between the name of a host and that of a jump host on the way to it."""


def of_host(name: str, text: str) -> str:
    """Return ``text`` about a host with its name before it, once."""
    return f"{name}: {beside_name(name, text)}"


def beside_name(name: str, text: str) -> str:
    """Return ``text`` as it is said where the host is named already; a jump host is named."""
    if text.startswith(f"{name}: "):
        return text.removeprefix(f"{name}: ")
    if text.startswith(f"{name}{JUMP_WORDS}"):
        hop, end, rest = text.removeprefix(f"{name}{JUMP_WORDS}").partition("): ")
        return f"jump host {hop}: {rest}" if end else text
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """How to reach a host, from ``hosts.toml`` or straight from the command line."""

    name: str
    transport: str = "ssh"
    """``ssh`` or ``local``."""
    address: str = ""
    """Name or address for SSH (an alias of ``~/.ssh/config`` too); empty means ``name``."""
    user: str | None = None
    port: int | None = None
    python: str | None = None
    """Interpreter for the agent; ``None`` finds one."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment of the agent on the host (inherited by the servers it starts)."""
    known_hosts: str | None = None
    """An own known_hosts file; ``None`` means OpenSSH's usual ones."""
    identity: str | None = None
    """A private key file to use before those of ``~/.ssh/config`` and the agent."""
    ssh_config: str | None = None
    """An own OpenSSH configuration; ``None`` means ``~/.ssh/config``, ``""`` means none."""
    sample_s: float = 1.0
    """Seconds between samples of the GPUs, from 0.1 to 5; processes are listed half as often."""
    accept_new: bool = False
    """Whether the key of a host that was never seen is written to known_hosts unasked."""
    source: str = ""
    """Where this entry came from (a file, ``command line``, ``built in``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQuestion:
    """What has to be asked of a person before a host can be reached."""

    host: str
    kind: str
    """``host-key`` (answered by ``yes``) or ``passphrase`` (answered by it)."""
    text: str
    """The question in one line."""
    detail: str = ""
    """What to compare: the fingerprint and the file that the key goes into."""

    @property
    def is_secret(self) -> bool:
        """Whether the answer must not be seen."""
        return self.kind == "passphrase"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What the agent says of its host when it starts."""

    hostname: str
    user: str
    uid: int
    python_version: str
    agent_protocol: int
    boot_id: str
    state_dir: str
    """Absolute folder of the run records on the host."""
    state_note: str | None = None
    """Why the records are not at their usual place; ``None`` where they are."""
    limits: tuple[str, ...] = ()
    """What this host cannot do and why: it has no python3, for one."""
    cpu_count: int | None = None
    memory_total_bytes: int | None = None
    driver_version: str | None = None
    nvml_error: str | None = None
    """Why there is no GPU data, in the driver's words; ``None`` where NVML works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A part of a GPU that MIG has cut off: its own memory, its own processes."""

    uuid: str
    """The driver's ``MIG-...``, or ``<GPU>/<GI>/<CI>`` where only the numbers are known."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    name: str | None = None
    """Such as ``1g.5gb``."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment, as NVML reports it (v2 ``used``, without the reserved part)."""

    index: int
    """PCI order, as ``CUDA_VISIBLE_DEVICES`` counts under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``."""
    uuid: str
    name: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    bus_id: str | None = None
    """PCI address with its domain, such as ``00000008:01:00.0``."""
    memory_is_host: bool = False
    """The GPU has no memory of its own: used and total are those of the host's memory."""
    throttle: tuple[str, ...] | None = None
    """Why the clocks are held back, in words; empty: they are not; ``None``: not known."""
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    xid: int | None = None
    """Number of the last critical event (XID) that the driver reported while it was watched."""
    mig: tuple[MigInstance, ...] | None = None
    """Instances of a GPU in MIG mode; ``None`` where the mode is off or not known."""
    error: str | None = None
    """What the driver said when this GPU could not be read (``GPU is lost``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    gpu_uuid: str
    pid: int
    memory_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    """Command line as ``/proc`` has it, spaces between arguments; ``None`` where unreadable."""
    container: str | None = None
    """Name of its container, or the short id where the name is not to be had."""
    container_pid: int | None = None
    """Its PID inside the container."""
    mig_uuid: str | None = None
    """The MIG instance that it runs on."""
    run_id: str | None = None
    """The eaglemon run it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """All GPUs of a host at one moment."""

    at: float
    """Unix seconds: of the host's clock as the host tells it, of this computer's in a snapshot."""
    gpus: tuple[GpuSample, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    took_s: float = 0.0
    """How long the driver calls took."""
    driver_error: str | None = None
    """Set when NVML as a whole does not answer (``Driver/library version mismatch``)."""
    processes_known: bool = True
    """False where an empty list of processes proves nothing (Tegra; a driver that refuses)."""
    notes: tuple[str, ...] = ()
    """What else to know of the GPUs: those given to a virtual machine, for one."""

    @property
    def unseen(self) -> str | None:
        """Why it is not known who holds GPU memory here; ``None`` where it is."""
        if self.driver_error is not None:
            return self.driver_error
        if self.processes_known:
            return None
        return next((one.error for one in self.gpus if one.error), "the driver lists no processes")

    def memory_used_bytes(self, uuids: frozenset[str]) -> int | None:
        """Sum of used memory over the named GPUs; ``None`` when one of them is not known."""
        used = {gpu.uuid: gpu.memory_used_bytes for gpu in self.gpus if gpu.uuid in uuids}
        if len(used) != len(uuids):
            return None
        total = 0
        for value in used.values():
            if value is None:
                return None
            total += value
        return total
