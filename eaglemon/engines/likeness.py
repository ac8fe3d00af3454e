"""Does what a server tells of itself fit the command line that it was started with?"""

from collections.abc import Iterable


def differing(pairs: Iterable[tuple[str, object, object]]) -> list[str]:
    """Return what differs, in words, of ``(what, wanted, told)``.

    ``None`` on either side is not known, and no difference.
    """
    return [
        f"{what} {told}, not {wanted}"
        for what, wanted, told in pairs
        if wanted is not None and told is not None and str(wanted) != str(told)
    ]


def comparable(wanted: str | None, told: object) -> tuple[str | None, str | None]:
    """Return two model names or paths as they compare, twice ``None`` where they do not.

    A name of a hub may be told as the folder that it was loaded into.
    """
    if wanted is None or not isinstance(told, str):
        return None, None
    if wanted.startswith("/") != told.startswith("/") and told != "none":
        return None, None
    return wanted.rstrip("/"), told.rstrip("/")
