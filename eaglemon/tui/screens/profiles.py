"""Profiles: what each starts, where it is from, what is wrong; edited in $EDITOR and checked."""

from typing import ClassVar

from textual.content import Content

from eaglemon.app.api import Eaglemon, Experiments
from eaglemon.core.profiles import Profile
from eaglemon.core.run_comparison import ProfileHistory
from eaglemon.errors import EaglemonError
from eaglemon.tui import launch_form
from eaglemon.tui.columns import joined, left, lines, wrapped
from eaglemon.tui.experiment_panels import history_lines
from eaglemon.tui.screens.listing import ListScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.row_list import Row, RowList
from eaglemon.tui.widgets.text_panel import set_title

_LABEL_WIDTH = 13


SORTS = ("as they are found", "by name", "by engine", "by model")


class ProfileList(RowList):
    """What is wrong with files, then all profiles."""

    def __init__(self, api: Eaglemon) -> None:
        super().__init__(id="profiles")
        self._api = api
        self._wanted = ""
        self.order = 0
        self.reverse = False

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
        for profile in self._sorted():
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

    def _sorted(self) -> list[Profile]:
        profiles = list(self._api.profiles())
        if self.order:
            profiles.sort(key=lambda one: (one.name, one.engine, one.model)[self.order - 1])
        return profiles[::-1] if self.reverse else profiles


class ProfilesScreen(ListScreen):
    """The list on the left, the selected profile on the right."""

    NAME = "profiles"
    TABS: ClassVar[tuple[str, ...]] = ("Profiles", "Details")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Prof", "Details")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("profiles",), ("details",))
    PANELS = "profile-panels"
    DETAILS = "details"
    FILTER = "part of a name, engine or model"

    def __init__(
        self,
        api: Eaglemon,
        settings: Settings,
        *,
        host: str | None,
        experiments: Experiments | None = None,
    ) -> None:
        self._list = ProfileList(api)
        super().__init__(self._list, settings)
        self._api = api
        self._host = host
        self._experiments = experiments
        self._history: tuple[str, ProfileHistory] | None = None
        """Of the profile by that name."""

    def on_mount(self) -> None:
        """Name the panels."""
        super().on_mount()
        self._name_list()
        set_title(self._details, "What it starts")
        self.draw_again()

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

    def draw_again(self) -> None:
        """Draw profiles that may have changed."""
        self.refilter(self._filter.value)
        self.draw()

    def refilter(self, wanted: str) -> None:
        """Show the profiles whose name, engine or model contains ``wanted``."""
        self._list.show(wanted)

    def moved_to(self, key: str | None) -> None:
        """Show the profile or the problem under the cursor."""
        self.draw()
        profile = self._profile()
        if profile is not None and self._experiments is not None:
            self.run_worker(self._recall(profile.name), group="history", exclusive=True)

    def sort(self, step: int) -> str:
        """Sort by the next (1) or previous (-1) thing; return by what."""
        self._list.order = (self._list.order + step) % len(SORTS)
        return self._resort()

    def invert(self) -> str:
        """Turn the order round."""
        self._list.reverse = not self._list.reverse
        return self._resort()

    def copied(self) -> tuple[str, str]:
        """Return the command line of the profile under the cursor."""
        profile = self._profile()
        if profile is None or self._host is None:
            return "", ""
        try:
            line = self._api.plan(profile.name, self._host).shell_line
        except EaglemonError:
            return "", ""
        return line, f"the command line of {profile.name}"

    def draw(self) -> None:
        """Draw the profile or the problem under the cursor."""
        width = self.details_width
        if width <= 0:
            return
        kind, _, name = (self._list.cursor_key or "").partition("/")
        problems = self._api.profile_problems()
        profile = self._profile()
        if kind == "problem" and int(name) < len(problems):
            found = problems[int(name)]
            rows = _entry("file", found.where, width) + _entry("wrong", found.message, width)
            rows += _entry("next", found.hint, width) if found.hint else []
            self.show_lines(lines(rows))
        elif profile is not None:
            rows = self._about(profile, width)
            if self._history is not None and self._history[0] == profile.name:
                rows += history_lines(self._history[1], width, self._settings.zone)
            self.show_lines(lines(rows))

    def _name_list(self) -> None:
        turned = ", turned round" if self._list.reverse else ""
        set_title(self._list, f"Profiles ─ {SORTS[self._list.order]}{turned}")

    def _resort(self) -> str:
        self._name_list()
        self._list.rebuild()
        return f"profiles {SORTS[self._list.order]}{', turned round' if self._list.reverse else ''}"

    async def _recall(self, name: str) -> None:
        if self._experiments is None:
            return
        try:
            self._history = (name, await self._experiments.profile_history(name))
        except EaglemonError as error:
            self.notify(f"the history of {name}: {error}", severity="warning", markup=False)
            return
        self.draw()

    def _profile(self) -> Profile | None:
        kind, _, name = (self._list.cursor_key or "").partition("/")
        if kind != "profile":
            return None
        return next((p for p in self._api.profiles() if p.name == name), None)

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
