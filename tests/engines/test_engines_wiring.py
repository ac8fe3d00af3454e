"""The wiring rules W1 to W10: what each engine and version captures for a configuration."""

from typing import Any

import pytest

from eaglemon.core.wiring import Capture, TargetShape, ids_at, order_for
from eaglemon.engines.wiring import WIRING, wiring_of
from eaglemon.errors import UsageError

LLAMA = TargetShape(layers=8, model_type="llama")
QWEN = TargetShape(layers=8, model_type="qwen3")
KIMI = TargetShape(layers=61, model_type="kimi_k25")
GPT_OSS = TargetShape(layers=36, model_type="gpt_oss")


def nested(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}


def top(*ids: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(ids)}


def sglang(config: dict[str, Any], target: TargetShape, version: str) -> Capture:
    (capture,) = wiring_of("sglang").captures(config, target, version)
    return capture


def vllm(config: dict[str, Any], target: TargetShape = LLAMA) -> tuple[Capture, Capture]:
    first, second = wiring_of("vllm").captures(config, target)
    return first, second


@pytest.mark.parametrize(
    ("config", "target", "version", "slots"),
    [
        ({}, LLAMA, "0.5.16", (2, 4, 5)),
        (nested(1, 3, 4), LLAMA, "0.5.16", (2, 4, 5)),
        (nested(4, 1, 3), LLAMA, "0.5.16", (2, 4, 5)),
        (nested(-1, 1, 3), QWEN, "0.5.16", (0, 2, 4)),
        (top(0, 2, 4), LLAMA, "0.5.23", (2, 4, 5)),
        (nested(2, 30, 58), KIMI, "0.5.6", (3, 31, 59)),
        (nested(2, 30, 58), KIMI, "0.5.16", (2, 30, 58)),
        (nested(1, 30, 58), KIMI, "0.5.16", (2, 31, 59)),
        (nested(0, 3, 31), KIMI, "0.5.23", (0, 3, 31)),
        (nested(-1, 2, 30), KIMI, "0.5.6", (0, 3, 31)),
        (nested(1, 17, 32), GPT_OSS, "0.5.23", (2, 18, 33)),
        (nested(24, 30, 36), GPT_OSS, "0.5.23", (24, 30, 36)),
    ],
)
def test_sglang_captures(
    config: dict[str, Any], target: TargetShape, version: str, slots: tuple[int, ...]
) -> None:
    capture = sglang(config, target, version)
    assert capture.slots == slots
    assert capture.crash == ""


@pytest.mark.parametrize(
    ("config", "target", "version", "reason"),
    [
        (nested(-1, 1, 3), LLAMA, "0.5.16", "TypeError"),
        (nested(24, 30, 36), GPT_OSS, "0.5.16", "block input 37 does not exist"),
        (nested(-1, 2, 30), KIMI, "0.5.16", "block input -1 does not exist"),
        (nested(3, 3, 4), LLAMA, "0.5.16", "named twice"),
    ],
)
def test_sglang_crashes(
    config: dict[str, Any], target: TargetShape, version: str, reason: str
) -> None:
    assert reason in sglang(config, target, version).crash


def test_sglang_tells_what_it_ignores() -> None:
    assert (
        "the top-level eagle_aux_hidden_state_layer_ids is ignored"
        in sglang(top(0, 2, 4), LLAMA, "0.5.16").notes
    )
    assert "ascending" in sglang(nested(4, 1, 3), LLAMA, "0.5.16").notes[-1]
    odd = TargetShape(layers=8, model_type="odd")
    assert "+1 is assumed" in sglang(nested(1, 3, 4), odd, "0.5.16").notes[0]


def test_the_embedding_is_read_not_run_on_the_later_release() -> None:
    capture = sglang(nested(-1, 1, 3), LLAMA, "0.5.23")
    assert capture.slots == (0, 2, 4)
    assert not capture.crash
    assert "not run" in capture.notes[0]


def test_vllm_takes_ids_as_they_stand_and_its_runners_differ() -> None:
    first, second = vllm(nested(1, 3, 4))
    assert (first.slots, second.slots) == ((1, 3, 4), (2, 4, 5))
    assert second.key is None
    assert "eagle_config.eagle_aux_hidden_state_layer_ids is ignored" in second.notes
    assert [capture.slots for capture in vllm(top(0, 2, 4))] == [(0, 2, 4), (0, 2, 4)]
    assert vllm({"eagle_config": {"layer_ids": [1, 2, 3]}})[1].slots == (1, 2, 3)


def test_vllm_crashes() -> None:
    assert "dies at the first request" in vllm(nested(-1, 1, 3))[0].crash
    assert all("TypeError" in capture.crash for capture in vllm(top(0, 3, 31), KIMI))


@pytest.mark.parametrize("engine", WIRING)
@pytest.mark.parametrize(
    ("slots", "target"), [((2, 4, 5), LLAMA), ((1, 3, 4), LLAMA), ((0, 2, 4), QWEN)]
)
def test_what_is_written_is_what_is_captured(
    engine: str, slots: tuple[int, ...], target: TargetShape
) -> None:
    """The written ids, read again by the same rules, give the layers asked for."""
    change = wiring_of(engine).wire({"keep": 1}, slots, target)
    assert change.ids is not None
    assert change.config["keep"] == 1
    assert ids_at(change.config, change.key) == change.ids
    assert all(capture.slots == slots for capture in change.captures)


def test_each_engine_gets_its_own_convention_and_key() -> None:
    ours = wiring_of("sglang").wire({}, (2, 4, 5), LLAMA, "0.5.16")
    theirs = wiring_of("vllm").wire({}, (2, 4, 5), LLAMA)
    assert (ours.ids, ours.key) == ((1, 3, 4), "eagle_config.eagle_aux_hidden_state_layer_ids")
    assert (theirs.ids, theirs.key) == ((2, 4, 5), "eagle_aux_hidden_state_layer_ids")
    assert wiring_of("sglang").wire({}, (0, 3, 31), KIMI, "0.5.16").ids == (0, 3, 31)
    assert wiring_of("sglang").wire({}, (0, 3, 31), KIMI, "0.5.6").ids == (-1, 2, 30)


def test_what_cannot_be_served_is_said() -> None:
    crash = wiring_of("sglang").wire({}, (0, 2, 4), LLAMA, "0.5.16")
    assert crash.ids == (-1, 1, 3)
    assert any("crashes: TypeError" in warning for warning in crash.warnings)
    order = wiring_of("sglang").wire({}, (5, 2, 4), LLAMA, "0.5.16")
    assert "--permute 1,2,0" in order.warnings[0]
    twice = wiring_of("vllm").wire({}, (2, 2, 4), LLAMA)
    assert "cannot be served" in twice.warnings[0]
    # DeepSeek's rule adds 1 exactly where the first id is 1: hs[1] first is out of reach.
    assert wiring_of("sglang").wire({}, (1, 3, 31), KIMI, "0.5.16").ids is None


def test_order_for_ascending_slots() -> None:
    slots = (5, 2, 4)
    order = order_for(slots)
    assert [slots[place] for place in order] == [2, 4, 5]


def test_dropped_norms_are_told() -> None:
    roles = {"input_norm.weight"}
    slugs = [p.slug for p in wiring_of("sglang").tensor_problems({"norm_before_fc": True}, roles)]
    assert slugs == ["norm-ignored"]
    later = wiring_of("sglang").tensor_problems({"norm_before_fc": True}, roles, "0.5.23")
    assert later == []
    assert [p.slug for p in wiring_of("vllm").tensor_problems({}, roles)] == ["norm-ignored"]
    output = wiring_of("sglang").tensor_problems({"norm_output": True}, set())
    assert output[0].slug == "norm-output-recurrence"


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(UsageError, match="unknown engine 'vlm'; did you mean 'vllm'"):
        wiring_of("vlm")
