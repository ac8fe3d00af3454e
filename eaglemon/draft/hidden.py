"""Files of captured hidden states, in the four forms that trainers and ``capture`` write.

* plain safetensors: ``input_ids`` [B, T], ``hidden_states`` [B, L+1, T, H], slot 0 the embedding;
  optional ``loss_mask`` [B, T], ``lengths`` [B] of padded sequences, ``layers`` [S] where only some
  layers are held, in place of L+1, and ``target_argmax`` [B, T], the target's first choices;
* speculators ``hs_*.safetensors``: ``token_ids`` [T], ``hidden_states`` [T, A+1, H], the last
  before the final norm;
* SpecForge ``.ckpt`` (pickles): ``input_ids`` [T], ``loss_mask`` [T], ``aux_hidden_state``
  [1, T, A*H], ``hidden_state`` [1, T, H] after the final norm;
* a folder of any of these.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eaglemon.draft.checkpoint import (
    ITEM_BYTES,
    Checkpoint,
    TensorInfo,
    read_from_file,
    read_header,
)
from eaglemon.draft.pickled import TYPE_NAMES, load_pickle
from eaglemon.draft.torch_lib import torch
from eaglemon.draft.weights import read_tensor
from eaglemon.errors import ConfigError

DEFAULT_MAX_TOKENS = 8192
_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
_ALL_BELOW = 24
_PICKLES = (".ckpt", ".ckpt.gz", ".pt", ".pth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One sequence."""

    ids: torch.Tensor
    """[T] int64."""
    features: Mapping[str, torch.Tensor]
    """[T, H] each: ``hs[i]`` where the layer is known, else ``aux[i]``, in the file's order."""
    last: torch.Tensor | None
    """[T, H], output of the last block; ``None`` where the file does not have it."""
    last_normed: bool | None
    """Whether ``last`` has been through the final norm; ``None`` where it must be found out."""
    mask: torch.Tensor
    """[T] bool: positions that count (the assistant's)."""
    choices: torch.Tensor | None = None
    """[T] int64: the target's first choice after each position, where the file tells it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the features."""
        return sum(value.numel() * value.element_size() for value in self.features.values())


def read_records(
    path: Path,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    trust_pickle: bool = False,
    keep: Collection[int] = (),
) -> list[Record]:
    """Read sequences until ``max_tokens`` tokens are reached; raises ``ConfigError``.

    Only what is returned is read, so a file of any size costs bounded memory. Of files with more
    than 24 layers only those are read that ``candidates`` names, and ``keep``.
    """
    files = _files(path)
    records: list[Record] = []
    left = max_tokens
    for file in files:
        for record in _records_of(file, left, keep, trust_pickle=trust_pickle):
            records.append(record)
            left -= record.ids.numel()
        if left < 4:
            break
    if not records:
        raise ConfigError(f"{path}: no sequence of at least 4 tokens")
    if not any(bool(record.mask.any()) for record in records):
        raise ConfigError(
            f"{path}: loss_mask marks no position", hint="mark those of the target's answers"
        )
    names = list(records[0].features)
    if any(list(record.features) != names for record in records):
        raise ConfigError(f"{path}: its files differ in the layers captured")
    return records


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"{path}: no such file or folder")
    found = [
        file
        for file in path.rglob("*")
        if file.name.endswith((".safetensors", *_PICKLES)) and file.is_file()
    ]
    if not found:
        raise ConfigError(f"{path}: no *.safetensors or *.ckpt in it")
    return sorted(found, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    # data_10 comes after data_9.
    return [(int(word or 0), text) for text, word in re.findall(r"(\D*)(\d*)", str(path))]


def candidates(slots: int, keep: Collection[int] = ()) -> list[int]:
    """Return which of ``slots`` layers a draft may have been trained on.

    All of a few; else the low, middle and high ones that trainers choose, ``keep``, and the last.
    """
    if slots <= _ALL_BELOW:
        return list(range(slots))
    last, middle = slots - 1, (slots - 1) // 2
    near = {*range(5), *range(middle - 2, middle + 3), *range(last - 5, last + 1), *keep}
    return sorted(slot for slot in near if 0 <= slot <= last)


def _records_of(
    path: Path, max_tokens: int, keep: Collection[int], *, trust_pickle: bool
) -> Iterator[Record]:
    if path.name.endswith(_PICKLES):
        if not trust_pickle:
            raise ConfigError(
                f"{path}: a pickle can run code when it is read",
                hint="pass --trust-pickle if you trust where it is from",
            )
        yield _specforge(path, max_tokens)
        return
    tensors = {info.name: info for info in read_header(path)}
    file = Checkpoint(folder=path.parent, config={}, tensors=tensors, reader=read_from_file)
    hidden = tensors.get("hidden_states")
    if hidden is None or hidden.dtype not in _TYPES or not _TYPES[hidden.dtype].is_floating_point:
        raise ConfigError(
            f"{path}: no floating-point tensor hidden_states",
            hint="expected hidden_states with input_ids [B,T] or token_ids [T]",
        )
    if "token_ids" in tensors:
        yield _speculators(path, file, hidden, max_tokens)
        return
    yield from _plain(path, file, hidden, max_tokens, keep)


def _plain(
    path: Path, file: Checkpoint, hidden: TensorInfo, max_tokens: int, keep: Collection[int]
) -> Iterator[Record]:
    if "input_ids" not in file.tensors:
        raise ConfigError(
            f"{path}: no tensor input_ids", hint="expected [B, T] beside the hidden states"
        )
    shape = file.info("input_ids").shape
    batch, slots, length, width = _dimensions(path, hidden, 4)
    if shape != (batch, length):
        raise ConfigError(
            f"{path}: input_ids is {list(shape)} and hidden_states {list(hidden.shape)}",
            hint="expected [B, T] and [B, L+1, T, H]",
        )
    if "target_argmax" in file.tensors and file.info("target_argmax").shape != shape:
        raise ConfigError(
            f"{path}: target_argmax is {list(file.info('target_argmax').shape)}",
            hint="expected [B, T] as input_ids, or none",
        )
    if not batch or not slots:
        raise ConfigError(
            f"{path}: hidden_states is {list(hidden.shape)}: it holds no sequence or no layer",
            hint="capture over at least one prompt",
        )
    layers = file.integers("layers") if "layers" in file.tensors else list(range(slots))
    lengths = file.integers("lengths") if "lengths" in file.tensors else [length] * batch
    if len(layers) != slots or len(lengths) != batch or max(lengths) > length:
        raise ConfigError(f"{path}: layers or lengths do not fit hidden_states")
    wanted = set(candidates(max(layers) + 1, keep))
    left = max_tokens
    for row in range(batch):
        taken = min(lengths[row], left)
        if taken < 4:
            return
        left -= taken
        ids = read_tensor(file, "input_ids", start=row, stop=row + 1)[0, :taken].long()
        mask = torch.ones(taken, dtype=torch.bool)
        if "loss_mask" in file.tensors:
            mask = read_tensor(file, "loss_mask", start=row, stop=row + 1)[0, :taken].bool()
        choices = None
        if "target_argmax" in file.tensors:
            choices = read_tensor(file, "target_argmax", start=row, stop=row + 1)[0, :taken].long()
        features = {
            f"hs[{layer}]": _span(hidden, (row * slots + slot) * length * width, taken, width)
            for slot, layer in enumerate(layers)
            if layer in wanted
        }
        yield Record(
            ids=ids,
            features=features,
            last=features[f"hs[{max(layers)}]"],
            last_normed=None,
            mask=mask,
            choices=choices,
        )


def _speculators(path: Path, file: Checkpoint, hidden: TensorInfo, max_tokens: int) -> Record:
    length, slots, width = _dimensions(path, hidden, 3)
    ids = read_tensor(file, "token_ids").long().flatten()
    if ids.numel() != length or slots < 2:
        raise ConfigError(
            f"{path}: {ids.numel()} token_ids for hidden_states {list(hidden.shape)}",
            hint="expected [T] and [T, A+1, H]",
        )
    taken = min(length, max_tokens)
    block = _span(hidden, 0, taken * slots, width).view(taken, slots, width)
    features = {f"aux[{slot}]": block[:, slot] for slot in range(slots - 1)}
    mask = torch.ones(taken, dtype=torch.bool)
    if "loss_mask" in file.tensors:
        mask = read_tensor(file, "loss_mask").bool().flatten()[:taken]
    return Record(
        ids=ids[:taken],
        features={**features, "last": block[:, -1]},
        last=block[:, -1],
        last_normed=False,
        mask=mask,
    )


def _specforge(path: Path, max_tokens: int) -> Record:
    content = load_pickle(path)
    tensors = {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    missing = {"input_ids", "aux_hidden_state"} - set(tensors)
    if missing:
        raise ConfigError(f"{path}: no tensor {min(missing)}", hint="expected a SpecForge record")
    ids = tensors["input_ids"].flatten().long()[:max_tokens]
    taken = ids.numel()
    joined = tensors["aux_hidden_state"].reshape(-1, tensors["aux_hidden_state"].shape[-1])
    last = tensors.get("hidden_state")
    width = last.shape[-1] if last is not None else joined.shape[-1] // 3
    if joined.shape[0] < taken or not width or joined.shape[-1] % width:
        raise ConfigError(
            f"{path}: aux_hidden_state is {list(tensors['aux_hidden_state'].shape)} for "
            f"{taken} tokens and hidden size {width}"
        )
    pieces = torch.split(joined[:taken], width, dim=-1)
    mask = tensors.get("loss_mask")
    record = Record(
        ids=ids,
        features={f"aux[{slot}]": piece for slot, piece in enumerate(pieces)},
        last=None if last is None else last.reshape(-1, width)[:taken],
        last_normed=True,
        mask=(
            torch.ones(taken, dtype=torch.bool) if mask is None else mask.flatten()[:taken].bool()
        ),
    )
    _finite(path, "aux_hidden_state", joined)
    return record


def _dimensions(path: Path, hidden: TensorInfo, count: int) -> tuple[int, ...]:
    if len(hidden.shape) != count:
        wanted = "[B, L+1, T, H]" if count == 4 else "[T, A+1, H]"
        raise ConfigError(f"{path}: hidden_states is {list(hidden.shape)}, expected {wanted}")
    return hidden.shape


def _span(info: TensorInfo, first: int, rows: int, width: int) -> torch.Tensor:
    """Read ``rows`` rows of ``width`` values that start at value ``first``."""
    size = ITEM_BYTES[info.dtype]
    data = read_from_file(info, first * size, rows * width * size)
    values = torch.frombuffer(data, dtype=_TYPES[info.dtype]).view(rows, width)
    _finite(info.path, info.name, values)
    return values


def _finite(path: Path, name: str, values: torch.Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise ConfigError(
            f"{path}: {name} has values that are not finite",
            hint="capture again; trainers skip such sequences",
        )
