"""What a running server was measured on: releases, driver, GPUs, arguments as resolved."""

import json
from contextlib import aclosing

from eaglemon.app.identity import first_lines
from eaglemon.app.keeper import Keeper
from eaglemon.app.server_view import server_view
from eaglemon.core.experiment_records import Environment
from eaglemon.engines.command import interpreter
from eaglemon.errors import AgentError, EaglemonError
from eaglemon.io.http import HttpLimits

_LIMIT_S = 20.0

RELEASE_PROGRAM = b"""
import json, os, subprocess
from importlib import metadata
found = {"version": None, "revision": None}
try:
    package = metadata.distribution(json.loads(EAGLEMON_INPUT)["package"])
    found["version"] = package.version
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    folder = origin.get("url", "").partition("file://")[2]
    if origin.get("dir_info", {}).get("editable") and os.path.isdir(folder):
        git = ["git", "-C", folder]
        head = subprocess.run(git + ["rev-parse", "HEAD"], capture_output=True, timeout=10)
        changed = subprocess.run(git + ["status", "--porcelain", "-uno"], capture_output=True,
                                 timeout=10)
        if head.returncode == 0:
            found["revision"] = head.stdout.decode().strip()[:12]
            found["revision"] += "+changed" if changed.stdout.strip() else ""
except Exception as error:
    found["error"] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(found))
"""


async def environment_of(keeper: Keeper, *, now: float, wall: float) -> Environment:
    """Return what ``keeper``'s server runs on; what cannot be found out is noted, not raised."""
    notes: list[str] = []
    profile, engine = keeper.profile, keeper.engine
    version, revision = await _release(keeper, notes)
    resolved = engine.resolved_arguments(
        await _info(keeper, notes), await _first_lines(keeper, notes)
    )
    if not resolved:
        notes.append("the engine's resolved arguments are not known")
    view = server_view(keeper, now=now, wall=wall)
    sample = keeper.host.sample
    names = {gpu.index: gpu.name or "-" for gpu in sample.gpus} if sample else {}
    facts = keeper.host.view().facts
    return Environment(
        host=keeper.host.spec.name,
        engine=profile.engine,
        engine_version=version or resolved.get("version"),
        engine_revision=revision,
        driver_version=facts.driver_version if facts else None,
        gpus=tuple(names.get(index, "-") for index in view.gpu_indexes),
        command_line=view.command_line,
        digest=keeper.record.digest if keeper.record else profile.digest(),
        resolved=resolved,
        notes=tuple(notes),
    )


async def _release(keeper: Keeper, notes: list[str]) -> tuple[str | None, str | None]:
    profile = keeper.profile
    if not profile.direct:
        return None, None  # Not to be seen from the host; the engine itself may tell.
    program = keeper.host.link.run_program(
        RELEASE_PROGRAM,
        input={"package": keeper.engine.package},
        python=interpreter(profile),
        env=profile.env,
    )
    try:
        async with aclosing(program) as told:
            async for found in told:
                if found.get("error"):
                    notes.append(f"release of {keeper.engine.title}: {found['error']}")
                version, revision = found.get("version"), found.get("revision")
                return (
                    version if isinstance(version, str) else None,
                    revision if isinstance(revision, str) else None,
                )
    except AgentError as error:
        notes.append(f"release of {keeper.engine.title}: {error.message}")
    return None, None


async def _info(keeper: Keeper, notes: list[str]) -> object:
    path = keeper.engine.endpoints.info
    if path is None:
        return None
    try:
        answer = await keeper.http().request("GET", path, limits=HttpLimits(read_s=_LIMIT_S))
        if answer.status == 200:
            return json.loads(answer.body)
        notes.append(f"{path}: HTTP {answer.status}")
    except (EaglemonError, ValueError) as error:
        notes.append(f"{path}: {error}")
    return None


async def _first_lines(keeper: Keeper, notes: list[str]) -> list[str]:
    try:
        return await first_lines(keeper.host.link, keeper.id)
    except EaglemonError as error:
        notes.append(f"its log: {error.message}")
        return []
