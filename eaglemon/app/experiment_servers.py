"""The servers of an experiment: found, given room, started, stopped, and never left behind.

Uses the domain API only. What is about to be done is stored first, so that a console that comes
after a killed one knows which servers are the experiment's own.
"""

import asyncio
from collections.abc import Callable, Iterable

from eaglemon.app.experiment_console import ExperimentConsole
from eaglemon.app.preflight import gpu_problems
from eaglemon.core.experiment import Arm, ExperimentPlan, overlaps
from eaglemon.core.experiment_records import (
    Displaced,
    ExperimentRecord,
    LaunchIntent,
    PhaseTime,
    Startup,
)
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import LaunchPlan, PhaseState, ServerState, ServerView, Snapshot
from eaglemon.errors import (
    AgentError,
    EaglemonError,
    HostError,
    LaunchRefusedError,
    ServerError,
    StoreError,
    TimeLimitError,
)
from eaglemon.io.store import Store

_AWAY = frozenset({LinkState.DOWN, LinkState.CONNECTING, LinkState.IDLE})

DIAGNOSIS_S = 5.0
"""The last lines of a log come this long after the exit."""


class ArmError(EaglemonError):
    """An arm cannot be served; the message is its diagnosis."""


class ExperimentServers:
    """Servers by arm."""

    def __init__(
        self,
        console: ExperimentConsole,
        store: Store,
        plan: ExperimentPlan,
        record: ExperimentRecord | None,
    ) -> None:
        self.notes: list[str] = []
        """What was left behind or could not be brought back."""
        self.stop_s = 0.0
        """Seconds that engines took to stop, in all."""
        self.start_s = 0.0
        """Seconds that engines took to start, in all."""
        self._console = console
        self._store = store
        self._plan = plan
        self._intents: list[LaunchIntent] = list(record.intents if record else ())
        self._displaced: dict[str, Displaced] = {
            one.server_id: one for one in (record.displaced if record else ())
        }
        self.startup_s: dict[str, float] = {}
        """From launch to first token, of the servers started here."""

    def away(self, host: str) -> str | None:
        """Say why a host cannot be reached now, ``None`` when it can."""
        view = self._console.snapshot().host(host)
        if view is None or view.state in _AWAY:
            return view.detail or view.state.value if view else "not a host of this console"
        return None

    async def until(self, reached: Callable[[Snapshot], bool], timeout_s: float) -> bool:
        """Wait for a snapshot; ``False`` when none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                async for snapshot in self._console.updates():
                    if reached(snapshot):
                        return True
        except TimeoutError:
            return False
        return False

    async def find(self, arm: Arm, *, timeout_s: float) -> ServerView | None:
        """Return the arm's server where it runs, waiting for one that is lost or on its way."""
        found = self._like(arm.host, arm.profile.name, arm.shell_line)
        own = {one.server_id for one in self._intents} | {
            view.id for one in self._intents if (view := self._orphan(one)) is not None
        }
        for view in found:
            if view.state.answering:
                return view
            if view.state is ServerState.LOST or (view.state.starting and view.id in own):
                try:
                    now = await self._console.wait(view.id, timeout_s=timeout_s)
                except TimeLimitError:
                    continue
                if now.state.answering:
                    return now
        return None

    async def make_room(
        self, arm: Arm, *, stopping: Callable[[str], None] = lambda _: None
    ) -> tuple[str, ...]:
        """Stop what is in the arm's way and return the servers' ids; ``stopping`` is told each.

        Raises ``ArmError`` when something cannot be stopped, ``HostError`` without the host.
        """
        stopped = []
        for view in in_the_way(arm, self._console.snapshot().servers):
            intent = self._intent_of(view)
            if intent is None and view.id not in self._displaced and not view.state.ended:
                await self._displace(view)
            stopping(view.id)
            await self._stop(view)
            if intent is not None:
                await self._ended(intent)
            stopped.append(view.id)
        return tuple(stopped)

    async def start(
        self, index: int, arm: Arm, *, launched: Callable[[str], None] = lambda _: None
    ) -> ServerView:
        """Launch the arm's server, tell ``launched`` its id, and wait until it generates.

        Raises ``ArmError`` with the diagnosis when it does not come up; nothing is left of it then.
        """
        plan = self._console.plan(arm.profile.name, arm.host, arm.settings)
        if plan.shell_line != arm.shell_line:
            raise ArmError(f"profile {arm.profile.name} has changed since the experiment began")
        await self._memory_back(plan)
        before = frozenset(view.id for view in self._console.snapshot().servers)
        intent = await self._store.note_launch(self._plan.id, index, arm, before)
        self._intents.append(intent)
        try:
            server_id = await self._console.launch(plan)
        except HostError:
            await self._ended(intent)
            raise
        except (AgentError, LaunchRefusedError, ServerError, TimeLimitError) as error:
            await self._ended(intent)
            raise ArmError(str(error)) from error
        launched(server_id)
        known = await self._store.note_launched(intent, server_id)
        self._intents[self._intents.index(intent)] = known
        try:
            view = await self._console.wait(server_id)
        except TimeLimitError as error:
            await self._give_up(known, str(error))
            raise ArmError(str(error)) from error
        if view.state is ServerState.FAILED:
            view = await self._diagnosed(view)
        await self._store.add_startup(startup_of(view, arm.profile.digest()))
        if not view.state.answering:
            await self._give_up(known, view.detail)
            raise ArmError(diagnosis(view))
        if view.ready_at is not None:
            self.startup_s[view.id] = view.ready_at - view.launched_at
            self.start_s += self.startup_s[view.id]
        return view

    async def clear(
        self, arms: Iterable[int], *, stopping: Callable[[str], None] = lambda _: None
    ) -> None:
        """Stop every server of the experiment that serves one of ``arms``; tell ``stopping`` each.

        What cannot be stopped is named in ``notes``.
        """
        wanted = set(arms)
        broken: StoreError | None = None
        for intent in [one for one in self._intents if one.arm in wanted]:
            view = self._server_of(intent)
            try:
                if view is not None and not (view.state.ended and not view.pids):
                    stopping(view.id)
                    await self._stop(view)
                elif view is None and self.away(intent.host) is not None:
                    raise HostError(f"{intent.host} is away")
            except EaglemonError as error:
                name = view.id if view else f"a server of {intent.profile}"
                self.notes.append(
                    f"{name} may be left on {intent.host}: {error.message}; look with "
                    f"eaglemon status {intent.host}, stop it with eaglemon kill"
                )
                continue
            try:
                await self._ended(intent)
            except StoreError as error:
                # The other servers are stopped all the same.
                broken = error
        if broken is not None:
            raise broken

    async def restore(self) -> None:
        """Start again what had to make room; what cannot be is named in ``notes``."""
        for one in self._displaced.values():
            if any(not view.state.ended for view in self._like(one.host, None, one.shell_line)):
                continue
            try:
                plan = self._console.plan(one.profile, one.host, one.settings)
                if plan.shell_line != one.shell_line:
                    # Started with settings of its own: the host's record of it knows them.
                    plan = self._console.relaunch_plan(one.server_id)
                server_id = await self._console.launch(plan)
            except EaglemonError as error:
                self.notes.append(
                    f"{one.server_id} could not be started again: {error.message}; "
                    f"it was: {one.shell_line}"
                )
            else:
                self.notes.append(f"{server_id} was started in place of {one.server_id}")

    @property
    def left(self) -> tuple[str, ...]:
        """The servers of the experiment that are not known to have ended: ids, or in words."""
        views = ((one, self._server_of(one)) for one in self._intents)
        return tuple(
            view.id
            if view is not None
            else intent.server_id or f"a server of {intent.profile} (eaglemon status {intent.host})"
            for intent, view in views
        )

    @property
    def offers(self) -> tuple[str, ...]:
        """What ran before and does not run now, as commands that start it again."""
        return tuple(
            f"{one.server_id} ran before; start it again with: "
            f"eaglemon launch {one.profile} --host {one.host}"
            + "".join(f" --set {key}={value}" for key, value in one.settings.items())
            for one in self._displaced.values()
            if all(view.state.ended for view in self._like(one.host, None, one.shell_line))
        )

    # Inside.

    def _like(self, host: str, name: str | None, shell_line: str) -> list[ServerView]:
        return [
            view
            for view in self._console.snapshot().servers
            if view.host == host
            and name in {None, view.profile}
            and view.command_line == shell_line
        ]

    def _orphan(self, intent: LaunchIntent) -> ServerView | None:
        """Return the server of a launch whose console was killed before it was told its id."""
        if intent.server_id is not None:
            return None
        found = self._like(intent.host, intent.profile, intent.shell_line)
        return next((view for view in found if view.id not in intent.before), None)

    def _server_of(self, intent: LaunchIntent) -> ServerView | None:
        if intent.server_id is None:
            return self._orphan(intent)
        return self._console.snapshot().server(intent.server_id)

    def _intent_of(self, view: ServerView) -> LaunchIntent | None:
        for intent in self._intents:
            own = self._server_of(intent)
            if own is not None and own.id == view.id:
                return intent
        return None

    async def _displace(self, view: ServerView) -> None:
        settings = next(
            (arm.settings for arm in self._plan.arms if arm.shell_line == view.command_line), {}
        )
        one = Displaced(
            server_id=view.id,
            host=view.host,
            profile=view.profile,
            shell_line=view.command_line,
            settings=settings,
        )
        await self._store.note_displaced(self._plan.id, one)
        self._displaced[one.server_id] = one

    async def _stop(self, view: ServerView) -> None:
        ended = await self._console.stop(view.id)
        if ended.stop is not None:
            self.stop_s += ended.stop.elapsed_s
        if not ended.state.ended or ended.pids:
            raise ArmError(f"{view.id} could not be stopped: {ended.detail or ended.state.value}")

    async def _memory_back(self, plan: LaunchPlan) -> None:
        """Wait for the GPUs where a server has failed by itself a moment ago.

        The driver takes its memory back a little later, and a sample tells that later still. What
        is in use after the profile's limit is for the preflight to tell.
        """
        now, limit_s = self._console.snapshot(), plan.profile.limits.release_s
        failed = [
            view.launched_at + view.age_s
            for view in now.servers
            if view.host == plan.host and view.state is ServerState.FAILED
        ]
        ended_at = max(failed, default=None)
        if ended_at is None or now.at - ended_at > limit_s:
            return

        def free(snapshot: Snapshot) -> bool:
            host = snapshot.host(plan.host)
            if host is None or host.sample is None or host.sample_age_s is None:
                return True
            problems = gpu_problems(plan, host.sample)
            fresh = snapshot.at - host.sample_age_s > ended_at
            return fresh and not any(one.slug == "gpu-in-use" for one in problems)

        await self.until(free, limit_s)

    async def _diagnosed(self, view: ServerView) -> ServerView:
        """Return the view once the log has told why, or as it is when it does not tell soon."""
        await self.until(lambda s: _has_cause(s, view.id), DIAGNOSIS_S)
        return self._console.snapshot().server(view.id) or view

    async def _give_up(self, intent: LaunchIntent, reason: str) -> None:
        """Stop what a failed start has left, and forget it only when nothing is."""
        view = self._server_of(intent)
        if view is not None and not (view.state.ended and not view.pids):
            try:
                await self._stop(view)
            except EaglemonError as error:
                self.notes.append(f"{view.id} may be left ({reason}): {error.message}")
                return
        await self._ended(intent)

    async def _ended(self, intent: LaunchIntent) -> None:
        await self._store.note_ended(intent)
        self._intents = [one for one in self._intents if one.number != intent.number]


def in_the_way(arm: Arm, servers: Iterable[ServerView]) -> list[ServerView]:
    """Return the servers that an arm's server cannot run beside."""
    return [
        view
        for view in servers
        if view.host == arm.host
        and not (view.state.ended and not view.pids)
        and overlaps(arm.profile.port, arm.profile.gpus, view.port, view.gpu_indexes or None)
    ]


def diagnosis(view: ServerView) -> str:
    """Return why a server failed, in one line with its decisive log line and remedy."""
    cause = view.cause
    if cause is None:
        return view.detail or view.state.value
    line = f": {cause.decisive_line.strip()}" if cause.decisive_line else ""
    return f"{cause.sentence}{line}" + (f"; {cause.remedy}" if cause.remedy else "")


def startup_of(view: ServerView, digest: str) -> Startup:
    """Return the account of a start from the view of a server that is ready or has failed."""
    ready_s = None if view.ready_at is None else view.ready_at - view.launched_at
    return Startup(
        server_id=view.id,
        host=view.host,
        profile=view.profile,
        digest=digest,
        engine=view.engine,
        launched_at=view.launched_at,
        ready_s=ready_s,
        cause=diagnosis(view) if view.state is ServerState.FAILED else None,
        phases=tuple(
            PhaseTime(phase=one.phase.value, started_s=one.started_s, elapsed_s=one.elapsed_s)
            for one in view.phases
            if one.state in {PhaseState.DONE, PhaseState.FAILED}
        ),
    )


def _has_cause(snapshot: Snapshot, name: str) -> bool:
    view = snapshot.server(name)
    return view is None or (view.cause is not None and view.cause.decisive_line is not None)
