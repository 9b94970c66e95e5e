"""What works after a failure excuses it only if the failed program, not another command, did the work."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

SMI = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed.\n"
CUDART = "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file\n"
CUDNN = "OSError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
ODD = "$ ./render --gpu scene.usd\nRuntimeError: the scheduler gave up on its GPU queue\n"
NO_NVCC = "UserWarning: flash_attn was requested, but nvcc was not found. Are you sure your environment has nvcc available?\n"
NVML = "Failed to initialize NVML: Driver/library version mismatch\n"
LOADED = "Jan 05 11:00:00 n7 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.54.03\n"
BOOT = "-- Boot 41d09c3b6be04f1f8c0f3ad6d9d7a1c2 --\n"
ANSWER = "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader\nNVIDIA A100-SXM4-80GB, 535.129.03\n"
SANDBOX = 'Warning  FailedCreatePodSandbox  pod/{0}  Failed to create pod sandbox: no runtime for "nvidia" is configured\n'
PODS = SANDBOX.format("train-abcde") + SANDBOX.format("infer-fghij") + "infer-fghij   1/1     Running     0          7m\n"
FAILED = [
    pytest.param(PODS, "container_toolkit_missing", id="another pod runs"),
    pytest.param(SMI + "Successfully built pycocotools\n", "driver_not_loaded", id="a wheel is no image"),
    pytest.param(SMI + "$ docker build -t web .\nSuccessfully built 1a2b3c4d5e6f\n", "driver_not_loaded", id="an image built afterwards"),
    pytest.param(SMI + "Processing triggers for man-db (2.10.2-1) ...\n", "driver_not_loaded", id="triggers of dpkg"),
    pytest.param(SMI + "$ conda install numpy\nExecuting transaction: done\n", "driver_not_loaded", id="conda"),
    pytest.param(SMI + "C:\\Users\\me>conda install numpy\nExecuting transaction: done\n", "driver_not_loaded", id="conda on Windows"),
    pytest.param(SMI + "$ sudo update-grub\ndone\n", "driver_not_loaded", id="update-grub"),
    pytest.param(CUDART + "$ unzip x.zip\ndone\n", "cuda_runtime_missing", id="unzip"),
    pytest.param(CUDNN + "$ pytest -q\n12 passed in 0.31s\n", "cudnn_missing", id="tests of something else"),
    pytest.param(SMI + "$ ssh gpu2 " + ANSWER, "driver_not_loaded", id="another host by ssh"),
    pytest.param("me@n1:~$ nvidia-smi\n" + SMI + "me@n2:~$ " + ANSWER, "driver_not_loaded", id="another host by its prompt"),
    pytest.param(ODD + "$ pip install requests\nSuccessfully installed requests-2.31.0\n", "unrecognised", id="pip after another program"),
    pytest.param(ODD + "$ sudo apt-get install libcudnn8\nSetting up libcudnn8 (8.5.0.96-1) ...\n", "unrecognised", id="apt after it"),
    pytest.param(NO_NVCC + "Successfully installed flash-attn-stub-0.1\n", "cuda_runtime_missing", id="a package of a longer name"),
    pytest.param(NVML + "$ journalctl\n" + BOOT + LOADED, "driver_library_mismatch", id="a boot before the failure, listed after it"),
    pytest.param(
        NVML + "$ unset LD_LIBRARY_PATH\n$ lspci\n01:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090]\n",
        "driver_library_mismatch",
        id="a card that only lspci names",
    ),
]


@pytest.mark.parametrize(("log", "cause"), FAILED)
def test_the_work_of_another_command_excuses_nothing(log: str, cause: str) -> None:
    finding = judged(log).findings[0]
    assert (finding.cause, finding.severity == "info") == (cause, False)


@pytest.mark.parametrize(
    "log",
    [
        "$ docker build .\n" + SMI + "Successfully built 1a2b3c4d5e6f\n",
        CUDART + "Processing 12 images\nExecuting plan: done\n",
        "$ pytest -q\nE   " + CUDNN + "$ pytest -q\n12 passed in 0.31s\n",
        NO_NVCC + "Successfully installed flash-attn-2.5.8\n",
        SMI + ANSWER,
    ],
)
def test_the_work_of_the_same_program_does(log: str) -> None:
    assert all(finding.severity == "info" for finding in judged(log).findings)
