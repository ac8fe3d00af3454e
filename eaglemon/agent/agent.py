"""The agent: what eaglemon runs on a GPU host. docs/agent-protocol.md describes its messages.

One file, standard library only, Python 3.8 or newer, executed in memory. The same source runs in
three roles, told apart by the first argument:

* the agent itself (none): answers the console over stdin and stdout, ends with its stdin;
* ``eaglemon-supervisor``: starts one server, outlives the connection, records how it ended;
* ``eaglemon-stopper``: ends all processes of one run, and writes the account of it.

Threads of the agent: the main one reads requests; each request that may wait has its own; one
samples the GPUs and has a helper for each of them, so that a call that hangs stops nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import zlib
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Set,
    Tuple,
)

PROTOCOL = 1
MARK = b"\0eaglemon-agent 1\n"
MAX_HEAD_BYTES = 8 << 20
MAX_BLOB_BYTES = 1 << 20
LOG_CHUNK_BYTES = 64 << 10
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
CONTAINER = re.compile(r"(?:docker|containerd|crio|libpod|kubepods)\S*?([0-9a-f]{64})")
TEGRA = re.compile(r"nvgpu|tegra|orin|thor|xavier", re.IGNORECASE)
RECORDED = (
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
"""Keys of a request that its record keeps as they are."""
OWN_KEYS = ("supervisor", "inside", "container_id")
"""Keys of a record that are for agents alone."""
# Reads the agent's source from stdin; without quotes, so that every shell passes it on.
LOADER = (
    "import sys,zlib;f=sys.stdin.buffer;EAGLEMON_SOURCE=f.read(int(f.read(8)));"
    "exec(zlib.decompress(EAGLEMON_SOURCE))"
)
# The same for a program that is run for the console. Its stdin stays open: the end of it is the
# end of the program and of all that it started, so nothing is left behind by a lost link.
PROGRAM_LOADER = (
    "import os,sys,threading,zlib;f=sys.stdin.buffer;s=f.read(int(f.read(8)));"
    "EAGLEMON_INPUT=f.read(int(f.read(8)));"
    "threading.Thread(target=lambda:(os.read(0,1),os.killpg(0,9)),daemon=True).start();"
    "exec(compile(zlib.decompress(s),'program','exec'))"
)
PROGRAM_TAIL_BYTES = 4096

Json = Dict[str, Any]
Key = Tuple[int, int]
"""(pid, start ticks): names one process for as long as the host is up."""


class RequestError(Exception):
    """A request cannot be done; ``kind`` is a slug of the protocol."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


# --- files -----------------------------------------------------------------------------------


def write_json(path: str, value: Json) -> None:
    """Write ``value`` so that a reader sees the old file or the new one, never a part."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_patiently(path: str, value: Json) -> None:
    """Write ``value`` again and again until it is there, for 10 minutes at most.

    A full disk passes; giving up would leave a run's process or its end unknown for good.
    """
    for _ in range(600):
        try:
            write_json(path, value)
            return
        except OSError:
            time.sleep(1.0)


def read_json(path: str) -> Optional[Json]:
    """Return the object in ``path``; ``None`` when it is missing or no JSON object."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def damaged_record(run_id: str, path: str) -> Json:
    """Return what stands for a record that cannot be read; empty when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"id": run_id, "damaged": path, "damage": str(error)}
    if isinstance(value, dict) and value.get("id") == run_id:
        return value
    return {"id": run_id, "damaged": path, "damage": "it is no record of this run"}


FALLBACK = "/var/tmp"  # noqa: S108 -- the folder made in it is checked to be this user's
"""Where records go when the home cannot be written: kept over reboots, on a local disk."""


def mend_home() -> None:
    """Take the account's home where a shell without a locale (fish) has spoilt its letters."""
    with contextlib.suppress(KeyError):  # an account that the host does not know
        home = pwd.getpwuid(os.getuid()).pw_dir
        if (
            not home.isascii()
            and os.path.isdir(home)
            and not os.path.isdir(os.environ.get("HOME", ""))
        ):
            os.environ["HOME"] = home


def usual_state_dir() -> str:
    """Return the folder of all records of this user by the XDG rules."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "eaglemon")


def fallback_state_dir() -> str:
    """Return the folder that is used instead of one that cannot be written."""
    return os.path.join(FALLBACK, "eaglemon-%d" % os.getuid())


@functools.lru_cache(maxsize=1)
def state_dir() -> str:
    """Return where records of this user go: the usual folder, or the fallback where it is
    read-only. A place that was named (``XDG_STATE_HOME``) is taken as it is."""
    usual = usual_state_dir()
    if os.path.isabs(os.environ.get("XDG_STATE_HOME", "")) or can_write(usual):
        return usual
    fallback = fallback_state_dir()
    with contextlib.suppress(OSError):
        os.mkdir(fallback, 0o700)
    # Others may make files beside it, so nothing is written before it is known to be this user's.
    return fallback if is_own_folder(fallback) and can_write(fallback) else usual


TRIAL_BYTES = 64 << 10
PATH_LIMIT_S = 4.0
VERSION_LIMIT_S = 16.0
"""How long an interpreter may take to start and tell a version. A whole check stays below the 30 s
that a console waits: a path may be waited for twice, once for an earlier question about it."""
UNWRITTEN_AFTER_S = 2.0
"""An end that is not written so long after the server's first process has gone is told all the
same."""
STATE_SILENT_S = 3.0
"""A file system that takes longer than this is told as not answering."""


_ASKED: Dict[str, Tuple[threading.Thread, float]] = {}
"""The last question about a path, and when it is late (monotonic seconds)."""


def within(limit_s: float, path: str, call: Callable[[], Any], otherwise: Any) -> Any:
    """Return what a call that may hang for ever returns, or ``otherwise`` once it is late.

    While one about the same path still hangs no other is made.
    """
    before, late_at = _ASKED.get(path, (None, 0.0))
    if before is not None:
        before.join(max(late_at - time.monotonic(), 0.0))
        if before.is_alive():
            return otherwise
    answers: List[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    # Started first: another request may look at it at once, and one not yet begun cannot be joined.
    _ASKED[path] = thread, time.monotonic() + limit_s
    thread.join(limit_s)
    return answers[0] if answers else otherwise


def state_roots() -> List[str]:
    """Return the folders that may hold runs: a home that was writable once has some too."""
    chosen = state_dir()
    os.path.exists(chosen)  # one that hangs does so here, and not at the first look for runs
    others = [usual_state_dir(), fallback_state_dir()]
    return [chosen, *(one for one in others if one != chosen and is_own_folder(one))]


def can_write(folder: str) -> bool:
    """Tell whether files can be made in a folder, which is made if need be.

    Tried, with as much as a record takes: a full disk and a quota make empty files.
    """
    trial = os.path.join(folder, ".eaglemon-%d-%d" % (os.getpid(), time.time_ns()))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            with open(trial, "xb") as file:  # never through a link
                file.write(b" " * TRIAL_BYTES)
        finally:
            if os.path.lexists(trial):
                os.unlink(trial)
    except OSError:
        return False
    return True


def is_own_folder(folder: str) -> bool:
    """Tell whether it is a folder of this user in which nobody else can make files, and no link."""
    try:
        stat = os.lstat(folder)
    except OSError:
        return False
    mine = (stat.st_mode & 0o170000) == 0o040000 and stat.st_uid == os.getuid()
    return mine and not stat.st_mode & 0o022


def read_first_line(path: str) -> str:
    """Return the first line of a small file, ``""`` when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


# --- processes -------------------------------------------------------------------------------


class Proc(NamedTuple):
    """What ``/proc/<pid>/stat`` says."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    cpu_ticks: int
    start_ticks: int

    @property
    def key(self) -> Key:
        """(pid, start ticks)."""
        return self.pid, self.start_ticks


def read_proc(pid: int) -> Optional[Proc]:
    """Return the process, zombies included; ``None`` when there is none that may be seen."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            data = file.read()
    except OSError:
        return None
    # The name stands in brackets and may itself hold brackets and spaces.
    before, _, after = data.rpartition(b")")
    words = after.split()
    if len(words) < 20:
        return None
    return Proc(
        pid=pid,
        name=before.partition(b"(")[2].decode("utf-8", "replace"),
        state=words[0].decode("ascii", "replace"),
        parent=int(words[1]),
        group=int(words[2]),
        session=int(words[3]),
        cpu_ticks=int(words[11]) + int(words[12]),
        start_ticks=int(words[19]),
    )


def is_living(proc: Optional[Proc]) -> bool:
    """Tell whether the process still runs: a zombie does only while it has other threads."""
    if proc is None:
        return False
    if proc.state not in "ZXx":
        return True
    try:
        return len(os.listdir("/proc/%d/task" % proc.pid)) > 1
    except OSError:
        return False


def find_living(key: Optional[Key]) -> Optional[Proc]:
    """Return the process of ``key`` if it still runs (another one under its pid does not count)."""
    if key is None:
        return None
    proc = read_proc(key[0])
    return proc if proc is not None and proc.start_ticks == key[1] and is_living(proc) else None


def young(procs: Iterable[Proc]) -> List[int]:
    """Return the pids of those that may not yet be what they will be: they exec soon."""
    now_ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    least = now_ticks - YOUNG_S * os.sysconf("SC_CLK_TCK")
    return [proc.pid for proc in procs if proc.start_ticks >= least]


def list_pids() -> Set[int]:
    """Return the pids of all processes that may be seen."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def read_command(pid: int) -> Optional[str]:
    """Return the command line with spaces between the words; ``None`` where there is none."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            data = file.read(65536)
    except OSError:
        return None
    text = data.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return text or None


@functools.lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """Return the name of a user, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_owner(pid: int) -> Optional[str]:
    """Return the name of the process's user."""
    try:
        return user_name(os.stat("/proc/%d" % pid).st_uid)
    except OSError:
        return None


def read_container(pid: int) -> Optional[str]:
    """Return the short id of the container a process runs in."""
    try:
        with open("/proc/%d/cgroup" % pid, encoding="utf-8", errors="replace") as file:
            found = CONTAINER.search(file.read(65536))
    except OSError:
        return None
    return found.group(1)[:12] if found else None


def read_inner_pid(pid: int) -> Optional[int]:
    """Return the process's pid in its own pid namespace, where that is another one."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as file:
            words = next((line.split() for line in file if line.startswith("NSpid:")), [])
    except OSError:
        return None
    return int(words[-1]) if len(words) > 2 and words[-1].isdigit() else None


class Inside(NamedTuple):
    """A command that ``docker exec`` or the like runs in a container."""

    program: str
    """The client, as it was called."""
    container: str
    argv: List[str]

    def fits(self, pid: int, container_id: Optional[str]) -> bool:
        """Tell whether this is the command's process: one of another PID namespace, in the
        container (where its id is known), with the command line (``***`` fits all)."""
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read(1 << 20).decode("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            return False
        # A script's command line begins with its interpreter, and with the script's full path.
        more = len(words) - len(self.argv)
        if not 0 <= more <= 3:
            return False
        wanted = [os.path.basename(self.argv[0]), *self.argv[1:]]
        found = [os.path.basename(words[more]), *words[more + 1 :]]
        for word, mask in zip(found, wanted):  # noqa: B905 -- Python 3.8; as long, see above
            if word != mask and not ("***" in mask and word.startswith(mask.partition("***")[0])):
                return False
        where = read_container(pid)
        if container_id is not None and where is not None:
            return container_id.startswith(where)
        return where is not None or read_inner_pid(pid) is not None

    def signal(self, inner_pid: int, number: int) -> bool:
        """Have the container's own ``kill`` signal a process that this user may not."""
        command = "kill -%d %d" % (number, inner_pid)
        argv = ["exec", "-u", "0", self.container, "sh", "-c", command]
        return self._ask(argv, timeout=20.0) is not None

    def find_id(self) -> Optional[str]:
        """Ask the engine for the container's full id; ``None`` where it does not tell."""
        told = self._ask(["inspect", "--format", "{{.Id}}", self.container], timeout=5.0)
        found = (told or b"").decode("ascii", "replace").strip()
        return found if re.fullmatch("[0-9a-f]{64}", found) else None

    def _ask(self, argv: List[str], *, timeout: float) -> Optional[bytes]:
        """Run the engine's program; ``None`` where it fails, or does not end in ``timeout`` s."""
        try:
            done = subprocess.run(
                [self.program, *argv],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=timeout,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


YOUNG_S = 5.0
"""For so long a process is looked at again and again: it may have been read before its exec."""
INSIDE_LIMIT_S = 60.0
"""How soon after its client the process in a container must have begun to count as its."""
CONTAINER_CLIENTS = ("docker", "podman", "nerdctl")
OPTIONS_WITH_VALUE = ("-e", "--env", "--env-file", "-w", "--workdir", "-u", "--user")


def inside_of(argv: List[str]) -> Optional[Inside]:
    """Return what ``docker exec`` runs inside a container; ``None`` for other commands."""
    client = len(argv) > 3 and os.path.basename(argv[0]) in CONTAINER_CLIENTS
    if not client or argv[1] != "exec":
        return None
    at = 2
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in OPTIONS_WITH_VALUE else 1
    if at + 1 >= len(argv):
        return None
    return Inside(os.path.expanduser(argv[0]), argv[at], list(argv[at + 1 :]))


def read_key(value: object) -> Optional[Key]:
    """Return the process that ``{"pid", "start_ticks"}`` of a record names."""
    if not isinstance(value, dict):
        return None
    pid, ticks = value.get("pid"), value.get("start_ticks")
    return (pid, ticks) if isinstance(pid, int) and isinstance(ticks, int) else None


def writes_to(pid: int, path: str) -> bool:
    """Tell whether the process's stdout or stderr is the file (the link is read, not followed:
    a file on a server that hangs must not hang this)."""
    for number in (1, 2):
        try:
            target = os.readlink("/proc/%d/fd/%d" % (pid, number))
        except OSError:
            continue
        if target == path or target == path + " (deleted)":
            return True
    return False


def call_prctl(option: int, value: Any) -> None:
    """Call prctl; a libc without it only costs the feature."""
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return


def set_process_name(name: str) -> None:
    """Set the short name that ``top`` shows (15 characters)."""
    call_prctl(15, ctypes.c_char_p(name.encode()))


def close_standard_files() -> None:
    """Point stdin, stdout and stderr at ``/dev/null``."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    if null > 2:
        os.close(null)


# --- runs ------------------------------------------------------------------------------------


class Run:
    """One run folder, and what is known of its processes."""

    def __init__(self, run_id: str, folder: str) -> None:
        self.id = run_id
        self.folder = folder
        self.log = os.path.join(folder, "server.log")
        self.record: Json = {}
        self.exit: Optional[Json] = None
        self.stop: Optional[Json] = None
        self.members: Dict[int, int] = {}
        """Living processes: pid to start ticks."""
        self.status: Json = {}
        self.version = 0
        self.settled = False
        """Ended, with no process left: only its folder's time of change is looked at."""
        self._folder_time = -1
        self._read_at = 0.0
        self._leader_seen = False
        self._leader_gone_at: Optional[float] = None
        self._gone_wall: Optional[float] = None
        self._slow_at = 0.0
        self._processes: List[Json] = []
        self._activity: Optional[Json] = None
        self._cpu: Dict[Key, int] = {}
        self._read: Dict[Key, int] = {}

    @property
    def leader(self) -> Optional[Key]:
        """The server's first process."""
        return read_key(self.record)

    @property
    def argv(self) -> List[str]:
        """The command line, secrets masked."""
        words = self.record.get("argv")
        return [str(word) for word in words] if isinstance(words, list) else []

    @property
    def supervisor(self) -> Optional[Key]:
        """The supervisor's process."""
        return read_key(self.record.get("supervisor"))

    def family(self, members: Dict[int, int]) -> Family:
        """Return what tells its processes from others."""
        return Family(self.record, self.log, members)

    def reload(self, now: float) -> bool:
        """Read the folder's files if they may have changed; False when the folder is gone."""
        try:
            changed_ns = os.stat(self.folder).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        # A file system's clock is coarse: a folder that has just changed is read once more.
        fresh = abs(time.time() - changed_ns / 1e9) < 0.5
        late = not self.settled and now - self._read_at > 2.0
        if changed_ns == self._folder_time and not fresh and not late:
            return True
        self._folder_time, self._read_at = changed_ns, now
        self.record = read_json(os.path.join(self.folder, "run.json")) or self.record
        self.exit = read_json(os.path.join(self.folder, "exit.json")) or self.exit
        self.stop = read_json(os.path.join(self.folder, "stop.json")) or self.stop
        return True

    def lives(self) -> bool:
        """Whether a process that is known to belong to it is still there."""
        return any(find_living(key) is not None for key in self.members.items())

    def update(self, now: float, boot_id: str, scanned_at: float) -> None:
        """Look at the processes and work out the status."""
        here = self.record.get("boot_id") == boot_id
        leader = find_living(self.leader) if here else None
        if self.leader is not None and leader is None and self._leader_gone_at is None:
            self._leader_gone_at = now
            seen = self._leader_seen or self.leader[0] in self.members
            self._gone_wall = time.time() if seen else None
        self._leader_seen = self._leader_seen or leader is not None
        if here and leader is not None:
            self.members.setdefault(leader.pid, leader.start_ticks)
        stopping = bool(self.stop) and not self.stop_done()
        if now - self._slow_at >= 2.0 or stopping or (leader is None and self.members):
            self._look(now)
        elif leader is None and self.leader is not None:
            self.members.pop(self.leader[0], None)
        if {one["pid"] for one in self._processes} != set(self.members):
            self._look(now)
        ended = self.exit or self._guess_exit(now, here=here)
        record = {key: value for key, value in self.record.items() if key not in OWN_KEYS}
        status = {
            "record": record,
            "processes": self._processes,
            "exit": ended,
            "stop": self.stop,
            "activity": self._activity,
        }
        if status != self.status:
            self.status = status
            self.version += 1
        over = ended is not None or bool(self.record.get("spawn_error"))
        # Orphans forked at the last moment are found only by a scan made after the end was seen.
        looked = not here or scanned_at > (self._leader_gone_at or 0.0)
        quiet = not self.stop or self.stop_done()
        self.settled = over and not self.members and looked and quiet

    def wants_scan(self, scanned_at: float) -> bool:
        """Whether its leader went after the last look for new processes."""
        return self._leader_gone_at is not None and scanned_at <= self._leader_gone_at

    def stop_done(self) -> bool:
        """Whether the account of the last stop is closed."""
        stop = self.stop or {}
        return bool(stop.get("gone_at") or stop.get("left") or stop.get("error"))

    def is_stopping(self) -> bool:
        """Whether a stop is under way, and not overdue: a stopper may have been killed."""
        if not self.stop or self.stop_done():
            return False
        due = float(self.stop.get("requested_at") or 0.0) + float(self.stop.get("grace_s") or 0.0)
        return time.time() < due + Stopper.LEFT_AFTER_S

    def _look(self, now: float) -> None:
        """Read state, command line and use of every member; forget those that are gone."""
        self._slow_at = now
        processes = []
        for pid, ticks in sorted(self.members.items()):
            proc = find_living((pid, ticks))
            if proc is None:
                del self.members[pid]
                continue
            command = read_command(pid) or "[%s]" % proc.name
            processes.append(
                {
                    "pid": pid,
                    "start_ticks": ticks,
                    "command": command,
                    "state": proc.state,
                    "parent": proc.parent,
                    "user": read_owner(pid),
                    "container": read_container(pid),
                }
            )
            self._cpu[proc.key] = proc.cpu_ticks
            self._note_reads(proc.key)
        self._processes = processes
        try:
            log_bytes = os.stat(self.log).st_size
        except OSError:
            log_bytes = 0
        # What ended processes used still counts, so that the sums never fall.
        self._activity = {
            "cpu_s": sum(self._cpu.values()) / os.sysconf("SC_CLK_TCK"),
            "read_bytes": sum(self._read.values()) if self._read else None,
            "log_bytes": log_bytes,
        }

    def _note_reads(self, key: Key) -> None:
        """Note what a process has read: from files, or from disk (which mapped files are)."""
        try:
            with open("/proc/%d/io" % key[0], "rb") as file:
                values = dict(line.split(b":") for line in file.read().splitlines())
            self._read[key] = max(int(values[b"rchar"]), int(values[b"read_bytes"]))
        except (OSError, ValueError, KeyError):
            return

    def _guess_exit(self, now: float, *, here: bool) -> Optional[Json]:
        """Say how a run ended whose supervisor could not tell."""
        if self.record.get("spawn_error"):
            return None
        if not here:
            reason = "host rebooted" if self.record else "supervisor gone"
            return {"code": None, "signal": None, "at": None, "reason": reason}
        if self.leader is not None and self._leader_gone_at is None:
            return None
        if find_living(self.supervisor) is not None:
            return self._unwritten_exit(now)
        # Read after the supervisor was seen to be gone: nobody can write it from here on.
        self.exit = read_json(os.path.join(self.folder, "exit.json"))
        if self.exit is not None:
            return self.exit
        if self.leader is None:
            launched_at = self.record.get("launched_at")
            if isinstance(launched_at, float) and time.time() - launched_at < 10.0:
                return None
        return {"code": None, "signal": None, "at": self._gone_wall, "reason": "supervisor gone"}

    def _unwritten_exit(self, now: float) -> Optional[Json]:
        """Tell an end that its supervisor has seen and cannot write, as on a full disk."""
        if self.leader is None or self._leader_gone_at is None or self.members:
            return None
        proc = read_proc(self.leader[0])
        unseen = proc is not None and proc.key == self.leader  # a zombie: not waited for yet
        if unseen or now - self._leader_gone_at < UNWRITTEN_AFTER_S:
            return None
        reason = "how it ended cannot be written"
        return {"code": None, "signal": None, "at": self._gone_wall, "reason": reason}


class Runs:
    """All runs of this user on this host."""

    def __init__(self, roots: List[str], boot_id: str) -> None:
        self.root = roots[0]
        """Where new runs go; ``roots`` are all folders that may hold some."""
        self.roots = roots
        self.owners: Dict[int, Tuple[int, str]] = {}
        """Pid of a run's process to (start ticks, run id); replaced as a whole, read unlocked."""
        self._boot_id = boot_id
        self._lock = threading.RLock()
        self._runs: Dict[str, Run] = {}
        self._known_pids: Set[int] = set()
        self._scanned_at = 0.0
        self._full_at = -60.0
        self._settled_at = -60.0
        self._refreshed_at = -60.0
        self._helpers: List[subprocess.Popen[bytes]] = []
        self.stopping = False
        """Whether a run is being stopped."""
        self._looking_since: Optional[float] = None

    def silent_s(self) -> float:
        """Return for how long the file system of the records has left a look unanswered."""
        since = self._looking_since
        return time.monotonic() - since if since is not None else 0.0

    def silence(self) -> Optional[str]:
        """Say for how long it has not answered; ``None`` while it does."""
        silent_s = self.silent_s()
        if silent_s < STATE_SILENT_S:
            return None
        return "%s has not answered for %.0f s" % (os.path.dirname(self.root), silent_s)

    def refuse_silent(self) -> None:
        """Refuse what would begin whenever the file system of the records comes back."""
        silence = self.silence()
        if silence is not None:
            raise RequestError("state-silent", silence + "; nothing was done")

    def folder(self, run_id: object) -> str:
        """Return the folder of a run that exists."""
        if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
            raise RequestError("no-such-run", "not a run id: %r" % (run_id,))
        for root in self.roots:
            folder = os.path.join(root, run_id)
            if os.path.isdir(folder):
                return folder
        where = " or ".join(self.roots)
        raise RequestError("no-such-run", "there is no run %s in %s" % (run_id, where))

    def keep(self, helper: subprocess.Popen[bytes]) -> None:
        """Remember a started helper, to reap it."""
        with self._lock:
            self._helpers.append(helper)

    def refresh(self, max_age_s: float = 0.1) -> Dict[str, int]:
        """Look again unless that was done within ``max_age_s``; return the version of each run."""
        with self._lock:
            now = time.monotonic()
            if now - self._refreshed_at >= max_age_s:
                self._helpers = [one for one in self._helpers if one.poll() is None]
                self._looking_since = now
                self._list(now)
                self._scan(now)
                settled_too = now - self._settled_at >= 1.0
                if settled_too:
                    self._settled_at = now
                for run in list(self._runs.values()):
                    if run.settled and not settled_too:
                        continue
                    self._refresh_run(run, now)
                owners = {}
                for run in self._runs.values():
                    for pid, ticks in run.members.items():
                        owners[pid] = (ticks, run.id)
                self.owners = owners
                self.stopping = any(run.is_stopping() for run in self._runs.values())
                self._refreshed_at = now
                self._looking_since = None
            return {run.id: run.version for run in self._runs.values()}

    def status(self, run_id: str, max_age_s: float = 0.1) -> Json:
        """Return the status of one run, ``{}`` when it is gone."""
        with self._lock:
            self.refresh(max_age_s)
            run = self._runs.get(run_id)
            return run.status if run else {}

    def is_over(self, run_id: str) -> bool:
        """Tell whether the run has ended and no process of it is left."""
        with self._lock:
            run = self._find(run_id)
            return run is None or run.settled

    def living(self, known: List[str]) -> List[Json]:
        """Return the records of the runs that have not ended, but for those that are known."""
        with self._lock:
            self.refresh(0.0)
            return [
                run.record
                for run in self._runs.values()
                if run.id not in known
                and (run.members or not run.status.get("exit"))
                and not run.record.get("spawn_error")
            ]

    def has_begun(self, run_id: str) -> bool:
        """Tell whether the run's first process was started."""
        with self._lock:
            run = self._find(run_id)
            return run is not None and run.leader is not None

    def _find(self, run_id: str) -> Optional[Run]:
        """Return a run as it was half a second ago; one that was started since as it is now."""
        self.refresh(0.5)
        if run_id not in self._runs:
            self.refresh(0.0)
        return self._runs.get(run_id)

    def members(self, run_id: str) -> List[Key]:
        """Return the known living processes of a run."""
        with self._lock:
            self.refresh()
            run = self._runs.get(run_id)
            return sorted(run.members.items()) if run else []

    def _refresh_run(self, run: Run, now: float) -> None:
        version = run.version
        if not run.reload(now) and not run.lives():
            del self._runs[run.id]
            return
        if run.settled and run.status and not (run.stop and not run.stop_done()):
            # The end too may be written late, after a full disk.
            status = dict(run.status, stop=run.stop, exit=run.exit or run.status["exit"])
            if status != run.status:
                run.status = status
                run.version = version + 1
            return
        run.update(now, self._boot_id, self._scanned_at)
        if run.wants_scan(self._scanned_at):
            # An end is told together with the workers that outlive it.
            again = time.monotonic()
            self._scan(again)
            run.update(again, self._boot_id, self._scanned_at)

    def _list(self, now: float) -> None:
        names: Dict[str, str] = {}
        for root in self.roots:
            try:
                found = os.listdir(root)
            except (FileNotFoundError, NotADirectoryError):
                continue  # there is none yet
            except OSError:
                # One that cannot be looked at (an NFS server gone) is not an empty one.
                found = [run.id for run in self._runs.values() if run.folder.startswith(root)]
            for name in found:
                names.setdefault(name, root)
        for name, root in names.items():
            if name not in self._runs and RUN_ID.fullmatch(name):
                run = Run(name, os.path.join(root, name))
                if run.reload(now) and run.record.get("id") != name:
                    run.record = damaged_record(name, os.path.join(run.folder, "run.json"))
                # A folder without a record is one that is being made right now.
                if run.record:
                    self._runs[name] = run
                    self._full_at = -60.0
        for name in set(self._runs) - set(names):
            # A folder may be away for a moment (an automounter), and its server is not.
            if not self._runs[name].lives():
                del self._runs[name]

    def _scan(self, now: float) -> None:
        """Find processes that joined a run: only new pids are looked at, all of them rarely."""
        open_runs = [
            run
            for run in self._runs.values()
            if not run.settled and run.record.get("boot_id") == self._boot_id
        ]
        due = now - self._scanned_at >= 1.0 or now - self._full_at >= 30.0
        if not open_runs or not (due or any(run.wants_scan(self._scanned_at) for run in open_runs)):
            return
        if now - self._full_at >= 30.0:
            self._known_pids = set()
            self._full_at = now
        self._scanned_at = now
        pids = list_pids()
        new = pids - self._known_pids
        families = [(run, run.family(run.members)) for run in open_runs]
        procs = [proc for proc in map(read_proc, new) if proc is not None]
        procs.sort(key=lambda proc: (proc.start_ticks, proc.pid))
        self._known_pids = pids - set(young(procs))
        for proc in procs:
            for run, family in families:
                if family.owns(proc):
                    run.members[proc.pid] = proc.start_ticks
                    break


class Family:
    """Tells which processes belong to a run. ``members`` is added to by the caller."""

    def __init__(self, record: Json, log: str, members: Dict[int, int]) -> None:
        self.members = members
        self._leader = read_key(record)
        supervisor = read_key(record.get("supervisor"))
        self._supervisor = supervisor if find_living(supervisor) else None
        self._log = os.path.realpath(log)
        # What docker exec starts is no child of it. Its supervisor notes it; until then its
        # command line is all that tells.
        inner = read_key(record.get("inside"))
        argv = record.get("argv")
        words = [str(word) for word in argv] if isinstance(argv, list) else []
        self.inside = inside_of(words)
        self._sought = self.inside if inner is None else None
        self._container_id = record.get("container_id")
        # While any process of a session lives, its number is not given to a new process. So a
        # stranger under the leader's pid proves that the old session is empty.
        self._sessions = []
        for key in (self._leader, inner):
            current = read_proc(key[0]) if key else None
            if key and (current is None or current.start_ticks == key[1]):
                self._sessions.append(key)
        self._strangers = [key for key in (self._leader, inner) if key not in self._sessions]

    def owns(self, proc: Proc) -> bool:
        """Tell whether a process that was just read is one of the run."""
        if proc.pid == os.getpid() or proc.key == self._supervisor or not is_living(proc):
            return False
        for pid, ticks in self._sessions:
            if proc.pid == pid:
                return proc.start_ticks == ticks
            if proc.start_ticks >= ticks and pid in (proc.session, proc.group):
                return True
        if any(key is not None and proc.pid == key[0] for key in self._strangers):
            return False
        if proc.parent in self.members:
            return True
        if self._supervisor is not None and proc.parent == self._supervisor[0]:
            return True
        return self.is_inside(proc) or writes_to(proc.pid, self._log)

    def is_inside(self, proc: Proc) -> bool:
        """Tell whether it is the process that the leader had started in a container."""
        if self._sought is None or self._leader is None:
            return False
        later = proc.start_ticks - self._leader[1]
        if not 0 <= later <= INSIDE_LIMIT_S * os.sysconf("SC_CLK_TCK"):
            return False
        return self._sought.fits(proc.pid, self._container_id)


# --- starting: agent's side and supervisor ---------------------------------------------------


def spawn_helper(role: str, run_id: str, job: Json, source: bytes) -> subprocess.Popen[bytes]:
    """Start this source in another role, detached, and hand it ``job`` over a pipe."""
    helper = subprocess.Popen(
        [sys.executable, "-ISuc", LOADER, role, run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    # If it has died already, the missing answer says so.
    with contextlib.suppress(OSError), helper.stdin or contextlib.nullcontext() as stdin:
        if stdin is not None:
            stdin.write(b"%08d" % len(source) + source + json.dumps(job).encode())
    return helper


def read_report(helper: subprocess.Popen[bytes], limit_s: float) -> Optional[Json]:
    """Return the one line that a helper answers with; ``None`` when none comes in time."""
    if helper.stdout is None:
        return None
    handle = helper.stdout.fileno()
    data = b""
    until = time.monotonic() + limit_s
    while not data.endswith(b"\n"):
        left_s = until - time.monotonic()
        if left_s <= 0 or not select.select([handle], [], [], left_s)[0]:
            break
        part = os.read(handle, 65536)
        if not part:
            break
        data += part
    helper.stdout.close()
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


HALF_DONE = threading.Lock()
"""Held while a run has a record and no supervisor yet: an agent that ended then would lose it."""
HALF_DONE_LIMIT_S = 5.0


def start_run(request: Json, runs: Runs, boot_id: str, source: bytes) -> Json:
    """Make the run's folder and start its supervisor; return the record once a pid is known."""
    run_id = request.get("id")
    argv = request.get("argv")
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        raise RequestError("bad-request", "not a run id: %r" % (run_id,))
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise RequestError("bad-request", "argv of run %s is not a list of words" % run_id)
    folder = os.path.join(runs.root, run_id)
    record = {key: request.get(key) for key in RECORDED}
    record.update(
        argv=request.get("argv_recorded") or [],
        env=request.get("env_recorded") or {},
        launched_at=time.time(),
        boot_id=boot_id,
        log_path=os.path.join(folder, "server.log"),
        pid=None,
        start_ticks=None,
        spawn_error=None,
    )
    runs.refuse_silent()
    inside = inside_of(argv)
    if inside is not None:
        record["container_id"] = inside.find_id()
    with HALF_DONE:
        helper = record_run(request, runs, record, source)
    runs.keep(helper)
    report = read_report(helper, 20.0)
    if report is None:
        raise RequestError("spawn-late", "the supervisor of run %s has not answered yet" % run_id)
    if report.get("error"):
        raise RequestError("spawn-failed", str(report["error"]))
    return {"record": report["record"]}


def record_run(request: Json, runs: Runs, record: Json, source: bytes) -> subprocess.Popen[bytes]:
    """Make the run's folder with its record and start its supervisor."""
    run_id, argv = str(request["id"]), request["argv"]
    folder = os.path.join(runs.root, run_id)
    try:
        os.makedirs(runs.root, mode=0o700, exist_ok=True)
        with locked(os.path.join(os.path.dirname(runs.root), "launch.lock")):
            refuse_taken(request, runs)
            os.mkdir(folder, 0o700)
            try:
                write_json(os.path.join(folder, "run.json"), record)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    except FileExistsError:
        raise RequestError("run-exists", "there is a run %s already" % run_id) from None
    except OSError as error:
        raise RequestError(
            "state-not-writable",
            "cannot make %s: %s; make it writable or set XDG_STATE_HOME for this host"
            % (folder, error.strerror),
        ) from None
    job = {"folder": folder, "record": record, "argv": argv, "env": request.get("env") or {}}
    try:
        helper = spawn_helper("eaglemon-supervisor", run_id, job, source)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        kind = "state-not-writable" if error.filename else "spawn-failed"
        raise RequestError(
            kind, "cannot start a run in %s: %s" % (folder, error.strerror)
        ) from None
    return helper


@contextlib.contextmanager
def locked(path: str, limit_s: float = 10.0) -> Iterator[None]:
    """Hold the lock of a file; one that cannot be had in time (an agent hangs) is done without."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break  # a file system without locks
        yield
    finally:
        os.close(handle)


def refuse_taken(request: Json, runs: Runs) -> None:
    """Refuse a start whose port or GPUs another console's run has just taken.

    ``known_runs`` are those that the console's own check has judged; without it nothing is refused.
    """
    known = request.get("known_runs")
    if not isinstance(known, list):
        return
    wanted = set(request.get("gpu_indexes") or [])
    for record in runs.living(known):
        shared = sorted(wanted.intersection(record.get("gpu_indexes") or []))
        if record.get("port") is not None and record.get("port") == request.get("port"):
            what, kind = "port %s" % record["port"], "port-in-use"
        elif shared and not request.get("force"):
            what, kind = "GPU %s" % ", ".join(map(str, shared)), "gpu-in-use"
        else:
            continue
        text = "%s was just taken by %s, which was launched at the same time"
        raise RequestError(kind, text % (what, record.get("id")))


def supervise() -> None:
    """Role ``eaglemon-supervisor``: start the server, wait for it, record its end."""
    job = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    folder, record = job["folder"], job["record"]
    set_process_name("eaglemon-superv")
    # Handlers, not SIG_IGN: an ignored signal would stay ignored in the server.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    call_prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphaned workers become children of this process
    answer = os.dup(1)
    close_standard_files()
    me = read_proc(os.getpid())
    record["supervisor"] = {"pid": os.getpid(), "start_ticks": me.start_ticks if me else 0}
    path = os.path.join(folder, "run.json")
    try:
        write_json(path, record)
    except OSError as error:
        text = "cannot write %s: %s" % (path, error.strerror)
        with contextlib.suppress(OSError):
            os.write(answer, json.dumps({"error": text}).encode() + b"\n")
        return
    environment = dict(os.environ)
    environment.update(job["env"])
    argv = [os.path.expanduser(job["argv"][0]), *job["argv"][1:]]
    workdir = os.path.expanduser(record["workdir"] or "~")
    if not record["workdir"] and not os.path.isdir(workdir):
        workdir = "/"
    report: Json
    child = None
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        log = os.open(os.path.join(folder, "server.log"), flags, 0o600)
        child = subprocess.Popen(
            argv,
            env=environment,
            cwd=workdir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(log)
    except (OSError, ValueError) as error:
        record["spawn_error"] = explain_spawn(error, argv[0], workdir)
        report = {"error": record["spawn_error"]}
    else:
        started = read_proc(child.pid)
        record["pid"] = child.pid
        record["start_ticks"] = started.start_ticks if started else 0
        report = {"record": {key: record[key] for key in record if key not in OWN_KEYS}}
    later = None
    try:
        write_json(path, record)
    except OSError:
        later = threading.Thread(target=write_patiently, args=(path, record))
    # If the agent is gone, run.json tells the next one.
    with contextlib.suppress(OSError):
        os.write(answer, json.dumps(report).encode() + b"\n")
    os.close(answer)
    over = threading.Event()
    if child is not None and inside_of(record["argv"]) is not None:
        what = (record, path, os.path.join(folder, "server.log"), over)
        later = threading.Thread(target=note_inside, args=what)
    if later is not None:
        later.start()
    if child is not None:
        reap(child.pid, os.path.join(folder, "exit.json"))
    over.set()
    if later is not None:
        later.join()


def note_inside(record: Json, path: str, log: str, over: threading.Event) -> None:
    """Find the process that the server's command started in a container, and record it.

    Done at once and here: it may change its title later, and a console may come and go.
    """
    family = Family(record, log, {})
    known: Set[int] = set()
    until = time.monotonic() + INSIDE_LIMIT_S
    while time.monotonic() < until:
        if over.is_set():
            # Its client has ended: it is there by now, or was never started.
            until = min(until, time.monotonic() + 2.0)
        pids = list_pids()
        procs = [proc for proc in map(read_proc, pids - known) if proc is not None]
        known = pids - set(young(procs))
        found = next((proc for proc in procs if family.is_inside(proc)), None)
        if found is not None:
            record["inside"] = {"pid": found.pid, "start_ticks": found.start_ticks}
            break
        time.sleep(0.1)
    write_patiently(path, record)


def explain_spawn(error: Exception, program: str, workdir: str) -> str:
    """Say why a program could not be executed."""
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, OSError) and error.filename == workdir and program != workdir:
        return "cannot enter the working folder %s: %s" % (workdir, reason)
    return "cannot execute %s: %s" % (program, reason)


def reap(leader: int, path: str) -> None:
    """Wait for the leader and record its end; then reap its orphans until none is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if pid != leader:
            continue
        ended: Json = {"code": None, "signal": None, "at": time.time(), "reason": None}
        if os.WIFSIGNALED(status):
            ended["signal"] = signal_name(os.WTERMSIG(status))
        else:
            ended["code"] = os.WEXITSTATUS(status)
        write_patiently(path, ended)


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


# --- stopping --------------------------------------------------------------------------------


class Stopper:
    """Role ``eaglemon-stopper``: ends all processes of a run and writes ``stop.json``."""

    POLL_S = 0.05
    RESCAN_S = 0.5
    LEFT_AFTER_S = 10.0
    GIVE_UP_S = 600.0

    def __init__(self, job: Json) -> None:
        self.folder = job["folder"]
        self.path = os.path.join(self.folder, "stop.json")
        self.account: Json = {
            "requested_at": job["requested_at"],
            "grace_s": job["grace_s"],
            "term_sent_at": None,
            "term_count": 0,
            "kill_sent_at": None,
            "kill_count": 0,
            "gone_at": None,
            "left": [],
            "pids": [],
            "error": None,
        }
        self.members: Dict[int, int] = {int(pid): int(ticks) for pid, ticks in job["known"]}
        self.spared = own_ancestors()
        self.refused: Set[Key] = set()
        run = Run("", self.folder)
        run.reload(time.monotonic())
        self.family = run.family(self.members)
        self.same_boot = run.record.get("boot_id") == read_boot_id()
        self._scanned_at = 0.0

    def save(self) -> None:
        """Write the account as it stands; a full disk holds no signal up."""
        with contextlib.suppress(OSError):
            write_json(self.path, self.account)

    def close(self) -> None:
        """Write the account that is whole, however long the disk takes."""
        write_patiently(self.path, self.account)

    def find(self, *, rescan: bool = True) -> List[Proc]:
        """Return the living processes of the run."""
        if rescan:
            self._scanned_at = time.monotonic()
            procs = [proc for proc in map(read_proc, list_pids()) if proc is not None]
            procs.sort(key=lambda proc: (proc.start_ticks, proc.pid))
            for proc in procs:
                if proc.pid not in self.spared and self.family.owns(proc):
                    self.members[proc.pid] = proc.start_ticks
        living = []
        for pid, ticks in list(self.members.items()):
            found = find_living((pid, ticks))
            if found is None:
                del self.members[pid]
            elif pid not in self.spared:
                living.append(found)
        return living

    def send(self, procs: Iterable[Proc], number: int) -> int:
        """Signal each process that is still the one that was looked at; return how many."""
        count = 0
        # One that was forked a moment ago is told by nothing else, and the driver may list it.
        procs = list(procs)
        self.account["pids"] = sorted({*self.account["pids"], *(proc.pid for proc in procs)})
        for proc in procs:
            try:
                sent = send_signal(proc.key, number)
            except PermissionError:
                # Root's in a container that this user may enter.
                inside, inner = self.family.inside, read_inner_pid(proc.pid)
                sent = bool(inside and inner and find_living(proc.key) is not None)
                if not (sent and inside and inner and inside.signal(inner, number)):
                    self.refused.add(proc.key)
                    continue
            count += sent
        return count

    def run(self) -> None:
        """Carry the stop out."""
        if not self.same_boot:
            self.account["gone_at"] = time.time()
            self.close()
            return
        living = self.find()
        if living:
            # The client of a container ends by itself when what it waits for has: so it passes on
            # the last lines and the exit code.
            contained = [proc for proc in living if self.family.inside and read_inner_pid(proc.pid)]
            self.account["term_sent_at"] = time.time()
            self.account["term_count"] = self.send(contained or living, signal.SIGTERM)
            self.save()
            living = self.wait()
        if living:
            living = self.kill(living)
        if not living:
            self.account.update(gone_at=time.time(), left=[])
        self.close()

    def deadline(self) -> float:
        """Return when the grace ends (unix seconds): a more urgent stop brings it forward."""
        base = self.account["term_sent_at"] or time.time()
        end = base + self.account["grace_s"]
        urgent = (read_json(os.path.join(self.folder, "stop-sooner.json")) or {}).get("at")
        if isinstance(urgent, float) and urgent >= self.account["requested_at"]:
            end = min(end, urgent)
        return float(end)

    def wait(self, until: Optional[float] = None) -> List[Proc]:
        """Wait until no process is left or the time (the grace's end) has come; return the rest."""
        while True:
            rescan = time.monotonic() - self._scanned_at >= self.RESCAN_S
            living = self.find(rescan=rescan)
            if not living and not rescan:
                living = self.find()
            if not living or time.time() >= (self.deadline() if until is None else until):
                return living
            time.sleep(self.POLL_S)

    def kill(self, living: List[Proc]) -> List[Proc]:
        """KILL what is left, and what it forks meanwhile, until it is gone."""
        started = time.time()
        self.account["kill_sent_at"] = started
        killed: Set[Key] = set()
        while living:
            new = [proc for proc in living if proc.key not in killed]
            if new:
                self.account["kill_count"] += self.send(new, signal.SIGKILL)
                killed.update(proc.key for proc in new)
                self.save()
            waited_s = time.time() - started
            stuck = all(proc.key in self.refused for proc in living)
            left = sorted(proc.pid for proc in living)
            # Releasing many GPUs can hold a killed process in the driver for a while.
            if (waited_s > self.LEFT_AFTER_S or stuck) and left != self.account["left"]:
                self.account["left"] = left
                self.save()
            if waited_s > self.GIVE_UP_S or stuck:
                return living
            self.wait(time.time() + (0.2 if waited_s < self.LEFT_AFTER_S else 2.0))
            living = self.find()
        return living


def stop() -> None:
    """Role ``eaglemon-stopper``: one per run at a time; a second one only hastens the first."""
    job = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    set_process_name("eaglemon-stop")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    answer = os.dup(1)
    close_standard_files()
    if joins_other(job):
        with contextlib.suppress(OSError):
            os.write(answer, b'{"joined": true}\n')
        return
    stopper = Stopper(job)
    try:
        stopper.save()
        # If the agent is gone, the stop goes on.
        with contextlib.suppress(OSError):
            os.write(answer, b'{"joined": false}\n')
        os.close(answer)
        stopper.run()
    except Exception as error:
        stopper.account["error"] = "the stop failed: %s: %s" % (type(error).__name__, error)
        stopper.close()


def joins_other(job: Json) -> bool:
    """Hasten the stop that another process carries out, and tell whether there is one.

    Else this one holds the lock until it ends. Without a lock (a full disk, a file system without
    any), and where the other cannot be told, each stop counts for itself.
    """
    folder = job["folder"]
    with contextlib.suppress(OSError):
        lock = os.open(os.path.join(folder, "stop.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sooner = {"at": float(job["requested_at"] + job["grace_s"])}
            write_json(os.path.join(folder, "stop-sooner.json"), sooner)
            return True
    return False


def send_signal(key: Key, number: int) -> bool:
    """Signal one process, only if (pid, start ticks) still name it; False when it is gone."""
    pid, _ = key
    if pid <= 1:
        return False
    if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
        # The handle is taken before the check, so a pid reused in between is never hit.
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError:
            handle = -1  # a kernel before 5.3, or one that is told to refuse it
        if handle >= 0:
            try:
                if find_living(key) is None:
                    return False
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return False
            finally:
                os.close(handle)
            return True
    if find_living(key) is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def own_ancestors() -> Set[int]:
    """Return this process and its ancestors: never signalled, whatever they hold open."""
    pids = set()
    pid = os.getpid()
    while pid > 1 and pid not in pids:
        pids.add(pid)
        proc = read_proc(pid)
        pid = proc.parent if proc else 0
    return pids


def stop_run(request: Json, runs: Runs, source: bytes) -> Json:
    """Start the stopper of a run; return once it has taken over."""
    run_id = request.get("run_id")
    runs.refuse_silent()
    folder = runs.folder(run_id)
    grace_s = request.get("grace_s")
    if not isinstance(grace_s, (int, float)) or isinstance(grace_s, bool) or grace_s < 0:
        raise RequestError("bad-request", "grace_s is not a number of seconds: %r" % (grace_s,))
    job = {
        "folder": folder,
        "grace_s": float(grace_s),
        "requested_at": time.time(),
        "known": runs.members(str(run_id)),
    }
    helper = spawn_helper("eaglemon-stopper", str(run_id), job, source)
    runs.keep(helper)
    if read_report(helper, 20.0) is None:
        raise RequestError("spawn-failed", "the stopper of run %s did not answer" % run_id)
    return {}


def forget_run(request: Json, runs: Runs) -> Json:
    """Remove the folder of a run that has ended."""
    runs.refuse_silent()
    folder = runs.folder(request.get("run_id"))
    runs.refresh(0.0)
    if not runs.is_over(str(request["run_id"])):
        raise RequestError(
            "still-running", "run %s has not ended; stop it first" % request["run_id"]
        )
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise RequestError("state-not-writable", "cannot remove %s: %s" % (folder, error)) from None
    return {}


# --- programs ---------------------------------------------------------------------------------


class Program:
    """A Python program that the console sent; runs in a process and session of its own.

    It finds its input as the bytes ``EAGLEMON_INPUT`` and writes its items as JSON objects, one a
    line, to stdout. What else it writes, there or to stderr, is kept to explain a failure.
    """

    def __init__(self, request: Json) -> None:
        argv, python = request.get("argv") or [], request.get("python")
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            raise RequestError("bad-request", "argv of the program is not a list of words")
        # The agent's own Python needs nothing of the host; one that was named keeps its packages.
        start = [str(python), "-uc"] if python else [sys.executable, "-ISuc"]
        try:
            self._process = subprocess.Popen(
                [os.path.expanduser(start[0]), start[1], PROGRAM_LOADER, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=dict(os.environ, **(request.get("env") or {})),
                start_new_session=True,
            )
        except OSError as error:
            raise RequestError("spawn-failed", "cannot start %s: %s" % (start[0], error)) from None
        self._said = b""
        given = json.dumps(request.get("input")).encode()
        source = request.get("blob") or b""
        data = b"%08d%s%08d%s" % (len(source), source, len(given), given)
        # A program that hangs before it reads must not keep the stream from being cancelled.
        threading.Thread(target=self._feed, args=(data,), daemon=True).start()

    @property
    def status(self) -> Optional[int]:
        """Exit status, negative for a signal; ``None`` before ``end``."""
        return self._process.returncode

    def lines(self, stream: Stream) -> Iterable[Json]:
        """Yield the items until the program ends or the stream is cancelled."""
        process, rest = self._process, b""
        open_ = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        while open_ and not stream.cancelled.is_set():
            for pipe in select.select(open_, [], [], 0.1)[0]:
                data = os.read(pipe.fileno(), 1 << 16)
                if not data:
                    open_.remove(pipe)
                elif pipe is process.stderr:
                    self._keep(data)
                else:
                    *complete, rest = (rest + data).split(b"\n")
                    for line in complete:
                        item = self._item(line)
                        if item is not None:
                            yield item
                    if len(rest) > MAX_HEAD_BYTES:
                        raise RequestError("program-failed", "the program wrote an endless line")
            # What it started may hold its pipes open.
            if self._has_ended() and not select.select(open_, [], [], 0.1)[0]:
                break
        self._keep(rest)
        while not self._has_ended() and not stream.pause(0.02):
            pass

    def end(self) -> None:
        """Kill what is left of it and of what it started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def explain(self) -> str:
        """Say how it failed, with the end of what it wrote."""
        status = self.status or 0
        how = signal_name(-status) if status < 0 else "status %d" % status
        said = self._said.decode("utf-8", "replace").strip()
        return "the program ended with %s%s" % (how, ": " + said if said else "")

    def _has_ended(self) -> bool:
        # It is not reaped before its group is killed, so that the group's number stays its own.
        return (
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )

    def _item(self, line: bytes) -> Optional[Json]:
        try:
            item = json.loads(line.decode("utf-8"))
        except ValueError:
            item = None
        if isinstance(item, dict):
            return item
        self._keep(line + b"\n")
        return None

    def _keep(self, data: bytes) -> None:
        self._said = (self._said + data)[-PROGRAM_TAIL_BYTES:]

    def _feed(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.write(data)
                self._process.stdin.flush()


# --- GPUs ------------------------------------------------------------------------------------


class Refusal(str):
    """The driver's words for what it does not answer, with its code (``None``: none given)."""

    __slots__ = ("code",)

    code: Optional[int]


GONE = (15, 16)
"""Codes of an answer that tell of the whole GPU: it is lost, or has to be reset."""


class Device:
    """A GPU with what seldom changes."""

    def __init__(self, number: int, uuid: str) -> None:
        self.number = number
        """As the driver counts."""
        self.uuid = uuid
        self.name: Optional[str] = None
        self.bus_id: Optional[str] = None
        self.handle: Any = None
        self.place: Tuple[int, ...] = (1, number)
        """Sort key: by PCI address where it is known."""
        self.index = 0
        self.total: Optional[int] = None
        self.error: Optional[str] = None
        """Why the driver gives no access to it."""
        self.last: Optional[Json] = None
        """The last reading."""
        self.processes: List[Json] = []
        self.processes_known = True
        """Whether an empty list means that there is no process."""
        self.slow_at = -1e9
        self.gone_slow: Optional[str] = None
        """What seldom changes could not be read the last time, because the GPU is gone."""
        self.gone_listing: Optional[str] = None
        """The same of its processes."""
        self.power_limit: Optional[float] = None
        self.ecc: Optional[int] = None
        self.mig: Optional[List[Tuple[Any, Json]]] = None
        """Handle and identity of each MIG instance; ``None`` where the mode is off."""

    def reading(self, error: Optional[str] = None) -> Json:
        """Return a sample without any reading."""
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "bus_id": self.bus_id,
            "memory_total_bytes": self.total,
            "error": error,
        }


class Worker:
    """The thread that asks the driver about one GPU: a call that hangs holds up no other GPU."""

    def __init__(self, number: int, answered: threading.Condition) -> None:
        self.busy_since: Optional[float] = None
        """Since when it has waited for the driver (monotonic seconds)."""
        self._answered = answered
        self._task: Optional[Callable[[], None]] = None
        self._given = threading.Semaphore(0)
        threading.Thread(target=self._run, name="gpu %d" % number, daemon=True).start()

    def give(self, task: Callable[[], None]) -> None:
        """Hand it a task; it must be idle."""
        self._task, self.busy_since = task, time.monotonic()
        self._given.release()

    def silent_s(self) -> float:
        """Return for how long the driver has not answered it."""
        since = self.busy_since
        return time.monotonic() - since if since is not None else 0.0

    def _run(self) -> None:
        while True:
            self._given.acquire()
            task, self._task = self._task, None
            try:
                if task is not None:
                    task()
            finally:
                with self._answered:
                    self.busy_since = None
                    self._answered.notify_all()


class Gpus:
    """Samples the GPUs, each in a thread of its own, and hands out the last sample."""

    RETRY_S = 10.0
    SILENT_S = 2.0
    """A driver that takes longer than this, or three intervals, is told as not answering."""
    SLOW_S = 10.0
    """What seldom changes (ECC, power cap, MIG layout) is asked for this rarely."""
    THROTTLE = (
        (0x2, "clocks set by an application"),
        (0x4, "power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "too hot (software)"),
        (0x40, "too hot (hardware)"),
        (0x80, "power brake"),
        (0x100, "display clocks"),
    )
    """Bits of nvml.h's clocks event reasons; bit 1, idle, holds nothing back."""

    def __init__(self, runs: Runs) -> None:
        self.error: Optional[str] = "the driver has not answered yet"
        self.driver_version: Optional[str] = None
        self.ready = threading.Event()
        self.changed = threading.Condition()
        self.sample: Optional[Json] = None
        self.number = 0
        self.busy_since: Optional[float] = None
        """Since when the driver has been asked to open (monotonic seconds)."""
        self._runs = runs
        self._nvml: Any = None
        self._devices: List[Device] = []
        self._workers: Dict[int, Worker] = {}
        self._answered = threading.Condition()
        self._all_lost = False
        self._asked = threading.local()
        """Of the thread that asks: the words of an answer that says that the GPU is gone."""
        self._watchers: Dict[int, Tuple[float, float]] = {}
        self._processes_at = -1e9
        self._seen: Dict[Key, Json] = {}
        self._seen_at = -1e9
        self._containers = ContainerNames()
        self._notes: List[str] = []
        self._events: Optional[Events] = None

    def start(self, source: bytes) -> None:
        """Start the sampling thread with the source of pynvml."""
        threading.Thread(target=self._work, args=(source,), daemon=True).start()

    def watch(self, number: int, interval_s: float, processes_interval_s: float) -> None:
        """Begin to sample for the stream ``number``."""
        with self.changed:
            self._watchers[number] = (interval_s, processes_interval_s)
            self.changed.notify_all()

    def unwatch(self, number: int) -> None:
        """End sampling for a stream."""
        with self.changed:
            self._watchers.pop(number, None)

    def silent_s(self) -> float:
        """Return for how long the driver has left the question for its GPUs unanswered."""
        since = self.busy_since
        return time.monotonic() - since if since is not None else 0.0

    def without_answer(self, silent_s: float) -> Json:
        """Return the sample to show while the driver hangs: the GPUs, with no reading."""
        text = not_answered(silent_s)
        return {
            "at": time.time(),
            "gpus": [device.reading(text) for device in self._devices],
            "processes": [],
            "processes_known": False,
            "took_s": silent_s,
            "driver_error": text,
            "notes": self._notes,
        }

    def _work(self, source: bytes) -> None:
        self.busy_since = time.monotonic()
        try:
            self._nvml = load_pynvml(source, globals().get("EAGLEMON_PYNVML_FILE", ""))
            release_memory()
            self._open()
        except Exception as error:
            self.error = describe(error)
        self.busy_since = None
        self.ready.set()
        due = taken = opened = time.monotonic()
        while True:
            with self.changed:
                while not self._watchers:
                    self.changed.wait()
                    due = time.monotonic()
                interval_s = min(one[0] for one in self._watchers.values())
                processes_interval_s = min(one[1] for one in self._watchers.values())
                now = time.monotonic()
                # A watcher that asks for more does not wait for the round of the others.
                due = min(due, taken + interval_s)
                if now < due:
                    self.changed.wait(min(due - now, 0.5))
                    continue
            due, taken = max(due + interval_s, now), now
            failing = self.error is not None or self._all_lost
            stuck = any(worker.busy_since is not None for worker in self._workers.values())
            if failing and not stuck and self._nvml is not None and now - opened > self.RETRY_S:
                opened = self.busy_since = now
                self._reopen()
                self.busy_since = None
            sample = self._take(now, interval_s, processes_interval_s)
            with self.changed:
                self.sample = sample
                self.number += 1
                self.changed.notify_all()

    def _open(self) -> None:
        """Initialise the library and list the GPUs in PCI order."""
        nvml = self._nvml
        self._notes = passed_through()
        nvml.nvmlInit()
        self.driver_version = self._ask(nvml.nvmlSystemGetDriverVersion)[0]
        known = {device.number: device for device in self._devices}
        devices = []
        for number in range(nvml.nvmlDeviceGetCount()):
            handle, error = self._ask(nvml.nvmlDeviceGetHandleByIndex, number)
            if error is not None:
                # Its identity is kept: a GPU that was lost must not show as another one.
                device = known.get(number) or Device(number, "unknown-%d" % number)
                device.handle, device.error = None, error
            else:
                device = self._identify(number, handle)
            devices.append(device)
        if all(device.place[0] == 0 for device in devices):
            devices.sort(key=lambda device: device.place)
        for index, device in enumerate(devices):
            device.index = index
            if device.number not in self._workers:
                self._workers[device.number] = Worker(device.number, self._answered)
        self._devices = devices
        self.driver_version = as_text(self.driver_version)
        self.error = None
        self._events = Events(nvml, [device for device in devices if device.handle is not None])

    def _identify(self, number: int, handle: Any) -> Device:
        nvml = self._nvml
        uuid = as_text(self._ask(nvml.nvmlDeviceGetUUID, handle)[0])
        device = Device(number, uuid or "unknown-%d" % number)
        device.handle = handle
        device.name = as_text(self._ask(nvml.nvmlDeviceGetName, handle)[0])
        pci = self._ask(nvml.nvmlDeviceGetPciInfo, handle)[0]
        if pci is not None:
            device.place = (0, pci.domain, pci.bus, pci.device)
            device.bus_id = as_text(pci.busId)
        return device

    def _reopen(self) -> None:
        if self._events is not None:
            self._events.end()
        with contextlib.suppress(Exception):  # it may not be open
            self._nvml.nvmlShutdown()
        try:
            self._open()
        except Exception as error:
            self.error = describe(error)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Tuple[Any, Optional[Refusal]]:
        """Call the driver: (answer, None) or (None, its words)."""
        try:
            return call(*arguments), None
        except Exception as error:
            refusal = Refusal(describe(error))
            refusal.code = getattr(error, "value", None)
            if refusal.code in GONE:
                self._asked.gone = refusal
            return None, refusal

    def _try(self, name: str, *arguments: Any) -> Any:
        """Call what an old library may not have; ``None`` when there is no answer."""
        call = getattr(self._nvml, name, None)
        return None if call is None else self._ask(call, *arguments)[0]

    def _take(self, now: float, interval_s: float, processes_interval_s: float) -> Json:
        at = time.time()
        devices = self._devices if self.error is None else []
        processes_too = now - self._processes_at >= processes_interval_s - 0.05
        if processes_too:
            self._processes_at = now
            # Titles change after the start: vLLM's workers rename themselves.
            if now - self._seen_at > 15.0:
                self._seen, self._seen_at = {}, now
        limit_s = max(self.SILENT_S, 3 * interval_s)
        asked = [self._workers[device.number] for device in devices]
        for device, worker in zip(devices, asked):  # noqa: B905 -- Python 3.8
            if worker.busy_since is None:
                worker.give(functools.partial(self._measure, device, processes_too=processes_too))
        # Those that are known to hang are not waited for; the first readings are.
        waited = [one for one in asked if one.silent_s() <= limit_s]
        first = any(device.last is None for device in devices)
        with self._answered:
            self._answered.wait_for(
                lambda: all(one.busy_since is None for one in waited),
                limit_s if first else min(interval_s, limit_s),
            )
        gpus, processes, silent = [], [], []
        for device, worker in zip(devices, asked):  # noqa: B905 -- Python 3.8
            silent_s = worker.silent_s()
            if silent_s > limit_s or device.last is None:
                silent.append(silent_s)
                gpus.append(device.reading(not_answered(silent_s)))
                continue
            gpus.append(dict(device.last, index=device.index))
            processes += device.processes
        self._all_lost = bool(gpus) and all(gpu["error"] for gpu in gpus)
        all_silent = bool(silent) and len(silent) == len(devices)
        return {
            "at": at,
            "gpus": gpus,
            "processes": self._with_runs(processes),
            "processes_known": not silent and all(one.processes_known for one in devices),
            "took_s": round(time.monotonic() - now, 6),
            "driver_error": not_answered(min(silent)) if all_silent else self.error,
            "notes": self._notes,
        }

    def _measure(self, device: Device, *, processes_too: bool) -> None:
        """Read one GPU; runs in its worker."""
        try:
            device.last = self._read(device)
            if processes_too:
                self._asked.gone = None
                device.processes = self._list_processes(device)
                device.gone_listing = self._asked.gone
                if device.gone_listing is not None and device.last["error"] is None:
                    device.last = dict(device.last, error=device.gone_listing)
        except Exception as error:
            device.last = device.reading("cannot be read: %s" % describe(error))

    def _read(self, device: Device) -> Json:
        nvml, handle = self._nvml, device.handle
        if handle is None:
            return device.reading(device.error)
        now = time.monotonic()
        if now - device.slow_at >= self.SLOW_S:
            device.slow_at = now
            self._asked.gone = None
            self._read_slow(device)
            device.gone_slow = self._asked.gone
        self._asked.gone = None
        reading = device.reading()
        memory, lost = self._read_memory(handle)
        if memory is not None:
            device.total = memory.total
            reading.update(
                memory_total_bytes=memory.total,
                memory_used_bytes=memory.used,
                memory_reserved_bytes=getattr(memory, "reserved", None),
            )
        elif lost is not None and lost.code == 3:  # not supported: it has no memory of its own
            reading.update(read_host_memory())
        rates, rates_error = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        heat, heat_error = self._ask(nvml.nvmlDeviceGetTemperature, handle, 0)
        power, power_error = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        reading.update(
            utilisation_percent=rates.gpu if rates is not None else None,
            temperature_c=heat,
            power_w=power / 1000.0 if power is not None else None,
            power_limit_w=device.power_limit,
            throttle=self._read_throttle(handle),
            ecc_uncorrected=device.ecc,
            xid=self._events.last.get(device.uuid) if self._events else None,
            mig=self._read_mig(device),
        )
        errors = [lost, rates_error, heat_error, power_error]
        if None not in errors and any(error is not None and error.code != 3 for error in errors):
            reading["error"] = lost
        # One answer is enough, also of what is asked less often: no driver takes it back.
        gone = self._asked.gone or device.gone_slow or device.gone_listing
        if gone is not None:
            reading["error"] = gone
        return reading

    def _read_memory(self, handle: Any) -> Tuple[Any, Optional[Refusal]]:
        nvml = self._nvml
        version = getattr(nvml, "nvmlMemory_v2", 0x02000028)
        memory, lost = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, version)
        if memory is None:
            # An old driver has only the first version, whose "used" includes the reserved part.
            memory, lost = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        return memory, lost

    def _read_slow(self, device: Device) -> None:
        handle = device.handle
        limit = self._try("nvmlDeviceGetEnforcedPowerLimit", handle)
        device.power_limit = limit / 1000.0 if limit is not None else None
        # 1 and 0: uncorrected errors, since the driver was loaded.
        device.ecc = self._try("nvmlDeviceGetTotalEccErrors", handle, 1, 0)
        mode = self._try("nvmlDeviceGetMigMode", handle)
        if not mode or mode[0] != 1:
            device.mig = None
            return
        device.mig = []
        for number in range(self._try("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            part = self._try("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if part is None:
                continue  # places are left empty
            identity = {
                "uuid": as_text(self._try("nvmlDeviceGetUUID", part))
                or "%s/%d" % (device.uuid, number),
                "gpu_instance": self._try("nvmlDeviceGetGpuInstanceId", part),
                "compute_instance": self._try("nvmlDeviceGetComputeInstanceId", part),
                "name": as_text(self._try("nvmlDeviceGetName", part)),
            }
            device.mig.append((part, identity))

    def _read_mig(self, device: Device) -> Optional[List[Json]]:
        if device.mig is None:
            return None
        rows = []
        for part, identity in device.mig:
            memory = self._read_memory(part)[0]
            rows.append(
                dict(
                    identity,
                    memory_used_bytes=memory.used if memory is not None else None,
                    memory_total_bytes=memory.total if memory is not None else None,
                )
            )
        return rows

    def _read_throttle(self, handle: Any) -> Optional[List[str]]:
        bits = self._try("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._try("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else [words for bit, words in self.THROTTLE if bits & bit]

    def _list_processes(self, device: Device) -> List[Json]:
        nvml = self._nvml
        if device.handle is None:
            return []
        memory: Dict[int, Tuple[Optional[int], Optional[str]]] = {}
        # On Tegra the list is empty for ever.
        device.processes_known = not TEGRA.search(device.name or "")
        places = [(part, identity["uuid"]) for part, identity in device.mig or []]
        for handle, mig_uuid in [*places, (device.handle, None)]:
            for kind in ("Compute", "Graphics"):
                call = getattr(nvml, "nvmlDeviceGet%sRunningProcesses" % kind, None)
                if call is None:
                    continue
                listed, refused = self._ask(call, handle)
                if refused is not None and handle is device.handle and kind == "Compute":
                    device.processes_known = False
                for one in listed or []:
                    used = one.usedGpuMemory
                    if used is not None and used >= 1 << 63:
                        used = None  # NVML's "not available"
                    before = memory.get(one.pid, (None, None))
                    if before[0] is None:
                        memory[one.pid] = (used, before[1] or mig_uuid)
        found = []
        for pid, (used, mig_uuid) in memory.items():
            proc = read_proc(pid)
            key = proc.key if proc else (pid, -1)
            about = self._seen.get(key)
            if about is None:
                about = {
                    "user": read_owner(pid),
                    "command": read_command(pid),
                    "container": read_container(pid),
                    "container_pid": read_inner_pid(pid),
                }
                self._seen[key] = about
            found.append(
                dict(
                    about,
                    gpu_uuid=device.uuid,
                    pid=pid,
                    memory_bytes=used,
                    mig_uuid=mig_uuid,
                    start_ticks=key[1],
                )
            )
        return found

    def _with_runs(self, processes: List[Json]) -> List[Json]:
        """Add the run that each process belongs to, and the name of its container."""
        owners = self._runs.owners
        found = []
        for process in processes:
            one = dict(process)
            start_ticks = one.pop("start_ticks")
            ticks, run_id = owners.get(one["pid"], (None, None))
            one["run_id"] = run_id if ticks is not None and ticks == start_ticks else None
            if one["container"]:
                one["container"] = self._containers.name(one["container"])
            found.append(one)
        return found


class Events:
    """Waits, in a thread, for critical events (XIDs) that the driver reports."""

    CRITICAL = 0x8

    def __init__(self, nvml: Any, devices: List[Device]) -> None:
        self.last: Dict[str, int] = {}
        """Number of the last event, by GPU."""
        self._nvml = nvml
        self._over = False
        self._thread = threading.Thread(target=self._run, args=(devices,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop to wait; the library may then be closed."""
        self._over = True
        self._thread.join(1.5)

    def _run(self, devices: List[Device]) -> None:
        nvml = self._nvml
        try:
            group = nvml.nvmlEventSetCreate()
            handles = 0
            for device in devices:
                with contextlib.suppress(Exception):  # not every GPU has events
                    nvml.nvmlDeviceRegisterEvents(device.handle, self.CRITICAL, group)
                    handles += 1
        except Exception:
            return  # a driver without events costs only them
        while handles and not self._over:
            try:
                event = nvml.nvmlEventSetWait_v2(group, 1000)
                uuid = as_text(nvml.nvmlDeviceGetUUID(event.device))
            except Exception as error:
                if getattr(error, "value", None) != 10:  # 10: nothing happened in time
                    return
                continue
            if uuid is not None and event.eventType == self.CRITICAL:
                self.last[uuid] = int(event.eventData)


class ContainerNames:
    """Names of containers, asked from Docker or Podman where this user may."""

    RETRY_S = 30.0

    def __init__(self) -> None:
        self._names: Dict[str, str] = {}
        self._asked_at = -1e9
        self._lock = threading.Lock()

    def name(self, short_id: str) -> str:
        """Return the name as far as it is known, else the short id; never waits."""
        known = self._names.get(short_id)
        if known is not None:
            return known
        with self._lock:
            now = time.monotonic()
            if now - self._asked_at > self.RETRY_S:
                self._asked_at = now
                threading.Thread(target=self._ask, daemon=True).start()
        return short_id

    def _ask(self) -> None:
        for program in ("docker", "podman"):
            self._names.update(
                (short_id[:12], name) for short_id, name in list_containers(program).items()
            )


def list_containers(program: str) -> Dict[str, str]:
    """Return the running containers, full id to name; none where they may not be asked for."""
    command = [program, "ps", "--no-trunc", "--format", "{{.ID}} {{.Names}}"]
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=5.0,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    rows = (line.split(None, 1) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


def not_answered(silent_s: float) -> str:
    """Say for how long the driver has been silent."""
    return "the driver has not answered for %.0f s" % silent_s


def read_host_memory() -> Json:
    """Return the host's memory as the reading of a GPU that shares it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            pairs = (line.split(":", 1) for line in file)
            values = {name: int(rest.split()[0]) * 1024 for name, rest in pairs}
        total, free = values["MemTotal"], values["MemAvailable"]
    except (OSError, KeyError, ValueError):
        return {}
    return {
        "memory_total_bytes": total,
        "memory_used_bytes": total - free,
        "memory_is_host": True,
    }


def passed_through(root: str = "/sys/bus/pci/devices") -> List[str]:
    """Name NVIDIA's GPUs that have another driver than NVIDIA's: no reading will show them."""
    notes = []
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    for name in names:
        folder = os.path.join(root, name)
        if read_first_line(os.path.join(folder, "vendor")) != "0x10de":
            continue
        if not read_first_line(os.path.join(folder, "class")).startswith(("0x0300", "0x0302")):
            continue
        try:
            driver = os.path.basename(os.readlink(os.path.join(folder, "driver")))
        except OSError:
            driver = ""
        if driver.startswith("vfio"):
            notes.append("GPU %s is bound to %s: a virtual machine has it" % (name, driver))
        elif driver == "nouveau":
            notes.append("GPU %s is bound to nouveau: it cannot be used for CUDA" % name)
    return notes


def load_pynvml(source: bytes, at_hand: str = "") -> Any:
    """Execute the sent source (or the file that ``EAGLEMON_PYNVML`` names) as ``pynvml``.

    ``at_hand`` is the file of the sent source, on the console's own computer.
    """
    path = os.environ.get("EAGLEMON_PYNVML", "")
    if path:
        with open(path, "rb") as file:
            source = file.read()
    if not source:
        raise RequestError("no-pynvml", "the console sent no pynvml")
    module = types.ModuleType("pynvml")
    # It looks itself up there while it loads.
    sys.modules["pynvml"] = module
    code = compiled(at_hand) if at_hand and not path else None
    if code is None:
        code = compile(source, path or "<pynvml>", "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102
    return module


def compiled(path: str) -> Optional[types.CodeType]:
    """Return a file's code, as Python keeps it beside the file; ``None`` where it is not there."""
    from importlib.machinery import SourceFileLoader

    with contextlib.suppress(OSError, ImportError, SyntaxError):
        return SourceFileLoader("pynvml", path).get_code("pynvml")
    return None


def release_memory() -> None:
    """Give back what compiling took: half of the process, which glibc would keep."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def as_text(value: Any) -> Optional[str]:
    """Return a driver's text, which older pynvml give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def describe(error: Exception) -> str:
    """Return an exception in words."""
    return str(error) or type(error).__name__


# --- checks ----------------------------------------------------------------------------------


def check_host(request: Json) -> Json:
    """Answer the questions of a preflight; each on its own."""
    asked = [
        functools.partial(
            within, PATH_LIMIT_S, path, functools.partial(check_path, path), silent_path(path)
        )
        for path in request.get("paths") or []
    ]
    free = functools.partial(
        within, PATH_LIMIT_S, usual_state_dir(), lambda: free_bytes(state_dir()), None
    )
    engine, state_free_bytes, *paths = side_by_side(
        [functools.partial(check_engine, request), free, *asked]
    )
    silent = [silent_path(path) for path in engine.pop("silent")]
    return {
        "paths": [*paths, *silent],
        "listeners": find_listeners(request["port"]) if request.get("port") else [],
        "shm_free_bytes": free_bytes("/dev/shm"),  # noqa: S108 -- asked about, not used
        "state_free_bytes": state_free_bytes,
        **engine,
    }


def side_by_side(calls: List[Callable[[], Any]]) -> List[Any]:
    """Return what calls return that may each take their time, all made at once."""
    answers: List[Any] = [None] * len(calls)

    def note(at: int) -> None:
        answers[at] = calls[at]()

    threads = [threading.Thread(target=note, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def check_engine(request: Json) -> Json:
    """Find the program of a command line and the engine's version; ``silent`` names what hangs."""
    argv, package = request.get("argv") or [], request.get("package")
    environment = dict(os.environ)
    environment.update(request.get("env") or {})
    found: Json = {"program": None, "engine_version": None, "engine_error": None, "silent": []}
    python = request.get("python")
    if argv:

        def find() -> Tuple[Optional[str], Optional[str]]:
            program = find_program(argv[0], environment)
            return program, python or (interpreter_of(program) if package else None)

        there = within(PATH_LIMIT_S, argv[0], find, None)
        if there is None:
            # Not known to be missing.
            found.update(program=argv[0], silent=[argv[0]])
            return found
        found["program"], python = there
    if package:

        def tell() -> Tuple[Optional[str], Optional[str]]:
            return find_version(python, str(package), environment)

        told = within(VERSION_LIMIT_S + 1.0, python or "", tell, None)
        if told is None:
            found["silent"] = [python]
        else:
            found["engine_version"], found["engine_error"] = told
    return found


def silent_path(path: str) -> Json:
    """Say that a path's file system does not answer."""
    return {"path": path, "kind": "silent", "readable": False}


def check_path(path: str) -> Json:
    """Say what a path is."""
    full = os.path.expanduser(path)
    if os.path.isfile(full):
        kind, mode = "file", os.R_OK
    elif os.path.isdir(full):
        kind, mode = "folder", os.R_OK | os.X_OK
    elif os.path.lexists(full) and os.path.exists(full):
        kind, mode = "other", os.R_OK
    else:
        return {"path": path, "kind": "missing", "readable": False}
    return {"path": path, "kind": kind, "readable": os.access(full, mode)}


def find_program(word: str, environment: Dict[str, str]) -> Optional[str]:
    """Return the absolute path of the program that ``word`` names."""
    found = shutil.which(os.path.expanduser(word), path=environment.get("PATH"))
    return os.path.abspath(found) if found else None


def interpreter_of(program: Optional[str]) -> Optional[str]:
    """Return the Python that a command runs under: itself, or the one its first line names."""
    if program is None or os.path.basename(program).startswith("python"):
        return program
    try:
        with open(program, "rb") as file:
            line = file.readline(512)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode("utf-8", "replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
    return words[0] if words and "python" in os.path.basename(words[0]) else None


def find_version(
    python: Optional[str], package: str, environment: Dict[str, str]
) -> Tuple[Optional[str], Optional[str]]:
    """Return (version of a package for that Python, None) or (None, why it is not known)."""
    if python is None:
        return None, "no Python was found to ask for %s" % package
    code = (
        "import sys,importlib.metadata as m\n"
        "try: print(m.version(sys.argv[1]))\n"
        "except m.PackageNotFoundError: sys.exit(3)"
    )
    try:
        done = subprocess.run(
            [os.path.expanduser(python), "-c", code, package],
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=VERSION_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        text = "%s did not tell the version of %s within %.0f s"
        return None, text % (python, package, VERSION_LIMIT_S)
    except OSError as error:
        return None, "cannot execute %s: %s" % (python, error.strerror)
    if done.returncode == 3:
        return None, "%s is not installed in %s" % (package, python)
    lines = (
        (done.stdout if done.returncode == 0 else done.stderr)
        .decode("utf-8", "replace")
        .split("\n")
    )
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if done.returncode != 0:
        return None, "%s failed: %s" % (python, last or "status %d" % done.returncode)
    return last, None


def free_bytes(path: str) -> Optional[int]:
    """Return the free space of the file system that holds ``path`` or its nearest parent."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


def find_listeners(port: int) -> List[Json]:
    """Return who listens on a TCP port; the owner is known even where the process is hidden."""
    found = []
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            with open(path, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            address, _, number = words[1].partition(":")
            if words[3] != "0A" or int(number, 16) != port:
                continue
            found.append((decode_address(address, family), int(words[7]), words[9]))
    holders = find_sockets({inode for _, _, inode in found}) if found else {}
    return [
        {
            "address": address,
            "port": port,
            "pid": holders.get(inode),
            "user": user_name(uid),
            "command": read_command(holders[inode]) if inode in holders else None,
        }
        for address, uid, inode in found
    ]


def decode_address(text: str, family: int) -> str:
    """Return an address of ``/proc/net/tcp``: words of 32 bits in the host's byte order."""
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    return socket.inet_ntop(family, struct.pack("=%dI" % len(words), *words))


def find_sockets(inodes: Set[str]) -> Dict[str, int]:
    """Return the first process that holds each of these sockets, where it may be seen."""
    wanted = {"socket:[%s]" % inode: inode for inode in inodes}
    found: Dict[str, int] = {}
    for pid in sorted(list_pids()):
        try:
            names = os.listdir("/proc/%d/fd" % pid)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink("/proc/%d/fd/%s" % (pid, name))
            except OSError:
                continue
            if target in wanted:
                found.setdefault(wanted[target], pid)
        if len(found) == len(wanted):
            break
    return found


# --- logs ------------------------------------------------------------------------------------


class LogFollower:
    """Reads a growing log in raw chunks; notices when it is truncated or replaced.

    One that was truncated and has grown past the offset again is known by the bytes before it.
    """

    MARK_BYTES = 64

    def __init__(self, path: str, offset: int) -> None:
        self.path = path
        self.offset = offset
        self._before = b""
        """The last bytes that were read: they end at the offset."""
        self._file: Optional[int] = None
        self._key: Optional[Tuple[int, int]] = None

    def read(self, limit: int) -> Tuple[bytes, bool]:
        """Return (bytes, restarted); no bytes at the end of the file. Raises ``OSError``."""
        restarted = False
        if self._file is None:
            restarted = self._open()
        data = self._read_here(limit)
        if data is None or (not data and self._was_changed()):
            self._open()
            restarted, self.offset, self._before = True, 0, b""
            data = self._read_here(limit)
        data = data or b""
        self.offset += len(data)
        self._before = (self._before + data[-self.MARK_BYTES :])[-self.MARK_BYTES :]
        return data, restarted

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read_here(self, limit: int) -> Optional[bytes]:
        """Read on; ``None`` when other bytes stand before the offset than were read there."""
        if self._file is None:
            return b""
        known = len(self._before)
        data = os.pread(self._file, limit + known, self.offset - known)
        if len(data) <= known:
            return b""
        return data[known:] if data[:known] == self._before else None

    def _open(self) -> bool:
        """Open the file; True when it is shorter than the offset asked for."""
        self.close()
        self._file = open_log(self.path)
        stat = os.fstat(self._file)
        self._key = (stat.st_dev, stat.st_ino)
        if stat.st_size < self.offset:
            self.offset, self._before = 0, b""
            return True
        return False

    def _was_changed(self) -> bool:
        if self._file is None:
            return False
        try:
            stat = os.stat(self.path)
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) != self._key or stat.st_size < self.offset


def open_log(path: str) -> int:
    """Open a log for reading; raises ``OSError`` for what is no regular file, and never waits."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    kind = os.fstat(handle).st_mode & 0o170000
    if kind == 0o100000:
        return handle
    os.close(handle)
    if kind == 0o040000:
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    raise OSError(errno.EINVAL, "it is no regular file")


@contextlib.contextmanager
def telling_log(request: Json, path: str) -> Iterator[None]:
    """Say in words why a run's log cannot be read; ``host`` is what the console calls this one."""
    whose = (request.get("run_id"), request.get("host") or socket.gethostname(), path)
    try:
        yield
    except FileNotFoundError:
        raise RequestError("log-missing", "the log of %s on %s (%s) is gone" % whose) from None
    except OSError as error:
        what = "the log of %s on %s (%s) cannot be read: " % whose
        raise RequestError("log-unreadable", what + (error.strerror or str(error))) from None


def find_tail(path: str, lines: int) -> int:
    """Return the offset at which the last ``lines`` lines begin (0: its size)."""
    with open(open_log(path), "rb") as file:
        end = file.seek(0, os.SEEK_END)
        if lines == 0:
            return end
        position, wanted = end, lines
        while position > 0:
            step = min(LOG_CHUNK_BYTES, position)
            file.seek(position - step)
            data = file.read(step)
            # The line feed that ends the last line begins no new one.
            stop_at = step - 1 if position == end else step
            while wanted > 0:
                found = data.rfind(b"\n", 0, stop_at)
                if found < 0:
                    break
                wanted -= 1
                if wanted == 0:
                    return position - step + found + 1
                stop_at = found
            position -= step
    return 0


# --- the agent -------------------------------------------------------------------------------


class Stream:
    """A stream under way: can be cancelled, and limits what is sent ahead of the reader."""

    def __init__(self, number: int, window: Optional[int]) -> None:
        self.number = number
        self.cancelled = threading.Event()
        self._changed = threading.Condition()
        self._room = window

    def pause(self, seconds: float) -> bool:
        """Wait; True when the stream was cancelled."""
        return self.cancelled.wait(seconds)

    def cancel(self) -> None:
        """End the stream."""
        self.cancelled.set()
        with self._changed:
            self._changed.notify_all()

    def give(self, room: int) -> None:
        """Allow that many more bytes."""
        with self._changed:
            if self._room is not None:
                self._room += room
            self._changed.notify_all()

    def take(self, most: int) -> int:
        """Wait until bytes may be sent and return how many; 0 when cancelled."""
        with self._changed:
            while self._room is not None and self._room <= 0 and not self.cancelled.is_set():
                self._changed.wait()
            if self.cancelled.is_set():
                return 0
            return most if self._room is None else min(most, self._room)

    def use(self, count: int) -> None:
        """Count bytes as sent."""
        with self._changed:
            if self._room is not None:
                self._room -= count


class Agent:
    """Answers one console."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.boot_id = read_boot_id()
        # A home that hangs must not take the GPUs and the other servers of the host with it.
        found = within(STATE_SILENT_S, usual_state_dir(), state_roots, None)
        self.state_hangs = found is None
        roots = [usual_state_dir()] if found is None else found
        self.state_dir = roots[0]
        self.runs = Runs([os.path.join(one, "runs") for one in roots], self.boot_id)
        self.gpus = Gpus(self.runs)
        self.streams: Dict[int, Stream] = {}
        self._stdin = sys.stdin.buffer
        self._out = os.dup(1)
        self._write_lock = threading.Lock()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)  # nothing but frames may reach the console
        os.close(null)
        self._quick: Dict[str, Callable[[Json], Json]] = {
            "ping": lambda _: {"at": time.time()},
            "cancel": self._cancel,
            "more": self._more,
        }
        self._slow: Dict[str, Callable[[Json], Json]] = {
            "run.start": lambda request: start_run(
                request.get("run") or {}, self.runs, self.boot_id, self.source
            ),
            "run.stop": lambda request: stop_run(request, self.runs, self.source),
            "run.forget": lambda request: forget_run(request, self.runs),
            "log.tail": self._log_tail,
            "host.check": check_host,
        }
        self._streaming: Dict[str, Callable[[Json, Stream], None]] = {
            "gpus.watch": self._watch_gpus,
            "runs.watch": self._watch_runs,
            "log.follow": self._follow_log,
            "program.run": self._run_program,
        }

    # Frames.

    def send(self, head: Json, blob: bytes = b"") -> int:
        """Write one frame; waits while the console does not read, and ends with it.

        Returns the length of its head.
        """
        text = json.dumps(head, separators=(",", ":")).encode()
        self._write(struct.pack(">II", len(text), len(blob)) + text + blob)
        return len(text)

    def _write(self, data: bytes) -> None:
        with self._write_lock:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._out, view) :]
            except OSError:
                leave()

    def _read(self, count: int) -> bytes:
        data = self._stdin.read(count)
        if len(data) < count:
            leave()
        return data

    # Life.

    def serve(self) -> NoReturn:
        """Say hello and answer requests until stdin ends."""
        pynvml = self._read(int(self._read(8)))
        self.gpus.start(zlib.decompress(pynvml) if pynvml else b"")
        # A driver may hang for ever; the host is usable without it.
        if not self.gpus.ready.wait(3.0):
            self.gpus.error = "the driver has not answered for 3 s"
        self._write(MARK)
        self.send({"hello": self._hello()})
        while True:
            sizes = struct.unpack(">II", self._read(8))
            if sizes[0] > MAX_HEAD_BYTES or sizes[1] > MAX_BLOB_BYTES:
                leave()
            try:
                request = json.loads(self._read(sizes[0]).decode("utf-8"))
            except ValueError:
                leave()
            blob = self._read(sizes[1])
            if isinstance(request, dict) and isinstance(request.get("id"), int):
                self._dispatch(dict(request, blob=blob))

    def _hello(self) -> Json:
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "hostname": socket.gethostname(),
            "user": user_name(os.getuid()),
            "uid": os.getuid(),
            "boot_id": self.boot_id,
            "state_dir": self.state_dir,
            "state_note": self._state_note(),
            "cpu_count": os.cpu_count(),
            "memory_total_bytes": page * pages,
            "driver_version": self.gpus.driver_version,
            "nvml_error": self.gpus.error,
        }

    def _state_note(self) -> Optional[str]:
        usual = usual_state_dir()
        if self.state_hangs:
            return "%s has not answered for %.0f s" % (usual, STATE_SILENT_S)
        if self.state_dir == usual:
            return None
        return "%s cannot be written: run records are in %s" % (usual, self.state_dir)

    def _dispatch(self, request: Json) -> None:
        number, op = request["id"], request.get("op")
        if op in self._quick:
            self._answer(number, self._quick[str(op)], request)
        elif op in self._slow:
            self._in_thread(self._answer, number, self._slow[str(op)], request)
        elif op in self._streaming:
            window = request.get("window")
            stream = Stream(number, window if isinstance(window, int) else None)
            self.streams[number] = stream
            self._in_thread(self._stream, stream, self._streaming[str(op)], request)
        else:
            error = {"kind": "unknown-op", "message": "this agent does not know %r" % (op,)}
            self.send({"id": number, "error": error})

    def _in_thread(self, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _answer(self, number: int, work: Callable[[Json], Json], request: Json) -> None:
        try:
            head = {"id": number, "ok": work(request)}
        except Exception as error:
            head = {"id": number, "error": explain(error)}
        self.send(head)

    def _stream(self, stream: Stream, work: Callable[[Json, Stream], None], request: Json) -> None:
        head: Json = {"id": stream.number, "ok": {}}
        try:
            work(request, stream)
        except Exception as error:
            head = {"id": stream.number, "error": explain(error)}
        self.streams.pop(stream.number, None)
        self.send(head)

    def _cancel(self, request: Json) -> Json:
        stream = self.streams.get(request.get("target", -1))
        if stream is not None:
            stream.cancel()
        return {}

    def _more(self, request: Json) -> Json:
        stream, room = self.streams.get(request.get("target", -1)), request.get("bytes")
        if stream is not None and isinstance(room, int):
            stream.give(room)
        return {}

    # Streams.

    def _watch_gpus(self, request: Json, stream: Stream) -> None:
        interval_s = min(max(float(request.get("interval_s", 1.0)), 0.1), 60.0)
        processes_s = max(float(request.get("processes_interval_s", 2.0)), interval_s)
        self._in_thread(self._keep_owners, stream)
        gpus = self.gpus
        # What was sampled before it was asked for is no answer: a stop waits for what is new.
        sent_number, sent_at = gpus.number, -1e9
        gpus.watch(stream.number, interval_s, processes_s)
        try:
            while not stream.cancelled.is_set():
                with gpus.changed:
                    gpus.changed.wait(min(interval_s, 0.5))
                    number, sample = gpus.number, gpus.sample
                now = time.monotonic()
                if now - sent_at < interval_s * 0.9:
                    continue
                silent_s = gpus.silent_s()
                if silent_s > max(2.0, 3 * interval_s):
                    sample = gpus.without_answer(silent_s)
                elif number == sent_number:
                    continue
                if sample is not None:
                    self.send({"id": stream.number, "item": {"sample": sample}})
                    sent_number, sent_at = number, now
        finally:
            gpus.unwatch(stream.number)

    def _keep_owners(self, stream: Stream) -> None:
        """Keep the map from processes to runs fresh, apart from the GPUs: a home may hang."""
        while True:
            self.runs.refresh(2.0)
            if stream.pause(2.0):
                return

    def _watch_runs(self, request: Json, stream: Stream) -> None:
        interval_s = min(max(float(request.get("interval_s", 0.2)), 0.05), 60.0)
        last: Optional[Dict[str, int]] = None
        told = threading.Event()
        self._in_thread(self._tell_silence, stream, told)
        while True:
            versions = self.runs.refresh(0.02 if self.runs.stopping else interval_s / 2)
            before = last or {}
            changed = [
                self.runs.status(run_id, 60.0)
                for run_id, version in versions.items()
                if before.get(run_id) != version
            ]
            gone = [run_id for run_id in before if run_id not in versions]
            if last is None or changed or gone or told.is_set():
                told.clear()
                runs = [status for status in changed if status]
                self.send({"id": stream.number, "item": {"runs": runs, "gone": gone}})
            last = versions
            # The end of a stop is waited for.
            if stream.pause(min(interval_s, 0.05) if self.runs.stopping else interval_s):
                return

    def _tell_silence(self, stream: Stream, told: threading.Event) -> None:
        """Say each second that the records cannot be read, as long as that hangs."""
        while not stream.pause(1.0):
            silence = self.runs.silence()
            if silence is not None:
                told.set()
                item = {"runs": [], "gone": [], "silent": silence}
                self.send({"id": stream.number, "item": item})

    def _follow_log(self, request: Json, stream: Stream) -> None:
        run_id = str(request.get("run_id"))
        path = os.path.join(self.runs.folder(run_id), "server.log")
        follower = LogFollower(path, int(request.get("offset") or 0))
        pause_s = 0.05
        try:
            while True:
                most = stream.take(LOG_CHUNK_BYTES)
                if most == 0:
                    return
                over = pause_s > 0.05 and self.runs.is_over(run_id)
                data, restarted = b"", False
                # A run's log is made together with its first process.
                if os.path.lexists(path) or self.runs.has_begun(run_id):
                    with telling_log(request, path):
                        data, restarted = follower.read(most)
                if data or restarted or over:
                    stream.use(len(data))
                    ended = over and not data
                    item = {
                        "offset": follower.offset - len(data),
                        "restarted": restarted,
                        "ended": ended,
                    }
                    self.send({"id": stream.number, "item": item}, data)
                    if ended:
                        return
                if data:
                    pause_s = 0.05
                elif stream.pause(pause_s):
                    return
                else:
                    pause_s = 0.1
        finally:
            follower.close()

    def _run_program(self, request: Json, stream: Stream) -> None:
        program = Program(request)
        try:
            for line in program.lines(stream):
                if not stream.take(1):
                    break
                stream.use(self.send({"id": stream.number, "item": line}))
        finally:
            program.end()
        if program.status and not stream.cancelled.is_set():
            raise RequestError("program-failed", program.explain())

    def _log_tail(self, request: Json) -> Json:
        path = os.path.join(self.runs.folder(request.get("run_id")), "server.log")
        lines = request.get("lines")
        if not isinstance(lines, int) or lines < 0:
            raise RequestError("bad-request", "lines is not a count: %r" % (lines,))
        if not os.path.lexists(path) and not self.runs.has_begun(str(request.get("run_id"))):
            return {"offset": 0}
        with telling_log(request, path):
            return {"offset": find_tail(path, lines)}


def explain(error: Exception) -> Json:
    """Return the error frame's content."""
    if isinstance(error, RequestError):
        return {"kind": error.kind, "message": str(error)}
    if isinstance(error, OSError):
        return {"kind": "os-error", "message": str(error)}
    return {"kind": "internal", "message": "%s: %s" % (type(error).__name__, error)}


def read_boot_id() -> str:
    """Return the kernel's id of this boot."""
    return read_first_line("/proc/sys/kernel/random/boot_id")


def leave(*_: object) -> NoReturn:
    """End at once, whatever the other threads wait for; servers and helpers are not touched."""
    HALF_DONE.acquire(timeout=HALF_DONE_LIMIT_S)
    os._exit(0)


def main(arguments: List[str], source: bytes) -> None:
    """Run in the role that the first argument names."""
    role = arguments[0] if arguments else ""
    if role == "eaglemon-supervisor":
        supervise()
    elif role == "eaglemon-stopper":
        stop()
    else:
        mend_home()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, leave)
        set_process_name("eaglemon-agent")
        Agent(source).serve()


if __name__ == "__main__":
    main(sys.argv[1:], globals()["EAGLEMON_SOURCE"])
