"""Files that the tools themselves write, read as the tools read them: the versions that a tool would install, and no others.

Each tool is installed from the configured index into an environment of its own; for pixi stands the library that it writes its lock with.
The commands that a verdict proposes are given to the same tools.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.diagnosis.model import Remedy
from cudnn_resolve.facts.model import Facts, Platform, Python
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.operations.package_set import Subject, subject_of_file
from cudnn_resolve.operations.smallest_change import edit
from cudnn_resolve.package_lists.model import PartSelection
from cudnn_resolve.requirement.machine import machine_of
from tests.functional.interpreters import uv

pytestmark = pytest.mark.network

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
UV = Path(sys.executable).with_name("uv")
PROJECT = """
[project]
name = "demo"
version = "0"
requires-python = ">=3.10,<4"
dependencies = ["requests>=2.31", "numpy<2.3", "tomli; python_version < '3.4'", "colorama; sys_platform == 'win32'"]
[project.optional-dependencies]
plot = ["packaging<25", "attrs"]
more = ["click; python_version < '3.4'", "sortedcontainers"]
[dependency-groups]
dev = ["pluggy"]
docs = ["iniconfig"]
"""
POETRY = """
[tool.poetry]
package-mode = false
[tool.poetry.group.docs]
optional = true
[[tool.poetry.source]]
name = "here"
url = "{index}"
"""
PIPFILE = """
[packages]
requests = ">=2.31"
numpy = "<2.3"
[dev-packages]
pluggy = "*"
[docs]
iniconfig = "*"
"""
REQUIREMENTS = 'requests>=2.31\nnumpy<2.3\ntomli; python_version < "3.4"\ncolorama; sys_platform == "win32"\n'
TOOLS = {
    "poetry": ("poetry",),
    "pdm": ("pdm[locked]",),  # with the libraries that it is released with
    "pipenv": ("pipenv",),
    "pip-tools": ("pip-tools",),
    "pip": ("pip>=26",),
    "conda-lock": ("conda-lock",),
    "py-rattler": ("py-rattler",),
    "pre-commit": ("pre-commit",),
}
Run = Callable[..., str]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that gives the programs of a tool, installed when it is first asked for."""
    root = tmp_path_factory.mktemp("tools")

    def made(name: str) -> Path:
        place = root / name
        if not place.exists():
            uv("venv", "-q", "--seed", "--python", sys.executable, place)
            uv("pip", "install", "-q", "--python", place / "bin/python", *TOOLS[name])
        return place / "bin"

    return made


def run(*words: object, cwd: Path, fails: bool = False) -> str:
    """What a tool prints, in an environment that names no other one."""
    apart = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
    more = {"PIPENV_IGNORE_VIRTUALENVS": "1", "PIPENV_VENV_IN_PROJECT": "1", "POETRY_VIRTUALENVS_IN_PROJECT": "true", "NO_COLOR": "1"}
    more |= {"PDM_CHECK_UPDATE": "0", "COLUMNS": "200"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env={**apart, **more}, capture_output=True, text=True, timeout=300, check=False)
    assert fails or done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)


def read(path: Path, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> dict[str, str]:
    """What `check` reads of a file, for this machine."""
    book = open_book(())
    here = Facts(
        platform=Platform(system="linux", arch=os.uname().machine, glibc="2.35"), python=Python(version=sys.version.partition(" ")[0])
    )
    choice = PartSelection(extras=extras, groups=groups)
    return dict(subject_of_file(str(path), path.read_text(encoding="utf-8"), book, machine_of(here, book), choice).packages)


def versions(text: str, form: str) -> dict[str, str]:
    """Name to version, as the lines of a dry run have them."""
    return {name.lower().replace("_", "-"): version for name, version in re.findall(form, text, re.MULTILINE)}


INDEX = """
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
settings = Configuration(isolated=False)
settings.load()
found = {key.partition(".")[2]: value for key, value in settings.items()}
print(found.get("index-url", PyPI.simple_url))
"""


def index() -> str:
    """The address of the index that pip is configured with, which poetry does not ask for."""
    return subprocess.run([sys.executable, "-c", INDEX], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def written(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(("extras", "groups"), [((), ()), (("plot",), ()), (("more",), ("docs",))])
def test_uv(tmp_path: Path, extras: tuple[str, ...], groups: tuple[str, ...]) -> None:
    written(tmp_path, "pyproject.toml", PROJECT)
    run(UV, "lock", "-q", cwd=tmp_path)
    run(UV, "venv", "-q", "--python", sys.executable, cwd=tmp_path)
    asked = [*(f"--extra={one}" for one in extras), *(f"--group={one}" for one in groups)]
    told = versions(run(UV, "sync", "--dry-run", *asked, cwd=tmp_path), r"^ \+ (\S+)==(\S+)")
    assert told
    assert read(tmp_path / "uv.lock", extras, groups) == told


def test_poetry(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    poetry = tools("poetry") / "poetry"
    written(tmp_path, "pyproject.toml", PROJECT + POETRY.format(index=index()))
    run(poetry, "lock", "-q", cwd=tmp_path)
    for extras, groups in (((), ()), (("plot",), ()), (("more",), ("docs",))):
        asked = [*(f"--extras={one}" for one in extras), *(f"--with={one}" for one in groups)]
        shown = run(poetry, "sync", "--dry-run", "--no-ansi", *asked, cwd=tmp_path)
        told = versions(shown, r"- Installing (\S+) \(([^)]+)\)$")
        assert told
        assert read(tmp_path / "poetry.lock", extras, groups) == told


def test_pdm(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    pdm = tools("pdm") / "pdm"
    written(tmp_path, "pyproject.toml", PROJECT)
    run(UV, "venv", "-q", "--python", sys.executable, cwd=tmp_path)
    run(pdm, "lock", "-q", "-G", ":all", cwd=tmp_path)
    for groups in ((), ("plot",), ("more", "docs")):
        shown = run(pdm, "sync", "--dry-run", *(f"-G{one}" for one in groups), cwd=tmp_path)
        told = versions(shown, r"^ +- (\S+) (\S+)$")
        assert told
        assert read(tmp_path / "pdm.lock", (), groups) == told


def test_pipenv(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    pipenv = tools("pipenv") / "pipenv"
    written(tmp_path, "Pipfile", PIPFILE)
    run(pipenv, "--python", sys.executable, "lock", "--dev", "--categories", "packages dev-packages docs", cwd=tmp_path)
    for groups, words in (((), ()), (("dev",), ("--dev",)), (("docs",), ("--categories", "packages docs"))):
        shown = run(pipenv, "requirements", *words, cwd=tmp_path)
        written(tmp_path, "here.txt", "\n".join(line for line in shown.splitlines() if re.match(r"[\w.-]+==", line)))
        report = run(
            tools("pip") / "pip",
            "install",
            "-q",
            "--ignore-installed",
            "--dry-run",
            "--no-deps",
            "--report",
            "here.json",
            "-r",
            "here.txt",
            cwd=tmp_path,
        )
        assert "Error" not in report
        assert read(tmp_path / "Pipfile.lock", (), groups) == reported(tmp_path / "here.json")


def reported(path: Path) -> dict[str, str]:
    """What a dry run of pip would install."""
    rows = json.loads(path.read_text(encoding="utf-8"))["install"]
    return {one["metadata"]["name"].lower().replace("_", "-"): one["metadata"]["version"] for one in rows}


def test_pip_tools(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    written(tmp_path, "requirements.in", REQUIREMENTS)
    bin_ = tools("pip-tools")
    run(bin_ / "pip-compile", "-q", "--strip-extras", "requirements.in", cwd=tmp_path)
    run(UV, "venv", "-q", "--python", sys.executable, "bare", cwd=tmp_path)
    told = versions(run(bin_ / "pip-sync", "--dry-run", "requirements.txt", cwd=tmp_path, fails=True), r"^ +(\S+)==(\S+)$")
    assert told
    assert read(tmp_path / "requirements.txt") == told
    hashed = run(UV, "pip", "compile", "-q", "--generate-hashes", "requirements.in", cwd=tmp_path)
    assert read(written(tmp_path, "hashed.txt", hashed)) == told


def test_pip(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    pip = tools("pip") / "pip"
    written(tmp_path, "requirements.in", REQUIREMENTS)
    run(pip, "lock", "-q", "-r", "requirements.in", "-o", "pylock.toml", cwd=tmp_path)
    words = ("install", "-q", "--ignore-installed", "--dry-run", "--report", "here.json", "-r", "pylock.toml")
    run(pip, *words, cwd=tmp_path)
    assert read(tmp_path / "pylock.toml") == reported(tmp_path / "here.json")
    run(UV, "pip", "compile", "-q", "--format", "pylock.toml", "-o", "pylock.uv.toml", "requirements.in", cwd=tmp_path)
    assert read(tmp_path / "pylock.uv.toml") == reported(tmp_path / "here.json")


PIXI = """
from rattler import LockChannel, LockFile, LockPlatform, PackageRecord, RepoDataRecord
from rattler.package.build_string import BuildString
linux, windows = LockPlatform("linux-64"), LockPlatform("win-64")
lock, at = LockFile([linux, windows]), "https://conda.example/conda-forge"
def conda(environment, platform, name, version, build):
    record = PackageRecord(name, version, BuildString(build), 0, platform.name, sha256=bytes(32))
    file = f"{name}-{version}-{build}.conda"
    lock.add_conda_package(environment, platform, RepoDataRecord(record, file, f"{at}/{platform.name}/{file}", at))
def pypi(environment, platform, name, version, tag):
    lock.add_pypi_package(environment, platform, name, version, f"https://files.example/{name}-{version}-{tag}.whl")
for environment in ("default", "test"):
    lock.set_channels(environment, [LockChannel(at)])
conda("default", linux, "numpy", "1.26.4", "py311h64a7726_0")
pypi("default", linux, "torch", "2.6.0", "cp311-cp311-manylinux1_x86_64")
pypi("default", windows, "colorama", "0.4.6", "py3-none-any")
pypi("test", linux, "pluggy", "1.5.0", "py3-none-any")
lock.to_path("pixi.lock")
for name, one in LockFile.from_path("pixi.lock").environments():
    for platform in one.platforms():
        print(name, platform.name, *(f"{row.name}=={row.version}" for row in one.packages(platform)))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the lock is for x86_64")
def test_pixi(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    shown = run(tools("py-rattler") / "python", written(tmp_path, "make.py", PIXI), cwd=tmp_path)
    told = {(line.split()[0], line.split()[1]): dict(one.split("==") for one in line.split()[2:]) for line in shown.splitlines()}
    assert read(tmp_path / "pixi.lock") == told["default", "linux-64"]
    assert read(tmp_path / "pixi.lock", (), ("test",)) == told["test", "linux-64"]


CONDA_LOCK = """
version: 1
metadata:
  content_hash: {linux-64: x}
  channels: [{url: conda-forge, used_env_vars: []}]
  platforms: [linux-64]
  sources: [environment.yml]
package:
"""
CONDA_ROW = """
- {{name: {0}, version: {1}, manager: {2}, platform: linux-64, dependencies: {{}}, category: {3}, optional: {5},
   url: "https://conda.example/conda-forge/{4}", hash: {{md5: "{6}", sha256: "{7}"}}}}
"""
CONDA_ROWS = (
    ("python", "3.11.9", "conda", "main", "linux-64/python-3.11.9-hb806964_0_cpython.conda"),
    ("numpy", "1.26.4", "conda", "main", "linux-64/numpy-1.26.4-py311h64a7726_0.conda"),
    ("pluggy", "1.5.0", "pip", "dev", "pluggy-1.5.0-py3-none-any.whl"),
    ("iniconfig", "2.0.0", "pip", "docs", "iniconfig-2.0.0-py3-none-any.whl"),
    ("torch", "2.6.0", "pip", "main", "torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl"),
)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the lock is for x86_64")
def test_conda_lock(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    rows = (CONDA_ROW.format(*row, str(row[3] != "main").lower(), "0" * 32, "0" * 64) for row in CONDA_ROWS)
    written(tmp_path, "conda-lock.yml", CONDA_LOCK.lstrip() + "".join(rows))
    bin_ = tools("conda-lock")
    for extras, words in (((), ()), (("docs",), ("-e", "docs"))):
        run(bin_ / "conda-lock", "render", "-k", "env", *words, cwd=tmp_path)
        told = versions(
            (tmp_path / "conda-linux-64.lock.yml").read_text(encoding="utf-8"), r"^ +- ([\w.-]+) ?={1,2} ?([\d.]+)(?:=\S*| .*)?$"
        )
        assert told.pop("python") == "3.11.9"
        assert read(tmp_path / "conda-lock.yml", (), extras) == told
        run(bin_ / "conda-lock", "render", "-k", "explicit", *words, cwd=tmp_path)
        assert read(tmp_path / "conda-linux-64.lock") == told


# ---- the commands that a verdict proposes


def remedy(kind: str, path: Path, pins: Mapping[str, str], *, held: bool) -> Remedy:
    subject = Subject(name=str(path), kind=kind, packages=dict.fromkeys(pins, "0"), requires={}, lines={})
    return edit(subject, pins, held=held)


def shell(one: Remedy, bin_: Path, cwd: Path, *more: str) -> None:
    """Carry out a command as it stands, with the tool from its own environment."""
    assert one.command is not None
    apart = {"PATH": f"{bin_}:{os.environ['PATH']}", "PIPENV_IGNORE_VIRTUALENVS": "1", "PIPENV_VENV_IN_PROJECT": "1"}
    apart |= {"POETRY_VIRTUALENVS_IN_PROJECT": "true"}
    environ: dict[str, Any] = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    words = [*shlex.split(one.command), *more]
    done = subprocess.run(words, cwd=cwd, env={**environ, **apart}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["uv", "poetry", "pdm", "pipenv"])
def test_a_limit_is_pinned_by_the_tool(tmp_path: Path, tools: Callable[[str], Path], tool: str) -> None:
    bin_ = UV.parent if tool == "uv" else tools(tool)
    file = {"uv": "uv.lock", "poetry": "poetry.lock", "pdm": "pdm.lock", "pipenv": "Pipfile.lock"}[tool]
    if tool == "pipenv":
        written(tmp_path, "Pipfile", '[packages]\npluggy = "*"\n')
    else:
        more = POETRY.format(index=index()).replace("[tool.poetry.group.docs]\noptional = true\n", "") if tool == "poetry" else ""
        written(
            tmp_path, "pyproject.toml", f'[project]\nname="demo"\nversion="0"\nrequires-python=">=3.10,<4"\ndependencies=["pluggy"]\n{more}'
        )
    if tool != "pipenv":
        run(UV, "venv", "-q", "--python", sys.executable, cwd=tmp_path)
    offered = remedy(file, tmp_path / file, {"pluggy": "<1.5"}, held=False)
    shell(offered, bin_, tmp_path)
    assert read(tmp_path / file)["pluggy"] == "1.4.0"


def test_what_a_wheel_declares_is_overridden(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    """The settings that are proposed mean to uv and to pdm what is meant: `importlib-metadata` declares zipp>=3.20, and has 3.19 after."""
    project = f'[project]\nname="demo"\nversion="0"\nrequires-python="=={PYTHON}.*"\ndependencies=["importlib-metadata==8.7.0"]\n'
    for tool, file in (("uv", "uv.lock"), ("pdm", "pdm.lock")):
        folder = tmp_path / tool
        offered = remedy(file, folder / file, {"zipp": "==3.19.2"}, held=True)
        place, _, setting = offered.text.removeprefix("in ").partition(" of pyproject.toml: ")
        written(folder, "pyproject.toml", f"{project}{place}\n{setting}\n")
        run(UV, "venv", "-q", "--python", sys.executable, cwd=folder)
        shell(offered, UV.parent if tool == "uv" else tools(tool), folder)
        assert read(folder / file)["zipp"] == "3.19.2"


# ---- where it is used

ROOT = Path(__file__).parents[2]


def test_the_hook_of_pre_commit(tmp_path: Path, tools: Callable[[str], Path]) -> None:
    """pre-commit itself installs the hook from a repository on disk, and runs it over what is staged."""
    hooks, project = tmp_path / "hooks", tmp_path / "project"
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    run("git", "clone", "-q", ROOT, hooks, cwd=tmp_path)
    head = run("git", "rev-parse", "HEAD", cwd=hooks).strip()
    run(*git, "init", "-q", project, cwd=tmp_path)
    machine = "[--gpu, T4, --driver, 550.54.15, --python-version, '3.11', --os, ubuntu22.04]"
    config = f"repos:\n- repo: {hooks}\n  rev: {head}\n  hooks:\n  - {{id: cudnn-resolve-check, args: {machine}}}\n"
    written(project, ".pre-commit-config.yaml", config)
    broken = {"jax": "0.7.2", "jaxlib": "0.7.1"}
    for pins, words in ((broken, "but jaxlib 0.7.1 is installed"), ({"numpy": "2.1.0"}, "")):
        text = "".join(f'[[packages]]\nname = "{name}"\nversion = "{version}"\n' for name, version in pins.items())
        written(project, "pylock.toml", f'lock-version = "1.0"\ncreated-by = "x"\n{text}')
        run(*git, "add", "-A", cwd=project)
        shown = run(tools("pre-commit") / "pre-commit", "run", "--color=never", cwd=project, fails=True)
        assert "what is locked will run" in shown, shown
        assert (words in " ".join(shown.split())) if words else "Passed" in shown, shown
        assert ("Failed" in shown) == bool(words), shown
