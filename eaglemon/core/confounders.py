"""Differences between arms that nobody asked for, from the arguments as the engine resolved them.

An engine fills in what a command line leaves open, and some of it depends on whether it
speculates: SGLang caps running requests at 48 only with speculation on, and picks its attention
backend by the shape of the draft tree. Such a difference may be what makes an arm fast or slow.
"""

import re
from collections.abc import Mapping, Sequence

from eaglemon.core.experiment import Arm, flag_differences

IMPORTANT: tuple[tuple[str, str], ...] = (
    ("max_running_requests", "how many requests run at once"),
    ("max_num_seqs", "how many requests run at once"),
    ("attention_backend", "which attention kernels run"),
    ("page_size", "the size of KV cache pages"),
    ("block_size", "the size of KV cache pages"),
    ("cuda_graph", "which batches run as CUDA graphs"),
    ("cudagraph", "which batches run as CUDA graphs"),
    ("enforce_eager", "whether CUDA graphs are used"),
    ("chunked_prefill", "how prompts are cut"),
    ("max_num_batched_tokens", "how many tokens a step takes"),
    ("max_num_scheduled_tokens", "how many tokens a step takes"),
    ("disable_overlap_schedule", "whether the scheduler overlaps with the GPU"),
    ("kv_cache_dtype", "the precision of the KV cache"),
    ("dtype", "the precision of the model"),
    ("quantization", "the precision of the model"),
    ("context_length", "the longest context"),
    ("max_model_len", "the longest context"),
    ("sampling_backend", "how tokens are sampled"),
    ("radix_cache", "whether prompts are cached"),
    ("prefix_caching", "whether prompts are cached"),
    ("version", "the engine's release"),
)
"""Parts of argument names that matter to speed, with what they change; the first match counts."""

_SHOWN = 48
_ASKED_FOR = re.compile(r"^(speculative|spec_|draft|env\.)")
_PLACE = re.compile(
    r"(port|host|pid|seed|path|served_model_name|model_tag|nccl|launch_command|random|api_key)"
)


def confounders(arms: Sequence[Arm], resolved: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the unasked-for differences from the first arm whose arguments are known, in words.

    ``resolved`` has the arguments of each arm by their names, empty where they are not known.
    """
    known = [index for index, values in enumerate(resolved) if values]
    lines: dict[str, None] = {}
    for index in known[1:]:
        first = known[0]
        changes = flag_differences(arms[first].profile, arms[index].profile)
        asked = {_plain(name) for name, _, _ in changes}
        for name in sorted(resolved[first].keys() & resolved[index].keys()):
            before, after = resolved[first][name], resolved[index][name]
            what = _importance(name)
            if before == after or what is None or _plain(name).rpartition(".")[2] in asked:
                continue
            line = (
                f"{name}: {_short(before)} for {arms[first].name}, "
                f"{_short(after)} for {arms[index].name} "
                f"({what}); nobody asked for it, set it in both"
            )
            lines[line] = None
    return tuple(lines)


def _importance(name: str) -> str | None:
    plain = _plain(name)
    if _ASKED_FOR.search(plain) or _PLACE.search(plain):
        return None
    return next((what for part, what in IMPORTANT if part in plain), None)


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."
