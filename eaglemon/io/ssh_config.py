"""What OpenSSH's own client makes of its configuration: ``ssh -G`` is asked, nothing is guessed.

So every keyword, token and Match rule counts as for ``ssh``, on the way to jump hosts too. What
asyncssh cannot do is named (``unused``).
"""

import functools
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError

LIMIT_S = 20.0
"""``Match exec`` and CanonicalizeHostname may ask the network."""
_NAMELESS = "ssh needs a line in /etc/passwd for whoever runs it: in a container, give its user one"
_NOTHING = frozenset({"", "none", "no", "false"})
_UNUSED = {
    "remotecommand": "RemoteCommand",
    "verifyhostkeydns": "VerifyHostKeyDNS: known_hosts alone counts",
    "hostbasedauthentication": "HostbasedAuthentication",
    "localcommand": "LocalCommand",
    "localforward": "LocalForward",
    "remoteforward": "RemoteForward",
    "dynamicforward": "DynamicForward",
    "tunnel": "Tunnel",
}
"""Keywords that change what ``ssh`` would do and are not used here."""
_LAX = frozenset({"no", "off", "false", "accept-new"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SshConfig:
    """The configuration of one host, all rules applied."""

    values: Mapping[str, Sequence[str]]
    """Keyword in lower case to its values, as ``ssh -G`` prints them."""
    defaults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The same for a host that nothing is configured for."""

    def one(self, keyword: str) -> str | None:
        """Return the value of a keyword, ``None`` where it says nothing."""
        found = self.values.get(keyword, ())
        return None if not found or found[0].lower() in _NOTHING else found[0]

    def configured(self, keyword: str) -> Sequence[str]:
        """Return the values of a keyword that are not ssh's own defaults."""
        found = self.values.get(keyword, ())
        return () if found == self.defaults.get(keyword, ()) else found

    def switch(self, keyword: str) -> bool:
        """Return a keyword of yes and no."""
        return self.one(keyword) is not None

    def path(self, text: str) -> Path:
        """Return the file that a value names, with tokens, ``~`` and ``${NAME}`` replaced."""
        return Path(os.path.expandvars(self.expanded(text))).expanduser()

    def expanded(self, text: str, more: Mapping[str, str] | None = None) -> str:
        """Replace the tokens of ssh_config(5) in a value; ``more`` are those of one keyword."""
        name = socket.gethostname()
        tokens = {
            **(more or {}),
            "%": "%",
            "d": str(Path.home()),
            "h": self.one("hostname") or "",
            "i": _uid(),
            "j": self.one("proxyjump") or "",
            "k": self.one("hostkeyalias") or self.one("host") or self.one("hostname") or "",
            "L": name.partition(".")[0],
            "l": name,
            "n": self.one("host") or "",
            "p": self.one("port") or "22",
            "r": self.one("user") or "",
            "u": user_name() if "%u" in text else "",
        }
        pieces = text.split("%")
        out, place = [pieces[0]], 1
        while place < len(pieces):
            piece = pieces[place]
            if not piece and place + 1 < len(pieces):
                out.append("%" + pieces[place + 1])
                place += 2
                continue
            out.append(tokens.get(piece[:1], "%" + piece[:1]) + piece[1:])
            place += 1
        return "".join(out)

    @property
    def unused(self) -> tuple[str, ...]:
        """What is configured and not done, in words."""
        found = [text for keyword, text in _UNUSED.items() if self._says(keyword)]
        if (provider := self.key_provider) is not None:
            found.append(
                f"PKCS11Provider: run ssh-add -s {provider}, and the key agent has its keys"
            )
        if self.unusable_hosts_command:
            found.append(f"KnownHostsCommand: {self.unusable_hosts_command}, so ssh skips it too")
        checking = self.values.get("stricthostkeychecking", ("ask",))[0].lower()
        if checking in _LAX:
            word = "no" if checking == "false" else checking
            found.append(f"StrictHostKeyChecking {word}: host keys are always checked")
        return tuple(found)

    @property
    def key_provider(self) -> str | None:
        """The library of PKCS11Provider, whose keys only a key agent can use here."""
        named = self.one("pkcs11provider")
        return shlex.quote(str(self.path(named))) if named is not None else None

    @property
    def unusable_hosts_command(self) -> str:
        """Why KnownHostsCommand is one that ssh does not run; empty where it does, or for none."""
        command = self.one("knownhostscommand")
        if command is None:
            return ""
        try:
            words = shlex.split(command)
        except ValueError:
            return "its quotes do not match"
        if not words or not words[0].startswith("/"):
            return "its path is not absolute"
        return "" if Path(words[0]).exists() else f"there is no {words[0]}"

    def _says(self, keyword: str) -> bool:
        values = self.configured(keyword)
        if keyword == "localcommand" and not self.switch("permitlocalcommand"):
            return False
        return any(value.lower() not in _NOTHING for value in values)


def user_name() -> str:
    """Return who runs this program; raises ``HostError`` for a uid that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise HostError(f"this computer knows no user {_uid()}", hint=_NAMELESS) from error


def read_ssh_config(spec: HostSpec, address: str) -> SshConfig | None:
    """Return what ``ssh`` would do to reach ``address``; ``None`` where there is no ``ssh``.

    Runs what ``Match exec`` names. Raises ``HostError`` with ssh's words for a mistake.
    """
    program = shutil.which("ssh")
    if program is None:
        return None
    words = [*_file_option(spec), *_given(spec)]
    done = _ask(program, [*words, "--", address])
    if done is None:
        raise HostError(
            f"{spec.name}: ssh -G {address} did not end within {LIMIT_S:.0f} s",
            hint="see what Match exec or CanonicalizeHostname of the configuration waits for",
        )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HostError(
            f"{spec.name}: the OpenSSH configuration cannot be read: "
            f"{said[0] if said else f'ssh -G ended with {done.returncode}'}",
            hint="correct that line" if _own_home() is not None else _NAMELESS,
        )
    return SshConfig(values=_parsed(done.stdout), defaults=_defaults(program))


def command_of(spec: HostSpec, address: str) -> str:
    """Return the command by which a person reaches a host as it is reached here."""
    words = ["ssh", *_file_option(spec)]
    if spec.identity is not None:
        words += ["-i", spec.identity]
    if spec.known_hosts is not None:
        words += ["-o", f"UserKnownHostsFile={spec.known_hosts}"]
    if spec.port is not None:
        words += ["-p", str(spec.port)]
    return shlex.join([*words, f"{spec.user}@{address}" if spec.user else address])


def _ask(program: str, words: Sequence[str]) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            [program, "-G", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise HostError(f"cannot run {program}: {error.strerror or error}") from error


def _file_option(spec: HostSpec) -> list[str]:
    if spec.ssh_config is not None:
        return ["-F", str(Path(spec.ssh_config).expanduser()) if spec.ssh_config else "none"]
    if sys.platform == "win32" or Path.home() == _own_home():
        return []
    # ssh does not look at $HOME; whoever has set another one means that one.
    file = Path.home() / ".ssh" / "config"
    return ["-F", str(file) if file.is_file() else "none"]


def _own_home() -> Path | None:
    """Return the home of whoever runs this, as ``ssh`` finds it; ``None`` for a uid without one."""
    if sys.platform == "win32":
        return Path.home()
    import pwd  # noqa: PLC0415 -- there is none on Windows

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def _uid() -> str:
    return str(os.getuid()) if sys.platform != "win32" else ""


def _given(spec: HostSpec) -> list[str]:
    user = ["-l", spec.user] if spec.user is not None else []
    return [*user, *(["-p", str(spec.port)] if spec.port is not None else [])]


@functools.lru_cache(maxsize=4)
def _defaults(program: str) -> Mapping[str, Sequence[str]]:
    done = _ask(program, ["-F", "none", "--", "localhost"])
    return _parsed(done.stdout) if done is not None and done.returncode == 0 else {}


def _parsed(output: bytes) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        keyword, _, value = line.strip().partition(" ")
        found[keyword.lower()] = (*found.get(keyword.lower(), ()), value.strip())
    return found
