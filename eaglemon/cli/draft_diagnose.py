"""``eaglemon draft diagnose``: one verdict on the draft of a profile or a server."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.draft_runs import PLACE, Bench, Place, bench_for, threads_option
from eaglemon.cli.draft_text import diagnosis_lines, outlook_line
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.core.capacity import check_baseline, differences
from eaglemon.core.draft_served import counted_figures, served_figures
from eaglemon.core.draft_verdict import DraftReport, DraftVerdict, ServedFigures
from eaglemon.core.draft_views import CaptureOutlook
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.profiles import Profile
from eaglemon.draft.hub_cache import located
from eaglemon.engines.command import interpreter
from eaglemon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from eaglemon.app.api import Eaglemon

_FOLDER = click.Path(path_type=Path)
_REQUESTS = "8"
_PROMPTS = 16
"""Of which hidden states are captured: enough to take each for one observation."""
_NEW_TOKENS = 192


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is judged: a profile, or a server as found."""

    profile: Profile
    host: str | None = None
    """Host of the server; ``None`` for this machine."""
    version: str | None = None
    probe: ProbeProgress | None = None
    figures: ServedFigures | None = None
    prompts: tuple[str, ...] = ()
    """What its probes ask."""


@click.command(name="diagnose")
@click.argument("name", metavar="PROFILE|SERVER")
@host_option
@click.option("--hidden", type=PLACE, metavar="FILE|DIR", help="Captured hidden states.")
@click.option(
    "--capture",
    "capturing",
    is_flag=True,
    help="Capture hidden states of the target now, over the probe's prompts; tells the cost first.",
)
@click.option("--yes", "confirmed", is_flag=True, help="Capture without asking.")
@click.option("--draft", type=PLACE, help="Folder of the draft, where it is another.")
@click.option("--target", type=PLACE, help="Folder of the target, where it is another.")
@click.option("--engine-version", metavar="VERSION", help="Asked of the server if unset.")
@click.option("--served", type=_FOLDER, metavar="RESULT.json", help="A probe's result.")
@click.option("--against", type=_FOLDER, metavar="RESULT.json", help="One without speculation.")
@click.option(
    "--earlier", type=_FOLDER, metavar="RESULT.json", help="An earlier one, same prompts."
)
@click.option("--probe/--no-probe", "probing", default=True, help="Probe a running SERVER.")
@click.option("--requests", default=_REQUESTS, show_default=True, help="Requests of the probe.")
@click.option("--steps", type=click.IntRange(1, 32), default=5, show_default=True)
@click.option("--python", metavar="PATH", help="Compute in this Python; the engine's if unset.")
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda.")
@threads_option
@json_option
@click.pass_obj
def diagnose_command(
    invocation: Invocation,
    /,
    *,
    name: str,
    hosts: tuple[str, ...],
    hidden: Place | None,
    capturing: bool,
    confirmed: bool,
    draft: Place | None,
    target: Place | None,
    engine_version: str | None,
    served: Path | None,
    against: Path | None,
    earlier: Path | None,
    probing: bool,
    requests: str,
    python: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Say why the draft of PROFILE or SERVER is slow, with evidence and the fix.

    Puts together the configuration, the offline check over hidden states, a probe of the server
    and the baseline of --against; says less where less is known. A server's files are read on its
    host. Exits with 1 unless all is fine.
    """
    if capturing and hidden is not None:
        raise UsageError("--hidden and --capture are two sources of hidden states")
    subject = _find(invocation, name, hosts, requests if probing else None)
    if capturing and not subject.prompts:
        subject = _with_prompts(subject)
    given = {"draft": draft, "target": target, "hidden": hidden}
    bench, (draft_at, target_at, hidden_at) = _bench(invocation, subject, given, python)
    request: dict[str, Any] = {
        "do": "diagnose",
        "folder": draft_at,
        "target": target_at,
        "hidden": hidden_at,
        "engine": subject.profile.engine,
        "engine_version": subject.version if engine_version is None else engine_version,
        "algorithm": _algorithm(subject.profile),
        "served": _served(subject, served, earlier),
        "baseline_tok_s": baseline_tok_s(subject.probe if served is None else served, against),
        "place": bench.prefix,
        "env": subject.profile.env,
        **options,
    }
    if capturing:
        prompts = subject.prompts[:_PROMPTS]
        if not _agreed(bench, target_at, len(prompts), options["device"], confirmed=confirmed):
            return EXIT_INTERRUPTED
        request |= {"prompts": prompts, "new_tokens": _NEW_TOKENS}
    report: DraftReport = bench.perform(request)
    for warning in report.warnings:
        diagnostics.warn(warning)
    if as_json:
        output.write_document("draft", asdict(report))
    else:
        output.write_lines(diagnosis_lines(report.diagnosis))
    return EXIT_OK if report.diagnosis.verdict is DraftVerdict.FINE else EXIT_FAILED


def _find(
    invocation: Invocation, name: str, hosts: tuple[str, ...], requests: str | None
) -> _Subject:
    """Return the profile of this name, or else ask the hosts for a server."""
    # Only a server needs the network, which 'draft --help' must not load.
    from eaglemon.cli import session  # noqa: PLC0415

    profiles = invocation.profiles()
    if name in profiles.names and not hosts:
        return _Subject(profile=profiles.get(name))

    async def work(console: "Eaglemon") -> _Subject:
        try:
            server = await session.find_server(console, name)
        except UsageError:
            if name not in profiles.names or len(hosts) != 1:
                raise
            return _Subject(profile=profiles.get(name), host=hosts[0])
        profile = console.relaunch_plan(server.id).profile
        plan = console.probe_plan(server.id, {} if requests is None else {"requests": requests})
        prompts = tuple(prompt.text for prompt in plan.prompts)
        found = _Subject(profile=profile, host=server.host, prompts=prompts)
        if server.state.ended or not server.state.answering:
            diagnostics.warn(f"{server.id} is {server.state}: judged without a probe")
            return found
        environment = await console.environment(server.id)
        probe = None
        if requests is not None:
            probe = await session.with_progress(console, server.id, console.probe(server.id, plan))
        return _Subject(
            profile=profile,
            host=server.host,
            version=environment.engine_version,
            probe=probe,
            figures=counted_figures(server.acceptance),
            prompts=prompts,
        )

    return session.run_on(
        invocation.hosts(hosts),
        profiles,
        work,
        if_interrupted="the probe was cancelled, the server keeps running",
    )


def _with_prompts(subject: _Subject) -> _Subject:
    # Read from the shipped files, which help must not look for.
    from eaglemon.io.workloads import load_workload  # noqa: PLC0415

    texts = tuple(prompt.text for prompt in load_workload(subject.profile.probe.workload))
    return _Subject(profile=subject.profile, host=subject.host, prompts=texts)


def _bench(
    invocation: Invocation,
    subject: _Subject,
    given: Mapping[str, Place | None],
    python: str | None,
) -> tuple[Bench, Sequence[str | None]]:
    """Return where to work: where the folders are, which for a server is its host."""
    profile, host = subject.profile, _elsewhere(invocation, subject.host)
    draft, target = given["draft"], given["target"]
    if draft is not None and target is not None:
        host = draft.host
    places = (
        draft or _named(profile.draft, "draft", host),
        target or _named(profile.model, "target", host),
        given["hidden"],
    )
    used = python
    if used is None and subject.host is not None and profile.direct:
        used = interpreter(profile)
    bench, paths = bench_for(invocation, host, *places, python=used)
    if bench.host is None:
        for path, what in zip(paths, ("draft", "target"), strict=False):
            _must_be_here(path, what, profile.env)
    return bench, paths


def _elsewhere(invocation: Invocation, host: str | None) -> str | None:
    """Return the host unless it is this machine."""
    if host is None:
        return None
    (spec,) = invocation.hosts((host,))
    return None if spec.transport == "local" else host


def _named(place: str | None, what: str, host: str | None) -> Place:
    if place is None:
        raise UsageError(f"the profile has no {what}", hint=f"name its folder with --{what}")
    return Place(place, host)


def _must_be_here(path: str | None, what: str, env: Mapping[str, str]) -> None:
    folder = located(Path(path or "").expanduser(), env)
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{path}: no such model on this machine",
            hint=f"name the server or its --host, or a copy with --{what}",
        )


def _agreed(
    bench: Bench, target: str | None, prompts: int, device: str, *, confirmed: bool
) -> bool:
    """Tell what a capture costs, and ask where somebody is there to answer."""
    found: CaptureOutlook = bench.perform(
        {
            "do": "outlook",
            "target": target,
            "prompts": prompts,
            "new_tokens": _NEW_TOKENS,
            "device": device,
        }
    )
    diagnostics.talk(f"{bench.prefix or 'here: '}{outlook_line(found)}")
    if not found.fits:
        raise UsageError(
            "the target does not fit into the memory that is free",
            hint="capture elsewhere, with 'eaglemon draft capture', and give --hidden",
        )
    if confirmed:
        return True
    if not sys.stdin.isatty():
        diagnostics.fail("nothing was captured: pass --yes")
        return False
    agreed = click.confirm("capture?", err=True)
    if not agreed:
        diagnostics.fail("not confirmed, nothing was captured")
    return agreed


def _algorithm(profile: Profile) -> str | None:
    return profile.speculation.algorithm if profile.speculation else None


def _served(subject: _Subject, served: Path | None, earlier: Path | None) -> dict[str, Any] | None:
    probe = subject.probe if served is None else _result(served)
    before = None if earlier is None else _result(earlier)
    figures = subject.figures if probe is None else served_figures(probe, before)
    if figures is None:
        return None
    speculation = subject.profile.speculation
    return {**asdict(figures), "ceiling": speculation.ceiling if speculation else None}


def baseline_tok_s(served: ProbeProgress | Path | None, against: Path | None) -> float | None:
    """Return the tok/s without speculation, at the concurrency of the served probe if it can be."""
    if against is None:
        return None
    probe = _result(served) if isinstance(served, Path) else served
    levels = _results(against)
    check_baseline(str(against), levels)
    same = [one for one in levels if probe and one.plan.concurrency == probe.plan.concurrency]
    baseline = (same or levels)[0]
    if probe is not None and (found := differences(probe, baseline)):
        diagnostics.warn(
            f"the result of --against differs in more than speculation: {'; '.join(found)}"
        )
    return baseline.figures.user_tok_s


def _result(path: Path) -> ProbeProgress:
    return _results(path)[0]


def _results(path: Path) -> tuple[ProbeProgress, ...]:
    # Results are read by what reads the network's answers too, which help must not load.
    from eaglemon.io.probe_files import read_probes  # noqa: PLC0415

    return read_probes(path)
