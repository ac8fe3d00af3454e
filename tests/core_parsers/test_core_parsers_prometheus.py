"""Metrics: against the reference parser on real bodies, and what it would refuse."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from eaglemon.core.prometheus import CounterWindow, parse_metrics

CAPTURES = Path(__file__).parents[1] / "captures"
BODIES = sorted([*CAPTURES.rglob("*_metrics.txt"), *CAPTURES.rglob("*.prom")])


@pytest.mark.parametrize("path", BODIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_agrees_with_the_reference_parser(path: Path) -> None:
    text = path.read_text("utf-8")
    metrics = parse_metrics(text)
    expected = [
        (sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(expected) > 100
    assert metrics.malformed == 0
    assert sum(len(metrics.samples(name)) for name in metrics.names) == len(expected)
    for name, labels, value in expected:
        if not math.isnan(value):
            assert metrics.value(name, **labels) == value


def test_numbers_labels_and_escapes() -> None:
    text = (
        "# HELP x y\n# TYPE x gauge\n"
        'x{a="1",b="two, \\"three\\" \\\\ \\n end}",} 1.5e3 1700000000000\n'
        "x 2\nnan NaN\nup +Inf\ndown -Inf\nsmall 1E-9\n"
    )
    metrics = parse_metrics(text)
    assert metrics.value("x", a="1") == 1500
    assert metrics.samples("x")[0].labels["b"] == 'two, "three" \\ \n end}'
    assert metrics.sum("x") == 1502
    assert metrics.sum("x", a="2") is None
    assert math.isnan(metrics.value("nan") or 0)
    assert metrics.value("up") == math.inf
    assert metrics.value("down") == -math.inf
    assert metrics.sum("nan") is metrics.sum("up") is None
    assert metrics.value("small") == 1e-9
    assert metrics.by_label("x", "a") == {"1": 1500}


@pytest.mark.parametrize(
    "line",
    ["x", "x y", "x{a=} 1", 'x{a="1" 1', "1x 1", 'x{a="1"b="2"} 1', "x 1_000", "<html>", "x 1 2 3"],
)
def test_malformed_lines_are_counted(line: str) -> None:
    metrics = parse_metrics(f"{line}\ngood 1\n")
    assert metrics.malformed == 1
    assert metrics.value("good") == 1


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    parse_metrics(text)


def test_growth_over_a_window() -> None:
    window = CounterWindow()
    assert window.delta(5, 0) is None
    for at in range(11):
        window.add(float(at), {"tokens": 100.0 * at})
    delta = window.delta(5, 10)
    assert delta is not None
    assert (delta.elapsed_s, delta.values["tokens"]) == (5, 500)
    assert delta.rate("tokens") == 100
    assert delta.rate("nothing") is None
    assert window.delta(5, 60) is None


def test_a_reset_counts_from_zero() -> None:
    window = CounterWindow()
    for at, tokens in enumerate((1000.0, 1100.0, 40.0, 90.0)):
        window.add(float(at), {"tokens": tokens})
    delta = window.delta(60, 3)
    assert delta is not None
    assert delta.values["tokens"] == 100 + 40 + 50
    assert window.resets == 1


def test_a_counter_that_appears_later() -> None:
    window = CounterWindow()
    window.add(0, {"a": 1.0})
    window.add(1, {"a": 2.0, "b": 500.0})
    window.add(2, {"a": 3.0, "b": 501.0})
    delta = window.delta(1, 2)
    assert delta is not None
    assert delta.values == {"a": 1, "b": 1}
    long = window.delta(60, 2)
    assert long is not None
    assert long.values == {"a": 2}


def test_old_readings_are_forgotten_and_late_ones_left_out() -> None:
    window = CounterWindow(keep_s=10, max_readings=5)
    for at in range(100):
        window.add(float(at), {"a": float(at)})
    window.add(50.0, {"a": 0.0})
    delta = window.delta(1000, 99)
    assert delta is not None
    assert delta.elapsed_s == 4
    assert window.resets == 0


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30))
def test_growth_is_never_negative(values: list[int]) -> None:
    window = CounterWindow()
    for at, value in enumerate(values):
        window.add(float(at), {"a": float(value)})
    delta = window.delta(1000, len(values))
    assert delta is not None
    assert delta.values["a"] >= 0
