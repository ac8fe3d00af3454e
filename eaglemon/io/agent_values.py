"""The agent's messages as values: strict decoding, so that a malformed one never goes further."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from eaglemon.core.hosts import GpuProcess, HostFacts, HostSample
from eaglemon.core.redact import mask_command
from eaglemon.core.runs import (
    DamagedRun,
    HostCheck,
    PortListener,
    RunProcess,
    RunRecord,
    RunRequest,
    RunStatus,
)
from eaglemon.errors import AgentError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_Told = TypeVar("_Told", GpuProcess, RunProcess, PortListener)


def decode(value: object, kind: type[_T], what: str) -> _T:
    """Return ``value`` (of JSON) as a value of ``kind``; raises ``AgentError``."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise AgentError(f"the agent sent a malformed {what}: {error}", kind="protocol") from error


def decode_facts(hello: object) -> HostFacts:
    """Return the content of the agent's hello."""
    if not isinstance(hello, Mapping):
        raise AgentError("the agent sent no hello", kind="protocol")
    values = dict(hello)
    values["agent_protocol"] = values.pop("protocol", None)
    values["python_version"] = values.pop("python", None)
    return decode(values, HostFacts, "hello")


def decode_sample(item: Mapping[str, object]) -> HostSample:
    """Return the sample of a ``gpus.watch`` item."""
    sample = decode(item.get("sample"), HostSample, "GPU sample")
    return replace(sample, processes=mask_commands(sample.processes))


def decode_record(answer: Mapping[str, object]) -> RunRecord:
    """Return the record of a ``run.start`` answer."""
    return decode(answer.get("record"), RunRecord, "run record")


def decode_check(answer: Mapping[str, object]) -> HostCheck:
    """Return the answer of ``host.check``."""
    check = decode(answer, HostCheck, "host check")
    return replace(check, listeners=mask_commands(check.listeners))


def decode_runs(
    values: Iterable[object], damaged: Callable[[DamagedRun], None] | None = None
) -> tuple[RunStatus, ...]:
    """Return the runs that can be read; one damaged ``run.json`` must not hide the others."""
    runs = []
    for value in values:
        try:
            status = decode(value, RunStatus, "run status")
            runs.append(replace(status, processes=mask_commands(status.processes)))
        except AgentError as error:
            _log.warning("left out a run: %s", error)
            if damaged is not None:
                damaged(_damaged(value, error.message.rpartition(": ")[2]))
    return tuple(runs)


def mask_commands(told: Sequence[_Told]) -> tuple[_Told, ...]:
    """Return processes with the secrets of their command lines masked."""
    return tuple(
        replace(one, command=mask_command(one.command)) if one.command else one for one in told
    )


def _damaged(status: object, reason: str) -> DamagedRun:
    """Return what can be told of a run that cannot be read."""
    record = status.get("record") if isinstance(status, Mapping) else None
    known = record if isinstance(record, Mapping) else {}
    run_id = str(known.get("id") or "a run")
    log = str(known.get("log_path") or "")
    path = str(known.get("damaged") or log.replace("server.log", "run.json") or "run.json")
    said = known.get("damage")
    return DamagedRun(id=run_id, path=path, reason=str(said) if said else reason)


def encode_request(request: RunRequest) -> Mapping[str, object]:
    """Return a request to start a run as JSON values."""
    values: Mapping[str, object] = msgspec.to_builtins(request)
    return values


def take_number(values: Mapping[str, object], key: str) -> float:
    """Return a number of a message."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AgentError(f"the agent sent no {key}", kind="protocol")
    return value


def take_sequence(values: Mapping[str, object], key: str) -> Sequence[object]:
    """Return a list of a message."""
    value = values.get(key)
    if not isinstance(value, list):
        raise AgentError(f"the agent sent no {key}", kind="protocol")
    return value
