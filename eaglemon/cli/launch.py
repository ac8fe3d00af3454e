"""``eaglemon launch``: start a server of a profile, and wait for it if asked."""

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import completing, diagnostics, output, session
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option, settings_from
from eaglemon.cli.wait import server_result
from eaglemon.core.problems import Problem, errors_among
from eaglemon.core.views import LaunchPlan, ServerView
from eaglemon.errors import EXIT_OK, EXIT_USAGE, UsageError

_KEEPS_RUNNING = "a server that was started keeps running (eaglemon status, eaglemon kill)"


@click.command(name="launch")
@click.argument("profile", shell_complete=completing.profiles)
@host_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting: port, model, draft, gpus, steps, topk, draft-tokens, limits.NAME, "
    "probe.NAME, env.NAME or a flag of the server; VALUE none removes it. Repeatable.",
)
@click.option("--wait", "wait", is_flag=True, help="Wait until a token was generated, or it ended.")
@click.option("--timeout", type=DURATION, help="Limit for --wait, such as 15m or 90s.")
@click.option("--dry-run", is_flag=True, help="Show command, environment and hooks; check only.")
@click.option("--force", is_flag=True, help="Start although the checks found problems.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    profile: str,
    hosts: tuple[str, ...],
    settings: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Start a server of PROFILE on a host.

    Exits with 0 when it was started (with --wait: when it is ready), with 2 when problems stand
    against it, and with 1 when it failed.
    """
    if len(hosts) != 1:
        known = ", ".join(host.name for host in invocation.hosts(()))
        raise UsageError("launch needs one --host", hint=f"known: {known}, or an SSH name")
    if timeout is not None and not wait:
        raise UsageError("--timeout is for --wait", hint="add --wait")
    (host,) = invocation.hosts(hosts)
    store = invocation.profiles()
    overrides = settings_from(settings)
    store.get(profile, overrides)

    async def check_only(console: Eaglemon) -> tuple[LaunchPlan, list[Problem]]:
        await session.settled(console)
        plan = console.plan(profile, host.name, overrides)
        return plan, await console.check(plan)

    async def start(console: Eaglemon) -> tuple[LaunchPlan, ServerView]:
        await session.settled(console)
        plan = console.plan(profile, host.name, overrides)
        server_id = await console.launch(plan, force=force)
        server = console.find(server_id)
        diagnostics.talk(f"started {server_id} on {host.name}: {plan.shell_line}")
        if wait:
            waiting = console.wait(server_id, timeout_s=timeout)
            server = await session.with_progress(console, server_id, waiting, from_start=True)
        return plan, server

    if dry_run:
        plan, problems = session.run_on((host,), store, check_only)
        diagnostics.list_problems(problems)
        if as_json:
            output.write_document("launch", {"plan": plan, "problems": problems, "server": None})
        else:
            hooks = plan.profile.hooks
            before = [f"before_launch: {line}" for line in hooks.before_launch]
            after = [f"after_stop: {line}" for line in hooks.after_stop]
            output.write_lines([*before, plan.shell_line, *after])
        return EXIT_USAGE if errors_among(problems) else EXIT_OK
    plan, server = session.run_on((host,), store, start, if_interrupted=_KEEPS_RUNNING)
    if wait:
        return server_result("launch", server, as_json=as_json, plan=plan)
    if as_json:
        output.write_document("launch", {"plan": plan, "problems": [], "server": server})
    else:
        output.write_lines([server.id])
    return EXIT_OK
