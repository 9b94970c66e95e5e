"""Messages of container runtimes, clusters and hosted GPUs."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.test_rows import advice
from tests.written_logs import judged, loud

NO_UVM = "[WARN] Kernel module nvidia_uvm is not loaded. Make sure the NVIDIA device driver is installed and loaded.\n"
VALIDATOR = "running command chroot with args [/run/nvidia/driver nvidia-smi]\n"
STAT_CDI = 'failed to inject devices: failed to stat CDI host device "/dev/'
LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun 6\n$ modinfo -F version nvidia\n"
FABRIC = "nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Loaded: loaded (/lib/systemd/x.service)\n     Active: "
ERROR_35 = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version\n"
UCX = "[1.2] [a:1:0]  ucp_context.c:690  UCX  WARN  transports 'cuda_copy','cuda_ipc' are not available, please use one or more of: "
NCCL = 'Could NOT find NCCL: Found unsuitable version "2.4.8", but required is at\n  least "2.7.0" (found /usr/lib/libnccl.so)\n'
YUM = "Error: Package: nvidia-docker2-2.0.3-1.docker18.noarch (nvidia-docker)\n           Requires: docker-ce = 18.06\n"
IGNORED = "unable to open mca_accelerator_cuda: libcuda.so.1: cannot open shared object file: No such file or directory (ignored)\n"
METAL = "dlopen(/v/tensorflow-plugins/libmetal_plugin.dylib, 0x0006): Symbol not found: __ZN3tsl8internal10LogMessageC1EPKcii\n"
NVPROF = "Warning: nvprof is not supported on devices with compute capability 8.0 and higher.\n"
DECODE = "    n = nvmlDeviceGetName(h).decode()\nAttributeError: 'str' object has no attribute 'decode'\n"


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (NO_UVM + "[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1\n", "driver_not_loaded", "nvidia"),
        (VALIDATOR + "chroot: failed to run command 'nvidia-smi': No such file or directory\n", "driver_not_loaded", "nvidia-driver-ctr"),
        (
            VALIDATOR + "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver\n",
            "driver_not_loaded",
            "nvidia-driver-ctr",
        ),
        ("failed to find runtime handler nvidia from runtime list map[runc:0xc0]\n", "container_toolkit_missing", "CRI-O"),
        (STAT_CDI + 'nvidia-uvm": no such file or directory\n', "driver_wedged", "nvidia-modprobe"),
        (STAT_CDI + 'dri/renderD129": no such file or directory\n', "container_toolkit_missing", "cdi generate"),
        ('exec: "nvidia-cuda-mps-control": executable file not found in $PATH\n', "driver_incomplete", "nvidia-compute-utils"),
        (LOADED + "535.104.05\n", "driver_library_mismatch", "reboot"),
        (FABRIC + "inactive (dead)\n", "fabric_manager_missing", "systemctl enable"),
        (FABRIC + "failed (Result: exit-code)\n", "fabric_manager_missing", "systemctl enable"),
        ("GPU 0: row remapping failed, 2 uncorrectable memory errors\n", "hardware_fault", "return the GPU"),
        ("CUDA_VISIBLE_DEVICES set incorrectly. Got 1, expected to include 0.\n", "gpu_hidden_by_env", "remove the line"),
        ("_CONDOR_AssignedGPUs=10000\nRuntimeError: No CUDA GPUs are available\n", "gpu_hidden_by_env", "request_gpus = 1"),
        ("You have exceeded your Pro GPU quota (60s requested vs. 4s left).\n", "no_gpu_runtime", "larger quota"),
        ("Accelerator: None\n" + ERROR_35, "no_gpu_runtime", "Kaggle"),
        (UCX + "cma, self, tcp\n", "cpu_only_build", "ucx_info"),
        ("UCX  ERROR UCP version is incompatible, required: 1.11, actual: 1.9 (release 0)\n", "framework_pkg_mismatch", "libucp"),
        ("[0]PETSC ERROR: Unknown Mat type given: mpiaijcusparse\n", "cpu_only_build", "CUDA build"),
        ("IllegalArgumentException: Could not find Spark Shim Loader for 3.1.2\n", "framework_pkg_mismatch", "rapids-4-spark"),
        ("Device architecture 60 is unsupported. Minimum supported architecture: 70.\n", "gpu_arch_too_old_for_build", "rapids-4-spark"),
        ("nvidia-container-cli: device error: unknown device id: no-gpu-has-8MiB-to-run\n", "out_of_memory", "nvidia-smi"),
        (NVPROF, "gpu_arch_too_new_for_build", "ncu"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute\n", "driver_too_old", "driver"),
        ("vfio-pci 0000:01:00.0: not ready 65535ms after FLR; giving up\n", "hardware_fault", "power the machine off"),
        ("GPU 5 is running at PCI link width 8X, which is below the minimum allowed\n", "hardware_fault", "slot"),
        ("ERROR:105: Unable to locate a modulefile for 'cuda/9.0'\n", "cuda_runtime_missing", "module avail cuda"),
        ("└─ cudatoolkit 12.1**  does not exist (perhaps a typo or a missing channel).\n", "pip_pin_unavailable", "conda search"),
        (YUM, "apt_conflict", "yum list --showduplicates nvidia-docker2"),
        (NCCL, "nccl_mix", "nccl.h"),
        (NCCL.replace("NCCL", "CUDA", 1), "toolkit_build_mismatch", "wheel"),
        ("version 3.7.0 of the Protocol Buffer runtime library, but the installed version is 2.6.1\n", "protobuf_abi", "libprotobuf"),
        (DECODE, "other_bug", "remove .decode()"),
        ("ERROR:105: Unable to locate a modulefile for 'cuda/9.0'\n$ python a.py\nKeyError: 'lr'\n", "unrecognised", ""),
        ("docker run --gpus all a/b:1 python a.py --gpus 2\n" + ERROR_35, "driver_too_old", "driver"),
        ("docker run --runtime=nvidia a/b:1 serve --gpus 2\n" + ERROR_35, "driver_too_old", "driver"),
        ("docker run a/b:1 --gpus all\n" + ERROR_35, "container_gpu_not_passed", "before the name of the image"),
    ],
)
def test_a_message_of_a_cluster_names_its_cause(log: str, cause: str, step: str) -> None:
    assert judged(log).findings[0].cause == cause
    assert step in advice(log)


@pytest.mark.parametrize(
    "log",
    [
        NO_UVM + "True\n",
        LOADED + "535.54.03\n",
        FABRIC + "active (running)\n",
        UCX.replace("cuda_copy", "rc_mlx5").replace("cuda_ipc", "ud_mlx5") + "cma, cuda_copy, self\n",
        "UCX  WARN  UCP version is incompatible, required: 1.14, actual: 1.12 (release 1)\n",
        "vfio-pci 0000:01:00.0: not ready 1023ms after FLR; waiting\n",
        "_CONDOR_AssignedGPUs=GPU-1234abcd\n",
        IGNORED,
    ],
)
def test_a_healthy_message_beside_it_stays_quiet(log: str) -> None:
    assert not loud(judged(log))


@pytest.mark.parametrize(
    ("log", "step", "unwanted"),
    [
        (YUM, "yum list", "apt-cache"),
        (METAL, "pip uninstall tensorflow-metal", "cudnn-resolve apply"),
        (NVPROF, "nsys profile", "up to capability"),
        (
            "OCI runtime create failed: error adding seccomp rule for syscall clone3: denied\n",
            "$(dpkg-query -Wf '${Package} ' docker-ce",
            "{{",
        ),
        ("NvRmMemInitNvmap failed with Permission denied\n", "usermod -aG video $USER;", "video,render"),
        ("AssertionError: mxnet: Compile with USE_CUDA=1 to enable GPU usage\n", "nvcc --version", "install mxnet-cu"),
    ],
)
def test_a_step_is_for_the_system_of_the_log(log: str, step: str, unwanted: str) -> None:
    assert step in advice(log)
    assert unwanted not in advice(log)


def test_a_stopped_service_is_not_why_memory_runs_out() -> None:
    findings = judged(FABRIC + "inactive (dead)\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n").findings
    assert [found.cause for found in findings if found.severity != "info"] == ["out_of_memory"]


def test_a_driver_that_a_notebook_shows_is_too_old() -> None:
    seen = "| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: 11.4     |\n"
    assert judged("/content/x.py\n" + seen + ERROR_35).findings[0].cause == "driver_too_old"
