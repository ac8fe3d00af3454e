"""vLLM's command line: parsed and checked as ``vllm serve`` 0.32.0 does."""

import argparse
import json
import sys
from dataclasses import dataclass, field
from typing import Never

from eaglemon.sim.models import architecture_of, weight_gb

VERSION = "0.32.0"

_VALUES = """
host port uds api-key served-model-name tensor-parallel-size pipeline-parallel-size
data-parallel-size gpu-memory-utilization kv-cache-memory-bytes max-model-len max-num-seqs
max-num-batched-tokens dtype kv-cache-dtype quantization load-format generation-config
override-generation-config performance-mode compilation-config shutdown-timeout revision seed
uvicorn-log-level disable-access-log-for-endpoints per-request-spec-decode-metrics block-size
api-server-count tokenizer tokenizer-mode tokenizer-revision code-revision chat-template
chat-template-content-format response-role download-dir distributed-executor-backend
max-parallel-loading-workers swap-space cpu-offload-gb num-gpu-blocks-override max-logprobs
hf-overrides hf-config-path hf-token config-format attention-backend model-loader-extra-config
safetensors-load-strategy ignore-patterns speculative-config spec-method spec-model spec-tokens
scheduling-policy max-num-partial-prefills long-prefill-token-threshold guided-decoding-backend
structured-outputs-config reasoning-parser tool-call-parser tool-parser-plugin limit-mm-per-prompt
mm-processor-kwargs max-lora-rank max-loras lora-modules lora-dtype max-cpu-loras
prefix-caching-hash-algo kv-transfer-config kv-events-config data-parallel-rank
data-parallel-address data-parallel-rpc-port data-parallel-backend data-parallel-size-local
expert-placement-strategy all2all-backend worker-cls worker-extension-cls node-rank nnodes
master-addr master-port otlp-traces-endpoint collect-detailed-traces additional-config runner
convert task root-path ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs middleware
allowed-origins allowed-methods allowed-headers chat-template-kwargs default-chat-template-kwargs
max-log-len log-config-file optimization-level cudagraph-capture-sizes max-cudagraph-capture-size
kv-offloading-size kv-offloading-backend stream-interval model-impl logits-processors config
""".split()  # noqa: SIM905 - a table to be read

_SWITCHES = """
enforce-eager trust-remote-code enable-prefix-caching disable-log-stats enable-sleep-mode
enable-force-include-usage enable-prompt-tokens-details enable-server-load-tracking
enable-chunked-prefill disable-log-requests enable-log-requests disable-sliding-window
skip-tokenizer-init enable-lora enable-expert-parallel enable-eplb enable-auto-tool-choice
disable-custom-all-reduce disable-cascade-attn async-scheduling enable-request-id-headers
disable-fastapi-docs headless calculate-kv-scales use-tqdm-on-load enable-prompt-embeds
disable-uvicorn-access-log enable-log-outputs return-tokens-as-token-ids language-model-only
disable-hybrid-kv-cache-manager enable-dbo enable-tokenizer-info-endpoint
""".split()  # noqa: SIM905 - a table to be read

_INTEGERS = frozenset(
    {
        "port",
        "tensor-parallel-size",
        "max-num-seqs",
        "spec-tokens",
        "seed",
        "max-num-batched-tokens",
        "pipeline-parallel-size",
        "data-parallel-size",
        "block-size",
    }
)
_SHORT = {
    "tensor-parallel-size": ["-tp"],
    "pipeline-parallel-size": ["-pp"],
    "data-parallel-size": ["-dp"],
    "speculative-config": ["-sc"],
    "compilation-config": ["-cc"],
    "gpu-memory-utilization": ["--device-memory-utilization"],
}
_SPEC_KEYS = frozenset(
    """
method model num_speculative_tokens draft_tensor_parallel_size max_model_len revision code_revision
quantization enforce_eager attention_backend kv_cache_dtype moe_backend parallel_drafting
disable_padded_drafter_batch draft_sample_method rejection_sample_method prompt_lookup_max
synthetic_acceptance_rates synthetic_acceptance_length num_speculative_tokens_per_batch_size
disable_eagle_block_drop use_local_argmax_reduction draft_load_config prompt_lookup_min
""".split()  # noqa: SIM905 - a table to be read
)
_USAGE = """\
usage: vllm [-h] [-v]
            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}
            ...
vllm: error: """


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmArgs:
    """Resolved server arguments."""

    model: str
    draft: str | None
    method: str | None
    draft_tokens: int
    """vLLM's K; 0 without speculation."""
    host: str | None
    port: int
    served_name: str
    tp: int
    memory_utilization: float
    max_model_len: int
    max_num_seqs: int
    eager: bool
    shutdown_timeout_s: float
    spec_metrics: str
    log_stats: bool
    quiet_paths: frozenset[str]
    api_key: str | None
    given: dict[str, object] = field(default_factory=dict)
    """What differs from the defaults, as the log shows it."""

    @property
    def architecture(self) -> str:
        """Class of the target, guessed from its path."""
        return architecture_of(self.model)

    @property
    def weight_gb(self) -> float:
        """GiB of weights a rank."""
        return weight_gb(self.model) / self.tp


class ConfigFailed(Exception):  # noqa: N818 - an outcome; carries the end of the traceback
    """The arguments parse but cannot be used."""


class _Parser(argparse.ArgumentParser):
    def format_usage(self) -> str:
        return "usage: vllm serve [model_tag] [options]\n"

    def error(self, message: str) -> Never:
        sys.stderr.write(f"{self.format_usage()}{self.prog}: error: {message}\n")
        sys.exit(2)


def parse(argv: list[str]) -> VllmArgs:
    """Parse ``serve MODEL ...``; exits with 2 as vLLM does, raises ``ConfigFailed``."""
    if argv[:1] in (["--version"], ["-v"]):
        sys.stdout.write(f"{VERSION}\n")
        sys.exit(0)
    if argv[:1] != ["serve"]:
        _refuse(f"argument subparser: invalid choice: {argv[0]!r}" if argv else "no command given")
    found, unknown = _parser().parse_known_args([_dashed(word) for word in argv[1:]])
    if unknown:
        _refuse(f"unrecognized arguments: {' '.join(unknown)}")
    values: dict[str, object] = {
        name: value for name, value in vars(found).items() if value is not None
    }
    model = str(values.get("model_tag") or values.get("model") or "Qwen/Qwen3-0.6B")
    _check_path(model)
    spec = _speculation(values)
    served = values.get("served_model_name")
    return VllmArgs(
        model=model,
        draft=str(spec["model"]) if "model" in spec else None,
        method=str(spec.get("method", "eagle3")) if spec else None,
        draft_tokens=_integer(spec.get("num_speculative_tokens"), 0),
        host=str(values["host"]) if "host" in values else None,
        port=_integer(values.get("port"), 8000),
        served_name=str(served) if served else model,
        tp=_integer(values.get("tensor_parallel_size"), 1),
        memory_utilization=float(str(values.get("gpu_memory_utilization", 0.92))),
        max_model_len=_length(str(values.get("max_model_len", "auto"))),
        max_num_seqs=_integer(values.get("max_num_seqs"), 256),
        eager=bool(values.get("enforce_eager")),
        shutdown_timeout_s=float(str(values.get("shutdown_timeout", 0))),
        spec_metrics=str(values.get("per_request_spec_decode_metrics", "none")),
        log_stats=not values.get("disable_log_stats"),
        quiet_paths=frozenset(str(values.get("disable_access_log_for_endpoints", "")).split(",")),
        api_key=str(values["api_key"]) if "api_key" in values else None,
        given={**values, "model": model, **({"speculative_config": spec} if spec else {})},
    )


def _parser() -> argparse.ArgumentParser:
    made = _Parser(prog="vllm serve", add_help=False)
    made.add_argument("model_tag", nargs="?")
    made.add_argument("--model")
    for name in _VALUES:
        kind = int if name in _INTEGERS else str
        made.add_argument(f"--{name}", *_SHORT.get(name, []), type=kind)
    for name in _SWITCHES:
        made.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    return made


def _speculation(values: dict[str, object]) -> dict[str, object]:
    text = values.get("speculative_config")
    short = {
        "method": values.get("spec_method"),
        "model": values.get("spec_model"),
        "num_speculative_tokens": values.get("spec_tokens"),
    }
    spec: dict[str, object] = {name: value for name, value in short.items() if value is not None}
    if text is not None:
        try:
            loaded = json.loads(str(text))
        except ValueError:
            _parser().error(
                f"argument --speculative-config/-sc: Value {text} cannot be converted to "
                "<function loads at 0x7f234f9451c0>."
            )
        spec.update(loaded)
    unknown = sorted(set(spec) - _SPEC_KEYS)
    if unknown:
        _invalid(f"{unknown[0]}\n  Unexpected keyword argument")
    if "model" in spec:
        draft = str(spec["model"])
        if "missing" in draft:
            _invalid(f"Value error, Invalid repository ID or local directory specified: '{draft}'.")
        if "num_speculative_tokens" not in spec:
            _invalid(
                "Value error, A speculative model was provided, but `num_speculative_tokens` was "
                "not provided"
            )
    return spec


def _invalid(text: str) -> Never:
    raise ConfigFailed(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        f"  {text} [type=value_error, input_value=ArgsKwargs((), {{...}}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
    )


def _check_path(path: str) -> None:
    if "missing" in path:
        raise ConfigFailed(
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            f"'namespace/repo_name': '{path}'. Use `repo_type` argument if needed."
        )


def _refuse(message: str) -> Never:
    sys.stderr.write(f"{_USAGE}{message}\n")
    sys.exit(2)


def _dashed(word: str) -> str:
    """Turn underscores of a flag's name into dashes, as vLLM's parser does."""
    if not word.startswith("--"):
        return word
    name, sign, value = word.partition("=")
    return name.replace("_", "-") + sign + value


def _length(text: str) -> int:
    """Read ``4096``, ``32k`` (thousands) or ``32K`` (1024s); what fits is taken to be 40960."""
    if text in {"auto", "-1"}:
        return 40960
    scale = {"k": 1000, "K": 1024}.get(text[-1:], 1)
    return int(float(text.rstrip("kK")) * scale)


def _integer(value: object, default: int) -> int:
    return value if isinstance(value, int) else default
