"""A host without python3: the same questions as of the agent, answered by plain sh.

GPUs come from ``nvidia-smi``; run folders are those of docs/agent-protocol.md. What cannot be done
this way stands in ``facts.limits``. Each stream is one channel, each other question a short one.
"""

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from eaglemon.core import nvidia_smi
from eaglemon.core.hosts import GpuSample, HostFacts, HostSample
from eaglemon.core.runs import DamagedRun, HostCheck, LogChunk, RunRecord, RunRequest
from eaglemon.errors import AgentError, HostError, LinkLostError
from eaglemon.io import shell_values as values
from eaglemon.io.clock import Clock, SystemClock
from eaglemon.io.host_link import LOG_WINDOW_BYTES, RunChanges
from eaglemon.io.shell_blocks import GS, Blocks
from eaglemon.io.shell_runs import SeenRuns, unless_silent
from eaglemon.io.shell_scripts import script, stopper_job, supervisor_job
from eaglemon.io.shell_values import NO_PYTHON
from eaglemon.io.transport import ByteProcess, Transport

LOGS_AT_A_TIME = 5
"""sshd allows ten channels (MaxSessions); samples, runs and short questions need some too."""
LOG_TURN_S = 2.0
"""More logs than that take turns: none waits for as long as a server lives."""
SILENT_S = 3.0
LIMIT_S = 30.0


class ShellLink:
    """Asks one host through sh; made by ``open``."""

    def __init__(
        self,
        transport: Transport,
        env: Mapping[str, str],
        facts: HostFacts,
        tools: frozenset[str],
        clock: Clock,
    ) -> None:
        self._transport, self._env, self._clock = transport, dict(env), clock
        self._facts, self._tools = facts, tools
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._logs = asyncio.Semaphore(LOGS_AT_A_TIME)
        self._logs_waiting = 0
        self._owners: Mapping[int, str] = {}
        self.damaged_runs: Mapping[str, DamagedRun] = {}
        """What ``watch_runs`` left out, by id."""
        self.records_silent: str | None = None
        """That the file system of run records does not answer, and for how long."""
        self._boot_id = facts.boot_id
        self._offset_s = 0.0
        """The host's clock minus this one's, as of the last ``ping``."""

    @classmethod
    async def open(
        cls,
        transport: Transport,
        *,
        env: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        timeout_s: float = 20.0,
    ) -> "ShellLink":
        """Ask who the host is; raises ``HostError`` where even sh and awk are missing."""
        await transport.connect()
        done = await transport.run(
            "exec sh -s", stdin=script("em_facts", env=env), timeout_s=timeout_s
        )
        text = done.stdout.decode("utf-8", "replace")
        start, gs, _ = text.rpartition(GS.decode())
        if not gs:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise HostError(
                f"{transport.name}: neither python3 nor a plain sh answers"
                + (f": {said}" if said else ""),
                hint="install python3 on the host",
            )
        # A noisy login profile may have printed before.
        facts, tools = values.facts_of(start.rpartition("\n")[2])
        for tool in ("setsid", "awk"):
            if tool not in tools:
                raise HostError(
                    f"{transport.name} has no python3, and {tool} is missing too",
                    hint="install python3 on the host",
                )
        return cls(transport, env or {}, facts, tools, clock or SystemClock())

    def python_is_wrong(self, path: str, source: str) -> None:
        """Say that the interpreter which ``source`` names will not do, not that there is none."""
        said = NO_PYTHON.partition(": ")[2].partition("; ")[0]
        wrong = f"no python3 of 3.8 or newer at {path}, which python in {source} names: {said}"
        limits = [f"{wrong}; correct python there", *self._facts.limits[1:]]
        self._facts = replace(self._facts, limits=tuple(limits))

    @property
    def facts(self) -> HostFacts:
        """What is known of the host, and what it cannot do."""
        return self._facts

    async def ping(self) -> float:
        """Return the host's clock, in unix seconds: whole ones where date(1) knows no others."""
        (text,) = await self._ask("em_clock")
        if re.fullmatch(r"\d+(\.\d+)?", text.strip()) is None:
            raise AgentError(f"{self._transport.name} did not tell the time", kind="protocol")
        at = float(text)
        self._offset_s = at - self._clock.wall()
        return at

    async def watch_gpus(
        self, *, interval_s: float = 1.0, processes_interval_s: float = 2.0
    ) -> AsyncGenerator[HostSample, None]:
        """Yield samples; a ``nvidia-smi`` that hangs is told each interval."""
        del processes_interval_s  # every second round
        if "nvidia-smi" not in self._tools:
            while True:
                yield self._nothing(self._facts.nvml_error or "", ())
                await self._clock.sleep(max(interval_s, 1.0))
        known: tuple[GpuSample, ...] = ()
        step_s = max(interval_s, 1.0)
        rounds = self._blocks(
            "em_gpus",
            interval=step_s,
            gpu_fields=",".join(nvidia_smi.GPU_FIELDS),
            process_fields=",".join(nvidia_smi.PROCESS_FIELDS),
        )
        limit_s = SILENT_S + interval_s
        blocks = unless_silent(rounds, limit_s, self._clock, step_s=step_s)
        async with aclosing(blocks):
            async for block in blocks:
                if isinstance(block, float):
                    yield self._nothing(f"nvidia-smi has not answered for {block:.0f} s", known)
                    continue
                sample, driver = values.sample_of(
                    block,
                    at=self._clock.wall() + self._offset_s,
                    before=known,
                    runs=self._owners,
                )
                if driver is not None and driver != self._facts.driver_version:
                    self._facts = replace(self._facts, driver_version=driver)
                known = sample.gpus or known
                yield sample
        raise LinkLostError(f"{self._transport.name}: nvidia-smi's loop ended")

    async def watch_runs(self, *, interval_s: float = 0.2) -> AsyncGenerator[RunChanges, None]:
        """Yield all runs, then those that changed; looked at each second at most."""
        seen = SeenRuns(self._boot_id)
        stream = self._blocks("em_runs", interval=max(interval_s, 1.0))
        async with aclosing(unless_silent(stream, SILENT_S, self._clock)) as blocks:
            async for block in blocks:
                if isinstance(block, float):
                    self.records_silent = (
                        f"{self._facts.state_dir} has not answered for {block:.0f} s"
                    )
                    yield (), ()
                    continue
                spoke_again, self.records_silent = self.records_silent is not None, None
                changes = seen.take(block)
                self.damaged_runs, self._owners = seen.damaged, seen.owners
                if changes is not None or spoke_again:
                    yield changes or ((), ())

    async def start_run(self, request: RunRequest) -> RunRecord:
        """Start a server; the kinds of ``AgentError`` are those of the agent."""
        job = supervisor_job(request, self._boot_id)
        answer = await self._ask(
            "em_start",
            run_id=request.id,
            job=job,
            judged="" if request.known_runs is None else "yes",
            known=" ".join(request.known_runs or ()),
            port=request.port,
            gpus=" ".join(map(str, request.gpu_indexes)),
            force="yes" if request.force else "",
        )
        _raise_for(answer, request.id)
        record = values.runs_of(
            [f"{request.id}{values.US}{answer[1]}{values.US * 5}"], self._boot_id
        )
        if not record:
            raise AgentError(f"the record of run {request.id} is damaged", kind="protocol")
        if record[0].record.spawn_error:
            raise AgentError(record[0].record.spawn_error, kind="spawn-failed")
        return record[0].record

    async def stop_run(self, run_id: str, *, grace_s: float) -> None:
        """Begin to stop a run; ``RunStatus.stop`` tells how it goes."""
        _raise_for(await self._ask("em_stop", run_id=run_id, job=stopper_job(grace_s)), run_id)

    async def forget_run(self, run_id: str) -> None:
        """Remove the records and the log of a run that has ended."""
        _raise_for(await self._ask("em_forget", run_id=run_id), run_id)

    async def follow_log(
        self, run_id: str, *, offset: int = 0, ahead_bytes: int = LOG_WINDOW_BYTES
    ) -> AsyncGenerator[LogChunk, None]:
        """Yield the log's bytes from ``offset`` on, until the run has ended and all was read."""
        del ahead_bytes  # The pipe is the only limit here.
        at, ended = offset, False
        while not ended:
            self._logs_waiting += 1
            try:
                await self._logs.acquire()
            finally:
                self._logs_waiting -= 1
            try:
                async with aclosing(self._read_log(run_id, at)) as chunks:
                    async for chunk in chunks:
                        at, ended = chunk.offset + len(chunk.data), chunk.ended
                        yield chunk
            finally:
                self._logs.release()

    async def _read_log(self, run_id: str, offset: int) -> AsyncGenerator[LogChunk, None]:
        """Yield the log's bytes to its end, or for ``LOG_TURN_S`` where others wait to be read."""
        process = await self._open("em_log", run_id=run_id, offset=offset)
        reader = Blocks(process)
        try:
            first = await reader.until_mark()
            _raise_for((first or "").strip("\n").split(values.US), run_id, self._transport.name)
            until = self._clock.monotonic() + LOG_TURN_S
            while not self._logs_waiting or self._clock.monotonic() < until:
                try:
                    async with asyncio.timeout(LOG_TURN_S):
                        head = await reader.until_mark()
                except TimeoutError:
                    continue
                if head is None:
                    raise LinkLostError(f"{self._transport.name}: the log of {run_id} ended early")
                if not head.split()[0].isdigit():
                    _raise_for(head.strip("\n").split(values.US), run_id, self._transport.name)
                start, length, restarted, ended = (int(word) for word in head.split())
                data = await reader.exactly(length)
                yield LogChunk(offset=start, data=data, restarted=restarted == 1, ended=ended == 1)
                if ended:
                    return
        finally:
            await process.close()

    async def log_tail(self, run_id: str, *, lines: int) -> int:
        """Return the offset at which the last ``lines`` lines of the log begin."""
        answer = await self._ask("em_tail", run_id=run_id, lines=lines)
        if not answer[0][:1].isdigit():
            _raise_for(answer, run_id, self._transport.name)
        size, tail = (int(word) for word in answer[0].split())
        return size - tail

    async def check_host(
        self,
        *,
        paths: Sequence[str] = (),
        port: int | None = None,
        argv: Sequence[str] = (),
        python: str | None = None,
        package: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> HostCheck:
        """Return what the host says of a launch's needs."""
        answer = await self._ask(
            "em_check",
            more_env=env,
            paths="\n".join(paths),
            program=argv[0] if argv else "",
            port_hex=f"{port:04X}" if port is not None else "",
            python=python or "",
            package=package or "",
        )
        return values.check_of(values.US.join(answer), port=port, package=package)

    def run_program(
        self,
        source: bytes,
        *,
        argv: Sequence[str] = (),
        input: object = None,  # noqa: A002 -- as the protocol calls it
        python: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Mapping[str, object], None]:
        """Yield nothing and raise ``AgentError`` of kind ``no-python``: programs are Python."""
        del source, argv, input, python, env
        error = AgentError(
            f"{self._transport.name} has no python3 to run this with",
            kind="no-python",
            hint="install python3 on the host, or set python = ... for it in hosts.toml",
        )
        return _refusing(error)

    async def closed(self) -> str:
        """Wait until the connection has ended and return why."""
        lost = asyncio.ensure_future(self._transport.wait_closed())
        try:
            await asyncio.wait([lost, self._closed], return_when=asyncio.FIRST_COMPLETED)
            return lost.result() if lost.done() else self._closed.result()
        finally:
            lost.cancel()

    async def close(self) -> None:
        """End the link; servers keep running, the transport stays open."""
        if not self._closed.done():
            self._closed.set_result(f"the link to {self._transport.name} was closed")

    def _nothing(self, reason: str, known: Sequence[GpuSample]) -> HostSample:
        return HostSample(
            at=self._clock.wall() + self._offset_s,
            gpus=tuple(replace(gpu, error=reason) for gpu in nvidia_smi.carry_over(known, reason)),
            driver_error=reason,
            processes_known=False,
        )

    async def _ask(
        self, call: str, *, more_env: Mapping[str, str] | None = None, **settings: str | float
    ) -> list[str]:
        done = await self._transport.run(
            "exec sh -s",
            stdin=script(call, env={**self._env, **(more_env or {})}, **settings),
            timeout_s=LIMIT_S,
        )
        block, mark, _ = done.stdout.decode("utf-8", "replace").rpartition(GS.decode())
        if not mark:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise AgentError(f"{self._transport.name}: sh did not answer: {said}", kind="protocol")
        return block.strip("\n").split(values.US)

    async def _open(self, call: str, **settings: str | float) -> ByteProcess:
        try:
            async with asyncio.timeout(LIMIT_S):
                process = await self._transport.open_process("exec sh -s")
        except TimeoutError as error:
            raise HostError(
                f"{self._transport.name} has opened no channel within {LIMIT_S:.0f} s"
            ) from error
        # Its stdin stays open: the end of it ends the stream on the host.
        await process.write(script(f"exec 3<&0\nem_stream {call}", env=self._env, **settings))
        return process

    async def _blocks(self, call: str, **settings: str | float) -> AsyncGenerator[str, None]:
        process = await self._open(call, **settings)
        reader = Blocks(process)
        try:
            while (block := await reader.until_mark()) is not None:
                yield block
            said = process.stderr_tail()
            raise LinkLostError(f"{self._transport.name}: {shlex.quote(call)} ended: {said}")
        finally:
            await process.close()


async def _refusing(error: AgentError) -> AsyncGenerator[Mapping[str, object], None]:
    for item in tuple[Mapping[str, object], ...]():
        yield item
    raise error


def _raise_for(answer: Sequence[str], run_id: str, host: str = "") -> None:
    kind = answer[0].strip()
    log = f"the log of {run_id} on {host} ({answer[1] if len(answer) > 1 else ''})"
    messages = {
        "log-missing": f"{log} is gone",
        "log-unreadable": f"{log} cannot be read: {answer[-1]}",
        "run-exists": f"there is a run {run_id} already",
        "no-such-run": f"there is no run {run_id}",
        "still-running": f"run {run_id} has not ended; stop it first",
        "state-not-writable": f"cannot make {answer[-1]}; make it writable or set XDG_STATE_HOME",
        "spawn-failed": answer[-1],
        "spawn-late": answer[-1],
        "port-in-use": answer[-1],
        "gpu-in-use": answer[-1],
    }
    if kind in messages:
        raise AgentError(messages[kind], kind=kind)
    if kind != "ok":
        raise AgentError(f"the host's sh answered {kind[:80]!r}", kind="protocol")
