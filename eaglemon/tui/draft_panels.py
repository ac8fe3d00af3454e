"""What the panels of a draft say, as content for a width. Pure: views in, content out."""

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.draft_views import InspectView
from eaglemon.core.problems import Severity
from eaglemon.core.profiles import Profile
from eaglemon.core.views import ServerView
from eaglemon.tui.columns import bar, joined, right, wrapped
from eaglemon.tui.draft_words import in_keys

_LABEL_WIDTH = 13


def conditional_lines(server: ServerView, width: int) -> list[Content]:
    """Return how often each token is accepted given that all before it were.

    A draft that was trained well keeps this share nearly level; one that is fed wrongly falls.
    """
    shares = server.acceptance.conditional if server.acceptance else ()
    if not shares and server.probe is not None and server.probe.figures.counts is not None:
        shares = server.probe.figures.counts.conditional
    if not shares:
        return []
    room = max(4, min(60, width - 18))
    rows = [Content(""), Content.styled("given that all before it were accepted", "$quiet")]
    for number, share in enumerate(shares, start=1):
        text = units.UNKNOWN if share is None else f"{share:.2f}"
        label = f"token {number}".rjust(10)
        rows.append(
            joined(Content.styled(label, "$quiet"), " ", bar(share, room, "$accept-bar"))
            + right(text, 6)
        )
    return rows


def settings_lines(server: ServerView, profile: Profile | None, width: int) -> list[Content]:
    """Return which draft it is and how far ahead it guesses."""
    speculation = server.speculation
    rows: list[Content] = []
    if profile is not None:
        rows += _entry("draft", profile.draft or units.UNKNOWN, width)
        rows += _entry("target", profile.model, width)
    if speculation is not None:
        figures = (
            ("steps", speculation.steps),
            ("topk", speculation.topk),
            ("tokens", speculation.draft_tokens),
        )
        known = " ".join(f"{name} {value}" for name, value in figures if value is not None)
        rows += _entry("speculation", f"{speculation.algorithm} {known}", width)
    return rows


def inspect_lines(view: InspectView, width: int) -> list[Content]:
    """Return what the draft's files say, and what is wrong with them."""
    vocabulary = f"{_number(view.draft_vocabulary)} of the target's {_number(view.vocabulary)}"
    looked_at = f" ({view.looked_at})" if view.looked_at else ""
    rows: list[Content] = []
    for label, text in (
        ("architecture", f"{view.architecture}, {view.attention} attention"),
        ("weights", f"{units.count(view.parameters)} values, {', '.join(view.dtypes)}{looked_at}"),
        ("hidden size", f"{_number(view.hidden_size)} (target {_number(view.target_hidden_size)})"),
        ("joins", f"{_number(view.captured)} layers of the target"),
        ("vocabulary", vocabulary),
        ("positions", _number(view.max_positions)),
    ):
        rows += _entry(label, text, width)
    for capture in view.captures:
        slots = units.UNKNOWN if capture.slots is None else str(list(capture.slots))
        rows += _entry("captures", f"{capture.name}: {slots}", width)
    for problem in view.problems:
        error = problem.severity is Severity.ERROR
        style = "$state-failed" if error else "$state-warning"
        mark = "✗ " if error else "▲ "
        told = in_keys(f"{mark}{problem}")
        rows += [Content.styled(line, style) for line in wrapped(told, width, 4)]
    if not view.problems:
        rows.append(Content.styled("✓ its files by themselves are in order", "$state-ready"))
    return rows


def next_steps(server: ServerView, profile: Profile | None, width: int) -> list[Content]:
    """Return the commands that find out why a draft is slow."""
    draft = (profile.draft if profile else None) or "DRAFT"
    target = profile.model if profile else "TARGET"
    rows = [Content.styled("To find out why it is slow", "bold")]
    for text in (
        f"eaglemon draft inspect {draft} --target {target}",
        f"eaglemon draft check {draft} --target {target} --hidden FILE",
        f"eaglemon draft diagnose --help ({server.name} may keep running)",
    ):
        rows += [Content(line) for line in wrapped(text, width, 3)]
    return rows


def _entry(label: str, text: str, width: int) -> list[Content]:
    return [
        Content.assemble(((label if n == 0 else "").ljust(_LABEL_WIDTH), "$quiet"), (line, ""))
        for n, line in enumerate(wrapped(text, max(8, width - _LABEL_WIDTH)))
    ]


def _number(value: int | None) -> str:
    return units.UNKNOWN if value is None else units.count(value)
