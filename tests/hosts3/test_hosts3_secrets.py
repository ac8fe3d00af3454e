"""Command lines of a host's processes are masked as they come in, and so are recorded logs."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eaglemon.app.recording import prepare, read, record
from eaglemon.app.runs import notes_of, profile_of, request_of
from eaglemon.cli import output
from eaglemon.cli.profiles import value_of
from eaglemon.core.runs import RunRecord
from eaglemon.core.views import LaunchPlan, LogBatch
from eaglemon.errors import UsageError
from eaglemon.io import agent_values, shell_values
from eaglemon.io.profile_text import profile_toml
from tests.tui import snapshots
from tests.tui.fake_console import EAGLE3, FakeConsole

RAW = "vllm serve /m --api-key k1 k2 --port 8000"
MASKED = "vllm serve /m --api-key *** *** --port 8000"


def test_what_the_agent_tells_of_processes_is_masked() -> None:
    holder = {"gpu_uuid": "u", "pid": 7, "command": RAW}
    sample = agent_values.decode_sample(
        {"sample": {"at": 1.0, "processes": [holder, {"gpu_uuid": "u", "pid": 8}]}}
    )
    assert [one.command for one in sample.processes] == [MASKED, None]
    listener = {"address": "::", "port": 8000, "command": RAW}
    check = agent_values.decode_check({"listeners": [listener]})
    assert [one.command for one in check.listeners] == [MASKED]
    process = {"pid": 7, "start_ticks": 1, "command": RAW, "state": "S"}
    (run,) = agent_values.decode_runs([{"record": RECORD, "processes": [process]}])
    assert [one.command for one in run.processes] == [MASKED]


def test_what_sh_tells_of_processes_is_masked() -> None:
    us = shell_values.US
    apps, owners = f"u, 7, {RAW}, 10 MiB", f"7 me {RAW}"
    for told in ((apps, ""), (apps, owners)):
        block = us.join(["csv", "0, u", *told, "", ""])
        sample, _ = shell_values.sample_of(block, at=1.0, before=(), runs={})
        assert [one.command for one in sample.processes] == [MASKED]
    block = us.join(["", "", f"0100007F:1F40 0 7 {RAW}", "", "", ""])
    check = shell_values.check_of(block, port=8000, package=None)
    assert [one.command for one in check.listeners] == [MASKED]


RECORD = {
    "id": "one",
    "name": "one",
    "profile": "p",
    "digest": "0",
    "engine": "vllm",
    "address": "127.0.0.1",
    "port": 8000,
    "argv": ["x"],
    "env": {},
    "workdir": None,
    "gpu_indexes": [],
    "gpu_uuids": [],
    "gpu_used_before_bytes": None,
    "extra": {},
    "launched_at": 1.0,
    "boot_id": "b",
    "log_path": "/l",
}


def test_a_profile_with_secrets_in_its_command_is_whole_again_from_its_record() -> None:
    profile = replace(EAGLE3, command=("env", "HF_TOKEN=k1", "python"))
    plan = LaunchPlan(host="h", profile=profile, argv=("env", "HF_TOKEN=k1"), shell_line="env")
    request = request_of(plan, None, datetime.fromtimestamp(1.0, UTC))
    assert "k1" not in repr((request.argv_recorded, request.extra))
    told = agent_values.decode_record(
        {"record": {**RECORD, "extra": request.extra, "digest": request.digest}}
    )
    assert isinstance(told, RunRecord)
    assert notes_of(told).settings is not None
    # The console's own has changed since, so the record's settings count, with its secrets.
    mine = replace(profile, name=told.profile, port=1)
    found = profile_of(told, {told.profile: mine})
    assert found.digest() == profile.digest()
    assert profile_of(told, {}).command == ("env", "HF_TOKEN=***", "python")


def test_a_profile_as_it_is_shown_tells_no_secret() -> None:
    flags = {"api-key": ("what-a-profile-has", "k2")}
    profile = replace(EAGLE3, command=("env", "HF_TOKEN=what-a-profile-has", "x"), flags=flags)
    assert value_of(profile, "command") == "('env', 'HF_TOKEN=***', 'x')"
    for shown in (
        profile_toml(profile, masked=True),
        repr(output.plain(profile)),
        value_of(profile, "command") + value_of(profile, "flags.api-key"),
    ):
        assert "HF_TOKEN=***" in shown
        assert "what-a-profile-has" not in shown
    assert "what-a-profile-has" in profile_toml(profile)


async def test_the_log_in_a_recording_tells_no_secret(tmp_path: Path) -> None:
    profile = replace(EAGLE3, flags={"api-key": ("what-a-profile-has", "k2")})
    lines = ("api_key=['k1', 'k2'], port=1", "refused: what-a-profile-has")
    fake = FakeConsole(
        snapshots.FLEET,
        known_profiles=[profile],
        log_batches=(LogBatch(lines=lines, next_offset=0),),
    )
    path = tmp_path / "seen.jsonl"
    prepare(path)
    task = asyncio.create_task(record(fake, path))
    async with asyncio.timeout(60):
        fake.push(snapshots.FLEET)
        while not path.exists() or b'"log":' not in path.read_bytes():
            await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    logs = [item.log for item in read(path) if item.log is not None]
    assert logs[0] == ("api_key=***, port=1", "refused: ***")


@pytest.mark.parametrize("name", ["seen.jsonl", "seen.jsonl.gz"])
async def test_a_recording_is_its_owners_alone_and_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch(mode=0o644)
    fake = FakeConsole(snapshots.FLEET)
    task = asyncio.create_task(record(fake, path))
    async with asyncio.timeout(60):
        fake.push(snapshots.FLEET)
        while path.stat().st_size < 1000:
            await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert path.stat().st_mode & 0o777 == 0o600
    assert any(item.snapshot for item in read(path))


def test_where_nothing_can_be_recorded_no_console_is_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: no such file or directory"):
        prepare(tmp_path / "missing" / "x.jsonl.gz")
