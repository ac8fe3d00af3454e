"""Results of probes as files: JSON with everything, CSV of the figures, JSONL of the requests."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from eaglemon.core.probe import ProbeProgress, Spread
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.files import write_bytes

SCHEMA_VERSION = 1
SUFFIXES = (".json", ".csv", ".jsonl")
_SPREADS = ("decode_tok_s", "ttft_s", "token_time_s", "chunk_gap_s")


class _Document(msgspec.Struct, kw_only=True):
    schema_version: int
    probes: tuple[ProbeProgress, ...]


def check_path(path: Path) -> None:
    """Raise ``UsageError`` for a name that no result can be written to."""
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"{path}: the ending says what is written", hint=f"use {', '.join(SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")


def write_probes(path: Path, probes: Sequence[ProbeProgress]) -> None:
    """Write results in the format of the ending; raises ``UsageError`` where it cannot."""
    check_path(path)
    texts = {".json": _json, ".csv": _csv, ".jsonl": _jsonl}
    write_bytes(path, texts[path.suffix](probes))


def read_probes(path: Path) -> tuple[ProbeProgress, ...]:
    """Return the results of a JSON file written before; raises ``ConfigError``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    try:
        document = msgspec.json.decode(data, type=_Document)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{path}: holds no results of probes: {error}",
            hint="write one with eaglemon probe ... --out FILE.json",
        ) from error
    if document.schema_version != SCHEMA_VERSION or not document.probes:
        raise ConfigError(f"{path}: holds no results that this version can read")
    return document.probes


def _json(probes: Sequence[ProbeProgress]) -> bytes:
    document = _Document(schema_version=SCHEMA_VERSION, probes=tuple(probes))
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _jsonl(probes: Sequence[ProbeProgress]) -> bytes:
    lines = []
    for probe in probes:
        about = {
            "server": probe.server_id,
            "workload": probe.plan.workload,
            "concurrency": probe.plan.concurrency,
        }
        lines += [
            msgspec.json.encode({**about, **msgspec.to_builtins(record)}) + b"\n"
            for record in probe.records
        ]
    return b"".join(lines)


def _csv(probes: Sequence[ProbeProgress]) -> bytes:
    rows = [_row(probe) for probe in probes]
    text = io.StringIO(newline="")
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _row(probe: ProbeProgress) -> Mapping[str, Any]:
    plan, figures, counts = probe.plan, probe.figures, probe.figures.counts
    row: dict[str, Any] = {
        "server": probe.server_id,
        "driver": probe.driver,
        "state": probe.state,
        "workload": plan.workload,
        "concurrency": plan.concurrency,
        "requests": plan.requests,
        "max_tokens": plan.max_tokens,
        "temperature": plan.temperature,
    }
    for name in ("ok", "failed", "cut", "cancelled", "duration_s", "completion_tokens"):
        row[name] = getattr(figures, name)
    for name in ("total_tok_s", "steady_tok_s", "steady_share", "user_tok_s"):
        row[name] = getattr(figures, name)
    for name in ("accept_length", "accept_source"):
        row[name] = getattr(figures, name)
    row["accept_rate"] = counts.accept_rate if counts else None
    row["verify_steps"] = counts.steps if counts else None
    for name in _SPREADS:
        spread: Spread | None = getattr(figures, name)
        for part in ("median", "p90", "p99"):
            row[f"{name}_{part}"] = getattr(spread, part) if spread else None
    for index, share in enumerate(figures.per_position, start=1):
        row[f"position_{index}"] = share
    row["foreign_tokens"] = probe.foreign_tokens
    row["notes"] = "; ".join(probe.notes)
    return row
