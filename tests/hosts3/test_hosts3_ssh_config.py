"""``~/.ssh/config`` as OpenSSH reads it: the same files for ``ssh`` and for eaglemon.

``ssh`` itself is the oracle: where it gets in eaglemon does, and where it does not neither does.
"""

import asyncio
import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError
from eaglemon.io.ssh import SshTransport
from eaglemon.io.ssh_config import SshConfig
from eaglemon.io.ssh_target import parse_hop, way_to
from tests.agent.driver import until
from tests.hosts3.test_hosts3_ssh import keygen, reaches, refusal
from tests.sshd import Sshd, start_sshd

REACHING = {
    "plain": "Host target\n  HostName 127.0.0.1\n{login}",
    "a token in HostName": "Host 127-*\nHost 1\n  HostName 127.0.0.%h\n{login}",
    "trailing comments, equals signs and quotes": (
        'Host target # mine\n  HostName = "127.0.0.1" # here\n  ConnectTimeout=1m\n{login}'
    ),
    "negated patterns": (
        "Host * !target\n  HostName 192.0.2.1\nHost target\n  HostName 127.0.0.1\n{login}"
    ),
    "the first value counts": (
        "Host target\n  HostName 127.0.0.1\n{login}Host *\n  HostName 192.0.2.1\n  Port 9\n"
    ),
    "Match host and user": (
        "Host target\n  HostName 127.0.0.1\n  User {user}\n"
        "Match host 127.0.0.1 user {user}\n{login}"
    ),
    "Match originalhost": "Match originalhost tar*\n  HostName 127.0.0.1\n{login}",
    "Match exec with tokens": (
        'Match originalhost target exec "test %n = target -a %p = 22"\n'
        "  HostName 127.0.0.1\n{login}"
        'Match exec "exit 1"\n  User nobody\n'
    ),
    "Match !exec": 'Match originalhost target !exec "false"\n  HostName 127.0.0.1\n{login}',
    "Match final": "Host target\n  HostName 127.0.0.1\nMatch final host 127.0.0.1\n{login}",
    "Include in a block": (
        "Host other\n  Include {folder}/wrong*\nHost target\n  Include {folder}/right*\n"
    ),
    "ProxyCommand for the shell": (
        "Host target\n  HostName 192.0.2.1\n  HostKeyAlias there\n"
        "  ProxyCommand {relay} 2>/dev/null | tee {folder}/%h >&1\n{login}"
    ),
    "ProxyJump none": (
        "Host target\n  ProxyJump none\n  HostName 127.0.0.1\n{login}Host *\n  ProxyJump nowhere\n"
    ),
    "ProxyCommand none": (
        "Host target\n  ProxyCommand none\n  HostName 127.0.0.1\n{login}"
        "Host *\n  ProxyCommand false\n"
    ),
    "tokens in files": (
        "Host target\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n"
        "  IdentityFile {folder}/%n/key_%r\n  UserKnownHostsFile {folder}/%n/known\n"
    ),
    "a key that is not there before one that is": (
        "Host target\n  HostName 127.0.0.1\n  IdentityFile {folder}/absent\n{login}"
    ),
    "words of later and earlier releases": (
        "IgnoreUnknown UseKeychain,AddKeys*\nHost target\n  UseKeychain yes\n  AddKeysToAgent yes\n"
        "  HostName 127.0.0.1\n  Compression yes\n  AddressFamily inet\n  ServerAliveInterval 1m\n"
        "  ControlMaster auto\n  ControlPath /tmp/cm-%C\n  RequestTTY force\n"
        "  SendEnv LC_*\n  SetEnv A=b\n  Ciphers ^aes128-ctr\n  ForwardAgent yes\n{login}"
    ),
}
REFUSED = {
    "a block of another host": "Host other\n  HostName 127.0.0.1\n{login}",
    "a block that is negated": "Host t* !target\n  HostName 127.0.0.1\n{login}",
    "exec that fails": 'Match originalhost target exec "exit 3"\n  HostName 127.0.0.1\n{login}',
    "only the keys that are named": (
        "Host target\n  HostName 127.0.0.1\n  IdentitiesOnly yes\n  IdentityFile {folder}/other\n"
        "  Port {port}\n  User {user}\n  UserKnownHostsFile {folder}/target/known\n"
    ),
    "no public keys": "Host target\n  HostName 127.0.0.1\n  PubkeyAuthentication no\n{login}",
    "an unknown word": "Host target\n  HostName 127.0.0.1\n  NoSuchWord yes\n{login}",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    one = start_sshd(tmp_path_factory.mktemp("sshd"))
    folder = one.folder
    (folder / "target").mkdir()
    key = one.known_hosts.read_text().partition(" ")[2]
    places = f"[127.0.0.1]:{one.port},[target]:{one.port},there"
    (folder / "target" / "known").write_text(f"{places} {key}")
    (folder / "target" / f"key_{getpass.getuser()}").write_bytes(one.identity.read_bytes())
    (folder / "target" / f"key_{getpass.getuser()}").chmod(0o600)
    keygen("-t", "ed25519", "-N", "", "-f", folder / "other")
    (folder / "right").write_text(f"HostName 127.0.0.1\n{login(one)}")
    (folder / "wrong").write_text("HostName 192.0.2.1\nPort 9\n")
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def login(server: Sshd) -> str:
    return (
        f"  Port {server.port}\n  User {server.spec().user}\n  IdentityFile {server.identity}\n"
        f"  UserKnownHostsFile {server.folder / 'target' / 'known'}\n"
    )


def configured(server: Sshd, text: str, folder: Path) -> HostSpec:
    # A relay that every machine has that runs these tests.
    (folder / "relay").write_text(RELAY.format(port=server.port), encoding="utf-8")
    filled = text.format(
        login=login(server),
        user=server.spec().user,
        port=server.port,
        folder=server.folder,
        relay=f"python3 {folder / 'relay'}",
    )
    config = folder / "config"
    config.write_text(filled, encoding="utf-8")
    return HostSpec(name="1" if "\nHost 1\n" in text else "target", ssh_config=str(config))


RELAY = """\
import os, socket, threading
there = socket.create_connection(("127.0.0.1", {port}))
def up():
    while data := os.read(0, 65536):
        there.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""


async def ssh_reaches(spec: HostSpec) -> bool:
    process = await asyncio.create_subprocess_exec(
        *("ssh", "-F", str(spec.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=60"),
        *("-o", "ControlMaster=no", "-T", spec.name, "echo in"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return out == b"in\n"


@pytest.mark.parametrize("name", REACHING)
async def test_where_ssh_gets_in_eaglemon_does(server: Sshd, name: str, tmp_path: Path) -> None:
    spec = configured(server, REACHING[name], tmp_path)
    reached, _ = await asyncio.gather(ssh_reaches(spec), reaches(spec))
    assert reached


@pytest.mark.parametrize("name", REFUSED)
async def test_where_ssh_does_not_get_in_eaglemon_does_not(
    server: Sshd, name: str, tmp_path: Path
) -> None:
    spec = configured(server, REFUSED[name], tmp_path)
    assert not await ssh_reaches(spec)
    transport = SshTransport(spec)
    with pytest.raises(HostError) as caught:
        await transport.connect()
    await transport.close()
    if name == "an unknown word":
        assert "line 3: Bad configuration option: nosuchword" in caught.value.message


async def test_a_key_of_the_agent_is_named_by_its_public_half(
    server: Sshd, tmp_path: Path, socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = socket_folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        await until(socket.exists)
        env = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        # More keys than sshd lets a client try.
        for number in range(7):
            keygen("-t", "ed25519", "-N", "", "-f", tmp_path / f"k{number}")
            subprocess.run(["ssh-add", "-q", tmp_path / f"k{number}"], env=env, check=True)
        subprocess.run(["ssh-add", "-q", server.identity], env=env, check=True)
        public = tmp_path / "mine.pub"
        public.write_bytes(Path(f"{server.identity}.pub").read_bytes())
        base = f"Host target\n  HostName 127.0.0.1\n  IdentityAgent {socket}\n"
        text = base + f"  IdentitiesOnly yes\n  IdentityFile {public}\n{{login}}"
        known = text.replace("{login}", login(server).replace(str(server.identity), str(public)))
        spec = configured(server, known, tmp_path)
        assert await ssh_reaches(spec)
        await reaches(spec)
    finally:
        agent.kill()
        agent.wait()


def test_what_is_not_used_is_told(server: Sshd, tmp_path: Path) -> None:
    text = (
        "Host target\n  HostName 127.0.0.1\n  RemoteCommand tmux\n  KnownHostsCommand /bin/keys\n"
        "  StrictHostKeyChecking no\n  LocalForward 8080 localhost:80\n{login}"
    )
    assert way_to(configured(server, text, tmp_path), "target").target.unused == (
        "RemoteCommand",
        "LocalForward",
        "KnownHostsCommand: there is no /bin/keys, so ssh skips it too",
        "StrictHostKeyChecking no: host keys are always checked",
    )
    plain = configured(server, REACHING["plain"], tmp_path)
    assert way_to(plain, "target").target.unused == ()


def test_settings_reach_the_library(server: Sshd, tmp_path: Path) -> None:
    way = way_to(
        configured(server, REACHING["words of later and earlier releases"], tmp_path), "target"
    )
    options = asyncssh.SSHClientConnectionOptions(host=way.target.address, **way.options)
    assert options.encryption_algs[0] == b"aes128-ctr"
    assert b"zlib" in options.compression_algs
    assert options.env == {"A": "b"}
    assert list(options.send_env or ()) == ["LC_*"]
    assert options.keepalive_interval == 5  # ours: a half-open link is noticed within 15 s
    assert options.agent_forward_path == ""  # asked for, and there is no agent here
    assert not way.options["request_pty"]


def test_tokens() -> None:
    values = {"host": ("gpu",), "hostname": ("10.0.0.7",), "port": ("2222",), "user": ("me",)}
    config = SshConfig(values=values)
    assert config.expanded("nc %h %p %% %r %n") == "nc 10.0.0.7 2222 % me gpu"
    assert config.path("~/%n") == Path.home() / "gpu"


async def test_a_user_without_a_name_is_told_what_ssh_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object) -> None:
        raise KeyError("uid not found: 12345")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(HostError, match="this computer knows no user"):
        SshConfig(values={}).expanded("~/keys/%u")
    assert SshConfig(values={}).expanded("~/keys/%p") == "~/keys/22"
    # As OpenSSH has it, which looks for the same line.
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho No user exists for uid 12345 >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match=r"No user exists for uid 12345; .*line in /etc/passwd"):
        await SshTransport(HostSpec(name="target")).connect()


async def test_an_ssh_that_cannot_be_run_and_a_key_file_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_bytes(b"\x7fELF for another machine")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match=r"cannot run .*ssh: Exec format error"):
        await SshTransport(HostSpec(name="target")).connect()

    def broken(*_: object) -> None:
        raise OSError("keys: input/output error")

    monkeypatch.setattr("eaglemon.io.ssh_login.way_to", broken)
    with pytest.raises(HostError, match="target: how to reach it cannot be read: keys: input"):
        await SshTransport(HostSpec(name="target")).connect()


async def test_a_system_without_ssh_reads_what_asyncssh_reads(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = configured(server, REACHING["plain"], tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    transport = SshTransport(spec)
    await transport.connect()
    assert "there is no ssh here" in transport.unused_settings[0]
    await transport.close()
    # What a ProxyCommand says on stderr is none of the connection's data, and is told.
    through = tmp_path / "through"
    talks = REACHING["plain"] + f"  ProxyCommand {through}\n"
    spec = configured(server, talks, tmp_path)
    through.write_text(f"#!/bin/sh\necho talk >&2\nexec {sys.executable} {tmp_path}/relay\n")
    through.chmod(0o755)
    await reaches(spec)
    through.write_text("#!/bin/sh\necho talk >&2\nexit 5\n")
    error = await refusal(spec)
    assert "ProxyCommand ended with 5: talk" in error.message


@pytest.mark.parametrize(
    ("hop", "wanted"),
    [
        ("gw", (None, "gw", None)),
        ("me@gw:2222", ("me", "gw", 2222)),
        ("me@corp@gw", ("me@corp", "gw", None)),
        ("[fe80::1%eth0]:22", (None, "fe80::1%eth0", 22)),
        ("me@[::1]", ("me", "::1", None)),
        ("fe80::1", (None, "fe80::1", None)),
    ],
)
def test_jump_hosts(hop: str, wanted: tuple[str | None, str, int | None]) -> None:
    assert parse_hop(hop) == wanted
