"""The command palette: every action of the table, and the themes."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from eaglemon.tui.actions import ACTIONS, shown_key

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp

_HERE = ("palette",)
"""Senseless inside the palette."""


_NOT_NOW = "not now: "


def _is_idle(note: str) -> bool:
    return note.startswith(_NOT_NOW)


def _dim(title: str, note: str) -> Content:
    """Return a title, dim where a note says why it cannot be carried out."""
    return Content.styled(title, "$quiet") if _is_idle(note) else Content(title)


def _closeness(title: str, query: str) -> float:
    """Return what lifts a title above those that only contain the letters somewhere."""
    title, query = title.lower(), query.strip().lower()
    if title.startswith(query):
        return 2.0
    return 1.0 if f" {query}" in title else 0.0


class ActionCommands(Provider):
    """Offers the actions, with the reason where one cannot be carried out."""

    async def discover(self) -> Hits:
        """Offer all actions, as in the table."""
        for title, note, run in self._commands():
            yield DiscoveryHit(_dim(title, note), run, text=title, help=note)

    async def search(self, query: str) -> Hits:
        """Offer actions and themes whose title matches."""
        matcher = self.matcher(query)
        app = self._console()
        commands = self._commands()
        commands += [
            (f"Theme {name}", "", partial(app.use_theme, name)) for name in app.theme_names()
        ]
        for title, note, run in commands:
            score = matcher.match(title)
            if score > 0:
                shown = _dim(title, note) if _is_idle(note) else matcher.highlight(title)
                yield Hit(score + _closeness(title, query), shown, run, text=title, help=note)

    def _console(self) -> "ConsoleApp":
        return cast("ConsoleApp", self.app)

    def _commands(self) -> list[tuple[str, str, Callable[[], None]]]:
        app = self._console()
        scene = app.scene()
        return [
            (
                action.title,
                f"{_NOT_NOW}{why_not}"
                if (why_not := action.why_not(scene))
                else f"key {shown_key(action)}",
                partial(app.act, action.id),
            )
            for action in ACTIONS
            if action.id not in _HERE
        ]
