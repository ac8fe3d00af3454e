"""Restarts, hangs, hooks, foreign servers and estimates on a simulated host: real processes."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.history import MemoryHistory
from eaglemon.app.restarting import keep_running
from eaglemon.core.eta import EtaSource
from eaglemon.core.foreign import ForeignServer, ForeignStop
from eaglemon.core.phases import Phase
from eaglemon.core.views import ServerState, ServerView
from eaglemon.errors import EaglemonError, ServerError, TimeLimitError, UsageError
from tests.cases4.conftest import LIMIT_S, Desk, console, desk
from tests.cases4.test_cases4_killed_console import config_of
from tests.ports import free_port


async def test_restart_keeps_the_port_and_never_runs_two() -> None:
    async with desk() as d:
        first = await d.start(settings={"steps": "3", "draft-tokens": "4"})
        before = await d.ready(first)
        # Another console, which knows the settings only from what the host remembers.
        async with console(d.spec) as other:
            await other.settle()
            again = await other.restart(first, grace_s=3.0)
            after = await other.wait(again, timeout_s=LIMIT_S)
            old = other.find(first)
            assert after.state is ServerState.READY
            assert (after.port, after.speculation) == (before.port, before.speculation)
            assert old.state is ServerState.STOPPED
            assert old.stop is not None
            assert old.stop.proven
            assert after.launched_at >= old.launched_at + old.age_s - 0.5
            await other.stop(again, grace_s=2.0)


async def test_a_failing_server_is_started_again_until_it_loops() -> None:
    async with desk(fault="oom", speed=30.0) as d:
        told: list[str] = []

        async def ended(server_id: str) -> ServerView:
            return await d.until(server_id, lambda view: view.state.ended)

        first = await d.start()
        with pytest.raises(ServerError, match="3 times") as caught:
            await keep_running(d.hub, first, ended=ended, told=told.append)
        assert len(told) == 2
        assert first not in caught.value.hint
        failed = [s for s in d.hub.snapshot().servers if s.state is ServerState.FAILED]
        assert len(failed) == 3


async def test_a_hang_is_told_although_the_health_path_is_good() -> None:
    async with desk(fault="hang") as d:
        profile = replace(d.hub.plan("vllm-eagle3", "sim").profile)
        server = await d.start("vllm-eagle3", {"limits.hung_s": "6"})
        assert profile.engine == "vllm"
        async with asyncio.timeout(LIMIT_S):
            view = await d.until(
                server, lambda view: view.state is ServerState.UNHEALTHY or view.state.ended
            )
        assert view.state is ServerState.UNHEALTHY
        assert "hung: metrics answer, generation does not" in view.detail
        await d.hub.stop(server, grace_s=1.0)


async def test_a_start_in_which_nothing_moves_is_stalled() -> None:
    async with desk(fault="stall") as d:
        server = await d.start(settings={"stall_limits.graph-capture": "2"})
        view = await d.until(server, lambda view: view.stalled or view.state.ended)
        assert view.stalled
        assert view.state is ServerState.STARTING
        assert "nothing has moved for" in view.detail
        assert view.pids
        await d.hub.stop(server, grace_s=0.5)


async def test_a_slow_start_is_not_stalled() -> None:
    # It loads for 6.5 s in three pieces: longer than the limit, and something moves in between.
    async with desk(fault="slow-load", speed=4.0) as d:
        server = await d.start(settings={"stall_limits.load-target": "5"})
        async with asyncio.timeout(LIMIT_S):
            async for snapshot in d.hub.updates():
                seen = snapshot.server(server)
                assert seen is not None
                assert not seen.stalled
                if seen.state is ServerState.READY:
                    break
        await d.hub.stop(server, grace_s=1.0)


async def test_hooks_run_around_a_server_and_a_failing_one_starts_nothing() -> None:
    async with desk() as d:
        plan = d.hub.plan("sglang-eagle3", "sim", {"port": str(free_port())})
        mark = d.sim.folder / "mark"
        good = replace(
            plan.profile.hooks,
            before_launch=(f"echo before > {mark}", f"test -f {mark}"),
            after_stop=(f"echo after >> {mark}",),
        )
        bad = replace(plan.profile.hooks, before_launch=("echo why >&2; exit 3", "touch never"))
        with pytest.raises(ServerError, match="exit code 3: why"):
            await d.hub.launch(replace(plan, profile=replace(plan.profile, hooks=bad)))
        assert not (d.sim.folder / "never").exists()
        server = await d.hub.launch(replace(plan, profile=replace(plan.profile, hooks=good)))
        assert mark.read_text() == "before\n"
        await d.ready(server)
        await d.hub.stop(server, grace_s=3.0)
        assert mark.read_text() == "before\nafter\n"


async def test_the_second_start_tells_the_time_left() -> None:
    async with desk(history=MemoryHistory(), speed=6.0) as d:
        same = {"port": str(free_port())}
        first = await d.start(settings=same)
        view = await d.until(first, lambda view: view.state is ServerState.STARTING)
        assert view.ready_eta_s is None
        took_s = (await d.ready(first)).ready_at
        assert took_s is not None
        await d.hub.stop(first, grace_s=3.0)
        second = await d.start(settings=same)
        view = await d.until(second, lambda view: view.ready_eta_s is not None)
        assert view.eta_source == EtaSource.EARLIER
        assert view.usual_start_s is not None
        assert view.ready_eta_s is not None
        low, high = view.ready_eta_s
        whole_s = took_s - d.hub.find(first).launched_at
        # However late it was looked at.
        assert low <= whole_s <= (high + view.age_s) * 1.3
        pending = [p for p in view.phases if p.phase is Phase.GRAPH_CAPTURE]
        assert pending[0].eta_s is not None
        await d.hub.stop(second, grace_s=0.5)


async def test_readiness_does_not_depend_on_the_log() -> None:
    async with desk(fault="no-log") as d:
        server = await d.start()
        view = await d.ready(server)
        assert view.ready_at is not None
        await d.hub.stop(server, grace_s=2.0)


async def _by_hand(d: Desk, port: str) -> subprocess.Popen[bytes]:
    """Start a server on the simulated host without a console, as a person in a shell does."""
    async with console(d.spec) as other:
        await other.settle()
        plan = other.plan("sglang-eagle3", d.spec.name, {"port": port, "gpus": "none"})
    environment = {
        **os.environ,
        **json.loads(await _environment(d)),
        "CUDA_VISIBLE_DEVICES": "5",
    }
    return subprocess.Popen(
        list(plan.argv),
        env=environment,
        cwd=d.sim.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _environment(d: Desk) -> str:
    source = b"import json, os\nprint(json.dumps({'env': json.dumps(dict(os.environ))}))"
    link = d.hub._hosts["sim"].link
    async for item in link.run_program(source):
        return str(item["env"])
    raise AssertionError("no answer")


async def _foreign(d: Desk, pid: int) -> list[ForeignServer]:
    # Simulated hosts share this machine, where other tests may run servers too.
    return [server for server in await d.hub.foreign("sim") if server.pid == pid]


async def test_a_server_started_by_hand_is_found_watched_probed_and_ended_only_by_name(
    tmp_path: Path,
) -> None:
    async with desk() as d:
        port = str(free_port())
        process = await _by_hand(d, port)
        pid = process.pid
        ours = await d.start(settings={"gpus": "1"})
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (found := await _foreign(d, pid)):
                    await asyncio.sleep(0.1)
            (server,) = found
            assert (server.pid, server.id) == (pid, f"{pid}@sim")
            assert server.profile.draft == "Tengyunw/qwen3_8b_eagle3"
            assert server.profile.speculation is not None
            reached = await d.hub.wait_at(server.url, host="sim", timeout_s=LIMIT_S)
            assert (reached.engine, reached.model) == ("sglang", "Qwen/Qwen3-8B")

            await d.ready(ours)
            (server,) = await _foreign(d, pid)
            assert server.memory_used_bytes is None or server.memory_used_bytes > 0
            watched = await d.hub.watch(server.id)
            view = await d.ready(watched)
            assert view.pid == pid
            assert "--speculative-algorithm EAGLE3" in view.command_line
            for target in (watched, await d.hub.reach(server.url, host="sim")):
                few = d.hub.probe_plan(target, {"requests": "2", "max_tokens": "8", "warmup": "0"})
                probe = await d.hub.probe(target, few)
                assert (probe.state, probe.figures.ok) == ("done", 2)
            with pytest.raises(ServerError, match="was started by") as refused:
                await d.hub.stop(watched)
            assert "--foreign" in refused.value.hint
            leader = d.hub.find(ours).pid
            with pytest.raises(UsageError, match="is of a run of eaglemon"):
                await d.hub.stop_foreign(f"{leader}@sim", grace_s=1.0, told=lambda _: None)

            asked = ("probe", server.url, "--host", d.spec.name, "--requests", "2", "--json")
            command = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "eaglemon", "--config", str(config_of(d.spec, tmp_path)), *asked),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            )
            document = json.loads((await command.communicate())[0])
            assert command.returncode == 0
            assert document["probe"]["figures"]["ok"] == 2

            steps: list[ForeignStop] = []
            stop = await d.hub.stop_foreign(server.id, grace_s=3.0, told=steps.append)
            assert stop.gone
            assert stop.memory_back
            assert stop.steps[0].startswith("TERM sent to")
            assert await _foreign(d, pid) == []
            gone = await d.until(watched, lambda view: view.state.ended)
            assert "gone" in gone.detail
            assert d.hub.find(ours).state is ServerState.READY
        finally:
            _end(process)
        await d.hub.stop(ours, grace_s=2.0)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=LIMIT_S)


async def test_an_address_that_nobody_answers_is_a_time_out() -> None:
    async with desk() as d:
        with pytest.raises(TimeLimitError, match="is not ready after 1 s"):
            await d.hub.wait_at(f"http://127.0.0.1:{free_port()}", host="sim", timeout_s=1.0)
        with pytest.raises(UsageError):
            await d.hub.wait_at("ftp://x", host="sim", timeout_s=1.0)
        with pytest.raises(EaglemonError):
            await d.hub.watch("1@sim")


async def test_a_draft_s_own_configuration_is_read_before_the_launch() -> None:
    async with desk() as d:
        draft = d.sim.folder / "draft-a"
        draft.mkdir()
        config = {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
        (draft / "config.json").write_text(json.dumps(config), encoding="utf-8")
        settings = {"draft": str(draft), "algorithm": "EAGLE", "context-length": "8192"}
        plan = d.hub.plan("sglang-eagle3", "sim", {"port": str(free_port()), **settings})
        slugs = [problem.slug for problem in await d.hub.check(plan)]
        assert slugs == ["eagle-for-eagle3-draft", "draft-context-short"]
        fits = d.hub.plan("sglang-eagle3", "sim", {"port": str(free_port()), "draft": str(draft)})
        assert await d.hub.check(fits) == []
        missing = d.hub.plan(
            "sglang-eagle3", "sim", {"port": str(free_port()), "draft": str(draft / "none")}
        )
        assert [p.slug for p in await d.hub.check(missing)] == ["draft-path-missing"]
