"""The last line: the keys that can act now."""

from textual import events
from textual.content import Content
from textual.widget import Widget

from eaglemon.tui.actions import ACTIONS, Action, Scene, shown_key
from eaglemon.tui.columns import joined

_LAST = ("palette", "help", "quit")
_KNOWN = ("palette", "back")
_ROOM_FOR_WORDS = 60


class KeyLine(Widget):
    """Keys of the actions that matter on this screen; a click does the same as the key."""

    DEFAULT_CSS = """
    KeyLine { height: 1; padding: 0 1; background: $panel; dock: bottom; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._scene: Scene | None = None
        self._places: list[tuple[int, int, str]] = []

    def show(self, scene: Scene) -> None:
        """Show what can be done in ``scene``."""
        if scene != self._scene:
            self._scene = scene
            self.refresh()

    def render(self) -> Content:
        """Draw what fits; help and quit always."""
        if self._scene is None:
            return Content("")
        width = self.size.width
        scene = self._scene
        reserved = _LAST if scene.screen == "fleet" else ("back", *_LAST)
        # Where there is little room, the keys that are the same everywhere go without their words.
        bare = _KNOWN if width < _ROOM_FOR_WORDS else ()
        last = [(a.id, _key(a, scene, bare=a.id in bare)) for a in ACTIONS if a.id in reserved]
        shown: list[tuple[str, Content]] = []
        used = sum(key.cell_length + 2 for _, key in last)
        for action in ACTIONS:
            if action.id in reserved or not _belongs(action, scene):
                continue
            key = _key(action, scene)
            if used + key.cell_length + 2 > width:
                continue
            used += key.cell_length + 2
            shown.append((action.id, key))
        self._places = []
        x = 0
        for action_id, key in [*shown, *last]:
            self._places.append((x, x + key.cell_length, action_id))
            x += key.cell_length + 2
        return Content("  ").join([key for _, key in [*shown, *last]])

    async def on_click(self, event: events.Click) -> None:
        """Carry out the action whose key was clicked."""
        offset = event.get_content_offset(self)
        for start, end, action_id in self._places:
            if offset is not None and start <= offset.x < end:
                await self.run_action(f"app.act('{action_id}')")


def _belongs(action: Action, scene: Scene) -> bool:
    if action.why_not(scene) is not None:
        return False
    if action.id == "cancel":
        return True
    if not action.important:
        return False
    if action.id == "back":
        return scene.filtered
    if action.id == "start" and scene.screen == "server":
        return scene.server is not None and scene.server.state.ended
    return not action.screens or scene.screen in action.screens


def _key(action: Action, scene: Scene, *, bare: bool = False) -> Content:
    if bare:
        return Content.styled(shown_key(action), "bold $accent")
    label = action.label
    if action.id == "pause" and scene.paused:
        label = "go on"
    elif action.id == "cancel" and scene.probing:
        label = "cancel probe"
    elif action.id == "cancel" and scene.restarting:
        label = "call off restart"
    return joined(
        Content.styled(shown_key(action), "bold $accent"),
        f" {label}",
    )
