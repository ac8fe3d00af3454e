"""Starting the agent: which Python, what stands in the way, and how it is told."""

import asyncio
import importlib.metadata
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.core.frames import MARK, encode_frame
from eaglemon.core.hosts import HostSpec
from eaglemon.errors import AgentError, HostError, LinkLostError, TimeLimitError
from eaglemon.io import agent_start
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.agent_start import start_bytes, start_command
from eaglemon.io.connect import open_link, transport_to
from eaglemon.io.local import LocalProcess, LocalTransport
from eaglemon.io.ssh import quote_for_login_shell

HELLO: dict[str, object] = {
    "protocol": 1,
    "python": "3.11.0",
    "hostname": "h",
    "user": "u",
    "uid": 0,
    "boot_id": "b",
    "state_dir": "/s",
}


class Scripted(LocalTransport):
    """A host whose "agent" is a shell script."""

    def __init__(self, script: str) -> None:
        super().__init__("scripted")
        self._script = script

    async def open_process(self, command: str) -> LocalProcess:
        return await super().open_process(self._script)


def printing(folder: Path, *parts: bytes, then: str = "cat >/dev/null") -> Scripted:
    """Return a host whose agent sends ``parts`` and then reads what comes."""
    (folder / "answer").write_bytes(b"".join(parts))
    return Scripted(f"cat {folder / 'answer'}; {then}")


async def test_no_python_is_told_with_the_fix() -> None:
    transport = Scripted("PATH=/nowhere; " + start_command(python="/no/python", env=None))
    with pytest.raises(HostError, match="no python3 on scripted") as caught:
        await AgentLink.open(transport)
    assert "hosts.toml" in str(caught.value)


async def test_an_old_python_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    command = start_command(python=None, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    link = await AgentLink.open(Scripted(command))
    try:
        assert link.facts.python_version
    finally:
        await link.close()


async def test_a_login_that_says_why_it_refuses_is_quoted() -> None:
    with pytest.raises(HostError, match=r"status 1\): This account is currently not available"):
        await AgentLink.open(Scripted("echo This account is currently not available.; exit 1"))


async def test_a_noisy_profile_is_skipped() -> None:
    noisy = "echo welcome; printf 'more \\0 noise \\0eaglemon-agent'; "
    link = await AgentLink.open(Scripted(noisy + start_command(python=sys.executable, env=None)))
    try:
        assert await link.ping() > 0
    finally:
        await link.close()


async def test_a_host_that_says_nothing_is_given_up() -> None:
    with pytest.raises(HostError, match=r"did not start within 0\.3 s"):
        await AgentLink.open(Scripted("sleep 60"), timeout_s=0.3)


async def test_environment_and_quoting_reach_the_agent(tmp_path: Path) -> None:
    state = tmp_path / 'it\'s a "dir" $HOME `x` \\ !'
    link = await AgentLink.open(LocalTransport(), env={"XDG_STATE_HOME": str(state)})
    try:
        assert link.facts.state_dir == f"{state}/eaglemon"
    finally:
        await link.close()


def answering(folder: Path, answer: bytes) -> Scripted:
    """Return a host whose agent says hello, and ``answer`` once a request has come."""
    (folder / "first").write_bytes(MARK + encode_frame({"hello": HELLO}))
    (folder / "second").write_bytes(answer)
    skip = f"head -c {len(start_bytes()) + 8} >/dev/null"
    return Scripted(f"cat {folder}/first; {skip}; cat {folder}/second; cat >/dev/null")


@pytest.mark.parametrize(
    "hello", [{}, {**HELLO, "uid": "zero"}, {**HELLO, "protocol": None}, {"hostname": 1}]
)
async def test_a_malformed_hello_is_an_error_in_words(
    tmp_path: Path, hello: dict[str, object]
) -> None:
    transport = printing(tmp_path, MARK, encode_frame({"hello": hello}))
    with pytest.raises(HostError, match="malformed hello"):
        await AgentLink.open(transport)


@pytest.mark.parametrize(
    "answer",
    [
        {"id": 1, "ok": {"at": "noon"}},
        {"id": 1, "ok": None},
        {"id": 1},
        {"id": 1, "error": "text"},
    ],
)
async def test_a_malformed_answer_is_an_agent_error(
    tmp_path: Path, answer: dict[str, object]
) -> None:
    link = await AgentLink.open(answering(tmp_path, encode_frame(answer)))
    try:
        with pytest.raises(AgentError):
            await link.ping()
    finally:
        await link.close()


async def test_what_is_no_frame_ends_the_link(tmp_path: Path) -> None:
    link = await AgentLink.open(answering(tmp_path, b"\xff" * 8))
    try:
        with pytest.raises(LinkLostError, match=r"scripted: a frame of .* is too large"):
            await link.ping()
        assert "too large" in await link.closed()
    finally:
        await link.close()


async def test_an_agent_that_does_not_answer_is_a_time_limit(tmp_path: Path) -> None:
    link = await AgentLink.open(printing(tmp_path, MARK, encode_frame({"hello": HELLO})))
    try:
        with pytest.raises(TimeLimitError, match="did not answer ping within"):
            await link._request("ping", timeout_s=0.1)
    finally:
        await link.close()


async def test_requests_and_streams_end_when_the_agent_dies(tmp_path: Path) -> None:
    transport = printing(
        tmp_path, MARK, encode_frame({"hello": HELLO}), then="sleep 0.3; echo why >&2; exit 9"
    )
    link = await AgentLink.open(transport)

    async def drain(items: AsyncGenerator[object, None]) -> None:
        async with aclosing(items):
            async for _ in items:
                pass

    try:
        ended = await asyncio.gather(
            link.ping(),
            drain(link.watch_gpus()),
            drain(link.watch_runs()),
            drain(link.follow_log("x")),
            return_exceptions=True,
        )
        assert [type(error) for error in ended] == [LinkLostError] * 4
        assert await link.closed() == "the agent on scripted ended (status 9): why"
    finally:
        await link.close()


async def test_a_stream_that_is_left_is_cancelled_on_the_host() -> None:
    link = await AgentLink.open(LocalTransport())
    try:
        for _ in range(3):
            async with aclosing(link.watch_gpus(interval_s=0.1)) as samples:
                await anext(samples)
        async with asyncio.timeout(60.0):
            await link.ping()
        assert link._streams == {}
    finally:
        await link.close()


async def test_an_operation_of_a_newer_console_is_refused_by_name() -> None:
    link = await AgentLink.open(LocalTransport())
    try:
        with pytest.raises(AgentError, match=r"does not know 'brew\.coffee'") as caught:
            await link._request("brew.coffee")
        assert caught.value.kind == "unknown-op"
    finally:
        await link.close()


class Noted(LocalTransport):
    """This computer, with the commands that are run there."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []

    async def open_process(self, command: str) -> LocalProcess:
        self.commands.append(command)
        return await super().open_process(command)


async def test_here_the_agent_is_taken_from_its_file_and_sent_where_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "agent.py"
    broken.write_text("not python\n")
    for file, commands in ((agent_start._agent_file(), 1), (broken, 2), (tmp_path / "none", 1)):
        monkeypatch.setattr(agent_start, "_agent_file", lambda file=file: file)
        transport = Noted()
        link = await AgentLink.open(transport)
        try:
            assert await link.ping() > 0
        finally:
            await link.close()
        assert len(transport.commands) == commands
        assert (str(file) in transport.commands[0]) is (file != tmp_path / "none")


def test_what_is_sent_is_small() -> None:
    assert importlib.metadata.version("nvidia-ml-py")
    assert len(start_bytes()) < 120_000


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "fish", "tcsh", "csh", "zsh"])
@pytest.mark.parametrize(
    "command",
    [
        "echo plain",
        "echo 'single' \"double\" $((1+1)) `echo tick` \\\\ ! # %",
        "for w in a 'b c'; do\n echo \"$w\"\ndone",
        "printf '%s\\n' 'it'\\''s' 'a\\b' '!x' '$HOME'",
    ],
)
def test_every_login_shell_runs_the_same_command(shell: str, command: str) -> None:
    import shutil

    if shutil.which(shell) is None:
        pytest.fail(f"{shell} is missing: install it, or use .ci/run")
    expected = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    got = subprocess.run(
        [shell, "-c", quote_for_login_shell(command)], capture_output=True, check=True
    )
    assert got.stdout == expected.stdout


@pytest.mark.parametrize("python", ["/nonexistent/python3", "/bin/true", "/bin/echo"])
async def test_a_wrong_python_is_named_with_where_it_is_set(python: str) -> None:
    spec = HostSpec(name="box", transport="local", python=python, source="/etc/hosts.toml")
    transport = transport_to(spec)
    assert transport.name == "box"
    link = await open_link(transport, spec)
    try:
        limit = link.facts.limits[0]
    finally:
        await link.close()
    assert f"at {python}, which python in /etc/hosts.toml names" in limit
    assert limit.endswith("; correct python there")
