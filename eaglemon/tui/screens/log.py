"""The whole screen for one server's log: search, filter, follow, jump to a line that matters."""

import asyncio
from collections import deque
from contextlib import aclosing
from typing import ClassVar, Literal

from textual import work
from textual.app import ComposeResult
from textual.widgets import Input

from eaglemon.app.api import Eaglemon, PastLog
from eaglemon.core import units
from eaglemon.core.views import LogBatch, ServerView, Snapshot
from eaglemon.errors import EaglemonError, HostError
from eaglemon.tui import log_target, panels
from eaglemon.tui.log_hits import MOST_HITS
from eaglemon.tui.scene import Scene
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.log_view import MAX_LINES
from eaglemon.tui.widgets.text_panel import TextPanel
from eaglemon.tui.widgets.whole_log import WholeLog

AGAIN_S = 1.0
"""Until a host that went is asked again."""
PAGES_WAITING = 3
LOOKED_AT_LINES = 500
"""Lines without a time stamp that are passed over."""
Purpose = Literal["search", "only", "jump"]
_ASKS: dict[Purpose, str] = {
    "only": "show only lines with this text; enter keeps it, esc shows all",
    "search": "text to look for, upwards; n and N go on; capitals count if typed",
    "jump": "a line number, or a time as the log has it: 14:02, 11-29 14:02:05",
}


class LogScreen(ConsoleScreen):
    """A log from its first line to those that come; only what is looked at leaves its host."""

    NAME = "log"
    TABS: ClassVar[tuple[str, ...]] = ("Log",)
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Log",)
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("log",),)

    def __init__(self, api: Eaglemon, server_id: str, settings: Settings) -> None:
        super().__init__(settings)
        self.server_id = server_id
        self._api = api
        self._server = api.snapshot().server(server_id)
        self._title = TextPanel(id="server-title")
        self._log = WholeLog(flush_s=settings.pace.log_s, id="log")
        self._log.add_class("panel")
        self._prompt = Input(id="prompt")
        self._purpose: Purpose = "search"
        self._wanted: deque[tuple[int, tuple[int, int]]] = deque(maxlen=PAGES_WAITING)
        self._begun = False
        """The first lines came."""
        self._past_told = asyncio.Event()
        """It is known where lines begin, or that it will not be."""

    def compose_head(self) -> ComposeResult:
        """Yield the title line."""
        yield self._title

    def compose_panels(self) -> ComposeResult:
        """Yield the log and the line for a text to look for."""
        yield self._log
        yield self._prompt

    def on_mount(self) -> None:
        """Follow the log."""
        self._prompt.display = False
        self.run_worker(self._follow(), group="log", exclusive=True)

    @property
    def filtered(self) -> bool:
        """A line for a text is shown."""
        return bool(self._prompt.display)

    def show_frame(self, snapshot: Snapshot, scene: Scene) -> None:
        """Draw status and key line; a frozen picture has a log that stands still."""
        super().show_frame(snapshot, scene)
        self._log.freeze(frozen=scene.paused)

    def current_server(self) -> ServerView | None:
        """Return the server whose log this is."""
        return self._server

    def show(self, snapshot: Snapshot) -> None:
        """Draw the title; the log draws itself."""
        self._server = snapshot.server(self.server_id) or self._server
        if self._server is not None:
            width = self.columns - 2
            self._title.show(panels.title_line(self._server, width, self._settings.zone))

    def ask(self, purpose: Purpose) -> None:
        """Let a text be typed: to search for, to show only lines that contain it, or to go to."""
        self._purpose = purpose
        self._prompt.value = ""
        self._prompt.placeholder = _ASKS[purpose]
        self._prompt.display = True
        self._prompt.focus()

    def clear_filter(self) -> bool:
        """Close the prompt, show all lines, end selecting; tell whether there was anything."""
        had = self.filtered or bool(self._log.only) or bool(self._log.selected)
        self._prompt.display = False
        if self._log.selected:
            self._log.select()
        if self._log.only:
            self.workers.cancel_group(self, "filter")
            self._log.show_only("")
        self._log.focus()
        return had

    def step_hit(self, step: int) -> str:
        """Go to the next or previous hit and return how that went."""
        return self._log.search_again(step)

    def select(self) -> bool:
        """Begin or end selecting lines; tell which."""
        return self._log.select()

    def texts(self) -> tuple[list[str], str]:
        """Return the lines to copy, and what they are."""
        return self._log.texts()

    @work(group="decisive", exclusive=True)
    async def show_decisive(self) -> None:
        """Go to the line that decides, wherever in the log it is."""
        cause = self._server.cause if self._server else None
        if cause is None or not cause.decisive_line or self._log.find_line(cause.decisive_line):
            return
        if cause.line_number is not None:
            await self._past_told.wait()
            if self._log.whole:
                self._log.go_to(min(cause.line_number, self._log.line_total) - 1)
                return
        where = units.count(cause.line_number)
        self._say(f"line {where} is not among those read: {cause.decisive_line}")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, filter or jump, and go back to the log."""
        event.stop()
        text = event.value
        self._prompt.display = False
        self._log.focus()
        if self._purpose == "only":
            self.workers.cancel_group(self, "filter")
            self._log.show_only(text)
        elif text and self._purpose == "search":
            self._say(self._log.search(text))
        elif text:
            self._jump(text)

    def on_whole_log_page_wanted(self, event: WholeLog.PageWanted) -> None:
        """Fetch lines, those wanted last first; what was scrolled past is left out."""
        event.stop()
        self._wanted.append((event.page, event.span))
        if len(self._wanted) == 1:
            self._fetch_pages()

    def on_whole_log_search_wanted(self, event: WholeLog.SearchWanted) -> None:
        """Let the host look through the lines before those that are here."""
        event.stop()
        if event.filters:
            self._filter_past(event.text, event.place)
        else:
            self._search_past(event.text, event.place, event.begin)

    @work(group="jump", exclusive=True)
    async def _jump(self, text: str) -> None:
        if self._log.only:
            self._log.show_only("")
        try:
            number = log_target.line_number(text)
            if number is None:
                await self._past_told.wait()
                number = await self._line_at(text)
        except EaglemonError as error:
            self._say(str(error))
            return
        if not self._log.line_total:
            self._say("the log has no line yet")
            return
        if number >= self._log.line_total:
            self._say(f"the log has {units.plural(self._log.line_total, 'line')}: this is the last")
        self._log.go_to(min(number, self._log.line_total - 1))

    async def _line_at(self, text: str) -> int:
        total = self._log.line_total
        begin = max(0, total - LOOKED_AT_LINES)
        last = [log_target.stamp_of(self._log.text_of(n) or "") for n in range(begin, total)]
        known = [stamp for stamp in last if stamp is not None]
        wanted = log_target.wanted_stamp(text, max(known, default=0.0))
        search = log_target.Bisection(wanted, total)
        if not known:
            self._say("the last lines of this log have no time")
            return total - 1
        while search.found is None:
            if self._log.text_of(search.asks) is None:
                page = self._log.page_of(search.asks)
                if page is None:
                    break
                self._log.put_page(page[0], list(await self._past().read(*page[1])))
            search.look(self._log.text_of, LOOKED_AT_LINES)
        found = log_target.stamp_of(self._log.text_of(search.asks) or "")
        self._say(log_target.nothing_there(text, wanted, found, search.asks))
        return search.asks

    @work(group="pages", exclusive=True)
    async def _fetch_pages(self) -> None:
        while self._wanted:
            page, span = self._wanted[-1]
            try:
                lines = await self._past().read(*span)
            except EaglemonError as error:
                self._log.tell_past("earlier lines cannot be read")
                self._say(f"earlier lines cannot be read: {error}")
                self._wanted.clear()
                return
            self._log.put_page(page, list(lines))
            left = [one for one in self._wanted if one[0] != page]
            self._wanted.clear()
            self._wanted.extend(left)

    @work(group="search", exclusive=True)
    async def _search_past(self, text: str, place: tuple[int, int], begin: int) -> None:
        until, line = place
        try:
            found = self._past().search(text, begin=begin, until=until, line=line, most=MOST_HITS)
            async with aclosing(found):
                async for hits in found:
                    share = hits.read_bytes / (until - begin)
                    self._say(self._log.add_hits(hits.numbers, share))
        except EaglemonError as error:
            self._log.fail_hits()
            self._say(f"the earlier lines were not looked through: {error}")
        else:
            self._say(self._log.end_hits())

    @work(group="filter", exclusive=True)
    async def _filter_past(self, text: str, place: tuple[int, int]) -> None:
        until, line = place
        try:
            found = self._past().search(
                text, until=until, line=line, most=MAX_LINES, with_texts=True
            )
            async with aclosing(found):
                async for hits in found:
                    if not self._log.add_filtered(hits.numbers, hits.texts):
                        self._say(
                            f"the last {units.count(MAX_LINES)} lines with {text!r} are shown"
                        )
                        return
        except EaglemonError as error:
            self._say(f"the earlier lines were not looked through: {error}")

    def _past(self) -> PastLog:
        return self._api.past_log(self.server_id)

    def _say(self, text: str) -> None:
        if text:
            self.notify(text, markup=False)

    async def _follow(self) -> None:
        try:
            async for batch in self._api.logs(self.server_id, follow=True, tail=MAX_LINES):
                self._take(batch)
        except EaglemonError as error:
            self._log.end(f"the log cannot be read: {error}")
        else:
            self._log.end()
        self._past_told.set()

    def _take(self, batch: LogBatch) -> None:
        begin = batch.begin_offset
        if begin is None:
            self._past_told.set()
            self._log.add(batch.lines)
            return
        if batch.restarted:
            for group in ("places", "pages", "search", "filter"):
                self.workers.cancel_group(self, group)
            self._wanted.clear()
            self._log.begin_again()
        if batch.restarted or not self._begun:
            self._begun = True
            self._find_places(begin)
        self._log.take(batch.lines, begin=begin, end=batch.next_offset)

    @work(group="places", exclusive=True)
    async def _find_places(self, until: int) -> None:
        while True:
            # The host tells the first place too, where there is anything before the lines here.
            places = [] if until else [(0, 0)]
            try:
                if until:
                    async with aclosing(self._past().places(until)) as found:
                        async for some in found:
                            places += some.places
                            done = some.read_bytes / until
                            self._log.tell_past(f"finding those before: {done * 100:.0f} %")
                self._log.know_places(places)
                break
            except HostError:
                self._log.tell_past("those before: once the host is back")
                await asyncio.sleep(AGAIN_S)
            except EaglemonError as error:
                self._log.tell_past("those before cannot be read")
                self._say(f"only the last lines of this log can be read: {error}")
                break
        self._past_told.set()
