"""What else decides about a host's key: ``KnownHostsCommand`` and ``RevokedHostKeys``.

Both as OpenSSH carries them out: the command is asked before a connection for the kinds of keys to
prefer, and again with the key that the host shows; a key is refused where a revocation file has it,
and where that file cannot be read. Everything here blocks.
"""

import base64
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
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

LIMIT_S = 20.0
"""For KnownHostsCommand, which may ask the network."""
_KRL_LIMIT_S = 10.0
_KRL = b"SSHKRL\n\x00"
_VARIABLE = re.compile(r"\$\{(\w+)\}")


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
            done = subprocess.run(
                [words[0], *given],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"{name}: KnownHostsCommand {words[0]} did not end within {LIMIT_S:.0f} s",
                hint="see what it waits for",
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
    for line in content.splitlines():
        words = line.split()
        if len(words) >= 2 and not words[0].startswith(b"#"):
            # Lines that are no keys are passed over, as ssh does.
            with contextlib.suppress(ValueError, asyncssh.KeyImportError):
                yield _shown(base64.b64decode(words[1])).bare


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


def _usable_lines(text: str) -> Iterator[str]:
    """Yield the lines that are known_hosts lines: what else a program says does not count."""
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            asyncssh.import_known_hosts(line)
            yield f"{line}\n"
