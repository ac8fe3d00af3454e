"""A report in the format of its file name: ``.html``, ``.md``, ``.csv`` or ``.json``."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from html import escape

from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.probe import RequestRecord
from eaglemon.core.units import duration
from eaglemon.core.verdict import Findings
from eaglemon.errors import UsageError
from eaglemon.report.charts import Series, forest, lines, positions, timelines
from eaglemon.report.tables import (
    asked_line,
    difference_rows,
    noise_lines,
    positions_of,
    result_rows,
    setup_rows,
    verdict_lines,
)

SCHEMA_VERSION = 1
_CSV_HEADER = (
    *("experiment", "arm", "round", "server", "request", "prompt", "status", "sent_at_s"),
    *("took_s", "ttft_s", "decode_tok_s", "completion_tokens", "verify_steps", "accepted"),
    "error",
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  color: #222; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #ccc; padding: .25rem .7rem; text-align: left;
  white-space: nowrap }
.verdict { font-size: 1.15rem; font-weight: 600 }
code { overflow-wrap: anywhere }
svg { max-width: 100%; height: auto }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 }
  th, td { border-color: #444 } }
"""


def render(record: ExperimentRecord, findings: Findings, suffix: str) -> str:
    """Return the report; raises ``UsageError`` for a suffix that no format has."""
    formats: Mapping[str, Callable[[ExperimentRecord, Findings], str]] = {
        ".html": html_report,
        ".md": markdown_report,
        ".csv": lambda record, _: csv_report(record),
        ".json": json_report,
    }
    if suffix not in formats:
        raise UsageError(
            f"no report is written as {suffix or 'a file without a suffix'}",
            hint=f"name it {', '.join('*' + one for one in formats)}",
        )
    return formats[suffix](record, findings)


def html_report(record: ExperimentRecord, findings: Findings) -> str:
    """Return one HTML file with its charts inside and nothing outside."""
    plan = record.plan
    names = record.names
    parts = [
        f"<h1>{escape(plan.id)}</h1>",
        f"<p>{_when(record)}</p>",
        *(f'<p class="verdict">{escape(line)}</p>' for line in verdict_lines(record, findings)),
        "<h2>What was asked</h2>",
        f"<p>{escape(asked_line(record))}</p>",
        "<h2>Results</h2>",
        _table(result_rows(record, findings)),
        *(f"<p>{escape(line)}</p>" for line in noise_lines(findings)),
        forest([(names[one.arm], one.ratio) for one in findings.comparisons]),
    ]
    if plan.kind == "sweep":
        parts += ["<h2>Speed over steps</h2>", _sweep_chart(record, findings)]
    if any(one.per_position for one in findings.arms):
        parts += [
            "<h2>Acceptance by position</h2>",
            positions([(names[one.arm], positions_of(record, one)) for one in findings.arms]),
        ]
    parts += [
        "<h2>Set-up</h2>",
        _table(setup_rows(record)),
        "<h3>Differences asked for</h3>",
        _table(difference_rows(record)),
        "<h3>Differences nobody asked for</h3>",
        _list(findings.confounders or (_no_confounders(record),)),
        "<h3>Command lines</h3>",
        _list(f"{arm.name}: {arm.shell_line}" for arm in plan.arms),
    ]
    if record.startups:
        parts += ["<h2>Start-ups</h2>", timelines(record.startups)]
    notes = _notes(record)
    if notes:
        parts += ["<h2>Notes</h2>", _list(notes)]
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(plan.id)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def markdown_report(record: ExperimentRecord, findings: Findings) -> str:
    """Return the report as Markdown, without charts."""
    parts = [
        f"# {record.plan.id}",
        _when(record),
        *(f"**{_escaped(line)}**" for line in verdict_lines(record, findings)),
        "## What was asked",
        _escaped(asked_line(record)),
        "## Results",
        _pipes(result_rows(record, findings)),
        *map(_escaped, noise_lines(findings)),
        "## Set-up",
        _pipes(setup_rows(record)),
        "### Differences asked for",
        _pipes(difference_rows(record)),
        "### Differences nobody asked for",
        _bullets(findings.confounders or (_no_confounders(record),)),
        "### Command lines",
        _bullets(f"{arm.name}: `{arm.shell_line}`" for arm in record.plan.arms),
    ]
    if record.startups:
        rows = [("SERVER", "READY AFTER", "PHASES")]
        rows += [
            (
                start.server_id,
                duration(start.ready_s),
                ", ".join(f"{one.phase} {duration(one.elapsed_s)}" for one in start.phases),
            )
            for start in record.startups
        ]
        parts += ["## Start-ups", _pipes(rows)]
    notes = _notes(record)
    if notes:
        parts += ["## Notes", _bullets(notes)]
    return "\n\n".join(parts) + "\n"


def csv_report(record: ExperimentRecord) -> str:
    """Return every request as a row, for other programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_HEADER)
    for trial in record.trials:
        start = (record.plan.id, record.names[trial.arm], trial.round, trial.server_id)
        writer.writerows((*start, *_request_cells(one)) for one in trial.records)
    return out.getvalue()


def json_report(record: ExperimentRecord, findings: Findings) -> str:
    """Return all of it: plan, environments, raw records and findings."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "verdicts": verdict_lines(record, findings),
        "findings": _plain(findings),
        "record": _plain(record),
    }
    return json.dumps(content, indent=1) + "\n"


def _sweep_chart(record: ExperimentRecord, findings: Findings) -> str:
    points: dict[str, list[tuple[float, float]]] = {}
    for figures in findings.arms:
        arm = record.plan.arms[figures.arm]
        speculation = arm.profile.speculation
        if figures.total_tok_s is None:
            continue
        steps = float(speculation.steps or 0) if speculation is not None else 0.0
        topk = f" topk {speculation.topk}" if speculation and (speculation.topk or 1) > 1 else ""
        name = f"x{arm.request.concurrency}{topk}"
        points.setdefault(name, []).append((steps, figures.total_tok_s))
    series = [Series(name=name, points=tuple(sorted(found))) for name, found in points.items()]
    return lines(series, x_name="steps (0: no speculation)", y_name="tok/s, xN: N at a time")


def _request_cells(one: RequestRecord) -> tuple[object, ...]:
    counts = one.counts
    return (
        *(one.number, one.prompt_id, one.status.value, one.sent_at, one.took_s),
        *(one.ttft_s, one.decode_tok_s, one.completion_tokens),
        *((counts.steps, counts.accepted) if counts else (None, None)),
        one.error,
    )


def _when(record: ExperimentRecord) -> str:
    began = datetime.fromtimestamp(record.created_at, tz=UTC)
    took = None if record.ended_at is None else max(0.0, record.ended_at - record.created_at)
    lasted = f", took {duration(took)}" if took is not None else ""
    return f"{began:%Y-%m-%d %H:%M} UTC{lasted}"


def _no_confounders(record: ExperimentRecord) -> str:
    known = sum(1 for one in record.environments.values() if one.resolved)
    if known < 2:
        return "not known: the engines did not tell their resolved arguments"
    return "none found among the arguments that the engines tell"


def _notes(record: ExperimentRecord) -> list[str]:
    names = record.names
    found = [f"{names[trial.arm]}: {note}" for trial in record.trials for note in trial.notes]
    for arm, environment in record.environments.items():
        found += [f"{names[arm]}: {note}" for note in environment.notes]
    return list(dict.fromkeys(found))


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def _pipes(rows: Sequence[Sequence[str]]) -> str:
    lines_ = ["| " + " | ".join(map(_escaped, row)) + " |" for row in rows]
    return "\n".join([lines_[0], "|" + " --- |" * len(rows[0]), *lines_[1:]])


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"* {item}" for item in items)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (int, float)) else str(value)
