"""The start-up as a grid of phases: done with their times, the active one with its progress."""

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from eaglemon.core import units
from eaglemon.core.phases import PHASE_TITLES
from eaglemon.core.views import PhaseState, PhaseView
from eaglemon.tui.columns import bar, joined, left, lines, right
from eaglemon.tui.looks import PHASE_LOOKS

_TITLE_WIDTH = 11
_TIME_WIDTH = 9
_COUNT_WIDTH = 7
_CELL_WIDTH = 2 + _TITLE_WIDTH + _TIME_WIDTH + 1 + _COUNT_WIDTH
_GAP = 3


class PhaseTrack(Widget):
    """Phases in columns of fixed width, so that a running clock moves nothing beside it."""

    DEFAULT_CSS = """
    PhaseTrack { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._phases: tuple[PhaseView, ...] = ()

    def show(self, phases: tuple[PhaseView, ...]) -> None:
        """Show these phases, in order."""
        if phases == self._phases:
            return
        changed_height = len(phases) != len(self._phases) or _stages(phases) != _stages(
            self._phases
        )
        self._phases = phases
        self.refresh(layout=changed_height)

    def render(self) -> Content:
        """Draw the grid and the stages of the phase under way."""
        return lines(track_lines(self._phases, self.size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return as many lines as the phases need at ``width``."""
        return max(1, len(track_lines(self._phases, width)))


def track_lines(phases: Sequence[PhaseView], width: int) -> list[Content]:
    """Return the lines of the track in ``width`` cells: phases by column, then stages.

    In a single column the stages stand below their phase.
    """
    if not phases:
        return [Content.styled("no phase seen yet", "$quiet")]
    columns = max(1, min(4, (width + _GAP) // (_CELL_WIDTH + _GAP)))
    result: list[Content] = []
    if columns == 1:
        for phase in phases:
            result += [_cell(phase), *_active(phase, width)]
        return result
    height = -(-len(phases) // columns)
    for row in range(height):
        cells = [_cell(phases[index]) for index in range(row, len(phases), height)]
        result.append(Content(" " * _GAP).join(cells))
    for phase in phases:
        result += _active(phase, width)
    return result


def _stages(phases: Sequence[PhaseView]) -> list[tuple[str, int]]:
    return [(phase.state, len(phase.stages)) for phase in phases]


def _cell(phase: PhaseView) -> Content:
    look = PHASE_LOOKS[phase.state]
    seen = phase.state not in {PhaseState.PENDING, PhaseState.SKIPPED}
    title = "" if seen else "$quiet"
    if phase.state is PhaseState.ACTIVE:
        title = look.style
    time = units.duration(phase.elapsed_s) if seen and phase.elapsed_s is not None else ""
    if phase.state is PhaseState.SKIPPED:
        time = look.word
    return joined(
        Content.styled(f"{look.glyph} ", look.style),
        left(PHASE_TITLES[phase.phase], _TITLE_WIDTH, title),
        right(time, _TIME_WIDTH, "" if seen else "$quiet"),
        " ",
        left(_count(phase.done, phase.total) if seen else "", _COUNT_WIDTH, "$quiet"),
    )


def _active(phase: PhaseView, width: int) -> list[Content]:
    if phase.state not in {PhaseState.ACTIVE, PhaseState.FAILED}:
        return []
    if phase.stages:
        result = []
        for number, stage in enumerate(phase.stages):
            last = number == len(phase.stages) - 1
            style = "$state-starting" if last else "$quiet"
            if phase.state is PhaseState.FAILED and last:
                style = "$state-failed"
            figures = (stage.done, stage.total)
            result.append(
                _progress_line(stage.name, stage.elapsed_s, figures, style=style, width=width)
            )
        return result
    if phase.done is None or not phase.total:
        return []
    style = "$state-failed" if phase.state is PhaseState.FAILED else "$state-starting"
    title = PHASE_TITLES[phase.phase]
    figures = (phase.done, phase.total)
    return [_progress_line(title, phase.elapsed_s, figures, style=style, width=width)]


def _progress_line(
    name: str,
    elapsed_s: float | None,
    figures: tuple[int | None, int | None],
    *,
    style: str,
    width: int,
) -> Content:
    done, total = figures
    parts: list[Content | str] = [
        "  ",
        left(name, 20, style),
        right(units.duration(elapsed_s), _TIME_WIDTH),
        " ",
        right(_count(done, total), _COUNT_WIDTH),
    ]
    room = min(40, width - 20 - _TIME_WIDTH - _COUNT_WIDTH - 5)
    if done is not None and total and room >= 6:
        parts += ["  ", bar(done / total, room, style)]
    return joined(*parts)


def _count(done: int | None, total: int | None) -> str:
    return f"{done}/{total}" if done is not None and total else ""
