"""The pure parts: decoding, text, metrics, command lines."""

import io
from contextlib import redirect_stderr
from dataclasses import replace

import pytest

from eaglemon.sim.asked import read_request
from eaglemon.sim.console import SglangConsole
from eaglemon.sim.decode import Decoder, Drafting, Request
from eaglemon.sim.prometheus import Metrics
from eaglemon.sim.settings import Settings, read_settings
from eaglemon.sim.sglang_args import SglangArgs, StartError, resolve
from eaglemon.sim.text import Answer, fingerprint
from eaglemon.sim.vllm_args import ConfigFailed, parse

SETTINGS = Settings()


class Spoken(SglangConsole):
    """A console that keeps what is written."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def request(number: int, max_tokens: int = 256, **changes: float) -> Request:
    return Request(
        id=str(number),
        prompt_tokens=10,
        max_tokens=max_tokens,
        natural_length=1 << 30,
        seed=number,
        temperature=changes.get("temperature", 0.0),
    )


def drafting(*, wrong: bool = False, settings: Settings = SETTINGS) -> Drafting:
    return Drafting.of(settings, steps=5, proposed=5, wrong=wrong)


def run(decoder: Decoder, requests: list[Request]) -> tuple[float, int]:
    """Return the simulated decode seconds and the tokens after the first ones."""
    for one in requests:
        decoder.add(one)
    seconds, tokens = 0.0, 0
    while decoder.waiting or decoder.running:
        decoder.prefill(decoder.admit())
        if decoder.running:
            seconds += decoder.step_s()
            tokens += sum(output.new_tokens for output in decoder.step())
    return seconds, tokens


def accept_length(decoder: Decoder) -> float:
    return 1 + decoder.totals.accepted / decoder.totals.verifies


def test_the_baseline_gives_one_token_a_step_at_90_a_second() -> None:
    decoder = Decoder(SETTINGS, None, 48)
    seconds, tokens = run(decoder, [request(1)])
    assert tokens == 255
    assert tokens / seconds == pytest.approx(90.0)
    assert decoder.totals.verifies == 0


def test_a_right_draft_wins_and_a_wrongly_wired_one_loses() -> None:
    right = Decoder(SETTINGS, drafting(), 1)
    seconds, tokens = run(right, [request(number) for number in range(60)])
    assert accept_length(right) == pytest.approx(2.85, abs=0.08)
    assert tokens / seconds > 1.5 * 90
    wrong = Decoder(SETTINGS, drafting(wrong=True), 1)
    seconds, tokens = run(wrong, [request(number) for number in range(60)])
    assert accept_length(wrong) == pytest.approx(1.05, abs=0.01)
    assert tokens / seconds == pytest.approx(54.8, abs=0.6)


def test_the_counts_hold_together() -> None:
    decoder = Decoder(SETTINGS, drafting(), 8)
    run(decoder, [request(number, 100) for number in range(20)])
    totals = decoder.totals
    assert sum(totals.per_position) == totals.accepted
    assert totals.per_position == sorted(totals.per_position, reverse=True)
    assert totals.generated == 2000
    assert totals.prompt == 200


def test_the_same_request_is_accepted_the_same_way() -> None:
    lengths = []
    for _ in range(2):
        decoder = Decoder(SETTINGS, drafting(), 8)
        run(decoder, [request(7)])
        lengths.append(decoder.totals.accepted)
    assert lengths[0] == lengths[1]


def test_own_rates_and_steps() -> None:
    settings = replace(SETTINGS, accept_rates=(1.0,), verify_step_s=0.02)
    decoder = Decoder(settings, drafting(settings=settings), 8)
    seconds, tokens = run(decoder, [request(1, 61)])
    assert accept_length(decoder) == 6.0
    assert tokens == 60
    assert seconds == pytest.approx(0.2)


def test_sampling_lowers_and_crowds_slow() -> None:
    hot = Decoder(SETTINGS, drafting(), 8)
    run(hot, [request(number, temperature=0.8) for number in range(20)])
    assert accept_length(hot) < 2.0
    crowd = Decoder(SETTINGS, drafting(), 8)
    alone_s = Decoder(SETTINGS, drafting(), 8).step_s()
    for number in range(10):
        crowd.add(request(number))
    assert len(crowd.admit()) == 8
    assert crowd.waiting == 2
    assert alone_s < crowd.step_s() < 2 * alone_s
    crowd.abort("9")
    assert (crowd.running, crowd.waiting) == (8, 1)


def test_answers_do_not_depend_on_the_steps() -> None:
    answer = Answer(fingerprint("hello"))
    assert answer.text(0, 30) == answer.text(0, 7) + answer.text(7, 30)
    assert len(answer.ids(5, 30)) == 25


def test_a_short_natural_end_stops() -> None:
    decoder = Decoder(SETTINGS, drafting(), 8)
    short = request(1)
    short.natural_length = 20
    decoder.add(short)
    decoder.prefill(decoder.admit())
    outputs = []
    while decoder.running:
        outputs += decoder.step()
    assert outputs[-1].finish == "stop"
    assert decoder.totals.generated == 20


def test_histogram_text() -> None:
    metrics = Metrics()
    metrics.observe("took", {"a": 'q"'}, (0.1, 1), 0.1, 0.5, 3)
    text = metrics.render().decode()
    assert 'took_bucket{a="q\\"",le="0.1"} 1.0\n' in text
    assert 'took_bucket{a="q\\"",le="+Inf"} 3.0\n' in text
    assert 'took_sum{a="q\\""} 3.6\n' in text


def sglang(*argv: str) -> tuple[SglangArgs, str]:
    console = Spoken()
    return resolve(["--model-path", "/models/t", *argv], console), console.text


def test_sglang_arguments_are_resolved_as_the_engine_does() -> None:
    args, text = sglang("--speculative-algorithm", "eagle3", "--speculative-draft-model-path", "/d")
    assert (args.steps, args.topk, args.draft_tokens, args.max_running) == (3, 1, 4, 48)
    assert "reset to 48" in text
    args, text = sglang(
        *["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d"],
        *["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"],
        *["--speculative-num-draft-tokens", "16", "--cuda-graph-max-bs", "16", "--tp", "2"],
    )
    assert (args.draft_tokens, args.max_batch, args.tp) == (4, 16, 2)
    assert "adjusted to speculative_num_steps + 1" in text
    assert "deprecated" in text
    args, _text = sglang()
    assert (args.algorithm, args.max_running, args.port) == (None, 4096, 30000)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--speculative-algorithm", "FOO"], "Unknown speculative algorithm name: FOO"),
        (["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"], "NoneType"),
        (["--speculative-algorithm", "EAGLE3", "--speculative-eagle-topk", "1"], "AssertionError"),
        (["--speculative-draft-model-path", "/models/missing"], "'/models/missing'"),
    ],
)
def test_sglang_refuses(argv: list[str], text: str) -> None:
    with pytest.raises(StartError, match=text):
        sglang(*argv)


def test_sglang_unknown_flag() -> None:
    said = io.StringIO()
    with redirect_stderr(said), pytest.raises(SystemExit) as ended:
        sglang("--speculative-num-step-s", "3")
    assert ended.value.code == 2
    assert said.getvalue().endswith(
        "sglang serve: error: unrecognized arguments: --speculative-num-step-s 3\n"
    )


def test_vllm_arguments() -> None:
    args = parse(
        [
            *[
                "serve",
                "/models/t",
                "--served-model-name",
                "tiny",
                "--max_model_len",
                "32k",
                "-tp",
                "2",
            ],
            *["--gpu-memory-utilization=0.5", "--spec-method", "eagle3", "--spec-model", "/d"],
            *["--spec-tokens", "4", "--no-enable-prefix-caching"],
        ]
    )
    assert (args.draft_tokens, args.tp, args.max_model_len) == (4, 2, 32000)
    assert (args.memory_utilization, args.served_name, args.port) == (0.5, "tiny", 8000)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ('{"model": "/d"}', "`num_speculative_tokens` was not provided"),
        ('{"model": "/missing", "num_speculative_tokens": 3}', "Invalid repository ID"),
        ('{"modle": "/d"}', "modle\n  Unexpected keyword argument"),
    ],
)
def test_vllm_refuses(config: str, text: str) -> None:
    with pytest.raises(ConfigFailed, match=text):
        parse(["serve", "/models/t", "--speculative-config", config])


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--no-such-flag"], "vllm: error: unrecognized arguments: --no-such-flag\n"),
        (["-sc", "{method:eagle3}"], "argument --speculative-config/-sc: Value {method:eagle3}"),
    ],
)
def test_vllm_usage_errors(argv: list[str], text: str) -> None:
    said = io.StringIO()
    with redirect_stderr(said), pytest.raises(SystemExit) as ended:
        parse(["serve", "/models/t", *argv])
    assert ended.value.code == 2
    assert text in said.getvalue()


def test_requests_are_read() -> None:
    native = read_request("/generate", {"input_ids": [1, 2, 3], "sampling_params": {}})
    assert native is not None
    assert (native.prompt_length, native.max_tokens) == (3, 128)
    assert read_request("/generate", {"sampling_params": {}}) is None
    chat = read_request(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    )
    assert chat is not None
    assert chat.max_tokens == 5


def test_settings_name_an_unknown_fault() -> None:
    with pytest.raises(ValueError, match="unknown EAGLEMON_SIM_FAULT"):
        read_settings({"EAGLEMON_SIM_FAULT": "oops"})
    settings = read_settings({"CUDA_VISIBLE_DEVICES": "4,5", "EAGLEMON_SIM_ACCEPT": "0.5,0.4"})
    assert (settings.visible_gpus, settings.accept_rates) == ((4, 5), (0.5, 0.4))
