"""What the simulation takes a model for: all it knows is the path."""

import re

_FAMILIES = (("kimi", "DeepseekV3"), ("deepseek", "DeepseekV3"), ("qwen3", "Qwen3"))
_SIZE = re.compile(r"(\d+(?:\.\d+)?)b\b", re.IGNORECASE)


def architecture_of(path: str) -> str:
    """Guess the class of a target from its path."""
    lowered = path.lower()
    family = next((name for mark, name in _FAMILIES if mark in lowered), "Llama")
    return f"{family}ForCausalLM"


def weight_gb(path: str) -> float:
    """Guess the GiB of a model's bfloat16 weights from its path."""
    sizes = _SIZE.findall(path)
    if sizes:
        return float(sizes[0]) * 2e9 / (1 << 30)
    return 600.0 if "kimi" in path.lower() else 15.0
