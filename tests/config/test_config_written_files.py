"""Files are written whole or not at all, keep their mode and their links, and lose no entry."""

import errno
import os
import threading
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import UsageError
from eaglemon.io.files import write_new, write_text
from eaglemon.io.host_config import load_hosts
from eaglemon.io.host_keep import keep_host


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_private_file_stays_private_and_a_link_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "hosts.toml"
    real.parent.mkdir()
    real.write_text("", encoding="utf-8")
    real.chmod(0o600)
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "hosts.toml").symlink_to(real)
    keep_host(HostSpec(name="gpu-a"), folder)
    assert (folder / "hosts.toml").is_symlink()
    assert "gpu-a" in real.read_text(encoding="utf-8")
    assert mode_of(real) == 0o600
    assert sorted(entry.name for entry in folder.iterdir()) == ["hosts.toml"]
    assert sorted(entry.name for entry in real.parent.iterdir()) == ["hosts.toml"]


def test_a_new_file_is_as_public_as_any_and_the_mask_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "umask")
    (tmp_path / "any").touch()
    write_text(tmp_path / "new", "é\n")
    assert (tmp_path / "new").read_bytes() == "é\n".encode()
    assert mode_of(tmp_path / "new") == mode_of(tmp_path / "any")
    again = [write_new(tmp_path, "r", ".html", text) for text in ("1", "2")]
    assert [path.name for path in again] == ["r.html", "r-2.html"]
    assert [path.read_text() for path in again] == ["1", "2"]
    assert mode_of(again[1]) == mode_of(tmp_path / "any")


def test_what_cannot_be_written_whole_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_text("as it was", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="old: cannot be written: no space left on device"):
        write_text(tmp_path / "old", "new")
    with pytest.raises(UsageError, match=r"r\.html: cannot be written: no space left on device"):
        write_new(tmp_path, "r", ".html", "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text(encoding="utf-8") == "as it was"


def test_two_consoles_that_keep_a_host_at_once_keep_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, second, place = write_text, threading.Thread(), "eaglemon.io.host_keep.write_text"

    def write_late(path: Path, text: str) -> None:
        # The file was read: now another console comes, which must wait for this one.
        nonlocal second
        monkeypatch.setattr(place, real)
        second = threading.Thread(target=keep_host, args=(HostSpec(name="gpu-b"), tmp_path))
        second.start()
        second.join(0.3)
        real(path, text)

    monkeypatch.setattr(place, write_late)
    keep_host(HostSpec(name="gpu-a"), tmp_path)
    second.join(60)
    found = [spec.name for spec in load_hosts(project=tmp_path / "none", user=tmp_path)]
    assert found == ["gpu-a", "gpu-b", "local"]
