"""``eaglemon draft``: why is this draft slow, and what fixes it?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.draft_diagnose import diagnose_command
from eaglemon.cli.draft_fix import repair_command, set_layers, undo_command
from eaglemon.cli.draft_runs import (
    PLACE,
    SLOTS,
    Place,
    bench_for,
    engine_of,
    place_option,
    profile_option,
    python_option,
    threads_option,
)
from eaglemon.cli.draft_text import (
    capture_lines,
    check_lines,
    inspect_lines,
    labels_line,
    search_lines,
)
from eaglemon.cli.invocation import Invocation, json_option
from eaglemon.core.draft_views import Captured, Examination, InspectView
from eaglemon.core.problems import errors_among
from eaglemon.draft.inspect import read_token_counts
from eaglemon.draft.prompts import read_prompts
from eaglemon.errors import EXIT_FAILED, EXIT_OK

Command = TypeVar("Command", bound=Callable[..., Any])
_FOLDER = click.Path(path_type=Path)


def _pickle_option(command: Command) -> Command:
    return click.option(
        "--trust-pickle", is_flag=True, help="Read pickles (tensors only) where there are any."
    )(command)


@click.group(name="draft")
def command() -> None:
    """Find out why a draft is slow, and fix it.

    Reads checkpoints, runs drafts offline and repairs them; checks need the extra 'draft'.
    """


@command.command(name="inspect")
@click.argument("folder", type=PLACE, metavar="DIR|HOST:DIR")
@place_option
@click.option("--target", type=PLACE, help="Folder of the target; its config.json suffices.")
@click.option(
    "--token-counts",
    "counts_file",
    type=_FOLDER,
    metavar="FILE",
    help='JSON {"token id": count} of the text to be served, to tell the coverage.',
)
@python_option
@_pickle_option
@json_option
@click.pass_obj
def inspect_command(
    invocation: Invocation,
    /,
    *,
    folder: Place,
    host: str | None,
    target: Place | None,
    counts_file: Path | None,
    python: str | None,
    trust_pickle: bool,
    as_json: bool,
) -> int:
    """Compare the files of the draft DIR with what engines read, and tell what they capture.

    Exits with 1 when something is wrong with the draft.
    """
    counts = None if counts_file is None else read_token_counts(counts_file)
    bench, (draft, beside) = bench_for(invocation, host, folder, target, python=python)
    request = {"do": "inspect", "folder": draft, "target": beside, "trust_pickle": trust_pickle}
    view: InspectView = bench.perform({**request, "token_counts": counts})
    if as_json:
        output.write_document("draft", {"inspect": view})
    else:
        output.write_lines(inspect_lines(view))
    diagnostics.list_problems(view.problems)
    return EXIT_FAILED if errors_among(view.problems) else EXIT_OK


@command.command(name="check")
@click.argument("folder", type=PLACE, metavar="DIR|HOST:DIR")
@place_option
@click.option("--target", type=PLACE, required=True, help="Folder of the target.")
@click.option(
    "--hidden", type=PLACE, required=True, metavar="FILE|DIR", help="Captured hidden states."
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
@python_option
@profile_option
@_pickle_option
@json_option
@click.pass_obj
def check_command(
    invocation: Invocation,
    /,
    *,
    folder: Place,
    host: str | None,
    target: Place,
    hidden: Place,
    python: str | None,
    profile: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Run the draft DIR offline over hidden states, and search the layers it was trained on.

    Exits with 1 when no engine's configured layers are those it was trained on.
    """
    used, env = engine_of(invocation, profile, python)
    bench, paths = bench_for(invocation, host, folder, target, hidden, python=used)
    request = dict(zip(("folder", "target", "hidden"), paths, strict=True))
    found: Examination = bench.perform({"do": "check", "env": env, **request, **options})
    if as_json:
        document = {
            "checks": found.checks,
            "search": found.search,
            "as_is": found.as_is,
            "relabelled": found.relabelled,
        }
        output.write_document("draft", document)
    else:
        lines = [line for view in found.checks for line in check_lines(view)]
        if found.search is not None:
            lines += search_lines(found.search)
        if found.relabelled is not None:
            lines.append(labels_line(found.relabelled))
        output.write_lines(lines)
    best = found.search
    if best is None or not best.decided or best.slots is None:
        return EXIT_OK
    return EXIT_OK if best.slots in found.configured else EXIT_FAILED


@command.command(name="capture")
@place_option
@click.option("--target", type=PLACE, required=True, help="Folder of the target.")
@click.option(
    "--prompts",
    "prompts_file",
    type=_FOLDER,
    required=True,
    metavar="FILE",
    help='JSON lines with "text", or plain lines.',
)
@click.option("-o", "--output", "out", type=PLACE, required=True, metavar="FILE|HOST:FILE")
@click.option("--max-prompts", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--new-tokens", type=click.IntRange(min=8), default=192, show_default=True)
@click.option("--layers", type=SLOTS, default=(), metavar="0,2,4", help="All likely if unset.")
@click.option("--chat", is_flag=True, help="Put prompts into the target's chat template.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="bfloat16", show_default=True
)
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda.")
@threads_option
@python_option
@profile_option
@json_option
@click.pass_obj
def capture_command(
    invocation: Invocation,
    /,
    *,
    host: str | None,
    target: Place,
    prompts_file: Path,
    out: Place,
    max_prompts: int,
    python: str | None,
    profile: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Write a target's hidden states over its own greedy continuation of prompts.

    Needs transformers, here, in the Python that --python names or in that of a profile's engine.
    With HOST:/paths the target is run on that host and the file is written there.
    """
    prompts = read_prompts(prompts_file, max_prompts)
    used, env = engine_of(invocation, profile, python)
    bench, (model, path) = bench_for(invocation, host, target, out, python=used)
    request = {"do": "capture", "env": env, "target": model, "prompts": prompts, "out": path}
    found: Captured = bench.perform({**request, **options})
    if as_json:
        output.write_document("draft", {"captured": found})
    else:
        output.write_lines(capture_lines(found))
    return EXIT_OK


for part in (diagnose_command, set_layers, repair_command, undo_command):
    command.add_command(part)
