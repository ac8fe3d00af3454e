"""Hosts: offered where none is configured, added by name, tried again when they are down."""

from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.views import HostView, Snapshot
from eaglemon.errors import UsageError
from eaglemon.io.host_config import load_hosts
from eaglemon.io.host_keep import keep_host
from eaglemon.tui.scene import Scene, retry
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_console import FakeConsole
from tests.tui.frame import check_frame
from tests.tui.test_tui_files import FakeFiles

LOCAL = HostView(spec=HostSpec(name="local", transport="local"), state=LinkState.UP)
FIRST = Snapshot(at=snapshots.AT, hosts=(LOCAL,))


def first_run(path: Path) -> tuple[FakeConsole, FakeFiles]:
    fake = FakeConsole(FIRST)
    files = FakeFiles(fake, path)
    files.offered = ("gpu-a", "gpu-b")
    return fake, files


async def offers(console: Opened) -> None:
    for _ in range(200):
        if "gpu-b" in console.text():
            return
        await console.pilot.pause(0.02)
    raise AssertionError(console.text())


async def test_hosts_of_ssh_are_offered_and_none_is_connected_unasked(tmp_path: Path) -> None:
    fake, files = first_run(tmp_path)
    async with opened(FIRST, size=(80, 24), fake=fake, files=files, first_run=True) as console:
        await offers(console)
        check_frame(console.app, "fleet-first-80x24")
        assert fake.calls == []
        await console.press("j", "h")
        assert console.said[-1].startswith("no host is selected")
        await console.press("enter")
        assert console.called("add_host") == [("add_host", "gpu-a")]
        assert "connecting to gpu-a" in console.said[-1]
        assert files.kept == []
        assert "◌ CONNECTING" in console.text()
        # The cursor stays with the host, so that a keeps it and enter opens it.
        assert console.app.scene().host == "gpu-a"
        await console.press("a")
        await console.settle()
        assert "keep it in hosts.toml: yes" in console.text()
        await console.press("enter")
        await console.settle()
        assert files.kept == ["gpu-a"]
        await console.press("enter")
        assert console.app.scene().screen == "host"
    async with opened(FIRST, fake=fake, files=files) as console:
        await console.pilot.pause(0.1)
        assert "gpu-b" not in console.text()


async def test_a_host_is_added_by_name_and_kept_only_if_asked(tmp_path: Path) -> None:
    fake, files = first_run(tmp_path)
    async with opened(FIRST, fake=fake, files=files) as console:
        await console.press("a")
        assert "ssh knows: gpu-a, gpu-b" in console.text()
        await console.press(*"eve", "at", *"box", "enter")
        await console.settle()
        assert console.called("add_host") == [("add_host", "eve@box")]
        assert files.kept == []
        await console.press("a", *"gpu-a", "tab", "space", "tab", "tab", "enter")
        await console.settle()
        assert files.kept == ["gpu-a"]
        assert "kept in" in console.said[-1]
        await console.press("a", "escape")
        assert len(console.called("add_host")) == 2


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_connect_frames(size: str, tmp_path: Path) -> None:
    width, height = map(int, size.split("x"))
    fake, files = first_run(tmp_path)
    async with opened(FIRST, size=(width, height), fake=fake, files=files) as console:
        await console.press("a")
        await console.settle()
        check_frame(console.app, f"dialog-connect-{size}")


async def test_a_host_that_is_down_is_tried_again(tmp_path: Path) -> None:
    hosts = (LOCAL, snapshots.DOWN)
    async with opened(Snapshot(at=snapshots.AT, hosts=hosts)) as console:
        await console.press("r")
        assert console.said == ["local is up: only a host that is down is tried again"]
        assert "r retry" not in console.text()
        await console.press("j")
        assert "r retry" in console.text()
        await console.press("r")
        assert console.called("retry") == [("retry", "a100-old")]
        await console.press("h")
        assert console.app.scene().screen == "host"
        await console.press("r")
        assert len(console.called("retry")) == 2


@pytest.mark.parametrize("state", LinkState)
def test_only_a_host_that_is_down_is_tried_again(state: LinkState) -> None:
    why = retry(Scene(screen="fleet", host="gpu-a", host_state=state))
    assert (why is None) is (state is LinkState.DOWN)


def test_hosts_are_kept_beside_what_is_in_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    path = keep_host(HostSpec(name="gpu-a"), folder)
    path.write_text(f"{path.read_text()}# mine\n", encoding="utf-8")
    keep_host(HostSpec(name="ada@box:2222", address="box", user="ada", port=2222), folder)
    with pytest.raises(UsageError, match="has gpu-a already"):
        keep_host(HostSpec(name="gpu-a"), folder)
    assert "# mine\n" in path.read_text()
    found = {spec.name: spec for spec in load_hosts(project=tmp_path / "none", user=folder)}
    assert list(found) == ["gpu-a", "ada@box:2222", "local"]
    assert (found["ada@box:2222"].address, found["ada@box:2222"].port) == ("box", 2222)
    path.write_text("[hosts", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be read"):
        keep_host(HostSpec(name="gpu-b"), folder)
