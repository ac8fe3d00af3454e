"""``eaglemon demo``: the console, or the main job as a script, on a simulated GPU host."""

import asyncio
import importlib
import socket
import time

import click

from eaglemon.cli import diagnostics, output, running, session
from eaglemon.cli.demo_script import PROFILE, Step, main_job
from eaglemon.cli.invocation import Invocation, json_option
from eaglemon.core.units import duration
from eaglemon.errors import EXIT_FAILED, EXIT_OK
from eaglemon.io.config import ProfileStore
from eaglemon.sim.host import SimHost


@click.command(name="demo")
@click.option("--headless", is_flag=True, help="Run the main job as a script, without a console.")
@json_option
@click.pass_obj
def command(invocation: Invocation, *, headless: bool, as_json: bool) -> int:
    """Try everything on a simulated GPU host: no GPU, no SSH set-up, no network.

    Opens the console; with --headless or --json, or where there is no terminal, runs the main job
    instead: show the GPUs, launch, every phase to ready, probe, kill, memory back. Exits with 0
    only if each step held.
    """
    profiles = invocation.profiles()
    if not (headless or as_json):
        # Imported here so that the script runs where the console cannot.
        console = importlib.import_module("eaglemon.cli.tui")
        if console.has_terminal():
            console.require_room(otherwise="eaglemon demo --headless")
            with diagnostics.library_log():
                asyncio.run(_show(profiles))
            return EXIT_OK
        diagnostics.talk("no terminal here: running the main job as a script")
    started = time.monotonic()
    try:
        with diagnostics.library_log():
            steps = asyncio.run(_run_job(profiles, as_json=as_json))
    except KeyboardInterrupt as error:
        raise running.InterruptedByPersonError("interrupted") from error
    held = all(step.ok for step in steps)
    took_s = time.monotonic() - started
    if as_json:
        content = {"ok": held, "took_s": took_s, "profile": PROFILE, "steps": steps}
        output.write_document("demo", content)
    else:
        verdict = "every step held" if held else "a step did not hold"
        output.write_lines(["", f"{verdict} ({duration(took_s)} in all)"])
    return EXIT_OK if held else EXIT_FAILED


async def _run_job(profiles: ProfileStore, *, as_json: bool) -> list[Step]:
    steps: list[Step] = []
    async with SimHost() as spec, session.open_console((spec,), profiles) as console:
        async for step in main_job(console, spec.name, clock=time.monotonic, port=_free_port()):
            steps.append(step)
            if not as_json:
                output.write_lines(_step_lines(step))
    return steps


def _free_port() -> int:
    # The simulated host shares this computer's loopback, where the profile's port may be taken.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _show(profiles: ProfileStore) -> None:
    from eaglemon.cli.tui import show_console  # noqa: PLC0415

    async with SimHost() as spec:
        await show_console((spec,), lambda: profiles, hosts_last=False)


def _step_lines(step: Step) -> list[str]:
    mark = "ok  " if step.ok else "FAIL"
    head = f"{mark} {step.name:<12} {duration(step.took_s):>8}  {step.summary}"
    return [head, *(f"       {detail}" for detail in step.details)]
