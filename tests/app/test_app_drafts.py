"""The draft of a server judged and rewired where it lies: this machine, over the real agent.

The trained models lie beside the repository (../shared/models): without them this is skipped.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from eaglemon.app.api import Eaglemon
from eaglemon.app.drafts import DraftDesk
from eaglemon.core.draft_verdict import DraftVerdict
from eaglemon.core.hosts import HostSpec
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.core.views import LaunchPlan, ServerState, ServerView
from eaglemon.errors import EaglemonError, ReadOnlyError, UsageError
from tests.tui import snapshots

MODELS = Path(__file__).parents[3] / "shared" / "models"
SPEC = HostSpec(name="here", transport="local")
SERVER = replace(snapshots.ready(), host="here", state=ServerState.STOPPED, probe=None)


class OneServer:
    """What a desk asks of a console."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def hosts(self) -> list[HostSpec]:
        return [SPEC]

    def find(self, text: str) -> ServerView:
        assert text == SERVER.id
        return SERVER

    def relaunch_plan(self, server_id: str) -> LaunchPlan:
        return LaunchPlan(host=SPEC.name, profile=self._profile, argv=(), shell_line=server_id)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    if not MODELS.is_dir():
        pytest.skip("../shared/models is not beside the repository")
    return Path(shutil.copytree(MODELS / "draft-embed-low-mid", tmp_path / "draft"))


def profile_of(draft: Path | None) -> Profile:
    return Profile(
        name="mine",
        engine="vllm",
        model=str(MODELS / "target"),
        draft=None if draft is None else str(draft),
        speculation=Speculation(steps=3),
        port=30000,
    )


def desk(draft: Path | None) -> DraftDesk:
    return DraftDesk(cast("Eaglemon", OneServer(profile_of(draft))))


async def test_a_draft_is_judged_and_rewired_on_its_host(draft: Path) -> None:
    one = desk(draft)
    report = await one.diagnose(SERVER.id)
    assert report.inspect.captured == 3
    assert report.diagnosis.served[0] == pytest.approx(0.74)
    assert report.diagnosis.verdict is not DraftVerdict.FINE
    config = draft / "config.json"
    before = config.read_text()
    repair = await one.rewire(SERVER.id, (2, 4, 5))
    assert repair.difference
    assert config.read_text() == before
    with pytest.raises(EaglemonError):
        await one.rewire(SERVER.id, (2, 4, 5), shown=("something else",))
    assert config.read_text() == before
    written = await one.rewire(SERVER.id, (2, 4, 5), shown=repair.difference)
    assert written.backups
    assert json.loads(config.read_text()) != json.loads(before)


async def test_a_desk_that_only_reads_writes_nothing() -> None:
    console = cast("Eaglemon", OneServer(profile_of(Path("draft"))))
    with pytest.raises(ReadOnlyError, match="is not changed"):
        await DraftDesk(console, read_only=True).rewire(SERVER.id, (2, 4, 5), shown=("a line",))


async def test_what_a_check_costs_is_told_first(draft: Path) -> None:
    cost = await desk(draft).cost(SERVER.id)
    assert (cost.prompts, cost.new_tokens, cost.fits) == (16, 192, True)
    assert cost.weights_bytes > 1 << 20


async def test_without_a_draft_that_is_said() -> None:
    with pytest.raises(UsageError, match="has no draft"):
        await desk(None).cost(SERVER.id)
