"""Watches the GPU memory of a stopped run come back."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing

from eaglemon.app.runs import notes_of
from eaglemon.core.hosts import HostSample
from eaglemon.core.release import Release, release_of
from eaglemon.core.runs import RunRecord
from eaglemon.io.host_link import HostLink

SAMPLE_S = 0.2
"""GPU samples come this often while a stop waits for the memory."""


async def release_steps(
    link: HostLink,
    before: Mapping[str, int],
    *,
    pids: frozenset[int],
    gone_at: float | None,
    seen: Callable[[HostSample], None],
) -> AsyncGenerator[Release, None]:
    """Yield how far the memory is back, until it is; raises ``LinkLostError``.

    ``before`` is the used bytes by GPU uuid before the launch, ``pids`` all processes the run ever
    had. Samples taken before ``gone_at`` (unix seconds of the host) prove nothing: the processes
    still lived. ``seen`` gets every sample: a launch right after the release must not be judged
    by an older one.
    """
    samples = link.watch_gpus(interval_s=SAMPLE_S, processes_interval_s=SAMPLE_S)
    async with aclosing(samples) as stream:
        async for sample in stream:
            seen(sample)
            if gone_at is not None and sample.at < gone_at:
                continue
            release = release_of(sample, before=before, pids=pids)
            yield release
            if release.back:
                return


def levels_before(record: RunRecord | None, held: Collection[str]) -> dict[str, int]:
    """Return the used bytes before the launch of the GPUs that a run chose or was seen to hold."""
    uuids = set(record.gpu_uuids if record else ()) | set(held)
    levels = notes_of(record).gpu_used_before if record else {}
    return {uuid: levels.get(uuid, 0) for uuid in uuids}
