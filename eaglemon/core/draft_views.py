"""What the draft doctor found, as values: a screen and a JSON document show the same ones.

A *slot* is an input of the draft's ``fc``, in order. ``hs[i]`` is the target's residual stream
entering block i: ``hs[0]`` the embedding output, ``hs[N]`` the output of the last of N blocks
before the final norm. Standard errors take each sequence for one observation, or where there are
fewer than 16, each block of 64 positions: neighbouring positions are not independent.
"""

from dataclasses import dataclass, field

from eaglemon.core.problems import Problem
from eaglemon.core.wiring import Capture


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """One draft step over all positions that it was drafted from; shares between 0 and 1."""

    step: int
    """From 1."""
    positions: int
    accuracy: float
    """The draft's first choice is the expected token, whatever happened in the steps before."""
    accuracy_se: float
    survival: float
    """This step and all before it are right."""
    survival_se: float
    conditional: float | None
    """Survival over the survival of the step before; ``None`` where nothing survived."""
    conditional_se: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """The same run, gone through as a server does: each round begins where the last one ended.

    Long accepted chains pass over easy positions, so rounds begin at hard ones more often than
    positions are hard: a server's accept length is below the mean over all positions.
    """

    rounds: int
    accept_length: float
    """Tokens per round, the bonus token included."""
    accept_length_se: float
    survival: tuple[float, ...]
    """Share of rounds in which the first i+1 drafts are accepted."""
    survival_se: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """A draft, run offline over the target's hidden states."""

    wiring: tuple[str, ...]
    """Feature in each slot: ``hs[2]``, or ``aux[0]`` where the file does not tell the layer."""
    expected: str
    """``target``: the target's first choice at each position; ``text``: the token that follows."""
    steps: tuple[StepFigures, ...]
    coverage: float | None
    """Share of expected tokens that the draft's vocabulary has."""
    accept_length: float
    """Mean over all positions, the bonus token included: 1 + sum of survivals, as trainers say."""
    accept_length_se: float
    served: RoundFigures | None
    """What a server at temperature 0 would reach on the same text; ``None`` where the text is too
    short for a round."""
    sequences: int
    observations: int
    """What the standard errors count as independent: sequences, or blocks of positions."""
    tokens: int
    dtype: str
    device: str
    seconds: float
    feature_bytes: int
    """Memory that the hidden states took."""
    notes: tuple[str, ...] = ()

    @property
    def survival(self) -> tuple[float, ...]:
        """Survival by step, over all positions."""
        return tuple(step.survival for step in self.steps)

    @property
    def served_survival(self) -> tuple[float, ...]:
        """Survival by step as a server would count it."""
        return self.served.survival if self.served is not None else self.survival

    @property
    def served_length(self) -> float:
        """Accept length as a server would count it."""
        return self.served.accept_length if self.served is not None else self.accept_length


UNFIT = 0.15
"""Below this share of right first steps no wiring is told from another."""
TARGET_ROPE = "+target_rope"
"""The setting of a hypothesis that turns positions as the target does, not as the draft says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One way to feed the draft."""

    wiring: tuple[str, ...]
    token_shift: int = 0
    """Added to the position of the embedded token; 0 is the token after the hidden state."""
    hidden_shift: int = 0
    """Added to the position of the hidden state."""
    halves_swapped: bool = False
    """Hidden state first, embedding second."""
    absolute_ids: bool = False
    """``d2t`` holds target ids in place of offsets."""
    flags: tuple[str, ...] = ()
    """Settings that differ from the configuration: ``+fc_norm``, ``-norm_before_residual``, and
    ``TARGET_ROPE``."""

    def __str__(self) -> str:
        """Slots and whatever is not as usual."""
        words = [f"[{', '.join(self.wiring)}]"]
        if self.token_shift:
            words.append(f"token shifted by {self.token_shift:+d}")
        if self.hidden_shift:
            words.append(f"hidden state shifted by {self.hidden_shift:+d}")
        if self.halves_swapped:
            words.append("hidden state before embedding")
        if self.absolute_ids:
            words.append("d2t as absolute ids")
        return ", ".join([*words, *self.flags])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A hypothesis with its figures in the first draft step."""

    hypothesis: Hypothesis
    accuracy: float
    reciprocal_rank: float
    """Mean of 1 / rank of the expected token among the draft's choices, over the steps that were
    tried; 0 where the draft does not know it."""
    behind_se: float | None = None
    """Standard errors by which it is behind the best one, paired: in log likelihood of the first
    step where the settings are the same, else in reciprocal rank over all steps tried. ``None`` for
    the best."""
    behind_accuracy_se: float | None = None
    """The same for accuracy (McNemar)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchView:
    """The wiring that fits the draft best."""

    best: Scored
    others: tuple[Scored, ...]
    """The nearest others, best first."""
    margin_se: float | None
    """Standard errors between the best and the nearest hypothesis with other slots, with the same
    settings."""
    settings_margin_se: float | None
    """The same to the nearest hypothesis with other settings (norms, shifts, d2t)."""
    slots: tuple[int, ...] | None
    """``hs`` indexes of the best; ``None`` where the file does not tell layers."""
    tried: int
    positions: int
    """Drafted from, in the comparison of the nearest ones."""
    steps: int
    """Draft steps of that comparison."""
    seconds: float

    @property
    def decided(self) -> bool:
        """The best is told from all others beyond doubt."""
        return self.fits and self.margin_se is not None and self.margin_se > 5.0

    @property
    def fits(self) -> bool:
        """Whether anything fits: where nothing does, the best is the best of noise."""
        return self.best.accuracy >= UNFIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Relabelled:
    """How well the rows that a draft chooses tell the tokens that come, whatever its files say."""

    wiring: tuple[str, ...]
    accuracy: float
    """Of the first step, by the draft's own d2t."""
    relabelled: float
    """The same, with each row standing for the token that mostly comes with it in other text."""
    relabelled_se: float
    by_last_token: float
    """What the token fed tells alone, learned in the same way: a draft whose hidden states mean
    nothing reaches that."""
    row_shift: int | None
    """Rows that most choices are off by; ``None`` where they differ."""
    id_shift: int | None
    """Target ids that most choices are off by."""
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectView:
    """What a draft's files say, without running it."""

    folder: str
    architecture: str
    layout: str
    """``midlayer``, ``layers.0`` or ``unknown``."""
    attention: str
    """``llama`` or ``mla``."""
    parameters: int
    dtypes: tuple[str, ...]
    hidden_size: int | None
    target_hidden_size: int | None
    captured: int | None
    """Target layers that ``fc`` joins."""
    vocabulary: int | None
    draft_vocabulary: int | None
    max_positions: int | None
    target_layers: int | None = None
    target_type: str | None = None
    coverage: float | None = None
    """Of the counted tokens, where counts were given."""
    layer_ids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(key, ids) for each place in ``config.json`` that has layer ids."""
    captures: tuple[Capture, ...] = ()
    """What each engine and version captures."""
    problems: tuple[Problem, ...] = field(default=())
    looked_at: str = ""
    """How much of the weights was looked at for values that are not finite, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What an examination found."""

    checks: tuple[CheckView, ...]
    """The wirings asked for, or the configured ones; the best one first where it was searched."""
    search: SearchView | None
    configured: tuple[tuple[int, ...], ...] = ()
    """What the known engines capture for the draft's configuration."""
    as_is: CheckView | None = None
    """The best wiring with the draft's own settings, where it fits better with others."""
    relabelled: Relabelled | None = None
    """Where the search found nothing that fits well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairView:
    """A repair as a person is shown it, carried out or not."""

    folder: str
    title: str
    difference: tuple[str, ...] = ()
    """Empty where nothing would change."""
    warnings: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()
    """Names of the old files; empty where nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a capture wrote."""

    path: str
    sequences: int
    tokens: int
    """Prompt and continuation."""
    scored: int
    """Positions whose next token is part of the continuation."""
    layers: tuple[int, ...]
    """``hs`` indexes in the file."""
    size_bytes: int
    notes: tuple[str, ...] = ()
    """Prompts left out and answers cut, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStage:
    """What a check of a draft is at."""

    doing: str
    """In words: ``capturing``, ``running the draft``."""
    done: int = 0
    of: int | None = None
    """Prompts in all; ``None`` where a stage has no parts to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOutlook:
    """What a capture will cost."""

    weights_bytes: int
    """Of the target, all of which is loaded."""
    free_bytes: int | None
    """Memory free on the device; ``None`` where that is not known."""
    hidden_bytes: int
    """About the size of the hidden states."""
    prompts: int
    new_tokens: int
    """For each prompt."""
    device: str

    @property
    def fits(self) -> bool:
        """The target will not need more memory than there is; true where that is not known."""
        return self.free_bytes is None or 1.2 * self.weights_bytes < self.free_bytes
