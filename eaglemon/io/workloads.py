"""Workloads: the prompts of a probe, shipped by name or read from a person's own JSONL file."""

import random
import string
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from eaglemon.core.probe import Prompt
from eaglemon.core.problems import Problem, Severity, did_you_mean
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.resources import data_folder

SUFFIX = ".jsonl"
RANDOM = "random"
"""Name of prompts that are drawn and mean nothing; for load only, never for acceptance."""
_RANDOM_PROMPTS, _RANDOM_WORDS, _RANDOM_SEED = 64, 48, 1


def workload_names() -> tuple[str, ...]:
    """Return the names of the shipped workloads, sorted."""
    entries = (data_folder("configs") / "workloads").iterdir()
    return tuple(sorted(e.name.removesuffix(SUFFIX) for e in entries if e.name.endswith(SUFFIX)))


def load_workload(name_or_path: str) -> tuple[Prompt, ...]:
    """Return the prompts of a shipped workload, or of a file with one JSON object per line.

    Each object has ``id`` and ``text``; ``random`` gives drawn words. Raises ``UsageError`` for an
    unknown name and ``ConfigError`` that names file and line for a file that is not such a list.
    """
    names = workload_names()
    if name_or_path == RANDOM:
        return _random_prompts()
    if name_or_path in names:
        shipped = data_folder("configs") / "workloads" / f"{name_or_path}{SUFFIX}"
        return _read(shipped, f"packaged workloads/{name_or_path}{SUFFIX}")
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return _read(path, str(path))
    if _is_path(name_or_path):
        raise UsageError(f"workload {name_or_path}: no such file")
    hint = did_you_mean(name_or_path, (*names, RANDOM))
    if hint.startswith("known"):
        hint = f"{hint}, or a file that ends in {SUFFIX}"
    raise UsageError(f"unknown workload {name_or_path!r}", hint=hint)


def workload_problems(name_or_path: str) -> list[Problem]:
    """Return what is wrong with the workload that a profile names for its probes.

    A file is looked for from the folder that a probe is started in, so its lack is a warning.
    """
    try:
        load_workload(name_or_path)
    except (UsageError, ConfigError) as error:
        file = isinstance(error, ConfigError) or _is_path(name_or_path)
        return [
            Problem(
                where="probe.workload",
                message=error.message,
                hint=error.hint,
                severity=Severity.WARNING if file else Severity.ERROR,
                slug="workload-unknown",
            )
        ]
    return []


def _is_path(name: str) -> bool:
    path = Path(name)
    return bool(path.suffix) or len(path.parts) > 1


def _random_prompts() -> tuple[Prompt, ...]:
    drawn = random.Random(_RANDOM_SEED)  # noqa: S311 -- repeatable, no secret
    letters = string.ascii_lowercase

    def word() -> str:
        return "".join(drawn.choices(letters, k=drawn.randint(2, 9)))

    return tuple(
        Prompt(id=f"random-{i:02}", text=" ".join(word() for _ in range(_RANDOM_WORDS)))
        for i in range(1, _RANDOM_PROMPTS + 1)
    )


def _read(source: Path | Traversable, label: str) -> tuple[Prompt, ...]:
    try:
        # Some editors begin UTF-8 files with a byte order mark, which is no part of the text.
        text = source.read_text(encoding="utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{label}: is not UTF-8 text ({error.reason})") from error
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"{label}: cannot be read: {reason}") from error
    prompts: dict[str, Prompt] = {}
    # Only the newline ends a line: prompts may hold U+2028 and the like.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = msgspec.json.decode(line, type=Prompt)
        except msgspec.DecodeError as error:
            hint = 'each line must be {"id": "...", "text": "..."}'
            message = f"{label}:{number}: is no prompt: {_lower_first(str(error))}"
            raise ConfigError(message, hint=hint) from error
        if not prompt.text.strip():
            raise ConfigError(f"{label}:{number}: the prompt {prompt.id!r} has no text")
        if prompt.id in prompts:
            raise ConfigError(f"{label}:{number}: the id {prompt.id!r} is used twice")
        prompts[prompt.id] = prompt
    if not prompts:
        raise ConfigError(f"{label}: has no prompt")
    return tuple(prompts.values())


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
