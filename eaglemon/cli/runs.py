"""``eaglemon runs``: the history of experiments."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import click

from eaglemon.app.experiment_plans import experiment_findings
from eaglemon.cli import diagnostics, output
from eaglemon.cli.experiment_session import result_lines
from eaglemon.cli.invocation import DURATION, json_option
from eaglemon.cli.tables import columns
from eaglemon.core.experiment_records import ExperimentRecord, ExperimentSummary
from eaglemon.core.problems import did_you_mean
from eaglemon.core.run_comparison import RunComparison, compare_arms, compare_runs
from eaglemon.core.run_comparison_text import comparison_lines
from eaglemon.core.stats import DRAWS
from eaglemon.core.units import plural
from eaglemon.core.verdict import Findings
from eaglemon.errors import EXIT_FAILED, EXIT_OK, UsageError
from eaglemon.io.files import write_text
from eaglemon.io.store import KEPT_BYTES, KEPT_S, Store
from eaglemon.report.render import json_report
from eaglemon.report.tables import asked_line

Result = TypeVar("Result")
_MIB = 1024**2


async def read_run(text: str) -> tuple[ExperimentRecord, Findings]:
    """Read an experiment and compute its findings; raises ``StoreError``."""

    async def read(store: Store) -> ExperimentRecord:
        return await store.experiment(text)

    record = await _with_store(read)
    plan, known = record.plan, record.environments
    return record, experiment_findings(plan, record.trials, known, DRAWS)


@click.group(name="runs", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> int:
    """List, show, compare, export and prune measured experiments (the default: list).

    RUN is an id, the beginning of one, or last.
    """
    if ctx.invoked_subcommand is None:
        result: int = ctx.invoke(list_runs)
        return result
    return EXIT_OK


@command.command(name="list")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="Newest so many.")
@json_option
def list_runs(*, limit: int, as_json: bool) -> int:
    """List experiments, newest first."""

    async def read(store: Store) -> list[ExperimentSummary]:
        return await store.experiments(limit)

    found = asyncio.run(_with_store(read))
    if as_json:
        output.write_document("runs list", {"runs": found})
    elif not found:
        diagnostics.talk("no experiment was measured yet: eaglemon ab A B --host HOST")
    else:
        rows: list[tuple[str, ...]] = [
            ("RUN", "BEGAN", "OUTCOME", "TRIALS", "REQUESTS", "HOSTS", "ARMS")
        ]
        rows += [_row(one) for one in found]
        output.write_lines(columns(rows, right=frozenset({3, 4})))
    return EXIT_OK


@command.command(name="show")
@click.argument("run", default="last")
@json_option
def show(*, run: str, as_json: bool) -> int:
    """Show what an experiment has found."""
    record, findings = asyncio.run(read_run(run))
    if as_json:
        content = {"run": record.plan.id, "outcome": record.outcome, "arms": record.names}
        output.write_document("runs show", {**content, "findings": findings})
    else:
        output.write_lines([asked_line(record), "", *result_lines(record, findings)])
    return EXIT_OK


@command.command(name="compare")
@click.argument("first", metavar="RUN[:ARM]")
@click.argument("second", metavar="RUN[:ARM]")
@json_option
def compare_two(*, first: str, second: str, as_json: bool) -> int:
    """Compare two experiments, or an arm of each: flags, starts, figures, verdict.

    Without an ARM, arms of the same name are compared, the earlier run first, paired by prompt.
    Where that would not be fair it is said why, and the exit code is 1. What changed in between
    is part of the ratio.
    """

    async def read(store: Store) -> tuple[ExperimentRecord, ExperimentRecord]:
        return (
            await store.experiment(first.partition(":")[0]),
            await store.experiment(second.partition(":")[0]),
        )

    one, other = asyncio.run(_with_store(read))
    if ":" in first or ":" in second:
        pair = compare_arms(one, _arm_of(one, first), other, _arm_of(other, second))
        found = RunComparison(
            runs=(one.plan.id, other.plan.id),
            apart_s=other.created_at - one.created_at,
            pairs=(pair,),
        )
    else:
        found = compare_runs(one, other)
    if as_json:
        output.write_document("runs compare", {"comparison": found})
    else:
        output.write_lines(comparison_lines(found))
    fair = bool(found.pairs) and all(pair.comparison is not None for pair in found.pairs)
    return EXIT_OK if fair else EXIT_FAILED


@command.command(name="export")
@click.argument("run", default="last")
@click.option(
    "-o", "--output", "path", type=click.Path(path_type=Path, dir_okay=False), required=True
)
def export(*, run: str, path: Path) -> int:
    """Write an experiment with all its raw records as JSON."""
    record, findings = asyncio.run(read_run(run))
    write_text(path, json_report(record, findings))
    diagnostics.talk(f"wrote {path}")
    return EXIT_OK


@command.command(name="prune")
@click.option("--older-than", type=DURATION, default=KEPT_S, help="Forget older ones: 720h.")
@click.option("--keep-mib", type=click.IntRange(min=1), default=KEPT_BYTES // _MIB)
@json_option
def prune(*, older_than: float, keep_mib: int, as_json: bool) -> int:
    """Forget old experiments, then the oldest beyond the size."""

    async def work(store: Store) -> tuple[list[str], int]:
        gone = await store.prune(now=time.time(), kept_s=older_than, kept_bytes=keep_mib * _MIB)
        return gone, await store.size_bytes()

    gone, size = asyncio.run(_with_store(work))
    if as_json:
        output.write_document("runs prune", {"forgotten": gone, "size_bytes": size})
    else:
        left = f"the history takes {size / _MIB:.1f} MiB"
        output.write_lines([f"{plural(len(gone), 'experiment')} forgotten, {left}"])
    return EXIT_OK


async def _with_store(work: Callable[[Store], Awaitable[Result]]) -> Result:
    store = Store()
    try:
        return await work(store)
    finally:
        await store.close()


def _row(one: ExperimentSummary) -> tuple[str, ...]:
    began = datetime.fromtimestamp(one.created_at).astimezone()
    return (
        one.id,
        f"{began:%Y-%m-%d %H:%M}",
        one.ending,
        str(one.trials),
        str(one.requests),
        ", ".join(one.hosts),
        ", ".join(one.arms),
    )


def _arm_of(record: ExperimentRecord, text: str) -> int:
    name = text.partition(":")[2]
    if not name:
        return 0
    if name not in record.names:
        hint = did_you_mean(name, record.names)
        raise UsageError(f"{record.plan.id} has no arm {name!r}", hint=hint)
    return record.names.index(name)
