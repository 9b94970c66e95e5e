"""The Pythons of this machine, found when tests run, and virtual environments of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest


@cache
def interpreters() -> dict[str, str]:
    """`3.8` to the path of an interpreter that really is one, for every version from 3.6 on that is there.

    What starts several workers has looked for all of them: tests/conftest.py.
    """
    found: dict[str, str] = json.loads(os.environ.get("TESTED_INTERPRETERS", "{}"))
    for path in _candidates() if not found else ():
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            told = subprocess.run([path, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=False)
        except OSError:
            continue
        version = told.stdout.strip()
        if told.returncode == 0 and tuple(map(int, version.split("."))) >= (3, 6):
            found.setdefault(version, path)
    return found


def interpreter(version: str) -> str:
    """An interpreter of that version; the test is skipped without one, except in CI where no other than the running one is there."""
    known = interpreters()
    if version not in known and os.environ.get("CI") and len(known) < 2:
        pytest.fail("CI has no Python but the one that runs the tests")
    if version not in known:
        pytest.skip(f"there is no Python {version}")
    return known[version]


def make_environment(version: str, folder: Path, *options: str) -> str:
    """The interpreter of a new virtual environment in `folder`, with nothing installed in it."""
    subprocess.run([interpreter(version), "-m", "venv", "--without-pip", *options, str(folder)], check=True, timeout=120)
    return str(folder / "bin/python")


def uv(*words: str | Path) -> None:
    """Run the uv beside this Python; what it fetches for tests marked `network` lies in one cache."""
    subprocess.run([Path(sys.executable).with_name("uv"), *words], check=True, timeout=1200)


def site_packages(folder: Path) -> Path:
    """Where a virtual environment keeps its packages."""
    (found,) = folder.glob("lib/python3.*/site-packages")
    return found


def _candidates() -> Iterator[str]:
    yield sys.executable
    for minor in range(6, 20):
        path = shutil.which(f"python3.{minor}")
        if path:
            yield path
    pyenv = shutil.which("pyenv")
    if pyenv:
        versions = Path(pyenv).resolve().parent.parent / "versions"
        yield from map(str, sorted(versions.glob("*/bin/python")))
