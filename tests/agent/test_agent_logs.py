"""Following logs: every byte once and in order, whatever happens to the file."""

import asyncio
import hashlib
import os
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.agent import agent
from eaglemon.core.runs import LogChunk
from eaglemon.errors import AgentError
from eaglemon.io import host_link
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import linked, python, request, until

FOREVER = python("import time; time.sleep(600)")


async def read_all(link: AgentLink, *, offset: int = 0) -> list[LogChunk]:
    chunks = []
    async with aclosing(link.follow_log("one", offset=offset)) as items:
        async for chunk in items:
            chunks.append(chunk)  # noqa: PERF401 -- the generator has to be closed
    return chunks


async def test_a_log_is_followed_to_the_end_of_its_run(link: AgentLink) -> None:
    code = "import time\nfor n in range(5): print(n, flush=True); time.sleep(0.1)"
    await link.start_run(request("one", *python(code)))
    chunks = await read_all(link)
    assert b"".join(chunk.data for chunk in chunks) == b"0\n1\n2\n3\n4\n"
    assert chunks[-1].ended
    assert not any(chunk.ended for chunk in chunks[:-1])
    offset = 0
    for chunk in chunks:
        assert chunk.offset == offset
        offset += len(chunk.data)


async def test_a_log_goes_on_while_a_worker_outlives_the_leader(link: AgentLink) -> None:
    worker = "import time; time.sleep(1.0); print('last', flush=True)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {worker!r}])"
    await link.start_run(request("one", *python(code)))
    chunks = await read_all(link)
    assert b"".join(chunk.data for chunk in chunks) == b"last\n"


async def test_fifty_megabytes_of_any_bytes_arrive_unchanged(link: AgentLink) -> None:
    code = (
        "import os, sys\n"
        "block = bytes(range(256)) * 4096\n"
        "for _ in range(50): sys.stdout.buffer.write(block)"
    )
    await link.start_run(request("one", *python(code)))
    digest, size = hashlib.sha256(), 0
    async with aclosing(link.follow_log("one")) as items:
        async for chunk in items:
            assert chunk.offset == size
            digest.update(chunk.data)
            size += len(chunk.data)
    assert size == 50 << 20
    assert digest.digest() == hashlib.sha256(bytes(range(256)) * 4096 * 50).digest()


async def test_a_reader_that_does_not_read_holds_up_nothing_else(link: AgentLink) -> None:
    code = (
        "import sys, time\nsys.stdout.write('x' * (30 << 20))\nsys.stdout.flush()\ntime.sleep(600)"
    )
    record = await link.start_run(request("one", *python(code)))
    await until(lambda: Path(record.log_path).stat().st_size == 30 << 20)
    async with aclosing(link.follow_log("one")) as items:
        first = await anext(items)
        async with asyncio.timeout(60.0):
            for _ in range(20):
                await link.ping()
                await asyncio.sleep(0.02)
        waiting = sum(
            len(frame.blob) for stream in link._streams.values() for frame in stream._frames
        )
        assert waiting <= host_link.LOG_WINDOW_BYTES
        size = len(first.data)
        while size < 30 << 20:
            size += len((await anext(items)).data)
    assert size == 30 << 20


async def test_a_truncated_log_starts_again(link: AgentLink) -> None:
    record = await link.start_run(request("one", *FOREVER))
    log = Path(record.log_path)
    with log.open("ab") as file:
        file.write(b"first\n")
    async with aclosing(link.follow_log("one")) as items:
        assert (await anext(items)).data == b"first\n"
        with log.open("r+b") as file:
            file.truncate(0)
        with log.open("ab") as file:
            file.write(b"two\n")
        chunk = await anext(items)
        while not chunk.data:
            assert chunk.restarted
            chunk = await anext(items)
        assert (chunk.offset, chunk.data) == (0, b"two\n")


def test_a_log_that_was_truncated_and_has_outgrown_its_offset_starts_again(
    tmp_path: Path,
) -> None:
    """What ``copytruncate`` does to a log that is written quickly."""
    log = tmp_path / "log"
    log.write_bytes(b"a first line\nand a second\n")
    follower = agent.LogFollower(str(log), 0)
    assert follower.read(1000) == (log.read_bytes(), False)
    log.write_bytes(b"the new log is longer than what was there\n" * 3)
    assert follower.read(20) == (b"the new log is longe", True)
    assert follower.read(1000) == (log.read_bytes()[20:], False)
    with log.open("ab") as file:
        file.write(b"more")
    assert follower.read(1000) == (b"more", False)
    follower.close()


async def test_a_replaced_log_starts_again(link: AgentLink, tmp_path: Path) -> None:
    record = await link.start_run(request("one", *FOREVER))
    log = Path(record.log_path)
    with log.open("ab") as file:
        file.write(b"old and long\n")
    async with aclosing(link.follow_log("one")) as items:
        assert (await anext(items)).data == b"old and long\n"
        (tmp_path / "new").write_bytes(b"a new log that is longer than the old one\n")
        os.replace(tmp_path / "new", log)  # noqa: PTH105 -- what logrotate does
        chunk = await anext(items)
        assert chunk.restarted
        assert (chunk.offset, chunk.data[:5]) == (0, b"a new")


async def test_a_log_is_resumed_where_it_was_left(link: AgentLink, state: Path) -> None:
    code = "print('abcdef', flush=True); import time; time.sleep(1); print('ghi', flush=True)"
    await link.start_run(request("one", *python(code)))
    async with aclosing(link.follow_log("one")) as items:
        taken = (await anext(items)).data
    await link.close()
    async with linked(LocalTransport(), state) as other:
        rest = await read_all(other, offset=len(taken))
        assert taken + b"".join(chunk.data for chunk in rest) == b"abcdef\nghi\n"


async def test_an_offset_beyond_the_end_starts_again(link: AgentLink) -> None:
    await link.start_run(request("one", *python("print('short')")))
    chunks = await read_all(link, offset=1000)
    assert b"".join(chunk.data for chunk in chunks) == b"short\n"
    assert any(chunk.restarted for chunk in chunks)


async def test_an_unknown_run_has_no_log(link: AgentLink) -> None:
    with pytest.raises(AgentError) as caught:
        await read_all(link)
    assert caught.value.kind == "no-such-run"
    with pytest.raises(AgentError):
        await link.log_tail("one", lines=3)


async def test_the_tail_of_a_log(link: AgentLink) -> None:
    record = await link.start_run(request("one", *python("print('a\\nbb\\nccc')")))
    await until(lambda: Path(record.log_path).read_bytes() == b"a\nbb\nccc\n")
    offsets = [await link.log_tail("one", lines=lines) for lines in range(5)]
    assert offsets == [9, 5, 2, 0, 0]


@given(
    content=st.lists(st.sampled_from([b"\n", b"a", b"b\r", b"x" * 70000])).map(b"".join),
    lines=st.integers(1, 5),
)
def test_the_tail_agrees_with_counting(
    content: bytes, lines: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "tail.log"
    path.write_bytes(content)
    expected = content.split(b"\n")
    ended = content.endswith(b"\n")
    kept = expected[-lines - 1 if ended else -lines :]
    assert content[agent.find_tail(str(path), lines) :] == b"\n".join(kept)


async def test_a_run_that_is_newer_than_the_last_look_is_not_over(
    link: AgentLink, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = agent.Runs([str(state / "eaglemon" / "runs")], agent.read_boot_id())
    seen.refresh(0.0)
    await link.start_run(request("one", *FOREVER))
    # As if no time had passed since the look before the start.
    monkeypatch.setattr(seen, "_refreshed_at", time.monotonic())
    assert not seen.is_over("one")
    assert seen.has_begun("one")
