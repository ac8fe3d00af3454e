"""Writes safetensors files.

The ``safetensors`` package writes torch tensors through NumPy, which a server's Python may not
have; the format is a JSON header and the raw values.
"""

import ctypes
import json
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from eaglemon.draft.pickled import TYPE_NAMES
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError

_CHUNK_BYTES = 1 << 24


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> int:
    """Write named tensors, whole or not at all, and return the file's bytes.

    Raises ``ConfigError`` where the file cannot be written.
    """
    header: dict[str, dict[str, object]] = {}
    end = 0
    # Wider types first, as the format's own writer does, so that all are aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for name, value in ordered:
        begin, end = end, end + value.numel() * value.element_size()
        header[name] = {
            "dtype": TYPE_NAMES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [begin, end],
        }
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as out:
            fresh = Path(out.name)
            try:
                out.write(struct.pack("<Q", len(raw)) + raw)
                for _, value in ordered:
                    _write_values(out, value.detach().cpu().contiguous())
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="choose another place") from error
    return 8 + len(raw) + end


def _write_values(out: IO[bytes], value: torch.Tensor) -> None:
    size = value.numel() * value.element_size()
    for start in range(0, size, _CHUNK_BYTES):
        count = min(_CHUNK_BYTES, size - start)
        out.write(ctypes.string_at(value.data_ptr() + start, count))
