"""Remedies of TensorFlow, JAX and PyTorch change what failed, and not what works."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.test_remedy_place import NO_DEVICE, said
from tests.written_logs import judged

OLD = "The NVIDIA driver on your system is too old (found version 11040). "
NO_CUDNN_8 = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
NO_DLL = 'OSError: [WinError 126] x. Error loading "C:\\e\\Lib\\site-packages\\torch\\lib\\fbgemm.dll" or one of its dependencies.\n'
VISION = "torchvision {} requires torch==2.0.1, but you have torch {} which is incompatible.\n"
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
        # A kernel that failed earlier leaves cuBLAS without memory too.
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n", "CUDA_LAUNCH_BLOCKING=1", "preallocate"),
        ("cublas runtime error : resource allocation failed at /pytorch/a.cpp:22\n", "CUDA_LAUNCH_BLOCKING=1", "preallocate"),
        # PyTorch's index has no xFormers that is so old; those for other hardware have indexes too.
        ("    PyTorch 2.1.0+cu118 with CUDA 1106 (you have 2.0.1+cu118)\n", "xformers==0.0.22", "whl/cu118"),
        ("    PyTorch 2.1.0+cu118 with CUDA 1106 (you have 2.2.0+cu118)\n", "whl/cu118", "cu121"),
        ("OSError: /v/torchaudio/libtorchaudio.so: undefined symbol: _ZN2at4x\n", 'if cuda[:2] in ("cu", "cp", "ro", "xp")', "xformers"),
        # On a Jetson pip would put the CPU build of an index over the vendor's.
        (
            "OSError: /v/torchaudio/libtorchaudio.so: undefined symbol: _ZN2at4x\n",
            'assert "+cu" in v or platform.machine() != "aarch64"',
            "xf",
        ),
        (VISION.format("0.15.2+cu118", "2.1.0+rocm5.6"), "0.16.0 --index-url https://download.pytorch.org/whl/rocm5.6", "apply"),
        (VISION.format("0.15.2+rocm5.4.2", "2.0.0+cu118"), "torchvision==0.15.1 --index-url https", "0.15.2 "),
        # Only the ptxas is old; only the name of a generated file is wrong.
        ("You are using ptxas 10.0.130, but XLA requires ptxas 11.1\n", "which -a ptxas", "cuda_data_dir"),
        ("TypeError: Descriptors should not be created directly, but only retrieved from their parent.\n", "--python_out=.", "protobuf<"),
        ("TypeError: Descriptors cannot be created directly.\n", "protobuf<3.21", "--python_out"),
        # A downgraded driver is loaded by a reboot.
        ("kernel version 515.48.7 does not match DSO version 510.73.5\n", "was downgraded), reboot", "a reboot does not help"),
        # What a notebook has imported stays.
        ("/content/x\nAttributeError: _ARRAY_API not found\n", "then restart the session", "kernel"),
    ],
)
def test_what_works_stays(log: str, there: str, absent: str) -> None:
    assert there in said(log)
    assert absent not in said(log)


OLD_TORCH = "cuda runtime error (8) : invalid device function at /pytorch/torch/lib/THC/a.cu:15\n"
PTXAS = "W asm_compiler.cc:111] *** WARNING *** You are using ptxas {}, which is older than 11.1. ptxas before 11.1 miscompiles\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        # A warning after which XLA goes on, until a kernel crashes.
        (PTXAS.format("11.0.221") * 3, "harmless"),
        (PTXAS.format("10.2.89") + "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered\n", "ptxas_or_libdevice_missing"),
        # pip and uv leave out an extra that does not exist.
        ("WARNING: jax 0.4.13 does not provide the extra 'cuda10-pip'\n", "cpu_only_build"),
        ("warning: The package `spacy==3.0.5` does not have an extra named `cuda12x`\n", "cpu_only_build"),
        ("WARNING: jax 0.4.13 does not provide the extra 'dev'\n", None),
        # What has CUDA in the package itself lacks nothing without the extra.
        ("WARNING: torch 2.3.0+cu121 does not provide the extra 'cuda'\nusing device cuda:0\n", None),
        ("warning: The package `nvidia-cudnn-cu12==9.1.0.70` does not have an extra named `cuda`\n", None),
        # Builds for other hardware are no mere note of pip.
        (VISION.format("0.15.2+rocm5.4.2", "2.0.0+cu118"), "framework_pkg_mismatch"),
        (VISION.format("0.15.2+cu117", "2.0.0+cpu"), "cpu_only_build"),
        (VISION.format("0.15.2+rocm5.4.2", "2.0.0+cu118") + "Successfully installed torchvision-0.15.1+cu118\n", "harmless"),
        (VISION.format("0.15.2+cu117", "2.0.0+cu118"), "harmless"),
        (VISION.format("0.15.2+cu118", "2.0.0+cu118"), "harmless"),
        # PyTorch's own builds of that time had code for all newer GPUs.
        (OLD_TORCH, "gpu_arch_too_old_for_build"),
        (f"GPU: GeForce RTX 3090\n{OLD_TORCH}", "gpu_arch_too_new_for_build"),
        (f"GPU: GeForce RTX 2080\n{OLD_TORCH}", "gpu_arch_too_new_for_build"),
        (f"GPU: GeForce GTX 680\n{OLD_TORCH}", "gpu_arch_too_old_for_build"),
        ("cuda runtime error (8) : invalid device function at /home/me/src/roi.cu:15\n", "gpu_arch_too_new_for_build"),
    ],
)
def test_what_an_installer_or_an_old_build_says(log: str, cause: str | None) -> None:
    assert next((found.cause for found in judged(log).findings), None) == cause
