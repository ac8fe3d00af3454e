"""What each key shows that it did its work, and the press that looks for it."""

from collections.abc import Mapping

from textual.widgets import Input

from eaglemon.tui.actions import Action
from tests.tui.console import Opened

LEAVES = {"back", "quit"}
"""They end what is tested: the last presses are theirs."""
EFFECTS: Mapping[str, str] = {
    "start": "LaunchScreen",
    "stop": "ConfirmStop",
    "kill": "ConfirmStop",
    "restart": "ConfirmStop",
    "ab": "CompareDialog",
    "probe": "ProbeDialog",
    "cancel": "cancelling: the servers that it started are stopped first",
    "open": "ServerScreen",
    "log": "LogScreen",
    "host": "HostScreen",
    "filter": "Input",
    "runs": "RunsScreen",
    "draft": "DraftScreen",
    "profiles": "ProfilesScreen",
    "copy": "copied ",
    "next_hit": "nothing to look for: type it after /",
    "previous_hit": "nothing to look for: type it after /",
    "only": "show only lines with this text",
    "jump": "a line number, or a time as the log has it",
    "select": "selecting: move, then y copies",
    "mark": "mark another one to compare them",
    "report": "the report of ab-",
    "resume": "ExperimentScreen",
    "sort": " by ",
    "sort_back": "Runs Profiles",
    "invert": "turned round",
    "pause": "PAUSED",
    "previous_tab": "VerticalScroll",
    "next_tab": "RunList ProfileList VerticalScroll",
    "theme": "theme ",
    "palette": "CommandPalette",
    "help": "HelpScreen",
}
"""What shows that an action did its work: a screen in front, the focus, or a text."""


def told(console: Opened) -> dict[str, str]:
    """Return the messages that have not gone yet, by what makes each unique."""
    return {one.identity: one.message for one in console.app._notifications}


def seen(console: Opened, said: list[str]) -> str:
    """Return what is in front, where the focus is, and what was said."""
    front, focus = type(console.screen).__name__, console.app.focused
    words = [front, *said, console.text()]
    if isinstance(focus, Input):
        words += [type(focus).__name__, focus.placeholder]
    return "\n".join([*words, type(focus).__name__])


async def press(console: Opened, action: Action, effects: Mapping[str, str]) -> bool:
    """Press an action's key and look for its effect, or for its reason; tell whether it acted."""
    before, why_not = told(console), action.why_not(console.app.scene())
    await console.press(action.keys[0])
    said = [text for key, text in told(console).items() if key not in before]
    if why_not is not None:
        assert said == [why_not], action.id
        return False
    assert action.id in effects, f"{action.id} acts here: say in EFFECTS what shows it"
    now = seen(console, said)
    wanted = effects[action.id]
    parts = wanted.split() if wanted[0].isupper() and " " in wanted else [wanted]
    assert any(part in now for part in parts), f"{action.id}: {wanted} is not in\n{now}"
    return True
