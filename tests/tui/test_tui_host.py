"""The host screen: sparklines on a fixed scale, processes, servers, what others run."""

from dataclasses import replace

import pytest

from eaglemon.core.foreign import ForeignServer
from eaglemon.core.gpu_history import GpuHistory
from eaglemon.core.hosts import MigInstance
from eaglemon.core.profiles import Profile
from eaglemon.core.views import Snapshot
from eaglemon.tui.gpu_panels import gpu_lines
from eaglemon.tui.host_panels import process_lines, title_line
from eaglemon.tui.screens.host import HostScreen
from eaglemon.tui.screens.server import ServerScreen
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import FakeConsole
from tests.tui.frame import check_frame

HOST = snapshots.FLEET.hosts[0]


def with_past() -> Snapshot:
    """The fleet, five minutes after its first host was first seen."""
    assert HOST.sample is not None
    past = GpuHistory()
    for second in range(0, 300, 5):
        busy = 40 + second % 50
        gpus = tuple(replace(gpu, utilisation_percent=busy) for gpu in HOST.sample.gpus)
        past.add(replace(HOST.sample, at=snapshots.AT - 300 + second, gpus=gpus))
    host = replace(HOST, history=past.traces())
    return replace(snapshots.FLEET, hosts=(host, *snapshots.FLEET.hosts[1:]))


def test_the_scale_never_follows_the_noise() -> None:
    text = "\n".join(line.plain for line in gpu_lines(with_past().hosts[0], 60))
    busy = next(line for line in text.splitlines() if line.startswith("busy"))
    assert "█" not in busy
    assert "▄▄▅▅" in busy


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_host_frames(size: str) -> None:
    width, height = map(int, size.split("x"))
    async with opened(with_past(), size=(width, height)) as console:
        await console.press("h")
        assert isinstance(console.screen, HostScreen)
        check_frame(console.app, f"host-{size}")


async def test_enter_on_a_host_opens_it_and_a_server_from_there() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("1", "enter")
        assert isinstance(console.screen, HostScreen)
        assert "pid" not in console.text()
        assert "640" in console.text()
        assert "no servers of others" in console.text()
        await console.press("3", "enter")
        assert console.app.scene().screen == "server"
        await console.press("escape", "escape")
        assert "Hosts and GPUs" in console.text()


async def test_the_servers_of_others_are_named_and_watched() -> None:
    fake = FakeConsole(snapshots.FLEET)
    profile = Profile(name="foreign-77", engine="vllm", model="org/m", port=8000)
    fake.others = [
        ForeignServer(
            host=HOST.name,
            pid=77,
            start_ticks=1,
            user="eve",
            profile=profile,
            command_line="vllm serve org/m",
            started_at=0.0,
        )
    ]
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("w")
        assert fake.calls == []
        await console.press("1", "h")
        assert "w watches them" in console.text()
        assert f"77@{HOST.name}: vllm of eve" in console.text()
        await console.press("w")
        assert console.called("watch") == [("watch", f"77@{HOST.name}")]
        assert console.said[-1] == "watching 1 server of others"
    async with opened(snapshots.FLEET, fake=fake, read_only=True) as console:
        await console.press("1", "h", "w")
        assert "read-only" in console.said[-1]
    assert len(console.called("watch")) == 1


def test_troubles_of_a_gpu_are_words() -> None:
    assert HOST.sample is not None
    mig = (MigInstance(uuid="MIG-1", name="1g.5gb", memory_used_bytes=1, memory_total_bytes=2),)
    sick = replace(HOST.sample.gpus[0], throttle=("power cap",), ecc_uncorrected=2, xid=79, mig=mig)
    lost = replace(HOST.sample.gpus[1], error="GPU is lost")
    host = replace(HOST, sample=replace(HOST.sample, gpus=(sick, lost), notes=("2 are in a VM",)))
    text = "\n".join(line.plain for line in gpu_lines(host, 60))
    for part in (
        "clocks held back: power cap",
        "2 uncorrected memory errors",
        "XID 79",
        "MIG -:- 1g.5gb",
        "✗ GPU is lost",
        "2 are in a VM",
    ):
        assert part in text
    assert all(line.cell_length <= 60 for line in gpu_lines(host, 60))


def test_what_is_not_known_of_a_host_is_said() -> None:
    nothing = snapshots.DOWN
    assert "no sample" in gpu_lines(nothing, 60)[-1].plain
    assert process_lines(nothing, (), 60)[0].plain == "not known yet"
    assert "DOWN" in title_line(nothing, 60).plain
    assert HOST.sample is not None
    blind = replace(HOST, sample=replace(HOST.sample, processes=(), processes_known=False))
    assert process_lines(blind, (), 60)[0].plain == "the driver does not tell"


async def test_restart_asks_and_shows_the_new_server() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("o", "R")
        assert "Restart k25-eagle3 on h200-a?" in console.text()
        assert "then start the same on port 30000" in console.text()
        await console.press("n")
        assert console.called("restart") == []
        await console.press("R", "y")
        assert console.called("restart") == [("restart", "run-ready", None)]
        assert console.said[-1] == "k25-eagle3 is gone and starts again"
        assert isinstance(console.screen, ServerScreen)
        assert console.screen.server_id == "run-ready-again"
