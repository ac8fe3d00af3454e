"""The part of a server's log that stays on its host: found, read and searched when asked for."""

import importlib.resources
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from eaglemon.app.keeper import Keeper
from eaglemon.core.lines import LineAssembler
from eaglemon.core.log_past import LogHits, LogPlaces
from eaglemon.errors import AgentError, HostError

MOST_READ_BYTES = 4 << 20
"""No more is read at once, however long a line is."""


class PastLog:
    """Implements ``eaglemon.app.api.PastLog`` for a run of a host; holds nothing of the log."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def places(self, until: int) -> AsyncGenerator[LogPlaces, None]:
        """Yield where lines begin, up to the byte ``until``."""
        async with aclosing(self._scan({"do": "index", "until": until})) as answers:
            async for answer in answers:
                flat = _numbers(answer.get("entries"))
                yield LogPlaces(
                    places=tuple(zip(flat[::2], flat[1::2], strict=True)),
                    read_bytes=_numbers([answer.get("read")])[0],
                )

    async def search(
        self,
        text: str,
        *,
        begin: int = 0,
        until: int,
        line: int,
        most: int,
        with_texts: bool = False,
    ) -> AsyncGenerator[LogHits, None]:
        """Yield the lines from ``begin`` to ``until`` that contain ``text``, the last one first."""
        job = {
            "do": "search",
            "from": begin,
            "until": until,
            "line": line,
            "text": text,
            "ignore_case": text.islower(),
            "most": most,
            "with_texts": with_texts,
        }
        async with aclosing(self._scan(job)) as answers:
            async for answer in answers:
                texts = answer.get("texts")
                yield LogHits(
                    numbers=tuple(_numbers(answer.get("hits"))),
                    texts=tuple(map(str, texts)) if isinstance(texts, list) else (),
                    read_bytes=_numbers([answer.get("read")])[0],
                )

    async def read(self, begin: int, end: int) -> Sequence[str]:
        """Return the lines between two places, the last of them cut where it is endless."""
        link = self._keeper.host.link
        lines = LineAssembler()
        found: list[str] = []
        wanted = min(end - begin, MOST_READ_BYTES)
        chunks = link.follow_log(self._keeper.id, offset=begin, ahead_bytes=wanted)
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk.restarted:
                    raise _changed()
                for texts, _ in lines.texts(chunk.data[:wanted]):
                    found += texts
                wanted -= len(chunk.data)
                if wanted <= 0 or chunk.ended:
                    break
        for texts, _ in lines.close_texts():
            found += texts
        return found

    async def _scan(self, job: Mapping[str, object]) -> AsyncGenerator[Mapping[str, object], None]:
        record = self._keeper.record
        if record is None:
            raise HostError(f"{self._keeper.id} has no log yet")
        link = self._keeper.host.link
        answers = link.run_program(_source(), input={"path": record.log_path, **job})
        done = False
        async with aclosing(answers):
            async for answer in answers:
                if answer.get("changed"):
                    raise _changed()
                done = answer.get("done") is True
                if not done:
                    yield answer
        if not done:
            raise AgentError("the look at the log ended early", kind="protocol")


def _numbers(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
        raise AgentError("the host's answer about the log has no numbers", kind="protocol")
    return value


def _changed() -> AgentError:
    return AgentError(
        "the log was truncated or replaced", kind="log-changed", hint="open it again with l"
    )


def _source() -> bytes:
    return importlib.resources.files("eaglemon.agent").joinpath("logscan.py").read_bytes()
