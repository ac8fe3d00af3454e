"""Which kinds of host keys are asked for: those that known_hosts can tell, first."""

from collections.abc import Sequence
from pathlib import Path

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from eaglemon.io.ssh_errors import Target


def key_algorithms(
    target: Target, configured: Sequence[str] | None, *, plain: bool = False
) -> list[str]:
    """Return the host key algorithms to offer to ``target``, in order; reads its known_hosts.

    ``configured`` are those of HostKeyAlgorithms. A certificate is asked for only where known_hosts
    has an authority for this host, and never with ``plain``: ssh falls back to the key itself. The
    known keys' own kinds come first, else another key of the host would look like a changed one.
    """
    files = [file for file in target.known_hosts if Path(file).is_file()]
    port = None if target.port == 22 else target.port
    keys, authorities, *_ = (
        asyncssh.match_known_hosts(files, target.known_as, "", port) if files else ([], [])
    )
    certificates = [] if plain or not authorities else _names(get_default_certificate_algs())
    if configured is not None:
        return [one for one in configured if "-cert-" not in one or one in certificates]
    known = [name for key in keys for name in _names(key.sig_algorithms)]
    return list(dict.fromkeys([*certificates, *known, *_names(get_default_public_key_algs())]))


def _names(algorithms: Sequence[bytes]) -> list[str]:
    return [one.decode("ascii") for one in algorithms]
