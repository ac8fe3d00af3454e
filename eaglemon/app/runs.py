"""From a plan to a run on the host, and from a run found there back to a profile."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from eaglemon.core.hosts import HostSample
from eaglemon.core.profiles import Limits, ProbeDefaults, Profile, Speculation
from eaglemon.core.redact import MASK, is_secret, mask_argv, mask_env
from eaglemon.core.runs import RunRecord, RunRequest, RunStatus
from eaglemon.core.views import LaunchPlan

KEPT_RUNS = 50
"""Ended runs of a host that are looked at."""
RUN_RECORD = "run record"
"""Source of a profile that was put together from what a run left on its host."""

WHOLE_RECORD = "run record, whole"
"""The same, and nothing of it is missing: it can be launched again."""


class RunNotes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a console leaves in ``RunRecord.extra`` for itself and for others."""

    model: str = ""
    draft: str | None = None
    served_name: str | None = None
    speculation: Speculation | None = None
    limits: Limits = Limits()
    probe: ProbeDefaults = ProbeDefaults()
    shell_line: str = ""
    settings: Profile | None = None
    """The whole profile, secrets masked."""
    gpu_used_before: dict[str, int] = {}
    """Used bytes of every GPU of the host before the launch, by uuid."""


def request_of(
    plan: LaunchPlan,
    sample: HostSample | None,
    now: datetime,
    *,
    known: Sequence[str] | None = None,
    force: bool = False,
) -> RunRequest:
    """Return the run to start for ``plan``; ``known`` are the runs that its check judges."""
    profile = plan.profile
    gpus = sample.gpus if sample is not None else ()
    chosen = tuple(gpu for gpu in gpus if profile.gpus is not None and gpu.index in profile.gpus)
    before = {gpu.uuid: gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None}
    notes = RunNotes(
        model=profile.model,
        draft=profile.draft,
        served_name=profile.served_name,
        speculation=profile.speculation,
        limits=profile.limits,
        probe=profile.probe,
        shell_line=plan.shell_line,
        settings=_masked(profile),
        gpu_used_before=before,
    )
    return RunRequest(
        id=f"{profile.name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        name=profile.name,
        profile=profile.name,
        digest=profile.digest(),
        engine=profile.engine,
        address=profile.address,
        port=profile.port,
        argv=plan.argv,
        env=plan.env,
        argv_recorded=tuple(mask_argv(plan.argv)),
        env_recorded=mask_env(plan.env),
        workdir=profile.workdir,
        gpu_indexes=profile.gpus or (),
        gpu_uuids=tuple(gpu.uuid for gpu in chosen),
        gpu_used_before_bytes=_sum(before.get(gpu.uuid) for gpu in chosen),
        extra=msgspec.to_builtins(notes),
        known_runs=None if known is None else tuple(known),
        force=force,
    )


def notes_of(record: RunRecord) -> RunNotes:
    """Return the notes of a run; those of an unknown shape are left out, not fatal."""
    try:
        return msgspec.convert(record.extra, type=RunNotes)
    except msgspec.ValidationError:
        return RunNotes()


def profile_of(record: RunRecord, known: Mapping[str, Profile]) -> Profile:
    """Return the profile a run was started with.

    A profile of this console with the same name and digest is the very same, secrets included.
    Otherwise the record's own is taken, with the secrets of this console's profile of that name;
    where they make it whole its source is ``WHOLE_RECORD``, else ``RUN_RECORD``.
    """
    mine = known.get(record.profile)
    if mine is not None and mine.digest() == record.digest:
        return mine
    notes = notes_of(record)
    if notes.settings is not None:
        filled = _with_secrets(notes.settings, mine)
        whole = filled.digest() == record.digest
        return replace(filled, source=WHOLE_RECORD if whole else RUN_RECORD)
    return Profile(
        name=record.profile,
        engine=record.engine,
        model=notes.model,
        draft=notes.draft,
        served_name=notes.served_name,
        speculation=notes.speculation,
        address=record.address,
        port=record.port,
        gpus=record.gpu_indexes or None,
        workdir=record.workdir,
        env=record.env,
        limits=notes.limits,
        probe=notes.probe,
        source=RUN_RECORD,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum, ``None`` of nothing and where one is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None


def _masked(profile: Profile) -> Profile:
    flags = {
        name: MASK if is_secret(name) and value else value for name, value in profile.flags.items()
    }
    command = tuple(mask_argv(profile.command))
    return replace(profile, flags=flags, env=mask_env(profile.env), command=command)


def _with_secrets(profile: Profile, mine: Profile | None) -> Profile:
    """Return the profile with its masked values as ``mine`` has them."""
    if mine is None:
        return profile
    flags = {
        name: mine.flags.get(name, value) if value == MASK else value
        for name, value in profile.flags.items()
    }
    env = {
        name: mine.env.get(name, value) if value == MASK else value
        for name, value in profile.env.items()
    }
    command = profile.command
    if command == tuple(mask_argv(mine.command)):
        command = mine.command
    return replace(profile, flags=flags, env=env, command=command)


def newest(statuses: Sequence[RunStatus]) -> list[RunStatus]:
    """Return the living runs and the last ended ones; older ones stay on the host's disk."""
    ended = [status for status in statuses if not status.processes]
    ended.sort(key=lambda status: status.record.launched_at, reverse=True)
    kept = {status.record.id for status in ended[:KEPT_RUNS]}
    return [s for s in statuses if s.processes or s.record.id in kept]
