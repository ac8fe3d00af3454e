"""The course of an experiment as a pure machine: an event in, the next command out.

Each command but ``NoteFailure`` and ``NoteGivenUp`` is answered by one event. The machine of a
later console is made from what the store remembers (``done``, ``failed``, ``given_up``) and goes on
at the leg it was in.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from eaglemon.core import experiment_events as events
from eaglemon.core.experiment import Leg, StopRules

TRIES = 3
"""A leg is tried so often over losses of its host."""


class State(StrEnum):
    """What the experiment is doing."""

    PLANNED = "planned"
    MAKING_ROOM = "making-room"
    STARTING = "starting"
    MEASURING = "measuring"
    AWAY = "host-away"
    LOOKING = "looking"
    CLEARING = "clearing"
    RESTORING = "restoring"
    FINISHED = "finished"


class ExperimentMachine:
    """The course of one lane of legs."""

    def __init__(
        self,
        legs: Sequence[Leg],
        *,
        stop: StopRules,
        restore: bool = False,
        keep: bool = False,
        watch_width: bool = True,
        look_often: bool = False,
        done: Collection[Leg] = (),
        failed: Mapping[int, str] | None = None,
        given_up: Mapping[int, str] | None = None,
    ) -> None:
        """``watch_width`` off leaves the width rule alone, for lanes that see only a part.

        ``look_often`` looks after every leg, to give up hopeless arms early.
        """
        self.state = State.PLANNED
        self.outcome = ""
        self.failed = dict(failed or {})
        """Reasons by arm."""
        self.given_up = dict(given_up or {})
        """Arms that work but are surely worse than another, with the reason."""
        self._todo = [leg for leg in legs if leg not in done]
        self._stop = stop
        self._restore = restore
        self._keep = keep
        self._watch_width = watch_width
        self._look_often = look_often
        self._tries = 0
        self._narrow_counts = False
        self._measured_any = bool(done)

    @property
    def leg(self) -> Leg | None:
        """The present or next leg."""
        return self._todo[0] if self._todo else None

    def handle(self, event: events.Event) -> list[events.Command]:
        """Take an event; events that do not fit the state (late answers) change nothing."""
        if isinstance(event, events.CancelAsked):
            return self._cancel()
        leg = self.leg
        answer: list[events.Command] = []
        match self.state, event:
            case State.PLANNED, events.Begun():
                answer = self._next()
            case State.MAKING_ROOM, events.RoomMade() if leg is not None:
                self.state = State.STARTING
                answer = [events.StartServer(leg.arm)]
            case (
                State.MAKING_ROOM | State.STARTING,
                events.ServerUp(server_id=server_id),
            ) if leg is not None:
                self.state = State.MEASURING
                answer = [events.Measure(leg, server_id)]
            case (
                (State.MAKING_ROOM, events.RoomRefused(reason=reason))
                | (State.STARTING, events.StartFailed(reason=reason))
                | (State.MEASURING, events.MeasureFailed(reason=reason))
            ):
                answer = self._fail(reason)
            case State.MEASURING, events.Measured(elapsed_s=elapsed_s):
                answer = self._measured(elapsed_s)
            case (
                State.MAKING_ROOM | State.STARTING | State.MEASURING,
                events.HostAway(reason=reason),
            ):
                answer = self._away(reason)
            case State.AWAY, events.HostBack():
                answer = self._next()
            case State.LOOKING, events.LookedAt(narrow=narrow, hopeless=hopeless):
                answer = self._looked(hopeless, narrow=narrow)
            case State.CLEARING, events.Cleared():
                answer = self._after_clearing()
            case State.RESTORING, events.Restored():
                answer = self._finish()
        return answer

    def _next(self) -> list[events.Command]:
        self._todo = self._wanted()
        leg = self.leg
        if leg is None:
            return self._end("done" if self._measured_any else "failed")
        self.state = State.MAKING_ROOM
        return [events.FindServer(leg.arm)]

    def _measured(self, elapsed_s: float) -> list[events.Command]:
        leg = self._todo.pop(0)
        self._measured_any = True
        self._tries = 0
        left = self._wanted()
        limit_s = self._stop.limit_s
        if left and limit_s is not None and elapsed_s >= limit_s:
            return self._end("time-up")
        round_over = not any(one.round == leg.round for one in left)
        if round_over or (left and self._look_often):
            # Figures are shown after every whole round; an end is drawn from repeats only.
            enough = bool(left) and round_over and leg.round + 1 >= self._stop.first_look
            self._narrow_counts = self._watch_width and enough
            self.state = State.LOOKING
            return [events.Look()]
        return self._next()

    def _looked(
        self, hopeless: tuple[tuple[int, str], ...], *, narrow: bool
    ) -> list[events.Command]:
        if narrow and self._narrow_counts:
            return self._end("narrow")
        # Nothing is given up of an arm that is measured to the end.
        left = {leg.arm for leg in self._wanted()}
        fresh = [(arm, why) for arm, why in hopeless if arm in left]
        self.given_up.update(fresh)
        return [*(events.NoteGivenUp(arm, why) for arm, why in fresh), *self._next()]

    def _wanted(self) -> list[Leg]:
        return [leg for leg in self._todo if leg.arm not in {*self.failed, *self.given_up}]

    def _fail(self, reason: str) -> list[events.Command]:
        leg = self.leg
        if leg is None:
            return []
        self._tries = 0
        self.failed[leg.arm] = reason
        return [events.NoteFailure(leg.arm, reason), *self._next()]

    def _away(self, reason: str) -> list[events.Command]:
        leg = self.leg
        if leg is None:
            return []
        self._tries += 1
        if self._tries >= TRIES:
            return self._fail(reason)
        self.state = State.AWAY
        return [events.AwaitHost(leg.arm)]

    def _cancel(self) -> list[events.Command]:
        if self.state in {State.FINISHED, State.RESTORING}:
            return []
        self._keep = False
        return self._end("cancelled")

    def _end(self, outcome: str) -> list[events.Command]:
        self.outcome = outcome
        if self._keep:
            return self._after_clearing()
        self.state = State.CLEARING
        return [events.Clear()]

    def _after_clearing(self) -> list[events.Command]:
        if self._restore:
            self.state = State.RESTORING
            return [events.Restore()]
        return self._finish()

    def _finish(self) -> list[events.Command]:
        self.state = State.FINISHED
        return [events.Finish(self.outcome)]
