"""What the launch form says, and where positions come from when counters do not tell them."""

from dataclasses import replace
from typing import Any, cast

import pytest

from eaglemon.core.profiles import Speculation
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.views import ServerView
from eaglemon.core.worth import StoredWorth, Worth, worth_of
from eaglemon.tui.acceptance_panels import acceptance, missing, speeds
from eaglemon.tui.launch_form import first_choice, in_the_form
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import BASELINE, EAGLE3
from tests.tui.fake_experiments import FakeExperiments


@pytest.mark.parametrize(
    ("hint", "worded"),
    [
        (
            "stop it, or choose another port with --set port=N",
            "another port in the field port above",
        ),
        ("choose other GPUs with --set gpus=...", "with a line gpus=... under flags"),
        ("correct model in the profile, or use --set", "or change it under flags"),
        ("--set tp-size: must be a number, not 'x'", "tp-size: must be a number, not 'x'"),
        ("start the agent again", "start the agent again"),
    ],
)
def test_hints_speak_of_the_form(hint: str, worded: str) -> None:
    assert worded in in_the_form(hint)
    assert "--set" not in in_the_form(hint)


def test_the_form_begins_with_eagle3_on_the_first_engine() -> None:
    ngram = replace(EAGLE3, name="ngram", speculation=Speculation(algorithm="NGRAM"))
    other = replace(EAGLE3, name="a-vllm", engine="vllm")
    assert first_choice([BASELINE, ngram, other, EAGLE3]) == "k25-eagle3"
    assert first_choice([BASELINE, other]) == "a-vllm"
    assert first_choice([BASELINE]) == "k25-baseline"


def test_positions_come_from_the_last_probe_where_the_counters_have_none() -> None:
    server = snapshots.ready()
    assert server.acceptance is not None
    assert server.probe is not None
    counts = AcceptCounts(steps=100, accepted=130, proposed=300, per_position=(80, 40, 10))
    probe = replace(server.probe, figures=replace(server.probe.figures, counts=counts))
    blind = replace(server, acceptance=replace(server.acceptance, per_position=()), probe=probe)
    text = acceptance(blind.acceptance, blind, 60).plain
    assert "as of the last probe (chat, per-request" in " ".join(text.split())
    assert "0.80" in text
    assert "0.10" in text
    never = replace(blind, acceptance=None)
    assert "0.40" in acceptance(None, never, 60).plain
    seen = acceptance(server.acceptance, replace(server, probe=probe), 60).plain
    assert "last probe" not in seen


def probed(server: ServerView, tok_s: float, **changes: str) -> ServerView:
    assert server.probe is not None
    figures = replace(server.probe.figures, user_tok_s=tok_s, accept_length=2.8)
    plan = replace(server.probe.plan, **cast("dict[str, Any]", changes))
    return replace(server, probe=replace(server.probe, state="done", figures=figures, plan=plan))


def baseline() -> ServerView:
    server = replace(snapshots.ready(), id="base", name="base", profile="k25-baseline")
    return probed(replace(server, speculation=None, acceptance=None), 90.0)


MODELS = {"k25-eagle3": "/models/kimi-k2.5", "k25-baseline": "/models/kimi-k2.5"}


def test_break_even_is_told_beside_a_like_server_without_speculation() -> None:
    server = probed(snapshots.ready(), 140.0)
    worth = worth_of(server, [server, baseline()], MODELS)
    assert worth is not None
    assert worth.capacity.overhead == pytest.approx(2.8 * 90 / 140)
    text = acceptance(server.acceptance, server, 60, worth).plain
    assert "break-even 1.80 · it pays · 1.56 x of base when probed" in text
    again = replace(server, probe=snapshots.probe_progress(), measured=server.probe)
    assert worth_of(again, [server, baseline()], MODELS) == worth
    slow = probed(snapshots.ready(), 80.0)
    assert slow.acceptance is not None
    worth = worth_of(slow, [baseline()], MODELS)
    text = acceptance(slow.acceptance, slow, 40, worth).plain
    assert "break-even 3.15 · it does not pay" in text


@pytest.mark.parametrize(
    "other",
    [
        replace(baseline(), host="elsewhere"),
        replace(baseline(), profile="of another model"),
        replace(baseline(), gpu_indexes=(0,)),
        probed(baseline(), 90.0, workload="code"),
        replace(baseline(), probe=None),
    ],
)
def test_what_is_not_alike_is_no_baseline(other: ServerView) -> None:
    server = probed(snapshots.ready(), 140.0)
    assert worth_of(server, [other], MODELS) is None
    text = acceptance(server.acceptance, server, 60).plain
    assert "break-even not known" in text


@pytest.mark.parametrize("width", [36, 54, 74])
def test_throughput_over_three_spans_and_what_is_missing(width: int) -> None:
    server = snapshots.ready()
    assert server.load is not None
    assert server.acceptance is not None
    spans = (("5 s", 139.2), ("60 s", 141.0), ("since ready", 1138.8))
    with_spans = replace(server, load=replace(server.load, tok_s_windows=spans))
    shown = speeds(with_spans, width)
    assert all(f"{label} {rate}" in shown.plain for label, rate in spans)
    hint = "start the server with --enable-metrics"
    blind = replace(server, load=None, acceptance=replace(server.acceptance, hint=hint))
    text = " ".join(speeds(blind, width).plain.split())
    assert text == f"tok/s - no metrics: {hint}"
    assert " ".join(line.plain for line in missing(blind.acceptance, width)) in text


def test_a_collapse_is_marked_in_words() -> None:
    server = snapshots.ready()
    assert server.acceptance is not None
    view = replace(server.acceptance, accept_length=1.02, collapsed=True)
    text = acceptance(view, server, 60)
    assert "collapsed (about 1.0)" in text.plain
    assert any(str(span.style) == "$state-failed" for span in text.spans)


@pytest.mark.parametrize(("size", "tab"), [((80, 24), "3"), ((120, 40), "3")])
async def test_all_of_it_is_on_the_screen(size: tuple[int, int], tab: str) -> None:
    server = snapshots.ready()
    assert server.load is not None
    assert server.acceptance is not None
    spans = (("5 s", 139.2), ("60 s", 141.0), ("since ready", 138.8))
    view = replace(server.acceptance, accept_length=1.02, collapsed=True, hint="turn it on")
    full = replace(server, load=replace(server.load, tok_s_windows=spans), acceptance=view)
    async with opened(snapshots.only(full), size=size) as console:
        await console.press("2", "o", tab)
        assert "5 s 139.2 · 60 s 141.0 · since ready 138.8" in console.text()
        assert "no metrics: turn it on" in console.text()
        await console.press("2")
        for part in ("1.02 of 6", "collapsed (about 1.0)", "break-even not known", "turn it on"):
            assert part in console.text()


def stored(break_even: float | None = 1.74) -> StoredWorth:
    return StoredWorth(
        run="ab-1",
        told="k25-eagle3 is faster than k25-baseline: 1.57 x (95 % interval 1.49 to 1.66)",
        concurrency=1,
        break_even=break_even,
        at=snapshots.AT - 7200,
    )


async def test_the_server_is_told_whether_it_pays_as_it_was_compared() -> None:
    experiments = FakeExperiments()
    experiments.stored = stored()
    view = snapshots.only(snapshots.ready())
    async with opened(view, experiments=experiments) as console:
        console.app.open_server("run-ready")
        await console.settle()
        await console.settle()
        text = console.text()
        assert "─ Worth it? ─" in text
        assert "k25-eagle3 is faster than k25-baseline: 1.57 x" in text
        assert "break-even 1.74 · 1 at a time · ab-1 · 2 h" in text
        assert "break-even 1.74 · it pays · as compared in ab-1" in text
    assert experiments.calls == [("worth", "run-ready")]


def test_break_even_is_that_of_probes_of_now_else_of_what_was_kept() -> None:
    server = snapshots.ready()

    def told(*, worth: Worth | None = None, kept: StoredWorth | None = None) -> str:
        return acceptance(server.acceptance, server, 58, worth, stored=kept).plain

    assert "break-even 1.74 · it pays" in told(kept=stored())
    assert "it does not pay" in told(kept=stored(break_even=3.2))
    assert "break-even not known" in told(kept=stored(break_even=None))
