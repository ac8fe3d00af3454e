"""What the actions of the table do: one method for each, named after the action's id."""

from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from eaglemon.app.api import Eaglemon
from eaglemon.core import units
from eaglemon.core.probe import ProbePlan
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError
from eaglemon.tui.screens.confirm import ConfirmStop
from eaglemon.tui.screens.fleet import FleetScreen
from eaglemon.tui.screens.help import HelpScreen
from eaglemon.tui.screens.launch import LaunchScreen
from eaglemon.tui.screens.probe import ProbeDialog
from eaglemon.tui.screens.server import ServerScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class Deeds:
    """Carries out actions; ``ConsoleApp.act`` has asked before whether they are possible.

    Work that waits for a host runs in workers of the app, so that it outlives the screen it was
    started from and ends with the console.
    """

    def __init__(self, app: "ConsoleApp", console: Eaglemon) -> None:
        self._app = app
        self._console = console
        self._probes: dict[str, Worker[None]] = {}

    def probes(self, server_id: str) -> bool:
        """Tell whether a probe of this server, started here, is under way."""
        return server_id in self._probes

    def start(self) -> None:
        """Open the launch form."""
        screen = self._app.console_screen()
        host = screen.current_host() if isinstance(screen, FleetScreen) else None
        form = LaunchScreen(self._console, self._app.settings, host=host)
        self._app.push_screen(form, self._launched)

    def stop(self) -> None:
        """Ask, then stop with the profile's grace."""
        self._ask_stop(grace_s=None, kill=False)

    def kill(self) -> None:
        """Ask, then stop with little grace."""
        self._ask_stop(grace_s=self._app.settings.kill_grace_s, kill=True)

    def probe(self) -> None:
        """Open the probe dialog."""
        server = self._server()
        try:
            plan = self._console.probe_plan(server.id)
        except EaglemonError as error:
            self._app.say(str(error), severity="error")
            return
        dialog = ProbeDialog(self._console, server, plan)
        self._app.push_screen(dialog, partial(self._probe_chosen, server))

    def cancel_probe(self) -> None:
        """Cancel the probe of this server."""
        self._probes[self._server().id].cancel()

    def open(self) -> None:
        """Open the server under the cursor."""
        self._app.open_server(self._server().id)

    def log(self) -> None:
        """Open the server with its log in front."""
        here = self._app.console_screen()
        screen = self._app.open_server(self._server().id)
        if screen is not here:
            screen.call_after_refresh(screen.show_log)
        elif not screen.show_log():
            self._app.say("the log is in front: j, k, g, G and the page keys move in it")

    def copy(self) -> None:
        """Copy the command line to the clipboard of the terminal."""
        server = self._server()
        self._app.copy_to_clipboard(server.command_line)
        self._app.say(f"copied the command line of {server.name}")

    def processes(self) -> None:
        """Show or hide processes."""
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen):
            screen.toggle_processes()

    def filter(self) -> None:
        """Ask for a filter."""
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen):
            screen.ask_filter()

    def pause(self) -> None:
        """Freeze or go on."""
        self._app.toggle_pause()

    def previous_tab(self) -> None:
        """Go to the previous tab."""
        self._step_tab(-1)

    def next_tab(self) -> None:
        """Go to the next tab."""
        self._step_tab(1)

    def theme(self) -> None:
        """Use the next of the console's own themes, or of all where it has none."""
        names = self._app.own_theme_names() or self._app.theme_names()
        current = self._app.theme
        place = names.index(current) + 1 if current in names else 0
        name = names[place % len(names)]
        self._app.use_theme(name)
        self._app.say(f"theme {name}")

    def back(self) -> None:
        """Clear the filter, or leave the screen."""
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen):
            screen.clear_filter()
        elif isinstance(screen, ServerScreen):
            self._app.pop_screen()

    def palette(self) -> None:
        """Open the command palette."""
        self._app.action_command_palette()

    def help(self) -> None:
        """Open the help."""
        self._app.push_screen(HelpScreen(self._app.scene()))

    def quit(self) -> None:
        """Leave; servers keep running."""
        self._app.exit()

    def _server(self) -> ServerView:
        server = self._app.scene().server
        if server is None:
            raise ValueError("an action about a server was carried out without one")
        return server

    def _step_tab(self, step: int) -> None:
        screen = self._app.console_screen()
        if screen is not None:
            screen.step_tab(step)

    def _launched(self, server_id: str | None) -> None:
        if server_id is not None:
            self._app.open_server(server_id)

    def _ask_stop(self, *, grace_s: float | None, kill: bool) -> None:
        server = self._server()
        question = ConfirmStop(server, grace_s=grace_s, kill=kill)
        self._app.push_screen(question, partial(self._stop_answered, server, grace_s))

    def _stop_answered(
        self,
        server: ServerView,
        grace_s: float | None,
        answer: bool | None,  # noqa: FBT001 (the result of the dialog)
    ) -> None:
        if answer:
            self._app.run_worker(self._stop(server, grace_s), group=f"stop-{server.id}")

    async def _stop(self, server: ServerView, grace_s: float | None) -> None:
        try:
            await self._console.stop(server.id, grace_s=grace_s, wait=False)
        except EaglemonError as error:
            self._app.say(f"stopping {server.name}: {error}", severity="error")

    def _probe_chosen(self, server: ServerView, plan: ProbePlan | None) -> None:
        if plan is not None:
            self._probes[server.id] = self._app.run_worker(
                self._probe(server, plan), group=f"probe-{server.id}"
            )
            self._app.redraw()

    async def _probe(self, server: ServerView, plan: ProbePlan) -> None:
        try:
            progress = await self._console.probe(server.id, plan)
        except EaglemonError as error:
            self._app.say(f"probe of {server.name}: {error}", severity="error")
        else:
            speed = units.rate(progress.figures.total_tok_s)
            length = units.length(progress.figures.accept_length)
            text = f"probe of {server.name} {progress.state}: {speed} tok/s, accept length {length}"
            self._app.say(text)
        finally:
            del self._probes[server.id]
            self._app.redraw()
