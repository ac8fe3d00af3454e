"""What the launch form says, and where positions come from when counters do not tell them."""

from dataclasses import replace

import pytest

from eaglemon.core.profiles import Speculation
from eaglemon.core.speculation import AcceptCounts
from eaglemon.tui.launch_form import first_choice, in_the_form
from eaglemon.tui.panels import acceptance
from tests.tui import snapshots
from tests.tui.fake_console import BASELINE, EAGLE3


@pytest.mark.parametrize(
    ("hint", "worded"),
    [
        ("stop it, or choose another port with --set port=N", "another port with port above"),
        ("choose other GPUs with --set gpus=...", "with a line gpus=... under flags"),
        ("correct model in the profile, or use --set", "or change it under flags"),
        ("--set tp-size: must be a number, not 'x'", "tp-size: must be a number, not 'x'"),
        ("start the agent again", "start the agent again"),
    ],
)
def test_hints_speak_of_the_form(hint: str, worded: str) -> None:
    assert worded in in_the_form(hint)
    assert "--set" not in in_the_form(hint)


def test_the_form_begins_with_eagle3_on_the_first_engine() -> None:
    ngram = replace(EAGLE3, name="ngram", speculation=Speculation(algorithm="NGRAM"))
    other = replace(EAGLE3, name="a-vllm", engine="vllm")
    assert first_choice([BASELINE, ngram, other, EAGLE3]) == "k25-eagle3"
    assert first_choice([BASELINE, other]) == "a-vllm"
    assert first_choice([BASELINE]) == "k25-baseline"


def test_positions_come_from_the_last_probe_where_the_counters_have_none() -> None:
    server = snapshots.ready()
    assert server.acceptance is not None
    assert server.probe is not None
    counts = AcceptCounts(steps=100, accepted=130, proposed=300, per_position=(80, 40, 10))
    probe = replace(server.probe, figures=replace(server.probe.figures, counts=counts))
    blind = replace(server, acceptance=replace(server.acceptance, per_position=()), probe=probe)
    text = acceptance(blind.acceptance, blind, 60).plain
    assert "as of the last probe (chat, per-request" in " ".join(text.split())
    assert "0.80" in text
    assert "0.10" in text
    never = replace(blind, acceptance=None)
    assert "0.40" in acceptance(None, never, 60).plain
    seen = acceptance(server.acceptance, replace(server, probe=probe), 60).plain
    assert "last probe" not in seen
