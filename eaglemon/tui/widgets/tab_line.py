"""Tabs over panels on a narrow terminal: one panel at a time instead of all side by side."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from eaglemon.tui.columns import first_that_fits, joined


class TabLine(Widget):
    """Names of the panels, the shown one marked; hidden where all panels fit (by style sheet)."""

    DEFAULT_CSS = """
    TabLine { height: 1; padding: 0 1; }
    """

    class Switched(Message):
        """Another tab was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, names: tuple[str, ...], short_names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names
        self._short_names = short_names
        self._active = 0

    def show(self, active: int) -> None:
        """Mark the tab with this number, from 0."""
        self._active = active
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Ask for the tab that was clicked."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        full = self._line(self._names).cell_length <= self.size.width
        x = 0
        for number, name in enumerate(self._names if full else self._short_names):
            end = x + len(_tab(number, name)) + 1
            if x <= offset.x < end:
                self.post_message(self.Switched(number))
            x = end

    def render(self) -> Content:
        """Draw full names, short ones where they do not fit."""
        return first_that_fits(
            self.size.width, self._line(self._names), self._line(self._short_names)
        )

    def _line(self, names: tuple[str, ...]) -> Content:
        parts: list[Content | str] = []
        for number, name in enumerate(names):
            style = "bold reverse" if number == self._active else ""
            parts.append(Content.styled(_tab(number, name), style))
            parts.append(" ")
        return joined(*parts)


def _tab(number: int, name: str) -> str:
    return f" {number + 1} {name} "
