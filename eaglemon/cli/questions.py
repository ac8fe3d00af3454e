"""Asks the person at the terminal: for the passphrase of a key, whether a host key is right."""

import asyncio
import getpass
import sys

from eaglemon.cli import diagnostics
from eaglemon.core.hosts import HostQuestion
from eaglemon.io.transport import Asker


def tell_person(host: str, text: str) -> None:
    """Say at the terminal what a person has to do, such as to touch a security key."""
    diagnostics.talk(f"eaglemon: {host}: {text}")


def terminal_asker() -> Asker | None:
    """Return what asks at the terminal; ``None`` where nobody is there to answer.

    An unknown host key is not asked about: a command line has to say ``--accept-new``.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    one_at_a_time = asyncio.Lock()

    async def ask(question: HostQuestion) -> str | None:
        if question.kind != "passphrase":
            return None
        async with one_at_a_time:
            diagnostics.talk(f"eaglemon: {question.host}: {question.detail}")
            try:
                answer = await asyncio.to_thread(
                    getpass.getpass, f"{question.text}: ", stream=sys.stderr
                )
            except (EOFError, KeyboardInterrupt):
                return None
        return answer or None

    return ask
