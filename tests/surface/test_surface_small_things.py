"""Small things that somebody stumbles over: figures of a warm-up, and messages that say why."""

from dataclasses import replace

from eaglemon.tui import panels
from tests.tui import snapshots


def test_a_warm_up_is_none_of_the_requests() -> None:
    server = snapshots.ready()
    assert server.probe is not None
    warming = replace(server.probe, state="warming-up", done=1)
    text = panels.probe(warming, 80).plain
    assert " 1/2 " in text
    assert "tok/s   -" in text
    title = panels.title_line(replace(server, probe=warming), 120, None).plain
    assert title.rstrip().endswith("warming up 1/2")
    running = panels.probe(server.probe, 80).plain
    assert f" {server.probe.done}/{server.probe.plan.requests} " in running
