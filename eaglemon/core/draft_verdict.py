"""A draft's diagnosis as values: what is known, and the verdict that a screen shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eaglemon.core.draft_views import Captured, CheckView, InspectView, Relabelled, SearchView
from eaglemon.core.wiring import Capture, ConfigChange


class DraftVerdict(StrEnum):
    """What is wrong, if anything."""

    ALGORITHM = "wrong-algorithm"
    WIRING = "wiring"
    VOCABULARY = "vocabulary"
    NORMS = "norms"
    SERVING = "serving"
    RECURRENCE = "recurrence"
    CONTEXT = "rope-or-context"
    DECAY = "decay"
    OVERHEAD = "overhead"
    WEAK = "weak-draft"
    FINE = "fine"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An answer to one of the questions of a diagnosis."""

    verdict: DraftVerdict
    sentence: str
    evidence: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthAlong:
    """How the accept length goes along the output, over the requests long enough to tell."""

    early: float
    """In the first half of the output."""
    late: float
    fall_se: float
    """Standard errors by which it falls, paired by request; negative where it rises."""
    requests: int
    tokens: int
    """Of a typical output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One answered request."""

    context_tokens: int
    """Prompt and answer."""
    steps: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    """What a server achieved."""

    accept_length: float | None
    """Tokens per verify step, the bonus token included."""
    survival: tuple[float, ...] = ()
    """Share of verify steps in which the first i+1 drafts were accepted."""
    tok_s: float | None = None
    """Per request, while decoding."""
    source: str = ""
    longest_prompt_tokens: int | None = None
    along: LengthAlong | None = None
    requests: tuple[ServedRequest, ...] = ()
    """Those of which the engine tells the acceptance."""
    temperature: float | None = 0.0
    """``None`` where it is not known, as of other people's traffic."""
    ceiling: int | None = None
    """Tokens that a round can yield at most, as the server was started."""
    earlier_length: float | None = None
    """Accept length of an earlier probe of the same server with the same prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftEvidence:
    """All that is known of a draft and its server."""

    algorithm: str | None = None
    inspect: InspectView
    captures: tuple[Capture, ...] = ()
    """Of the engine and version that serves it."""
    checks: tuple[CheckView, ...] = ()
    search: SearchView | None = None
    as_is: CheckView | None = None
    """The search's layers with the draft's own settings, where others fit better."""
    relabelled: Relabelled | None = None
    """How the draft does whatever its ``d2t`` says, where it does badly by it."""
    served: ServedFigures | None = None
    baseline_tok_s: float | None = None
    """The same figure without speculation."""
    change: ConfigChange | None = None
    """What the search's layers would be in this engine's configuration."""
    remedies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What to set in this engine and version, by verdict."""
    set_layers: str = ""
    """Command that writes that change."""
    elsewhere: tuple[str, ...] = ()
    """Releases that can serve the search's layers, each with the command that writes them for it;
    told where the one at hand cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDiagnosis:
    """The verdict with its evidence and fix: what a screen or a document shows."""

    verdict: DraftVerdict
    sentence: str
    evidence: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    certain: bool = True
    """``False`` for what one more measurement must confirm."""
    captured: tuple[int, ...] | None = None
    """Layers the server hands over (``hs`` indexes)."""
    trained: tuple[int, ...] | None = None
    """Layers the draft was trained on, as the search found."""
    target_layers: int | None = None
    offline: tuple[float, ...] = ()
    """Survival by step with the trained layers."""
    offline_as_served: tuple[float, ...] = ()
    """Survival by step with the captured layers."""
    served: tuple[float, ...] = ()
    overhead: float | None = None
    """Duration of a verify round in plain decoding steps: also the accept length to break even."""
    accept_length: float | None = None
    available_length: float | None = None
    """Accept length that the draft reaches offline with the trained layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReport:
    """A diagnosis with all that it was made from."""

    diagnosis: DraftDiagnosis
    inspect: InspectView
    checks: tuple[CheckView, ...] = ()
    search: SearchView | None = None
    relabelled: Relabelled | None = None
    captured: Captured | None = None
    """What hidden states were captured for it; ``None`` where they were given, or none were."""
    engine_version: str | None = None
    warnings: tuple[str, ...] = ()
    """What limits the trust in it, such as a release that nobody has looked at."""
