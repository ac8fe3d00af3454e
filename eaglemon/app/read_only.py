"""A console that watches and changes nothing."""

from collections.abc import Callable

from eaglemon.app.hub import Hub
from eaglemon.core.foreign import ForeignStop
from eaglemon.core.views import LaunchPlan, ServerView, Told
from eaglemon.errors import ReadOnlyError


class ReadOnlyHub(Hub):
    """Refuses whatever starts or ends a server, from whichever front end it comes."""

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """Refuse."""
        del force
        raise ReadOnlyError(f"{plan.profile.name} is not started")

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """Refuse."""
        del grace_s, wait
        raise ReadOnlyError(f"{server_id} is not stopped")

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        """Refuse."""
        del grace_s, told
        raise ReadOnlyError(f"{server_id} is not restarted")

    async def stop_foreign(
        self, foreign_id: str, *, grace_s: float, told: Callable[[ForeignStop], None]
    ) -> ForeignStop:
        """Refuse."""
        del grace_s, told
        raise ReadOnlyError(f"{foreign_id} is not stopped")
