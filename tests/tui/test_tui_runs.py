"""The runs: opened, compared, reported, gone on with; and what profiles did before."""

from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.report.tables import verdict_lines
from eaglemon.tui.experiment_panels import run_details
from eaglemon.tui.screens.experiment import ExperimentScreen
from eaglemon.tui.screens.runs import RunsScreen
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_experiments import FINDINGS, RECORD, FakeExperiments, running
from tests.tui.frame import check_frame


def with_runs(*more: str) -> FakeExperiments:
    fake = FakeExperiments()
    fake.runs += [(name, RECORD.names) for name in more]
    return fake


async def compared(console: Opened) -> None:
    await console.press("u", "m", "G", "space")
    for _ in range(100):
        if "→" in console.text():
            return
        await console.pilot.pause(0.02)
    raise AssertionError(console.text())


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_two_marked_runs_are_compared(size: str) -> None:
    width, height = map(int, size.split("x"))
    fake = with_runs("ab-0")
    async with opened(snapshots.FLEET, size=(width, height), experiments=fake) as console:
        if width < 120:
            await console.press("u", "m", "G", "space", "2")
        else:
            await compared(console)
        assert fake.calls == [("compare", "ab-1", "ab-0")]
        assert console.said[-1] == "two runs are compared"
        check_frame(console.app, f"runs-compared-{size}")


async def test_a_comparison_says_what_differs_and_why_there_is_no_verdict() -> None:
    fake = with_runs("ab-0")
    async with opened(snapshots.FLEET, size=(200, 50), experiments=fake) as console:
        await compared(console)
        text = console.text()
        assert "ab-0, then ab-1 (1 d" in text or "ab-0, then ab-1 (24 h" in text
        assert "ab-1:k25-baseline is faster than ab-0:k25-baseline: 1.2" in text
        assert "not a fair comparison: ab-0:k25-eagle3 was not measured: oom" in text
        assert text.count("◆") == 2
        await console.press("y")
        assert console.app.clipboard.startswith("ab-0, then ab-1")
        assert console.said[-1] == "copied the comparison"
        await console.press("escape")
        assert isinstance(console.screen, RunsScreen)
        assert "◆" not in console.text()
        await console.press("m", "m")
        assert console.said[-1] == "no run is marked"
        await console.press("y")
        assert "k25-baseline" in console.app.clipboard


async def test_the_report_is_written_into_a_new_file_and_its_place_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(snapshots.FLEET, experiments=FakeExperiments()) as console:
        await console.press("u")
        for name in ("ab-1.html", "ab-1-2.html"):
            await console.press("E")
            assert console.said[-1] == f"the report of ab-1 is in {tmp_path / name}"
        assert (tmp_path / "ab-1.html").read_text() == "a report"
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        await console.press("E")
        assert "the report of ab-1" in console.said[-1]


async def test_a_run_that_was_cut_off_goes_on_and_one_that_ended_does_not() -> None:
    fake = with_runs("ab-cut")
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("u", "C")
        assert console.said[-1] == "ab-1 has ended: only one that was cut off goes on"
        await console.press("G", "C")
        assert fake.calls == [("resume", "ab-cut")]
        assert isinstance(console.screen, ExperimentScreen)
        await console.press("x")
        await console.push(snapshots.FLEET)
        assert console.said[-1] == "experiment ab-cut cancelled"


async def test_a_run_that_a_console_is_at_is_under_way_and_not_gone_on_with() -> None:
    fake = with_runs("ab-now")
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("u")
        assert "under way" in console.text()
        assert "cut off" not in console.text()
        await console.press("G", "C")
        assert console.said[-1] == "ab-now is under way in another console"
        assert fake.calls == []


@pytest.mark.parametrize("width", [40, 100])
def test_a_reason_is_shown_whole_below_the_table(width: int) -> None:
    reason = "python3: sglang is not installed on sim; set python\nport 30000: in use " + "x" * 90
    failed = replace(RECORD, failures={1: reason})
    rows = [line.plain for line in run_details(failed, FINDINGS, width)]
    assert all(len(row) <= max(width, 60) for row in rows)
    shown = "".join(rows).replace(" ", "")
    assert ("✗k25-eagle3:" + reason.replace("\n", "; ").replace(" ", "")) in shown
    assert "�" not in shown


def test_what_was_not_measured_yet_is_named_and_nothing_is_claimed() -> None:
    arms = (FINDINGS.arms[0], replace(FINDINGS.arms[1], trials=0))
    none = replace(FINDINGS.comparisons[0], ratio=None, overhead=None)
    findings = replace(FINDINGS, arms=arms, comparisons=(none,), confounders=())
    cut = replace(RECORD, outcome="", under_way=False)
    told = "not compared yet: k25-eagle3 was not measured"
    assert verdict_lines(cut, findings) == [told]
    assert told in [line.plain for line in run_details(cut, findings, 100)]


async def test_nothing_goes_on_in_a_console_that_changes_nothing() -> None:
    fake = with_runs("ab-cut")
    async with opened(snapshots.FLEET, experiments=fake, read_only=True) as console:
        await console.press("u", "G", "C")
        assert "read-only" in console.said[-1]
        assert fake.calls == []


async def test_runs_and_profiles_are_sorted() -> None:
    fake = with_runs("ab-0")
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("u", "greater_than_sign")
        assert console.said[-1] == "runs by arms"
        assert "Runs ─ by arms" in console.text()
        await console.press("I")
        assert console.said[-1] == "runs by arms, turned round"
        await console.press("less_than_sign", "I")
        assert console.said[-1] == "runs newest first"
        await console.press("escape", "P", "greater_than_sign", "I")
        assert console.said[-1] == "profiles by name, turned round"
        assert console.text().index("k25-eagle3") < console.text().index("k25-baseline")


async def test_profiles_show_their_earlier_starts_and_what_they_reached() -> None:
    async with opened(snapshots.FLEET, experiments=FakeExperiments()) as console:
        await console.press("P")
        assert "earlier starts, launch to first token" in console.text()
        assert "5 m 01 s" in console.text()
        assert "accept length 2.81" in console.text()
        await console.press("y")
        assert console.app.clipboard.startswith("python3 -m sglang")


async def test_rows_are_chosen_with_the_mouse() -> None:
    async with opened(snapshots.FLEET, experiments=FakeExperiments()) as console:
        await console.press("u")
        await console.pilot.click("#runs", offset=(5, 2))
        await console.settle()
        assert "no run 'sweep-2'" in console.text()


async def test_a_frozen_experiment_stands_still_and_goes_on() -> None:
    fake = FakeExperiments(running())
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b", "p")
        assert "1/4" in console.text()
        fake.known["ab-1"] = running(done=running().done * 3)
        await console.push(snapshots.only(snapshots.starting()))
        await console.press("T")
        assert "1/4" in console.text()
        await console.press("p")
        assert "3/4" in console.text()
        await console.press("y")
        assert "3/4" in console.app.clipboard
