"""A failed server: what it left, and the form that starts it otherwise."""

from dataclasses import replace
from typing import Any

import pytest

from eaglemon.core.views import LaunchPlan
from eaglemon.errors import ServerError
from eaglemon.tui.again import Again, begun_from
from eaglemon.tui.cause_panel import failure, left_behind
from eaglemon.tui.scene import Scene, stop
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import EAGLE3, FakeConsole


class Known(FakeConsole):
    """Knows how the failed server was started: with fewer GPUs and another model."""

    def relaunch_plan(self, server_id: str, **_: Any) -> LaunchPlan:
        if server_id != "run-failed":
            raise ServerError("only its record is known")
        profile = replace(EAGLE3, model="/models/other", gpus=(0, 1))
        return replace(self.plan("k25-eagle3", "h200-b"), profile=profile)


async def test_one_key_opens_the_form_with_what_is_advised() -> None:
    known = Known(snapshots.only(snapshots.failed()))
    async with opened(known.now, fake=known) as console:
        console.app.open_server("run-failed")
        await console.settle()
        text = console.text()
        assert "s    opens the launch form with mem-fraction-static=0.8" in text
        assert "left no process on GPUs 0-7" in text
        assert " s start" in text
        await console.press("s")
        await console.settle()
        assert "Start k25-eagle3-16 again with mem-fraction-static=0.8" in console.text()
        await console.press("ctrl+s")
        planned = console.called("plan")[-1]
        assert planned[1:] == (
            "k25-eagle3",
            "h200-b",
            {"mem-fraction-static": "0.8", "model": "/models/other", "gpus": "0,1"},
        )


async def test_a_server_known_by_its_record_alone_opens_its_profile() -> None:
    server = replace(snapshots.failed(), id="run-other")
    known = Known(snapshots.only(server))
    async with opened(known.now, fake=known) as console:
        console.app.open_server("run-other")
        await console.settle()
        await console.press("s")
        await console.settle()
        assert "Start k25-eagle3-16 again ─" in console.text()
        assert "mem-fraction-static=0.85" in console.text()


def test_what_is_left_is_told_with_the_key_that_ends_it() -> None:
    server = replace(snapshots.failed(), pids=(7, 8, 9, 10, 11), memory_used_bytes=112 * 2**30)
    told = left_behind(server)
    assert told == (
        "5 processes (PID 7 8 9 10 and 1 more), 112.0 GiB on GPUs 0-7: K ends what is left"
    )
    assert stop(Scene(screen="server", server=server)) is None
    assert "nothing to stop" in (stop(Scene(screen="server", server=snapshots.failed())) or "")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_console_that_only_reads_offers_no_start(*, read_only: bool) -> None:
    told = failure(snapshots.failed(), 100, read_only=read_only).plain
    assert ("opens the launch form" in told) is not read_only
    assert failure(snapshots.ready(), 100).plain == ""


def test_a_changed_port_is_a_field_of_the_form() -> None:
    again = Again(name="x", profile="k25-eagle3", host="h", changes=("port=30001",))
    fields, flags = begun_from(again, EAGLE3)
    assert fields["port"] == "30001"
    assert "port" not in flags
