"""The engines: one pure module each; ``engine_named`` is the only way to get one."""

from collections.abc import Mapping
from types import MappingProxyType

from eaglemon.core.problems import did_you_mean
from eaglemon.core.profiles import Profile
from eaglemon.engines.base import Engine
from eaglemon.engines.importing import split_line
from eaglemon.engines.sglang import SGLANG
from eaglemon.engines.vllm import VLLM
from eaglemon.errors import ConfigError, UsageError

ENGINES: Mapping[str, Engine] = MappingProxyType({SGLANG.name: SGLANG, VLLM.name: VLLM})


def engine_named(name: str) -> Engine:
    """Return the engine of this name; raises ``ConfigError`` naming the nearest one."""
    engine = ENGINES.get(name)
    if engine is None:
        raise ConfigError(f"unknown engine {name!r}", hint=did_you_mean(name, ENGINES))
    return engine


def engine_of(argv: tuple[str, ...]) -> Engine | None:
    """Return the engine whose server has this command line, ``None`` for other processes."""
    return next((engine for engine in ENGINES.values() if engine.recognises(argv)), None)


def import_command(line: str) -> Profile:
    """Return the profile that a shell line amounts to; raises ``UsageError``."""
    argv = split_line(line)
    engine = engine_of(argv)
    if engine is None:
        raise UsageError(
            "not the command line of a server",
            hint="it must run 'vllm serve', 'sglang serve' or 'sglang.launch_server'",
        )
    return engine.profile_of(argv)
