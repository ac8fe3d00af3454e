"""A panel of prepared lines that is drawn again only when they change."""

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget


class TextPanel(Widget):
    """Shows content whose lines already fit; the layout is renewed only for more or fewer lines.

    A new layout draws the whole screen again, which is most of what a quiet console would send to
    its terminal.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._shown = Content("")
        self._laid_out: int | None = None

    def show(self, content: Content) -> None:
        """Show ``content`` in place of what was shown."""
        before, self._shown = self._shown, content
        # A layout asked for while another is under way is lost, so what it saw counts.
        grown = self._laid_out is not None and self._laid_out != _height(content)
        if grown or content.plain != before.plain or content.spans != before.spans:
            self.refresh(layout=grown or _height(content) != _height(before))

    def render(self) -> Content:
        """Draw the lines."""
        return self._shown

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines."""
        self._laid_out = _height(self._shown)
        return self._laid_out


def _height(content: Content) -> int:
    return content.plain.count("\n") + 1


def set_title(widget: Widget, text: str) -> None:
    """Set the title in a widget's border; one that stays the same draws nothing."""
    title = Content(text)
    if widget.border_title != title.markup:
        widget.border_title = title
