"""The error tree: every failure says what happened, where, and what to do next.

An error's class answers "who must act?", and its exit code is what the command line ends with.
Adapters in ``eaglemon.io`` map the exceptions of third-party libraries onto these; nothing above
them ever sees a library's own exception.
"""

from collections.abc import Mapping
from typing import ClassVar

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_TIMEOUT = 4
EXIT_INTERRUPTED = 130


class EaglemonError(Exception):
    """Base of all errors meant for a person.

    ``message`` names what happened and where, in lower case; ``hint`` is the next step.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(EaglemonError):
    """The command or its arguments are wrong: the caller must change them."""

    exit_code = EXIT_USAGE


class ReadOnlyError(UsageError):
    """Something would be changed, and this call of eaglemon only watches."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: this console is read-only", hint="leave out --read-only")


class LaunchRefusedError(UsageError):
    """Nothing was started, because of what stands against the launch: a line for each problem."""


class ConfigError(EaglemonError):
    """A configuration file is wrong: names the file, and line and key where known."""

    exit_code = EXIT_USAGE


class HostError(EaglemonError):
    """A host cannot be reached or refuses us (network, SSH, host key, no python3)."""

    exit_code = EXIT_UNREACHABLE


class HostKeyError(HostError):
    """A host's key is not known, or is another one than before."""


class ForwardingRefusedError(HostError):
    """A host's sshd does not let its ports be connected to: no server there can be asked."""


class LinkLostError(HostError):
    """The connection broke while a request was under way; its outcome is unknown."""


class AgentError(EaglemonError):
    """The agent on the host answered a request with an error (``kind`` is a slug).

    The kinds of ``FIXES`` are for the caller to put right: they end a command with 2.
    """

    FIXES: ClassVar[Mapping[str, str]] = {
        "log-missing": "it was removed on the host",
        "log-unreadable": "see its owner and mode",
        "port-in-use": "stop it first, or choose another port with --set port=N",
        "gpu-in-use": "stop it first, or choose other GPUs with --set gpus=...",
    }

    def __init__(self, message: str, *, kind: str = "agent", hint: str = "") -> None:
        super().__init__(message, hint=hint or self.FIXES.get(kind, ""))
        self.kind = kind
        if kind in self.FIXES:
            self.exit_code = EXIT_USAGE


class ServerError(EaglemonError):
    """The engine failed, or a server is not in the state that an action needs."""


class ProbeError(EaglemonError):
    """A probe could not be carried out or gave nothing to measure."""


class TimeLimitError(EaglemonError):
    """What was waited for did not happen within its time limit."""

    exit_code = EXIT_TIMEOUT


class StoreError(EaglemonError):
    """The history cannot be read or written, or has no such run."""
