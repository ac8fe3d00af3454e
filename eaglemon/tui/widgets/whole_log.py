"""A log of any length: its last lines are here, those before them are fetched when looked at."""

from array import array

from textual.message import Message

from eaglemon.core import units
from eaglemon.tui.log_buffer import cleaned
from eaglemon.tui.log_hits import Hits
from eaglemon.tui.log_pages import STEP_BYTES, UNREAD, LogPages
from eaglemon.tui.widgets.log_view import LogView


class WholeLog(LogView):
    """Rows are the lines of the whole log, once it is known where lines begin."""

    class PageWanted(Message):
        """Lines between two places are to be shown."""

        def __init__(self, page: int, span: tuple[int, int]) -> None:
            super().__init__()
            self.page = page
            self.span = span

    class SearchWanted(Message):
        """The lines before a place are to be looked through, for a search or a filter."""

        def __init__(
            self, text: str, place: tuple[int, int], *, filters: bool, begin: int = 0
        ) -> None:
            super().__init__()
            self.text = text
            self.begin = begin
            """Byte before which nothing needs to be looked through."""
            self.place = place
            self.filters = filters

    def __init__(self, *, flush_s: float = 0.1, id: str | None = None) -> None:  # noqa: A002
        super().__init__(flush_s=flush_s, id=id)
        self._pages: LogPages | None = None
        self._asked: set[int] = set()
        self._taken = 0
        """Lines that came here so far."""
        self._begins = array("Q")
        """Where batches of them begin, and how many lines came before each."""
        self._before = array("Q")
        self._read_to = 0
        self._filtered_before = 0
        """Line from which on the filter took lines as they came here."""
        self._state = ""
        """What is to be said of the lines before those that are here."""

    @property
    def whole(self) -> bool:
        """Whether every line of the log can be gone to."""
        return self._pages is not None

    @property
    def line_total(self) -> int:
        """Lines of the log, as far as known."""
        return self._rows if self.whole and not self.only else self._buffer.total

    def begin_again(self) -> None:
        """Forget all lines: the log is another one now."""
        self._waiting.clear()
        self._buffer.clear()
        self._unseen = self._taken = self._read_to = 0
        self._begins, self._before = array("Q"), array("Q")
        self._pages = self._place = self._anchor = self._drag = None
        self._hits = Hits("")
        self._asked.clear()
        self._lay_out()
        self.refresh()

    def take(self, lines: tuple[str, ...], *, begin: int, end: int) -> None:
        """Take lines that begin at byte ``begin``; the log was read up to ``end``."""
        if not self._begins or begin >= self._begins[-1] + STEP_BYTES:
            self._begins.append(begin)
            self._before.append(self._taken)
        if self._pages is not None:
            self._pages.grow(begin, self._pages.first + self._taken, end)
        self._taken += len(lines)
        self._read_to = end
        self.add(lines)

    def tell_past(self, state: str) -> None:
        """Say how it stands with the lines before those that are here."""
        self._state = state
        self._tell()

    def know_places(self, places: list[tuple[int, int]]) -> None:
        """Take where the lines before those that came begin; all can be gone to from now on."""
        pages = LogPages(places, first=places[-1][1])
        for begin, before in zip(self._begins, self._before, strict=True):
            pages.grow(begin, pages.first + before, self._read_to)
        self._pages, self._state = pages, ""
        if self.only:
            self._filter_past(self.only)
        else:
            self._lay_out()
            self._shift(self._first_here)
            self._keep_end()
        if self._hits.text:
            self._hits = self._new_search(self._hits.text)
        self.refresh()
        self._tell()

    def show_only(self, text: str) -> None:
        """Show only lines that contain ``text``, those of the past too as they are found."""
        super().show_only(text)
        if text and self._pages is not None:
            self._filter_past(text)

    def add_filtered(self, numbers: tuple[int, ...], texts: tuple[str, ...]) -> bool:
        """Take lines of the past that the filter lets through; return whether there is room."""
        lines = [t for n, t in zip(numbers, texts, strict=True) if n < self._filtered_before]
        fitted = self._buffer.add_older(cleaned(reversed(lines)))
        self._lay_out()
        self._shift(fitted)
        self._keep_end()
        self.refresh()
        self._tell()
        return fitted == len(lines)

    def add_hits(self, numbers: tuple[int, ...], share: float | None) -> str:
        """Take hits of the past; return how the search went where it went on."""
        self._hits.add(numbers, share)
        return self._go_on()

    def end_hits(self) -> str:
        """Take note that the past was looked through."""
        self._hits.end(self._place, self._hits_here(self._hits.text))
        return self._go_on()

    def fail_hits(self) -> None:
        """Take note that the past could not be looked through; the next step tries again."""
        self._hits.fail()
        self._tell()

    def put_page(self, page: int, lines: list[str]) -> None:
        """Take the lines of a page."""
        if self._pages is None:
            return
        kept = cleaned(lines)
        self._pages.put(page, kept)
        self._asked.discard(page)
        self._buffer.widen(kept)
        self._lay_out()
        self.refresh()

    def text_of(self, number: int) -> str | None:
        """Return a line by its number from 0, ``None`` while it is not here."""
        if self._pages is None or number >= self._first_here:
            place = number - self._first_here
            return self._buffer.lines[place] if 0 <= place < len(self._buffer.lines) else None
        return self._pages.line(number)

    def page_of(self, number: int) -> tuple[int, tuple[int, int]] | None:
        """Return the page with a line and the bytes it lies in."""
        if self._pages is None:
            return None
        page = self._pages.page_of(number)
        return page, self._pages.span(page)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """What was asked for may not be wanted any more."""
        self._asked.clear()
        super().watch_scroll_y(old_value, new_value)

    @property
    def _first_here(self) -> int:
        first = 0 if self._pages is None else self._pages.first
        return first + self._buffer.total - len(self._buffer.lines)

    @property
    def _rows(self) -> int:
        if self.only or self._pages is None:
            return super()._rows
        return self._pages.first + self._buffer.total

    def _row_of(self, place: int) -> int:
        return place if self.only or self._pages is None else self._first_here + place

    def _row(self, row: int) -> str:
        if self.only or self._pages is None:
            return super()._row(row)
        text = self.text_of(row)
        if text is None:
            page = self._pages.page_of(row)
            if page not in self._asked:
                self._asked.add(page)
                self.post_message(self.PageWanted(page, self._pages.span(page)))
            return UNREAD
        return text

    def _shift(self, rows: int) -> None:
        # Line numbers stay when the first lines that are here go.
        if rows > 0 or self.only or self._pages is None:
            super()._shift(rows)

    def _new_search(self, text: str) -> Hits:
        if self.only or self._pages is None or not text:
            return Hits(text)
        place = self._pages.place_from(self._first_here)
        if place[1] == 0:
            return Hits(text)
        self.post_message(self.SearchWanted(text, place, filters=False))
        return Hits(text, until=place[1], offset=place[0], older=True)

    def _hits_here(self, text: str) -> list[int]:
        hits = self._buffer.hits(text)
        if self.only or self._pages is None:
            return hits
        first = self._first_here
        return [first + n for n in hits if first + n >= self._hits.until]

    def search(self, text: str, *, step: int = -1) -> str:
        """Go to the next or previous line with ``text``, in the past too; say how that went."""
        again = text == self._hits.text and text and self._hits.done and not self.only
        if again and self._pages is not None and self._first_here > self._hits.until:
            # Lines have gone from here since the past was looked through.
            offset, line = self._pages.place_from(self._first_here)
            begin = self._hits.offset
            self._hits.widen(line, offset)
            self.post_message(self.SearchWanted(text, (offset, line), filters=False, begin=begin))
        return super().search(text, step=step)

    def _go_on(self) -> str:
        self._tell()
        if self._hits.waits is None:
            return ""
        words = self.search_again(self._hits.waits)
        return "" if self._hits.is_waiting else words

    def _filter_past(self, text: str) -> None:
        if self._pages is not None:
            self._filtered_before = self._first_here
            place = self._pages.place_from(self._first_here)
            if place[1]:
                self.post_message(self.SearchWanted(text, place, filters=True))

    def _count(self) -> str:
        if not self.whole:
            return super()._count()
        if self._following or self.only:
            return units.plural(self.line_total, "line")
        first = units.count(self.scroll_offset.y + 1)
        return f"line {first} of {units.count(self.line_total)}"

    def _told(self) -> list[tuple[int, str]]:
        told = super()._told()
        if not self._hits.done and self._hits.share is not None:
            told.append((5, f"looked through {self._hits.share * 100:.0f} %"))
        if self._state:
            told.append((2, self._state))
        return told
