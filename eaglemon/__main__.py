"""The ``eaglemon`` command and ``python -m eaglemon``: loads the command line and runs it."""

import contextlib
import os

_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process and exit; Ctrl-C counts from here on."""
    try:
        # Imported here because loading takes long enough to be interrupted.
        from eaglemon.cli.main import main as command_line  # noqa: PLC0415

        command_line()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            os.write(2, b"eaglemon: interrupted\n")
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
