"""libnvrtc, which cuDNN's engines call at a first convolution: where it is looked for, and whether it compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.validation import payload_load
from cudnn_resolve.validation.judge_loading import judge_library, judge_loading
from cudnn_resolve.validation.model import Check
from tests.native.template import compile_library
from tests.unit.validation.recordings import TORCH, facts, telling


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of NVIDIA's wheels, with a libnvrtc.so.77 that compiles and a libnvrtc.so.78 that does not."""
    folder = tmp_path_factory.mktemp("site") / "nvidia"
    (folder / "cudnn/lib").mkdir(parents=True)
    for name, status in (("libnvrtc.so.77", 0), ("libnvrtc.so.78", 7)):
        compile_library("standin_nvrtc.c", folder / "cuda_nvrtc/lib" / name, name, f"-DSTATUS={status}")
    return folder


def ask(wheels: Path, cuda: int, mapped: tuple[str, ...] = ()) -> dict[str, Any]:
    told = payload_load.find_compiler(cuda, str(wheels / "cudnn/lib/libcudnn.so.9"), mapped)
    return {**told, "path": Path(told["path"]).resolve().name if told["path"] else ""}


def test_it_is_looked_for_in_the_process_as_the_loader_does_and_in_other_wheels(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, led = str(wheels / "cuda_nvrtc/lib/libnvrtc.so.77"), str(wheels / "cuda_nvrtc/lib")

    assert ask(wheels, 77) == {"name": "libnvrtc.so.77", "how": "wheel", "path": "libnvrtc.so.77", "why": "", "status": 0}
    assert ask(wheels, 77, ("/x/libcudnn.so.9", loaded))["how"] == "loaded"
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{led}")
    assert ask(wheels, 77)["how"] == "found"
    assert ask(wheels, 78)["status"] == 7
    nowhere = ask(wheels, 79)
    assert (nowhere["how"], nowhere["status"]) == ("", None)
    assert "libnvrtc.so.79: cannot open shared object file" in nowhere["why"]
    assert next(iter(payload_load.NVRTC_NAMES[11])) == ask(wheels, 11)["name"] == "libnvrtc.so.11.2"


def test_cuda_libraries_beside_a_cudnn_are_found_below_a_name_with_brackets(tmp_path: Path) -> None:
    nvidia = tmp_path / "project [gpu]" / "nvidia"
    for path in ("cudnn/lib/libcudnn.so.9", "cublas/lib/libcublas.so.12"):
        (nvidia / path).parent.mkdir(parents=True)
        (nvidia / path).touch()

    found = payload_load.cuda_libraries_beside(str(nvidia / "cudnn/lib/libcudnn.so.9"))

    assert [Path(path).resolve() for path in found] == [nvidia / "cublas/lib/libcublas.so.12"]


LOADED: tuple[tuple[str, object], ...] = (
    ("imported", ["torch", "2.6.0", 1.0]),
    ("cudnn", {"path": "/env/libcudnn.so.9", "version": "9.1.0", "checks": {}}),
    ("libraries", {"/env/libcudnn.so.9": None}),
)


def judged(**compiler: object) -> Check | None:
    told = telling(*LOADED, ("step", "libnvrtc compiles a program"), ("compiler", {"name": "libnvrtc.so.12", **compiler}))
    return next((one for one in judge_loading(TORCH, told, facts(), has_gpu=False) if one.id == "torch/nvrtc"), None)


@pytest.mark.parametrize(
    ("compiler", "status", "words"),
    [
        ({"how": "loaded", "path": "/n/libnvrtc.so.12", "status": 0}, "passed", "/n/libnvrtc.so.12 compiles"),
        ({"how": "wheel", "path": "/n/libnvrtc.so.12", "status": 0}, "passed", "from which the framework must load it"),
        ({"how": "found", "path": "/n/libnvrtc.so.12", "status": 7}, "warning", "/n/libnvrtc.so.12 does not compile (status 7)"),
        ({"how": "", "why": "cannot open"}, "warning", "libnvrtc.so.12 cannot be opened: cannot open"),
        ({"how": "", "why": "libcuda.so.1: cannot open shared object file"}, "skipped", "no driver: libcuda.so.1"),
    ],
)
def test_what_is_said_of_it(compiler: dict[str, object], status: str, words: str) -> None:
    check = judged(**compiler)

    assert check is not None
    assert check.status == status
    assert words in (check.observed or "")
    assert ("compile at run time" in check.detail) == (status == "warning")


def test_one_that_ends_the_process_is_no_fault_of_cudnn() -> None:
    told = replace(telling(*LOADED, ("step", "libnvrtc compiles a program"), stderr="last words", end=False), failure="crashed (SIGSEGV)")

    checks = {one.id: one for one in judge_loading(TORCH, told, facts(), has_gpu=False)}

    assert checks["torch/cudnn-parts"].status == "passed"
    assert (checks["torch/nvrtc"].status, checks["torch/nvrtc"].observed) == ("warning", "libnvrtc compiles a program: crashed (SIGSEGV)")
    assert checks["torch/nvrtc"].output == ("last words",)
    assert [one.status for one in judge_library("x", told, facts())] == ["passed", "passed"]
