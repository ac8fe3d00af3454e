"""``KnownHostsCommand`` and ``RevokedHostKeys``: what ``ssh`` makes of them, eaglemon does."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError, HostKeyError
from eaglemon.io import ssh_key_rules
from eaglemon.io.ssh_config import SshConfig
from eaglemon.io.ssh_errors import Target
from eaglemon.io.ssh_key_rules import LIMIT_S, KeyRules
from tests.hosts3.test_hosts3_ssh import Person, configured, host_block, keygen, reaches, refusal
from tests.hosts3.test_hosts3_ssh_config import ssh_reaches
from tests.sshd import Sshd, start_sshd

pytestmark = pytest.mark.usefixtures("fresh_memory")

# Programs for KnownHostsCommand. KEY is the host's own, in its file.
PROGRAMS = {
    "tells": 'echo "no line of the kind"; echo "$1 $(cat KEY)"',
    # Only what was asked about, and only if each token is what it is to be.
    "checks": (
        'test "$1" = HOSTNAME && test "$4" = "$(ssh-keygen -lf KEY | cut -d" " -f2)" || exit 0\n'
        'test "$5" = "100%" && test "$6" = "a b" && echo "$2 ${3%% *} ${3#* }"'
    ),
    "orders": 'test "$1" = HOSTNAME || echo "$2 $(cat KEY)"',
    "certifies": 'echo "@cert-authority $1 $(cat AUTHORITY)"',
    "mistakes": 'echo "$1 $(cat STRANGER)"',
    "revokes": 'echo "@revoked $1 $(cat KEY)"',
    "fails": 'echo "$1 $(cat KEY)"; echo no such database >&2; exit 3',
    "says_nothing": "exit 0",
    "warns": 'echo "$1 $(cat KEY)"; exec >&-; sleep 0.1; echo this takes a while >&2',
}
# Which server, what its known_hosts has, what is configured.
REACHING = {
    "a command that knows the host": ("plain", "nothing", "KnownHostsCommand {folder}/tells %H"),
    "a command that is told of the key": (
        "plain",
        "nothing",
        'KnownHostsCommand {folder}/checks %I %H "%t %K" %f 100%% "a b"',
    ),
    "a command that knows the authority": (
        "signed",
        "nothing",
        "KnownHostsCommand {folder}/certifies %H",
    ),
    "a command that knows nothing": ("plain", "its key", "KnownHostsCommand {folder}/says_nothing"),
    "a command that is none": ("plain", "its key", "KnownHostsCommand fails"),
    "a command that closes its output early": (
        "plain",
        "nothing",
        "KnownHostsCommand {folder}/warns %H",
    ),
    "a list with comments and blank lines": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/commented",
    ),
    "another key is revoked": ("plain", "its key", "RevokedHostKeys {folder}/stranger.pub"),
    "another key is revoked in a list": ("plain", "its key", "RevokedHostKeys {folder}/strangers"),
    "both": (
        "plain",
        "nothing",
        "KnownHostsCommand {folder}/tells %H\n  RevokedHostKeys {folder}/strangers",
    ),
}
REFUSED = {
    "a command that fails": (
        "plain",
        "its key",
        "KnownHostsCommand {folder}/fails %H",
        "fails ended with 3: no such database",
    ),
    "a command that knows another key": (
        "plain",
        "nothing",
        "KnownHostsCommand {folder}/mistakes %H",
        "has CHANGED: it offers ssh-ed25519 SHA256:",
    ),
    "a command that revokes the key": (
        "plain",
        "its key",
        "KnownHostsCommand {folder}/revokes %H",
        "is REVOKED in what KnownHostsCommand",
    ),
    "a command that tells the key when asked for kinds": (
        "plain",
        "nothing",
        "KnownHostsCommand {folder}/orders %I %H",
        "is unknown",
    ),
    "the key is revoked": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/plain/host_key.pub",
        "is REVOKED in ",
    ),
    "the key is revoked in a list": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/list_of_keys",
        "is REVOKED in ",
    ),
    "the certificate is revoked in a list": (
        "signed",
        "its authority",
        "RevokedHostKeys {folder}/list_of_serials",
        "is REVOKED in ",
    ),
    "the authority is revoked": (
        "signed",
        "its authority",
        "RevokedHostKeys {folder}/authority.pub",
        "is REVOKED in ",
    ),
    "there is no such file": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/absent",
        "cannot be checked: RevokedHostKeys ",
    ),
    "a list of keys with a line that is none": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/garbage",
        "garbage: line 3 is no key",
    ),
    "a list of keys with half a key": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/cut",
        "cut: line 1 is no key",
    ),
    "a list of keys with a key of another kind": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/mislabelled",
        "line 1 is no key of the kind that it names",
    ),
    "a list of keys with an end of line of another system": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/carriage",
        "line 1 is no key",
    ),
    "a list that cannot be read": (
        "plain",
        "its key",
        "RevokedHostKeys {folder}/broken",
        "cannot be checked: RevokedHostKeys ",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """An sshd, one whose key an authority has signed, and the files that the cases name."""

    plain: Sshd
    signed: Sshd
    folder: Path

    def block(self, name: str, which: str, known: str, *lines: str) -> str:
        """Return the configuration of a host, ``known`` to known_hosts."""
        server = self.plain if which == "plain" else self.signed
        files = {"its key": server.known_hosts, "its authority": self.folder / "authorities"}
        return host_block(name, server, *lines, known=files.get(known, self.folder / "nothing"))

    def spec(self, folder: Path, which: str, known: str, line: str) -> HostSpec:
        """Return a host that is configured in ``folder``."""
        text = self.block("target", which, known, line.format(folder=self.folder))
        return configured(folder, text)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("rules")
    for name in ("authority", "stranger"):
        keygen("-t", "ed25519", "-N", "", "-f", folder / name)
    certificate = folder / "signed" / "host_key-cert.pub"
    plain = start_sshd(folder / "plain")
    try:
        signed = start_sshd(folder / "signed", extra=[f"HostCertificate {certificate}"])
        try:
            # sshd reads it for each connection.
            sign = ("-s", folder / "authority", "-h", "-I", "box", "-n", "127.0.0.1", "-z", "7")
            keygen(*sign, folder / "signed" / "host_key.pub")
            fill(folder)
            yield Servers(plain=plain, signed=signed, folder=folder)
        finally:
            signed.stop()
    finally:
        plain.stop()


def fill(folder: Path) -> None:
    """Write the programs and the lists of revoked keys."""
    places = {
        "KEY": folder / "plain" / "host_key.pub",
        "AUTHORITY": folder / "authority.pub",
        "STRANGER": folder / "stranger.pub",
    }
    for name, text in PROGRAMS.items():
        filled = text
        for word, place in places.items():
            filled = filled.replace(word, str(place))
        (folder / name).write_text(f"#!/bin/sh\n{filled}\n")
        (folder / name).chmod(0o755)
    keygen("-k", "-f", folder / "strangers", folder / "stranger.pub")
    keygen("-k", "-f", folder / "list_of_keys", folder / "plain" / "host_key.pub")
    (folder / "serials").write_text("serial: 7\n")
    krl = ("-k", "-f", folder / "list_of_serials", "-s", folder / "authority.pub")
    keygen(*krl, folder / "serials")
    (folder / "broken").write_bytes((folder / "strangers").read_bytes()[:20])
    line = (folder / "stranger.pub").read_bytes()
    (folder / "commented").write_bytes(b"# ours\n\n \t# more\n  " + line + b" \t\n" + line.rstrip())
    (folder / "garbage").write_bytes(b"# ours\n" + line + b"garbage \x00\xff line\n")
    (folder / "cut").write_bytes(line[:50] + b"\n" + line)
    (folder / "mislabelled").write_bytes(line.replace(b"ssh-ed25519", b"ssh-rsa", 1))
    (folder / "carriage").write_bytes(b"\r\n" + line)
    (folder / "authorities").write_text(f"@cert-authority * {places['AUTHORITY'].read_text()}")
    (folder / "nothing").touch()


@pytest.mark.parametrize("name", REACHING)
async def test_where_ssh_trusts_the_key_eaglemon_does(
    servers: Servers, name: str, tmp_path: Path
) -> None:
    spec = servers.spec(tmp_path, *REACHING[name])
    reached, _ = await asyncio.gather(ssh_reaches(spec), reaches(spec))
    assert reached


@pytest.mark.parametrize("name", REFUSED)
async def test_where_ssh_does_not_trust_the_key_eaglemon_does_not(
    servers: Servers, name: str, tmp_path: Path
) -> None:
    which, known, line, words = REFUSED[name]
    spec = servers.spec(tmp_path, which, known, line)
    # Where the key is unknown ssh would ask, and only then.
    person = Person("yes") if words != "is unknown" else Person()
    reached, error = await asyncio.gather(ssh_reaches(spec), refusal(spec, person.ask))
    assert not reached
    assert words in error.message
    assert len(person.asked) == (words == "is unknown")


async def test_a_jump_host_has_rules_of_its_own(servers: Servers, tmp_path: Path) -> None:
    revoked = f"RevokedHostKeys {servers.folder}/list_of_keys"
    text = servers.block("jump", "plain", "its key", revoked)
    text += servers.block("target", "signed", "its key", "ProxyJump jump")
    spec = configured(tmp_path, text)
    error = await refusal(spec)
    assert isinstance(error, HostKeyError)
    assert error.message.startswith("target (jump host jump): the host key of 127.0.0.1:")
    assert not await ssh_reaches(spec)


# What a command does that is not waited for, and what is said of it.
UNUSABLE = {
    "hangs": ("exec sleep 600", "did not end within 1 s"),
    "leaves a daemon": ("sleep 600 & exit 0", "what it has started kept its output open for 1 s"),
    "tells without end": ("exec yes", "told more than 1 MiB"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_command_that_is_not_waited_for_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does, words = UNUSABLE[name]
    monkeypatch.setattr(ssh_key_rules, "LIMIT_S", LIMIT_S if "MiB" in words else 1.0)
    program, pid = tmp_path / "program", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\n{does.replace('& ', f'& echo $! >{pid}; ')}\n")
    program.chmod(0o755)
    rules = KeyRules(
        config=SshConfig(values={}),
        target=Target(
            name="box", address="a", port=22, user="u", known_hosts=(), keys=(), ssh="ssh box"
        ),
        command=f"{program} %H",
        revoked=(),
    )
    try:
        with pytest.raises(HostError, match=words) as found:
            rules.order()
    finally:
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)
    assert found.value.message.startswith(f"box: KnownHostsCommand {program} ")


def test_what_of_it_ssh_leaves_out_is_told() -> None:
    values = {"knownhostscommand": ("keys %H",), "pkcs11provider": ("/usr/lib/card.so",)}
    assert SshConfig(values=values).unused == (
        "PKCS11Provider: run ssh-add -s /usr/lib/card.so, and the key agent has its keys",
        "KnownHostsCommand: its path is not absolute, so ssh skips it too",
    )
    for command, why in (("/no/such %H", "there is no /no/such"), ('/bin/a "', "its quotes do")):
        values = {"knownhostscommand": (command,)}
        assert SshConfig(values=values).unusable_hosts_command.startswith(why)
