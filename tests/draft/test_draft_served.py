"""``draft diagnose`` of what was served: a probe of a simulated server, and replays of SGLang's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.probe import (
    Arrival,
    ProbePlan,
    ProbeProgress,
    RequestRecord,
    RequestStatus,
    figures_of,
)
from eaglemon.engines.sglang.wire import request_counts
from eaglemon.io.probe_files import write_probes
from tests.cli.test_cli_simulated import config, document, eaglemon, sim
from tests.draft.conftest import copy_model
from tests.draft.test_draft_commands import Run, run
from tests.draft.test_draft_commands import document as parsed
from tests.ports import free_port

__all__ = ["config", "run", "sim"]

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.16-h200"
IDS = "eagle_aux_hidden_state_layer_ids"


def write_profile(home: Path, draft: Path, models: Path, port: int, python: str = "") -> None:
    profiles = home / "eaglemon" / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    (profiles / "tiny.toml").write_text(
        f'engine = "sglang"\nmodel = "{models}/target"\ndraft = "{draft}"\nport = {port}\n{python}'
        '[speculation]\nalgorithm = "EAGLE3"\nsteps = 5\ntopk = 1\ndraft_tokens = 6\n'
    )


def wired_as(slots: tuple[int, ...], source: Path, folder: Path) -> Path:
    """Copy a draft with the ids that make SGLang take ``slots`` of a Llama target."""
    draft = copy_model(source, folder)
    content = json.loads((draft / "config.json").read_text())
    content["eagle_config"][IDS] = [slot - 1 for slot in slots]
    (draft / "config.json").write_text(json.dumps(content))
    return draft


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
async def test_a_running_server_is_probed_and_judged(
    right: bool, config: Path, models: Path, tmp_path: Path
) -> None:
    # The simulated engine accepts little where the draft's path says that it is wired wrongly.
    name, folder = (
        ("draft-low-mid-high", "draft") if right else ("draft-embed-low-mid", "draft-wrong")
    )
    draft = wired_as((2, 4, 5), models / name, tmp_path / folder)
    write_profile(tmp_path, draft, models, free_port())
    base = ("--config", str(config))
    out, _ = await eaglemon(*base, "launch", "tiny", "--host", "gpu-a", "--wait", home=tmp_path)
    server = out.strip()
    told = await document(
        *(*base, "draft", "diagnose", server, "--host", "gpu-a", "--requests", "6"),
        *("--hidden", str(models / "samples.safetensors"), "--threads", "1"),
        home=tmp_path,
        code=0 if right else 1,
    )
    diagnosis = told["diagnosis"]
    assert told["engine_version"] == "0.5.16"
    assert diagnosis["captured"] == [2, 4, 5]
    assert len(diagnosis["served"]) == 5
    assert diagnosis["accept_length"] == pytest.approx(1 + sum(diagnosis["served"]))
    if right:
        assert diagnosis["verdict"] == "fine"
        assert diagnosis["trained"] == [2, 4, 5]
        assert diagnosis["accept_length"] > 2.0
        return
    assert diagnosis["sentence"] == "layers wired as [2, 4, 5] but trained on [0, 2, 4]"
    assert diagnosis["accept_length"] < 1.3
    served = f"served accept length {diagnosis['accept_length']:.2f}"
    assert served in diagnosis["evidence"]
    # This release cannot take the embedding of a Llama: the command is for another one.
    command = f"draft set-layers gpu-a:{draft} --engine sglang --hs 0,2,4"
    assert any(f"{command} --engine-version 0.5.23" in fix for fix in diagnosis["fixes"])
    assert not any("--engine-version 0.5.16" in fix for fix in diagnosis["fixes"])


def replayed(name: str, path: Path) -> Path:
    """Write the captured requests of a real server as the result of a probe of it."""
    answers = json.loads((CAPTURES / name / "bench-c1.json").read_text())
    records, at_s = [], 0.0
    for number, answer in enumerate(answers):
        meta: Mapping[str, Any] = answer["meta_info"]
        tokens = meta["completion_tokens"]
        # Not streamed: all that is known of the time is the whole of it.
        arrivals = (Arrival(at_s=0.0, tokens=0), Arrival(at_s=answer["dt"], tokens=tokens))
        records.append(
            RequestRecord(
                number=number,
                prompt_id=str(number),
                status=RequestStatus.OK,
                sent_at=at_s,
                took_s=answer["dt"],
                arrivals=arrivals,
                completion_tokens=tokens,
                prompt_tokens=meta["prompt_tokens"],
                counts=request_counts(meta),
            )
        )
        at_s += answer["dt"]
    probe = ProbeProgress(
        server_id=name,
        plan=ProbePlan(workload="capture", prompts=(), requests=len(records), concurrency=1),
        state="done",
        done=len(records),
        elapsed_s=at_s,
        remaining_s=None,
        figures=figures_of(records, users=1),
        records=tuple(records),
    )
    write_probes(path, [probe])
    return path


def diagnosed(run: Run, tmp_path: Path, models: Path, capture: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(
        *("diagnose", "tiny", "--hidden", models / "samples.safetensors", "--threads", "1"),
        *("--engine-version", "0.5.16", "--json"),
        *("--served", replayed(capture, tmp_path / "served.json")),
        *("--against", replayed("baseline", tmp_path / "baseline.json")),
    )
    return code, parsed(out)["diagnosis"]


def test_the_story_on_sglang_is_told_from_its_captures(
    run: Run, models: Path, tmp_path: Path
) -> None:
    """Wired wrongly on an H200: 1.46 tokens a step, slower than no draft, and no error."""
    home = tmp_path / "XDG_CONFIG_HOME"
    # So this run was made: these weights, with the ids of the other draft.
    draft = wired_as((2, 4, 5), models / "draft-embed-low-mid", tmp_path / "draft")
    write_profile(home, draft, models, 31015)
    code, diagnosis = diagnosed(run, tmp_path, models, "eagle3-wrongwired")
    assert code == 1
    assert diagnosis["verdict"] == "wiring"
    assert diagnosis["certain"]
    assert diagnosis["sentence"] == "layers wired as [2, 4, 5] but trained on [0, 2, 4]"
    # Counted by verify steps: the first token of an answer is of none.
    assert diagnosis["accept_length"] == pytest.approx(1.459, abs=0.005)
    assert diagnosis["overhead"] > diagnosis["accept_length"]
    # What the offline run says of these layers is what the server did.
    pairs = zip(diagnosis["served"], diagnosis["offline_as_served"], strict=True)
    assert all(abs(served - offline) < 0.08 for served, offline in pairs)
    # This release cannot take the embedding of a Llama: the fix says so.
    assert "0.5.16 cannot serve these layers, whatever the ids" in diagnosis["fixes"][0]
    assert "take another release: SGLang 0.5.23: eaglemon draft set-layers" in str(
        diagnosis["fixes"]
    )
    assert any("0.5.16 crashes" in fix for fix in diagnosis["fixes"])

    write_profile(home, models / "draft-low-mid-high", models, 31793)
    code, diagnosis = diagnosed(run, tmp_path, models, "eagle3-right")
    assert code == 0, diagnosis
    assert diagnosis["verdict"] == "fine"
    assert diagnosis["captured"] == diagnosis["trained"] == [2, 4, 5]
    assert diagnosis["accept_length"] == pytest.approx(3.737, abs=0.02)
    assert diagnosis["accept_length"] > diagnosis["overhead"]
