"""``eaglemon ab``: compare ways to serve, paired by prompt, with intervals."""

from pathlib import Path

import click

from eaglemon.app.experiments import ExperimentService
from eaglemon.cli import completing
from eaglemon.cli import experiment_session as shared
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option, settings_from
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
@shared.request_options
@click.option("--resume", is_flag=True, help="Go on with an experiment that was cut off.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    arms: tuple[str, ...],
    hosts: tuple[str, ...],
    settings: tuple[str, ...],
    baseline: bool,
    rounds: int,
    order: str,
    width: float,
    limit: float | None,
    concurrency: int | None,
    workload: str | None,
    requests: int | None,
    max_tokens: int | None,
    seed: int,
    restore: bool,
    keep: bool,
    parallel: bool,
    dry_run: bool,
    confirmed: bool,
    outputs: tuple[Path, ...],
    resume: bool,
    as_json: bool,
) -> int:
    """Compare arms: stop, start and measure each, as often as planned, then say which is faster.

    An arm is PROFILE or PROFILE+KEY=VALUE+... (PROFILE+steps=3, PROFILE+speculation=none), and
    may end in @HOST. Ratios are to the first arm, paired by prompt, with 95 % intervals. Exits
    with 1 when an arm could not be measured. With --resume, A is the run's id, or nothing.
    """
    shared.check_outputs(outputs)
    chosen = invocation.hosts(hosts)
    if resume:
        if len(arms) > 1:
            raise UsageError("--resume takes one run", hint="eaglemon ab --resume [RUN]")
    elif not arms or (len(arms) < 2 and not baseline):
        raise UsageError("ab needs two arms", hint="name another profile, or add --baseline")
    common = {
        **shared.probe_settings(workload, requests, max_tokens),
        **({"probe.concurrency": str(concurrency)} if concurrency else {}),
        **settings_from(settings),
    }

    def plan_of(experiments: ExperimentService) -> tuple[ExperimentPlan, dict[str, object]]:
        texts = (f"{arms[0]}+speculation=none", *arms) if baseline else arms
        default = chosen[0].name
        plan = ExperimentPlan(
            id=experiments.new_id("ab"),
            arms=tuple(experiments.arm(text, default, common) for text in texts),
            rounds=rounds,
            order=Order(order),
            seed=seed,
            stop=shared.stop_rules(width, limit),
            restore=restore,
            keep=keep,
            parallel=parallel,
        )
        return plan, {}

    asked = shared.Asked(
        command="ab",
        hosts=chosen,
        profiles=invocation.profiles(),
        dry_run=dry_run,
        confirmed=confirmed,
        outputs=outputs,
        as_json=as_json,
        resume=(arms[0] if arms else "") if resume else None,
    )
    return shared.carry_out(asked, plan_of)
