"""What the configuration alone makes one suspect of a draft's layers, before anything has run."""

from collections.abc import Iterator

from eaglemon.core.draft_verdict import DraftEvidence


def conventions(known: DraftEvidence) -> tuple[str, ...]:
    """Return what the serving engine captures, and who would capture something else for it.

    The same ids mean other layers to other engines, and are looked for in other places.
    """
    return tuple(dict.fromkeys(_lines(known)))


def _lines(known: DraftEvidence) -> Iterator[str]:
    served = {capture.slots for capture in known.captures}
    for capture in known.captures:
        if capture.slots is not None:
            place = capture.key or "its defaults"
            yield f"{capture.name} takes {list(capture.slots)} from {place}"
    for other in known.inspect.captures:
        if other.slots is not None and other.slots not in served:
            yield (
                f"{other.name} would take {list(other.slots)}: right there, the draft is wrong here"
            )
