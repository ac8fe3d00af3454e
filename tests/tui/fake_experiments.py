"""Experiments with prepared answers, for tests of the console."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eaglemon.core.experiment import Arm, ExperimentPlan, Leg, flag_differences
from eaglemon.core.experiment_machine import State
from eaglemon.core.experiment_records import ExperimentRecord, ExperimentSummary, Startup
from eaglemon.core.experiment_views import ExperimentView, LaneView, Outlook
from eaglemon.core.probe import Spread
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.run_comparison import (
    PastMeasurement,
    ProfileHistory,
    RunComparison,
    compare_runs,
)
from eaglemon.core.stats import Interval
from eaglemon.core.sweep import Skipped
from eaglemon.core.verdict import ArmFigures, Comparison, Findings, Verdict
from eaglemon.core.views import ServerView
from eaglemon.core.worth import StoredWorth
from eaglemon.errors import UsageError
from eaglemon.io.files import write_new
from tests.stats.trials import trial
from tests.tui import snapshots
from tests.tui.fake_console import BASELINE, EAGLE3

GIB = 1024**3


def arm(profile: Profile, name: str = "") -> Arm:
    return Arm(name=name or profile.name, host="h200-a", profile=profile, shell_line="serve")


PLAN = ExperimentPlan(id="ab-1", arms=(arm(BASELINE), arm(EAGLE3)), rounds=2)
FINDINGS = Findings(
    arms=(
        ArmFigures(
            arm=0,
            trials=2,
            ok=32,
            decode_tok_s=90.1,
            total_tok_s=88.0,
            ttft_s=Spread(median=0.045, p90=0.06, p99=0.07, count=32),
            startup_s=301.0,
            memory_bytes=880 * GIB,
        ),
        ArmFigures(
            arm=1,
            trials=2,
            ok=32,
            decode_tok_s=141.3,
            total_tok_s=139.0,
            ttft_s=Spread(median=0.051, p90=0.06, p99=0.07, count=32),
            accept_length=2.81,
            startup_s=331.0,
            memory_bytes=899 * GIB,
        ),
    ),
    comparisons=(
        Comparison(
            arm=1,
            reference=0,
            verdict=Verdict.FASTER,
            ratio=Interval(value=1.57, low=1.49, high=1.66, level=0.95),
            prompts=16,
            overhead=1.74,
        ),
    ),
    references=(0,),
    confounders=("driver differs: 580 and 575",),
)
RECORD = ExperimentRecord(plan=PLAN, created_at=snapshots.AT - 3600, outcome="done")


def running(**changes: object) -> ExperimentView:
    lane = LaneView(
        state=State.MEASURING,
        leg=Leg(arm=1, round=0),
        server_id="run-ready",
        probe=snapshots.probe_progress(),
    )
    view = ExperimentView(
        plan=PLAN, lanes=(lane,), done=(Leg(arm=0, round=0),), elapsed_s=412.0, remaining_s=900.0
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def _measured(record: ExperimentRecord) -> ExperimentRecord:
    faster = 1.3 if record is RECORD else 1.0
    trials = tuple(
        trial(0, number, [90.0 * faster + n for n in range(9)])
        for number in range(record.plan.rounds)
    )
    return replace(record, trials=trials, failures={1: "oom: out of memory"})


class FakeExperiments:
    """Answers for the console; ``calls`` are noted as tuples."""

    def __init__(self, *views: ExperimentView) -> None:
        self.known = {view.plan.id: view for view in views}
        self.calls: list[tuple[object, ...]] = []
        self.hang = False
        self.stored: StoredWorth | None = None
        self.warned: tuple[tuple[tuple[str, ...], Problem], ...] = ()
        self.refused: tuple[tuple[tuple[str, ...], Problem], ...] = ()
        self.runs = [("ab-1", RECORD.names), ("sweep-2", ("steps 3", "steps 5"))]

    def arm(
        self, text: str, host: str, settings: Mapping[str, str] | None = None, *, name: str = ""
    ) -> Arm:
        profile = {"k25-eagle3": EAGLE3, "k25-baseline": BASELINE}[text.split("+", maxsplit=1)[0]]
        if "+" in text and "=" not in text:
            raise UsageError(f"{text}: not a setting", hint="write PROFILE+KEY=VALUE")
        return replace(arm(profile, text), host=host, settings=dict(settings or {}))

    def sweep_arms(
        self,
        profile: str,
        host: str,
        settings: Mapping[str, str] | None = None,
        *,
        steps: Sequence[int],
        topk: Sequence[int] = (1,),
        draft_tokens: Sequence[int] | None = None,
        concurrency: Sequence[int] = (1,),
    ) -> tuple[tuple[Arm, ...], list[Skipped]]:
        raise UsageError(f"no sweep of {profile} on {host}: {settings} {steps} {topk}")

    async def begin_again(self, text: str = "") -> str:
        if text != "ab-cut":
            raise UsageError(f"no experiment {text!r} was cut off")
        self.calls.append(("resume", text))
        self.known[text] = ExperimentView(plan=replace(PLAN, id=text))
        return text

    async def worth(self, server: ServerView) -> StoredWorth | None:
        self.calls.append(("worth", server.id))
        return self.stored

    async def compare(self, one: str, other: str) -> RunComparison:
        self.calls.append(("compare", one, other))
        records = [await self.record(name) for name in (one, other)]
        return compare_runs(*(_measured(record) for record in records), draws=50)

    async def write_report(self, text: str, folder: Path) -> Path:
        self.calls.append(("report", text))
        return write_new(folder, text, ".html", "a report")

    async def profile_history(self, profile: str) -> ProfileHistory:
        start = Startup(
            server_id="s", host="h200-a", profile=profile, digest="d", engine="sglang",
            launched_at=snapshots.AT - 7200, ready_s=301.0,
        )  # fmt: skip
        past = PastMeasurement(
            run="ab-1", arm=profile, at=snapshots.AT - 3600, accept_length=2.81, decode_tok_s=141.3
        )
        return ProfileHistory(starts=(start,), measured=(past,))

    def new_id(self, kind: str) -> str:
        return f"{kind}-new"

    async def outlook(self, plan: ExperimentPlan) -> Outlook:
        if self.hang:
            await asyncio.Event().wait()
        first = plan.arms[0]
        differences = tuple(
            (other.name, flag_differences(first.profile, other.profile)) for other in plan.arms[1:]
        )
        return Outlook(
            plan=plan,
            differences=differences,
            starts=3,
            in_the_way=("k25-eagle3",),
            expected_s=1500.0,
            smallest_effect=0.04,
            refused=self.refused,
            warned=self.warned,
        )

    def begin(self, plan: ExperimentPlan) -> None:
        self.calls.append(("begin", plan.id, [one.name for one in plan.arms], plan.rounds))
        self.known[plan.id] = ExperimentView(plan=plan)

    def view(self, experiment: str) -> ExperimentView | None:
        return self.known.get(experiment)

    def views(self) -> Sequence[ExperimentView]:
        return tuple(self.known.values())

    async def cancel(self, experiment: str) -> None:
        self.calls.append(("cancel", experiment))
        self.known[experiment] = replace(self.known[experiment], outcome="cancelled")

    async def history(self, limit: int = 50) -> list[ExperimentSummary]:
        return [
            ExperimentSummary(
                id=run,
                kind="ab",
                arms=arms,
                hosts=("h200-a",),
                created_at=snapshots.AT - 3600,
                ended_at=snapshots.AT - 600,
                outcome="" if run in {"ab-cut", "ab-now"} else "done",
                under_way=run == "ab-now",
                trials=4,
                requests=64,
            )
            for run, arms in self.runs
        ]

    async def record(self, text: str) -> ExperimentRecord:
        if text not in {"ab-1", "ab-0", "ab-cut"}:
            raise UsageError(f"no run {text!r}")
        earlier = replace(
            RECORD, plan=replace(PLAN, id=text), created_at=RECORD.created_at - 86_400
        )
        return RECORD if text == "ab-1" else earlier

    async def findings(self, record: ExperimentRecord) -> Findings:
        return FINDINGS
