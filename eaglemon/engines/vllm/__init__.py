"""vLLM with its V1 engine (0.32); its log lines also in older releases."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from eaglemon.core.logs import LogRule
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.prometheus import Metrics
from eaglemon.core.views import HealthVerdict
from eaglemon.engines.base import (
    Endpoints,
    Gauges,
    GenerateRequest,
    HttpCall,
    Measuring,
    StreamDecoder,
)
from eaglemon.engines.command import (
    flag_arguments,
    given_key,
    gpu_environment,
    interpreter,
    program_beside,
    reached,
    starts,
)
from eaglemon.engines.importing import common_fields, read_command, speculation_of
from eaglemon.engines.vllm.flags import OWNED, speculative_config, vllm_problems
from eaglemon.engines.vllm.log_rules import LOG_RULES
from eaglemon.engines.vllm.resolved import resolved_arguments, unlike
from eaglemon.engines.vllm.wire import VllmDecoder, generate_call, read_gauges

_IN_PROFILE = frozenset({"method", "model", "num_speculative_tokens"})
"""Keys of the speculative config that keys of a profile stand for."""


class VllmEngine:
    """All the console knows of vLLM."""

    name = "vllm"
    title = "vLLM"
    default_port = 8000
    package = "vllm"
    endpoints = Endpoints(extra={"version": "/version"})
    log_rules: tuple[LogRule, ...] = LOG_RULES
    measuring = Measuring(
        count_paths=(("usage", "completion_tokens"),),
        owner="vllm",
        flush=HttpCall(method="POST", path="/reset_prefix_cache"),
        log_settle_s=11.0,  # It writes one every 10 s.
    )
    metrics_hint = "start the server without --disable-log-stats"
    health_generates = False
    binds_port_first = True

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return the command line that starts a server of this profile."""
        python = interpreter(profile)
        usual: tuple[str, ...] = (program_beside(python, "vllm"), "serve")
        if profile.launcher == "module":
            usual = (python, "-m", "vllm.entrypoints.cli.main", "serve")
        start = reached(profile, profile.command or usual, self.environment(profile))
        arguments = ["--host", profile.address, "--port", str(profile.port)]
        if profile.served_name is not None:
            arguments += ["--served-model-name", profile.served_name]
        flags = dict(profile.flags)
        config = speculative_config(profile)
        if config is not None:
            flags.pop("speculative-config", None)
            arguments += ["--speculative-config", json.dumps(config)]
        return (*start, profile.model, *arguments, *flag_arguments(flags))

    def profile_of(self, argv: tuple[str, ...]) -> Profile:
        """Return the profile that a command line amounts to; raises ``UsageError``.

        A speculative config that lacks a method or a number of tokens, or is no JSON, stays a
        flag as it is, for ``check`` to tell.
        """
        command = read_command(argv)
        model = command.words[0] if command.words else command.owned(OWNED, "model")
        profile = common_fields(
            command, OWNED, engine=self.name, model=model, default_port=self.default_port
        )
        config = profile.flags.get("speculative-config")
        tokens = config.get("num_speculative_tokens") if isinstance(config, Mapping) else None
        if not isinstance(config, Mapping) or not isinstance(tokens, int):
            return profile
        if not isinstance(config.get("method"), str):
            return profile
        more = {key: value for key, value in config.items() if key not in _IN_PROFILE}
        flags = {**profile.flags, "speculative-config": more}
        if not more:
            del flags["speculative-config"]
        draft = config.get("model")
        return replace(
            profile,
            draft=None if draft is None else str(draft),
            speculation=speculation_of(
                str(config["method"]).upper(), steps=tokens, topk=1, draft_tokens=tokens + 1
            ),
            flags=flags,
        )

    def environment(self, profile: Profile) -> dict[str, str]:
        """Return the variables the profile's server is started with."""
        return gpu_environment(profile)

    def api_key(self, profile: Profile) -> str | None:
        """Return the first key of ``--api-key``, without it that of the environment."""
        return given_key(profile) or profile.env.get("VLLM_API_KEY") or None

    def check(self, profile: Profile, version: str | None = None) -> list[Problem]:
        """Return what is wrong with the profile for this release, all at once."""
        return vllm_problems(profile, version)

    def health_verdict(self, status: int) -> HealthVerdict:
        """vLLM listens only when it is up, and answers 503 once its engine is dead."""
        return HealthVerdict.OK if status == 200 else HealthVerdict.BAD

    def generate(self, request: GenerateRequest) -> HttpCall:
        """Return the HTTP call that generates."""
        return generate_call(request)

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder for the stream of one answer."""
        return VllmDecoder()

    def gauges(self, metrics: Metrics) -> Gauges:
        """Read a scrape of the metrics path."""
        return read_gauges(metrics)

    def resolved_arguments(self, info: object, log: Iterable[str]) -> dict[str, str]:
        """Return the arguments as the log tells them."""
        del info
        return resolved_arguments(log)

    def unlike(
        self, profile: Profile, card: Mapping[str, object], info: object, log: Iterable[str]
    ) -> list[str]:
        """Compare the command line and the run's log with the server's model."""
        del info
        return unlike(profile, card, resolved_arguments(log))

    def recognises(self, argv: tuple[str, ...]) -> bool:
        """Tell whether this is the command line of a vLLM server."""
        return (
            starts(argv, "vllm", "serve")
            or "vllm.entrypoints.openai.api_server" in argv
            or starts(argv, "vllm.entrypoints.cli.main", "serve")
        )


VLLM = VllmEngine()
