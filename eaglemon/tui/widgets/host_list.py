"""The list of hosts with their GPUs and, on request, the processes that hold GPU memory."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content

from eaglemon.core import units
from eaglemon.core.gpu_history import GpuTrace, sparkline
from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample, LinkState, MigInstance
from eaglemon.core.views import HostView, Snapshot
from eaglemon.tui.columns import (
    first_that_fits,
    joined,
    left,
    memory_bar,
    plain,
    right,
    spread,
    wrapped,
)
from eaglemon.tui.gpu_panels import host_notes, instance_name, last_known, troubles
from eaglemon.tui.looks import LINK_LOOKS
from eaglemon.tui.widgets.row_list import Row, RowList

_NO_HOSTS = " no hosts yet: press a to connect to one"
_NO_OFFER = "press a to connect to a host; to try everything on a simulated one: eaglemon demo"
_OFFER = "From ~/.ssh/config, not connected: enter connects, a keeps it too"
_INDEX_WIDTH = 3
_PAIR_WIDTH = 11
_LONGEST_BAR = 40
_SHORTEST_HOLDER = 12
_PROCESS_WORDS = 48
"""Room from which on the row of a process says what its figures are."""
_PAST_FROM = 60
"""Room beside the figures from which on the past of each GPU is drawn."""
_PAST = 24
"""Columns of it: two minutes."""


class HostList(RowList):
    """Hosts, GPUs and processes of a snapshot."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "fold", show=False)]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._snapshot = Snapshot(at=0.0)
        self._filter = ""
        self._folded: set[str] = set()
        self._processes = False
        self._offers: Sequence[str] | None = None
        self._made: dict[str, tuple[HostSample, object, list[Row]]] = {}

    def show(
        self, snapshot: Snapshot, *, filter_text: str = "", offers: Sequence[str] | None = None
    ) -> None:
        """Show the hosts of ``snapshot`` whose name contains ``filter_text``.

        ``offers`` are names of hosts that could be connected to, for somebody who has none yet.
        """
        self._snapshot = snapshot
        self._offers = offers
        self._filter = filter_text.lower()
        self.rebuild()

    def toggle_processes(self) -> bool:
        """Show or hide the processes below their GPUs; return whether they are shown now."""
        self._processes = not self._processes
        self.rebuild()
        return self._processes

    @property
    def cursor_offer(self) -> str | None:
        """Name of the host under the cursor where that is only offered."""
        key = self.cursor_key
        return host_of(key) if key is not None and key.startswith("offer/") else None

    def action_fold(self) -> None:
        """Fold or unfold the host under the cursor."""
        if self.cursor_key is not None and self.cursor_offer is None:
            self.toggle_host(self.cursor_key)

    def toggle_host(self, key: str) -> None:
        """Fold or unfold the host that a row belongs to."""
        name = host_of(key)
        self._folded ^= {name}
        self.rebuild()
        self.select(f"host/{name}")

    def build(self, width: int) -> tuple[Content | None, list[Row]]:
        """Return the rows; columns that do not fit are left out from the right."""
        plan = _Columns(width)
        rows: list[Row] = []
        for host in self._snapshot.hosts:
            if self._filter and self._filter not in host.name.lower():
                continue
            rows.extend(self._host_rows(host, width, plan))
        offers = [name for name in self._offers or () if self._filter in name.lower()]
        if not rows and not offers:
            text = f" nothing matches {self._filter!r}" if self._filter else _NO_HOSTS
            return None, [Row("empty", Content.styled(text, "$quiet"), selectable=False)]
        header = plan.header() if rows else None
        if self._offers is not None and not self._filter:
            rows.append(_note("blank", "", width))
            lines = wrapped(_OFFER if offers else _NO_OFFER, width - 1)
            rows += [_note(f"offers/{n}", f" {line}", width) for n, line in enumerate(lines)]
        for name in offers:
            rows.append(Row(f"offer/{name}", left(f" ○ {name}", width)))
        return header, rows

    def _host_rows(self, host: HostView, width: int, plan: "_Columns") -> Iterator[Row]:
        folded = host.name in self._folded
        gpus = host.sample.gpus if host.sample else ()
        arrow = "▸ " if folded or not gpus else "▾ "
        yield Row(f"host/{host.name}", _host_line(host, arrow, width))
        for number, line in enumerate(wrapped(_problem(host), width - 4)):
            yield _note(f"note/{host.name}/{number}", f"    {line}", width)
        if folded:
            return
        for number, note in enumerate(host_notes(host)):
            yield _note(f"about/{host.name}/{number}", f"    • {note}", width)
        if host.sample is not None:
            yield from self._sample_rows(host, host.sample, width, plan)

    def _sample_rows(
        self, host: HostView, sample: HostSample, width: int, plan: "_Columns"
    ) -> list[Row]:
        """Return the rows of all GPUs of a host, those of before where nothing new was sampled.

        Pictures come more often than samples: with many hosts this is most of the work.
        """
        names = {server.id: server.name for server in self._snapshot.servers}
        stale = host.state in _OLD
        seen = (names, stale, width, self._processes)
        made = self._made.get(host.name)
        if made is not None and made[0] is sample and made[1] == seen:
            return made[2]
        rows = [row for gpu in sample.gpus for row in self._gpu_rows(host, gpu, names, width, plan)]
        self._made[host.name] = (sample, seen, rows)
        return rows

    def _gpu_rows(
        self, host: HostView, gpu: GpuSample, names: dict[str, str], width: int, plan: "_Columns"
    ) -> Iterator[Row]:
        holders = [p for p in _processes(host) if p.gpu_uuid == gpu.uuid]
        trace = host.history.get(gpu.uuid)
        place = f"{host.name}/{gpu.index}"
        if gpu.error is None:
            stale = host.state in _OLD
            row = plan.gpu(gpu, trace, holders, names, stale=stale)
        else:
            row = _lost(gpu, last_known(trace, host.sample.at if host.sample else 0.0), width)
        yield Row(f"gpu/{place}", row)
        for number, part in enumerate(gpu.mig or ()):
            yield Row(f"mig/{place}/{number}", plan.mig(part), selectable=False)
        for number, odd in enumerate(troubles(gpu)):
            yield _note(f"odd/{place}/{number}", f"    ▲ {odd}", width, "$state-warning")
        if self._processes:
            for process in holders:
                line = _process_line(process, names, width)
                yield Row(f"process/{place}/{process.pid}", line, selectable=False)


def _note(key: str, text: str, width: int, style: str = "$quiet") -> Row:
    return Row(key, left(text, width, style), selectable=False)


def _problem(host: HostView) -> str:
    """Return what is wrong with a host, and when it is tried again."""
    problem = host.detail if host.state is not LinkState.UP else ""
    if host.sample and host.sample.driver_error:
        problem = f"driver: {host.sample.driver_error}"
    elif not problem and host.facts and host.facts.nvml_error:
        problem = f"no GPU data: {host.facts.nvml_error}"
    if host.next_try_s is None:
        return problem
    # In whole seconds: a line that changes more often would be drawn again for nothing.
    return f"{problem}{'; ' if problem else ''}next try in {host.next_try_s:.0f} s, r tries now"


_OLD = frozenset({LinkState.STALE, LinkState.DOWN, LinkState.CONNECTING})
"""States in which the figures shown are the last known ones."""


def host_of(key: str) -> str:
    """Return the host's name from a row's key."""
    return key.split("/")[1]


class _Columns:
    """Which columns fit, and how long the bar may be."""

    def __init__(self, width: int) -> None:
        self.power = width >= 52
        self.temperature = width >= 46
        rest = width - (_INDEX_WIDTH + 1) - (1 + _PAIR_WIDTH) - (1 + 5)
        rest -= (1 + 4) * self.temperature + (1 + 6) * self.power
        self.bar = max(4, min(_LONGEST_BAR, rest))
        if rest > _LONGEST_BAR // 2 + _SHORTEST_HOLDER + 2:
            self.bar = min(_LONGEST_BAR, max(_LONGEST_BAR // 2, rest - 30))
        self.past = 0
        if rest >= _PAST_FROM:
            self.past = _PAST
            rest -= _PAST + 2
            self.bar = _LONGEST_BAR // 2
        spare = rest - self.bar - 2
        self.holder = spare if spare >= _SHORTEST_HOLDER else 0
        self.rest_of_mig = max(0, width - (_INDEX_WIDTH + 1) - self.bar - (1 + _PAIR_WIDTH) - 2)

    def header(self) -> Content:
        parts = ["  #", " ", "memory".ljust(self.bar), " ", "GiB".rjust(_PAIR_WIDTH), " ", " util"]
        if self.temperature:
            parts.append("   °C")
        if self.power:
            parts.append("      W")
        if self.past:
            parts.append(f"  {'busy, last 2 m':<{self.past}}")
        if self.holder:
            parts.append("  held by")
        return Content("".join(parts))

    def gpu(
        self,
        gpu: GpuSample,
        trace: GpuTrace | None,
        holders: list[GpuProcess],
        names: dict[str, str],
        *,
        stale: bool,
    ) -> Content:
        index = right(str(gpu.index), _INDEX_WIDTH, "$quiet")
        figures = "$quiet" if stale else ""
        parts: list[Content | str] = [
            index,
            " ",
            memory_bar(gpu.memory_used_bytes, gpu.memory_total_bytes, self.bar),
            " ",
            right(
                units.gib_pair(gpu.memory_used_bytes, gpu.memory_total_bytes),
                _PAIR_WIDTH,
                figures,
            ),
            " ",
            right(_percent(gpu.utilisation_percent), 5, figures),
        ]
        if self.temperature:
            parts.append(right(_whole(gpu.temperature_c), 5, figures))
        if self.power:
            parts.append(right(_whole(gpu.power_w), 7, figures))
        if self.past:
            percents = trace.utilisation_percent if trace is not None else ()
            drawn = sparkline(percents, 100.0, self.past)
            parts += ["  ", Content.styled(drawn, "$chart-speed on $bar-track")]
        if self.holder:
            parts.append("  ")
            parts.append(left(_holders(holders, names), self.holder, "$quiet"))
        return joined(*parts)

    def mig(self, part: MigInstance) -> Content:
        """Return a MIG instance as a row of its GPU, its figures below those of the GPU."""
        used, total = part.memory_used_bytes, part.memory_total_bytes
        return joined(
            " " * (_INDEX_WIDTH + 1),
            memory_bar(used, total, self.bar),
            " ",
            right(units.gib_pair(used, total), _PAIR_WIDTH),
            "  ",
            left(instance_name(part), self.rest_of_mig, "$quiet"),
        )


def _lost(gpu: GpuSample, last: str, width: int) -> Content:
    """Return the row of a GPU that cannot be read: why, and what it showed last."""
    index = right(str(gpu.index), _INDEX_WIDTH, "$quiet")
    why = Content.styled(f" ✗ {plain(gpu.error or '')}", "bold $state-failed")
    told = Content.styled(f" · {last}" if last else "", "$state-failed")
    short = Content.styled(f" · {last.partition(',')[0]}" if last else "", "$state-failed")
    return first_that_fits(width, joined(index, why, told), joined(index, why, short))


def _host_line(host: HostView, arrow: str, width: int) -> Content:
    look = LINK_LOOKS[host.state]
    name = joined(Content.styled(arrow, "$quiet"), Content.styled(plain(host.name), "bold"))
    state = look.content()
    if host.state in _OLD and host.sample_age_s is not None:
        state = Content.styled(
            f"{look.glyph} {look.word} {units.duration(host.sample_age_s)}", look.style
        )
    start = joined(name, "  ", state)
    age = "" if host.sample_age_s is None else units.age(host.sample_age_s)
    if host.state in _OLD and age:
        age = "last known"
    end = Content.styled(age.rjust(10), "$quiet")
    models = Content.styled(f"  {_models(host)}" if host.sample else "", "$quiet")
    totals = Content.styled(f"  {_totals(host)}" if host.sample else "", "$quiet")
    room = width - end.cell_length - 1
    middle = first_that_fits(
        max(0, room - start.cell_length), joined(models, totals), models, Content("")
    )
    return spread(joined(start, middle), end, width)


def _models(host: HostView) -> str:
    gpus = host.sample.gpus if host.sample else ()
    names = {_short_model(gpu.name) for gpu in gpus if gpu.name}
    if not gpus:
        return "no GPUs"
    model = names.pop() if len(names) == 1 else "GPUs"
    return f"{len(gpus)} × {model}"  # noqa: RUF001 (a multiplication sign is meant)


def _short_model(name: str) -> str:
    words = [word for word in plain(name).split() if word.lower() not in {"nvidia", "geforce"}]
    return words[0] if words else name


def _totals(host: HostView) -> str:
    gpus = host.sample.gpus if host.sample else ()
    used = [gpu.memory_used_bytes for gpu in gpus]
    total = [gpu.memory_total_bytes for gpu in gpus]
    if not gpus or None in used or None in total:
        return ""
    in_use = sum(value for value in used if value is not None)
    in_all = sum(value for value in total if value is not None)
    return f"{units.gib_pair(in_use, in_all)} GiB"


def _processes(host: HostView) -> tuple[GpuProcess, ...]:
    return host.sample.processes if host.sample else ()


def _holders(holders: list[GpuProcess], names: dict[str, str]) -> str:
    seen: list[str] = []
    for process in holders:
        if process.run_id is not None:
            text = names.get(process.run_id, process.run_id)
        else:
            who = process.user or "pid"
            text = f"{who} {process.pid}"
        if text not in seen:
            seen.append(text)
    return ", ".join(seen)


def _process_line(process: GpuProcess, names: dict[str, str], width: int) -> Content:
    head = f"      pid {process.pid:<8}{plain(process.user or '-'):<10}"
    if width < _PROCESS_WORDS:
        head = f"    {process.pid:<8}{plain(process.user or '-')[:8]:<9}"
    held = units.memory(process.memory_bytes).rjust(10)
    what = process.command or "-"
    if process.run_id is not None:
        what = f"{names.get(process.run_id, process.run_id)}: {what}"
    if process.container:
        what = f"[{process.container}] {what}"
    used = cell_len(head) + cell_len(held) + 2
    return joined(
        Content.styled(head, "$quiet"), held, "  ", left(what, max(0, width - used), "$quiet")
    )


def _percent(value: int | None) -> str:
    return units.percent(None if value is None else value / 100)


def _whole(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}"
