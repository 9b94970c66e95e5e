"""Locks as pip and uv take them: installed unchanged into a fresh environment, also where a pin leaves what a wheel declares.

The wheels are made here and lie on disk; only pip and uv themselves come from the configured index.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.pylock import PackageWheel
from packaging.specifiers import SpecifierSet

from cudnn_resolve.locking.model import LockedRequest, Stack, Tool
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.resolution.model import Override
from tests.functional.interpreters import uv
from tests.lock_maker import entry, lock_with
from tests.wheel_maker import made_wheel

pytestmark = pytest.mark.network


def locked(path: Path, *, base: Path | None = None) -> PackageWheel:
    digest = {"sha256": sha256(path.read_bytes()).hexdigest()}
    where: dict[str, Any] = {"path": path.relative_to(base).as_posix()} if base is not None else {"url": path.as_uri()}
    return PackageWheel(name=path.name, hashes=digest, size=path.stat().st_size, **where)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the newest pip and uv."""
    root = tmp_path_factory.mktemp("tools")
    uv("venv", "-q", "--python", sys.executable, root)
    uv("pip", "install", "-q", "--python", root / "bin/python", "pip>=26", "uv")
    return root / "bin"


@pytest.fixture(params=["", "==1.0"], ids=["plain", "overridden"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a lock: one wheel by its path, one by its address; `overridden`: and a pin that the wheel before it refuses."""
    folder = tmp_path / "project"
    near, far = folder / "wheels", tmp_path / "elsewhere"
    near.mkdir(parents=True)
    far.mkdir()
    app = made_wheel(near, "stand_in_app", "1.0", f"stand-in-lib{request.param}", "stand-in-other-platform; platform_machine == 'vax'")
    lib = made_wheel(far, "stand_in_lib", "2.0")
    other = made_wheel(far, "stand_in_elsewhere", "1.0")
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    override = Override(package="stand-in-lib", requested_by="stand-in-app 1.0", declared="==1.0", chosen="2.0", reason="a test")
    stack = Stack(platform="linux_x86_64", overrides=(override,) if request.param else ())
    environments = (f"sys_platform == 'linux' and platform_machine == '{one}'" for one in ("vax", os.uname().machine))
    lock = lock_with(
        entry("stand-in-app", "1.0", dependencies=[{"name": "stand-in-lib"}], wheels=[locked(app, base=folder)]),
        entry("stand-in-elsewhere", "1.0", marker="platform_machine == 'vax'", wheels=[locked(other)]),
        entry("stand-in-lib", "2.0", wheels=[locked(lib)], because=("the matrix knows better",)),
        requires_python=SpecifierSet(f"=={minor}.*"),
        environments=[Marker(one) for one in environments],
        tool=Tool(request=LockedRequest(targets=("app",), direct_targets=("app",)), python=minor, matrix=None, stacks=(stack,)),
    )
    text = write(lock)
    assert read(text) == lock
    (folder / "pylock.toml").write_text(text, "utf-8")
    return folder


def installed(environment: Path) -> dict[str, str]:
    ask = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = subprocess.run([environment / "bin/python", "-c", ask], check=True, capture_output=True, text=True)
    return {name: version for name, version in json.loads(done.stdout).items() if name.startswith("stand")}


def fresh(at: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", at], check=True, capture_output=True)
    return at


EXPECTED = {"stand_in_app": "1.0", "stand_in_lib": "2.0"}


def test_pip_installs_it(tools: Path, project: Path, tmp_path: Path) -> None:
    environment = fresh(tmp_path / "environment")
    argv: list[str | Path] = [tools / "python", "-m", "pip", "--python", environment, "install", "-r", "pylock.toml"]
    if "With pip, add --no-deps" in (project / "pylock.toml").read_text("utf-8"):
        argv.append("--no-deps")
    done = subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert installed(environment) == EXPECTED


def test_uv_installs_it(tools: Path, project: Path, tmp_path: Path) -> None:
    environment = fresh(tmp_path / "environment")
    argv: list[str | Path] = [tools / "uv", "pip", "sync", "--preview-features", "pylock", "--python", environment, "pylock.toml"]
    done = subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert installed(environment) == EXPECTED


def test_a_file_that_is_not_the_locked_one_is_refused(tools: Path, project: Path, tmp_path: Path) -> None:
    environment = fresh(tmp_path / "environment")
    made_wheel(tmp_path / "elsewhere", "stand_in_lib", "2.0", "something-else")
    pip: list[str | Path] = [tools / "python", "-m", "pip", "--python", environment, "install", "-r", "pylock.toml"]
    uv: list[str | Path] = [tools / "uv", "pip", "sync", "--preview-features", "pylock", "--python", environment, "pylock.toml"]
    for argv in (pip, uv):
        done = subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "hash" in done.stderr.lower()
    assert installed(environment) == {}
