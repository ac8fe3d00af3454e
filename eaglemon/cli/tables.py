"""Views as text: aligned columns without colour, fit for a log as well as for a terminal."""

from collections.abc import Sequence

from eaglemon.cli.gpu_text import GPU_RIGHT, PROCESS_RIGHT, gpu_rows, process_rows
from eaglemon.core.probe import ProbeFigures, ProbeProgress, Spread
from eaglemon.core.units import (
    UNKNOWN,
    count,
    duration,
    index_ranges,
    latency,
    length,
    percent,
    rate,
)
from eaglemon.core.views import HostView, ServerView, Snapshot

Row = Sequence[str]


def columns(rows: Sequence[Row], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as lines with aligned columns; ``right`` are the right-aligned ones."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def status_lines(snapshot: Snapshot) -> list[str]:
    """Return hosts with their GPUs and the processes on them, then the servers."""
    lines: list[str] = []
    for host in snapshot.hosts:
        lines += [*host_lines(host), ""]
    if snapshot.servers:
        lines += server_table(snapshot.servers)
    return [*lines, *without_servers(snapshot)]


def without_servers(snapshot: Snapshot) -> list[str]:
    """Return what to say where no server is known: of some hosts, or of all."""
    untold = [host.name for host in snapshot.hosts if host.untold]
    if untold:
        return [f"the servers of {', '.join(untold)} are not known"]
    return [] if snapshot.servers else ["no servers"]


def host_lines(host: HostView) -> list[str]:
    """Return one host: its link, its GPUs, and who holds their memory."""
    facts = host.facts
    about = [host.state.value]
    if facts is not None and facts.driver_version:
        about.append(f"driver {facts.driver_version}")
    if host.detail:
        about.append(host.detail)
    lines = [f"{host.name}: {', '.join(about)}"]
    sample = host.sample
    if sample is None:
        return lines
    if sample.driver_error:
        lines.append(f"  driver: {sample.driver_error}")
    lines += columns(gpu_rows(host), right=GPU_RIGHT)
    return [*lines, *columns(process_rows(sample), right=PROCESS_RIGHT)]


def server_table(servers: Sequence[ServerView]) -> list[str]:
    """Return servers, one a line."""
    rows = [("SERVER", "HOST", "STATE", "GPU", "PORT", "AGE", "ACCEPT", "TOK/S", "DETAIL")]
    for server in servers:
        acceptance, load = server.acceptance, server.load
        rows.append(
            (
                server.id,
                server.host,
                f"{server.state}{', stalled' if server.stalled else ''}",
                index_ranges(server.gpu_indexes),
                str(server.port),
                duration(server.age_s),
                length(acceptance.accept_length if acceptance else None),
                rate(load.tok_s if load else None),
                server.cause.sentence if server.cause else server.detail,
            )
        )
    return columns(rows, right=frozenset({4, 5, 6, 7}))


def probe_lines(probe: ProbeProgress) -> list[str]:
    """Return what a probe found."""
    figures, plan = probe.figures, probe.plan
    how = f"{plan.workload}, {plan.concurrency} at a time, up to {plan.max_tokens} tokens"
    rows = [
        ("requests", f"{figures.ok} ok, {figures.failed} failed, {figures.cut} cut ({how})"),
        ("tokens", f"{_tokens(figures)} in {duration(figures.duration_s)}"),
        ("total", _total(figures)),
        ("per request", _spread_rate(figures.decode_tok_s)),
        ("token time", _spread_latency(figures.token_time_s)),
        ("first token", _first_token(probe)),
        ("chunk gap", _spread_latency(figures.chunk_gap_s)),
        ("accept length", _acceptance(figures, probe)),
    ]
    if figures.per_position:
        shares = " ".join(percent(share) for share in figures.per_position)
        rows.append(("by position", shares))
    rows.append(("load from", _load(probe)))
    return [*columns(rows), *(f"note: {note}" for note in probe.notes)]


def _tokens(figures: ProbeFigures) -> str:
    told = figures.completion_tokens
    return UNKNOWN if told is None else count(told)


def _total(figures: ProbeFigures) -> str:
    steady = figures.steady_tok_s
    text = f"{rate(figures.total_tok_s)} tok/s"
    return text if steady is None else f"{text}, {rate(steady)} while all users were busy"


def _load(probe: ProbeProgress) -> str:
    generator = probe.generator
    if generator is None:
        return probe.driver
    return (
        f"{probe.driver}: {percent(generator.cpu_share)} of a core, "
        f"{latency(generator.lag_p95_s)} late in 95 % of its ticks"
    )


def _acceptance(figures: ProbeFigures, probe: ProbeProgress) -> str:
    if figures.accept_length is None:
        return f"{UNKNOWN} ({'no speculation seen' if probe.counters_read else 'not told'})"
    if figures.counts is None:
        return f"{length(figures.accept_length)} (from {figures.accept_source})"
    accept_rate = percent(figures.counts.accept_rate)
    return f"{length(figures.accept_length)} (rate {accept_rate}, from {figures.accept_source})"


def _spread_rate(spread: Spread | None) -> str:
    if spread is None:
        return UNKNOWN
    return f"{rate(spread.median)} tok/s median"


def _first_token(probe: ProbeProgress) -> str:
    text = _spread_latency(probe.figures.ttft_s)
    return text if probe.claims_first_tokens else f"{text} (not the server's alone: see the notes)"


def _spread_latency(spread: Spread | None) -> str:
    if spread is None:
        return UNKNOWN
    return f"{latency(spread.median)} median, {latency(spread.p90)} p90, {latency(spread.p99)} p99"
