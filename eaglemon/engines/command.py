"""Command lines: flags of a profile as arguments, and what can be wrong with any of them."""

import json
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import PurePosixPath

from eaglemon.core.problems import Problem, Severity, did_you_mean, misspelt
from eaglemon.core.profiles import FlagValue, Profile
from eaglemon.core.units import plural


def flag_arguments(flags: Mapping[str, FlagValue]) -> list[str]:
    """Return ``--name value`` for each flag; ``True`` is bare, ``False`` left out, maps JSON."""
    arguments: list[str] = []
    for name, value in flags.items():
        if value is False:
            continue
        arguments.append(f"--{name}")
        if value is True:
            continue
        if isinstance(value, Mapping):
            arguments.append(json.dumps(value))
        elif isinstance(value, tuple):
            arguments.extend(str(item) for item in value)
        else:
            arguments.append(str(value))
    return arguments


def gpu_environment(profile: Profile) -> dict[str, str]:
    """Return the profile's variables and those that choose its GPUs, counted in PCI order."""
    chosen: dict[str, str] = {}
    if profile.gpus is not None:
        chosen = {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in profile.gpus),
        }
    return {**chosen, **profile.env}


def interpreter(profile: Profile) -> str:
    """Return the Python on the host that has the engine."""
    return f"{profile.venv.rstrip('/')}/bin/python" if profile.venv is not None else profile.python


def given_key(profile: Profile) -> str | None:
    """Return the first key that ``--api-key`` gives, however its dash is written."""
    for name, value in profile.flags.items():
        if name.replace("_", "-") == "api-key":
            keys = value if isinstance(value, tuple) else (value,)
            return next((str(key) for key in keys if key and not isinstance(key, bool)), None)
    return None


def reached(profile: Profile, start: tuple[str, ...], env: Collection[str]) -> tuple[str, ...]:
    """Return ``start`` as it is reached from the host: inside its conda environment or container.

    ``env`` names the variables that a container takes over from the client's own environment:
    their values do not appear on the command line.
    """
    if profile.conda is not None:
        which = "-p" if "/" in profile.conda else "-n"
        return ("conda", "run", "--no-capture-output", which, profile.conda, *start)
    if profile.container is not None:
        passed = [word for name in sorted(env) for word in ("-e", name)]
        folder = ("-w", profile.workdir) if profile.workdir is not None else ()
        engine, _, name = profile.container.rpartition(":")
        return (engine or "docker", "exec", *passed, *folder, name, *start)
    return start


def program_beside(python: str, name: str) -> str:
    """Return the console script ``name`` of the environment that ``python`` belongs to."""
    path = PurePosixPath(python)
    return str(path.with_name(name)) if "/" in python else name


def starts(argv: tuple[str, ...], program: str, word: str) -> bool:
    """Tell whether ``argv`` runs ``program word``, directly or through an interpreter."""
    return any(
        PurePosixPath(first).name == program and second == word for first, second in pairwise(argv)
    )


def common_problems(
    profile: Profile,
    *,
    known: Collection[str],
    owned: Mapping[str, str],
    tp_flags: Collection[str],
    loose: bool = False,
) -> list[Problem]:
    """Return what is wrong whatever the engine.

    ``known`` are the engine's flags, ``owned`` those that a key of the profile sets (flag to
    key), ``tp_flags`` the names of the number of GPUs one model is spread over. A ``loose`` engine
    takes underscores for dashes, and parts of a table behind a dot (``a-table.a_key``).
    A flag that is all but a known one stops a launch; any other may be a newer release's.
    """
    problems: list[Problem] = []
    if not profile.model:
        problems.append(_error("model", "no model is named", "set model", "model-missing"))
    if not 1 <= profile.port <= 65535:
        problems.append(
            _error("port", f"{profile.port} is no TCP port", "use 1024 to 65535", "out-of-range")
        )
    for name in profile.flags:
        where = f"flags.{name}"
        if name in owned:
            problems.append(
                _error(
                    where,
                    f"--{name} is set by the profile itself",
                    f"use the key {owned[name]!r} instead",
                    "flag-owned-by-profile",
                )
            )
        elif not _is_known(_dashed(name) if loose else name, known):
            meant = misspelt(name, known)
            problems.append(
                Problem(
                    where=where,
                    message=f"--{name} is not a flag this console knows",
                    hint=f"did you mean {meant!r}?" if meant else did_you_mean(name, known),
                    severity=Severity.ERROR if meant else Severity.WARNING,
                    slug="unknown-flag",
                )
            )
    return [*problems, *_gpu_problems(profile, tp_flags)]


def number_problem(
    profile: Profile, name: str, low: float, high: float, *, low_open: bool = False
) -> list[Problem]:
    """Return a problem when flag ``name`` is given and is no number from ``low`` to ``high``."""
    value = profile.flags.get(name)
    if value is None:
        return []
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = True
    fits = (
        not isinstance(number, bool)
        and isinstance(number, int | float)
        and low <= number <= high
        and not (low_open and number == low)
    )
    if fits:
        return []
    if value == "":
        return [_error(f"flags.{name}", "it has no value", "give one, or leave it out", "no-value")]
    bounds = f"{'above ' if low_open else ''}{low:g} to {high:g}"
    return [_error(f"flags.{name}", f"{value} is out of range", f"use {bounds}", "out-of-range")]


def tensor_parallel(profile: Profile, tp_flags: Collection[str]) -> int | None:
    """Return the number of GPUs that one copy of the model is spread over, where it is given."""
    for name in tp_flags:
        value = profile.flags.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isdigit():
            return int(value)
    return None


def _is_known(name: str, known: Collection[str]) -> bool:
    """Tell whether argparse would take the flag: it allows any start that fits only one name."""
    return name in known or sum(flag.startswith(name) for flag in known) == 1


def _dashed(name: str) -> str:
    return name.partition(".")[0].replace("_", "-")


def _gpu_problems(profile: Profile, tp_flags: Collection[str]) -> list[Problem]:
    if profile.gpus is None:
        return []
    problems = []
    if "CUDA_VISIBLE_DEVICES" in profile.env:
        problems.append(
            _error(
                "env.CUDA_VISIBLE_DEVICES",
                "the GPUs are chosen twice",
                "use gpus alone",
                "gpus-chosen-twice",
            )
        )
    if len(set(profile.gpus)) != len(profile.gpus):
        problems.append(
            _error("gpus", "a GPU is named twice", "name each once", "gpus-chosen-twice")
        )
    spread = tensor_parallel(profile, tp_flags)
    if spread is not None and spread > len(profile.gpus):
        problems.append(
            _error(
                "gpus",
                f"{plural(len(profile.gpus), 'GPU')} for tensor parallel {spread}",
                f"name {spread} GPUs",
                "not-enough-gpus",
            )
        )
    return problems


def _error(where: str, message: str, hint: str, slug: str) -> Problem:
    return Problem(where=where, message=message, hint=hint, slug=slug)
