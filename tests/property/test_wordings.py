"""Whatever words a failure is told in, the family of its cause is told: names of libraries, verbs of failure, versions, quotes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=150)
@given(st.data())
def test_a_library_that_is_not_found_has_its_family(data: st.DataObject) -> None:
    names, family = data.draw(st.sampled_from([(CUDNN, MISSING), (CUDA, MISSING), (DRIVER, ABSENT | {"lib_not_on_path"})]))
    name = data.draw(st.sampled_from(QUOTES)).format(data.draw(st.sampled_from(names)))
    line = data.draw(st.sampled_from(BEGINNINGS)).format(data.draw(st.sampled_from(VERBS)).format(name))
    told = judged(f"starting\n{line}\n")
    assert told.findings, line
    assert told.findings[0].cause in family, line
    assert loud(told), line


@settings(max_examples=80)
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
