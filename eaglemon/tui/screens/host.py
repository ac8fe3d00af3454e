"""One host: its GPUs over the last minutes, who is on them, and the servers there."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content

from eaglemon.app.api import Eaglemon
from eaglemon.core.foreign import ForeignServer
from eaglemon.core.views import HostView, ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import gpu_panels, host_panels
from eaglemon.tui.columns import lines
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.server_list import ServerList
from eaglemon.tui.widgets.text_panel import TextPanel, set_title


class HostScreen(ConsoleScreen):
    """GPUs on the left; processes and servers on the right."""

    NAME = "host"
    TABS: ClassVar[tuple[str, ...]] = ("GPUs", "Processes", "Servers")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("GPUs", "Proc", "Srv")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("gpus",),
        ("host-right", "users"),
        ("host-right", "servers"),
    )
    SERVERS_TAB = 2

    def __init__(self, api: Eaglemon, host: str, settings: Settings) -> None:
        super().__init__(settings)
        self.host = host
        self._api = api
        self._snapshot = Snapshot(at=0.0)
        self._foreign: tuple[ForeignServer, ...] | None = None
        self._foreign_error = ""
        self._title = TextPanel(id="host-title")
        self._gpus = VerticalScroll(id="gpus", classes="panel")
        self._gpu_lines = TextPanel(id="gpu-lines")
        self._users = VerticalScroll(id="users", classes="panel")
        self._user_lines = TextPanel(id="user-lines")
        self._servers = ServerList(id="servers")
        self._servers.add_class("panel")

    def compose_head(self) -> ComposeResult:
        """Yield the title line."""
        yield self._title

    def compose_panels(self) -> ComposeResult:
        """Yield GPUs, processes and servers."""
        with Horizontal(id="host-panels"):
            with self._gpus:
                yield self._gpu_lines
            with Vertical(id="host-right"):
                with self._users:
                    yield self._user_lines
                yield self._servers

    def on_mount(self) -> None:
        """Name the panels, and ask once who else serves there."""
        set_title(self._users, "Processes on the GPUs")
        set_title(self._servers, "Servers")
        self.run_worker(self._ask_foreign(), group="foreign", exclusive=True)

    def current_server(self) -> ServerView | None:
        """Return the server under the cursor, where that is in sight."""
        key = self._servers.cursor_key if self.hidden_servers_tab is None else None
        return None if key is None else self._snapshot.server(key)

    def current_host(self) -> str | None:
        """Return this host."""
        return self.host

    def show(self, snapshot: Snapshot) -> None:
        """Draw the host; one that is gone keeps its last picture."""
        self._snapshot = snapshot
        host = snapshot.host(self.host)
        if host is None:
            return
        self._draw(host)
        mine = tuple(server for server in snapshot.servers if server.host == self.host)
        here = Snapshot(at=snapshot.at, servers=mine)
        self._servers.show(here, empty="no servers of this console on this host")

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(lambda: self.show(self._snapshot))

    def _draw(self, host: HostView) -> None:
        width = self.columns
        wide = self.has_class("-wide")
        half = (width // 2 if wide else width) - 6
        self._title.show(host_panels.title_line(host, width - 2))
        age = host_panels.age_of(host)
        set_title(self._gpus, gpu_panels.title(host, half, age))
        self._gpu_lines.show(lines(gpu_panels.gpu_lines(host, half)))
        mine = [server for server in self._snapshot.servers if server.host == self.host]
        # Others come first: below many processes they would be out of sight.
        rows = host_panels.foreign_lines(self._foreign, self._foreign_error, half)
        rows += [Content("")]
        rows += host_panels.process_lines(host, mine, half, self._foreign or ())
        self._user_lines.show(lines(rows))

    async def _ask_foreign(self) -> None:
        try:
            self._foreign = tuple(await self._api.foreign(self.host))
        except EaglemonError as error:
            self._foreign_error = str(error)
        self.show(self._snapshot)
