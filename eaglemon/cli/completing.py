"""What a shell completes besides commands and options: profiles, hosts, servers and themes.

Servers are those that a console of this user saw last: a shell cannot wait for their hosts.
"""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from eaglemon.errors import EaglemonError


def profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the profiles that begin as typed, each with its engine and model."""
    del param
    # Each of these imports what only completion of its kind needs.
    from eaglemon.io.config import ProfileStore  # noqa: PLC0415

    try:
        known = ProfileStore.load(config=_config(ctx)).all()
    except EaglemonError:
        return []  # Nothing can be told here; the command itself will say what is wrong.
    return [
        CompletionItem(one.name, help=f"{one.engine}, {one.model}")
        for one in known
        if one.name.startswith(incomplete)
    ]


def hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the configured hosts and those of ssh that begin as typed."""
    del param
    from eaglemon.io.host_config import load_hosts  # noqa: PLC0415
    from eaglemon.io.ssh_names import ssh_names  # noqa: PLC0415

    try:
        configured = {spec.name: spec.source for spec in load_hosts(config=_config(ctx))}
    except EaglemonError:
        configured = {}
    known = {**dict.fromkeys(ssh_names(), "~/.ssh/config"), **configured}
    return [
        CompletionItem(name, help=source)
        for name, source in known.items()
        if name.startswith(incomplete)
    ]


def servers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the servers that were last seen and begin as typed: living ones by name, all by id."""
    del ctx, param
    from eaglemon.io.seen_servers import all_of, recall_servers  # noqa: PLC0415

    items: dict[str, CompletionItem] = {}
    for host, one in all_of(recall_servers()):
        for text in (one.id,) if one.ended else (one.name, one.id):
            if text.startswith(incomplete):
                items.setdefault(text, CompletionItem(text, help=f"{one.state} on {host}"))
    return list(items.values())


def themes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the themes of eaglemon, the user's and Textual's that begin as typed."""
    del ctx, param
    from eaglemon.cli.tui import theme_names  # noqa: PLC0415

    return [CompletionItem(name) for name in theme_names() if name.startswith(incomplete)]


def _config(ctx: click.Context) -> Path | None:
    invocation = ctx.find_root().obj
    config: Path | None = None if invocation is None else invocation.config
    return config
