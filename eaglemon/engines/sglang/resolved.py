"""SGLang's arguments as it resolved them, from ``/server_info`` (0.5.16 to 0.5.23)."""

import json
from collections.abc import Mapping

from eaglemon.core.profiles import Profile
from eaglemon.core.redact import is_secret
from eaglemon.engines.likeness import comparable, differing

_LEFT_OUT = frozenset({"internal_states", "status", "kv_events", "startup_time", "launch_command"})
"""State, not arguments; the launch command has the API key in clear."""
_SAME_ALGORITHM = {"NEXTN": "EAGLE"}
"""What SGLang renames by itself."""


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


def unlike(profile: Profile, told: Mapping[str, str]) -> list[str]:
    """Return what of the resolved arguments ``told`` is not as the command line says, in words."""
    speculation, flags = profile.speculation, profile.flags
    algorithm = speculation.algorithm.upper() if speculation is not None else "none"
    open_ended = speculation is None and ("config" in flags or "speculative-algorithm" in flags)
    draft_tokens = speculation.draft_tokens if speculation is not None else None
    if speculation is not None and speculation.topk == 1:
        draft_tokens = None  # SGLang makes it one more than the steps.
    return differing(
        (
            ("port", profile.port, told.get("port")),
            ("model", *comparable(profile.model, told.get("model_path"))),
            (
                "speculation",
                None if open_ended else _SAME_ALGORITHM.get(algorithm, algorithm),
                told.get("speculative_algorithm"),
            ),
            ("draft", *comparable(profile.draft, told.get("speculative_draft_model_path"))),
            ("steps", speculation and speculation.steps, told.get("speculative_num_steps")),
            ("topk", speculation and speculation.topk, told.get("speculative_eagle_topk")),
            ("draft tokens", draft_tokens, told.get("speculative_num_draft_tokens")),
            ("random seed", flags.get("random-seed"), told.get("random_seed")),
        )
    )


def _take(found: dict[str, str], name: str, value: object) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not is_secret(str(key)):
                _take(found, f"{name}.{key}", part)
    elif isinstance(value, str):
        found[name] = value
    else:
        found[name] = "none" if value is None else json.dumps(value)
