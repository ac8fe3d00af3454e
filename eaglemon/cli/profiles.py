"""``eaglemon profiles``: the profiles that can be launched."""

import shlex

import click

from eaglemon.cli import diagnostics, output
from eaglemon.cli.invocation import Invocation, json_option, settings_from
from eaglemon.cli.tables import Row, columns
from eaglemon.core.profiles import Profile
from eaglemon.core.redact import mask_argv, mask_env
from eaglemon.engines import engine_named
from eaglemon.errors import EXIT_OK, EXIT_USAGE


@click.group(name="profiles", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> int:
    """List all profiles: packaged, the user's and the project's.

    Exits with 2 when a profile file is broken; the others are listed all the same.
    """
    if ctx.invoked_subcommand is not None:
        return EXIT_OK
    store = ctx.ensure_object(Invocation).profiles()
    if as_json:
        content = {"profiles": store.all(), "problems": store.problems}
        output.write_document("profiles", content)
    else:
        rows: list[Row] = [("PROFILE", "ENGINE", "SPECULATION", "PORT", "DESCRIPTION", "FROM")]
        rows += [_row(profile) for profile in store.all()]
        output.write_lines(columns(rows))
    return EXIT_USAGE if store.problems else EXIT_OK


@command.command(name="show")
@click.argument("name")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for launch.")
@json_option
@click.pass_obj
def show(invocation: Invocation, *, name: str, settings: tuple[str, ...], as_json: bool) -> int:
    """Show the profile NAME with what it extends, and the command line it stands for.

    Exits with 2 when the engine's rules find something wrong with it.
    """
    profile = invocation.profiles().get(name, settings_from(settings))
    engine = engine_named(profile.engine)
    problems = engine.check(profile)
    argv = mask_argv(engine.argv(profile))
    env = mask_env(engine.environment(profile))
    if as_json:
        content = {"profile": profile, "argv": argv, "env": env, "problems": problems}
        output.write_document("profiles", content)
    else:
        rows = [
            ("profile", profile.name),
            ("from", profile.source),
            ("engine", engine.title),
            ("model", profile.model),
            ("draft", profile.draft or "-"),
            ("speculation", _speculation(profile)),
            ("probe", f"{profile.probe.workload}, {profile.probe.requests} requests"),
        ]
        variables = [f"{key}={shlex.quote(value)}" for key, value in env.items()]
        output.write_lines([*columns(rows), "", " ".join([*variables, shlex.join(argv)])])
    diagnostics.list_problems(problems)
    return EXIT_USAGE if problems else EXIT_OK


def _row(profile: Profile) -> Row:
    return (
        profile.name,
        profile.engine,
        _speculation(profile),
        str(profile.port),
        profile.description,
        profile.source,
    )


def _speculation(profile: Profile) -> str:
    speculation = profile.speculation
    if speculation is None:
        return "off"
    sizes = (speculation.steps, speculation.topk, speculation.draft_tokens)
    return f"{speculation.algorithm} {'/'.join('-' if n is None else str(n) for n in sizes)}"
