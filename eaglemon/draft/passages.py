"""Hidden states made ready for the draft: embedded tokens, and the token expected at each place.

Of the target only three tensors are used: its embedding (the rows of the tokens that occur), its
final norm and its head (in slices of rows).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eaglemon.draft.checkpoint import Checkpoint
from eaglemon.draft.hidden import Record
from eaglemon.draft.layout import roles_of, target_body
from eaglemon.draft.model import DraftModel, rms_norm
from eaglemon.draft.torch_lib import torch
from eaglemon.draft.weights import read_rows, read_tensor
from eaglemon.errors import ConfigError

TARGET = "target"
"""Expect the target's first choice."""
TEXT = "text"
"""Expect the token that follows in the text."""
_HEAD_ROWS = 16384
_TRUSTED_AGREEMENT = 0.5
_USABLE_AGREEMENT = 0.2
_ONE_MORE = re.compile(r"(gemma[23]?|gemma3_text|qwen3_next|qwen3_5)(_moe)?(_text)?")
"""Targets whose final norm multiplies by 1 + weight (``modeling_*.py`` of transformers 5.19)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One sequence, ready; T positions."""

    embeddings: torch.Tensor
    """[T, H] of the sequence's own tokens, not shifted."""
    features: Mapping[str, torch.Tensor]
    """[T, Ht] each."""
    expected: torch.Tensor
    """[T] int64: the token expected after position p."""
    scored: torch.Tensor
    """[T] bool: positions whose expected token is known and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All sequences of a check."""

    passages: tuple[Passage, ...]
    expected: str
    """``TARGET`` or ``TEXT``."""
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self.passages[0].features)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(passage.expected.numel() for passage in self.passages)

    @property
    def feature_bytes(self) -> int:
        """Memory of the hidden states."""
        return sum(
            feature.numel() * feature.element_size()
            for passage in self.passages
            for feature in passage.features.values()
        )


def prepare(
    records: Sequence[Record],
    model: DraftModel,
    *,
    draft: Checkpoint,
    target: Checkpoint,
    expected: str = TARGET,
) -> Material:
    """Make records ready for ``model``; raises ``ConfigError`` where they do not fit the target.

    Whether the last layer's output is normed is found out by which reading predicts the text.
    """
    _must_fit(records[0], model)
    embedding = _embedding(model, draft, target)
    wanted = _expectation(records, target, model.device, expected)
    norm = None if wanted.normed else _final_norm(target, model.dtype, model.device)
    choices: Sequence[torch.Tensor | None] = wanted.choices or [None] * len(records)
    passages = tuple(
        _passage(record, model, embedding, norm, chosen)
        for record, chosen in zip(records, choices, strict=True)
    )
    told = TEXT if wanted.choices is None else TARGET
    return Material(passages=passages, expected=told, notes=wanted.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expectation:
    """What is expected after each position."""

    choices: Sequence[torch.Tensor] | None
    """The target's first choices, [T] int64 for each record; ``None``: the text itself."""
    normed: bool
    """Whether the last layer's output was normed already."""
    notes: tuple[str, ...]


def _must_fit(record: Record, model: DraftModel) -> None:
    width = model.settings.target_hidden_size
    for name, feature in record.features.items():
        if feature.shape[-1] != width:
            raise ConfigError(
                f"hidden states {name} are {feature.shape[-1]} wide, the draft joins layers of "
                f"{width}",
                hint="they are of another target than the draft",
            )


def _expectation(
    records: Sequence[Record], target: Checkpoint, device: str, expected: str
) -> _Expectation:
    """Choose between the target's choices and the text, which serves where the former cannot."""
    if any(record.last is None for record in records):
        told = "no output of the last layer: the text itself is what is expected"
        because = (told,) if expected == TARGET else ()
        return _Expectation(choices=None, normed=True, notes=because)
    choices, normed, agreement = target_choices(records, target, device)
    notes = []
    if agreement < _TRUSTED_AGREEMENT:
        notes.append(
            f"the target predicts only {agreement:.0%} of this text from the last layer "
            "captured: is it the target's own continuation, and the last layer?"
        )
    if agreement < _USABLE_AGREEMENT:
        notes.append("so the text itself is what is expected")
        expected = TEXT
    return _Expectation(
        choices=None if expected == TEXT else choices, normed=normed, notes=tuple(notes)
    )


def _passage(
    record: Record,
    model: DraftModel,
    embedding: tuple[Checkpoint, str],
    norm: tuple[torch.Tensor, float] | None,
    choices: torch.Tensor | None,
) -> Passage:
    """Make one record ready.

    ``norm`` is the target's final one where the last layer's output is to be normed; without
    ``choices`` the text itself is expected.
    """
    features = {
        name: value.to(device=model.device, dtype=model.dtype)
        for name, value in record.features.items()
    }
    if norm is not None:
        name = list(features)[-1]
        scale, eps = norm
        features[f"norm({name})"] = rms_norm(features[name], scale, eps)
    tokens = record.ids
    embedded = read_rows(*embedding, tokens, dtype=model.dtype, device=model.device)
    if "hs[0]" not in features and embedded.shape[-1] == model.settings.target_hidden_size:
        # Files of trainers leave it out, and drafts are trained on it all the same.
        features["embed"] = embedded
    known = torch.ones(tokens.numel(), dtype=torch.bool)
    expected = choices
    if expected is None:
        known[-1] = False
        expected = torch.cat([tokens[1:], tokens[-1:]])
    return Passage(
        embeddings=embedded,
        features=features,
        expected=expected.to(model.device),
        scored=(record.mask & known).to(model.device),
    )


def target_choices(
    records: Sequence[Record], target: Checkpoint, device: str
) -> tuple[list[torch.Tensor], bool, float]:
    """Return the target's first choice at each position, [T] for each record.

    Also whether the last layer's output was normed already, and the share of the text that the
    choices predict.
    """
    stated = records[0].last_normed
    readings = (True, False) if stated is None else (stated,)
    results: list[tuple[float, bool, list[torch.Tensor]]] = []
    for normed in readings:
        choices = []
        for record in records:
            if record.last is None:
                raise ConfigError("a sequence without the output of the last layer")
            choices.append(_choices(record.last, target, device, normed=normed))
        results.append((_agreement(choices, records), normed, choices))
    agreement, normed, best = max(results, key=lambda result: result[0])
    told = [record.choices for record in records if record.choices is not None]
    if len(told) == len(records):
        # The target's own head knows of scales and biases that the head's matrix does not tell.
        agreement, best = _agreement(told, records), told
    return best, normed, agreement


def _agreement(choices: Sequence[torch.Tensor], records: Sequence[Record]) -> float:
    """Return the share of the text that the choices predict."""
    agreed = counted = 0
    for choice, record in zip(choices, records, strict=True):
        agreed += int(((choice[:-1] == record.ids[1:]) & record.mask[:-1]).sum())
        counted += int(record.mask[:-1].sum())
    return agreed / max(1, counted)


def _choices(last: torch.Tensor, target: Checkpoint, device: str, *, normed: bool) -> torch.Tensor:
    hidden = last.to(device=device, dtype=torch.float32)
    if not normed:
        scale, eps = _final_norm(target, torch.float32, device)
        hidden = rms_norm(hidden, scale, eps)
    head = _named(target, "lm_head.weight") or _named(target, "embed_tokens.weight")
    if head is None:
        raise ConfigError(f"{target.folder}: no lm_head.weight", hint="give the target's folder")
    rows = target.info(head).shape[0]
    best = torch.full((hidden.shape[0],), float("-inf"), device=device)
    choice = torch.zeros(hidden.shape[0], dtype=torch.int64, device=device)
    for start in range(0, rows, _HEAD_ROWS):
        stop = min(start + _HEAD_ROWS, rows)
        part = read_tensor(target, head, dtype=torch.float32, device=device, start=start, stop=stop)
        if part.shape[1] != hidden.shape[1]:
            raise ConfigError(
                f"hidden states are {hidden.shape[1]} wide, the target's head {part.shape[1]}",
                hint="they are of another target",
            )
        value, place = (hidden @ part.T).max(dim=-1)
        choice = torch.where(value > best, place + start, choice)
        best = torch.maximum(value, best)
    return choice.cpu()


def _final_norm(target: Checkpoint, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, float]:
    name = _named(target, "norm.weight")
    if name is None:
        raise ConfigError(f"{target.folder}: no model.norm.weight")
    body = target_body(target.config)
    weight = read_tensor(target, name, dtype=dtype, device=device)
    if _ONE_MORE.fullmatch(str(body.get("model_type"))):
        weight = weight + 1
    return weight, float(body.get("rms_norm_eps") or 1e-6)


def _embedding(model: DraftModel, draft: Checkpoint, target: Checkpoint) -> tuple[Checkpoint, str]:
    """Return whose embedding is used: engines take the target's unless the widths differ."""
    if model.settings.target_hidden_size != model.settings.hidden_size:
        own = roles_of(draft.tensors).get("embed_tokens.weight")
        if own is None:
            raise ConfigError(
                f"{draft.folder}: no embed_tokens.weight, and the target's is of another width"
            )
        return draft, own
    name = _named(target, "embed_tokens.weight")
    if name is None:
        raise ConfigError(f"{target.folder}: no embed_tokens.weight", hint="is it the target?")
    return target, name


def _named(target: Checkpoint, role: str) -> str | None:
    """Find a tensor outside of the blocks, under the prefixes that models have."""
    for prefix in (
        "model.",
        "",
        "language_model.model.",
        "model.language_model.",
        "language_model.",
    ):
        if prefix + role in target.tensors:
            return prefix + role
    return None
