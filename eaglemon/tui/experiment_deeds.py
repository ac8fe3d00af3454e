"""What the actions about experiments do."""

from pathlib import Path
from typing import TYPE_CHECKING

from eaglemon.app.api import Experiments
from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.verdict import sentence
from eaglemon.errors import EaglemonError
from eaglemon.tui.experiment_panels import outcome_words
from eaglemon.tui.screens.compare import CompareDialog
from eaglemon.tui.screens.experiment import ExperimentScreen
from eaglemon.tui.screens.runs import RunsScreen

if TYPE_CHECKING:
    from eaglemon.tui.app import ConsoleApp


class ExperimentDeeds:
    """Carries out A/B comparisons; at most one is under way in a console."""

    def __init__(self, app: "ConsoleApp", experiments: Experiments | None) -> None:
        self._app = app
        self.service = experiments
        """``None`` where the console keeps no history."""

    def running(self) -> str | None:
        """Return the id of the experiment that is under way."""
        views = self.service.views() if self.service is not None else ()
        return next((view.plan.id for view in views if not view.outcome), None)

    def compare(self) -> None:
        """Show the experiment that is under way, or ask for one."""
        experiments = self._known()
        running = self.running()
        if running is not None:
            self._show(running)
            return
        scene = self._app.scene()
        dialog = CompareDialog(
            self._app.console_api,
            experiments,
            self._app.settings,
            server=scene.server,
            host=scene.host,
        )
        self._app.push_screen(dialog, self._chosen)

    def list_runs(self) -> None:
        """Show what was measured."""
        self._app.open_screen(RunsScreen(self._known(), self._app.settings))

    def mark(self) -> None:
        """Mark the run under the cursor, or not any more; two are compared."""
        screen = self._runs_screen()
        if screen is not None:
            self._app.say(screen.toggle_mark())
            self._app.redraw()

    def report(self) -> None:
        """Write the report of the run under the cursor, or on the screen, into a new file."""
        screen, run = self._app.console_screen(), None
        if isinstance(screen, RunsScreen):
            run = screen.current_run()
        elif isinstance(screen, ExperimentScreen):
            run = screen.experiment
        if run is not None:
            self._app.run_worker(self._write_report(run), group="report")

    def resume(self) -> None:
        """Go on with the run under the cursor, which was cut off."""
        screen = self._runs_screen()
        run = screen.current_run() if screen is not None else None
        if run is not None:
            self._app.run_worker(self._resume(run), group="resume", exclusive=True)

    def cancel(self) -> None:
        """End the experiment that is under way, and the servers that it started."""
        running = self.running()
        if running is not None:
            self._app.say("cancelling: the servers that it started are stopped first")
            self._app.run_worker(self._known().cancel(running), group="cancel")

    def _known(self) -> Experiments:
        if self.service is None:
            raise ValueError("an action about experiments was carried out without any")
        return self.service

    def _show(self, experiment: str) -> None:
        screen = ExperimentScreen(self._known(), experiment, self._app.settings)
        self._app.open_screen(screen)

    def _runs_screen(self) -> RunsScreen | None:
        screen = self._app.console_screen()
        return screen if isinstance(screen, RunsScreen) else None

    async def _write_report(self, run: str) -> None:
        try:
            path = await self._known().write_report(run, Path.cwd())
        except (EaglemonError, OSError) as error:
            # The folder that the console was started in may be gone.
            self._app.say(f"the report of {run}: {error}", severity="error")
        else:
            self._app.say(f"the report of {run} is in {path}")

    async def _resume(self, run: str) -> None:
        experiments = self._known()
        try:
            record = await experiments.record(run)
            await experiments.begin_again(run)
        except EaglemonError as error:
            self._app.say(str(error), severity="error")
            return
        self._show(run)
        self._app.run_worker(self._tell_the_end(record.plan), group=f"experiment-{run}")

    def _chosen(self, plan: ExperimentPlan | None) -> None:
        if plan is None:
            return
        try:
            self._known().begin(plan)
        except EaglemonError as error:
            self._app.say(str(error), severity="error")
            return
        self._show(plan.id)
        self._app.run_worker(self._tell_the_end(plan), group=f"experiment-{plan.id}")

    async def _tell_the_end(self, plan: ExperimentPlan) -> None:
        experiments = self._known()
        async for _ in self._app.console_api.updates():
            view = experiments.view(plan.id)
            if view is not None and view.outcome:
                break
        else:
            return
        text = f"experiment {plan.id} {outcome_words(view.outcome)}"
        compared = [one for one in view.findings.comparisons if one.ratio] if view.findings else []
        if compared and view.outcome != "cancelled":
            text = sentence(compared[-1], [arm.name for arm in plan.arms])
        good = view.outcome in {"done", "narrow"}
        self._app.tell_end(text, severity="information" if good else "warning")
        self._app.redraw()
