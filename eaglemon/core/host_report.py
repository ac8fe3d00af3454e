"""What a host must have to be worked on, and whether it has it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One line of ``eaglemon hosts check``."""

    name: str
    met: bool | None
    """``None``: it could not be looked at, because one before it failed."""
    needed: bool = True
    """False where the host is usable without it."""
    detail: str = ""
    """What was found, or what is wrong."""
    fix: str = ""
    """The next step where it is not met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """All requirements of one host, in the order in which they are needed."""

    host: str
    requirements: tuple[Requirement, ...]

    @property
    def reachable(self) -> bool:
        """Whether one can log in."""
        return all(one.met for one in self.requirements if one.name in {"ssh", "host key"})

    @property
    def usable(self) -> bool:
        """Whether nothing that is needed is missing."""
        return all(one.met for one in self.requirements if one.needed)
