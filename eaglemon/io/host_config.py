"""Hosts as configured: tables ``[hosts.NAME]`` of ``hosts.toml`` or ``eaglemon.toml``.

It knows nothing of profiles: the console's first picture needs the hosts alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from eaglemon.core.hosts import HostSpec
from eaglemon.core.problems import Problem, did_you_mean
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.config_layers import layers_over_packaged, unknown_tables
from eaglemon.io.text_values import text_problem, text_problems
from eaglemon.io.tomlfile import TomlFile, read_toml

HOSTS_FILE = "hosts.toml"
LOCAL = HostSpec(name="local", transport="local", source="built in")
_TRANSPORTS = ("ssh", "local")
_HOST_KEYS = tuple(f.name for f in fields(HostSpec) if f.name not in {"name", "source"})
_HOST_PATHS = ("known_hosts", "identity", "ssh_config")


def load_hosts(
    *, config: Path | None = None, project: Path | None = None, user: Path | None = None
) -> tuple[HostSpec, ...]:
    """Return the configured hosts in the order of their files, and ``local`` at the end.

    Later files win by name. Raises ``ConfigError`` that names every problem.
    """
    hosts: dict[str, HostSpec] = {}
    problems: list[Problem] = []
    for layer in layers_over_packaged(config=config, project=project, user=user):
        alone = layer.is_dir()
        path = layer / HOSTS_FILE if alone else layer
        if not path.is_file():
            continue
        found = read_toml(path)
        if isinstance(found, Problem):
            problems.append(found)
            continue
        problems += unknown_tables(found, ("hosts",) if alone else ("hosts", "profiles"))
        tables = found.values.get("hosts", {})
        if not isinstance(tables, Mapping):
            problems.append(found.problem(("hosts",), "must be a table"))
            continue
        for name, raw in tables.items():
            built = _host(name, raw, found)
            if isinstance(built, HostSpec):
                hosts[name] = built
            else:
                problems += built
    if problems:
        raise ConfigError("; ".join(str(problem) for problem in dict.fromkeys(problems)))
    hosts.setdefault(LOCAL.name, LOCAL)
    return tuple(hosts.values())


def host_named(name: str, hosts: Sequence[HostSpec]) -> HostSpec:
    """Return the host of this name; an unknown one is an SSH name, ``[user@]name[:port]``."""
    known = next((host for host in hosts if host.name == name), None)
    if known is not None:
        return known
    user, at, address = name.rpartition("@")
    port: int | None = None
    if address.count(":") == 1:
        address, _, digits = address.partition(":")
        if not digits.isdecimal() or not 0 < int(digits) < 65536:
            raise UsageError(f"host {name!r}: the port must be a number from 1 to 65535")
        port = int(digits)
    bad = (
        not address
        or address.startswith("-")
        or any(c in " /" or not c.isprintable() for c in name)
    )
    if bad or (at and not user):
        hint = did_you_mean(name, [host.name for host in hosts])
        raise UsageError(f"{name!r} is no name of a host", hint=hint)
    return HostSpec(name=name, address=address, user=user or None, port=port, source="command line")


def _host(name: str, raw: object, file: TomlFile) -> HostSpec | list[Problem]:
    path = ("hosts", name)
    if not isinstance(raw, Mapping):
        return [file.problem(path, "must be a table")]
    # Imported here because it loads a library that hosts without a file do not need.
    from eaglemon.io.typed import typed_fields  # noqa: PLC0415

    values, problems = typed_fields(raw, HostSpec, file=file, path=path, known=_HOST_KEYS)
    transport = values.get("transport", "ssh")
    if transport not in _TRANSPORTS:
        hint = did_you_mean(str(transport), _TRANSPORTS)
        problems.append(file.problem((*path, "transport"), f"unknown: {transport!r}", hint=hint))
    port = values.get("port")
    if isinstance(port, int) and not 0 < port < 65536:
        problems.append(file.problem((*path, "port"), f"must be from 1 to 65535, not {port}"))
    rate = values.get("sample_s")
    if isinstance(rate, float) and not 0.1 <= rate <= 5.0:
        problems.append(file.problem((*path, "sample_s"), f"must be from 0.1 to 5, not {rate:g}"))
    wrong = text_problem(name)
    if wrong is not None:
        problems.append(file.problem(path, f"the name {wrong}"))
    if problems:
        return problems
    spec = HostSpec(name=name, **cast("dict[str, Any]", values))
    problems = [file.problem((*path, *key), text) for key, text in text_problems(spec)]
    if problems:
        return problems
    for key in _HOST_PATHS:
        value = values.get(key)
        if isinstance(value, str) and value:
            values[key] = str((file.folder or Path()) / Path(value).expanduser())
    return HostSpec(name=name, source=file.label, **cast("dict[str, Any]", values))
