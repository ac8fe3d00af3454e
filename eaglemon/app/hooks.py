"""Hooks: shell lines of a profile that run on the host before a launch and after a stop."""

from collections.abc import Sequence
from contextlib import aclosing

from eaglemon.core.profiles import Profile
from eaglemon.errors import ServerError
from eaglemon.io.host_link import HostLink

_SHOWN = 300
_PROGRAM = b"""
import json, os, signal, subprocess
job = json.loads(EAGLEMON_INPUT)
environment = dict(os.environ)
environment.update(job["env"])
for line in job["lines"]:
    process = subprocess.Popen(
        ["/bin/sh", "-c", line], cwd=os.path.expanduser(job["workdir"] or "~"), env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    late = False
    try:
        output, _ = process.communicate(timeout=job["limit_s"])
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    print(json.dumps({
        "line": line, "code": process.returncode, "late": late,
        "output": output.decode("utf-8", "replace")[-2000:],
    }), flush=True)
    if late or process.returncode:
        break
"""


async def run_hooks(link: HostLink, profile: Profile, lines: Sequence[str]) -> None:
    """Run ``lines`` one after the other with ``sh`` on the host, in the profile's folder or home.

    Raises ``ServerError`` for the first that fails, with the end of what it wrote, and
    ``AgentError`` or ``LinkLostError`` when the host cannot run them.
    """
    if not lines:
        return
    limit_s = profile.limits.hook_s
    job = {
        "lines": list(lines),
        "env": dict(profile.env),
        "workdir": profile.workdir,
        "limit_s": limit_s,
    }
    async with aclosing(link.run_program(_PROGRAM, input=job)) as answers:
        async for answer in answers:
            line, code = answer.get("line"), answer.get("code")
            said = str(answer.get("output", "")).strip()[-_SHOWN:]
            if answer.get("late"):
                raise ServerError(f"hook {line!r} was killed after {limit_s:.0f} s: {said}")
            if code != 0:
                raise ServerError(f"hook {line!r} ended with exit code {code}: {said}")
