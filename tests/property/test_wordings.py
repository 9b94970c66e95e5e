"""Whatever words a failure is told in, the family of its cause is told: names of libraries, verbs of failure, versions, quotes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.written_logs import judged, loud

CUDNN = ["libcudnn.so", "libcudnn.so.8", "libcudnn.so.9", "libcudnn_ops_infer.so.8", "cudnn64_7.dll", "cudnn_ops64_9.dll", "cuDNN"]
CUDA = ["libcudart.so.12", "libcublas.so.11", "libcufft.so.10", "cublas64_12.dll", "libnvrtc.so.12", "cuSPARSE", "the CUDA runtime"]
DRIVER = ["libcuda.so.1", "libnvidia-ml.so.1", "nvcuda.dll", "the NVIDIA driver", "NVML"]
MISSING = {"cudnn_missing", "lib_not_on_path", "cudnn_major_mismatch", "cuda_runtime_missing"}
ABSENT = {"driver_not_loaded", "container_gpu_not_passed", "driver_too_old", "no_gpu_runtime", "cpu_only_build", "driver_wedged"}
VERBS = [
    "{} not found",
    "{} could not be found",
    "could not find {}",
    "cannot find {}",
    "failed to load {}",
    "unable to load {}",
    "could not open {}",
    "{} is missing",
    "cannot load {}",
    "{} was not found on this system",
    "{} is not available",
]
BEGINNINGS = ["error: {}", "RuntimeError: {}", "OSError: {}", "fatal error: {}", "ERROR: backend: {}", "Exception: {}"]
QUOTES = ["{}", "'{}'", '"{}"', "`{}`", "({})"]


@settings(max_examples=examples(150))
@given(st.data())
def test_a_library_that_is_not_found_has_its_family(data: st.DataObject) -> None:
    names, family = data.draw(st.sampled_from([(CUDNN, MISSING), (CUDA, MISSING), (DRIVER, ABSENT | {"lib_not_on_path"})]))
    name = data.draw(st.sampled_from(QUOTES)).format(data.draw(st.sampled_from(names)))
    line = data.draw(st.sampled_from(BEGINNINGS)).format(data.draw(st.sampled_from(VERBS)).format(name))
    told = judged(f"starting\n{line}\n")
    assert told.findings, line
    assert told.findings[0].cause in family, line
    assert loud(told), line


@settings(max_examples=examples(80))
@given(
    st.sampled_from(["cuInit", "cuCtxCreate", "cudaMalloc", "cudaGetDeviceCount", "cublasCreate", "cudnnCreate", "nvmlInit_v2"]),
    st.sampled_from(["{}() failed", "call to {} failed with error 3", "error: {} failed", "{} returned an error: 7"]),
)
def test_a_call_of_cuda_that_failed_is_never_passed_over(call: str, words: str) -> None:
    told = judged(f"Traceback (most recent call last):\nRuntimeError: {words.format(call)}\n")
    assert loud(told), words.format(call)


@pytest.mark.parametrize(
    "end",
    ["KeyError: 'labels'", "make: *** [all] Error 2", "Segmentation fault (core dumped)", "worker exited with code 3", "error: it broke"],
)
def test_a_failure_of_something_else_is_said_to_be_not_recognised(end: str) -> None:
    told = judged(f"epoch 1 loss 0.3\n{end}\n")
    assert [(one.cause, one.severity) for one in told.findings] == [("unrecognised", "warning")]
    assert told.findings[0].evidence[0].line == 2
    assert told.findings[0].remedy
    assert not told.is_error


def test_a_run_that_went_well_has_nothing() -> None:
    assert not judged("epoch 1 loss 0.3\nepoch 2 loss 0.2\n").findings
    assert judged("").note == "the log is empty"


LINKED = [
    (["cuda", "cudart", "cublas", "cufft", "nvrtc", "nvinfer", "nvinfer_plugin", "nvonnxparser"], MISSING),
    (["cudnn", "cudnn_ops"], MISSING),
]
LINKERS = ["LINK : fatal error LNK1181: cannot open input file '{}.lib'", "LINK : fatal error LNK1104: cannot open file 'C:\\sdk\\{}.lib'"]
HEADERS = ["cuda.h", "cuda_runtime.h", "cublas_v2.h", "cudnn.h", "cudnn_version.h", "NvInfer.h", "curand_kernel.h"]
COMPILERS = [
    "x.cpp(3): fatal error C1083: Cannot open include file: '{}': No such file or directory",
    "x.cu:3:10: fatal error: {}: No such file or directory",
    'x.cu(2): catastrophic error: cannot open source file "{}"',
]


@settings(max_examples=examples(60))
@given(st.data())
def test_what_a_compiler_or_a_linker_misses_has_its_family(data: st.DataObject) -> None:
    names, family = data.draw(st.sampled_from(LINKED))
    linked = data.draw(st.sampled_from(LINKERS)).format(data.draw(st.sampled_from(names)))
    compiled = data.draw(st.sampled_from(COMPILERS)).format(data.draw(st.sampled_from(HEADERS)))
    line = data.draw(st.sampled_from([linked, compiled]))
    told = judged(f"building\n{line}\n")
    assert told.findings[0].cause in family, line
    assert loud(told), line


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["the library", "this build", "your card", "module x", "the engine"]),
    st.sampled_from(["is not supported", "is incompatible", "is too old", "crashed", "was refused", "is corrupt", "does not support it"]),
    st.sampled_from(["{}", "[E] {}", "12:01:02 main.cc:33 {}", "!! {} !!"]),
)
def test_a_short_log_that_sounds_like_a_failure_is_not_passed_over(name: str, words: str, frame: str) -> None:
    line = frame.format(f"{name} {words}")
    told = judged(f"loading\n{line}\n")
    assert told.findings, line
    assert told.findings[0].evidence[0].line == 2


@pytest.mark.parametrize("ends", ["", '  File "a.py", line 3, in <module>\n    main()\n'])
def test_a_traceback_that_was_cut_off_is_a_failure(ends: str) -> None:
    told = judged(f"epoch 1 loss 0.3\nTraceback (most recent call last):\n{ends}")
    assert [(one.cause, one.severity) for one in told.findings] == [("unrecognised", "warning")]
    assert "without the error that ends it" in told.findings[0].summary


def test_training_that_speaks_of_numbers_is_no_failure() -> None:
    assert not judged("step 1 error: 0.31\nstep 2 error: 0.22\nFutureWarning: x is not supported\n").findings


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('failed to get PTX kernel "mul_2" from module: CUDA_ERROR_NOT_FOUND: named symbol not found', "gpu_arch_too_new_for_build"),
        ("x.h:12: Check failed: e == CUBLAS_STATUS_SUCCESS (3 vs. 0)", "out_of_memory"),
        ("x.h:12: Check failed: e == CUBLAS_STATUS_SUCCESS (8 vs. 0)", "gpu_arch_too_old_for_build"),
        ("x.h:12: Check failed: e == CUDNN_STATUS_SUCCESS (6 vs. 0)", "gpu_arch_too_old_for_build"),
        ("x.h:12: Check failed: e == CUDNN_STATUS_SUCCESS (3 vs. 0)", "bad_input"),
        ("lib.base.Error: [01:02:03] src/array.cc:9: GPU is not enabled", "cpu_only_build"),
        ("ModuleNotFoundError: No module named 'numpy.core._multiarray_umath'", "numpy_abi"),
        (
            "ImportError: DLL load failed while importing x: Dynamic Link Library (DLL) initialization routine failed.",
            "windows_runtime_missing",
        ),
    ],
)
def test_what_a_program_writes_of_a_code_or_a_part_has_its_cause(line: str, cause: str) -> None:
    assert loud(judged(f"starting\n{line}\n"))[:1] == [cause]


def test_a_listing_of_one_name_a_line_tells_which_cudnn_there_is() -> None:
    missing = "ImportError: libcudnn.so.6: cannot open shared object file: No such file or directory\n"
    assert loud(judged(missing)) == ["cudnn_missing"]
    assert loud(judged("libcudnn.so.5.1.10\n" + missing))[0] == "cudnn_major_mismatch"


@pytest.mark.parametrize(
    ("cuda", "driver", "cause"),
    [("10.1.243", "410.48", "driver_too_old"), ("11.8", "440.33.01", "driver_too_old"), ("11.8", "470.82.01", "driver_not_loaded")],
)
def test_a_report_of_pytorch_that_sees_no_gpu_is_held_against_its_driver(cuda: str, driver: str, cause: str) -> None:
    for answer in ("No", "False"):
        log = f"CUDA used to build PyTorch: {cuda}\nIs CUDA available: {answer}\nNvidia driver version: {driver}\n"
        assert loud(judged(log))[:1] == [cause]


WRAPPERS = [
    "CUDA error at main.cu:42: {}",
    "CUDA app.cu:42: {}",
    "cudaMalloc failed: {}",
    "[CUDA] {} at x.cu:12",
    "GPUassert: {} x.cu 12",
    "cudaSafeCall() failed at x.cu:12 : {}",
    "x.cu(12) : CUDA Runtime API error: {}.",
    "gpuErrchk: {} kernels.cu 99",
    "Fatal error: cudaStreamCreate ({} at a.cu:12)",
    "  what():  parallel_for failed: {}",
    'DriverError(CUDA_ERROR_X, "{}")',
    '{{"level":"error","msg":"no GPU","err":"CUDA error: {}"}}',
]
WORDS = {
    "out of memory": {"out_of_memory"},
    "initialization error": {"driver_wedged"},
    "unknown error": {"driver_wedged"},
    "CUDA driver version is insufficient for CUDA runtime version": ABSENT,
    "no CUDA-capable device is detected": ABSENT | {"gpu_hidden_by_env"},
    "invalid device ordinal": {"gpu_hidden_by_env"},
    "no kernel image is available for execution on the device": {"gpu_arch_too_new_for_build", "gpu_arch_too_old_for_build"},
    "the provided PTX was compiled with an unsupported toolchain": {"ptx_too_new"},
    "device-side assert triggered": {"bad_input"},
    "all CUDA-capable devices are busy or unavailable": {"gpu_exclusive_mode"},
    "uncorrectable ECC error encountered": {"hardware_fault"},
    "system not yet initialized": {"fabric_manager_missing"},
    "an illegal memory access was encountered": {"unrecognised"},
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_words_of_cuda_are_known_behind_whatever_a_program_puts_before_them(wrapper: str, words: str) -> None:
    line = wrapper.format(words)
    assert judged(f"starting\n{line}\n").findings[0].cause in WORDS[words], line


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA was requested but torch.cuda.is_available() is false",
        "RuntimeError: CUDA device is required to run this benchmark.",
        "RuntimeError: No GPU visible (set ALLOW_CPU=1).",
        "RuntimeError: No GPU or XPU found.",
        "ERROR: GPU required but not available!",
        "ValueError: Device cuda:0 not available",
        'Error: device "cuda" is not available',
        "ERROR: Number of GPUs requested (1) is more than number of GPUs (0) in the system., exiting.",
    ],
)
def test_a_gpu_that_a_program_asks_for_has_its_family(line: str) -> None:
    told = judged(f"Traceback (most recent call last):\n{line}\n")
    assert told.findings[0].cause in ABSENT, line
    assert loud(told), line
