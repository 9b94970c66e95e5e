"""Lines of single programs that say what failed, and the same words where nothing did."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.test_remedy_place import said
from tests.written_logs import judged, loud

PADDLE = (
    "UserWarning: You are using GPU version Paddle, but your CUDA device is not set properly.\n"
    "Paddle With CUDA: True\nOS: ubuntu 20.04\nCUDA version: 11.7.99\nNvidia driver version: {}\n"
)
ESCAPED = r"b'Traceback (most recent call last):\n  File \"x\", line 1\nImportError: /lib64/libc.so.6: version `GLIBC_2.32\' not found\n'"
BUILD = "1.29 RuntimeError: \n1.29 The detected CUDA version (11.8) mismatches the version that was used to compile\n1.30 PyTorch (12.1).\n"
KERAS = 'File "/v/site-packages/keras/utils/a.py", line 20, in <module>\n    x = tf.x1\n'
CASES = {
    'error="nvcuda init failure: 500"': ("other_bug", "container toolkits"),
    "cuInit err: 500": ("other_bug", "container toolkits"),
    "ptxas /tmp/a.ptx, line 30; error   : Feature 'redux.sync' requires PTX ISA .version 7.0 or later": ("other_bug", "declares"),
    "12:00:00 [info] Sum Total of in-use chunks: 13.06GiB": ("out_of_memory", "GPU memory"),
    "[info] total_region_allocated_bytes_: 14019 memory_limit_: 14019 available bytes: 153": ("out_of_memory", "GPU memory"),
    ESCAPED: ("glibc_too_old", "GLIBC_2.32"),
    "AttributeError: module 'paddle' has no attribute 'device'": ("unrecognised", "every release"),
    "AttributeError: module 'tensorflow' has no attribute '__version__'": ("unrecognised", "every release"),
    PADDLE.format("440.33.01"): ("driver_too_old", "CUDA 11.7"),
    "/opt/libcusolver.so.11: undefined symbol: cublasSetMathMode, version libcublas.so.12": ("cublas_mismatch", "libcusolver.so.11"),
    "ImportError: /v/site-packages/torch/lib/libtorch_python.so: undefined symbol: _ZN3c105ErrorC1Ev": ("framework_pkg_mismatch", "itself"),
    "could not dlopen DSO: libcupti.so.9.0; dlerror: libcupti.so.9.0: cannot open": ("lib_not_on_path", "extras/CUPTI"),
    "ImportError: librccl.so.1: cannot open shared object file: No such file or directory": ("unrecognised", "ROCm"),
    "ValueError: Requested float16 compute type, but the target device or backend do not support it": ("unrecognised", "float16"),
    BUILD: ("toolkit_build_mismatch", "CUDA 12.1"),
    "AttributeError: module 'jaxlib.gpu_solver' has no attribute 'cuda_syevd'": ("framework_pkg_mismatch", "cuda_syevd"),
    f"{KERAS}AttributeError: module 'tensorflow.compat.v2' has no attribute 'x1'": ("framework_pkg_mismatch", "keras uses x1"),
    "/v/lib/python3.7/site-packages/cugraph/c.so: undefined symbol: gdf_add_adj_list": ("framework_pkg_mismatch", "imports a name"),
    "ImportError: /v/torch/lib/libtorch.so: undefined symbol: dgesdd_": ("unrecognised", "LAPACK"),
    "ImportError: DLL load failed while importing _pywrap_tensorflow_internal: The specified module could not be found.": (
        "windows_runtime_missing",
        "Visual C++",
    ),
    "Node: 'a/embedding_lookup' indices[0,57] = 1544 is not in [0, 1498)": ("bad_input", "shapes"),
    'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [].': ("container_toolkit_missing", ""),
    "CUDA backend failed to initialize: Unable to load CUDA. (Set TF_CPP_MIN_LOG_LEVEL=0 and": ("cuda_runtime_missing", "JAX"),
    "Could not  load dynamic library 'libcusolver.so.11'; dlerror: libcusolver.so.11:  c": ("cuda_runtime_missing", "libcusolver"),
    "AssertionError: libcuda.so cannot found!": ("lib_not_on_path", "ldconfig -p"),
    "exec /usr/bin/bash: exec format error": ("unrecognised", "another processor"),
}


@pytest.mark.parametrize("text", CASES)
def test_a_program_names_what_failed(text: str) -> None:
    told = judged(text).findings[0]
    cause, words = CASES[text]
    assert told.cause == cause
    assert words in told.summary


@pytest.mark.parametrize(
    "text",
    [
        "Instructions of wgmma: requires PTX ISA version 8.0 or later",
        "Paddle With CUDA: True\nOS: ubuntu 20.04\nCUDA version: 11.7.99\nNvidia driver version: 440.33.01",
        "Could not load dynamic library 'libcupti.so.11.2'; dlerror: libcupti.so.11.2: cannot open shared object file",
        "Found librccl.so.1 in /opt/rocm/lib",
        "[warning] The compute type inferred from the saved model is float16, but the target device or backend do not support it",
        "0.12 0.5\n0.11 0.6\n0.10 0.7",
        "a.py:219: RuntimeWarning: numpy.ufunc size changed, may indicate binary incompatibility. Expected 192, got 216",
        "tf.gather raises an error on the CPU if an index is not in [0, n)",
        "Docker selects the device driver cdi for --device nvidia.com/gpu=all",
    ],
)
def test_the_same_words_alone_are_none(text: str) -> None:
    assert not loud(judged(text))


def test_a_placeholder_is_not_what_to_install() -> None:
    line = "ERROR: Could not find a version that satisfies the requirement tensorrt~=8.5 (from versions: 0.0.1.dev5, 0.0.1)\n"
    commands = [step.command or "" for step in judged(line).findings[0].remedy]
    assert "https://pypi.nvidia.com" in commands[0]
    assert not any("0.0.1" in command for command in commands)


def test_a_jax_program_of_another_time_is_updated() -> None:
    steps = judged("AttributeError: module 'jax' has no attribute 'xla'\n").findings[0].remedy
    assert "if the program is older" in steps[0].text
    assert not any("apply" in (step.command or "") for step in steps)


NOT_OPENED = "{}: cannot open shared object file: No such file or directory\n"
LIBRARY = "./a: error while loading shared libraries: " + NOT_OPENED
NVCC = "Cuda compilation tools, release 11.8, V11.8.89\n"
NOT_BOUND = "Err:4 https://developer.download.nvidia.com/compute/cuda/repos/{}/x86_64  InRelease\n  Signing key on {} is not bound:\n"
OF_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
SHA1 = "  because: SHA1 is not considered secure since 2026-02-01T00:00:00Z\n"
FABRIC = "fabric manager NVIDIA GPU driver interface version 535.54.03 don't match with driver version {}. Please update\n"
NO_DRIVER = "/v/site-packages/torch/cuda/__init__.py:52: UserWarning: Found no NVIDIA driver on your system.\n"
NO_DRIVER += "PyTorch version: 1.7.0+cu110\nOS: {} (x86_64)\n"


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        (FABRIC.format("535.154.05"), "'nvidia-fabricmanager-535=535.154.05-*'", "FRAMEWORK"),
        (NOT_BOUND.format("ubuntu2404", OF_KEY) + SHA1, "repos/debian13/", "$VERSION_ID"),
        (NOT_BOUND.format("debian12", OF_KEY), "$VERSION_ID", "repos/debian13/"),
        (LIBRARY.format("libggml-cpu.so"), "the program's own", "apt-file"),
        (LIBRARY.format("libssh2.so.1"), "apt-file", "the program's own"),
        ("Original error:\n  ImportError: " + NOT_OPENED.format("libcublas.so.12"), "cupy-cuda12x", "doctor LOG"),
        (
            f"Could not load library libcublasLt.so.12. Error: {NOT_OPENED.format('libcublasLt.so.12')}{NVCC}",
            "cuDNN says this",
            "doctor LOG",
        ),
        (f"Could not load library libcublasLt.so.11. Error: {NOT_OPENED.format('libcublasLt.so.11')}{NVCC}", "", "cuDNN says this"),
        ("AttributeError: module 'keras.api._v2.keras' has no attribute 'load_model'\n", "tensorflow.keras.models.load_model", "pip show"),
        ("AttributeError: 'ConfigDict' object has no attribute 'train_cfg'\n", "cfg.get('train_cfg')", "pip show"),
        ("    with torch.no_grad():\nAttributeError: 'module' object has no attribute 'no_grad'\n", "'torch>=0.4'", "pip show"),
        ("KeyError: 'None is not in the dataset registry'\n", "register_module", "pip list"),
        (NO_DRIVER.format("CentOS Linux 7 (Core)"), "RPM Fusion", "ubuntu-drivers"),
        (NO_DRIVER.format("Ubuntu 20.04 LTS"), "ubuntu-drivers", "RPM Fusion"),
        ("could not find cudnnCreate in cudnn DSO; dlerror: tensorflow/_pywrap.so: undefined symbol: cudnnCreate\n", "4 to 0.10", "DSO$"),
        (
            "[ WARN:0] DNN module was not built with CUDA backend; switching to CPU\n-- Detected processor: x86_64\n",
            "OPENCV_DNN_CUDA",
            "$ $",
        ),
        ('[WinError 126] Module not found. Error loading "...fbgemm.dll" or one of its dependencies.\n', "C++ build tools", "$ $"),
        ("/content# x\nRuntimeError: cuDNN error: CUDNN_STATUS_VERSION_MISMATCH\n", "pip check", "$ $"),
    ],
)
def test_a_step_is_of_what_the_lines_name(log: str, there: str, absent: str) -> None:
    steps = said(log)
    assert there in steps
    assert absent not in steps
