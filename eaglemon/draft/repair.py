"""Repairs of a draft: shown first, written atomically beside a backup, undone by one call.

A backup is a hard link to the old file where the file system allows it, so that it costs neither
time nor space; the new file replaces the name in one step. ``.eaglemon-repairs.json`` in the
draft's folder lists the repairs, newest last. Needs no torch: weights are moved as bytes.
"""

import difflib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eaglemon.core.draft_views import RepairView
from eaglemon.core.wiring import ConfigChange, TargetShape
from eaglemon.draft.checkpoint import ITEM_BYTES, Checkpoint, TensorInfo, read_json
from eaglemon.draft.layout import (
    captured_layers,
    roles_of,
    settings_in,
    target_body,
    target_shape,
)
from eaglemon.engines.wiring import wiring_of
from eaglemon.errors import ConfigError, UsageError

JOURNAL = ".eaglemon-repairs.json"
_ROWS = 1024
_ASSUMED_LAYERS = 10_000
"""Of a target that is not at hand: no id is too high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Bytes to overwrite in a file."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRepair:
    """One file to change: a new content, or patches of the old one."""

    path: Path
    content: bytes | None = None
    patches: tuple[Patch, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A repair, not carried out yet."""

    folder: Path
    title: str
    difference: tuple[str, ...]
    """Lines to show a person; empty where nothing would change."""
    files: tuple[FileRepair, ...]
    warnings: tuple[str, ...] = ()


def plan_layers(folder: Path, change: ConfigChange) -> Repair:
    """Plan to write a configuration; raises ``UsageError`` where the engine cannot capture it."""
    if change.ids is None:
        raise UsageError(
            "no layer ids make this engine capture these layers",
            hint="; ".join(change.warnings) or "choose another engine or version",
        )
    path = folder / "config.json"
    try:
        old = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    new = json.dumps(change.config, indent=2, ensure_ascii=False) + "\n"
    same = json.loads(old) == change.config
    lines = () if same else tuple(_difference(path.name, old, new))
    return Repair(
        folder=folder,
        title=f"{change.key} = {list(change.ids)}",
        difference=lines,
        files=() if same else (FileRepair(path=path, content=new.encode()),),
        warnings=change.warnings,
    )


def plan_permutation(draft: Checkpoint, order: Sequence[int]) -> Repair:
    """Plan to reorder the slots of ``fc``: its new block i is the old block ``order[i]``.

    Norms of single slots move along. Raises ``UsageError`` for an order that is none.
    """
    settings = settings_in(draft)
    captured = captured_layers(draft, settings)
    if sorted(order) != list(range(captured)):
        wanted = ",".join(str(place) for place in range(captured))
        raise UsageError(
            f"{','.join(map(str, order))} is no order of {captured} slots",
            hint=f"give each of {wanted} once",
        )
    if list(order) == sorted(order):
        return Repair(folder=draft.folder, title="the order is as it was", difference=(), files=())
    roles = roles_of(draft.tensors)
    patches: dict[Path, list[Patch]] = {}
    lines: list[str] = []
    for role in ("fc.weight", "input_norm.weight"):
        if role in roles:
            info = draft.info(roles[role])
            _require_file(info)
            patches.setdefault(info.path, []).extend(_block_patches(draft, info, order))
            blocks = " ".join(str(place) for place in order)
            lines.append(
                f"{info.path.name}: {info.name} {list(info.shape)} {info.dtype}: column blocks "
                f"{' '.join(map(str, range(captured)))} -> {blocks}"
            )
    for slot, source in enumerate(order):
        name = roles.get(f"fc_norm.{slot}.weight")
        origin = roles.get(f"fc_norm.{source}.weight")
        if name is not None and origin is not None and slot != source:
            info = draft.info(name)
            data = bytes(draft.rows(origin))
            patches.setdefault(info.path, []).append(Patch(offset=info.begin, data=data))
            lines.append(f"{info.path.name}: {name} <- {origin}")
    return Repair(
        folder=draft.folder,
        title=f"slots of fc in the order {','.join(map(str, order))}",
        difference=tuple(lines),
        files=tuple(FileRepair(path=path, patches=tuple(found)) for path, found in patches.items()),
        warnings=("layer ids in config.json stay as they are: set them for the new order",),
    )


def plan_slots(
    folder: Path,
    *,
    slots: Sequence[int],
    engine: str,
    engine_version: str | None = None,
    target: Path | None = None,
    target_type: str | None = None,
) -> Repair:
    """Plan to make an engine capture ``slots`` (``hs`` indexes), by the rules for the target.

    Raises ``ConfigError`` for files that cannot be read and ``UsageError`` where no ids do it.
    """
    config = read_json(folder / "config.json")
    shape = None
    warnings: tuple[str, ...] = ()
    if target is not None:
        shape = target_shape(target_body(read_json(target / "config.json")))
    if shape is None:
        kind = target_type or str(config.get("model_type", "llama"))
        shape = TargetShape(layers=_ASSUMED_LAYERS, model_type=kind)
        if target_type is None:
            warnings = (f"no --target: the rule for targets of type {kind!r} is used",)
    repair = plan_layers(
        folder, wiring_of(engine).wire(config, tuple(slots), shape, engine_version)
    )
    return replace(repair, warnings=(*warnings, *repair.warnings))


def offer(repair: Repair, shown: Sequence[str] | None = None) -> RepairView:
    """Return a repair to be shown, carried out if it is the one whose difference was ``shown``.

    Raises ``UsageError`` where the files have changed since.
    """
    if shown is not None and tuple(shown) != repair.difference:
        raise UsageError(
            f"{repair.folder}: the draft has changed meanwhile, nothing was written",
            hint="look at the difference again",
        )
    backups = carry_out(repair) if shown is not None and repair.difference else ()
    return RepairView(
        folder=str(repair.folder),
        title=repair.title,
        difference=repair.difference,
        warnings=repair.warnings,
        backups=backups,
    )


def carry_out(repair: Repair) -> tuple[str, ...]:
    """Write a repair, and return the names of its backups; raises ``ConfigError``.

    Either all files are replaced and the journal names them, or an error says what was not.
    """
    journal = _journal(repair.folder)
    number = 1 + max((int(entry.get("number", 0)) for entry in journal), default=0)
    replaced: list[dict[str, str]] = []
    try:
        for file in repair.files:
            fresh = _written(file)
            backup = file.path.with_name(f"{file.path.name}.before-{number}")
            _back_up(file.path, backup)
            fresh.replace(file.path)
            replaced.append({"name": file.path.name, "backup": backup.name})
            # After each file, so that an interrupted repair can be undone too.
            entry = {"number": number, "title": repair.title, "files": replaced}
            _write_journal(repair.folder, [*journal, entry])
    except OSError as error:
        raise ConfigError(
            f"{error.filename or repair.folder}: {error.strerror}",
            hint="undo with 'eaglemon draft undo' if files were replaced before"
            if replaced
            else "",
        ) from error
    return tuple(file["backup"] for file in replaced)


def undo(folder: Path) -> str:
    """Undo the newest repair of a draft, and return its title; raises ``UsageError``."""
    journal = _journal(folder)
    if not journal:
        raise UsageError(f"{folder}: no repair to undo")
    newest = journal[-1]
    places = [(folder / file["name"], folder / file["backup"]) for file in newest["files"]]
    lost = [backup for _, backup in places if not backup.is_file()]
    if lost:
        raise ConfigError(f"{lost[0]}: the backup is gone", hint="copy the draft again")
    try:
        for path, backup in places:
            backup.replace(path)
        _write_journal(folder, journal[:-1])
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return str(newest["title"])


def _block_patches(draft: Checkpoint, info: TensorInfo, order: Sequence[int]) -> list[Patch]:
    """Rearrange equal parts of the last dimension, some rows at a time."""
    matrix = len(info.shape) == 2
    rows = info.shape[0] if matrix else 1
    row_bytes = info.shape[-1] * ITEM_BYTES[info.dtype]
    block = row_bytes // len(order)
    patches = []
    for start in range(0, rows, _ROWS):
        stop = min(start + _ROWS, rows)
        data = draft.reader(info, start * row_bytes, (stop - start) * row_bytes)
        moved = b"".join(
            bytes(data[row + place * block : row + (place + 1) * block])
            for row in range(0, len(data), row_bytes)
            for place in order
        )
        patches.append(Patch(offset=info.begin + start * row_bytes, data=moved))
    return patches


def _require_file(info: TensorInfo) -> None:
    if info.path.suffix != ".safetensors":
        raise UsageError(
            f"{info.path}: only safetensors files are repaired", hint="convert the draft first"
        )


def _written(file: FileRepair) -> Path:
    """Write the new file beside the old one, on disk before it takes the name."""
    handle, name = tempfile.mkstemp(prefix=f".{file.path.name}.", dir=file.path.parent)
    fresh = Path(name)
    try:
        with os.fdopen(handle, "r+b") as out:
            if file.content is not None:
                out.write(file.content)
            else:
                with file.path.open("rb") as old:
                    shutil.copyfileobj(old, out, 1 << 22)
                for patch in file.patches:
                    out.seek(patch.offset)
                    out.write(patch.data)
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(file.path, fresh)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def _back_up(path: Path, backup: Path) -> None:
    try:
        backup.hardlink_to(path)
    except FileExistsError:
        raise
    except OSError:
        # Some network file systems have no hard links.
        shutil.copy2(path, backup)


def _journal(folder: Path) -> list[dict[str, Any]]:
    path = folder / JOURNAL
    if not path.is_file():
        return []
    repairs = read_json(path).get("repairs")
    if not isinstance(repairs, list):
        raise ConfigError(f"{path}: no list of repairs", hint="remove it to start anew")
    return repairs


def _write_journal(folder: Path, repairs: Sequence[Mapping[str, Any]]) -> None:
    path = folder / JOURNAL
    fresh = folder / f"{JOURNAL}.new"
    fresh.write_text(json.dumps({"repairs": list(repairs)}, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


def _difference(name: str, old: str, new: str) -> list[str]:
    return list(
        difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"{name} (now)", f"{name} (repaired)", lineterm=""
        )
    )
