"""A domain API with prepared answers, for tests of the command line."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from eaglemon.app.api import PastLog
from eaglemon.core.experiment_records import Environment
from eaglemon.core.foreign import ForeignServer, ForeignStop, Reached
from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample, HostSpec, LinkState
from eaglemon.core.phases import Phase
from eaglemon.core.probe import ProbeFigures, ProbePlan, ProbeProgress, Prompt, Spread
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.server_url import Trust
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.views import (
    CauseView,
    HostView,
    LaunchPlan,
    LogBatch,
    PhaseState,
    PhaseView,
    ServerState,
    ServerView,
    Snapshot,
    StopView,
    Told,
)
from eaglemon.errors import EaglemonError, ServerError, UsageError
from eaglemon.io.config import ProfileStore

SERVER = "sglang-eagle3-20261129-101500-ab12"
GIB = 1024**3


def sample(used_bytes: int = 0) -> HostSample:
    gpu = GpuSample(
        index=0,
        uuid="GPU-0",
        name="NVIDIA H200",
        memory_used_bytes=used_bytes,
        memory_total_bytes=140 * GIB,
        utilisation_percent=97,
        temperature_c=61,
        power_w=512.4,
    )
    process = GpuProcess(
        gpu_uuid="GPU-0", pid=77, memory_bytes=used_bytes, user="ml", command="x" * 90
    )
    return HostSample(at=1.0, gpus=(gpu,), processes=(process,) if used_bytes else ())


def server(state: ServerState = ServerState.READY, **changes: object) -> ServerView:
    view = ServerView(
        id=SERVER,
        name="sglang-eagle3",
        host="gpu-a",
        profile="sglang-eagle3",
        engine="sglang",
        state=state,
        command_line="python3 -m sglang.launch_server",
        port=30000,
        gpu_indexes=(0,),
        pids=(77,),
        memory_used_bytes=GIB,
        launched_at=100.0,
        ready_at=142.0,
        age_s=50.0,
        log_path="/state/server.log",
        phases=(
            PhaseView(phase=Phase.SPAWN, state=PhaseState.DONE, started_s=0.0, elapsed_s=1.0),
            PhaseView(phase=Phase.IMPORT, state=PhaseState.DONE, started_s=1.0, elapsed_s=8.0),
        ),
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def stopped(*, proven: bool = True) -> ServerView:
    stop = StopView(
        steps=("TERM sent to 4 processes", "all gone"),
        processes_left=0,
        memory_to_release_bytes=0 if proven else 3 * GIB,
        elapsed_s=2.0,
        proven=proven,
    )
    state = ServerState.STOPPED if proven else ServerState.UNHEALTHY
    return server(state, stop=stop, pids=())


def failed() -> ServerView:
    cause = CauseView(
        slug="oom",
        sentence="CUDA out of memory",
        decisive_line="torch.OutOfMemoryError",
        line_number=12,
        remedy="lower mem-fraction-static",
    )
    return server(ServerState.FAILED, cause=cause, ready_at=None)


def probe(plan: ProbePlan, *, ok: int | None = None, state: str = "done") -> ProbeProgress:
    good = plan.requests if ok is None else ok
    return ProbeProgress(
        server_id=SERVER,
        plan=plan,
        state=state,
        done=plan.requests,
        elapsed_s=3.0,
        remaining_s=0.0,
        figures=ProbeFigures(
            ok=good,
            failed=plan.requests - good,
            duration_s=3.0,
            completion_tokens=640,
            total_tok_s=213.3,
            decode_tok_s=Spread(median=141.2, p90=150.0, p99=151.0, count=good),
            ttft_s=Spread(median=0.05, p90=0.06, p99=0.07, count=good),
            counts=AcceptCounts(steps=100, accepted=180, proposed=500, per_position=(90, 60, 30)),
            accept_source="per-request answers",
            accept_length=2.8,
            per_position=(0.9, 0.6, 0.3),
        ),
    )


class FakeConsole:
    """Answers from its attributes, and remembers what was asked of it."""

    def __init__(self, hosts: Sequence[HostSpec], profiles: ProfileStore) -> None:
        self.specs = tuple(hosts)
        self.store = profiles
        self.state = LinkState.UP
        self.detail = self.hint = ""
        self.used_bytes = GIB
        self.servers: dict[str, ServerView] = {SERVER: server()}
        self.waited: ServerView | EaglemonError = server()
        self.stop_result: ServerView | EaglemonError = stopped()
        self.probed: Callable[[ProbePlan], ProbeProgress] = probe
        self.problems: list[Problem] = []
        self.launch_error: EaglemonError | None = None
        self.batches: tuple[LogBatch, ...] = (LogBatch(lines=("one", "two"), next_offset=8),)
        self.calls: list[tuple[str, object]] = []
        self.crash: BaseException | None = None

    def hosts(self) -> Sequence[HostSpec]:
        return self.specs

    def profiles(self) -> Sequence[Profile]:
        return self.store.all()

    def profile_problems(self) -> Sequence[Problem]:
        return self.store.problems

    def snapshot(self) -> Snapshot:
        up = self.state is LinkState.UP
        hosts = tuple(
            HostView(
                spec=spec,
                state=self.state,
                detail=self.detail,
                hint=self.hint,
                sample=sample(self.used_bytes) if up else None,
            )
            for spec in self.specs
        )
        return Snapshot(at=5.0, hosts=hosts, servers=tuple(self.servers.values()) if up else ())

    async def updates(self) -> AsyncIterator[Snapshot]:
        yield self.snapshot()
        await asyncio.Event().wait()

    async def settle(self, *, timeout_s: float = 20.0, needs: str = "servers") -> Snapshot:
        self.calls.append(("settle", timeout_s))
        if self.crash is not None:
            raise self.crash
        return self.snapshot()

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        chosen = self.store.get(profile, overrides)
        self.calls.append(("plan", dict(overrides or {})))
        argv = ("python3", "--port", str(chosen.port), "--api-key", "geheim")
        env = {"HF_TOKEN": "geheim", "A": "1"}
        line = f"python3 --port {chosen.port} --api-key ***"
        return LaunchPlan(host=host, profile=chosen, argv=argv, env=env, shell_line=line)

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        return self.problems

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        self.calls.append(("launch", force))
        if self.launch_error is not None:
            raise self.launch_error
        return SERVER

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        self.calls.append(("wait", timeout_s))
        return self._become(self.waited)

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        self.calls.append(("stop", grace_s))
        self.used_bytes = 0
        return self._become(self.stop_result)

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        raise ServerError(f"{server_id} is not started again, whatever {forced_length}")

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        self.calls.append(("restart", server_id))
        return f"{server_id}-again"

    async def foreign(self, host: str) -> Sequence[ForeignServer]:
        return ()

    def add_host(self, spec: HostSpec) -> None:
        raise UsageError(f"{spec.name} is a host of this console already")

    def retry(self, host: str) -> None:
        raise UsageError(f"unknown host {host!r}")

    async def watch(self, foreign_id: str) -> str:
        return foreign_id

    async def stop_foreign(
        self, foreign_id: str, *, grace_s: float, told: Callable[[ForeignStop], None]
    ) -> ForeignStop:
        raise UsageError(f"{foreign_id} is no server", hint=f"not ended in {grace_s} s, {told}")

    async def wait_at(
        self,
        url: str,
        *,
        host: str,
        timeout_s: float,
        api_key: str | None = None,
        trust: Trust | None = None,
    ) -> Reached:
        self.calls.append(("wait_at", (url, host, api_key, trust)))
        raise UsageError(f"{url} on {host}: no answer in {timeout_s} s", hint=str(api_key))

    async def reach(
        self, url: str, *, host: str, api_key: str | None = None, trust: Trust | None = None
    ) -> str:
        self.calls.append(("reach", (url, host, api_key, trust)))
        return url

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        assert plan is not None
        result = self.probed(plan)
        if seen is not None:
            seen(result)
        return result

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        values = {"requests": "4", "concurrency": "1", **(overrides or {})}
        self.calls.append(("probe_plan", values))
        return ProbePlan(
            workload=values.get("workload", "chat"),
            prompts=(Prompt(id="a", text="b"),),
            requests=int(values["requests"]),
            concurrency=int(values["concurrency"]),
        )

    async def environment(self, server_id: str) -> Environment:
        return Environment(host="gpu-a", engine="sglang", resolved={"page_size": "1"})

    async def logs(
        self, server_id: str, *, follow: bool, tail: int | None = None
    ) -> AsyncIterator[LogBatch]:
        self.calls.append(("logs", (follow, tail)))
        for batch in self.batches:
            yield batch

    def past_log(self, server_id: str) -> PastLog:
        raise UsageError(f"nothing more of the log of {server_id} can be read")

    def find(self, text: str) -> ServerView:
        for view in self.servers.values():
            if view.id.startswith(text):
                return view
        raise UsageError(f"no server {text!r}", hint="no server is running")

    async def close(self) -> None:
        self.calls.append(("close", None))

    def called(self, name: str) -> list[object]:
        return [argument for call, argument in self.calls if call == name]

    def _become(self, result: ServerView | EaglemonError) -> ServerView:
        if isinstance(result, EaglemonError):
            raise result
        self.servers[result.id] = result
        return result
