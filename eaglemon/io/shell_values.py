"""What the sh scripts of a host without python3 answer, as values."""

import json
import re
import socket
import struct
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace

from eaglemon.core import nvidia_smi
from eaglemon.core.hosts import GpuProcess, GpuSample, HostFacts, HostSample
from eaglemon.core.nvidia_smi_report import read_report
from eaglemon.core.nvidia_smi_table import read_table
from eaglemon.core.runs import (
    DamagedRun,
    HostCheck,
    PathFact,
    PortListener,
    RunActivity,
    RunExit,
    RunProcess,
    RunStatus,
)
from eaglemon.errors import AgentError
from eaglemon.io import agent_values

US = "\x1f"
TICKS_PER_S = 100
"""Clock ticks of ``/proc``: the same on all Linux machines that have NVIDIA drivers."""
NO_SMI = "no nvidia-smi: nothing is known of its GPUs"
NO_PYTHON = (
    "no python3: GPUs are read with nvidia-smi each second or slower, probes are sent from this "
    "computer, versions of engines are not known; install python3 or set python = ... in hosts.toml"
)


def parts_of(block: str, count: int) -> list[str]:
    """Return the parts of a block; raises ``AgentError`` when it has another number of them."""
    parts = block.strip("\n").split(US)
    if len(parts) != count:
        raise AgentError(f"the host's sh sent {len(parts)} parts, not {count}", kind="protocol")
    return parts


def facts_of(block: str) -> tuple[HostFacts, frozenset[str]]:
    """Return the host's facts and which tools it has."""
    host, user, uid, boot, state, usual, cpus, memory, tools = parts_of(block, 9)
    found = frozenset(tools.split())
    smi = "nvidia-smi" in found
    limits = [NO_PYTHON]
    if not smi:
        limits.append(NO_SMI)
    facts = HostFacts(
        hostname=host,
        user=user,
        uid=int(uid),
        python_version="none",
        agent_protocol=0,
        boot_id=boot,
        state_dir=state,
        state_note=None
        if state == usual
        else f"{usual} cannot be written: run records are in {state}",
        limits=tuple(limits),
        cpu_count=int(cpus) if cpus.isdigit() else None,
        memory_total_bytes=int(memory) * 1024 if memory.isdigit() else None,
        nvml_error=None if smi else NO_SMI,
    )
    return facts, found


def sample_of(
    block: str, *, at: float, before: Sequence[GpuSample], runs: Mapping[int, str]
) -> tuple[HostSample, str | None]:
    """Return the sample of one round of ``nvidia-smi``, and the driver's version.

    ``before`` are the GPUs as they were last read; ``runs`` tells the run of a pid.
    """
    kind, said, apps, owners, table, meminfo = parts_of(block, 6)
    reading = read_report(said) if kind == "report" else nvidia_smi.read_gpus(said)
    if reading.driver_error is not None:
        sample = HostSample(
            at=at,
            gpus=nvidia_smi.carry_over(before, said),
            driver_error=reading.driver_error,
            processes_known=False,
        )
        return sample, None
    memory = nvidia_smi.read_meminfo(meminfo)
    gpus = [nvidia_smi.with_host_memory(gpu, memory) for gpu in reading.gpus]
    gpus = _with_instances(gpus, table)
    if kind == "report":
        processes, known = reading.processes, reading.processes_known
    else:
        processes, known = nvidia_smi.read_processes(apps, gpus)
    people = dict(_owner(line) for line in owners.splitlines() if line[:1].isdigit())
    sample = HostSample(
        at=at,
        gpus=tuple(gpus),
        processes=agent_values.mask_commands([_with_owner(one, people, runs) for one in processes]),
        processes_known=known,
    )
    return sample, reading.driver_version


def runs_of(
    blocks: Sequence[str], boot_id: str, damaged: MutableMapping[str, DamagedRun] | None = None
) -> list[RunStatus]:
    """Return the runs of one round; a damaged ``run.json`` goes to ``damaged``, by id."""
    found = []
    for block in blocks:
        folder, record_text, exit_text, stop_text, size, supervisor, members = parts_of(block, 7)
        record = _json(record_text)
        name = folder.rstrip("/").rpartition("/")[2]
        if record is None or record.get("id") != name:
            if damaged is not None:
                why = "it is no JSON object" if record is None else "it is no record of this run"
                damaged[name] = DamagedRun(id=name, path=f"{folder}run.json", reason=why)
            continue
        for key in ("supervisor", "inside", "container_id"):
            record.pop(key, None)
        processes, cpu_ticks = _processes(members)
        ended = _json(exit_text)
        leader = record.get("pid")
        living = any(process.pid == leader for process in processes)
        here = record.get("boot_id") == boot_id
        if ended is None and not here:
            ended = {"reason": "host rebooted"}
        elif ended is None and leader is not None and not living and not supervisor:
            ended = {"reason": "supervisor gone"}
        activity = None
        if here and size.strip().isdigit():
            activity = RunActivity(cpu_s=cpu_ticks / TICKS_PER_S, log_bytes=int(size))
        (status,) = agent_values.decode_runs(
            [{"record": record, "exit": ended, "stop": _json(stop_text)}]
        ) or (None,)
        if status is not None:
            shown = agent_values.mask_commands(processes)
            found.append(replace(status, processes=shown, activity=activity))
    return found


def told_exit(status: RunStatus) -> RunExit | None:
    """Return an exit that its supervisor saw: only it knows when."""
    return status.exit if status.exit is not None and status.exit.at is not None else None


def check_of(block: str, *, port: int | None, package: str | None) -> HostCheck:
    """Return the answer of a check."""
    paths, program, listeners, shm, state, version = parts_of(block, 6)
    said = version.strip()
    is_version = re.fullmatch(r"\d[\w.+-]*", said) is not None
    missing = said or "there is no python3 on this host to ask"
    return HostCheck(
        paths=tuple(_path(line) for line in paths.splitlines() if line.strip()),
        listeners=agent_values.mask_commands(
            [_listener(line, port or 0) for line in listeners.splitlines() if line]
        ),
        program=program.strip() or None,
        engine_version=said if is_version else None,
        engine_error=missing if package and not is_version else None,
        shm_free_bytes=_kibibytes(shm),
        state_free_bytes=_kibibytes(state),
    )


def _with_instances(gpus: Sequence[GpuSample], table: str) -> list[GpuSample]:
    """Add the MIG instances of the table, whose rows are found by their PCI address."""
    if not table.strip():
        return list(gpus)
    by_place = {gpu.bus_id: gpu.mig for gpu in read_table(table).gpus if gpu.mig}
    return [replace(gpu, mig=by_place.get(gpu.bus_id) if gpu.bus_id else None) for gpu in gpus]


def _owner(line: str) -> tuple[int, tuple[str | None, str | None]]:
    pid, _, rest = line.strip().partition(" ")
    user, _, command = rest.partition(" ")
    return int(pid), (user or None, command.strip() or None)


def _with_owner(
    process: GpuProcess,
    people: Mapping[int, tuple[str | None, str | None]],
    runs: Mapping[int, str],
) -> GpuProcess:
    user, command = people.get(process.pid, (None, None))
    return replace(
        process,
        user=user,
        command=command or process.command,
        run_id=runs.get(process.pid),
    )


def _processes(members: str) -> tuple[tuple[RunProcess, ...], int]:
    found, total = [], 0
    for line in members.splitlines():
        words = line.split(" ", 4)
        if len(words) < 4 or not words[0].isdigit():
            continue
        found.append(
            RunProcess(
                pid=int(words[0]),
                start_ticks=int(words[1]),
                state=words[2],
                command=words[4].strip() if len(words) > 4 else "",
            )
        )
        total += int(words[3])
    return tuple(found), total


def _json(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _path(line: str) -> PathFact:
    kind, readable, path = line.split(" ", 2)
    return PathFact(path=path, kind=kind, readable=readable == "yes")


def _listener(line: str, port: int) -> PortListener:
    address, uid, pid, command = [*line.split(" ", 3), ""][:4]
    text = address.partition(":")[0]
    words = [int(text[place : place + 8], 16) for place in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    # The kernel prints words in the host's byte order: little endian where there are NVIDIA GPUs.
    shown = socket.inet_ntop(family, struct.pack(f"<{len(words)}I", *words))
    return PortListener(
        address=shown,
        port=port,
        pid=int(pid) if pid.isdigit() else None,
        user=uid,
        command=command.strip() or None,
    )


def _kibibytes(text: str) -> int | None:
    return int(text) * 1024 if text.strip().isdigit() else None
