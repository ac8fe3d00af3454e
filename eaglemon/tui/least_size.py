"""The least terminal that the console can be read in, and what is shown in a smaller one."""

from rich.align import Align
from rich.text import Text

LEAST_COLUMNS = 40
LEAST_ROWS = 10


def is_too_small(columns: int, rows: int) -> bool:
    """Tell whether the console has no room in this terminal."""
    return columns < LEAST_COLUMNS or rows < LEAST_ROWS


def notice(columns: int, rows: int) -> Align:
    """Return what a terminal that is too small shows instead of mutilated panels."""
    size, wanted = f"{columns}x{rows} is too small", f"enlarge to {LEAST_COLUMNS}x{LEAST_ROWS}"
    line = f"{size} / {wanted}"
    if len(line) > columns and rows > 1:
        line = f"{size}\n{wanted}"
    return Align.center(Text(line, justify="center", overflow="crop"), vertical="middle")
