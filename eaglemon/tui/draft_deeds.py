"""What the actions about the draft of a server do: check it, and correct its wiring."""

from functools import partial
from typing import TYPE_CHECKING

from eaglemon.app.api import Drafts, Eaglemon, LocalFiles
from eaglemon.core import units
from eaglemon.core.draft_views import CaptureOutlook, RepairView
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError
from eaglemon.tui.draft_words import in_keys
from eaglemon.tui.restart_deeds import RestartDeeds
from eaglemon.tui.screens.draft import DraftScreen
from eaglemon.tui.screens.rewire import AskFirst

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class DraftDeeds:
    """Carries out actions about drafts."""

    def __init__(
        self,
        app: "ConsoleApp",
        console: Eaglemon,
        files: LocalFiles | None,
        restarts: RestartDeeds,
    ) -> None:
        self._app = app
        self._restarts = restarts
        self._console = console
        self._drafts = files.drafts(console) if files is not None else None

    def show(self, server: ServerView) -> None:
        """Show the draft of a server."""
        screen = DraftScreen(self._console, self._drafts, server.id, self._app.settings)
        self._app.open_screen(screen)

    def check(self) -> None:
        """Tell what a check costs, then run it if that is wanted."""
        screen, drafts = self._here()
        self._app.run_worker(self._ask_cost(screen, drafts), group="draft", exclusive=True)

    def fix(self) -> None:
        """Show what would change, then write it, restart the server and probe it."""
        screen, drafts = self._here()
        self._app.run_worker(self._ask_fix(screen, drafts), group="draft", exclusive=True)

    def _here(self) -> tuple[DraftScreen, Drafts]:
        screen = self._app.console_screen()
        if not isinstance(screen, DraftScreen) or self._drafts is None:
            raise ValueError("an action about a draft was carried out without one")
        return screen, self._drafts

    async def _ask_cost(self, screen: DraftScreen, drafts: Drafts) -> None:
        try:
            cost = await drafts.cost(screen.server_id)
        except EaglemonError as error:
            self._app.say(in_keys(str(error)), severity="error")
            return
        if not cost.fits:
            self._app.say(
                f"{_cost(cost)}: that does not fit; capture elsewhere, see eaglemon draft capture",
                severity="error",
            )
            return

        def answered(answer: bool | None) -> None:  # noqa: FBT001 (the result of the dialog)
            if answer:
                screen.judge(capture=True)

        told = [_cost(cost), "", "Then the draft is run over them, and its wiring searched."]
        self._app.push_screen(AskFirst("Check the draft on its host?", told, "Check"), answered)

    async def _ask_fix(self, screen: DraftScreen, drafts: Drafts) -> None:
        slots = screen.trained or ()
        try:
            repair = await drafts.rewire(screen.server_id, slots)
        except EaglemonError as error:
            self._app.say(in_keys(str(error)), severity="error")
            return
        if not repair.difference:
            self._app.say("its files say so already: restart the server with R", severity="warning")
            return
        told = [*repair.difference, *(f"▲ {line}" for line in repair.warnings), ""]
        told.append("Then the server is restarted on its port and probed.")
        title = f"{repair.title}?"
        dialog = AskFirst(title, told, "Write, restart, probe")
        self._app.push_screen(dialog, partial(self._fix_answered, screen, drafts, repair))

    def _fix_answered(
        self,
        screen: DraftScreen,
        drafts: Drafts,
        repair: RepairView,
        answer: bool | None,  # noqa: FBT001 (the result of the dialog)
    ) -> None:
        if answer:
            # In no group with others: the server must not stay stopped because of another key.
            self._app.run_worker(self._rewire(screen, drafts, repair), group="rewire")

    async def _rewire(self, screen: DraftScreen, drafts: Drafts, repair: RepairView) -> None:
        server_id = screen.server_id
        server = self._console.find(server_id)
        undo = f"undo: eaglemon draft undo {server.host}:{repair.folder}"
        written = False
        try:
            slots = screen.trained or ()
            with self._restarts.marked(server_id, server.name):
                await drafts.rewire(server_id, slots, shown=repair.difference)
                written = True
                self._app.say("written; the server is restarted now")
                again = await self._restarts.again(server_id, server.name)
            if self._app.console_screen() is screen:
                self._app.open_server(again)
            view = await self._console.wait(again)
            if not view.state.answering:
                told = f"rewired, but {view.name} is {view.state}; {undo}"
                self._app.tell_end(told, severity="error")
                return
            self._app.say(f"{view.name} is ready; probing it")
            done = await self._console.probe(again, self._console.probe_plan(again))
        except EaglemonError as error:
            told = f"after rewiring the draft: {error}; {undo}" if written else in_keys(str(error))
            self._app.tell_end(told, severity="error")
            if written and screen.is_attached:
                screen.judge(capture=False)
            return
        length = units.length(done.figures.accept_length)
        speed = units.rate(done.figures.total_tok_s)
        told = f"rewired {view.name}: accept length {length}, {speed} tok/s; {undo}"
        self._app.tell_end(told)


def _cost(cost: CaptureOutlook) -> str:
    free = "not known" if cost.free_bytes is None else units.memory(cost.free_bytes)
    return (
        f"capturing loads the target, {units.memory(cost.weights_bytes)} ({free} free on "
        f"{cost.device}), continues {cost.prompts} prompts by {cost.new_tokens} tokens and holds "
        f"about {units.memory(cost.hidden_bytes)} of hidden states"
    )
