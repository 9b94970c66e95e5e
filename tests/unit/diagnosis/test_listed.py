"""A log that shows a library which another of its lines does not find: it is there, and the loader does not look."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

NO_CUBLAS = "OSError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
NO_CUDNN = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
NO_NVINFER = "ImportError: libnvinfer.so.8: cannot open shared object file: No such file or directory\n"
NO_NVINFER_10 = "FileNotFoundError: Could not find: nvinfer_10.dll. Is it on your PATH?\n"


SEARCHED = 'globs="[/usr/lib/wsl/lib/libcuda.so* /usr/lib/wsl/drivers/*/libcuda.so* /opt/cuda/lib*/libcuda.so*]"\n'
"""Where ollama looks for libcuda on every system."""


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
        ("$ ls /opt/TensorRT-8.6.1.6/lib\nlibnvinfer.so.8\n", NO_NVINFER, "lib_not_on_path"),
        ("$ ls /opt/TensorRT-10/lib\nlibnvinfer.so.10\n", NO_NVINFER, "cuda_runtime_missing"),
        ("PS C:\\> dir C:\\TRT\\lib\n-a----   26/04/2023   02:30   493764096 nvinfer_10.dll\n", NO_NVINFER_10, "lib_not_on_path"),
        ("C:\\> dir C:\\TRT\\lib\n26/04/2023  02:30       493,764,096 nvinfer.dll\n", NO_NVINFER_10, "cuda_runtime_missing"),
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


OLD_CUDNN = "Loaded runtime CuDNN library: {} but source was compiled with: {}.  CuDNN library needs to have matching major version\n"
OLDER = "ImportError: /home/a/.conda/envs/t/lib/python3.11/site-packages/torch/lib/libc10_cuda.so: undefined symbol: {}\n"
ENTRY = "cudaGetDriverEntryPointByVersion, version libcudart.so.12"
WSL = "$ uname -r\n5.15.90.1-microsoft-standard-WSL2\n{}\nUserWarning: CUDA initialization: Found no NVIDIA driver on your system.\n"


@pytest.mark.parametrize(
    ("log", "place"),
    [
        (f"{NO_CUBLAS}$ ls /opt/cuda-12.1/lib64\nlibcublas.so.12\nlibcurand.so.10\n", "/opt/cuda-12.1/lib64"),
        (f"{NO_CUBLAS}$ ls -la /opt/nv/lib64/ | grep blas\n-rwxr-xr-x 1 root root 9 Jun  1 10:00 libcublas.so.12\n", "/opt/nv/lib64"),
        (f"{NO_CUDNN}$ ls /opt/cudnn/lib\nlibcudnn.so.8  libcudnn_ops_infer.so.8\n", "/opt/cudnn/lib"),
        (
            (
                "ImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory\n"
                '> list.files("/usr/local/cuda-9.0/lib64", pattern = "libcublas")\n[1] "libcublas.so"       "libcublas.so.9.0"\n'
            ),
            "/usr/local/cuda-9.0/lib64",
        ),
        (
            (
                "OSError: libnvrtc.so.12: cannot open shared object file: No such file or directory\n"
                "$ patchelf --print-rpath nvrtc.so\n/apps/Core/cudacore/12.2.2/lib64:/apps/Core/cudacore/12.2.2/lib\n"
            ),
            "/apps/Core/cudacore/12.2.2/lib64",
        ),
        (
            (
                "OSError: libcusparse.so.11: cannot open shared object file: No such file or directory\n"
                " 0x000000000000001d (RUNPATH)            Library runpath: [$ORIGIN:/sw/cuda-11.8/lib64]\n"
            ),
            "/sw/cuda-11.8/lib64",
        ),
    ],
)
def test_a_remedy_names_the_directory_that_a_listing_is_of(log: str, place: str) -> None:
    finding = judged(log).findings[0]
    assert finding.cause == "lib_not_on_path"
    assert f"LD_LIBRARY_PATH={place}${{" in (finding.remedy[0].command or "")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (f"{NO_CUBLAS} 0x01d (RUNPATH)  Library runpath: [/sw/cuda-11.8/lib64]\n", "cuda_runtime_missing"),  # of another CUDA
        (f"Import{NO_CUBLAS[2:]} 0x01d (RUNPATH)  Library runpath: [/sw/cuda-12.1/lib64]\n", "cuda_runtime_missing"),  # searched already
        (
            f"{NO_CUBLAS.replace('.so.12', '.so')}$ ls /opt/cuda/lib64/stubs\nlibcublas.so  libcurand.so\n",
            "cuda_runtime_missing",
        ),
        ("$ ls /opt/nv/lib64\nlibcublas.so.12\nlibcurand.so.10\n", None),
        (
            OLD_CUDNN.format("7.0.5", "7.4.1") + "C:\\a>where cudnn64_7.dll\nC:\\td\\cudnn64_7.dll\nC:\\v10.0\\cudnn64_7.dll\n",
            "ld_path_shadowing",
        ),
        (OLD_CUDNN.format("8.0.5", "8.1.0") + "/usr/lib64/libcudnn.so.8\n/opt/cudnn/lib64/libcudnn.so.8\n", "ld_path_shadowing"),
        (
            OLD_CUDNN.format("8.0.5", "8.1.0") + "/usr/local/cuda/lib64/libcudnn.so.8\n/usr/local/cuda-11.2/lib64/libcudnn.so.8\n",
            "cudnn_too_old_for_framework",
        ),
        (OLD_CUDNN.format("8.0.5", "8.1.0") + "/usr/lib/libcudnn.so.8\n/lib/libcudnn.so.8\n", "cudnn_too_old_for_framework"),
        (OLDER.format(ENTRY), "cuda_runtime_missing"),
        ("$ echo $LD_LIBRARY_PATH\n/apps/cuda/12.1.1/lib64\n" + OLDER.format(ENTRY), "ld_path_shadowing"),
        ('> Sys.getenv("LD_LIBRARY_PATH")\n[1] "/usr/lib/R/lib:/usr/local/cuda-12.1/lib64"\n' + OLDER.format(ENTRY), "ld_path_shadowing"),
        ("$ echo $LD_LIBRARY_PATH\n\n" + OLDER.format(ENTRY), "cuda_runtime_missing"),
        (WSL.format("/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.525.125.06"), "wsl_driver_shadowed"),
        (WSL.format("libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.535.154.05"), "wsl_driver_shadowed"),
        (WSL.format("/usr/lib/wsl/lib/libcuda.so.1"), "driver_not_loaded"),
        (SEARCHED + "paths=[/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01]\ncuInit err: 999\n", "driver_wedged"),
        (WSL.format("/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.525.125.06").rpartition("UserW")[0], None),
    ],
)
def test_a_listing_tells_which_copy_is_meant(log: str, cause: str | None) -> None:
    findings = judged(log).findings
    assert (findings[0].cause if findings else None) == cause


@pytest.mark.parametrize("command", ["cd build && ls", "me@box:~/build$ ls -la"])
def test_a_file_is_not_in_the_directory_of_an_earlier_listing(command: str) -> None:
    log = f"{NO_CUBLAS}$ ls /opt/nv/lib64\nREADME\n$ {command}\nlibcublas.so.12  libx.so\n"
    assert "/opt/nv" not in f"{judged(log).findings[0]}"
