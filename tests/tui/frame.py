"""The screen as text: the one place that reaches into Textual's compositor."""

import os
from pathlib import Path

from textual.app import App

FRAMES = Path(__file__).parent / "frames"


def frame_text(app: App[None]) -> str:
    """Return what is on the screen, one line each, without trailing spaces."""
    strips = app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips]
    return "\n".join(lines) + "\n"


def check_frame(app: App[None], name: str) -> None:
    """Compare the screen with a stored frame; ``UPDATE_FRAMES=1`` stores it instead."""
    path = FRAMES / f"{name}.txt"
    text = frame_text(app)
    if os.environ.get("UPDATE_FRAMES"):
        path.write_text(text, encoding="utf-8")
        return
    assert path.exists(), f"no frame {path.name}: make it with UPDATE_FRAMES=1"
    stored = path.read_text(encoding="utf-8")
    assert text == stored, f"the screen differs from {path.name}:\n{text}"
