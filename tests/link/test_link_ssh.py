"""The ssh transport and the agent over it, against OpenSSH's sshd and asyncssh's server."""

import asyncio
import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError, LinkLostError, TimeLimitError
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalProcess, LocalTransport
from eaglemon.io.ssh import SshTransport
from tests.agent.driver import is_alive, kill_all_of, python, request, until, watched
from tests.ports import free_port
from tests.sshd import Sshd, sshd, start_sshd


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def spec(shared: Sshd, tmp_path: Path) -> Iterator[HostSpec]:
    state = tmp_path / "state"
    yield dataclasses.replace(shared.spec(), env={"XDG_STATE_HOME": str(state)})
    kill_all_of(state)


@contextlib.asynccontextmanager
async def connected(spec: HostSpec) -> AsyncIterator[SshTransport]:
    transport = SshTransport(spec)
    try:
        await transport.connect()
        yield transport
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def linked(spec: HostSpec) -> AsyncIterator[AgentLink]:
    async with connected(spec) as transport:
        link = await AgentLink.open(transport, python=spec.python, env=spec.env)
        try:
            yield link
        finally:
            await link.close()


async def refusal(spec: HostSpec) -> str:
    """Return the message of a connection that must fail."""
    transport = SshTransport(spec)
    with pytest.raises(HostError) as caught:
        await transport.connect()
    await transport.close()
    return str(caught.value)


async def whole_life(link: AgentLink) -> None:
    """Start, watch, read and stop a server."""
    async with watched(link) as runs:
        code = "import time; print('\\xff up', flush=True); time.sleep(600)"
        record = await link.start_run(request("one", *python(code)))
        await runs.until("one", lambda run: bool(run.processes))
        log = link.follow_log("one")
        assert (await anext(log)).data.endswith(b" up\n")
        await link.stop_run("one", grace_s=5.0)
        status = await runs.until(
            "one", lambda run: bool(run.exit and run.stop and run.stop.gone_at)
        )
        assert status.exit is not None
        assert status.exit.signal == "SIGTERM"
        async for chunk in log:
            if chunk.ended:
                break
        await log.aclose()
        assert record.pid is not None
        assert not is_alive(record.pid)


async def test_the_agent_over_openssh(spec: HostSpec) -> None:
    async with linked(spec) as link:
        assert link.facts.hostname == socket.gethostname()
        await whole_life(link)


async def test_the_agent_over_asyncssh(tmp_path: Path) -> None:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await LocalTransport().open_process(str(process.command))
        sending = asyncio.create_task(send(process, child))
        try:
            while data := await child.read(65536):
                process.stdout.write(data)
                await process.stdout.drain()
            process.exit(await child.wait())
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await child.close()

    async def send(process: asyncssh.SSHServerProcess[bytes], child: LocalProcess) -> None:
        while data := await process.stdin.read(65536):
            await child.write(data)
        child.write_eof()

    class Open(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return False

    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=Open, server_host_keys=[key],
        process_factory=serve, encoding=None,
    )  # fmt: skip
    port = server.get_port()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {key.export_public_key().decode()}")
    state = tmp_path / "state"
    spec = HostSpec(
        name="sim", address="127.0.0.1", port=port, user="me", known_hosts=str(known),
        ssh_config="", env={"XDG_STATE_HOME": str(state)},
    )  # fmt: skip
    try:
        async with linked(spec) as link:
            await whole_life(link)
    finally:
        kill_all_of(state)
        server.close()
        await server.wait_closed()


async def test_commands_and_ports(spec: HostSpec) -> None:
    async with connected(spec) as transport:
        data = os.urandom(3_000_000)
        done = await transport.run("cat; echo 'it''s \\\\ !' >&2; exit 3", stdin=data)
        assert (done.status, done.stdout, done.stderr) == (3, data, b"its \\ !\n")
        assert (await transport.run("kill -9 $$")).status == 128 + 9
        with pytest.raises(TimeLimitError):
            await transport.run("sleep 60", timeout_s=0.2)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read())
            writer.close()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            stream = await transport.open_stream("127.0.0.1", port)
            await stream.write(b"hello")
            stream.write_eof()
            assert await stream.read(100) == b"hello"
            assert await stream.read(100) == b""
            await stream.close()
        with pytest.raises(HostError, match=f"cannot open 127.0.0.1:{port} on box") as caught:
            await transport.open_stream("127.0.0.1", port)
        assert not isinstance(caught.value, LinkLostError)


async def test_one_connection_carries_many_channels(spec: HostSpec) -> None:
    # sshd allows 10 sessions by default; the agent takes one, commands come and go.
    async with linked(spec), connected(spec) as transport:
        answers = await asyncio.gather(*(transport.run(f"echo {n}") for n in range(8)))
        assert [answer.stdout for answer in answers] == [b"%d\n" % n for n in range(8)]


async def test_a_cut_in_the_middle_of_a_launch_leaves_one_server(tmp_path: Path) -> None:
    async with sshd(tmp_path / "sshd") as server:
        spec = server.spec()
        for number in range(4):
            async with connected(spec) as transport:
                link = await AgentLink.open(transport, env=spec.env)
                launch = asyncio.create_task(
                    link.start_run(
                        request(f"run-{number}", *python("import time; time.sleep(600)"))
                    )
                )
                if number < 3:
                    await asyncio.sleep(0.03 * number)
                else:
                    await until((server.folder / "state/eaglemon/runs/run-3/run.json").exists)
                server.cut()
                reason = await link.closed()
                assert "box" in reason
                with contextlib.suppress(LinkLostError):
                    await launch
                with pytest.raises(LinkLostError):
                    await link.ping()
                await link.close()
        async with linked(spec) as link, watched(link) as runs:
            await runs.ready.wait()
            for run_id in runs.known:
                status = await runs.until(run_id, lambda run: bool(run.processes))
                assert len(status.processes) == 1
                assert status.exit is None
            assert "run-3" in runs.known
        kill_all_of(server.folder / "state")


async def test_a_server_that_goes_silent_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eaglemon.io import ssh_target

    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 0.3)
    async with sshd(tmp_path / "sshd") as server, connected(server.spec()) as transport:
        server.stall()
        try:
            async with asyncio.timeout(60.0):
                assert "stopped answering" in await transport.wait_closed()
        finally:
            server.go_on()


@pytest.mark.parametrize("shell", ["fish", "tcsh", "csh", "zsh", "bash", "dash"])
async def test_login_shells(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.fail(f"{shell} is missing: install it, or use .ci/run")
    # What sshd does for an account with this shell.
    force = f'ForceCommand exec {program} -c "$SSH_ORIGINAL_COMMAND"'
    async with sshd(tmp_path / "sshd", extra=[force]) as server:
        spec = server.spec(env={"ODD": "it's \\ odd!"})
        async with linked(spec) as link:
            await whole_life(link)


async def test_a_profile_that_prints(tmp_path: Path) -> None:
    (tmp_path / "noise").write_text(
        "echo 'Welcome to the cluster!'; printf '\\0\\377'; echo oops >&2\n"
    )
    force = f'ForceCommand . {tmp_path}/noise; eval "$SSH_ORIGINAL_COMMAND"'
    async with sshd(tmp_path / "sshd", extra=[force]) as server, linked(server.spec()) as link:
        assert await link.ping() > 0


async def test_an_account_without_shell_is_told_in_its_words(tmp_path: Path) -> None:
    force = "ForceCommand echo This account is currently not available.; exit 1"
    async with (
        sshd(tmp_path / "sshd", extra=[force]) as server,
        connected(server.spec()) as transport,
    ):
        with pytest.raises(HostError, match=r"on box did not start .* This account is currently"):
            await AgentLink.open(transport)


async def test_an_unknown_key_is_refused_with_its_fingerprint(
    spec: HostSpec, shared: Sshd, tmp_path: Path
) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    text = await refusal(dataclasses.replace(spec, known_hosts=str(empty)))
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", shared.folder / "host_key.pub"],
        capture_output=True, check=True, text=True,
    ).stdout.split()[1]  # fmt: skip
    assert fingerprint in text
    assert f"ssh-keyscan -p {spec.port} 127.0.0.1 >> {empty}" in text
    assert "unknown" in text


async def test_a_changed_key_names_file_and_line(spec: HostSpec, tmp_path: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    known = tmp_path / "known_hosts"
    known.write_text(f"# old hosts\n[127.0.0.1]:{spec.port} {other}")
    text = await refusal(dataclasses.replace(spec, known_hosts=str(known)))
    assert "CHANGED" in text
    assert f"{known} line 2" in text


async def test_a_configuration_cannot_switch_the_check_off(
    spec: HostSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "config"
    config.write_text("Host *\n  UserKnownHostsFile none\n  StrictHostKeyChecking no\n")
    text = await refusal(dataclasses.replace(spec, known_hosts=None, ssh_config=str(config)))
    assert "unknown" in text


async def test_a_key_that_may_not_log_in(spec: HostSpec, tmp_path: Path) -> None:
    key = tmp_path / "key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(key)
    text = await refusal(dataclasses.replace(spec, identity=str(key)))
    assert f"does not let {spec.user} in (keys tried: {key})" in text
    assert "ssh-copy-id" in text


async def test_an_encrypted_key_says_so(spec: HostSpec, tmp_path: Path) -> None:
    key = tmp_path / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)]
    subprocess.run(command, check=True)
    text = await refusal(dataclasses.replace(spec, identity=str(key)))
    assert f"because encrypted: {key}" in text
    assert f"ssh-add {key}" in text


async def test_a_key_of_the_agent_is_used(
    spec: HostSpec,
    shared: Sshd,
    tmp_path: Path,
    socket_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = socket_folder / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as agent:
        try:
            await until(path.exists)
            env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            subprocess.run(["ssh-add", "-q", shared.identity], env=env, check=True)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            monkeypatch.setenv("HOME", str(tmp_path))
            async with connected(dataclasses.replace(spec, identity=None)) as transport:
                assert (await transport.run("echo in")).stdout == b"in\n"
        finally:
            agent.kill()


async def test_names_ports_and_keys_come_from_the_configuration(
    spec: HostSpec, shared: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "more").write_text(
        f"Host gpu-*\n  HostName 127.0.0.1\n  Port {spec.port}\n  User {spec.user}\n"
        f"  IdentityFile {shared.identity}\n  UserKnownHostsFile {shared.known_hosts}\n"
    )
    config = tmp_path / "config"
    config.write_text(f"Include {tmp_path}/more\nHost *\n  User nobody\n")
    host = HostSpec(name="gpu-1", ssh_config=str(config))
    async with connected(host) as transport:
        assert (await transport.run("echo in")).stdout == b"in\n"


async def test_a_jump_host_is_passed_through(spec: HostSpec, shared: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host jump target\n  HostName 127.0.0.1\n  Port {spec.port}\n  User {spec.user}\n"
        f"  IdentityFile {shared.identity}\n  UserKnownHostsFile {shared.known_hosts}\n"
        "Host target\n  ProxyJump jump\n"
    )
    before = shared.log.count("Accepted publickey")
    async with connected(HostSpec(name="target", ssh_config=str(config))) as transport:
        assert (await transport.run("echo in")).stdout == b"in\n"
    assert shared.log.count("Accepted publickey") == before + 2


async def test_a_refused_port_is_told(spec: HostSpec) -> None:
    port = free_port()
    text = await refusal(dataclasses.replace(spec, port=port))
    assert f"box: 127.0.0.1:{port} refused the connection" in text
    assert "sshd" in text


async def test_an_unknown_name_is_told(spec: HostSpec) -> None:
    text = await refusal(dataclasses.replace(spec, address="no-such-host.invalid"))
    assert "no host named no-such-host.invalid" in text


async def test_a_host_that_does_not_answer_is_given_up(
    spec: HostSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eaglemon.io import ssh_login

    monkeypatch.setattr(ssh_login, "CONNECT_LIMIT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = await refusal(dataclasses.replace(spec, port=silent.getsockname()[1]))
    assert "did not answer in time" in text


@pytest.mark.parametrize("key", ["known_hosts", "identity", "ssh_config"])
async def test_a_file_that_is_missing_is_named(spec: HostSpec, key: str, tmp_path: Path) -> None:
    values: dict[str, str] = {key: str(tmp_path / "absent")}
    text = await refusal(dataclasses.replace(spec, source="hosts.toml", **values))  # type: ignore[arg-type]
    assert f"{key} of host box names {tmp_path / 'absent'}" in text
    assert "hosts.toml" in text


async def test_a_damaged_configuration_is_named(spec: HostSpec, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port many\n")
    text = await refusal(dataclasses.replace(spec, port=None, ssh_config=str(config)))
    assert "Port" in text or "port" in text


@pytest.mark.parametrize("named", ["hosts.toml", "ssh_config"])
async def test_a_key_that_is_none_is_named(spec: HostSpec, tmp_path: Path, named: str) -> None:
    key, config = tmp_path / "key", tmp_path / "config"
    key.write_text("garbage")
    config.write_text(f"Host *\n  IdentityFile {key}\n")
    bad = dataclasses.replace(spec, identity=str(key))
    if named == "ssh_config":
        bad = dataclasses.replace(spec, identity=None, ssh_config=str(config))
    text = await refusal(bad)
    assert f"the private key {key} cannot be read" in text
    assert "IdentityFile" in text


async def test_a_known_hosts_file_that_is_none_is_named(spec: HostSpec, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_bytes(b"\xff\xfe\x00junk")
    text = await refusal(dataclasses.replace(spec, known_hosts=str(known)))
    assert f"{known} cannot be read as a known_hosts file" in text
