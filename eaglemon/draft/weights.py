"""Tensors of a checkpoint as torch has them: only the rows asked for are read."""

from eaglemon.draft.checkpoint import Checkpoint
from eaglemon.draft.pickled import TYPE_NAMES
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError

_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}


def read_tensor(
    checkpoint: Checkpoint,
    name: str,
    *,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    start: int = 0,
    stop: int | None = None,
) -> torch.Tensor:
    """Read a tensor, or its rows ``start`` to ``stop``, as ``dtype`` (its own when ``None``).

    Raises ``ConfigError`` when it is missing, of a type that cannot be computed with, or not
    finite.
    """
    info = checkpoint.info(name)
    kind = _TYPES.get(info.dtype)
    if kind is None:
        raise ConfigError(
            f"{info.path}: {name} is quantised ({info.dtype})",
            hint="the draft doctor reads BF16, F16 and F32 weights",
        )
    data = checkpoint.rows(name, start, stop)
    shape = list(info.shape)
    if shape:
        last = shape[0] if stop is None else min(stop, shape[0])
        shape[0] = max(0, last - start)
    values = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
    values = values.reshape(shape)
    if kind.is_floating_point and not bool(torch.isfinite(values).all()):
        raise ConfigError(
            f"{info.path}: {name} has values that are not finite", hint="the checkpoint is broken"
        )
    return values.to(device=device, dtype=dtype or kind)


def read_rows(
    checkpoint: Checkpoint, name: str, rows: torch.Tensor, *, dtype: torch.dtype, device: str
) -> torch.Tensor:
    """Read the rows of a matrix that ``rows`` [any shape] names: [*rows, width].

    Each distinct row is read once, so an embedding of gigabytes costs what the text uses.
    """
    distinct, places = torch.unique(rows.cpu(), return_inverse=True)
    info = checkpoint.info(name)
    if distinct.numel() and int(distinct[0]) < 0:
        raise ConfigError(
            f"the text has the token {int(distinct[0])}", hint="input_ids must not be negative"
        )
    if len(info.shape) != 2 or (distinct.numel() and int(distinct[-1]) >= info.shape[0]):
        raise ConfigError(
            f"{info.path}: {name} is {list(info.shape)}, too small for token {int(distinct[-1])}",
            hint="the hidden states are of another target",
        )
    pieces = [
        read_tensor(checkpoint, name, dtype=dtype, start=int(row), stop=int(row) + 1)
        for row in distinct.tolist()
    ]
    return torch.cat(pieces)[places].to(device)
