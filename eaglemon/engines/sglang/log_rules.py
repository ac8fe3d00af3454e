"""What the lines of an SGLang log mean: phases, figures, faults."""

import re
from typing import Final

from eaglemon.core.diagnosis import REQUESTS_CUT
from eaglemon.core.lines import Line
from eaglemon.core.logs import LogRule
from eaglemon.core.phases import (
    DecodeStats,
    FaultSeen,
    LogReady,
    Phase,
    PhaseEntered,
    PhaseProgress,
)
from eaglemon.engines.faults import (
    COMMON_RULES,
    GENERAL,
    SECONDARY,
    SPECIFIC,
    echo,
    fault,
    mark,
    note,
)

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)")
_SHARDS = re.compile(r"shards: +\d+% Completed \| (\d{1,9})/(\d{1,9}) \[[^\]]*\]")
_CAPTURES = re.compile(r"Capturing [^|]*\|[^|]*\| *(\d{1,9})/(\d{1,9}) \[[^\]]*\]")
_CAPTURE_BEGIN = re.compile(
    r"Capture (?:(target|draft) )?(?:(prefill|verify|decode|extend) )?"
    r"(?:CUDA|cuda|npu|cpu) graph begin"
)
# A number that goes on (``2.58.00``) is garbled, and no number.
_N: Final = rb"(\d{1,15}(?:\.\d{1,25})?)(?!\.?\d)"
_DECODE = re.compile(
    # The first alternative is the common line of today, in full: lazy gaps cost double the time.
    rb"Decode batch, #running-req: (\d{1,15}), #token: \d+, token usage: %(n)b, "
    rb"(?:accept len: %(n)b, accept rate: %(n)b, )?cuda graph: \w+, "
    rb"gen throughput \(token/s\): %(n)b, #queue-req: (\d{1,15})(?!\d)"
    rb"|Decode batch[^#]*#running-req: (\d{1,15}),.*? usage: %(n)b"
    rb"(?:.*?accept len: %(n)b(?:, accept rate: %(n)b)?)?"
    rb".*? throughput \(token/s\): %(n)b(?:, #queue-req: (\d{1,15})(?!\d))?" % {b"n": _N}
)
_FRACTION = re.compile(r"mem[_-]fraction[_-]static=(\d{0,9}\.?\d{1,25})(?!\.?\d)")


def _stamp(line: Line) -> str | None:
    match = _STAMP.match(line.text)
    return match.group(1) if match else None


def _phase(
    phase: Phase,
    contains: str,
    *,
    pattern: str | None = None,
    again: Phase | None = None,
) -> LogRule:
    def build(match: re.Match[str] | None, line: Line) -> PhaseEntered:
        return PhaseEntered(phase=phase, stamp=_stamp(line))

    return LogRule(
        name=f"{phase}: {contains}",
        contains=contains,
        pattern=re.compile(pattern) if pattern else None,
        build=build,
        again=again,
    )


def _bar(phase: Phase, contains: str, pattern: re.Pattern[str]) -> LogRule:
    def build(match: re.Match[str] | None, line: Line) -> PhaseProgress | None:
        if match is None:
            return None
        return PhaseProgress(phase=phase, done=int(match.group(1)), total=int(match.group(2)))

    return LogRule(
        name=f"{phase} bar: {contains}", contains=contains, pattern=pattern, build=build, bar=True
    )


def _capture(match: re.Match[str] | None, line: Line) -> PhaseEntered | None:
    if match is None:
        return None
    model, kind = match.groups()
    # Releases before 0.5.16 name neither the target nor what its graphs are for.
    stage = (
        f"{model or 'target'}-{kind}"
        if kind
        else ("draft-decode" if model == "draft" else "target")
    )
    return PhaseEntered(phase=Phase.GRAPH_CAPTURE, stage=stage, stamp=_stamp(line))


def _ready(match: re.Match[str] | None, line: Line) -> LogReady:
    return LogReady(stamp=_stamp(line))


def _decode(match: re.Match[bytes]) -> DecodeStats:
    groups = match.groups()
    running, usage, length, rate, throughput, queued = groups[:6] if groups[0] else groups[6:]
    return DecodeStats(
        accept_length=float(length) if length else None,
        accept_rate=float(rate) if rate else None,
        tok_s=float(throughput),
        running=int(running),
        waiting=int(queued) if queued else None,
        kv_used_fraction=float(usage),
    )


def _no_memory(match: re.Match[str] | None, line: Line) -> FaultSeen:
    found = _FRACTION.search(line.text)
    fraction = float(found.group(1)) if found else None
    if fraction is not None and fraction >= 0.9:
        remedy = (
            f"the fraction is {fraction} already: use more GPUs, a smaller quantisation or a "
            "smaller draft"
        )
    else:
        remedy = "raise mem-fraction-static: it covers the weights of target and draft too"
    return FaultSeen(
        cause="kv-cache-no-memory",
        line=line.text,
        line_number=line.number,
        weight=SPECIFIC,
        remedy=remedy,
    )


_NO_MEMORY_TEXTS: Final = (
    "Not enough memory. Please try to increase",
    "Loaded weights leave no GPU memory",
)

_PHASES: tuple[LogRule, ...] = (
    _bar(Phase.LOAD_TARGET, "Completed |", _SHARDS),
    _bar(Phase.GRAPH_CAPTURE, "Capturing ", _CAPTURES),
    _phase(Phase.IMPORT, "server_args="),
    _phase(Phase.DISTRIBUTED_INIT, "Init torch distributed begin"),
    _phase(Phase.DISTRIBUTED_INIT, "Init parallel begin"),
    _phase(Phase.LOAD_TARGET, "Load weight begin", again=Phase.LOAD_DRAFT),
    _phase(Phase.KV_CACHE, "KV Cache is allocated"),
    _phase(Phase.KV_CACHE, "Memory pool end"),
    _phase(Phase.KV_CACHE, "Not enough memory. Please try to increase"),
    LogRule(name="capture", contains="Capture ", pattern=_CAPTURE_BEGIN, build=_capture),
    _phase(Phase.HTTP_OPEN, "Uvicorn running on"),
    _phase(Phase.WARM_UP, '"GET /model_info'),
    _phase(Phase.WARM_UP, '"GET /get_model_info'),
    _phase(Phase.WARM_UP, "Initialization failed. warmup error"),
    # Ranks of a second host print no line while they serve: only a stack shows their loop.
    _phase(Phase.SERVING, "event_loop_", pattern=r"in event_loop_\w*disagg"),
    LogRule(name="ready", contains="The server is fired up", build=_ready),
    LogRule(name="decode", contains="Decode batch", frequent=_DECODE, read=_decode),
)

_FAULTS: tuple[LogRule, ...] = (
    fault(
        "bad-flag",
        "unrecognized arguments: ",
        "correct the flag's name",
        pattern=r"error: unrecognized arguments: ",
    ),
    fault("bad-flag", "error: ambiguous option", "write the flag's whole name"),
    fault("bad-flag", "error: the following arguments are required", "give the named flag"),
    fault("bad-flag-value", "error: argument -", "correct the flag's value"),
    mark("draft-config", "speculative_hook.py"),
    fault(
        "draft-path-missing",
        "Repo id must ",
        "name an existing folder or a repository as the draft",
        pattern=r"OSError|HFValidationError",
        after="draft-config",
    ),
    fault(
        "model-path-missing",
        "Repo id must ",
        "name an existing folder or a repository as the model",
        pattern=r"OSError|HFValidationError",
        weight=SPECIFIC - 1,
    ),
    *(
        LogRule(name=f"kv-cache-no-memory: {text}", contains=text, build=_no_memory)
        for text in _NO_MEMORY_TEXTS
    ),
    mark("aux-capture", "aux_hidden_states.append(hidden_states + residual)"),
    fault(
        "aux-layer-id-unsupported",
        "TypeError",
        "this release cannot capture the embedding (layer id -1) of this model: choose other "
        "layer ids in the draft's config, or a newer release",
        pattern=r"TypeError: unsupported operand type\(s\) for \+",
        after="aux-capture",
    ),
    fault(
        "draft-target-mismatch",
        "shapes cannot be multiplied",
        "the draft's fc does not fit the captured layers: check layer ids and hidden sizes",
        after=Phase.LOAD_DRAFT,
    ),
    fault(
        "draft-path-missing",
        "AttributeError",
        "name the draft: the target was loaded a second time as its own",
        pattern="set_embed|hot_token_id",
    ),
    fault(
        "quantisation-mismatch",
        "is not supported for quantization method",
        "leave the quantization to the checkpoint, or set the dtype that the method takes",
    ),
    fault(
        "context-too-long",
        "is greater than the derived context_length",
        "lower context-length to what the draft takes",
        pattern="ValueError",
    ),
    fault(
        "target-not-supported-eagle3",
        "are not supported for now. Supported architectures",
        "this release does not know the architecture: use a newer one",
    ),
    fault(
        "warmup-failed",
        "Initialization failed. warmup error",
        "the model loaded, but its first request failed: read the error above",
        weight=GENERAL - 10,
    ),
    fault(
        "cuda-graph-capture-failed",
        "Capture cuda graph failed",
        "lower cuda-graph-max-bs-decode or mem-fraction-static, or switch the graphs off",
        weight=SECONDARY,
    ),
    fault(
        "cuda-graph-capture-failed",
        "Fail when using backend",
        "switch the prefill graphs off: cuda-graph-backend-prefill disabled",
        weight=SECONDARY,
    ),
    fault(
        "watchdog-timeout",
        "watchdog timeout (",
        "a step never ended: look for a deadlock between ranks (NCCL) in the stacks above",
    ),
    fault(
        "killed-oom",
        "died during initialization (exit code: -9)",
        "the host ran out of memory, or somebody killed it: read dmesg",
        weight=GENERAL,
    ),
    fault(
        "segfault",
        "died during initialization (exit code: -11)",
        "the engine's build may not fit this GPU: try another version",
        weight=GENERAL,
    ),
    fault(
        "killed-by-signal",
        "died during initialization (exit code: -",
        "look for the first error of another rank above",
        weight=SECONDARY,
    ),
    fault(
        "worker-killed",
        "crashed with exit code -9",
        "somebody killed the worker, or the host ran out of memory: read dmesg",
        weight=GENERAL,
    ),
    fault(
        "segfault",
        "crashed with exit code -11",
        "the engine's build may not fit this GPU: try another version",
        weight=GENERAL,
    ),
    fault(
        "killed-by-signal",
        "crashed with exit code -",
        "look for the first error of another rank above",
        weight=SECONDARY,
    ),
    fault(
        "worker-killed",
        "Connection reset by peer",
        "a rank of this host is gone and said nothing: look for the out-of-memory killer in dmesg",
        pattern=r"\[127\.0\.0\.1\]|\[::1\]",
        weight=SECONDARY + 1,
    ),
    fault(
        "peer-rank-died",
        "Connection reset by peer",
        "a rank of another host went away: its log has the cause",
        weight=SECONDARY,
    ),
    fault(
        "peer-rank-died",
        "Connection closed by peer",
        "a rank went away: its log has the cause",
        weight=SECONDARY,
    ),
    fault(
        "worker-not-responding",
        "Health check failed. Server couldn't get a response",
        "the scheduler does not answer: take its stack with py-spy, then restart",
        weight=SECONDARY - 15,
    ),
    fault(
        "terminated-by-signal", "SIGTERM received.", "it was ended from outside", weight=SECONDARY
    ),
    fault(
        "terminated-by-signal",
        "INFO:     Shutting down",
        "it was ended from outside",
        weight=SECONDARY,
    ),
    note(
        REQUESTS_CUT,
        "Remaining number of requests",
        pattern=r"Remaining number of requests [1-9]",
    ),
    note("requests-capped", "Max running requests is reset to"),
    note("draft-tokens-adjusted", "speculative_num_draft_tokens is adjusted"),
    echo("Received sigquit from a child"),
    echo("SIGQUIT received."),
    echo("Scheduler hit an exception"),
    echo("Initialization failed. Please see the error"),
)

LOG_RULES: tuple[LogRule, ...] = (*_PHASES, *_FAULTS, *COMMON_RULES)
