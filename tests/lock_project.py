"""A project with an index of small wheels, in which `lock` runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cudnn_resolve.locking.model import version_of
from cudnn_resolve.locking.read_pylock import read
from tests.program import Done, run
from tests.wheel_maker import made_wheel

TARGET = ("-f", "ctranslate2==4.5.0")
ELSEWHERE = ("--python-version", "3.11", "--platform", "linux_x86_64")
CTRANSLATE = "cp311-cp311-manylinux_2_17_x86_64"
NVIDIA = (("nvidia_cublas_cu12", "12.2.5.6"), ("nvidia_cudnn_cu12", "9.1.0.70"), ("nvidia_cuda_runtime_cu12", "12.2.140"))
"""The libraries of CUDA 12.2; the runtime library is part of what makes it that, though nobody here installs it."""


class Project:
    """A folder with wheels in `wheels`, in which the program runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.file = folder / "pylock.toml"
        self.wheels.mkdir()
        (folder / "empty").mkdir()
        made_wheel(self.wheels, "ctranslate2", "4.5.0", "setuptools", "numpy", "pyyaml<7,>=5.3", tag=CTRANSLATE)
        for name, version in (("numpy", "1.26.4"), ("pyyaml", "6.0.2"), ("setuptools", "75.0.0")):
            made_wheel(self.wheels, name, version)
        for name, version in NVIDIA:
            made_wheel(self.wheels, name, version, tag="py3-none-manylinux_2_17_x86_64")

    def words(self, *words: str) -> list[str]:
        """A command line, with the folder of wheels as the only place of packages."""
        return ["lock", *words, "--index-url", (self.folder / "empty").as_uri(), "--find-links", str(self.wheels)]

    def __call__(self, *words: str) -> Done:
        """What the program answers."""
        return run(*self.words(*words))

    @property
    def pins(self) -> dict[str, str | None]:
        return {one.name: version_of(one) for one in read(self.file.read_text("utf-8")).packages}

    def differences(self, *words: str) -> list[dict[str, Any]]:
        done = self("--check", "--format", "json", *words)
        found = json.loads(done.stdout)
        assert found["schema"] == "cudnn-resolve/lock/1"
        assert (found["status"], done.returncode) == (("outdated", 1) if found["differences"] else ("current", 0))
        return list(found["differences"])
