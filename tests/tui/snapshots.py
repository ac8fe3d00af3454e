"""Prepared snapshots of one afternoon: 14:02:11 UTC, a fleet of H200 hosts."""

import math
from dataclasses import replace

from eaglemon.core.hosts import (
    GpuProcess,
    GpuSample,
    HostFacts,
    HostSample,
    HostSpec,
    LinkState,
)
from eaglemon.core.phases import PHASE_ORDER, Phase
from eaglemon.core.probe import ProbeFigures, ProbePlan, ProbeProgress, Prompt, Spread
from eaglemon.core.profiles import Speculation
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.views import (
    AcceptanceView,
    CauseView,
    ExitView,
    HealthVerdict,
    HealthView,
    HostView,
    LoadView,
    LogBatch,
    PhaseState,
    PhaseView,
    ServerState,
    ServerView,
    Snapshot,
    StageView,
    StopView,
)

AT = 1_700_000_000.0 + 50_531 - 1_700_000_000 % 86_400
GIB = 1024**3
TOTAL = int(140.4 * GIB)

COMMAND = (
    "python3 -m sglang.launch_server --model-path /models/kimi-k2.5 --tp-size 8"
    " --speculative-algorithm EAGLE3 --speculative-draft-model-path /models/k25-eagle3"
    " --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6"
)
TAKES = {
    Phase.SPAWN: 0.2,
    Phase.IMPORT: 24.0,
    Phase.DISTRIBUTED_INIT: 28.0,
    Phase.LOAD_TARGET: 161.0,
    Phase.LOAD_DRAFT: 6.0,
    Phase.KV_CACHE: 2.1,
    Phase.GRAPH_CAPTURE: 112.0,
    Phase.HTTP_OPEN: 0.4,
    Phase.WARM_UP: 3.2,
    Phase.READY: 0.5,
    Phase.SERVING: 31.0,
}
COUNTS = {Phase.LOAD_TARGET: (64, 64), Phase.LOAD_DRAFT: (1, 1), Phase.GRAPH_CAPTURE: (12, 12)}


def gpus(used_gib: float, *, busy: bool = False, count: int = 8) -> tuple[GpuSample, ...]:
    return tuple(
        GpuSample(
            index=index,
            uuid=f"GPU-{index}",
            name="NVIDIA H200",
            memory_used_bytes=int((used_gib + index * 0.1) * GIB),
            memory_total_bytes=TOTAL,
            utilisation_percent=97 - index if busy else 0,
            temperature_c=61 - index if busy else 34 + index % 3,
            power_w=540.4 - index * 3 if busy else 118.0 - index,
            power_limit_w=700.0,
        )
        for index in range(count)
    )


def host(
    name: str,
    samples: tuple[GpuSample, ...] | None,
    *,
    state: LinkState = LinkState.UP,
    age_s: float | None = 0.4,
    detail: str = "",
    run: str | None = None,
) -> HostView:
    processes = tuple(
        GpuProcess(
            gpu_uuid=gpu.uuid,
            pid=640 + gpu.index,
            memory_bytes=gpu.memory_used_bytes,
            user="ada",
            command=f"sglang::scheduler_TP{gpu.index}",
            run_id=run,
        )
        for gpu in (samples or ())
        if (gpu.memory_used_bytes or 0) > GIB
    )
    facts = HostFacts(
        hostname=name,
        user="ada",
        uid=1000,
        python_version="3.10.12",
        agent_protocol=1,
        boot_id="b",
        state_dir="/home/ada/.local/state/eaglemon/runs",
        driver_version="580.159.04",
    )
    sample = None if samples is None else HostSample(at=AT, gpus=samples, processes=processes)
    return HostView(
        spec=HostSpec(name=name),
        state=state,
        detail=detail,
        facts=facts,
        sample=sample,
        sample_age_s=age_s if samples is not None else None,
    )


def phases(until: Phase | None, *, state: PhaseState = PhaseState.ACTIVE) -> tuple[PhaseView, ...]:
    """All phases done (``None``), or those before ``until`` done and it in ``state``."""
    result: list[PhaseView] = []
    started = 0.0
    reached = False
    for phase in PHASE_ORDER:
        done, total = COUNTS.get(phase, (None, None))
        if reached:
            result.append(PhaseView(phase=phase, state=PhaseState.PENDING))
            continue
        if phase is until:
            reached = True
            stages: tuple[StageView, ...] = ()
            if phase is Phase.GRAPH_CAPTURE:
                stages = (
                    StageView(name="target-verify", started_s=221, elapsed_s=40, done=12, total=12),
                    StageView(name="draft-decode", started_s=261, elapsed_s=22, done=7, total=12),
                )
                done, total = None, None
            elif phase is Phase.LOAD_TARGET:
                done, total = 40, 64
            result.append(
                PhaseView(
                    phase=phase,
                    state=state,
                    started_s=started,
                    elapsed_s=62.0,
                    done=done,
                    total=total,
                    stages=stages,
                )
            )
            continue
        result.append(
            PhaseView(
                phase=phase,
                state=PhaseState.DONE,
                started_s=started,
                elapsed_s=TAKES[phase],
                done=done,
                total=total,
            )
        )
        started += TAKES[phase]
    return tuple(result)


def starting() -> ServerView:
    return ServerView(
        id="run-starting",
        name="k25-eagle3",
        host="h200-a",
        profile="k25-eagle3",
        engine="sglang",
        state=ServerState.STARTING,
        detail="graphs: draft-decode 7/12",
        command_line=COMMAND,
        port=30000,
        speculation=Speculation(steps=5, topk=1, draft_tokens=6),
        gpu_indexes=tuple(range(8)),
        pid=600,
        pids=(600, 601, *range(640, 648)),
        memory_used_bytes=int(8 * 98.1 * GIB),
        launched_at=AT - 283,
        age_s=283.0,
        phases=phases(Phase.GRAPH_CAPTURE),
        health=HealthView(verdict=HealthVerdict.REFUSED, latency_s=0.0004, age_s=0.8, polls=277),
        notes=("attention backend: fa3",),
    )


def ready() -> ServerView:
    survival = (0.74, 0.53, 0.38, 0.1, 0.06)
    history = tuple((AT - 290 + 2 * step, 2.8 + 0.25 * math.sin(step / 7)) for step in range(146))
    speed = tuple((AT - 290 + 2 * step, 141 + 12 * math.sin(step / 9)) for step in range(146))
    return replace(
        starting(),
        id="run-ready",
        state=ServerState.READY,
        detail="",
        launched_at=AT - 31 - 331,
        ready_at=AT - 31,
        age_s=362.0,
        phases=phases(None),
        health=HealthView(
            verdict=HealthVerdict.OK, code=200, latency_s=1.012, age_s=4.2, polls=331
        ),
        acceptance=AcceptanceView(
            accept_length=2.81,
            ceiling=6,
            per_position=survival,
            window_s=60.0,
            source="counters",
            age_s=0.6,
        ),
        load=LoadView(
            tok_s=141.2, running=1, waiting=0, kv_used_fraction=0.03, source="metrics", age_s=0.6
        ),
        accept_history=history,
        tok_s_history=speed,
        probe=probe_progress(),
    )


def probe_progress(state: str = "running") -> ProbeProgress:
    return ProbeProgress(
        server_id="run-ready",
        plan=ProbePlan(
            workload="chat",
            prompts=(Prompt(id="1", text="hello"),),
            requests=16,
            concurrency=1,
        ),
        state=state,
        done=7,
        elapsed_s=8.1,
        remaining_s=12.0,
        figures=ProbeFigures(
            ok=7,
            duration_s=8.1,
            completion_tokens=896,
            total_tok_s=138.9,
            decode_tok_s=Spread(median=143.0, p90=150.2, p99=151.0, count=7),
            ttft_s=Spread(median=0.045, p90=0.061, p99=0.07, count=7),
            counts=AcceptCounts(steps=318, accepted=578, proposed=1590),
            accept_length=2.82,
            accept_source="per-request answers",
        ),
    )


def failed() -> ServerView:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a"
        " total capacity of 139.81 GiB of which 1.02 GiB is free [red]really[/red]"
    )
    return replace(
        starting(),
        id="run-failed",
        name="k25-eagle3-16",
        host="h200-b",
        state=ServerState.FAILED,
        detail="CUDA out of memory while capturing graphs",
        pids=(),
        pid=None,
        memory_used_bytes=0,
        phases=phases(Phase.GRAPH_CAPTURE, state=PhaseState.FAILED),
        health=None,
        exit=ExitView(code=1, at=AT - 60),
        cause=CauseView(
            slug="cuda-out-of-memory",
            sentence="CUDA out of memory while capturing graphs",
            decisive_line=line,
            line_number=1842,
            remedy="lower mem-fraction-static (0.85 now) or cuda-graph-max-bs",
            changes=("mem-fraction-static=0.8",),
        ),
    )


def killed() -> ServerView:
    return replace(
        ready(),
        id="run-killed",
        name="k25-baseline",
        profile="k25-baseline",
        speculation=None,
        state=ServerState.STOPPED,
        detail="stopped by this console",
        acceptance=None,
        load=None,
        accept_history=(),
        tok_s_history=(),
        health=None,
        probe=None,
        pids=(),
        exit=ExitView(signal="SIGKILL", at=AT - 10),
        stop=StopView(
            steps=(
                "TERM sent to 10 processes",
                "2 survivors killed after 15 s",
                "10 of 10 processes gone",
                "899 GiB back on GPUs 0-7",
            ),
            processes_left=0,
            memory_to_release_bytes=0,
            elapsed_s=17.4,
            proven=True,
        ),
    )


LOG = LogBatch(
    lines=(
        "[2026-11-29 14:01:38] INFO:     Started server process [600]",
        "",
        "[2026-11-29 14:01:40] \x1b[32mThe server is fired up\x1b[0m and ready to roll!",
        "[2026-11-29 14:01:41] text that looks like markup: [red]not red[/red] [b]",
        "[2026-11-29 14:02:10] Decode batch, #running-req: 1, accept len: 2.81, tok/s: 141.2",
    ),
    next_offset=4812,
)

DOWN = host(
    "a100-old",
    None,
    state=LinkState.DOWN,
    detail="a100-old: connection refused by port 22; is sshd running there? trying again in 12 s",
)
STALE = host("h200-c", gpus(36.0, count=2), state=LinkState.STALE, age_s=12.0)

EMPTY = Snapshot(at=AT)
IDLE = Snapshot(at=AT, hosts=(host("h200-a", gpus(0.6)),))
FLEET = Snapshot(
    at=AT,
    hosts=(
        host("h200-a", gpus(112.0, busy=True), run="run-ready"),
        host("h200-b", gpus(36.0, count=4)),
        STALE,
        DOWN,
    ),
    servers=(
        ready(),
        replace(starting(), id="run-starting", name="k25-eagle3-24", host="h200-b"),
        failed(),
        killed(),
    ),
)


def only(server: ServerView) -> Snapshot:
    """The fleet with one server."""
    return replace(FLEET, servers=(server,))
