"""What the actions of the table do: one method for each, named after the action's id."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from eaglemon.app.api import Eaglemon, Experiments, LocalFiles
from eaglemon.core import units
from eaglemon.core.probe import ProbePlan
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError
from eaglemon.tui.again import again_of
from eaglemon.tui.draft_deeds import DraftDeeds
from eaglemon.tui.experiment_deeds import ExperimentDeeds
from eaglemon.tui.file_deeds import FileDeeds
from eaglemon.tui.host_deeds import HostDeeds
from eaglemon.tui.restart_deeds import RestartDeeds
from eaglemon.tui.screens.confirm import ConfirmStop
from eaglemon.tui.screens.experiment import ExperimentScreen
from eaglemon.tui.screens.fleet import FleetScreen
from eaglemon.tui.screens.help import HelpScreen
from eaglemon.tui.screens.launch import LaunchScreen
from eaglemon.tui.screens.listing import ListScreen
from eaglemon.tui.screens.log import LogScreen
from eaglemon.tui.screens.probe import ProbeDialog
from eaglemon.tui.screens.profiles import ProfilesScreen
from eaglemon.tui.screens.runs import RunsScreen
from eaglemon.tui.screens.server import ServerScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class Deeds:
    """Carries out actions; ``ConsoleApp.act`` has asked before whether they are possible.

    Work that waits for a host runs in workers of the app, so that it outlives the screen it was
    started from and ends with the console.
    """

    def __init__(
        self,
        app: "ConsoleApp",
        console: Eaglemon,
        experiments: Experiments | None,
        files: LocalFiles | None,
    ) -> None:
        self._app = app
        self.experiments = ExperimentDeeds(app, experiments)
        self.files = FileDeeds(app, console, files)
        self.hosts = HostDeeds(app, console, files)
        self.restarts = RestartDeeds(app, console)
        self.drafts = DraftDeeds(app, console, files, self.restarts)
        self._console = console
        self._probes: dict[str, Worker[None]] = {}
        self._told_of = ""

    def take_experiments(self, experiments: Experiments) -> None:
        """Compare with these experiments from now on."""
        self.experiments = ExperimentDeeds(self._app, experiments)

    def probes(self, server_id: str) -> bool:
        """Tell whether a probe of this server, started here, is under way."""
        return server_id in self._probes

    def start(self) -> None:
        """Open the launch form."""
        screen = self._app.console_screen()
        host = screen.current_host() if isinstance(screen, FleetScreen) else None
        ended = screen.current_server() if isinstance(screen, ServerScreen) else None
        again = again_of(self._console, ended)
        form = LaunchScreen(self._console, self._app.settings, host=host, again=again)
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

    def retry(self) -> None:
        """Try the host again now."""
        self.hosts.retry()

    def connect(self) -> None:
        """Ask for another host."""
        self.hosts.connect()

    def watch(self) -> None:
        """Watch the servers of others on the host."""
        self.hosts.watch()

    def restart(self) -> None:
        """Ask, then stop the server and start the same again."""
        self.restarts.ask(self._server())

    def cancel(self) -> None:
        """Cancel the experiment on its screen, elsewhere the probe or restart of this server."""
        if self._app.scene().screen == "experiment":
            self.experiments.cancel()
        elif (server := self._server()).id not in self._probes:
            self.restarts.call_off(server)
        else:
            self._probes[server.id].cancel()
            self._app.say(f"the probe of {server.name} is cancelled")

    def ab(self) -> None:
        """Compare two profiles, or show the comparison under way."""
        self.experiments.compare()

    def draft(self) -> None:
        """Show the draft of the server."""
        self.drafts.show(self._server())

    def check_draft(self) -> None:
        """Run the draft offline, on its host."""
        self.drafts.check()

    def fix_draft(self) -> None:
        """Wire the draft as it was trained."""
        self.drafts.fix()

    def profiles(self) -> None:
        """Show the profiles."""
        self.files.list_profiles(self.experiments.service)

    def edit(self) -> None:
        """Edit the profile under the cursor."""
        self.files.edit()

    def runs(self) -> None:
        """Show what was measured."""
        self.experiments.list_runs()

    def host(self) -> None:
        """Open the host under the cursor, or of the server."""
        host = self._app.scene().host
        if host is not None:
            self._app.open_host(host)

    def open(self) -> None:
        """Open the server under the cursor."""
        self._app.open_server(self._server().id)

    def log(self) -> None:
        """Open the server's log."""
        self._app.open_log(self._server().id)

    def copy(self) -> None:
        """Copy what the screen is about to the clipboard of the terminal."""
        screen = self._app.console_screen()
        text, what = "", "the command line"
        if isinstance(screen, LogScreen):
            found, which = screen.texts()
            text, what = "\n".join(found), f"{units.plural(len(found), 'line')} {which}"
        elif isinstance(screen, ListScreen | ExperimentScreen):
            text, what = screen.copied()
        else:
            server = self._server()
            text, what = server.command_line, f"the command line of {server.name}"
        self._app.copy_to_clipboard(text)
        self._app.say(f"copied {what}" if text else "nothing to copy here")

    def processes(self) -> None:
        """Show or hide processes."""
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen):
            screen.toggle_processes()

    def filter(self) -> None:
        """Ask for a filter, or for a text to look for in the log."""
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen | ListScreen):
            screen.ask_filter()
        elif isinstance(screen, ServerScreen | LogScreen):
            self._in_log(lambda log: log.ask("search"))

    def only(self) -> None:
        """Ask for a text that shown lines must contain."""
        self._in_log(lambda log: log.ask("only"))

    def next_hit(self) -> None:
        """Go to the next hit."""
        self._step_hit(1)

    def previous_hit(self) -> None:
        """Go to the previous hit."""
        self._step_hit(-1)

    def jump(self) -> None:
        """Ask for a line number or a time."""
        self._in_log(lambda log: log.ask("jump"))

    def select(self) -> None:
        """Begin or end selecting lines of the log."""
        screen = self._app.console_screen()
        if isinstance(screen, LogScreen):
            begins = screen.select()
            self._app.say("selecting: move, then y copies" if begins else "nothing is selected")

    def decisive(self) -> None:
        """Go to the line of the log that decides."""
        self._in_log(lambda log: log.show_decisive())

    def sort(self) -> None:
        """Sort by the next column."""
        self._sort(lambda rows: rows.sort(1))

    def sort_back(self) -> None:
        """Sort by the previous column."""
        self._sort(lambda rows: rows.sort(-1))

    def invert(self) -> None:
        """Turn the order round."""
        self._sort(lambda rows: rows.invert())

    def mark(self) -> None:
        """Mark the run under the cursor, or not any more."""
        self.experiments.mark()

    def report(self) -> None:
        """Write the report of the run under the cursor."""
        self.experiments.report()

    def resume(self) -> None:
        """Go on with the experiment under the cursor."""
        self.experiments.resume()

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
        if screen is None or screen.clear_filter():
            self._app.redraw()
        elif not isinstance(screen, FleetScreen):
            self._app.pop_screen()

    def palette(self) -> None:
        """Open the command palette."""
        self._app.action_command_palette()

    def help(self) -> None:
        """Open the help."""
        self._app.push_screen(HelpScreen(self._app.scene()))

    def quit(self) -> None:
        """Leave; servers keep running, but not what is told first."""
        told = self._ends_too()
        if self._told_of == told:
            self._app.exit()
            return
        self._told_of = told
        self._app.say(told, severity="warning")

    def _ends_too(self) -> str:
        """Say what leaving now would end, empty where nothing."""
        told = []
        running = self.experiments.running()
        if running is not None:
            told.append(
                f"experiment {running} is under way: q again cancels it and stops its servers"
            )
        if names := self.restarts.names():
            told.append(
                f"a restart of {', '.join(names)} is under way: q again may leave it stopped"
            )
        return "; ".join(told)

    def _server(self) -> ServerView:
        server = self._app.scene().server
        if server is None:
            raise ValueError("an action about a server was carried out without one")
        return server

    def _step_tab(self, step: int) -> None:
        screen = self._app.console_screen()
        if screen is not None:
            screen.step_tab(step)

    def _in_log(self, then: Callable[[LogScreen], object]) -> None:
        here = self._app.console_screen()
        screen = self._app.open_log(self._server().id)
        if screen is here:
            then(screen)
        else:
            screen.call_after_refresh(then, screen)

    def _step_hit(self, step: int) -> None:
        screen = self._app.console_screen()
        if isinstance(screen, LogScreen):
            self._app.say(screen.step_hit(step))

    def _sort(self, how: Callable[[FleetScreen | RunsScreen | ProfilesScreen], str]) -> None:
        screen = self._app.console_screen()
        if isinstance(screen, FleetScreen | RunsScreen | ProfilesScreen):
            self._app.say(how(screen))

    def _launched(self, server_id: str | None) -> None:
        if server_id is not None:
            self._app.open_server(server_id)

    def _ask_stop(self, *, grace_s: float | None, kill: bool) -> None:
        server = self._server()
        if server.state.ended and self.restarts.under_way(server.id):
            self.restarts.call_off(server)
            return
        question = ConfirmStop(server, grace_s=grace_s, verb="Kill" if kill else "Stop")
        self._app.push_screen(question, partial(self._stop_answered, server, grace_s))

    def _stop_answered(
        self,
        server: ServerView,
        grace_s: float | None,
        answer: bool | None,  # noqa: FBT001 (the result of the dialog)
    ) -> None:
        if answer:
            self._look_at(ServerScreen.START_UP)
            self._app.run_worker(self._stop(server, grace_s), group=f"stop-{server.id}")

    def _look_at(self, tab: int) -> None:
        """Bring what was begun into sight, where a server's panels are not all side by side."""
        screen = self._app.console_screen()
        if isinstance(screen, ServerScreen) and not screen.shows_all:
            screen.switch_tab(tab)

    async def _stop(self, server: ServerView, grace_s: float | None) -> None:
        if self.restarts.under_way(server.id):
            self.restarts.call_off(server)
            if self._console.find(server.id).state.ended:
                return
        try:
            await self._console.stop(server.id, grace_s=grace_s, wait=False)
        except EaglemonError as error:
            self._app.say(f"stopping {server.name}: {error}", severity="error")

    def _probe_chosen(self, server: ServerView, plan: ProbePlan | None) -> None:
        if plan is not None:
            self._look_at(ServerScreen.SPEED)
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
            self._app.tell_end(text)
        finally:
            del self._probes[server.id]
            self._app.redraw()
