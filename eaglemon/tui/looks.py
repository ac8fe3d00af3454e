"""How states look: one word, one glyph and one colour name each, so that none needs the colour.

Colour names are theme variables (see ``theming.SEMANTIC_DEFAULTS``); no colours live here.
"""

from dataclasses import dataclass

from textual.content import Content

from eaglemon.core.hosts import LinkState
from eaglemon.core.views import HealthVerdict, PhaseState, ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The look of one state."""

    glyph: str
    word: str
    style: str
    """A style in terms of theme variables."""

    def content(self, *, width: int | None = None) -> Content:
        """Return glyph and word, padded to ``width`` cells where given."""
        text = f"{self.glyph} {self.word}"
        return Content.styled(text if width is None else text.ljust(width)[:width], self.style)


def _look(glyph: str, word: str, style: str) -> Look:
    return Look(glyph=glyph, word=word, style=style)


SERVER_LOOKS: dict[ServerState, Look] = {
    ServerState.PREFLIGHT: _look("○", "PREFLIGHT", "$state-starting"),
    ServerState.SPAWNING: _look("◔", "SPAWNING", "$state-starting"),
    ServerState.STARTING: _look("◑", "STARTING", "$state-starting"),
    ServerState.WARMING: _look("◕", "WARMING", "$state-starting"),
    ServerState.READY: _look("●", "READY", "bold $state-ready"),
    ServerState.BUSY: _look("◆", "BUSY", "bold $state-busy"),
    ServerState.UNHEALTHY: _look("▲", "UNHEALTHY", "bold $state-warning"),
    ServerState.STOPPING: _look("▼", "STOPPING", "$state-warning"),
    ServerState.RELEASING: _look("▽", "RELEASING", "$state-warning"),
    ServerState.STOPPED: _look("■", "STOPPED", "$state-ended"),
    ServerState.FAILED: _look("✗", "FAILED", "bold $state-failed"),
    ServerState.LOST: _look("?", "LOST", "bold $state-warning"),
}

STALLED = _look("!", "STALLED", "bold $state-warning")
"""Shown in place of a starting state whose log does not move."""

LINK_LOOKS: dict[LinkState, Look] = {
    LinkState.IDLE: _look("○", "IDLE", "$state-ended"),
    LinkState.CONNECTING: _look("◌", "CONNECTING", "$state-starting"),
    LinkState.UP: _look("●", "UP", "$state-ready"),
    LinkState.STALE: _look("▲", "STALE", "bold $state-warning"),
    LinkState.DEGRADED: _look("▲", "DEGRADED", "$state-warning"),
    LinkState.DOWN: _look("✗", "DOWN", "bold $state-failed"),
}

PHASE_LOOKS: dict[PhaseState, Look] = {
    PhaseState.PENDING: _look("·", "pending", "$quiet"),
    PhaseState.ACTIVE: _look("▶", "active", "bold $state-starting"),
    PhaseState.DONE: _look("✓", "done", "$state-ready"),
    PhaseState.FAILED: _look("✗", "failed", "bold $state-failed"),
    PhaseState.SKIPPED: _look("-", "not seen", "$quiet"),
    PhaseState.ENDED: _look("■", "ended", "$quiet"),
}

HEALTH_LOOKS: dict[HealthVerdict, Look] = {
    HealthVerdict.UNKNOWN: _look("○", "not polled", "$quiet"),
    HealthVerdict.REFUSED: _look("◌", "refused: nothing listens yet", "$state-starting"),
    HealthVerdict.STARTING: _look("◑", "starting", "$state-starting"),
    HealthVerdict.OK: _look("●", "ok", "$state-ready"),
    HealthVerdict.BAD: _look("▲", "bad", "bold $state-warning"),
    HealthVerdict.TIMED_OUT: _look("▲", "timed out", "bold $state-warning"),
}
