"""What asyncssh is told of a host that OpenSSH's configuration names."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.compression import get_compression_algs
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from eaglemon.io.ssh_config import SshConfig

_FAMILIES = {"inet": 2, "inet6": 10}
_SHELL = "/bin/sh"


def options_from(config: SshConfig) -> dict[str, Any]:
    """Return the library's options for a host whose rules have all been applied."""
    options: dict[str, Any] = {"config": None}
    options["port"] = int(config.one("port") or 22)
    if (user := config.one("user")) is not None:
        options["username"] = user
    if (command := config.one("proxycommand")) is not None:
        options["proxy_command"] = by_shell(config.expanded(command))
    if (alias := config.one("hostkeyalias")) is not None:
        options["host_key_alias"] = alias
    if (limit := config.one("connecttimeout")) is not None:
        options["connect_timeout"] = int(limit)
    if (family := _FAMILIES.get(config.one("addressfamily") or "")) is not None:
        options["family"] = family
    if (local := config.one("bindaddress")) is not None:
        options["local_addr"] = (local, 0)
    if config.switch("compression"):
        options["compression_algs"] = [name.decode() for name in get_compression_algs()]
    if config.configured("sendenv"):
        options["send_env"] = list(config.configured("sendenv"))
    if config.configured("setenv"):
        options["env"] = dict(one.split("=", 1) for one in config.configured("setenv"))
    return {**options, **_logins(config), **_agent(config), **_keys(config), **_algorithms(config)}


def by_shell(command: str) -> list[str]:
    """Return a ProxyCommand as ssh runs it: by the user's shell, which gives way to the program."""
    return [os.environ.get("SHELL") or _SHELL, "-c", f"exec {command}"]


def identity_files(config: SshConfig) -> list[Path]:
    """Return the key files that are configured; none where only ssh's own defaults count."""
    return [config.path(text) for text in config.configured("identityfile") if text != "none"]


def agent_socket(config: SshConfig) -> str | None:
    """Return the socket of the key agent."""
    named = config.values.get("identityagent", ("SSH_AUTH_SOCK",))[0]
    if named.lower() == "none":
        return None
    if named == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if named.startswith("$"):
        return os.environ.get(named[1:].strip("{}")) or None
    return str(config.path(named))


def _agent(config: SshConfig) -> dict[str, Any]:
    socket = agent_socket(config)
    forward = config.one("forwardagent")
    target: bool | str = False
    if forward is not None:
        variable = forward.startswith("$")
        place = os.environ.get(forward[1:].strip("{}"), "") if variable else forward
        target = True if forward.lower() in {"yes", "true"} else str(config.path(place))
    # Without a socket the empty text: None would mean the one of the environment.
    return {"agent_path": socket or "", "agent_forwarding": target}


def _keys(config: SshConfig) -> dict[str, Any]:
    files = identity_files(config)
    named = [config.path(text) for text in config.configured("certificatefile")]
    certificates = [str(one) for one in named if one.is_file()]
    options: dict[str, Any] = {"ignore_encrypted": True}
    if certificates:
        options["client_certs"] = certificates
    if private := [str(one) for one in files if one.is_file() and not _is_public(one)]:
        options["client_keys"] = private
    if config.switch("identitiesonly"):
        # Those of the agent that are named here, be it by their public half alone. An empty list
        # would mean all.
        options["agent_identities"] = _public_halves(files, certificates) or [b""]
    return options


def _is_public(file: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        asyncssh.read_public_key(file)
        return b"PRIVATE KEY" not in file.read_bytes()
    return False


def _public_halves(files: Sequence[Path], certificates: Sequence[str]) -> list[bytes]:
    found: list[bytes] = []
    for file in files:
        for place in (file, Path(f"{file}.pub")):
            with contextlib.suppress(OSError, ValueError):
                found.append(asyncssh.read_public_key(place).public_data)
                break
        with contextlib.suppress(OSError, ValueError):
            found.append(asyncssh.read_certificate(Path(f"{file}-cert.pub")).public_data)
    for certificate in certificates:
        with contextlib.suppress(OSError, ValueError):
            found.append(asyncssh.read_certificate(certificate).public_data)
    return found


def _logins(config: SshConfig) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for keyword, name in (
        ("pubkeyauthentication", "public_key_auth"),
        ("passwordauthentication", "password_auth"),
        ("kbdinteractiveauthentication", "kbdint_auth"),
        ("gssapiauthentication", "gss_auth"),
    ):
        if config.configured(keyword):
            options[name] = config.switch(keyword)
    if config.configured("preferredauthentications"):
        options["preferred_auth"] = config.configured("preferredauthentications")[0].split(",")
    return options


def _algorithms(config: SshConfig) -> dict[str, Any]:
    """Return the algorithms that are configured, without those that the library lacks."""
    options: dict[str, Any] = {}
    signatures = [*get_public_key_algs(), *get_certificate_algs()]
    for keyword, name, known in (
        ("ciphers", "encryption_algs", get_encryption_algs()),
        ("kexalgorithms", "kex_algs", get_kex_algs()),
        ("macs", "mac_algs", get_mac_algs()),
        ("hostkeyalgorithms", "server_host_key_algs", signatures),
        ("pubkeyacceptedalgorithms", "signature_algs", signatures),
    ):
        for text in config.configured(keyword)[:1]:
            wanted = text.split(",")
            names = {one.decode() for one in known}
            options[name] = [one for one in wanted if one in names]
    return options
