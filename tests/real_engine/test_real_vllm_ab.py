"""One command compares four ways to serve a tiny target on the real vLLM (``make test-engine``).

Without a draft; with a draft that is fed the layers it was trained on; off by one; and fed other
layers. The settings of the main test apply: ``EAGLEMON_VLLM_PYTHON`` and ``EAGLEMON_MODELS``.
Needs about 6 minutes on two quiet cores.
"""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.real_engine.test_real_vllm import MODELS, PROFILE, eaglemon, processes_of

pytestmark = pytest.mark.engine

LIMIT_S = 900.0
BASELINE = PROFILE.replace('draft = "{draft}"\n', "").replace(
    "[speculation]\nsteps = 5\ntopk = 1\ndraft_tokens = 6\n", ""
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Profiles ``baseline``, ``right``, ``off-by-one`` and ``wrong`` on one port."""
    python = os.environ.get("EAGLEMON_VLLM_PYTHON", "")
    assert python, "set EAGLEMON_VLLM_PYTHON to an interpreter that has vLLM"
    port = free_port()
    profiles = tmp_path / "config" / "eaglemon" / "profiles"
    profiles.mkdir(parents=True)
    values = {"models": MODELS, "python": python, "port": port}
    (profiles / "baseline.toml").write_text(BASELINE.format(**values))
    for name, folder, layers in (
        ("right", "draft-embed-low-mid", [0, 2, 4]),
        ("off-by-one", "draft-low-mid-high", None),
        ("wrong", "draft-embed-low-mid", [2, 4, 5]),
    ):
        draft = tmp_path / name
        shutil.copytree(MODELS / folder, draft, copy_function=shutil.copyfile)
        if layers is not None:
            settings = json.loads((draft / "config.json").read_text())
            settings["eagle_aux_hidden_state_layer_ids"] = layers
            (draft / "config.json").write_text(json.dumps(settings))
        (profiles / f"{name}.toml").write_text(PROFILE.format(draft=draft, **values))
    return tmp_path


def test_right_wiring_is_faster_and_wrong_wiring_slower(config: Path) -> None:
    began = time.monotonic()
    names = ("baseline", "right", "off-by-one", "wrong")
    ask = ("--requests", "16", "--max-tokens", "128", "--rounds", "2", "--yes")
    report = config / "report.html"
    code, found, talk = eaglemon(
        config, "ab", *names, "--host", "local", *ask, "-o", str(report), timeout_s=LIMIT_S
    )
    took_s = time.monotonic() - began
    assert code == 0, (found, talk)
    print("\n" + "\n".join(found["verdicts"]), f"\nin {took_s:.0f} s")
    by_arm = {names[one["arm"]]: one for one in found["findings"]["comparisons"]}
    assert by_arm["right"]["verdict"] == "faster"
    assert 1.2 < by_arm["right"]["ratio"]["value"] < 2.2
    assert by_arm["wrong"]["verdict"] == "slower"
    assert 0.4 < by_arm["wrong"]["ratio"]["value"] < 0.85
    lengths = [arm["accept_length"] for arm in found["findings"]["arms"]]
    assert lengths[0] is None
    assert lengths[1] > lengths[2] > lengths[3] > 1
    assert "<svg" in report.read_text()
    assert took_s < 600
    assert processes_of(str(config)) == []
