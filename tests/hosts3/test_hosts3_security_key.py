"""Keys on hardware: OpenSSH's own agent and sshd, with the device replaced by software in C."""

import asyncio
import getpass
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError
from eaglemon.io import ssh_login
from eaglemon.io.ssh import SshTransport
from tests.agent.driver import until
from tests.sshd import Sshd, start_sshd

SOURCE = Path(__file__).with_name("soft_key.c")
PROMPT = "touch the security key if it blinks"


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stands for the device and its driver."""
    library = tmp_path_factory.mktemp("device") / "soft_key.so"
    command = ["gcc", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-l:libcrypto.so.3"], check=True)
    return library


@pytest.fixture
def server(tmp_path: Path, device: Path) -> Iterator[Sshd]:
    """A host that lets in only the key of the device."""
    one = start_sshd(tmp_path / "sshd")
    key = tmp_path / "id_sk"
    command = ["ssh-keygen", "-q", "-t", "ed25519-sk", "-w", str(device), "-N", "", "-f", str(key)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (one.folder / "authorized_keys").write_text(Path(f"{key}.pub").read_text())
    yield one
    one.stop()


@pytest.fixture
def finger(
    tmp_path: Path,
    socket_folder: Path,
    device: Path,
    server: Sshd,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """A key agent that holds the key; the file that is made to touch the device."""
    touch, socket = tmp_path / "touch", socket_folder / "agent"
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(socket), "-P", str(device)],
        env={"PATH": os.environ["PATH"], "SK_TOUCH": str(touch)},
        stdout=subprocess.DEVNULL,
    )
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    try:
        until_s = time.monotonic() + 30.0
        while not socket.exists() and time.monotonic() < until_s:
            time.sleep(0.02)
        add = ["ssh-add", "-q", "-S", str(device), str(tmp_path / "id_sk")]
        subprocess.run(add, check=True)
        yield touch
    finally:
        agent.kill()
        agent.wait()


def host(server: Sshd, *lines: str) -> HostSpec:
    config = server.folder / "client_config"
    text = [
        "Host box",
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"User {getpass.getuser()}",
        f"UserKnownHostsFile {server.known_hosts}",
        *lines,
    ]
    config.write_text("\n".join(text) + "\n")
    return HostSpec(name="box", ssh_config=str(config))


def waits(touch: Path) -> bool:
    return Path(f"{touch}.waits").exists()


@pytest.mark.parametrize("named", [True, False], ids=["key file named", "the agent's alone"])
async def test_a_touch_is_asked_for_and_lets_in(
    server: Sshd, finger: Path, named: bool, tmp_path: Path
) -> None:
    lines = [f"IdentityFile {tmp_path / 'id_sk'}", "IdentitiesOnly yes"] if named else []
    if not named:
        (tmp_path / "id_sk").unlink()
        (tmp_path / "id_sk.pub").unlink()
    said: list[str] = []
    at_terminal: list[tuple[str, str]] = []
    transport = SshTransport(
        host(server, *lines), tell=lambda name, text: at_terminal.append((name, text))
    )
    transport.tells(said.append)
    connecting = asyncio.create_task(transport.connect())
    await until(lambda: waits(finger))
    await until(lambda: bool(said))
    assert said == [PROMPT]
    assert at_terminal == [("box", PROMPT)]
    assert not connecting.done()
    finger.touch()
    await connecting
    assert (await transport.run("echo in")).stdout == b"in\n"
    await transport.close()


async def test_nobody_touches_the_key(
    server: Sshd, finger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_login, "TOUCH_LIMIT_S", 6.0)
    transport = SshTransport(host(server))
    with pytest.raises(HostError, match="the security key was not touched within") as caught:
        await transport.connect()
    assert "ssh" in str(caught.value.hint)
    assert waits(finger)


async def test_a_key_that_no_agent_holds_is_told(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    transport = SshTransport(host(server, f"IdentityFile {tmp_path / 'id_sk'}"))
    with pytest.raises(HostError) as caught:
        await transport.connect()
    assert "ssh-add" in str(caught.value.hint)
    assert str(tmp_path / "id_sk") in caught.value.hint
