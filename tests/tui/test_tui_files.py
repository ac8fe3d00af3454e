"""Profiles on the console: read, edited, checked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.api import Drafts, Eaglemon
from eaglemon.core.hosts import HostSpec
from eaglemon.core.problems import Problem
from eaglemon.tui.screens.profiles import ProfilesScreen
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import BASELINE, EAGLE3, FakeConsole
from tests.tui.fake_drafts import FakeDrafts
from tests.tui.frame import check_frame


class FakeFiles:
    """Profiles of one folder; notes what was asked."""

    def __init__(self, fake: FakeConsole, path: Path) -> None:
        self.fake, self.path = fake, path
        self.desk: Drafts = FakeDrafts()
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

    def named_host(self, name: str, known: Sequence[HostSpec] = ()) -> HostSpec:
        return HostSpec(name=name, source="command line")

    def keep_host(self, spec: HostSpec) -> Path:
        self.kept.append(spec.name)
        return self.path

    def drafts(self, console: Eaglemon) -> Drafts:
        del console
        return self.desk


def fakes(path: Path) -> tuple[FakeConsole, FakeFiles]:
    fake = FakeConsole(snapshots.FLEET, known_profiles=(replace(EAGLE3, source="mine"), BASELINE))
    return fake, FakeFiles(fake, path)


@pytest.mark.parametrize("size", ["80x24", "120x40"])
async def test_profiles_frames(size: str, tmp_path: Path) -> None:
    width, height = map(int, size.split("x"))
    fake, files = fakes(tmp_path)
    async with opened(snapshots.FLEET, size=(width, height), fake=fake, files=files) as console:
        await console.press("P")
        assert isinstance(console.screen, ProfilesScreen)
        check_frame(console.app, f"profiles-{size}")


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
