"""Plans: from a profile to a launch or a probe that can be shown before it is carried out."""

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import msgspec

from eaglemon.core.probe import ProbePlan, Prompt
from eaglemon.core.problems import did_you_mean
from eaglemon.core.profiles import ProbeDefaults, Profile
from eaglemon.core.redact import mask_argv, mask_env
from eaglemon.core.views import LaunchPlan
from eaglemon.engines import engine_named
from eaglemon.errors import UsageError


def launch_plan(profile: Profile, host: str) -> LaunchPlan:
    """Return what starting ``profile`` on ``host`` would run."""
    engine = engine_named(profile.engine)
    argv, env = engine.argv(profile), engine.environment(profile)
    return LaunchPlan(
        host=host, profile=profile, argv=argv, env=env, shell_line=_shell_line(argv, env)
    )


def probe_plan(
    defaults: ProbeDefaults,
    overrides: Mapping[str, str],
    workload: Callable[[str], tuple[Prompt, ...]],
) -> ProbePlan:
    """Return the probe with ``overrides`` (text, as typed); raises ``UsageError``."""
    values = _with_overrides(defaults, overrides)
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
