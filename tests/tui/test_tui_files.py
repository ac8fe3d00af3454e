"""Profiles and drafts on the console: read, edited, checked, inspected."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.core.draft_views import InspectView
from eaglemon.core.hosts import HostSpec
from eaglemon.core.problems import Problem
from eaglemon.errors import ConfigError
from eaglemon.tui.draft_panels import conditional_lines
from eaglemon.tui.screens.draft import DraftScreen
from eaglemon.tui.screens.profiles import ProfilesScreen
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_console import BASELINE, EAGLE3, FakeConsole
from tests.tui.frame import check_frame

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


class FakeFiles:
    """Profiles of one folder; notes what was asked."""

    def __init__(self, fake: FakeConsole, path: Path, *, missing: bool = False) -> None:
        self.fake, self.path, self.missing = fake, path, missing
        self.reloads = 0
        self.offered: Sequence[str] = ()
        self.kept: list[str] = []

    def profile_file(self, source: str) -> Path | None:
        return self.path if source == "mine" else None

    def reload(self) -> None:
        self.reloads += 1
        if self.path.read_text(encoding="utf-8") == "broken":
            self.fake.broken = [Problem(where="mine", message="not valid toml", hint="line 3")]
        self.fake.known_profiles = (replace(EAGLE3, name="edited", source="mine"), BASELINE)

    def ssh_hosts(self) -> Sequence[HostSpec]:
        return [HostSpec(name=name, source="~/.ssh/config") for name in self.offered]

    def named_host(self, name: str) -> HostSpec:
        return HostSpec(name=name, source="command line")

    def keep_host(self, spec: HostSpec) -> Path:
        self.kept.append(spec.name)
        return self.path

    def inspect_draft(self, folder: str, target: str) -> InspectView:
        if self.missing:
            raise ConfigError(f"{folder} is no folder of this computer", hint=f"see {target}")
        return INSPECTED


def fakes(path: Path, *, missing: bool = False) -> tuple[FakeConsole, FakeFiles]:
    fake = FakeConsole(snapshots.FLEET, known_profiles=(replace(EAGLE3, source="mine"), BASELINE))
    return fake, FakeFiles(fake, path, missing=missing)


@pytest.mark.parametrize("size", ["80x24", "120x40"])
async def test_profiles_and_draft_frames(size: str, tmp_path: Path) -> None:
    width, height = map(int, size.split("x"))
    fake, files = fakes(tmp_path)
    async with opened(snapshots.FLEET, size=(width, height), fake=fake, files=files) as console:
        await console.press("P")
        assert isinstance(console.screen, ProfilesScreen)
        check_frame(console.app, f"profiles-{size}")
    async with opened(snapshots.FLEET, size=(width, height), fake=fake, files=files) as console:
        await console.press("2", "o", "d")
        await until(console, "GQA" if width > 100 else "Served")
        check_frame(console.app, f"draft-{size}")


async def until(console: Opened, text: str) -> None:
    for _ in range(200):
        if text in console.text():
            return
        await console.pilot.pause(0.02)
    raise AssertionError(f"{text} is not shown:\n{console.text()}")


async def test_only_a_file_of_ones_own_is_edited(tmp_path: Path) -> None:
    fake, files = fakes(tmp_path / "mine.toml")
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("e")
        assert console.said[-1] == "only in the list of profiles: open it with P"
        await console.press("P", "j", "e")
        assert "ships with eaglemon" in console.said[-1]


async def test_profiles_are_read_again_and_what_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("good", encoding="utf-8")
    fake, files = fakes(path)
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("P")
        await console.app.deeds.files.read_again()
        await console.settle()
        assert console.said[-1] == "profiles were read again: nothing is wrong with them"
        assert "edited" in console.text()
        path.write_text("broken", encoding="utf-8")
        await console.app.deeds.files.read_again()
        await console.settle()
        assert console.said[-1] == "1 problem in profiles: mine: not valid toml; line 3"
        await console.press("g")
        assert "✗ mine" in console.text()
        assert console.app.scene().profile_file


async def test_profiles_are_filtered(tmp_path: Path) -> None:
    fake, files = fakes(tmp_path)
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("P", "slash", *"base", "enter")
        assert "k25-eagle3 " not in console.text()
        await console.press("slash", *"zz")
        assert "nothing matches 'zz'" in console.text()


async def test_a_draft_of_another_computer_says_what_to_do(tmp_path: Path) -> None:
    fake, files = fakes(tmp_path, missing=True)
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "d")
        assert isinstance(console.screen, DraftScreen)
        await until(console, "is no folder of this computer")
        assert "eaglemon draft inspect /models/k25-eagle3" in console.text()


def test_conditional_shares_come_from_the_live_source_first() -> None:
    server = snapshots.ready()
    assert server.acceptance is not None
    live = replace(server, acceptance=replace(server.acceptance, conditional=(0.74, None)))
    text = "\n".join(line.plain for line in conditional_lines(live, 60))
    assert "0.74" in text
    assert text.rstrip().endswith("-")
    assert conditional_lines(replace(server, acceptance=None, probe=None), 60) == []
