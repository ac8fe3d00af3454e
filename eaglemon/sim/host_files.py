"""What lies on a simulated host: its driver's state, its programs and its environment."""

import os
import sys
from pathlib import Path

import eaglemon
from eaglemon.sim import nvml
from eaglemon.sim.memory import write_gpus

_ENGINE_VERSIONS = {"sglang": "0.5.16", "vllm": "0.32.0"}
_KEPT = ("LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "LOGNAME", "COVERAGE_PROCESS_START")

_PYTHON = """\
#!/bin/sh
exec '{python}' "$@"
"""

# A shell finds the interpreter, however long its path; Python then reads the rest of this file.
_VLLM = """\
#!/bin/sh
'''exec' '{python}' "$0" "$@"
' '''
import sys

from eaglemon.sim.vllm import main

sys.exit(main(sys.argv[1:]))
"""

_LAUNCH_SERVER = """\
import sys

from eaglemon.sim.sglang import main

sys.exit(main(sys.argv[1:]))
"""


def write_host_files(folder: Path, *, gpus: int, first_gpu: int, speed: float) -> dict[str, str]:
    """Write the files of a host into its folder and return the environment of its processes.

    ``python3 -m sglang.launch_server`` and ``vllm serve`` start the simulated engines there; every
    other use of ``python3`` is this very interpreter.
    """
    programs, packages = folder / "bin", folder / "packages"
    write_gpus(folder / "sim", count=gpus, first=first_gpu)
    for path in (programs, packages / "sglang"):
        path.mkdir(parents=True)
    _write_program(programs / "python3", _PYTHON)
    _write_program(programs / "vllm", _VLLM)
    (packages / "sglang" / "__init__.py").write_text(
        f'__version__ = "{_ENGINE_VERSIONS["sglang"]}"\n', "utf-8"
    )
    (packages / "sglang" / "launch_server.py").write_text(_LAUNCH_SERVER, "utf-8")
    for name, version in _ENGINE_VERSIONS.items():
        facts = packages / f"{name}-{version}.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8"
        )
    source = Path(eaglemon.__file__).parent.parent
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment.update(
        HOME=str(folder),
        SHELL="/bin/sh",
        PATH=f"{programs}:/usr/local/bin:/usr/bin:/bin",
        PYTHONPATH=f"{packages}:{source}",
        PYTHONUNBUFFERED="1",
        XDG_STATE_HOME=str(folder / "state"),
        EAGLEMON_PYNVML=nvml.__file__,
        EAGLEMON_SIM_DIR=str(folder / "sim"),
        EAGLEMON_SIM_SPEED=str(speed),
    )
    return environment


def _write_program(path: Path, text: str) -> None:
    path.write_text(text.format(python=sys.executable), "utf-8")
    path.chmod(0o755)
