"""What the panels of a host say, as content for a width. Pure: views in, content out."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.foreign import ForeignServer
from eaglemon.core.gpu_history import STEP_S, STEPS, GpuTrace, sparkline
from eaglemon.core.hosts import GpuProcess, GpuSample, LinkState
from eaglemon.core.views import HostView
from eaglemon.tui.columns import first_that_fits, joined, left, plain, right, spread, wrapped
from eaglemon.tui.looks import LINK_LOOKS

_DOT = " · "
_NAME_WIDTH = 5
_FIGURE_WIDTH = 12


def title_line(host: HostView, width: int) -> Content:
    """Return who the host is, what it runs on, and how it is reached."""
    look = LINK_LOOKS[host.state]
    state = Content.styled(f"{look.glyph} {look.word}", look.style)
    name = Content.styled(plain(host.name), "bold")
    facts: list[str] = []
    if host.facts is not None:
        facts.append(f"{host.facts.user}@{host.facts.hostname}")
        if host.facts.driver_version:
            facts.append(f"driver {host.facts.driver_version}")
        if host.facts.cpu_count:
            facts.append(f"{host.facts.cpu_count} CPUs")
        if host.facts.memory_total_bytes:
            facts.append(f"{units.memory(host.facts.memory_total_bytes)} RAM")
        facts.append(f"Python {host.facts.python_version}")
    texts = ["".join(_DOT + plain(fact) for fact in facts[:n]) for n in range(len(facts), -1, -1)]
    room = max(0, width - state.cell_length - 2)
    variants = [joined(name, Content.styled(text, "$quiet")) for text in texts]
    return spread(first_that_fits(room, *variants), state, width)


def age_of(host: HostView) -> str:
    """Return the age of the figures for a title, stale marked in words."""
    if host.sample_age_s is None:
        return " ─ no data yet"
    word = "STALE, " if host.state in {LinkState.STALE, LinkState.DOWN} else ""
    return f" ─ {word}{units.age(host.sample_age_s)}"


def gpu_lines(host: HostView, width: int) -> list[Content]:
    """Return each GPU: figures, then how busy and how full it was, on a scale of 0 to 100 %."""
    result: list[Content] = []
    if host.detail and host.state is not LinkState.UP:
        result += [Content.styled(line, "$state-warning") for line in wrapped(host.detail, width)]
    sample = host.sample
    if sample is None:
        return [*result, Content.styled("no sample of the GPUs yet", "$quiet")]
    if sample.driver_error:
        text = f"driver: {sample.driver_error}"
        result += [Content.styled(line, "$state-failed") for line in wrapped(text, width)]
    for gpu in sample.gpus:
        result += _gpu(gpu, host.history.get(gpu.uuid), width)
    for note in (*sample.notes, *(host.facts.limits if host.facts else ())):
        result += [Content.styled(f"• {line}", "$quiet") for line in wrapped(note, width - 2)]
    if not sample.gpus:
        result.append(Content.styled("no GPUs", "$quiet"))
        return result
    columns = max(4, min(STEPS, width - _NAME_WIDTH - _FIGURE_WIDTH - 1))
    text = f"a column is {units.span(STEP_S)}, the picture {units.span(columns * STEP_S)} long"
    return result + [Content.styled(line, "$quiet") for line in wrapped(text, width)]


def _gpu(gpu: GpuSample, trace: GpuTrace | None, width: int) -> list[Content]:
    name = Content.styled(f"GPU {gpu.index}  {plain(gpu.name or '')}", "bold")
    if gpu.error is not None:
        rows = [name, Content.styled(f"  ✗ {plain(gpu.error)}", "$state-failed")]
        if trace is not None and trace.last is not None:
            held = units.gib_pair(trace.last.memory_used_bytes, trace.last.memory_total_bytes)
            rows.append(Content.styled(f"  last known: {held} GiB", "$quiet"))
        return [*rows, Content("")]
    degrees = "-" if gpu.temperature_c is None else f"{gpu.temperature_c}"
    power = "-" if gpu.power_w is None else f"{gpu.power_w:.0f}"
    limit = "" if gpu.power_limit_w is None else f"/{gpu.power_limit_w:.0f}"
    heat = f"{degrees:>3} °C {power + limit:>8} W"
    rows = [spread(name, Content(heat), width)]
    busy = None if gpu.utilisation_percent is None else gpu.utilisation_percent / 100
    memory = units.gib_pair(gpu.memory_used_bytes, gpu.memory_total_bytes)
    columns = max(4, min(STEPS, width - _NAME_WIDTH - _FIGURE_WIDTH - 1))
    percents = trace.utilisation_percent if trace else ()
    bytes_used = trace.memory_used_bytes if trace else ()
    for label, values, most, figure, style in (
        ("busy", percents, 100.0, units.percent(busy), "$chart-speed"),
        ("GiB", bytes_used, gpu.memory_total_bytes, memory, "$memory-middle"),
    ):
        rows.append(
            joined(
                Content.styled(label.ljust(_NAME_WIDTH), "$quiet"),
                Content.styled(sparkline(values, most, columns), f"{style} on $bar-track"),
                " ",
                right(figure, _FIGURE_WIDTH),
            )
        )
    rows += [Content.styled(f"▲ {line}", "$state-warning") for line in _troubles(gpu, width - 2)]
    for part in gpu.mig or ():
        pair = units.gib_pair(part.memory_used_bytes, part.memory_total_bytes)
        what = f"MIG {part.name or part.uuid}"
        rows.append(joined("  ", left(what, max(8, width - 16), "$quiet"), right(pair, 12)))
    return [*rows, Content("")]


def _troubles(gpu: GpuSample, width: int) -> list[str]:
    texts: list[str] = []
    if gpu.throttle:
        texts.append(f"clocks held back: {', '.join(gpu.throttle)}")
    if gpu.ecc_uncorrected:
        texts.append(f"{units.plural(gpu.ecc_uncorrected, 'uncorrected memory error')}")
    if gpu.xid is not None:
        texts.append(f"XID {gpu.xid} reported by the driver")
    if gpu.memory_is_host:
        texts.append("memory is shared with the host")
    return [line for text in texts for line in wrapped(text, width, 2)]


def process_lines(host: HostView, names: Mapping[str, str], width: int) -> list[Content]:
    """Return who holds memory of which GPU, the most first."""
    sample = host.sample
    if sample is None:
        return [Content.styled("not known yet", "$quiet")]
    index = {gpu.uuid: gpu.index for gpu in sample.gpus}
    if not sample.processes:
        told = "nobody holds GPU memory" if sample.processes_known else "the driver does not tell"
        return [Content.styled(told, "$quiet")]
    head = f"{'GPU':>3} {'PID':>8} {'USER':<9}{'MEMORY':>10}  WHAT"
    rows = [Content.styled(head, "$quiet").truncate(width)]
    ordered = sorted(sample.processes, key=lambda p: (index.get(p.gpu_uuid, 999), p.pid))
    for process in ordered:
        what = _what(process, names)
        gpu = str(index.get(process.gpu_uuid, "-"))
        start = f"{gpu:>3} {process.pid:>8} {plain(process.user or '-')[:8]:<9}"
        start += units.memory(process.memory_bytes).rjust(10)
        rows.append(joined(start, "  ", left(what, max(0, width - len(start) - 2), "$quiet")))
    return rows


def _what(process: GpuProcess, names: Mapping[str, str]) -> str:
    what = process.command or "-"
    if process.run_id is not None:
        what = f"{names.get(process.run_id, process.run_id)}: {what}"
    return f"[{process.container}] {what}" if process.container else what


def foreign_lines(found: Sequence[ForeignServer] | None, error: str, width: int) -> list[Content]:
    """Return the servers that no console started; ``None`` is not asked yet."""
    if error:
        text = f"servers of others: {error}"
        return [Content.styled(line, "$state-warning") for line in wrapped(text, width)]
    if found is None:
        return [Content.styled("servers of others: asking the host", "$quiet")]
    if not found:
        return [Content.styled("no servers of others", "$quiet")]
    rows = [Content.styled("Servers of others (w watches them)", "bold")]
    for server in found:
        rows += [Content(line) for line in wrapped(str(server), width, 3)]
    return rows
