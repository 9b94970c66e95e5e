"""`check` on lists that leave something to the installer: what comes along is what an installer would bring."""

from __future__ import annotations

import json

import pytest

from tests.program import run

T4 = ("--gpu", "T4", "--driver", "550.54.15", "--python-version", "3.11", "--os", "ubuntu22.04")


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
