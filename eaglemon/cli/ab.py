"""``eaglemon ab``: compare ways to serve, paired by prompt, with intervals."""

import click

from eaglemon.app.experiments import ExperimentService
from eaglemon.cli import completing
from eaglemon.cli import experiment_session as shared
from eaglemon.cli.experiment_options import ExperimentOptions, request_options, takes_options
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.core.experiment import ExperimentPlan, Order
from eaglemon.errors import UsageError


@click.command(name="ab")
@click.argument("arms", nargs=-1, metavar="A B [C...]", shell_complete=completing.profiles)
@host_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of every arm, as for launch. Repeatable.",
)
@click.option("--baseline", is_flag=True, help="Put A without speculation first.")
@click.option("--rounds", type=click.IntRange(min=1), default=2, help="Measurements of each arm.")
@click.option("--order", type=click.Choice([order.value for order in Order]), default="abba")
@click.option("--width", type=float, default=2.0, help="End early within this, in per cent.")
@click.option("--time", "limit", type=DURATION, help="Begin no measurement later, such as 2h.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests at a time.")
@request_options
@click.option("--resume", is_flag=True, help="Go on with an experiment that was cut off.")
@json_option
@click.pass_obj
@takes_options
def command(
    invocation: Invocation,
    *,
    options: ExperimentOptions,
    arms: tuple[str, ...],
    baseline: bool,
    order: str,
    concurrency: int | None,
    resume: bool,
) -> int:
    """Compare arms: stop, start and measure each, as often as planned, then say which is faster.

    An arm is PROFILE or PROFILE+KEY=VALUE+... (PROFILE+steps=3, PROFILE+speculation=none), and
    may end in @HOST. Ratios are to the first arm, paired by prompt, with 95 % intervals. Exits
    with 1 when an arm could not be measured. With --resume, A is the run's id, or nothing.
    """
    shared.check_outputs(options.outputs)
    chosen = invocation.hosts(options.hosts)
    if resume:
        if len(arms) > 1:
            raise UsageError("--resume takes one run", hint="eaglemon ab --resume [RUN]")
    elif not arms or (len(arms) < 2 and not baseline):
        raise UsageError("ab needs two arms", hint="name another profile, or add --baseline")
    at_a_time = {"probe.concurrency": str(concurrency)} if concurrency else {}
    common = options.profile_settings(at_a_time)

    def plan_of(experiments: ExperimentService) -> tuple[ExperimentPlan, dict[str, object]]:
        texts = (f"{arms[0]}+speculation=none", *arms) if baseline else arms
        default = chosen[0].name
        chosen_arms = [experiments.arm(text, default, common) for text in texts]
        return options.plan(experiments.new_id("ab"), chosen_arms, order=Order(order)), {}

    asked = shared.Asked(
        command="ab",
        hosts=chosen,
        profiles=invocation.profiles(),
        options=options,
        resume=(arms[0] if arms else "") if resume else None,
    )
    return shared.carry_out(asked, plan_of)
