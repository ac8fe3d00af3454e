"""torch, imported in one place: without the warnings of its start, and missing in plain words."""

import warnings

from eaglemon.errors import UsageError

try:
    with warnings.catch_warnings():
        # torch works without NumPy and says at import that NumPy is not there.
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch
except ImportError as error:
    raise UsageError(
        "torch is not installed in this Python",
        hint="pip install 'eaglemon[draft]', or name a Python that has it with --python",
    ) from error


__all__ = ["require_device", "torch", "use_threads"]


def require_device(device: str) -> None:
    """Raise ``UsageError`` where torch cannot compute on ``device``: such as ``cuda:1``."""
    try:
        asked = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"no device {device!r}", hint="write cpu, cuda or cuda:1") from error
    if asked.type not in {"cpu", "cuda"}:
        raise UsageError(f"no device {device!r} here", hint="use --device cpu or cuda")
    if asked.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            raise UsageError(f"no device {device!r}: torch sees no GPU", hint="use --device cpu")
        if ":" in device and asked.index >= count:
            raise UsageError(
                f"no device {device!r}: torch sees {count} GPUs",
                hint=f"the last is cuda:{count - 1}",
            )


def use_threads(count: int | None) -> None:
    """Bound the CPU threads that torch computes with; ``None`` leaves torch's own choice."""
    if count is not None:
        torch.set_num_threads(count)
