"""Logs at the edges between answers: versions, listings and what ran before or after decide."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

_FLASH = "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
_ARCH = "nvcc fatal   : Unsupported gpu architecture 'compute_120'\nRuntimeError: Error building extension 'fused_adam'\n"
_PLAN = "RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.\n"
_GEMM = "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm( handle, opa, opb, m, n, k)`\n"
_LLAMA = (
    "$ docker run ghcr.io/ggml-org/llama.cpp:full-cuda --run -m m.gguf -ngl 99\n"
    "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n"
    "warning: one possible reason is that llama.cpp was compiled without GPU support\n"
)
_SMI = "$ nvidia-smi -L\nGPU 0: NVIDIA RTX A4000 (UUID: GPU-0d7a0e6e)\n"
_DKMS = "Error! Bad return status for module build on kernel: 6.5.0-14-generic (x86_64)\n"
_PPA = "E: The repository 'https://ppa.launchpadcontent.net/x/y/ubuntu noble Release' does not have a Release file.\n"
_XFORMERS = "WARNING[XFORMERS]: xFormers was built for:\n    PyTorch 2.1.2+cu121 with CUDA 1201 (you have {})\n"
_NO_OPERATOR = "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n"
_NO_EXT = "    import_module('mmcv._ext')\nModuleNotFoundError: No module named 'mmcv._ext'\n"
_NO_KERNEL = (
    "errors_impl.InvalidArgumentError: No OpKernel was registered to support Op '{}' with these attrs.\n  <no registered kernels>\n"
)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (f"torch 2.9.0+cu128 NVIDIA GeForce RTX 5090\n{_FLASH}", "gpu_arch_too_new_for_build"),
        (f"torch 2.3.0+cu121 Tesla T4\n{_FLASH}", "gpu_arch_too_old_for_build"),
        (f"torch 2.5.0+cu124 NVIDIA H100\n{_PLAN}", "other_bug"),
        (f"torch==2.4.1+cu121\nCuda compilation tools, release 12.1, V12.1.105\n{_ARCH}", "gpu_arch_too_new_for_build"),
        (f"torch==2.4.1+cu121\nCuda compilation tools, release 11.8, V11.8.89\n{_ARCH}", "toolkit_build_mismatch"),
        (f'  File "/home/v/mmcv/mmcv/utils/ext_loader.py", line 13, in load_ext\n{_NO_EXT}', "unrecognised"),
        (f'  File "/env/lib/python3.8/site-packages/mmcv/utils/ext_loader.py", line 13, in f\n{_NO_EXT}', "framework_pkg_mismatch"),
        ("AttributeError: module 'torch' has no attribute 'device'\n", "unrecognised"),
        ("AttributeError: module 'torch' has no attribute 'float8_e4m3fn'\n", "framework_pkg_mismatch"),
        (_LLAMA, "container_gpu_not_passed"),
        (_LLAMA + _SMI, "container_gpu_not_passed"),
        (f"$ ./llama-server -ngl 99\n{_LLAMA.splitlines()[2]}\n{_SMI}", "cpu_only_build"),
        (_GEMM, "cublas_mismatch"),
        (f"{_GEMM}RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)\n", "bad_input"),
        (f"{_GEMM}IndexError: Target 10 is out of bounds.\n", "bad_input"),
        ("aborting with status: INVALID_ARGUMENT: indices[12,44] = 20000 is not in [0, 20000)\nGraph execution error:\n", "bad_input"),
        ("[ONNXRuntimeError] : 1 : FAIL : Expand_3: right operand cannot broadcast on dim 1 LeftShape: {1,43}\n", "bad_input"),
        (_NO_KERNEL.format("CudnnRNN"), "cpu_only_build"),
        (_NO_KERNEL.format("ListDiff"), "unrecognised"),
        ("/usr/include/c++/10/chrono:428:27: internal compiler error: Segmentation fault\n", "other_bug"),
        ("src/pack.hpp:12:30: error: parameter packs not expanded with '...':\nninja: build stopped.\n", "unrecognised"),
        (_DKMS, "driver_not_loaded"),
        (f"{_DKMS}Tesla T4, 470.223.02\n", None),
        (f"Tesla T4, 470.223.02\n{_DKMS}", "driver_not_loaded"),
        (f"{_PPA}$ sudo apt-get install -y cuda-toolkit-12-6\nSetting up cuda-toolkit-12-6 (12.6.3-1) ...\n", None),
        (_XFORMERS.format("2.1.0+cu121") + "Applying attention optimization: sdp... done.\n", None),
        (_XFORMERS.format("2.1.0+cu121") + "Applying attention optimization: Doggettx... done.\n", "framework_pkg_mismatch"),
        (f"{_XFORMERS.format('2.1.0+cu121')}Applying attention optimization: sdp... done.\n{_NO_OPERATOR}", "framework_pkg_mismatch"),
        (_XFORMERS.format("2.4.0a0+3bcc3cddb5.nv24.07"), "framework_pkg_mismatch"),
        (_XFORMERS.format("2.1.2+cpu") + "Applying attention optimization: sdp... done.\n", "cpu_only_build"),
    ],
)
def test_surroundings_decide(log: str, cause: str | None) -> None:
    """The same message has another cause where a version, a listing, or what ran after it says so."""
    loud = [finding.cause for finding in judged(log).findings if finding.severity != "info"]
    assert next(iter(loud), None) == cause
