"""The state diagram of the documentation is what the machine does."""

import importlib.util
from pathlib import Path
from types import ModuleType

from eaglemon.core.views import ServerState

DOCS = Path(__file__).parents[2] / "docs"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_diagram", DOCS / "make_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_diagram_is_fresh() -> None:
    page = (DOCS / "lifecycle.md").read_text(encoding="utf-8")
    assert _script().fresh(page) == page, "run python docs/make_diagram.py"


def test_every_event_with_a_rule_is_drawn() -> None:
    assert _script().untried() == set()


def test_every_state_is_reached() -> None:
    reached = {after for _, after in _script().moves()}
    assert reached | {ServerState.PREFLIGHT} == set(ServerState)
