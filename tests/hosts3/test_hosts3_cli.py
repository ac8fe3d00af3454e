"""``eaglemon gpus`` and ``eaglemon hosts check`` as processes: local, over a real sshd, refused."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eaglemon.sim.host import SimHost
from tests.agent.driver import until
from tests.hosts3.shell_host import Smi
from tests.sshd import Sshd, start_sshd

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


def hosts_file(folder: Path, **hosts: dict[str, object]) -> Path:
    lines: list[str] = []
    for name, keys in hosts.items():
        lines.append(f"[hosts.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items() if key != "env"]
        if "env" in keys:
            lines.append(f"[hosts.{name}.env]")
            lines += [f"{key} = {json.dumps(one)}" for key, one in dict(keys["env"]).items()]  # type: ignore[call-overload]
    path = folder / "over.toml"
    path.write_text("\n".join(lines))
    return path


def over(server: Sshd, state: Path, **more: object) -> dict[str, object]:
    spec = server.spec()
    return {
        "address": spec.address,
        "port": spec.port,
        "user": spec.user,
        "known_hosts": spec.known_hosts,
        "identity": spec.identity,
        "ssh_config": "",
        "env": {"XDG_STATE_HOME": str(state)},
        **more,
    }


async def start(config: Path, *arguments: str) -> asyncio.subprocess.Process:
    home = str(config.parent / "home")
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "eaglemon", "--config", str(config), *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home},
    )  # fmt: skip


async def eaglemon(config: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    process = await start(config, *arguments)
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate()
    assert process.returncode == code, (out.decode(), err.decode())
    return out.decode(), err.decode()


def report(out: str, host: int = 0) -> dict[str, dict[str, Any]]:
    document = json.loads(out)
    assert document["command"] == "hosts check"
    return {one["name"]: one for one in document["hosts"][host]["requirements"]}


async def test_a_host_that_has_all(shared: Sshd, tmp_path: Path) -> None:
    smi = Smi(tmp_path / "smi")
    config = hosts_file(tmp_path, box=over(shared, tmp_path / "state"))
    out, _ = await eaglemon(config, "hosts", "check", "box", "--json")
    found = report(out)
    assert found["ssh"]["met"]
    assert found["host key"]["met"]
    assert found["python"]["met"]
    assert found["write access"]["detail"] == str(tmp_path / "state/eaglemon")
    # There is no driver here, which is said with its fix.
    assert "install the NVIDIA driver" in found["nvml"]["fix"]
    bare = over(shared, tmp_path / "state", python="/no/python3")
    bare["env"] = {"XDG_STATE_HOME": str(tmp_path / "state"), **smi.env}
    config = hosts_file(tmp_path, box=bare)
    out, _ = await eaglemon(config, "hosts", "check", "box", "--json")
    found = report(out)
    assert not found["python"]["met"]
    assert found["nvml"]["detail"] == "driver 580.159.04, 2 GPU: NVIDIA H200"


async def test_hosts_that_cannot_be_used_say_the_fix(shared: Sshd, tmp_path: Path) -> None:
    (tmp_path / "other_known_hosts").write_text("")
    (tmp_path / "file").write_text("")
    config = hosts_file(
        tmp_path,
        closed={"address": "127.0.0.1", "port": 1, "ssh_config": ""},
        stranger=over(shared, tmp_path, known_hosts=str(tmp_path / "other_known_hosts")),
        full=over(shared, tmp_path / "file"),
    )
    out, _ = await eaglemon(config, "hosts", "check", "closed", "stranger", "full", code=3)
    lines = out.splitlines()
    closed = next(line for line in lines if line.startswith("closed    ssh"))
    assert "FAILED" in closed
    assert "see whether sshd runs there" in closed
    stranger = next(line for line in lines if line.startswith("stranger  host key"))
    assert "SHA256:" in stranger
    full = next(line for line in lines if line.startswith("full      write access"))
    assert "FAILED" in full
    assert "XDG_STATE_HOME" in full
    await eaglemon(config, "hosts", "check", "full", code=1)


async def test_gpus_of_two_hosts_in_text_and_json(tmp_path: Path) -> None:
    async with SimHost(speed=12.0) as sim:
        keys = {
            "address": sim.address, "port": sim.port, "user": sim.user,
            "known_hosts": sim.known_hosts, "identity": sim.identity, "ssh_config": "",
        }  # fmt: skip
        config = hosts_file(
            tmp_path,
            a={key: value for key, value in keys.items() if value is not None},
            closed={"address": "127.0.0.1", "port": 1, "ssh_config": ""},
        )
        out, _ = await eaglemon(config, "gpus", "a")
        assert out.startswith("a: up")
        assert "MEMORY GiB" in out
        out, err = await eaglemon(config, "gpus", "a", "closed", "--json", code=3)
        document = json.loads(out)
        a, closed = document["hosts"]
        assert a["sample"]["gpus"][0]["uuid"].startswith("GPU-")
        assert (closed["state"], closed["sample"]) == ("down", None)
        assert "refused the connection" in err
        process = await start(config, "gpus", "a", "--watch", "--json", "--interval", "200ms")
        assert process.stdout is not None
        times: list[float] = []
        async with asyncio.timeout(LIMIT_S):
            while len(times) < 8:
                line = json.loads(await process.stdout.readline())
                sample = line["hosts"][0]["sample"]
                times += [sample["at"]] if sample else []
        assert times == sorted(set(times))
        # Without the option they come each second.
        assert min(after - before for before, after in itertools.pairwise(times)) < 0.9
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(LIMIT_S):
            await process.communicate()
        assert process.returncode == 130


async def test_an_interval_out_of_range_is_refused(tmp_path: Path) -> None:
    config = hosts_file(tmp_path)
    _, err = await eaglemon(config, "gpus", "--interval", "1h", code=2)
    assert "is not from 0.1s to 5s" in err


async def test_an_nvidia_smi_that_hangs_or_sees_nothing_is_told_and_none_stays(
    shared: Sshd, tmp_path: Path
) -> None:
    smi = Smi(tmp_path / "smi")
    bare = over(shared, tmp_path / "state", python="/no/python3")
    bare["env"] = {"XDG_STATE_HOME": str(tmp_path / "state"), **smi.env}
    config = hosts_file(tmp_path, box=bare)
    smi.write("hang", "")
    out, _ = await eaglemon(config, "gpus", "box", code=1)
    assert "no python3" in out
    assert "nvidia-smi has not answered for" in out
    await until(lambda: not [pid for pid in pids() if str(smi.folder) in command_of(pid)])
    (smi.folder / "hang").unlink()
    smi.write("gpus.csv", "")
    out, _ = await eaglemon(config, "gpus", "box", code=1)
    assert "nvidia-smi answered without a GPU" in out


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
