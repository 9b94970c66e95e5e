"""A log that shows a library which another of its lines does not find: it is there, and the loader does not look."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

NO_CUBLAS = "OSError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
NO_CUDNN = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("shown", "missing", "cause"),
    [
        ("$ ls /usr/local/cuda/lib64\nlibcublas.so.12\nlibcurand.so.10\n", NO_CUBLAS, "lib_not_on_path"),
        ("libcublas.so.12  libcublas.so.12.1.3.1  libcublas_static.a\n", NO_CUBLAS, "lib_not_on_path"),
        ("lrwxrwxrwx 1 root root 20 Jun  1 10:00 libcublas.so.12 -> libcublas.so.12.1.3.1\n", NO_CUBLAS, "lib_not_on_path"),
        ("nvidia-cublas-cu12        12.1.3.1\n", NO_CUBLAS, "lib_not_on_path"),
        ("$ ls | grep cudnn\nlibcudnn.so.8\n", NO_CUDNN, "lib_not_on_path"),
        ("$ ls | grep cudnn\nlibcudnn.so.9\n", NO_CUDNN, "cudnn_major_mismatch"),
        ("nvidia-cublas-cu11        11.10.3.66\n", NO_CUBLAS, "cuda_runtime_missing"),
        ("Collecting nvidia-cublas-cu12==12.1.3.1\n", NO_CUBLAS, "cuda_runtime_missing"),
        ("missing:\nlibcublas.so.12\n", NO_CUBLAS, "cuda_runtime_missing"),
        ("missing:\nlibcudnn.so.8\n", NO_CUDNN, "cudnn_missing"),
    ],
)
def test_a_listing_tells_that_a_library_is_there(shown: str, missing: str, cause: str) -> None:
    assert judged(shown + missing).findings[0].cause == cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("Could not load dynamic library 'libnvinfer.so.6'; dlerror: libnvinfer.so.6: cannot open shared object file\n", "harmless"),
        ("Failed to load plugin 'x.so': libnvinfer.so.8: cannot open shared object file\n", "cuda_runtime_missing"),
    ],
)
def test_tensorrt_is_optional_for_tensorflow_alone(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


def test_a_version_that_is_none_of_cudnn_breaks_nothing() -> None:
    log = "libcudnn.so.7  libcudnn.so.7.6.5\nThese bindings are for version 5005 or above, but the loaded CuDNN is version: 4007\n"
    assert judged(log).findings
