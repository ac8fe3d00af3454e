"""A host without python3 for tests: this machine, with a stand-in for nvidia-smi of sh."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from eaglemon.core.hosts import HostSample
from eaglemon.io.local import LocalTransport
from eaglemon.io.shell_host import ShellLink

SMI = """#!/bin/sh
# Answers from files beside it: gpus.csv, apps.csv, report.txt, table.txt; "hang" makes it hang.
here=${0%/*}
[ -f "$here/hang" ] && sleep 600
[ -f "$here/fails" ] && { cat "$here/fails"; exit 255; }
case "$1" in
  --query-gpu=*)
    [ -f "$here/old" ] && { echo 'Field "memory.reserved" is not a valid field to query.'; exit 2; }
    cat "$here/gpus.csv" ;;
  --query-compute-apps=*) cat "$here/apps.csv" ;;
  -q) cat "$here/report.txt" ;;
  *) cat "$here/table.txt" ;;
esac
"""
ROW = (
    "{index}, GPU-{index}, 00000000:{bus}:00.0, NVIDIA H200, 143771, {used}, 616, 50, 41, "
    "127.67, 700.00, 0, 0x0000000000000004, Disabled, 580.159.04\n"
)


class Smi:
    """The stand-in for nvidia-smi."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        program = folder / "nvidia-smi"
        program.write_text(SMI)
        program.chmod(0o755)
        self.write("gpus.csv", "".join(ROW.format(index=i, bus=f"0{i}", used=10) for i in (1, 2)))
        self.write("apps.csv", "")

    @property
    def env(self) -> dict[str, str]:
        """What the host needs to find it."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def write(self, name: str, text: str) -> None:
        """Replace one of its files at once."""
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(self.folder / name)


@contextlib.asynccontextmanager
async def shell_link(state: Path, env: dict[str, str] | None = None) -> AsyncIterator[ShellLink]:
    """Open a link to this machine through sh."""
    transport = LocalTransport()
    link = await ShellLink.open(transport, env={"XDG_STATE_HOME": str(state), **(env or {})})
    try:
        yield link
    finally:
        await link.close()
        await transport.close()


async def sample_when(
    link: ShellLink, wanted: Callable[[HostSample], bool], limit_s: float = 15.0
) -> HostSample:
    """Return the first sample that is as wanted."""
    async with asyncio.timeout(limit_s), contextlib.aclosing(link.watch_gpus()) as samples:
        async for sample in samples:
            if wanted(sample):
                return sample
    raise AssertionError("the samples ended")
