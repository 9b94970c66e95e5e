"""`check` on lists that leave something to the installer: what comes along is what an installer would bring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.program import run

T4 = ("--gpu", "T4", "--driver", "550.54.15", "--python-version", "3.11", "--os", "ubuntu22.04")
OF_T4 = "--driver 550.54.15 --gpu T4 --python-version 3.11 --os ubuntu22.04"


def status(text: str) -> str:
    done = run("check", "-", *T4, "--format", "json", text=text)
    return str(json.loads(done.stdout)["verdicts"][0]["status"])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("jax[cuda12]==0.5.3", "runs"),  # the extra brings jaxlib, its plugin and the libraries that the plugin asks for
        ("jax[cuda12_local]==0.5.3", "unknown"),  # made for the CUDA of a system
        ("tensorflow[and-cuda]==2.18.0", "runs"),
        ("cupy-cuda12x[ctk]==14.0.1", "runs"),
        ("cupy-cuda12x==13.4.0", "unknown"),  # these wheels declare no library of CUDA
        ("onnxruntime-gpu==1.20.0", "unknown"),
        ("ctranslate2==4.5.0", "unknown"),
        ("torch==2.6.0\ncupy-cuda12x==13.4.0", "runs"),  # torch brings them
    ],
)
def test_what_comes_with_a_framework_is_what_its_wheels_declare(asked: str, expected: str) -> None:
    assert status(asked) == expected


def test_a_package_for_the_cpu_beside_a_framework_with_a_gpu() -> None:
    assert status("torch==2.6.0\ntensorflow-cpu==2.16.1\nonnxruntime==1.23.1\n") == "runs"
    assert status("onnxruntime==1.23.1\n") == "breaks"  # alone it is what was to use the GPU


@pytest.mark.parametrize("version", ["2.6.0a0+ecf3bae40a.nv25.01", "2.6.0+mine1"])
def test_a_makers_own_build_without_its_image_is_no_yes(version: str) -> None:
    done = run("check", "-", *T4, text=f"torch=={version}\n")
    assert f"torch {version} is a vendor build" in " ".join(done.stdout.split())
    assert status(f"torch=={version}\n") == "unknown"


SOURCES = {
    "uv.lock": (
        'version = 1\n[[package]]\nname = "numpy"\nversion = "2.2.6"\nsource = { registry = "https://index.example/simple" }\n'
        '[[package]]\nname = "torch"\nversion = "2.6.0"\nsource = { git = "https://git.example/torch?rev=x#abc" }\n'
    ),
    "poetry.lock": (
        '[[package]]\nname = "numpy"\nversion = "2.2.6"\ngroups = ["main"]\n[[package]]\nname = "torch"\nversion = "2.6.0"\n'
        'groups = ["main"]\n[package.source]\ntype = "directory"\nurl = "../torch"\n[metadata]\nlock-version = "2.1"\n'
    ),
    "pdm.lock": (
        '[metadata]\nlock_version = "4.5.0"\n[[package]]\nname = "numpy"\nversion = "2.2.6"\n'
        '[[package]]\nname = "torch"\nversion = "2.6.0"\ngit = "https://git.example/torch.git"\n'
    ),
    "pylock.toml": (
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "numpy"\nversion = "2.2.6"\n[[packages]]\nname = "torch"\n'
        'version = "2.6.0"\n[packages.vcs]\ntype = "git"\nurl = "https://git.example/torch.git"\ncommit-id = "abc"\n'
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_framework_that_is_built_from_source_is_not_judged_as_the_wheel(tmp_path: Path, kind: str) -> None:
    (tmp_path / kind).write_text(SOURCES[kind], encoding="utf-8")
    done = run("check", str(tmp_path / kind), *T4)
    assert done.returncode == 0, done
    assert "torch 2.6.0 is built from a " in " ".join(done.stdout.split())
    assert "runs\n" not in done.stdout


def test_a_library_that_is_pinned_beside_a_framework_makes_no_whole_list() -> None:
    assert status("torch==2.6.0\nnvidia-cudnn-cu12==9.1.0.70\n") == "runs"  # the installer brings the others
    done = run("check", "-", *T4, text="torch==2.6.0\nnvidia-cudnn-cu12==8.9.7.29\n")
    assert done.returncode == 1
    assert "torch==2.6.0 requires nvidia-cudnn-cu12==9.1.0.70, and nvidia-cudnn-cu12 8.9.7.29 is pinned" in " ".join(done.stdout.split())


CONDA = """# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
python                    3.10.14              h955ad1f_1
pytorch                   2.1.2           py3.10_cuda12.1_cudnn8.9.2_0    pytorch
pytorch-cuda              12.1                 ha16c6d3_5    pytorch
tensorflow                2.15.0                   pypi_0    pypi
"""


def test_the_cudnn_inside_a_framework_of_conda_serves_that_framework_alone() -> None:
    done = run("check", "-", *T4, text=CONDA)
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "torch 2.1.2 runs" in said
    assert "tensorflow 2.15.0 breaks" in said
    assert "there is cuDNN 8.9.2 inside torch, where only torch finds it" in said
    assert status(f"{CONDA}cudnn 8.9.2.26 cuda12_0 conda-forge\n") == "runs"  # the environment's own, which both find


IMAGE = "FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("RUN uv pip install --torch-backend=cu118 torch==2.6.0", "torch 2.6.0+cu118 runs"),
        ("RUN uv pip install --torch-backend cpu torch==2.6.0", "torch 2.6.0+cpu breaks"),
        ("RUN uv pip install --torch-backend auto torch==2.6.0", "`--torch-backend auto` chooses the build of torch during installation"),
        ("ENV UV_TORCH_BACKEND=auto\nRUN uv pip install torch==2.6.0", "UV_TORCH_BACKEND chooses the build of torch (auto)"),
        ("ENV UV_TORCH_BACKEND cpu\nRUN uv pip install torch==2.6.0", "UV_TORCH_BACKEND chooses the build of torch (cpu)"),
        ("RUN UV_TORCH_BACKEND=cpu uv pip install torch==2.6.0", "UV_TORCH_BACKEND chooses the build of torch (cpu)"),
        (
            "ENV PIP_INDEX_URL=https://me:secret@index.example/whl/cu118\nRUN pip install torch==2.6.0",
            "PIP_INDEX_URL chooses the build of torch",
        ),
    ],
)
def test_what_chooses_the_build_of_torch_is_followed_or_said(lines: str, expected: str) -> None:
    done = run("check", "-", *T4, text=f"{IMAGE}{lines}\n")
    said = " ".join(done.stdout.split())
    assert expected in said
    assert "secret" not in said
    assert ("torch 2.6.0 runs" in said) is False


def test_an_index_without_variants_is_no_doubt() -> None:
    assert status(f"{IMAGE}ENV PIP_INDEX_URL=https://index.example/simple\nRUN pip install torch==2.6.0\n") == "runs"


def test_a_notebook_that_sets_the_backend_in_python() -> None:
    cell = {"cell_type": "code", "source": "import os\nos.environ['UV_TORCH_BACKEND'] = 'cpu'\n!uv pip install torch==2.6.0\n"}
    assert status(json.dumps({"cells": [cell], "nbformat": 4, "nbformat_minor": 5, "metadata": {}})) == "unknown"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("torch==2.6.0", "tensorflow[and-cuda]==2.18.0"), "runs"),  # cuDNN 9.3 comes last, and serves both
        (("tensorflow[and-cuda]==2.18.0", "torch==2.6.0"), "breaks"),  # here it is 9.1
        (("torch==2.6.0 tensorflow[and-cuda]==2.18.0",), "breaks"),  # one command cannot have both
        (("torch==2.6.0 tensorflow==2.18.0", "--no-deps nvidia-cudnn-cu12==9.3.0.75"), "runs"),  # what the remedy of a Dockerfile says
        (("nvidia-cudnn-cu12==9.3.0.75", "torch==2.6.0", "tensorflow==2.18.0"), "breaks"),
    ],
)
def test_a_later_command_replaces_what_an_earlier_one_installed(lines: tuple[str, ...], expected: str) -> None:
    commands = "".join(f"RUN pip install {line}\n" for line in lines)
    assert status(f"FROM python:3.11-bookworm\n{commands}") == expected


def test_a_command_that_mends_is_for_the_machine_that_was_stated() -> None:
    done = run("check", "-", *T4, text="torch==2.6.0\ntensorflow==2.14.0\nnumpy==1.26.4\n")
    assert f"$ cudnn-resolve plan -f tensorflow==2.14.0 -f torch==2.6.0 {OF_T4}\n" in done.stdout
    done = run("check", "-", *T4, text="FROM python:3.10-bookworm\nRUN pip install torch==2.6.0 tensorflow==2.14.0 'numpy<2'\n")
    assert f"-f torch==2.6.0 {OF_T4.replace('3.11', '3.10')}\n" in done.stdout  # the Python of the file


def test_the_cudnn_inside_a_framework_of_conda_is_no_cudnn_of_the_system(tmp_path: Path) -> None:
    inside = {"version": "9.8.0.87", "soname": 9, "cuda": "12", "path": "/opt/conda/lib", "source": "conda", "complete": True}
    facts = {
        "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
        "python": {"version": "3.11.9"},
        "driver": {"version": "550.54.15"},
        "gpus": [{"name": "Tesla T4"}],
    }
    for owner, expected in (("pytorch", True), (None, False)):
        (tmp_path / "facts.json").write_text(json.dumps({**facts, "cudnn": [{**inside, "owner": owner}]}), encoding="utf-8")
        done = run("plan", "-f", "tensorflow==2.18.0", "--channel", "apt", "--facts", str(tmp_path / "facts.json"), "--offline")
        assert ("libcudnn9-cuda-12=" in done.stdout) is expected, done
