"""Compiles the stand-ins for NVIDIA's libraries."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

HERE = Path(__file__).resolve().parent


def c_compiler() -> str:
    """A C compiler; without one the test is skipped, except in CI, where it must be there."""
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is None and os.environ.get("CI"):
        pytest.fail("no C compiler in CI")
    if found is None:
        pytest.skip("no C compiler")
    return found


@cache
def folder_of_run() -> Path:
    """A folder for what is compiled once for all tests of a run."""
    folder = mkdtemp(prefix="cudnn-resolve-standins-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def build_library(source: str, folder: Path, soname: str, file: str | None = None) -> Path:
    """The shared library compiled from a source beside this file: `folder/file`, with a link of its soname where that differs."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / (file or soname)
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{soname}"]
    subprocess.run([c_compiler(), *flags, "-o", str(library), str(HERE / source)], check=True, timeout=120)
    if file is not None and file != soname:
        (folder / soname).symlink_to(file)
    return library
