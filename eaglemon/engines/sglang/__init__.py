"""SGLang, releases 0.5.16 to 0.5.23; its log lines also in older ones."""

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
from eaglemon.engines.sglang.flags import OWNED, sglang_problems
from eaglemon.engines.sglang.log_rules import LOG_RULES
from eaglemon.engines.sglang.resolved import resolved_arguments, unlike
from eaglemon.engines.sglang.wire import SglangDecoder, generate_call, read_gauges


class SglangEngine:
    """All the console knows of SGLang."""

    name = "sglang"
    title = "SGLang"
    default_port = 30000
    package = "sglang"
    endpoints = Endpoints(info="/server_info", extra={"model": "/model_info"})
    log_rules: tuple[LogRule, ...] = LOG_RULES
    measuring = Measuring(
        count_paths=(("meta_info", "completion_tokens"),),
        owner="sglang",
        # Without the wait it refuses while the last request is still being tidied away.
        flush=HttpCall(method="POST", path="/flush_cache?timeout=10"),
        log_settle_s=1.0,
        forced_acceptance="SGLANG_SIMULATE_ACC_LEN",
    )
    metrics_hint = "start the server with --enable-metrics"
    health_generates = True
    binds_port_first = False

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return the command line that starts a server of this profile."""
        python = interpreter(profile)
        usual: tuple[str, ...] = (python, "-m", "sglang.launch_server")
        if profile.launcher == "script":
            usual = (program_beside(python, "sglang"), "serve")
        start = reached(profile, profile.command or usual, self.environment(profile))
        arguments = [
            *("--model-path", profile.model),
            *("--host", profile.address),
            *("--port", str(profile.port)),
        ]
        if profile.served_name is not None:
            arguments += ["--served-model-name", profile.served_name]
        speculation = profile.speculation
        if speculation is not None:
            arguments += ["--speculative-algorithm", speculation.algorithm]
            if profile.draft is not None:
                arguments += ["--speculative-draft-model-path", profile.draft]
            for flag, number in (
                ("--speculative-num-steps", speculation.steps),
                ("--speculative-eagle-topk", speculation.topk),
                ("--speculative-num-draft-tokens", speculation.draft_tokens),
            ):
                if number is not None:
                    arguments += [flag, str(number)]
        return (*start, *arguments, *flag_arguments(profile.flags))

    def profile_of(self, argv: tuple[str, ...]) -> Profile:
        """Return the profile that a command line amounts to; raises ``UsageError``."""
        command = read_command(argv)
        model = command.owned(OWNED, "model")
        if model is None and command.words:
            model = command.words[0]
        profile = common_fields(
            command, OWNED, engine=self.name, model=model, default_port=self.default_port
        )
        draft = command.owned(OWNED, "draft")
        algorithm = command.owned(OWNED, "speculation.algorithm")
        speculation = None
        if algorithm is not None:
            speculation = speculation_of(
                str(algorithm),
                steps=command.owned(OWNED, "speculation.steps"),
                topk=command.owned(OWNED, "speculation.topk"),
                draft_tokens=command.owned(OWNED, "speculation.draft_tokens"),
            )
        return replace(
            profile, draft=None if draft is None else str(draft), speculation=speculation
        )

    def environment(self, profile: Profile) -> dict[str, str]:
        """Return the variables the profile's server is started with."""
        return gpu_environment(profile)

    def api_key(self, profile: Profile) -> str | None:
        """Return the key of ``--api-key``."""
        return given_key(profile)

    def check(self, profile: Profile, version: str | None = None) -> list[Problem]:
        """Return what is wrong with the profile for this release, all at once."""
        return sglang_problems(profile, version)

    def health_verdict(self, status: int) -> HealthVerdict:
        """SGLang answers 503 until its warm-up is done, and again when it hangs."""
        if status == 200:
            return HealthVerdict.OK
        return HealthVerdict.STARTING if status == 503 else HealthVerdict.BAD

    def generate(self, request: GenerateRequest) -> HttpCall:
        """Return the HTTP call that generates."""
        return generate_call(request)

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder for the stream of one answer."""
        return SglangDecoder()

    def gauges(self, metrics: Metrics) -> Gauges:
        """Read a scrape of the metrics path (served only with ``--enable-metrics``)."""
        return read_gauges(metrics)

    def resolved_arguments(self, info: object, log: Iterable[str]) -> dict[str, str]:
        """Return the arguments as ``/server_info`` tells them."""
        del log
        return resolved_arguments(info)

    def unlike(
        self, profile: Profile, card: Mapping[str, object], info: object, log: Iterable[str]
    ) -> list[str]:
        """Compare the command line with ``/server_info``."""
        del card, log
        return unlike(profile, resolved_arguments(info))

    def recognises(self, argv: tuple[str, ...]) -> bool:
        """Tell whether this is the command line of an SGLang server."""
        return "sglang.launch_server" in argv or starts(argv, "sglang", "serve")


SGLANG = SglangEngine()
