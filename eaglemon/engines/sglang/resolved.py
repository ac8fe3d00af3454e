"""SGLang's arguments as it resolved them, from ``/server_info`` (0.5.16 to 0.5.23)."""

import json
from collections.abc import Mapping

from eaglemon.core.redact import is_secret

_LEFT_OUT = frozenset({"internal_states", "status", "kv_events", "startup_time", "launch_command"})
"""State, not arguments; the launch command has the API key in clear."""


def resolved_arguments(info: object) -> dict[str, str]:
    """Return the arguments by name, without secrets; empty when ``info`` is no answer.

    Tables are told part by part (``cuda_graph_config.decode.bs``); what is not set is ``none``.
    """
    if not isinstance(info, Mapping):
        return {}
    found: dict[str, str] = {}
    for name, value in info.items():
        if name not in _LEFT_OUT and not is_secret(str(name)):
            _take(found, str(name), value)
    return found


def _take(found: dict[str, str], name: str, value: object) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            _take(found, f"{name}.{key}", part)
    elif isinstance(value, str):
        found[name] = value
    else:
        found[name] = "none" if value is None else json.dumps(value)
