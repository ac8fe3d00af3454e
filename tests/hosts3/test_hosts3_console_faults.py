"""The real console, in a terminal of its own, while its hosts fail in every way at once."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.agent.driver import until
from tests.hosts3.bad_network import BadNetwork
from tests.sshd import Sshd, sshd

LIMIT_S = 60.0
MOST_S = 5.0
"""The design asks for 50 ms (``benchmarks/`` has the figures); a machine that does other work gets
more. A console that waits for a host would never answer: those that hang do so to the end."""
_ESCAPES = re.compile(r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|[()][A-Z0-9]|\][^\x07]*\x07|[=>78])")


class Console:
    """``eaglemon`` in a pseudo-terminal, with what it wrote."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master, self.process = master, process
        self._written = ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    @property
    def text(self) -> str:
        """What was written since the last key, without escape sequences."""
        return _ESCAPES.sub("", self._written)

    def press(self, key: str) -> float:
        """Send a key and return when."""
        self._written = ""
        os.write(self._master, key.encode())
        return time.monotonic()

    async def wait(self, *texts: str, limit_s: float = LIMIT_S) -> float:
        """Wait until all texts were written since the last key; return when."""
        try:
            async with asyncio.timeout(limit_s):
                while not all(text in self.text for text in texts):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{texts} was not written: {self.text[-3000:]!r}") from None
        return time.monotonic()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            self._written += os.read(self._master, 1 << 16).decode("utf-8", "replace")
            self._changed.set()


@asynccontextmanager
async def console(folder: Path, *words: str) -> AsyncIterator[Console]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eaglemon", *words),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=env,
        start_new_session=True,
    )
    os.close(slave)
    one = Console(master, process)
    try:
        yield one
    finally:
        one.close()
        await process.wait()


def write_hosts(folder: Path, server: Sshd, networks: dict[str, BadNetwork]) -> None:
    text = ""
    for name, network in networks.items():
        spec = network.before(server.spec(name), folder)
        text += (
            f'[hosts.{name}]\naddress = "127.0.0.1"\nport = {spec.port}\nuser = "{spec.user}"\n'
            f'known_hosts = "{spec.known_hosts}"\nidentity = "{spec.identity}"\nssh_config = ""\n'
            f'env = {{ XDG_STATE_HOME = "{folder / name}" }}\n'
        )
    place = folder / "config" / "eaglemon"
    place.mkdir(parents=True)
    (place / "hosts.toml").write_text(text)


def agents(state: Path) -> list[int]:
    """Return the agents whose records lie in ``state``."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            wanted = f"XDG_STATE_HOME={state}\0".encode()
            is_agent = (entry / "comm").read_text() == "eaglemon-agent\n"
            if is_agent and wanted in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


async def key_to_picture(one: Console) -> float:
    """Return the shortest time from a key to the picture that it asks for, of several."""
    shortest_s = LIMIT_S
    for _ in range(3):
        pressed = one.press("?")
        shortest_s = min(shortest_s, await one.wait("esc closes") - pressed)
        one.press("\x1b")
        await asyncio.sleep(0.3)  # a lone escape is known by the pause behind it
    return shortest_s


async def test_keys_are_answered_while_every_host_fails(tmp_path: Path) -> None:
    names = ("cut", "stalled", "halfclosed", "stopped", "fine")
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(sshd(tmp_path / "sshd"))
        networks = {
            name: await stack.enter_async_context(BadNetwork(server.port)) for name in names
        }
        write_hosts(tmp_path, server, networks)
        one = await stack.enter_async_context(console(tmp_path))
        await until(lambda: all(agents(tmp_path / name) for name in names), LIMIT_S)
        figures = {"all well": await key_to_picture(one)}
        networks["cut"].refuses = True
        networks["cut"].cut()
        networks["stalled"].stall()
        networks["halfclosed"].half_close()
        stopped = agents(tmp_path / "stopped")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            figures["at once"] = await key_to_picture(one)
            # Each is told for what it is.
            await one.wait("STALE", "stalled is down")
            figures["all told"] = await key_to_picture(one)
            pressed = one.press("q")
            async with asyncio.timeout(LIMIT_S):
                assert await one.process.wait() == 0
            figures["quit"] = time.monotonic() - pressed
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
    shown = ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in figures.items())
    sys.stdout.write(f"key to picture: {shown}\n")
    assert max(figures.values()) < MOST_S, shown
