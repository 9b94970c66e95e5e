"""A log beside facts: what it says of another machine, where the loader always looks, and whose files the traceback names."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose, diagnose_facts
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding, Remedy
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book, judged

T4 = {"name": "Tesla T4", "compute_capability": "7.5"}
RTX5090 = {"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0"}
LINUX = {"platform": {"system": "linux", "arch": "x86_64", "glibc": "2.35"}, "python": {"version": "3.11.9"}}
SM120 = """\
NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.
RuntimeError: CUDA error: no kernel image is available for execution on the device
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    y = net(x)
  File "/opt/venv/lib/python3.11/site-packages/{}/nn/modules/conv.py", line 456, in _conv_forward
    return run(input)
RuntimeError: the provided PTX was compiled with an unsupported toolchain.
"""
MISSING = "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"


def _with(log: str, **facts: Any) -> tuple[Finding, ...]:
    return diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping({**LINUX, **facts}, "test"), book()).findings


def test_a_gpu_that_this_machine_does_not_have_is_told() -> None:
    pip = {"packages": {"pip": {"torch": "2.6.0+cu124", "jax": "0.4.30"}}, "driver": {"version": "580.82.07"}}
    first = _with(SM120, gpus=[T4], **pip)[0]
    assert first.cause == "gpu_arch_too_new_for_build"
    assert "compute capability 12.0, but this machine has Tesla T4 (7.5)" in str(first.undecided)
    assert "--no-facts" in str(first.undecided)
    # A plan for this machine would be a plan for another one.
    assert first.remedy[0] == Remedy(text="install a build that has code for this GPU", command="cudnn-resolve apply -f torch")
    assert "contradicts" not in str(_with(SM120, gpus=[RTX5090], **pip)[0].undecided)
    assert "contradicts" not in str(_with(SM120, **pip)[0].undecided)


def test_a_driver_that_is_not_this_machines_is_told() -> None:
    table = "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |\n"
    old = "RuntimeError: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version\n"
    assert "shows driver 470.57.02, but this machine has driver 550.54.15" in str(
        _with(table + old, driver={"version": "550.54.15"})[0].undecided
    )
    assert "contradicts" not in str(_with(table + old, driver={"version": "470.57.2"})[0].undecided)


@pytest.mark.parametrize("place", ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib", "/opt/cached"])
def test_where_the_loader_always_looks_it_looks(place: str) -> None:
    copy = {"version": "9.1.0", "soname": 9, "path": place, "source": "apt"}
    loader = {"ld_library_path": [], "ldconfig": ["/opt/cached/libcudnn.so.9"]}
    first = _with(MISSING, cudnn=[copy], loader=loader)[0]
    assert first.cause == "cudnn_missing"
    assert f"in {place}, which the loader searches" in first.summary
    assert "the log contradicts the facts" in str(first.undecided)
    assert not any(f"LD_LIBRARY_PATH={place}" in str(one.command) for one in first.remedy)
    # Elsewhere it does not.
    other = _with(MISSING, cudnn=[copy | {"path": "/opt/cudnn/lib"}], loader=loader)[0]
    assert other.cause == "lib_not_on_path"
    assert "contradicts" not in str(other.undecided)


def test_what_a_framework_does_not_find_where_the_loader_looks_cannot_be_opened() -> None:
    torch = {"name": "torch", "version": "2.6.0", "cudnn_built": "9.1.0", "would_load": {"cudnn": None, "because": "no libcudnn.so.9"}}
    copy = {"version": "9.1.0", "soname": 9, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt", "problems": ["two releases"]}
    facts = from_mapping({**LINUX, "frameworks": [torch], "cudnn": [copy]}, "test")
    found = [one for one in diagnose_facts(facts, book()) if one.summary.startswith("torch 2.6.0 needs")]
    assert [one.cause for one in found] == ["cudnn_sublibrary_mix"]
    assert "which the loader searches, but cannot be opened: two releases" in found[0].summary


def test_what_stops_a_framework_before_its_cudnn_is_told() -> None:
    because = "libtorch_cuda.so needs libnccl.so.2, which is not found"
    torch = {"name": "torch", "version": "2.6.0", "cudnn_built": "9.1.0", "would_load": {"cudnn": None, "because": because}}
    copy = {"version": "9.1.0", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip", "complete": True}
    facts = from_mapping({**LINUX, "frameworks": [torch], "cudnn": [copy]}, "test")
    (found,) = [one for one in diagnose_facts(facts, book()) if one.summary.startswith("torch 2.6.0 ")]
    assert (found.cause, found.summary) == ("cuda_runtime_missing", f"torch 2.6.0 does not load: {because}")


@pytest.mark.slow
@pytest.mark.parametrize(("package", "framework"), [("torch", "torch"), ("jaxlib", "jax"), ("tensorflow", "tensorflow")])
def test_the_framework_of_the_traceback_stands_in_the_command(package: str, framework: str) -> None:
    commands = [one.command or "" for one in judged(TRACEBACK.format(package)).findings[0].remedy]
    assert any(f"-f {framework}" in one for one in commands)
    assert not any("FRAMEWORK" in one for one in commands)
    # Of several that are installed it comes first.
    pip = {"pip": {"jax": "0.4.30", "tensorflow": "2.16.1", "torch": "2.3.0"}}
    planned = [
        one.command or "" for one in _with(TRACEBACK.format(package), packages=pip)[0].remedy if "cudnn-resolve" in (one.command or "")
    ]
    assert all(one.partition(" -f ")[2].startswith(framework) for one in planned)


def test_remedies_of_other_frameworks_are_left_out() -> None:
    memory = TRACEBACK.replace("the provided PTX was compiled with an unsupported toolchain.", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")
    pip = {"pip": {"jax": "0.4.30", "tensorflow": "2.16.1", "torch": "2.3.0"}}
    texts = " ".join(one.text for one in _with(memory.format("torch"), packages=pip)[0].remedy)
    assert "TensorFlow" not in texts
    assert "JAX" not in texts
