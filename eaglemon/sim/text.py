"""The text that simulated engines answer with, cut into tokens."""

import re
import zlib

_TEXT = """ Speculative decoding asks a small draft model for the next few tokens and lets the large
 target model check them all in one step. The target keeps the longest prefix it agrees with and
 adds one token of its own, so the answer is exactly what the target alone would have written. How
 much is won depends on how often the draft is right: the accept length counts the tokens of one
 step, the bonus token included. A draft that is wired to other layers than those it was trained on
 still runs, still gives the right answer, and is slower than no draft at all. Measure it before you
 believe it: the same prompts, temperature zero, a warm-up thrown away, and a baseline without
 speculation beside it. def fibonacci(n): a, b = 0, 1; return [a := (b, b := a + b)[0] for _ in
 range(n)]. The sum of the first n odd numbers is n squared, because each square grows into the next
 by one odd number of tiles."""

PIECES: tuple[str, ...] = tuple(re.findall(r" ?\w{1,6}| ?[^\w\s]", _TEXT.replace("\n", "")))
"""Tokens; an answer takes them in order from a place that its prompt decides."""

VOCABULARY = 4096


def prompt_tokens(text: str) -> int:
    """Return about how many tokens a prompt has."""
    return max(1, len(re.findall(r"\w{1,6}|[^\w\s]", text)))


def fingerprint(text: str) -> int:
    """Return a number that is the same for the same prompt, in every process."""
    return zlib.crc32(text.encode())


class Answer:
    """The answer to one prompt: token ``i`` is always the same."""

    def __init__(self, prompt_print: int) -> None:
        self._start = prompt_print % len(PIECES)
        self.natural_length = 160 + prompt_print // 7 % 240
        """Tokens until the model would end by itself."""

    def text(self, begin: int, end: int) -> str:
        """Return the tokens from ``begin`` to ``end`` (exclusive) as text."""
        return "".join(self._piece(index) for index in range(begin, end))

    def ids(self, begin: int, end: int) -> list[int]:
        """Return their ids."""
        return [zlib.crc32(self._piece(index).encode()) % VOCABULARY for index in range(begin, end)]

    def _piece(self, index: int) -> str:
        return PIECES[(self._start + index) % len(PIECES)]
