"""The script that tries real wheels touches nothing but the folder that it made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import validate_wheels


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user in which things have the names that the script uses, too; nothing is really installed."""
    for name in ("torch", "tfjax", "old", "new", "staged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("mine", "utf-8")
    monkeypatch.setattr(validate_wheels, "uv_program", lambda: "uv")
    monkeypatch.setattr(validate_wheels, "install", lambda folder, _uv: (folder / "torch").mkdir(exist_ok=True))
    monkeypatch.setattr(validate_wheels, "stage", lambda folder: (folder / "staged").mkdir())
    monkeypatch.setattr(validate_wheels, "TRIALS", ())
    return tmp_path


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("keep", [True, False])
def test_only_what_it_made_is_deleted(folder: Path, keep: bool) -> None:  # noqa: FBT001 - a parameter of a test
    before = everything(folder)

    for _ in range(2):
        assert validate_wheels.main(["--folder", str(folder), *(["--keep"] if keep else [])]) == 0

    own = validate_wheels.OWN
    assert everything(folder) - before == ({own, f"{own}/{validate_wheels.MARK}", f"{own}/torch"} if keep else set())
    assert before <= everything(folder)


def test_a_failure_deletes_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(folder)
    monkeypatch.setattr(validate_wheels, "stage", lambda _folder: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        validate_wheels.main(["--folder", str(folder)])
    assert everything(folder) == before


@pytest.mark.parametrize("link", [True, False])
def test_a_folder_of_that_name_that_it_did_not_make_is_left_alone(folder: Path, link: bool) -> None:  # noqa: FBT001 - a parameter of a test
    own = folder / validate_wheels.OWN
    if link:
        own.symlink_to(folder / "torch")
    else:
        shutil.copytree(folder / "torch", own)
    before = everything(folder)

    with pytest.raises(SystemExit, match="was not made by this script"):
        validate_wheels.main(["--folder", str(folder)])
    assert everything(folder) == before


def test_without_uv_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    with pytest.raises(SystemExit, match="uv is needed"):
        validate_wheels.main(["--folder", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()
