"""Compiles copies of a libcudnn that answers, hangs or crashes, with its parts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cudnn_resolve.facts.cudnn_files import parts_of
from cudnn_resolve.version import CudnnVersion
from tests.native.build import folder_of_run
from tests.native.template import compile_library

WORKS, HANGS, HANGS_EARLY, SEGFAULTS, ALONE = range(5)
RUNPATH = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
RPATH = "-Wl,--disable-new-dtags,-rpath,$ORIGIN"


def build_cudnn(
    directory: Path, version: str, *, cuda: int = 12040, how: int = WORKS, search: str = RUNPATH, without: Iterable[str] = ()
) -> Path:
    """A copy of that release in `directory`, named as in a wheel: `libcudnn.so.9`."""
    directory.mkdir(parents=True, exist_ok=True)
    release = CudnnVersion(version)
    name = f"libcudnn.so.{release.major}"
    options = (f"-DNUMBER={_number(release)}", f'-DTEXT="{version}"', f"-DCUDART={cuda}", f"-DHOW={how}", search)
    shutil.copy(_compiled("standin_cudnn.c", name, options), directory / name)
    for part in parts_of(release):
        if part not in without:
            build_part(directory, part, version)
    return directory


def build_part(directory: Path, part: str, version: str) -> Path:
    """One part of that release."""
    release = CudnnVersion(version)
    name = f"libcudnn_{part}.so.{release.major}"
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_compiled("standin_part.c", name, (f"-DNUMBER={_number(release)}", RUNPATH)), directory / name))


def _number(release: CudnnVersion) -> int:
    major, minor, patch = release.parts[:3]
    return major * 10000 + minor * 100 + patch if major >= 9 else major * 1000 + minor * 100 + patch


@cache
def _compiled(source: str, soname: str, options: tuple[str, ...]) -> Path:
    """Each library is compiled once for all tests of a run."""
    name = f"{soname}-{abs(hash((source, options)))}"
    return compile_library(source, folder_of_run() / name, soname, *options)
