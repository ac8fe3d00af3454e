"""Other load generators on the mock engine, for the table of ``probe_accuracy.py``."""

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mock_engine import TOKENS

LIMIT_S = 180.0
COMPLETIONS = "request_format=/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Medians that a generator told."""

    tok_s: float
    """Of one user, after the first token."""
    ttft_s: float
    accept_length: float | None = None
    """Tokens of a chunk, where it tells them."""
    bad: int = 0


async def run(what: str, *argv: str, quiet: dict[str, str]) -> str:
    """Run a program to its end and return what it said; ends this program where it fails."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **quiet},
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
    except TimeoutError as error:
        process.kill()
        raise SystemExit(f"{what} did not end within {LIMIT_S:g} s") from error
    if process.returncode:
        raise SystemExit(f"{what} failed:\n{said.decode()[-2000:]}")
    return said.decode()


async def vllm_bench(python: str, tokenizer: str, port: int, *, users: int, requests: int) -> Seen:
    """Run ``vllm bench serve``."""
    with tempfile.TemporaryDirectory() as folder:
        await run(
            "vllm bench serve",
            *(python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai"),
            *("--base-url", f"http://127.0.0.1:{port}", "--endpoint", "/v1/completions"),
            *("--model", "mock", "--tokenizer", tokenizer, "--dataset-name", "random"),
            *("--random-input-len", "16", "--random-output-len", str(TOKENS)),
            *("--num-prompts", str(requests), "--max-concurrency", str(users)),
            *("--num-warmups", str(users), "--ignore-eos", "--disable-tqdm", "--save-result"),
            *("--result-dir", folder, "--result-filename", "result.json"),
            quiet={"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
        )
        result = json.loads((Path(folder) / "result.json").read_text())
    return Seen(
        tok_s=1000 / result["median_tpot_ms"],
        ttft_s=result["median_ttft_ms"] / 1000,
        bad=requests - result["completed"],
    )


async def guidellm(program: str, tokenizer: str, port: int, *, users: int, requests: int) -> Seen:
    """Run ``guidellm run``; it has no requests that are thrown away, so its medians stand alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        target = f"http://127.0.0.1:{port}"
        await run(
            "guidellm",
            *(program, "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={target},model=mock,{COMPLETIONS}"),
            *("--profile", f"kind=concurrent,streams={users}"),
            *("--constraint", f"kind=max_requests,count={requests}"),
            *("--tokenizer", f"kind=huggingface_auto,model={tokenizer}"),
            *("--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={TOKENS}"),
            *("--output", f"kind=json,path={path}"),
            quiet={"HF_HUB_OFFLINE": "1"},
        )
        metrics: dict[str, Any] = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    ok = metrics["time_to_first_token_ms"]["successful"]
    return Seen(
        tok_s=1000 / metrics["inter_token_latency_ms"]["successful"]["median"],
        ttft_s=ok["median"] / 1000,
        accept_length=metrics["output_tokens_per_iteration"]["successful"]["mean"],
        bad=requests - ok["count"],
    )
