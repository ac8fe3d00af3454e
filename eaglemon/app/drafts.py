"""The draft of a server, where it lies: judged with what is served, and its wiring corrected.

The work is that of ``draft.task.perform``, on the server's host; modules are loaded when asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eaglemon.errors import ReadOnlyError, UsageError

if TYPE_CHECKING:
    from eaglemon.app.api import Eaglemon
    from eaglemon.core.draft_verdict import DraftReport
    from eaglemon.core.draft_views import CaptureOutlook, CheckStage, RepairView
    from eaglemon.core.profiles import Profile
    from eaglemon.core.views import ServerView

CAPTURED_PROMPTS = 16
CAPTURED_TOKENS = 192
_STEPS = 5


class DraftDesk:
    """Implements ``eaglemon.app.api.Drafts`` over one console; ``read_only`` refuses to write."""

    def __init__(self, console: "Eaglemon", *, read_only: bool = False) -> None:
        self._console = console
        self._read_only = read_only

    async def diagnose(
        self,
        server_id: str,
        *,
        capture: bool = False,
        told: "Callable[[CheckStage], None]" = lambda _: None,
    ) -> "DraftReport":
        """Judge the draft: by its files and what is served, with ``capture`` run offline too."""
        server, profile = self._subject(server_id)
        request: dict[str, Any] = {
            "do": "diagnose",
            "engine": profile.engine,
            "engine_version": await self._version(server),
            "algorithm": profile.speculation.algorithm if profile.speculation else None,
            "served": _served(server, profile),
            "place": f"{server.host}:",
            "steps": _STEPS,
        }
        if capture:
            prompts = self._console.probe_plan(server_id).prompts[:CAPTURED_PROMPTS]
            request |= {"prompts": [p.text for p in prompts], "new_tokens": CAPTURED_TOKENS}
        report: DraftReport = await self._perform(server, profile, request, told)
        return report

    async def cost(self, server_id: str) -> "CaptureOutlook":
        """Return what a diagnosis with ``capture`` costs on the host."""
        server, profile = self._subject(server_id)
        request = {"do": "outlook", "prompts": CAPTURED_PROMPTS, "new_tokens": CAPTURED_TOKENS}
        found: CaptureOutlook = await self._perform(server, profile, request)
        return found

    async def rewire(
        self, server_id: str, slots: Sequence[int], *, shown: Sequence[str] | None = None
    ) -> "RepairView":
        """Return what writing these layers would change; write it where that is ``shown``."""
        server, profile = self._subject(server_id)
        if shown is not None and self._read_only:
            raise ReadOnlyError(f"the draft of {server.name} is not changed")
        request: dict[str, Any] = {
            "do": "set-layers",
            "slots": tuple(slots),
            "engine": profile.engine,
            "engine_version": await self._version(server),
        }
        if shown is not None:
            request["shown"] = tuple(shown)
        repair: RepairView = await self._perform(server, profile, request)
        return repair

    def _subject(self, server_id: str) -> "tuple[ServerView, Profile]":
        server = self._console.find(server_id)
        profile = self._console.relaunch_plan(server.id).profile
        if profile.draft is None:
            raise UsageError(f"{server.name} has no draft in a folder")
        return server, profile

    async def _version(self, server: "ServerView") -> str | None:
        if not server.state.answering:
            return None
        return (await self._console.environment(server.id)).engine_version

    async def _perform(
        self,
        server: "ServerView",
        profile: "Profile",
        request: Mapping[str, Any],
        told: "Callable[[CheckStage], None]" = lambda _: None,
    ) -> Any:
        # Imported here because few look at a draft, and the first picture would wait for it.
        from eaglemon.app.draft_host import perform_on  # noqa: PLC0415
        from eaglemon.engines.command import interpreter  # noqa: PLC0415

        spec = next(spec for spec in self._console.hosts() if spec.name == server.host)
        # Only what runs the draft needs the engine's packages.
        computes = "prompts" in request and request["do"] == "diagnose"
        python = interpreter(profile) if computes and profile.direct else None
        places: dict[str, Any] = {"target": profile.model, "env": profile.env}
        if request["do"] != "outlook":
            places["folder"] = profile.draft
        return await perform_on(spec, {**request, **places}, python=python, told=told)


def _served(server: "ServerView", profile: "Profile") -> dict[str, Any] | None:
    """Return what the last probe tells, else the server's own counters."""
    from eaglemon.core.draft_served import counted_figures, served_figures  # noqa: PLC0415

    probe = server.probe
    if probe is not None and probe.state == "done" and probe.figures.accept_length is not None:
        figures = served_figures(probe)
    elif (counted := counted_figures(server.acceptance)) is not None:
        figures = counted
    else:
        return None
    ceiling = profile.speculation.ceiling if profile.speculation else None
    return {**asdict(figures), "ceiling": ceiling}
