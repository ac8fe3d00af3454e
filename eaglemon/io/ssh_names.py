"""Names of hosts in ``~/.ssh/config``, to offer where hosts are to be named."""

from collections.abc import Iterator
from pathlib import Path

_PATTERN = frozenset("*?!")
_MOST_FILES = 50


def ssh_names(config: Path | None = None) -> tuple[str, ...]:
    """Return the literal names of all ``Host`` lines, in order, files of ``Include`` too.

    Patterns are left out, and so is a file that cannot be read: these are offers only.
    """
    start = config or Path.home() / ".ssh" / "config"
    return tuple(dict.fromkeys(_names(start, start.parent, set())))


def _names(path: Path, folder: Path, seen: set[Path]) -> Iterator[str]:
    if path in seen or len(seen) >= _MOST_FILES:
        return
    seen.add(path)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Nothing to offer: whoever connects is told by ssh itself.
        return
    for line in text.splitlines():
        key, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        words = rest.split("#", 1)[0].split()
        if key.lower() == "host":
            yield from (word for word in words if not _PATTERN & set(word))
        elif key.lower() == "include":
            for word in words:
                pattern = Path(word).expanduser()
                base, name = (pattern.parent, pattern.name)
                if not pattern.is_absolute():
                    base = folder / base
                for found in sorted(base.glob(name)):
                    yield from _names(found, folder, seen)
