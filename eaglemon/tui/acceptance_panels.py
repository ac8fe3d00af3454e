"""What the panels of acceptance and throughput say, as content for a width. Pure."""

from collections.abc import Sequence

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.views import AcceptanceView, LoadView, ServerView
from eaglemon.core.worth import StoredWorth, Worth
from eaglemon.tui.columns import bar, first_that_fits, joined, lines, plain, right, spread, wrapped

_DOT = " · "
_LABEL_WIDTH = 11


def acceptance(
    view: AcceptanceView | None,
    server: ServerView,
    width: int,
    worth: Worth | None = None,
    *,
    stored: StoredWorth | None = None,
    short: bool = False,
) -> Content:
    """Return the accept length against its ceiling and how far drafts survive by position.

    ``worth`` tells what it takes to break even; ``short`` leaves out how to find that out.
    """
    if view is None:
        if server.speculation is None:
            return Content.styled("this server does not speculate", "$quiet")
        told = "no verify step seen yet"
        if server.state.answering:
            told += ": t probes the server"
        elif server.state.ended:
            told = "the server has ended: nothing is drafted any more"
        nothing = Content.styled(told, "$quiet")
        return lines([nothing, *_probed_positions(server, width)])
    of = f" of {view.ceiling}" if view.ceiling is not None else ""
    value = units.length(view.accept_length)
    head = joined("accept length  ", Content.styled(value, "bold $chart-accept"), of)
    window = "" if view.window_s is None else f"last {units.span(view.window_s)}{_DOT}"
    source = Content.styled(f"{window}{view.source}{_DOT}{units.age(view.age_s)}", "$quiet")
    rows: list[Content | str] = []
    if head.cell_length + source.cell_length + 2 <= width:
        rows.append(spread(head, source, width))
    else:
        rows += [head, source]
    if view.collapsed:
        text = "collapsed (about 1.0): a step yields its bonus token alone, the draft is of no use"
        rows += [Content.styled(line, "$state-failed") for line in wrapped(text, width, 2)]
    if view.windows:
        spans = [f"{span.label} {units.length(span.accept_length)}" for span in view.windows]
        rows += _spans(spans, width)
    if worth is not None or not short:
        rows += break_even(worth, server, width, stored)
    rows += missing(view, width)
    if view.accept_length is not None and view.ceiling:
        rows.append(
            joined(
                Content.styled(f"of {view.ceiling}".rjust(_LABEL_WIDTH - 1), "$quiet"),
                " ",
                bar(view.accept_length / view.ceiling, _bar_width(width), "$chart-accept"),
                right(value, 6),
            )
        )
    rows += _positions(view.per_position, width) or _probed_positions(server, width)
    return lines(rows)


def break_even(
    worth: Worth | None, server: ServerView, width: int, stored: StoredWorth | None = None
) -> list[Content]:
    """Return the accept length at which speculation begins to pay, or how to find it out.

    Two like probes of now are nearer than an experiment that was ``stored``.
    """
    if worth is None and stored is not None and stored.break_even is not None:
        length = server.acceptance.accept_length if server.acceptance is not None else None
        pays = length is None or length > stored.break_even
        verdict = "" if length is None else "it pays" if pays else "it does not pay"
        style = "$state-ready" if pays else "$state-warning"
        known = f"break-even {units.length(stored.break_even)}{_DOT if verdict else ''}"
        short = joined(known, Content.styled(verdict, style))
        source = Content.styled(f"{_DOT}as compared in {plain(stored.run)}", "$quiet")
        return [first_that_fits(width, joined(short, source), short)]
    if worth is None:
        if server.speculation is None:
            return []
        text = "break-even not known: probe a server of this model without speculation too"
        return [Content.styled(line, "$quiet") for line in wrapped(text, width, 3)]
    needed = units.length(worth.capacity.overhead)
    verdict = "it pays" if worth.pays else "it does not pay"
    style = "$state-ready" if worth.pays else "$state-warning"
    head = joined(f"break-even {needed}{_DOT}", Content.styled(verdict, style))
    told = f"{_DOT}{worth.capacity.speed_up:.2f} x of {plain(worth.baseline)} when probed"
    return [first_that_fits(width, joined(head, Content.styled(told, "$quiet")), head)]


def compared(stored: StoredWorth, width: int, now: float) -> Content:
    """Return what an experiment that was kept has shown of a server started like this one."""
    rows: list[Content | str] = list(wrapped(stored.told, width, 3))
    told = f"{stored.concurrency} at a time{_DOT}{plain(stored.run)}"
    told += f"{_DOT}{units.age(max(0.0, now - stored.at))}"
    if stored.break_even is not None:
        told = f"break-even {units.length(stored.break_even)}{_DOT}{told}"
    rows += [Content.styled(line, "$quiet") for line in wrapped(told, width, 2)]
    return lines(rows)


def missing(view: AcceptanceView | None, width: int) -> list[Content]:
    """Return what is not told, and how to turn it on."""
    if view is None or not view.hint:
        return []
    text = f"no metrics: {view.hint}"
    return [Content.styled(line, "$state-warning") for line in wrapped(text, width, 3)]


def _positions(shares: Sequence[float], width: int) -> list[Content]:
    return [
        joined(
            right(f"position {number}" if number == 1 else str(number), _LABEL_WIDTH - 1, "$quiet"),
            " ",
            bar(share, _bar_width(width), "$accept-bar"),
            right(f"{share:.2f}", 6),
        )
        for number, share in enumerate(shares, start=1)
    ]


def _probed_positions(server: ServerView, width: int) -> list[Content]:
    """Return the positions of the last probe: not every engine's counters tell them."""
    probe = server.probe
    counts = probe.figures.counts if probe is not None else None
    if probe is None or counts is None or not counts.survival:
        return []
    told = f"by position, as of the last probe ({probe.plan.workload}"
    told += f", {probe.figures.accept_source}):" if probe.figures.accept_source else "):"
    head = [Content.styled(line, "$quiet") for line in wrapped(told, width, 2)]
    return [*head, *_positions(counts.survival, width)]


def _bar_width(width: int) -> int:
    return max(4, min(60, width - _LABEL_WIDTH - 7))


def load_line(load: LoadView | None, width: int) -> Content:
    """Return tok/s, running and waiting requests and KV use."""
    if load is None:
        return Content.styled("tok/s       -", "$quiet")
    speed = joined("tok/s ", Content.styled(units.rate(load.tok_s).rjust(7), "bold $chart-speed"))
    counts = (
        f"  {units.count(load.running)} running  {units.count(load.waiting)} waiting"
        f"  KV {units.percent(load.kv_used_fraction)}"
    )
    age = f"  {load.source}{_DOT}{units.age(load.age_s)}"
    return first_that_fits(
        width,
        joined(speed, counts, Content.styled(age, "$quiet")),
        joined(speed, counts),
        speed,
    )


def speeds(server: ServerView, width: int) -> Content:
    """Return throughput now and over longer spans, and what is missing to tell it."""
    load = server.load
    rows: list[Content | str] = [load_line(load, width)]
    if load is not None and load.tok_s_windows:
        spans = [f"{label} {units.rate(rate)}" for label, rate in load.tok_s_windows]
        rows += _spans(spans, width)
    return lines([*rows, *missing(server.acceptance, width)])


def _spans(spans: Sequence[str], width: int) -> list[Content]:
    """Return figures over several spans in one line, else one line each: none is cut."""
    together = Content.styled(_DOT.join(spans), "$quiet")
    if together.cell_length <= width:
        return [together]
    return [Content.styled(span, "$quiet") for span in spans]


def accept_line(view: AcceptanceView | None) -> Content:
    """Return the caption of the accept-length chart."""
    value = units.length(view.accept_length if view else None)
    of = f" of {view.ceiling}" if view and view.ceiling is not None else ""
    return joined("accept length ", Content.styled(value, "bold $chart-accept"), of)
