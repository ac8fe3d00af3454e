"""``eaglemon report``: write the report of an experiment."""

import asyncio
from pathlib import Path

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.experiment_session import check_outputs
from eaglemon.cli.runs import read_run
from eaglemon.errors import EXIT_OK
from eaglemon.io.files import write_text
from eaglemon.report.render import render


@click.command(name="report")
@click.argument("run", default="last")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write: .html, .md, .csv or .json; repeatable. Without: Markdown on stdout.",
)
def command(*, run: str, outputs: tuple[Path, ...]) -> int:
    """Write the report of RUN: an id, the beginning of one, or last.

    The HTML file has its charts inside and is readable offline.
    """
    check_outputs(outputs)
    record, findings = asyncio.run(read_run(run))
    for path in outputs:
        write_text(path, render(record, findings, path.suffix.lower()))
        diagnostics.talk(f"wrote {path}")
    if not outputs:
        output.write_lines(render(record, findings, ".md").rstrip("\n").split("\n"))
    return EXIT_OK
