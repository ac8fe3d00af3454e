"""What the actions about hosts do: connect to another one, try one again, watch its servers."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from eaglemon.app.api import Eaglemon, LocalFiles
from eaglemon.core.hosts import HostSpec
from eaglemon.core.units import plural
from eaglemon.errors import EaglemonError
from eaglemon.tui.screens.connect import ConnectDialog, Wanted
from eaglemon.tui.screens.fleet import FleetScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp

_UNKEPT = frozenset({"~/.ssh/config", "command line"})
"""Sources of hosts that no file of eaglemon names."""


class HostDeeds:
    """Carries out actions about hosts."""

    def __init__(self, app: "ConsoleApp", console: Eaglemon, files: LocalFiles | None) -> None:
        self._app = app
        self._console = console
        self._files = files

    def retry(self) -> None:
        """Try the host that is down again now."""
        host = self._app.scene().host
        if host is not None:
            self._carry_out(lambda: self._console.retry(host), f"trying {host} again")

    def connect(self) -> None:
        """Ask for a host to connect to."""
        self._app.run_worker(self._ask(), group="connect", exclusive=True)

    def open(self, host: str, offered: HostSpec | None) -> None:
        """Open a host; connect to one that was only offered, and write it nowhere."""
        if offered is None:
            self._app.open_host(host)
            return
        self._connect_to(offered)

    def _connect_to(self, spec: HostSpec) -> None:
        told = f"connecting to {spec.name}; a keeps it in hosts.toml"
        self._carry_out(lambda: self._console.add_host(spec), told)
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen):
            screen.select_host(spec.name)

    def watch(self) -> None:
        """Watch the servers of others on the host."""
        host = self._app.scene().host
        if host is not None:
            self._app.run_worker(self._watch(host), group=f"watch-{host}", exclusive=True)

    def _carry_out(self, deed: Callable[[], None], told: str) -> None:
        try:
            deed()
        except EaglemonError as error:
            self._app.say(str(error), severity="error")
            return
        self._app.say(told)
        self._app.redraw()

    async def _ask(self) -> None:
        files = self._files
        found = await asyncio.to_thread(files.ssh_hosts) if files is not None else ()
        known = {spec.name for spec in self._console.hosts()}
        offered = [spec.name for spec in found if spec.name not in known]
        screen = self._app.console_screen()
        name = screen.offered_host() if isinstance(screen, FleetScreen) else None
        here = self._app.scene().host
        # One that was connected to from the offers may be meant to be kept.
        kept_nowhere = {spec.name for spec in self._console.hosts() if spec.source in _UNKEPT}
        again = name is None and here in kept_nowhere
        dialog = ConnectDialog(offered, name=(here if again else name) or "", keep=again)
        self._app.push_screen(dialog, self._answered)

    def _answered(self, wanted: Wanted | None) -> None:
        if wanted is not None:
            self._app.run_worker(self._connect(wanted), group="connect")

    async def _connect(self, wanted: Wanted) -> None:
        files = self._files
        try:
            known = {spec.name: spec for spec in self._console.hosts()}
            spec = known.get(wanted.name, HostSpec(name=wanted.name))
            if files is not None and wanted.name not in known:
                spec = await asyncio.to_thread(files.named_host, wanted.name, tuple(known.values()))
            told = f"{spec.name} is connected already"
            if spec.name not in known:
                self._console.add_host(spec)
                told = f"connecting to {spec.name}"
            if wanted.keep and files is not None:
                told += f", kept in {await asyncio.to_thread(files.keep_host, spec)}"
        except EaglemonError as error:
            self._app.say(str(error), severity="error")
            return
        self._app.say(told)
        self._app.redraw()

    async def _watch(self, host: str) -> None:
        try:
            found = await self._console.foreign(host)
            for server in found:
                await self._console.watch(server.id)
        except EaglemonError as error:
            self._app.say(f"servers of others on {host}: {error}", severity="error")
            return
        many = plural(len(found), "server")
        self._app.say(f"watching {many} of others" if found else f"no servers of others on {host}")
