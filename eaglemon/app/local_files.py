"""Files of this computer that the console may read and have edited."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eaglemon.app.api import Drafts, Eaglemon
    from eaglemon.core.hosts import HostSpec
    from eaglemon.io.config import ProfileStore

_LINE = re.compile(r":\d+$")


class ConfigFiles:
    """Implements ``eaglemon.app.api.LocalFiles`` for the profiles of one console.

    ``read_only``: drafts are looked at and not written.
    """

    def __init__(self, load: "Callable[[], ProfileStore]", *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._profiles: ProfileStore | None = None
        self._load = load

    def read(self) -> "ProfileStore":
        """Read the profiles for the first time; what is returned follows ``reload``."""
        self._profiles = self._load()
        return self._profiles

    def profile_file(self, source: str) -> Path | None:
        """Return the file that ``source`` names, without its line; packaged ones are not edited."""
        path = Path(_LINE.sub("", source))
        return path if path.is_file() else None

    def reload(self) -> None:
        """Read the profiles again."""
        if self._profiles is not None:
            self._profiles.take(self._load())

    def ssh_hosts(self) -> "Sequence[HostSpec]":
        """Return the hosts that ``~/.ssh/config`` names."""
        # Imported here because only a console without hosts of its own asks at once.
        from eaglemon.io.host_keep import offered_hosts  # noqa: PLC0415

        return offered_hosts()

    def named_host(self, name: str, known: "Sequence[HostSpec]" = ()) -> "HostSpec":
        """Return the host that ``[user@]name[:port]`` means; raises ``UsageError``."""
        from eaglemon.io.host_config import host_named, load_hosts  # noqa: PLC0415

        hosts = {spec.name: spec for spec in (*load_hosts(), *known)}
        return host_named(name, tuple(hosts.values()))

    def keep_host(self, spec: "HostSpec") -> Path:
        """Add a host to the user's ``hosts.toml`` and return the file."""
        from eaglemon.io.host_keep import keep_host  # noqa: PLC0415

        return keep_host(spec)

    def drafts(self, console: "Eaglemon") -> "Drafts":
        """Return what looks at drafts where they lie."""
        # Imported here because few look at a draft, and the first picture would wait for it.
        from eaglemon.app.drafts import DraftDesk  # noqa: PLC0415

        return DraftDesk(console, read_only=self._read_only)
