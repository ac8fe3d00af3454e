"""What is drawn is so: dialogs in any state, times of a stop, texts where there is room."""

import re
from dataclasses import replace

import pytest
from textual.widgets import Button

from eaglemon.core.phases import Phase
from eaglemon.core.problems import Problem
from eaglemon.core.views import CauseView, PhaseState, ServerState, ServerView, StopView
from eaglemon.errors import LaunchRefusedError
from eaglemon.tui.columns import memory_style
from eaglemon.tui.launch_form import problems_of
from eaglemon.tui.panels import shown_phases, startup_notes, title_line
from eaglemon.tui.screens.confirm import stop_account
from eaglemon.tui.screens.launch import LaunchScreen
from eaglemon.tui.widgets.server_list import ServerList
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import FakeConsole


def account(server: ServerView, *, again: bool = False) -> str:
    lines = stop_account(server, None, 68, again=again)
    return " ".join(" ".join(line.plain for line in lines).split())


def test_a_dialog_about_an_ended_server_stops_nothing() -> None:
    gone = account(snapshots.killed(), again=True)
    assert "It has ended, nothing to stop; starts the same on port 30000." in gone
    assert not [word for word in ("PID", "freed", "TERM", "requests") if word in gone]
    assert account(snapshots.failed()).endswith("It has ended, nothing to stop.")
    left = account(replace(snapshots.failed(), pids=(640,)))
    assert "1: PID 640" in left
    assert "TERM now" in left


def test_a_dialog_says_what_is_not_known_yet_of_a_start() -> None:
    server = replace(snapshots.starting(), memory_used_bytes=None, stop_grace_s=15.0)
    told = account(server)
    assert "GPUs 0-7, memory not known" in told
    assert "none: it does not answer yet" in told
    assert "TERM now, KILL after 15 s" in told


async def test_an_open_dialog_keeps_up_with_the_server() -> None:
    async with opened(snapshots.only(snapshots.ready())) as console:
        await console.press("2", "S")
        assert "1 request is running" in console.text()
        gone = replace(snapshots.killed(), id="run-ready")
        await console.push(snapshots.only(gone))
        assert "It has ended, nothing to stop." in console.text()


@pytest.mark.parametrize(
    ("state", "words"),
    [(ServerState.STOPPING, "STOPPING for 2.1 s"), (ServerState.RELEASING, "2.1 s after TERM")],
)
def test_a_stop_is_timed_from_the_stop(state: ServerState, words: str) -> None:
    server = replace(snapshots.ready(), state=state, stop=StopView(steps=(), elapsed_s=2.1))
    told = title_line(server, 100, None).plain
    assert words in told
    assert "took" not in told


def test_serving_is_done_once_there_was_a_token() -> None:
    def serving(server: ServerView) -> PhaseState:
        return next(p.state for p in shown_phases(server) if p.phase is Phase.SERVING)

    pending = snapshots.phases(Phase.READY, state=PhaseState.DONE)
    ready = replace(snapshots.ready(), phases=pending)
    assert serving(ready) is PhaseState.DONE
    assert serving(replace(ready, state=ServerState.STOPPED)) is PhaseState.ENDED
    assert serving(replace(ready, state=ServerState.FAILED)) is PhaseState.FAILED
    assert serving(snapshots.starting()) is PhaseState.PENDING


def test_each_line_of_a_refusal_is_a_problem() -> None:
    error = LaunchRefusedError("port 30000: in use\nGPU 0: 112.3 GiB are used", hint="stop it")
    assert problems_of("h200-a", error) == [
        Problem(where="h200-a", message="port 30000: in use", hint=""),
        Problem(where="h200-a", message="GPU 0: 112.3 GiB are used", hint="stop it"),
    ]


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 10)])
async def test_all_buttons_of_the_launch_form_are_in_sight(size: tuple[int, int]) -> None:
    against = Problem(where="port 30000", message="in use by pid 77")
    fake = FakeConsole(snapshots.FLEET, problems=[against])
    async with opened(snapshots.FLEET, fake=fake, size=size) as console:
        await console.press("s")
        assert isinstance(console.screen, LaunchScreen)
        buttons = list(console.screen.query(Button))
        assert len([one for one in buttons if one.display]) == 3
        for one in buttons:
            assert one.region.right < size[0]
            assert str(one.label) in console.text()
            assert one.variant != "error"


def test_a_note_is_whole_where_there_is_room() -> None:
    note = "/models/missing: no such file or folder on h200-a; correct model in the profile"
    told = [line.plain for line in startup_notes(replace(snapshots.failed(), notes=(note,)), 60)]
    assert " ".join(" ".join(told).split()) == f"• {note}"


async def test_a_decisive_line_is_whole_where_rows_are_free() -> None:
    line = "ValueError: " + " ".join(f"word-{n}" for n in range(38)) + " last"
    cause = CauseView(slug=None, sentence="it failed", decisive_line=line, line_number=7)
    few = tuple(replace(one, stages=()) for one in snapshots.failed().phases)
    server = replace(snapshots.failed(), cause=cause, phases=few, notes=())
    async with opened(snapshots.only(server), size=(80, 24)) as console:
        await console.press("2", "o")
        assert "word-37 last" in console.text()


async def test_where_the_time_left_comes_from_goes_first() -> None:
    server = replace(
        snapshots.starting(),
        usual_start_s=13.0,
        ready_eta_s=(8.5, 18.0),
        eta_source="earlier starts",
    )
    async with opened(snapshots.only(server), size=(80, 24)) as console:
        await console.press("2", "o")
        title = next(row for row in console.text().splitlines() if "Start-up ─" in row)
        assert "usually 13 s, 8.5 s to 18 s left ─" in title


def test_words_of_a_start_go_before_its_bar() -> None:
    server = replace(snapshots.starting(), ready_eta_s=(8.5, 18.0))
    listed = ServerList()
    listed.show(snapshots.only(server))
    _, rows = listed.build(56)
    assert "graphs: draft-decode 7/12" in rows[1].content.plain


def test_a_reserved_cache_is_no_alarm() -> None:
    assert memory_style(116, 140) == "$memory-middle"
    assert memory_style(137, 140) == "$memory-high"
    assert memory_style(None, 140) == "$quiet"


@pytest.mark.parametrize(("size", "whole"), [((200, 50), True), ((120, 36), False)])
async def test_a_note_of_a_probe_takes_the_rows_there_are(
    size: tuple[int, int], *, whole: bool
) -> None:
    words = "the load generator was late " + " ".join(f"word-{n}" for n in range(14)) + " last"
    done = replace(snapshots.probe_progress("done"), notes=(words,))
    server = replace(snapshots.ready(), probe=done)
    async with opened(snapshots.only(server), size=size) as console:
        await console.press("o")
        await console.push(snapshots.only(replace(server, age_s=400.0)))
        text = console.text()
        assert ("word-13" in text) == whole
        assert whole or re.search("late word-0.*… +││", text)
