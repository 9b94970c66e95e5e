"""Lines of the kernel, of containers and of package managers that say what is wrong with a driver."""

import pytest

from tests.written_logs import judged

REFUSED = (
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:{})\nNVRM: installed in this system is not supported by the\n"
    "NVRM: NVIDIA {} driver release.\nnvidia: probe of 0000:01:00.0 failed with error -1\n"
)
CLI = "nvidia-container-cli: mount error: {}: operation not permitted: unknown.\n"
SEEN = "$ nvidia-smi -L\nGPU 0: Tesla V100-SXM2-32GB (UUID: GPU-7d3c0f7e)\n"
NO_CUDA = "OSError: libcuda.so.1: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("log", "cause", "words"),
    [
        (REFUSED.format("2484", "440.100"), "driver_too_old", "440.100"),
        (REFUSED.format("2684", "515.65.01"), "driver_too_old", "update"),
        (REFUSED.format("2b85", "550.54.14"), "driver_too_old", "update"),
        (REFUSED.format("26b9", "570.86.15"), "driver_not_loaded", "vGPU"),
        (REFUSED.format("0fc6", "535.54.03"), "driver_not_loaded", "older branch"),
        ("NVRM: RmFetchGspRmImages: No firmware image found\nNVRM: GPU 0: RmInitAdapter failed! (0x61)\n", "driver_incomplete", "firmware"),
        ("NVRM: Xid (PCI:0000:41:00): 120, pid=7, GSP task timeout\n", "driver_wedged", "--gpu-reset"),
        ("node gpu-1: NVIDIA Xid: 79\n", "hardware_fault", "power"),
        ("XidCriticalError: Xid=48 on Device=GPU-5a1b, the device will go unhealthy.\n", "hardware_fault", "power"),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0\n", "hardware_fault", "Above 4G"),
        ("libEGL_nvidia.so.0: cannot open shared object file\n", "driver_incomplete", "libnvidia-gl"),
        ("NVRM: GPU 0: RmInitAdapter failed! (0x26:0xffff:1290)\n", "hardware_fault", "power"),
        (CLI.format("write error: /sys/fs/cgroup/devices/docker/7f/devices.allow"), "container_gpu_not_passed", "no-cgroups"),
        (SEEN + "$ apptainer exec a.sif python t.py\n" + NO_CUDA, "container_gpu_not_passed", "--nv"),
        ("$ apptainer exec --nv a.sif nvidia-smi -L\n" + SEEN[16:] + NO_CUDA, "driver_not_loaded", "nvidia"),
        ("#9 1.2 No CUDA runtime is found, using CUDA_HOME\n#9 2.1     arch_list[-1] += '+PTX'\n", "container_gpu_not_passed", "ARCH_LIST"),
        (
            "Because app depends on torch (2.1.0) which doesn't match any versions, version solving failed.\n",
            "pip_pin_unavailable",
            "torch",
        ),
        ("ValueError: invalid literal for int() with base 10: 'GPU-5a1b1bcb'\n", "other_bug", "CUDA_VISIBLE_DEVICES=0"),
        ("CUDA error: MPS server is not ready to accept new MPS client requests\n", "unrecognised", "nvidia-cuda-mps-control"),
        ("--> Processing Conflict: 3:nvidia-driver-branch-470-1.el7.x86_64 conflicts nvidia-driver > 470\n", "apt_conflict", "one branch"),
        ("Warning: MIG mode is in pending enable state for GPU 00000000:07:00.0\n", "unrecognised", "fuser"),
        (
            "Error setting watches. Result: -33: This request is serviced by a module of DCGM that is not currently loaded\n",
            "unrecognised",
            "PROF",
        ),
        (":: unable to satisfy dependency 'nvidia-utils=570.1' required by nvidia-settings\n", "apt_conflict", "-Syu"),
    ],
)
def test_a_line_about_a_driver_has_its_cause_and_steps(log: str, cause: str, words: str) -> None:
    found = judged(log).findings[0]
    assert found.cause == cause
    assert words in " ".join([found.summary, *(f"{step.text} {step.command}" for step in found.remedy)])


@pytest.mark.parametrize(
    "log",
    [
        "INFO: libEGL_nvidia.so.0: not found, using Mesa\nepoch 1 loss 0.5\n",
        "WARNING: failed to load libGLX_nvidia.so.0, using llvmpipe\nepoch 1 loss 0.5\n",
        "Policy: isolate a node when Xid 79 or Xid 119 occurs\nGPU 0: xid 79 count 0\n",
        "LOG:  redo done at xid: 79\nDETAIL:  oldest xid 120\n",
        "epoch 1 maxid: 95\nrows with taxid=119: 64\n",
        "W0523 nvc_info.c:404] missing compat32 library libEGL_nvidia.so\n",
        "> An error while retrieving `fan_speed`: Not Supported -> Total 8 occurrences.\n",
        'level=info msg="Not collecting DCP metrics: This request is serviced by a module of DCGM that is not currently loaded"\n',
    ],
)
def test_a_missing_part_that_nothing_wants_is_no_failure(log: str) -> None:
    assert all(found.severity == "info" for found in judged(log).findings)


def test_a_hosted_notebook_does_not_reset_its_gpu() -> None:
    log = "/content# python a.py\nNVRM: Xid (PCI:0000:41:00): 119, pid=7, Timeout waiting for RPC from GSP!\n"
    assert [step.command for step in judged(log).findings[0].remedy] == [None]


@pytest.mark.parametrize("after", ["", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). import torch\n"])
def test_no_older_build_runs_on_a_card_that_the_driver_refuses(after: str) -> None:
    (step,) = judged(REFUSED.format("2684", "515.65.01") + after).findings[0].remedy
    assert "driver" in step.text
    assert step.command is None
