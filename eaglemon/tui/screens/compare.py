"""The dialog before an experiment: what is compared, how they differ, what will be stopped."""

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Select, Static

from eaglemon.app.api import Eaglemon, Experiments
from eaglemon.core.experiment import ExperimentPlan, plan_problems
from eaglemon.core.problems import errors_among
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError, UsageError
from eaglemon.tui.columns import lines, plain
from eaglemon.tui.experiment_panels import in_the_dialog, outlook_lines, refused_words
from eaglemon.tui.screens.base import keep_buttons_in_sight
from eaglemon.tui.settings import Settings

_WIDTH = 82


class CompareDialog(ModalScreen[ExperimentPlan | None]):
    """Answers with the plan of an experiment, ``None`` when there shall be none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("ctrl+s", "run", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(
        self,
        api: Eaglemon,
        experiments: Experiments,
        settings: Settings,
        *,
        server: ServerView | None,
        host: str | None,
    ) -> None:
        super().__init__()
        self._experiments = experiments
        self._settings = settings
        names = [profile.name for profile in api.profiles()]
        self._names = names
        self._hosts = [spec.name for spec in api.hosts()]
        wanted_host = server.host if server is not None else host
        self._host = wanted_host if wanted_host in self._hosts else self._hosts[0]
        by_name = {profile.name: profile for profile in api.profiles()}
        first = server.profile if server is not None and server.profile in by_name else names[0]
        engine = by_name[first].engine
        speculates = by_name[first].speculation is not None
        # The twin without (or with) speculation is the comparison that is asked for most.
        self._first = first
        self._second = next(
            (
                name
                for name in names
                if name != first
                and by_name[name].engine == engine
                and (by_name[name].speculation is not None) != speculates
            ),
            next(name for name in names if name != first),
        )
        self._plan: ExperimentPlan | None = None
        self._why_not = ""
        """Why it cannot be run as it stands."""
        self._seen: tuple[str, ...] = ()
        """What the fields held when the plan was made of them."""
        self._wanted: tuple[str, ...] | None = None
        """What they held when it was told to run: it shall, as soon as its outlook is known."""

    def compose(self) -> ComposeResult:
        """Lay out the fields, what will happen, and the buttons."""
        profiles = [(name, name) for name in self._names]
        hosts = [(name, name) for name in self._hosts]
        with Vertical(classes="dialog wide-dialog"):
            with VerticalScroll(id="compare-body", can_focus=False):
                for label, field, options, value in (
                    ("A", "a", profiles, self._first),
                    ("B", "b", profiles, self._second),
                    ("host", "host", hosts, self._host),
                ):
                    with Horizontal(classes="field"):
                        yield Label(label)
                        yield Select(
                            options, value=value, allow_blank=False, compact=True, id=field
                        )
                for label, field in (("A changes", "changes-a"), ("B changes", "changes")):
                    with Horizontal(classes="field"):
                        yield Label(label)
                        yield Input(id=field, compact=True, placeholder="steps=3 port=30001")
                with Horizontal(classes="field figures compare-figures"):
                    yield Label("rounds")
                    yield Input("2", id="rounds", compact=True, type="integer")
                    yield Label("requests")
                    yield Input(
                        id="requests", compact=True, type="integer", placeholder="the profile's"
                    )
                yield Static(id="outlook")
            with Horizontal(classes="buttons"):
                yield Button("Cancel  esc", id="no", compact=True)
                yield Button("Run it  ctrl+s", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Name the dialog and look ahead."""
        self.query_one(".dialog").border_title = Content("Compare: restart, measure, decide")
        self.query_one("#b").focus()
        self._look_ahead()

    def on_resize(self) -> None:
        """The middle scrolls; the buttons below it always have their place."""
        keep_buttons_in_sight(self, self.query_one("#compare-body"))

    def action_page(self, direction: int) -> None:
        """Scroll to the end of what will happen, and back."""
        body = self.query_one("#compare-body")
        body.scroll_relative(y=direction * max(1, body.size.height - 2), animate=False)

    def on_select_changed(self, event: Select.Changed) -> None:
        """Look ahead again."""
        event.stop()
        self._look_ahead()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look ahead again."""
        event.stop()
        self._look_ahead()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Run or go back."""
        if event.button.id == "yes":
            self.action_run()
        else:
            self.dismiss(None)

    def action_run(self) -> None:
        """Answer with the plan, once it is known what it will do; say why not where it cannot."""
        field = self.focused
        if field is None:
            self._run()
        else:
            # Keys typed just before wait in the field's queue, what it says of them in this one's.
            field.call_later(self.call_later, self._run)

    def _run(self) -> None:
        fields = self._fields()
        if fields != self._seen or not (self._plan or self._why_not):
            self._wanted = fields
            self._tell([Content.styled("… looking ahead, then it is run", "$quiet")])
        elif self._plan is not None:
            self.dismiss(self._plan)
        else:
            self.app.notify(self._why_not, severity="error", markup=False)

    def _fields(self) -> tuple[str, ...]:
        return (
            *(str(field.value) for field in self.query(Select)),
            *(field.value for field in self.query(Input)),
        )

    @work(exclusive=True, group="outlook")
    async def _look_ahead(self) -> None:
        self._plan, self._why_not, fields = None, "", self._fields()
        if self._wanted != fields:
            self._wanted = None
            self._tell([Content.styled("… looking ahead", "$quiet")])
        await asyncio.sleep(self._settings.pace.check_s)
        width = min(_WIDTH, self.size.width - 6)
        self._seen = fields
        try:
            plan = self._planned()
            outlook = await self._experiments.outlook(plan)
        except EaglemonError as error:
            why = in_the_dialog(str(error))
            self._refuse(why, [Content.styled(f"✗ {plain(why)}", "$state-failed")])
            return
        rows = outlook_lines(outlook, width)
        if outlook.refused:
            # One arm alone is no comparison, so nothing of it is begun.
            self._refuse(refused_words(*outlook.refused[0]), rows)
            return
        self._plan = plan
        self._tell(rows)
        if self._wanted == fields:
            self.dismiss(plan)

    def _refuse(self, why: str, rows: list[Content]) -> None:
        asked, self._wanted, self._why_not = self._wanted is not None, None, why
        self._tell(rows)
        if asked:
            self._run()

    def _planned(self) -> ExperimentPlan:
        requests = self.query_one("#requests", Input).value.strip()
        common = {"probe.requests": requests} if requests else {}
        rounds = self.query_one("#rounds", Input).value.strip()
        if not rounds.isdigit() or int(rounds) < 1:
            raise UsageError("rounds must be 1 or more")
        host = self._chosen("host")
        first, second = (
            "+".join([self._chosen(arm), *self.query_one(f"#{changes}", Input).value.split()])
            for arm, changes in (("a", "changes-a"), ("b", "changes"))
        )
        plan = ExperimentPlan(
            id=self._experiments.new_id("ab"),
            arms=(
                self._experiments.arm(first, host, common),
                self._experiments.arm(second, host, common),
            ),
            rounds=int(rounds),
        )
        wrong = errors_among(plan_problems(plan))
        if wrong:
            raise UsageError(str(wrong[0]))
        return plan

    def _chosen(self, field: str) -> str:
        value = self.query_one(f"#{field}", Select).value
        return str(value)

    def _tell(self, rows: list[Content]) -> None:
        self.query_one("#outlook", Static).update(lines(rows))
        self.query_one("#yes", Button).disabled = bool(self._why_not)
