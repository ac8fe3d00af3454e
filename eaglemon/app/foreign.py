"""Finds servers on a host that no console started, and ends one that was named."""

import importlib.resources
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace

from eaglemon.app.host import Host
from eaglemon.core.foreign import ForeignServer, ForeignStop
from eaglemon.core.hosts import HostSample
from eaglemon.core.lifecycle_events import StatusSeen
from eaglemon.core.redact import mask_argv
from eaglemon.core.runs import RunExit
from eaglemon.core.units import plural
from eaglemon.engines import ENGINES, engine_of
from eaglemon.errors import HostError, ServerError, UsageError
from eaglemon.io.clock import Clock

LOOK_S = 3.0
"""Between two looks at whether a foreign server still runs."""
MEMORY_BACK_S = 10.0
"""How long after the last process has gone its GPU memory is waited for."""


async def find_foreign(host: Host, *, ours: frozenset[int]) -> tuple[ForeignServer, ...]:
    """Return the servers on ``host`` whose process is none of ``ours``, by pid.

    Raises ``HostError`` where the host cannot be asked.
    """
    found = []
    job = {"do": "find", "words": list(ENGINES)}
    async with aclosing(host.link.run_program(_source(), input=job)) as answers:
        async for answer in answers:
            server = _server(answer, host)
            if server is not None and not ours & set(server.pids):
                found.append(server)
    return tuple(found)


async def stop_foreign(
    host: Host, server: ForeignServer, *, grace_s: float
) -> AsyncGenerator[ForeignStop, None]:
    """End a foreign server: TERM, grace, KILL of what is left; yields each step.

    The last value says what is left. Raises ``ServerError`` where nothing may be signalled.
    """
    job = {
        "do": "stop",
        "pid": server.pid,
        "start_ticks": server.start_ticks,
        "grace_s": grace_s,
    }
    stop = ForeignStop(server=server, left=server.pids)
    async with aclosing(host.link.run_program(_source(), input=job)) as answers:
        async for answer in answers:
            refused = answer.get("refused")
            if isinstance(refused, list) and refused and len(refused) == answer.get("count"):
                raise ServerError(
                    f"{server.id} was not stopped: {'; '.join(map(str, refused))}",
                    hint=f"as its owner or root: kill {server.pid}",
                )
            if answer.get("step") == "failed":
                raise ServerError(
                    f"{server.id}: the stop failed on its host: {answer.get('why')}",
                    hint=f"see what is left with: ps {server.pid}",
                )
            words = _words(answer)
            left = answer.get("left")
            pids = tuple(int(pid) for pid, _ in left) if isinstance(left, list) else stop.left
            stop = replace(stop, steps=(*stop.steps, words), left=pids)
            yield stop


async def foreign_events(
    there: Callable[[], Awaitable[bool]], clock: Clock
) -> AsyncGenerator[StatusSeen, None]:
    """Yield whether a foreign server still runs, until not; nothing while the host is down."""
    while True:
        await clock.sleep(LOOK_S)
        with suppress(HostError):
            alive = await there()
            gone = RunExit(reason="seen to be gone")
            yield StatusSeen(living=int(alive), exit=None if alive else gone)
            if not alive:
                return


def memory_of(server: ForeignServer, sample: HostSample | None) -> ForeignServer:
    """Return the server with the GPU memory that its processes hold."""
    if sample is None:
        return server
    mine = [process for process in sample.processes if process.pid in server.pids]
    uuids = {process.gpu_uuid for process in mine}
    known = [process.memory_bytes for process in mine if process.memory_bytes is not None]
    return replace(
        server,
        memory_used_bytes=sum(known) if known else None,
        gpu_indexes=tuple(gpu.index for gpu in sample.gpus if gpu.uuid in uuids),
    )


def _server(answer: Mapping[str, object], host: Host) -> ForeignServer | None:
    argv, members = answer.get("argv"), answer.get("members")
    if not isinstance(argv, list) or not isinstance(members, list):
        return None
    words = tuple(map(str, argv))
    engine = engine_of(words)
    if engine is None:
        return None
    try:
        profile = engine.profile_of(words)
    except UsageError:
        return None
    pid = int(str(answer["pid"]))
    container, inner_pid = answer.get("container"), answer.get("container_pid")
    server = ForeignServer(
        host=host.spec.name,
        pid=pid,
        start_ticks=int(str(answer["start_ticks"])),
        user=str(answer["user"]),
        profile=replace(profile, name=f"foreign-{pid}", source="process"),
        command_line=shlex.join(mask_argv(words)),
        started_at=float(str(answer["started_at"])),
        container=None if container is None else str(container),
        container_pid=inner_pid if isinstance(inner_pid, int) else None,
        pids=tuple(int(member) for member in members),
    )
    return memory_of(server, host.sample)


def _words(answer: Mapping[str, object]) -> str:
    count = int(str(answer.get("count", 0)))
    match answer.get("step"):
        case "term":
            words = f"TERM sent to {plural(count, 'process')}"
        case "kill":
            words = f"{plural(count, 'survivor')} killed"
        case "gone":
            return "all processes gone"
        case _:
            left = answer.get("left")
            pairs = left if isinstance(left, list) else []
            return "still there: " + ", ".join(f"PID {pid} (state {state})" for pid, state in pairs)
    refused = answer.get("refused")
    if isinstance(refused, list) and refused:
        words += f", not to {', '.join(map(str, refused))}"
    return words


def _source() -> bytes:
    return importlib.resources.files("eaglemon.agent").joinpath("foreign.py").read_bytes()
