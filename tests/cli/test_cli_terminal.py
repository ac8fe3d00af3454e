"""What commands write to a terminal: names from outside are shown, never obeyed."""

import json

import pytest

from eaglemon.cli import diagnostics, output
from eaglemon.core.problems import Problem
from eaglemon.core.terminal import harmless

HOSTILE = "a\x1b[2J\x1b]0;title\x07b\x9b31m\rc\u202ed\0"


@pytest.mark.parametrize("number", [*range(9), *range(11, 32), *range(0x7F, 0xA0), 0x2028, 0x202E])
def test_every_control_character_is_written_out(number: int) -> None:
    shown = harmless(f"a{chr(number)}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")


def test_text_that_is_harmless_stays() -> None:
    text = "Ünï (☃)\tcolumn\nsecond line\\x1b"
    assert harmless(text) == text


def test_lines_and_talk_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_lines([HOSTILE])
    diagnostics.talk(HOSTILE)
    diagnostics.fail(HOSTILE)
    diagnostics.warn(HOSTILE)
    diagnostics.list_problems([Problem(where=HOSTILE, message=HOSTILE, hint=HOSTILE)])
    captured = capsys.readouterr()
    for line in (captured.out + captured.err).splitlines():
        assert line.isprintable()
        assert "\\x1b[2J" in line
    assert len(captured.err.splitlines()) == 4
    assert len(captured.out.splitlines()) == 1


def test_json_escapes_what_moves_a_terminal_and_reads_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.write_document("status", {"host": HOSTILE})
    output.write_json_line("status", {"host": HOSTILE})
    out = capsys.readouterr().out
    assert "\x9b" not in out
    assert "\x1b" not in out
    assert json.loads(out.splitlines()[-1])["host"] == HOSTILE
