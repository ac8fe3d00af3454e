"""How near the offline check comes to published accuracies of drafts, cell by cell; prints a table.

Both tiny drafts are fed each wiring over the target's own continuations of 64 prompts (24 tokens
cut from names and summaries of packages, as theirs were), and compared with ``report.json``.

    python benchmarks/draft_accuracy.py MODELS --python PYTHON_WITH_TRANSFORMERS [--hidden FILE]

Needs the tiny models, and about 3 minutes of one core to capture; --hidden keeps or takes the file.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from eaglemon.core.draft_views import CheckView
from eaglemon.draft.check import check
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.elsewhere import perform_with
from eaglemon.draft.hidden import read_records
from eaglemon.draft.model import load_draft
from eaglemon.draft.passages import prepare
from eaglemon.draft.prompts import read_prompts
from eaglemon.draft.torch_lib import torch, use_threads

WIRINGS = {"low-mid-high": (2, 4, 5), "embed-low-mid": (0, 2, 4)}
PUBLISHED_SEQUENCES = 16


def capture(models: Path, python: str, out: Path) -> None:
    """Continue the prompts and keep the hidden states, in another Python."""
    prompts = read_prompts(Path(__file__).parent / "draft_prompts.jsonl", limit=64)
    request = {"do": "capture", "target": str(models / "target"), "prompts": prompts}
    perform_with(python, {**request, "out": str(out)})


def checks(
    models: Path, hidden: Path, expected: str, dtype: torch.dtype, *, prompts: bool
) -> Iterator[tuple[str, str, CheckView]]:
    """Yield draft, what it is fed with, and the figures; ``prompts`` counts their tokens too."""
    target = open_checkpoint(models / "target")
    for name, slots in WIRINGS.items():
        draft = open_checkpoint(models / f"draft-{name}")
        model = load_draft(draft, dtype=dtype)
        records = read_records(hidden, max_tokens=10**6)
        if prompts:
            records = [replace(one, mask=torch.ones_like(one.mask)) for one in records]
        material = prepare(records, model, draft=draft, target=target, expected=expected)
        for fed in (*WIRINGS, "reversed"):
            wired = WIRINGS.get(fed, slots[::-1])
            yield name, fed, check(model, material, [f"hs[{slot}]" for slot in wired])


def compared(models: Path, name: str, fed: str, view: CheckView) -> Iterator[tuple[float, float]]:
    """Yield each cell's difference in points and in standard errors of both samples."""
    published = json.loads((models / "report.json").read_text())["wirings"][name]["acc"][fed]
    larger = math.sqrt(1 + view.sequences / PUBLISHED_SEQUENCES)
    for step, (accuracy, survival) in zip(view.steps, published, strict=True):
        for ours, error, theirs in (
            (step.accuracy, step.accuracy_se, accuracy),
            (step.survival, step.survival_se, survival),
        ):
            points = 100 * (ours - theirs)
            yield points, points / (100 * error * larger) if error else 0.0


def main() -> None:
    """Capture where there is nothing to read, then print a table for each way to count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--python", help="an interpreter that has transformers")
    parser.add_argument("--hidden", type=Path, help="file to keep, or one that is there")
    given = parser.parse_args()
    use_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        hidden = given.hidden or Path(folder) / "hidden.safetensors"
        if not hidden.is_file():
            capture(given.models, given.python, hidden)
        for expected, dtype, prompts in (
            ("target", torch.float32, True),
            ("target", torch.bfloat16, True),
            ("target", torch.float32, False),
            ("text", torch.float32, True),
        ):
            cells: list[tuple[float, float]] = []
            where = "all positions" if prompts else "continuations only"
            print(f"\nexpected: {expected}, {dtype}, {where}")
            for name, fed, view in checks(given.models, hidden, expected, dtype, prompts=prompts):
                cells += compared(given.models, name, fed, view)
                steps = " ".join(
                    f"{100 * s.accuracy:.1f}+-{100 * s.accuracy_se:.1f}" for s in view.steps
                )
                print(f"  {name:14s}<- {fed:14s}{steps}  accept length {view.accept_length:.2f}")
            near = sum(abs(points) <= 1.5 for points, _ in cells)
            errors = sum(abs(distance) <= 2 for _, distance in cells)
            worst = max(abs(points) for points, _ in cells)
            mean = sum(points for points, _ in cells) / len(cells)
            print(
                f"  of {len(cells)} cells {near} within 1.5 points, {errors} within 2 standard "
                f"errors; farthest {worst:.1f}, mean {mean:+.2f}"
            )


if __name__ == "__main__":
    main()
