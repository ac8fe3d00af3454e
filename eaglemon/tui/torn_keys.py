"""Puts together what a link has torn: a key that begins with an escape, in pieces. Pure.

What a terminal sends for a key comes in one piece, but over a busy network it may arrive in
several. An escape after which nothing comes is the key of that name. Should the rest of another key
come soon after it all the same, it is that key, and its letters are no keys of their own.
"""

REST_S = 0.15
"""So long the rest of a key is waited for, from one piece to the next, and after an escape."""
_ESC = "\x1b"
_BEGINS = "[O"
"""What follows the escape in keys that terminals send (CSI, SS3)."""
_PASTE, _PASTE_END = _ESC + "[200~", _ESC + "[201~"
_X10_MOUSE = _ESC + "[M"
_LINUX_FUNCTION = _ESC + "[["


class TornKeys:
    """Takes what arrives and gives it on when it is whole; times are seconds of one clock.

    ``escape_s`` is the silence after which an escape is the key of that name.
    """

    def __init__(self, *, escape_s: float) -> None:
        self._escape_s = escape_s
        self._rest_s = max(REST_S, escape_s)
        self._held = ""
        """The beginning of a key."""
        self._until = 0.0
        """When it is waited for no longer."""
        self._told_until = 0.0
        """Until then what looks like the rest of the escape that was given on last is that."""
        self._told = False
        """The escape that is held was given on already."""
        self._pasting = False
        """In what is pasted no escape is pressed."""

    def wait_s(self, now: float) -> float | None:
        """Return how long nothing can be said without more input; ``None``: nothing is held."""
        return max(0.0, self._until - now) if self._held else None

    def feed(self, data: str, now: float) -> list[str]:
        """Return what is whole now; an escape alone is an item of its own."""
        # Whoever looks late finds both the silence and what came after it.
        is_rest = self._held == _ESC and data[:1] in {*_BEGINS} and now < self._rest_until()
        result = [] if is_rest else self.tick(now)
        whole = ""
        for character in data:
            if not self._held:
                if character in _BEGINS and now < self._told_until:
                    self._hold(_ESC + character, now, told=True)
                elif character == _ESC:
                    self._hold(character, now)
                else:
                    whole += character
                self._told_until = 0.0
            elif character == _ESC:
                result += [*_some(whole), *self._given_up()]
                whole = ""
                self._hold(character, now)
            elif self._held == _ESC and character not in _BEGINS:
                whole += self._taken() + character
            elif not (" " <= character <= "~" or self._held.startswith(_X10_MOUSE)):
                result += [*_some(whole), *self._given_up()]
                whole = character
            else:
                self._hold(self._held + character, now, told=self._told)
                if _is_whole(self._held):
                    self._pasting = self._held == _PASTE or (
                        self._pasting and self._held != _PASTE_END
                    )
                    whole += self._taken()
        return [*result, *_some(whole)]

    def tick(self, now: float) -> list[str]:
        """Return what is known to be whole because nothing more came until ``now``."""
        if not self._held or now < self._until:
            return []
        if self._held == _ESC:
            self._told_until = self._rest_until()
        return self._given_up()

    def _hold(self, text: str, now: float, *, told: bool = False) -> None:
        self._held, self._told = text, told
        self._until = now + (self._escape_s if text == _ESC and not self._pasting else self._rest_s)

    def _rest_until(self) -> float:
        return self._until - self._escape_s + self._rest_s

    def _taken(self) -> str:
        held, self._held = self._held, ""
        return held

    def _given_up(self) -> list[str]:
        told, held = self._told, self._taken()
        if len(held) <= 2:
            # Somebody has pressed an escape and a key, or alt and that key.
            return [held[1:] if told else held]
        # Nobody types so much so quickly: it is what is left of a key.
        return []


def _some(text: str) -> list[str]:
    return [text] if text else []


def _is_whole(text: str) -> bool:
    """Tell whether a sequence after an escape has its last character (ECMA-48)."""
    last = text[-1]
    if text.startswith(_X10_MOUSE):
        return len(text) == len(_X10_MOUSE) + 3
    if len(text) == 2 or text == _LINUX_FUNCTION:
        return False
    return "@" <= last <= "~"
