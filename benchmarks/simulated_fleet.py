"""Runs the console, or ``gpus --watch``, on hosts that are simulated inside this process.

    python benchmarks/simulated_fleet.py HOSTS GPUS [--interval S]

Each host sends the agent's frames: every byte of the protocol is decoded as from a real one, only
SSH is left out. Quit with q. Nothing is started on any host.
"""

import argparse
import asyncio
import json
import os
import random
import struct
import time
from collections.abc import Mapping

from eaglemon.app.hub import Hub
from eaglemon.cli.tui import themes
from eaglemon.core.frames import MARK, encode_frame
from eaglemon.core.hosts import HostSpec
from eaglemon.io.config import ProfileStore
from eaglemon.io.transport import ByteStream, Completed
from eaglemon.io.workloads import load_workload
from eaglemon.tui.app import ConsoleApp

TOTAL_BYTES = 150_754_820_096


class SimulatedAgent:
    """A process that talks like the agent of a host with ``gpus`` GPUs."""

    def __init__(self, name: str, gpus: int) -> None:
        self._name, self._gpus = name, gpus
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._random = random.Random(name)  # noqa: S311 -- no secret
        self._tasks: list[asyncio.Task[None]] = []
        self._skip = 2
        self._held = b""
        hello = {
            "protocol": 1, "pid": 1, "python": "3.12.1", "hostname": name, "user": "me", "uid": 1,
            "boot_id": name, "state_dir": "/state", "cpu_count": 192,
            "memory_total_bytes": 2 << 40, "driver_version": "580.159.04", "nvml_error": None,
        }  # fmt: skip
        self._out.put_nowait(MARK + encode_frame({"hello": hello}))

    async def read(self, limit: int) -> bytes:
        """Return the next frame."""
        del limit
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        """Take requests; the agent's source comes first."""
        self._held += data
        while self._skip and len(self._held) >= 8:
            size = 8 + int(self._held[:8])
            if len(self._held) < size:
                return
            self._held, self._skip = self._held[size:], self._skip - 1
        while not self._skip and len(self._held) >= 8:
            head, blob = struct.unpack(">II", self._held[:8])
            end = 8 + head + blob
            if len(self._held) < end:
                return
            self._answer(json.loads(self._held[8 : 8 + head]))
            self._held = self._held[end:]

    def write_eof(self) -> None:
        """Nothing more will be asked."""

    def stderr_tail(self) -> str:
        """Nothing was written."""
        return ""

    async def wait(self) -> int:
        """It ends well."""
        return 0

    async def close(self) -> None:
        """End it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(self, request: Mapping[str, object]) -> None:
        number, op = request["id"], request["op"]
        if op == "gpus.watch":
            interval_s = float(str(request["interval_s"]))
            self._tasks.append(asyncio.create_task(self._sample(number, interval_s)))
        elif op == "runs.watch":
            self._send({"id": number, "item": {"runs": [], "gone": []}})
        else:
            self._send({"id": number, "ok": {"at": time.time()}})

    def _send(self, head: Mapping[str, object]) -> None:
        self._out.put_nowait(encode_frame(head))

    async def _sample(self, number: object, interval_s: float) -> None:
        await asyncio.sleep(self._random.random() * interval_s)
        while True:
            self._send({"id": number, "item": {"sample": self._reading()}})
            await asyncio.sleep(interval_s)

    def _reading(self) -> Mapping[str, object]:
        pick = self._random.randrange
        gpus: list[dict[str, object]] = [
            {
                "index": index, "uuid": f"GPU-{self._name}-{index}", "name": "NVIDIA H200",
                "bus_id": f"00000000:{index:02X}:00.0", "memory_total_bytes": TOTAL_BYTES,
                "memory_used_bytes": (80 << 30) + (pick(100) << 20),
                "memory_reserved_bytes": 644_939_776, "utilisation_percent": pick(101),
                "temperature_c": 40 + pick(30), "power_w": 300.0 + pick(400),
                "power_limit_w": 700.0, "throttle": [], "ecc_uncorrected": 0, "mig": None,
                "xid": None, "error": None,
            }
            for index in range(self._gpus)
        ]  # fmt: skip
        processes = [
            {
                "gpu_uuid": gpu["uuid"], "pid": 1000 + index, "memory_bytes": 80 << 30,
                "user": "me", "command": f"sglang::scheduler_TP{index}", "container": None,
                "container_pid": None, "mig_uuid": None, "run_id": None,
            }
            for index, gpu in enumerate(gpus)
        ]  # fmt: skip
        return {
            "at": time.time(), "gpus": gpus, "processes": processes, "processes_known": True,
            "took_s": 0.01, "driver_error": None, "notes": [],
        }  # fmt: skip


class SimulatedTransport:
    """A connection to a simulated host."""

    def __init__(self, spec: HostSpec, gpus: int) -> None:
        self.name = spec.name
        self._gpus = gpus
        self._closed = asyncio.Event()

    async def connect(self) -> None:
        """Nothing is in the way."""

    async def open_process(self, command: str) -> SimulatedAgent:
        """Start the agent."""
        del command
        return SimulatedAgent(self.name, self._gpus)

    async def open_stream(self, host: str, port: int) -> ByteStream:
        """No server runs here."""
        raise NotImplementedError(f"{host}:{port}")

    async def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        """No command does anything."""
        del command, stdin, timeout_s
        return Completed(status=0, stdout=b"", stderr=b"")

    async def wait_closed(self) -> str:
        """Wait for the end."""
        await self._closed.wait()
        return "closed"

    async def close(self) -> None:
        """End it."""
        self._closed.set()


async def main() -> None:
    """Run the console."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts", type=int)
    parser.add_argument("gpus", type=int)
    parser.add_argument("--interval", type=float, default=1.0)
    asked = parser.parse_args()
    specs = [
        HostSpec(name=f"host-{number:02}", sample_s=asked.interval) for number in range(asked.hosts)
    ]
    async with Hub(
        specs,
        ProfileStore.load(),
        connect=lambda spec: SimulatedTransport(spec, asked.gpus),
        workload=load_workload,
    ) as hub:
        await ConsoleApp(hub, themes=themes()).run_async()


if __name__ == "__main__":
    asyncio.run(main())
    # As the command does: all is closed, and taking the interpreter apart takes longer.
    os._exit(0)
