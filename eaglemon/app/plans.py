"""Plans: from a profile to a launch or a probe that can be shown before it is carried out."""

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Protocol

import msgspec

from eaglemon.app.runs import RUN_RECORD
from eaglemon.core.probe import ProbePlan, Prompt
from eaglemon.core.problems import Problem, did_you_mean
from eaglemon.core.profiles import ProbeDefaults, Profile
from eaglemon.core.redact import mask_argv, mask_env
from eaglemon.core.views import LaunchPlan
from eaglemon.engines import engine_named
from eaglemon.errors import ServerError, UsageError

PROBE_LIMIT_S, PROBE_MARGIN_S = 1800.0, 600.0
"""A probe takes no longer than this; one that a duration ends, no longer than it and the margin."""


class Profiles(Protocol):
    """Where profiles come from (``eaglemon.io.config.ProfileStore``)."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong with files that could not be read."""
        ...

    def all(self) -> Sequence[Profile]:
        """Return every profile that could be read."""
        ...

    def get(self, name: str, overrides: Mapping[str, str] | None = None) -> Profile:
        """Return one, with overrides applied; raises ``ConfigError`` or ``UsageError``."""
        ...


def launch_plan(profile: Profile, host: str) -> LaunchPlan:
    """Return what starting ``profile`` on ``host`` would run."""
    engine = engine_named(profile.engine)
    argv, env = engine.argv(profile), engine.environment(profile)
    return LaunchPlan(
        host=host, profile=profile, argv=argv, env=env, shell_line=_shell_line(argv, env)
    )


def relaunch_plan(profile: Profile, host: str, *, forced_length: float | None) -> LaunchPlan:
    """Return what starting a server of this profile again would run.

    With ``forced_length`` the engine makes up this accept length while it verifies for real.
    Raises ``ServerError`` where the engine cannot, or where not all of the profile is known.
    """
    if profile.source == RUN_RECORD:
        raise ServerError(
            f"the profile {profile.name} is not known here, only what its run's record tells",
            hint="launch it from this console, or put its profile file here",
        )
    if forced_length is None:
        return launch_plan(profile, host)
    variable = engine_named(profile.engine).measuring.forced_acceptance
    if variable is None or profile.speculation is None:
        why = "does not speculate" if variable else "has no way to force an accept length"
        raise ServerError(f"{profile.name} ({profile.engine}) {why}")
    forced = replace(profile, env={**profile.env, variable: f"{forced_length:g}"})
    return launch_plan(forced, host)


def probe_plan(
    defaults: ProbeDefaults,
    overrides: Mapping[str, str],
    workload: Callable[[str], tuple[Prompt, ...]],
) -> ProbePlan:
    """Return the probe with ``overrides`` (text, as typed); raises ``UsageError``."""
    values = _with_overrides(defaults, overrides)
    total_s = PROBE_LIMIT_S
    if values.duration_s is not None:
        if not values.duration_s > 0:
            raise UsageError(
                f"a probe of {values.duration_s:g} s begins no request",
                hint="give a duration above 0, or none and the number of requests",
            )
        total_s = max(total_s, values.duration_s + PROBE_MARGIN_S)
    return ProbePlan(
        workload=values.workload,
        prompts=workload(values.workload),
        requests=values.requests,
        concurrency=values.concurrency,
        warmup=values.warmup,
        max_tokens=values.max_tokens,
        temperature=values.temperature,
        nonce=secrets.token_hex(3) if values.nonce else "",
        ignore_eos=values.ignore_eos,
        duration_s=values.duration_s,
        seed=values.seed,
        flush=values.flush,
        from_host=values.from_host,
        total_limit_s=total_s,
    )


def _shell_line(argv: Sequence[str], env: Mapping[str, str]) -> str:
    words = [f"{name}={value}" for name, value in mask_env(env).items()]
    return " ".join(_quote(word) for word in [*words, *mask_argv(argv)])


def _quote(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and name.isidentifier():
        return f"{name}={shlex.quote(value)}"
    return shlex.quote(word)


def _with_overrides(defaults: ProbeDefaults, overrides: Mapping[str, str]) -> ProbeDefaults:
    values: dict[str, object] = asdict(defaults)
    for name, text in overrides.items():
        key = name.replace("-", "_")
        if key not in values:
            raise UsageError(f"unknown probe setting {name!r}", hint=did_you_mean(key, values))
        values[key] = text
    try:
        return msgspec.convert(values, type=ProbeDefaults, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"probe setting: {error}") from error
