"""What the lines of a vLLM log mean: phases, figures, faults."""

import re

from eaglemon.core.diagnosis import REQUESTS_CUT
from eaglemon.core.lines import Line
from eaglemon.core.logs import LogRule
from eaglemon.core.phases import DecodeStats, LogReady, Phase, PhaseEntered, PhaseProgress
from eaglemon.core.speculation import AcceptCounts
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

_STAMP = re.compile(r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)")
_SHARDS = re.compile(r"shards: +\d+% Completed \| (\d{1,9})/(\d{1,9}) \[[^\]]*\]")
_CAPTURES = re.compile(
    r"Capturing (?:CUDA graphs?|cudagraphs)(?: shapes)?(?: \(([^)]*)\))?:"
    r"[^|]*\|[^|]*\| *(\d{1,9})/(\d{1,9}) \[[^\]]*\]"
)
# A number that goes on (``2.58.00``) is garbled, and no number.
_N = rb"(\d{1,15}(?:\.\d{1,25})?)(?!\.?\d)"
_LOAD = re.compile(
    rb"Avg prompt throughput.*?Avg generation throughput: %(n)b tokens/s, "
    rb"Running: (\d{1,15}) reqs,(?: Swapped: \d+ reqs,)?"
    rb"(?: Waiting: (\d{1,15}) reqs| Pending: (\d{1,15}) reqs)?"
    rb"(?:.*?KV cache usage: %(n)b%%)?" % {b"n": _N}
)
_WHOLE = re.compile(rb"[^\r\n]*")
_LENGTH = re.compile(rb"Mean acceptance length: " + _N)
_SHARE = rb"\d{1,15}(?:\.\d{1,25})?"
_POSITIONS = re.compile(
    rb"Per-position acceptance rate: (%(n)b(?:, %(n)b)*)(?!\.?\d)" % {b"n": _SHARE}
)
_RATE = re.compile(rb"raft acceptance rate: " + _N + rb"%")
_COUNTED = re.compile(rb"Accepted: (\d{1,15}) tokens, Drafted: (\d{1,15}) tokens")


def _stamp(line: Line) -> str | None:
    match = _STAMP.search(line.text, 0, 120)
    return match.group(1) if match else None


def _phase(
    phase: Phase,
    contains: str,
    *,
    stage: str | None = None,
    pattern: str | None = None,
    after: str | None = None,
) -> LogRule:
    def build(match: re.Match[str] | None, line: Line) -> PhaseEntered:
        return PhaseEntered(phase=phase, stage=stage, stamp=_stamp(line))

    return LogRule(
        name=f"{phase}: {contains}",
        contains=contains,
        pattern=re.compile(pattern) if pattern else None,
        build=build,
        after=after,
    )


def _shards(match: re.Match[str] | None, line: Line) -> PhaseProgress | None:
    if match is None:
        return None
    return PhaseProgress(
        phase=Phase.LOAD_TARGET, done=int(match.group(1)), total=int(match.group(2))
    )


def _captures(match: re.Match[str] | None, line: Line) -> PhaseProgress | None:
    if match is None:
        return None
    mode, done, total = match.groups()
    stage = None
    if mode:
        stage = "decode" if "decode, FULL" in mode else "mixed"
    return PhaseProgress(phase=Phase.GRAPH_CAPTURE, stage=stage, done=int(done), total=int(total))


def _ready(match: re.Match[str] | None, line: Line) -> LogReady:
    return LogReady(stamp=_stamp(line))


def _load(match: re.Match[bytes]) -> DecodeStats:
    throughput, running, waiting, pending, usage = match.groups()
    queued = waiting or pending
    return DecodeStats(
        tok_s=float(throughput),
        running=int(running),
        waiting=int(queued) if queued else None,
        kv_used_fraction=float(usage) / 100 if usage else None,
    )


def _acceptance(match: re.Match[bytes]) -> DecodeStats | None:
    text = match.group()
    length, positions, rate = _LENGTH.search(text), _POSITIONS.search(text), _RATE.search(text)
    if length is None and rate is None:
        return None
    shares = tuple(float(part) for part in positions.group(1).split(b", ")) if positions else ()
    return DecodeStats(
        accept_length=float(length.group(1)) if length else None,
        accept_rate=float(rate.group(1)) / 100 if rate else None,
        per_position=shares,
        counts=_counts(_COUNTED.search(text), shares),
    )


def _counts(match: re.Match[bytes] | None, shares: tuple[float, ...]) -> AcceptCounts | None:
    """Return the line's sums: a draft proposes as many tokens as there are positions."""
    if match is None or not shares:
        return None
    accepted, drafted = int(match.group(1)), int(match.group(2))
    drafts = drafted // len(shares)
    return AcceptCounts(
        steps=drafts,
        accepted=accepted,
        proposed=drafted,
        per_position=tuple(round(share * drafts) for share in shares),
    )


_PHASES: tuple[LogRule, ...] = (
    LogRule(name="shards", contains="Completed |", pattern=_SHARDS, build=_shards, bar=True),
    LogRule(name="captures", contains="Capturing ", pattern=_CAPTURES, build=_captures, bar=True),
    _phase(Phase.IMPORT, "non-default args"),
    _phase(
        Phase.DISTRIBUTED_INIT, "Initializing a", pattern=r"Initializing an? (?:V\d )?LLM engine"
    ),
    _phase(Phase.DISTRIBUTED_INIT, "distributed_init_method="),
    _phase(Phase.LOAD_TARGET, "Starting to load model"),
    _phase(Phase.LOAD_TARGET, "Loading model weights took"),
    _phase(Phase.LOAD_DRAFT, "Loading drafter model"),
    _phase(Phase.KV_CACHE, "Model loading took", stage="profile"),
    _phase(Phase.KV_CACHE, "Dynamo bytecode transform", stage="compile"),
    _phase(Phase.KV_CACHE, "Starting torch.compile", stage="compile"),
    _phase(Phase.KV_CACHE, "Warming up model for the compilation", stage="compile"),
    _phase(Phase.KV_CACHE, "Available KV cache memory", stage="allocate"),
    _phase(Phase.KV_CACHE, "KV cache size:", stage="allocate"),
    _phase(Phase.KV_CACHE, "Memory profiling takes", stage="profile"),
    _phase(Phase.KV_CACHE, "# GPU blocks:", stage="allocate"),
    _phase(
        Phase.GRAPH_CAPTURE,
        "Capturing ",
        pattern=r"Capturing (?:the model for CUDA graphs|cudagraphs for decoding)",
    ),
    _phase(Phase.HTTP_OPEN, "Starting vLLM server on"),
    _phase(Phase.HTTP_OPEN, "Starting vLLM API server"),
    _phase(Phase.SERVING, '"POST /v1/'),
    _phase(Phase.SERVING, "Dumping input data for"),
    # Only the loop that serves says this: a start-up fails with other words.
    _phase(Phase.SERVING, "EngineCore encountered a fatal error"),
    _phase(Phase.SERVING, "WorkerProc hit an exception", after=Phase.READY),
    LogRule(
        name="ready",
        contains="Application startup complete",
        build=_ready,
    ),
    LogRule(name="load", contains="Avg prompt throughput", frequent=_LOAD, read=_load),
    LogRule(name="acceptance", contains="SpecDecoding metrics", frequent=_WHOLE, read=_acceptance),
)

_FAULTS: tuple[LogRule, ...] = (
    fault("bad-flag", "error: unrecognized arguments: ", "correct the flag's name"),
    fault(
        "bad-speculative-config",
        "error: argument --speculative-config",
        "write the speculative config as JSON",
    ),
    fault("bad-flag-value", "error: argument -", "correct the flag's value", weight=SPECIFIC - 1),
    mark("speculative-config", "validation error for SpeculativeConfig"),
    fault(
        "bad-speculative-config",
        "validation error for SpeculativeConfig",
        "point the draft at a folder that holds a config, and check the keys",
        weight=GENERAL,
    ),
    fault(
        "bad-speculative-config",
        "A speculative model was provided, but",
        "set draft_tokens: one more than the tokens to propose",
    ),
    fault(
        "draft-path-missing",
        "Invalid repository ID or local directory",
        "name an existing folder or a repository as the draft",
        after="speculative-config",
    ),
    fault(
        "model-path-missing",
        "Invalid repository ID or local directory",
        "name an existing folder or a repository as the model",
        weight=SPECIFIC - 1,
    ),
    fault(
        "model-path-missing",
        "LocalEntryNotFoundError",
        "name an existing folder, or let the host reach the hub",
        pattern="LocalEntryNotFoundError: ",
        weight=SPECIFIC - 1,
    ),
    fault(
        "model-path-missing",
        "HFValidationError",
        "name an existing folder or a repository",
        pattern="HFValidationError: ",
        weight=SPECIFIC - 1,
    ),
    fault(
        "bad-flag-value",
        "Sleep mode is not supported",
        "leave enable-sleep-mode out on this platform",
    ),
    fault(
        "draft-target-mismatch",
        "Tried to load weights of size",
        "the draft's weights do not have the shapes its config says: use a matching draft",
        after=Phase.LOAD_DRAFT,
    ),
    fault(
        "draft-target-mismatch",
        "KeyError",
        "the draft's weights have names that this engine's draft model lacks: use a matching "
        "draft or another release",
        pattern=r"KeyError: 'layers\.",
        after=Phase.LOAD_DRAFT,
    ),
    fault(
        "target-not-supported-eagle3",
        "only supported for",
        "this release does not speculate for this target: use a newer one",
        pattern="[Ee]agle3 is only supported for",
    ),
    fault(
        "draft-tp-invalid",
        "draft_tensor_parallel_size",
        "use 1, or the target's tensor parallel size",
        pattern="ValueError.*draft_tensor_parallel_size|Value error.*draft_tensor_parallel_size",
    ),
    fault(
        "kv-cache-too-small",
        "To serve at least one request with",
        "lower max-model-len to what the line says, or give more memory",
    ),
    fault(
        "kv-cache-no-memory",
        "No available memory for the cache blocks",
        "raise gpu-memory-utilization, or use more GPUs",
    ),
    fault(
        "gpu-memory-in-use",
        "Free memory on device",
        "free the GPU, or lower gpu-memory-utilization",
    ),
    fault(
        "not-enough-gpus",
        "The number of required GPUs exceeds",
        "lower tensor-parallel-size to the visible GPUs",
        weight=SECONDARY - 15,
    ),
    fault(
        "jit-lock-wait",
        "waiting for baton release at",
        "another process builds the kernel, or left its lock: wait, or remove the lock file",
        weight=SECONDARY - 15,
    ),
    fault(
        "crash-at-first-request",
        "is invalid for input of size",
        "the captured layers are not three different ones, or do not fit the draft's fc",
        pattern=r"RuntimeError: shape '",
        after=Phase.READY,
    ),
    fault(
        "worker-killed",
        "died unexpectedly",
        "somebody killed the worker, or the host ran out of memory: read dmesg",
        pattern=r"Worker proc .* died unexpectedly|Engine core proc .* died unexpectedly",
        weight=GENERAL - 10,
    ),
    fault(
        "nccl-hang",
        "Watchdog caught collective operation timeout",
        "the ranks wait for each other: run again with NCCL_DEBUG=INFO",
        weight=SECONDARY,
    ),
    fault(
        "terminated-by-signal",
        "KeyboardInterrupt",
        "it was ended from outside",
        pattern="KeyboardInterrupt: terminated",
        weight=SECONDARY,
    ),
    fault(
        "terminated-by-signal",
        "[shutdown] API server: shutdown triggered",
        "it was ended from outside",
        weight=SECONDARY,
    ),
    note(REQUESTS_CUT, "Waiting for connections to close"),
    note("aux-layers", "Using Eagle3 auxiliary layers"),
    note("draft-context", "Overriding draft model max model len"),
    echo("Engine core initialization failed"),
    echo("EngineCore failed to start"),
    echo("EngineCore encountered a fatal error"),
    echo("EngineDeadError"),
    echo("Engine process failed to start"),
)

LOG_RULES: tuple[LogRule, ...] = (*_PHASES, *_FAULTS, *COMMON_RULES)
