"""One examination of a draft: the wirings that engines would use, and the one that fits best.

The same call serves the command line and a server's own Python on a GPU host.
"""

from collections.abc import Sequence
from pathlib import Path

from eaglemon.core.draft_views import Examination
from eaglemon.draft.check import check
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.hidden import DEFAULT_MAX_TOKENS, read_records
from eaglemon.draft.inspect import configured_slots
from eaglemon.draft.model import load_draft
from eaglemon.draft.passages import TARGET, Material, prepare
from eaglemon.draft.relabel import relabelled
from eaglemon.draft.search import search, usual_slots
from eaglemon.draft.torch_lib import require_device, torch, use_threads
from eaglemon.draft.variants import adjusted
from eaglemon.errors import UsageError

_BADLY = 0.3
"""First steps right at best: below, a draft is asked whether its labels are to blame."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def examine(
    draft_folder: Path,
    target_folder: Path,
    hidden: Path,
    *,
    wirings: Sequence[Sequence[int]] = (),
    steps: int = 5,
    searching: bool = True,
    expected: str = TARGET,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    trust_pickle: bool = False,
) -> Examination:
    """Run the draft offline; ``wirings`` are ``hs`` indexes, the configured ones when empty.

    Raises ``ConfigError`` for files that cannot be used and ``UsageError`` for arguments.
    """
    require_device(device)
    use_threads(threads)
    draft = open_checkpoint(draft_folder, trust_pickle=trust_pickle)
    target = open_checkpoint(target_folder, trust_pickle=trust_pickle)
    model = load_draft(draft, dtype=DTYPES[dtype], device=device, target=target)
    configured = configured_slots(draft_folder, target_folder)
    asked = [tuple(wiring) for wiring in wirings] or list(configured)
    records = read_records(
        hidden,
        max_tokens=max_tokens,
        trust_pickle=trust_pickle,
        keep={slot for wiring in (*asked, *configured) for slot in wiring},
    )
    material = prepare(records, model, draft=draft, target=target, expected=expected)
    named = [tuple(f"hs[{slot}]" for slot in wiring) for wiring in asked]
    aux = tuple(name for name in material.names if name.startswith("aux["))
    if aux and not wirings:
        # The file does not tell its layers: as they stand is what the trainer used.
        named = [aux[: model.captured]]
    found = search(model, material, starts=named) if searching else None
    if found is not None:
        named.insert(0, found.best.hypothesis.wiring)
    fitting = [
        wiring
        for wiring in dict.fromkeys(named)
        if wirings or (len(wiring) == model.captured and set(wiring) <= set(material.names))
    ]
    if found is None and not fitting:
        told = "; ".join(str(list(wiring)) for wiring in asked) or "none"
        raise UsageError(
            f"nothing to check: the draft joins {model.captured} layers, and engines capture {told}"
            " for its config.json",
            hint="name the layers with --hs, or search them: leave out --no-search",
        )
    checks = []
    for wiring in fitting:
        best = found is not None and wiring == found.best.hypothesis.wiring
        # The best one is run with the norms and the vocabulary reading that were found.
        used = adjusted(model, found.best.hypothesis) if found is not None and best else model
        checks.append(check(used, material, wiring, steps=steps))
    as_is = None
    other = None if found is None else found.best.hypothesis
    if other is not None and (other.flags or other.absolute_ids):
        as_is = check(model, material, other.wiring, steps=steps)
    badly = found is not None and found.best.accuracy < _BADLY
    return Examination(
        checks=tuple(checks),
        search=found,
        configured=configured,
        as_is=as_is,
        relabelled=relabelled(model, material, _feeds(named, material)) if badly else None,
    )


def _feeds(named: Sequence[tuple[str, ...]], material: Material) -> list[tuple[str, ...]]:
    """Return wirings to try a draft's labels with: as named, and the usual ones."""
    layers = [name for name in material.names if name.startswith("hs[")]
    return [*named, *(tuple(f"hs[{slot}]" for slot in slots) for slots in usual_slots(layers))]
