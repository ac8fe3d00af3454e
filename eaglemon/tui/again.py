"""A launch form that begins with a server that has ended, changed as its failure advises."""

from dataclasses import dataclass

from eaglemon.app.api import Eaglemon
from eaglemon.core.profiles import Profile
from eaglemon.core.views import ServerView
from eaglemon.errors import EaglemonError
from eaglemon.tui import launch_form


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A server that is to be started once more, perhaps changed."""

    name: str
    profile: str
    host: str
    started: Profile | None = None
    """The profile as it was started; ``None``: as it is now."""
    changes: tuple[str, ...] = ()
    """``NAME=VALUE`` to be changed."""


_SINGLE = ("model", "draft", "served_name", "python", "venv", "conda", "container", "workdir")


def begun_from(again: Again, base: Profile) -> tuple[dict[str, str], str]:
    """Return the single fields and the lines of flags that a form begins with."""
    started = again.started or base
    fields, texts = launch_form.field_values(started), dict[str, str]()
    for name in _SINGLE:
        value = getattr(started, name)
        if value != getattr(base, name) and value is not None:
            texts[name] = str(value)
    if started.gpus != base.gpus and started.gpus is not None:
        texts["gpus"] = ",".join(str(gpu) for gpu in started.gpus)
    texts |= {name: launch_form.value_text(value) for name, value in started.flags.items()}
    for change in again.changes:
        name, _, value = change.partition("=")
        (fields if name in fields else texts)[name] = value
    return fields, "\n".join(f"{name}={value}" for name, value in texts.items())


def again_of(console: Eaglemon, server: ServerView | None) -> Again | None:
    """Return how an ended server was started, and what to change; ``None`` where it has not."""
    if server is None or not server.state.ended:
        return None
    changes = server.cause.changes if server.cause is not None else ()
    try:
        started = console.relaunch_plan(server.id).profile
    except EaglemonError:
        # Of a run that is known by its record alone, the name of the profile is all there is.
        started = None
    return Again(
        name=server.name,
        profile=server.profile,
        host=server.host,
        started=started,
        changes=changes if started is not None else (),
    )
