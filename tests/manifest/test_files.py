"""Atomic writes: the old content or the new one, nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsv4port.manifest.files import write_atomically


def test_new_and_replaced_content(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    for content in (b"one", b"two"):
        write_atomically(file, content)
        assert file.read_bytes() == content
        assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_permissions_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"")
    file.chmod(0o640)
    write_atomically(file, b"x")
    assert file.stat().st_mode & 0o777 == 0o640


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"old")

    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
