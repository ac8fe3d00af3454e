"""The first screen: hosts and their GPUs, and all servers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from eaglemon.core.hosts import HostSpec
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.tui import panels
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.host_list import HostList, host_of
from eaglemon.tui.widgets.row_list import RowList
from eaglemon.tui.widgets.server_list import ServerList
from eaglemon.tui.widgets.text_panel import TextPanel, set_title

Offers = Callable[[], Sequence[HostSpec]]
"""Reads which hosts could be connected to."""


class FleetScreen(ConsoleScreen):
    """Hosts on the left, servers on the right; one of them at a time when narrow."""

    NAME = "fleet"
    TABS: ClassVar[tuple[str, ...]] = ("Hosts", "Servers")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Hosts", "Srv")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("hosts",), ("fleet-right", "servers"))

    SERVERS_TAB = 1

    class HostChosen(Message):
        """A host is to be opened, or to be connected to where it is only ``offered``."""

        def __init__(self, host: str, offered: HostSpec | None) -> None:
            super().__init__()
            self.host = host
            self.offered = offered

    def __init__(self, settings: Settings, offers: Offers | None = None) -> None:
        """``offers`` is called in a thread, for somebody who has no hosts yet."""
        super().__init__(settings)
        self._read_offers = offers
        self._wanted_host: str | None = None
        self._offers: tuple[HostSpec, ...] = ()
        self._snapshot = Snapshot(at=0.0)
        self._had_servers = False
        self._hosts = HostList(id="hosts")
        self._servers = ServerList(id="servers")
        self._hosts.add_class("panel")
        self._servers.add_class("panel")
        self._preview = TextPanel(id="preview", classes="panel")
        self._filter = Input(
            placeholder="part of a name; enter keeps it, esc clears it", id="filter"
        )

    def compose_panels(self) -> ComposeResult:
        """Yield the two lists and the filter line."""
        with Horizontal(id="fleet-panels"):
            yield self._hosts
            with Vertical(id="fleet-right"):
                yield self._servers
                yield self._preview
        yield self._filter

    def on_mount(self) -> None:
        """Start with the hosts; there may be no server yet."""
        self._filter.display = False
        self._titles()
        if self._read_offers is not None:
            # The first picture does not wait for files.
            self.call_after_refresh(self._begin_offer, self._read_offers)

    @property
    def filtered(self) -> bool:
        """The filter line is shown."""
        return bool(self._filter.display)

    def current_host(self) -> str | None:
        """Return the name of the host under the cursor, or of the server where only those are."""
        server = self.current_server()
        if server is not None and not self.has_class("-wide"):
            return server.host
        key = self._hosts.cursor_key
        return None if key is None or self._hosts.cursor_offer else host_of(key)

    def select_host(self, name: str) -> None:
        """Put the cursor on a host that has just come."""
        self._wanted_host = name
        self._hosts.select(f"host/{name}")

    def offered_host(self) -> str | None:
        """Return the name of the offered host under the cursor."""
        return self._hosts.cursor_offer

    def current_server(self) -> ServerView | None:
        """Return the server under the cursor, where that is in sight."""
        key = self._servers.cursor_key if self.hidden_servers_tab is None else None
        return None if key is None else self._snapshot.server(key)

    def show(self, snapshot: Snapshot) -> None:
        """Draw hosts and servers."""
        self._snapshot = snapshot
        wanted = self._filter.value
        known = {host.name for host in snapshot.hosts}
        offers = None
        if self._read_offers is not None:
            offers = tuple(spec.name for spec in self._offers if spec.name not in known)
        self._hosts.show(snapshot, filter_text=wanted, offers=offers)
        if self._wanted_host is not None and self._wanted_host in known:
            self._hosts.select(f"host/{self._wanted_host}")
            self._wanted_host = None
        empty = "no servers yet: press s to start one"
        if self._settings.read_only:
            empty = "no servers"
        self._servers.show(snapshot, filter_text=wanted, empty=empty)
        self._draw_preview()
        self._titles()
        if snapshot.servers and not self._had_servers:
            self._had_servers = True
            # Where both lists are in sight, the keys are mostly about servers.
            if self.has_class("-wide"):
                self.switch_tab(1)

    def toggle_processes(self) -> bool:
        """Show or hide processes; return whether they are shown now."""
        self.switch_tab(0)
        return self._hosts.toggle_processes()

    def sort(self, step: int) -> str:
        """Sort servers by the next (1) or previous (-1) column and return how they are sorted."""
        return self._servers.sort(step)

    def invert(self) -> str:
        """Turn the order of servers round and return how they are sorted."""
        return self._servers.invert()

    def ask_filter(self) -> None:
        """Let a filter be typed."""
        self._filter.display = True
        self._filter.focus()

    def clear_filter(self) -> bool:
        """Remove the filter; return whether there was one."""
        had = self._filter.display
        self._filter.value = ""
        self._filter.display = False
        if had:
            self.switch_tab(self._tab)
        return had

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.show(self._snapshot)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the lists."""
        event.stop()
        if not event.value:
            self.clear_filter()
        self.switch_tab(self._tab)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Actions follow the cursor of the servers."""
        event.stop()
        if event.row_list is self._servers:
            self._draw_preview()
        self.post_message(self.SelectionChanged())

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Opening what was chosen is the app's business."""
        if event.row_list is self._hosts:
            event.stop()
            name = self._hosts.cursor_offer
            offered = next((spec for spec in self._offers if spec.name == name), None)
            self.post_message(self.HostChosen(host_of(event.key), offered))

    def on_resize(self) -> None:
        """The preview is made for a width."""
        self._draw_preview()

    def _begin_offer(self, read: Offers) -> None:
        self.run_worker(self._offer(read), group="offers")

    async def _offer(self, read: Offers) -> None:
        self._offers = tuple(await asyncio.to_thread(read))
        self.show(self._snapshot)

    def _draw_preview(self) -> None:
        server = self.current_server()
        self._preview.set_class(server is None, "-absent")
        if server is None or self.size.width == 0:
            return
        # Half of the screen without border and padding: known before the panel is laid out.
        width = self.size.width // 2 - 4
        set_title(self._preview, "selected server ─ enter opens it")
        self._preview.show(panels.preview(server, width, self._settings.zone))

    def _titles(self) -> None:
        mark = f" ─ filter: {self._filter.value}" if self._filter.value else ""
        set_title(self._hosts, f"Hosts and GPUs{mark}")
        set_title(self._servers, f"Servers{mark}")
