"""Carries out ``eaglemon hosts check`` and lays out what it found."""

import asyncio
from collections.abc import Sequence
from functools import partial

from eaglemon.app.requirements import examine
from eaglemon.cli import diagnostics
from eaglemon.cli.questions import tell_person, terminal_asker
from eaglemon.core.host_report import HostReport, Requirement
from eaglemon.core.hosts import HostSpec
from eaglemon.core.profiles import Profile
from eaglemon.io.connect import transport_to


def examine_all(hosts: Sequence[HostSpec], profiles: Sequence[Profile]) -> Sequence[HostReport]:
    """Look at all hosts at the same time."""
    # Published pairs say nothing about where an engine is installed.
    own = [one for one in profiles if not one.reference]

    async def examined() -> Sequence[HostReport]:
        connect = partial(transport_to, ask=terminal_asker(), tell=tell_person)
        return await asyncio.gather(*(examine(one, own, connect=connect) for one in hosts))

    with diagnostics.library_log():
        return asyncio.run(examined())


def report_rows(reports: Sequence[HostReport]) -> list[tuple[str, ...]]:
    """Return a row for each requirement, the header first."""
    rows: list[tuple[str, ...]] = [("HOST", "REQUIREMENT", "", "FOUND")]
    for report in reports:
        rows += [(report.host, one.name, _mark(one), _said(one)) for one in report.requirements]
    return rows


def _mark(one: Requirement) -> str:
    if one.met is None:
        return "-"
    if one.met:
        return "ok"
    return "FAILED" if one.needed else "missing"


def _said(one: Requirement) -> str:
    return f"{one.detail}; {one.fix}" if one.fix else one.detail
