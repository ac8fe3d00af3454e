"""What people have answered about hosts and keys: for all connections, in memory only.

Many hosts share one key or one jump host. Each thing is asked about by one login at a time, and
the others then find the answer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import asyncssh


class Answers:
    """Answers by what they are about: the path of a key file, or a host's key."""

    def __init__(self) -> None:
        self.unlocked: dict[str, asyncssh.SSHKey] = {}
        """Keys whose passphrase was given, by path; never written anywhere."""
        self.wrong: dict[str, int] = {}
        """How many passphrases of a key, by path, a person has given in vain."""
        self._declined: dict[str, set[str]] = {}
        """The hosts whose logins did without an answer."""
        # Kept by those who hold or await it: a lock belongs to the event loop of its time.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, about: str) -> AsyncIterator[None]:
        """Let one login at a time ask about a thing; look for its answer once inside."""
        lock = self._locks.setdefault(about, asyncio.Lock())
        async with lock:
            yield

    def decline(self, about: str, host: str) -> None:
        """Note that a person did not answer: a reconnect of ``host`` does not ask again."""
        self._declined.setdefault(about, set()).add(host)

    def is_declined(self, about: str, host: str) -> bool:
        """Tell whether nobody is to be asked; ``host`` counts as one that did without."""
        if about not in self._declined:
            return False
        self._declined[about].add(host)
        return True

    def ask_again(self, host: str) -> None:
        """Forget what was declined and ``host`` did without: a person wants it tried again."""
        for about in [about for about, hosts in self._declined.items() if host in hosts]:
            del self._declined[about]
            self.wrong.pop(about, None)

    def clear(self) -> None:
        """Forget everything."""
        self.unlocked.clear()
        self._declined.clear()
        self.wrong.clear()


ANSWERS = Answers()
"""Those of this process."""
