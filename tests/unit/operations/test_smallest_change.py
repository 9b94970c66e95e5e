"""The smallest change, in the words of the tool that made the list."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from cudnn_resolve.operations.package_set import LIVE, Subject
from cudnn_resolve.operations.smallest_change import edit
from cudnn_resolve.resolution.release import version_within

CUDNN, NUMPY = {"nvidia-cudnn-cu12": "==9.3.0.75"}, {"numpy": "<2"}
OVER = "pip install --no-deps nvidia-cudnn-cu12==9.3.0.75"


def subject(kind: str, lines: dict[str, int] | None = None, conda: frozenset[str] = frozenset()) -> Subject:
    name = kind if "." in kind or kind == "Dockerfile" else "here.txt"
    packages = {"nvidia-cudnn-cu12": "9.1.0.70", "numpy": "2.1.0"}
    return Subject(name=name, kind=kind, packages=packages, requires={}, lines=lines or {}, conda=conda)


@pytest.mark.parametrize(("lines", "said"), [({"a": 2}, "in line 2 of t.txt: "), ({"a": 2, "b": 5}, "in lines 2, 5 of t.txt: ")])
def test_the_lines_of_an_edit(lines: dict[str, int], said: str) -> None:
    of = Subject(name="t.txt", kind="requirements file", packages={}, requires={}, lines=lines)
    assert edit(of, dict.fromkeys(lines, "==1")).text.startswith(said)


@pytest.mark.parametrize(
    ("kind", "said", "command"),
    [
        ("uv.lock", "in [tool.uv] of pyproject.toml: override-dependencies = ['nvidia-cudnn-cu12==9.3.0.75']", "uv lock"),
        ("pdm.lock", 'in [tool.pdm.resolution] of pyproject.toml: overrides = { nvidia-cudnn-cu12 = "==9.3.0.75" }', "pdm lock"),
        (
            "pixi.lock",
            "in [pypi-options] of pixi.toml, or [tool.pixi.pypi-options] of pyproject.toml: dependency-overrides = {",
            "pixi lock",
        ),
        ("poetry.lock", "poetry cannot lock versions that the wheels do not allow: ", f"poetry run {OVER}"),
        ("Pipfile.lock", "pipenv cannot lock versions that the wheels do not allow: ", f"pipenv run {OVER}"),
        ("requirements file", "in here.txt: nvidia-cudnn-cu12==9.3.0.75; install with `uv pip sync` or `pip install --no-deps -r`", None),
        ("Dockerfile", f"after the last line of Dockerfile that installs: RUN {OVER}", None),
        ("notebook", f"after the last line of here.txt that installs: %{OVER}", None),
        ("conda-lock.yml", "in the environment.yml that it is made from, below `pip:`: nvidia-cudnn-cu12==9.3.0.75", "conda-lock lock"),
        ("environment.yml", "in environment.yml, below `pip:`: nvidia-cudnn-cu12==9.3.0.75 in a separate `pip install --no-deps`", None),
        ("pylock.toml", "install nvidia-cudnn-cu12==9.3.0.75 instead", OVER),
        (LIVE, "install nvidia-cudnn-cu12==9.3.0.75 instead", OVER),
    ],
)
def test_what_wheels_declare_otherwise(kind: str, said: str, command: str | None) -> None:
    found = edit(subject(kind), CUDNN, held=True)
    assert found.text.startswith(said)
    assert found.command == command


def test_what_is_not_there_is_added_beside_the_override() -> None:
    pins = {**CUDNN, "nvidia-cufft-cu12": "==11.3.3.83"}
    found = edit(subject("uv.lock"), pins, held=True)
    assert found.text.endswith("['nvidia-cudnn-cu12==9.3.0.75', 'nvidia-cufft-cu12==11.3.3.83']")
    assert found.command == "uv add nvidia-cufft-cu12==11.3.3.83"


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("uv.lock", "uv add 'numpy<2'"),
        ("poetry.lock", "poetry add 'numpy<2'"),
        ("pdm.lock", "pdm add 'numpy<2'"),
        ("Pipfile.lock", "pipenv install 'numpy<2'"),
        ("pixi.lock", "pixi add --pypi 'numpy<2'"),
        ("pip list", "pip install --no-deps 'numpy<2'"),
        ("requirements file", None),
    ],
)
def test_what_no_wheel_excludes(kind: str, command: str | None) -> None:
    found = edit(subject(kind), NUMPY)
    assert found.command == command
    assert "numpy<2" in found.text


@pytest.mark.parametrize(
    ("kind", "said", "command"),
    [
        ("environment.yml", "in line 7 of environment.yml: numpy<2", "conda env update -f environment.yml"),
        ("conda-lock.yml", "in the environment.yml that it is made from: numpy<2", "conda-lock lock"),
        ("pixi.lock", "pin numpy<2", "pixi add 'numpy<2'"),
        ("conda list", "pin numpy<2", "conda install 'numpy<2'"),
    ],
)
def test_what_conda_installs(kind: str, said: str, command: str) -> None:
    found = edit(subject(kind, conda=frozenset({"numpy", "torch"}), lines={"numpy": 7}), NUMPY)
    assert (found.text, found.command) == (said, command)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("<2", "1.99"),
        ("<2,>=1.26", "1.99"),
        (">=1.26,<1.26.5", "1.26.4.99"),
        (">=2", "2.99"),
        (">2", "2.99"),
        ("==2.6.*,<2.6.1", "2.6.0.99"),
        ("!=2,<2", "1.99"),
        ("<2,>=2", None),
        ("", None),
    ],
)
def test_a_version_that_a_limit_admits(limit: str, expected: str | None) -> None:
    assert version_within(SpecifierSet(limit)) == expected
