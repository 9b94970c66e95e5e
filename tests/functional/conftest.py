"""A real virtual environment to apply changes in, made once for each installer, and a project to lock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudnn_resolve.execution.task import Work
from tests.apply_world import ApplyWorld, work_in
from tests.lock_project import Project

Build = Callable[[str], ApplyWorld]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A world for each installer, made once."""
    worlds: dict[str, ApplyWorld] = {}

    def build(installer: str) -> ApplyWorld:
        if installer not in worlds:
            worlds[installer] = ApplyWorld(tmp_path_factory.mktemp(installer), installer)
            worlds[installer].build()
        return worlds[installer]

    return build


@pytest.fixture
def installer() -> str:
    """The faster one, where the other would show nothing new."""
    return "uv"


@pytest.fixture
def world(built: Build, installer: str, monkeypatch: pytest.MonkeyPatch) -> ApplyWorld:
    """The world as it was when it was made."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    found = built(installer)
    monkeypatch.setenv("XDG_STATE_HOME", str(found.state))
    monkeypatch.setenv("UV_CACHE_DIR", str(found.base / "uv-cache"))
    found.reset()
    return found


@pytest.fixture
def work(world: ApplyWorld) -> Iterator[Work]:
    found = work_in(world)
    yield found
    found.hold.release()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with an index of small wheels, in which `lock` runs."""
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)
