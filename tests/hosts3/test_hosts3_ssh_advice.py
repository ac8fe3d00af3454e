"""What a refused login advises: commands that work, a proxy's own words, and no way round a key."""

import asyncio
import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec, beside_name, of_host
from eaglemon.errors import HostError, HostKeyError
from eaglemon.io import ssh_login
from eaglemon.io.ssh import SshTransport
from eaglemon.io.ssh_config import command_of
from tests.hosts3.test_hosts3_ssh import (
    Person,
    configured,
    host_block,
    keygen,
    reaches,
    refusal,
)
from tests.sshd import Sshd, sshd

pytestmark = pytest.mark.usefixtures("fresh_memory")


@pytest.mark.parametrize(
    ("way", "bad", "command"),
    [
        ("ProxyJump jump", "target", "target"),
        ("ProxyJump jump", "jump", "jump"),
        ("HostKeyAlias other", "target", "target"),
        ("ProxyCommand {relay} %h %p", "target", "target"),
        ("ProxyJump jump,user@jump:{port}", "jump", "jump"),
    ],
)
async def test_the_advice_names_what_was_asked_for(
    shared: Sshd, tmp_path: Path, way: str, bad: str, command: str
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    said = way.format(relay=relay(tmp_path), port=shared.port)
    text = host_block("jump", shared, known=empty if bad == "jump" else None)
    text += host_block("target", shared, said, known=empty if bad == "target" else None)
    error = await refusal(configured(tmp_path, text))
    assert f"or connect once with ssh -F {tmp_path}/config {command}," in f"{error.hint},"
    assert ("ssh-keyscan" in error.hint) == (bad == "jump")
    assert "run eaglemon --accept-new gpus target once" in error.hint


async def test_the_advised_command_logs_in(shared: Sshd, tmp_path: Path) -> None:
    locked = dataclasses.replace(shared.spec(), identity=str(tmp_path / "other key"))
    keygen("-t", "ed25519", "-N", "", "-f", tmp_path / "other key")
    error = await refusal(locked)
    words = error.hint.partition("see that ")[2].partition(" works")[0]
    right = words.replace(shlex.quote(f"{tmp_path}/other key"), str(shared.identity))
    asked = [*shlex.split(right), "echo", "in"]
    done = await asyncio.to_thread(
        subprocess.run, asked, check=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    assert done.stdout == b"in\n"


def relay(tmp_path: Path, says: str = "") -> Path:
    program = tmp_path / "relay"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, socket, sys, threading\n"
        f"sys.stderr.write({says!r}); sys.stderr.flush()\n"
        "one = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): one.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := one.recv(65536): os.write(1, data)\n"
    )
    program.chmod(0o755)
    return program


async def test_a_proxy_that_fails_is_quoted(shared: Sshd, tmp_path: Path) -> None:
    program = tmp_path / "proxy"
    program.write_text("#!/bin/sh\necho noise >&2\necho 'proxy says: no route' >&2\nexit 255\n")
    program.chmod(0o755)
    text = host_block("target", shared, f"ProxyCommand {program} %h")
    error = await refusal(configured(tmp_path, text))
    assert "ProxyCommand ended with 255: noise / proxy says: no route" in error.message


async def test_a_proxy_that_talks_hides_no_other_reason(
    shared: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talker = relay(tmp_path, says="relay 7\n")
    (tmp_path / "broken").write_text("no key")
    text = host_block("target", shared, f"ProxyCommand {talker} %h %p")
    broken = text.replace(str(shared.identity), str(tmp_path / "broken"))
    assert "broken cannot be read" in (await refusal(configured(tmp_path, broken))).message
    waits = host_block(
        "target", shared, "ConnectTimeout 1", "ProxyCommand sh -c 'echo hm >&2; exec sleep 60'"
    )
    monkeypatch.setattr(ssh_login, "CONNECT_LIMIT_S", 1.0)
    error = await refusal(configured(tmp_path, waits))
    assert "no answer in time; ProxyCommand says: hm" in error.message


async def test_a_proxy_may_talk_and_does_not_stay(shared: Sshd, tmp_path: Path) -> None:
    # As much as a pipe holds, and more: what nobody read would stop it.
    talker = relay(tmp_path, says="x" * 200_000 + "\n")
    text = host_block("target", shared, f"ProxyCommand {talker} %h %p")
    await reaches(configured(tmp_path, text))
    left = subprocess.run(["pgrep", "-f", str(talker)], check=False, capture_output=True)
    assert left.stdout == b""


async def test_a_lost_connection_quotes_its_proxy(shared: Sshd, tmp_path: Path) -> None:
    talker = relay(tmp_path, says="relay 7\n")
    transport = SshTransport(
        configured(tmp_path, host_block("target", shared, f"ProxyCommand {talker} %h %p"))
    )
    await transport.connect()
    try:
        shared.cut()
        assert "relay 7" in await transport.wait_closed()
    finally:
        await transport.close()


async def test_a_certificate_of_an_unknown_authority_is_the_key_itself(tmp_path: Path) -> None:
    authority, folder = tmp_path / "authority", tmp_path / "sshd"
    keygen("-t", "ed25519", "-N", "", "-f", authority)
    extra = [f"HostCertificate {folder}/host_key-cert.pub"]
    async with sshd(folder, extra=extra) as server:
        # For another name, so that it proves nothing even where the authority is known.
        keygen("-s", authority, "-h", "-I", "box", "-n", "elsewhere", folder / "host_key.pub")
        plain = server.known_hosts.read_text()
        trusted = f"@cert-authority * {Path(f'{authority}.pub').read_text()}"
        known = tmp_path / "known_hosts"
        spec = configured(tmp_path, host_block("target", server, known=known))
        for before in ("", trusted):
            known.write_text(before)
            error = await refusal(spec)
            assert "is unknown: it offers ssh-ed25519 SHA256:" in error.message
            person = Person("yes")
            await reaches(spec, person.ask)
            assert person.asked[0].kind == "host-key"
            assert known.read_text() == before + plain
            await reaches(spec)
        known.write_text(trusted + plain.replace(plain.split()[2], OTHER_KEY))
        assert "CHANGED" in (await refusal(spec, Person("yes").ask)).message


OTHER_KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


async def test_a_host_without_certificate_is_reached_beside_an_authority(
    shared: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"@cert-authority * {(shared.folder / 'client_key.pub').read_text()}")
    spec = configured(tmp_path, host_block("target", shared, known=known))
    await reaches(spec, Person("yes").ask)
    await reaches(spec)


async def test_a_revoked_key_is_not_to_be_accepted(shared: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    place, *key = shared.known_hosts.read_text().split()
    known.write_text(f"# keys\n{place} {' '.join(key)}\n@revoked * {' '.join(key)}\n")
    spec = dataclasses.replace(
        configured(tmp_path, host_block("target", shared, known=known)), accept_new=True
    )
    error = await refusal(spec, Person("yes").ask)
    assert isinstance(error, HostKeyError)
    assert f"REVOKED in {known} line 3" in error.message
    assert error.hint == "do not connect; ask who runs the host"


async def test_the_name_of_a_host_is_said_once(shared: Sshd, tmp_path: Path) -> None:
    text = host_block("b1", shared, "Port 1").replace(f"Port {shared.port}\n", "")
    text += host_block("target", shared, "ProxyJump b1")
    error: HostError = await refusal(configured(tmp_path, text))
    assert of_host("target", str(error)).startswith("target: jump host b1: 127.0.0.1:1 refused")
    assert beside_name("target", "target: why") == "why"
    assert of_host("target", "why") == "target: why"


def test_a_spec_of_its_own_is_told_whole() -> None:
    spec = HostSpec(name="a", user="me", port=22, ssh_config="", known_hosts="/k h", identity="~/i")
    asked = "ssh -F none -i '~/i' -o 'UserKnownHostsFile=/k h' -p 22 me@10.0.0.1"
    assert command_of(spec, "10.0.0.1") == asked
