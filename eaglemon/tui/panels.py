"""What the panels of a server say, as content for a width. Pure: views in, content out."""

from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.phases import Phase
from eaglemon.core.probe import ProbeFigures, ProbeProgress, Spread
from eaglemon.core.views import (
    CauseView,
    HealthVerdict,
    HealthView,
    PhaseState,
    PhaseView,
    ServerState,
    ServerView,
    StopView,
)
from eaglemon.tui.acceptance_panels import acceptance, load_line
from eaglemon.tui.columns import (
    bar,
    first_that_fits,
    joined,
    lines,
    plain,
    spread,
    wrapped,
)
from eaglemon.tui.looks import HEALTH_LOOKS
from eaglemon.tui.widgets.phase_track import track_lines
from eaglemon.tui.widgets.server_list import look_of

_DOT = " · "
_PROBE_UNDER_WAY = frozenset({"warming-up", "running"})
_LABEL_WIDTH = 11
_NOTE_LINES = 3
DECISIVE_LINES = 3
"""Lines that the decisive line of a log takes where there is no room for more."""


def title_line(server: ServerView, width: int, zone: tzinfo | None) -> Content:
    """Return who the server is and what state it is in."""
    look = look_of(server)
    state = Content.styled(f"{look.glyph} {look.word}", look.style)
    since = Content.styled(_since(server, zone), "$quiet")
    name = Content.styled(plain(server.name), "bold")
    place = Content.styled(_DOT + plain(f"{server.host}:{server.port}"), "")
    engine = Content.styled(_DOT + plain(server.engine), "$quiet")
    more = Content.styled("".join(_DOT + part for part in _particulars(server)), "$quiet")
    probing = Content.styled(_probing(server), "$state-starting")
    ends = (joined(state, since, probing), joined(state, probing))
    for end in ends:
        for start in (joined(name, engine, place, more), joined(name, place, engine)):
            if start.cell_length + 2 + end.cell_length <= width:
                return spread(start, end, width)
    return spread(first_that_fits(width, joined(name, place), name), ends[-1], width)


def _probing(server: ServerView) -> str:
    progress = server.probe
    if progress is None or progress.state not in _PROBE_UNDER_WAY:
        return ""
    return f"{_DOT}{probe_course(progress)}"


def probe_course(progress: ProbeProgress) -> str:
    """Say how far a probe is; what warms the server up is none of its requests."""
    if progress.state == "warming-up":
        return f"warming up {progress.done}/{progress.plan.warmup}"
    return f"probing {progress.done}/{progress.plan.requests}"


def _particulars(server: ServerView) -> list[str]:
    parts: list[str] = []
    if server.gpu_indexes:
        parts.append(f"gpus {units.index_ranges(server.gpu_indexes)}")
    speculation = server.speculation
    if speculation is None:
        parts.append("no speculation")
    else:
        figures = (
            ("steps", speculation.steps),
            ("topk", speculation.topk),
            ("tokens", speculation.draft_tokens),
        )
        known = [f"{name} {value}" for name, value in figures if value is not None]
        parts.append(" ".join(known) or speculation.algorithm)
    return parts


def _since(server: ServerView, zone: tzinfo | None) -> str:
    if server.state in {ServerState.STOPPING, ServerState.RELEASING}:
        if server.stop is None:
            return ""
        asked = units.duration(server.stop.elapsed_s)
        return f" for {asked}" if server.state is ServerState.STOPPING else f" {asked} after TERM"
    if server.ready_at is not None and not server.state.ended:
        took = units.duration(server.ready_at - server.launched_at)
        return f" since {units.clock(server.ready_at, zone)} (took {took})"
    if server.exit is not None:
        return f" {server.exit}, after {units.duration(server.age_s)}"
    word = "after" if server.state.ended else "for"
    return f" {word} {units.duration(server.age_s)}"


def shown_phases(server: ServerView) -> tuple[PhaseView, ...]:
    """Return the phases with what the state tells of serving, which logs seldom do."""
    if server.ready_at is None and not server.state.answering:
        return server.phases
    ends = {ServerState.STOPPED: PhaseState.ENDED, ServerState.FAILED: PhaseState.FAILED}
    serving = ends.get(server.state, PhaseState.DONE)
    return tuple(
        replace(phase, state=serving)
        if phase.phase is Phase.SERVING and phase.state is PhaseState.PENDING
        else phase
        for phase in server.phases
    )


def preview(server: ServerView, width: int, zone: tzinfo | None) -> Content:
    """Return the short of a server, for beside the list: state, health, worth, cause."""
    rows: list[Content | str] = [title_line(server, width, zone)]
    if server.state.starting:
        rows += track_lines(shown_phases(server), width)
    if not server.state.ended:
        rows.append(health_line(server.health, width))
    rows += startup_notes(server, width)
    if server.acceptance is not None or server.load is not None:
        rows.append(Content(""))
        rows.append(load_line(server.load, width))
        rows.append(acceptance(server.acceptance, server, width, short=True))
    if server.cause is not None:
        rows += [Content(""), cause(server.cause, width)]
    if server.stop is not None:
        rows += [Content(""), stop(server.stop, server.state, width)]
    return lines(rows)


def health_line(health: HealthView | None, width: int) -> Content:
    """Return the last health poll: what it proves, code, latency, age, how many."""
    if health is None:
        return Content.styled("health    not polled yet", "$quiet")
    look = HEALTH_LOOKS[health.verdict]
    verdict = joined("health    ", Content.styled(f"{look.glyph} {look.word}", look.style))
    facts: list[str] = []
    if health.code is not None:
        facts.append(f"HTTP {health.code}")
    if health.latency_s is not None:
        facts.append(f"in {units.latency(health.latency_s)}")
    facts.append(units.age(health.age_s))
    facts.append(units.plural(health.polls, "poll"))
    if health.detail:
        facts.append(plain(health.detail))
    variants = [
        joined(verdict, Content.styled("".join(_DOT + fact for fact in facts[:number]), "$quiet"))
        for number in range(len(facts), -1, -1)
    ]
    return first_that_fits(width, *variants)


def startup_notes(server: ServerView, width: int) -> list[Content]:
    """Return the lines under the phase track: what is waited for, and notes from the log."""
    result: list[Content] = []
    # The track already says what the detail of a running phase says.
    silent = server.health is not None and server.health.verdict is HealthVerdict.TIMED_OUT
    tracked = not silent and any(phase.state is PhaseState.ACTIVE for phase in server.phases)
    waiting = not server.state.answering and not server.state.ended
    if server.detail and waiting and (server.stalled or not tracked):
        text = f"stalled: {server.detail}" if server.stalled else server.detail
        style = "$state-warning" if server.stalled else ""
        result += [Content.styled(line, style) for line in wrapped(text, width, 2)]
    for note in server.notes[:3]:
        for number, line in enumerate(wrapped(note, width - 2, _NOTE_LINES)):
            result.append(Content.styled(f"{'  ' if number else '• '}{line}", "$quiet"))
    return result


def probe(progress: ProbeProgress, width: int, note_lines: int = 2) -> Content:
    """Return a probe's progress and its figures so far, each note in ``note_lines`` at most."""
    # What is thrown away has no figures.
    figures = ProbeFigures() if progress.state == "warming-up" else progress.figures
    rows = [
        *_probe_course_rows(progress, width),
        *_figure_rows(progress, figures, width),
        *_ended_badly(figures),
    ]
    if progress.error:
        rows += [Content.styled(line, "$state-failed") for line in wrapped(progress.error, width)]
    for note in progress.notes:
        rows += [
            Content.styled(line, "$state-warning") for line in wrapped(note, width, note_lines)
        ]
    if progress.driver:
        rows.append(Content.styled(plain(f"load from {progress.driver}"), "$quiet"))
    return lines(rows)


def _probe_course_rows(progress: ProbeProgress, width: int) -> list[Content]:
    """Return what is asked for, and how far it has come."""
    plan = progress.plan
    what = f"{plan.workload}{_DOT}{units.plural(plan.requests, 'request')}"
    what += f"{_DOT}{plan.concurrency} at a time{_DOT}{plan.max_tokens} tokens"
    styles = {"done": "$state-ready", "failed": "$state-failed", "cancelled": "$state-warning"}
    state = Content.styled(progress.state, styles.get(progress.state, "$state-starting"))
    running = progress.state in _PROBE_UNDER_WAY
    warming = progress.state == "warming-up"
    time = f"took {units.duration(progress.elapsed_s)}"
    if running:
        left = None if warming else progress.remaining_s
        time = "" if left is None else f"{units.duration(left)} left"
    planned = plan.warmup if warming else plan.requests
    share = progress.done / planned if planned else None
    room = max(6, min(30, width - 36))
    return [
        first_that_fits(width, Content(plain(what)), Content(plain(plan.workload))),
        joined(
            state,
            " " * max(1, 11 - state.cell_length),
            bar(share, room, "$state-starting" if running else "$state-ended"),
            f" {progress.done}/{planned}  ",
            Content.styled(time, "$quiet"),
        ),
    ]


def _figure_rows(progress: ProbeProgress, figures: ProbeFigures, width: int) -> list[Content]:
    also = "not the server's alone"
    total = "all requests together" if progress.claims_speed else also
    first = "to the first token" if progress.claims_first_tokens else also
    table = (
        ("tok/s", units.rate(figures.total_tok_s), total),
        ("decode", _median_and_tail(figures.decode_tok_s, units.rate), "tok/s of one request"),
        ("TTFT", _median_and_tail(figures.ttft_s, units.latency), first),
        ("accept", units.length(figures.accept_length), figures.accept_source or "not told"),
    )
    rows = []
    for name, value, meaning in table:
        row = joined(Content.styled(name.ljust(8), "$quiet"), value)
        pad = " " * max(2, 34 - row.cell_length)
        rows.append(
            first_that_fits(width, joined(row, pad, Content.styled(meaning, "$quiet")), row)
        )
    return rows


def _ended_badly(figures: ProbeFigures) -> list[Content]:
    bad = [
        f"{number} {word}"
        for number, word in (
            (figures.failed, "failed"),
            (figures.cut, "cut"),
            (figures.cancelled, "cancelled"),
        )
        if number
    ]
    if not bad:
        return []
    return [Content.styled(f"{figures.ok} ok, {', '.join(bad)}", "$state-warning")]


def _median_and_tail(figure: Spread | None, text: Callable[[float], str]) -> str:
    if figure is None:
        return units.UNKNOWN
    return f"{text(figure.median)}  p90 {text(figure.p90)}"


def cause(view: CauseView, width: int, most: int = DECISIVE_LINES) -> Content:
    """Return why the server failed: a sentence, the decisive line, what to change.

    The decisive line takes ``most`` lines at most.
    """
    rows: list[Content | str] = [
        Content.styled(line, "bold $state-failed") for line in wrapped(view.sentence, width)
    ]
    if view.decisive_line:
        where = "line  " if view.line_number is None else f"line {units.count(view.line_number)}  "
        text = wrapped(view.decisive_line, width - len(where), most)
        for number, line in enumerate(text):
            head = where if number == 0 else " " * len(where)
            rows.append(joined(Content.styled(head, "$quiet"), line))
    if view.remedy:
        for number, line in enumerate(wrapped(view.remedy, width - 5, 4)):
            head = "try  " if number == 0 else " " * 5
            rows.append(joined(Content.styled(head, "$state-ready"), line))
    return lines(rows)


def stop(view: StopView, state: ServerState, width: int) -> Content:
    """Return the account of a stop, and whether it is proven."""
    rows: list[Content | str] = []
    for step in view.steps:
        for number, line in enumerate(wrapped(step, width - 2, 2)):
            rows.append(joined(Content.styled("· " if number == 0 else "  ", "$quiet"), line))
    if view.memory_unseen:
        text = f"▲ no process is left; GPU memory cannot be seen: {view.memory_unseen}"
        rows += [Content.styled(line, "$state-warning") for line in wrapped(text, width)]
        return lines(rows)
    if view.proven:
        took = units.duration(view.elapsed_s)
        held = view.memory_to_release_bytes is not None
        back = "the GPU memory is back" if held else "it held no GPU memory"
        text = f"✓ proven after {took}: no process is left and {back}"
        rows += [Content.styled(line, "$state-ready") for line in wrapped(text, width)]
        return lines(rows)
    left_over: list[str] = []
    if view.processes_left is not None:
        left_over.append(f"{units.plural(view.processes_left, 'process')} left")
    if view.memory_to_release_bytes is not None:
        left_over.append(f"{units.memory(view.memory_to_release_bytes)} to come back")
    left_over.append(units.duration(view.elapsed_s))
    style = "bold $state-failed" if state.ended else "$state-warning"
    word = "✗ not proven: " if state.ended else "▼ "
    rows += [Content.styled(line, style) for line in wrapped(word + _DOT.join(left_over), width)]
    return lines(rows)
