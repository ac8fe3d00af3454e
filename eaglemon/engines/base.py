"""What the console knows of an engine: one pure object per engine, no I/O.

To add an engine, write one module with an object that satisfies ``Engine`` and list it in
``eaglemon/engines/__init__.py``. Nothing else in the code may ask for an engine by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from eaglemon.core.logs import LogRule
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.prometheus import Metrics
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.sse import SseEvent
from eaglemon.core.views import HealthVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One HTTP request to a server."""

    method: str
    path: str
    body: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A generation to ask for, in the terms all engines share."""

    prompt: str
    model: str
    """Name the server knows the model by (ignored where it does not matter)."""
    max_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = False
    stream: bool = True
    seed: int | None = None
    """Of the engine's sampling; it matters where ``temperature`` is above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensSeen:
    """A chunk of a stream that carries tokens."""

    new_tokens: int | None
    """``None``: the chunk does not tell how many."""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSeen:
    """The end of an answer, with what the engine says of it."""

    completion_tokens: int | None = None
    """``None``: not told."""
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    counts: AcceptCounts | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFailed:
    """The engine reports an error inside the stream, or sent something that is not an answer."""

    message: str


StreamEvent = TokensSeen | AnswerSeen | StreamFailed


class StreamDecoder(Protocol):
    """Turns the server-sent events of one answer into tokens; one object per request."""

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        """Take one event. ``AnswerSeen`` comes once, at the proper end of the stream."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What one reading of ``/metrics`` tells; ``None`` where the engine does not."""

    accept: AcceptCounts | None = None
    """Counters since the server started; ``None`` when speculation is off."""
    accept_length: float | None = None
    """A gauge of the engine's own last interval, where it has no live counters."""
    generation_tokens: float | None = None
    tok_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used_fraction: float | None = None
    started_at: float | None = None
    """Process start, to notice that counters belong to another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Paths of the engine's HTTP interface."""

    health: str = "/health"
    metrics: str = "/metrics"
    models: str = "/v1/models"
    info: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How an engine is measured."""

    count_paths: tuple[tuple[str, ...], ...]
    """Where a chunk of a stream has the number of tokens so far: keys, the first that is there."""
    owner: str
    """What the engine's list of models names as the owner of a model: tells engines apart."""
    flush: HttpCall
    """Empties the prefix cache of an idle server."""
    log_settle_s: float
    """A log line with figures of what has just ended comes no later than this."""
    forced_acceptance: str | None = None
    """Environment variable that makes up an accept length while verifying for real."""


class Engine(Protocol):
    """All the console knows of one engine."""

    name: str
    """Slug used in profiles: ``sglang``, ``vllm``."""
    title: str
    """As people write it: ``SGLang``."""
    default_port: int
    package: str
    """Distribution whose version is the engine's version."""
    endpoints: Endpoints
    log_rules: tuple[LogRule, ...]
    measuring: Measuring
    metrics_hint: str
    """What to say when the metrics path is not served: how to turn it on."""
    health_generates: bool
    """Whether a good answer of the health path proves that the server generates."""
    binds_port_first: bool
    """Whether an open port proves anything before the model is loaded."""

    def argv(self, profile: Profile) -> tuple[str, ...]:
        """Return the command line that starts a server of this profile."""
        ...

    def profile_of(self, argv: tuple[str, ...]) -> Profile:
        """Return the profile that a command line amounts to; raises ``UsageError``."""
        ...

    def environment(self, profile: Profile) -> dict[str, str]:
        """Return the variables the profile's server is started with (profile's own included)."""
        ...

    def api_key(self, profile: Profile) -> str | None:
        """Return a key that the profile's server takes; ``None`` where it asks for none."""
        ...

    def check(self, profile: Profile, version: str | None = None) -> list[Problem]:
        """Return what is wrong with the profile for this engine, all at once.

        ``version`` is the release on the host, ``None`` where it is not known: what only some
        releases refuse is then a warning.
        """
        ...

    def health_verdict(self, status: int) -> HealthVerdict:
        """Say what an HTTP status of the health path means."""
        ...

    def generate(self, request: GenerateRequest) -> HttpCall:
        """Return the HTTP call that generates, with per-chunk token counts when streaming."""
        ...

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder for the stream of one answer."""
        ...

    def gauges(self, metrics: Metrics) -> Gauges:
        """Read a scrape of the metrics path."""
        ...

    def resolved_arguments(self, info: object, log: Iterable[str]) -> dict[str, str]:
        """Return the server's arguments as the engine filled them in, without secrets.

        ``info`` is the JSON answer of ``endpoints.info`` (``None`` where there is no such path),
        ``log`` the first lines of its log.
        """
        ...

    def unlike(
        self, profile: Profile, card: Mapping[str, object], info: object, log: Iterable[str]
    ) -> list[str]:
        """Return what a server tells of itself that does not fit, in words.

        ``profile`` is what the run's command line amounts to, ``card`` the server's first model,
        ``info`` the answer of ``endpoints.info`` and ``log`` the first lines of the run's own log.
        What is not told is no difference.
        """
        ...

    def recognises(self, argv: tuple[str, ...]) -> bool:
        """Tell whether a process with this command line is a server of this engine."""
        ...
