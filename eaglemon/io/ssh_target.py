"""What ``~/.ssh/config`` and hosts.toml make of a host: whom to reach, how, with which keys."""

import contextlib
from pathlib import Path
from typing import Any

import asyncssh

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError
from eaglemon.io.ssh_errors import Target

KEEPALIVE_S = 5.0
KEEPALIVE_MISSES = 2
"""A link that swallows everything is noticed within 15 s."""
_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")
_KEYS = (
    "~/.ssh/id_ed25519",
    "~/.ssh/id_ecdsa",
    "~/.ssh/id_rsa",
    "~/.ssh/id_ed25519_sk",
    "~/.ssh/id_ecdsa_sk",
)


def options_of(spec: HostSpec) -> dict[str, Any]:
    """Return the library's options for a host, what ``~/.ssh/config`` says apart."""
    options: dict[str, Any] = {
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_MISSES,
        "login_timeout": 60.0,
        # Commands get no terminal, whatever RequestTTY says.
        "request_pty": False,
    }
    if spec.ssh_config == "":
        options["config"] = None
    elif spec.ssh_config is not None:
        options["config"] = [str(existing(spec, spec.ssh_config, "ssh_config"))]
    if spec.user is not None:
        options["username"] = spec.user
    if spec.port is not None:
        options["port"] = spec.port
    if spec.identity is not None:
        options["client_keys"] = [str(existing(spec, spec.identity, "identity"))]
        # The key agent may hold it unlocked.
        options["ignore_encrypted"] = True
    return options


def resolve(spec: HostSpec, address: str, settings: dict[str, Any]) -> Target:
    """Return what the configuration makes of a host."""
    options = asyncssh.SSHClientConnectionOptions(host=address, **settings)
    if spec.known_hosts is not None:
        files = [str(existing(spec, spec.known_hosts, "known_hosts"))]
    elif isinstance(options.known_hosts, list) and options.known_hosts:
        files = [str(Path(str(file)).expanduser()) for file in options.known_hosts]
    else:
        files = [str(Path(file).expanduser()) for file in _KNOWN_HOSTS]
    named = [spec.identity] if spec.identity is not None else _configured_keys(options)
    keys = named or list(_KEYS)
    paths = [Path(key).expanduser() for key in keys]
    return Target(
        name=spec.name,
        address=options.host,
        port=options.port,
        user=options.username,
        known_hosts=tuple([file for file in files if Path(file).is_file()] or files[:1]),
        keys=tuple(str(path) for path in paths if path.is_file()),
        agent=options.agent_path,
        jumps=_jumps(options.tunnel),
    )


def unresolved(spec: HostSpec, address: str, settings: dict[str, Any]) -> Target:
    """Return what is known of a host whose configuration, or a key that it names, is damaged."""
    keys = [spec.identity] if spec.identity is not None else []
    if not keys:
        with contextlib.suppress(OSError, ValueError):
            bare = {**settings, "client_keys": None}
            options = asyncssh.SSHClientConnectionOptions(host=address, **bare)
            keys = _configured_keys(options)
    paths = [Path(key).expanduser() for key in keys]
    return Target(
        name=spec.name,
        address=address,
        port=spec.port or 22,
        user=spec.user or "",
        known_hosts=(),
        keys=tuple(str(path) for path in paths if path.is_file()),
    )


def nothing_known(
    host: str, address: str, port: int | None
) -> tuple[list[str], list[str], list[str]]:
    """Answer for a client without any known_hosts file: no key is trusted."""
    return [], [], []


def existing(spec: HostSpec, text: str, key: str) -> Path:
    """Return the path of a file that ``key`` of hosts.toml names; raises ``HostError``."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise HostError(
            f"{key} of host {spec.name} names {path}, which is no file",
            hint=f"correct {key} in {spec.source or 'hosts.toml'}",
        )
    return path


def _configured_keys(options: asyncssh.SSHClientConnectionOptions) -> list[str]:
    files = options.config.get("IdentityFile", ())
    return [str(file) for file in files] if isinstance(files, list) else []


def _jumps(tunnel: object) -> tuple[str, ...]:
    """Return the hops of ProxyJump, ``[user@]host[:port]`` each."""
    if not isinstance(tunnel, str) or tunnel.lower() == "none":
        return ()
    return tuple(hop.strip().removeprefix("ssh://") for hop in tunnel.split(",") if hop.strip())
