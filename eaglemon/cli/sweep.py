"""``eaglemon sweep``: find the best speculation settings of a profile."""

import click

from eaglemon.app.experiments import ExperimentService
from eaglemon.cli import completing, diagnostics
from eaglemon.cli import experiment_session as shared
from eaglemon.cli.experiment_options import ExperimentOptions, request_options, takes_options
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.core.experiment import ExperimentPlan, Order
from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.stats import DRAWS
from eaglemon.core.sweep import best_line, best_of
from eaglemon.errors import UsageError


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...] | None:
    del ctx, param
    if value == "auto":
        return None
    try:
        return tuple(dict.fromkeys(int(part) for part in value.split(",") if part.strip()))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no list of numbers; write 1,3,5") from error


@click.command(name="sweep")
@click.argument("profile", shell_complete=completing.profiles)
@host_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of every combination, as for launch. Repeatable.",
)
@click.option("--steps", callback=_numbers, default="1,3,5,7", help="Draft steps.")
@click.option("--topk", callback=_numbers, default="1", help="Branches; above 1 drafts are trees.")
@click.option("--draft-tokens", callback=_numbers, default="auto", help="Tokens verified, or auto.")
@click.option("--concurrency", callback=_numbers, default="1", help="Requests at a time.")
@click.option("--rounds", type=click.IntRange(min=1), default=2, help="Measurements of each.")
@click.option("--width", type=float, default=2.0, help="End early within this, in per cent.")
@click.option("--time", "limit", type=DURATION, help="Begin no measurement later, such as 2h.")
@request_options
@json_option
@click.pass_obj
@takes_options
def command(
    invocation: Invocation,
    *,
    options: ExperimentOptions,
    profile: str,
    steps: tuple[int, ...] | None,
    topk: tuple[int, ...] | None,
    draft_tokens: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
) -> int:
    """Measure PROFILE over its speculation settings and name the best for each concurrency.

    No speculation is measured too. Combinations that are invalid or the same as another are
    skipped with the reason; those that are surely worse are not measured again.
    """
    shared.check_outputs(options.outputs)
    if not steps or not topk or not concurrency:
        raise UsageError("sweep needs numbers for steps, topk and concurrency")
    chosen = invocation.hosts(options.hosts)
    common = options.profile_settings()

    def plan_of(experiments: ExperimentService) -> tuple[ExperimentPlan, dict[str, object]]:
        arms, skipped = experiments.sweep_arms(
            profile,
            chosen[0].name,
            common,
            steps=steps,
            topk=topk,
            draft_tokens=draft_tokens,
            concurrency=concurrency,
        )
        run_id = experiments.new_id("sweep")
        plan = options.plan(run_id, arms, order=Order.ABBA, kind="sweep")
        for one in skipped:
            diagnostics.talk(f"skipped {one.combination.name}: {one.reason}")
        return plan, {"skipped": skipped}

    def best(record: ExperimentRecord) -> list[str]:
        found = best_of(record.plan, record.trials, draws=DRAWS)
        return [best_line(one, record.names) for one in found]

    asked = shared.Asked(
        command="sweep",
        hosts=chosen,
        profiles=invocation.profiles(),
        options=options,
    )
    return shared.carry_out(asked, plan_of, best)
