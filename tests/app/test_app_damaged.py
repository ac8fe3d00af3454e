"""A run whose record cannot be read is told, by the host and by who asks for it."""

import asyncio
from pathlib import Path

import pytest

from eaglemon.core.views import HostView, Snapshot
from eaglemon.errors import UsageError
from tests.cases4.conftest import LIMIT_S, console, desk


async def told(updates: object, count: int) -> HostView:
    async with asyncio.timeout(LIMIT_S):
        async for snapshot in updates:  # type: ignore[attr-defined]
            assert isinstance(snapshot, Snapshot)
            (host,) = snapshot.hosts
            if len(host.damaged) == count:
                return host
    raise AssertionError("the updates ended")


async def test_a_living_server_with_a_damaged_record_is_named() -> None:
    async with desk() as d:
        server = await d.start()
        await d.ready(server)
        record = Path(d.hub.find(server).log_path).with_name("run.json")
        good = record.read_bytes()
        shapeless = good.replace(b'"launched_at"', b'"launched_on"')
        assert shapeless != good
        for bad in (b"{", b"[]", b'{"id": "x"}', shapeless):
            record.write_bytes(bad)
            async with console(d.spec) as other:
                await other.settle()
                host = await told(other.updates(), 1)
                (run,) = host.damaged
                assert run.reason
                assert (run.id, run.path) == (server, str(record))
                with pytest.raises(UsageError, match=f"is damaged: {record}: "):
                    other.find(server)
        record.write_bytes(good)
        await d.hub.stop(server, grace_s=1.0)
