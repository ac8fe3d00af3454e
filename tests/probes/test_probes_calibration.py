"""A calibration that breaks off: the server as it was is started all the same, the cause stays."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from eaglemon.app.calibration import calibrate
from eaglemon.core.probe import ProbePlan, Prompt
from eaglemon.errors import EaglemonError, LaunchRefusedError, ProbeError, TimeLimitError

if TYPE_CHECKING:
    from eaglemon.app.api import Eaglemon

PLAN = ProbePlan(
    workload="chat", prompts=(Prompt(id="a", text="b"),), requests=1, concurrency=1, nonce="n"
)


@dataclass
class State:
    """What is looked at of a server."""

    ended: bool = False
    answering: bool = True

    def __str__(self) -> str:
        return "ready"


@dataclass
class View:
    """A server."""

    state: State = field(default_factory=State)
    detail: str = ""


@dataclass
class Bench:
    """A console whose steps fail as told: the nth call of a name, from 1."""

    failing: dict[tuple[str, int], EaglemonError]
    steps: list[str] = field(default_factory=list)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        error = self.failing.get((name, self.steps.count(name)))
        if error is not None:
            raise error

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> str:
        return f"{server_id} {forced_length}"

    def find(self, _: str) -> View:
        self._step("find")
        return View()

    async def stop(self, _: str) -> None:
        self._step("stop")

    async def launch(self, plan: str, *, force: bool) -> str:
        assert force
        self._step(f"launch {plan}")
        return plan

    async def wait(self, _: str) -> View:
        self._step("wait")
        return View()

    async def probe(self, *_: object, **__: object) -> None:
        self._step("probe")


NO_PROBE = ProbeError("none of 8 requests ended well")
LATE = TimeLimitError("s 2.0 is still stopping")


@pytest.mark.parametrize(
    ("failing", "raised", "said"),
    [
        ({("probe", 1): NO_PROBE}, NO_PROBE, "s None is ready"),
        ({("probe", 1): NO_PROBE, ("stop", 2): LATE}, NO_PROBE, f"s 2.0 may be left: {LATE}"),
        ({("stop", 2): LATE}, None, f"s 2.0 may be left: {LATE}"),
        ({("stop", 1): LATE, ("find", 1): LATE}, LATE, f"s may be left: {LATE}"),
    ],
)
async def test_the_server_as_it_was_is_started_whatever_failed(
    failing: dict[tuple[str, int], EaglemonError], raised: EaglemonError | None, said: str
) -> None:
    bench, told = Bench(failing), list[str]()
    work = calibrate(cast("Eaglemon", bench), "s", PLAN, (2.0,), say=told.append)
    if raised is None:
        await work
    else:
        with pytest.raises(type(raised)) as caught:
            await work
        assert caught.value is raised
    assert "launch s None" in bench.steps
    assert said in told


async def test_a_server_that_does_not_come_back_is_said_and_raised() -> None:
    refused = LaunchRefusedError("port 30000 is in use")
    bench, told = Bench({("launch s None", 1): refused}), list[str]()
    with pytest.raises(LaunchRefusedError):
        await calibrate(cast("Eaglemon", bench), "s", PLAN, (2.0,), say=told.append)
    assert told[-1] == f"the server does not run as it was: {refused}"
    bench = Bench({("launch s None", 1): refused, ("probe", 1): NO_PROBE})
    with pytest.raises(ProbeError):
        await calibrate(cast("Eaglemon", bench), "s", PLAN, (2.0,), say=told.append)
