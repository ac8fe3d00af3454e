"""``eaglemon draft``: why is this draft slow, and what fixes it?"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.draft_diagnose import diagnose_command
from eaglemon.cli.draft_runs import examination, threads_option
from eaglemon.cli.draft_text import capture_lines, check_lines, inspect_lines, search_lines
from eaglemon.cli.invocation import json_option
from eaglemon.core.problems import errors_among
from eaglemon.core.wiring import TargetShape
from eaglemon.draft.checkpoint import open_checkpoint, read_json
from eaglemon.draft.inspect import configured_slots, inspect, read_token_counts
from eaglemon.draft.layout import target_body, target_shape
from eaglemon.draft.prompts import read_prompts
from eaglemon.draft.repair import Repair, carry_out, plan_layers, plan_permutation, undo
from eaglemon.engines.wiring import WIRING, wiring_of
from eaglemon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK

Command = TypeVar("Command", bound=Callable[..., Any])
_FOLDER = click.Path(path_type=Path)
_ASSUMED_LAYERS = 10_000


class SlotsType(click.ParamType[tuple[int, ...]]):
    """Whole numbers from ``0,2,4``."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).strip("[]").split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers; write 0,2,4", param, ctx)


SLOTS = SlotsType()


def _pickle_option(command: Command) -> Command:
    return click.option(
        "--trust-pickle", is_flag=True, help="Read pickles (tensors only) where there are any."
    )(command)


def _python_option(command: Command) -> Command:
    return click.option(
        "--python",
        metavar="PATH",
        help="Compute in this Python, which has what is needed, such as an engine's own.",
    )(command)


def _yes_option(command: Command) -> Command:
    return click.option("--yes", "confirmed", is_flag=True, help="Write without asking.")(command)


@click.group(name="draft")
def command() -> None:
    """Find out why a draft is slow, and fix it.

    Reads checkpoints, runs drafts offline and repairs them; checks need the extra 'draft'.
    """


@command.command(name="inspect")
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("--target", type=_FOLDER, help="Folder of the target; its config.json suffices.")
@click.option(
    "--token-counts",
    "counts_file",
    type=_FOLDER,
    metavar="FILE",
    help='JSON {"token id": count} of the text to be served, to tell the coverage.',
)
@_pickle_option
@json_option
def inspect_command(
    *,
    folder: Path,
    target: Path | None,
    counts_file: Path | None,
    trust_pickle: bool,
    as_json: bool,
) -> int:
    """Compare the files of the draft DIR with what engines read, and tell what they capture.

    Exits with 1 when something is wrong with the draft.
    """
    counts = None if counts_file is None else read_token_counts(counts_file)
    view = inspect(folder, target=target, token_counts=counts, trust_pickle=trust_pickle)
    if as_json:
        output.write_document("draft", {"inspect": view})
    else:
        output.write_lines(inspect_lines(view))
    diagnostics.list_problems(view.problems)
    return EXIT_FAILED if errors_among(view.problems) else EXIT_OK


@command.command(name="check")
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option("--target", type=_FOLDER, required=True, help="Folder of the target.")
@click.option(
    "--hidden", type=_FOLDER, required=True, metavar="FILE|DIR", help="Captured hidden states."
)
@click.option(
    "--hs",
    "wirings",
    type=SLOTS,
    multiple=True,
    metavar="2,4,5",
    help="Layers to feed, 0 the embedding; repeatable. By default those that engines capture.",
)
@click.option("--steps", type=click.IntRange(1, 32), default=5, show_default=True)
@click.option("--search/--no-search", "searching", default=True, help="Find the wiring.")
@click.option(
    "--expect",
    "expected",
    type=click.Choice(["target", "text"]),
    default="target",
    show_default=True,
    help="Compare with the target's first choice, or with the text.",
)
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True
)
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda.")
@threads_option
@click.option("--max-tokens", type=click.IntRange(min=16), default=8192, show_default=True)
@_python_option
@_pickle_option
@json_option
def check_command(
    *,
    folder: Path,
    target: Path,
    hidden: Path,
    python: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Run the draft DIR offline over hidden states, and search the layers it was trained on.

    Exits with 1 when no engine's configured layers are those it was trained on.
    """
    found = examination(folder, target, hidden, python=python, **options)
    if as_json:
        output.write_document("draft", {"checks": found.checks, "search": found.search})
    else:
        lines = [line for view in found.checks for line in check_lines(view)]
        if found.search is not None:
            lines += search_lines(found.search)
        output.write_lines(lines)
    best = found.search
    if best is None or not best.decided or best.slots is None:
        return EXIT_OK
    return EXIT_OK if best.slots in configured_slots(folder, target) else EXIT_FAILED


@command.command(name="capture")
@click.option("--target", type=_FOLDER, required=True, help="Folder of the target.")
@click.option(
    "--prompts",
    "prompts_file",
    type=_FOLDER,
    required=True,
    metavar="FILE",
    help='JSON lines with "text", or plain lines.',
)
@click.option("-o", "--output", "out", type=_FOLDER, required=True, metavar="FILE")
@click.option("--max-prompts", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--new-tokens", type=click.IntRange(min=8), default=192, show_default=True)
@click.option("--layers", type=SLOTS, default=(), metavar="0,2,4", help="All likely if unset.")
@click.option("--chat", is_flag=True, help="Put prompts into the target's chat template.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="bfloat16", show_default=True
)
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda.")
@threads_option
@_python_option
@json_option
def capture_command(
    *,
    target: Path,
    prompts_file: Path,
    out: Path,
    max_prompts: int,
    python: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Write a target's hidden states over its own greedy continuation of prompts.

    Needs transformers, here or in the Python that --python names.
    """
    prompts = read_prompts(prompts_file, max_prompts)
    if python is not None:
        # Each of these loads torch or much else, which --help must not wait for.
        from eaglemon.draft.elsewhere import capture_with  # noqa: PLC0415

        places = {"target": str(target.resolve()), "out": str(out.resolve())}
        found = capture_with(python, {**places, "prompts": prompts, **options})
    else:
        from eaglemon.draft.capture import capture  # noqa: PLC0415

        found = capture(target, prompts, out, **options)
    if as_json:
        output.write_document("draft", {"captured": found})
    else:
        output.write_lines(capture_lines(found))
    return EXIT_OK


command.add_command(diagnose_command)


@command.command(name="set-layers")
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option(
    "--hs", "slots", type=SLOTS, required=True, metavar="0,2,4", help="Layers, 0 the embedding."
)
@click.option("--engine", type=click.Choice(sorted(WIRING)), required=True)
@click.option("--engine-version", metavar="VERSION", help="All known releases if unset.")
@click.option("--target", type=_FOLDER, help="Folder of the target; its config.json suffices.")
@click.option("--target-type", metavar="TYPE", help="Its model_type, where it is not at hand.")
@_yes_option
@json_option
def set_layers(
    *,
    folder: Path,
    slots: tuple[int, ...],
    engine: str,
    engine_version: str | None,
    target: Path | None,
    target_type: str | None,
    confirmed: bool,
    as_json: bool,
) -> int:
    """Write the layer ids of the draft DIR as the engine reads them.

    Shows the difference first. Asks where there is a terminal; else writes only with --yes.
    """
    config = read_json(folder / "config.json")
    rules = wiring_of(engine)
    shape = None
    if target is not None:
        shape = target_shape(target_body(read_json(target / "config.json")))
    if shape is None:
        kind = target_type or str(config.get("model_type", "llama"))
        if target_type is None:
            diagnostics.warn(f"no --target: the rule for targets of type {kind!r} is used")
        shape = TargetShape(layers=_ASSUMED_LAYERS, model_type=kind)
    repair = plan_layers(folder, rules.wire(config, slots, shape, engine_version))
    return _offer(repair, confirmed=confirmed, as_json=as_json)


@command.command(name="repair")
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option(
    "--permute",
    "order",
    type=SLOTS,
    required=True,
    metavar="2,0,1",
    help="Old slot for each new slot of fc.",
)
@_yes_option
@json_option
def repair_command(*, folder: Path, order: tuple[int, ...], confirmed: bool, as_json: bool) -> int:
    """Reorder the slots of the draft DIR: the column blocks of fc, and their norms.

    Shows the difference first. Asks where there is a terminal; else writes only with --yes.
    """
    repair = plan_permutation(open_checkpoint(folder), order)
    return _offer(repair, confirmed=confirmed, as_json=as_json)


@command.command(name="undo")
@click.argument("folder", type=_FOLDER, metavar="DIR")
@json_option
def undo_command(*, folder: Path, as_json: bool) -> int:
    """Take back the newest repair of the draft DIR."""
    title = undo(folder)
    if as_json:
        output.write_document("draft", {"undone": title})
    else:
        output.write_lines([f"undone: {title}"])
    return EXIT_OK


def _offer(repair: Repair, *, confirmed: bool, as_json: bool) -> int:
    """Show a repair and carry it out if confirmed."""
    for warning in repair.warnings:
        diagnostics.warn(warning)
    if not as_json:
        output.write_lines(repair.difference or ["nothing to change"])
    wanted = bool(repair.difference)
    if wanted and not confirmed and not as_json and sys.stdin.isatty():
        if not click.confirm("write it?", err=True):
            diagnostics.fail("not confirmed, nothing was written")
            return EXIT_INTERRUPTED
        confirmed = True
    backups = carry_out(repair) if wanted and confirmed else ()
    if as_json:
        content = {
            "title": repair.title,
            "difference": repair.difference,
            "warnings": repair.warnings,
            "written": bool(backups),
            "backups": backups,
        }
        output.write_document("draft", content)
    if backups:
        diagnostics.talk(f"written; undo with: eaglemon draft undo {repair.folder}")
        diagnostics.talk("a server reads a draft when it starts: restart it")
    elif wanted:
        diagnostics.talk("nothing was written: pass --yes")
    return EXIT_OK
