"""Profiles: what each starts, where it is from, what is wrong; edited in $EDITOR and checked."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from eaglemon.app.api import Eaglemon
from eaglemon.core.profiles import Profile
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import launch_form
from eaglemon.tui.columns import joined, left, lines, wrapped
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.row_list import Row, RowList
from eaglemon.tui.widgets.text_panel import TextPanel, set_title

_LABEL_WIDTH = 13


class ProfileList(RowList):
    """What is wrong with files, then all profiles."""

    def __init__(self, api: Eaglemon) -> None:
        super().__init__(id="profiles")
        self._api = api
        self._wanted = ""

    def show(self, wanted: str) -> None:
        """Show the profiles whose name, engine or model contains ``wanted``."""
        self._wanted = wanted.lower()
        self.rebuild()

    def build(self, width: int) -> tuple[Content | None, list[Row]]:
        """Return one row for each problem and each profile."""
        rows = [
            Row(f"problem/{number}", left(f"✗ {problem.where}", width, "$state-failed"))
            for number, problem in enumerate(self._api.profile_problems())
        ]
        name = max(12, min(36, width - 26))
        for profile in self._api.profiles():
            text = f"{profile.name} {profile.engine} {profile.model}".lower()
            if self._wanted not in text:
                continue
            figures = f" {profile.engine:<7} {_speculation(profile):<14}"
            line = joined(left(profile.name, name, "bold"), left(figures, max(0, width - name)))
            rows.append(Row(f"profile/{profile.name}", line))
        if not rows:
            text = f"nothing matches {self._wanted!r}" if self._wanted else "no profiles"
            rows.append(Row("empty", Content.styled(text, "$quiet"), selectable=False))
        return None, rows


class ProfilesScreen(ConsoleScreen):
    """The list on the left, the selected profile on the right."""

    NAME = "profiles"
    TABS: ClassVar[tuple[str, ...]] = ("Profiles", "Details")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Prof", "Details")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("profiles",), ("details",))

    def __init__(self, api: Eaglemon, settings: Settings, *, host: str | None) -> None:
        super().__init__(settings)
        self._api = api
        self._host = host
        self._list = ProfileList(api)
        self._details = VerticalScroll(id="details", classes="panel")
        self._lines = TextPanel()
        self._filter = Input(placeholder="part of a name, engine or model", id="filter")

    def compose_panels(self) -> ComposeResult:
        """Yield list, details and filter."""
        with Horizontal(id="profile-panels"):
            yield self._list
            with self._details:
                yield self._lines
        yield self._filter

    def on_mount(self) -> None:
        """Name the panels."""
        super().on_mount()
        self._list.add_class("panel")
        self._filter.display = False
        set_title(self._list, "Profiles")
        set_title(self._details, "What it starts")
        self.draw_again()

    @property
    def filtered(self) -> bool:
        """The filter line is shown."""
        return bool(self._filter.display)

    def current_server(self) -> ServerView | None:
        """Profiles are not servers."""
        return None

    def current_host(self) -> str | None:
        """Return the host that commands are shown for."""
        return self._host

    def current_source(self) -> str | None:
        """Return where the profile or the problem under the cursor is from."""
        key = self._list.cursor_key or ""
        kind, _, name = key.partition("/")
        if kind == "problem":
            return self._api.profile_problems()[int(name)].where
        profile = self._profile()
        return None if profile is None else profile.source

    def show(self, snapshot: Snapshot) -> None:
        """Nothing here depends on what is now."""

    def draw_again(self) -> None:
        """Draw profiles that may have changed."""
        self._list.show(self._filter.value)
        self._draw()

    def ask_filter(self) -> None:
        """Let a filter be typed."""
        self._filter.display = True
        self._filter.focus()

    def clear_filter(self) -> bool:
        """Remove the filter; return whether there was one."""
        had = self.filtered
        self._filter.value = ""
        self._filter.display = False
        self._list.focus()
        return had

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self._list.show(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the list."""
        event.stop()
        self.switch_tab(0)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Show what is under the cursor."""
        event.stop()
        self._draw()
        self.post_message(self.SelectionChanged())

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """On a narrow terminal the details have a tab of their own."""
        event.stop()
        self.switch_tab(1)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(self._draw)

    def _profile(self) -> Profile | None:
        kind, _, name = (self._list.cursor_key or "").partition("/")
        if kind != "profile":
            return None
        return next((p for p in self._api.profiles() if p.name == name), None)

    def _draw(self) -> None:
        width = (self.size.width // 2 if self.has_class("-wide") else self.size.width) - 6
        if width <= 0:
            return
        kind, _, name = (self._list.cursor_key or "").partition("/")
        problems = self._api.profile_problems()
        profile = self._profile()
        if kind == "problem" and int(name) < len(problems):
            found = problems[int(name)]
            rows = _entry("file", found.where, width) + _entry("wrong", found.message, width)
            rows += _entry("next", found.hint, width) if found.hint else []
            self._lines.show(lines(rows))
        elif profile is not None:
            self._lines.show(lines(self._about(profile, width)))

    def _about(self, profile: Profile, width: int) -> list[Content]:
        rows = [Content.styled(profile.name, "bold")]
        for label, text in (
            ("about", profile.description),
            ("engine", profile.engine),
            ("model", profile.model),
            ("draft", profile.draft or "none"),
            ("speculation", _speculation(profile)),
            ("port", str(profile.port)),
            ("from", profile.source),
            ("published", profile.reference),
        ):
            rows += _entry(label, text, width) if text else []
        for name, value in profile.flags.items():
            rows += _entry("flag", f"{name} = {launch_form.value_text(value)}", width)
        if self._host is not None:
            rows += [Content(""), Content.styled(f"on {self._host} it runs", "$quiet")]
            try:
                plan = self._api.plan(profile.name, self._host)
            except EaglemonError as error:
                rows += [
                    Content.styled(f"✗ {line}", "$state-failed")
                    for line in wrapped(str(error), width - 2)
                ]
            else:
                rows += [Content(line) for line in wrapped(plan.shell_line, width, 12)]
        return rows


def _entry(label: str, text: str, width: int) -> list[Content]:
    return [
        Content.assemble(((label if n == 0 else "").ljust(_LABEL_WIDTH), "$quiet"), (line, ""))
        for n, line in enumerate(wrapped(text, max(8, width - _LABEL_WIDTH)))
    ]


def _speculation(profile: Profile) -> str:
    speculation = profile.speculation
    if speculation is None:
        return "off"
    sizes = (speculation.steps, speculation.topk, speculation.draft_tokens)
    return f"{speculation.algorithm} {'/'.join('-' if n is None else str(n) for n in sizes)}"
