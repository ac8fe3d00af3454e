"""The draft of a server: wiring drawn, checked on its host, corrected, restarted and probed."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.core.draft_views import CheckStage
from eaglemon.core.views import ServerView, Told
from eaglemon.errors import HostError
from eaglemon.tui.draft_panels import conditional_lines
from eaglemon.tui.draft_words import in_keys
from eaglemon.tui.screens.draft import stage_words
from eaglemon.tui.wiring_panels import step_lines, verdict_lines, wiring_lines
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_console import FakeConsole
from tests.tui.fake_drafts import CHECKED, FROM_FILES, FakeDrafts
from tests.tui.frame import check_frame
from tests.tui.test_tui_files import FakeFiles, fakes


def desk(path: Path) -> tuple[FakeConsole, FakeFiles, FakeDrafts]:
    fake, files = fakes(path)
    drafts = FakeDrafts()
    files.desk = drafts
    return fake, files, drafts


async def until(console: Opened, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in console.text():
        assert time.monotonic() < deadline, f"{text} is not shown:\n{console.text()}"
        await console.pilot.pause(0.02)


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_draft_frames(size: str, tmp_path: Path) -> None:
    width, height = map(int, size.split("x"))
    fake, files, _ = desk(tmp_path)
    async with opened(snapshots.FLEET, size=(width, height), fake=fake, files=files) as console:
        await console.press("2", "o", "d", "D", "y")
        await console.settle()
        check_frame(console.app, f"draft-{size}")
        if size == "80x24":
            await console.press("2")
            check_frame(console.app, f"draft-{size}-tab2")
        await console.press("f")
        await console.settle()
        check_frame(console.app, f"dialog-rewire-{size}")


async def test_a_draft_is_judged_checked_and_fixed_where_it_lies(tmp_path: Path) -> None:
    fake, files, drafts = desk(tmp_path)
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "f")
        assert console.said[-1].startswith("only on the screen of a draft")
        await console.press("d", "f")
        assert console.said[-1].startswith("what the draft was trained on is not known yet")
        assert drafts.calls == [("diagnose", "run-ready", False)]
        drafts.may_end.clear()
        await console.press("D")
        await console.settle()
        assert "64.0 GiB" in console.text()
        await console.press("y")
        assert drafts.calls[-1] == ("diagnose", "run-ready", True)
        assert "Draft ─ being checked: capturing 9/16" in console.text()
        await console.press("D")
        assert console.said[-1] == "the draft is being checked: wait for it"
        drafts.may_end.set()
        await until(console, "✗ wiring")
        await console.press("f")
        await console.settle()
        assert '+  "eagle_aux_hidden_state_layer_ids": [-1, 2, 30]' in console.text()
        await console.press("n")
        assert console.called("restart") == []
        fake.probe_may_end.set()
        await console.press("f")
        await console.settle()
        fake.push(replace(fake.now, servers=(*fake.now.servers, again())))
        await console.press("y")
        await console.settle()
        written = [call for call in drafts.calls if call[0] == "rewire" and call[3] is not None]
        assert [call[2] for call in written] == [(0, 2, 30)]
        assert console.called("restart") == [("restart", "run-ready", None)]
        assert [call[1] for call in console.called("probe")] == ["run-ready-again"]
        assert "eaglemon draft undo h200-a:/models/k25-eagle3" in console.said[-1]


async def test_a_probe_that_ends_has_the_draft_judged_anew(tmp_path: Path) -> None:
    fake, files, drafts = desk(tmp_path)
    running = replace(snapshots.ready(), probe=snapshots.probe_progress())
    done = replace(snapshots.ready(), probe=snapshots.probe_progress("done"))
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "d")
        fake.push(replace(fake.now, servers=(running,)))
        await console.settle()
        assert drafts.calls == [("diagnose", "run-ready", False)]
        fake.push(replace(fake.now, servers=(done,)))
        await console.settle()
        assert drafts.calls == [("diagnose", "run-ready", False)] * 2
        await console.press("D", "y")
        await console.settle()
        assert "before the last probe" not in console.text()
        figures = replace(snapshots.probe_progress().figures, accept_length=1.2)
        newer = replace(snapshots.probe_progress("done"), figures=figures)
        fake.push(replace(fake.now, servers=(replace(snapshots.ready(), probe=newer),)))
        await until(console, "this is from before the last probe")
        # What the check has found is kept.
        assert "✗ wiring" in console.text()
        assert [call for call in drafts.calls if call[0] == "diagnose"] == [
            ("diagnose", "run-ready", False),
            ("diagnose", "run-ready", False),
            ("diagnose", "run-ready", True),
        ]


def again() -> ServerView:
    return replace(snapshots.ready(), id="run-ready-again")


async def test_a_check_that_fails_leaves_what_was_known_in_sight(tmp_path: Path) -> None:
    fake, files, drafts = desk(tmp_path)
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "d")
        drafts.error = HostError("h200-a: transformers is not installed")
        await console.press("D", "y")
        await until(console, "transformers is not installed")
        assert "slot 1 gets hs 2" in console.text()


async def test_a_restart_that_is_refused_tells_how_to_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(server_id: str, *, told: Told) -> str:
        del told
        raise HostError(f"the port of {server_id} is in use")

    fake, files, drafts = desk(tmp_path)
    async with opened(snapshots.FLEET, size=(80, 24), fake=fake, files=files) as console:
        await console.press("2", "o", "d", "D", "y")
        await console.settle()
        monkeypatch.setattr(fake, "restart", refuse)
        await console.press("f")
        await console.settle()
        before = len(drafts.calls)
        await console.press("y")
        await console.settle()
        assert console.said[-1] == (
            "after rewiring the draft: the port of run-ready is in use; "
            "undo: eaglemon draft undo h200-a:/models/k25-eagle3"
        )
        assert drafts.calls[before + 1 :] == [("diagnose", "run-ready", False)]


async def test_a_narrow_terminal_tells_of_a_check_beside_the_steps(tmp_path: Path) -> None:
    fake, files, drafts = desk(tmp_path)
    async with opened(snapshots.FLEET, size=(80, 24), fake=fake, files=files) as console:
        await console.press("2", "o", "d")
        drafts.may_end.clear()
        await console.press("D", "y")
        await until(console, "Draft ─ being checked: capturing 9/16")
        drafts.error = HostError("no torch", hint="name a Python of the host with --python: 3.11")
        drafts.may_end.set()
        await until(console, "the profile's python must be one of the host: 3.11")


def test_a_stage_tells_what_is_left_of_it() -> None:
    stage = CheckStage(doing="capturing", done=9, of=16)
    assert stage_words(stage, 100.0, 190.0) == "capturing 9/16, about 1 m 10 s left of that"
    assert stage_words(replace(stage, done=0), 100.0, 190.0) == "capturing 0/16"
    assert stage_words(CheckStage(doing="running the draft"), 1.0, 9.0) == "running the draft"


def test_advice_names_keys_and_no_commands() -> None:
    fix = "eaglemon draft set-layers h:/d --engine x --hs 0,2 (writes [-1, 2] to ids)"
    assert in_keys(fix) == "press f: it writes [-1, 2] to ids, restarts the server and probes it"
    assert in_keys("diagnose with --capture, to find the layers") == "press D to find the layers"
    torch = "pip install 'eaglemon[draft]', or name a Python that has it with --python"
    assert "--python" not in in_keys(torch)
    assert in_keys("retrain it") == "retrain it"


async def test_what_does_not_fit_and_what_cannot_be_reached_is_said(tmp_path: Path) -> None:
    fake, files, drafts = desk(tmp_path)
    drafts.fits = False
    drafts.error = HostError("h200-a is down", hint="try again")
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "d")
        assert "h200-a is down" in console.text()
        assert "eaglemon draft inspect /models/k25-eagle3" in console.text()
        await console.press("D")
        await console.settle()
        assert "does not fit" in console.said[-1]
    async with opened(snapshots.FLEET, fake=fake, files=files, read_only=True) as console:
        await console.press("o", "d", "D")
        assert "read-only" in console.said[-1]
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("o", "d", "D")
        assert "use eaglemon draft" in console.said[-1]


@pytest.mark.parametrize("width", [34, 54, 94])
def test_the_wiring_says_where_it_differs(width: int) -> None:
    rows = [*verdict_lines(CHECKED, width), *wiring_lines(CHECKED, width)]
    rows += step_lines(CHECKED, width)
    assert max(row.cell_length for row in rows) <= width
    text = " ".join(" ".join(row.plain for row in rows).split())
    assert "✗ slot 1 gets hs 2, trained on hs 0 (the embedding): differs" in text
    assert "✗ wiring: it gets layers" in text
    assert text.count("as trained █") == 3
    drawn = [row.plain for row in rows if row.plain.startswith(("captured", "trained on "))]
    assert (len(drawn) == 2) is (width >= 94)
    same = replace(CHECKED, trained=CHECKED.captured)
    assert "✓ slot 1 gets hs 2, trained on hs 2: same" in " ".join(
        " ".join(row.plain for row in wiring_lines(same, width)).split()
    )


def test_what_is_not_known_of_the_wiring_is_said() -> None:
    text = " ".join(row.plain for row in wiring_lines(FROM_FILES, 94))
    assert "slot 3 gets hs 58" in text
    assert "D runs it over captured hidden states" in text
    nothing = replace(FROM_FILES, captured=None)
    assert "neither" in " ".join(row.plain for row in wiring_lines(nothing, 94))
    assert step_lines(FROM_FILES, 94) == []


def test_conditional_shares_come_from_the_live_source_first() -> None:
    server = snapshots.ready()
    assert server.acceptance is not None
    live = replace(server, acceptance=replace(server.acceptance, conditional=(0.74, None)))
    text = "\n".join(line.plain for line in conditional_lines(live, 60))
    assert "0.74" in text
    assert text.rstrip().endswith("-")
    assert conditional_lines(replace(server, acceptance=None, probe=None), 60) == []
