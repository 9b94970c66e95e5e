"""Remedies of TensorFlow, JAX and PyTorch change what failed, and not what works."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.test_remedy_place import NO_DEVICE, said

OLD = "The NVIDIA driver on your system is too old (found version 11040). "
NO_CUDNN_8 = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
NO_DLL = 'OSError: [WinError 126] x. Error loading "C:\\e\\Lib\\site-packages\\torch\\lib\\fbgemm.dll" or one of its dependencies.\n'
NVML = "Failed to initialize NVML: Driver/library version mismatch\n"


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        # NVIDIA's image of PyTorch keeps its own.
        (
            "CUDA initialization: " + OLD + "(Triggered internally at /opt/pytorch/pytorch/c10/a.cpp:1)\n",
            "older image",
            "cudnn-resolve",
        ),
        (
            "CUDA initialization: " + OLD,
            "525.60.13 for CUDA 12",
            "for CUDA 11,",
        ),
        # Driver libraries of an image hide those of its host.
        ("jane@jupyter-jane:~$ nvidia-smi\n" + NVML, "run this on the host", "rmmod"),
        ("jovyan@jupyter-jane--doe:~$ nvidia-smi\n" + NVML, "from its Dockerfile", "dkms"),
        ("root@3f2504e04f89:/w# nvidia-smi\n" + NVML, "from its Dockerfile", "dkms"),
        # A library may be there, a variable may be set by the program.
        (
            "tensorflow/stream_executor/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'\n",
            "find / -name 'libcudart.so.11.0*'",
            "apt",
        ),
        (NO_DEVICE, "grep -rn --include='*.py' CUDA_VISIBLE_DEVICES .", "ubuntu-drivers"),
        ('File "/usr/local/lib64/python3.9/site-packages/torch/__init__.py"\n' + NO_CUDNN_8, "dnf install libcudnn8", "apt-get"),
        (NO_CUDNN_8, "for apt or dnf", "dnf install"),
        # A compiler that is too old for the code.
        ("nvcc fatal   : Value 'c++17' is not defined for option 'std'\n", "torch.version.cuda", "compute"),
        ("Cuda compilation tools, release 7.5\nnvcc fatal : Value 'c++14' is not defined for option 'std'\n", "of CUDA 7.5", "Windows"),
        ("nvcc fatal   : Unknown option '-generate-dependencies-with-compile'\n", "C++17 11.0", "knows"),
        # Another release of the same build.
        (NO_DLL, "replaces cuNNN", "cu118"),
        ("torch 2.4.0+cpu\n" + NO_DLL, "whl/cpu", "cu118"),
        # What a notebook has imported stays.
        ("/content/x\nAttributeError: _ARRAY_API not found\n", "then restart the session", "kernel"),
    ],
)
def test_what_works_stays(log: str, there: str, absent: str) -> None:
    assert there in said(log)
    assert absent not in said(log)
