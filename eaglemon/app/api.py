"""The domain API: all that the terminal console and the command line may ask for.

``Eaglemon`` is implemented by ``eaglemon.app.hub.Hub``; tests of front ends implement it with
prepared snapshots. Methods raise ``EaglemonError`` subclasses only.
"""

# Annotations are not evaluated: what they name is loaded by those who make or read it, and the
# console's first picture, which knows none of it yet, comes sooner.
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from eaglemon.core.draft_verdict import DraftReport
    from eaglemon.core.draft_views import CaptureOutlook, CheckStage, RepairView
    from eaglemon.core.experiment import Arm, ExperimentPlan
    from eaglemon.core.experiment_records import (
        Environment,
        ExperimentRecord,
        ExperimentSummary,
    )
    from eaglemon.core.experiment_views import ExperimentView, Outlook
    from eaglemon.core.foreign import ForeignServer, ForeignStop, Reached
    from eaglemon.core.hosts import HostSpec
    from eaglemon.core.log_past import LogHits, LogPlaces
    from eaglemon.core.probe import ProbePlan, ProbeProgress
    from eaglemon.core.problems import Problem
    from eaglemon.core.profiles import Profile
    from eaglemon.core.run_comparison import ProfileHistory, RunComparison
    from eaglemon.core.server_url import Trust
    from eaglemon.core.verdict import Findings
    from eaglemon.core.views import LaunchPlan, LogBatch, Needs, ServerView, Snapshot, Told
    from eaglemon.core.worth import StoredWorth


class PastLog(Protocol):
    """The part of a log that stays on its host. Its methods raise ``EaglemonError`` where the
    host cannot be asked, has no Python, or has another log by now.
    """

    def places(self, until: int) -> AsyncGenerator[LogPlaces, None]:
        """Yield where lines begin, about every 64 KiB, up to the byte ``until``."""
        ...

    def search(
        self,
        text: str,
        *,
        begin: int = 0,
        until: int,
        line: int,
        most: int,
        with_texts: bool = False,
    ) -> AsyncGenerator[LogHits, None]:
        """Yield the lines with ``text`` upwards, in any case where it has no capitals.

        Those between the bytes ``begin`` and ``until`` are; line number ``line`` begins at the
        latter.
        """
        ...

    async def read(self, begin: int, end: int) -> Sequence[str]:
        """Return the lines between two places."""
        ...


class Eaglemon(Protocol):
    """One console's view of its hosts and servers."""

    def hosts(self) -> Sequence[HostSpec]:
        """Return the hosts of this console."""
        ...

    def add_host(self, spec: HostSpec) -> None:
        """Connect to one more host, until this console is left; raises ``UsageError``."""
        ...

    def retry(self, host: str) -> None:
        """Try a host that is down again now, without waiting for the next attempt."""
        ...

    def profiles(self) -> Sequence[Profile]:
        """Return all profiles that could be read, by name."""
        ...

    def profile_problems(self) -> Sequence[Problem]:
        """Return what is wrong with profile files that could not be read."""
        ...

    def snapshot(self) -> Snapshot:
        """Return everything known now, without waiting for anything."""
        ...

    def updates(self) -> AsyncIterator[Snapshot]:
        """Yield a snapshot whenever something changed; a slow reader gets the latest only."""
        ...

    async def settle(self, *, timeout_s: float = 20.0, needs: Needs = "servers") -> Snapshot:
        """Wait until each host answered once, or failed to, and return the snapshot.

        ``needs`` says what has to be known then: the list of runs, the GPUs too, or that every
        server was asked how it is as well. One that does not answer is waited for a few seconds.

        Never raises for a host that cannot be reached: its ``HostView`` says why.
        """
        ...

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        """Return what a launch would run; raises ``ConfigError`` or ``UsageError``.

        ``overrides`` are ``--set`` values: ``port``, ``speculation.steps``, ``env.NAME`` or a flag.
        """
        ...

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        """Return what starting this server again would run.

        With ``forced_length`` the engine makes up this accept length while it verifies for real.
        Raises ``ServerError`` where it cannot.
        """
        ...

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        """Return what stands against the launch: flags, port, GPUs in use, paths."""
        ...

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """Start a server and return its id; raises ``LaunchRefusedError`` with all problems."""
        ...

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        """Wait until the server is ready or has ended.

        Raises ``TimeLimitError`` after ``timeout_s`` (the profile's limit when ``None``).
        """
        ...

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """Stop a server: TERM, grace, KILL of what is left, then wait for the GPU memory."""
        ...

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        """Stop a server, wait for its memory, start the same on its port and return the new id.

        ``told`` of a wait for GPU memory. Raises ``ServerError`` where anything of the old one may
        be left: nothing is started then, nor when this is cancelled before the new one is begun.
        """
        ...

    async def foreign(self, host: str) -> Sequence[ForeignServer]:
        """Return the servers on a host that no console started."""
        ...

    async def watch(self, foreign_id: str) -> str:
        """Begin to watch the server ``PID@HOST`` like one of ours, and return its id.

        It is asked for its health and for tokens from then on. ``stop`` refuses it.
        """
        ...

    async def stop_foreign(
        self, foreign_id: str, *, grace_s: float, told: Callable[[ForeignStop], None]
    ) -> ForeignStop:
        """End the server ``PID@HOST``: TERM, grace, KILL of what is left; ``told`` of each step."""
        ...

    async def wait_at(
        self,
        url: str,
        *,
        host: str,
        timeout_s: float,
        api_key: str | None = None,
        trust: Trust | None = None,
    ) -> Reached:
        """Wait until the server at ``http://ADDRESS:PORT``, as ``host`` sees it, has generated.

        ``trust`` as for ``reach``. Raises ``TimeLimitError`` after ``timeout_s``.
        """
        ...

    async def reach(
        self, url: str, *, host: str, api_key: str | None = None, trust: Trust | None = None
    ) -> str:
        """Look at a server at a URL as ``host`` sees it, started by anyone.

        ``trust`` says which certificates to believe, by default those that the machine does.
        Returns its id for ``probe_plan`` and ``probe``. Raises ``ProbeError`` when it is no engine.
        """
        ...

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        """Run a probe to its end; its progress is in the server's view meanwhile.

        Cancelling the call cancels the probe; ``plan`` defaults to the profile's. ``seen`` gets
        the progress too.
        """
        ...

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        """Return the profile's probe with ``overrides`` (``requests``, ``workload``, ...)."""
        ...

    async def environment(self, server_id: str) -> Environment:
        """Return releases, driver, GPUs and resolved arguments of a running server.

        What cannot be found out is in its ``notes``; raises ``UsageError`` for an unknown server.
        """
        ...

    def logs(
        self, server_id: str, *, follow: bool, tail: int | None = None
    ) -> AsyncIterator[LogBatch]:
        """Yield the server's log from its start, or its last ``tail`` lines.

        With ``follow`` it goes on until the server has ended, over reconnects.
        """
        ...

    def past_log(self, server_id: str) -> PastLog:
        """Return what can be asked about the server's log as it lies on its host."""
        ...

    def find(self, text: str) -> ServerView:
        """Return the server with this id, id prefix, or (newest) name; raises ``UsageError``."""
        ...

    async def close(self) -> None:
        """Close all connections; servers keep running."""
        ...


class LocalFiles(Protocol):
    """Files of this computer that a console may read and have edited; calls block."""

    def profile_file(self, source: str) -> Path | None:
        """Return the file that ``Profile.source`` or a problem names, ``None`` where it ships."""
        ...

    def reload(self) -> None:
        """Read the profiles again; the console has them at once. Raises ``ConfigError``."""
        ...

    def ssh_hosts(self) -> Sequence[HostSpec]:
        """Return the hosts that ``~/.ssh/config`` names; nothing is connected."""
        ...

    def named_host(self, name: str, known: Sequence[HostSpec] = ()) -> HostSpec:
        """Return the host that ``[user@]name[:port]`` means; raises ``UsageError``.

        ``known`` are hosts besides the configured ones.
        """
        ...

    def keep_host(self, spec: HostSpec) -> Path:
        """Add a host to the user's ``hosts.toml`` and return the file; raises ``UsageError``."""
        ...

    def drafts(self, console: Eaglemon) -> Drafts:
        """Return what looks at the drafts of a console's servers."""
        ...


class Drafts(Protocol):
    """The drafts of servers, looked at and corrected where they lie.

    Methods raise ``EaglemonError`` subclasses; cancelling one ends its work on the host too.
    """

    async def diagnose(
        self,
        server_id: str,
        *,
        capture: bool = False,
        told: Callable[[CheckStage], None] = lambda _: None,
    ) -> DraftReport:
        """Judge the draft by its files and what is served; with ``capture`` run it offline too.

        ``told`` hears what such a run is at.
        """
        ...

    async def cost(self, server_id: str) -> CaptureOutlook:
        """Return what a diagnosis with ``capture`` costs on the host."""
        ...

    async def rewire(
        self, server_id: str, slots: Sequence[int], *, shown: Sequence[str] | None = None
    ) -> RepairView:
        """Return what writing these layers would change.

        It is written where that is still the difference that was ``shown``, beside a backup.
        """
        ...


class Experiments(Protocol):
    """Experiments over a console's servers (``eaglemon.app.experiments.ExperimentService``)."""

    def arm(
        self, text: str, host: str, settings: Mapping[str, str] | None = None, *, name: str = ""
    ) -> Arm:
        """Return the arm of ``PROFILE[+KEY=VALUE...][@HOST]``; raises as ``Eaglemon.plan``."""
        ...

    def new_id(self, kind: str) -> str:
        """Return an id for a new experiment, ``ab`` or ``sweep``."""
        ...

    async def outlook(self, plan: ExperimentPlan) -> Outlook:
        """Return what the experiment will do, to be confirmed; starts nothing."""
        ...

    def begin(self, plan: ExperimentPlan) -> None:
        """Run an experiment in the background."""
        ...

    def view(self, experiment: str) -> ExperimentView | None:
        """Return an experiment of this console as it stands."""
        ...

    def views(self) -> Sequence[ExperimentView]:
        """Return the experiments of this console, newest last."""
        ...

    async def cancel(self, experiment: str) -> None:
        """End an experiment; returns when the servers that it started are gone."""
        ...

    async def history(self, limit: int = 50) -> list[ExperimentSummary]:
        """Return stored experiments, newest first."""
        ...

    async def record(self, text: str) -> ExperimentRecord:
        """Return a stored experiment by id, beginning of an id, or ``last``."""
        ...

    async def findings(self, record: ExperimentRecord) -> Findings:
        """Return what an experiment has shown, computed from its raw records."""
        ...

    async def begin_again(self, text: str = "") -> str:
        """Go on in the background with one whose console was killed; return its id."""
        ...

    async def compare(self, one: str, other: str) -> RunComparison:
        """Return two stored experiments side by side, the earlier one first."""
        ...

    async def write_report(self, text: str, folder: Path) -> Path:
        """Write the report of an experiment into a new file of ``folder``; return where it is."""
        ...

    async def worth(self, server: ServerView) -> StoredWorth | None:
        """Return the newest comparison of a server started as this one was on its host."""
        ...

    async def profile_history(self, profile: str) -> ProfileHistory:
        """Return earlier starts of a profile and what it reached, newest first."""
        ...
