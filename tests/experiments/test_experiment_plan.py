from dataclasses import replace

from eaglemon.core.confounders import confounders
from eaglemon.core.experiment import (
    MOST_ROUNDS,
    ExperimentPlan,
    Order,
    flag_differences,
    lanes_of,
    legs_of,
    plan_problems,
    starts_needed,
)
from eaglemon.core.problems import errors_among
from eaglemon.core.units import seen_from
from tests.experiments.arms import arm


def order(servers: str, rounds: int, **options: object) -> str:
    legs = legs_of(list(servers), rounds, **options)  # type: ignore[arg-type]
    return " ".join(
        "".join(str(leg.arm) for leg in legs if leg.round == number) for number in range(rounds)
    )


def test_two_arms_go_abba() -> None:
    assert order("AB", 4) == "01 10 01 10"


def test_arms_of_one_server_stay_together() -> None:
    assert order("ABA", 2) == "021 120"


def test_random_blocks_hold_every_arm_and_repeat_with_their_seed() -> None:
    first = order("ABCD", 6, order=Order.RANDOM, seed=7)
    assert first == order("ABCD", 6, order=Order.RANDOM, seed=7)
    assert first != order("ABCD", 6, order=Order.RANDOM, seed=8)
    assert all(sorted(block) == list("0123") for block in first.split())


def test_abba_starts_each_server_once_a_round_but_for_the_turn() -> None:
    plan = ExperimentPlan(id="x", arms=(arm("a"), arm("b", steps=3)), rounds=2)
    assert starts_needed(plan) == 3
    assert starts_needed(plan, running=[plan.arms[0].server_key]) == 2


def test_request_settings_share_a_server() -> None:
    plan = ExperimentPlan(id="x", arms=(arm("a"), arm("b", concurrency=8)), rounds=3)
    assert starts_needed(plan) == 1


def test_servers_that_are_not_in_each_others_way_are_started_once() -> None:
    plan = ExperimentPlan(id="x", arms=(arm("a"), arm("b", port=30001, gpus=(1,))), rounds=4)
    assert starts_needed(plan) == 2
    unnamed = ExperimentPlan(id="x", arms=(arm("a"), arm("b", port=30001, gpus=None)), rounds=2)
    assert starts_needed(unnamed) == 3


def test_lanes_run_side_by_side_where_nothing_is_shared() -> None:
    arms = (arm("a"), arm("b", port=30001, gpus=(1,)), arm("c", steps=3), arm("d", host="gpu-b"))
    plan = ExperimentPlan(id="x", arms=arms, rounds=1, parallel=True)
    lanes = [sorted(leg.arm for leg in lane) for lane in lanes_of(plan)]
    assert lanes == [[0, 2], [1], [3]]
    assert len(lanes_of(ExperimentPlan(id="x", arms=arms))) == 1
    warned = {problem.slug for problem in plan_problems(plan)}
    assert "shared-host" in warned


def test_an_arm_between_two_lanes_joins_them() -> None:
    arms = (
        arm("a", gpus=(0,)),
        arm("b", port=30001, gpus=(1,)),
        arm("c", port=30002, gpus=(0, 1)),
    )
    assert len(lanes_of(ExperimentPlan(id="x", arms=arms, parallel=True))) == 1


def test_problems_are_listed_all_at_once() -> None:
    plan = ExperimentPlan(id="x", arms=(arm("a"), arm("a", requests=4)), rounds=1)
    assert [problem.slug for problem in plan_problems(plan)] == [
        "same-name",
        "other-prompts",
        "no-repeat",
    ]
    assert plan_problems(ExperimentPlan(id="x", arms=(arm("a"),)))[0].slug == "one-arm"
    many = ExperimentPlan(id="x", arms=(arm("a"), arm("b")), rounds=MOST_ROUNDS + 1)
    assert [problem.slug for problem in errors_among(plan_problems(many))] == ["many-rounds"]
    assert plan_problems(replace(many, rounds=MOST_ROUNDS)) == []


def test_what_can_be_seen_is_told_in_words_that_hold() -> None:
    assert seen_from(0.0004) == "differences of less than 1 % can be seen"
    assert seen_from(0.031) == "differences from about 3 % can be seen"
    assert seen_from(5.79) == "only differences of several times can be seen"


def test_differences_of_flags_are_named() -> None:
    found = flag_differences(arm("a", page="1").profile, arm("b", steps=3, page="2").profile)
    assert ("page", "1", "2") in found
    assert ("speculation.steps", "-", "3") in found
    assert ("draft", "-", "d") in found


def test_unasked_differences_are_confounders() -> None:
    arms = (arm("base"), arm("spec", steps=3, page_size="2"))
    resolved = (
        {"max_running_requests": "2048", "attention_backend": "fa3", "page_size": "1", "port": "1"},
        {
            "max_running_requests": "48",
            "attention_backend": "fa3",
            "page_size": "2",
            "port": "2",
            "speculative_num_steps": "3",
        },
    )
    (line,) = confounders(arms, resolved)
    assert line.startswith("max_running_requests: 2048 for base, 48 for spec")
    assert confounders(arms, (resolved[0], {})) == ()
