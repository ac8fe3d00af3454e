"""Pickled tensors (``pytorch_model.bin``, ``.ckpt``): plain tensors only, never other objects.

torch's ``weights_only`` unpickler refuses everything but tensors and containers. It is still used
only where the caller was told to trust the file.
"""

import ctypes
import gzip
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from eaglemon.draft.checkpoint import Reader, TensorInfo
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError

TYPE_NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16",
    torch.int32: "I32", torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float32: "F32", torch.float64: "F64",
}  # fmt: skip
"""torch types by the names that safetensors gives them."""


def load_pickle(path: Path) -> Mapping[str, Any]:
    """Read a pickled dictionary of tensors (also ``.gz``), or raise ``ConfigError``."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                content = torch.load(BytesIO(file.read()), map_location="cpu", weights_only=True)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        first = str(error).partition("\n")[0].partition(". ")[0]
        raise ConfigError(f"{path}: cannot be read: {first}") from error
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{path}: holds more than tensors, so it is not read", hint="save plain tensors only"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds {type(content).__name__}, expected named tensors")
    return content


def pickled_tensors(paths: Sequence[Path]) -> tuple[dict[str, TensorInfo], Reader]:
    """Load pickled weights whole, and return their infos and a reader like that of files."""
    held: dict[str, torch.Tensor] = {}
    infos: dict[str, TensorInfo] = {}
    for path in paths:
        for name, value in load_pickle(path).items():
            if not isinstance(value, torch.Tensor) or value.dtype not in TYPE_NAMES:
                continue
            held[name] = value.contiguous()
            infos[name] = TensorInfo(
                name=name,
                dtype=TYPE_NAMES[value.dtype],
                shape=tuple(value.shape),
                path=path,
                begin=0,
            )

    def read(info: TensorInfo, offset: int, count: int) -> bytearray:
        return bytearray(ctypes.string_at(held[info.name].data_ptr() + offset, count))

    return infos, read
