"""Checkpoints on disk: names, shapes and single tensors, read without torch.

A safetensors file is 8 bytes of header length (little endian), a JSON header, then the raw values
(https://huggingface.co/docs/safetensors/index#format). Only headers are read to list tensors, and
only the bytes of the rows asked for to read one, so a 500 GB target costs no memory.
"""

import json
import math
import struct
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eaglemon.errors import ConfigError

ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
        "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
        "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
    }
)  # fmt: skip
"""Bytes per element by the names that safetensors gives types."""
INDEX_NAME = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000
_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor of a checkpoint, not read."""

    name: str
    dtype: str
    """As safetensors writes it: ``BF16``, ``I64``."""
    shape: tuple[int, ...]
    path: Path
    """File that holds it."""
    begin: int
    """First byte of its values in the file."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its values."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


Reader = Callable[[TensorInfo, int, int], bytearray]
"""Reads ``count`` bytes of a tensor from ``offset`` within its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A folder with ``config.json`` and weights."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    reader: Reader = field(repr=False)

    def rows(self, name: str, start: int = 0, stop: int | None = None) -> bytearray:
        """Read the bytes of rows ``start`` to ``stop`` of a tensor (first dimension).

        Raises ``ConfigError`` when the checkpoint has no such tensor.
        """
        info = self.info(name)
        if not info.shape:
            return self.reader(info, 0, info.size_bytes)
        last = info.shape[0] if stop is None else min(stop, info.shape[0])
        row_bytes = math.prod(info.shape[1:]) * ITEM_BYTES[info.dtype]
        return self.reader(info, start * row_bytes, max(0, last - start) * row_bytes)

    def integers(self, name: str) -> list[int]:
        """Read a tensor of integers or booleans as a list; raises ``ConfigError``."""
        info = self.info(name)
        code = _INTEGERS.get(info.dtype)
        if code is None:
            raise ConfigError(f"{info.path}: {name} is {info.dtype}, expected integers")
        values = array(code)
        values.frombytes(bytes(self.rows(name)))
        return values.tolist()

    def info(self, name: str) -> TensorInfo:
        """Return a tensor's name, type and shape; raises ``ConfigError`` when it is missing."""
        info = self.tensors.get(name)
        if info is None:
            raise ConfigError(
                f"{self.folder}: no tensor {name}",
                hint="eaglemon draft inspect lists what is there",
            )
        return info


def open_checkpoint(folder: Path, *, trust_pickle: bool = False) -> Checkpoint:
    """Open a model folder; reads headers only.

    Raises ``ConfigError`` for a missing, truncated or foreign file. ``pytorch_model.bin`` is read
    only with ``trust_pickle`` (and torch), as plain tensors.
    """
    config = read_json(folder / "config.json")
    index = folder / INDEX_NAME
    single = folder / "model.safetensors"
    if index.is_file():
        return Checkpoint(
            folder=folder, config=config, tensors=_sharded(index), reader=read_from_file
        )
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if files:
        tensors = {info.name: info for file in files for info in read_header(file)}
        return Checkpoint(folder=folder, config=config, tensors=tensors, reader=read_from_file)
    pickles = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")])
    if not pickles:
        raise ConfigError(f"{folder}: no *.safetensors", hint="give the folder of a checkpoint")
    if not trust_pickle:
        raise ConfigError(
            f"{pickles[0]}: a pickle can run code when it is read",
            hint="convert it to safetensors, or pass --trust-pickle if you trust where it is from",
        )
    # Imported here because only pickles need torch to be listed.
    from eaglemon.draft.pickled import pickled_tensors  # noqa: PLC0415

    infos, reader = pickled_tensors(pickles)
    return Checkpoint(folder=folder, config=config, tensors=infos, reader=reader)


def read_json(path: Path) -> Mapping[str, Any]:
    """Read a JSON object; raises ``ConfigError`` that names the file and the line."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no such file", hint="give the folder of a checkpoint"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text") from error
    except json.JSONDecodeError as error:
        raise _no_json(path, error) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return content


def _no_json(path: Path, error: json.JSONDecodeError) -> ConfigError:
    if error.doc.startswith("\ufeff"):
        return ConfigError(
            f"{path}: starts with a byte order mark, which is no JSON",
            hint="save it as UTF-8 without one; engines refuse it too",
        )
    lines = error.doc.splitlines()
    line = lines[error.lineno - 1].strip() if error.lineno <= len(lines) else ""
    comment = line.startswith(("//", "/*", "#")) or error.doc[error.pos :].startswith("/")
    return ConfigError(
        f"{path}:{error.lineno}: {error.msg.lower()}",
        hint="JSON has no comments: take them out" if comment else "",
    )


def read_header(path: Path) -> list[TensorInfo]:
    """List the tensors of a safetensors file; raises ``ConfigError`` when it is none, or cut."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= min(_MAX_HEADER_BYTES, max(0, size - 8)):
                raise _foreign(path, prefix)
            raw = file.read(length)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        header = json.loads(raw)
    except ValueError as error:
        raise _foreign(path, prefix) from error
    if not isinstance(header, dict):
        raise _foreign(path, prefix)
    return [
        _entry(path, name, entry, data=8 + length, size=size)
        for name, entry in header.items()
        if name != "__metadata__"
    ]


def read_from_file(info: TensorInfo, offset: int, count: int) -> bytearray:
    """Read bytes of a tensor from its safetensors file; raises ``ConfigError``."""
    try:
        with info.path.open("rb") as file:
            file.seek(info.begin + offset)
            data = bytearray(file.read(count))
    except OSError as error:
        raise ConfigError(f"{info.path}: {error.strerror}") from error
    if len(data) != count:
        raise ConfigError(f"{info.path}: cut within {info.name}", hint="copy the file again")
    return data


def _entry(path: Path, name: str, entry: object, *, data: int, size: int) -> TensorInfo:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise ConfigError(f"{path}: bad header entry of {name}", hint="copy the file again")
    if dtype not in ITEM_BYTES:
        raise ConfigError(f"{path}: {name} has the unknown type {dtype}")
    if not all(isinstance(length, int) and length >= 0 for length in shape):
        raise ConfigError(f"{path}: {name} has the shape {shape}")
    info = TensorInfo(name=name, dtype=dtype, shape=tuple(shape), path=path, begin=data + begin)
    if begin < 0 or end - begin != info.size_bytes:
        raise ConfigError(f"{path}: the header of {name} contradicts its shape {info.shape}")
    if data + end > size:
        raise ConfigError(
            f"{path}: truncated: {name} ends at byte {data + end:,}, the file at {size:,}",
            hint="copy the file again",
        )
    return info


def _sharded(index: Path) -> dict[str, TensorInfo]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise ConfigError(f"{index}: no weight_map")
    found: dict[str, TensorInfo] = {}
    for shard in sorted({str(place) for place in places.values()}):
        path = index.parent / shard
        if not path.is_file() or path.parent != index.parent:
            raise ConfigError(f"{index}: the shard {shard} is missing", hint="copy the file again")
        found |= {info.name: info for info in read_header(path)}
    missing = sorted(set(places) - set(found))
    if missing:
        raise ConfigError(f"{index}: {missing[0]} is in none of its shards")
    return found


def _foreign(path: Path, prefix: bytes) -> ConfigError:
    # A header's length can begin with the byte of a pickle; it goes on with zeros.
    pickled = prefix[:1] == b"\x80" and any(prefix[3:8])
    if prefix[:2] == b"PK" or pickled:
        return ConfigError(f"{path}: a pickle with the name of a safetensors file")
    if prefix == b"version ":
        return ConfigError(
            f"{path}: a Git LFS pointer, not the weights", hint="run git lfs pull there"
        )
    return ConfigError(f"{path}: not a safetensors file", hint="copy the file again")
