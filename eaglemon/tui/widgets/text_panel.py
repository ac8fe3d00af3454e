"""A panel of prepared lines that is drawn again only when they change."""

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static


class TextPanel(Static):
    """Shows content whose lines already fit; the layout is renewed only for more or fewer lines.

    A new layout draws the whole screen again, which is most of what a quiet console would send to
    its terminal.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._shown = Content("")

    def show(self, content: Content) -> None:
        """Show ``content`` in place of what was shown."""
        before, self._shown = self._shown, content
        if content.plain == before.plain and content.spans == before.spans:
            return
        same_height = content.plain.count("\n") == before.plain.count("\n")
        self.update(content, layout=not same_height or not before.plain)


def set_title(widget: Widget, text: str) -> None:
    """Set the title in a widget's border; one that stays the same draws nothing."""
    title = Content(text)
    if widget.border_title != title.markup:
        widget.border_title = title
