"""What a capture will cost, found out before a byte of the target is loaded."""

from pathlib import Path

from eaglemon.core.draft_views import CaptureOutlook
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.layout import target_body

_PROMPT_TOKENS = 128
"""A guess, for the size of the file alone."""
_MANY_LAYERS, _LIKELY_LAYERS = 24, 16
_VALUE_BYTES = 2


def outlook(target: Path, *, prompts: int, new_tokens: int, device: str = "cpu") -> CaptureOutlook:
    """Return memory needed and free, and the size of the hidden states; raises ``ConfigError``."""
    checkpoint = open_checkpoint(target)
    body = target_body(checkpoint.config)
    layers = int(body.get("num_hidden_layers") or 0) + 1
    kept = layers if layers <= _MANY_LAYERS else _LIKELY_LAYERS
    tokens = prompts * (_PROMPT_TOKENS + new_tokens)
    return CaptureOutlook(
        weights_bytes=sum(info.size_bytes for info in checkpoint.tensors.values()),
        free_bytes=_free_bytes(device),
        hidden_bytes=tokens * kept * int(body.get("hidden_size") or 0) * _VALUE_BYTES,
        prompts=prompts,
        new_tokens=new_tokens,
        device=device,
    )


def _free_bytes(device: str) -> int | None:
    if device != "cpu":
        from eaglemon.draft.torch_lib import torch  # noqa: PLC0415 -- a GPU is asked through it

        return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None  # Not on Linux.
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
