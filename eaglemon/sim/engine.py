"""``python -m eaglemon.sim.engine sglang|vllm ARGUMENTS``: a simulated engine in the foreground.

The arguments are the engine's own. How it behaves is set by ``EAGLEMON_SIM_*`` variables; see
``eaglemon.sim.settings``.
"""

import sys
from importlib import import_module

from eaglemon.errors import UsageError
from eaglemon.sim.settings import read_settings

ENGINES = ("sglang", "vllm")


def main(argv: list[str] | None = None) -> int:
    """Run the engine that the first argument names; returns its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if sys.platform == "win32":
        raise UsageError("the simulated engines need a Unix host; use Linux, macOS or WSL")
    if not arguments or arguments[0] not in ENGINES:
        raise UsageError(f"name an engine to simulate: {' or '.join(ENGINES)}")
    read_settings()
    module = import_module(f"eaglemon.sim.{arguments[0]}")
    status: int = module.main(arguments[1:])
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.stderr.write(f"eaglemon.sim.engine: {error}\n")
        sys.exit(error.exit_code)
