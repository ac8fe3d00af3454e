"""Runs on a host (``program.run``): finds servers that eaglemon did not start, and ends one.

Python 3.8, standard library. ``EAGLEMON_INPUT`` is JSON: ``{"do": "find", "words": [...]}`` prints
each process of which an argument contains one of the words, with all that belong to it;
``{"do": "stop", "pid", "start_ticks", "grace_s"}`` ends such a process with all that belong to it
and prints each step. A process is known by pid and start ticks, checked before each signal. The
ending is done by a detached process: once begun it is carried through, whether the link holds or
not.
"""

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import time
from typing import Any, Dict, List, Optional, Set, Tuple

Json = Dict[str, Any]
Key = Tuple[int, int]

CONTAINER = re.compile(r"(?:docker|containerd|crio|libpod|kubepods)\S*?([0-9a-f]{64})")
"""As in the agent: both must tell the same container."""
POLL_S = 0.05
KILL_WAIT_S = 10.0
_FORWARDERS = frozenset(["docker", "podman", "nerdctl", "ssh", "sudo", "su", "kubectl", "tmux"])
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "fish"])


def tell(**values: Any) -> None:
    """Print one JSON object; nobody may be left who reads it."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(values).encode() + b"\n")


def read_process(pid: int) -> Optional[Json]:
    """Return what ``/proc`` says of a living process, ``None`` when it is gone or a zombie."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read().decode("utf-8", "replace")
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return {
        "pid": pid,
        "state": fields[0],
        "parent": int(fields[1]),
        "group": int(fields[2]),
        "session": int(fields[3]),
        "start_ticks": int(fields[19]),
        "uid": uid,
    }


def read_argv(pid: int) -> List[str]:
    """Return the command line of a process; a title in its place is one word."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            data = file.read()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in data.rstrip(b"\0").split(b"\0") if word]


def read_container(pid: int) -> Optional[str]:
    """Return the id of the container of a process, ``None`` outside of one."""
    try:
        with open("/proc/%d/cgroup" % pid, encoding="utf-8", errors="replace") as file:
            found = CONTAINER.search(file.read(65536))
    except OSError:
        return None
    return found.group(1)[:12] if found else None


def read_inner_pid(pid: int) -> Optional[int]:
    """Return the pid inside its own namespace, ``None`` where that is the host's."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as file:
            words = next((line.split() for line in file if line.startswith("NSpid:")), [])
    except OSError:
        return None
    return int(words[-1]) if len(words) > 2 and words[-1].isdigit() else None


def container_names() -> Dict[str, str]:
    """Return the names of running containers by short id, as far as this user may ask."""
    names: Dict[str, str] = {}
    for program in ("docker", "podman"):
        try:
            done = subprocess.run(
                [program, "ps", "--no-trunc", "--format", "{{.ID}} {{.Names}}"],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=5.0,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        rows = (line.split(None, 1) for line in done.stdout.decode("utf-8", "replace").splitlines())
        names.update((row[0][:12], row[1]) for row in rows if len(row) == 2)
    return names


def list_processes() -> Dict[int, Json]:
    """Return all living processes by pid."""
    found: Dict[int, Json] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            process = read_process(int(name))
            if process is not None:
                found[process["pid"]] = process
    return found


def members_of(leader: Json, processes: Dict[int, Json]) -> Set[int]:
    """Return the pids of a process, of its descendants, and of the session that it leads."""
    pids = {leader["pid"]}
    if leader["session"] == leader["pid"]:
        pids.update(p["pid"] for p in processes.values() if p["session"] == leader["pid"])
    while True:
        more = {p["pid"] for p in processes.values() if p["parent"] in pids} - pids
        if not more:
            return pids
        pids |= more


def user_name(uid: int) -> str:
    """Return the name of a user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def started_at(process: Json) -> float:
    """Return the unix seconds at which a process started."""
    with open("/proc/uptime", encoding="ascii") as file:
        uptime_s = float(file.read().split()[0])
    return time.time() - uptime_s + float(process["start_ticks"]) / float(os.sysconf("SC_CLK_TCK"))


def is_forwarder(argv: List[str]) -> bool:
    """Tell whether a process only passes a command on to another."""
    name = os.path.basename(argv[0])
    return name in _FORWARDERS or (name in _SHELLS and "-c" in argv[1:3])


def find(job: Json) -> None:
    """Print each process that fits, without those that belong to another that does."""
    processes = list_processes()
    fitting: Dict[int, Tuple[Json, List[str]]] = {}
    for pid, process in processes.items():
        argv = read_argv(pid)
        fits = any(word in part for word in job["words"] for part in argv)
        if fits and not is_forwarder(argv):
            fitting[pid] = (process, argv)
    families = {pid: members_of(process, processes) for pid, (process, _) in fitting.items()}
    containers = {pid: read_container(pid) for pid in fitting}
    names = container_names() if any(containers.values()) else {}
    for pid in sorted(fitting):
        if any(pid in members for other, members in families.items() if other != pid):
            continue
        process, argv = fitting[pid]
        members = families[pid]
        tell(
            pid=pid,
            parent=process["parent"],
            start_ticks=process["start_ticks"],
            started_at=started_at(process),
            user=user_name(process["uid"]),
            argv=argv,
            container=names.get(containers[pid] or "", containers[pid]),
            container_pid=read_inner_pid(pid),
            members=sorted(members),
        )


def is_same(process: Json) -> bool:
    """Tell whether a process that was looked at still is the one under its pid."""
    now = read_process(process["pid"])
    return now is not None and bool(now["start_ticks"] == process["start_ticks"])


def open_handle(pid: int) -> int:
    """Return a handle of a process, -1 where the system gives none (a kernel before 5.3)."""
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        # Taken before the process is checked, so a pid reused in between is never hit.
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return -1


def send(process: Json, number: int) -> str:
    """Signal a process that is still the same one; tells what stood against it."""
    handle = -1
    try:
        handle = open_handle(process["pid"])
        if not is_same(process):
            return ""
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process["pid"], number)
    except ProcessLookupError:
        return ""
    except PermissionError:
        if send_inside(process["pid"], number):
            return ""
        return "PID %d belongs to %s" % (process["pid"], user_name(process["uid"]))
    finally:
        if handle >= 0:
            os.close(handle)
    return ""


def send_inside(pid: int, number: int) -> bool:
    """Have a container's own ``kill`` signal a process that this user may not."""
    container, inner = read_container(pid), read_inner_pid(pid)
    if container is None or inner is None:
        return False
    command = "kill -%d %d" % (number, inner)
    for program in ("docker", "podman"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [program, "exec", "-u", "0", container, "sh", "-c", command],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=20.0,
            )
            if done.returncode == 0:
                return True
    return False


def stop_detached(job: Json) -> None:
    """Have a process of its own session end the server, and pass on what it tells.

    This program is killed with the link; the other one is not, and leaves nothing half done.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                for number, target in ((nothing, 0), (writer, 1), (nothing, 2)):
                    os.dup2(number, target)
                os.close(reader)
                os.close(writer)
                try:
                    stop(job)
                except Exception as error:
                    tell(step="failed", why="%s: %s" % (type(error).__name__, error))
        finally:
            os._exit(0)
    os.close(writer)
    os.wait()
    while True:
        data = os.read(reader, 1 << 16)
        if not data:
            return
        os.write(1, data)


def stop(job: Json) -> None:
    """End one process with all that belong to it: TERM, grace, KILL."""
    processes = list_processes()
    leader = processes.get(job["pid"])
    if leader is None or leader["start_ticks"] != job["start_ticks"]:
        tell(step="gone", left=[])
        return
    known: Dict[Key, Json] = {}
    note_members(leader, processes, known)
    refused = [word for word in (send(one, signal.SIGTERM) for one in known.values()) if word]
    tell(step="term", count=len(known), refused=refused)
    left = wait(leader, known, job["grace_s"])
    if left and len(refused) < len(known):
        refused = [word for word in (send(one, signal.SIGKILL) for one in left) if word]
        tell(step="kill", count=len(left), refused=refused)
        left = wait(leader, known, KILL_WAIT_S)
    tell(step="gone" if not left else "left", left=[[one["pid"], one["state"]] for one in left])


def note_members(leader: Json, processes: Dict[int, Json], known: Dict[Key, Json]) -> None:
    """Add to ``known`` what belongs to the leader, or to any that once did, and is new."""
    for one in [leader, *list(known.values())]:
        if one["pid"] in processes:
            for pid in members_of(processes[one["pid"]], processes):
                known.setdefault((pid, processes[pid]["start_ticks"]), processes[pid])


def wait(leader: Json, known: Dict[Key, Json], limit_s: float) -> List[Json]:
    """Return the processes that still live after ``limit_s`` seconds, at once when none does."""
    deadline = time.monotonic() + limit_s
    while True:
        note_members(leader, list_processes(), known)
        left = [one for one in known.values() if is_same(one)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(POLL_S)


if "EAGLEMON_INPUT" in globals():
    task = json.loads(globals()["EAGLEMON_INPUT"])
    {"find": find, "stop": stop_detached}[task["do"]](task)
