"""What a remedy comes to as a setting of the profile that failed."""

import pytest

from eaglemon.core.profiles import FlagValue, Profile
from eaglemon.engines.changes import changes_for

FREE = "free the GPU, or lower the memory fraction, the graph batch sizes or the context length"


def profile(**flags: FlagValue) -> Profile:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return Profile(name="p", engine="sglang", model="/m", port=30000, flags=named)


@pytest.mark.parametrize(
    ("cause", "remedy", "line", "flags", "changes"),
    [
        ("port-in-use", "stop what listens there or choose another port", "", {}, ["port=30001"]),
        ("cuda-oom", FREE, "", {"mem_fraction_static": 0.85}, ["mem-fraction-static=0.8"]),
        ("cuda-oom", FREE, "", {"gpu_memory_utilization": "0.9"}, ["gpu-memory-utilization=0.85"]),
        ("cuda-oom", FREE, "", {"cuda_graph_max_bs": 33}, ["cuda-graph-max-bs=16"]),
        ("cuda-oom", FREE, "", {"cuda_graph_max_bs": 1}, []),
        ("cuda-oom", FREE, "", {"mem_fraction_static": "auto"}, []),
        ("cuda-oom", FREE, "", {"mem_fraction_static": True}, []),
        ("cuda-oom", FREE, "", {"mem_fraction_static": 0.3}, []),
        (
            "kv-cache-no-memory",
            "raise mem-fraction-static: it covers the weights of target and draft too",
            "",
            {"mem_fraction_static": 0.7},
            ["mem-fraction-static=0.75"],
        ),
        (
            "context-too-long",
            "lower context-length to what the draft takes",
            "context_length (40960) is greater than the derived context_length (2048).",
            {"context_length": 40960},
            ["context-length=2048"],
        ),
        (
            "kv-cache-too-small",
            "lower max-model-len to what the line says, or give more memory",
            "the estimated maximum model length is 7104. Try increasing",
            {"max_model_len": 40960},
            ["max-model-len=7104"],
        ),
        (
            "cuda-graph-capture-failed",
            "switch the prefill graphs off: cuda-graph-backend-prefill disabled",
            "",
            {},
            ["cuda-graph-backend-prefill=disabled"],
        ),
        ("segfault", "the engine's build may not fit this GPU: try another version", "", {}, []),
    ],
)
def test_advice_becomes_a_setting(
    cause: str, remedy: str, line: str, flags: dict[str, FlagValue], changes: list[str]
) -> None:
    assert changes_for(cause, remedy, line, profile(**flags)) == tuple(changes)
