"""GPUs through the maintained pynvml and a driver library of C whose faults a file names."""

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from eaglemon.agent import agent
from eaglemon.core.hosts import HostSample
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import agent_pid, linked, own_command, python, request, watched

ROOT = Path(__file__).parent
READINGS = {
    "memory_used_bytes",
    "utilisation_percent",
    "temperature_c",
    "power_w",
    "power_limit_w",
    "name",
}


@dataclass(slots=True)
class Driver:
    """A fake driver, and the file that makes it fail."""

    library: Path
    state: Path

    def fail(self, *lines: str) -> None:
        """Set the faults from the next call on."""
        (self.state / "faults.new").write_text("".join(f"{line}\n" for line in lines))
        (self.state / "faults.new").replace(self.state / "faults")

    @asynccontextmanager
    async def link(self, **env: str) -> AsyncIterator[AgentLink]:
        """Open a link to an agent with this driver."""
        settings = {
            "LD_LIBRARY_PATH": str(self.library),
            "FAKE_FAULTS": str(self.state / "faults"),
            **env,
        }
        async with linked(LocalTransport(), self.state, **settings) as link:
            yield link

    async def sample(self, **env: str) -> HostSample:
        """Return the first sample of a new agent."""
        async with self.link(**env) as link:
            return await first(link)


def build(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("there is no C compiler here: apt-get install gcc")
    library = folder / "libnvidia-ml.so.1"
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wl,-soname,libnvidia-ml.so.1", *flags]
    subprocess.run([compiler, *options, "-o", library, ROOT / "fake_nvml.c"], check=True)
    return folder


@pytest.fixture(scope="session")
def new_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("old-driver"), "-DWITHOUT_V2")


@pytest.fixture
def driver(new_driver: Path, state: Path) -> Driver:
    return Driver(new_driver, state)


async def first(link: AgentLink) -> HostSample:
    async with aclosing(link.watch_gpus(interval_s=0.1, processes_interval_s=0.1)) as samples:
        async for sample in samples:
            return sample
    raise AssertionError("no sample came")


async def test_gpus_are_told_in_pci_order(driver: Driver) -> None:
    before = time.time()
    async with driver.link(FAKE_GPUS="3") as link:
        assert link.facts.driver_version == "580.1.2"
        assert link.facts.nvml_error is None
        sample = await first(link)
    assert [(gpu.index, gpu.uuid) for gpu in sample.gpus] == [
        (0, "GPU-2"),
        (1, "GPU-1"),
        (2, "GPU-0"),
    ]
    gpu = sample.gpus[1]
    assert (gpu.name, gpu.error) == ("NVIDIA H200", None)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_reserved_bytes) == (
        201,
        1000,
        100,
    )
    assert (gpu.utilisation_percent, gpu.temperature_c) == (50, 40)
    assert (gpu.power_w, gpu.power_limit_w) == (123.456, 700.0)
    assert sample.driver_error is None
    assert before <= sample.at <= time.time()


@pytest.mark.parametrize("number", [0, 1, 8, 16])
async def test_any_number_of_gpus(driver: Driver, number: int) -> None:
    sample = await driver.sample(FAKE_GPUS=str(number))
    assert [gpu.index for gpu in sample.gpus] == list(range(number))


async def test_an_old_driver_has_only_the_first_memory_call(old_driver: Path, state: Path) -> None:
    sample = await Driver(old_driver, state).sample(FAKE_GPUS="1")
    assert sample.gpus[0].memory_used_bytes == 300
    assert sample.gpus[0].memory_reserved_bytes is None


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("MemoryInfo", "memory_used_bytes"),
        ("UtilizationRates", "utilisation_percent"),
        ("Temperature", "temperature_c"),
        ("PowerUsage", "power_w"),
        ("EnforcedPowerLimit", "power_limit_w"),
        ("Name", "name"),
    ],
)
async def test_each_reading_may_be_missing_on_its_own(
    driver: Driver, call: str, field: str
) -> None:
    driver.fail(f"{call} 999")
    (gpu,) = (await driver.sample(FAKE_GPUS="1")).gpus
    others = READINGS - {field}
    assert getattr(gpu, field) is None
    assert all(getattr(gpu, other) is not None for other in others)
    assert gpu.error is None


async def test_a_lost_gpu_is_told_and_the_others_go_on(driver: Driver) -> None:
    async with (
        driver.link(FAKE_GPUS="2") as link,
        aclosing(link.watch_gpus(interval_s=0.1)) as samples,
    ):
        async for sample in samples:
            if sample.gpus[0].error is None:
                lost = ("MemoryInfo", "UtilizationRates", "Temperature", "PowerUsage")
                driver.fail(*(f"{call}/1 15" for call in lost))
                continue
            assert sample.gpus[0].error == "GPU is lost"
            assert sample.gpus[0].uuid == "GPU-1"
            assert sample.gpus[0].memory_used_bytes is None
            assert sample.gpus[1].memory_used_bytes == 200
            assert sample.driver_error is None
            break


@pytest.mark.parametrize(
    ("call", "code", "error"),
    [
        ("MemoryInfo", 15, "GPU is lost"),
        ("UtilizationRates", 15, "GPU is lost"),
        ("PowerUsage", 16, "GPU requires restart"),
        ("EnforcedPowerLimit", 15, "GPU is lost"),
        ("ComputeProcesses", 15, "GPU is lost"),
    ],
)
async def test_one_answer_is_enough_for_a_lost_gpu(
    driver: Driver, call: str, code: int, error: str
) -> None:
    driver.fail(f"{call}/1 {code}")
    async with (
        driver.link(FAKE_GPUS="2") as link,
        aclosing(link.watch_gpus(interval_s=0.1, processes_interval_s=0.4)) as samples,
    ):
        number = 0
        async for sample in samples:
            lost, other = sample.gpus
            assert other.error is None
            number += 1
            # The first one may be before its processes were listed; it does not come and go.
            if number > 1:
                assert lost.error == error
            # What still answers is shown.
            assert lost.temperature_c == 40
            if number == 6:
                break


async def test_a_gpu_without_handle_is_a_row(driver: Driver) -> None:
    driver.fail("HandleByIndex/0 15")
    sample = await driver.sample(FAKE_GPUS="2")
    assert {gpu.error for gpu in sample.gpus} == {None, "GPU is lost"}


async def test_a_driver_that_does_not_open_is_told_in_its_words(driver: Driver) -> None:
    driver.fail("Init 18")
    async with driver.link() as link:
        assert "mismatch" in str(link.facts.nvml_error)
        sample = await first(link)
    assert sample.gpus == ()
    assert "mismatch" in str(sample.driver_error)


async def test_a_host_without_driver_is_usable(link: AgentLink) -> None:
    assert link.facts.nvml_error == "NVML Shared Library Not Found"
    assert (await first(link)).driver_error == "NVML Shared Library Not Found"


async def test_a_driver_that_hangs_stops_nothing_else(driver: Driver) -> None:
    async with driver.link(FAKE_GPUS="2") as link:
        async with aclosing(link.watch_gpus(interval_s=0.1)) as samples:
            async for sample in samples:
                if sample.driver_error is None:
                    driver.fail("sleep Temperature 600000")
                    continue
                assert "has not answered for 2 s" in sample.driver_error
                assert [gpu.uuid for gpu in sample.gpus] == ["GPU-1", "GPU-0"]
                assert {gpu.memory_used_bytes for gpu in sample.gpus} == {None}
                break
        # All of it while the driver hangs, which it does for longer than any test lasts.
        async with asyncio.timeout(60):
            await link.ping()
            await link.close()


async def test_one_gpu_that_hangs_leaves_the_others_their_readings(driver: Driver) -> None:
    async with driver.link(FAKE_GPUS="3") as link:
        async with aclosing(link.watch_gpus(interval_s=0.2)) as samples, asyncio.timeout(60):
            driver.fail("sleep Temperature/1 600000")
            samples_meanwhile = 0
            async for sample in samples:
                assert sample.driver_error is None
                others = [gpu for gpu in sample.gpus if gpu.uuid != "GPU-1"]
                assert [gpu.memory_used_bytes for gpu in others] == [202, 200]
                assert [gpu.error for gpu in others] == [None, None]
                (hung,) = [gpu for gpu in sample.gpus if gpu.uuid == "GPU-1"]
                if hung.error is None:
                    # While it may still be only slow, its last reading stands.
                    assert hung.memory_used_bytes == 201
                    continue
                assert "the driver has not answered for" in hung.error
                assert hung.memory_used_bytes is None
                assert not sample.processes_known
                samples_meanwhile += 1
                if int(re.findall(r"for (\d+) s", hung.error)[0]) >= 4:
                    break
        # It held up nobody: ten samples come in the two seconds, fewer on a busy machine.
        assert samples_meanwhile >= 2


async def test_a_gpu_that_answers_again_is_read_again(driver: Driver) -> None:
    async with (
        driver.link(FAKE_GPUS="2") as link,
        aclosing(link.watch_gpus(interval_s=0.2)) as samples,
        asyncio.timeout(60),
    ):
        driver.fail("sleep PowerUsage/0 3000")
        was_silent = False
        async for sample in samples:
            (gpu,) = [gpu for gpu in sample.gpus if gpu.uuid == "GPU-0"]
            if gpu.error is not None and not was_silent:
                was_silent = True
                driver.fail()
            if was_silent and gpu.error is None:
                assert gpu.memory_used_bytes == 200
                break


async def test_mig_instances_are_parts_of_their_gpu(driver: Driver) -> None:
    driver.fail("value MigMode/1 1", "UtilizationRates/1 3")
    sample = await driver.sample(FAKE_GPUS="2", FAKE_PID=str(os.getpid()))
    with_mig, without = sample.gpus
    assert (with_mig.uuid, with_mig.utilisation_percent, with_mig.error) == ("GPU-1", None, None)
    assert without.mig is None
    assert with_mig.mig is not None
    found = [(one.uuid, one.gpu_instance, one.memory_used_bytes) for one in with_mig.mig]
    assert found == [("MIG-36", 1, 236), ("MIG-38", 3, 238)]
    assert with_mig.mig[0].name == "NVIDIA H200 MIG 3g.71gb"
    by_gpu = {process.gpu_uuid: process for process in sample.processes}
    assert by_gpu["GPU-1"].mig_uuid == "MIG-36"
    assert by_gpu["GPU-0"].mig_uuid is None


async def test_a_gpu_without_memory_of_its_own_has_the_hosts(driver: Driver) -> None:
    driver.fail("MemoryInfo 3", "EnforcedPowerLimit 3")
    (gpu,) = (await driver.sample(FAKE_GPUS="1")).gpus
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert gpu.memory_is_host
    assert gpu.memory_total_bytes == host
    assert gpu.memory_used_bytes is not None
    assert 0 < gpu.memory_used_bytes < host
    assert gpu.power_limit_w is None


async def test_a_gpu_that_supports_nothing_is_there(driver: Driver) -> None:
    """A Jetson: no reading, which is no error."""
    calls = ("MemoryInfo", "UtilizationRates", "Temperature", "PowerUsage", "MigMode")
    driver.fail(*(f"{call} 3" for call in calls))
    (gpu,) = (await driver.sample(FAKE_GPUS="1")).gpus
    assert gpu.error is None
    assert gpu.memory_is_host
    assert (gpu.temperature_c, gpu.power_w, gpu.utilisation_percent) == (None, None, None)


async def test_throttling_ecc_and_critical_events(driver: Driver) -> None:
    driver.fail("value Throttle/0 68", "value TotalEccErrors/0 3", "value Xid/0 79")
    async with (
        driver.link(FAKE_GPUS="2") as link,
        aclosing(link.watch_gpus(interval_s=0.1)) as samples,
        asyncio.timeout(60),
    ):
        async for sample in samples:
            well, ill = sample.gpus
            if ill.xid is not None:
                break
        else:
            raise AssertionError("the samples ended")
    assert ill.throttle == ("power cap", "too hot (hardware)")
    assert (ill.ecc_uncorrected, ill.xid) == (3, 79)
    assert (well.throttle, well.ecc_uncorrected, well.xid) == ((), 0, None)
    assert ill.bus_id == "00000000:80:00.0"


async def test_what_a_driver_does_not_tell_is_unknown(driver: Driver) -> None:
    driver.fail("Throttle 3", "TotalEccErrors 3", "RegisterEvents 3")
    (gpu,) = (await driver.sample(FAKE_GPUS="1")).gpus
    assert (gpu.throttle, gpu.ecc_uncorrected, gpu.xid) == (None, None, None)


async def test_a_list_of_processes_that_is_refused_is_not_an_empty_one(driver: Driver) -> None:
    sample = await driver.sample(FAKE_GPUS="2")
    assert (sample.processes, sample.processes_known) == ((), True)
    driver.fail("ComputeProcesses/1 4")
    sample = await driver.sample(FAKE_GPUS="2")
    assert (sample.processes, sample.processes_known) == ((), False)


def test_gpus_of_virtual_machines_are_named(tmp_path: Path) -> None:
    for name, kind, driver_name in (
        ("0000:41:00.0", "0x030200", "vfio-pci"),
        ("0000:42:00.0", "0x030200", "nvidia"),
        ("0000:43:00.0", "0x040300", "vfio-pci"),
    ):
        folder = tmp_path / "devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text(f"{kind}\n")
        (tmp_path / driver_name).mkdir(exist_ok=True)
        (folder / "driver").symlink_to(tmp_path / driver_name)
    assert agent.passed_through(str(tmp_path / "devices")) == [
        "GPU 0000:41:00.0 is bound to vfio-pci: a virtual machine has it"
    ]
    assert agent.passed_through(str(tmp_path / "none")) == []


async def test_a_driver_that_hangs_from_the_start_lets_the_agent_start(driver: Driver) -> None:
    driver.fail("sleep Init 8000")
    async with driver.link() as link:
        assert "has not answered" in str(link.facts.nvml_error)
        assert "has not answered" in str((await first(link)).driver_error)


async def test_who_asks_for_more_is_answered_at_once_and_by_nothing_old(driver: Driver) -> None:
    """A stop waits for the memory while the screen's own samples come seldom."""
    async with driver.link() as link, aclosing(link.watch_gpus(interval_s=60.0)) as seldom:
        await anext(seldom)
        asked_at = time.time()
        async with asyncio.timeout(60.0):
            sample = await first(link)
        assert sample.at >= asked_at


async def test_processes_have_owner_command_and_memory(driver: Driver) -> None:
    sample = await driver.sample(FAKE_GPUS="2", FAKE_PID=str(os.getpid()))
    by_uuid = {process.gpu_uuid: process for process in sample.processes}
    one = by_uuid["GPU-1"]
    assert (one.pid, one.memory_bytes, one.run_id) == (os.getpid(), 150, None)
    assert one.user == Path("/proc/self").owner()
    assert one.command == own_command()
    # NVML's "not available" is all ones.
    assert by_uuid["GPU-0"].memory_bytes is None


async def test_a_process_that_cannot_be_seen_is_a_bare_pid(driver: Driver) -> None:
    sample = await driver.sample(FAKE_GPUS="1", FAKE_PID="4194304")
    assert (sample.processes[0].user, sample.processes[0].command) == (None, None)


async def test_a_process_of_a_run_is_told_as_such(driver: Driver) -> None:
    async with driver.link() as link, watched(link) as runs:
        record = await link.start_run(request("one", *python("import time; time.sleep(600)")))
        await runs.until("one", lambda run: bool(run.processes))
        # A second console's agent, which has to find out by itself.
        async with (
            driver.link(FAKE_PID=str(record.pid)) as other,
            aclosing(other.watch_gpus(interval_s=0.1, processes_interval_s=0.1)) as samples,
            asyncio.timeout(60),
        ):
            async for sample in samples:
                if sample.processes and sample.processes[0].run_id is not None:
                    assert {process.run_id for process in sample.processes} == {"one"}
                    break


async def test_sampling_eight_gpus_costs_a_small_part_of_a_core(driver: Driver) -> None:
    async with driver.link(FAKE_PID=str(os.getpid())) as link, watched(link):
        pid = agent_pid(driver.state)
        async with aclosing(link.watch_gpus()) as samples:
            await anext(samples)
            before, started_at = cpu_s(pid), time.monotonic()
            for _ in range(4):
                await anext(samples)
            share = (cpu_s(pid) - before) / (time.monotonic() - started_at)
    # A hundredth on an idle machine; the same work takes longer on one that does more besides.
    assert share < 0.05


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, which the scheduler counts by the ns."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e9
