"""An experiment as lines for a log: one per step of it and of the servers it starts."""

from eaglemon.app.api import Eaglemon
from eaglemon.cli import diagnostics
from eaglemon.cli.progress import Progress
from eaglemon.core.experiment_machine import State
from eaglemon.core.experiment_views import ExperimentView, LaneView, Outlook
from eaglemon.core.units import duration, plural, seen_from
from eaglemon.core.verdict import sentence


class ExperimentTalk:
    """Remembers what was told; call it with each view."""

    def __init__(self, console: Eaglemon) -> None:
        self._console = console
        self._told: set[object] = set()
        self._servers: dict[str, Progress] = {}

    def __call__(self, view: ExperimentView) -> None:
        """Tell on stderr what is new in a view."""
        for lane in view.lanes:
            self._lane(view, lane)
        for arm, reason in view.failures.items():
            if self._first(("failed", arm)):
                diagnostics.talk(f"{view.plan.arms[arm].name} failed: {reason}")
        for arm, reason in view.given_up.items():
            if self._first(("given up", arm)):
                diagnostics.talk(f"{view.plan.arms[arm].name} is measured no further: {reason}")
        if view.findings is not None and not view.outcome:
            for one in view.findings.comparisons:
                if one.ratio is not None and self._first((one.arm, one.ratio)):
                    names = [arm.name for arm in view.plan.arms]
                    diagnostics.talk(f"so far: {sentence(one, names)}")
        for note in view.notes:
            if self._first(note):
                diagnostics.talk(note)

    def _lane(self, view: ExperimentView, lane: LaneView) -> None:
        leg = lane.leg
        if lane.waits_for and self._first((leg, lane.waits_for)):
            diagnostics.talk(f"waiting for {lane.waits_for}")
        if leg is None or not self._first((leg, lane.state)):
            self._follow(lane)
            return
        name = view.plan.arms[leg.arm].name
        words = {
            State.MAKING_ROOM: f"looking for a server of {name}",
            State.STARTING: f"starting {name}",
            State.MEASURING: f"measuring {name}, round {leg.round + 1}",
            State.AWAY: f"the host of {name} cannot be reached",
            State.CLEARING: "stopping the servers of the experiment",
            State.RESTORING: "starting again what ran before",
        }.get(lane.state)
        if words is not None:
            left = f", about {duration(view.remaining_s)} left" if view.remaining_s else ""
            diagnostics.talk(f"[{len(view.done) + 1}/{view.total}] {words}{left}")
        self._follow(lane)

    def _follow(self, lane: LaneView) -> None:
        server = self._console.snapshot().server(lane.server_id) if lane.server_id else None
        if server is not None:
            progress = self._servers.setdefault(server.id, Progress())
            for line in progress.lines(server):
                diagnostics.talk(f"  {line}")

    def _first(self, key: object) -> bool:
        if key in self._told:
            return False
        self._told.add(key)
        return True


def outlook_lines(outlook: Outlook) -> list[str]:
    """Return what an experiment will do, to be confirmed."""
    plan = outlook.plan
    lines = []
    for arm in plan.arms:
        lines.append(f"{arm.name} on {arm.host}: {arm.shell_line}")
        for name, differences in outlook.differences:
            if name == arm.name:
                lines += [f"    {key}: {before} -> {after}" for key, before, after in differences]
    about = f", about {duration(outlook.expected_s)}" if outlook.expected_s is not None else ""
    lines.append(
        f"{plural(len(plan.legs), 'measurement')} of {plural(plan.prompts, 'prompt')}, "
        f"{plural(outlook.starts, 'server start')}{about}"
    )
    if outlook.expected_s is None:
        lines.append("how long it takes is not known: none of these was started here before")
    if outlook.smallest_effect is not None:
        lines.append(
            f"{seen_from(outlook.smallest_effect)} with so many prompts, before the drift of "
            "restarts"
        )
    if outlook.running:
        lines.append(f"measured as they run: {', '.join(outlook.running)}")
    if outlook.in_the_way:
        lines.append(f"WILL BE STOPPED: {', '.join(outlook.in_the_way)}")
    for names, problem in outlook.refused:
        lines.append(f"CANNOT BE STARTED: {', '.join(names)}: {problem}")
    for names, problem in outlook.warned:
        lines.append(f"to be known: {', '.join(names)}: {problem}")
    if outlook.baseline_missing:
        lines.append(
            "no arm is without speculation: --baseline adds one, and tells whether it pays at all"
        )
    return lines
