"""What the action of restarting does, and which servers are between their stop and their start."""

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from eaglemon.app.api import Eaglemon
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError, ServerError
from eaglemon.tui.screens.confirm import ConfirmStop
from eaglemon.tui.screens.server import ServerScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class CalledOffError(ServerError):
    """A restart was called off, so that nothing is started."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the restart of {name} is called off: it stays stopped")


class RestartDeeds:
    """Restarts servers, one at a time each."""

    def __init__(self, app: "ConsoleApp", console: Eaglemon) -> None:
        self._app = app
        self._console = console
        self._names: dict[str, str] = {}
        self._calls: dict[str, asyncio.Task[str]] = {}
        """What waits for the end of the old server, by its id."""
        self._before: dict[str, frozenset[str]] = {}
        """Ids that were known when a restart began: another one is that of the new server."""
        self._called_off: set[str] = set()

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

    async def again(self, server_id: str, name: str) -> str:
        """Restart a server and return the new id, unless that is called off meanwhile.

        Raises ``CalledOffError`` then.
        """

        def told(text: str) -> None:
            self._app.say(f"{name}: {text}")

        self._before[server_id] = frozenset(one.id for one in self._console.snapshot().servers)
        call = asyncio.create_task(self._console.restart(server_id, told=told), name="restart")
        self._calls[server_id] = call
        try:
            again = await call
        except asyncio.CancelledError:
            if server_id not in self._called_off or not call.cancelled():
                raise
            raise CalledOffError(name) from None
        finally:
            # It may have ended while it was being called off.
            del self._calls[server_id], self._before[server_id]
            off = server_id in self._called_off
            self._called_off.discard(server_id)
        if off:
            await self._console.stop(again, wait=False)
            raise CalledOffError(name)
        return again

    def call_off(self, server: ServerView) -> None:
        """Start this server not again; one that is being started already is stopped.

        A stop of the old one goes on.
        """
        call = self._calls.get(server.id)
        if call is None:
            self._app.say(f"{server.name} is not restarted yet: its draft is being written")
            return
        self._called_off.add(server.id)
        known = self._before[server.id]
        # The host may have begun the new one already, which no cancelling takes back.
        if all(
            one.id in known or (one.host, one.profile) != (server.host, server.profile)
            for one in self._console.snapshot().servers
        ):
            call.cancel()

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
                again = await self.again(server.id, server.name)
        except CalledOffError as off:
            self._app.say(off.message)
            return
        except EaglemonError as error:
            self._app.say(f"restarting {server.name}: {error}", severity="error")
            return
        self._app.say(f"{server.name} is gone and starts again")
        front = self._app.console_screen()
        if isinstance(front, ServerScreen) and front.server_id == server.id:
            self._app.open_server(again)
