"""What ``~/.ssh/config`` and hosts.toml make of a host: whom to reach, how, with which keys."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncssh

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError
from eaglemon.io.ssh_config import SshConfig, command_of, read_ssh_config
from eaglemon.io.ssh_errors import Offered, Target, explain_connect
from eaglemon.io.ssh_key_rules import KeyRules, rules_of
from eaglemon.io.ssh_options import agent_socket, by_shell, identity_files, options_from

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a host is reached."""

    target: Target
    options: Mapping[str, Any]
    """For ``asyncssh.connect`` to ``target.address``."""
    rules: KeyRules | None = None
    """What decides about the host's key beside its known_hosts files."""


def way_to(spec: HostSpec, address: str) -> Way:
    """Return what OpenSSH's configuration and hosts.toml make of a host; takes a while.

    Raises ``HostError`` for a mistake in either, ``OSError`` and ``ValueError`` for key files.
    """
    options = _own_options(spec)
    config = read_ssh_config(spec, address)
    if config is None:
        return _without_ssh(spec, address, options)
    options = {**options_from(config), **options}
    if spec.identity is not None:
        options.pop("agent_identities", None)
    host = config.one("hostname") or address
    target = Target(
        name=spec.name,
        address=host,
        port=options["port"],
        user=options.get("username", ""),
        ssh=command_of(spec, address),
        known_as=options.get("host_key_alias", host),
        is_direct=not {"host_key_alias", "proxy_command"} & set(options)
        and not _jumps(config.one("proxyjump")),
        known_hosts=_known_hosts(spec, _configured_hosts(config)),
        keys=_present_keys([spec.identity] if spec.identity else identity_files(config)),
        missing_keys=() if spec.identity else _missing_keys(identity_files(config)),
        agent=agent_socket(config),
        jumps=_jumps(config.one("proxyjump")),
        unused=config.unused,
        key_provider=config.key_provider,
        asks=config.values.get("stricthostkeychecking", ("ask",))[0].lower() not in {"yes", "true"},
        hashes_names=config.switch("hashknownhosts"),
    )
    try:
        asyncssh.SSHClientConnectionOptions(host=host, **options)
    except (OSError, ValueError) as error:
        raise explain_connect(target, error, Offered()) from error
    rules = rules_of(config, target)
    if rules is not None:
        target = replace(target, told_by=rules.command.partition(" ")[0])
    return Way(target=target, options=options, rules=rules)


def _own_options(spec: HostSpec) -> dict[str, Any]:
    """Return the library's options that do not come from OpenSSH's configuration."""
    if spec.ssh_config:
        existing(spec, spec.ssh_config, "ssh_config")
    options: dict[str, Any] = {
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_MISSES,
        "login_timeout": 60.0,
        # Commands get no terminal, whatever RequestTTY says.
        "request_pty": False,
    }
    if spec.user is not None:
        options["username"] = spec.user
    if spec.port is not None:
        options["port"] = spec.port
    if spec.identity is not None:
        options["client_keys"] = [str(existing(spec, spec.identity, "identity"))]
        # The key agent may hold it unlocked.
        options["ignore_encrypted"] = True
    return options


def _without_ssh(spec: HostSpec, address: str, options: dict[str, Any]) -> Way:
    """Return what the library itself reads of the configuration, where there is no ``ssh``."""
    if spec.ssh_config is not None:
        options["config"] = [str(Path(spec.ssh_config).expanduser())] if spec.ssh_config else None
    try:
        found = asyncssh.SSHClientConnectionOptions(host=address, **options)
    except (OSError, ValueError) as error:
        bare = Target(
            name=spec.name,
            address=address,
            port=spec.port or 22,
            user=spec.user or "",
            ssh=command_of(spec, address),
            known_as=address,
            known_hosts=(),
            keys=_present_keys([spec.identity] if spec.identity else []),
        )
        raise explain_connect(bare, error, Offered()) from error
    listed = found.known_hosts if isinstance(found.known_hosts, list) else []
    named = found.config.get("IdentityFile", ())
    keys = [str(file) for file in named] if isinstance(named, list) else []
    target = Target(
        name=spec.name,
        address=found.host,
        port=found.port,
        user=found.username,
        ssh=command_of(spec, address),
        known_as=found.host_key_alias or found.host,
        is_direct=not (found.host_key_alias or found.proxy_command or found.tunnel),
        known_hosts=_known_hosts(spec, [str(file) for file in listed]),
        keys=_present_keys([spec.identity] if spec.identity else keys),
        agent=found.agent_path,
        jumps=_jumps(found.tunnel),
        unused=("there is no ssh here to read the configuration, only what asyncssh reads counts",),
    )
    command = found.config.get("ProxyCommand")
    if isinstance(command, str) and command.lower() != "none":
        options["proxy_command"] = by_shell(command)
    # Connecting reads it again, for the name that it was asked for.
    return Way(target=replace(target, address=address), options=options)


def _configured_hosts(config: SshConfig) -> list[str]:
    """Return the known_hosts files that are configured, in ssh's order; none: the usual ones."""
    keywords = ("userknownhostsfile", "globalknownhostsfile")
    if not any(config.configured(keyword) for keyword in keywords):
        return []
    values = [value for keyword in keywords for value in config.values.get(keyword, ())]
    files = [file for value in values for file in value.split()]
    return [str(config.path(file)) for file in files if file.lower() != "none"]


def _known_hosts(spec: HostSpec, configured: Sequence[str]) -> tuple[str, ...]:
    if spec.known_hosts is not None:
        files = [str(existing(spec, spec.known_hosts, "known_hosts"))]
    else:
        files = [str(Path(file).expanduser()) for file in configured or _KNOWN_HOSTS]
    return tuple([file for file in files if Path(file).is_file()] or files[:1])


def _present_keys(named: Sequence[str | Path]) -> tuple[str, ...]:
    paths = [Path(key).expanduser() for key in named or _KEYS]
    return tuple(str(path) for path in paths if path.is_file())


def _missing_keys(named: Sequence[Path]) -> tuple[str, ...]:
    """Return the configured keys that are nowhere: not even a public half for the key agent."""
    there = [path.is_file() or Path(f"{path}.pub").is_file() for path in named]
    return tuple(str(path) for path, found in zip(named, there, strict=True) if not found)


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


def _jumps(tunnel: object) -> tuple[str, ...]:
    """Return the hops of ProxyJump, ``[user@]host[:port]`` each."""
    if not isinstance(tunnel, str) or tunnel.lower() == "none":
        return ()
    return tuple(hop.strip().removeprefix("ssh://") for hop in tunnel.split(",") if hop.strip())


def parse_hop(hop: str) -> tuple[str | None, str, int | None]:
    """Return (user, host, port) of ``[user@]host[:port]``; an IPv6 address stands in brackets."""
    user, _, place = hop.rpartition("@")
    found = re.fullmatch(r"\[(?P<six>[^]]+)\](:(?P<a>\d+))?|(?P<name>[^:]+)(:(?P<b>\d+))?", place)
    if found is None:
        return user or None, place, None
    port = found["a"] or found["b"]
    return user or None, found["six"] or found["name"], int(port) if port else None
