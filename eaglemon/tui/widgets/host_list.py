"""The list of hosts with their GPUs and, on request, the processes that hold GPU memory."""

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content

from eaglemon.core import units
from eaglemon.core.hosts import GpuProcess, GpuSample, LinkState
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
from eaglemon.tui.looks import LINK_LOOKS
from eaglemon.tui.widgets.row_list import Row, RowList

_NO_HOSTS = " no hosts: name one on the command line or in hosts.toml"
_INDEX_WIDTH = 3
_PAIR_WIDTH = 11
_LONGEST_BAR = 40
_SHORTEST_HOLDER = 12


class HostList(RowList):
    """Hosts, GPUs and processes of a snapshot."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "fold", show=False)]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._snapshot = Snapshot(at=0.0)
        self._filter = ""
        self._folded: set[str] = set()
        self._processes = False

    def show(self, snapshot: Snapshot, *, filter_text: str = "") -> None:
        """Show the hosts of ``snapshot`` whose name contains ``filter_text``."""
        self._snapshot = snapshot
        self._filter = filter_text.lower()
        self.rebuild()

    def toggle_processes(self) -> bool:
        """Show or hide the processes below their GPUs; return whether they are shown now."""
        self._processes = not self._processes
        self.rebuild()
        return self._processes

    def action_fold(self) -> None:
        """Fold or unfold the host under the cursor."""
        if self.cursor_key is not None and host_of(self.cursor_key):
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
        if not rows:
            text = f" nothing matches {self._filter!r}" if self._filter else _NO_HOSTS
            return None, [Row("empty", Content.styled(text, "$quiet"), selectable=False)]
        return plan.header(), rows

    def _host_rows(self, host: HostView, width: int, plan: "_Columns") -> Iterator[Row]:
        folded = host.name in self._folded
        gpus = host.sample.gpus if host.sample else ()
        arrow = "▸ " if folded or not gpus else "▾ "
        yield Row(f"host/{host.name}", _host_line(host, arrow, width))
        problem = host.detail if host.state is not LinkState.UP else ""
        if host.sample and host.sample.driver_error:
            problem = f"driver: {host.sample.driver_error}"
        elif not problem and host.facts and host.facts.nvml_error:
            problem = f"no GPU data: {host.facts.nvml_error}"
        for number, line in enumerate(wrapped(problem, width - 4)):
            yield Row(
                f"note/{host.name}/{number}",
                Content.styled(f"    {line}", "$quiet"),
                selectable=False,
            )
        if folded:
            return
        stale = host.state in {LinkState.STALE, LinkState.DOWN}
        names = {server.id: server.name for server in self._snapshot.servers}
        for gpu in gpus:
            holders = [p for p in _processes(host) if p.gpu_uuid == gpu.uuid]
            yield Row(f"gpu/{host.name}/{gpu.index}", plan.gpu(gpu, holders, names, stale=stale))
            if self._processes:
                for process in holders:
                    key = f"process/{host.name}/{gpu.index}/{process.pid}"
                    yield Row(key, _process_line(process, names, width), selectable=False)


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
        spare = rest - self.bar - 2
        self.holder = spare if spare >= _SHORTEST_HOLDER else 0

    def header(self) -> Content:
        parts = ["  #", " ", "memory".ljust(self.bar), " ", "GiB".rjust(_PAIR_WIDTH), " ", " util"]
        if self.temperature:
            parts.append("   °C")
        if self.power:
            parts.append("      W")
        if self.holder:
            parts.append("  held by")
        return Content("".join(parts))

    def gpu(
        self,
        gpu: GpuSample,
        holders: list[GpuProcess],
        names: dict[str, str],
        *,
        stale: bool,
    ) -> Content:
        index = right(str(gpu.index), _INDEX_WIDTH, "$quiet")
        if gpu.error is not None:
            return joined(index, " ", Content.styled(f"✗ {plain(gpu.error)}", "$state-failed"))
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
        if self.holder:
            parts.append("  ")
            parts.append(left(_holders(holders, names), self.holder, "$quiet"))
        return joined(*parts)


def _host_line(host: HostView, arrow: str, width: int) -> Content:
    look = LINK_LOOKS[host.state]
    name = joined(Content.styled(arrow, "$quiet"), Content.styled(plain(host.name), "bold"))
    state = look.content()
    if host.state is LinkState.STALE and host.sample_age_s is not None:
        state = Content.styled(
            f"{look.glyph} {look.word} {units.duration(host.sample_age_s)}", look.style
        )
    start = joined(name, "  ", state)
    age = "" if host.sample_age_s is None else units.age(host.sample_age_s)
    if host.state is LinkState.STALE and age:
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
