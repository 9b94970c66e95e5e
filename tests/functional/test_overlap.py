"""A wheel that lays its files over those of another package: told before anything changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apply_world import lend_pip
from tests.functional.test_apply_cli import Bench
from tests.small_wheels import write_wheel


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    lend_pip(next(made.venv.glob("lib/python3*/site-packages")))
    return made


def locked(bench: Bench, **contents: dict[str, str | bytes]) -> None:
    """A lock of wheels with these files."""
    lines = ['lock-version = "1.0"', 'created-by = "a test"']
    for package, files in contents.items():
        file = write_wheel(bench.wheels, package, "1.0", files)
        wheel = f'{{name = "{file.filename}", path = "wheels/{file.filename}", hashes = {{sha256 = "{file.hashes["sha256"]}"}}}}'
        lines += ["[[packages]]", f'name = "{package}"', 'version = "1.0"', f"wheels = [{wheel}]"]
    (bench.base / "pylock.toml").write_text("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_two_wheels_with_one_file(bench: Bench, installer: str) -> None:
    common: dict[str, str | bytes] = {"shared/__init__.py": "", "shared/same.py": "X = 1\n"}
    locked(bench, first={**common, "shared/core.py": "WHO = 'first'\n"}, second={**common, "shared/core.py": "WHO = 'second'\n"})

    done = bench("--installer", installer)

    assert done.returncode == 0, done
    said = done.stdout + done.stderr
    assert "second and first both own a file" in said
    assert "/shared/core.py): the package installed last overwrites the other" in said
    assert "same.py" not in said


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_wheel_over_files_of_a_package_that_stays(bench: Bench, installer: str) -> None:
    locked(bench, first={"shared/__init__.py": "", "shared/core.py": "WHO = 'first'\n", "shared/more.py": "1\n"})
    assert bench("-q").returncode == 0
    (bench.base / "pylock.toml").unlink()
    locked(bench, second={"shared/__init__.py": "", "shared/core.py": "WHO = 'second'\n", "shared/more.py": "2\n"})

    done = bench("--installer", installer)

    assert "second and first both own 2 files" in done.stdout + done.stderr, done


@pytest.mark.slow
def test_a_new_version_of_a_package_lies_over_nothing(bench: Bench) -> None:
    locked(bench, first={"shared/core.py": "WHO = 'first'\n"})
    assert bench("-q").returncode == 0
    path = bench.lock(("first", "2.0"))

    assert "both own" not in (done := bench(str(path))).stdout + done.stderr
