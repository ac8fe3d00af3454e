"""Scrapes of real servers."""

from pathlib import Path

import pytest

from eaglemon.core.prometheus import parse_metrics
from eaglemon.core.speculation import AcceptCounts
from eaglemon.engines import ENGINES
from eaglemon.engines.base import Gauges

CAPTURES = Path(__file__).parents[1] / "captures"


def _gauges(engine: str, path: str) -> Gauges:
    return ENGINES[engine].gauges(parse_metrics((CAPTURES / path).read_text("utf-8")))


def test_sglang_counters_and_gauges() -> None:
    gauges = _gauges("sglang", "sglang-0.5.16-h200/eagle3-right/after_metrics.txt")
    assert gauges.accept == AcceptCounts(steps=3553, accepted=10504 - 3553)
    assert gauges.accept.accept_length == pytest.approx(10504 / 3553)
    assert gauges.accept_length == 2.625
    assert gauges.generation_tokens == 10504
    assert (gauges.running, gauges.waiting, gauges.kv_used_fraction) == (0, 0, 0.0)


def test_sglang_idle_has_the_warm_up_only() -> None:
    gauges = _gauges("sglang", "sglang-0.5.16-h200/eagle3-right/idle_metrics.txt")
    assert gauges.accept is not None
    assert gauges.accept.steps == 5
    assert gauges.accept_length is None


def test_sglang_without_speculation_tells_none() -> None:
    gauges = _gauges("sglang", "sglang-0.5.16-h200/baseline/after_metrics.txt")
    assert gauges.accept is None
    assert gauges.accept_length is None
    assert gauges.generation_tokens


def test_sglang_two_ranks_are_one_server() -> None:
    gauges = _gauges("sglang", "sglang-0.5.16-h200/tp2-right-killrank/after_metrics.txt")
    assert gauges.accept is not None
    assert gauges.running == 0


@pytest.mark.parametrize(
    ("name", "accept_length"),
    [("full-after", 4.0), ("part-after", 2.61), ("part-after-13-requests", 2.69)],
)
def test_vllm_counters(name: str, accept_length: float) -> None:
    gauges = _gauges("vllm", f"vllm-0.32-cpu/metrics/{name}.prom")
    assert gauges.accept is not None
    assert gauges.accept.accept_length == pytest.approx(accept_length, abs=0.005)
    assert len(gauges.accept.per_position) == 3
    assert sum(gauges.accept.per_position) == gauges.accept.accepted
    assert gauges.accept.proposed == 3 * gauges.accept.steps
    assert gauges.started_at == pytest.approx(1.79596e9, rel=1e-4)
    assert gauges.kv_used_fraction is not None


def test_vllm_before_traffic() -> None:
    gauges = _gauges("vllm", "vllm-0.32-cpu/metrics/part-before.prom")
    assert gauges.accept is not None
    assert gauges.accept.accept_length is None
    assert gauges.generation_tokens == 0


def test_vllm_without_speculation_tells_none() -> None:
    text = 'vllm:generation_tokens_total{engine="0"} 7\nvllm:gpu_cache_usage_perc 0.5\n'
    gauges = ENGINES["vllm"].gauges(parse_metrics(text))
    assert gauges.accept is None
    assert (gauges.generation_tokens, gauges.kv_used_fraction) == (7, 0.5)


def test_vllm_ranks_of_data_parallelism_are_one_server() -> None:
    """A second engine of the same counters: sums are twice as large, shares are those of one."""
    text = (CAPTURES / "vllm-0.32-cpu/metrics/part-after.prom").read_text("utf-8")
    second = "\n".join(
        line.replace('engine="0"', 'engine="1"')
        for line in text.splitlines()
        if 'engine="0"' in line
    )
    one = ENGINES["vllm"].gauges(parse_metrics(text))
    two = ENGINES["vllm"].gauges(parse_metrics(f"{text}\n{second}\n"))
    assert one.accept is not None
    assert two.accept == one.accept + one.accept
    assert two.accept is not None
    assert two.accept.survival == one.accept.survival
    assert one.generation_tokens is not None
    assert two.generation_tokens == 2 * one.generation_tokens
    assert two.kv_used_fraction == one.kv_used_fraction
    assert two.started_at == one.started_at
