"""What holds for every test, wherever and however the suite is started."""

import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts the suite in the background has it ignore the key for interrupting, and all
# that tests start would ignore it too: they send it on purpose.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run, and none fails because the machine is busy. Others are looked
# for on purpose: pytest --hypothesis-profile=search
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short name: Unix sockets take no path of more than 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="eaglemon-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell what a program wrote that failed or took too long: its exception does not."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, subprocess.CalledProcessError | subprocess.TimeoutExpired):
        for name, wrote in (("stdout", error.stdout), ("stderr", error.stderr)):
            text = wrote.decode(errors="replace") if isinstance(wrote, bytes) else wrote
            if text:
                report.sections.append((f"{name} of {error.cmd}", text))
    return report
