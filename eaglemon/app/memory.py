"""Watches the GPU memory of a stopped run come back."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing, suppress
from typing import Protocol

from eaglemon.app.host import Host
from eaglemon.app.runs import notes_of
from eaglemon.app.seen import Seen
from eaglemon.core.hosts import HostSample
from eaglemon.core.lifecycle import ServerMachine
from eaglemon.core.lifecycle_events import Event, MemoryBack, MemoryUnseen
from eaglemon.core.nvidia_smi import advise, is_no_driver
from eaglemon.core.release import Release, release_of
from eaglemon.core.runs import RunRecord
from eaglemon.errors import HostError
from eaglemon.io.host_link import HostLink

SAMPLE_S = 0.2
"""GPU samples come this often while a stop waits for the memory."""
ACCOUNT_STEPS, ACCOUNT_STEP_S = 40, 0.05
"""The end of the host's account of a stop may come so much later than the memory."""
UNSEEN_S = 5.0
"""So long a driver is waited for that does not tell who holds memory: it may be slow, and what is
in use may yet turn out to have been this run's."""


class Stopped(Protocol):
    """What is known of a run that was stopped (``eaglemon.app.keeper.Keeper``)."""

    host: Host
    machine: ServerMachine
    record: RunRecord | None
    seen: Seen

    @property
    def changed(self) -> Callable[[], None]:
        """Called when there is something new to show."""
        ...

    def feed(self, event: Event) -> None:
        """Give the machine an event."""
        ...


async def watch_release(run: Stopped) -> None:
    """Tell the machine of ``run`` when its GPU memory is back, or that nobody can see it."""
    gone_at = run.machine.stop.gone_at if run.machine.stop else None
    pids = run.seen.pids_ever  # not a copy: the account of the stop may name more
    # The link may be lost: the machine is told of that by others.
    with suppress(HostError):
        if not levels_before(run.record, run.seen.held_uuids):
            unseen = await _look_for_holders(run, pids=pids, gone_at=gone_at)
            if unseen is not None:
                run.feed(MemoryUnseen(reason=advise(unseen), no_driver=is_no_driver(unseen)))
                return
        before = levels_before(run.record, run.seen.held_uuids)
        if not before:
            await _until_accounted(run)
            run.feed(MemoryBack())  # It never held GPU memory.
            return
        steps = release_steps(run.host.link, before, pids=pids, gone_at=gone_at, seen=run.host.take)
        known_at = asyncio.get_running_loop().time()
        async with aclosing(steps):
            async for release in steps:
                run.seen.release = release
                now = asyncio.get_running_loop().time()
                known_at = known_at if release.unknown else now
                if release.back:
                    await _until_accounted(run)
                    run.feed(MemoryBack())
                elif release.unknown and now - known_at >= UNSEEN_S:
                    run.feed(MemoryUnseen(reason=release.unknown))
                    return
                run.changed()


async def _until_accounted(run: Stopped) -> None:
    """Wait a moment for the end of the host's account: the memory may be back before it is."""
    for _ in range(ACCOUNT_STEPS):
        if run.machine.stop is None or run.machine.stop.gone_at is not None:
            return
        await asyncio.sleep(ACCOUNT_STEP_S)


async def _look_for_holders(
    run: Stopped, *, pids: AbstractSet[int], gone_at: float | None
) -> str | None:
    """Note the GPUs that still list a process of ``run``; return why that cannot be seen.

    Raises ``LinkLostError``.
    """
    unseen: str | None = "no sample of the GPUs has come"
    with suppress(TimeoutError):
        async with asyncio.timeout(UNSEEN_S):
            samples = run.host.link.watch_gpus(interval_s=SAMPLE_S, processes_interval_s=SAMPLE_S)
            async with aclosing(samples) as stream:
                async for sample in stream:
                    run.host.take(sample)
                    if gone_at is not None and sample.at < gone_at:
                        continue
                    unseen = sample.unseen
                    if unseen is None or is_no_driver(unseen):
                        mine = (one for one in sample.processes if one.pid in pids)
                        run.seen.held_uuids.update(one.gpu_uuid for one in mine)
                        return unseen
    return unseen


async def release_steps(
    link: HostLink,
    before: Mapping[str, int | None],
    *,
    pids: AbstractSet[int],
    gone_at: float | None,
    seen: Callable[[HostSample], None],
) -> AsyncGenerator[Release, None]:
    """Yield how far the memory is back, until it is; raises ``LinkLostError``.

    ``before`` is the used bytes by GPU uuid before the launch, ``None`` where not known, ``pids``
    all processes the run ever had. Samples taken before ``gone_at`` (unix seconds of the host)
    prove nothing: the processes still lived. ``seen`` gets every sample: a launch right after the
    release must not be judged by an older one.
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


def levels_before(record: RunRecord | None, held: Collection[str]) -> dict[str, int | None]:
    """Return the used bytes before the launch of the GPUs that a run chose or was seen to hold.

    ``None`` for one that was not read then.
    """
    uuids = set(record.gpu_uuids if record else ()) | set(held)
    levels = notes_of(record).gpu_used_before if record else {}
    return {uuid: levels.get(uuid) for uuid in uuids}
