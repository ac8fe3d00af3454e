"""The launch form: profile, host, what to change, what stands against it, the exact command."""

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from eaglemon.app.api import Eaglemon
from eaglemon.core.problems import Problem, Severity, errors_among
from eaglemon.core.profiles import Profile
from eaglemon.core.views import LaunchPlan
from eaglemon.errors import EaglemonError
from eaglemon.tui import launch_form
from eaglemon.tui.again import Again, begun_from
from eaglemon.tui.columns import lines, plain
from eaglemon.tui.screens.base import keep_buttons_in_sight
from eaglemon.tui.settings import Settings

_FIELDS = (
    ("port", "port", "port"),
    ("speculation.steps", "steps", "steps"),
    ("speculation.topk", "topk", "topk"),
    ("speculation.draft_tokens", "draft-tokens", "tokens"),
)
"""Override key, id, label."""
_LABELS = {"force": "Launch anyway  ctrl+f", "no": "Cancel  esc", "yes": "Launch  ctrl+s"}
_AROUND_LABEL = 3
"""Columns of a button beside its label, at least."""
_AROUND_BUTTONS = 4


class LaunchScreen(ModalScreen[str | None]):
    """Answers with the id of the started server, ``None`` when none was started."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("ctrl+s", "launch", show=False, priority=True),
        Binding("ctrl+f", "force", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(
        self,
        api: Eaglemon,
        settings: Settings,
        *,
        host: str | None,
        again: Again | None = None,
    ) -> None:
        super().__init__()
        self._api = api
        self._settings = settings
        self._profiles = {profile.name: profile for profile in api.profiles()}
        self._hosts = [spec.name for spec in api.hosts()]
        self._again = again if again is not None and again.profile in self._profiles else None
        wanted = host if self._again is None else self._again.host
        self._first_host = wanted if wanted in self._hosts else self._hosts[0]
        self._plan: LaunchPlan | None = None
        self._problems: list[Problem] = []
        self._checked = False
        self._launching: LaunchPlan | None = None
        self._force = False

    def compose(self) -> ComposeResult:
        """Lay out the fields, then problems and command, then the buttons."""
        profiles = [(name, name) for name in self._profiles]
        hosts = [(name, name) for name in self._hosts]
        first = launch_form.first_choice(list(self._profiles.values()))
        if self._again is not None:
            first = self._again.profile
        with Vertical(classes="dialog launch-dialog"):
            with VerticalScroll(id="launch-body", can_focus=False):
                with Horizontal(classes="field"):
                    yield Label("profile")
                    yield Select(
                        profiles, value=first, allow_blank=False, compact=True, id="profile"
                    )
                with Horizontal(classes="field"):
                    yield Label("host")
                    yield Select(
                        hosts, value=self._first_host, allow_blank=False, compact=True, id="host"
                    )
                with Horizontal(classes="field figures"):
                    for _, name, label in _FIELDS:
                        yield Label(label)
                        yield Input(id=name, compact=True, type="integer")
                with Horizontal(classes="field", id="flags-field"):
                    yield Label("flags\nname=value")
                    yield TextArea(id="flags", compact=True, soft_wrap=False)
                yield Static(id="problems")
                yield Static("command", classes="caption")
                yield Static(id="command-line")
            with Horizontal(classes="buttons"):
                yield Button(_LABELS["force"], id="force", compact=True)
                yield Button(_LABELS["no"], id="no", compact=True)
                yield Button(_LABELS["yes"], id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Fill the form from the first profile."""
        title = "Start a server"
        if self._again is not None:
            title = f"Start {plain(self._again.name)} again"
            if self._again.changes:
                title += f" with {' '.join(self._again.changes)}"
        self.query_one(".dialog").border_title = Content(title)
        self._fill(self._profile())
        self.query_one("#profile").focus()

    def on_resize(self) -> None:
        """The middle scrolls; the buttons below it always have their place."""
        self._label_buttons()
        keep_buttons_in_sight(self, self.query_one("#launch-body"))

    def _label_buttons(self) -> None:
        """Name the keys on the buttons, where there is room for all that are shown."""
        buttons = {name: self.query_one(f"#{name}", Button) for name in _LABELS}
        wanted = sum(len(_LABELS[n]) + _AROUND_LABEL for n, one in buttons.items() if one.display)
        keys = wanted <= self.size.width - _AROUND_BUTTONS
        for name, button in buttons.items():
            label = _LABELS[name] if keys else _LABELS[name].partition("  ")[0]
            if str(button.label) != label:
                button.label = label
                button.refresh(layout=True)

    def action_page(self, direction: int) -> None:
        """Scroll to what stands against the launch, and back."""
        body = self.query_one("#launch-body")
        body.scroll_relative(y=direction * max(1, body.size.height - 2), animate=False)

    def on_select_changed(self, event: Select.Changed) -> None:
        """Another profile fills the form anew; another host is checked."""
        event.stop()
        if event.select.id == "profile":
            self._fill(self._profile())
        self._plan_again()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Plan with every key."""
        event.stop()
        self._plan_again()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Plan with every key."""
        event.stop()
        self._plan_again()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Launch or go back."""
        if event.button.id == "yes":
            self.action_launch()
        elif event.button.id == "force":
            self.action_force()
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Close the form, unless a launch is on its way."""
        if self._launching is not None:
            self.notify("the launch is on its way: wait for its answer", markup=False)
        else:
            self.dismiss(None)

    def action_launch(self) -> None:
        """Launch what is planned, unless errors stand against it."""
        self._start(force=False)

    def action_force(self) -> None:
        """Launch in spite of the problems."""
        self._start(force=True)

    def _start(self, *, force: bool) -> None:
        self._force = force
        why_not = self._why_not(force=force)
        if why_not is not None:
            self.notify(why_not, severity="warning", markup=False)
        elif self._plan is not None:
            self._launching = self._plan
            self._show()
            self._launch()

    @work(exclusive=True, group="launch")
    async def _launch(self) -> None:
        plan = self._launching
        if plan is None:
            return
        try:
            server_id = await self._api.launch(plan, force=self._force)
        except EaglemonError as error:
            self._launching = None
            self._problems = launch_form.problems_of(plan.host, error)
            self._show()
        else:
            self.dismiss(server_id)

    def _profile(self) -> Profile:
        return self._profiles[str(self.query_one("#profile", Select).value)]

    def _fill(self, profile: Profile) -> None:
        values, flags = launch_form.field_values(profile), launch_form.flag_lines(profile)
        if self._again is not None and self._again.profile == profile.name:
            values, flags = begun_from(self._again, profile)
        for key, name, _ in _FIELDS:
            field = self.query_one(f"#{name}", Input)
            field.value = values[key]
            field.disabled = profile.speculation is None and key != "port"
        self.query_one("#flags", TextArea).text = flags

    def _plan_again(self) -> None:
        values = {key: self.query_one(f"#{name}", Input).value for key, name, _ in _FIELDS}
        flags = self.query_one("#flags", TextArea).text
        host = str(self.query_one("#host", Select).value)
        profile = self._profile()
        self._checked = False
        try:
            changed = launch_form.overrides(profile, values, flags)
            self._plan = self._api.plan(profile.name, host, changed)
        except EaglemonError as error:
            self._plan = None
            self._problems = launch_form.problems_of("form", error)
            self._show()
            return
        self._problems = []
        self._show()
        self._check()

    @work(exclusive=True, group="check")
    async def _check(self) -> None:
        await asyncio.sleep(self._settings.pace.check_s)
        plan = self._plan
        if plan is None:
            return
        try:
            problems = await self._api.check(plan)
        except EaglemonError as error:
            problems = launch_form.problems_of(plan.host, error)
        if plan is self._plan:
            self._problems = problems
            self._checked = True
            self._show()

    def _why_not(self, *, force: bool = False) -> str | None:
        if self._launching is not None:
            return "launching: waiting for the host's answer"
        if self._plan is None:
            return "the form has an error: correct it first"
        if errors_among(self._problems) and not force:
            return "problems stand against it: correct them, or launch anyway with ctrl+f"
        return None

    def _show(self) -> None:
        rows = [line for problem in self._problems for line in _problem_lines(problem)]
        if not rows:
            text = "✓ nothing stands against it" if self._checked else "… asking the host"
            style = "$state-ready" if self._checked else "$quiet"
            rows = [Content.styled(text, style)]
        if self._launching is not None:
            rows = [Content.styled("▶ launching …", "$state-starting")]
        self.query_one("#problems", Static).update(lines(rows))
        command = plain(self._plan.shell_line) if self._plan else "-"
        self.query_one("#command-line", Static).update(Content(command))
        self.query_one("#yes", Button).disabled = self._why_not() is not None
        against = self._checked and bool(errors_among(self._problems))
        self.query_one("#force", Button).display = against and self._launching is None
        self._label_buttons()


def _problem_lines(problem: Problem) -> list[Content]:
    error = problem.severity is Severity.ERROR
    style = "$state-failed" if error else "$state-warning"
    mark = "✗ " if error else "▲ "
    head = Content.assemble(
        (mark, style),
        (f"{plain(problem.where)}: ", "bold"),
        plain(launch_form.in_the_form(problem.message)),
    )
    if not problem.hint:
        return [head]
    return [head, Content.styled(f"  {plain(launch_form.in_the_form(problem.hint))}", "$quiet")]
