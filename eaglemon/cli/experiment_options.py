"""The options that ``ab`` and ``sweep`` share, and what they mean for an experiment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from eaglemon.cli.invocation import settings_from
from eaglemon.core.experiment import Arm, ExperimentPlan, Order, StopRules

Command = TypeVar("Command", bound=Callable[..., Any])


def request_options(command: Command) -> Command:
    """Add the options that say how the servers are asked, and how the experiment runs."""
    for option in reversed(
        (
            click.option("--workload", metavar="NAME|FILE", help="chat, code, maths, or a file."),
            click.option("--requests", type=click.IntRange(min=2), help="Prompts per measurement."),
            click.option("--max-tokens", type=click.IntRange(min=2), help="Longest answer."),
            click.option("--seed", type=int, default=1, help="For order and intervals."),
            click.option("--restore", is_flag=True, help="Start again what had to make room."),
            click.option("--keep", is_flag=True, help="Leave the last servers running."),
            click.option("--parallel", is_flag=True, help="Side by side where no GPU is shared."),
            click.option("--dry-run", is_flag=True, help="Say what would be done."),
            click.option("--yes", "-y", "confirmed", is_flag=True, help="Do not ask."),
            click.option(
                "-o",
                "--output",
                "outputs",
                multiple=True,
                type=click.Path(path_type=Path, dir_okay=False),
                help="Write a report: .html, .md, .csv or .json; repeatable.",
            ),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """What was given for the options of both commands; fields are named as click's parameters."""

    hosts: tuple[str, ...]
    settings: tuple[str, ...]
    """``KEY=VALUE`` of each ``--set``."""
    rounds: int
    width: float
    """Half of the interval within which it ends early, in per cent."""
    limit: float | None
    """Seconds after which no measurement is begun."""
    workload: str | None
    requests: int | None
    max_tokens: int | None
    seed: int
    restore: bool
    keep: bool
    parallel: bool
    dry_run: bool
    confirmed: bool
    outputs: tuple[Path, ...]
    as_json: bool

    def profile_settings(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the settings of every arm; ``--set`` goes over the others and over ``more``."""
        asked = {
            "workload": self.workload,
            "requests": self.requests,
            "max_tokens": self.max_tokens,
        }
        given = {f"probe.{key}": str(value) for key, value in asked.items() if value is not None}
        return {**given, **(more or {}), **settings_from(self.settings)}

    def plan(
        self, run_id: str, arms: Sequence[Arm], *, order: Order, kind: str = "ab"
    ) -> ExperimentPlan:
        """Return the plan of an experiment of these arms."""
        return ExperimentPlan(
            id=run_id,
            kind=kind,
            arms=tuple(arms),
            rounds=self.rounds,
            order=order,
            seed=self.seed,
            stop=StopRules(half_width=self.width / 100.0, limit_s=self.limit),
            restore=self.restore,
            keep=self.keep,
            parallel=self.parallel,
        )


def takes_options(command: Callable[..., int]) -> Callable[..., int]:
    """Hand a command its ``ExperimentOptions`` as ``options``, in place of each by itself."""

    @wraps(command)
    def gathered(*values: Any, **given: Any) -> int:
        shared = {field.name: given.pop(field.name) for field in fields(ExperimentOptions)}
        return command(*values, options=ExperimentOptions(**shared), **given)

    return gathered
