"""A console that is drawn before its services are there: hosts as named, nothing known of them.

Loading the services takes longer than the first picture should, so the picture comes first.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from eaglemon.app.api import Eaglemon
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.views import HostView, Snapshot
from eaglemon.errors import HostError


class LateConsole:
    """Stands in for an ``Eaglemon`` until ``arrive``, and passes everything on from then.

    Until then whatever needs a host raises ``HostError``.
    """

    def __init__(self, hosts: Sequence[HostSpec]) -> None:
        self._hosts = tuple(hosts)
        self._console: Eaglemon | None = None
        self._arrived = asyncio.Event()

    def arrive(self, console: Eaglemon) -> None:
        """Pass everything on to ``console``."""
        self._console = console
        self._arrived.set()

    def hosts(self) -> Sequence[HostSpec]:
        """Return the hosts of this console."""
        return self._hosts if self._console is None else self._console.hosts()

    def profiles(self) -> Sequence[Profile]:
        """Return all profiles that could be read; none until ``arrive``."""
        return () if self._console is None else self._console.profiles()

    def profile_problems(self) -> Sequence[Problem]:
        """Return what is wrong with profile files; nothing until ``arrive``."""
        return () if self._console is None else self._console.profile_problems()

    def snapshot(self) -> Snapshot:
        """Return what is known: until ``arrive``, that the hosts are being connected to."""
        if self._console is not None:
            return self._console.snapshot()
        hosts = tuple(HostView(spec=spec, state=LinkState.CONNECTING) for spec in self._hosts)
        return Snapshot(at=time.time(), hosts=hosts)

    async def updates(self) -> AsyncIterator[Snapshot]:
        """Yield the snapshots of the console, once it is there."""
        await self._arrived.wait()
        if self._console is not None:
            async for snapshot in self._console.updates():
                yield snapshot

    def __getattr__(self, name: str) -> Any:
        """Pass on what is asked for."""
        if self._console is None:
            raise HostError("the console is still opening", hint="try again in a moment")
        return getattr(self._console, name)
