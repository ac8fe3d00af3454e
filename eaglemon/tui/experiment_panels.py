"""What the panels of an experiment say, as content for a width. Pure: views in, content out."""

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.experiment_records import ExperimentRecord, ExperimentSummary
from eaglemon.core.experiment_views import ExperimentView, LaneView, Outlook
from eaglemon.core.problems import Problem
from eaglemon.core.run_comparison import ProfileHistory
from eaglemon.core.stats import Interval
from eaglemon.core.verdict import ArmFigures, Comparison, Findings, not_measured, sentence
from eaglemon.core.views import Snapshot
from eaglemon.tui.columns import bar, first_that_fits, joined, left, plain, right, wrapped
from eaglemon.tui.widgets.phase_track import track_lines

_DOT = " · "
_LARGEST_RATIO = 4.0
"""Ends of the fixed scale of ratios: a quarter and four times as fast."""
_SHOWN_STARTS = 8
_WHOLE = 100
"""Lines that no reason has."""
Experiment = ExperimentView | ExperimentRecord
_Figure = Callable[[ArmFigures, Comparison | None], str]
_OUTCOMES = {
    "": "cut off",
    "done": "done: all measurements were made",
    "narrow": "done early: every interval is narrow enough",
    "time-up": "ended: its time was up",
    "cancelled": "cancelled",
    "failed": "failed: no arm could be measured",
}


def outcome_words(outcome: str) -> str:
    """Return how an experiment ended, in words."""
    return _OUTCOMES.get(outcome, outcome)


def outlook_lines(outlook: Outlook, width: int) -> list[Content]:
    """Return what an experiment will do, before it is confirmed."""
    rows: list[Content] = []
    for names, problem in outlook.refused:
        rows += _wrapped(f"✗ {refused_words(names, problem)}", width, style="$state-failed")
    for names, problem in outlook.warned:
        rows += _wrapped(f"▲ {warned_words(names, problem)}", width, style="$state-warning")
    for name, differences in outlook.differences:
        rows.append(Content.styled(f"{plain(name)} differs in", "bold"))
        for key, before, after in differences:
            rows += _wrapped(f"{key}: {before} → {after}", width - 2, indent="  ")
        if not differences:
            rows.append(Content.styled("  nothing: it would be compared with itself", "$quiet"))
    plan = outlook.plan
    about = "" if outlook.expected_s is None else f", about {units.duration(outlook.expected_s)}"
    text = f"{units.plural(len(plan.legs), 'measurement')} of "
    text += f"{units.plural(plan.prompts, 'prompt')}, "
    text += f"{units.plural(outlook.starts, 'server start')}{about}"
    rows += _wrapped(text, width)
    if outlook.smallest_effect is not None:
        text = units.seen_from(outlook.smallest_effect)
        rows += _wrapped(text, width, style="$quiet")
    if outlook.running:
        rows += _wrapped(f"measured as they run: {', '.join(outlook.running)}", width)
    if outlook.in_the_way:
        text = f"▲ WILL BE STOPPED: {', '.join(outlook.in_the_way)}"
        rows += _wrapped(text, width, style="bold $state-warning")
    if outlook.baseline_missing:
        text = "no arm is without speculation: nothing will tell whether it pays at all"
        rows += _wrapped(text, width, style="$state-warning")
    return rows


def refused_words(names: Sequence[str], problem: Problem) -> str:
    """Say why arms cannot be started, with fields of the dialog in place of options."""
    return f"{' and '.join(names)} cannot be started: {_why(problem)}"


def warned_words(names: Sequence[str], problem: Problem) -> str:
    """Say what is to be known of the starts of arms, with fields of the dialog for options."""
    return f"{' and '.join(names)}: {_why(problem)}"


def _why(problem: Problem) -> str:
    return in_the_dialog(str(problem))


def in_the_dialog(text: str) -> str:
    """Return a message that is worded for the command line in the words of the dialog."""
    text = re.sub(r"\b(with|use) --set( \S+)?", _in_changes, text)
    return text.replace("--set ", "")


def _in_changes(found: re.Match[str]) -> str:
    what = (found[2] or "").strip()
    return f"{found[1]} {what} in its changes" if what else f"{found[1]} its changes"


def course(view: ExperimentView, snapshot: Snapshot, width: int) -> list[Content]:
    """Return how far an experiment is, and what each lane is doing."""
    done, total = len(view.done), view.total
    if view.outcome:
        time = f"took {units.duration(view.elapsed_s)}"
    elif view.remaining_s is None:
        time = f"{units.duration(view.elapsed_s)} so far"
    else:
        time = f"{units.duration(view.elapsed_s)} so far, about "
        time += f"{units.duration(view.remaining_s)} left"
    room = max(6, min(40, width - len(time) - 14))
    share = done / total if total else None
    rows = [
        joined(bar(share, room, "$state-starting"), f" {done}/{total}  ", Content(time)),
    ]
    if view.outcome:
        style = "$state-ready" if view.outcome in {"done", "narrow"} else "$state-warning"
        rows.append(Content.styled(outcome_words(view.outcome), f"bold {style}"))
    else:
        for lane in view.lanes:
            rows += _lane(lane, view.plan, snapshot, width)
    rows += reason_lines([arm.name for arm in view.plan.arms], view, width)
    for note in view.notes:
        rows += _wrapped(f"• {note}", width, style="$quiet")
    return rows


def _lane(lane: LaneView, plan: ExperimentPlan, snapshot: Snapshot, width: int) -> list[Content]:
    what = lane.state.value.replace("-", " ")
    if lane.leg is not None:
        what += f"{_DOT}{plan.arms[lane.leg.arm].name}{_DOT}round {lane.leg.round + 1}"
    rows = [joined(Content.styled("▶ ", "$state-starting"), left(what, width - 2).rstrip())]
    if lane.waits_for:
        rows += _wrapped(f"waits: {lane.waits_for}", width - 2, style="$quiet", indent="  ")
    if lane.probe is not None:
        probe = lane.probe
        warming = probe.state == "warming-up"
        planned = probe.plan.warmup if warming else probe.plan.requests
        count = f" {probe.done}/{planned} {'to warm up' if warming else 'requests'}"
        share = probe.done / planned if planned else None
        room = max(6, min(30, width - 30))
        rows.append(joined("  ", bar(share, room, "$state-starting"), count))
    server = snapshot.server(lane.server_id) if lane.server_id else None
    if server is not None and server.state.starting:
        rows += [joined("  ", line) for line in track_lines(server.phases, width - 2)]
    elif server is not None and server.stop is not None and lane.probe is None:
        text = f"{server.id} {server.state.value}, {units.duration(server.stop.elapsed_s)}"
        rows += _wrapped(": ".join([text, *server.stop.steps[-1:]]), width - 2, indent="  ")
    return rows


def reason_lines(names: Sequence[str], experiment: Experiment, width: int) -> list[Content]:
    """Return why arms ended early, whole: a reason may be several lines of a preflight."""
    ends = (
        ("✗ {}: {}", "$state-failed", experiment.failures),
        ("• {} is measured no further: {}", "$quiet", experiment.given_up),
    )
    return [
        Content.styled(line, style)
        for form, style, reasons in ends
        for arm, reason in sorted(reasons.items())
        for line in wrapped(form.format(names[arm], _one_line(reason)), max(8, width), _WHOLE)
    ]


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def figures_table(
    names: Sequence[str], findings: Findings | None, experiment: Experiment, width: int
) -> list[Content]:
    """Return one row for each arm: accept length, tok/s, TTFT, start-up, ratio and interval."""
    if findings is None:
        return [Content.styled("figures come with the first whole round", "$quiet")]
    by_arm = {one.arm: one for one in findings.comparisons}
    columns: tuple[tuple[str, int, _Figure], ...] = (
        ("ACCEPT", 7, lambda f, c: units.length(f.accept_length)),
        ("TOK/S", 8, lambda f, c: units.rate(f.decode_tok_s)),
        ("RATIO", 7, lambda f, c: _ratio(f, c, findings)),
        ("95 % INTERVAL", 15, lambda f, c: _span(c)),
        ("TTFT", 8, lambda f, c: units.latency(f.ttft_s.median if f.ttft_s else None)),
        ("TOTAL", 8, lambda f, c: units.rate(f.total_tok_s)),
        ("START-UP", 10, lambda f, c: units.duration(f.startup_s)),
        ("MEMORY", 10, lambda f, c: units.memory(f.memory_bytes)),
    )
    name = max(10, min(30, max(map(len, names), default=10)))
    fits = []
    room = width - name
    for column in columns:
        room -= column[1] + 1
        if room < 0:
            break
        fits.append(column)
    head = "ARM".ljust(name) + "".join(" " + title.rjust(size) for title, size, _ in fits)
    rows = [Content.styled(head, "$quiet")]
    for figures in findings.arms:
        parts: list[Content | str] = [left(names[figures.arm], name, "bold")]
        end = _end(figures.arm, experiment)
        if end is not None and not figures.trials:
            # The reason stands below the table, or in the course, where there is room for it.
            text = f"{end[0]}: {_one_line(end[1])}"
            room = max(8, width - name - 1)
            rows.append(joined(*parts, " ", left(text if len(text) <= room else end[0], room)))
            continue
        for _, size, value in fits:
            parts += [" ", right(value(figures, by_arm.get(figures.arm)), size)]
        rows.append(joined(*parts))
    return rows


def _end(arm: int, experiment: Experiment) -> tuple[str, str] | None:
    for word, reasons in (("failed", experiment.failures), ("given up", experiment.given_up)):
        if arm in reasons:
            return word, reasons[arm]
    return None


def _ratio(figures: ArmFigures, comparison: Comparison | None, findings: Findings) -> str:
    if figures.arm in findings.references:
        return "1"
    if comparison is None or comparison.ratio is None:
        return units.UNKNOWN
    return f"{comparison.ratio.value:.2f} x"


def _span(comparison: Comparison | None) -> str:
    ratio = comparison.ratio if comparison else None
    return units.UNKNOWN if ratio is None else f"{ratio.low:.2f} to {ratio.high:.2f}"


def ratio_chart(names: Sequence[str], findings: Findings | None, width: int) -> list[Content]:
    """Return each arm's ratio with its interval on a fixed scale from 1/4 to 4 times."""
    known = [c for c in findings.comparisons if c.ratio is not None] if findings else []
    if not known:
        return []
    name = max(10, min(24, max(map(len, names), default=10)))
    room = width - name - 2
    if room < 24:
        return []
    rows = []
    for one in known:
        text = _interval_line(one.ratio, room)
        style = {"faster": "$state-ready", "slower": "$state-failed"}.get(one.verdict, "$quiet")
        rows.append(joined(left(names[one.arm], name), "  ", Content.styled(text, style)))
    axis = [" "] * room
    for ratio, label in ((0.25, "1/4"), (0.5, "1/2"), (1.0, "1"), (2.0, "2"), (4.0, "4 x")):
        at = min(_place(ratio, room), room - len(label))
        axis[at : at + len(label)] = label
    rows.append(joined(" " * (name + 2), Content.styled("".join(axis), "$quiet")))
    return rows


def _place(ratio: float, room: int) -> int:
    share = math.log(max(ratio, 1e-9) * _LARGEST_RATIO) / math.log(_LARGEST_RATIO**2)
    return round(min(1.0, max(0.0, share)) * (room - 1))


def _interval_line(ratio: Interval | None, room: int) -> str:
    cells = [" "] * room
    cells[_place(1.0, room)] = "│"
    if ratio is not None:
        low, high = _place(ratio.low, room), _place(ratio.high, room)
        cells[low : high + 1] = "─" * (high - low + 1)
        cells[_place(ratio.value, room)] = "●"
    return "".join(cells)


def verdict_lines(
    names: Sequence[str], findings: Findings | None, experiment: Experiment, width: int
) -> list[Content]:
    """Return what is shown so far, in sentences, and what stands against believing it."""
    if findings is None:
        return []
    missing = not_measured(findings, names, {*experiment.failures, *experiment.given_up})
    rows: list[Content] = _wrapped(missing, width) if missing else []
    for one in findings.comparisons:
        if one.ratio is None and missing:
            continue
        rows += _wrapped(sentence(one, names), width)
        if one.overhead is not None:
            reached = units.length(findings.arms[one.arm].accept_length)
            text = f"{names[one.arm]} breaks even at an accept length of "
            text += f"{units.length(one.overhead)} and reaches {reached}"
            rows += _wrapped(text, width)
    for text in findings.confounders:
        rows += _wrapped(f"▲ confounder: {text}", width, style="$state-warning")
    return rows


def run_row(summary: ExperimentSummary, width: int, zone: tzinfo | None) -> Content:
    """Return one line of the list of runs."""
    at = _when(summary.created_at, zone)
    end = f" {summary.ending:<9}"
    start = f"{at}  {summary.kind:<6}"
    arms = " / ".join(summary.arms)
    return joined(
        Content.styled(start, "$quiet"),
        left(arms, max(8, width - len(start) - len(end))),
        Content.styled(end, "$state-ready" if summary.outcome == "done" else "$quiet"),
    )


def run_details(record: ExperimentRecord, findings: Findings | None, width: int) -> list[Content]:
    """Return one stored run: outcome, table, chart, verdicts, and what can be done."""
    ending = "under way" if record.under_way else outcome_words(record.outcome)
    head = first_that_fits(
        width,
        Content.styled(f"{record.plan.id}{_DOT}{ending}", "bold"),
        Content.styled(record.plan.id, "bold"),
    )
    rows = [head, Content("")]
    rows += figures_table(record.names, findings, record, width)
    rows += reason_lines(record.names, record, width)
    rows += [Content(""), *ratio_chart(record.names, findings, width)]
    rows += [Content(""), *verdict_lines(record.names, findings, record, width), Content("")]
    cut_off = not record.outcome and not record.under_way
    text = "C goes on with it, E writes the report" if cut_off else "E writes the report"
    return rows + _wrapped(text, width, style="$quiet")


def history_lines(history: ProfileHistory, width: int, zone: tzinfo | None) -> list[Content]:
    """Return a profile's earlier starts and what it reached, newest first."""
    rows: list[Content] = []
    if history.starts:
        rows += [Content(""), Content.styled("earlier starts, launch to first token", "$quiet")]
        for start in history.starts[:_SHOWN_STARTS]:
            took = units.duration(start.ready_s) if start.ready_s is not None else "never ready"
            why = f"{_DOT}{start.cause}" if start.cause else ""
            rows += _wrapped(
                f"{_when(start.launched_at, zone)}  {took:<12}  {start.host}{why}", width
            )
    if history.measured:
        rows += [Content(""), Content.styled("measured", "$quiet")]
        for one in history.measured:
            reached = f"accept length {units.length(one.accept_length)}{_DOT}"
            reached += f"{units.rate(one.decode_tok_s)} tok/s"
            rows += _wrapped(f"{_when(one.at, zone)}  {reached}{_DOT}{one.run}", width)
    return rows


def _when(at: float, zone: tzinfo | None) -> str:
    return f"{datetime.fromtimestamp(at, zone):%m-%d %H:%M}"


def _wrapped(text: str, width: int, *, style: str = "", indent: str = "") -> list[Content]:
    return [
        Content.assemble((indent, ""), (line, style)) for line in wrapped(text, max(8, width), 6)
    ]
