"""An ``Eaglemon`` with prepared answers that notes what it was asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eaglemon.app.api import PastLog
from eaglemon.core.experiment_records import Environment
from eaglemon.core.foreign import ForeignServer, ForeignStop, Reached
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.probe import ProbeFigures, ProbePlan, ProbeProgress, Prompt
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.core.server_url import Trust
from eaglemon.core.views import HostView, LaunchPlan, LogBatch, ServerView, Snapshot, Told
from eaglemon.errors import EaglemonError, ServerError, UsageError

EAGLE3 = Profile(
    name="k25-eagle3",
    engine="sglang",
    model="/models/kimi-k2.5",
    draft="/models/k25-eagle3",
    speculation=Speculation(steps=5, topk=1, draft_tokens=6),
    port=30000,
    gpus=tuple(range(8)),
    flags={"tp-size": 8, "mem-fraction-static": 0.85, "enable-metrics": True},
)
BASELINE = replace(EAGLE3, name="k25-baseline", draft=None, speculation=None, port=30001)


@dataclass
class FakeConsole:
    """Snapshots are pushed by the test; calls are noted as tuples."""

    now: Snapshot
    specs: Sequence[HostSpec] = ()
    known_profiles: Sequence[Profile] = (EAGLE3, BASELINE)
    problems: list[Problem] = field(default_factory=list)
    broken: Sequence[Problem] = ()
    launch_error: EaglemonError | None = None
    stop_error: EaglemonError | None = None
    log_batches: Sequence[LogBatch] = ()
    log_error: EaglemonError | None = None
    calls: list[tuple[object, ...]] = field(default_factory=list)
    others: Sequence[ForeignServer] = ()
    """Servers that no console started."""
    past: PastLog | None = None
    hang: bool = False
    """Every call that waits for a host never ends."""

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self.probe_may_end = asyncio.Event()
        if not self.specs:
            self.specs = [host.spec for host in self.now.hosts]

    def push(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` the latest and tell the reader."""
        self.now = snapshot
        self._changed.set()

    def hosts(self) -> Sequence[HostSpec]:
        return self.specs

    def profiles(self) -> Sequence[Profile]:
        return self.known_profiles

    def profile_problems(self) -> Sequence[Problem]:
        return self.broken

    def add_host(self, spec: HostSpec) -> None:
        self.calls.append(("add_host", spec.name))
        self.specs = [*self.specs, spec]
        connecting = HostView(spec=spec, state=LinkState.CONNECTING)
        self.push(replace(self.now, hosts=(*self.now.hosts, connecting)))

    def retry(self, host: str) -> None:
        self.calls.append(("retry", host))

    def snapshot(self) -> Snapshot:
        return self.now

    async def updates(self) -> AsyncIterator[Snapshot]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield self.now

    async def settle(self, *, timeout_s: float = 20.0, needs: str = "servers") -> Snapshot:
        return self.now

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        changed = dict(overrides or {})
        self.calls.append(("plan", profile, host, changed))
        if "bad-flag" in changed:
            raise UsageError("unknown flag 'bad-flag'", hint="did you mean 'tp-size'?")
        found = next(p for p in self.known_profiles if p.name == profile)
        argv = ("python3", "-m", "sglang.launch_server", "--model-path", found.model)
        flags = " ".join(f"--{name} {value}" for name, value in changed.items())
        port = changed.get("port", str(found.port))
        return LaunchPlan(
            host=host,
            profile=found,
            argv=argv,
            shell_line=f"{' '.join(argv)} --port {port} {flags}".rstrip(),
        )

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        await self._wait()
        return self.problems

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        self.calls.append(("launch", plan.profile.name, plan.host, force))
        await self._wait()
        if self.launch_error is not None:
            raise self.launch_error
        return self.now.servers[0].id

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        return self.find(server_id)

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        self.calls.append(("stop", server_id, grace_s, wait))
        await self._wait()
        if self.stop_error is not None:
            raise self.stop_error
        return self.find(server_id)

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        raise ServerError(f"{server_id} is not started again, whatever {forced_length}")

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        self.calls.append(("restart", server_id, grace_s))
        return f"{server_id}-again"

    async def foreign(self, host: str) -> Sequence[ForeignServer]:
        return [server for server in self.others if server.host == host]

    async def watch(self, foreign_id: str) -> str:
        self.calls.append(("watch", foreign_id))
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
        del trust
        raise UsageError(f"{url} on {host}: no answer in {timeout_s} s", hint=str(api_key))

    async def reach(
        self, url: str, *, host: str, api_key: str | None = None, trust: Trust | None = None
    ) -> str:
        del trust
        self.calls.append(("reach", url, host, api_key))
        return url

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        assert plan is not None
        self.calls.append(("probe", server_id, plan.workload, plan.requests))
        try:
            await self.probe_may_end.wait()
        except asyncio.CancelledError:
            self.calls.append(("probe-cancelled", server_id))
            raise
        return ProbeProgress(
            server_id=server_id,
            plan=plan,
            state="done",
            done=plan.requests,
            elapsed_s=9.0,
            remaining_s=0.0,
            figures=ProbeFigures(ok=plan.requests, total_tok_s=141.2),
        )

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        values = {"workload": "chat", "requests": "16", "concurrency": "1", "max_tokens": "128"}
        values |= overrides or {}
        if values["workload"] not in {"chat", "code"}:
            raise UsageError(f"no workload {values['workload']!r}", hint="known: chat, code")
        if not values["requests"].isdigit():
            raise UsageError("requests must be a whole number")
        return ProbePlan(
            workload=values["workload"],
            prompts=(Prompt(id="1", text="hello"),),
            requests=int(values["requests"]),
            concurrency=int(values["concurrency"]),
            max_tokens=int(values["max_tokens"]),
        )

    async def environment(self, server_id: str) -> Environment:
        return Environment(host="gpu-a", engine="sglang", resolved={"page_size": "1"})

    async def logs(
        self, server_id: str, *, follow: bool, tail: int | None = None
    ) -> AsyncIterator[LogBatch]:
        self.calls.append(("logs", server_id, follow))
        for batch in self.log_batches:
            yield batch
        if self.log_error is not None:
            raise self.log_error
        if follow:
            await asyncio.Event().wait()

    def past_log(self, server_id: str) -> PastLog:
        if self.past is None:
            raise UsageError(f"nothing more of the log of {server_id} can be read")
        return self.past

    def find(self, text: str) -> ServerView:
        found = self.now.server(text)
        if found is None:
            raise UsageError(f"no server {text!r}")
        return found

    async def close(self) -> None:
        return None

    async def _wait(self) -> None:
        if self.hang:
            await asyncio.Event().wait()
