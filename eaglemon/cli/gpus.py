"""``eaglemon gpus``: the GPUs of hosts, who holds them, once or again and again."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import click

from eaglemon.app.gpu_watch import GpuWatch
from eaglemon.cli import completing, diagnostics, output, running
from eaglemon.cli.gpu_text import GPU_RIGHT, PROCESS_RIGHT, gpu_rows, process_rows
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.cli.line_picture import LinePicture
from eaglemon.cli.questions import tell_person, terminal_asker
from eaglemon.cli.tables import columns
from eaglemon.core.hosts import LinkState
from eaglemon.core.terminal import harmless
from eaglemon.core.units import duration
from eaglemon.core.views import HostView, ServerView, Snapshot
from eaglemon.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE, UsageError
from eaglemon.io.connect import transport_to

LEAST_S, MOST_S = 0.1, 5.0
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


@click.command(name="gpus")
@click.argument("names", nargs=-1, metavar="[HOST]...", shell_complete=completing.hosts)
@host_option
@click.option("--watch", is_flag=True, help="Show them again and again, until Ctrl-C.")
@click.option(
    "--interval",
    "interval_s",
    type=DURATION,
    default=1.0,
    show_default="1s",
    help="Time between samples, 100ms to 5s.",
)
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    names: tuple[str, ...],
    hosts: tuple[str, ...],
    watch: bool,
    interval_s: float,
    as_json: bool,
) -> int:
    """Show the GPUs of hosts and the processes that hold them.

    What a driver does not tell is "-". Exits with 3 when a host cannot be reached and with 1 when
    a GPU or a driver has failed. With --watch --json each sample is one line.
    """
    if not LEAST_S <= interval_s <= MOST_S:
        raise UsageError(f"--interval {interval_s:g}s is not from {LEAST_S:g}s to {MOST_S:g}s")
    asked = [replace(spec, sample_s=interval_s) for spec in invocation.hosts((*names, *hosts))]

    connect = partial(transport_to, ask=terminal_asker(), tell=tell_person)

    async def once() -> Snapshot:
        async with GpuWatch(asked, connect=connect) as console:
            return await console.settle()

    async def again() -> Snapshot:
        async with GpuWatch(asked, connect=connect) as console:
            return await follow(console)

    picture = LinePicture()

    async def follow(console: GpuWatch) -> Snapshot:
        shown: list[tuple[str, LinkState, float, int]] = []
        # On a terminal ages and waits go on; elsewhere a line is written for what is new only.
        counts = not as_json and sys.stdout.isatty()
        due = 0.0
        async for snapshot in console.updates():
            now = [
                (
                    one.name,
                    one.state,
                    one.sample.at if one.sample else 0.0,
                    int(snapshot.at) if counts and not _is_current(one) else 0,
                )
                for one in snapshot.hosts
            ]
            # Hosts do not sample in step: one picture an interval is enough for all of them.
            early = len(now) > 1 and snapshot.at < due
            if now != shown and not early:
                shown, due = now, snapshot.at + 0.9 * interval_s
                _show(snapshot, as_json=as_json, picture=picture)
        return console.snapshot()

    snapshot = running.run(again() if watch else once())
    if not watch:
        _show(snapshot, as_json=as_json, picture=None)
    silent = running.unreachable(snapshot)
    for line in silent:
        diagnostics.fail(line)
    if silent:
        return EXIT_UNREACHABLE
    return EXIT_FAILED if any(_has_failed(host) for host in snapshot.hosts) else EXIT_OK


def _is_current(host: HostView) -> bool:
    return host.state in {LinkState.UP, LinkState.DEGRADED}


def _has_failed(host: HostView) -> bool:
    sample = host.sample
    return sample is not None and (
        sample.driver_error is not None or any(gpu.error is not None for gpu in sample.gpus)
    )


def _show(snapshot: Snapshot, *, as_json: bool, picture: LinePicture | None) -> None:
    """Write all once, or for a watcher what follows upon the ``picture`` of before."""
    watch = picture is not None
    if as_json:
        content = {"at": snapshot.at, "hosts": [_document(host, watch) for host in snapshot.hosts]}
        write = output.write_json_line if watch else output.write_document
        write("gpus", content)
        return
    lines: list[str] = []
    for host in snapshot.hosts:
        lines += [*_host_lines(host, snapshot.servers, past=watch), ""]
    if picture is not None and sys.stdout.isatty():
        size = shutil.get_terminal_size()
        output.redraw(picture.changes(lines[:-1], columns=size.columns, rows=size.lines))
    else:
        output.write_styled(lines if watch else lines[:-1])


def _document(host: HostView, watch: bool) -> HostView:  # noqa: FBT001 -- internal
    """Return what JSON shows: a watcher collects the past itself, one look tries nothing again."""
    return replace(host, history={}) if watch else replace(host, next_try_s=None)


def _host_lines(host: HostView, servers: Sequence[ServerView], *, past: bool) -> list[str]:
    facts, sample = host.facts, host.sample
    about = [host.state.value]
    if not _is_current(host) and host.sample_age_s is not None:
        about.append(f"values are {duration(host.sample_age_s)} old")
    if past and host.next_try_s is not None:
        about.append(f"next try in {duration(host.next_try_s)}")
    if facts is not None and facts.driver_version:
        about.append(f"driver {facts.driver_version}")
    # Last, as the longest: a narrow terminal cuts it. Once, stderr says why a host is silent.
    if host.detail and (past or host.state in running.ANSWERED):
        about.append(host.detail)
    lines = [harmless(f"{host.name}: {', '.join(about)}")]
    if sample is None:
        return lines
    lines += [harmless(f"  note: {note}") for note in sample.notes]
    if not sample.gpus and sample.driver_error is None:
        lines.append("  no GPUs")
    rows = gpu_rows(host, past=past)
    if rows:
        failed = [
            gpu.error is not None for gpu in sample.gpus for _ in range(1 + len(gpu.mig or ()))
        ]
        table = [harmless(line) for line in columns(rows, right=GPU_RIGHT)]
        lines += [
            table[0],
            *(_red(line) if bad else line for line, bad in zip(table[1:], failed, strict=True)),
        ]
    processes = process_rows(sample, [one for one in servers if one.host == host.name])
    if processes:
        lines += [harmless(line) for line in columns(processes, right=PROCESS_RIGHT)]
    elif sample.gpus and not sample.processes_known:
        lines.append("  processes: not known")
    return lines


def _red(line: str) -> str:
    return f"{_RED}{line}{_PLAIN}" if sys.stdout.isatty() else line
