"""Errors of CUDA and its libraries lead to their causes, whoever prints them, by number, name or words."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

ERRORS = """
35 InsufficientDriver||CUDA driver version is insufficient for CUDA runtime version|driver_too_old
46 DevicesUnavailable|DEVICE_UNAVAILABLE|CUDA-capable device(s) is/are busy or unavailable|gpu_exclusive_mode
101 InvalidDevice|INVALID_DEVICE|invalid device ordinal|gpu_hidden_by_env
214 ECCUncorrectable|ECC_UNCORRECTABLE|uncorrectable ECC error encountered|hardware_fault
218 InvalidPtx|INVALID_PTX|a PTX JIT compilation failed|gpu_arch_too_new_for_build
221 JitCompilerNotFound|JIT_COMPILER_NOT_FOUND|PTX JIT compiler library not found|driver_incomplete
222 UnsupportedPtxVersion|UNSUPPORTED_PTX_VERSION|the provided PTX was compiled with an unsupported toolchain.|ptx_too_new
302 SharedObjectSymbolNotFound|SHARED_OBJECT_SYMBOL_NOT_FOUND|shared object symbol not found|ld_path_shadowing
303 SharedObjectInitFailed|SHARED_OBJECT_INIT_FAILED|shared object initialization failed|driver_not_loaded
304 OperatingSystem|OPERATING_SYSTEM|OS call failed or operation not supported on this OS|driver_wedged
700 IllegalAddress|ILLEGAL_ADDRESS|an illegal memory access was encountered|unrecognised
715 IllegalInstruction|ILLEGAL_INSTRUCTION|an illegal instruction was encountered|unrecognised
802 SystemNotReady|SYSTEM_NOT_READY|system not yet initialized|fabric_manager_missing
803 SystemDriverMismatch|SYSTEM_DRIVER_MISMATCH|system has unsupported display driver / cuda driver combination|driver_library_mismatch
804 CompatNotSupportedOnDevice|COMPAT_NOT_SUPPORTED_ON_DEVICE|forward compatibility was attempted on non supported HW|forward_compat_hw
999 Unknown|UNKNOWN|unknown error|driver_wedged
"""
PRINTED = (
    "RuntimeError: CUDA error: {words}",
    "RuntimeError: cuda runtime error ({number}) : {words} at /pytorch/aten/src/THC/THCGeneral.cpp:50",
    "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error={number} : {words}",
    "RuntimeError: CUDA failed with error {words}",
    "ggml_cuda_init: failed to initialize CUDA: {words}",
    "CUDA error {number} at /src/ggml-cuda.cu:2268: {words}",
    "  what():  [18:12:18] mshadow/./stream_gpu-inl.h:182: Check failed: e == cudaSuccess CUDA: {words}",
    "F0404 10:13:41.0 12790 common.cpp:190] Check failed: error == cudaSuccess ({number} vs. 0)  {words}",
    "onnxruntime/core/providers/cuda/cuda_call.cc:122 CUDA failure {number}: {words} ; GPU=0 ; expr=cudaSetDevice(device_id_);",
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaError{runtime}: {words}",
    "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_{driver}: {words}",
    "numba.cuda.cudadrv.driver.CudaAPIError: [{number}] Call to cuInit results in CUDA_ERROR_{driver}",
    "[TRT] [E] CUDA initialization failure with error: {number}. Please check your CUDA installation",
    "[E] [TRT] 1: [defaultAllocator.cpp::allocate::19] Error Code 1: Cuda Runtime ({words})",
    "RuntimeError: Triton Error [CUDA]: {words}",
    "OSError: (External) CUDA error({number}), {words}.",
    "[0] include/alloc.h:102 NCCL WARN Cuda failure {number} '{words}'",
    "cv2.error: OpenCV(4.5.1) gpu_mat.cpp:116: error: (-217:Gpu API call) {words} in function 'copy'",
    'CUDA error at helper_cuda.h:1160 code={number}(cudaError{runtime}) "cudaGetDeviceCount(&device_count)"',
    'DriverError(CUDA_ERROR_{driver}, "{words}")',
)
STATUSES = {
    "Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND": "driver_not_loaded",
    "E0822 1 factory.go:115] Failed to initialize NVML: ERROR_UNKNOWN.": "container_gpu_detached",
    "Allocate failed: unable to get device link information: error calling nvml.Init: Unknown Error": "container_gpu_detached",
    "CUDA validation failed with error 35": "driver_too_old",
    "pynvml.NVMLError_LibRmVersionMismatch: RM has detected it": "driver_library_mismatch",
    "nvmlInit_v2() failed: Insufficient External Power": "hardware_fault",
    "Failed to start nvml with error: could not load NVML library.": "container_toolkit_missing",
    "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH": "gpu_arch_too_old_for_build",
    "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_CUDA_DRIVER": "driver_too_old",
    "RuntimeError: cuDNN error: CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH": "cudnn_sublibrary_mix",
    "cuDNN Error: CUDNN_STATUS_EXECUTION_FAILED": "out_of_memory",
    "cupy_backends.cuda.libs.nvrtc.NVRTCError: NVRTC_ERROR_BUILTIN_OPERATION_FAILURE (7)": "cuda_runtime_missing",
    "pynvjitlink.api.NvJitLinkError: NVJITLINK_ERROR_PTX_COMPILE error": "ptx_too_new",
    "Test NCCL failure common.cu:777 'unhandled cuda error'": "nccl_mix",
    "[rank7]: NCCL error: unhandled cuda error\n[rank7]: Cuda failure 304 'OS call failed'": "driver_wedged",
    "AttributeError: '_OpNamespace' '_moe_C' object has no attribute 'topk_softmax'": "framework_pkg_mismatch",
    "AssertionError: libcuda.so cannot found!": "lib_not_on_path",
    "ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short": "container_gpu_not_passed",
    'Unable to dynamically load the "cuda" shared library - searched for library names: ["cuda"]': "driver_not_loaded",
    'Unable to dynamically load the "nvrtc" shared library - searched for library names: ["nvrtc"]': "cuda_runtime_missing",
    "OSError: libcublas.so.12: wrong ELF class: ELFCLASS32": "cuda_runtime_missing",
    "These bindings are for CUDNN 5.x (5005 <= cudnn.version) , while the loaded CuDNN is version: 7004": "cudnn_major_mismatch",
    "These bindings are for version 5005 or above, while the loaded CuDNN is version: 4007": "cudnn_major_mismatch",
}
CLI = "docker: Error response from daemon: OCI runtime create failed: stderr: nvidia-container-cli: {}: unknown."
CONTAINERS = {
    "mount error: failed to add device rules: bpf_prog_query failed: operation not permitted": "container_gpu_not_passed",
    "mount error: mount operation failed: /o/merged/proc/driver/nvidia/params: no such file or directory": "driver_wedged",
    "mount error: stat failed: /GeForce: no such file or directory": "other_bug",
    "ldcache error: open failed: /sbin/ldconfig.real: no such file or directory": "container_toolkit_missing",
}


@pytest.mark.parametrize("error", [one for one in ERRORS.splitlines() if one], ids=lambda one: one.split("|")[0])
def test_an_error_of_cuda_has_its_cause_in_every_program(error: str) -> None:
    named, driver, words, cause = error.split("|")
    number, runtime = named.split()
    fields = {"number": number, "runtime": runtime, "driver": driver, "words": words}
    logs = [one.format(**fields) for one in PRINTED if driver or "{driver}" not in one]
    assert not [(log, found.cause) for log in logs if (found := judged(f"{log}\n").findings[0]).cause != cause]


@pytest.mark.parametrize("log", STATUSES)
def test_a_status_of_a_library_has_its_cause(log: str) -> None:
    assert judged(f"{log}\n").findings[0].cause == STATUSES[log]


@pytest.mark.parametrize("error", CONTAINERS)
def test_the_container_toolkit_says_what_it_could_not_do(error: str) -> None:
    assert judged(f"{CLI.format(error)}\n").findings[0].cause == CONTAINERS[error]


@pytest.mark.parametrize("words", ["unknown error", "out of memory", "initialization error", "operation not supported"])
def test_words_of_anybody_are_no_error_of_cuda(words: str) -> None:
    assert not [one.cause for one in judged(f"requests.exceptions.ConnectionError: {words}\n").findings if one.cause != "unrecognised"]


LIBRARY = "OSError: {}: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize("library", ["libcudnn.so.8", "libcublas.so.12", "libcudart.so.11.0"])
def test_sudo_takes_the_path_of_libraries_away(library: str) -> None:
    log = LIBRARY.format(library)
    assert judged(f"$ sudo python3 train.py\n{log}").findings[0].cause == "lib_not_on_path"
    assert judged(f"$ sudo apt-get install python3\n{log}").findings[0].cause != "lib_not_on_path"


@pytest.mark.parametrize("extra", ["jax[cuda12_pip]", "jax[cuda12]", "tensorflow[and-cuda]"])
def test_what_an_extra_brought_is_there(extra: str) -> None:
    log = "RuntimeError: Unable to load cuDNN. Is it installed?\n"
    assert judged(f"$ pip install -U '{extra}'\n{log}").findings[0].cause == "lib_not_on_path"
    assert judged("$ pip install -U 'jax[cuda12_local]'\n" + log).findings[0].cause == "cudnn_missing"


def test_an_image_for_the_cpu_wants_no_gpu() -> None:
    lines = "E cuda_driver.cc:313] failed call to cuInit: UNKNOWN ERROR (303)\nlo\n"
    run = "$ docker run -it --rm tensorflow/tensorflow{} python -c 'import tensorflow'\n"
    assert not judged(run.format("") + lines).is_error
    assert judged(run.format(":latest-gpu") + lines).is_error


def test_a_library_that_only_tensorrt_wants_is_noise() -> None:
    line = "W Could not load dynamic library 'libnvinfer_plugin.so.6'; dlerror: libnvrtc.so.10.1: cannot open shared object file"
    assert not judged(f"{line}: No such file or directory\n").is_error


def test_a_driver_that_works_and_a_torch_that_sees_none() -> None:
    log = ">>> torch.cuda.is_available()\nFalse\n| NVIDIA-SMI 550.54    Driver Version: 550.54    CUDA Version: 12.4 |\n"
    assert judged(log).findings[0].cause == "cpu_only_build"


DRIVER = {"driver_not_loaded", "gpu_hidden_by_env", "wsl_driver_shadowed"}
RUNTIME = {"cuda_runtime_missing", "cudnn_missing"}
NAMES = {
    "CUDA driver": DRIVER,
    "NVIDIA drivers": DRIVER,
    "libcuda": DRIVER,
    "CUDA-capable GPU": DRIVER,
    "CUDA-enabled device": DRIVER,
    "NVML": DRIVER,
    "CUDA toolkit": RUNTIME,
    "CUDA compiler": RUNTIME,
    "cuBLAS": RUNTIME,
    "nvcc": RUNTIME,
    "cuDNN library": RUNTIME,
    "ptxas": {"ptxas_or_libdevice_missing"},
}
ABSENT = (
    *("No {} found", "{} not found", "{} is not installed", "{} could not be loaded", "Unable to find {}", "Failed to load {}"),
    *("{} is missing", "No {} detected", "No {} available", "Please install {}", "{} unavailable", "Cannot find {}"),
)
UNFIT = (
    "{} version is too old",
    "Unsupported {} version",
    "{} version 10.2 is not supported",
    "requires a newer {}",
    "Please update your {}",
)
OLD = {"NVIDIA driver": "driver_too_old", "cuDNN": "cudnn_too_old_for_framework", "NCCL": "nccl_mix", "TensorRT": "framework_pkg_mismatch"}


@pytest.mark.parametrize("name", NAMES)
def test_general_words_say_what_is_not_there(name: str) -> None:
    logs = [f"RuntimeError: {one.format(name)}\n" for one in ABSENT]
    assert not [(log, found.cause) for log in logs if (found := judged(log).findings[0]).cause not in NAMES[name]]


@pytest.mark.parametrize("name", OLD)
def test_general_words_say_what_does_not_fit(name: str) -> None:
    logs = [f"RuntimeError: {one.format(name)}\n" for one in UNFIT]
    assert not [(log, found.cause) for log in logs if (found := judged(log).findings[0]).cause != OLD[name]]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("nvidia-modeset: Version mismatch: nvidia.ko(378.13) nvidia-modeset(375.26)", "driver_library_mismatch"),
        ("Building DKMS module 'nvidia-410.73' for kernel-4.18.16_1... FAILED!", "driver_not_loaded"),
        ("cuFuncSetAttribute is missing from CUDA shared library.", "driver_too_old"),
        ("| Debug: No system CUDA driver found", "driver_not_loaded"),
    ],
)
def test_words_of_modules_and_programs(line: str, cause: str) -> None:
    assert judged(f"{line}\n").findings[0].cause == cause
