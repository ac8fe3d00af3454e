"""What engines tell of their arguments, and what of it is a confounder."""

import json
from pathlib import Path

from eaglemon.core.confounders import confounders
from eaglemon.engines import engine_named
from tests.experiments.arms import arm

CAPTURES = Path(__file__).parents[1] / "captures"
INFO = Path(__file__).parent / "server_info"
"""``/server_info`` of SGLang 0.5.16 on an H200, without and with an EAGLE-3 draft."""


def resolved_by_sglang(name: str) -> dict[str, str]:
    info = json.loads((INFO / f"{name}.json").read_text(encoding="utf-8"))
    return engine_named("sglang").resolved_arguments(info, ())


def test_sglang_fills_in_what_nobody_asked_for() -> None:
    baseline, eagle = resolved_by_sglang("baseline"), resolved_by_sglang("eagle3")
    assert eagle["max_running_requests"] == "48"
    assert baseline["max_running_requests"] == "none"
    lines = confounders((arm("base"), arm("spec", steps=5)), (baseline, eagle))
    assert [line.partition(":")[0] for line in lines] == [
        "cuda_graph_config.decode.bs",
        "max_running_requests",
    ]
    assert all("api_key" not in name for name in baseline)


def test_a_flag_that_was_asked_for_is_no_confounder() -> None:
    baseline, eagle = resolved_by_sglang("baseline"), resolved_by_sglang("eagle3")
    arms = (arm("base"), arm("spec", steps=5, **{"max-running-requests": "48"}))  # type: ignore[arg-type]
    lines = confounders(arms, (baseline, eagle))
    assert [line.partition(":")[0] for line in lines] == ["cuda_graph_config.decode.bs"]


def test_no_answer_resolves_nothing() -> None:
    assert engine_named("sglang").resolved_arguments(None, ()) == {}
    assert engine_named("vllm").resolved_arguments(None, ["nothing", "of it"]) == {}


def test_vllm_tells_its_configuration_in_the_log() -> None:
    log = (CAPTURES / "vllm-0.32-cpu" / "ready-compile.log").read_text("utf-8", "replace")
    found = engine_named("vllm").resolved_arguments(None, log.split("\n"))
    assert found["version"] == "0.32.0"
    assert found["max_num_scheduled_tokens"] == "2048"
    assert found["enforce_eager"] == "False"
    assert found["max_num_seqs"] == "8"
    assert found["compilation_config.cudagraph_capture_sizes"] == "[]"
    assert found["enable_prefix_caching"] == "True"


def test_vllm_schedules_fewer_tokens_a_step_when_it_speculates() -> None:
    log = (CAPTURES / "vllm-0.32-cpu" / "ready-eager.log").read_text("utf-8", "replace")
    vllm = engine_named("vllm")
    plain = [line for line in log.split("\n") if "max_num_scheduled_tokens" not in line]
    arms = (arm("base"), arm("spec", steps=3))
    resolved = (
        vllm.resolved_arguments(None, plain),
        vllm.resolved_arguments(None, log.split("\n")),
    )
    (line,) = confounders(arms, resolved)
    assert line.startswith("max_num_scheduled_tokens: none for base, 2048 for spec")
