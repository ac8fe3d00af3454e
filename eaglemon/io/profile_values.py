"""Builds profiles from merged plain values, and applies ``--set`` overrides to them."""

import dataclasses
import difflib
import math
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

import msgspec

from eaglemon.core.phases import Phase
from eaglemon.core.problems import Problem, did_you_mean
from eaglemon.core.profiles import (
    FlagValue,
    Hooks,
    Limits,
    ProbeDefaults,
    Profile,
    Speculation,
)
from eaglemon.engines import ENGINES
from eaglemon.errors import UsageError
from eaglemon.io.text_values import text_problems
from eaglemon.io.tomlfile import TomlFile
from eaglemon.io.typed import field_hints, flag_from_text, from_text, typed_fields, words_for

TABLES: Mapping[str, type] = {
    "speculation": Speculation,
    "limits": Limits,
    "hooks": Hooks,
    "probe": ProbeDefaults,
}
"""Tables of a profile that are dataclasses of their own."""
MERGED = (*TABLES, "flags", "env", "stall_limits")
"""Tables that a child profile adds to, key by key; all other keys it replaces."""
FILE_KEYS = tuple(f.name for f in fields(Profile) if f.name not in {"name", "source"})
SHORT_NAMES = {
    "steps": "speculation.steps",
    "topk": "speculation.topk",
    "draft-tokens": "speculation.draft_tokens",
    "draft_tokens": "speculation.draft_tokens",
    "algorithm": "speculation.algorithm",
}
"""What ``--set`` takes for the settings that are changed most."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PORTS = range(1, 65536)
_MOST_DRAFTED = 1024
"""Draft steps and tokens of a verify step: far above what any engine can use, to catch slips."""


def name_problem(name: str) -> str | None:
    """Return what is wrong with a profile's name: it becomes a folder name on the host."""
    if _NAME.fullmatch(name) and len(name) <= 80:
        return None
    return "is no usable name: use letters, digits, dots, dashes and underscores"


def check_layer(raw: Mapping[str, object], file: TomlFile, path: tuple[str, ...]) -> list[Problem]:
    """Return what is wrong with one file's own keys, before ``extends`` is resolved."""
    _, problems = _typed_profile(raw, file, path)
    return problems


def merge(parent: Mapping[str, object], child: Mapping[str, object]) -> dict[str, object]:
    """Return the parent's values with the child's laid over them."""
    merged = dict(parent)
    for key, value in child.items():
        inherited = merged.get(key)
        if key in MERGED and isinstance(inherited, Mapping) and isinstance(value, Mapping):
            merged[key] = {**inherited, **value}
        else:
            merged[key] = value
    if child.get("speculation") is False and "draft" not in child:
        merged.pop("draft", None)
    return merged


def leaf_paths(raw: Mapping[str, object]) -> list[tuple[str, ...]]:
    """Return the keys of a profile's plain values; those of merged tables one by one."""
    paths: list[tuple[str, ...]] = []
    for key, value in raw.items():
        if key in MERGED and isinstance(value, Mapping):
            paths += [(key, inner) for inner in value]
        else:
            paths.append((key,))
    return paths


def build(
    name: str, merged: Mapping[str, object], file: TomlFile, path: tuple[str, ...]
) -> Profile | list[Problem]:
    """Return the profile, or all that is wrong with it."""
    values, problems = _typed_profile(merged, file, path)
    if "port" not in merged and merged.get("engine") in ENGINES:
        values["port"] = ENGINES[str(merged["engine"])].default_port
    for required in ("engine", "model"):
        if required not in merged:
            hint = f"add {required} = ... or extends = a profile that has it"
            problems.append(file.problem((*path, required), "is missing", hint=hint))
    if problems:
        return problems
    # ``typed_fields`` has checked each value against the field's type.
    profile = Profile(name=name, source=file.label, **typing.cast("dict[str, typing.Any]", values))
    return [file.problem((*path, *key), text) for key, text in _range_problems(profile)] or profile


def full_key(key: str) -> str:
    """Return the dotted key of the profile that a key of ``--set`` stands for."""
    short = key.strip().removeprefix("--")
    key = SHORT_NAMES.get(short, short)
    table = key.partition(".")[0]
    if table.replace("-", "_") in FILE_KEYS:
        return key if "." in key else key.replace("-", "_")
    return f"flags.{key}"


def override(profile: Profile, settings: Mapping[str, str]) -> Profile:
    """Return the profile with ``--set`` values applied in order; raises ``UsageError``."""
    for key, text in settings.items():
        profile = _override_one(profile, key.strip().removeprefix("--"), text.strip())
    problems = [f"--set {'.'.join(key)}: {text}" for key, text in _range_problems(profile)]
    if problems:
        raise UsageError("; ".join(problems))
    return profile


def _typed_profile(
    raw: Mapping[str, object], file: TomlFile, path: tuple[str, ...]
) -> tuple[dict[str, object], list[Problem]]:
    own = {k: v for k, v in raw.items() if k not in TABLES and k not in {"flags", "extends"}}
    known = (*FILE_KEYS, "extends")
    below = {f.name: table for table, kind in TABLES.items() for f in fields(kind)}
    values, problems = typed_fields(own, Profile, file=file, path=path, known=known, tables=below)
    for key, kind in TABLES.items():
        table = raw.get(key)
        if table is None or (key == "speculation" and table is False):
            continue
        if not isinstance(table, Mapping):
            problems.append(file.problem((*path, key), "must be a table"))
            continue
        names = [f.name for f in fields(kind)]
        inner, wrong = typed_fields(table, kind, file=file, path=(*path, key), known=names)
        problems += wrong
        if not wrong:
            values[key] = kind(**inner)
    flags = raw.get("flags", {})
    if isinstance(flags, Mapping):
        values["flags"], wrong = _typed_flags(flags, file, (*path, "flags"))
        problems += wrong
    else:
        problems.append(file.problem((*path, "flags"), "must be a table"))
    name = values.get("engine")
    if name is not None and name not in ENGINES:
        hint = did_you_mean(str(name), ENGINES)
        problems.append(file.problem((*path, "engine"), f"unknown engine {name!r}", hint=hint))
    extends = raw.get("extends")
    if extends is not None and not isinstance(extends, str):
        problems.append(file.problem((*path, "extends"), "must be the name of a profile"))
    return values, problems


def _typed_flags(
    raw: Mapping[str, object], file: TomlFile, path: tuple[str, ...]
) -> tuple[dict[str, object], list[Problem]]:
    flags: dict[str, object] = {}
    problems: list[Problem] = []
    for name, value in raw.items():
        if not _FLAG.fullmatch(name):
            bare = name.lstrip("-")
            hint = f"write {bare} = ..." if bare else ""
            problems.append(file.problem((*path, name), "is no flag name", hint=hint))
            continue
        try:
            flags[name] = msgspec.convert(value, typing.cast("type[object]", FlagValue))
        except msgspec.ValidationError:
            message = f"must be {words_for(FlagValue)}"
            problems.append(file.problem((*path, name), message))
    return flags, problems


def _range_problems(profile: Profile) -> Iterator[tuple[tuple[str, ...], str]]:
    if profile.port not in _PORTS:
        yield ("port",), f"must be from 1 to 65535, not {profile.port}"
    gpus = profile.gpus
    if gpus is not None and (not gpus or min(gpus) < 0 or len(set(gpus)) != len(gpus)):
        yield ("gpus",), "must be different indexes from 0 up, at least one"
    for field in fields(Limits):
        value = getattr(profile.limits, field.name)
        if not (value > 0 and math.isfinite(value)):
            yield ("limits", field.name), "must be more than 0 seconds"
    yield from text_problems(profile)
    yield from _stall_problems(profile)
    yield from _reach_problems(profile)
    for name, least in (("requests", 1), ("concurrency", 1), ("max_tokens", 1), ("warmup", 0)):
        if getattr(profile.probe, name) < least:
            yield ("probe", name), f"must be {least} or more"
    if not (profile.probe.temperature >= 0 and math.isfinite(profile.probe.temperature)):
        yield ("probe", "temperature"), "must be 0 or more"
    if profile.speculation is not None:
        for name in ("steps", "topk", "draft_tokens"):
            value = getattr(profile.speculation, name)
            if value is not None and value < 1:
                yield ("speculation", name), "must be 1 or more"
            elif value is not None and value > _MOST_DRAFTED:
                yield (
                    ("speculation", name),
                    f"must be at most {_MOST_DRAFTED}: no draft gets as far",
                )


def _stall_problems(profile: Profile) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, limit_s in profile.stall_limits.items():
        if name not in set(Phase):
            yield ("stall_limits", name), f"is no phase; phases are {', '.join(Phase)}"
        elif not (limit_s > 0 and math.isfinite(limit_s)):
            yield ("stall_limits", name), "must be more than 0 seconds"


def _reach_problems(profile: Profile) -> Iterator[tuple[tuple[str, ...], str]]:
    if profile.launcher not in {None, "module", "script"}:
        yield ("launcher",), f"must be 'module' or 'script', not {profile.launcher!r}"
    ways = [way for way in ("venv", "conda", "container") if getattr(profile, way) is not None]
    if len(ways) > 1:
        yield (ways[0],), f"{' and '.join(ways)} are given: Python is reached in one way only"


def _override_one(profile: Profile, key: str, text: str) -> Profile:
    key = SHORT_NAMES.get(key, key)
    table, dot, name = key.partition(".")
    by_name = {"env": _override_env, "flags": _override_flag, "stall_limits": _override_stall}
    if dot and table in by_name:
        return by_name[table](profile, name, text)
    if dot and table in TABLES:
        return _override_table(profile, table, name.replace("-", "_"), text)
    field = key.replace("-", "_")
    if field == "speculation" and text.lower() == "none":
        return replace(profile, speculation=None, draft=None)
    if field in MERGED:
        raise UsageError(f"--set {key}: is a table", hint=f"set one of its keys: {key}.NAME=VALUE")
    if field in FILE_KEYS:
        value = _field_from_text(key, text, field_hints(Profile)[field])
        return replace(profile, **{field: typing.cast("typing.Any", value)})
    if key not in profile.flags:
        names = (*FILE_KEYS, *SHORT_NAMES)
        near = difflib.get_close_matches(field, names, n=1, cutoff=0.8)
        if near:
            hint = f"did you mean {near[0]!r}? for a flag of the server write flags.{key}"
            raise UsageError(f"--set {key}: is not a setting", hint=hint)
    return _override_flag(profile, key, text)


def _override_env(profile: Profile, name: str, text: str) -> Profile:
    if not name or "=" in name:
        raise UsageError(f"--set env.{name}: is no name of a variable")
    env = {**profile.env, name: text}
    if text == "none":
        del env[name]
    return replace(profile, env=env)


def _override_stall(profile: Profile, name: str, text: str) -> Profile:
    seconds = _field_from_text(f"stall_limits.{name}", text, float)
    limits = {**profile.stall_limits, name: typing.cast("float", seconds)}
    return replace(profile, stall_limits=limits)


def _override_flag(profile: Profile, name: str, text: str) -> Profile:
    if not _FLAG.fullmatch(name):
        raise UsageError(f"--set {name}: is no flag name", hint="write NAME=VALUE without dashes")
    flags = dict(profile.flags)
    if text == "none":
        flags.pop(name, None)
    else:
        flags[name] = flag_from_text(text, flags.get(name))
    return replace(profile, flags=flags)


def _override_table(profile: Profile, table: str, name: str, text: str) -> Profile:
    kind = TABLES[table]
    names = [field.name for field in fields(kind)]
    if name not in names:
        raise UsageError(f"--set {table}.{name}: unknown", hint=did_you_mean(name, names))
    present = getattr(profile, table)
    if present is None:
        present = kind()
    value = _field_from_text(f"{table}.{name}", text, field_hints(kind)[name])
    changed = dataclasses.replace(present, **{name: value})
    return replace(profile, **{table: changed})


def _field_from_text(key: str, text: str, hint: object) -> object:
    try:
        return from_text(text, hint)
    except (ValueError, KeyError, msgspec.ValidationError) as error:
        raise UsageError(f"--set {key}: must be {words_for(hint)}, not {text!r}") from error
