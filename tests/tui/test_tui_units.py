"""Figures as text: units, rounding at the seams, and the unknown."""

from datetime import UTC

import pytest

from eaglemon.core import units


@pytest.mark.parametrize(
    "function",
    [
        units.gib,
        units.memory,
        units.duration,
        units.latency,
        units.age,
        units.rate,
        units.percent,
        units.length,
        units.count,
        units.clock,
    ],
)
def test_unknown_is_a_dash_never_a_zero(function: object) -> None:
    assert callable(function)
    assert function(None) == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 m 00 s"),
        (331, "5 m 31 s"),
        (3599.6, "1 h 00 m"),
        (7500, "2 h 05 m"),
        (86400 * 2 + 3600 * 3, "2 d 03 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


def test_windows() -> None:
    assert units.span(60) == "60 s"
    assert units.span(300) == "5 m"
    assert units.span(90) == "90 s"
    assert units.span(7200) == "2 h"


def test_memory() -> None:
    assert units.gib(112.4 * units.GIB) == "112.4"
    assert units.gib_pair(0, 140 * units.GIB) == "0.0/140.0"
    assert units.gib_pair(None, 140 * units.GIB) == "-/140.0"
    assert units.gib_pair(None, None) == "-"
    assert units.memory(512 * 1024**2) == "512 MiB"
    assert units.memory(36.1 * units.GIB) == "36.1 GiB"
    assert units.memory(899 * units.GIB) == "899 GiB"
    assert units.memory(0) == "0 MiB"


def test_rates_and_shares() -> None:
    assert units.rate(141.23) == "141.2"
    assert units.rate(9999.96) == "10000"
    assert units.percent(0.97) == "97 %"
    assert units.percent(0.001) == "<1 %"
    assert units.percent(0) == "0 %"
    assert units.length(2.8149) == "2.81"
    assert units.count(4812) == "4 812"


def test_times() -> None:
    assert units.latency(0.0004) == "0.4 ms"
    assert units.latency(0.00996) == "10 ms"
    assert units.latency(0.0124) == "12 ms"
    assert units.latency(0.9996) == "1.00 s"
    assert units.age(0.42) == "0.4 s ago"
    assert units.age(-0.1) == "0.0 s ago"
    assert units.clock(50531, UTC) == "14:02:11"


def test_index_ranges() -> None:
    assert units.index_ranges(()) == "-"
    assert units.index_ranges((0, 1, 2, 3, 6)) == "0-3,6"
    assert units.index_ranges((5, 1)) == "1,5"
    assert units.index_ranges(tuple(range(8))) == "0-7"


def test_plural() -> None:
    assert units.plural(1, "process") == "1 process"
    assert units.plural(2, "process") == "2 processes"
    assert units.plural(4812, "line") == "4 812 lines"
    assert units.plural(0, "request") == "0 requests"
