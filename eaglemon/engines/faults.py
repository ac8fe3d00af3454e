"""Log rules that both engines share: what Python, torch, CUDA and the sockets say on failure.

Weights order what a failing log says: the root names the cause, its consequences repeat it.
Newer Pythons colour the name and the message of an exception apart, so the text of a rule
(searched for in the raw bytes) is one of both; patterns see the line without colours.
"""

import re

from eaglemon.core.diagnosis import ECHO_CAUSE, GENERIC_CAUSE
from eaglemon.core.lines import Line
from eaglemon.core.logs import LogRule
from eaglemon.core.phases import FaultSeen, NoteSeen

SPECIFIC = 80
"""Names the cause and could mean nothing else."""
GENERAL = 60
"""Names the cause; a specific line may say more."""
SECONDARY = 40
"""A consequence that is often all there is."""
GENERIC = 10
"""An exception that no rule knows."""
ECHO = 1
"""Proves that it failed, says nothing of why."""

_EXCEPTION = re.compile(
    r"(?:^|[\])] )(?:\w+\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt)(?:: |:?$)"
)


def fault(
    cause: str,
    contains: str,
    remedy: str,
    *,
    pattern: str | None = None,
    weight: int = SPECIFIC,
    after: str | None = None,
) -> LogRule:
    """Return a rule by which a line with ``contains`` (and ``pattern``) names ``cause``."""

    def build(match: re.Match[str] | None, line: Line) -> FaultSeen:
        return FaultSeen(
            cause=cause,
            line=line.text,
            line_number=line.number,
            weight=weight,
            remedy=remedy,
        )

    return LogRule(
        name=f"{cause}: {contains}",
        contains=contains,
        pattern=re.compile(pattern) if pattern else None,
        build=build,
        after=after,
    )


def echo(contains: str) -> LogRule:
    """Return a rule for a line that only proves a failure."""
    return fault(ECHO_CAUSE, contains, "", weight=ECHO)


def note(slug: str, contains: str, *, pattern: str | None = None) -> LogRule:
    """Return a rule by which a line says something that is no failure."""

    def build(match: re.Match[str] | None, line: Line) -> NoteSeen:
        return NoteSeen(slug=slug, text=line.text)

    return LogRule(
        name=f"{slug}: {contains}",
        contains=contains,
        pattern=re.compile(pattern) if pattern else None,
        build=build,
    )


def mark(name: str, contains: str, *, pattern: str | None = None) -> LogRule:
    """Return a rule that remembers a line for the ``after`` of other rules and tells nothing."""
    return LogRule(
        name=f"mark {name}: {contains}",
        contains=contains,
        pattern=re.compile(pattern) if pattern else None,
        build=_nothing,
        marks=name,
    )


def _nothing(match: re.Match[str] | None, line: Line) -> None:
    return None


def _exception(match: re.Match[str] | None, line: Line) -> FaultSeen:
    return FaultSeen(cause=GENERIC_CAUSE, line=line.text, line_number=line.number, weight=GENERIC)


COMMON_RULES: tuple[LogRule, ...] = (
    fault(
        "cuda-oom",
        "out of memory",
        "free the GPU, or lower the memory fraction, the graph batch sizes or the context length",
        pattern=r"(?:CUDA|HIP|NPU|XPU)(?: error:)? out of memory",
        weight=GENERAL,
    ),
    fault(
        "illegal-memory-access",
        "illegal memory access was encountered",
        "try another attention backend or start without CUDA graphs; CUDA_LAUNCH_BLOCKING=1 "
        "names the kernel",
        weight=SPECIFIC - 10,
    ),
    fault(
        "port-in-use",
        "[Errno 98]",
        "stop what listens there or choose another port",
        pattern=r"\[Errno 98\].*address already in use|\[Errno 98\] Address already in use",
    ),
    fault(
        "missing-package",
        "ModuleNotFoundError",
        "start with the Python that has this package installed",
        weight=GENERAL,
    ),
    fault(
        "no-gpu-visible",
        "No accelerator (",
        "make a GPU visible: CUDA_VISIBLE_DEVICES, the driver, the container's --gpus",
        pattern=r"Error: No accelerator",
    ),
    fault(
        "no-gpu-visible",
        "No CUDA GPUs are available",
        "make a GPU visible: CUDA_VISIBLE_DEVICES, the driver, the container's --gpus",
    ),
    fault(
        "no-gpu-visible",
        "Failed to infer device type",
        "make a GPU visible: CUDA_VISIBLE_DEVICES, the driver, the container's --gpus",
    ),
    fault(
        "no-kernel-image",
        "kernel image is",
        "install a build of the engine for this GPU, or a newer driver",
        pattern="no kernel image is available|device kernel image is invalid",
    ),
    fault(
        "attention-backend-unsupported",
        "LLVM ERROR: ",
        "choose another attention backend for this GPU",
    ),
    fault(
        "attention-kernel-failed",
        "KVCache failed with error",
        "choose another attention backend for this GPU",
    ),
    fault(
        "missing-build-headers",
        "Python.h: No such file",
        "install the headers of the Python that runs the engine (python3-dev)",
    ),
    fault("gated-repo", "GatedRepoError", "ask for access to the model and set HF_TOKEN"),
    fault("gated-repo", "Cannot access gated repo", "ask for access to the model and set HF_TOKEN"),
    fault(
        "tokenizer-missing",
        "TypeError",
        "the model folder has no tokenizer files: name a tokenizer path",
        pattern="TypeError: not a string",
    ),
    fault(
        "shm-too-small",
        "Error while creating shared memory segment",
        "give the container more shared memory (--shm-size or --ipc=host)",
    ),
    fault("disk-full", "[Errno 28]", "free space on the disk that the line names"),
    fault(
        "nccl-error",
        "NCCL error",
        "run again with NCCL_DEBUG=INFO and read what it says",
        weight=SECONDARY,
    ),
    fault(
        "segfault",
        "Fatal Python error: Segmentation fault",
        "the engine's build may not fit this GPU: try another version",
    ),
    fault(
        "killed-no-traceback",
        "resource_tracker: There appear to be",
        "nothing was said before the end: look for the out-of-memory killer in dmesg",
        weight=GENERIC + 10,
    ),
    LogRule(
        name="exception",
        contains="Error",
        pattern=_EXCEPTION,
        build=_exception,
    ),
    LogRule(
        name="other exception",
        contains="Exception",
        pattern=_EXCEPTION,
        build=_exception,
    ),
)
