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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from eaglemon.core.draft_views import RepairView
from eaglemon.core.units import plural
from eaglemon.core.wiring import ConfigChange, TargetShape, release_rules
from eaglemon.draft.checkpoint import ITEM_BYTES, Checkpoint, TensorInfo, open_checkpoint, read_json
from eaglemon.draft.journal import (
    Entry,
    Replaced,
    digest_of,
    read_journal,
    write_journal,
)
from eaglemon.draft.layout import (
    captured_layers,
    roles_of,
    settings_in,
    target_body,
    target_shape,
)
from eaglemon.engines.wiring import wiring_of
from eaglemon.errors import ConfigError, UsageError

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
    warnings = _require_slots(folder, slots)
    if target is not None:
        shape = target_shape(target_body(read_json(target / "config.json")))
    _require_layers(slots, shape)
    if shape is None:
        kind = target_type or str(config.get("model_type", "llama"))
        shape = TargetShape(layers=_ASSUMED_LAYERS, model_type=kind)
        if target_type is None:
            warnings = (
                *warnings,
                f"no --target: the rule for targets of type {kind!r} is used",
            )
    rules = wiring_of(engine)
    version, doubt = release_rules(rules, engine_version)
    if doubt:
        warnings = (*warnings, doubt)
    repair = plan_layers(folder, rules.wire(config, tuple(slots), shape, version))
    return replace(repair, warnings=(*warnings, *repair.warnings))


def _require_slots(folder: Path, slots: Sequence[int]) -> tuple[str, ...]:
    """Refuse slots that ``fc`` has no room for; return a warning where nothing tells."""
    if len(set(slots)) < len(slots):
        raise UsageError(
            f"--hs {_joined(slots)} names a layer twice, and no engine captures one twice",
            hint="name each layer once; 'eaglemon draft check' finds those it was trained on",
        )
    try:
        draft = open_checkpoint(folder)
        joined = captured_layers(draft, settings_in(draft))
    except ConfigError as error:
        return (f"not checked how many layers fc joins: {error.message}",)
    if len(slots) != joined:
        raise UsageError(
            f"--hs {_joined(slots)} names {plural(len(slots), 'layer')}, fc of this draft joins "
            f"{joined}",
            hint=f"name {joined}, as in --hs {_joined(range(0, 2 * joined, 2))}",
        )
    return ()


def _require_layers(slots: Sequence[int], shape: TargetShape | None) -> None:
    """Refuse slots that the target does not have."""
    highest = _ASSUMED_LAYERS if shape is None else shape.layers
    wrong = [slot for slot in slots if not 0 <= slot <= highest]
    if wrong:
        until = "the target's number of layers" if shape is None else str(shape.layers)
        raise UsageError(
            f"--hs {_joined(slots)}: there is no hs[{wrong[0]}]",
            hint=f"hs goes from 0 (the embedding) to {until} (the output of the last layer)",
        )


def _joined(slots: Sequence[int]) -> str:
    return ",".join(map(str, slots))


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
    journal = read_journal(repair.folder)
    number = _free_number(repair, journal)
    replaced: list[Replaced] = []
    try:
        for file in repair.files:
            fresh = _written(file)
            backup = file.path.with_name(f"{file.path.name}.before-{number}")
            try:
                digest = digest_of(fresh)
                _back_up(file.path, backup)
                replaced.append(Replaced(name=file.path.name, backup=backup.name, sha256=digest))
                # Before each file, so that an interrupted repair can be undone too.
                entry = Entry(number=number, title=repair.title, files=tuple(replaced))
                write_journal(repair.folder, [*journal, entry])
                fresh.replace(file.path)
            finally:
                fresh.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or repair.folder}: {error.strerror}",
            hint="undo with 'eaglemon draft undo' if files were replaced before"
            if replaced
            else "",
        ) from error
    return tuple(file.backup for file in replaced)


def undo(folder: Path) -> RepairView:
    """Undo the newest repair of a draft, and return it; raises ``UsageError``.

    A file that is no longer what the repair wrote is kept as ``NAME.undone-N``, and a warning
    says so.
    """
    journal = read_journal(folder)
    if not journal:
        raise UsageError(f"{folder}: no repair to undo")
    newest = journal[-1]
    lost = [file.backup for file in newest.files if not (folder / file.backup).is_file()]
    if lost:
        raise ConfigError(f"{folder / lost[0]}: the backup is gone", hint="copy the draft again")
    kept = []
    try:
        for place, file in enumerate(newest.files):
            path = folder / file.name
            if path.is_file() and not _unchanged(path, folder / file.backup, file.sha256):
                aside = _free_name(path)
                _back_up(path, aside)
                kept.append(f"{file.name} was changed after the repair: kept as {aside.name}")
            (folder / file.backup).replace(path)
            left = newest.files[place + 1 :]
            rest = (replace(newest, files=left),) if left else ()
            write_journal(folder, [*journal[:-1], *rest])
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return RepairView(folder=str(folder), title=newest.title, warnings=tuple(kept))


def _free_number(repair: Repair, journal: Sequence[Entry]) -> int:
    """Return a number that no repair and no leftover backup has."""
    number = 1 + max((entry.number for entry in journal), default=0)
    while any(
        os.path.lexists(file.path.with_name(f"{file.path.name}.before-{number}"))
        for file in repair.files
    ):
        number += 1
    return number


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.undone-{number}")):
        number += 1
    return aside


def _unchanged(path: Path, backup: Path, written: str | None) -> bool:
    """Tell whether a file is what the repair wrote, or has never been replaced."""
    return path.samefile(backup) or (written is not None and digest_of(path) == written)


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


def _difference(name: str, old: str, new: str) -> list[str]:
    return list(
        difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"{name} (now)", f"{name} (repaired)", lineterm=""
        )
    )
