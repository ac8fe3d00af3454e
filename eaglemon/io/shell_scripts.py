"""The sh scripts for hosts without python3 (``eaglemon/agent/*.sh``), with their settings."""

import functools
import importlib.resources
import json
import shlex
from collections.abc import Mapping

from eaglemon.core.runs import RunRequest

_SUPERVISOR_KEYS = (
    "id",
    "name",
    "profile",
    "digest",
    "engine",
    "address",
    "port",
    "workdir",
    "gpu_indexes",
    "gpu_uuids",
    "gpu_used_before_bytes",
    "extra",
)


@functools.cache
def _script(name: str) -> str:
    return importlib.resources.files("eaglemon.agent").joinpath(name).read_text(encoding="utf-8")


def script(
    call: str, *, env: Mapping[str, str] | None = None, **settings: str | int | float
) -> bytes:
    """Return what ``sh -s`` reads: the host's environment, the functions, settings, one call."""
    exports = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in (env or {}).items())
    assignments = "".join(f"{name}={shlex.quote(str(one))}\n" for name, one in settings.items())
    # The shell reads its script from stdin: what it starts must not.
    return f"{exports}{_script('host.sh')}{assignments}{call} </dev/null\n".encode()


def supervisor_job(request: RunRequest, boot_id: str) -> str:
    """Return the script that starts and keeps a server; it has the full environment in it."""
    record: dict[str, object] = {key: getattr(request, key) for key in _SUPERVISOR_KEYS}
    record.update(
        argv=request.argv_recorded,
        env=dict(request.env_recorded),
        extra=dict(request.extra),
        boot_id=boot_id,
    )
    head = json.dumps(record)[:-1] + ", "
    exports = " ".join(f"export {name}={shlex.quote(text)};" for name, text in request.env.items())
    words = shlex.join(request.argv)
    return (
        f"head={shlex.quote(head)}\nworkdir={shlex.quote(request.workdir or '')}\n"
        f"em_exports() {{ {exports} :; }}\nset -- {words}\n{_script('supervisor.sh')}"
    )


def stopper_job(grace_s: float) -> str:
    """Return the script that ends a run's processes."""
    grace_cs = -int(-grace_s * 100 // 1)
    return f"grace={grace_s:g}\ngrace_cs={grace_cs}\n{_script('host.sh')}{_script('stopper.sh')}"
