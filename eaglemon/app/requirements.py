"""Looks at what a host must have: a login, a known key, Python, a driver, a folder, an engine."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

from eaglemon.app.forwarding import forwarding_refusal
from eaglemon.core.host_report import HostReport, Requirement
from eaglemon.core.hosts import HostSample, HostSpec, beside_name
from eaglemon.core.nvidia_smi import advise
from eaglemon.core.profiles import Profile
from eaglemon.engines import ENGINES
from eaglemon.engines.base import Engine
from eaglemon.engines.command import interpreter
from eaglemon.errors import EaglemonError, HostKeyError, TimeLimitError
from eaglemon.io.connect import open_link
from eaglemon.io.host_link import AgentNotStartedError, HostLink
from eaglemon.io.transport import ConfiguredTransport, Transport

WRITE_LIMIT_S = 8.0
NO_COMMANDS = (
    "see whether this login may run commands: ForceCommand or an sftp-only account in sshd_config, "
    "command= in authorized_keys, the login shell; or log in as another user"
)
_COPIED = re.compile(r"\d+(\+\d+ records| bytes)")
_LATER = ("forwarding", "python", "nvml", "write access", "engines")


async def examine(
    spec: HostSpec, profiles: Iterable[Profile], *, connect: Callable[[HostSpec], Transport]
) -> HostReport:
    """Connect to a host and look at each requirement; never raises for what it finds."""
    transport = connect(spec)
    try:
        found = await _login(spec, transport)
        if not all(one.met for one in found):
            found += [_not_looked_at(name) for name in _LATER[spec.transport == "local" :]]
        else:
            known = tuple(profiles)
            if spec.transport != "local":
                found.append(await _forwarding(transport, known))
            found += await _on_host(spec, transport, known)
    finally:
        await transport.close()
    return HostReport(host=spec.name, requirements=tuple(found))


async def _login(spec: HostSpec, transport: Transport) -> list[Requirement]:
    is_local = spec.transport == "local"
    name = "local" if is_local else "ssh"
    try:
        await transport.connect()
    except HostKeyError as error:
        said = beside_name(spec.name, error.message)
        return [
            _not_looked_at("ssh"),
            Requirement(name="host key", met=False, detail=said, fix=error.hint),
        ]
    except EaglemonError as error:
        said = beside_name(spec.name, error.message)
        failed = Requirement(name=name, met=False, detail=said, fix=error.hint)
        return [failed] if is_local else [failed, _not_looked_at("host key")]
    if is_local:
        return [Requirement(name="local", met=True, detail="this machine")]
    unused = transport.unused_settings if isinstance(transport, ConfiguredTransport) else ()
    left = f"; not used of its configuration: {'; '.join(unused)}" if unused else ""
    return [
        Requirement(name="ssh", met=True, detail=f"logged in to {spec.address or spec.name}{left}"),
        Requirement(name="host key", met=True, detail="known and the same"),
    ]


async def _forwarding(transport: Transport, profiles: Sequence[Profile]) -> Requirement:
    """Look whether servers can be asked: at the ports of profiles, and the engines' usual ones."""
    usual = (engine.default_port for engine in ENGINES.values())
    ports = dict.fromkeys([*(one.port for one in profiles), *usual])
    refusal = await forwarding_refusal(transport, ports)
    if refusal is None:
        return Requirement(name="forwarding", met=True, detail="ports of its loopback are reached")
    return Requirement(name="forwarding", met=False, detail=refusal.message, fix=refusal.hint)


async def _on_host(
    spec: HostSpec, transport: Transport, profiles: Sequence[Profile]
) -> list[Requirement]:
    try:
        link = await open_link(transport, spec)
    except EaglemonError as error:
        fix = error.hint or (NO_COMMANDS if isinstance(error, AgentNotStartedError) else "")
        failed = Requirement(name="python", met=False, detail=error.message, fix=fix)
        return [failed, *(_not_looked_at(name) for name in _LATER[2:])]
    try:
        return [
            _python(link),
            await _driver(link),
            await _write_access(link, transport),
            *await _engines(link, profiles),
        ]
    finally:
        await link.close()


def _python(link: HostLink) -> Requirement:
    facts = link.facts
    if facts.limits:
        said, _, fix = facts.limits[0].rpartition("; ")
        return Requirement(name="python", met=False, needed=False, detail=said, fix=fix)
    return Requirement(name="python", met=True, detail=facts.python_version)


async def _driver(link: HostLink) -> Requirement:
    """Look at the first sample; a host without GPUs is still usable for what needs none."""
    sample: HostSample | None = None
    try:
        async with aclosing(link.watch_gpus()) as samples:
            sample = await anext(samples)
    except EaglemonError as error:
        return Requirement(name="nvml", met=False, detail=error.message, fix=error.hint)
    problem = sample.driver_error or next((gpu.error for gpu in sample.gpus if gpu.error), None)
    if problem is None and not sample.gpus:
        problem = "the driver sees no GPU"
    if problem is not None:
        said, _, step = advise(problem).partition("; ")
        return Requirement(
            name="nvml",
            met=False,
            needed=False,
            detail="; ".join([said, *sample.notes]),
            fix=step or "see dmesg and nvidia-smi on the host",
        )
    version = link.facts.driver_version or "of unknown version"
    names = sorted({gpu.name or "unknown" for gpu in sample.gpus})
    about = f"driver {version}, {len(sample.gpus)} GPU: {', '.join(names)}"
    return Requirement(name="nvml", met=True, detail="; ".join([about, *sample.notes]))


async def _write_access(link: HostLink, transport: Transport) -> Requirement:
    facts = link.facts
    folder = shlex.quote(f"{facts.state_dir}/runs")
    # As much as a record takes: a full disk makes empty files.
    command = (
        f"mkdir -p {folder} && t={folder}/.eaglemon-$$ && "
        '{ dd if=/dev/zero of="$t" bs=65536 count=1; status=$?; rm -f "$t"; exit $status; }'
    )
    try:
        done = await transport.run(command, timeout_s=WRITE_LIMIT_S)
    except TimeLimitError:
        return Requirement(
            name="write access",
            met=False,
            detail=f"{facts.state_dir} did not answer within {WRITE_LIMIT_S:.0f} s",
            fix="see whether its file system hangs (df, ls on the host), or set XDG_STATE_HOME",
        )
    except EaglemonError as error:
        return Requirement(
            name="write access",
            met=False,
            detail=f"{facts.state_dir}: {error.message}",
            fix=error.hint or "see whether that file system hangs",
        )
    if done.status != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        # After its error dd tells how much it has copied.
        why = next((line for line in said if not _COPIED.match(line)), str(done.status))
        return Requirement(
            name="write access",
            met=False,
            detail=f"{facts.state_dir} cannot be written: {why}",
            fix="make room there or make it writable, or set env.XDG_STATE_HOME for this host "
            "in hosts.toml",
        )
    return Requirement(name="write access", met=True, detail=facts.state_note or facts.state_dir)


async def _engines(link: HostLink, profiles: Sequence[Profile]) -> list[Requirement]:
    found = [await _engine(link, engine, _places(engine, profiles)) for engine in ENGINES.values()]
    any_met = any(one.met for one in found)
    if any_met:
        return found
    none = Requirement(
        name="engines",
        met=False,
        needed=False,
        detail="no engine was found",
        fix="install one, or set python or venv in the profile to where it is installed",
    )
    return [*found, none]


async def _engine(
    link: HostLink, engine: Engine, places: Sequence[tuple[str, Mapping[str, str]]]
) -> Requirement:
    reasons: list[str] = []
    for python, env in places:
        try:
            check = await link.check_host(python=python, package=engine.package, env=env)
        except EaglemonError as error:
            reasons.append(error.message)
            continue
        if check.engine_version is not None:
            detail = f"{check.engine_version} ({python})"
            return Requirement(name=engine.name, met=True, needed=False, detail=detail)
        reasons.append(check.engine_error or f"not in {python}")
    return Requirement(
        name=engine.name,
        met=False,
        needed=False,
        detail="; ".join(dict.fromkeys(reasons)),
        fix="only needed for its profiles: set python or venv there",
    )


def _places(engine: Engine, profiles: Sequence[Profile]) -> list[tuple[str, Mapping[str, str]]]:
    """Return where to look: Python and environment of each profile, and the host's own Python."""
    named: list[tuple[str, Mapping[str, str]]] = [
        (interpreter(one), one.env) for one in profiles if one.engine == engine.name and one.direct
    ]
    found: list[tuple[str, Mapping[str, str]]] = []
    for place in [*named, ("python3", {})]:
        if place not in found:
            found.append(place)
    return found


def _not_looked_at(name: str) -> Requirement:
    return Requirement(name=name, met=None, detail="not looked at")
