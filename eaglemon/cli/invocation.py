"""What all commands share: the global options, and the parameters that several take."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eaglemon.cli import completing, diagnostics
from eaglemon.core.hosts import HostSpec
from eaglemon.errors import UsageError
from eaglemon.io.host_config import host_named, load_hosts

if TYPE_CHECKING:
    from eaglemon.io.config import ProfileStore

Command = TypeVar("Command", bound=Callable[..., Any])
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h)?")
_WORD = re.compile(r"[:,=@\s]")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


@dataclass
class Invocation:
    """The global options of one call of ``eaglemon``."""

    config: Path | None = None
    accept_new: bool = False
    """Whether keys of hosts never seen before are written to known_hosts."""

    def profiles(self) -> "ProfileStore":
        """Read the profiles; warns of files that are broken.

        What is wrong with a profile that the command line names is left to its error.
        """
        # Imported here because the console has its hosts on screen first.
        from eaglemon.io.config import ProfileStore  # noqa: PLC0415

        store = ProfileStore.load(config=self.config)
        named = {_WORD.split(word)[0] for word in _words(click.get_current_context(silent=True))}
        told = {problem for name in named for problem in store.broken.get(name, ())}
        for problem in store.problems:
            if problem not in told:
                diagnostics.warn(str(problem))
        return store

    def hosts(self, names: Sequence[str]) -> tuple[HostSpec, ...]:
        """Return the named hosts, or all that are configured when none is named."""
        configured = load_hosts(config=self.config)
        asked = configured
        if names:
            asked = tuple(host_named(name, configured) for name in dict.fromkeys(names))
        if self.accept_new:
            return tuple(replace(spec, accept_new=True) for spec in asked)
        return asked


def _words(context: click.Context | None) -> Iterator[str]:
    """Yield the words of a command line that may name a profile."""
    for value in context.params.values() if context is not None else ():
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str):
                yield word


class DurationType(click.ParamType[float]):
    """Seconds from ``90``, ``90s``, ``15m`` or ``2h``."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no duration; write 90s, 15m or 2h", param, ctx)
        return float(match["number"]) * _SECONDS[match["unit"]]


class NumbersType(click.ParamType[tuple[float, ...]]):
    """Numbers with commas between them."""

    name = "numbers"

    def __init__(self, *, whole: bool, least: float) -> None:
        self._whole = whole
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(
                float(int(part)) if self._whole else float(part) for part in str(value).split(",")
            )
        except ValueError:
            self.fail(f"{value!r} is no list of numbers; write 1,8,32", param, ctx)
        if any(not number >= self._least for number in numbers):
            self.fail(f"{value!r}: must be {self._least:g} or more", param, ctx)
        return numbers


DURATION = DurationType()


def host_option(command: Command) -> Command:
    """Add ``--host``, which may be given more than once."""
    return click.option(
        "--host",
        "hosts",
        multiple=True,
        metavar="HOST",
        shell_complete=completing.hosts,
        help="Host to ask: of hosts.toml, of ~/.ssh/config or [user@]name[:port]; repeatable.",
    )(command)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Write one JSON document to stdout."
    )(command)


def settings_from(pairs: Sequence[str]) -> Mapping[str, str]:
    """Return ``--set KEY=VALUE`` pairs as a mapping; raises ``UsageError``."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {pair}: is no setting", hint="write --set NAME=VALUE")
        settings[key.strip()] = value
    return settings
