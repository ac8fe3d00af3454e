"""Logs that cannot be read: each is told in words, none hangs, and one that comes back is read."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from eaglemon.app.meter import Meter
from eaglemon.app.server_log import ServerLog
from eaglemon.core.lifecycle import ServerMachine
from eaglemon.core.profiles import Limits
from eaglemon.core.runs import LogChunk
from eaglemon.engines import engine_named
from eaglemon.errors import EXIT_USAGE, AgentError
from eaglemon.io.clock import SystemClock
from eaglemon.io.host_link import HostLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import kill_all_of, linked, python, request, until
from tests.hosts3.shell_host import shell_link

FOREVER = python("import time; print('here', flush=True); time.sleep(600)")
NOBODY = 65534


def folder(log: Path) -> None:
    log.unlink()
    log.mkdir()


def fifo(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def dangling(log: Path) -> None:
    log.unlink()
    log.symlink_to("nowhere")


def looped(log: Path) -> None:
    log.unlink()
    log.symlink_to(log)


SPOILT: list[tuple[Callable[[Path], None], str, str]] = [
    (folder, "log-unreadable", "cannot be read: it is a folder; see its owner and mode"),
    (fifo, "log-unreadable", "cannot be read: it is no regular file; see its owner and mode"),
    (Path.unlink, "log-missing", "is gone; it was removed on the host"),
    (dangling, "log-missing", "is gone; it was removed on the host"),
]


def new_log() -> ServerLog:
    rules = engine_named("vllm").log_rules
    return ServerLog(rules, meter=Meter(ceiling=None), clock=SystemClock(), heard=lambda _: None)


@asynccontextmanager
async def host(kind: str, state: Path) -> AsyncIterator[HostLink]:
    if kind == "sh":
        async with shell_link(state) as sh:
            yield sh
    else:
        async with linked(LocalTransport(), state) as link:
            yield link


async def read_some(link: HostLink) -> bytes:
    async with aclosing(link.follow_log("one")) as chunks:
        return (await anext(chunks)).data


@pytest.mark.parametrize("kind", ["python", "sh"])
@pytest.mark.parametrize(("spoil", "slug", "words"), SPOILT)
async def test_a_spoilt_log_is_told_in_words(
    state: Path, kind: str, spoil: Callable[[Path], None], slug: str, words: str
) -> None:
    async with host(kind, state) as link:
        record = await link.start_run(request("one", *FOREVER))
        log = Path(record.log_path)
        await until(lambda: log.read_bytes() != b"")
        spoil(log)
        async with asyncio.timeout(60.0):
            for ask in (link.log_tail("one", lines=0), link.log_tail("one", lines=3)):
                with pytest.raises(AgentError) as caught:
                    await ask
                assert str(caught.value) == f"the log of one on local ({log}) {words}"
                assert (caught.value.kind, caught.value.exit_code) == (slug, EXIT_USAGE)
            with pytest.raises(AgentError) as caught:
                await read_some(link)
            assert caught.value.kind == slug


async def test_a_link_to_itself_is_told_in_words(state: Path) -> None:
    async with host("python", state) as link:
        record = await link.start_run(request("one", *FOREVER))
        looped(Path(record.log_path))
        with pytest.raises(AgentError, match="Too many levels of symbolic links"):
            await link.log_tail("one", lines=0)


async def _to_the_end(chunks: AsyncIterator[LogChunk]) -> None:
    """Read on: between a file and a folder in its place it may be seen to be gone for a moment."""
    async for _ in chunks:
        pass


@pytest.mark.parametrize("kind", ["python", "sh"])
async def test_a_log_replaced_by_a_folder_ends_the_reading(state: Path, kind: str) -> None:
    async with host(kind, state) as link:
        record = await link.start_run(request("one", *FOREVER))
        async with aclosing(link.follow_log("one")) as chunks:
            assert (await anext(chunks)).data == b"here\n"
            folder(Path(record.log_path))
            with pytest.raises(AgentError, match="it is a folder"):
                await asyncio.wait_for(_to_the_end(chunks), 60.0)


async def test_a_log_that_may_not_be_read_is_told_in_words(tmp_path: Path) -> None:
    """Root may read everything, so the agent's code runs as nobody there."""
    from eaglemon.agent import agent

    log = tmp_path / "log"
    log.write_bytes(b"a\n")
    log.chmod(0)
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(agent.__file__).parent)!r}); import agent\n"
        f"os.chdir({str(tmp_path)!r})\n"
        f"if os.geteuid() == 0: os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try:\n"
        "    with agent.telling_log({'run_id': 'one', 'host': 'gpu-a'}, 'log'):\n"
        "        agent.find_tail('log', 0)\n"
        "except agent.RequestError as error:\n"
        "    print(error.kind, error)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == (
        "log-unreadable the log of one on gpu-a (log) cannot be read: Permission denied"
    )


async def test_the_console_notes_it_and_reads_on_once_it_is_back(state: Path) -> None:
    async with host("python", state) as link:
        record = await link.start_run(request("one", *FOREVER))
        log = Path(record.log_path)
        folder(log)
        server_log = new_log()
        server_log.catch_up(
            launched_at=record.launched_at, age_s=1.0, history_bytes=4096, spawned=True
        )
        reading = asyncio.create_task(server_log.follow(link, "one", ServerMachine(Limits())))
        try:
            await until(lambda: server_log.notes != [])
            assert "it is a folder; see its owner and mode" in server_log.notes[0]
            assert server_log.caught_up  # nothing waits for a past that cannot be read
            log.rmdir()
            log.write_bytes(b"back\n")
            await until(lambda: server_log._offset == 5 or reading.done())
            assert not reading.done(), reading.exception()
            assert server_log.notes == []
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_an_ended_server_without_a_log_is_not_waited_for(state: Path) -> None:
    async with host("python", state) as link:
        record = await link.start_run(request("one", *python("pass")))
        Path(record.log_path).unlink()
        server_log = new_log()
        async with asyncio.timeout(60.0):
            await server_log.follow(link, "one")
        assert server_log.ended
        assert "is gone" in server_log.notes[0]


@pytest.mark.parametrize("options", [(), ("-f",), ("-n", "2")])
async def test_the_command_ends_with_2_and_one_line(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    state = tmp_path / "state"
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "XDG_CONFIG_HOME": str(tmp_path)}
    try:
        async with linked(LocalTransport(), state) as link:
            record = await link.start_run(request("one", *FOREVER))
            log = Path(record.log_path)
            folder(log)
            for json_option in ((), ("--json",)):
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "eaglemon", "logs", "one", "--host", "local"),
                    *options,
                    *json_option,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=environment,
                )
                async with asyncio.timeout(60.0):
                    out, err = await process.communicate()
                wanted = f"the log of one on local ({log}) cannot be read: it is a folder"
                assert process.returncode == EXIT_USAGE, err
                assert err.decode().splitlines() == [f"eaglemon: {wanted}; see its owner and mode"]
                if json_option:
                    error = json.loads(out)["error"]
                    assert (error["message"], error["hint"]) == (wanted, "see its owner and mode")
    finally:
        kill_all_of(state)
