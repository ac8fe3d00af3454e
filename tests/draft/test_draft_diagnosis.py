"""The decision tree: each verdict from figures that call for it, and none from less."""

from dataclasses import replace

import pytest

from eaglemon.core.draft_diagnosis import diagnose_draft
from eaglemon.core.draft_verdict import DraftEvidence, DraftVerdict, ServedFigures
from eaglemon.core.draft_views import (
    CheckView,
    Hypothesis,
    InspectView,
    Scored,
    SearchView,
    StepFigures,
)
from eaglemon.core.problems import Problem, Severity
from eaglemon.core.wiring import Capture, TargetShape, release_rules
from eaglemon.engines.wiring import able_releases, wiring_of

INSPECT = InspectView(
    folder="draft",
    architecture="LlamaForCausalLMEagle3",
    layout="midlayer",
    attention="llama",
    parameters=1,
    dtypes=("BF16",),
    hidden_size=256,
    target_hidden_size=256,
    captured=3,
    vocabulary=1024,
    draft_vocabulary=640,
    max_positions=2048,
    target_layers=8,
    target_type="llama",
)
GOOD = (0.78, 0.65, 0.56, 0.49, 0.42)
BAD = (0.26, 0.09, 0.05, 0.03, 0.01)


def named(slots: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"hs[{slot}]" for slot in slots)


def check(slots: tuple[int, ...], survival: tuple[float, ...], coverage: float = 0.99) -> CheckView:
    before = (1.0, *survival)
    return CheckView(
        wiring=named(slots),
        expected="target",
        steps=tuple(
            StepFigures(
                step=number + 1,
                positions=1000,
                accuracy=survival[0],
                accuracy_se=0.01,
                survival=value,
                survival_se=0.01,
                conditional=value / before[number],
            )
            for number, value in enumerate(survival)
        ),
        coverage=coverage,
        accept_length=1 + sum(survival),
        accept_length_se=0.05,
        served=None,
        sequences=4,
        observations=16,
        tokens=1000,
        dtype="float32",
        device="cpu",
        seconds=1.0,
        feature_bytes=1,
    )


def found(slots: tuple[int, ...], margin: float = 9.0, *, absolute: bool = False) -> SearchView:
    best = Scored(
        hypothesis=Hypothesis(wiring=named(slots), absolute_ids=absolute),
        accuracy=0.78,
        reciprocal_rank=0.8,
    )
    return SearchView(
        best=best,
        others=(),
        margin_se=margin,
        settings_margin_se=margin,
        slots=slots,
        tried=10,
        positions=1000,
        steps=3,
        seconds=1.0,
    )


def capture(*slots: int, crash: str = "", variant: str = "V1") -> Capture:
    return Capture(
        engine="vLLM", versions="0.32", variant=variant, slots=slots, key="ids", crash=crash
    )


def served(survival: tuple[float, ...], tok_s: float | None = None) -> ServedFigures:
    return ServedFigures(accept_length=1 + sum(survival), survival=survival, tok_s=tok_s)


RIGHT = DraftEvidence(
    algorithm="EAGLE3",
    inspect=INSPECT,
    captures=(capture(0, 2, 4),),
    checks=(check((0, 2, 4), GOOD),),
    search=found((0, 2, 4)),
    served=served(GOOD, 150.0),
    baseline_tok_s=90.0,
)


def test_a_good_draft_is_fine_and_the_overhead_is_told() -> None:
    diagnosis = diagnose_draft(RIGHT)
    assert diagnosis.verdict is DraftVerdict.FINE
    assert diagnosis.certain
    assert diagnosis.overhead == pytest.approx(3.90 * 90 / 150)
    assert diagnosis.offline == diagnosis.served == GOOD


def test_few_tokens_that_pay_are_not_called_fine_before_an_offline_run() -> None:
    few = replace(RIGHT, checks=(), search=None, served=served(BAD, 130.0))
    diagnosis = diagnose_draft(few)
    assert diagnosis.verdict is DraftVerdict.WEAK
    assert diagnosis.sentence.startswith("accept length 1.44 pays, and is low")
    assert "--capture" in diagnosis.fixes[0]
    assert not diagnosis.certain


def test_the_founding_story() -> None:
    """0.61 of the baseline, and the wiring is to blame: named with its fix for this engine."""
    change = wiring_of("vllm").wire({}, (0, 2, 4), TargetShape(layers=8, model_type="llama"))
    diagnosis = diagnose_draft(
        replace(
            RIGHT,
            captures=(capture(2, 4, 5),),
            checks=(check((0, 2, 4), GOOD), check((2, 4, 5), BAD)),
            served=served(BAD, 54.8),
            change=change,
            set_layers="eaglemon draft set-layers draft --hs 0,2,4",
        )
    )
    assert diagnosis.verdict is DraftVerdict.WIRING
    assert diagnosis.sentence == "layers wired as [2, 4, 5] but trained on [0, 2, 4]"
    assert (diagnosis.captured, diagnosis.trained) == ((2, 4, 5), (0, 2, 4))
    assert diagnosis.offline_as_served == BAD
    assert "writes [0, 2, 4] to eagle_aux_hidden_state_layer_ids" in diagnosis.fixes[0]
    assert diagnosis.fixes[-1] == "restart the server and probe it"
    assert any("9.0 standard errors" in line for line in diagnosis.evidence)
    assert diagnosis.certain


def test_a_narrow_margin_is_not_certain() -> None:
    diagnosis = diagnose_draft(
        replace(RIGHT, captures=(capture(2, 4, 5),), search=found((0, 2, 4), 3.0))
    )
    assert diagnosis.verdict is DraftVerdict.WIRING
    assert not diagnosis.certain


def test_of_two_variants_the_one_that_fits_the_served_figures_is_taken() -> None:
    both = (capture(0, 2, 4, variant="V1"), capture(2, 4, 5, variant="V2"))
    checks = (check((0, 2, 4), GOOD), check((2, 4, 5), BAD))
    right = diagnose_draft(replace(RIGHT, captures=both, checks=checks))
    assert right.verdict is DraftVerdict.FINE
    wrong = diagnose_draft(replace(RIGHT, captures=both, checks=checks, served=served(BAD)))
    assert wrong.verdict is DraftVerdict.WIRING


def test_ids_that_crash_are_wiring() -> None:
    diagnosis = diagnose_draft(replace(RIGHT, captures=(capture(1, 3, crash="dies"),)))
    assert diagnosis.verdict is DraftVerdict.WIRING
    assert "cannot serve these layer ids: dies" in diagnosis.sentence


def test_the_wrong_algorithm_comes_first() -> None:
    diagnosis = diagnose_draft(
        replace(RIGHT, algorithm="EAGLE", served=served((0.0,)), captures=(capture(2, 4, 5),))
    )
    assert diagnosis.verdict is DraftVerdict.ALGORITHM
    assert "served accept length 1.00" in diagnosis.evidence


def test_vocabulary() -> None:
    absolute = diagnose_draft(replace(RIGHT, search=found((0, 2, 4), absolute=True)))
    assert absolute.verdict is DraftVerdict.VOCABULARY
    problem = Problem(where="d2t", message="is all zeros", slug="vocabulary")
    broken = diagnose_draft(replace(RIGHT, inspect=replace(INSPECT, problems=(problem,))))
    assert broken.verdict is DraftVerdict.VOCABULARY
    narrow = diagnose_draft(replace(RIGHT, checks=(check((0, 2, 4), GOOD, coverage=0.8),)))
    assert narrow.verdict is DraftVerdict.VOCABULARY
    assert "80.0%" in narrow.sentence


def test_a_collapse_after_the_first_step_is_recurrence() -> None:
    diagnosis = diagnose_draft(replace(RIGHT, served=served((0.77, 0.2, 0.02, 0.0, 0.0))))
    assert diagnosis.verdict is DraftVerdict.RECURRENCE
    assert not diagnosis.certain


def test_prompts_beyond_the_draft_s_positions() -> None:
    problem = Problem(
        where="max_position_embeddings",
        message="short",
        severity=Severity.WARNING,
        slug="draft-context",
    )
    figures = replace(served((0.4, 0.3, 0.25, 0.2, 0.1)), longest_prompt_tokens=5000)
    diagnosis = diagnose_draft(
        replace(RIGHT, inspect=replace(INSPECT, problems=(problem,)), served=figures)
    )
    assert diagnosis.verdict is DraftVerdict.CONTEXT


def test_a_good_draft_slower_than_break_even_is_overhead() -> None:
    diagnosis = diagnose_draft(replace(RIGHT, served=served(GOOD, 80.0)))
    assert diagnosis.verdict is DraftVerdict.OVERHEAD
    assert "break-even is 4.39 and it has 3.90" in diagnosis.sentence


def test_a_draft_that_is_weak_offline_too() -> None:
    low = (0.3, 0.09, 0.03, 0.01, 0.0)
    diagnosis = diagnose_draft(
        replace(RIGHT, checks=(check((0, 2, 4), low),), served=served(low, 70.0))
    )
    assert diagnosis.verdict is DraftVerdict.WEAK


def test_no_draft_pays_where_break_even_is_above_the_ceiling() -> None:
    diagnosis = diagnose_draft(replace(RIGHT, served=served(GOOD, 40.0)))
    assert diagnosis.verdict is DraftVerdict.OVERHEAD
    assert diagnosis.sentence == (
        "no draft could pay: a round yields at most 6 tokens, break-even is 8.78 and it has 3.90"
    )
    assert not any("train it longer" in fix for fix in diagnosis.fixes)
    below = diagnose_draft(replace(RIGHT, served=served(GOOD, 70.0)))
    assert below.verdict is DraftVerdict.WEAK
    assert "break-even needs 5.01" in below.sentence


def test_counters_without_positions_never_end_in_train_it_longer() -> None:
    alone = DraftEvidence(algorithm="EAGLE3", inspect=INSPECT, captures=(capture(2, 4, 5),))
    for length, verdict in ((1.02, DraftVerdict.WIRING), (1.3, DraftVerdict.WEAK)):
        figures = ServedFigures(accept_length=length, temperature=None)
        diagnosis = diagnose_draft(replace(alone, served=figures))
        assert diagnosis.verdict is verdict
        assert not diagnosis.certain
        assert not any("train it longer" in fix for fix in diagnosis.fixes)
        assert any("--capture" in fix for fix in diagnosis.fixes)
    figures = ServedFigures(accept_length=1.02, temperature=None)
    served_otherwise = diagnose_draft(replace(RIGHT, served=figures, baseline_tok_s=None))
    assert served_otherwise.verdict is DraftVerdict.SERVING
    assert "offline the draft reaches 3.90" in served_otherwise.sentence


def test_a_release_that_cannot_is_never_its_own_fix() -> None:
    llama = TargetShape(layers=8, model_type="llama")
    change = wiring_of("sglang").wire({}, (0, 2, 4), llama, "0.5.16")
    wrong = replace(
        RIGHT,
        captures=(capture(2, 4, 5),),
        served=served(BAD, 54.8),
        change=change,
        set_layers="eaglemon draft set-layers D --engine sglang --engine-version 0.5.16",
        elsewhere=("Other 9.1: eaglemon draft set-layers D --engine other",),
    )
    fixes = diagnose_draft(wrong).fixes
    assert fixes[0] == "SGLang 0.5.16 cannot serve these layers, whatever the ids"
    assert (
        fixes[-1] == "take another release: Other 9.1: eaglemon draft set-layers D --engine other"
    )
    assert not any("0.5.16" in fix for fix in fixes if "eaglemon draft" in fix)
    assert diagnose_draft(replace(wrong, elsewhere=())).fixes[-1].startswith("no known release can")


def test_releases_that_can_serve_the_layers() -> None:
    able = able_releases({}, (0, 2, 4), TargetShape(layers=8, model_type="llama"))
    assert [(engine, release) for engine, release, _ in able] == [
        ("sglang", "0.5.23"),
        ("vllm", "0.32"),
    ]
    assert able_releases({}, (2, 2, 4), TargetShape(layers=8, model_type="llama")) == ()


@pytest.mark.parametrize(
    ("version", "judged_by", "warning"),
    [
        (None, None, ""),
        ("0.5.16", "0.5.16", ""),
        ("0.5.23.post1", "0.5.23.post1", ""),
        ("banana", None, "'banana' is no release of SGLang: judged by 0.5.16, 0.5.23"),
        ("", None, "'' is no release of SGLang: judged by 0.5.16, 0.5.23"),
        ("9.9.9", "9.9.9", "SGLang 9.9.9 is no known release: the rules of 0.5.23 are used"),
        ("0.5.20", "0.5.20", "SGLang 0.5.20 is no known release: the rules of 0.5.16 are used"),
        ("0.4.0", "0.4.0", "SGLang 0.4.0 is no known release: the rules of 0.5.16 are used"),
    ],
)
def test_unknown_releases_are_told(
    version: str | None, judged_by: str | None, warning: str
) -> None:
    assert release_rules(wiring_of("sglang"), version) == (judged_by, warning)


def test_a_file_without_layer_numbers_can_still_show_the_order() -> None:
    ours = found((0, 2, 4))
    wiring = ("embed", "aux[0]", "aux[1]")
    moved = replace(ours.best, hypothesis=Hypothesis(wiring=wiring))
    diagnosis = diagnose_draft(replace(RIGHT, search=replace(ours, best=moved, slots=None)))
    assert diagnosis.verdict is DraftVerdict.WIRING
    assert "trained on [embed, aux[0], aux[1]]" in diagnosis.sentence
    assert not diagnosis.certain


def test_served_figures_alone() -> None:
    alone = DraftEvidence(algorithm="EAGLE3", inspect=INSPECT, served=served((0.04, 0.0)))
    useless = diagnose_draft(alone)
    assert useless.verdict is DraftVerdict.WIRING
    assert not useless.certain
    # The ids of a draft for another engine mean other layers here.
    elsewhere = replace(INSPECT, captures=(capture(2, 4, 5, variant="other"), capture(1, 3, 4)))
    suspected = diagnose_draft(replace(alone, inspect=elsewhere, captures=(capture(1, 3, 4),)))
    assert suspected.evidence[1:] == (
        "vLLM 0.32 V1 takes [1, 3, 4] from ids",
        "vLLM 0.32 other would take [2, 4, 5]: right there, the draft is wrong here",
    )
    nothing = diagnose_draft(replace(alone, served=None))
    assert nothing.verdict is DraftVerdict.UNKNOWN
    assert nothing.overhead is None


def test_the_ceiling_of_the_profile_stands_in_for_positions() -> None:
    """Counters that tell no positions still tell that a round costs more than it can yield."""
    costly = ServedFigures(accept_length=3.0, tok_s=40.0, ceiling=4)
    finding = diagnose_draft(replace(RIGHT, served=costly, baseline_tok_s=60.0))
    assert finding.verdict is DraftVerdict.OVERHEAD
    assert finding.sentence.startswith("no draft could pay: a round yields at most 4 tokens")


def test_what_a_mended_draft_would_gain_is_told() -> None:
    wrong = replace(
        RIGHT,
        captures=(capture(2, 4, 5),),
        checks=(check((0, 2, 4), GOOD), check((2, 4, 5), BAD)),
        served=served(BAD, 61.0),
        baseline_tok_s=100.0,
    )
    diagnosis = diagnose_draft(wrong)
    assert diagnosis.verdict is DraftVerdict.WIRING
    # A round costs 1.44 x 100 / 61 = 2.36 steps, and the trained layers give 3.90 tokens.
    assert "about 1.65 times the tok/s without speculation, not 0.61" in diagnosis.evidence[-1]


def test_settings_that_bring_next_to_nothing_are_not_to_blame() -> None:
    """A draft damaged by noise fits a little better with a norm that it was not trained with."""
    weak, same = (0.24, 0.07, 0.02), (0.25, 0.07, 0.02)
    search = found((0, 2, 4), 3.6)
    best = replace(search.best, hypothesis=replace(search.best.hypothesis, flags=("+fc_norm",)))
    known = replace(
        RIGHT,
        checks=(check((0, 2, 4), weak),),
        as_is=check((0, 2, 4), same),
        search=replace(search, best=best),
        served=served(same, 60.0),
    )
    assert diagnose_draft(known).verdict is DraftVerdict.WEAK
    better = replace(known, as_is=check((0, 2, 4), (0.1, 0.01, 0.0)))
    assert diagnose_draft(better).verdict is DraftVerdict.NORMS


def test_a_norm_that_is_lost_is_named_although_it_serves() -> None:
    """On vLLM 0.32 a draft reached 4.18 with its hidden_norm lost, and 4.48 with it."""
    lost = Problem(where="layer.hidden_norm.weight", message="missing", slug="missing-tensor")
    broken = replace(INSPECT, problems=(lost,))
    diagnosis = diagnose_draft(replace(RIGHT, inspect=broken, checks=(), search=None))
    assert diagnosis.verdict is DraftVerdict.NORMS
    assert not diagnosis.certain
    other = replace(lost, where="layer.mlp.up_proj.weight")
    named_otherwise = replace(RIGHT, inspect=replace(INSPECT, problems=(other,)))
    assert diagnose_draft(named_otherwise).verdict is DraftVerdict.FINE
    useless = replace(named_otherwise, served=served((0.01, 0.0)))
    assert diagnose_draft(useless).verdict is DraftVerdict.WEAK
