"""Probe figures: which requests count, and how each figure is defined."""

import pytest

from eaglemon.core.probe import Arrival, RequestRecord, RequestStatus, figures_of, spread
from eaglemon.core.speculation import AcceptCounts


def record(
    number: int,
    *,
    status: RequestStatus = RequestStatus.OK,
    sent_at: float = 0.0,
    counts: AcceptCounts | None = None,
) -> RequestRecord:
    arrivals = (
        Arrival(at_s=0.1, tokens=1),
        Arrival(at_s=0.2, tokens=3),
        Arrival(at_s=0.3, tokens=2),
    )
    return RequestRecord(
        number=number,
        prompt_id=f"p{number}",
        status=status,
        sent_at=sent_at,
        took_s=0.3,
        arrivals=arrivals,
        completion_tokens=6,
        counts=counts,
    )


def test_decode_rate_leaves_the_first_chunk_out() -> None:
    assert record(0).decode_tok_s == pytest.approx(5 / 0.2)
    assert record(0).ttft_s == 0.1


def test_total_rate_is_over_the_whole_time() -> None:
    figures = figures_of([record(0), record(1, sent_at=0.3)])

    assert figures.duration_s == pytest.approx(0.6)
    assert figures.total_tok_s == pytest.approx(12 / 0.6)
    assert figures.ttft_s is not None
    assert figures.ttft_s.median == 0.1
    assert figures.chunk_gap_s is not None
    assert figures.chunk_gap_s.median == pytest.approx(0.1)


def test_failed_and_cut_requests_are_counted_and_never_averaged() -> None:
    figures = figures_of(
        [
            record(0, counts=AcceptCounts(steps=3, accepted=3)),
            record(1, status=RequestStatus.CUT, counts=AcceptCounts(steps=3, accepted=0)),
            record(2, status=RequestStatus.FAILED),
        ]
    )

    assert (figures.ok, figures.cut, figures.failed) == (1, 1, 1)
    assert figures.completion_tokens == 6
    assert figures.accept_length == 2.0


def test_accept_length_is_sum_over_sum_not_a_mean_of_requests() -> None:
    figures = figures_of(
        [
            record(0, counts=AcceptCounts(steps=1, accepted=4)),
            record(1, counts=AcceptCounts(steps=9, accepted=0)),
        ]
    )

    assert figures.accept_length == pytest.approx(1 + 4 / 10)


def test_counters_are_used_only_where_no_request_tells() -> None:
    counted = AcceptCounts(steps=10, accepted=10)

    told = figures_of(
        [record(0, counts=AcceptCounts(steps=2, accepted=1))], counter_difference=counted
    )
    silent = figures_of([record(0)], counter_difference=counted)

    assert told.accept_source == "per-request answers"
    assert silent.accept_source == "counter difference"
    assert silent.accept_length == 2.0


def test_nothing_measured_is_none() -> None:
    figures = figures_of([])

    assert figures.total_tok_s is None
    assert figures.accept_length is None
    assert spread([]) is None


def test_percentiles_are_nearest_rank() -> None:
    values = spread([float(i) for i in range(1, 101)])

    assert values is not None
    assert (values.p90, values.p99, values.median) == (90.0, 99.0, 50.5)
