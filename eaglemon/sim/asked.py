"""What clients ask the simulated engines for, in the terms all paths share."""

import json
from dataclasses import dataclass

from eaglemon.sim.text import prompt_tokens

Body = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One generation request."""

    prompt: str
    prompt_length: int
    model: str
    max_tokens: int
    temperature: float
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_meta: bool
    """SGLang's ``return_meta_info`` of the chat path."""


def read_request(path: str, body: Body, *, default_tokens: int = 128) -> Asked | None:
    """Return what the body asks for; ``None`` when it holds nothing to complete."""
    options = body
    if path == "/generate":
        found = body.get("sampling_params")
        options = found if isinstance(found, dict) else {}
        prompt = body.get("text") or body.get("input_ids")
        limit = options.get("max_new_tokens", default_tokens)
    elif path.endswith("/chat/completions"):
        prompt = body.get("messages")
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or default_tokens
    else:
        prompt = body.get("prompt")
        limit = body.get("max_tokens", 16)
    if not prompt:
        return None
    text, length = _prompt(prompt)
    streaming = body.get("stream_options")
    usage = streaming if isinstance(streaming, dict) else {}
    return Asked(
        prompt=text,
        prompt_length=length,
        model=str(body.get("model", "")),
        max_tokens=_integer(limit, default_tokens),
        temperature=_float(options.get("temperature"), 1.0),
        ignore_eos=bool(options.get("ignore_eos")),
        stream=bool(body.get("stream")),
        include_usage=bool(usage.get("include_usage")),
        continuous_usage=bool(usage.get("continuous_usage_stats")),
        return_meta=bool(body.get("return_meta_info")),
    )


def _prompt(prompt: object) -> tuple[str, int]:
    if isinstance(prompt, str):
        return prompt, prompt_tokens(prompt)
    if isinstance(prompt, list) and all(isinstance(part, int) for part in prompt):
        return json.dumps(prompt), len(prompt)
    if isinstance(prompt, list) and all(isinstance(part, dict) for part in prompt):
        text = "\n".join(str(part.get("content", "")) for part in prompt)
        return text, prompt_tokens(text) + 4 * len(prompt)
    text = json.dumps(prompt)
    return text, prompt_tokens(text)


def _integer(value: object, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default


def _float(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
