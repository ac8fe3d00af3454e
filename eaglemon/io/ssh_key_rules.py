"""What else decides about a host's key: ``KnownHostsCommand`` and ``RevokedHostKeys``.

Both as OpenSSH carries them out: the command is asked before a connection for the kinds of keys to
prefer, and again with the key that the host shows; a key is refused where a revocation file has it,
and where that file cannot be read. Everything here blocks.
"""

import base64
import contextlib
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from asyncssh.public_key import (
    SSHOpenSSHCertificate,
    decode_ssh_certificate,
    decode_ssh_public_key,
)

from eaglemon.errors import HostError, HostKeyError
from eaglemon.io.ssh_config import SshConfig
from eaglemon.io.ssh_errors import Target

LIMIT_S = 8.0
"""For KnownHostsCommand, which may ask the network: a command of ours waits longer for a host."""
OUTPUT_MOST = 1 << 20
"""Bytes of known_hosts lines that a command may tell of one host."""
_SAID_MOST = 4096
_KRL_LIMIT_S = 10.0
_KRL = b"SSHKRL\n\x00"
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class _UnusableError(Exception):
    """A command did not end in time or told too much; says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A key that a host shows: what it is called, and what of it can be revoked."""

    kind: str
    blob: bytes
    bare: bytes
    """The key without its certificate."""
    authority: bytes | None
    """The key that signed the certificate, if it is one."""
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRules:
    """What is configured for one host beyond its known_hosts files."""

    config: SshConfig
    target: Target
    command: str
    """KnownHostsCommand as it is written; empty for none."""
    revoked: tuple[str, ...]
    """The files of RevokedHostKeys."""

    def order(self) -> str:
        """Return the known_hosts lines that say which kinds of keys to ask for.

        Raises ``HostError`` where the command fails.
        """
        return self._ask("ORDER", None)

    def judge(self, blob: bytes) -> str:
        """Return the known_hosts lines that are told for the key that a host shows.

        Raises ``HostKeyError`` for a revoked key and where that cannot be found out, ``HostError``
        where the command fails.
        """
        try:
            shown = _shown(blob)
        except asyncssh.KeyImportError as error:
            raise HostKeyError(
                f"{self.target.name}: the host key of {self.target.place} cannot be read: {error}",
                hint="see whether an SSH server answers there",
            ) from error
        for file in self.revoked:
            self._refuse_revoked(file, shown)
        return self._ask("HOSTNAME", shown)

    def _ask(self, reason: str, shown: _Shown | None) -> str:
        if not self.command:
            return ""
        words = shlex.split(self.command)
        tokens = {
            "H": self._known_as(),
            "I": reason,
            "t": shown.kind if shown is not None else "NONE",
            "f": shown.fingerprint if shown is not None else "NONE",
            "K": base64.b64encode(shown.blob).decode() if shown is not None else "NONE",
        }
        given = [
            self.config.expanded(
                _VARIABLE.sub(lambda one: os.environ.get(one[1], ""), word), tokens
            )
            for word in words[1:]
        ]
        name = self.target.name
        try:
            done = _carried_out([words[0], *given])
        except _UnusableError as error:
            raise HostError(
                f"{name}: KnownHostsCommand {words[0]} {error}",
                hint="see what it does and waits for",
            ) from error
        except OSError as error:
            raise HostError(
                f"{name}: KnownHostsCommand {words[0]} cannot be run: {error.strerror}",
                hint="correct it in ~/.ssh/config",
            ) from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            how = f"ended with {done.returncode}" + (f": {said[-1]}" if said else "")
            raise HostError(
                f"{name}: KnownHostsCommand {words[0]} {how}",
                hint=f"see what {self.target.ssh} says",
            )
        return "".join(_usable_lines(done.stdout.decode("utf-8", "replace")))

    def _known_as(self) -> str:
        """Return the host as known_hosts has it."""
        alias, target = self.config.one("hostkeyalias"), self.target
        if alias is not None:
            return alias
        return target.address if target.port == 22 else f"[{target.address}]:{target.port}"

    def _refuse_revoked(self, file: str, shown: _Shown) -> None:
        target = self.target
        try:
            content = Path(file).read_bytes()
            revoked = _in_krl(file, shown) if content.startswith(_KRL) else _in_text(content, shown)
        except OSError as error:
            raise HostKeyError(
                f"{target.name}: the host key of {target.place} cannot be checked: "
                f"RevokedHostKeys {file}: {error.strerror or error}",
                hint="correct RevokedHostKeys in ~/.ssh/config, or that file; "
                "without it ssh trusts no host either",
            ) from error
        if revoked:
            raise HostKeyError(
                f"{target.name}: the host key of {target.place} ({shown.fingerprint}) is REVOKED "
                f"in {file}",
                hint="do not connect; ask who runs the host",
            )


def rules_of(config: SshConfig, target: Target) -> KeyRules | None:
    """Return the rules that are configured for a host beyond its known_hosts; ``None`` for none."""
    command = "" if config.unusable_hosts_command else config.one("knownhostscommand") or ""
    named = config.one("revokedhostkeys")
    whole = str(config.path(named)) if named is not None else ""
    # Later releases take several files; a name with spaces is one of them all the same.
    pieces = [whole] if Path(whole).is_file() else [str(config.path(one)) for one in _words(named)]
    if not command and not pieces:
        return None
    return KeyRules(
        config=config, target=target, command=command, revoked=tuple(filter(None, pieces))
    )


def _words(text: str | None) -> Sequence[str]:
    return text.split() if text is not None else ()


def _shown(blob: bytes) -> _Shown:
    kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")
    key, authority = _opened(blob)
    return _Shown(
        kind=kind,
        blob=blob,
        bare=key.public_data,
        authority=authority,
        fingerprint=key.get_fingerprint(),
    )


def _opened(blob: bytes) -> tuple[asyncssh.SSHKey, bytes | None]:
    """Return the key itself, and the one that signed its certificate."""
    with contextlib.suppress(asyncssh.KeyImportError):
        found = decode_ssh_certificate(blob)
        signer = found.signing_key.public_data if isinstance(found, SSHOpenSSHCertificate) else None
        return found.key, signer
    return decode_ssh_public_key(blob), None


def _in_text(content: bytes, shown: _Shown) -> bool:
    """Whether a list of public keys has the key, or the authority of its certificate."""
    return any(one in {shown.bare, shown.authority} for one in _listed(content))


def _listed(content: bytes) -> Iterator[bytes]:
    """Yield the keys of a list; raises ``OSError`` for a line that is none, where ssh stops too."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        words = line.split()
        if line.lstrip(b" \t").startswith(b"#") or not line.strip(b" \t"):
            continue
        try:
            listed = _shown(base64.b64decode(words[1], validate=True))
        except (IndexError, ValueError, asyncssh.KeyImportError) as error:
            raise OSError(f"line {number} is no key") from error
        if listed.kind.encode() != words[0]:
            raise OSError(f"line {number} is no key of the kind that it names")
        yield listed.bare


def _in_krl(file: str, shown: _Shown) -> bool:
    """Whether a key revocation list has the key; raises ``OSError`` where that is not told."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise OSError("there is no ssh-keygen to read a key revocation list")
    with tempfile.TemporaryDirectory(prefix="eaglemon-") as folder:
        key = Path(folder) / "key.pub"
        key.write_text(f"{shown.kind} {base64.b64encode(shown.blob).decode()}\n", encoding="ascii")
        try:
            done = subprocess.run(
                [program, "-Q", "-f", file, str(key)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_KRL_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError("ssh-keygen -Q did not end in time") from error
    if done.stdout.rstrip().endswith(b"REVOKED"):
        return True
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(said[-1] if said else f"ssh-keygen -Q ended with {done.returncode}")
    return False


def _carried_out(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command until it has ended and closed its output.

    Raises ``_UnusableError`` where it takes longer than ``LIMIT_S`` or tells more than
    ``OUTPUT_MOST``; its process group is killed then, where it has not ended.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            told, said = _read(process, time.monotonic() + LIMIT_S)
        finally:
            # Not yet waited for, so the number is still its own.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, told, said)


def _read(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
    """Return what a process tells, and the end of what it says on stderr, once it has ended."""
    told, said = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((process.stdout, told), (process.stderr, said)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, kept)
        is_open = True
        while True:
            has_ended, left_s = process.poll() is not None, until - time.monotonic()
            if left_s <= 0:
                raise _UnusableError(
                    f"has ended, but what it has started kept its output open for {LIMIT_S:.0f} s"
                    if has_ended
                    else f"did not end within {LIMIT_S:.0f} s"
                )
            # The end of a process is no event: looked for now and then.
            events = selector.select(min(left_s, 0.02 if not is_open else 0.2))
            if has_ended and not is_open and not events:
                return bytes(told), bytes(said)
            for key, _ in events:
                kept, piece = key.data, os.read(key.fd, 1 << 16)
                kept += piece
                if not piece:
                    selector.unregister(key.fileobj)
                    is_open = is_open and kept is not told
            if len(told) > OUTPUT_MOST:
                raise _UnusableError(f"told more than {OUTPUT_MOST >> 20} MiB")
            del said[:-_SAID_MOST]


def _usable_lines(text: str) -> Iterator[str]:
    """Yield the lines that are known_hosts lines: what else a program says does not count."""
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            asyncssh.import_known_hosts(line)
            yield f"{line}\n"
