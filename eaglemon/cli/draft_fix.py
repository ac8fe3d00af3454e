"""``eaglemon draft set-layers``, ``repair`` and ``undo``: what changes a draft, shown first."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.draft_runs import PLACE, SLOTS, Bench, Place, bench_for, place_option
from eaglemon.cli.invocation import Invocation, json_option
from eaglemon.cli.read_only import is_read_only
from eaglemon.core.draft_views import RepairView
from eaglemon.engines.wiring import WIRING
from eaglemon.errors import EXIT_INTERRUPTED, EXIT_OK, ReadOnlyError

_yes_option = click.option("--yes", "confirmed", is_flag=True, help="Write without asking.")
_python_option = click.option(
    "--python", metavar="PATH", help="Python of the host (3.11 or newer) that does it."
)


@click.command(name="set-layers")
@click.argument("folder", type=PLACE, metavar="DIR|HOST:DIR")
@place_option
@click.option(
    "--hs", "slots", type=SLOTS, required=True, metavar="0,2,4", help="Layers, 0 the embedding."
)
@click.option("--engine", type=click.Choice(sorted(WIRING)), required=True)
@click.option("--engine-version", metavar="VERSION", help="All known releases if unset.")
@click.option("--target", type=PLACE, help="Folder of the target; its config.json suffices.")
@click.option("--target-type", metavar="TYPE", help="Its model_type, where it is not at hand.")
@_python_option
@_yes_option
@json_option
@click.pass_obj
def set_layers(
    invocation: Invocation,
    /,
    *,
    folder: Place,
    host: str | None,
    target: Place | None,
    python: str | None,
    confirmed: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Write the layer ids of the draft DIR as the engine reads them.

    Shows the difference first. Asks where there is a terminal; else writes only with --yes.
    """
    bench, (draft, beside) = bench_for(invocation, host, folder, target, python=python)
    request = {"do": "set-layers", "folder": draft, "target": beside, **options}
    return _offer(bench, request, confirmed=confirmed, as_json=as_json)


@click.command(name="repair")
@click.argument("folder", type=PLACE, metavar="DIR|HOST:DIR")
@place_option
@click.option(
    "--permute",
    "order",
    type=SLOTS,
    required=True,
    metavar="2,0,1",
    help="Old slot for each new slot of fc.",
)
@_python_option
@_yes_option
@json_option
@click.pass_obj
def repair_command(
    invocation: Invocation,
    /,
    *,
    folder: Place,
    host: str | None,
    order: tuple[int, ...],
    python: str | None,
    confirmed: bool,
    as_json: bool,
) -> int:
    """Reorder the slots of the draft DIR: the column blocks of fc, and their norms.

    Shows the difference first. Asks where there is a terminal; else writes only with --yes.
    """
    bench, (draft,) = bench_for(invocation, host, folder, python=python)
    request = {"do": "repair", "folder": draft, "order": order}
    return _offer(bench, request, confirmed=confirmed, as_json=as_json)


@click.command(name="undo")
@click.argument("folder", type=PLACE, metavar="DIR|HOST:DIR")
@place_option
@_python_option
@json_option
@click.pass_obj
def undo_command(
    invocation: Invocation,
    /,
    *,
    folder: Place,
    host: str | None,
    python: str | None,
    as_json: bool,
) -> int:
    """Take back the newest repair of the draft DIR."""
    bench, (draft,) = bench_for(invocation, host, folder, python=python)
    _must_write()
    undone: RepairView = bench.perform({"do": "undo", "folder": draft})
    for warning in undone.warnings:
        diagnostics.warn(warning)
    if as_json:
        output.write_document("draft", {"undone": undone.title, "warnings": undone.warnings})
    else:
        output.write_lines([f"undone: {undone.title}"])
    return EXIT_OK


def _offer(bench: Bench, request: Mapping[str, Any], *, confirmed: bool, as_json: bool) -> int:
    """Show a repair and have it carried out if confirmed."""
    if confirmed:
        _must_write()
    repair: RepairView = bench.perform(request)
    for warning in repair.warnings:
        diagnostics.warn(warning)
    if not as_json:
        output.write_lines(repair.difference or ["nothing to change"])
    wanted = bool(repair.difference)
    if wanted and not confirmed and not as_json and sys.stdin.isatty():
        if not click.confirm("write it?", err=True):
            diagnostics.fail("not confirmed, nothing was written")
            return EXIT_INTERRUPTED
        _must_write()
        confirmed = True
    if wanted and confirmed:
        repair = bench.perform({**request, "shown": repair.difference})
    if as_json:
        content = {
            "title": repair.title,
            "difference": repair.difference,
            "warnings": repair.warnings,
            "written": bool(repair.backups),
            "backups": repair.backups,
        }
        output.write_document("draft", content)
    if repair.backups:
        place = f"{bench.prefix}{repair.folder}"
        diagnostics.talk(f"written; undo with: eaglemon draft undo {place}")
        diagnostics.talk("a server reads a draft when it starts: restart it")
    elif wanted:
        diagnostics.talk("nothing was written: pass --yes")
    return EXIT_OK


def _must_write() -> None:
    if is_read_only():
        raise ReadOnlyError("the draft is not changed")
