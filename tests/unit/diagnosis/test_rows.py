"""What single rows of the tables say and advise, where a general sentence or remedy would be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.cli.main import main
from tests.written_logs import judged, loud

JAX = "Found {} version {}, but JAX was built against version {}, which is newer.\n"


def advice(log: str) -> str:
    return " ".join(f"{one.text} {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory\n", "LIBRARY_PATH=/usr/local/cuda/lib64/stubs", "cudnn-resolve"),
        ("/usr/bin/ld: cannot find -lcudart: No such file or directory\n", "cuda-toolkit", "cudnn-resolve"),
        ("/usr/bin/ld: cannot find -lcudnn: No such file or directory\n", "libcudnn9-dev", "cudnn-resolve"),
        ("OSError: CUDA_HOME environment variable is not set.\ntorch==2.4.1+cu121\n", "cuda-toolkit=12.1", "cudnn-resolve"),
        ("foo.cu:1:10: fatal error: cublas_v2.h: No such file or directory\n", "cuda-toolkit", "cudnn-resolve"),
        ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.\n", "--dtype=half", "build"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n", "sdpa", "build"),
        (
            "nvidia-container-cli: container error: cgroup subsystem devices not found: unknown.\n",
            "nvidia-container-toolkit",
            "release before",
        ),
        ("cudaGetDeviceCount(). Error 500: named symbol not found\n", "1.14.4", "release before"),
        ("ImportError: /v/torch/lib/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent\n", "mkl<2024.1", "cudnn-resolve"),
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.\n", "spawn", "rmmod"),
        ("Could not find the bitsandbytes CUDA binary at PosixPath('/v/libbitsandbytes_cuda128.so')\n", "-U bitsandbytes", "cudnn-resolve"),
        ("AssertionError: Torch not compiled with CUDA enabled\nOS: macOS 14.4\n", "mps", "cudnn-resolve"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_61'\n", "TORCH_CUDA_ARCH_LIST", "cudnn-resolve"),
    ],
)
def test_a_remedy_is_one_that_can_work(log: str, has: str, lacks: str) -> None:
    assert has in advice(log)
    assert lacks not in advice(log)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (JAX.format("CUDA", 12010, 12020), "CUDA 12.1 is loaded, but JAX was built against the newer 12.2"),
        (JAX.format("cuSPARSE", 12103, 12200), "cuSPARSE 12.1.3 is loaded, but JAX was built against the newer 12.2.0"),
        (JAX.format("cuBLAS", 120103, 120205), "cuBLAS 12.1.3 is loaded, but JAX was built against the newer 12.2.5"),
        (JAX.format("CUPTI", 18, 20), "CUPTI (interface 18) is loaded, but JAX was built against the newer (interface 20"),
        ("no device code compatible with CUDA arch 720. ggml-cuda.cu was compiled for: 500,610,800\n", "none of which runs on the GPU"),
        ("no device code compatible with CUDA arch 890. ggml-cuda.cu was compiled for: 500,610,800\n", "890, which is newer"),
        ("ImportError: libtensorflow_framework.so.2: cannot open shared object file\n", "a TensorFlow library"),
    ],
)
def test_the_sentence_is_true(log: str, said: str) -> None:
    assert said in judged(log).findings[0].summary


@pytest.mark.parametrize(
    ("component", "numbers", "wheel", "cause"),
    [
        ("CUDA", (12010, 12020), "nvidia-cuda-runtime-cu12 12.1.105", "cuda_runtime_missing"),
        ("CUDA", (12010, 12020), "nvidia-cuda-runtime-cu12 12.2.140", "ld_path_shadowing"),
        ("CUPTI", (18, 20), "nvidia-cuda-cupti-cu12 12.9.79", "cuda_runtime_missing"),
    ],
)
def test_a_wheel_serves_by_the_release_that_the_number_stands_for(component: str, numbers: tuple[int, int], wheel: str, cause: str) -> None:
    assert judged(JAX.format(component, *numbers) + wheel + "\n").findings[0].cause == cause


def test_a_list_that_may_mean_either_leaves_it_open() -> None:
    found = judged("The current PyTorch install supports CUDA capabilities sm_80 sm_90.\n").findings[0]
    assert found.cause == "gpu_arch_too_new_for_build"
    assert "newer or older" in found.summary
    assert found.undecided


def test_a_symbol_that_no_start_of_cuda_misses_says_nothing() -> None:
    assert not loud(judged("CUDA failure 500: named symbol not found in my_kernel\n"))


def test_a_row_of_an_overlay_that_names_no_cause_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "over/symptom").mkdir(parents=True)
    row = 'id = "odd"\npattern = ["odd words"]\nanchor = ["odd words"]\nrole = "proves"\ncause = "nowhere_said"\nweight = 90\n'
    row += 'summary = "odd"\nsource = ["a"]\nsample = ["odd words"]\n'
    source = '[source.a]\nwhere = "a test"\nread = "2026-11-21"\n'
    (tmp_path / "over/symptom/loader.toml").write_text(f'origin = "authored"\n[[symptom]]\n{row}{source}')
    (tmp_path / "x.log").write_text("odd words\n")

    code = main(["doctor", str(tmp_path / "x.log"), "--no-facts", "--matrix", str(tmp_path / "over")])

    said = capsys.readouterr().err
    assert (code, "unknown cause 'nowhere_said'" in said, "matrix check" in said) == (2, True, True), said
