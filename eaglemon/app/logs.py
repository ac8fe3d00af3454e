"""A server's log for a reader: complete lines, over reconnects, none lost or doubled."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from eaglemon.app.broadcast import Broadcast
from eaglemon.app.keeper import Keeper
from eaglemon.core.lines import LineAssembler
from eaglemon.core.views import LogBatch
from eaglemon.errors import HostError


async def follow_log(
    keeper: Keeper, changes: Broadcast, *, follow: bool, tail: int | None
) -> AsyncIterator[LogBatch]:
    """Yield batches of complete lines; progress bars come as their last state only.

    Without ``follow`` it ends where the log ended when it was opened. Raises ``HostError`` when
    the host is not up at the start.
    """
    link = keeper.host.link
    end = 0 if follow else await link.log_tail(keeper.id, lines=0)
    offset = 0 if tail is None else await link.log_tail(keeper.id, lines=tail)
    lines, base, restarted = LineAssembler(), offset, False
    while True:
        try:
            async with aclosing(keeper.host.link.follow_log(keeper.id, offset=offset)) as chunks:
                if not follow and offset >= end:
                    return
                async for chunk in chunks:
                    if chunk.restarted:
                        lines, base, restarted = LineAssembler(), chunk.offset, True
                    offset = chunk.offset + len(chunk.data)
                    over = chunk.ended or (not follow and offset >= end)
                    begin = base + lines.line_start
                    pieces = lines.texts(chunk.data)
                    for texts, piece_end in pieces + (lines.close_texts() if over else []):
                        yield LogBatch(
                            lines=tuple(texts),
                            next_offset=offset,
                            begin_offset=begin,
                            restarted=restarted,
                        )
                        begin, restarted = base + piece_end, False
                    if over:
                        return
        except HostError:
            # Lost, or still down: wait for the next change.
            if not follow:
                raise
        if not follow:
            return
        await changes.beyond(changes.version)
