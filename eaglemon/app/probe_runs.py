"""The probes of one console: of servers it keeps, and of servers at an address."""

from collections.abc import Callable, Mapping

from eaglemon.app.host import Host
from eaglemon.app.keeper import Keeper
from eaglemon.app.plans import probe_plan
from eaglemon.app.probe_target import ProbeTarget, recognise
from eaglemon.app.probing import Probe
from eaglemon.core.probe import ProbePlan, ProbeProgress, Prompt
from eaglemon.core.profiles import ProbeDefaults
from eaglemon.core.server_url import ServerUrl, Trust
from eaglemon.errors import ServerError
from eaglemon.io.clock import Clock

Seen = Callable[[ProbeProgress], None]


class ProbeRuns:
    """Plans and runs probes; one of a server at a time."""

    def __init__(
        self,
        *,
        workload: Callable[[str], tuple[Prompt, ...]],
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._workload = workload
        self._clock = clock
        self._changed = changed
        self._reached: dict[str, ProbeTarget] = {}
        self._under_way: set[str] = set()

    async def reach(self, url: str, host: Host, *, api_key: str | None, trust: Trust | None) -> str:
        """Look at the server at ``url`` as seen from ``host``; the URL is its id from now on."""
        target = await recognise(url, host, api_key=api_key, trust=trust)
        self._reached[target.id] = target
        return target.id

    def knows(self, target_id: str) -> bool:
        """Tell whether this is the id of a server that was reached by its address."""
        return target_id in self._reached

    def plan(self, keeper: Keeper | None, overrides: Mapping[str, str]) -> ProbePlan:
        """Return the profile's probe, or the usual one, with ``overrides``."""
        defaults = keeper.profile.probe if keeper else ProbeDefaults()
        return probe_plan(defaults, overrides, self._workload)

    async def run_at(self, target_id: str, plan: ProbePlan, seen: Seen | None) -> ProbeProgress:
        """Probe a server that was reached by its address."""
        return await self._run(self._reached[target_id], plan, seen or _nobody)

    async def run(self, keeper: Keeper, plan: ProbePlan, seen: Seen | None) -> ProbeProgress:
        """Probe a server of ours; its progress is in its view."""
        state = keeper.machine.state
        if not state.answering:
            raise ServerError(f"{keeper.id} is {state.value}", hint="a probe needs a ready server")

        def show(progress: ProbeProgress) -> None:
            keeper.probe = progress
            if progress.state == "done":
                keeper.seen.probed = progress
            (seen or _nobody)(progress)

        target = ProbeTarget(
            id=keeper.id,
            engine=keeper.engine,
            model=keeper.model_name,
            url=ServerUrl(scheme="http", address=keeper.profile.address, port=keeper.profile.port),
            host=keeper.host,
            api_key=keeper.engine.api_key(keeper.profile),
            lines_since=keeper.meter.lines_since if keeper.profile.speculation else None,
        )
        return await self._run(target, plan, show)

    async def _run(self, target: ProbeTarget, plan: ProbePlan, show: Seen) -> ProbeProgress:
        def shown(progress: ProbeProgress) -> None:
            show(progress)
            self._changed()

        if target.id in self._under_way:
            raise ServerError(f"{target.id} is being probed already")
        self._under_way.add(target.id)
        try:
            return await Probe(target, plan, clock=self._clock, show=shown).run()
        finally:
            self._under_way.discard(target.id)


def _nobody(progress: ProbeProgress) -> None:
    del progress
