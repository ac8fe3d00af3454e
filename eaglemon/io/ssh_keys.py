"""Keys of hosts: what known_hosts tells of them, which kinds are asked for, what is added."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from eaglemon.io.ssh_errors import Target
from eaglemon.io.ssh_target import nothing_known


def key_algorithms(
    target: Target, configured: Sequence[str] | None, *, plain: bool = False, told: str = ""
) -> list[str]:
    """Return the host key algorithms to offer to ``target``, in order; reads its known_hosts.

    ``configured`` are those of HostKeyAlgorithms, ``told`` the lines of KnownHostsCommand. A
    certificate is asked for only where they have an authority for this host, and never with
    ``plain``: ssh falls back to the key itself. The known keys' own kinds come first, else another
    key of the host would look like a changed one.
    """
    known = asyncssh.read_known_hosts(known_files(target))
    known.load(told)
    port = None if target.port == 22 else target.port
    keys, authorities, *_ = known.match(target.known_as, "", port)
    certificates = [] if plain or not authorities else _names(get_default_certificate_algs())
    if configured is not None:
        return [one for one in configured if "-cert-" not in one or one in certificates]
    kinds = [name for key in keys for name in _names(key.sig_algorithms)]
    return list(dict.fromkeys([*certificates, *kinds, *_names(get_default_public_key_algs())]))


def known_files(target: Target) -> list[str]:
    """Return the known_hosts files that there are now: a jump host's key may just have come in."""
    return [file for file in target.known_hosts if Path(file).is_file()]


def add_known_host(file: Path, place: str, key: asyncssh.SSHKey) -> None:
    """Append a host's key to a known_hosts file, which is made if need be."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{place} {key.export_public_key().decode('ascii').strip()}\n"
    before = file.read_bytes() if file.exists() else b""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "ab") as opened:
        opened.write((b"\n" if before and not before.endswith(b"\n") else b"") + line.encode())


def known_keys(target: Target) -> Any:
    """Return what the library is to know of host keys."""
    files = known_files(target)
    if not target.told:
        return files or nothing_known
    known = asyncssh.read_known_hosts(files)
    known.load(target.told)
    return known


def _names(algorithms: Sequence[bytes]) -> list[str]:
    return [one.decode("ascii") for one in algorithms]
