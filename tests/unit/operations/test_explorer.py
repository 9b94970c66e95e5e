"""The joint maps of the explorer: which releases they show, and that what is computed is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudnn_resolve.cli.main import main
from cudnn_resolve.errors import WorldError
from cudnn_resolve.host import disk
from cudnn_resolve.host.pool import spread
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.host.user_folders import cache_folder
from cudnn_resolve.operations import explorer
from cudnn_resolve.operations.explorer import joint_maps, newest_of_minors
from cudnn_resolve.resolution.joint_map import BuildReach

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

SHIPPED: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def test_the_newest_release_of_each_minor_is_shown() -> None:
    found = newest_of_minors(open_book(), "torch")

    assert found.index("2.7.1") == found.index("2.8.0") + 1
    assert "2.7.0" not in found


def test_of_a_minor_with_dozens_of_releases_one_of_each_quarter_is_shown() -> None:
    found = [one for one in newest_of_minors(open_book(), "jax") if one.startswith("0.4.")]

    assert 5 < len(found) < 10


@pytest.mark.slow
def test_what_an_earlier_run_computed_is_read_and_half_a_line_is_computed_again() -> None:
    joints, computed = joint_maps(SHIPPED, 1)
    assert computed == 6
    assert [len(one.pairs) for one in joints] == [1] * 6

    folder = os.path.join(cache_folder() or "", "joint")
    (name,) = os.listdir(folder)
    kept = Path(folder, name)
    kept.write_bytes(kept.read_bytes()[:-40])

    again, computed = joint_maps(SHIPPED, 1)
    assert computed == 1
    assert again == joints
    assert joint_maps(SHIPPED, 1) == (joints, 0)


def test_where_frameworks_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(book: Book, framework: str) -> tuple[BuildReach, ...]:
        asked.append(framework)
        return tuple(BuildReach(build=one, pythons={"3.11": ("525.60.13", None)}) for one in book.framework(framework).builds[:2])

    def draw(_book: Book, reaches: dict[str, list[BuildReach]], *_: object) -> dict[str, str]:
        shown.append({name: list(one) for name, one in reaches.items()})
        return {}

    asked: list[str] = []
    shown: list[dict[str, list[BuildReach]]] = []
    monkeypatch.setattr(explorer, "reach", reach)
    monkeypatch.setattr(explorer, "joint_maps", lambda *_: ((), 0))
    monkeypatch.setattr(explorer, "pages", draw)

    for _ in range(2):
        explorer.write_site(SHIPPED, str(tmp_path))

    assert asked == list(shown[0])
    assert shown[0] == shown[1]


def test_pages_need_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "file"
    there.write_text("")

    assert main(["matrix", "html"]) == 2
    assert main(["matrix", "html", "-o", str(tmp_path / "site"), "--format", "json"]) == 2
    assert not (tmp_path / "site").exists()
    assert "name it: -o site" in capsys.readouterr().err
    assert main(["matrix", "html", "-o", str(there)]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["matrix", "html", "torch", "-o", str(tmp_path / "site")]) == 2


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "joint_maps", None)
    (tmp_path / "file").write_text("")
    assert main(["matrix", "html", "-o", str(tmp_path / "file" / "site")]) == 3
    monkeypatch.setattr(disk, "writable", lambda _: False)
    assert main(["matrix", "html", "-o", str(tmp_path / "site")]) == 3
    assert "cannot write to" in capsys.readouterr().err


def test_a_page_of_something_else_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("mine")
    assert main(["matrix", "html", "-o", str(tmp_path)]) == 2
    assert "holds an unrelated index.html" in capsys.readouterr().err
    assert (tmp_path / "index.html").read_text() == "mine"


def test_a_process_that_was_killed_is_no_internal_error() -> None:
    with pytest.raises(WorldError, match="was killed"):
        list(spread(os._exit, [1]))
