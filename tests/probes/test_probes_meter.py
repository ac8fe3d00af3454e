"""The live panel's values: windows over counters, gauges, log lines, and what is missing."""

from pathlib import Path

import pytest

from eaglemon.app.meter import Meter
from eaglemon.core.phases import DecodeStats
from eaglemon.core.prometheus import parse_metrics
from eaglemon.core.speculation import AcceptCounts
from eaglemon.engines import ENGINES
from eaglemon.engines.base import Gauges

CAPTURES = Path(__file__).parents[1] / "captures"


def counted(steps: int, accepted: int, positions: tuple[int, ...] = (), **values: float) -> Gauges:
    accept = AcceptCounts(
        steps=steps, accepted=accepted, proposed=5 * steps, per_position=positions
    )
    return Gauges(accept=accept, generation_tokens=float(steps + accepted), **values)  # type: ignore[arg-type]


def fed(*readings: tuple[float, Gauges], ceiling: int | None = 6) -> Meter:
    meter = Meter(ceiling=ceiling)
    for at, gauges in readings:
        meter.scrape_seen(gauges, at=at, wall=1e9 + at)
    return meter


def test_three_spans_are_told_apart() -> None:
    meter = fed(
        (0.0, counted(1000, 1000, (900, 100))),
        (94.0, counted(2000, 3000, (1700, 1300))),
        (150.0, counted(2100, 3300, (1800, 1500))),
        (154.0, counted(2110, 3300, (1800, 1500))),
    )

    view = meter.acceptance(155.0)

    assert view is not None
    spans = {span.label: span for span in view.windows}
    assert list(spans) == ["5 s", "60 s", "since ready"]
    assert spans["5 s"].accept_length == 1.0
    assert spans["60 s"].accept_length == pytest.approx(1 + 300 / 110)
    assert spans["since ready"].accept_length == pytest.approx(1 + 2300 / 1110)
    assert spans["since ready"].per_position == pytest.approx((900 / 1110, 1400 / 1110))
    assert (view.accept_length, view.source) == (spans["60 s"].accept_length, "counters")
    assert view.ceiling == 6
    assert view.conditional == pytest.approx((100 / 110, 2.0))
    load = meter.load(155.0)
    assert load is not None
    assert [label for label, _ in load.tok_s_windows] == ["5 s", "60 s", "since ready"]
    assert load.tok_s_windows[2][1] == pytest.approx((1110 + 2300) / 154.0)


def test_a_later_console_names_its_span() -> None:
    meter = fed((0.0, counted(10, 10)), (2.0, counted(20, 20)))
    view = meter.acceptance(2.0, since="since seen")
    assert view is not None
    assert view.windows[-1].label == "since seen"


@pytest.mark.parametrize(
    ("accepted", "collapsed"), [(0, True), (5, True), (11, False), (46, False)]
)
def test_collapse_is_marked(accepted: int, *, collapsed: bool) -> None:
    view = fed((0.0, counted(0, 0)), (2.0, counted(100, accepted))).acceptance(2.0)
    assert view is not None
    assert view.collapsed is collapsed


def test_a_few_steps_are_no_collapse() -> None:
    view = fed((0.0, counted(0, 0)), (2.0, counted(19, 0))).acceptance(2.0)
    assert view is not None
    assert not view.collapsed


def test_a_restart_is_never_negative() -> None:
    meter = fed(
        (0.0, counted(100, 200, started_at=1.0)),
        (2.0, counted(110, 220, started_at=1.0)),
        # A server that counted beyond the old one between two readings.
        (4.0, counted(120, 360, started_at=2.0)),
        (6.0, counted(5, 5, started_at=2.0)),
    )
    view = meter.acceptance(6.0)
    assert view is not None
    assert view.windows[-1].steps == 10 + 120 + 5
    assert view.windows[-1].accept_length == pytest.approx(1 + (20 + 360 + 5) / 135)


def test_the_first_steps_ever_are_counted() -> None:
    before = Gauges(generation_tokens=9.0)
    view = fed((0.0, before), (2.0, counted(100, 209))).acceptance(2.0)
    assert view is not None
    assert view.windows[-1].steps == 100
    assert view.accept_length == pytest.approx(3.0)


def test_without_speculation_there_is_no_section() -> None:
    meter = fed(
        (0.0, Gauges(generation_tokens=0.0)), (2.0, Gauges(generation_tokens=50.0)), ceiling=None
    )
    assert meter.acceptance(2.0) is None
    load = meter.load(2.0)
    assert load is not None
    assert load.tok_s == 25.0


def test_without_metrics_the_log_tells_and_the_fix_is_named() -> None:
    meter = Meter(ceiling=6)
    assert meter.acceptance(0.0) is None
    meter.missing = ENGINES["sglang"].metrics_hint
    silent = meter.acceptance(1.0)
    assert silent is not None
    assert (silent.accept_length, silent.source) == (None, "nothing")
    meter.line_seen(DecodeStats(accept_length=3.1, tok_s=90.0), at=2.0, wall=1e9)

    view, load = meter.acceptance(3.0), meter.load(3.0)

    assert view is not None
    assert (view.accept_length, view.source, view.age_s) == (3.1, "log line", 1.0)
    assert "--enable-metrics" in view.hint
    assert load is not None
    assert (load.tok_s, load.source) == (90.0, "log line")
    later = meter.acceptance(100.0)
    assert later is not None
    assert later.accept_length is None


def test_a_gauge_is_live_only_while_requests_run() -> None:
    gauge = Gauges(generation_tokens=10.0, accept_length=2.5, running=3)
    view = fed((0.0, gauge), (2.0, gauge)).acceptance(2.0)
    assert view is not None
    assert (view.accept_length, view.source) == (2.5, "gauge")
    idle = Gauges(generation_tokens=10.0, accept_length=2.5, running=0)
    assert fed((0.0, idle), (2.0, idle)).acceptance(2.0) is None


def scraped(engine: str, *path: str) -> Gauges:
    return ENGINES[engine].gauges(parse_metrics(CAPTURES.joinpath(*path).read_text("utf-8")))


def test_an_engine_that_drafts_for_another_is_left_out() -> None:
    """As two engines of one deployment print their gauges: only one of them serves."""
    text = "".join(
        f'sglang:{name}{{engine_type="{kind}",tp_rank="0"}} {value}\n'
        for kind, scale in (("draft", 10), ("unified", 1))
        for name, value in (("spec_accept_length", 2.8 * scale), ("num_running_reqs", 3 * scale))
    )
    gauges = ENGINES["sglang"].gauges(parse_metrics(text))
    assert (gauges.accept_length, gauges.running) == (2.8, 3)


def test_a_captured_server_between_two_readings() -> None:
    before = scraped("vllm", "vllm-0.32-cpu", "metrics", "part-before.prom")
    after = scraped("vllm", "vllm-0.32-cpu", "metrics", "part-after.prom")
    meter = fed((0.0, before), (10.0, after))
    view = meter.acceptance(10.0)
    assert view is not None
    assert after.accept is not None
    assert before.accept is not None
    grown = after.accept.since(before.accept)
    assert grown is not None
    assert view.accept_length == pytest.approx(grown.accept_length)
    assert view.per_position == pytest.approx(grown.survival)


def test_a_captured_sglang_from_idle_on() -> None:
    folder = ("sglang-0.5.16-h200", "eagle3-right")
    meter = fed(
        (0.0, scraped("sglang", *folder, "idle_metrics.txt")),
        (10.0, scraped("sglang", *folder, "after_metrics.txt")),
    )
    view = meter.acceptance(10.0)
    assert view is not None
    assert view.source == "counters"
    assert view.accept_length is not None
    # All rounds together, those at temperature 0.8 too.
    assert 2.0 < view.accept_length < 4.0


def test_data_parallel_ranks_are_added() -> None:
    text = "".join(
        f'sglang:{name}_total{{dp_rank="{rank}"}} %d\n'
        for name in ("generation_tokens", "spec_verify_calls")
        for rank in (0, 1)
    )
    engine = ENGINES["sglang"]
    readings = [
        engine.gauges(parse_metrics(text % values))
        for values in ((10, 20, 5, 5), (40, 110, 15, 35))
    ]
    view = fed((0.0, readings[0]), (2.0, readings[1])).acceptance(2.0)
    assert view is not None
    assert view.accept_length == pytest.approx((30 + 90) / (10 + 30))
