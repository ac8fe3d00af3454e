"""The local transport."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eaglemon.errors import HostError, TimeLimitError
from eaglemon.io.local import LocalTransport
from tests.agent.driver import until


async def test_a_command_runs_to_its_end() -> None:
    done = await LocalTransport().run("cat; echo oops >&2; exit 3", stdin=b"x" * 1_000_000)
    assert (done.status, done.stderr) == (3, b"oops\n")
    assert done.stdout == b"x" * 1_000_000


async def test_a_command_killed_by_a_signal() -> None:
    assert (await LocalTransport().run("kill -9 $$")).status == 128 + 9


async def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TimeLimitError, match=r"within 0\.2 s"):
        await LocalTransport().run(f"echo $$ > {tmp_path}/pid; sleep 60; true", timeout_s=0.2)
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_stream_reaches_a_port() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        stream = await LocalTransport().open_stream("127.0.0.1", port)
        await stream.write(b"hello")
        stream.write_eof()
        assert await stream.read(100) == b"hello"
        assert await stream.read(100) == b""
        await stream.close()
    with pytest.raises(HostError, match=f"127.0.0.1:{port}"):
        await LocalTransport().open_stream("127.0.0.1", port)


async def test_closing_a_process_does_not_wait_for_what_it_left_behind() -> None:
    process = await LocalTransport().open_process("setsid sleep 600 & echo $!")
    left = int(await process.read(100))
    async with asyncio.timeout(60.0):
        await process.close()
    assert Path(f"/proc/{left}").exists()
    os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_process_whose_closing_is_cancelled_is_ended_all_the_same(times: int) -> None:
    process = await LocalTransport().open_process("echo $$; exec sleep 600")
    pid = int(await process.read(100))
    closing = asyncio.create_task(process.close())
    for _ in range(times):
        await asyncio.sleep(0)
        closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not Path(f"/proc/{pid}").exists()


async def test_only_linux_can_be_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    await LocalTransport().connect()
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(HostError, match="hosts are Linux"):
        await LocalTransport().connect()


def test_the_transports_import_without_posix_modules_and_asyncssh() -> None:
    code = (
        "import sys\n"
        "for name in ('fcntl', 'pwd', 'termios', 'resource', 'grp'): sys.modules[name] = None\n"
        "import eaglemon.io.local, eaglemon.io.ssh, eaglemon.io.agent_link\n"
        "assert 'asyncssh' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
