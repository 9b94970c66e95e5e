"""What the facts say of search paths, interpreters and machines is used in cause and remedy, and not for more than it says."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.codec import from_mapping
from tests.unit.diagnosis.test_with_facts import HOST, NO_CARD, SITE
from tests.written_logs import book

_SYSTEM = "/usr/lib/x86_64-linux-gnu"
_CUBLAS = "OSError: libcurand.so.10: cannot open shared object file: No such file or directory\n"
_PTX = "CUDA error: the provided PTX was compiled with an unsupported toolchain.\n"
_NVVM = "NvvmSupportError: libNVVM cannot be found.\n{}/nvvm/lib64/libnvvm.so: cannot open shared object file: No such file or directory\n"
_TORCH = {"packages": {"pip": {"torch": "2.2.1"}}}
_ARM = {"system": "linux", "arch": "aarch64", "glibc": "2.27"}
_ABSENT: dict[str, Any] = {"driver": None, "loader": {"ld_library_path": [], "ldconfig": []}}
_JETPACK = _ABSENT | {"platform": _ARM, "gpus": None, "packages": {"pip": {"torch": "1.10.0"}}}
_OLD = {"frameworks": [{"name": "torch", "version": "1.10.0", "cuda_built": "10.2"}]}
_ARM_CUDA = {"frameworks": [{"name": "torch", "version": "1.12.0", "cuda_built": "11.4"}]}
_TOOLKIT = {"cuda_toolkits": [{"version": "12.4.1", "path": "/usr/local/cuda-12.4", "source": "apt"}]}
_BLAS = "E tensorflow/stream_executor/cuda/cuda_blas.cc:428] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n"
_NO_DEVICE = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
_LIBCUDA = "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file or directory\n"


def _first(log: str, given: dict[str, Any]) -> Finding:
    facts = {name: value for name, value in (HOST | given).items() if value is not None or name in ("driver", "container")}
    return diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(facts, "test"), book()).findings[0]


def _copy(version: str) -> dict[str, Any]:
    return {"version": version, "soname": int(version[0]), "path": f"{SITE}/nvidia/cudnn/lib", "source": "pip", "complete": True}


@pytest.mark.parametrize(
    ("log", "given", "cause", "shown", "not_shown"),
    [
        (
            f"ImportError: {SITE}/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister\n",
            _TORCH | {"loader": {"ld_library_path": [_SYSTEM, "/usr/local/cuda-12.1/lib64"], "ldconfig": [f"{_SYSTEM}/libnccl.so.2"]}},
            "nccl_mix",
            "unset LD_LIBRARY_PATH",
            f"LD_LIBRARY_PATH={_SYSTEM}",
        ),
        (_LIBCUDA, _TORCH | {"container": {"kind": "wsl"}, "cudnn": [_copy("8.9.2.26")]}, "lib_not_on_path", "/usr/lib/wsl/lib", "glob"),
        (_NO_DEVICE, {"container": {"kind": "colab"}, "gpus": []}, "no_gpu_runtime", "Change runtime type", "docker"),
        (_CUBLAS, _JETPACK | _OLD | {"container": {"kind": "docker"}}, "container_gpu_not_passed", "--runtime nvidia", "cudnn-resolve"),
        (_CUBLAS, _JETPACK | _ARM_CUDA | {"gpus": []}, "cuda_runtime_missing", "--device cpu", "pip install"),
        (
            "OSError: libcudart.so.11.0: " + _CUBLAS.split(": ", 2)[2],
            {"gpus": [], "driver": None},
            "cuda_runtime_missing",
            "-cu11",
            "doctor LOG",
        ),
        (_NVVM.format("/opt/cuda-9.0"), _TOOLKIT, "lib_not_on_path", "unset NUMBAPRO_NVVM", "numba-cuda"),
        (_NVVM.format("/usr/local/cuda"), _TOOLKIT, "cuda_runtime_missing", "numba-cuda", "unset NUMBAPRO_NVVM"),
        (_NVVM.format("/opt/cuda-9.0"), {}, "cuda_runtime_missing", "numba-cuda", "unset NUMBAPRO_NVVM"),
        (
            _NVVM.format("/opt/cuda-9.0"),
            {"python": {"version": "3.6.8", "path": "/e/bin/python", "prefix": "/e"}},
            "cuda_runtime_missing",
            "cudatoolkit",
            "numba-cuda",
        ),
        (_PTX + "  in function ggml_cuda_op_flatten at ggml-cuda.cu:10011\n", _TORCH, "ptx_too_new", "CUDA 12.4 or older", "-f torch"),
        (_PTX, _TORCH, "ptx_too_new", "-f torch", "CUDA 12.4 or older"),
        (_BLAS, {"packages": {"pip": {"tensorflow": "1.15.0"}}}, "gpu_arch_too_new_for_build", "nvidia-tensorflow", "nvidia-smi"),
        (
            "CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution on the device.\n",
            {
                "gpus": [{"name": "NVIDIA GeForce RTX 5080", "compute_capability": "12.0"}],
                "driver": {"version": "570.133.07", "cuda": "12.8"},
                "packages": {"pip": {"cupy-cuda11x": "13.4.1"}},
            },
            "gpu_arch_too_new_for_build",
            "-f cupy\n",
            "-f cupy-cuda11x",
        ),
        (
            "kernel version 535.129.3 does not match DSO version 545.23.8 -- cannot find working devices in this configuration\n",
            {"container": {"kind": "docker"}, "driver": {"version": "545.23.08", "kernel_module": "535.129.03"}},
            "driver_library_mismatch",
            "the image has driver libraries of its own",
            "reboot, so that",
        ),
        (
            "Could not load dynamic library 'libcusolver.so.10'; dlerror: libcusolver.so.10: cannot open shared object file\n",
            {"packages": {"pip": {"tensorflow": "2.4.0"}}},
            "cuda_runtime_missing",
            "cudnn-resolve",
            "nvidia-cusolver-cu11 &&",
        ),
    ],
)
def test_the_facts_choose_the_remedy(log: str, given: dict[str, Any], cause: str, shown: str, not_shown: str) -> None:
    found = _first(log, given)
    text = "".join(f"{one.text}\n{one.command}\n" for one in found.remedy)
    assert (found.cause, shown in text, not_shown in text) == (cause, True, False)


def test_a_bare_machine_is_no_container() -> None:
    log = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\nRuntimeError: No CUDA GPUs are available\n"
    found = _first(log, _TORCH | {"driver": {"version": "550.54.15"}})
    assert found.cause == "driver_not_loaded"
    assert "container" not in (found.undecided or "")


def test_the_wheels_of_a_framework_are_put_on_the_path_together() -> None:
    log = "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly\n"
    loads = {"cudnn": None, "because": "nothing provides libcudnn.so.8"}
    there = {"name": "tensorflow", "version": "2.16.1", "cuda_built": "12.3", "cudnn_built": "8.9.7", "would_load": loads}
    found = _first(log, {"cudnn": [_copy("8.9.7.29")], "frameworks": [there], "packages": {"pip": {"tensorflow": "2.16.1"}}})
    assert found.cause == "lib_not_on_path"
    assert '/nvidia/*/lib"' in (found.remedy[0].command or "")


@pytest.mark.parametrize(
    "log",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "ERROR: Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when\n",
    ],
)
def test_the_tools_of_a_driver_want_a_gpu_even_where_there_is_none(log: str) -> None:
    (first, *_) = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(HOST | NO_CARD), book()).findings
    assert (first.cause, first.severity) == ("driver_not_loaded", "error")


def _in_container(log: str) -> Finding:
    known = HOST | {"driver": None, "container": {"kind": "docker"}}
    facts = from_mapping({name: value for name, value in known.items() if name != "gpus"})
    return diagnose(Reader(book().symptoms()).read([log.encode()]), facts, book()).findings[0]


def test_the_installer_in_a_driver_container_works_on_the_machine() -> None:
    first = _in_container("ERROR: The Nouveau kernel driver is currently in use by your system.\nERROR: Installation has failed.\n")
    assert first.cause == "driver_not_loaded"
    assert "nouveau" in first.remedy[0].text


def test_the_kernel_log_that_a_container_shows_does_not_hide_the_container() -> None:
    log = "RuntimeError: Found no NVIDIA driver on your system.\n[   12.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
    assert _in_container(log).cause == "container_gpu_not_passed"
