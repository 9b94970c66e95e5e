"""Folders that move into others, also where a rename is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cudnn_resolve.errors import WorldError
from cudnn_resolve.host import disk


def filled(folder: Path) -> Path:
    for name in ("new/deep/a.txt", "there/b.txt", "c.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.mark.parametrize("mounts", [1, 2])
def test_a_tree_moves_among_what_is_there(tmp_path: Path, mounts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = filled(tmp_path / "source"), tmp_path / "target"
    (target / "there").mkdir(parents=True)
    real = os.rename

    def rename(one: str, other: str) -> None:
        if mounts == 2 and str(one).startswith(str(source)):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(one, other)

    monkeypatch.setattr(os, "rename", rename)
    assert disk.can_rename(str(source), str(target)) is (mounts == 1)
    disk.move_tree(str(source), str(target), (str(target),))

    found = {path.relative_to(target).as_posix(): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert found == {name: name for name in ("new/deep/a.txt", "there/b.txt", "c.txt")}


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    source, target, out = filled(tmp_path / "source"), tmp_path / "target", tmp_path / "out"
    out.mkdir()
    target.mkdir()
    (target / "there").symlink_to(out)

    with pytest.raises(WorldError, match="leads out of the environment"):
        disk.move_tree(str(source), str(target), (str(target),))

    assert os.listdir(out) == []
