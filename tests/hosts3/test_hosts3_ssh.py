"""SSH as people have it: OpenSSH's configuration, keys and known_hosts, against a real sshd."""

import asyncio
import contextlib
import dataclasses
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from eaglemon.core.hosts import HostQuestion, HostSpec
from eaglemon.errors import HostError, HostKeyError
from eaglemon.io import ssh_login
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.ssh import SshTransport
from eaglemon.io.ssh_answers import ANSWERS
from eaglemon.io.transport import Asker
from tests.sshd import Sshd, sshd

pytestmark = pytest.mark.usefixtures("fresh_memory")


class Person:
    """Answers questions, and remembers them."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[HostQuestion] = []

    async def ask(self, question: HostQuestion) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else None


@asynccontextmanager
async def connected(spec: HostSpec, ask: Asker | None = None) -> AsyncIterator[SshTransport]:
    transport = SshTransport(spec, ask=ask)
    try:
        await transport.connect()
        assert (await transport.run("echo in")).stdout == b"in\n"
        yield transport
    finally:
        await transport.close()


async def reaches(spec: HostSpec, ask: Asker | None = None) -> None:
    async with connected(spec, ask):
        pass


async def refusal(spec: HostSpec, ask: Asker | None = None) -> HostError:
    transport = SshTransport(spec, ask=ask)
    with pytest.raises(HostError) as caught:
        await transport.connect()
    await transport.close()
    return caught.value


def keygen(*arguments: str | Path) -> None:
    subprocess.run(["ssh-keygen", "-q", *map(str, arguments)], check=True, stdin=subprocess.DEVNULL)


def host_block(name: str, server: Sshd, *lines: str, known: Path | None = None) -> str:
    spec = server.spec()
    return (
        "\n  ".join(
            [
                f"Host {name}",
                "HostName 127.0.0.1",
                f"Port {server.port}",
                f"User {spec.user}",
                f"IdentityFile {server.identity}",
                f"UserKnownHostsFile {known or server.known_hosts}",
                *lines,
            ]
        )
        + "\n"
    )


def configured(tmp_path: Path, text: str, name: str = "target") -> HostSpec:
    config = tmp_path / "config"
    config.write_text(text)
    return HostSpec(name=name, ssh_config=str(config))


async def test_several_jump_hosts_are_passed_through(shared: Sshd, tmp_path: Path) -> None:
    text = "".join(host_block(name, shared) for name in ("one", "two", "three"))
    text += host_block("target", shared, "ProxyJump one,two,three")
    before = shared.log.count("Accepted publickey")
    await reaches(configured(tmp_path, text))
    assert shared.log.count("Accepted publickey") == before + 4


async def test_a_jump_host_has_a_jump_host_of_its_own(shared: Sshd, tmp_path: Path) -> None:
    text = host_block("outer", shared) + host_block("inner", shared, "ProxyJump outer")
    text += host_block("target", shared, "ProxyJump inner")
    before = shared.log.count("Accepted publickey")
    await reaches(configured(tmp_path, text))
    assert shared.log.count("Accepted publickey") == before + 3


async def test_jump_hosts_in_a_circle_are_told(shared: Sshd, tmp_path: Path) -> None:
    text = host_block("one", shared, "ProxyJump two") + host_block("two", shared, "ProxyJump one")
    error = await refusal(configured(tmp_path, text, "one"))
    assert "circle" in error.hint


@pytest.mark.parametrize("bad", ["jump", "target"])
async def test_each_hop_is_strict_and_named(shared: Sshd, tmp_path: Path, bad: str) -> None:
    (tmp_path / "empty").touch()
    # "None" is what the library itself takes as "do not check".
    for known in (tmp_path / "empty", Path("none")):
        text = "".join(
            host_block(
                name,
                shared,
                *(["ProxyJump jump"] if name == "target" else []),
                known=known if name == bad else None,
            )
            for name in ("jump", "target")
        )
        error = await refusal(configured(tmp_path, text))
        assert isinstance(error, HostKeyError)
        assert "SHA256:" in error.message
        assert ("jump host jump" in error.message) == (bad == "jump")


async def test_a_proxy_command_is_used(shared: Sshd, tmp_path: Path) -> None:
    program = tmp_path / "through"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import os, socket, sys, threading\n"
        "one = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): one.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := one.recv(65536): os.write(1, data)\n"
    )
    program.chmod(0o755)
    text = host_block("target", shared, f"ProxyCommand {program} %h %p")
    await reaches(configured(tmp_path, text))


async def test_match_blocks_and_includes_count(shared: Sshd, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(
        f"Match host 127.0.0.1\n  IdentityFile {shared.identity}\n  IdentitiesOnly yes\n"
    )
    text = (
        f'Match originalhost gpu-? exec "true"\n  HostName 127.0.0.1\n  Port {shared.port}\n'
        f"Include {tmp_path}/keys\n"
        f"Host *\n  User {shared.spec().user}\n  UserKnownHostsFile {shared.known_hosts}\n"
    )
    await reaches(configured(tmp_path, text, "gpu-1"))


async def test_hashed_names_and_certificate_authorities_are_known(
    shared: Sshd, tmp_path: Path
) -> None:
    hashed = tmp_path / "hashed"
    hashed.write_text(shared.known_hosts.read_text())
    keygen("-H", "-f", hashed)
    assert "127.0.0.1" not in hashed.read_text()
    await reaches(dataclasses.replace(shared.spec(), known_hosts=str(hashed)))


async def test_host_and_user_certificates(tmp_path: Path) -> None:
    folder = tmp_path / "sshd"
    authority = tmp_path / "authority"
    keygen("-t", "ed25519", "-N", "", "-f", authority)
    extra = [
        f"HostCertificate {folder}/host_key-cert.pub",
        f"TrustedUserCAKeys {authority}.pub",
    ]
    key = tmp_path / "user_key"
    keygen("-t", "ed25519", "-N", "", "-f", key)
    async with sshd(folder, extra=extra) as server:
        keygen("-s", authority, "-I", "me", "-n", server.spec().user or "", f"{key}.pub")
        # The key itself is in no file: only its authority is known, and only the user's.
        known = tmp_path / "known_hosts"
        known.write_text(f"@cert-authority * {(tmp_path / 'authority.pub').read_text()}")
        text = host_block("target", server, known=known).replace(str(server.identity), str(key))
        spec = configured(tmp_path, f"{text}  CertificateFile {key}-cert.pub\n")
        await refusal(spec)
        # sshd reads it for each connection.
        keygen("-s", authority, "-h", "-I", "box", "-n", "127.0.0.1", folder / "host_key.pub")
        await reaches(spec)
        assert "CA ED25519" in server.log


async def test_first_contact_is_refused_asked_or_accepted(shared: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "ssh/known_hosts"
    config = host_block("target", shared, known=known)
    spec = configured(tmp_path, config)
    # Nobody to ask: refused, with the fingerprint.
    error = await refusal(spec)
    assert isinstance(error, HostKeyError)
    assert "--accept-new" in error.hint
    assert not known.exists()
    # Declined: refused, and not asked again by the next attempt.
    person = Person(None, "yes")
    await refusal(spec, person.ask)
    await refusal(spec, person.ask)
    (question,) = person.asked
    assert question.kind == "host-key"
    assert not question.is_secret
    assert "SHA256:" in question.detail
    assert str(known) in question.detail


async def test_an_accepted_key_is_written_and_asked_for_once(shared: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "ssh/known_hosts"
    known.parent.mkdir()
    known.write_text("# no end of line")
    spec = configured(tmp_path, host_block("target", shared, known=known))
    person = Person("yes")
    await reaches(spec, person.ask)
    assert known.read_text().startswith("# no end of line\n[127.0.0.1]:")
    await reaches(spec)
    assert len(person.asked) == 1


async def test_a_new_name_is_hashed_where_the_configuration_says_so(
    shared: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    text = host_block("target", shared, "HashKnownHosts yes", known=known)
    spec = configured(tmp_path, text)
    await reaches(spec, Person("yes").ask)
    assert known.read_text().startswith("|1|")
    # ssh itself finds it.
    find = ["ssh-keygen", "-F", f"[127.0.0.1]:{shared.port}", "-f", str(known)]
    assert subprocess.run(find, check=False, stdout=subprocess.DEVNULL).returncode == 0
    await reaches(spec)


async def test_nobody_is_asked_where_the_check_is_strict(shared: Sshd, tmp_path: Path) -> None:
    text = host_block("target", shared, "StrictHostKeyChecking yes", known=tmp_path / "known_hosts")
    person = Person("yes")
    error = await refusal(configured(tmp_path, text), person.ask)
    assert isinstance(error, HostKeyError)
    assert person.asked == []


async def test_accept_new_takes_new_keys_and_never_changed_ones(
    shared: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "ssh/known_hosts"
    text = host_block("jump", shared, known=known)
    text += host_block("target", shared, "ProxyJump jump", known=known)
    spec = dataclasses.replace(configured(tmp_path, text), accept_new=True)
    await reaches(spec)
    assert known.stat().st_mode & 0o777 == 0o600
    assert len(known.read_text().splitlines()) == 1
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    known.write_text(f"[127.0.0.1]:{shared.port} {other}")
    person = Person("yes", "yes")
    error = await refusal(spec, person.ask)
    assert "CHANGED" in error.message
    assert f"{known} line 1" in error.message
    assert person.asked == []
    assert len(known.read_text().splitlines()) == 1


async def test_a_passphrase_is_asked_for_once_and_kept_in_memory(
    shared: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "key"
    key.write_bytes(shared.identity.read_bytes())
    key.chmod(0o600)
    keygen("-p", "-P", "", "-N", "secret words", "-f", key)
    spec = dataclasses.replace(shared.spec(), identity=str(key))
    person = Person("wrong", "secret words")
    await reaches(spec, person.ask)
    first, second = person.asked
    assert first.is_secret
    assert first.text == f"passphrase of {key}"
    assert "that was not it" in second.text
    # A reconnect, and another host, do not ask.
    await reaches(spec, person.ask)
    await reaches(dataclasses.replace(spec, name="other"))
    assert len(person.asked) == 2
    # The configuration's keys too.
    text = host_block("target", shared).replace(str(shared.identity), str(key))
    await reaches(configured(tmp_path, text))


async def test_a_passphrase_that_nobody_knows(
    shared: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "key"
    keygen("-t", "ed25519", "-N", "secret", "-f", key)
    spec = dataclasses.replace(shared.spec(), identity=str(key))
    person = Person(None)
    error = await refusal(spec, person.ask)
    assert f"because encrypted: {key}" in error.message
    await refusal(spec, person.ask)
    assert len(person.asked) == 1
    ANSWERS.ask_again(spec.name)
    error = await refusal(spec, Person("a", "b", "c").ask)
    assert f"because encrypted: {key} (3 passphrases given, none is its)" in error.message


def locked_key(folder: Path, server: Sshd) -> Path:
    """Return the server's key with a passphrase."""
    key = folder / "locked"
    key.write_bytes(server.identity.read_bytes())
    key.chmod(0o600)
    keygen("-p", "-P", "", "-N", "secret words", "-f", key)
    return key


async def test_many_hosts_with_one_key_ask_for_its_passphrase_once(
    shared: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = locked_key(tmp_path, shared)
    specs = [dataclasses.replace(shared.spec(f"box-{n}"), identity=str(key)) for n in range(4)]
    person = Person("wrong", "secret words")
    await asyncio.gather(*(reaches(spec, person.ask) for spec in specs))
    assert len(person.asked) == 2


async def test_many_hosts_behind_an_unknown_key_ask_about_it_once(
    shared: Sshd, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    spec = configured(tmp_path, host_block("target", shared, known=known))
    person = Person("yes")
    specs = [dataclasses.replace(spec, name=f"box-{n}", address="target") for n in range(4)]
    await asyncio.gather(*(reaches(one, person.ask) for one in specs))
    assert len(person.asked) == 1
    assert len(known.read_text().splitlines()) == 1
    # Taken out again, it is not taken as accepted for ever.
    known.unlink()
    again = Person(None)
    assert isinstance(await refusal(specs[0], again.ask), HostKeyError)
    assert len(again.asked) == 1


async def test_what_was_declined_is_asked_again_where_a_person_tries_again(
    shared: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = locked_key(tmp_path, shared)
    one, other = (
        dataclasses.replace(shared.spec(name), identity=str(key)) for name in ("one", "other")
    )
    person = Person(None, "secret words")
    await refusal(one, person.ask)
    await refusal(other, person.ask)  # it did without the answer that nobody gave
    ANSWERS.ask_again("third")
    await refusal(one, person.ask)
    assert len(person.asked) == 1
    ANSWERS.ask_again("other")
    await reaches(other, person.ask)
    assert len(person.asked) == 2


async def test_a_touch_is_asked_for_while_a_security_key_waits(
    shared: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No security key is here: one is only announced by its public half."""
    monkeypatch.setattr(ssh_login, "TOUCH_AFTER_S", 0.0)
    key = tmp_path / "id_ed25519_sk"
    key.write_bytes(shared.identity.read_bytes())
    key.chmod(0o600)
    (tmp_path / "id_ed25519_sk.pub").write_text("sk-ssh-ed25519@openssh.com AAAA me\n")
    told: list[str] = []
    transport = SshTransport(dataclasses.replace(shared.spec(), identity=str(key)))
    transport.tells(told.append)
    await transport.connect()
    await transport.close()
    assert told == ["touch the security key if it blinks"]


async def test_an_agent_is_not_forwarded(shared: Sshd) -> None:
    async with connected(shared.spec()) as transport:
        done = await transport.run('echo "<$SSH_AUTH_SOCK>"')
        assert done.stdout == b"<>\n"


async def test_one_channel_of_the_server_is_enough(tmp_path: Path) -> None:
    """MaxSessions counts commands: the agent is one, and connections through it are none."""
    async with sshd(tmp_path / "sshd", extra=["MaxSessions 1", "MaxStartups 100"]) as server:
        transport = SshTransport(server.spec())
        link = await AgentLink.open(transport, env=server.spec().env)
        try:
            streams = [await transport.open_stream("127.0.0.1", server.port) for _ in range(12)]
            for stream in streams:
                assert (await stream.read(4)).startswith(b"SSH-")
            async with (
                contextlib.aclosing(link.watch_gpus()) as samples,
                contextlib.aclosing(link.watch_runs()) as runs,
            ):
                await anext(samples)
                await anext(runs)
                assert await link.ping() > 0
            for stream in streams:
                await stream.close()
        finally:
            await link.close()
            await transport.close()
