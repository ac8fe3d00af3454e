"""The dialog before a probe: workload, how many requests, how many at a time, how long."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from eaglemon.app.api import Eaglemon
from eaglemon.core.probe import ProbePlan
from eaglemon.core.units import plural
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError
from eaglemon.tui.columns import plain

_FIELDS = (
    ("workload", "workload"),
    ("requests", "requests"),
    ("concurrency", "at a time"),
    ("max_tokens", "tokens each"),
)


class ProbeDialog(ModalScreen[ProbePlan | None]):
    """Answers with the plan of the probe, ``None`` when there shall be none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("ctrl+s", "start", show=False),
    ]

    def __init__(self, api: Eaglemon, server: ServerView, plan: ProbePlan) -> None:
        super().__init__()
        self._api = api
        self._server = server
        self._start_values = {name: str(getattr(plan, name)) for name, _ in _FIELDS}
        self._plan: ProbePlan | None = plan

    def compose(self) -> ComposeResult:
        """Lay out fields, message and buttons."""
        with Vertical(classes="dialog"):
            for name, label in _FIELDS:
                with Horizontal(classes="field"):
                    yield Label(label)
                    value = self._start_values[name]
                    # Numbers are checked by the plan, which says more than a refused key.
                    yield Input(value, id=f"probe-{name}", compact=True)
            yield Static(id="probe-message")
            with Horizontal(classes="buttons"):
                yield Button("Cancel  esc", id="no", compact=True)
                yield Button("Probe  ctrl+s", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Name the dialog and start in the first field."""
        title = f"Probe {self._server.name} on {self._server.host}"
        self.query_one(".dialog").border_title = Content(plain(title))
        self.query_one("#probe-workload").focus()
        self._check()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say at once what is wrong."""
        event.stop()
        self._check()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in a field starts."""
        event.stop()
        self.action_start()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Start or go back."""
        if event.button.id == "yes":
            self.action_start()
        else:
            self.dismiss(None)

    def action_start(self) -> None:
        """Answer with the plan, when it is a good one."""
        if self._plan is not None:
            self.dismiss(self._plan)

    def _check(self) -> None:
        values = {
            name: self.query_one(f"#probe-{name}", Input).value.strip() for name, _ in _FIELDS
        }
        changed = {
            name: value for name, value in values.items() if value != self._start_values[name]
        }
        message = self.query_one("#probe-message", Static)
        try:
            self._plan = self._api.probe_plan(self._server.id, changed)
        except EaglemonError as error:
            self._plan = None
            message.update(Content.styled(f"✗ {plain(str(error))}", "$state-failed"))
        else:
            plan = self._plan
            warm = f"{plural(plan.warmup, 'request')} to warm up"
            text = f"{warm}, then {plan.requests} measured; greedy"
            if plan.temperature > 0:
                text = f"{text[:-6]}temperature {plan.temperature:g}"
            message.update(Content.styled(text, "$quiet"))
        self.query_one("#yes", Button).disabled = self._plan is None
