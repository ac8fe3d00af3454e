"""What stops a launch before anything starts, and what only ``force`` passes over."""

import pytest

from eaglemon.core.problems import Severity
from eaglemon.core.views import ServerState
from eaglemon.errors import LaunchRefusedError
from tests.app.test_app_main_job import LIMIT_S, console
from tests.ports import free_port


async def test_a_misspelt_flag_stops_a_launch_and_force_passes_over_it() -> None:
    async with console() as (hub, host, _):
        await hub.settle()
        plan = hub.plan("sglang-eagle3", host, {"port": str(free_port()), "tp-sise": "2"})
        with pytest.raises(LaunchRefusedError, match="did you mean 'tp-size'"):
            await hub.launch(plan)
        # It never ran, so the fleet does not have it.
        assert hub.snapshot().servers == ()
        forced = await hub.launch(plan, force=True)
        view = await hub.wait(forced, timeout_s=LIMIT_S)
        assert view.state is ServerState.FAILED
        assert view.pid is not None


async def test_a_workload_that_nobody_knows_stops_a_launch() -> None:
    async with console() as (hub, host, _):
        await hub.settle()
        overrides = {"port": str(free_port()), "probe.workload": "cod"}
        problems = await hub.check(hub.plan("sglang-eagle3", host, overrides))
        (problem,) = [one for one in problems if one.where == "probe.workload"]
        assert problem.severity is Severity.ERROR
        assert problem.hint == "did you mean 'code'?"


async def test_an_unknown_flag_without_a_near_name_is_a_warning() -> None:
    async with console() as (hub, host, _):
        await hub.settle()
        overrides = {"port": str(free_port()), "flags.quite-new-thing": "2"}
        problems = await hub.check(hub.plan("sglang-eagle3", host, overrides))
        (problem,) = [one for one in problems if one.slug == "unknown-flag"]
        assert problem.severity is Severity.WARNING
