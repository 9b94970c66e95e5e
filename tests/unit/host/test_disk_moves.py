"""Folders that move into others, also where a rename is refused."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

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


def test_a_tree_that_is_deeper_than_python_can_go_is_seen_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "deep"
    place.mkdir()
    (place / "link").symlink_to(tmp_path)
    for number in range(1, 51):
        os.mkdir(f"{place}/{'a/' * number}")
    last = f"{place}/{'a/' * 50}x"
    Path(last).touch()
    assert sorted(disk.files_below(str(place))) == [last, f"{place}/link"]
    assert len(list(disk.folders_below(str(place)))) == 50

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", Mock(side_effect=RecursionError))
        disk.remove_tree(str(place))

    assert not place.exists()
    assert tmp_path.exists()
