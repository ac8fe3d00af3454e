"""``eaglemon wait``: wait until a server is ready, or say why it never will be."""

from pathlib import Path

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import completing, diagnostics, output, session
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.cli.url_options import api_key_in, trust_of, url_options
from eaglemon.core.foreign import Reached
from eaglemon.core.profiles import Limits
from eaglemon.core.server_url import Trust, is_url
from eaglemon.core.units import duration
from eaglemon.core.views import LaunchPlan, ServerView
from eaglemon.errors import EXIT_FAILED, EXIT_OK, UsageError
from eaglemon.io.host_config import LOCAL


@click.command(name="wait")
@click.argument("server", metavar="SERVER|URL", shell_complete=completing.servers)
@host_option
@click.option("--timeout", type=DURATION, help="Such as 15m or 90s; the profile's limit if not.")
@url_options
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    server: str,
    hosts: tuple[str, ...],
    timeout: float | None,
    api_key_env: str | None,
    ca: Path | None,
    insecure: bool,
    as_json: bool,
) -> int:
    """Wait until SERVER has generated a token, or has ended.

    SERVER is an id, the start of one, a name, or PID@HOST of a server that no console started.
    URL (http://ADDRESS:PORT, https://NAME/PATH/v1) is any server, as seen from this machine or
    from --host.
    Exits with 0 when it is ready, with 1 when it ended, and with 4 when neither came in time.
    """

    trust = trust_of(server, ca, insecure=insecure)
    if is_url(server):
        key = api_key_in(api_key_env)
        return _wait_at(invocation, server, hosts, timeout, key=key, trust=trust, as_json=as_json)

    async def work(console: Eaglemon) -> ServerView:
        found = await session.find_server(console, server)
        waiting = console.wait(found.id, timeout_s=timeout)
        from_start = not found.state.ended
        return await session.with_progress(console, found.id, waiting, from_start=from_start)

    view = session.run_on(
        invocation.hosts(hosts),
        invocation.profiles(),
        work,
        if_interrupted="the server is not touched by this",
    )
    return server_result("wait", view, as_json=as_json)


def _wait_at(
    invocation: Invocation,
    url: str,
    hosts: tuple[str, ...],
    timeout: float | None,
    *,
    key: str | None,
    trust: Trust,
    as_json: bool,
) -> int:
    if len(hosts) > 1:
        raise UsageError("a URL is seen from one host", hint="give one --host, or none")
    asked = invocation.hosts(hosts) if hosts else (LOCAL,)
    limit_s = Limits().ready_s if timeout is None else timeout

    async def work(console: Eaglemon) -> Reached:
        await session.settled(console)
        name = asked[0].name
        return await console.wait_at(url, host=name, timeout_s=limit_s, api_key=key, trust=trust)

    reached = session.run_on(asked, invocation.profiles(), work)
    if as_json:
        output.write_document("wait", {"reached": reached})
    else:
        output.write_lines([reached.url])
    diagnostics.talk(
        f"{reached.url} ({reached.engine}, {reached.model}) is ready after "
        f"{duration(reached.waited_s)}"
    )
    return EXIT_OK


def server_result(
    command_name: str, server: ServerView, *, as_json: bool, plan: LaunchPlan | None = None
) -> int:
    """Write how a waited-for server stands and return the exit code."""
    if as_json:
        planned = {"plan": plan, "problems": []} if plan is not None else {}
        output.write_document(command_name, {**planned, "server": server})
    else:
        output.write_lines([server.id])
    if server.state.answering:
        ready_s = None if server.ready_at is None else server.ready_at - server.launched_at
        diagnostics.talk(f"{server.id} is {server.state} after {duration(ready_s)}")
        return EXIT_OK
    diagnostics.fail(f"{server.id} is {server.state}: {why(server)}")
    return EXIT_FAILED


def why(server: ServerView) -> str:
    """Return in one line why a server is not ready."""
    if server.cause is None:
        return server.detail or str(server.exit or "it is not known why")
    text = server.cause.sentence
    if server.cause.decisive_line:
        text += f" (log line {server.cause.line_number}: {server.cause.decisive_line.strip()})"
    return f"{text}; {server.cause.remedy}" if server.cause.remedy else text
