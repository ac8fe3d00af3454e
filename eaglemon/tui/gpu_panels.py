"""What the panel of a host's GPUs says, as content for a width. Pure: views in, content out."""

from collections.abc import Sequence

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.gpu_history import STEP_S, STEPS, GpuTrace, sparkline
from eaglemon.core.hosts import GpuSample, LinkState, MigInstance
from eaglemon.core.views import HostView
from eaglemon.tui.columns import (
    first_that_fits,
    joined,
    left,
    memory_style,
    plain,
    right,
    spread,
    wrapped,
)

_NAME_WIDTH = 6
_FIGURE_WIDTH = 13
_LEAST_CHART = 4
_DOT = " · "
_NO_DOMAIN = "00000000:"


def gpu_lines(host: HostView, width: int) -> list[Content]:
    """Return each GPU: figures, then how busy and how full it was, on a scale of 0 to 100 %.

    First comes what is wrong with the host as a whole, last what else is to be known of it.
    """
    result = _host_troubles(host, width)
    sample = host.sample
    if sample is None:
        return [*result, Content.styled("no sample of the GPUs yet", "$quiet")]
    if sample.driver_error:
        result += _told(f"✗ driver: {sample.driver_error}", "$state-failed", width)
    for gpu in sample.gpus:
        result += _gpu(gpu, host.history.get(gpu.uuid), sample.at, width)
    if not sample.gpus:
        result.append(Content.styled("no GPUs", "$quiet"))
    for note in host_notes(host):
        result += _told(f"• {note}", "$quiet", width)
    return result


def title(host: HostView, width: int, age: str) -> str:
    """Return the title of the panel: what the charts span, and how old the figures are."""
    if host.sample is None or not host.sample.gpus:
        return f"GPUs{age}"
    past = f"GPUs ─ 0 to 100 % over {units.duration(_columns(width) * STEP_S)}{age}"
    return past if len(past) <= width else f"GPUs{age}"


def host_notes(host: HostView) -> list[str]:
    """Return what else to know of a host: GPUs elsewhere, records elsewhere, damaged ones."""
    notes = list(host.sample.notes) if host.sample is not None else []
    if host.facts is not None:
        notes += [limit for limit in host.facts.limits if limit not in host.detail]
        if host.facts.state_note:
            notes.append(host.facts.state_note)
    return [*notes, *(str(run) for run in host.damaged)]


def troubles(gpu: GpuSample) -> list[str]:
    """Return what is odd about a GPU that answers, the clocks apart: they change all the time."""
    texts: list[str] = []
    if gpu.xid is not None:
        texts.append(f"XID {gpu.xid} reported by the driver")
    if gpu.ecc_uncorrected:
        texts.append(units.plural(gpu.ecc_uncorrected, "uncorrected memory error"))
    if gpu.memory_is_host:
        texts.append("host memory: the GPU has none of its own")
    return texts


def last_known(trace: GpuTrace | None, now: float) -> str:
    """Return what a lost GPU showed last and when; ``now`` is a time of its host."""
    if trace is None or trace.last is None or trace.last_at is None:
        return ""
    last = trace.last
    pair = units.gib_pair(last.memory_used_bytes, last.memory_total_bytes)
    figures = [f"{pair} GiB"]
    if last.utilisation_percent is not None:
        figures.append(f"busy {units.percent(last.utilisation_percent / 100)}")
    if last.temperature_c is not None:
        figures.append(f"{last.temperature_c} °C")
    if last.power_w is not None:
        figures.append(f"{last.power_w:.0f} W")
    return f"last {', '.join(figures)}, {units.age(max(now - trace.last_at, 0.0))}"


def instance_name(part: MigInstance) -> str:
    """Return how a MIG instance is called: its numbers and its profile."""
    numbers = ":".join(
        units.UNKNOWN if one is None else str(one)
        for one in (part.gpu_instance, part.compute_instance)
    )
    told = part.name or (part.uuid if part.uuid.startswith("MIG-") else "")
    return f"MIG {numbers} {told}".rstrip()


def _host_troubles(host: HostView, width: int) -> list[Content]:
    detail = host.detail if host.state is not LinkState.UP else ""
    if not detail and host.facts is not None and host.facts.nvml_error and host.sample is None:
        detail = f"no GPU data: {host.facts.nvml_error}"
    if host.next_try_s is not None:
        detail += f"{_DOT if detail else ''}next try in {units.duration(host.next_try_s)} (r: now)"
    return _told(detail, "$state-warning", width) if detail else []


def _gpu(gpu: GpuSample, trace: GpuTrace | None, now: float, width: int) -> list[Content]:
    known = trace.last if trace is not None else None
    name = gpu.name or (known.name if known is not None else None) or ""
    title = f"GPU {gpu.index}  {plain(name)}".rstrip()
    if gpu.error is not None:
        rows = _told(f"{title}  ✗ {gpu.error}", "bold $state-failed", width)
        last = last_known(trace, now)
        return [*rows, *(_told(last, "$state-failed", width) if last else []), Content("")]
    rows = [_head(gpu, title, width)]
    columns = _columns(width)
    for label, values, most, figure, style in _charts(gpu, trace):
        rows.append(
            joined(
                Content.styled(label.ljust(_NAME_WIDTH), "$quiet"),
                Content.styled(sparkline(values, most, columns), f"{style} on $bar-track"),
                " ",
                right(figure, _FIGURE_WIDTH),
            )
        )
    for line in troubles(gpu):
        rows += _told(f"▲ {line}", "$state-warning", width)
    for part in gpu.mig or ():
        pair = units.gib_pair(part.memory_used_bytes, part.memory_total_bytes)
        name_width = max(8, width - _FIGURE_WIDTH - 2)
        rows.append(joined("  ", left(instance_name(part), name_width), right(pair, _FIGURE_WIDTH)))
    if gpu.mig == ():
        rows.append(Content.styled("  MIG is on, without instances", "$quiet"))
    return [*rows, Content("")]


def _charts(
    gpu: GpuSample, trace: GpuTrace | None
) -> list[tuple[str, Sequence[float | None], float | None, str, str]]:
    """Return label, past, end of the scale, figure and style of what is drawn over time."""
    busy = None if gpu.utilisation_percent is None else gpu.utilisation_percent / 100
    pair = units.gib_pair(gpu.memory_used_bytes, gpu.memory_total_bytes)
    draw = units.UNKNOWN if gpu.power_w is None else f"{gpu.power_w:.0f}"
    cap = units.UNKNOWN if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}"
    watts = units.UNKNOWN if draw == cap else f"{draw}/{cap} W"
    held = memory_style(gpu.memory_used_bytes, gpu.memory_total_bytes)
    past = trace or GpuTrace(until=0.0)
    return [
        ("busy", past.utilisation_percent, 100.0, units.percent(busy), "$chart-speed"),
        ("GiB", past.memory_used_bytes, gpu.memory_total_bytes, pair, held),
        ("power", past.power_w, gpu.power_limit_w, watts, "$quiet"),
    ]


def _head(gpu: GpuSample, title: str, width: int) -> Content:
    degrees = "-" if gpu.temperature_c is None else f"{gpu.temperature_c}"
    heat = Content(f"{degrees:>3} °C")
    name = Content.styled(title, "bold")
    bus = Content.styled((gpu.bus_id or "").removeprefix(_NO_DOMAIN), "$quiet")
    held = Content.styled(
        f"▲ clocks held back: {', '.join(gpu.throttle)}" if gpu.throttle else "", "$state-warning"
    )
    short = Content.styled("▲ held back" if gpu.throttle else "", "$state-warning")
    gap = "  "
    variants = (
        spread(joined(name, gap, held), joined(bus, gap, heat), width)
        if _fits(width, name, held, bus, heat)
        else None,
        spread(joined(name, gap, held), heat, width) if _fits(width, name, held, heat) else None,
        spread(joined(name, gap, short), heat, width),
    )
    return first_that_fits(width, *(variant for variant in variants if variant is not None))


def _fits(width: int, *parts: Content) -> bool:
    return sum(part.cell_length + 2 for part in parts) - 2 <= width


def _columns(width: int) -> int:
    return max(_LEAST_CHART, min(STEPS, width - _NAME_WIDTH - _FIGURE_WIDTH - 1))


def _told(text: str, style: str, width: int) -> list[Content]:
    return [Content.styled(line, style) for line in wrapped(text, width)]
