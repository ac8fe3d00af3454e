"""Command lines read back: a server that somebody started by hand becomes a profile."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from eaglemon.core.profiles import FlagValue, Profile, Speculation
from eaglemon.errors import UsageError

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][+-]?\d+)")
_MODULES = frozenset({"sglang.launch_server", "vllm.entrypoints.openai.api_server"})
_SHELL_ENDS = frozenset({"&", "&&", ";", "|", ">", "2>&1"})
_LEFT_OUT = "..."
"""Stands in documentation for whatever a line leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommand:
    """A server's command line in parts."""

    start: tuple[str, ...]
    """What runs the engine, up to ``serve`` or the module's name."""
    words: tuple[str, ...] = ()
    """What stands before the first flag, such as vLLM's model."""
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def owned(self, names: Mapping[str, str], key: str) -> FlagValue | None:
        """Return the value of the flag that stands for the profile's ``key``."""
        flags = [flag for flag, owner in names.items() if owner == key]
        return next((self.flags[flag] for flag in flags if flag in self.flags), None)


def split_line(line: str) -> tuple[str, ...]:
    """Return the words of a shell line; raises ``UsageError`` for unbalanced quotes."""
    try:
        return tuple(shlex.split(line.replace("\\\n", " ")))
    except ValueError as error:
        raise UsageError(
            f"cannot read the command line: {error}", hint="check its quotes"
        ) from error


def read_command(argv: Sequence[str]) -> ReadCommand:
    """Split a server's command line; values become numbers, tables or tuples where they are."""
    words = list(argv)
    env: dict[str, str] = {}
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    begin = _begin(words)
    rest: list[str] = []
    for word in words[begin:]:
        if word in _SHELL_ENDS:
            break
        if word != _LEFT_OUT:
            rest.append(word)
    first = next((at for at, word in enumerate(rest) if word.startswith("--")), len(rest))
    return ReadCommand(
        start=tuple(words[:begin]),
        words=tuple(rest[:first]),
        flags=_flags(rest[first:]),
        env=env,
    )


def common_fields(
    command: ReadCommand, owned: Mapping[str, str], *, engine: str, model: object, default_port: int
) -> Profile:
    """Return the profile of a command, without its speculation."""
    port = command.owned(owned, "port")
    address = command.owned(owned, "address")
    served = command.owned(owned, "served_name")
    gpus = command.env.get("CUDA_VISIBLE_DEVICES", "")
    indexes = tuple(int(part) for part in gpus.split(",")) if _is_indexes(gpus) else None
    chosen = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} if indexes is not None else set()
    return Profile(
        name="imported",
        engine=engine,
        model="" if model is None else str(model),
        port=port if isinstance(port, int) else default_port,
        address=str(address) if address is not None else "127.0.0.1",
        served_name=str(served) if served is not None else None,
        gpus=indexes,
        command=command.start,
        env={name: value for name, value in command.env.items() if name not in chosen},
        flags={name: value for name, value in command.flags.items() if name not in owned},
    )


def speculation_of(
    algorithm: str, *, steps: object, topk: object, draft_tokens: object
) -> Speculation:
    """Return the speculation of flags, what is no number left out."""
    return Speculation(
        algorithm=algorithm,
        steps=_integer(steps),
        topk=_integer(topk),
        draft_tokens=_integer(draft_tokens),
    )


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_indexes(text: str) -> bool:
    return re.fullmatch(r"\d+(?:,\d+)*", text) is not None


def _begin(words: Sequence[str]) -> int:
    for at, word in enumerate(words):
        if word in _MODULES:
            return at + 1
        before = PurePosixPath(words[at - 1]).name if at else ""
        if word == "serve" and before in {"vllm", "sglang", "vllm.entrypoints.cli.main"}:
            return at + 1
    raise UsageError(
        "not the command line of a server",
        hint="it must run 'vllm serve', 'sglang serve' or 'sglang.launch_server'",
    )


def _flags(words: Sequence[str]) -> dict[str, FlagValue]:
    flags: dict[str, FlagValue] = {}
    at = 0
    while at < len(words):
        name, equals, inline = words[at].removeprefix("--").partition("=")
        at += 1
        values = [inline] if equals else []
        while not equals and at < len(words) and not words[at].startswith("--"):
            values.append(words[at])
            at += 1
        flags[name] = _value(values)
    return flags


def _value(values: Sequence[str]) -> FlagValue:
    if not values:
        return True
    if len(values) > 1:
        return tuple(_scalar(value) for value in values)
    if values[0].startswith("{"):
        try:
            table = json.loads(values[0])
        except ValueError:
            return values[0]
        if isinstance(table, dict):
            return table
    return _scalar(values[0])


def _scalar(text: str) -> str | int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
