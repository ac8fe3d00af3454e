"""``eaglemon init``: writes a commented configuration, with the hosts that ssh already knows."""

from pathlib import Path

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.invocation import json_option
from eaglemon.errors import EXIT_OK
from eaglemon.io.files import write_text
from eaglemon.io.paths import user_config_folder
from eaglemon.io.resources import data_folder
from eaglemon.io.ssh_names import ssh_names

_MOST_NAMES = 40
_PROFILE = """\
# A profile of your own: the packaged one, with your models.
# The name of this file is the name of the profile: eaglemon launch my-eagle3 --host HOST
extends = "sglang-eagle3"
description = "My target with my draft"

# model = "/models/target"                # path on the host, or a name on the Hugging Face hub
# draft = "/models/draft"
# python = "/opt/sglang/bin/python"       # the interpreter on the host that has the engine
# port = 30000
# gpus = [0, 1, 2, 3]

# [speculation]
# steps = 3
# topk = 1
# draft_tokens = 4

# [flags]                                 # any flag of the engine by its long name
# tp-size = 4
"""
_HOSTS = """\
# The hosts that eaglemon shows when it is called without names. Any other name that ssh knows
# works too: eaglemon gpu-a. Options are explained in the example below.
"""


@click.command(name="init")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--dry-run", is_flag=True, help="Say what would be written.")
@json_option
def command(*, force: bool, dry_run: bool, as_json: bool) -> int:
    """Write a commented configuration to start from; nothing in it is needed.

    Hosts of ~/.ssh/config are offered as comments: take the # away to have them shown.
    """
    folder = user_config_folder()
    written: list[str] = []
    kept: list[str] = []
    for path, text in (
        (folder / "hosts.toml", hosts_text(ssh_names())),
        (folder / "profiles" / "my-eagle3.toml", _PROFILE),
    ):
        if path.exists() and not force:
            kept.append(str(path))
            continue
        if not dry_run:
            _write(path, text)
        written.append(str(path))
    if as_json:
        output.write_document("init", {"written": written, "kept": kept, "dry_run": dry_run})
        return EXIT_OK
    verb = "would write" if dry_run else "wrote"
    output.write_lines([f"{verb} {path}" for path in written])
    for name in kept:
        diagnostics.talk(f"kept {name}: it is there already (--force writes over it)")
    diagnostics.talk("next: edit them, then eaglemon hosts and eaglemon profiles check")
    return EXIT_OK


def hosts_text(names: tuple[str, ...]) -> str:
    """Return the text of ``hosts.toml``; every name is a comment."""
    lines = [_HOSTS]
    if names:
        lines.append("# From ~/.ssh/config:\n")
    lines += [f'# [hosts."{name}"]\n' for name in names[:_MOST_NAMES]]
    example = (data_folder("configs") / "hosts.example.toml").read_text(encoding="utf-8")
    lines.append("\n# Example\n")
    for line in example.splitlines():
        lines.append(f"# {line}".rstrip().replace("# # ", "#   ") + "\n")
    return "".join(lines)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
