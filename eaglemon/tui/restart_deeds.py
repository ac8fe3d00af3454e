"""What the action of restarting does, and which servers are between their stop and their start."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from eaglemon.app.api import Eaglemon
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError
from eaglemon.tui.screens.confirm import ConfirmStop
from eaglemon.tui.screens.server import ServerScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class RestartDeeds:
    """Restarts servers, one at a time each."""

    def __init__(self, app: "ConsoleApp", console: Eaglemon) -> None:
        self._app = app
        self._console = console
        self._names: dict[str, str] = {}

    def under_way(self, server_id: str) -> bool:
        """Tell whether a restart of this server, begun here, is under way."""
        return server_id in self._names

    def names(self) -> tuple[str, ...]:
        """Return the names of servers that may be stopped and are not started again yet."""
        return tuple(self._names.values())

    def ask(self, server: ServerView) -> None:
        """Ask, then stop the server and start the same again."""
        question = ConfirmStop(server, grace_s=None, verb="Restart")
        self._app.push_screen(question, partial(self._answered, server))

    @contextlib.contextmanager
    def marked(self, server_id: str, name: str) -> Iterator[None]:
        """Note that the block restarts a server.

        What is broken off, by leaving the console, stays noted: whoever leaves is told of it.
        """
        self._names[server_id] = name
        try:
            yield
        except Exception:
            del self._names[server_id]
            raise
        del self._names[server_id]

    def _answered(
        self,
        server: ServerView,
        answer: bool | None,  # noqa: FBT001 (the result of the dialog)
    ) -> None:
        if answer:
            self._app.run_worker(self._restart(server), group=f"stop-{server.id}")

    async def _restart(self, server: ServerView) -> None:
        try:
            with self.marked(server.id, server.name):
                again = await self._console.restart(server.id)
        except EaglemonError as error:
            self._app.say(f"restarting {server.name}: {error}", severity="error")
            return
        self._app.say(f"{server.name} is gone and starts again")
        front = self._app.console_screen()
        if isinstance(front, ServerScreen) and front.server_id == server.id:
            self._app.open_server(again)
