"""A GPU that the build or the container's configuration refuses, and what a machine without it prints."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

_CCS = {
    "6.0": ">=6.0,<7.0 except {6.2}",
    "7.5": ">=7.5,<8.0",
    "8.0": ">=8.0,<9.0 except {8.7}",
    "9.0": ">=9.0,<10.0",
    "12.0": ">=12.0,<13.0",
}
_NVML = "Failed to initialize NVML: Unknown Error\n"
_NOTHING = "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
_NONE = (
    "ERROR: Could not find a version that satisfies the requirement {0} (from versions: none)\n"
    "ERROR: No matching distribution found for {0}\n"
)
_RETRY = (
    "WARNING: Retrying (Retry(total={}, connect=None)) after connection broken by 'ProxyError('Cannot connect to proxy.')': /simple/x/\n"
)
_SEARCH = (
    'level=INFO source=gpu.go:191 msg="Searching for GPU management library {}"\n'
    'level=INFO source=gpu.go:237 msg="Discovered GPU libraries: [{}]"\n'
)
_HOME = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"


def told(gpu: str, capability: str, built: str, end: str) -> str:
    """The warning of PyTorch 2.10 and newer."""
    head = f"/v/torch/cuda/__init__.py:422: UserWarning: Found GPU0 {gpu} which is of compute capability (CC) {capability}.\n"
    text = "The following list shows the CCs this version of PyTorch was built for and the hardware CCs it supports:\n"
    return head + text + "".join(f"- {cc} which supports hardware CC {_CCS[cc]}\n" for cc in built.split()) + end + "\n"


_KERNELS = "Your installed torch==2.13.0+cu126 does not include kernels for this GPU. Reinstall the same version, e.g.:"
_RELEASES = "Please follow the instructions to install a PyTorch release that supports one of these CUDA versions: 12.8, 13.0"


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (told("NVIDIA GeForce RTX 5090", "12.0", "6.0 7.5 8.0 9.0", _KERNELS), "gpu_arch_too_new_for_build", "12.0"),
        (told("NVIDIA GeForce RTX 5090", "12.0", "8.0 9.0", _RELEASES), "gpu_arch_too_new_for_build", "12.0"),
        (told("NVIDIA GeForce GTX 1050", "6.1", "7.5 8.0 12.0", _KERNELS), "gpu_arch_too_old_for_build", "6.1"),
        (told("Tesla V100", "7.0", "", ""), "gpu_arch_too_old_for_build", "7.0"),
        (_KERNELS + "\n", "gpu_arch_too_new_for_build", "compute_cap"),
        (f"$ docker run img --gpus=all\n{_NOTHING}", "container_gpu_not_passed", "before the name"),
        (f"$ docker run -v /a:/b --ipc host img:1 --gpus all\n{_NOTHING}", "container_gpu_not_passed", "before the name"),
        ('docker: exec: "--gpus": executable file not found in $PATH: unknown.\n', "container_gpu_not_passed", "before the name"),
        (f"no-cgroups = true\n{_NVML}", "container_gpu_not_passed", "no-cgroups=false"),
        (f"/etc/pve/lxc/104.conf:lxc.cgroup.devices.allow: c 195:* rwm\n{_NVML}", "container_gpu_not_passed", "lxc.cgroup2"),
        (f"torch 2.4.0+cpu\n{_HOME}", "cpu_only_build", "apply -f torch"),
        (_RETRY.format(0) + _NONE.format("torch==2.3.0"), "unrecognised", "proxy"),
        (_NONE.format("nvidia-tensorrt"), "pip_pin_unavailable", "JetPack"),
        (_SEARCH.format("libnvidia-ml.so", ""), "driver_not_loaded", "nvidia-smi"),
        ('failed container "o" in pod "o-74f" is waiting\n' + _SEARCH.format("libnvidia-ml.so", ""), "container_gpu_not_passed", "kubectl"),
        ("CUDA error 304 at ggml-cuda.cu:5065: OS call failed or operation not supported on this OS\n", "driver_wedged", "seccomp"),
        ("ImportError: libssl.so.1.1: cannot open shared object file: No such file or directory\n", "unrecognised", "OpenSSL 3"),
    ],
)
def test_cause_and_step(log: str, cause: str, step: str) -> None:
    found = judged(log).findings[0]
    assert found.cause == cause
    assert step in found.remedy[0].text + (found.remedy[0].command or "")


@pytest.mark.parametrize(
    "log",
    [
        told("Orin", "8.7", "8.0 9.0 12.0", "No published PyTorch CUDA builds for release 2.13.0+cu130 support this GPU."),
        f"$ docker run -it --rm --gpus all img\n{_NOTHING}",
        f"$ docker run --device /dev/x -m 8g --gpus all img\n{_NOTHING}",
        "$ docker run --rm img python train.py --gpus 2\nGPU available: True (cuda), used: True\n",
        "no-cgroups = true\nGPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n",
        _RETRY.format(0) + "Successfully installed torch-2.3.0\n",
        _SEARCH.format("libnvidia-ml.so", "")
        + _SEARCH.format("librocm_smi64.so", "/opt/rocm/lib/librocm_smi64.so.5.0")
        + "Radeon GPU detected\n",
    ],
)
def test_neighbours_are_quiet(log: str) -> None:
    assert not [found for found in judged(log).findings if found.severity != "info"]


def test_index_that_answers_at_last_is_not_blamed() -> None:
    assert judged(_RETRY.format(4) + _NONE.format("torch==1.4.0")).findings[0].cause == "pip_wheel_unavailable_for_python"
