"""``eaglemon draft diagnose``: one verdict on the draft of a profile or a server."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.draft_runs import examination, threads_option
from eaglemon.cli.draft_text import diagnosis_lines
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.core.draft_diagnosis import diagnose_draft
from eaglemon.core.draft_verdict import DraftEvidence, DraftVerdict, ServedFigures
from eaglemon.core.draft_views import Examination
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.profiles import Profile
from eaglemon.draft.checkpoint import read_json
from eaglemon.draft.inspect import inspect
from eaglemon.draft.layout import target_body, target_shape
from eaglemon.engines.wiring import wiring_of
from eaglemon.errors import EXIT_FAILED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from eaglemon.app.api import Eaglemon

_FOLDER = click.Path(path_type=Path)
_REQUESTS = "8"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server as found: its profile, its engine's version and a probe of it."""

    profile: Profile
    version: str | None = None
    probe: ProbeProgress | None = None


@click.command(name="diagnose")
@click.argument("name", metavar="PROFILE|SERVER")
@host_option
@click.option("--hidden", type=_FOLDER, metavar="FILE|DIR", help="Captured hidden states.")
@click.option("--draft", type=_FOLDER, help="Local copy of the draft, where it is elsewhere.")
@click.option("--target", type=_FOLDER, help="Local copy of the target, where it is elsewhere.")
@click.option("--engine-version", metavar="VERSION", help="Asked of the server if unset.")
@click.option("--served", type=_FOLDER, metavar="RESULT.json", help="A probe's result.")
@click.option("--against", type=_FOLDER, metavar="RESULT.json", help="One without speculation.")
@click.option("--probe/--no-probe", "probing", default=True, help="Probe a running SERVER.")
@click.option("--requests", default=_REQUESTS, show_default=True, help="Requests of the probe.")
@click.option("--steps", type=click.IntRange(1, 32), default=5, show_default=True)
@click.option("--python", metavar="PATH", help="Compute in this Python.")
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
    hidden: Path | None,
    draft: Path | None,
    target: Path | None,
    engine_version: str | None,
    served: Path | None,
    against: Path | None,
    probing: bool,
    requests: str,
    python: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Say why the draft of PROFILE or SERVER is slow, with evidence and the fix.

    Puts together the configuration, the offline check over --hidden, a probe of the server and
    the baseline of --against; says less where less is known. Exits with 1 unless all is fine.
    """
    found = _find(invocation, name, hosts, requests if probing else None)
    profile = found.profile
    draft_folder = draft or _local(profile.draft, "draft")
    target_folder = target or _local(profile.model, "target")
    probe = found.probe if served is None else _result(served)
    view = inspect(draft_folder, target=target_folder)
    rules = wiring_of(profile.engine)
    version = engine_version or found.version
    shape = target_shape(target_body(read_json(target_folder / "config.json")))
    config = read_json(draft_folder / "config.json")
    captures = () if shape is None else rules.captures(config, shape, version)
    offline = Examination(checks=(), search=None)
    if hidden is not None:
        offline = examination(
            draft_folder,
            target_folder,
            hidden,
            invocation=invocation,
            python=python,
            **options,
        )
    slots = offline.search.slots if offline.search else None
    change = None if slots is None or shape is None else rules.wire(config, slots, shape, version)
    words = ["eaglemon", "draft", "set-layers", str(draft_folder), "--engine", profile.engine]
    if slots is not None:
        words += ["--hs", ",".join(str(slot) for slot in slots)]
    if version is not None:
        words += ["--engine-version", version]
    words += ["--target", str(target_folder)]
    diagnosis = diagnose_draft(
        DraftEvidence(
            algorithm=profile.speculation.algorithm if profile.speculation else None,
            inspect=view,
            captures=captures,
            checks=offline.checks,
            search=offline.search,
            served=_figures(probe),
            baseline_tok_s=None if against is None else _result(against).figures.user_tok_s,
            change=change,
            set_layers=shlex.join(words),
        )
    )
    if as_json:
        content = {"diagnosis": diagnosis, "inspect": view, "engine_version": version}
        output.write_document(
            "draft", {**content, "checks": offline.checks, "search": offline.search}
        )
    else:
        output.write_lines(diagnosis_lines(diagnosis))
    return EXIT_OK if diagnosis.verdict is DraftVerdict.FINE else EXIT_FAILED


def _find(
    invocation: Invocation, name: str, hosts: tuple[str, ...], requests: str | None
) -> _Server:
    """Return the profile of this name, or else ask the hosts for a server."""
    # Only a server needs the network, which 'draft --help' must not load.
    from eaglemon.cli import session  # noqa: PLC0415

    profiles = invocation.profiles()
    if name in profiles.names:
        return _Server(profile=profiles.get(name))

    async def work(console: "Eaglemon") -> _Server:
        server = await session.find_server(console, name)
        profile = console.relaunch_plan(server.id).profile
        if server.state.ended or not server.state.answering:
            diagnostics.warn(f"{server.id} is {server.state}: judged without a probe")
            return _Server(profile=profile)
        environment = await console.environment(server.id)
        probe = None
        if requests is not None:
            plan = console.probe_plan(server.id, {"requests": requests})
            probe = await session.with_progress(console, server.id, console.probe(server.id, plan))
        return _Server(profile=profile, version=environment.engine_version, probe=probe)

    return session.run_on(
        invocation.hosts(hosts),
        profiles,
        work,
        if_interrupted="the probe was cancelled, the server keeps running",
    )


def _result(path: Path) -> ProbeProgress:
    # Results are read by what reads the network's answers too, which help must not load.
    from eaglemon.io.probe_files import read_probes  # noqa: PLC0415

    return read_probes(path)[0]


def _figures(probe: ProbeProgress | None) -> ServedFigures | None:
    if probe is None:
        return None
    figures = probe.figures
    prompts = [r.prompt_tokens for r in probe.records if r.prompt_tokens is not None]
    return ServedFigures(
        accept_length=figures.accept_length,
        survival=figures.per_position,
        tok_s=figures.user_tok_s,
        source=figures.accept_source or "",
        longest_prompt_tokens=max(prompts, default=None),
    )


def _local(place: str | None, what: str) -> Path:
    if place is None:
        raise UsageError(f"the profile has no {what}", hint=f"name its folder with --{what}")
    folder = Path(place).expanduser()
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{place}: no such model on this machine",
            hint=f"run this on the host, or name a local copy with --{what}",
        )
    return folder
