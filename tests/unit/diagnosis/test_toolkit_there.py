"""What the facts have of toolkits, drivers and shared files decides what a log leaves open, and what is advised."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.codec import from_mapping
from tests.unit.diagnosis.test_with_facts import HOST, NO_CARD, Tree
from tests.written_logs import book


def _first(log: str, facts: Tree) -> Finding:
    return diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(HOST | facts), book()).findings[0]


_NVTX = "OSError: libnvToolsExt.so.1: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("log", "toolkit", "built", "cause"),
    [
        (_NVTX, "9.0", "10.2", "cuda_runtime_missing"),
        (_NVTX, "10.2", "10.2", "lib_not_on_path"),
        (_NVTX, "11.8", "11.1", "lib_not_on_path"),
        (_NVTX, "11.8", "12.1", "cuda_runtime_missing"),
        ("OSError: libcudart.so.9.0: cannot open shared object file: No such file or directory\n", "9.0", "10.2", "lib_not_on_path"),
    ],
)
def test_a_toolkit_of_another_cuda_than_the_framework_has_no_library_for_it(log: str, toolkit: str, built: str, cause: str) -> None:
    torch = {"name": "torch", "version": "1.5.0", "cuda_built": built}
    there = [{"version": toolkit, "path": f"/usr/local/cuda-{toolkit}", "source": "runfile"}]
    assert _first(log, {"frameworks": [torch], "cuda_toolkits": there, "packages": {"pip": {"torch": "1.5.0"}}}).cause == cause


_UNUSED = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n1/1 [=======] - 1s 1s/step\n"


@pytest.mark.parametrize(("module", "severity"), [(None, "info"), ("550.54.15", "error")])
def test_libraries_of_a_driver_without_its_module_are_no_gpu(module: str | None, severity: str) -> None:
    assert _first(_UNUSED, {"driver": {"version": "550.54.15", "kernel_module": module}, "gpus": []}).severity == severity


def test_a_traceback_without_its_end_is_not_a_program_that_goes_on() -> None:
    cut = 'Traceback (most recent call last):\n  File "t.py", line 81, in <module>\n    out.backward()\n'
    found = _first(f"THCudaCheck FAIL file=engine.cpp line=352 error=30 : unknown error\n{cut}", NO_CARD)
    assert (found.cause, found.severity) == ("driver_not_loaded", "error")


@pytest.mark.parametrize(
    ("toolkits", "home"),
    [
        ({"12.1": "/usr/local/cuda-12.1", "12.4.1": "/opt/my cuda"}, "'/opt/my cuda'"),
        ({"11.8": "/usr/local/cuda-11.8", "12.1": "/usr/local/cuda-12.1"}, "/usr/local/cuda-12.1"),
        ({"11.8": "/usr/local/cuda-11.8"}, None),
        ({"12.4": "/usr/lib/cuda"}, None),
    ],
)
def test_an_installed_toolkit_is_named_to_the_build(toolkits: dict[str, str], home: str | None) -> None:
    there = [{"version": version, "path": path, "source": "runfile"} for version, path in toolkits.items()]
    facts = {"cuda_toolkits": there, "packages": {"pip": {"torch": "2.5.1+cu124"}}}
    found = _first("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n", facts)
    named = [one.command for one in found.remedy if one.command and one.command.startswith("export CUDA_HOME=")]
    assert named == ([f"export CUDA_HOME={home} PATH={home}/bin:$PATH"] if home else [])


def test_packages_that_share_files_are_named_with_their_folder_and_versions() -> None:
    facts = from_mapping(HOST | {"packages": {"pip": {"nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cudnn-cu13": "9.13.0.50"}}})
    shown = [one.text for one in diagnose(None, facts, book()).findings[0].evidence]
    assert shown[0] == "nvidia-cudnn-cu13==9.13.0.50: it shares nvidia/cudnn/lib with nvidia-cudnn-cu12 9.1.0.70"
