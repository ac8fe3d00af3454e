"""What a diagnosis of a draft says, as content for a width: verdict, wiring, steps. Pure."""

from collections.abc import Sequence

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.draft_verdict import DraftDiagnosis, DraftVerdict
from eaglemon.tui.columns import bar, joined, right, wrapped
from eaglemon.tui.draft_words import in_keys

_LABEL_WIDTH = 11
_SIGNS = "123456789abcdefghijklmnopqrstuvwxyz"
_GOOD = frozenset({DraftVerdict.FINE})
_OPEN = frozenset({DraftVerdict.UNKNOWN})


def verdict_lines(found: DraftDiagnosis, width: int) -> list[Content]:
    """Return what is wrong, why that is thought, and what to do."""
    if found.verdict in _GOOD:
        mark, style = "✓", "$state-ready"
    elif found.verdict in _OPEN:
        mark, style = "?", "$state-warning"
    else:
        mark, style = "✗", "$state-failed"
    certain = "" if found.certain else " (to be confirmed)"
    head = f"{mark} {found.verdict}: {found.sentence}{certain}"
    rows = [Content.styled(line, f"bold {style}") for line in wrapped(head, width)]
    for line in found.evidence:
        rows += [Content.styled(part, "$quiet") for part in wrapped(f"• {line}", width, 3)]
    for line in found.fixes:
        rows += [Content(part) for part in wrapped(f"fix: {in_keys(line)}", width, 4)]
    return rows


def wiring_lines(found: DraftDiagnosis, width: int) -> list[Content]:
    """Return which layers of the target are handed to the draft, beside those it was trained on."""
    captured, trained = found.captured, found.trained
    rows = _title("Wiring ─ layers of the target, by slot of the draft", width)
    if captured is None and trained is None:
        told = "neither what is captured nor what the draft was trained on is known"
        return [*rows, *(Content.styled(line, "$quiet") for line in wrapped(told, width))]
    rows += _strip(found, width)
    slots = max(len(captured or ()), len(trained or ()))
    for slot in range(slots):
        rows += _slot(slot, _at(captured, slot), _at(trained, slot), width)
    if trained is None:
        told = "what it was trained on is not known: D runs it over captured hidden states"
        rows += [Content.styled(line, "$quiet") for line in wrapped(told, width)]
    return rows


def _title(text: str, width: int) -> list[Content]:
    return [Content.styled(line, "bold") for line in wrapped(text, width)]


def _strip(found: DraftDiagnosis, width: int) -> list[Content]:
    """Return a row of all layers with the slots at theirs, where there is room for it."""
    layers = found.target_layers
    if layers is None or layers + 1 > width - _LABEL_WIDTH:
        return []
    scale = f"0{'─' * max(0, layers - len(str(layers)))}{layers}"
    rows = [joined(Content.styled("hs".ljust(_LABEL_WIDTH), "$quiet"), scale[-layers - 1 :])]
    for label, chosen in (("captured", found.captured), ("trained on", found.trained)):
        if chosen is None:
            continue
        cells = ["·"] * (layers + 1)
        for slot, layer in enumerate(chosen):
            if 0 <= layer <= layers:
                cells[layer] = _SIGNS[min(slot, len(_SIGNS) - 1)]
        rows.append(joined(Content.styled(label.ljust(_LABEL_WIDTH), "$quiet"), "".join(cells)))
    return rows


def _slot(slot: int, captured: int | None, trained: int | None, width: int) -> list[Content]:
    name = f"slot {slot + 1}".ljust(8)
    given = f"gets {_layer(captured)}"
    if trained is None:
        return [Content(line) for line in wrapped(f"{name}{given}", width)]
    same = captured == trained
    mark, word, style = ("✓", "same", "$state-ready") if same else ("✗", "differs", "$state-failed")
    text = f"{name}{given}, trained on {_layer(trained)}"
    return [Content.styled(line, style) for line in wrapped(f"{mark} {text}: {word}", width, 2)]


def _layer(layer: int | None) -> str:
    if layer is None:
        return "nothing known"
    return "hs 0 (the embedding)" if layer == 0 else f"hs {layer}"


def _at(chosen: Sequence[int] | None, slot: int) -> int | None:
    return None if chosen is None or slot >= len(chosen) else chosen[slot]


def step_lines(found: DraftDiagnosis, width: int) -> list[Content]:
    """Return how many drafts survive each step: served, and offline side by side."""
    families = [
        (label, shares, style)
        for label, shares, style in (
            ("served", found.served, "$accept-bar"),
            ("as wired", found.offline_as_served, "$chart-accept"),
            ("as trained", found.offline, "$chart-speed"),
        )
        if shares
    ]
    if not any(label != "served" for label, _, _ in families):
        return []
    rows = [Content(""), *_title("Steps ─ served, and offline by the check", width)]
    room = max(4, min(60, width - _LABEL_WIDTH - 10))
    for step in range(max(len(shares) for _, shares, _ in families)):
        for number, (label, shares, style) in enumerate(families):
            share = shares[step] if step < len(shares) else None
            text = units.UNKNOWN if share is None else f"{share:.2f}"
            head = f"{step + 1 if number == 0 else '':>2} {label:<{_LABEL_WIDTH}}"
            rows.append(
                joined(Content.styled(head, "$quiet"), bar(share, room, style), right(text, 6))
            )
    return rows
