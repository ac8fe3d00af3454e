"""``eaglemon diagnose``: what a server's log says, without any host."""

import sys
from pathlib import Path

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.invocation import json_option
from eaglemon.core.diagnosis import Diagnosis
from eaglemon.core.runs import RunExit
from eaglemon.core.units import duration, length
from eaglemon.core.views import ExitView
from eaglemon.engines import ENGINES
from eaglemon.engines.reading import exit_in, exit_of, read_log
from eaglemon.errors import EXIT_OK, UsageError

MAX_BYTES = 1 << 30


@click.command(name="diagnose")
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Which engine wrote it.")
@click.option("--exit-code", type=int, help="The server's exit code; negative for a signal.")
@json_option
def command(*, log: Path, engine: str | None, exit_code: int | None, as_json: bool) -> int:
    """Say how far the server of LOG came, whether it failed, and the line that says why.

    LOG is a file, or - for stdin. The engine is recognised by its words. Exits with 0 whatever
    the log says: the outcome is in the answer.
    """
    data = _read(log)
    diagnosis = read_log(data, engine=engine, exit_code=exit_code)
    ended = exit_of(exit_code) if exit_code is not None else exit_in(data)
    if as_json:
        output.write_document("diagnose", document(diagnosis, ended))
    else:
        output.write_lines(_lines(diagnosis, ended))
    return EXIT_OK


def document(diagnosis: Diagnosis, ended: RunExit | None) -> dict[str, object]:
    """Return the content of the JSON document."""
    acceptance = None
    if diagnosis.accept_length is not None:
        acceptance = {
            "accept_length": diagnosis.accept_length,
            "lines": diagnosis.decode_lines,
        }
    return {
        "engine": diagnosis.engine,
        "outcome": diagnosis.outcome,
        "phase": diagnosis.phase,
        "stage": diagnosis.stage,
        "timeline": diagnosis.timeline,
        "cause": diagnosis.cause,
        "decisive_line": diagnosis.decisive_line,
        "line_number": diagnosis.line_number,
        "remedy": diagnosis.remedy,
        "exit": None if ended is None else {"code": ended.code, "signal": ended.signal},
        "acceptance": acceptance,
        "notes": diagnosis.notes,
    }


def _lines(diagnosis: Diagnosis, ended: RunExit | None) -> list[str]:
    reached = f"{diagnosis.phase}" + (f" ({diagnosis.stage})" if diagnosis.stage else "")
    lines = [f"{diagnosis.engine}: {diagnosis.outcome}, reached {reached}"]
    lines += [
        f"  {view.phase}: {view.state}, {duration(view.elapsed_s)}"
        + (f", {view.done}/{view.total}" if view.total else "")
        for view in diagnosis.timeline
    ]
    if diagnosis.decisive_line is not None:
        lines.append(f"cause: {diagnosis.cause or 'not known'}")
        lines.append(f"line {diagnosis.line_number}: {diagnosis.decisive_line.strip()}")
    if diagnosis.remedy:
        lines.append(f"remedy: {diagnosis.remedy}")
    if ended is not None:
        lines.append(f"exit: {ExitView(code=ended.code, signal=ended.signal)}")
    if diagnosis.accept_length is not None:
        lines.append(f"accept length: {length(diagnosis.accept_length)}")
    lines += [f"note: {note.text.strip()}" for note in diagnosis.notes]
    return lines


def _read(log: Path) -> bytes:
    if str(log) == "-":
        return sys.stdin.buffer.read(MAX_BYTES)
    try:
        with log.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{log}: {reason}", hint="name a log file, or - for stdin") from error
    if len(data) > MAX_BYTES:
        diagnostics.warn(f"{log} is larger than 1 GiB: only its first GiB was read")
    return data[:MAX_BYTES]
