"""Captures a target's hidden states with Hugging Face transformers, over its own continuation.

A served draft meets the target's own tokens, so each prompt is continued greedily, and positions
whose next token is part of the continuation are marked as those that count.
"""

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eaglemon.core.draft_views import Captured, CheckStage
from eaglemon.draft.hidden import candidates
from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import require_device, torch, use_threads
from eaglemon.errors import ConfigError, UsageError

_LEAST_TOKENS = 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def capture(
    target: Path,
    prompts: Sequence[str],
    out: Path,
    *,
    new_tokens: int = 192,
    layers: Sequence[int] = (),
    chat: bool = False,
    dtype: str = "bfloat16",
    device: str = "cpu",
    threads: int | None = None,
    told: Callable[[CheckStage], None] = lambda _: None,
) -> Captured:
    """Continue each prompt and write plain safetensors that ``hidden.read_records`` reads.

    ``layers`` are ``hs`` indexes; by default all of a shallow target, the likely ones of a deep
    one. ``chat`` puts each prompt into the tokenizer's chat template; ``told`` is called before the
    target is loaded and before each prompt. Raises ``UsageError`` without
    transformers, ``ConfigError`` for a target that it cannot load.
    """
    require_device(device)
    use_threads(threads)
    told(CheckStage(doing="loading the target"))
    model, tokenizer = _load(target, DTYPES[dtype], device)
    rows: list[_Row] = []
    room = _positions(model)
    short = long = cut = 0
    for number, prompt in enumerate(prompts):
        told(CheckStage(doing="capturing", done=number, of=len(prompts)))
        ids = _tokens(tokenizer, prompt, chat=chat)
        left = new_tokens if room is None else min(new_tokens, room - len(ids))
        short += len(ids) < _LEAST_TOKENS
        long += left < 1
        if len(ids) < _LEAST_TOKENS or left < 1:
            continue
        cut += left < new_tokens
        rows.append(_run(model, ids, left, layers, device))
    if not rows and long:
        raise UsageError(
            f"no prompt leaves room to answer in the target's {room} positions",
            hint="give shorter prompts",
        )
    if not rows:
        raise UsageError(
            f"no prompt of at least {_LEAST_TOKENS} tokens",
            hint=f"give longer prompts, or see whether the tokenizer of {target} is whole",
        )
    notes = (
        (short, f"prompts left out: under {_LEAST_TOKENS} tokens"),
        (long, f"prompts left out: no room to answer in the target's {room} positions"),
        (cut, f"answers end at the target's {room} positions"),
    )
    return _write(out, rows, tuple(f"{count} {what}" for count, what in notes if count))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    ids: torch.Tensor
    """[T]."""
    states: torch.Tensor
    """[S, T, H] bfloat16."""
    choices: torch.Tensor
    """[T] int64: the target's first choice after each position, by its own head."""
    scored: torch.Tensor
    """[T] bool."""
    layers: tuple[int, ...]


def _load(target: Path, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            "transformers is not installed in this Python",
            hint="pip install transformers, or name a Python that has it with --python",
        ) from error
    if not (target / "config.json").is_file():
        raise ConfigError(f"{target}: no config.json", hint="give the folder of the target")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(target, local_files_only=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            target, dtype=dtype, local_files_only=True
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(f"{target}: transformers cannot load it: {first}") from error
    return model.to(device).eval(), tokenizer


def _positions(model: Any) -> int | None:
    """Return how many tokens the target was made for; beyond them it is no model of anything."""
    told = model.config.get_text_config().to_dict().get("max_position_embeddings")
    return told if isinstance(told, int) else None


def _tokens(tokenizer: Any, prompt: str, *, chat: bool) -> list[int]:
    if not chat:
        return list(tokenizer(prompt)["input_ids"])
    if not tokenizer.chat_template:
        raise UsageError(
            "the target's tokenizer has no chat template", hint="capture without --chat"
        )
    messages = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _run(
    model: Any, ids: Sequence[int], new_tokens: int, layers: Sequence[int], device: str
) -> _Row:
    prompt = torch.tensor([list(ids)], device=device)
    last: list[torch.Tensor] = []
    with torch.inference_mode(), warnings.catch_warnings():
        # Sampling settings of a model's generation config are of no use to a greedy run.
        warnings.simplefilter("ignore")
        whole = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new_tokens,
            do_sample=False,
        )
        # transformers' last hidden state is normed already; the one before is wanted.
        hook = _final_norm(model).register_forward_pre_hook(_keeper(last))
        try:
            outputs = model(whole, output_hidden_states=True, use_cache=False)
        finally:
            hook.remove()
    states = [*outputs.hidden_states[:-1], last[-1]]
    chosen = tuple(layers) or tuple(candidates(len(states)))
    if not all(0 <= layer < len(states) for layer in chosen):
        raise UsageError(f"the target has hs[0] to hs[{len(states) - 1}]")
    length = whole.shape[1]
    scored = torch.zeros(length, dtype=torch.bool)
    scored[len(ids) - 1 :] = True
    kept = torch.stack([states[layer][0] for layer in chosen])
    return _Row(
        ids=whole[0].cpu(),
        states=kept.bfloat16().cpu(),
        choices=outputs.logits[0].argmax(-1).cpu(),
        scored=scored,
        layers=chosen,
    )


def _keeper(kept: list[torch.Tensor]) -> Callable[[Any, tuple[torch.Tensor, ...]], None]:
    def keep(_: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        kept.append(arguments[0])

    return keep


def _final_norm(model: Any) -> Any:
    inner = model
    for name in ("language_model", "model"):
        inner = getattr(inner, name, inner)
    norm = getattr(inner, "norm", None)
    if norm is None:
        raise ConfigError(
            f"{type(model).__name__} has no final norm under 'model.norm'",
            hint="capture works for Llama and Qwen type targets",
        )
    return norm


def _write(out: Path, rows: Sequence[_Row], notes: tuple[str, ...]) -> Captured:
    longest = max(row.ids.numel() for row in rows)
    pad = torch.nn.functional.pad
    tensors = {
        "input_ids": torch.stack([pad(row.ids, (0, longest - row.ids.numel())) for row in rows]),
        "hidden_states": torch.stack(
            [pad(row.states, (0, 0, 0, longest - row.ids.numel())) for row in rows]
        ),
        "target_argmax": torch.stack(
            [pad(row.choices, (0, longest - row.ids.numel())) for row in rows]
        ),
        "loss_mask": torch.stack([pad(row.scored, (0, longest - row.ids.numel())) for row in rows]),
        "lengths": torch.tensor([row.ids.numel() for row in rows]),
        "layers": torch.tensor(rows[0].layers),
    }
    size = save_tensors(out, tensors)
    return Captured(
        path=str(out),
        sequences=len(rows),
        tokens=sum(row.ids.numel() for row in rows),
        scored=sum(int(row.scored.sum()) for row in rows),
        layers=rows[0].layers,
        size_bytes=size,
        notes=notes,
    )
