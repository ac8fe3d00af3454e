"""Two consoles never hold the same claim, in whatever order they come."""

import contextlib
import errno
import fcntl
import time
from pathlib import Path
from typing import Any

import pytest

from eaglemon.errors import UsageError
from eaglemon.io.claims import claim, held


def test_a_claim_is_held_by_one_and_leaves_nothing(tmp_path: Path) -> None:
    assert not held(tmp_path, "x")
    with claim(tmp_path / "new", "x"):
        assert held(tmp_path / "new", "x")
        with pytest.raises(UsageError, match="under way in another console"):
            contextlib.ExitStack().enter_context(claim(tmp_path / "new", "x"))
    assert list((tmp_path / "new").iterdir()) == []


def test_the_file_of_a_claim_that_ended_meanwhile_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = contextlib.ExitStack()
    first.enter_context(claim(tmp_path, "x"))
    real = fcntl.flock

    def ends_before(file: Any, how: int) -> None:
        # The file is open already: now its owner removes it and lets go.
        first.close()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", ends_before)
    with claim(tmp_path, "x"):
        assert held(tmp_path, "x")
        with pytest.raises(UsageError, match="under way"):
            contextlib.ExitStack().enter_context(claim(tmp_path, "x"))


def test_who_only_looks_keeps_nobody_from_claiming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    looking = path.open("w")
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: looking.close())
    with claim(tmp_path, "x"):
        assert held(tmp_path, "x")


def test_locks_that_break_are_told_and_without_locks_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.EIO, "Input/output error")

    def none(*_: object) -> None:
        raise error

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(UsageError, match=r"x\.lock: cannot be locked: input/output error"):
        contextlib.ExitStack().enter_context(claim(tmp_path, "x"))
    error = OSError(errno.ENOLCK, "No locks available")
    with claim(tmp_path, "x"):
        assert not held(tmp_path, "x")
