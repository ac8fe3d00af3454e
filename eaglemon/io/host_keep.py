"""Hosts offered from ``~/.ssh/config``, and a host added to the user's ``hosts.toml``."""

import json
import tomllib
from pathlib import Path

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import UsageError
from eaglemon.io.claims import alone_at
from eaglemon.io.files import write_text
from eaglemon.io.paths import user_config_folder
from eaglemon.io.ssh_names import ssh_names

SSH_CONFIG = "~/.ssh/config"
_HEAD = """\
# The hosts that eaglemon shows when it is called without names. Any other name that ssh knows
# works too: eaglemon gpu-a. More options: docs/hosts.md, or eaglemon init.
"""


def offered_hosts() -> tuple[HostSpec, ...]:
    """Return a host for each name in ``~/.ssh/config``; nothing is connected."""
    return tuple(HostSpec(name=name, source=SSH_CONFIG) for name in ssh_names())


def keep_host(spec: HostSpec, folder: Path | None = None) -> Path:
    """Append ``spec`` to ``hosts.toml`` of ``folder`` (the user's) and return the file.

    What is in the file stays as it is, and what another console appends at the same time too.
    Raises ``UsageError`` where it names the host already, is not valid or cannot be written.
    """
    path = (folder or user_config_folder()) / "hosts.toml"
    with alone_at(path):
        _append(path, spec)
    return path


def _append(path: Path, spec: HostSpec) -> None:
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
        known = tomllib.loads(text).get("hosts", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    if isinstance(known, dict) and spec.name in known:
        raise UsageError(f"{path} has {spec.name} already")
    # A string of JSON without control characters is one of TOML too.
    lines = [f"\n[hosts.{json.dumps(spec.name, ensure_ascii=False)}]\n"]
    if spec.address and spec.address != spec.name:
        lines.append(f"address = {json.dumps(spec.address, ensure_ascii=False)}\n")
    if spec.user:
        lines.append(f"user = {json.dumps(spec.user, ensure_ascii=False)}\n")
    if spec.port:
        lines.append(f"port = {spec.port}\n")
    write_text(path, text.rstrip("\n") + "\n" + "".join(lines))
