"""Whole experiments on the simulated host: real SSH, agent, processes, signals and HTTP."""

import asyncio
from pathlib import Path

from eaglemon.core.experiment import ExperimentPlan, StopRules
from eaglemon.core.experiment_machine import State
from eaglemon.core.experiment_views import ExperimentView
from eaglemon.core.verdict import Verdict
from tests.experiments.simulated import LIMIT_S, bench
from tests.ports import free_port

NEVER_NARROW = StopRules(half_width=0.0)
BUSY = {State.MAKING_ROOM, State.STARTING, State.MEASURING}


async def test_three_arms_two_rounds_one_of_which_fails_to_start(tmp_path: Path) -> None:
    async with bench(tmp_path / "h.sqlite3") as b:
        port = free_port()
        arms = (
            b.arm("sglang-baseline", port=port, name="base"),
            b.arm("sglang-eagle3", port=port, name="right"),
            b.arm("sglang-eagle3+env.EAGLEMON_SIM_FAULT=oom", port=port, name="broken"),
        )
        plan = ExperimentPlan(id=b.experiments.new_id("ab"), arms=arms, rounds=2, stop=NEVER_NARROW)
        outlook = await b.experiments.outlook(plan)
        assert outlook.starts == 5
        assert not outlook.running
        async with asyncio.timeout(LIMIT_S):
            view = await b.experiments.run(plan)
        assert view.outcome == "done", view.failures
        assert b.living == []

        record = await b.experiments.record(plan.id)
        assert record.outcome == "done"
        assert [(t.arm, t.round) for t in record.trials] == [(0, 0), (1, 0), (1, 1), (0, 1)]
        assert list(record.failures) == [2]
        assert "out of memory" in record.failures[2].lower()
        assert record.intents == ()
        # Base, right, broken, and the way back: right, base.
        assert len(record.startups) == 5
        assert sum(one.ready_s is None for one in record.startups) == 1
        right = record.startups[1]
        assert {"load-target", "graph-capture", "ready"} <= {one.phase for one in right.phases}

        findings = await b.experiments.findings(record)
        (right_found, broken) = findings.comparisons
        # Which is faster is for the tests of the verdict: here a busy computer has its say.
        assert right_found.verdict is not Verdict.NOT_MEASURED
        assert right_found.ratio is not None
        assert right_found.prompts == 8
        assert broken.verdict is Verdict.NOT_MEASURED
        assert findings.arms[1].accept is not None
        assert findings.arms[1].memory_bytes
        assert findings.arms[0].accept_length is None
        environment = record.environments[1]
        assert environment.engine_version
        assert environment.driver_version
        assert environment.resolved["attention_backend"] == "fa3"

        # Turn-round beyond the engine's own stop and start is told of each turn; a benchmark says
        # how long it is.
        turns = [t.turn_s for t in record.trials if t.startup_s]
        assert [turn is None or turn >= 0 for turn in turns] == [True] * 4
        assert [turn is None for turn in turns] == [True, False, False, False]


async def test_request_settings_share_a_running_server_which_stays(tmp_path: Path) -> None:
    async with bench(tmp_path / "h.sqlite3") as b:
        port = free_port()
        one = b.arm("sglang-eagle3", port=port, name="one")
        many = b.arm("sglang-eagle3", port=port, name="many", **{"probe.concurrency": "8"})
        before = await b.hub.launch(b.hub.plan("sglang-eagle3", b.spec.name, one.settings))
        await b.hub.wait(before, timeout_s=LIMIT_S)
        plan = ExperimentPlan(id="ab-1", arms=(one, many), rounds=1)
        outlook = await b.experiments.outlook(plan)
        assert (outlook.starts, outlook.running) == (0, (before,))
        async with asyncio.timeout(LIMIT_S):
            await b.experiments.run(plan)
        assert b.living == [before]
        record = await b.experiments.record("ab-1")
        assert {trial.server_id for trial in record.trials} == {before}
        assert record.startups == ()


async def test_arms_on_other_gpus_run_side_by_side(tmp_path: Path) -> None:
    async with bench(tmp_path / "h.sqlite3") as b:
        arms = (
            b.arm("sglang-baseline", port=free_port(), name="left", gpus="0"),
            b.arm("sglang-baseline", port=free_port(), name="right", gpus="1"),
        )
        plan = ExperimentPlan(id="ab-1", arms=arms, rounds=2, stop=NEVER_NARROW, parallel=True)
        together = 0

        def watch(view: ExperimentView) -> None:
            nonlocal together
            together += len(view.lanes) == 2 and all(lane.state in BUSY for lane in view.lanes)

        async with asyncio.timeout(LIMIT_S):
            view = await b.experiments.run(plan, changed=watch)
        assert view.outcome == "done"
        assert together > 0
        record = await b.experiments.record("ab-1")
        assert sorted((t.arm, t.round) for t in record.trials) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        # Nothing had to make room, so each server was started once.
        assert len(record.startups) == 2
        assert b.living == []


async def test_a_connection_cut_during_an_arm_spoils_no_measurement(tmp_path: Path) -> None:
    async with bench(tmp_path / "h.sqlite3") as b:
        port = free_port()
        arms = (
            b.arm("sglang-baseline", port=port, name="one"),
            b.arm("sglang-baseline", port=port, name="two", **{"probe.concurrency": "2"}),
        )
        plan = ExperimentPlan(id="ab-1", arms=arms, rounds=1)
        cuts = 0

        def cut(view: ExperimentView) -> None:
            nonlocal cuts
            probe = view.lanes[0].probe
            if not cuts and probe is not None and probe.state == "running" and probe.done >= 1:
                cuts += 1
                b.sim.cut()

        async with asyncio.timeout(LIMIT_S):
            view = await b.experiments.run(plan, changed=cut)
        assert cuts == 1
        assert (view.outcome, view.failures) == ("done", {})
        record = await b.experiments.record("ab-1")
        assert [len(trial.records) for trial in record.trials] == [8, 8]
        assert all(one.error is None for trial in record.trials for one in trial.records)
        # The server lived on, and was not started again.
        assert len(record.startups) == 1
        assert b.living == []
