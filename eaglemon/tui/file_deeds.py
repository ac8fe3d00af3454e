"""What the actions about files do: profiles in $EDITOR."""

import asyncio
import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from eaglemon.app.api import Eaglemon, Experiments, LocalFiles
from eaglemon.core.units import plural
from eaglemon.errors import EaglemonError
from eaglemon.tui.screens.profiles import ProfilesScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class FileDeeds:
    """Carries out what needs files of this computer."""

    def __init__(self, app: "ConsoleApp", console: Eaglemon, files: LocalFiles | None) -> None:
        self._app = app
        self._console = console
        self._files = files

    def list_profiles(self, experiments: Experiments | None) -> None:
        """Show the profiles, with what ``experiments`` know of them."""
        host = self._app.scene().host
        hosts = [spec.name for spec in self._console.hosts()]
        chosen = host or (hosts[0] if hosts else None)
        self._app.open_screen(
            ProfilesScreen(self._console, self._app.settings, host=chosen, experiments=experiments)
        )

    def current_file(self) -> Path | None:
        """Return the file of the profile under the cursor."""
        screen = self._app.console_screen()
        if self._files is None or not isinstance(screen, ProfilesScreen):
            return None
        source = screen.current_source()
        return None if source is None else self._files.profile_file(source)

    def edit(self) -> None:
        """Edit the file of the profile under the cursor, then read all profiles again."""
        path = self.current_file()
        if path is not None:
            self._app.run_worker(self._edit(path), group="edit", exclusive=True)

    async def _edit(self, path: Path) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            argv = [*shlex.split(editor), str(path)]
        except ValueError as error:
            self._app.say(f"EDITOR {editor!r}: {str(error).lower()}", severity="error")
            return
        code, refused = 0, ""
        # Hosts go on being asked meanwhile; only the picture stands still. No error may leave the
        # block: Textual takes the terminal back at its proper end only.
        with self._app.suspend(), self._app.batch_update():
            try:
                code = await asyncio.to_thread(subprocess.call, argv)
            except OSError as error:
                refused = (error.strerror or type(error).__name__).lower()
        self._app.refresh(layout=True)
        if refused:
            hint = f"set EDITOR to an editor of this computer, or edit {path} elsewhere"
            self._app.say(f"{argv[0]}: {refused}; {hint}", severity="error")
            return
        if code != 0:
            self._app.say(f"{argv[0]} ended with {code}", severity="warning")
        await self.read_again()

    async def read_again(self) -> None:
        """Read the profiles again and say what is wrong with them."""
        if self._files is None:
            return
        try:
            await asyncio.to_thread(self._files.reload)
        except EaglemonError as error:
            self._app.say(str(error), severity="error")
            return
        screen = self._app.console_screen()
        if isinstance(screen, ProfilesScreen):
            screen.draw_again()
        if not self.tell_problems():
            self._app.say("profiles were read again: nothing is wrong with them")

    def tell_problems(self) -> bool:
        """Say what is wrong with profile files; return whether there is something."""
        problems = self._console.profile_problems()
        if problems:
            text = f"{plural(len(problems), 'problem')} in profiles: {problems[0]}"
            self._app.say(text, severity="warning")
        return bool(problems)
