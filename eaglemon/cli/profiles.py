"""``eaglemon profiles``: the profiles that can be launched."""

import shlex
from collections.abc import Mapping
from dataclasses import replace

import click

from eaglemon.cli import completing, diagnostics, output
from eaglemon.cli.invocation import Invocation, json_option, settings_from
from eaglemon.cli.tables import Row, columns
from eaglemon.core.problems import errors_among
from eaglemon.core.profiles import Profile
from eaglemon.core.redact import MASK, is_secret, mask_argv, mask_env
from eaglemon.core.units import plural
from eaglemon.engines import engine_named, import_command
from eaglemon.errors import EXIT_OK, EXIT_USAGE, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.profile_text import profile_toml, save_profile
from eaglemon.io.profile_values import full_key, name_problem
from eaglemon.io.workloads import workload_problems


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
@click.argument("name", shell_complete=completing.profiles)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for launch.")
@click.option("--origin", is_flag=True, help="Show the file and line that sets each value.")
@json_option
@click.pass_obj
def show(
    invocation: Invocation,
    *,
    name: str,
    settings: tuple[str, ...],
    origin: bool,
    as_json: bool,
) -> int:
    """Show the profile NAME with what it extends, and the command line it stands for.

    Exits with 2 when the engine's rules find something wrong with it.
    """
    store, overrides = invocation.profiles(), settings_from(settings)
    profile = store.get(name, overrides)
    engine = engine_named(profile.engine)
    problems = [*engine.check(profile), *workload_problems(profile.probe.workload)]
    argv = mask_argv(engine.argv(profile))
    env = mask_env(engine.environment(profile))
    if as_json:
        content = {"profile": profile, "argv": argv, "env": env, "problems": problems}
        if origin:
            content["origins"] = _origins(store, name, overrides)
        output.write_document("profiles", content)
    elif origin:
        places = _origins(store, name, overrides)
        table: list[Row] = [("KEY", "VALUE", "FROM")]
        table += [(key, value_of(profile, key), place) for key, place in places.items()]
        output.write_lines(columns(table))
    else:
        rows = [
            ("profile", profile.name),
            ("from", profile.source),
            ("engine", engine.title),
            ("model", profile.model),
            ("draft", profile.draft or "-"),
            ("speculation", _speculation(profile)),
            ("published", profile.reference or "-"),
            ("probe", f"{profile.probe.workload}, {plural(profile.probe.requests, 'request')}"),
        ]
        variables = [f"{key}={shlex.quote(value)}" for key, value in env.items()]
        output.write_lines([*columns(rows), "", " ".join([*variables, shlex.join(argv)])])
    diagnostics.list_problems(problems)
    return EXIT_USAGE if problems else EXIT_OK


@command.command(name="check")
@click.argument("name", required=False, shell_complete=completing.profiles)
@click.option("--command", "line", help="Check a command line, as it is typed into a shell.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for launch.")
@click.option("--engine-version", metavar="VERSION", help="Release to check for, such as 0.5.23.")
@json_option
@click.pass_obj
def check(
    invocation: Invocation,
    *,
    name: str | None,
    line: str | None,
    settings: tuple[str, ...],
    engine_version: str | None,
    as_json: bool,
) -> int:
    """Check the profile NAME, or a command line, by the rules of its engine; asks no host.

    Lists all problems at once. Exits with 2 when one of them stands against a launch.
    """
    if (name is None) == (line is None):
        raise UsageError("check needs the name of a profile or --command", hint="give one of both")
    if line is not None:
        profile = import_command(line)
    else:
        profile = invocation.profiles().get(name or "", settings_from(settings))
    problems = engine_named(profile.engine).check(profile, engine_version)
    problems = [*problems, *workload_problems(profile.probe.workload)]
    if as_json:
        content = {"profile": profile, "engine_version": engine_version, "problems": problems}
        output.write_document("profiles", content)
    else:
        output.write_lines(f"{p.severity}: {p}" for p in problems)
        diagnostics.talk(f"{plural(len(problems), 'problem')} found")
    return EXIT_USAGE if errors_among(problems) else EXIT_OK


@command.command(name="import")
@click.argument("line")
@click.option("--name", default="imported", help="Name of the new profile.")
@click.option("--write", is_flag=True, help="Write it into the user's profiles folder.")
@json_option
def import_line(*, line: str, name: str, write: bool, as_json: bool) -> int:
    """Turn LINE, a server's command line as it is typed into a shell, into a profile.

    Prints its TOML. Problems that the engine's rules find are told, and do not hinder.
    """
    profile = replace(import_command(line), name=name)
    wrong = name_problem(name)
    if wrong is not None:
        raise UsageError(f"{name!r} {wrong}")
    text = profile_toml(profile, masked=True)
    path = save_profile(name, profile_toml(profile)) if write else None
    problems = engine_named(profile.engine).check(profile)
    if as_json:
        content = {
            "profile": profile,
            "toml": text,
            "path": None if path is None else str(path),
            "problems": problems,
        }
        output.write_document("profiles", content)
    else:
        output.write_lines(text.splitlines())
        if path is not None:
            diagnostics.talk(f"written to {path}; see eaglemon profiles show {name}")
    diagnostics.list_problems(problems)
    return EXIT_OK


def value_of(profile: Profile, key: str) -> str:
    """Return the value of a dotted key as text, secrets masked."""
    table, _, inner = key.partition(".")
    value = getattr(profile, table)
    if key == "command":
        value = tuple(mask_argv(value))
    if inner:
        value = value.get(inner) if isinstance(value, Mapping) else getattr(value, inner, None)
    return MASK if is_secret(inner or table) and value else str(value)


def _origins(store: ProfileStore, name: str, overrides: Mapping[str, str]) -> dict[str, str]:
    places = store.origins(name)
    for key in overrides:
        full = full_key(key)
        places[full] = "--set"
    return places


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
