"""Drafts damaged on purpose, as a real vLLM served them: each damage is named.

``damaged-drafts.json`` holds for each what is known of it: the acceptance that vLLM 0.32 reached on
a CPU, the offline run over captured hidden states, and what its files say. The draft is the one
trained on hs [2, 4, 5] of an 8 layer target; unharmed it reached 4.48 there.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eaglemon.core.draft_diagnosis import diagnose_draft
from eaglemon.core.draft_verdict import DraftEvidence

FILE = Path(__file__).parents[1] / "captures" / "vllm-0.32-cpu" / "damaged-drafts.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["damage"] for case in CASES])
def test_the_damage_is_named(case: dict[str, Any]) -> None:
    known = msgspec.convert(case["evidence"], DraftEvidence, strict=False)
    assert known.served is not None
    diagnosis = diagnose_draft(known)
    assert diagnosis.verdict == case["verdict"]
    assert case["says"] in diagnosis.sentence
    # A loss that nothing but the files tells, or that could be a poor training's, is not sure.
    sure = case["damage"] not in {
        "fc_random",
        "hidden_norm lost",
        "norm_before_fc without weights",
    }
    assert diagnosis.certain is sure
