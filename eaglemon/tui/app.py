"""The console's application: one snapshot in, screens out, actions to the domain API.

Called by ``eaglemon.cli.tui``, which makes and closes the ``Eaglemon`` it is given. Nothing here
may wait for a host before the first picture is drawn.
"""

import asyncio
import importlib
from collections.abc import Mapping
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual import events
from textual.binding import Binding, BindingType
from textual.notifications import SeverityLevel
from textual.reactive import var
from textual.widget import Widget

from eaglemon.app.api import Eaglemon, Experiments, LocalFiles
from eaglemon.core.views import Snapshot
from eaglemon.tui.actions import ACTIONS, BY_ID
from eaglemon.tui.least_size import LEAST_COLUMNS, LEAST_ROWS, is_too_small
from eaglemon.tui.news import news
from eaglemon.tui.scene import STILL_OPENING, Scene, state_of
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.screens.fleet import FleetScreen
from eaglemon.tui.settings import Pace, Settings
from eaglemon.tui.themed_app import ThemedApp, ThemeSource
from eaglemon.tui.toasts import speaking_of
from eaglemon.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from textual.command import Provider

    from eaglemon.tui.deeds import Deeds
    from eaglemon.tui.screens.log import LogScreen
    from eaglemon.tui.screens.server import ServerScreen


def _action_commands() -> "type[Provider]":
    # Imported when the palette is opened: the first picture would wait for it.
    from eaglemon.tui.palette import ActionCommands  # noqa: PLC0415

    return ActionCommands


class ConsoleApp(ThemedApp):
    """The terminal console.

    ``themes`` and ``theme`` are as in ``ThemedApp``. ``zone`` is the zone of clock times, the local
    one when ``None``.
    ``opening`` says that services come later, with ``take_experiments``; ``first_run`` that no host
    is configured or named, so that those of ssh are offered.
    """

    CSS_PATH = "eaglemon.tcss"
    TITLE = "eaglemon"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMANDS: ClassVar = {_action_commands}
    # Textual declares these as instance attributes.
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"),
        (LEAST_COLUMNS, "-single"),
        (80, "-tabs"),
        (120, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (LEAST_ROWS, "-short"), (32, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(",".join(action.keys), f"act('{action.id}')", action.label, show=False)
            for action in ACTIONS
        ),
        # Also in dialogs and fields, where q is a letter.
        Binding("ctrl+c", "quit", show=False, priority=True),
        # Also in dialogs: something else may have written on the terminal.
        Binding("ctrl+l", "repaint", show=False, priority=True),
        *(Binding(str(n + 1), f"tab({n})", show=False) for n in range(4)),
    ]

    snapshot: var[Snapshot] = var(Snapshot(at=0.0), init=False)

    def __init__(
        self,
        console: Eaglemon,
        *,
        themes: Mapping[str, str] | None = None,
        theme: str | None = None,
        experiments: Experiments | None = None,
        files: LocalFiles | None = None,
        title: str = "eaglemon",
        read_only: bool = False,
        recording: bool = False,
        zone: tzinfo | None = None,
        pace: Pace | None = None,
        ascii_only: bool = False,
        few_colours: bool = False,
        announces: str = "auto",
        theme_source: ThemeSource | None = None,
        opening: bool = False,
        first_run: bool = False,
    ) -> None:
        super().__init__(
            themes=themes,
            theme=theme,
            theme_source=theme_source,
            few_colours=few_colours,
            ascii_only=ascii_only,
            announces=announces,
        )
        self.console_api = console
        self.settings = Settings(
            title=title,
            read_only=read_only or recording,
            recording=recording,
            zone=zone,
            pace=pace or Pace(),
        )
        self.animation_level = "none"
        self._latest = console.snapshot()
        self.paused = False
        self._deeds: Deeds | None = None
        self._experiments, self._files = experiments, files
        self._opening, self._later = opening, ""
        self.drawn = asyncio.Event()
        """Set once there was a picture."""
        self.leaving = asyncio.Event()
        """Set once somebody wants to leave: services may be closed while the screen is."""
        offers = files.ssh_hosts if first_run and files is not None else None
        self._fleet = FleetScreen(self.settings, offers)
        self._focused_before: Widget | None = None

    def exit(
        self,
        result: None = None,
        return_code: int = 0,
        message: RenderableType | None = None,
    ) -> None:
        """Leave, and say so before the screen is taken apart."""
        self.leaving.set()
        super().exit(result, return_code, message)

    def get_default_screen(self) -> FleetScreen:
        """Start with the fleet."""
        return self._fleet

    async def on_event(self, event: events.Event) -> None:
        """Keep keys and the mouse from what cannot be seen; only leaving goes on."""
        unseen = is_too_small(*self.size) or self.leaving.is_set()
        ignored = isinstance(event, events.InputEvent) and unseen
        if not ignored or (isinstance(event, events.Key) and self._leaves(event.key)):
            await super().on_event(event)

    def _leaves(self, key: str) -> bool:
        return key == "ctrl+c" or (key == "q" and isinstance(self.screen, ConsoleScreen))

    def on_resize(self, event: events.Resize) -> None:
        """Hidden widgets lose the focus: give it back once there is room again."""
        if is_too_small(*event.size):
            self._focused_before = self._focused_before or self.screen.focused
        elif self._focused_before is not None:
            before, self._focused_before = self._focused_before, None
            if before.is_attached:
                self.call_after_refresh(before.focus)

    def on_mount(self) -> None:
        """Draw what is known, then follow."""
        self.snapshot = self._latest
        self.call_after_refresh(self.drawn.set)
        self.run_worker(self._follow_snapshots(), group="updates", exclusive=True)
        self.set_interval(self.settings.pace.tick_s, self._tick)
        self.follow_themes(self.settings.pace.themes_s)

    @property
    def deeds(self) -> "Deeds":
        """What the actions do, loaded with its screens when first asked for."""
        if self._deeds is None:
            # Imported here because the first picture, on which nothing was done, would wait for it.
            from eaglemon.tui.deeds import Deeds  # noqa: PLC0415

            self._deeds = Deeds(self, self.console_api, self._experiments, self._files)
        return self._deeds

    @staticmethod
    def load_actions() -> None:
        """Import what actions do and show, to be called in a thread: no key then waits for it."""
        for name in ("deeds", "palette", "screens.host", "screens.log", "screens.server"):
            importlib.import_module(f"eaglemon.tui.{name}")

    def take_experiments(self, experiments: Experiments) -> None:
        """Take the last of the services that come late, and run and show experiments from now on.

        Profiles have been read by then, and what is wrong with them is told.
        """
        self._experiments, self._opening = experiments, False
        self.deeds.take_experiments(experiments)
        self.deeds.files.tell_problems()
        self.redraw()
        if self._later and self.console_screen() is self.screen:
            self.call_later(self.act, self._later)

    async def _follow_snapshots(self) -> None:
        async for snapshot in self.console_api.updates():
            self._take(snapshot)
            # The channel keeps the latest only, so sleeping here is what limits the pictures.
            await asyncio.sleep(self.settings.pace.refresh_s)

    def _tick(self) -> None:
        self._take(self.console_api.snapshot())

    def _take(self, snapshot: Snapshot) -> None:
        for item in news(self._latest, snapshot):
            if item.ends:
                self.tell_end(item.text, severity=item.severity)
            else:
                self.say(item.text, severity=item.severity)
        self._latest = snapshot
        if not self.paused:
            self.snapshot = snapshot

    def watch_snapshot(self, snapshot: Snapshot) -> None:
        """Draw the screen in front; the others are drawn when they come back."""
        screen = self.console_screen()
        if screen is not None and screen.is_mounted:
            self._draw(screen)

    def _draw(self, screen: ConsoleScreen) -> None:
        screen.show(self.snapshot)
        screen.show_frame(self.snapshot, self.scene())

    def redraw(self) -> None:
        """Draw the screen in front from the current snapshot."""
        self.watch_snapshot(self.snapshot)

    def scene(self) -> Scene:
        """Return what decides whether actions can be carried out now."""
        screen = self.console_screen()
        server = screen.current_server() if screen is not None else None
        done = self._deeds
        host = screen.current_host() if screen is not None else None
        scene = Scene(
            screen=screen.NAME if screen is not None else "fleet",
            server=server,
            servers_tab=screen.hidden_servers_tab if screen is not None else None,
            host=host,
            host_state=state_of(self.snapshot, host),
            hosts=len(self.console_api.hosts()),
            profiles=len(self.console_api.profiles()),
            read_only=self.settings.read_only,
            recording=self.settings.recording,
            paused=self.paused,
            **(screen.facts() if screen is not None else {}),
            opening=self._opening,
            probing=done is not None and server is not None and done.probes(server.id),
            restarting=done is not None
            and server is not None
            and done.restarts.under_way(server.id),
            profile_file=done is not None and done.files.current_file() is not None,
            experiments=self._experiments is not None,
            experimenting=done is not None and done.experiments.running() is not None,
        )
        return scene if screen is None else screen.complete(scene)

    def unfinished(self) -> tuple[str, ...]:
        """Return the names of servers that may be stopped and were not started again yet."""
        return self._deeds.restarts.names() if self._deeds is not None else ()

    def act(self, action_id: str) -> None:
        """Carry out an action of the table, or say why that cannot be done."""
        why_not = BY_ID[action_id].why_not(self.scene())
        with speaking_of(action_id):
            if why_not is None:
                getattr(self.deeds, action_id)()
                return
            self._later = action_id if why_not == STILL_OPENING else ""
            self.say(why_not, severity="warning")

    action_act = act

    def action_tab(self, number: int) -> None:
        """Go to a tab by its number."""
        screen = self.console_screen()
        if screen is not None and number < len(screen.GROUPS):
            screen.switch_tab(number)

    def say(self, text: str, *, severity: SeverityLevel = "information") -> None:
        """Show a message; its text is never read as markup."""
        self.notify(text, severity=severity, markup=False)

    def tell_end(self, text: str, *, severity: SeverityLevel = "information") -> None:
        """Say that a long job has ended, also to somebody who looks elsewhere.

        The terminal is told as ``announces`` says (see ``announcing``).
        """
        self.say(text, severity=severity)
        self.tell_terminal(text)

    def console_screen(self) -> ConsoleScreen | None:
        """Return the main screen in front, under any dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ConsoleScreen):
                return screen
        return None

    # Screens are imported when they are opened: the first picture would wait for them.

    def open_server(self, server_id: str) -> "ServerScreen":
        """Show a server in place of one that is open."""
        from eaglemon.tui.screens.server import ServerScreen  # noqa: PLC0415

        front = self.console_screen()
        if isinstance(front, ServerScreen) and front.server_id == server_id:
            return front
        screen = ServerScreen(self.console_api, server_id, self.settings, self._experiments)
        self.open_screen(screen)
        return screen

    def open_log(self, server_id: str) -> "LogScreen":
        """Show a server's log over everything else."""
        from eaglemon.tui.screens.log import LogScreen  # noqa: PLC0415

        front = self.console_screen()
        if isinstance(front, LogScreen) and front.server_id == server_id:
            return front
        screen = LogScreen(self.console_api, server_id, self.settings)
        self.open_screen(screen)
        return screen

    def open_host(self, host: str) -> None:
        """Show a host."""
        from eaglemon.tui.screens.host import HostScreen  # noqa: PLC0415

        self.open_screen(HostScreen(self.console_api, host, self.settings))

    def open_screen(self, screen: ConsoleScreen) -> None:
        """Show a main screen, in place of one of its kind in front."""
        front = self.console_screen()
        if front is self.screen and type(front) is type(screen):
            self.pop_screen()
        screen.first_picture = partial(self._draw, screen)
        self.push_screen(screen)

    def toggle_pause(self) -> None:
        """Freeze the picture, or go on with the latest; collecting goes on all the time."""
        self.paused = not self.paused
        if not self.paused:
            self.snapshot = self._latest
        self.redraw()

    def on_console_screen_selection_changed(self) -> None:
        """Keys depend on the server under the cursor."""
        screen = self.console_screen()
        if screen is not None:
            screen.show_frame(self.snapshot, self.scene())

    on_console_screen_came_to_front = redraw

    def on_fleet_screen_host_chosen(self, event: FleetScreen.HostChosen) -> None:
        """Open the chosen host; connect to one that was only offered."""
        self.deeds.hosts.open(event.host, event.offered)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open the chosen server."""
        if self.snapshot.server(event.key) is not None:
            self.open_server(event.key)
