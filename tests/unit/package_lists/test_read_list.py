"""Lists of packages as other tools write them: which packages each installs on a machine."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Facts, Platform, Python
from cudnn_resolve.package_lists.model import BaseEnvironment, PackageList, PartSelection
from cudnn_resolve.package_lists.read_list import read_list
from cudnn_resolve.requirement.machine import machine_of
from tests.program import shipped

LISTS = Path(__file__).parents[2] / "lists"


def listed(text: str, python: str = "3.11", arch: str = "x86_64", **how: Any) -> PackageList:
    facts = Facts(platform=Platform(system="linux", arch=arch), python=Python(version=python))
    return read_list(text, "the file", machine_of(facts, shipped()), **how)


def versions(text: str, python: str = "3.11", arch: str = "x86_64") -> dict[str, str]:
    return {one.name: one.version for one in listed(text, python, arch).packages}


def test_a_lock_of_uv() -> None:
    """The sets are those of `uv sync --dry-run` on each Python."""
    text = (LISTS / "uv.lock").read_text(encoding="utf-8")
    found = {python: versions(text, python) for python in ("3.10", "3.11", "3.12")}
    assert [len(one) for one in found.values()] == [43, 41, 40]
    assert listed(text).kind == "uv.lock"
    assert all(one["tensorflow"] == "2.18.0" and "pytest" in one and "torch" not in one and "sphinx" not in one for one in found.values())
    assert found["3.10"]["keras"] != found["3.12"]["keras"]
    assert "exceptiongroup" in found["3.10"]
    assert "exceptiongroup" not in found["3.11"]
    assert listed(text).notes[0].startswith("extras of the project left out: ")


def test_a_lock_of_pipenv() -> None:
    found = listed((LISTS / "Pipfile.lock").read_text(encoding="utf-8"))
    assert found.kind == "Pipfile.lock"
    assert len(found.packages) == 14
    assert found.notes == ("categories left out: develop",)


POETRY = """
[[package]]
name = "torch"
version = "2.6.0"
optional = false
groups = ["main"]
markers = "sys_platform == 'linux'"
files = [{file = "torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl", hash = "sha256:00"}]

[[package]]
name = "Colorama"
version = "0.4.6"
optional = false
groups = ["main"]
markers = "sys_platform == 'win32'"

[[package]]
name = "sphinx"
version = "8.0"
optional = true
groups = ["main"]

[metadata]
lock-version = "2.1"
python-versions = ">=3.11"
content-hash = "00"
"""

PDM = """
[metadata]
groups = ["default", "docs"]
lock_version = "4.5.0"

[[package]]
name = "torch"
version = "2.6.0"
groups = ["default"]
marker = "python_version >= '3.11'"

[[package]]
name = "sphinx"
version = "8.0"
groups = ["docs"]
"""

PYLOCK = """
lock-version = "1.0"
created-by = "pip"

[[packages]]
name = "torch"
version = "2.6.0"
marker = "platform_machine == 'x86_64'"
wheels = [{ url = "https://index.example/torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl", hashes = { sha256 = "00" } }]
"""

REQUIREMENTS = """
--index-url https://index.example/simple
torch==2.6.0+cu124 \\
    --hash=sha256:00
numpy===1.26.4  # via torch
colorama==0.4.6 ; sys_platform == 'win32'
triton @ https://index.example/triton-3.2.0-cp311-cp311-manylinux_2_17_x86_64.whl
requests>=2
"""


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (POETRY, "poetry.lock", {"torch": "2.6.0"}),
        (PDM, "pdm.lock", {"torch": "2.6.0", "sphinx": "8.0"}),
        (PYLOCK, "pylock.toml", {"torch": "2.6.0"}),
        (
            "Package  Version     Editable\n-------- ----------- -----\nTorch 2.6.0+cu124\n",
            "pip list",
            {"torch": "2.6.0+cu124"},
        ),
        ('[{"name": "torch", "version": "2.6.0"}]', "pip list --format json", {"torch": "2.6.0"}),
        (
            '[{"name": "torch", "version": "2.6.0", "channel": "pypi"}, {"name": "cudnn", "version": "9.1", "channel": "conda-forge"}]',
            "conda list --json",
            {"torch": "2.6.0"},
        ),
        (
            "# packages in environment at /opt/conda:\n# Name Version Build Channel\ncudnn 9.1 h1 main\ntorch 2.6.0 pypi_0 pypi\n",
            "conda list",
            {"torch": "2.6.0"},
        ),
        (
            REQUIREMENTS,
            "requirements file",
            {"torch": "2.6.0+cu124", "numpy": "1.26.4", "triton": "3.2.0"},
        ),
    ],
)
def test_every_form(text: str, kind: str, expected: dict[str, str]) -> None:
    found = listed(text)
    assert found.kind == kind
    assert {one.name: one.version for one in found.packages} == expected


def test_what_is_left_out_is_said() -> None:
    assert listed(PDM, selection=PartSelection(defaults=False)).notes == ("groups left out: docs",)
    assert [one.text for one in listed("torch==2.6.0\nnumpy<2\n").loose] == ["numpy<2"]
    assert listed("-r base.txt\ntorch==2.6.0\n").gaps == ("not followed: -r base.txt",)
    assert listed("torch==2.6.0\nnumpy===weird-one\n").gaps == ("numpy has an invalid version: 'weird-one'",)
    conda = '[{"name": "torch", "version": "2.6.0", "channel": "pypi"}, {"name": "cudnn", "version": "9.1", "channel": "main"}]'
    assert listed(conda).notes == ("conda packages (1): only frameworks, CUDA, cuDNN and packages that constrain them are judged",)
    assert listed(conda).base == BaseEnvironment(cudnn="9.1")


def test_the_line_of_a_pin() -> None:
    found = {one.name: one.line for one in listed("# head\nnumpy==1.26.4\ntorch==2.6.0\n").packages}
    assert found == {"numpy": 2, "torch": 3}
    lock = {one.name: one.line for one in listed(POETRY).packages}
    assert POETRY.splitlines()[(lock["torch"] or 0) - 1] == 'name = "torch"'


def test_an_architecture_without_the_package() -> None:
    with pytest.raises(InputError, match="lists no package for this machine"):
        versions(PYLOCK, arch="aarch64")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lists no package"),
        ("dependencies:\n  - ffmpeg\n", "lists no package"),
        ('{"a"', "not valid JSON"),
        ('{"a": 1}', "is JSON of an unknown format"),
        ('[project]  # ours\nname = "a"\n', "is TOML of an unknown format"),
        ("x = 1\n", "is TOML of an unknown format"),
    ],
)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        listed(text)


def test_what_pip_says_around_its_list() -> None:
    found = listed(
        "[notice] A new release of pip is available: 24.0 -> 25.0\nPackage Version\n------- -------\ntorch   2.6.0\n"
        "WARNING: a cache is off\n[notice] To update, run: pip\n"
    )
    assert (found.kind, [one.name for one in found.packages], found.gaps) == ("pip list", ["torch"], ())


def test_a_name_without_end_and_files_without_end() -> None:
    for line in ("b" * 5000, "b" * 5000 + "==1", "b" * 5000 + "<3"):
        found = listed(f"torch==2.6.0\n{line}\n")
        assert (len(found.packages), found.loose, len(found.gaps)) == (1, (), 1)
        assert len(found.gaps[0]) < 100

    def chain(name: str, base: str | None) -> tuple[str, str]:  # noqa: ARG001
        return name, f"-r {name}x\n"

    assert listed("torch==2.6.0\n-r a\n", open_=chain).gaps == ("not followed: more than 200 files that include one another",)


SAMPLES = (
    POETRY,
    PDM,
    PYLOCK,
    "torch==2.6.0\n",
    '[{"name": "torch", "version": "2.6.0"}]',
    json.dumps({"_meta": {}, "default": {"a": {}}}),
)


@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_damaged_lists_do_no_harm(sample: str, data: st.DataObject) -> None:
    text = sample
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.one_of(st.text(max_size=12), st.sampled_from(("[", "{", "=", "\0", text[:120])))) + text[end:]
    with suppress(InputError):
        listed(text)


def test_a_lock_whose_packages_need_one_another() -> None:
    text = "\n".join(
        f'[[package]]\nname = "p{number}"\nversion = "1"\ndependencies = [{{ name = "p{(number + 1) % 50}" }}]' for number in range(50)
    )
    root = '\n[[package]]\nname = "root"\nversion = "0"\nsource = { virtual = "." }\ndependencies = [{ name = "p0" }]\n'
    assert len(versions(f"version = 1\n{text}{root}")) == 50


def test_line_ends_and_options_of_a_line() -> None:
    assert versions("torch==2.6.0 \\\r\n    --hash=sha256:00\r\nnumpy==1.26.4\t--config-settings=a=b\r\n") == {
        "torch": "2.6.0",
        "numpy": "1.26.4",
    }


def test_a_group_of_poetry_without_a_condition() -> None:
    text = POETRY.replace(
        'groups = ["main"]\nmarkers = "sys_platform == \'linux\'"',
        'groups = ["main", "dev"]\nmarkers = {dev = "sys_platform == \'win32\'"}',
    )
    assert versions(text) == {"torch": "2.6.0"}


def test_what_was_a_member_of_a_workspace_is_not_installed() -> None:
    text = """version = 1
[[package]]
name = "root"
version = "0"
source = { virtual = "." }
dependencies = [{ name = "numpy" }]
[[package]]
name = "member"
version = "0"
source = { editable = "packages/member" }
dependencies = [{ name = "torch" }]
[[package]]
name = "numpy"
version = "2.2.6"
[[package]]
name = "torch"
version = "2.6.0"
"""
    assert versions(text) == {"numpy": "2.2.6"}


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 400,
        "# a\n\n\n\n" * 100,
        f"torch=={'9' * 6000}\n",
        f"torch==2.6.0 ; {'(' * 3000}python_version > '3'{')' * 3000}\n",
        'lock-version = "1.0"\ndefault-groups = 5\npackages = []\n',
    ],
    ids=["blank", "comments", "digits", "parentheses", "groups"],
)
def test_hostile_lists_are_refused_at_once(text: str) -> None:
    with pytest.raises(InputError):
        listed(text)


def test_a_group_for_development_that_is_named_is_the_only_one() -> None:
    rows = "".join(f'[[package]]\nname = "{one}"\nversion = "1"\ngroups = ["{one}"]\n' for one in ("default", "dev", "docs", "plot"))
    text = f'{rows}[metadata]\nlock_version = "4.5.0"\ngroups = ["default", "dev", "docs", "plot"]\n'
    project = "[dependency-groups]\ndev = []\ndocs = []\n"
    for groups, expected in ((("plot",), {"default", "dev", "docs", "plot"}), (("docs",), {"default", "docs"})):
        found = listed(text, selection=PartSelection(groups=groups), open_=lambda name, _: (name, project))
        assert {one.name for one in found.packages} == expected


def test_an_explicit_list_names_wheels_of_pip_in_comments() -> None:
    at = "https://index.example/conda-forge"
    text = f"@EXPLICIT\n{at}/linux-64/numpy-1.26.4-h1_0.conda#00\n# pip torch @ {at}/torch-2.6.0-cp311-cp311-linux_x86_64.whl#sha256=00\n"
    assert versions(text) == {"numpy": "1.26.4", "torch": "2.6.0"}


def test_a_lock_of_pixi_whose_platforms_have_names() -> None:
    wheel = "pypi: https://index.example/torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl"
    of = f"environments:\n  default:\n    packages:\n      cuda-box:\n      - {wheel}\n"
    of += f"packages:\n- {wheel}\n  name: torch\n  version: 2.6.0\n"
    assert versions(f"version: 7\nplatforms:\n- name: cuda-box\n  subdir: linux-64\n{of}") == {"torch": "2.6.0"}
