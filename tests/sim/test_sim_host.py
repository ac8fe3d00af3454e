"""The simulated host: a real SSH connection to real processes."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError, UsageError
from eaglemon.sim.host import SimHost
from eaglemon.sim.process import is_alive
from tests.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the simulated host is Unix only")

LIMIT_S = 60.0


async def connect(spec: HostSpec, **changes: object) -> asyncssh.SSHClientConnection:
    options: dict[str, object] = {
        "username": spec.user,
        "client_keys": [spec.identity],
        "known_hosts": spec.known_hosts,
        "config": None,
        "agent_path": None,
        **changes,
    }
    return await asyncssh.connect(spec.address, spec.port, **options)


@pytest.fixture
async def host() -> AsyncIterator[tuple[SimHost, HostSpec]]:
    sim = SimHost(speed=20)
    async with sim as spec:
        yield sim, spec


async def test_commands_run_as_under_sshd(host: tuple[SimHost, HostSpec]) -> None:
    _sim, spec = host
    async with await connect(spec) as connection:
        done = await connection.run("cat; echo oops >&2; exit 7", input="in\n")
        assert (done.stdout, done.stderr, done.exit_status) == ("in\n", "oops\n", 7)
        done = await connection.run("kill -TERM $$")
        assert done.exit_signal is not None
        assert done.exit_signal[0] == "TERM"
        done = await connection.run("python3 -c 'import sglang; print(sglang.__version__)'")
        assert done.stdout == "0.5.16\n"
        code = "from importlib.metadata import version; print(version('vllm'))"
        assert (await connection.run(f'python3 -c "{code}"')).stdout == "0.32.0\n"
        assert (await connection.run("vllm --version")).stdout == "0.32.0\n"
        big = await connection.run("head -c 3000000 /dev/zero | wc -c; head -c 3000000 /dev/zero")
        assert len(str(big.stdout)) > 3_000_000


async def test_an_end_of_input_reaches_the_command(host: tuple[SimHost, HostSpec]) -> None:
    _sim, spec = host
    async with await connect(spec) as connection, connection.create_process("cat") as process:
        process.stdin.write("hello\n")
        assert await process.stdout.readline() == "hello\n"
        process.stdin.write_eof()
        assert (await process.wait()).exit_status == 0


async def test_a_broken_connection_ends_what_reads_its_input(
    host: tuple[SimHost, HostSpec],
) -> None:
    _sim, spec = host
    connection = await connect(spec)
    process = await connection.create_process("echo $$; exec cat")
    pid = int(await process.stdout.readline())
    connection.abort()
    await connection.wait_closed()
    async with asyncio.timeout(LIMIT_S):
        while is_alive(pid, None):
            await asyncio.sleep(0.02)


async def test_strangers_are_refused(host: tuple[SimHost, HostSpec], tmp_path: Path) -> None:
    _sim, spec = host
    other = asyncssh.generate_private_key("ssh-ed25519")
    with pytest.raises(asyncssh.PermissionDenied):
        await connect(spec, client_keys=[other])
    unknown = tmp_path / "known_hosts"
    unknown.write_text("", "utf-8")
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await connect(spec, known_hosts=str(unknown))
    async with await connect(spec) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("192.0.2.1", 80)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("python3 -m sglang.launch_server --model-path /models/t --port {port}", "/health"),
        ("vllm serve /models/t --port {port}", "/version"),
    ],
)
async def test_engines_start_by_their_own_command_and_die_with_the_host(
    command: str, path: str
) -> None:
    sim, port = SimHost(speed=20, env={"EAGLEMON_SIM_SEED": "3"}), free_port()
    async with sim as spec:
        folder = sim.folder
        async with await connect(spec) as connection:
            line = command.format(port=port)
            await connection.run(f"setsid {line} > server.log 2>&1 < /dev/null &")
            async with asyncio.timeout(LIMIT_S):
                while True:
                    answer = await _get(connection, port, path)
                    if b" 200 OK" in answer:
                        break
                    await asyncio.sleep(0.05)
            held = list((sim.driver_folder / "memory").glob("*.json"))
            assert len(held) == 1
            pids = [int(mark.name) for mark in (sim.driver_folder / "processes").iterdir()]
            assert len(pids) == 3
            listing = (await connection.run("ps -eo args")).stdout
            assert line.split(maxsplit=1)[1] in str(listing)
    assert not folder.exists()
    assert not [pid for pid in pids if is_alive(pid, None)]


async def _get(connection: asyncssh.SSHClientConnection, port: int, path: str) -> bytes:
    try:
        reader, writer = await connection.open_connection("127.0.0.1", port, encoding=None)
    except asyncssh.ChannelOpenError:
        return b""
    writer.write(f"GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n".encode())
    answer: bytes = await reader.read()
    writer.close()
    return answer


async def test_detached_processes_die_with_the_host() -> None:
    sim = SimHost()
    async with sim as spec, await connect(spec) as connection:
        done = await connection.run("setsid sleep 600 < /dev/null > /dev/null 2>&1 & echo $!")
        pid = int(str(done.stdout))
        assert is_alive(pid, None)
    assert not is_alive(pid, None)


async def test_two_hosts_have_their_own_gpus() -> None:
    async with (
        SimHost(name="a", gpus=2) as first,
        SimHost(name="b", gpus=2, first_gpu=2) as second,
    ):
        assert (first.name, second.name) == ("a", "b")
        code = (
            "import os, runpy; n = runpy.run_path(os.environ['EAGLEMON_PYNVML']); n['nvmlInit']();"
            "print(*[n['nvmlDeviceGetUUID'](i) for i in range(n['nvmlDeviceGetCount']())])"
        )
        names: list[str] = []
        for spec in (first, second):
            async with await connect(spec) as connection:
                names += str((await connection.run(f'python3 -c "{code}"')).stdout).split()
        assert len(set(names)) == 4


async def test_windows_is_told_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match="runs on Linux and macOS only"):
        await SimHost().__aenter__()


async def test_it_must_be_entered() -> None:
    with pytest.raises(HostError, match="not running"):
        _ = SimHost().folder


async def test_the_command_keeps_a_host_until_a_signal() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "eaglemon.sim.host",
        "--gpus",
        "2",
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(LIMIT_S):
        while "driver state" not in text:
            text += (await process.stdout.readline()).decode()
    assert "ssh -F none -p " in text
    folder = Path(text.split("driver state: ")[1].strip())
    assert folder.is_dir()
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(LIMIT_S):
        assert await process.wait() == 0
    assert not folder.exists()


async def test_nothing_is_left_of_a_host_whose_process_was_killed() -> None:
    code = """
import asyncio, sys
import asyncssh
from eaglemon.sim.host import SimHost

async def main():
    sim = SimHost()
    async with sim as spec:
        async with asyncssh.connect(
            spec.address, spec.port, username=spec.user, client_keys=[spec.identity],
            known_hosts=spec.known_hosts, config=None, agent_path=None,
        ) as connection:
            done = await connection.run("setsid sleep 600 <&- >/dev/null 2>&1 & echo $!")
            print(done.stdout.strip(), sim.folder, flush=True)
            await asyncio.sleep(60)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert process.stdout is not None
    pid, folder = (await process.stdout.readline()).decode().split()
    assert is_alive(int(pid), None)
    process.kill()
    await process.wait()
    async with asyncio.timeout(LIMIT_S):
        while is_alive(int(pid), None) or Path(folder).exists():
            await asyncio.sleep(0.02)
