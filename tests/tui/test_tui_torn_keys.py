"""Keys that a link has torn into pieces, by a clock of the test's own."""

from itertools import pairwise

import pytest

from eaglemon.tui.torn_keys import REST_S, TornKeys

ESCAPE_S = 0.025
KEYS = ["\x1b[A", "\x1bOP", "\x1b[15~", "\x1b[1;5C", "\x1b[[A", "\x1b[<0;10;5M", "\x1b[M !!"]


def given_on(pieces: list[str], gap_s: float) -> list[str]:
    """Return what is given on of pieces that come ``gap_s`` after each other."""
    torn, now, seen = TornKeys(escape_s=ESCAPE_S), 100.0, list[str]()
    for piece in pieces:
        seen += torn.feed(piece, now)
        until = now + gap_s
        # As the thread of keys looks: when nothing is waited for any longer.
        while (wait_s := torn.wait_s(now)) is not None and now + wait_s < until:
            now += wait_s
            seen += torn.tick(now)
        now = until
    return [*seen, *torn.tick(now + 1.0)]


@pytest.mark.parametrize("gap_s", [0.0, 0.01, 0.035, 0.06, 0.12])
@pytest.mark.parametrize("key", KEYS)
def test_no_piece_of_a_key_is_a_letter(key: str, gap_s: float) -> None:
    for cuts in range(2 ** (len(key) - 1)):
        places = [0, *(i for i in range(1, len(key)) if cuts >> (i - 1) & 1), len(key)]
        pieces = [key[begin:end] for begin, end in pairwise(places)]
        # At worst an escape is told too early; what follows it is the key all the same.
        early = pieces[0] == "\x1b" and gap_s > ESCAPE_S
        assert given_on(pieces, gap_s) == (["\x1b", key] if early else [key]), pieces


def test_whoever_looks_late_takes_the_rest_for_the_rest() -> None:
    torn = TornKeys(escape_s=ESCAPE_S)
    assert torn.feed("\x1b", 0.0) == []
    assert torn.feed("[Aj", 0.1) == ["\x1b[Aj"]


@pytest.mark.parametrize(
    ("pieces", "gap_s", "expected"),
    [
        (["\x1b"], 0.0, ["\x1b"]),
        (["\x1b", "\x1b"], 0.01, ["\x1b", "\x1b"]),
        # Pressed one after the other, however quickly.
        (["\x1b", "["], REST_S, ["\x1b", "["]),
        (["\x1b", "["], 0.1, ["\x1b", "["]),
        (["\x1b", "j"], 0.03, ["\x1b", "j"]),
        (["\x1bj"], 0.0, ["\x1bj"]),
        (["\x1b["], 0.0, ["\x1b["]),
        (["a\x1b[Bc", "\x1b\x1b[C"], 0.0, ["a\x1b[Bc", "\x1b", "\x1b[C"]),
        (["\x1b[200~a\x1b", "[201~"], 0.1, ["\x1b[200~a", "\x1b[201~"]),
        # What is left of a key whose end never comes.
        (["\x1b[1;", "j"], 0.5, ["j"]),
        (["\x1b[1;\r"], 0.0, ["\r"]),
    ],
)
def test_what_was_pressed_is_given_on(pieces: list[str], gap_s: float, expected: list[str]) -> None:
    assert given_on(pieces, gap_s) == expected
