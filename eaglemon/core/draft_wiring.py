"""Whether a server hands a draft the layers it was trained on."""

from eaglemon.core.draft_verdict import DraftEvidence, DraftVerdict, Finding
from eaglemon.core.draft_views import CheckView, SearchView
from eaglemon.core.wiring import Capture


def wiring_finding(
    known: DraftEvidence,
    capture: Capture | None,
    right: CheckView | None,
    as_served: CheckView | None,
) -> Finding | None:
    """Judge layers served that are not those the draft fits, or ids that this release dies of.

    ``right`` and ``as_served`` are the offline figures with the trained and the served layers.
    """
    search = known.search
    if capture is not None and capture.crash:
        return Finding(
            verdict=DraftVerdict.WIRING,
            sentence=f"{capture.name} cannot serve these layer ids: {capture.crash}",
            evidence=(f"ids from {capture.key or 'defaults'}",),
            fixes=_wiring_fixes(known),
        )
    if search is None or not search.fits:
        return None
    if search.slots is None:
        return _unnumbered(search)
    if capture is None or capture.slots is None:
        return None
    if capture.slots == search.slots:
        return None
    evidence = [
        f"{capture.name} takes {list(capture.slots)} from {capture.key or 'its defaults'}",
        f"offline the draft fits {list(search.slots)}, {_margin(search)} ahead of other layers",
    ]
    if right is not None and as_served is not None:
        evidence.append(
            f"offline accept length {right.served_length:.2f} with them, "
            f"{as_served.served_length:.2f} with the layers served"
        )
    if known.served is not None and known.served.accept_length is not None:
        evidence.append(f"served accept length {known.served.accept_length:.2f}")
    return Finding(
        verdict=DraftVerdict.WIRING,
        sentence=f"layers wired as {list(capture.slots)} but trained on {list(search.slots)}",
        evidence=tuple(evidence),
        fixes=_wiring_fixes(known),
        certain=search.decided,
    )


def _unnumbered(search: SearchView) -> Finding | None:
    """Judge a file that does not tell its layers: only their order can be wrong."""
    wiring = search.best.hypothesis.wiring
    if not search.decided or wiring == tuple(f"aux[{slot}]" for slot in range(len(wiring))):
        return None
    return Finding(
        verdict=DraftVerdict.WIRING,
        sentence=f"trained on [{', '.join(wiring)}], not on the file's layers in their order",
        evidence=(f"{_margin(search)} ahead of other orders and layers",),
        fixes=(
            "write them with 'eaglemon draft set-layers': embed is 0, aux[i] the i-th captured",
        ),
        certain=False,
    )


def _margin(search: SearchView) -> str:
    return "?" if search.margin_se is None else f"{search.margin_se:.1f} standard errors"


def _wiring_fixes(known: DraftEvidence) -> tuple[str, ...]:
    change = known.change
    if change is None:
        return ("run 'eaglemon draft check' to find the layers it was trained on",)
    if change.ids is None:
        return (
            "this engine and version cannot capture these layers",
            *change.warnings,
            *_elsewhere(known),
        )
    written = f"{known.set_layers} (writes {list(change.ids)} to {change.key})"
    crashing = [capture for capture in change.captures if capture.crash]
    if change.captures and len(crashing) == len(change.captures):
        return (
            f"{crashing[0].name} cannot serve these layers, whatever the ids",
            *change.warnings,
            *_elsewhere(known),
        )
    return (written, *change.warnings, "restart the server and probe it")


def _elsewhere(known: DraftEvidence) -> tuple[str, ...]:
    if not known.elsewhere:
        return ("no known release can: train the draft on other layers",)
    return tuple(f"take another release: {line}" for line in known.elsewhere)
