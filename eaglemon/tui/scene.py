"""What a console shows now, and for each action why it cannot be carried out there. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from eaglemon.core.hosts import LinkState
from eaglemon.core.views import ServerState, ServerView, Snapshot

NO_DRAFT = "only on the screen of a draft: open it with d on that of a server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What decides whether an action can be carried out now."""

    screen: str
    """``NAME`` of the main screen in front: ``fleet``, ``server``, ``log``, ..."""
    server: ServerView | None = None
    """The server that an action would be about."""
    servers_tab: int | None = None
    """The tab, from 0, where a server can be selected, while another one is in front."""
    host: str | None = None
    """The host that an action would be about."""
    host_state: LinkState | None = None
    """How that host is reached, where it is a host of this console."""
    hosts: int = 0
    profiles: int = 0
    opening: bool = False
    """Services are not there yet: nothing can be started."""
    read_only: bool = False
    recording: bool = False
    """What is shown is a recording."""
    paused: bool = False
    filtered: bool = False
    """A filter or search line is shown."""
    probing: bool = False
    """A probe of that server, started here, is under way."""
    restarting: bool = False
    """A restart of that server, begun here, is under way."""
    experiments: bool = False
    """This console can run and show experiments."""
    experimenting: bool = False
    """An experiment begun here is under way."""
    no_check: str | None = NO_DRAFT
    """Why the draft cannot be checked."""
    no_fix: str | None = NO_DRAFT
    """Why the draft cannot be rewired."""
    profile_file: bool = False
    """The profile under the cursor has a file that can be edited."""
    run: str | None = None
    """The measured run under the cursor."""
    cut_off: bool = False
    """That run has no end, and no console is at it."""
    run_under_way: bool = False
    """That run has no end yet: a console of this computer is at it."""


def state_of(snapshot: Snapshot, host: str | None) -> LinkState | None:
    """Return how a host is reached, ``None`` where it is none of the console's."""
    shown = snapshot.host(host) if host is not None else None
    return shown.state if shown is not None else None


WhyNot = Callable[[Scene], str | None]
"""Returns why an action cannot be carried out, ``None`` when it can."""

STILL_OPENING = "the console is still opening: this is done in a moment"

HAVE_TEXT = frozenset({"log", "runs", "experiment", "profiles"})
"""Screens with a text of their own to copy."""

SORTED = frozenset({"fleet", "runs", "profiles"})
"""Screens whose rows can be put in another order."""

LISTS = frozenset({"fleet", "runs", "profiles"})
"""Screens whose rows can be filtered."""


def always(_: Scene) -> str | None:
    """Can always be done."""
    return None


def _changes_nothing(scene: Scene, why: str) -> str:
    if scene.recording:
        return "this is a recording: nothing can be done in it, only looked at"
    return f"this console is read-only: {why}"


def start(scene: Scene) -> str | None:
    """Needs a host and a profile."""
    if scene.read_only:
        return _changes_nothing(scene, "start it without --read-only to launch servers")
    if not scene.hosts:
        return "no hosts: connect to one with a, or name one on the command line"
    if scene.opening:
        return STILL_OPENING
    if not scene.profiles:
        return "no profiles could be read: see eaglemon profiles"
    return None


def with_server(scene: Scene) -> str | None:
    """Needs a server."""
    if scene.server is None and scene.servers_tab is not None:
        return f"select a server first ({scene.servers_tab + 1})"
    if scene.server is None:
        return "no server is selected: start one with s, or select one in the list"
    return None


def copy(scene: Scene) -> str | None:
    """Needs a server, or a screen with something of its own."""
    return None if scene.screen in HAVE_TEXT else with_server(scene)


def on_run(scene: Scene) -> str | None:
    """Needs a run under the cursor."""
    if scene.screen != "runs":
        return "only in the list of runs: open it with u"
    return None if scene.run else "no run is selected"


def report(scene: Scene) -> str | None:
    """Needs a run under the cursor, or the one that is shown."""
    return None if scene.screen == "experiment" else on_run(scene)


def resume(scene: Scene) -> str | None:
    """Needs a run that was cut off, and nothing under way."""
    missing = on_run(scene)
    if missing:
        return missing
    if scene.read_only:
        return _changes_nothing(scene, "start it without --read-only to run experiments")
    if scene.experimenting:
        return "an experiment is under way: open it with b"
    if scene.run_under_way:
        return f"{scene.run} is under way in another console"
    return None if scene.cut_off else f"{scene.run} has ended: only one that was cut off goes on"


def sort(scene: Scene) -> str | None:
    """Needs a list that can be sorted."""
    return None if scene.screen in SORTED else "nothing to sort here: servers, runs and profiles"


def with_host(scene: Scene) -> str | None:
    """Needs a host."""
    if scene.screen == "host":
        return "this host is open already"
    return None if scene.host else "no host is selected: name one on the command line"


def retry(scene: Scene) -> str | None:
    """Needs a host that is down."""
    if scene.host is None or scene.host_state is None:
        return "no host is selected: connect to one with a"
    if scene.host_state is LinkState.DOWN:
        return None
    if scene.host_state is LinkState.CONNECTING:
        return f"{scene.host} is being connected to already"
    return f"{scene.host} is {scene.host_state}: only a host that is down is tried again"


def connect(scene: Scene) -> str | None:
    """Anywhere with a list of hosts, once services are there."""
    if scene.opening:
        return STILL_OPENING
    return on_fleet(scene)


def stop(scene: Scene) -> str | None:
    """Needs a living server."""
    missing = with_server(scene)
    if missing or scene.server is None:
        return missing
    if scene.read_only:
        return _changes_nothing(scene, "start it without --read-only to stop servers")
    if scene.restarting:
        return None
    left = scene.server.state is ServerState.FAILED and scene.server.pids
    if scene.server.state.ended and not left:
        return f"{scene.server.name} has ended already: nothing to stop"
    return None


def restart(scene: Scene) -> str | None:
    """Needs a server, living or ended."""
    missing = with_server(scene)
    if missing:
        return missing
    if scene.read_only:
        return _changes_nothing(scene, "start it without --read-only to restart servers")
    return _while_restarting(scene)


def _while_restarting(scene: Scene) -> str | None:
    if not scene.restarting or scene.server is None:
        return None
    return f"{scene.server.name} is being restarted: wait for it, or call that off with x"


def probe(scene: Scene) -> str | None:
    """Needs a server that answers."""
    missing = with_server(scene)
    if missing or scene.server is None:
        return missing
    if scene.read_only:
        return _changes_nothing(scene, "a probe would put load on the server")
    if scene.probing:
        return f"a probe of {scene.server.name} is under way: cancel it with x"
    if not scene.server.state.answering and scene.server.state is not ServerState.UNHEALTHY:
        return f"{scene.server.name} is {scene.server.state}: only a ready server can be probed"
    return None


def cancel(scene: Scene) -> str | None:
    """Needs a probe or restart of this server, or on its screen an experiment, under way."""
    if scene.screen == "experiment":
        return None if scene.experimenting else "no experiment is under way: start one with b"
    if scene.servers_tab is not None:
        return with_server(scene)
    if scene.probing or scene.restarting:
        return None
    return "no probe or restart of this server is under way: start one with t or R"


def compare(scene: Scene) -> str | None:
    """Needs experiments and two profiles; opens the one that runs."""
    if scene.opening:
        return STILL_OPENING
    if not scene.experiments:
        return "this console keeps no experiments: use eaglemon ab"
    if scene.experimenting and scene.screen != "experiment":
        return None
    if scene.experimenting:
        return "an experiment is under way: cancel it with x first"
    missing = start(scene)
    return missing or (None if scene.profiles > 1 else "two profiles are needed to compare")


def runs(scene: Scene) -> str | None:
    """Needs a history."""
    if scene.screen == "runs":
        return "the runs are open already"
    if scene.opening:
        return STILL_OPENING
    return None if scene.experiments else "this console keeps no experiments: see eaglemon runs"


def draft(scene: Scene) -> str | None:
    """Needs a server that speculates."""
    if scene.screen == "draft":
        return "the draft is open already"
    missing = with_server(scene)
    if missing or scene.server is None:
        return missing
    return None if scene.server.speculation else f"{scene.server.name} does not speculate"


def check_draft(scene: Scene) -> str | None:
    """Needs a draft on the screen."""
    if scene.no_check is None and scene.read_only:
        return _changes_nothing(scene, "a check would put load on the host")
    return scene.no_check or _while_restarting(scene)


def fix_draft(scene: Scene) -> str | None:
    """Needs a draft that is known to be wired otherwise than it was trained."""
    if scene.no_fix is None and scene.read_only:
        return _changes_nothing(scene, "start it without --read-only to change drafts")
    return scene.no_fix or _while_restarting(scene)


def profiles(scene: Scene) -> str | None:
    """Anywhere but there."""
    if scene.screen == "profiles":
        return "the profiles are open already"
    return STILL_OPENING if scene.opening else None


def edit(scene: Scene) -> str | None:
    """Needs a profile with a file."""
    if scene.screen != "profiles":
        return "only in the list of profiles: open it with P"
    if scene.profile_file:
        return None
    return "this profile ships with eaglemon: extend it in a file of your own (eaglemon init)"


def on_fleet(scene: Scene) -> str | None:
    """Only on the first screen."""
    return None if scene.screen == "fleet" else "only in the list of hosts: go back with esc"


def watch(scene: Scene) -> str | None:
    """Only on the screen of a host; to watch is to ask for tokens now and then."""
    if scene.screen != "host":
        return "only on the screen of a host: open it with h"
    if scene.read_only:
        return _changes_nothing(scene, "who watches asks the servers for tokens")
    return None


def filter_rows(scene: Scene) -> str | None:
    """Needs a list, or a log to search."""
    if scene.screen in LISTS or scene.screen in {"server", "log"}:
        return None
    return "nothing to filter here: only lists and logs"


def on_log(scene: Scene) -> str | None:
    """Only in a log."""
    return None if scene.screen == "log" else "only in a log: open it with l"


def tabs(scene: Scene) -> str | None:
    """Needs more than one panel."""
    one = scene.screen in {"log"}
    return "this screen has one panel only" if one else None


def decisive(scene: Scene) -> str | None:
    """Needs a cause with a line."""
    missing = with_server(scene)
    if missing or scene.server is None:
        return missing
    if scene.server.cause is None or not scene.server.cause.decisive_line:
        return f"no line of the log of {scene.server.name} is known to decide anything"
    return None


def log(scene: Scene) -> str | None:
    """Needs a server; in its log there is nothing to open."""
    if scene.screen == "log":
        return "the log is open: j, k, g, G and the page keys move in it, / searches"
    return with_server(scene)


def open_server(scene: Scene) -> str | None:
    """Needs a server that is not open."""
    if scene.screen == "server":
        return "this server is open already"
    return with_server(scene)


def back(scene: Scene) -> str | None:
    """Needs somewhere to go back to."""
    if scene.screen != "fleet" or scene.filtered:
        return None
    return "this is the first screen: q quits"
