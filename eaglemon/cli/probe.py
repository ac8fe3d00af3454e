"""``eaglemon probe``: measure a server."""

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import diagnostics, output, session
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.cli.tables import probe_lines
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.units import plural
from eaglemon.errors import EXIT_FAILED, EXIT_OK


@click.command(name="probe")
@click.argument("server")
@host_option
@click.option("--workload", metavar="NAME|FILE", help="chat, code, maths, or a JSONL file.")
@click.option("--requests", type=click.IntRange(min=1), help="Measured requests.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests at a time.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer.")
@click.option("--warmup", type=click.IntRange(min=0), help="Requests before the clock starts.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    server: str,
    hosts: tuple[str, ...],
    workload: str | None,
    requests: int | None,
    concurrency: int | None,
    max_tokens: int | None,
    warmup: int | None,
    as_json: bool,
) -> int:
    """Measure SERVER: tok/s, time to first token, and accept length where it speculates.

    What is not given comes from the server's profile. Exits with 1 when a request failed.
    """
    given = {
        "workload": workload,
        "requests": requests,
        "concurrency": concurrency,
        "max_tokens": max_tokens,
        "warmup": warmup,
    }
    overrides = {key: str(value) for key, value in given.items() if value is not None}

    async def work(console: Eaglemon) -> ProbeProgress:
        found = await session.find_server(console, server)
        plan = console.probe_plan(found.id, overrides)
        return await session.with_progress(console, found.id, console.probe(found.id, plan))

    probe = session.run_on(
        invocation.hosts(hosts),
        invocation.profiles(),
        work,
        if_interrupted="the probe was cancelled, the server keeps running",
    )
    counts = probe.figures.counts
    accept_rate = counts.accept_rate if counts else None
    if as_json:
        output.write_document("probe", {"probe": probe, "accept_rate": accept_rate})
    else:
        output.write_lines(probe_lines(probe))
    figures = probe.figures
    if probe.error:
        diagnostics.fail(f"the probe failed: {probe.error}")
    elif figures.failed or figures.cut:
        bad = plural(figures.failed + figures.cut, "request")
        reason = next((record.error for record in probe.records if record.error), None)
        diagnostics.fail(f"{bad} of {probe.plan.requests} did not end well: {reason or 'cut off'}")
    held = probe.state == "done" and figures.ok > 0 and not (figures.failed or figures.cut)
    return EXIT_OK if held else EXIT_FAILED
