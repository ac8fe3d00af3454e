"""The part of the application that is about themes: the caller's, Textual's, and their files."""

import asyncio
from collections.abc import Callable, Mapping

from eaglemon.tui.terminal_app import TerminalApp
from eaglemon.tui.theming import (
    SIXTEEN_ON_DARK,
    SIXTEEN_ON_LIGHT,
    parse_themes,
    semantic_defaults,
)

ThemeSource = Callable[[], Mapping[str, str]]
"""Reads the theme files again: name to text. It is called in a thread."""
DEFAULT_THEME = "eaglemon-dark"
"""Used where the caller's themes have it."""


class ThemedApp(TerminalApp):
    """An application with themes of its own, drawn again when one of their files changes."""

    def __init__(
        self,
        *,
        themes: Mapping[str, str] | None,
        theme: str | None,
        theme_source: ThemeSource | None,
        few_colours: bool,
        ascii_only: bool,
        announces: str,
    ) -> None:
        """``themes`` maps a theme file's name (without its ending) to its text.

        ``theme`` names one of them or of Textual's own; ``few_colours`` says that the terminal
        has 16.
        """
        self._theme_source = theme_source
        self._few_colours = few_colours
        self._theme_texts = dict(themes or {})
        self._own_themes, problems = parse_themes(themes or {})
        self._complaints = [str(problem) for problem in problems]
        super().__init__(ascii_only=ascii_only, announces=announces)
        for own in self._own_themes:
            self.register_theme(own)
        wanted = theme or DEFAULT_THEME
        if wanted in self.available_themes:
            self.theme = wanted
        elif theme is not None:
            self._complaints.append(f"no theme {theme!r}: using {self.theme}")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give every theme, Textual's own too, our semantic names."""
        return semantic_defaults(self.current_theme)

    def get_css_variables(self) -> dict[str, str]:
        """Give what is in a style sheet its colour, one of 16 where the terminal has no more."""
        variables = super().get_css_variables()
        if self._few_colours:
            dark = self.current_theme.dark
            variables |= SIXTEEN_ON_DARK if dark else SIXTEEN_ON_LIGHT
            self.theme_variables = variables
        return variables

    def follow_themes(self, every_s: float) -> None:
        """Tell what was wrong with the themes, and look now and then whether files changed."""
        for complaint in self._complaints:
            self.warn_of_theme(complaint)
        if self._theme_source is not None:
            self.run_worker(self._follow(self._theme_source, every_s), group="themes")

    async def _follow(self, source: ThemeSource, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            texts = dict(await asyncio.to_thread(source))
            if texts != self._theme_texts:
                self._theme_texts = texts
                self.take_themes(texts)

    def take_themes(self, texts: Mapping[str, str]) -> None:
        """Use theme files as they are now; the one in use is drawn again."""
        themes, problems = parse_themes(texts)
        for problem in problems:
            self.warn_of_theme(str(problem))
        self._own_themes = themes
        for own in themes:
            self.register_theme(own)
        name = self.theme
        if name in {own.name for own in themes}:
            # A theme of the same name is news to Textual only when another was used in between.
            self.theme = "textual-dark" if name != "textual-dark" else "textual-light"
            self.use_theme(name)

    def warn_of_theme(self, text: str) -> None:
        """Show what is wrong with a theme; its text is never read as markup."""
        self.notify(text, severity="warning", markup=False)

    def own_theme_names(self) -> list[str]:
        """Return the themes given by the caller."""
        return [theme.name for theme in self._own_themes]

    def theme_names(self) -> list[str]:
        """Return all themes, our own first."""
        own = self.own_theme_names()
        return [*own, *sorted(name for name in self.available_themes if name not in own)]

    def use_theme(self, name: str) -> None:
        """Use a theme and draw everything in it."""
        self.theme = name
        self.redraw()

    def redraw(self) -> None:
        """Draw the screen in front again."""
        raise NotImplementedError
