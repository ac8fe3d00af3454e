import json
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.cli import output
from eaglemon.core.hosts import LinkState
from eaglemon.core.problems import Problem, Severity
from eaglemon.core.views import LogBatch, ServerState, StopView
from eaglemon.errors import LaunchRefusedError, TimeLimitError
from tests.cli.conftest import CommandLine
from tests.cli.fake_console import SERVER, FakeConsole, failed, probe, server, stopped


def down(console: FakeConsole) -> None:
    console.state = LinkState.DOWN
    console.detail = "gpu-a: connection refused; is sshd running?"


def test_status_shows_gpus_processes_and_servers(run: CommandLine) -> None:
    result = run("status", "gpu-a")
    assert result.code == 0
    assert "gpu-a: up" in result.out
    assert "1.0/140.0" in result.out
    assert "97 %" in result.out
    assert "ml" in result.out
    assert SERVER in result.out
    assert result.err == ""


def test_status_as_json(run: CommandLine) -> None:
    document = run("status", "--host", "gpu-a", "--json").document
    assert document["command"] == "status"
    assert document["hosts"][0]["spec"]["name"] == "gpu-a"
    assert document["hosts"][0]["sample"]["gpus"][0]["memory_total_bytes"] == 140 * 1024**3
    assert document["servers"][0]["state"] == "ready"


def test_status_of_an_unreachable_host_exits_3_with_one_line(run: CommandLine) -> None:
    result = run("status", "gpu-a", "--json", prepare=down)
    assert result.code == 3
    assert result.err == "eaglemon: gpu-a: connection refused; is sshd running?\n"
    assert result.document["hosts"][0]["state"] == "down"


def test_status_exits_1_when_a_server_is_unhealthy(run: CommandLine) -> None:
    def ill(console: FakeConsole) -> None:
        console.servers = {SERVER: server(ServerState.UNHEALTHY)}

    assert run("status", prepare=ill).code == 1


def test_status_asks_all_configured_hosts(run: CommandLine, home: Path) -> None:
    (home / "config/eaglemon").mkdir(parents=True)
    (home / "config/eaglemon/hosts.toml").write_text("[hosts.a]\n[hosts.b]\n")
    run("status")
    assert [spec.name for spec in run.console.specs] == ["a", "b", "local"]


def test_launch_prints_the_id_alone_on_stdout(run: CommandLine) -> None:
    result = run("launch", "sglang-eagle3", "--host", "gpu-a", "--set", "port=31000")
    assert (result.code, result.out) == (0, f"{SERVER}\n")
    assert "--port 31000" in result.err
    assert run.console.called("launch") == [False]
    assert run.console.called("wait") == []


def test_launch_wait_tells_the_phases(run: CommandLine) -> None:
    result = run(
        "launch", "sglang-eagle3", "--host", "gpu-a", "--wait", "--timeout", "15m", "--force"
    )
    assert result.code == 0
    assert "import: done in 8.0 s" in result.err
    assert f"{SERVER} is ready after 42 s" in result.err
    assert run.console.called("wait") == [900.0]
    assert run.console.called("launch") == [True]


def test_launch_wait_of_a_failing_server_exits_1_with_its_cause(run: CommandLine) -> None:
    def fails(console: FakeConsole) -> None:
        console.waited = failed()

    result = run("launch", "sglang-eagle3", "--host", "a", "--wait", "--json", prepare=fails)
    assert result.code == 1
    assert result.document["server"]["cause"]["slug"] == "oom"
    assert "CUDA out of memory (log line 12: torch.OutOfMemoryError); lower" in result.err


def test_launch_keeps_secrets_out_of_the_document(run: CommandLine) -> None:
    result = run("launch", "sglang-eagle3", "--host", "gpu-a", "--json", "--set", "env.A_TOKEN=x1")
    assert "geheim" not in result.out
    assert "x1" not in result.out
    plan = result.document["plan"]
    assert plan["argv"][-1] == "***"
    assert plan["env"] == {"HF_TOKEN": "***", "A": "1"}


def test_launch_dry_run_starts_nothing(run: CommandLine) -> None:
    def busy(console: FakeConsole) -> None:
        console.problems = [
            Problem(where="port 30000", message="is in use by pid 7", hint="choose another"),
            Problem(where="disk", message="is nearly full", severity=Severity.WARNING),
        ]

    result = run("launch", "sglang-eagle3", "--host", "gpu-a", "--dry-run", prepare=busy)
    assert result.code == 2
    assert result.out.startswith("python3 --port 30000")
    assert "error: port 30000: is in use by pid 7; choose another" in result.err
    assert "warning: disk: is nearly full" in result.err
    assert run.console.called("launch") == []


def test_launch_refused_by_the_checks_exits_2_with_a_line_for_each_problem(
    run: CommandLine,
) -> None:
    port = "port 30000: in use on a by PID 7; stop it, or choose another"
    gpu = "GPU 0: 100 GiB are in use; stop what holds it"

    def refused(console: FakeConsole) -> None:
        console.launch_error = LaunchRefusedError(f"{port}\n{gpu}")

    result = run("launch", "sglang-eagle3", "--host", "a", "--json", prepare=refused)
    assert result.code == 2
    assert result.document["error"]["message"] == f"{port}\n{gpu}"
    assert result.document["error"]["kind"] == "LaunchRefusedError"
    assert len(result.out.splitlines()) == 1
    assert result.err == f"eaglemon: {port}\neaglemon: {gpu}\n"


def test_a_name_of_several_living_servers_is_not_stopped(run: CommandLine) -> None:
    other = replace(server(), id="sglang-eagle3-20261129-090000-cd34")

    def two(console: FakeConsole) -> None:
        console.servers[other.id] = other

    for words in (("kill", "sglang-eagle3", "--yes"), ("restart", "sglang")):
        result = run(*words, prepare=two)
        assert (result.code, result.out) == (2, "")
        assert f"name one of: {SERVER}, {other.id}" in result.err
        assert run.console.called("stop") == []
    for words in (("wait", "sglang-eagle3"), ("logs", "sglang")):
        result = run(*words, prepare=two)
        assert result.code == 0
        assert f"this is the newest: {SERVER}\n" in result.err
    assert run("kill", other.id, "--yes", prepare=two).code == 0


def test_a_second_kill_says_that_the_server_had_already_ended(run: CommandLine) -> None:
    def over(console: FakeConsole) -> None:
        stop = replace(stopped().stop or StopView(steps=()), proven=False)
        stop = replace(stop, memory_to_release_bytes=None)
        console.servers = {SERVER: replace(stopped(), stop=stop)}

    result = run("kill", SERVER, prepare=over)
    assert (result.code, result.err) == (0, f"{SERVER} had already ended\n")
    assert run.console.called("stop") == []


@pytest.mark.parametrize(
    ("proven", "unseen", "code", "said"),
    [
        (True, "", 0, "is gone; it held no GPU memory"),
        (False, "", 1, ": processes are gone; GPU memory is not known"),
        (False, "version mismatch", 1, "is gone; GPU memory cannot be seen: version mismatch"),
        (True, "no nvidia-smi", 0, "is gone; GPU memory cannot be seen: no nvidia-smi"),
    ],
)
def test_a_kill_claims_nothing_of_memory_that_is_not_known(
    run: CommandLine, proven: bool, unseen: str, code: int, said: str
) -> None:
    def without_memory(console: FakeConsole) -> None:
        stop = StopView(steps=(), processes_left=0, proven=proven, memory_unseen=unseen)
        console.stop_result = replace(stopped(), stop=stop, pids=())

    result = run("kill", SERVER, "--yes", prepare=without_memory)
    assert result.code == code
    assert said in result.err


def test_what_is_left_of_an_ended_server_is_stopped(run: CommandLine) -> None:
    def left(console: FakeConsole) -> None:
        console.servers = {SERVER: replace(failed(), pids=(78,))}
        stop = StopView(steps=("survived KILL: 78",), processes_left=1)
        console.stop_result = replace(stopped(), stop=stop, pids=(78,))

    result = run("kill", SERVER, "--yes", prepare=left)
    assert result.code == 1
    assert "not shown to be gone: 1 process, its GPU memory is not known" in result.err
    assert len(run.console.called("stop")) == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["launch", "sglang-eagle3"], "needs one --host"),
        (["launch", "sglang-eagle3", "--host", "a", "--host", "b"], "needs one --host"),
        (["launch", "sglang-eagel3", "--host", "a"], "did you mean 'sglang-eagle3'"),
        (["launch", "sglang-eagle3", "--host", "a", "--set", "port"], "NAME=VALUE"),
        (["launch", "sglang-eagle3", "--host", "a", "--set", "port=x"], "whole number"),
        (["launch", "sglang-eagle3", "--host", "a", "--timeout", "5m"], "add --wait"),
        (["launch", "sglang-eagle3", "--host", "a b"], "no name of a host"),
        (["launch"], "missing argument"),
        (["wait", "x", "--timeout", "soon"], "is no duration"),
        (["wait", "nothing"], "no server 'nothing'"),
        (["logs", "sglang", "-n", "-1"], "not in the range"),
        (["probe", "sglang", "--requests", "0"], "not in the range"),
        (["profiles", "show", "nothing"], "unknown profile"),
        (["lanch"], "did you mean 'launch'"),
        (["--config", "nowhere.toml", "hosts"], "no such file"),
        (["hosts", "--jso"], "no such option"),
        (["tui"], "needs a terminal"),
        ([], "needs a terminal"),
        (["gpu-a"], "needs a terminal"),
    ],
)
def test_wrong_usage_exits_2_with_one_line(
    run: CommandLine, arguments: list[str], part: str
) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert part in result.err
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


def test_launch_on_an_unreachable_host_exits_3(run: CommandLine) -> None:
    result = run("launch", "sglang-eagle3", "--host", "gpu-a", prepare=down)
    assert result.code == 3
    assert result.err == "eaglemon: gpu-a: connection refused; is sshd running?\n"


def test_wait_that_takes_too_long_exits_4(run: CommandLine) -> None:
    def slow(console: FakeConsole) -> None:
        console.waited = TimeLimitError("not ready after 90 s", hint="wait longer")

    result = run("wait", "sglang", "--timeout", "90s", "--json", prepare=slow)
    assert result.code == 4
    assert result.document["error"]["exit_code"] == 4
    assert run.console.called("wait") == [90.0]


def test_wait_for_a_ready_server(run: CommandLine) -> None:
    result = run("wait", "sglang", "--json")
    assert (result.code, result.document["server"]["id"]) == (0, SERVER)


def test_kill_proves_that_the_server_is_gone(run: CommandLine) -> None:
    result = run("kill", "sglang", "--grace", "3s", "--yes")
    assert (result.code, result.out) == (0, f"{SERVER}\n")
    assert "TERM sent to 4 processes" in result.err
    assert "is gone and its GPU memory is back" in result.err
    assert run.console.called("stop") == [3.0]


def test_kill_without_proof_exits_1(run: CommandLine) -> None:
    def holds(console: FakeConsole) -> None:
        console.stop_result = stopped(proven=False)

    result = run("kill", "sglang", "--json", prepare=holds)
    assert result.code == 1
    assert "3.0 GiB of GPU memory" in result.err
    assert result.document["server"]["stop"]["proven"] is False


def test_kill_of_a_server_that_could_not_be_stopped_exits_1(run: CommandLine) -> None:
    def refused(console: FakeConsole) -> None:
        detail = "the stopper of run one did not answer"
        console.stop_result = replace(stopped(), state=ServerState.UNHEALTHY, stop=None)
        console.stop_result = replace(console.stop_result, pids=(7,), detail=detail)

    result = run("kill", "sglang", prepare=refused)
    assert result.code == 1
    assert f"{SERVER} was not stopped: the stopper of run one did not answer\n" in result.err
    assert "ended" not in result.err


def test_kill_of_an_ended_server_is_fine(run: CommandLine) -> None:
    def ended(console: FakeConsole) -> None:
        console.servers = {SERVER: replace(failed(), pids=())}

    result = run("kill", "sglang", prepare=ended)
    assert result.code == 0
    assert "had already ended" in result.err
    assert run.console.called("stop") == []


def test_kill_asks_on_a_terminal(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = "1 process: 77\n  GPUs 0, 1.0 GiB to be freed, requests in flight: -"
    monkeypatch.setattr("click.confirm", lambda question, err: asked not in question)
    result = run("kill", "sglang")
    assert result.code == 130
    assert "nothing was stopped" in result.err
    assert all(console.called("stop") == [] for console in run.consoles)


def test_logs_are_written_as_they_are(run: CommandLine) -> None:
    result = run("logs", "sglang", "-n", "2")
    assert (result.code, result.out) == (0, "one\ntwo\n")
    assert run.console.called("logs") == [(False, 2)]
    document = run("logs", "sglang", "--json").document
    assert document["lines"] == ["one", "two"]
    assert document["next_offset"] == 8


@pytest.mark.parametrize("lines", [(), ("one",), ("a\x1b[0m\u2028", "\udcff", 'quoted "x"')])
def test_a_long_document_is_written_as_a_short_one(
    lines: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_IN_MEMORY_LETTERS", 16)
    content = {"server": "s", "lines": list(lines), "next_offset": None}
    output.write_document("logs", content)
    whole = capsys.readouterr().out
    with output.LongDocument("logs", {"server": "s"}, "lines") as document:
        document.add(lines[:1])
        document.add(lines[1:])
        assert capsys.readouterr().out == ""
        document.write({"next_offset": None})
    assert capsys.readouterr().out == whole


def test_followed_logs_as_json_are_one_document_a_line(run: CommandLine) -> None:
    def two_lines(console: FakeConsole) -> None:
        console.batches = (LogBatch(lines=("a", "\udcff"), next_offset=3),)

    result = run("logs", "sglang", "-f", "--json", prepare=two_lines)
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["command"] for line in lines] == ["logs", "logs"]
    assert lines[0]["line"] == "a"


def test_probe_writes_figures(run: CommandLine) -> None:
    result = run("probe", "sglang", "--requests", "10", "--max-tokens", "64", "--workload", "code")
    assert result.code == 0
    assert "141.2 tok/s median" in result.out
    assert "2.80 (rate 36 %, from per-request answers)" in result.out
    assert run.console.called("probe_plan") == [
        {"requests": "10", "concurrency": "1", "workload": "code", "max_tokens": "64"}
    ]
    document = run("probe", "sglang", "--json").document
    assert document["probe"]["figures"]["accept_length"] == 2.8
    assert document["probe"]["figures"]["per_position"] == [0.9, 0.6, 0.3]
    assert document["accept_rate"] == 0.36


def test_probe_with_failed_requests_exits_1(run: CommandLine) -> None:
    def halves(console: FakeConsole) -> None:
        console.probed = lambda plan: probe(plan, ok=2)

    result = run("probe", "sglang", prepare=halves)
    assert result.code == 1
    assert "2 requests of 4 did not end well" in result.err


def test_hosts_and_profiles_need_no_connection(run: CommandLine) -> None:
    assert "local" in run("hosts").out
    assert run("hosts", "--json").document["hosts"][0]["name"] == "local"
    result = run("profiles")
    assert result.code == 0
    assert "EAGLE3 5/1/6" in result.out
    names = [profile["name"] for profile in run("profiles", "--json").document["profiles"]]
    own = ["sglang-baseline", "sglang-eagle3", "sglang-eagle3-90x10", "vllm-baseline"]
    assert names[:4] == own
    assert run.consoles == []


@pytest.mark.parametrize("name", ["sglang-eagle3", "sglang-baseline", "vllm-eagle3"])
def test_profiles_show_gives_the_command_line(run: CommandLine, name: str) -> None:
    result = run("profiles", "show", name)
    assert (result.code, result.err) == (0, "")
    assert "Qwen/Qwen3-8B" in result.out
    document = run("profiles", "show", name, "--json").document
    assert document["problems"] == []
    assert "Qwen/Qwen3-8B" in document["argv"]


def test_profiles_with_a_broken_file_exit_2_and_list_the_others(
    run: CommandLine, home: Path
) -> None:
    (home / "project/eaglemon.toml").write_text('[profiles.x]\nmodle = "y"\n')
    result = run("profiles", "--json")
    assert result.code == 2
    assert "eaglemon.toml:2: profiles.x.modle: is not a known key; did you mean 'model'?" in (
        result.err
    )
    assert len(result.document["profiles"]) >= 4
    assert len(result.document["problems"]) >= 1
