"""`validate` with companions of frameworks: whole, broken, hanging and wrong ones, and (network) a real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.cli.main import main
from cudnn_resolve.facts.model import Facts, Packages
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.validation.children import ChildRunner
from cudnn_resolve.validation.companions import COMPANIONS, companions_of, judge_on_gpu
from cudnn_resolve.validation.model import Check, VisibleGpu
from cudnn_resolve.validation.payload_companion import JOBS
from tests.functional.interpreters import make_environment, site_packages, uv
from tests.native.convolution import GPU, computing_cudnn, working_libcuda
from tests.schemas import fit

pytestmark = pytest.mark.slow

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
NUMBA = "__version__ = '0.60.0'\ndef njit(work):\n    return work\n"
"""A numba that computes as Python does."""
TORCH = """
class Tensor:
    def __init__(self, numbers): self.numbers = numbers
    def detach(self): return self
    cpu = detach
    def reshape(self, *shape): return self
    def tolist(self): return self.numbers
class cuda:
    is_available = staticmethod(lambda: True)
def tensor(numbers, device): return Tensor(numbers)
"""
NMS = """
import torch
def nms(boxes, scores, most):
    def share(one, two):
        (a, b, c, d), (e, f, g, h) = boxes.numbers[one], boxes.numbers[two]
        both = max(0, min(c, g) - max(a, e)) * max(0, min(d, h) - max(b, f))
        return both / ((c - a) * (d - b) + (g - e) * (h - f) - both)
    left = []
    for one in sorted(range(5), key=lambda index: -scores.numbers[index]):
        if all(share(one, two) <= most for two in left):
            left.append(one)
    return torch.Tensor(left)
"""
"""torchvision's nms in plain Python."""


def install(venv: Path, name: str, code: str, **modules: str) -> None:
    """A distribution with a package of its name, and modules in it."""
    site = site_packages(venv)
    metadata = site / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n", "utf-8")
    (site / name.replace("-", "_")).mkdir()
    for module, text in {"__init__": code, **modules}.items():
        (site / name.replace("-", "_") / f"{module}.py").write_text(text, "utf-8")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment without packages."""
    make_environment(THIS, tmp_path / "venv")
    return tmp_path / "venv"


def validated(venv: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    """The checks by their ids; the whole answer fits the schema."""
    main(["validate", "--python", str(venv), "--format", "json", *words])
    told = json.loads(capsys.readouterr().out)
    fit(told)
    return {check["id"]: check for check in told["checks"]}


def on_gpu(venv: Path, name: str) -> list[Check]:
    """What a companion gives that believes to have a GPU."""
    (found,) = companions_of(Facts(packages=Packages(pip={name: "1.0"})))
    bench = ChildRunner(host=LinuxHost(), python=str(venv / "bin/python"), progress=lambda _text: None)
    gpu = VisibleGpu(index=0)
    return list(judge_on_gpu(found, bench.companion(found, gpu), gpu, ""))


def test_a_companion_proves_its_code_and_what_it_cannot_prove_is_said(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(venv, "numba", NUMBA)

    checks = validated(venv, capsys)

    assert (checks["numba/import"]["status"], checks["numba/import"]["observed"]) == ("passed", "0.60.0")
    assert (checks["numba/njit"]["status"], checks["numba/njit"]["framework"]) == ("passed", "numba")
    assert (checks["numba/kernel"]["status"], checks["numba/kernel"]["observed"]) == (
        "skipped",
        "seen: it imports; not tested without a GPU",
    )
    assert not any("torch" in id_ for id_ in checks)  # what is not installed is not looked at


def test_only_what_goes_with_the_framework_that_is_named_is_tried(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(venv, "torch", TORCH)
    install(venv, "torchvision", "", ops=NMS)
    install(venv, "numba", NUMBA)

    assert {id_ for id_ in validated(venv, capsys, "-f", "torch") if not id_.startswith("torch/")} >= {"torchvision/nms"}
    assert "numba/njit" not in validated(venv, capsys, "-f", "torch")


@pytest.mark.parametrize(
    ("code", "id_", "words"),
    [
        ("import missing_module\n", "numba/import", "No module named 'missing_module'"),
        ("raise ImportError('libcudart.so.13: cannot open shared object file')\n", "numba/import", "libcudart.so.13"),
        ("import os; os.abort()\n", "numba/import", "crashed (SIGABRT)"),
        (
            "def njit(work): return lambda count: work(count) * 1.25\n",
            "numba/njit",
            "wrong numbers: 1 of 1; number 0 is 6068.98 instead of 4855.19",
        ),
        ("def njit(work): return lambda count: float('nan')\n", "numba/njit", "wrong numbers: 1 of 1; number 0 is nan"),
        ("def njit(work): raise ValueError('no LLVM')\n", "numba/njit", "ValueError: no LLVM"),
        ("import os\ndef njit(work): os.abort()\n", "numba/njit", "crashed (SIGABRT)"),
    ],
)
def test_a_companion_that_is_broken(venv: Path, capsys: pytest.CaptureFixture[str], code: str, id_: str, words: str) -> None:
    install(venv, "numba", code)

    check = validated(venv, capsys)[id_]

    assert check["status"] == "failed"
    assert words in check["observed"]


def test_what_lacks_only_the_driver_is_skipped(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(venv, "flash-attn", "raise ImportError('libcuda.so.1: cannot open shared object file: No such file')\n")

    check = validated(venv, capsys)["flash-attn/import"]

    assert (check["status"], check["observed"]) == ("skipped", "no driver: libcuda.so.1 is part of it")


def test_a_companion_that_hangs(venv: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.validation.children.COMPANION_SECONDS", 0.5)
    install(venv, "numba", "import time; time.sleep(60)\n")

    assert validated(venv, capsys)["numba/import"]["observed"] == "did not end within 0.5 s and was stopped"


def test_what_goes_with_a_framework_that_does_not_load_is_not_tried(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(venv, "torch", "raise ImportError('broken')\n")
    install(venv, "torchvision", "import torch\n")
    install(venv, "numba", NUMBA)

    checks = validated(venv, capsys)

    assert (checks["torchvision/import"]["status"], checks["torchvision/import"]["observed"]) == (
        "skipped",
        "not tested: torch does not load",
    )
    assert not any(id_.startswith("torch/compile") for id_ in checks)
    assert checks["numba/njit"]["status"] == "passed"


def test_xformers_that_only_warns_has_failed(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(venv, "xformers", "", ops="", _cpp_lib="_cpp_library_load_exception = OSError('undefined symbol: _ZN3c10')\n")

    check = validated(venv, capsys)["xformers/extension"]

    assert check["status"] == "failed"
    assert "undefined symbol: _ZN3c10" in check["observed"]


def test_an_assembler_that_does_not_run(venv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(venv, "triton", "")
    assert validated(venv, capsys)["triton/ptxas"]["observed"] == "not tested: this triton has no ptxas"
    tool = site_packages(venv) / "triton/bin/ptxas"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.61'\n", "utf-8")
    assert validated(venv, capsys)["triton/ptxas"]["status"] == "failed"  # it may not be run
    tool.chmod(0o755)
    assert validated(venv, capsys)["triton/ptxas"]["observed"] == "Cuda compilation tools, release 12.8, V12.8.61"


def test_no_compiler_is_no_failure(venv: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    install(venv, "torch", TORCH + "compile = None\n")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)

    check = validated(venv, capsys)["torch/compile"]

    assert (check["status"], check["observed"]) == ("skipped", "not tested: no compiler (g++) is on PATH")


def test_numbers_on_a_gpu(venv: Path) -> None:
    install(venv, "torch", TORCH)
    install(venv, "torchvision", "", ops=NMS)

    (check,) = on_gpu(venv, "torchvision")

    assert (check.id, check.status, check.gpu) == ("torchvision/nms/cuda", "passed", 0)


def test_a_wrong_result_on_a_gpu(venv: Path) -> None:
    install(venv, "torch", TORCH)
    install(venv, "torchvision", "", ops="import torch\ndef nms(*given): return torch.Tensor([3, 0, 2])\n")

    (check,) = on_gpu(venv, "torchvision")

    assert (check.status, check.observed) == ("failed", "wrong numbers: 1 of 3; number 1 is 0 instead of 1")


def test_a_companion_that_does_not_start_beside_a_gpu(venv: Path) -> None:
    install(venv, "tensorrt-cu12", "")  # whose module is named tensorrt

    (check,) = on_gpu(venv, "tensorrt-cu12")

    assert (check.id, check.status, check.observed) == (
        "tensorrt-cu12/start",
        "failed",
        "ModuleNotFoundError: No module named 'tensorrt'",
    )


def test_each_card_tries_the_companions(
    tmp_path: Path, venv: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(venv, "numpy", "")
    install(venv, "numba", NUMBA, cuda="def is_available(): return False\n")
    computing_cudnn(tmp_path / "lib", 7605)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(working_libcuda(tmp_path / "lib").parent))
    monkeypatch.setenv("STANDIN_GPUS", GPU)

    checks = validated(venv, capsys)

    assert (checks["numba/njit"]["status"], checks["numba/njit"]["gpu"]) == ("passed", None)
    assert (checks["numba/kernel"]["status"], checks["numba/kernel"]["gpu"]) == ("skipped", 0)
    assert checks["numba/kernel"]["observed"].startswith("not tested: numba.cuda finds no driver or no libNVVM")


def test_every_job_is_there() -> None:
    assert {job for one in COMPANIONS for job in (*one.anywhere, *one.on_gpu)} == set(JOBS)


@pytest.mark.network
def test_a_real_numba_compiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = make_environment(THIS, tmp_path / "venv")
    uv("pip", "install", "-q", "--python", python, "numba")

    checks = validated(tmp_path / "venv", capsys)

    assert {id_: check["status"] for id_, check in checks.items() if id_.startswith("numba")} == {
        "numba/import": "passed",
        "numba/njit": "passed",
        "numba/kernel": "skipped",
    }
