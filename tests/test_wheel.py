"""What users install: the wheel and the sdist are really built here, looked into, and run outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import check_wheel
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    (sdist,) = check_wheel.build(ROOT, folder, "sdist")
    for name, content in check_wheel.sdist_content(sdist).items():
        (folder / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "unpacked" / name).write_bytes(content)
    (wheel,) = check_wheel.build(folder / "unpacked", folder, "wheel")
    return wheel, sdist


@pytest.fixture
def wheel(built: tuple[Path, Path]) -> Path:
    return built[0]


@pytest.fixture
def sdist(built: tuple[Path, Path]) -> Path:
    return built[1]


def test_wheel_of_the_sdist_holds_the_package_and_the_tables_of_the_checkout(wheel: Path) -> None:
    assert check_wheel.wheel_faults(ROOT, wheel) == []


def test_sdist_holds_what_building_and_testing_need(sdist: Path) -> None:
    assert check_wheel.sdist_faults(ROOT, sdist) == []


def test_the_manual_of_the_wheel_can_be_read(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("share/man/man1/cudnn-resolve.1"))
        archive.extract(name, tmp_path)
    text = (tmp_path / name).read_text("utf-8")

    assert "\\-\\-driver\\-policy" in text
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings=w", "-l", str(tmp_path / name)], capture_output=True, text=True, check=True)
        assert "EXIT STATUS" in done.stdout
        assert done.stderr == ""


def test_installed_wheel_runs_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, cwd=tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(target), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    where = [sys.executable, "-c", "import cudnn_resolve; print(cudnn_resolve.__file__)"]
    argv = [sys.executable, "-m", "cudnn_resolve", "matrix", "list"]

    imported = subprocess.run(where, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert imported.stdout.startswith(str(target))
    assert (done.returncode, done.stderr) == (0, "")
    assert "tensorflow" in done.stdout
    assert "torch" in done.stdout
    assert not (tmp_path / "cache").exists(), "tables were compiled although the wheel has them compiled"


@pytest.mark.parametrize(
    ("drop", "add", "fault"),
    [
        ("cudnn_resolve/_matrices/", None, "wheel: cudnn_resolve/_matrices/"),
        ("cudnn_resolve/errors.py", None, "wheel: cudnn_resolve/errors.py is missing"),
        (None, "tests/conftest.py", "wheel: tests/conftest.py is unexpected"),
        (".dist-info/entry_points.txt", None, "wheel: there is no command"),
        (".dist-info/licenses/LICENSE", None, "wheel: the licence is missing"),
        (".dist-info/METADATA", None, "wheel: no METADATA"),
    ],
)
def test_a_fault_in_the_wheel_is_seen(wheel: Path, tmp_path: Path, drop: str | None, add: str | None, fault: str) -> None:
    content = check_wheel.wheel_content(wheel)
    broken = tmp_path / wheel.name
    with zipfile.ZipFile(broken, "w") as archive:
        for name, data in content.items():
            if drop is None or drop not in name:
                archive.writestr(name, data)
        if add is not None:
            archive.writestr(add, b"")

    assert any(said.startswith(fault) for said in check_wheel.wheel_faults(ROOT, broken))


def test_a_fault_in_the_sdist_is_seen(tmp_path: Path) -> None:
    broken = tmp_path / "cudnn_resolve-0.tar.gz"
    with tarfile.open(broken, "w:gz") as archive:
        archive.add(ROOT / "pyproject.toml", "cudnn_resolve-0/pyproject.toml")

    faults = check_wheel.sdist_faults(ROOT, broken)

    assert "sdist: README.md is missing" in faults
    assert "sdist: cudnn_resolve: errors.py is missing" in faults
