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
        "torch is not installed", hint="install the extra: pip install 'eaglemon[draft]'"
    ) from error


__all__ = ["torch", "use_threads"]


def use_threads(count: int | None) -> None:
    """Bound the CPU threads that torch computes with; ``None`` leaves torch's own choice."""
    if count is not None:
        torch.set_num_threads(count)
