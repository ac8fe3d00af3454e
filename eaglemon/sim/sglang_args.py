"""SGLang's command line: parsed and resolved as ``sglang.launch_server`` 0.5.16 does."""

import argparse
from dataclasses import dataclass, field

from eaglemon.sim.console import SglangConsole
from eaglemon.sim.models import architecture_of, weight_gb
from eaglemon.sim.sglang_flags import LISTS, SWITCHES, VALUES

VERSION = "0.5.16"

_INTEGERS = frozenset(
    """
port tp-size dp-size pp-size base-gpu-id gpu-id-step nccl-port context-length page-size
max-running-requests max-queued-requests max-total-tokens chunked-prefill-size stream-interval
max-prefill-tokens decode-log-interval random-seed speculative-num-steps cuda-graph-max-bs
speculative-eagle-topk speculative-num-draft-tokens cuda-graph-max-bs-decode nnodes node-rank
cuda-graph-max-bs-prefill
""".split()  # noqa: SIM905 - a table to be read
)
_FLOATS = frozenset({"mem-fraction-static", "watchdog-timeout", "soft-watchdog-timeout"})
_ALIASES = {
    "tp-size": ["--tensor-parallel-size"],
    "dp-size": ["--data-parallel-size"],
    "pp-size": ["--pipeline-parallel-size"],
    "dist-init-addr": ["--nccl-init-addr"],
    "speculative-draft-model-path": ["--speculative-draft-model"],
    "model-path": ["--model"],
}
_CHOICES = {
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "sampling-backend": ("flashinfer", "ascend", "pytorch"),
    "speculative-attention-mode": ("prefill", "decode"),
    "attention-backend": (
        *(
            "triton",
            "torch_native",
            "flex_attention",
            "dsa",
            "nsa",
            "dsv4",
        ),
        *(
            "compressed",
            "cutlass_mla",
            "fa3",
            "fa4",
            "flashinfer",
            "flashmla",
        ),
        *(
            "trtllm_mla",
            "cutedsl_mla",
            "tokenspeed_mla",
            "trtllm_mha",
            "dual_chunk_flash_attn",
            "aiter",
        ),
        *(
            "wave",
            "intel_amx",
            "ascend",
            "intel_xpu",
        ),
    ),
}
_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangArgs:
    """Resolved server arguments."""

    model: str
    draft: str | None
    algorithm: str | None
    steps: int
    topk: int
    draft_tokens: int
    host: str
    port: int
    served_name: str
    tp: int
    base_gpu: int
    gpu_step: int
    mem_fraction: float
    context_length: int
    max_running: int
    attention: str
    graphs: bool
    max_batch: int
    metrics: bool
    incremental: bool
    decode_log_interval: int
    stream_interval: int
    api_key: str | None
    given: dict[str, object] = field(default_factory=dict)
    """Every flag as it was parsed, by its attribute name."""

    @property
    def architecture(self) -> str:
        """Class of the target, guessed from its path."""
        return architecture_of(self.model)

    @property
    def weight_gb(self) -> float:
        """GiB of weights a rank, guessed from the size in the path (bfloat16)."""
        return weight_gb(self.model) / self.tp

    def server_args(self) -> dict[str, object]:
        """Return all arguments with the resolved ones, as ``/server_info`` shows them."""
        values = dict(self.given)
        values.update(
            tokenizer_path=self.given.get("tokenizer_path") or self.model,
            served_model_name=self.served_name,
            context_length=self.context_length,
            mem_fraction_static=self.mem_fraction,
            max_running_requests=self.max_running,
            chunked_prefill_size=self.given.get("chunked_prefill_size") or 8192,
            max_prefill_tokens=self.given.get("max_prefill_tokens") or 16384,
            attention_backend=self.attention,
            speculative_algorithm=self.algorithm,
            speculative_draft_model_path=self.draft,
            speculative_num_steps=self.steps or None,
            speculative_eagle_topk=self.topk or None,
            speculative_num_draft_tokens=self.draft_tokens or None,
            decode_log_interval=self.decode_log_interval,
            stream_interval=self.stream_interval,
            watchdog_timeout=self.given.get("watchdog_timeout") or 300,
            weight_version="default",
            device="cuda",
        )
        return values


class StartError(Exception):
    """The arguments cannot be resolved; carries the traceback's last line."""


def parser() -> argparse.ArgumentParser:
    """Return the parser, with every flag of the release."""
    made = argparse.ArgumentParser(prog="sglang serve")
    for name in sorted(VALUES):
        kind: type = int if name in _INTEGERS else float if name in _FLOATS else str
        made.add_argument(
            f"--{name}",
            *_ALIASES.get(name, []),
            type=kind,
            choices=_CHOICES.get(name),
            required=name == "model-path",
        )
    for name in sorted(SWITCHES):
        made.add_argument(f"--{name}", action="store_true")
    for name in sorted(LISTS):
        made.add_argument(f"--{name}", nargs="*")
    for name in ("experts-shared-outer-loras", "lora-strict-loading", "dllm-fdfo"):
        made.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    return made


def resolve(argv: list[str], console: SglangConsole) -> SglangArgs:
    """Parse and resolve; exits with 2 as argparse does, raises ``StartError`` as SGLang would."""
    found = vars(parser().parse_args(argv))
    if found["cuda_graph_max_bs"] is not None:
        console.line(
            "\x1b[1;33m'--cuda-graph-max-bs' is deprecated and will be removed in a future release."
            " Use '--cuda-graph-max-bs-decode' instead.\x1b[0m"
        )
    model = str(found["model_path"])
    _check_path(model)
    algorithm = str(found["speculative_algorithm"] or "").upper() or None
    if algorithm and algorithm not in _ALGORITHMS:
        raise StartError(f"ValueError: Unknown speculative algorithm name: {algorithm}")
    draft = found["speculative_draft_model_path"]
    if draft is not None:
        _check_path(str(draft))
    max_running = found["max_running_requests"]
    steps = topk = tokens = 0
    if algorithm:
        if max_running is None:
            max_running = 48
            console.log(
                "Max running requests is reset to 48 for speculative decoding. You can override "
                "this by explicitly setting --max-running-requests."
            )
        steps, topk, tokens = _speculation(found, console)
    tp = found["tp_size"] or 1
    graphs = not (found["disable_cuda_graph"] or found["disable_decode_cuda_graph"])
    return SglangArgs(
        model=model,
        draft=str(draft) if draft is not None else None,
        algorithm="EAGLE" if algorithm == "NEXTN" else algorithm,
        steps=steps,
        topk=topk,
        draft_tokens=tokens,
        host=found["host"] or "127.0.0.1",
        port=found["port"] or 30000,
        served_name=found["served_model_name"] or model,
        tp=tp,
        base_gpu=found["base_gpu_id"] or 0,
        gpu_step=found["gpu_id_step"] or 1,
        mem_fraction=found["mem_fraction_static"]
        if found["mem_fraction_static"] is not None
        else 0.903,
        context_length=found["context_length"] or 8192,
        max_running=max_running or 4096,
        attention=found["attention_backend"] or ("flashinfer" if topk > 1 else "fa3"),
        graphs=graphs,
        max_batch=found["cuda_graph_max_bs_decode"] or found["cuda_graph_max_bs"] or 48,
        metrics=found["enable_metrics"],
        incremental=found["incremental_streaming_output"],
        decode_log_interval=found["decode_log_interval"] or 40,
        stream_interval=found["stream_interval"] or 1,
        api_key=found["api_key"],
        given=found,
    )


def _speculation(found: dict[str, object], console: SglangConsole) -> tuple[int, int, int]:
    steps, topk = found["speculative_num_steps"], found["speculative_eagle_topk"]
    tokens = found["speculative_num_draft_tokens"]
    if steps is None:
        if topk is not None or tokens is not None:
            raise StartError("AssertionError")
        steps, topk, tokens = 3, 1, 4
    if not isinstance(topk, int) or not isinstance(steps, int):
        raise StartError("TypeError: '>' not supported between instances of 'NoneType' and 'int'")
    if topk == 1 and tokens != steps + 1:
        console.log(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
        tokens = steps + 1
    if not isinstance(tokens, int):
        raise StartError("TypeError: '>' not supported between instances of 'NoneType' and 'int'")
    return steps, topk, tokens


def _check_path(path: str) -> None:
    """Refuse what the simulation calls missing: every other path is taken to exist."""
    if "missing" in path:
        raise StartError(
            "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
            f"'{path}'. Use `repo_type` argument if needed."
        )
