"""The application: updates, themes, colours, and leaving at once."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from rich.cells import cell_len

from eaglemon.cli import main
from eaglemon.tui.app import ConsoleApp
from tests.tui import snapshots
from tests.tui.console import AT_ONCE, THEMES, opened
from tests.tui.fake_console import FakeConsole
from tests.tui.fake_experiments import FakeExperiments


async def test_the_first_picture_is_the_snapshot_at_hand() -> None:
    async with opened(snapshots.FLEET) as console:
        assert "112.0/140.4" in console.text()


async def test_updates_are_drawn() -> None:
    async with opened(snapshots.EMPTY) as console:
        assert "no servers yet" in console.text()
        await console.push(snapshots.FLEET)
        assert "k25-eagle3-24" in console.text()


async def test_the_clock_goes_on_while_every_host_is_silent() -> None:
    async with opened(snapshots.FLEET) as console:
        console.fake.now = replace(snapshots.FLEET, at=snapshots.AT + 5)
        console.app._tick()
        await console.settle()
        assert "14:02:16" in console.text()


async def test_a_dialog_in_front_does_not_stop_updates() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("question_mark")
        await console.push(replace(snapshots.FLEET, at=snapshots.AT + 9))
        await console.press("escape")
        assert "14:02:20" in console.text()


@pytest.mark.parametrize("keys", [("q",), ("o", "q"), ("ctrl+c",), ("s", "ctrl+c"), ("ctrl+q",)])
async def test_leaving_waits_for_no_host_that_hangs(keys: tuple[str, ...]) -> None:
    fake = FakeConsole(snapshots.FLEET, hang=True, log_batches=(snapshots.LOG,))
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("S", "y", "t", "ctrl+s")
        await console.press(*keys[:-1])
        # What the hosts are asked is never answered: the limit is of what waits for that.
        async with asyncio.timeout(60):
            await console.pilot.press(keys[-1])
        assert console.app._exit


async def test_every_own_theme_is_offered_in_turn() -> None:
    async with opened(snapshots.FLEET) as console:
        seen = [console.app.theme]
        for _ in THEMES:
            await console.press("T")
            seen.append(console.app.theme)
        assert seen[0] == seen[-1] == "eaglemon-dark"
        assert set(seen) == set(THEMES)


@pytest.mark.parametrize("theme", ["eaglemon-light", "high-contrast", "nord", "ansi-dark"])
async def test_themes_change_colours_and_no_text(theme: str) -> None:
    async with opened(snapshots.FLEET) as console:
        dark = console.text()
        background = console.screen.styles.background
        console.app.use_theme(theme)
        await console.settle()
        assert console.text() == dark
        assert console.screen.styles.background != background
        await console.press("o")
        assert "READY" in console.text()


async def test_without_own_themes_textuals_are_used() -> None:
    async with opened(snapshots.FLEET, themes={}) as console:
        assert console.app.theme == "textual-dark"
        await console.press("T")
        assert console.app.theme in console.app.available_themes
        assert console.app.theme != "textual-dark"


async def test_a_bad_theme_file_is_told_and_the_others_work() -> None:
    async with opened(snapshots.FLEET, themes={**THEMES, "mine": "primary = 3"}) as console:
        assert console.said == ['theme mine: primary is missing; add primary = "#rrggbb"']
        assert console.app.theme == "eaglemon-dark"


async def test_an_unknown_theme_is_told() -> None:
    async with opened(snapshots.FLEET, theme="pink") as console:
        assert console.said == ["no theme 'pink': using textual-dark"]


async def test_no_color_leaves_attributes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(snapshots.FLEET) as console:
        app = console.app
        drawn = []
        for strip in app.screen._compositor.render_strips():
            drawn += [segment for segment in strip if segment.style is not None]
        assert not any(one.style.color or one.style.bgcolor for one in drawn if one.style)
        marked = "".join(one.text for one in drawn if one.style and one.style.reverse)
        assert "h200-a" in marked
        assert "h200-b" not in marked
        quiet = "".join(one.text for one in drawn if one.style and one.style.dim)
        assert "last known" in quiet
        assert "FAILED" not in quiet


async def test_a_theme_file_that_changes_is_drawn_at_once() -> None:
    async with opened(snapshots.FLEET) as console:
        before = console.screen.styles.background
        dark = THEMES["eaglemon-dark"].replace('background = "#11151a"', 'background = "#400000"')
        console.app.take_themes({**THEMES, "eaglemon-dark": dark, "mine": 'primary = "#369"'})
        await console.settle()
        after = console.screen.styles.background
        assert after.r > 60 > before.r
        assert "mine" in console.app.own_theme_names()
        console.app.take_themes({**THEMES, "mine": "primary = 3"})
        await console.settle()
        assert console.said == ['theme mine: primary is missing; add primary = "#rrggbb"']
        assert console.app.theme == "eaglemon-dark"


async def test_theme_files_are_looked_at_again() -> None:
    texts = dict(THEMES)
    async with opened(snapshots.FLEET, theme_source=lambda: texts) as console:
        texts["mine"] = 'primary = "#336699"'
        deadline = time.monotonic() + 60
        while "mine" not in console.app.own_theme_names() and time.monotonic() < deadline:
            await console.pilot.pause(0.02)
        assert "mine" in console.app.own_theme_names()


@pytest.mark.parametrize("key", ["p", "o", "h", "question_mark", "s"])
async def test_ascii_terminals_get_ascii_in_the_same_cells(key: str) -> None:
    async with opened(snapshots.FLEET) as usual:
        await usual.press(key)
        wanted = [cell_len(line) for line in usual.text().splitlines()]
    async with opened(snapshots.FLEET, ascii_only=True) as console:
        await console.press(key)
        text = console.text()
        assert text.isascii()
        assert "READY" in text or key in {"h", "question_mark", "s"}
        assert [len(line) for line in text.splitlines()] == wanted


def test_the_usual_pace_is_four_pictures_a_second_at_most() -> None:
    pace = type(AT_ONCE)()
    assert pace.refresh_s >= 0.25


@pytest.mark.parametrize(("words", "otherwise"), [((), "status"), (("demo",), "demo --headless")])
def test_no_console_is_opened_where_it_has_no_room(
    words: tuple[str, ...],
    otherwise: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("eaglemon.cli.tui.has_terminal", lambda: True)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    assert main.run(words) == 2
    assert capsys.readouterr().err == (
        "eaglemon: the terminal is 20x5: the console needs at least 40x10; "
        f"enlarge it, or use eaglemon {otherwise}\n"
    )


async def test_a_key_pressed_while_the_console_opens_is_carried_out_once_it_is_open() -> None:
    fake = FakeConsole(snapshots.FLEET)
    app = ConsoleApp(fake, themes=THEMES, zone=UTC, pace=AT_ONCE, opening=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("P")
        await pilot.pause()
        assert app.scene().screen == "fleet"
        app.take_experiments(FakeExperiments())
        await pilot.pause()
        assert app.scene().screen == "profiles"
