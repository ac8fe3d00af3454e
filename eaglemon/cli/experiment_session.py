"""What ``ab`` and ``sweep`` share: opening the history, confirming, running, telling the result."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from eaglemon.app.api import Eaglemon
from eaglemon.app.experiments import ExperimentService
from eaglemon.cli import diagnostics, output, session
from eaglemon.cli.experiment_options import ExperimentOptions
from eaglemon.cli.experiment_progress import ExperimentTalk, outlook_lines
from eaglemon.core.experiment import ExperimentPlan, plan_problems
from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.experiment_views import ExperimentView, Outlook
from eaglemon.core.hosts import HostSpec
from eaglemon.core.problems import errors_among
from eaglemon.core.verdict import Findings
from eaglemon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, LaunchRefusedError, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.files import write_text
from eaglemon.io.store import Store
from eaglemon.report.render import render
from eaglemon.report.tables import RIGHT, aligned, noise_lines, result_rows, verdict_lines

Result = tuple[ExperimentView, ExperimentRecord, Findings]


class NotConfirmedError(Exception):
    """The person said no."""


Plan = Callable[[ExperimentService], tuple[ExperimentPlan, Mapping[str, object]]]
"""Makes the plan of an experiment, with what ``--dry-run --json`` is to tell besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How an experiment is to be carried out and told, as the options say."""

    command: str
    hosts: Sequence[HostSpec]
    profiles: ProfileStore
    options: ExperimentOptions
    resume: str | None = None
    """Go on with this run, the newest one where it is empty, in place of a new one."""


def carry_out(
    asked: Asked, plan_of: Plan, more: Callable[[ExperimentRecord], Sequence[str]] = lambda _: ()
) -> int:
    """Plan, confirm, run and tell an experiment; return the exit code. ``more`` adds lines."""

    opened: list[ExperimentService] = []

    def left() -> list[str]:
        return [one for service in opened for one in service.left]

    async def work(console: Eaglemon) -> Result | None:
        await session.settled(console)
        async with open_experiments(console) as experiments:
            opened.append(experiments)
            if asked.resume is not None:
                return await _resume_plan(console, experiments, asked.resume)
            plan, besides = plan_of(experiments)
            options = asked.options
            ask = not (options.confirmed or options.dry_run)
            outlook = await _confirmed_outlook(experiments, plan, ask=ask)
            if options.dry_run:
                if options.as_json:
                    output.write_document(asked.command, {"outlook": outlook, **besides})
                return None
            diagnostics.talk(f"run {plan.id}")
            return await _run_plan(console, experiments, plan)

    try:
        result = session.run_on(
            asked.hosts,
            asked.profiles,
            work,
            if_interrupted=lambda: what_is_left(left()),
            stopping=left,
        )
    except NotConfirmedError:
        diagnostics.fail("not confirmed, nothing was started")
        return EXIT_INTERRUPTED
    return EXIT_OK if result is None else _tell_result(asked, result, more(result[1]))


def what_is_left(servers: Sequence[str]) -> str:
    """Say what an interrupted experiment leaves on its hosts: ids of servers, or none."""
    if not servers:
        return "the servers that it started were stopped"
    return f"not seen to be stopped: {', '.join(servers)}; stop each with eaglemon kill SERVER"


@asynccontextmanager
async def open_experiments(console: Eaglemon) -> AsyncIterator[ExperimentService]:
    """Open the history on a console."""
    store = Store()
    try:
        yield ExperimentService(console, store)
    finally:
        await store.close()


async def _confirmed_outlook(
    experiments: ExperimentService, plan: ExperimentPlan, *, ask: bool
) -> Outlook:
    """Tell what will be done and ask; raises ``UsageError`` for what cannot be, or on a no."""
    problems = plan_problems(plan)
    diagnostics.list_problems(problems)
    wrong = errors_among(problems)
    if wrong:
        raise UsageError("the experiment cannot be run as asked", hint=str(wrong[0]))
    outlook = await experiments.outlook(plan)
    for line in outlook_lines(outlook):
        diagnostics.talk(line)
    if outlook.startable < 2:
        raise LaunchRefusedError(
            "fewer than two arms could be started, and nothing was: see what stands against them"
        )
    if ask and sys.stdin.isatty():
        if not click.confirm("run it?", err=True):
            raise NotConfirmedError
    elif ask and outlook.in_the_way:
        raise UsageError(
            f"{', '.join(outlook.in_the_way)} would be stopped", hint="confirm it with --yes"
        )
    return outlook


async def _run_plan(
    console: Eaglemon, experiments: ExperimentService, plan: ExperimentPlan
) -> Result:
    """Run the experiment with its progress on stderr."""
    view = await experiments.run(plan, changed=ExperimentTalk(console))
    return await _with_findings(experiments, view)


async def _resume_plan(console: Eaglemon, experiments: ExperimentService, text: str) -> Result:
    """Go on with an experiment with its progress on stderr."""
    view = await experiments.resume(text, changed=ExperimentTalk(console))
    return await _with_findings(experiments, view)


async def _with_findings(experiments: ExperimentService, view: ExperimentView) -> Result:
    record = await experiments.record(view.plan.id)
    return view, record, await experiments.findings(record)


def _tell_result(asked: Asked, result: Result, more: Sequence[str]) -> int:
    """Write the result and its reports; return the exit code: 1 when an arm was not measured."""
    view, record, findings = result
    for path in asked.options.outputs:
        write_text(path, render(record, findings, path.suffix.lower()))
        diagnostics.talk(f"wrote {path}")
    if asked.options.as_json:
        verdicts = [*verdict_lines(record, findings), *more]
        content: dict[str, object] = {
            "run": record.plan.id,
            "outcome": record.outcome,
            "verdicts": verdicts,
        }
        content |= {"arms": record.names, "findings": findings, "failures": record.failures}
        content |= {"given_up": record.given_up, "notes": view.notes}
        output.write_document(asked.command, content)
    else:
        output.write_lines(result_lines(record, findings, more))
    whole = bool(findings.comparisons) and not record.failures
    return EXIT_OK if whole else EXIT_FAILED


def result_lines(
    record: ExperimentRecord, findings: Findings, more: Sequence[str] = ()
) -> list[str]:
    """Return the table and the verdicts as text."""
    rows = result_rows(record, findings)
    lines = [*aligned(rows, right=RIGHT), "", *verdict_lines(record, findings), *more]
    lines += noise_lines(findings)
    lines += [f"confounder: {line}" for line in findings.confounders]
    return [*lines, f"run {record.plan.id}: eaglemon report {record.plan.id} -o report.html"]


def check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse reports that cannot be written, before anything is started."""
    for path in outputs:
        if path.suffix.lower() not in {".html", ".md", ".csv", ".json"}:
            raise UsageError(f"{path}: no report is written so", hint="use .html, .md, .csv, .json")
