"""``eaglemon tui``: opens the terminal console; the only module that imports it."""

import asyncio
import contextlib
import gc
import importlib
import locale
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from rich.console import Console

from eaglemon.app.api import Eaglemon
from eaglemon.app.late import LateConsole
from eaglemon.app.local_files import ConfigFiles
from eaglemon.cli import completing, diagnostics
from eaglemon.cli.invocation import Invocation, host_option
from eaglemon.cli.read_only import is_read_only
from eaglemon.core.hosts import HostQuestion, HostSpec
from eaglemon.core.terminal import ANNOUNCEMENTS
from eaglemon.errors import EXIT_FAILED, EXIT_OK, EaglemonError, UsageError
from eaglemon.io.host_config import LOCAL
from eaglemon.io.paths import user_config_folder
from eaglemon.io.resources import data_folder
from eaglemon.tui.app import ConsoleApp
from eaglemon.tui.least_size import LEAST_COLUMNS, LEAST_ROWS, is_too_small
from eaglemon.tui.screens.question import ask_on

if TYPE_CHECKING:
    from eaglemon.io.config import ProfileStore

theme_option = click.option(
    "--theme",
    metavar="NAME",
    envvar="EAGLEMON_THEME",
    shell_complete=completing.themes,
    help="Colours: one of themes/ (T in the console goes through them) or of Textual's own.",
)
ascii_option = click.option(
    "--ascii",
    "ascii_only",
    is_flag=True,
    envvar="EAGLEMON_ASCII",
    help="Draw with ASCII alone; the default where the locale is not UTF-8.",
)
notify_option = click.option(
    "--notify",
    "announces",
    type=click.Choice(ANNOUNCEMENTS),
    default="auto",
    envvar="EAGLEMON_NOTIFY",
    help="When a long job ends: the bell, a notification (OSC 9), both, none; auto by terminal.",
)

_DUMB = "dumb"
"""TERM of a terminal without a cursor that can be moved."""
Load = Callable[[], "ProfileStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How the console is drawn."""

    theme: str | None = None
    ascii_only: bool = False
    announces: str = "auto"
    """How the terminal is told of the end of a long job."""
    recorded: Path | None = None
    """Where what is seen is written too."""


@click.command(name="tui")
@click.argument("names", nargs=-1, metavar="[HOST]...", shell_complete=completing.hosts)
@host_option
@theme_option
@ascii_option
@notify_option
@click.option(
    "--record",
    "recorded",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write what is seen to FILE (.jsonl, .jsonl.gz), for eaglemon replay FILE.",
)
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    names: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    theme: str | None = None,
    ascii_only: bool = False,
    announces: str = "auto",
    recorded: Path | None = None,
) -> int:
    """Open the terminal console on hosts, or on all configured ones."""
    require_terminal()
    require_room(otherwise="eaglemon status")
    asked = invocation.hosts((*names, *hosts))
    with diagnostics.library_log():
        ascii_only = ascii_only or not speaks_utf8()
        look = Look(theme=theme, ascii_only=ascii_only, announces=announces, recorded=recorded)
        named = bool(names or hosts) or any(spec.source != LOCAL.source for spec in asked)
        load = partial(_load_profiles, invocation.config)
        if recorded is not None:
            # Imported here because the first picture would wait for it.
            from eaglemon.app.recording import prepare  # noqa: PLC0415

            prepare(recorded)
        return asyncio.run(show_console(asked, load, look, first_run=not named))


def require_terminal(*, otherwise: str = "eaglemon status --watch (for a program: --json)") -> None:
    """Raise ``UsageError`` where the console cannot be drawn; ``otherwise`` names a command."""
    if has_terminal():
        return
    here = "this one cannot be drawn on (TERM=dumb)"
    reason = f" with a cursor: {here}" if os.environ.get("TERM") == _DUMB else ""
    raise UsageError(f"the console needs a terminal{reason}", hint=f"use {otherwise}")


def has_terminal() -> bool:
    """Tell whether keys can be read and the screen can be drawn on (the toolkit uses stderr)."""
    # In a browser textual-serve stands in for the terminal and says so.
    if os.environ.get("TEXTUAL_DRIVER"):
        return True
    if os.environ.get("TERM") == _DUMB:
        return False
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def require_room(*, otherwise: str) -> None:
    """Raise ``UsageError`` where the terminal is too small; ``otherwise`` names a command."""
    if os.environ.get("TEXTUAL_DRIVER"):
        return
    size = shutil.get_terminal_size()
    if is_too_small(size.columns, size.lines):
        raise UsageError(
            f"the terminal is {size.columns}x{size.lines}: the console needs at least "
            f"{LEAST_COLUMNS}x{LEAST_ROWS}",
            hint=f"enlarge it, or use {otherwise}",
        )


def has_few_colours() -> bool:
    """Tell whether the terminal has 16 colours, by what ``TERM`` and ``COLORTERM`` say."""
    return Console().color_system == "standard"


def takes_mouse() -> bool:
    """Tell whether the mouse may be asked for: GNU screen then keeps the escape key back."""
    return "STY" not in os.environ


def speaks_utf8() -> bool:
    """Tell whether the terminal is said to understand UTF-8: by the locale that it was given.

    Python itself takes a C locale for UTF-8, and so may not be asked.
    """
    environment = os.environ
    coerced = sys.flags.utf8_mode and environment.get("LC_CTYPE") == "C.UTF-8"
    names = [environment.get("LC_ALL"), environment.get("LANG")]
    if not coerced:
        names.insert(1, environment.get("LC_CTYPE"))
    name = next((name for name in names if name), "")
    if name.partition(".")[0] in {"C", "POSIX"} and "." not in name:
        return False
    told = name.partition(".")[2].partition("@")[0]
    # A name without a character set, and no name at all, are left to the system.
    encoding = told or locale.getpreferredencoding(False)  # noqa: FBT003 (no keyword there)
    return encoding.replace("-", "").lower() == "utf8"


async def show_console(
    hosts: Sequence[HostSpec],
    load: Load,
    look: Look | None = None,
    *,
    first_run: bool = False,
    hosts_last: bool = True,
) -> int:
    """Run the terminal console on ``hosts`` until it is left; servers keep running.

    ``hosts_last`` is false of hosts that end with the console, and their servers with them.

    ``load`` reads the profiles, once there is a picture and whenever they are to be read again; it
    is called in a thread and must not write to the terminal. Returns the exit code: 1 where the
    console ended by a mistake of its own, told on screen.
    """
    late = LateConsole(hosts)
    files = ConfigFiles(load, read_only=is_read_only())
    app = ConsoleApp(
        cast("Eaglemon", late),
        files=files,
        themes=themes(),
        few_colours=has_few_colours(),
        theme=look.theme if look else None,
        ascii_only=look.ascii_only if look else not speaks_utf8(),
        announces=look.announces if look else "auto",
        theme_source=themes,
        read_only=is_read_only(),
        opening=True,
        first_run=first_run,
    )
    path = look.recorded if look else None
    opening = asyncio.create_task(_open(late, app, files, path), name="services")
    # Services that cannot be opened end the console; their error is raised below.
    opening.add_done_callback(lambda _: app.exit())
    try:
        await app.run_async(mouse=takes_mouse())
    finally:
        app.leaving.set()
        for name in app.unfinished() if hosts_last else ():
            # Left by a key that does not ask, or in spite of what was said.
            diagnostics.warn(
                f"{name} was being restarted and may be stopped: see eaglemon status, start it "
                "again with eaglemon restart or launch"
            )
        left = await opening
    # Said here and not before: the console keeps stderr to itself.
    for problem in left.problems:
        diagnostics.warn(problem)
    if left.recording:
        diagnostics.fail(left.recording)
    return EXIT_FAILED if app.return_code or left.recording else EXIT_OK


@dataclass(slots=True)
class _Left:
    """What is to be said once the console has ended."""

    problems: tuple[str, ...] = ()
    """What is wrong with profiles: the message in the console is gone with it."""
    recording: str = ""
    """Why it was recorded no further."""


async def _open(
    late: LateConsole,
    app: ConsoleApp,
    files: ConfigFiles,
    path: Path | None,
) -> _Left:
    """Load and open the services behind the first picture, and close them once it was left."""
    left = _Left()
    drawn = asyncio.create_task(app.drawn.wait())
    gone = asyncio.create_task(app.leaving.wait())
    await asyncio.wait({drawn, gone}, return_when=asyncio.FIRST_COMPLETED)
    drawn.cancel()
    if app.leaving.is_set():
        return left
    # Whoever leaves meanwhile waits for one of these steps, not for all.
    profiles = await asyncio.to_thread(files.read)
    if app.leaving.is_set():
        return left
    session = await asyncio.to_thread(importlib.import_module, "eaglemon.cli.session")
    if app.leaving.is_set():
        return left

    async def ask(question: HostQuestion) -> str | None:
        return await ask_on(app, question)

    async with session.open_console(late.hosts(), profiles, ask=ask) as console:
        late.arrive(console)
        # The rest is loaded while hosts are being connected to.
        name = "eaglemon.cli.experiment_session"
        shared = await asyncio.to_thread(importlib.import_module, name)
        if app.leaving.is_set():
            return left
        await asyncio.to_thread(app.load_actions)
        if app.leaving.is_set():
            return left
        async with shared.open_experiments(console) as experiments:
            app.take_experiments(experiments)
            # What is loaded stays: looking through all of it again and again for garbage held
            # up keys by 50 ms.
            gc.freeze()
            writing = _begin(console, path, app) if path else None
            try:
                await gone
                if writing is not None:
                    left.recording = await _end(writing)
            finally:
                await experiments.close()
    left.problems = tuple(str(problem) for problem in profiles.problems)
    return left


def _load_profiles(config: Path | None) -> "ProfileStore":
    # Imported here because the first picture, which has no profile on it, would wait for it.
    from eaglemon.io.config import ProfileStore  # noqa: PLC0415

    return ProfileStore.load(config=config)


async def show_recording(replay: Eaglemon, look: Look, *, title: str) -> None:
    """Run the console on a recording."""
    app = ConsoleApp(
        replay,
        themes=themes(),
        few_colours=has_few_colours(),
        theme=look.theme,
        ascii_only=look.ascii_only,
        recording=True,
        title=title,
    )
    await app.run_async(mouse=takes_mouse())


def _begin(console: Eaglemon, path: Path, app: ConsoleApp) -> asyncio.Task[None]:
    # Imported here because the first picture would wait for it.
    from eaglemon.app.recording import record  # noqa: PLC0415

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            app.tell_end(f"nothing is recorded any more: {error}", severity="error")

    writing = asyncio.create_task(record(console, path), name="recording")
    writing.add_done_callback(ended)
    return writing


async def _end(writing: asyncio.Task[None]) -> str:
    """End a recording and return why it had ended before, empty where it had not."""
    writing.cancel()
    try:
        await writing
    except asyncio.CancelledError:
        return ""
    except EaglemonError as error:
        return f"the recording: {error}"
    return ""


def theme_names() -> list[str]:
    """Return the names that ``--theme`` takes: those of files, then Textual's own."""
    return list(dict.fromkeys([*sorted(themes()), *ConsoleApp.built_in_themes()]))


def themes() -> dict[str, str]:
    """Return the text of each shipped and each of the user's themes, by the name of its file.

    The user's are in ``themes/`` of the configuration folder; a name of a shipped one replaces it.
    """
    entries: list[Traversable | Path] = list(data_folder("themes").iterdir())
    entries += sorted((user_config_folder() / "themes").glob("*.toml"))
    texts: dict[str, str] = {}
    for entry in entries:
        if entry.name.endswith(".toml"):
            # An editor may be replacing the file at this moment; the next look finds it.
            with contextlib.suppress(FileNotFoundError):
                text = entry.read_bytes().decode("utf-8", errors="replace")
                texts[entry.name.removesuffix(".toml")] = text
    return texts
