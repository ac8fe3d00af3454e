"""Hooks: shell lines of a profile that run on the host before a launch and after a stop."""

from collections.abc import Sequence
from contextlib import aclosing

from eaglemon.core.profiles import Profile
from eaglemon.errors import ServerError
from eaglemon.io.host_link import HostLink

_SHOWN = 300
_PROGRAM = b"""
import contextlib, json, os, signal, subprocess, tempfile
job = json.loads(EAGLEMON_INPUT)
environment = dict(os.environ)
environment.update(job["env"])
for line in job["lines"]:
    # A file, not a pipe: what the line leaves running may keep it open, and may write to it.
    said = tempfile.TemporaryFile()
    process = subprocess.Popen(
        ["/bin/sh", "-c", line], cwd=os.path.expanduser(job["workdir"] or "~"), env=environment,
        stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    late = False
    try:
        process.wait(job["limit_s"])
    except subprocess.TimeoutExpired:
        late = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
    said.seek(max(0, said.seek(0, os.SEEK_END) - 4000))
    print(json.dumps({
        "line": line, "code": process.returncode, "late": late,
        "output": said.read(4000).decode("utf-8", "replace")[-2000:],
    }), flush=True)
    if late or process.returncode:
        break
"""


async def run_hooks(link: HostLink, profile: Profile, lines: Sequence[str]) -> None:
    """Run ``lines`` one after the other with ``sh`` on the host, in the profile's folder or home.

    A line has ended when its ``sh`` has; what it leaves in the background goes on.
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
