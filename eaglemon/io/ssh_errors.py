"""What SSH failures mean, in words, with the next step. Imported once asyncssh is in use."""

import base64
import contextlib
import hmac
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from eaglemon.core.hosts import JUMP_WORDS
from eaglemon.core.units import plural
from eaglemon.errors import HostError, HostKeyError
from eaglemon.io.ssh_answers import ANSWERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom a connection is for, with ``~/.ssh/config`` taken into account."""

    name: str
    """As the console calls it."""
    address: str
    port: int
    user: str
    known_as: str = ""
    """The name in known_hosts: the address or HostKeyAlias."""
    known_hosts: tuple[str, ...]
    """Files that exist, else the one where a new key is to be added."""
    keys: tuple[str, ...]
    """Private key files that exist."""
    missing_keys: tuple[str, ...] = ()
    """Configured key files that are not there."""
    unused: tuple[str, ...] = ()
    """What the configuration asks for and is not done here, in words."""
    told_by: str = ""
    """The program of KnownHostsCommand."""
    told: str = ""
    """The known_hosts lines that it has told of the key that the host shows."""
    key_provider: str | None = None
    """The library of PKCS11Provider."""
    asks: bool = True
    """Whether a person may be asked about an unknown key (StrictHostKeyChecking is not yes)."""
    hashes_names: bool = False
    """Whether names are hashed in known_hosts (HashKnownHosts)."""
    agent: str | None = None
    """Socket of the key agent."""
    jumps: tuple[str, ...] = ()
    """Jump hosts on the way, the nearest first."""
    ssh: str
    """The command by which a person would connect, by the name that was asked for."""
    is_direct: bool = True
    """Whether the address is reached as it is, and known by itself: no jump, proxy or alias."""

    @property
    def place(self) -> str:
        """``address:port``."""
        return f"{self.address}:{self.port}"

    @property
    def host(self) -> str:
        """The console's name of the host that this is, or is on the way to."""
        return self.name.partition(JUMP_WORDS)[0]


@dataclass(slots=True)
class Offered:
    """The host key that was refused, if any."""

    key: asyncssh.SSHKey | None = None
    host: str = ""
    address: str = ""
    port: int = 22

    def place(self, *, hashed: bool = False) -> str:
        """Return the host as known_hosts writes it, hashed so that nobody reads its name there."""
        name = self.host if self.port == 22 else f"[{self.host}]:{self.port}"
        if not hashed:
            return name
        salt = os.urandom(20)
        digest = hmac.new(salt, name.encode(), "sha1").digest()
        return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"

    def note(self, host: str, address: str, port: int, key: asyncssh.SSHKey) -> None:
        """Keep a refused key."""
        self.host, self.address, self.port, self.key = host, address, port, key


def explain_connect(
    target: Target, error: Exception, offered: Offered, *, proxy_said: str = ""
) -> HostError:
    """Say why a connection could not be made and what to do; a ProxyCommand has its say."""
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return _explain_key(target, error, offered)
    if isinstance(error, asyncssh.PermissionDenied):
        return _explain_denied(target)
    text = str(error) or type(error).__name__
    if proxy_said and isinstance(error, asyncssh.ConnectionLost | ConnectionError | TimeoutError):
        late = "no answer in time; " if isinstance(error, TimeoutError) else ""
        return HostError(
            f"{target.name}: cannot connect to {target.place}: {late}{proxy_said}",
            hint=f"see what {target.ssh} says",
        )
    return (
        _explain_network(target, error)
        or _explain_settings(target, error)
        or HostError(
            f"{target.name}: cannot connect to {target.place}: {text}", hint=f"try {target.ssh}"
        )
    )


def explain_loss(name: str, error: Exception | None) -> str:
    """Say why a connection that was up has ended."""
    if error is None:
        return f"{name}: the connection was closed"
    text = str(error) or type(error).__name__
    if "keepalive" in text.lower():
        return f"{name}: the host has stopped answering (no keepalive came back)"
    return f"{name}: the connection was lost: {text}"


def find_changed_key(target: Target, offered: Offered) -> str | None:
    """Return where known_hosts has an entry for this host, if none is of the key it offers."""
    found = list(_known_as(target, offered))
    if any(is_offered for _, is_offered in found):
        return None  # It has come in since: another login to this host was faster.
    return found[0][0] if found else None


def is_known_now(target: Target, offered: Offered) -> bool:
    """Tell whether known_hosts has the key that was refused: another login has added it."""
    return any(is_offered for _, is_offered in _known_as(target, offered))


def _known_as(target: Target, offered: Offered) -> Iterator[tuple[str, bool]]:
    """Yield the place of each entry for the host, and whether the offered key is in it."""
    host, address, port = offered.host, offered.address, offered.port
    shown = offered.key.public_data if offered.key is not None else b""
    for file, lines in _entries(target):
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                found = asyncssh.import_known_hosts(line).match(host, address, port)
            except ValueError:
                continue
            # An authority says nothing about a host that shows a key without a certificate.
            if found[0]:
                place = f"{file} line {number}" if file else _teller(target)
                yield place, any(key.public_data == shown for key in found[0])


def find_revoked_key(target: Target) -> str:
    """Return the file that revokes a key of this host, with its line where only one does."""
    port = None if target.port == 22 else target.port
    for file, lines in _entries(target):
        found = []
        for number, line in enumerate(lines, start=1):
            with contextlib.suppress(ValueError):
                # Without its mark: with a port the library looks at trusted keys alone.
                bare = line.removeprefix("@revoked")
                matched = bare != line and asyncssh.match_known_hosts(
                    bare.strip().encode(), target.known_as, "", port
                )
                found += [number] if matched and matched[0] else []
        if found and not file:
            return f"what {_teller(target)} says"
        if found:
            return f"{file} line {found[0]}" if len(found) == 1 else file
    return target.known_hosts[0]


def _entries(target: Target) -> Iterator[tuple[str, list[str]]]:
    """Yield (file, lines) of all that is known about host keys; no file for what was told."""
    for file in target.known_hosts:
        with contextlib.suppress(OSError):
            yield file, Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    yield "", target.told.splitlines()


def _teller(target: Target) -> str:
    return f"KnownHostsCommand {target.told_by}"


def _explain_network(target: Target, error: Exception) -> HostError | None:
    name, place = target.name, target.place
    if isinstance(error, socket.gaierror):
        return HostError(
            f"{name}: no host named {target.address} is known ({error.strerror})",
            hint="correct address in hosts.toml or HostName in ~/.ssh/config",
        )
    if isinstance(error, ConnectionRefusedError):
        return HostError(
            f"{name}: {place} refused the connection",
            hint="see whether sshd runs there and on that port",
        )
    if isinstance(error, TimeoutError) or (
        isinstance(error, asyncssh.ConnectionLost) and "timeout" in str(error).lower()
    ):
        return HostError(
            f"{name}: {place} did not answer in time",
            hint=f"see whether the host is up and reachable: {target.ssh}",
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return HostError(
            f"{name}: the jump host cannot reach {place}: {error.reason}",
            hint="see whether the host is up, as seen from there",
        )
    return None


def _explain_settings(target: Target, error: Exception) -> HostError | None:
    if isinstance(error, PermissionError | FileNotFoundError) and error.filename:
        return HostError(
            f"{target.name}: cannot read {error.filename}: {error.strerror}",
            hint="correct its path or its mode",
        )
    if isinstance(error, asyncssh.ConfigParseError):
        return HostError(
            f"{target.name}: the OpenSSH configuration cannot be read: {error}",
            hint="correct that line",
        )
    if isinstance(error, asyncssh.KeyImportError):
        file = next(filter(_is_no_key, target.keys), "")
        what = f"the private key {file}" if file else "a private key"
        return HostError(
            f"{target.name}: {what} cannot be read: {error}",
            hint="name another file as identity in hosts.toml or IdentityFile in ~/.ssh/config",
        )
    if isinstance(error, ValueError):
        file = next(filter(_is_no_known_hosts, target.known_hosts), "")
        if file:
            return HostError(
                f"{target.name}: {file} cannot be read as a known_hosts file: {error}",
                hint="correct it, or name another one as known_hosts in hosts.toml",
            )
    return None


def _is_no_key(path: str) -> bool:
    try:
        asyncssh.read_private_key(path)
    except asyncssh.KeyEncryptionError:
        return False
    except asyncssh.KeyImportError as error:
        return "passphrase" not in str(error).lower()
    except OSError:
        return False
    return False


def _is_no_known_hosts(path: str) -> bool:
    try:
        asyncssh.read_known_hosts([path])
    except ValueError:
        return True
    except OSError:
        return False
    return False


def _explain_key(
    target: Target, error: asyncssh.HostKeyNotVerifiable, offered: Offered
) -> HostKeyError:
    file = target.known_hosts[0]
    if is_revoked(error):
        where = find_revoked_key(target)
        return HostKeyError(
            f"{target.name}: the host key of {target.place} is REVOKED in {where}",
            hint="do not connect; ask who runs the host",
        )
    if offered.key is None:
        return HostKeyError(
            f"{target.name}: the host key on the way to {target.place} is not trusted: "
            f"{error.reason}",
            hint=f"connect once with {target.ssh}, compare the fingerprint and accept it",
        )
    print_ = f"{offered.key.get_algorithm()} {offered.key.get_fingerprint()}"
    entry = find_changed_key(target, offered)
    if entry is not None:
        return HostKeyError(
            f"{target.name}: the host key of {target.place} has CHANGED: it offers {print_}, "
            f"but {entry} has another; somebody may be in between",
            hint="ask who runs the host; if the change is right, "
            + (
                "correct what that command says"
                if target.told_by and entry == _teller(target)
                else f"remove that line and connect once with {target.ssh}"
            ),
        )
    scan = ""
    if target.is_direct:
        port = "" if offered.port == 22 else f"-p {offered.port} "
        scan = f", or run ssh-keyscan {port}{offered.host} >> {file}"
    return HostKeyError(
        f"{target.name}: the host key of {target.place} is unknown: it offers {print_}, and "
        f"{file} has no entry for it" + (f", nor {_teller(target)}" if target.told_by else ""),
        hint=f"compare the fingerprint, then run eaglemon --accept-new gpus {target.host} once, "
        f"or connect once with {target.ssh}{scan}",
    )


def is_revoked(error: asyncssh.HostKeyNotVerifiable) -> bool:
    """Tell whether known_hosts revokes the key or the authority of its certificate."""
    return "revoked" in error.reason.lower()


def _explain_denied(target: Target) -> HostError:
    # One that a person has unlocked was tried.
    locked = [key for key in target.keys if key not in ANSWERS.unlocked and is_encrypted(key)]
    tried = [key for key in target.keys if key not in locked]
    said = f"keys tried: {', '.join(tried) if tried else 'none but those of the key agent'}"
    hint = f"see that {target.ssh} works without a password (ssh-copy-id, ssh-add)"
    if target.missing_keys:
        said += f"; not there: {', '.join(target.missing_keys)}"
    hardware = [key for key in tried if is_security_key(key)]
    if hardware:
        # Such a key is used through an agent, which asks the device.
        hint = f"run ssh-add {hardware[0]}, so that the key agent asks the security key"
    if locked:
        wrong = [
            f"{key} ({plural(ANSWERS.wrong[key], 'passphrase')} given, none is its)"
            if key in ANSWERS.wrong
            else key
            for key in locked
        ]
        said += f"; left out, because encrypted: {', '.join(wrong)}"
        hint = f"run ssh-add {locked[0]}, so that the key agent has it"
    if target.key_provider is not None:
        hint = (
            f"run ssh-add -s {target.key_provider}, so that the key agent has the keys of that card"
        )
    return HostError(
        f"{target.name}: {target.place} does not let {target.user} in ({said})", hint=hint
    )


def untouched(target: Target, limit_s: float) -> HostError:
    """Say that a login waited for a person in vain."""
    return HostError(
        f"{target.name}: the security key was not touched within {limit_s:.0f} s",
        hint=f"touch it while it blinks; does it blink with {target.ssh}?",
    )


def is_security_key(path: str) -> bool:
    """Tell whether a private key is on hardware: its public half says so."""
    try:
        return Path(f"{path}.pub").read_bytes().startswith(b"sk-")
    except OSError:
        return False


def is_encrypted(path: str) -> bool:
    """Tell whether a private key needs a passphrase."""
    try:
        asyncssh.read_private_key(path)
    except asyncssh.KeyEncryptionError:
        return True
    except asyncssh.KeyImportError as error:
        return "passphrase" in str(error).lower()
    except (OSError, ValueError):
        return False
    return False
