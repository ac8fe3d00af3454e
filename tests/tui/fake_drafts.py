"""Drafts with prepared answers: one that is wired otherwise than it was trained."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from eaglemon.core.draft_verdict import DraftDiagnosis, DraftReport, DraftVerdict
from eaglemon.core.draft_views import CaptureOutlook, CheckStage, InspectView, RepairView
from eaglemon.core.problems import Problem
from eaglemon.errors import EaglemonError

INSPECTED = InspectView(
    folder="/models/k25-eagle3",
    architecture="LlamaForCausalLMEagle3",
    layout="flat",
    attention="GQA",
    parameters=3_100_000_000,
    dtypes=("bfloat16",),
    hidden_size=7168,
    target_hidden_size=7168,
    captured=3,
    vocabulary=163_840,
    draft_vocabulary=32_000,
    max_positions=131_072,
    problems=(Problem(where="d2t", message="has 31 999 entries", hint="repair it"),),
)
FROM_FILES = DraftDiagnosis(
    verdict=DraftVerdict.UNKNOWN,
    sentence="nothing in its files explains why it is slow",
    fixes=("run it over captured hidden states",),
    captured=(2, 30, 58),
    target_layers=61,
    served=(0.18, 0.04, 0.01),
    accept_length=1.23,
)
CHECKED = replace(
    FROM_FILES,
    verdict=DraftVerdict.WIRING,
    sentence="it gets layers 2, 30, 58 and was trained on the embedding, 2, 30",
    evidence=("the search prefers them by 31.0 standard errors",),
    fixes=("eaglemon draft set-layers h200-a:/models/k25-eagle3 --hs 0,3,31",),
    trained=(0, 2, 30),
    offline=(0.74, 0.53, 0.38),
    offline_as_served=(0.19, 0.05, 0.01),
)
DIFFERENCE = (
    "--- config.json",
    "+++ config.json",
    '-  "eagle_aux_hidden_state_layer_ids": [2, 30, 58]',
    '+  "eagle_aux_hidden_state_layer_ids": [-1, 2, 30]',
)


@dataclass
class FakeDrafts:
    """Notes what it was asked; a check ends once it may."""

    fits: bool = True
    error: EaglemonError | None = None
    checked: DraftDiagnosis = CHECKED
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def diagnose(
        self,
        server_id: str,
        *,
        capture: bool = False,
        told: Callable[[CheckStage], None] = lambda _: None,
    ) -> DraftReport:
        self.calls.append(("diagnose", server_id, capture))
        if capture:
            told(CheckStage(doing="capturing", done=9, of=16))
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return DraftReport(diagnosis=self.checked if capture else FROM_FILES, inspect=INSPECTED)

    async def cost(self, server_id: str) -> CaptureOutlook:
        self.calls.append(("cost", server_id))
        return CaptureOutlook(
            weights_bytes=64 << 30,
            free_bytes=(1500 if self.fits else 20) << 30,
            hidden_bytes=2 << 30,
            prompts=16,
            new_tokens=192,
            device="cpu",
        )

    async def rewire(
        self, server_id: str, slots: Sequence[int], *, shown: Sequence[str] | None = None
    ) -> RepairView:
        self.calls.append(("rewire", server_id, tuple(slots), shown))
        return RepairView(
            folder="/models/k25-eagle3",
            title="capture hs 0, 2, 30",
            difference=DIFFERENCE,
            warnings=("0.5.16 crashes where the embedding is captured",),
            backups=() if shown is None else ("config.json.bak",),
        )
