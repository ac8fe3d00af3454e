"""Carries out what ``eaglemon draft`` asks for where the draft lies: here or on a host.

Torch, and what reaches hosts, is loaded only then.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from eaglemon.cli.invocation import Invocation
from eaglemon.draft.hub_cache import is_repository
from eaglemon.engines.command import interpreter
from eaglemon.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
# As scp reads it; a single letter is a drive of Windows.
_ELSEWHERE = re.compile(r"(?P<host>[^/\\]{2,}):(?P<path>[/~].*)")


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder of this machine, or of a host."""

    path: str
    host: str | None = None


class PlaceType(click.ParamType[Place]):
    """A path, or ``HOST:/path``."""

    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Return the place."""
        del param, ctx
        if isinstance(value, Place):
            return value
        match = _ELSEWHERE.fullmatch(str(value))
        return Place(str(value)) if match is None else Place(match["path"], match["host"])


class SlotsType(click.ParamType[tuple[int, ...]]):
    """Whole numbers from ``0,2,4``."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).strip("[]").split(","))
        except ValueError:
            example = (param.metavar if param is not None else None) or "0,2,4"
            self.fail(f"{value!r} is no list of numbers; write {example}", param, ctx)


PLACE = PlaceType()
SLOTS = SlotsType()


def threads_option(command: Command) -> Command:
    """Add ``--threads``: by default half of the cores, the rest is the server's."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="CPU threads; half of the cores if unset.",
    )(command)


def python_option(command: Command) -> Command:
    """Add ``--python``."""
    return click.option(
        "--python",
        metavar="PATH",
        help="Compute in this Python, which has what is needed, such as an engine's own.",
    )(command)


def profile_option(command: Command) -> Command:
    """Add ``--profile``, which names a Python too."""
    return click.option(
        "--profile", metavar="NAME", help="Compute in the Python of this profile's engine."
    )(command)


def engine_of(
    invocation: Invocation, profile: str | None, python: str | None
) -> tuple[str | None, Mapping[str, str]]:
    """Return the Python that was named, itself or by a profile, and the profile's environment.

    Raises ``UsageError`` where both are named.
    """
    if profile is None:
        return python, {}
    if python is not None:
        raise UsageError("--profile and --python name two Pythons", hint="leave out one")
    found = invocation.profiles().get(profile)
    return interpreter(found), found.env


def place_option(command: Command) -> Command:
    """Add ``--host`` for commands whose paths may lie on one host."""
    return click.option(
        "--host", metavar="HOST", help="All paths are on this host; the same as HOST:/path."
    )(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where requests are carried out: this machine or ``host``, in ``python`` if it is named."""

    invocation: Invocation
    host: str | None = None
    python: str | None = None

    @property
    def prefix(self) -> str:
        """What stands before a path for a person."""
        return f"{self.host}:" if self.host else ""

    def perform(self, request: Mapping[str, Any]) -> Any:
        """Carry out a request of ``draft.task.perform``; raises as that does, or ``HostError``."""
        # Each of these loads torch or much else, which --help must not wait for.
        if self.host is not None:
            return self._there(self.host, request)
        if self.python is not None:
            from eaglemon.draft.elsewhere import perform_with  # noqa: PLC0415

            return perform_with(self.python, request)
        from eaglemon.draft.task import perform  # noqa: PLC0415

        return perform(request)

    def _there(self, host: str, request: Mapping[str, Any]) -> Any:
        from eaglemon.app.draft_host import perform_on  # noqa: PLC0415
        from eaglemon.cli import running  # noqa: PLC0415
        from eaglemon.cli.questions import terminal_asker  # noqa: PLC0415

        (spec,) = self.invocation.hosts((host,))

        async def work() -> Any:
            return await perform_on(spec, request, python=self.python, ask=terminal_asker())

        return running.run(work())


def bench_for(
    invocation: Invocation,
    host: str | None,
    *places: Place | None,
    python: str | None = None,
) -> tuple[Bench, list[str | None]]:
    """Return where to work and the paths there; raises ``UsageError`` where they are apart.

    Those of a host must be absolute.
    """
    given = [place for place in places if place is not None]
    names = {place.host or host for place in given} | ({host} if host else set())
    if len(names) > 1:
        where = ", ".join(sorted(name or "this machine" for name in names))
        raise UsageError(f"the paths are on {where}", hint="all must be on one machine")
    (name,) = names
    paths: list[str | None] = []
    for place in places:
        if place is None or name is None:
            paths.append(None if place is None else place.path)
            continue
        if not place.path.startswith(("/", "~")) and not is_repository(place.path):
            raise UsageError(f"{place.path}: is no path of {name}", hint="write it from / or ~ on")
        paths.append(place.path)
    return Bench(invocation=invocation, host=name, python=python), paths
