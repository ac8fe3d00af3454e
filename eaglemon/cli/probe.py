"""``eaglemon probe``: measure a server."""

from collections.abc import Sequence
from pathlib import Path

import click

from eaglemon.cli import completing, diagnostics, output, session
from eaglemon.cli.invocation import DURATION, Invocation, NumbersType, host_option, json_option
from eaglemon.cli.probe_text import calibration_lines, capacity_lines, results_lines
from eaglemon.cli.probe_work import Results, Work, capacities_of
from eaglemon.cli.url_options import api_key_in, trust_of, url_options
from eaglemon.core.capacity import Capacity, check_baseline, differences
from eaglemon.core.hosts import HostSpec
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.server_url import is_url
from eaglemon.core.units import plural
from eaglemon.errors import EXIT_FAILED, EXIT_OK, EaglemonError, UsageError
from eaglemon.io.host_config import LOCAL
from eaglemon.io.probe_files import check_path, read_probes, write_probes


@click.command(name="probe")
@click.argument("server", metavar="SERVER|URL|RESULT.json", shell_complete=completing.servers)
@host_option
@click.option("--workload", metavar="NAME|FILE", help="chat, code, maths, random or a JSONL file.")
@click.option("--requests", type=click.IntRange(min=1), help="Measured requests per level.")
@click.option(
    "--concurrency",
    type=NumbersType(whole=True, least=1),
    metavar="N,...",
    help="Requests at a time; several levels give a result each.",
)
@click.option("--duration", type=DURATION, help="Begin no request later than this: 90s, 5m.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer.")
@click.option("--temperature", type=click.FloatRange(min=0), help="0 is the default.")
@click.option("--warmup", type=click.IntRange(min=0), help="Requests before the clock starts.")
@click.option("--ignore-eos", is_flag=True, help="Force every answer to --max-tokens.")
@click.option("--seed", type=int, help="Shuffle the prompts, the same for the same seed.")
@click.option("--no-nonce", is_flag=True, help="Send the prompts as they are: caches may help.")
@click.option("--flush", is_flag=True, help="Empty the prefix cache before each level.")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["host", "here"]),
    help="Where the load comes from: the host itself (the default) or this machine.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write FILE.json, .csv or .jsonl.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="RESULT.json",
    help="A result without speculation, for overhead and break-even.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Then restart the server with forced accept lengths, and as it was at the end.",
)
@click.option(
    "--forced",
    type=NumbersType(whole=False, least=1),
    metavar="L,...",
    help="Accept lengths of --calibrate; the ceiling by default.",
)
@url_options
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    /,
    *,
    server: str,
    hosts: tuple[str, ...],
    concurrency: tuple[float, ...] | None,
    out: Path | None,
    against: Path | None,
    calibrate: bool,
    forced: tuple[float, ...] | None,
    api_key_env: str | None,
    ca: Path | None,
    insecure: bool,
    as_json: bool,
    **settings: object,
) -> int:
    """Measure a server: tok/s, time to first token, and accept length where it speculates.

    SERVER is a server of a profile; what is not given comes from there. URL (http://ADDRESS:PORT,
    https://NAME/PATH/v1) is any server, as seen from this machine or from --host. RESULT.json is
    an earlier result. Exits with 1 when a request failed.
    """
    if out is not None:
        check_path(out)
    if forced is not None and not calibrate:
        raise UsageError("--forced says what --calibrate forces", hint="give both")
    baseline = _baseline(against) if against is not None else ()
    levels = tuple(int(level) for level in concurrency) if concurrency else ()
    if server.endswith(".json") and Path(server).is_file():
        results = Results(probes=read_probes(Path(server)))
    else:
        work = Work(
            server=server,
            levels=levels,
            overrides=_overrides(settings),
            api_key=api_key_in(api_key_env),
            trust=trust_of(server, ca, insecure=insecure),
            calibrate=calibrate,
            forced=forced or (),
        )
        results = _measure(invocation, work, hosts, out)
    lost = _kept(out, results.probes)
    _warn_of_differences(results.probes, baseline)
    capacities = capacities_of(results.probes, baseline)
    if against is not None and not capacities:
        diagnostics.warn(f"{against} has no level in common that both tell an accept length for")
    _write(results, capacities, as_json=as_json)
    if lost is not None:
        raise lost
    return _verdict(results.probes)


def _kept(out: Path | None, probes: Sequence[ProbeProgress]) -> EaglemonError | None:
    """Write the result; return what went wrong, which must not take the figures along."""
    if out is not None:
        try:
            write_probes(out, probes)
        except EaglemonError as error:
            return error
    return None


def _baseline(path: Path) -> tuple[ProbeProgress, ...]:
    probes = read_probes(path)
    check_baseline(str(path), probes)
    return probes


def _warn_of_differences(
    probes: Sequence[ProbeProgress], baseline: Sequence[ProbeProgress]
) -> None:
    """Say in what levels that are compared differ besides speculation, each thing once."""
    slow = {one.plan.concurrency: one for one in baseline}
    pairs = [(one, slow[one.plan.concurrency]) for one in probes if one.plan.concurrency in slow]
    found = dict.fromkeys(what for pair in pairs for what in differences(*pair))
    if found:
        diagnostics.warn(
            f"the result of --against differs in more than speculation ({'; '.join(found)}): what "
            "follows from both is not the cost of speculation alone"
        )


def _measure(
    invocation: Invocation, work: Work, hosts: tuple[str, ...], out: Path | None
) -> Results:
    try:
        return session.run_on(
            _hosts_of(invocation, work.server, hosts),
            invocation.profiles(),
            work,
            if_interrupted="the probe was cancelled, the server keeps running",
        )
    except EaglemonError:
        if out is not None and work.kept:
            write_probes(out, work.kept)
            count = plural(sum(len(probe.records) for probe in work.kept), "request")
            diagnostics.talk(f"{count} that had ended by then: {out}")
        raise


def _overrides(settings: dict[str, object]) -> dict[str, str]:
    given = {
        "workload": settings["workload"],
        "requests": settings["requests"],
        "duration_s": settings["duration"],
        "max_tokens": settings["max_tokens"],
        "temperature": settings["temperature"],
        "warmup": settings["warmup"],
        "seed": settings["seed"],
        "ignore_eos": "true" if settings["ignore_eos"] else None,
        "nonce": "false" if settings["no_nonce"] else None,
        "flush": "true" if settings["flush"] else None,
        "from_host": {"host": "true", "here": "false"}.get(str(settings["origin"])),
    }
    return {key: str(value) for key, value in given.items() if value is not None}


def _hosts_of(invocation: Invocation, server: str, names: tuple[str, ...]) -> tuple[HostSpec, ...]:
    if is_url(server):
        if len(names) > 1:
            raise UsageError("a URL is asked from one host", hint="give --host once")
        return invocation.hosts(names) if names else (LOCAL,)
    return invocation.hosts(names)


def _write(results: Results, capacities: Sequence[Capacity], *, as_json: bool) -> None:
    probes = results.probes
    if not as_json:
        lines = results_lines(probes)
        for capacity in capacities:
            lines += ["", *capacity_lines(capacity)]
        if results.forced:
            forced = calibration_lines(results.forced, results.forced_lengths, probes[0])
            lines += ["", *forced]
        output.write_lines(lines)
        return
    counts = probes[0].figures.counts
    content: dict[str, object] = {"probes": probes}
    if len(probes) == 1:
        content = {"probe": probes[0], "accept_rate": counts.accept_rate if counts else None}
    if capacities:
        content["capacity"] = [
            {
                "concurrency": one.concurrency,
                "accept_length": one.accept_length,
                "speculative_tok_s": one.speculative_tok_s,
                "baseline_tok_s": one.baseline_tok_s,
                "speed_up": one.speed_up,
                "overhead": one.overhead,
                "break_even": one.overhead,
                "tok_s_at": {f"{x:g}": one.tok_s_at(x) for x in one.lengths()},
            }
            for one in capacities
        ]
    if results.forced:
        content["calibration"] = [
            {"forced_length": wanted, "probe": probe}
            for wanted, probe in zip(results.forced_lengths, results.forced, strict=True)
        ]
    output.write_document("probe", content)


def _verdict(probes: Sequence[ProbeProgress]) -> int:
    held = True
    for probe in probes:
        figures = probe.figures
        bad = figures.failed + figures.cut
        if probe.error:
            diagnostics.fail(f"the probe failed: {probe.error}")
        elif bad:
            reason = next((record.error for record in probe.records if record.error), None)
            diagnostics.fail(
                f"{plural(bad, 'request')} of {len(probe.records) or probe.plan.requests} did not "
                f"end well: {reason or 'cut off'}"
            )
        held = held and probe.state == "done" and figures.ok > 0 and not bad
    return EXIT_OK if held else EXIT_FAILED
