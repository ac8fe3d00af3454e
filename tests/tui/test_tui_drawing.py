"""Bars, lines of braille, cells and the launch form's arithmetic, without a screen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.profiles import Profile
from eaglemon.errors import UsageError
from eaglemon.tui import launch_form
from eaglemon.tui.columns import bar, first_that_fits, left, memory_bar, plain, spread, wrapped
from eaglemon.tui.widgets.phase_track import track_lines
from eaglemon.tui.widgets.strip_chart import StripChart, braille, nice_ceiling
from tests.tui import snapshots
from tests.tui.fake_console import BASELINE, EAGLE3


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "        "),
        (0.5, "████    "),
        (1.0, "████████"),
        (1.7, "████████"),
        (0.0001, "▏       "),
        (0.25 + 1 / 64, "██▏     "),
        (None, "········"),
    ],
)
def test_bars(fraction: float | None, text: str) -> None:
    assert bar(fraction, 8, "$success").plain == text


def test_memory_bars_change_colour_at_60_and_95_per_cent() -> None:
    styles = [str(memory_bar(used, 100, 10).spans[0].style) for used in (59, 60, 95)]
    assert [style.split()[0] for style in styles] == [
        "$memory-low",
        "$memory-middle",
        "$memory-high",
    ]
    assert memory_bar(None, 100, 4).plain == "····"
    assert memory_bar(5, 0, 4).plain == "····"


@given(st.text(max_size=60), st.integers(1, 30))
def test_cells_have_their_width_whatever_the_text(text: str, width: int) -> None:
    assert left(text, width).cell_length == width
    for line in wrapped(text, max(2, width)):
        assert left(line, max(2, width)).plain.rstrip() == line.rstrip()


def test_wrapping_is_bounded_and_keeps_words() -> None:
    assert wrapped("one two three", 8) == ["one two", "three"]
    assert wrapped("a" * 10, 4) == ["aaaa", "aaaa", "aa"]
    assert wrapped("one two three four five", 5, 2) == ["one", "two …"]
    assert wrapped("", 5) == []
    assert plain("a\nb\x1b[0m") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[0m"


def test_lines_drop_the_less_important() -> None:
    long, short = left("long text", 9), left("short", 5)
    assert first_that_fits(9, long, short).plain == "long text"
    assert first_that_fits(8, long, short).plain == "short"
    assert first_that_fits(3, long, short).cell_length == 3
    assert spread(left("ab", 2), left("yz", 2), 8).plain == "ab    yz"
    assert spread(left("abcdefgh", 8), left("yz", 2), 8).cell_length == 8


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 1), (1, 1), (1.2, 2), (5, 5), (5.1, 10), (141, 200), (1000, 1000)]
)
def test_round_scales(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == ceiling


def test_a_line_of_braille() -> None:
    series = [(float(second), float(second)) for second in range(11)]
    rows = braille(series, width=5, height=2, span=(0, 10), scale=(0, 10), gap_s=5)
    assert [len(row) for row in rows] == [5, 5]
    assert rows[0][0] == " "
    assert rows[1][4] == " "
    assert rows[0][4] != " "
    assert rows[1][0] != " "


def test_gaps_stay_empty_and_what_is_outside_is_left_out() -> None:
    series = [(-5.0, 1.0), (0.0, 0.5), (100.0, 0.5), (300.0, 9.0)]
    (row,) = braille(series, width=50, height=1, span=(0, 100), scale=(0, 1), gap_s=30)
    assert row.strip(" ") != ""
    assert row[1:-1].strip() == ""
    (joined,) = braille(series, width=50, height=1, span=(0, 100), scale=(0, 1), gap_s=100)
    assert " " not in joined


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(-5, 50, allow_nan=False)), max_size=40).map(
        sorted
    ),
    st.integers(1, 20),
    st.integers(1, 6),
)
def test_charts_have_their_size_whatever_the_data(
    series: list[tuple[float, float]], width: int, height: int
) -> None:
    rows = braille(series, width=width, height=height, span=(0, 100), scale=(0, 10), gap_s=10)
    assert [len(row) for row in rows] == [width] * height


def test_nothing_beside_a_running_phase_moves() -> None:
    phases = snapshots.ready().phases
    before = [line.plain for line in track_lines(phases, 116)]
    longer = tuple(replace(phase, elapsed_s=(phase.elapsed_s or 0) + 1000) for phase in phases)
    after = [line.plain for line in track_lines(longer, 116)]
    for name in ("graphs", "warm-up", "token", "draft"):
        first = next(line for line in before if name in line)
        second = next(line for line in after if name in line)
        assert first.index(name) == second.index(name)


def test_the_form_gives_only_what_was_changed() -> None:
    values = launch_form.field_values(EAGLE3)
    flags = launch_form.flag_lines(EAGLE3)
    assert flags == "tp-size=8\nmem-fraction-static=0.85\nenable-metrics=true"
    assert launch_form.overrides(EAGLE3, values, flags) == {}
    changed = launch_form.overrides(
        EAGLE3, {**values, "port": " 31000 "}, "# note\n\n--tp-size = 4\nenable-metrics"
    )
    assert changed == {"port": "31000", "tp-size": "4", "mem-fraction-static": "false"}
    baseline = launch_form.field_values(BASELINE)
    assert baseline["speculation.steps"] == ""
    assert launch_form.overrides(BASELINE, baseline, launch_form.flag_lines(BASELINE)) == {}


def test_values_of_flags_are_written_as_they_are_typed() -> None:
    profile = Profile(
        name="x",
        engine="vllm",
        model="m",
        port=1,
        flags={"a": {"method": "eagle3"}, "b": (1, 2), "c": False, "d": "text"},
    )
    assert launch_form.flag_lines(profile) == 'a={"method": "eagle3"}\nb=[1, 2]\nc=false\nd=text'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=3", "flags, line 1: '=3' is not name=value"),
        ("a=1\na b=2", "flags, line 2: 'a b=2' is not name=value"),
        ("a=1\na=2", "flags, line 2: a is given twice"),
    ],
)
def test_lines_that_are_no_flags(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        launch_form.parse_flag_lines(text)
    assert caught.value.message == message


def test_an_emptied_field_is_told() -> None:
    values = {**launch_form.field_values(EAGLE3), "port": ""}
    with pytest.raises(UsageError) as caught:
        launch_form.overrides(EAGLE3, values, launch_form.flag_lines(EAGLE3))
    assert str(caught.value) == "port is empty; the profile has 30000"


def test_a_chart_that_was_shown_before_it_had_a_size_ends_now() -> None:
    chart = StripChart("bold")
    chart.show([(1000.0, 5.0)], 1001.0)
    assert chart._now == 1001.0
