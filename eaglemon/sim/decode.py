"""The decoding of a simulated engine: which tokens each step gives, without a clock.

The caller keeps the time: it asks how long a prefill or a step takes, waits, and then takes it.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from eaglemon.sim.settings import Settings

# The founding story: 74.7 % at the first position, 90 tok/s without speculation, and 54.8 tok/s
# at an accept length of 1.05 when the draft is fed the wrong layers.
BASELINE_STEP_S = 1 / 90.0
_VERIFY_S, _DRAFT_STEP_S = 0.01221, 0.00139
_RIGHT_RATES = (0.747, 0.68, 0.62, 0.58, 0.55)
_WRONG_RATES = (0.047, 0.06, 0.05)
_PREFILL_S, _PREFILL_TOKEN_S = 0.030, 0.00002
_BASELINE_CROWDING, _VERIFY_CROWDING = 0.010, 0.035


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """How an engine speculates."""

    steps: int
    """Draft tokens in a row; the most that one verify step can accept."""
    proposed: int
    """Draft tokens verified per step, as the engine counts them."""
    rates: tuple[float, ...]
    """Share of drafts accepted at each position, given that all before were."""

    @classmethod
    def of(cls, settings: Settings, *, steps: int, proposed: int, wrong: bool) -> "Drafting":
        """Return the drafting with the settings' rates, or the usual ones."""
        known = settings.accept_rates or (_WRONG_RATES if wrong else _RIGHT_RATES)
        rates = (known + (known[-1],) * steps)[:steps]
        return cls(steps=steps, proposed=proposed, rates=rates)


def forced_rates(accept_length: float) -> tuple[float, ...]:
    """Return the rates of a draft with this accept length, whatever it proposes."""
    whole, part = divmod(max(0.0, accept_length - 1.0), 1.0)
    return (*(1.0,) * int(whole), part, 0.0)


@dataclass(slots=True, kw_only=True)
class Request:
    """A request in the batch."""

    id: str
    prompt_tokens: int
    max_tokens: int
    natural_length: int
    seed: int
    temperature: float = 0.0
    generated: int = 0
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)  # noqa: S311 - repeatable, not secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step gave one request."""

    id: str
    new_tokens: int
    accepted: int | None = None
    """Drafts accepted in this verify step; ``None`` for a prefill or without speculation."""
    finish: str | None = None
    """``length`` or ``stop`` when it was the last."""


@dataclass(slots=True)
class Totals:
    """Counts since the start of the engine."""

    steps: int = 0
    """Forward passes."""
    verifies: int = 0
    """Request-steps with a draft."""
    accepted: int = 0
    generated: int = 0
    prompt: int = 0
    per_position: list[int] = field(default_factory=list)


class Decoder:
    """Continuous batching: requests join between steps."""

    def __init__(self, settings: Settings, drafting: Drafting | None, max_running: int) -> None:
        self._settings = settings
        self.drafting = drafting
        self._max_running = max_running
        self._waiting: deque[Request] = deque()
        self._running: dict[str, Request] = {}
        self.totals = Totals(per_position=[0] * (drafting.steps if drafting else 0))

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def tokens(self) -> int:
        """Tokens whose keys and values the batch holds."""
        return sum(request.prompt_tokens + request.generated for request in self._running.values())

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def abort(self, request_id: str) -> None:
        """Forget a request, wherever it is."""
        self._running.pop(request_id, None)
        self._waiting = deque(one for one in self._waiting if one.id != request_id)

    def admit(self) -> list[Request]:
        """Move what fits from the queue into the batch and return it: it is to be prefilled."""
        admitted: list[Request] = []
        while self._waiting and len(self._running) < self._max_running:
            request = self._waiting.popleft()
            self._running[request.id] = request
            admitted.append(request)
        return admitted

    def prefill_s(self, requests: list[Request]) -> float:
        """Return how long the prefill of these takes."""
        return _PREFILL_S + _PREFILL_TOKEN_S * sum(request.prompt_tokens for request in requests)

    def prefill(self, requests: list[Request]) -> list[Output]:
        """Return the first token of each."""
        self.totals.prompt += sum(request.prompt_tokens for request in requests)
        present = [request for request in requests if request.id in self._running]
        return [self._give(request, 1, None) for request in present]

    def step_s(self) -> float:
        """Return how long the next step takes with this batch."""
        others = max(0, len(self._running) - 1)
        if self.drafting is None:
            step = self._settings.decode_step_s or BASELINE_STEP_S
            return step * (1 + _BASELINE_CROWDING * others)
        step = self._settings.verify_step_s or _VERIFY_S + _DRAFT_STEP_S * self.drafting.steps
        return step * (1 + _VERIFY_CROWDING * others)

    def step(self) -> list[Output]:
        """Take one step of all running requests."""
        self.totals.steps += 1
        outputs = []
        for request in list(self._running.values()):
            accepted = self._draw(request) if self.drafting else None
            if accepted is not None:
                self.totals.verifies += 1
                self.totals.accepted += accepted
                for position in range(accepted):
                    self.totals.per_position[position] += 1
            outputs.append(self._give(request, 1 + (accepted or 0), accepted))
        return outputs

    def _draw(self, request: Request) -> int:
        # Sampling makes a draft miss more often: at 0.8 the captures show 1.6 for 3.7.
        damping = 1.0 - 0.5 * min(1.0, request.temperature)
        accepted = 0
        for rate in self.drafting.rates if self.drafting else ():
            if request.rng.random() >= rate * damping:
                break
            accepted += 1
        return accepted

    def _give(self, request: Request, count: int, accepted: int | None) -> Output:
        limit = min(request.max_tokens, request.natural_length)
        new = min(count, limit - request.generated)
        request.generated += new
        self.totals.generated += new
        finish = None
        if request.generated >= limit:
            finish = "length" if limit == request.max_tokens else "stop"
            self._running.pop(request.id, None)
        return Output(id=request.id, new_tokens=new, accepted=accepted, finish=finish)
