"""Lists of conda, environments, notebooks and images: what they install, and what they say of the machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Facts, Platform, Python
from cudnn_resolve.package_lists.model import BaseEnvironment, PackageList, PartSelection
from cudnn_resolve.package_lists.read_list import read_list
from cudnn_resolve.requirement.machine import machine_of
from tests.program import ROOT, shipped


def listed(text: str, arch: str = "x86_64", **how: Any) -> PackageList:
    facts = Facts(platform=Platform(system="linux", arch=arch), python=Python(version="3.11.4"))
    return read_list(text, "the file", machine_of(facts, shipped()), **how)


def versions(found: PackageList) -> dict[str, str]:
    return {one.name: one.version for one in found.packages}


PYTORCH = "https://index.example/pytorch/linux-64/pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0.tar.bz2"
PYTHON = "https://index.example/conda-forge/linux-64/python-3.11.9-hb806964_0_cpython.conda"
CUDA = "https://index.example/conda-forge/noarch/cuda-version-12.4-h3060b56_3.conda"

CONDA_LOCK = f"""
version: 1
metadata:
  platforms: [linux-64, osx-arm64]
package:
- {{name: python, version: 3.11.9, manager: conda, platform: linux-64, url: "{PYTHON}", category: main, optional: false}}
- {{name: cuda-version, version: '12.4', manager: conda, platform: linux-64, url: "{CUDA}", category: main, optional: false}}
- {{name: pytorch, version: 2.5.1, manager: conda, platform: linux-64, url: "{PYTORCH}", category: main, optional: false}}
- {{name: pytorch, version: 2.4.0, manager: conda, platform: osx-arm64, url: "x", category: main, optional: false}}
- {{name: requests, version: 2.32.0, manager: pip, platform: linux-64, url: "x/requests-2.32.0-py3-none-any.whl", category: main}}
- {{name: sphinx, version: 8.0.2, manager: pip, platform: linux-64, url: "x/sphinx-8.0.2-py3-none-any.whl", category: docs, optional: true}}
"""

PIXI = f"""version: 6
environments:
  default:
    channels: [{{url: https://index.example/conda-forge/}}]
    packages:
      linux-64:
      - conda: {PYTHON}
      - conda: {CUDA}
      - conda: {PYTORCH}
      - pypi: https://index.example/requests-2.32.0-py3-none-any.whl
  test:
    packages:
      linux-64:
      - conda: {PYTHON}
      - pypi: https://index.example/pytest-8.0.0-py3-none-any.whl
packages:
- conda: {PYTHON}
- conda: {CUDA}
- conda: {PYTORCH}
- pypi: https://index.example/requests-2.32.0-py3-none-any.whl
  name: requests
  version: 2.32.0
- pypi: https://index.example/pytest-8.0.0-py3-none-any.whl
  name: pytest
  version: 8.0.0
"""

PIXI_4 = f"""version: 4
environments:
  default:
    packages:
      linux-64:
      - conda: {PYTORCH}
      - pypi: https://index.example/requests-2.32.0-py3-none-any.whl
packages:
- kind: conda
  name: pytorch
  version: 2.5.1
  url: {PYTORCH}
- kind: pypi
  name: requests
  version: 2.32.0
  url: https://index.example/requests-2.32.0-py3-none-any.whl
"""

EXPLICIT = f"# platform: linux-64\n@EXPLICIT\n{PYTHON}#0123\n{CUDA}\n{PYTORCH}\n"


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (CONDA_LOCK, "conda-lock.yml", {"torch": "2.5.1", "requests": "2.32.0"}),
        (PIXI, "pixi.lock", {"torch": "2.5.1", "requests": "2.32.0"}),
        (EXPLICIT, "conda list --explicit", {"torch": "2.5.1"}),
    ],
)
def test_locks_of_conda(text: str, kind: str, expected: dict[str, str]) -> None:
    found = listed(text)
    assert (found.kind, versions(found)) == (kind, expected)
    assert found.base == BaseEnvironment(python="3.11.9", cuda="12.4", cudnn="9.1.0", cudnn_of="torch")
    torch = next(one for one in found.packages if one.name == "torch")
    assert (torch.cuda, torch.channel) == ("12.4", None)


def test_an_older_lock_of_pixi() -> None:
    assert versions(listed(PIXI_4)) == {"torch": "2.5.1", "requests": "2.32.0"}


def test_parts_of_a_lock_of_conda() -> None:
    assert "sphinx" in versions(listed(CONDA_LOCK, selection=PartSelection(groups=("docs",))))
    assert versions(listed(PIXI, selection=PartSelection(groups=("test",)))) == {"pytest": "8.0.0"}
    with pytest.raises(InputError, match="has no environment 'gpu'"):
        listed(PIXI, selection=PartSelection(groups=("gpu",)))
    for text in (CONDA_LOCK, PIXI):
        with pytest.raises(InputError, match="is not for linux-aarch64"):
            listed(text, arch="aarch64")


def test_a_build_for_the_cpu_and_one_of_another_maker() -> None:
    rows = [
        {"name": "pytorch", "version": "2.6.0", "build_string": "cpu_generic_py311_1", "channel": "conda-forge"},
        {"name": "jaxlib", "version": "0.5.2", "build_string": "cuda126py311h5d5da5d_0", "channel": "conda-forge"},
        {"name": "numpy", "version": "2.1.0", "build_string": "py311h71ddf71_1", "channel": "conda-forge"},
    ]
    found = listed(json.dumps(rows))
    assert {one.name: (one.cuda, one.channel) for one in found.packages} == {
        "torch": ("cpu", "conda-forge"),
        "jaxlib": ("12.6", "conda-forge"),
        "numpy": (None, "conda-forge"),
    }


ENVIRONMENT = """name: x
channels: [pytorch, conda-forge]
dependencies:
  - python=3.10
  - pytorch=2.5.1  # the newest there
  - pytorch::pytorch-cuda=12.4
  - numpy>=1.26
  - cudnn=9.1.0.70=h1_0
  - pip
  - pip:
    - tensorflow==2.18.0
    - jax[cuda12]>=0.5
"""


def test_an_environment_of_conda() -> None:
    found = listed(ENVIRONMENT)
    assert versions(found) == {"torch": "2.5.1", "tensorflow": "2.18.0"}
    assert {one.name: one.text for one in found.loose} == {"numpy": "numpy>=1.26", "jax": "jax[cuda12]>=0.5"}
    assert found.base == BaseEnvironment(python="3.10", cuda="12.4", cudnn="9.1.0.70")
    assert {one.name: one.line for one in found.packages} == {"torch": 5, "tensorflow": 11}
    assert "conda chooses the version of numpy: judged as the wheel that an installer would choose" in found.gaps


def notebook(*cells: str) -> str:
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": cell} for cell in cells]})


def test_a_later_line_of_a_notebook_overrides_an_earlier_one() -> None:
    found = listed(
        notebook(
            "!pip install -q torch==2.0.1 numpy==1.26.4\nimport torch",
            "%pip install 'torch==2.6.0' --index-url https://index.example/whl/cu118 && echo done",
            "%%bash\npython3 -m pip uninstall -y numpy\n!uv pip install x==1",
            "!uv pip install tensorflow>=2.15 jax[cuda12]==0.5.2",
            "pip install keras==3.8.0",
            "# !pip install never==1.0",
        )
    )
    assert versions(found) == {"torch": "2.6.0", "keras": "3.8.0", "jax": "0.5.2"}
    assert next(one for one in found.packages if one.name == "torch").variants == ("cu118",)
    assert [one.text for one in found.loose] == ["tensorflow"]


DOCKERFILE = """# syntax=docker/dockerfile:1
ARG CUDA=12.4.1
FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu22.04 AS base
ENV PIP_NO_CACHE_DIR=1
RUN --mount=type=cache,target=/cache apt-get update \\
    # the interpreter
    && apt-get install -y python3-pip
RUN pip3 install torch==2.3.0 numpy==1.26.4
FROM python:3.12 AS other
RUN pip install torch==1.0.0
FROM base
COPY --from=other /x /x
RUN <<EOF
pip install torch==2.6.0
EOF
RUN ["pip", "install", "tensorflow==2.18.0"]
RUN wget https://index.example/cudnn.deb
"""


def test_a_dockerfile() -> None:
    found = listed(DOCKERFILE)
    assert found.kind == "Dockerfile"
    assert versions(found) == {"torch": "2.6.0", "numpy": "1.26.4", "tensorflow": "2.18.0"}
    assert found.base == BaseEnvironment(os="ubuntu22.04", python="3.10", cuda="12.4.1", cudnn="9.1.0.70", source="apt")
    assert {one.name: one.line for one in found.packages} == {"torch": 14, "numpy": 8, "tensorflow": 16}
    assert found.gaps == ("not followed: COPY --from=other", "not followed: wget https://index.example/cudnn.deb")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (
            "nvcr.example/nvidia/cuda:11.8.0-cudnn8-devel-rockylinux8",
            BaseEnvironment(os="rocky8", cuda="11.8.0", cudnn="8.9.6.50", source="apt"),
        ),
        ("nvidia/cuda:12.9.1-base-ubuntu24.04", BaseEnvironment(os="ubuntu24.04", python="3.12", source="apt")),
        ("python:3.11-slim-bookworm", BaseEnvironment(os="debian12", python="3.11", source="apt")),
        ("ubuntu:22.04", BaseEnvironment(os="ubuntu22.04", python="3.10", source="apt")),
        ("tensorflow/tensorflow:2.15.0-gpu", BaseEnvironment(of="tensorflow", source="apt")),
        ("pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime", None),
        ("continuumio/miniconda3", None),
    ],
)
def test_images(image: str, expected: BaseEnvironment | None) -> None:
    found = listed(f"FROM {image}\nRUN pip install keras==3.8.0\n")
    assert found.base == expected
    assert not found.gaps


def test_an_image_that_nobody_knows() -> None:
    assert listed("FROM example/gpu:1\nRUN pip install torch==2.6.0\n").gaps == (
        "the content of the image example/gpu:1 is unknown: run `cudnn-resolve check` inside it",
    )


def test_apt_and_conda_lines_of_a_dockerfile() -> None:
    found = listed(
        "FROM ubuntu:22.04\n"
        "RUN apt-get install -y cuda-toolkit-12-4 libcudnn9-cuda-12=9.1.0.70-1 python3.11 && uv sync\n"
        "RUN conda install -y -c pytorch pytorch==2.5.1 pytorch-cuda=12.4\n"
        "RUN conda env create -f environment.yml\n"
    )
    assert found.base is not None
    assert (found.base.cuda, found.base.cudnn, found.base.python) == ("12.4", "9.1.0.70", "3.11")
    assert versions(found) == {"torch": "2.5.1"}
    assert found.gaps == (
        "not followed: `uv sync` installs uv.lock (`cudnn-resolve check uv.lock` judges it)",
        "not followed: conda env create -f environment.yml: check that file, too",
    )


NUMPY = {"numpy": "2.4.0"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("RUN <<EOF\npip install \\\n  numpy==2.4.0\nEOF", NUMPY),
        ("RUN if true; then pip install numpy==2.4.0; else pip install numpy==2.4.0; fi", NUMPY),
        ("RUN if ! pip install numpy==2.4.0; then exit 1; fi", NUMPY),
        ("RUN conda run --no-capture-output -n base pip install numpy==2.4.0", NUMPY),
        ("RUN micromamba run -n base python -m pip install numpy==2.4.0", NUMPY),
        ("RUN pip --cache-dir /x install numpy==2.4.0", NUMPY),
        ("RUN sudo -H -u someone pip install numpy==2.4.0", NUMPY),
        ("RUN time -p env -u X Y=1 pip install numpy==2.4.0", NUMPY),
        ('RUN su x -c "pip install numpy==2.4.0"', NUMPY),
        ('RUN ["bash", "-lc", "cd /x && pip install numpy==2.4.0"]', NUMPY),
        ("RUN python3 -I -m pip install numpy==2.4.0", NUMPY),
        ("RUN (pip install numpy==2.4.0); pip cache purge", NUMPY),
        ('RUN echo "#!/bin/sh" > /x && pip install numpy==2.4.0', NUMPY),
        ("RUN pip install -q numpy==2.4.0 2>&1 | tee log # not numpy==1.0", NUMPY),
        ("RUN pip install numpy==2.4.0 &>> log", NUMPY),
        ("COPY <<EOF /x\nRUN pip install numpy==1.0\nEOF\nRUN pip install numpy==2.4.0", NUMPY),
    ],
)
def test_what_a_line_of_an_image_installs(line: str, expected: dict[str, str]) -> None:
    found = listed(f"FROM ubuntu:22.04\nRUN pip install keras==3.8.0\n{line}\n")
    assert versions(found) == {"keras": "3.8.0", **expected}
    assert (found.gaps, found.loose) == ((), ())


@pytest.mark.parametrize(
    "line",
    [
        "poetry add numpy@2.4.0",
        "sudo --unknown x pip install numpy==2.4.0",
        "retry 5 pip install numpy==2.4.0",
        "$(which pip) install numpy==2.4.0",
        "apt-get update && `which pip` install numpy==2.4.0",
        'pip install "numpy==2.4.0',
        "conda -n base install numpy=2.4.0",
        'sh -c \'sh -c "sh -c \\"sh -c pip\\ install\\ numpy==2.4.0\\""\'',
        " ".join(["conda run"] * 3000) + " pip install numpy==2.4.0",
        "python -c \"import os; os.system('pip install numpy==2.4.0')\"",
    ],
)
def test_what_could_install_and_is_not_understood_is_said(line: str) -> None:
    found = listed(f"FROM ubuntu:22.04\nRUN pip install keras==3.8.0\nRUN {line}\n")
    assert versions(found) == {"keras": "3.8.0"}
    assert len(found.gaps) == 1
    assert found.gaps[0].startswith("not ")
    assert len(found.gaps[0]) < 120


@pytest.mark.parametrize(
    "line",
    [
        "curl -LsSf https://index.example/uv/install.sh | sh",
        "conda config --add channels conda-forge && conda clean -y --all",
        "pip --version && apt-get install -y python3-pip && uv python install 3.11",
        "which pip && make -j4",
    ],
)
def test_what_installs_no_package_of_python_is_no_gap(line: str) -> None:
    assert not listed(f"FROM ubuntu:22.04\nRUN pip install keras==3.8.0\nRUN {line}\n").gaps


@pytest.mark.slow
def test_lines_of_an_image_that_grow_without_end() -> None:
    start = f"FROM ubuntu:22.04\nARG X={'y' * 1000}\nRUN pip install keras==3.8.0\n"
    for more in ("RUN echo " + "$X" * 10_000, ("RUN echo " + "$X" * 90 + "\n") * 300, "RUN echo " + "y" * 200_000):
        found = listed(start + more)
        assert versions(found) == {"keras": "3.8.0"}
        assert found.gaps
        assert "characters" in found.gaps[0]
    assert "characters" in listed(notebook("!pip install keras==3.8.0", "!echo aptitude\n" * 50_000)).gaps[0]
    assert "characters" in listed(notebook("!pip install keras==3.8.0", "!echo " + "y" * 200_000)).gaps[0]


def files(**texts: str) -> Any:
    def read(name: str, base: str | None) -> tuple[str, str]:  # noqa: ARG001
        if name not in texts:
            raise InputError("there is none", code="input-missing")
        return name, texts[name]

    return read


def test_files_that_a_requirements_file_names() -> None:
    found = listed(
        "-r base\n--constraint=limits\ntorch\nnumpy\n-r gone\n",
        open_=files(base="-r base\ntensorflow==2.18.0 \\\n  --hash=sha256:00\n", limits="torch==2.6.0\nnumpy<2\n"),
    )
    assert {one.name: (one.version, one.file, one.line) for one in found.packages} == {
        "tensorflow": ("2.18.0", "base", 2),
        "torch": ("2.6.0", None, 3),
    }
    assert [one.text for one in found.loose] == ["numpy<2"]
    assert found.constraints == ("torch==2.6.0", "numpy<2")
    assert found.gaps == ("not followed: -r gone (there is none)",)


@pytest.mark.parametrize(
    ("text", "limits", "expected"),
    [
        ("torch\n", "torch<2.3\n", (["torch<2.3"], {}, None)),
        ("Torch>=2\n", "torch<2.3\ntorch!=2.2.0\n", (["Torch!=2.2.0,<2.3,>=2"], {}, None)),
        ("torch==2.6.0\n", "torch==2.6.0+cu118\n", ([], {"torch": "2.6.0+cu118"}, None)),
        ("torch==2.6.0+cu118\n", "torch==2.6.0\n", ([], {"torch": "2.6.0+cu118"}, None)),
        ("torch==2.5.0\n", "torch==2.6.0\n", ([], {"torch": "2.5.0"}, "torch==2.5.0 is excluded by the constraint torch==2.6.0")),
        ("torch>=2.7\n", "torch==2.6.0\n", ([], {"torch": "2.6.0"}, "torch>=2.7 is excluded by the constraint torch==2.6.0")),
        ("torch==2.5.0\n", "torch==2.6.0; python_version<'3.9'\n", ([], {"torch": "2.5.0"}, None)),
        ("torch>=2.6\n", "torch<2.3\n", (["torch<2.3,>=2.6"], {}, "no version of torch satisfies <2.3,>=2.6")),
        ("torch>=2.6\ntorch<2.3\n", "", (["torch<2.3,>=2.6"], {}, "no version of torch satisfies <2.3,>=2.6")),
        ("torch>=2\ntorch<2.3\n", "", (["torch<2.3,>=2"], {}, None)),
        ("torch>=2.6\ntorch==2.3.0\n", "", ([], {"torch": "2.3.0"}, "torch==2.3.0 and torch>=2.6 exclude each other")),
        ("torch==2.3.0\ntorch>=2.6\n", "", (["torch>=2.6"], {}, "torch>=2.6 and torch==2.3.0 exclude each other")),
        ("torch==2.3.0\ntorch>=2\n", "", ([], {"torch": "2.3.0"}, None)),
    ],
)
def test_constraints(text: str, limits: str, expected: tuple[list[str], dict[str, str], str | None]) -> None:
    found = listed(f"{text}-c limits\n", open_=files(limits=limits))
    (loose, pins, clash) = expected
    assert ([one.text for one in found.loose], versions(found), found.clash) == (loose, pins, clash)


def test_a_constraint_counts_for_its_command_alone() -> None:
    cells = ("!pip install numpy -c limits", "!pip install torch==2.5.0")
    assert listed(notebook(*cells), open_=files(limits="torch==2.6.0\n")).clash is None


def test_requirements_of_pip_in_an_environment_of_conda_are_one_command() -> None:
    text = "dependencies:\n- python=3.11\n- pip:\n  - torch==2.5.0\n  - -c limits\n"
    assert listed(text, open_=files(limits="torch<2.5\n")).clash == "torch==2.5.0 is excluded by the constraint torch<2.5"


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{ALIASES}dependencies: \n- *c\n- <<: *a\n",
        f"dependencies:\n- {'[' * 5000}\n",
        f"version: 6\nenvironments: {'{a: ' * 3000}\n",
        "version: 6\nenvironments:\n  default: 5\npackages: 7\n",
        "package:\n- name: [x]\n  platform: linux-64\n  manager: conda\n",
        "version: 99\nenvironments: {}\n",
        "FROM\n",
        "FROM ubuntu:22.04\nRUN <<EOF\n",
        'FROM a AS b\nFROM b AS b\nFROM b\nRUN pip install "torch\n',
        '{"nbformat": 4, "cells": [{"cell_type": "code", "source": {"a": 1}}, 5]}',
        "dependencies:\n- pytorch=2.5.1=(((\n- '=='\n- pip: {a: b}\n",
    ],
)
def test_hostile_files_do_no_harm(text: str) -> None:
    with suppress(InputError):
        listed(text)


SHARED = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 100))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Newer libyaml bounds the depth of brackets itself.
        (f"dependencies: {'[' * 50_000}", r"more than 100 nested|exceeded maximum nesting depth"),
        (f"dependencies: {'[' * 1_000_000}", r"more than 100 nested|exceeded maximum nesting depth"),
        (f"package:\n{'- ' * 50_000}", "more than 100 nested"),
        (f"{SHARED}package:\n- {{platform: linux-64, category: *a99, name: *a99}}\n", r"alias \*a0 repeats a whole list"),
    ],
    ids=["deep", "deeper", "blocks", "aliases"],
)
def test_yaml_that_would_end_the_process_or_never_end_is_refused(text: str, said: str) -> None:
    program = (
        "import sys; from cudnn_resolve.package_lists.conda import parse_yaml; from cudnn_resolve.errors import InputError\n"
        "try: parse_yaml(sys.stdin.read(), 'the file')\n"
        "except InputError as error: print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert re.search(said, done.stdout), done


def test_an_alias_of_a_text_is_followed() -> None:
    assert [one.name for one in listed("version: &v '2'\ndependencies:\n- pip: [&t torch, *t]\n").loose] == ["torch"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["version: 1" + "\n" * 60_000, "dependencies:\n- " + "a" * 60_000 + " b c d\n- pytorch\n"],
    ids=["blank lines", "a long spec"],
)
def test_long_lists_are_read_at_once(text: str) -> None:
    program = (
        "import sys; from tests.unit.package_lists.test_list_forms import listed; from contextlib import suppress\n"
        "from cudnn_resolve.errors import InputError\n"
        "with suppress(InputError): listed(sys.stdin.read())"
    )
    done = subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


UV = """
version = 1
[[package]]
name = "app"
version = "0"
source = { virtual = "." }
[package.dev-dependencies]
dev = [{ name = "pytest" }]
gpu = [{ name = "torch" }]
[[package]]
name = "pytest"
version = "8.0.0"
[[package]]
name = "torch"
version = "2.6.0"
"""


@pytest.mark.parametrize(
    ("project", "expected", "left"),
    [
        ("", {"pytest"}, ("groups of the project left out: gpu",)),
        ("[tool.uv]\ndefault-groups = ['GPU']\n", {"torch"}, ("groups of the project left out: dev",)),
        ("[tool.uv]\ndefault-groups = 'all'\n", {"pytest", "torch"}, ()),
        ("[tool.uv]\ndefault-groups = [['gpu'], 5]\n", set(), ("groups of the project left out: dev, gpu",)),
        ("[tool]\nuv = 5\n", {"pytest"}, ("groups of the project left out: gpu",)),
    ],
)
def test_default_groups_of_uv(project: str, expected: set[str], left: tuple[str, ...]) -> None:
    beside = files(**{"pyproject.toml": project})
    text = f"{UV}[[package]]\nname = 'numpy'\nversion = '2.0.0'\n"
    text = text.replace("[package.dev-dependencies]", "dependencies = [{ name = 'numpy' }]\n[package.dev-dependencies]")
    found = listed(text, open_=beside)
    assert set(versions(found)) - {"numpy"} == expected
    assert found.notes == left
    without = listed(text, open_=beside, selection=PartSelection(defaults=False))
    assert set(versions(without)) == {"numpy"}
