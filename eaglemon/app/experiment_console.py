"""The part of the domain API that experiments need."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

from eaglemon.core.experiment_records import Environment
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.core.problems import Problem
from eaglemon.core.views import LaunchPlan, ServerView, Snapshot


class ExperimentConsole(Protocol):
    """Satisfied by ``eaglemon.app.api.Eaglemon``, whose methods these are."""

    def snapshot(self) -> Snapshot:
        """See ``Eaglemon``."""
        ...

    def updates(self) -> AsyncIterator[Snapshot]:
        """See ``Eaglemon``."""
        ...

    async def settle(self, *, timeout_s: float = 20.0) -> Snapshot:
        """See ``Eaglemon``."""
        ...

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        """See ``Eaglemon``."""
        ...

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        """See ``Eaglemon``."""
        ...

    def relaunch_plan(self, server_id: str) -> LaunchPlan:
        """See ``Eaglemon``."""
        ...

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """See ``Eaglemon``."""
        ...

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        """See ``Eaglemon``."""
        ...

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """See ``Eaglemon``."""
        ...

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        """See ``Eaglemon``."""
        ...

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        """See ``Eaglemon``."""
        ...

    async def environment(self, server_id: str) -> Environment:
        """See ``Eaglemon``."""
        ...
