"""What single rows of the tables say and advise, where a general sentence or remedy would be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.cli.main import main
from tests.written_logs import judged, loud

MISMATCH = "RuntimeError: The detected CUDA version ({}) mismatches the version that was used to compile PyTorch ({}).\n"
CONDA = "/home/me/miniconda3/envs/e/lib/python3.8/site-packages/torch/lib/../../../../"
NO_LINK = " not defined in file libcublasLt.so.11 with link time reference\n"
SMI = "| NVIDIA-SMI 440.59       Driver Version: 440.59       CUDA Version: 10.2     |\n"
TESTED = f"$ docker run --gpus all nvidia/cuda:10.0-base nvidia-smi\n{SMI}"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n"
UNDEFINED = "ImportError: /home/me/v/lib/python3.10/site-packages/{}.so: undefined symbol: _ZN3c107WarningC1E\n"
XFORMERS = "xFormers was built for:\n    PyTorch {} with CUDA 1201 (you have {})\n"
NO_BINARY = (
    "ERROR: for plex  Cannot start service plex: OCI runtime create failed: unable to retrieve OCI runtime error (open /run/x/log.json: "
    'no such file or directory): exec: "nvidia-container-runtime": executable file not found in $PATH: unknown\n'
)
NO_CMAKE = "CMake Error at cmake/gpu.cmake:41 (message):\n  Could NOT find CUDNN (missing: CUDNN_LIBRARY CUDNN_INCLUDE_DIR)\n"
OF_BAZEL = '  File "/x/bin/app.runfiles/pip_torch/site-packages/torch/__init__.py", line 180, in <module>\n'
NO_TEGRA = "ImportError: libnvdla_compiler.so: cannot open shared object file: No such file or directory\n"
TEXT = "    return res.decode()\nUnicodeDecodeError: 'utf-8' codec can't decode byte 0xf8 in position 0: invalid start byte\n"
RANGE = (
    "    Found GPU0 {} which is of cuda capability {}.\n"
    "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n    (8.0) - ({})\n"
)
NO_SYMBOL = (
    "ImportError: dlopen(/v/torch/_C.so, 2): Symbol not found: _cudnnCreate\n  Referenced from: /v/libcaffe2_gpu.dylib\n"
    "  Expected in: /usr/local/cuda/lib/libcudnn.7.dylib\n"
)
PEER = "THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=405 error=11 : invalid argument\n"
AHEAD = "Warning: https://developer.download.nvidia.com/x/InRelease: Policy will reject signature within a year, see --audit for details\n"
OPTIONAL = "cmake -DUSE_CUDA=ON ..\n-- Could NOT find CUDNN (missing: CUDNN_LIBRARY CUDNN_INCLUDE_DIR)\n"
HELD = " nvidia-egl-icd : Depends: libegl1 (>= 0.2.999) but it is not going to be installed or\nE: you have held broken packages.\n"
JAX = "Found {} version {}, but JAX was built against version {}, which is newer.\n"


def advice(log: str) -> str:
    return " ".join(f"{one.text} {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory\n", "LIBRARY_PATH=/usr/local/cuda/lib64/stubs", "cudnn-resolve"),
        (
            f"# apt -t stretch-backports install nvidia-egl-icd\n{HELD}",
            "-t stretch-backports install nvidia-egl-icd libegl1",
            "-downgrades",
        ),
        (f"# apt-get -y --target-release=sid install nvidia-egl-icd\n{HELD}", "-t sid install nvidia-egl-icd libegl1", "downgrades"),
        (HELD, "apt-cache policy libegl1", "one suite"),
        ("CUDA GPU is too old. Falling back to CPU mode. Compute Capability detected: 1.0\n", "skips PhysX", "compute it"),
        (NO_BINARY, "configure --runtime=docker", "cdi"),
        (f"{NO_BINARY}$ podman ps\n", "cdi generate", "docker"),
        # CMake on Windows is given the folder; what it did not find before, it looks for only in a new one.
        (f"-- Selecting Windows SDK version 10.0.19041.0\n{NO_CMAKE}", "-DCMAKE_PREFIX_PATH=C:/", "apt"),
        (f"-- Build files have been written to: C:/Users/me/build\n{NO_CMAKE}", "%CUDA_PATH%", "conda"),
        (NO_CMAKE, "-DCMAKE_PREFIX_PATH=$CONDA_PREFIX", "C:/"),
        ("/usr/bin/ld: cannot find -lcudart: No such file or directory\n", "cuda-toolkit", "cudnn-resolve"),
        ("/usr/bin/ld: cannot find -lcudnn: No such file or directory\n", "libcudnn9-dev", "cudnn-resolve"),
        (
            "OSError: CUDA_HOME environment variable is not set.\ntorch==2.4.1+cu121\n",
            "-c nvidia/label/cuda-12.1.0 cuda-toolkit",
            "cudnn-resolve",
        ),
        ("foo.cu:1:10: fatal error: cublas_v2.h: No such file or directory\n", "cuda-toolkit", "cudnn-resolve"),
        ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.\n", "--dtype=half", "build"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n", "sdpa", "build"),
        ("RuntimeError: Your device is too old. We require compute capability >= 50\n", "in the place of --xformers", "install"),
        ("The code execution cannot proceed because libomp140.x86_64.dll was not found.\n", "BuildTools", "VCRedist"),
        ("The code execution cannot proceed because VCRUNTIME140_1.dll was not found.\n", "VCRedist", "BuildTools"),
        (f"{OF_BAZEL}OSError: libcufft.so.11: cannot open shared object file\n", "bazel info output_base", "pip install"),
        (f"{OF_BAZEL}ImportError: libcudnn.so.9: cannot open shared object file\n", "bazel info output_base", "pip install"),
        (f"$ docker run --runtime nvidia nvcr.io/nvidia/l4t-base:r35.4.1\n{NO_TEGRA}", "host-files-for-container.d", "docker run"),
        (f"nvc.c:281] initializing library context (version=0.10.0+jetpack, build=6)\n{NO_TEGRA}", "host-files", "docker run"),
        (NO_TEGRA, "docker run --runtime nvidia", "host-files"),
        (NO_SYMBOL, "/Developer/NVIDIA", "ldconfig"),
        (f'  File "/v/lib/python3.10/site-packages/pynvml.py", line 2094, in wrapper\n{TEXT}', "nvidia-ml-py", "PYTHONUTF8"),
        (f"    gpu = pynvml.nvmlDeviceGetName(handle)\n{TEXT}", "555.85", "PYTHONUTF8"),
        (TEXT, "PYTHONUTF8", "nvidia-ml-py"),
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
        ("'sm_120' is not a recognized processor for this target (ignoring processor)\n", "pip list", "nvcc"),
        ("torch==2.6.0+cu124\n'sm_120' is not a recognized processor for this target (ignoring processor)\n", "Triton 3.3", "XLA"),
        ("jax==0.4.30\n'sm_120' is not a recognized processor for this target (ignoring processor)\n", "-f jax", "Triton"),
        (
            "THCudaCheck FAIL\n/tmp/luarocks_cunn-1/ClassNLLCriterion.cu:52: x: Assertion `t >= 0 && t < n_classes` failed.\n",
            "1 to",
            "0 to",
        ),
        ("ClassNLLCriterion.cu:52: x: Assertion `t >= 0 && t < n_classes` failed.\n", "0 to classes - 1", "Lua"),
        ("OSError: CUDA_HOME environment variable is not set.\ntorch==1.8.1+cu102\n", "cuda-toolkit", "label"),
        (MISMATCH.format("12.1", "11.8"), "-c nvidia/label/cuda-11.8.0 cuda-toolkit", "cuda-toolkit="),
        (f"OSError: {CONDA}libcublas.so.11: symbol free_gemm_select version libcublasLt.so.11{NO_LINK}", "pytorch-gpu", "cudnn-resolve"),
        (
            f"ImportError: {CONDA}libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_1, version libnvJitLink.so.12\n",
            "pytorch-gpu",
            "cudnn-resolve",
        ),
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


@pytest.mark.parametrize(
    "log",
    [
        RANGE.format("NVIDIA GB10", "12.1", "12.0"),
        RANGE.format("NVIDIA GeForce RTX 4090", "8.9", "8.6"),
        PEER,
        f"{PEER}Epoch 1/9 loss 0.5\n",
        f"{AHEAD}Audit: Signing key on EB693B3035CD5710E231E123A4B469963BF863CC is not bound:\n",
        '-- Could NOT find CUDNN: Found unsuitable version "7.4.2"\n-- Generating done\n',
        f"{OPTIONAL}-- Generating done (0.1s)\na.cpp:1:10: fatal error: b.h: No such file or directory\n",
    ],
)
def test_what_a_program_only_mentions_is_not_why_it_failed(log: str) -> None:
    assert set(loud(judged(log))) <= {"unrecognised"}


@pytest.mark.parametrize(
    "log",
    [
        RANGE.format("NVIDIA GeForce RTX 5090", "12.0", "9.0"),
        f"{PEER}RuntimeError: cuda runtime error (11) : invalid argument at /pytorch/aten/src/THC/THCGeneral.cpp:405\n",
        f"{AHEAD}W: GPG error: https://example.org InRelease: NO_PUBKEY A4B469963BF863CC\n",
        OPTIONAL + "-- Found Protobuf: /usr\nCMake Error: CUDNN not found\n",
    ],
)
def test_a_failure_of_the_same_wording_is_told(log: str) -> None:
    assert loud(judged(log))


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


@pytest.mark.parametrize(("name", "kind", "cuda"), [("odd", "word", "11x"), ("odd", "cuda", "11.8"), ("context-smi-table", "word", "11.8")])
def test_what_a_row_of_an_overlay_calls_cuda_is_not_that_of_the_driver(
    name: str, kind: str, cuda: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "over/symptom").mkdir(parents=True)
    row = f'id = "{name}"\npattern = ["odd needs CUDA {{cuda:{kind}}}"]\nanchor = ["odd needs cuda"]\nrole = "context"\nfeature = "odd"\n'
    (tmp_path / "over/symptom/context.toml").write_text(f'origin = "authored"\n[[symptom]]\n{row}sample = ["odd needs CUDA {cuda}"]\n')
    lines = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
    words = ["doctor", str(tmp_path / "x.log"), "--no-facts", "--matrix", str(tmp_path / "over")]

    answers = []
    for first in ("nothing odd", f"odd needs CUDA {cuda}"):
        (tmp_path / "x.log").write_text(f"{first}\n{lines}")
        code = main(words)
        answers.append((code, capsys.readouterr().out))

    assert answers[0] == answers[1]
    assert "nvidia-cudnn-cu12" in answers[0][1]


@pytest.mark.parametrize("field", ["versions", "mm_range"])
def test_a_field_of_an_overlay_may_be_of_another_kind_than_that_of_the_tables(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "over/symptom").mkdir(parents=True)
    row = f'id = "odd"\npattern = ["odd {{requirement:requirement}} {{{field}:cuda}}"]\nanchor = ["odd nv"]\nrole = "proves"\n'
    row += 'cause = "pip_pin_unavailable"\nweight = 90\nsample = ["odd nvidia-cudnn-cu12==9.9 9.1"]\n'
    (tmp_path / "over/symptom/python.toml").write_text(f'origin = "authored"\n[[symptom]]\n{row}')
    (tmp_path / "x.log").write_text("odd nvidia-cudnn-cu12==9.9 9.1\n")

    code = main(["doctor", str(tmp_path / "x.log"), "--no-facts", "--matrix", str(tmp_path / "over")])

    assert (code, "pip_pin_unavailable" in capsys.readouterr().out) == (1, True)


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (UNDEFINED.format("torch_sparse/_convert_cuda"), "--no-index torch-scatter torch-sparse -f https://data.pyg.org/whl/torch-$("),
        (
            f"torch==1.9.0+cu111\n{UNDEFINED.format('torch_cluster/_knn_cuda')}",
            "torch-cluster -f https://data.pyg.org/whl/torch-1.9.0+cu111.html",
        ),
        (UNDEFINED.format("flash_attn_2_cuda"), "FLASH_ATTENTION_FORCE_BUILD=TRUE /home/me/v/bin/python -m pip install"),
        (UNDEFINED.format("selective_scan_cuda"), "MAMBA_FORCE_BUILD=TRUE /home/me/v/bin/python -m pip install"),
        (f"torch==1.13.1+cu117\n{UNDEFINED.format('torchtext/_torchtext')}", "--no-deps torchtext==0.14.1"),
        (XFORMERS.format("1.13.1+cu117", "2.0.0+cu118"), "--no-deps xformers==0.0.19 None"),
        (XFORMERS.format("2.4.0+cu121", "2.5.1+cu124"), "xformers==0.0.29.post1 --index-url https://download.pytorch.org/whl/cu124"),
    ],
)
def test_an_extension_is_installed_for_the_torch_that_is_there(log: str, command: str) -> None:
    assert command in f"{advice(log)} None"


def test_torchtext_never_moves_a_torch_that_it_was_not_made_for() -> None:
    log = f"torch==2.4.0+cu121\n{UNDEFINED.format('torchtext/lib/libtorchtext')}"
    assert "for a newer PyTorch remove torchtext" in advice(log)
    assert "cudnn-resolve" not in advice(log)


def test_kernels_of_an_extension_do_not_replace_torch() -> None:
    call = 'torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\n  File "{}", line 7, in f\n'
    site = "/v/lib/python3.10/site-packages"
    assert "vllm brings kernels" in advice(call.format(f"{site}/vllm/v1/engine/core.py"))
    assert "apply" not in advice(call.format(f"{site}/vllm/v1/engine/core.py"))
    assert "apply" in advice(call.format(f"{site}/torch/nn/modules/module.py"))


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (f"root@4728a09607c1:/opt# python t.py\n{NO_DRIVER}{TESTED}", "container_gpu_not_passed"),
        (f"{TESTED}$ docker run -it a/b:1 python t.py\n{NO_DRIVER}", "container_gpu_not_passed"),
        (f"{TESTED}$ docker run --gpus all a/b:1 python t.py\n{NO_DRIVER}", "driver_not_loaded"),
        (f"{TESTED}$ python t.py\n{NO_DRIVER}", "driver_not_loaded"),
    ],
)
def test_a_test_of_one_container_says_nothing_of_another(log: str, cause: str) -> None:
    found = judged(log).findings[0]
    assert found.cause == cause
    assert not any("nvidia/cuda:10.0-base" in (one.command or "") for one in found.remedy)


def test_a_shown_driver_and_python_are_not_asked_for() -> None:
    log = "PyTorch version: 2.0.0+cpu\nPython version: 3.10.9 | packaged by conda-forge | [MSC v.1929 64 bit (AMD64)]\n"
    found = judged(f"{log}CUDA used to build PyTorch: Could not collect\nNvidia driver version: 528.49\n").findings[0]
    assert found.undecided is None
    assert len(found.remedy) == 1
    assert (found.remedy[0].command or "").startswith("python -m pip install -U torch==2.0.0+cu117")


def test_pip_chooses_the_release_for_an_unknown_python_on_windows_if_every_build_serves_the_gpu() -> None:
    log = "C:\\b\\python\\lib\\site-packages\\torch\\cuda\\__init__.py:235: UserWarning: \n"
    log += "NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
    log += "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.\n"
    assert "pip install -U torch torchvision --index-url https://download.pytorch.org/whl/cu128" in advice(log)
    assert "uv venv" not in advice(log)


def test_pixi_has_no_pip() -> None:
    log = '  File "/a/.pixi/envs/default/lib/python3.10/site-packages/torchvision/_meta_registrations.py", line 18, in wrapper\n'
    log += "RuntimeError: operator torchvision::nms does not exist\n"
    assert "pixi list torch" in advice(log)
    assert "pip install" not in advice(log)


def test_cudnn_for_windows_is_that_of_the_shown_toolkit() -> None:
    log = "Could not locate cudnn_ops_infer64_8.dll.\nCuda compilation tools, release 11.6, V11.6.55\n"
    assert "for CUDA 11 from NVIDIA's archive" in judged(log).findings[0].remedy[0].text


_OTHER_CUDA = (
    "Detected that PyTorch and {} were compiled with different CUDA versions. PyTorch has CUDA Version=11.3 and {} has CUDA Version=11.7.\n"
)
_BUILT_HERE = (
    "UserWarning: The detected CUDA version (11.7) has a minor version mismatch with the version that was used to compile PyTorch (11.3).\n"
)
_TREE, _WHEEL = "/home/me/bitsandbytes/bitsandbytes", "/v/lib/python3.10/site-packages/bitsandbytes"
_NO_LIBRARY = (
    "bin {0}/libbitsandbytes_cuda121.so\nCUDA SETUP: Required library version not found: libbitsandbytes_cuda121.so.\n",
    "Could not find the bitsandbytes CUDA binary at PosixPath('{0}/libbitsandbytes_cuda128.so')\n",
    "{0}/cextension.py:31: UserWarning\nCUDA SETUP: Required library version not found: libbitsandbytes_cuda117_nocublaslt.so.\n",
)


@pytest.mark.parametrize("log", _NO_LIBRARY)
def test_a_source_tree_of_bitsandbytes_was_not_compiled(log: str) -> None:
    assert judged(log.format(_TREE)).findings[0].cause == "cpu_only_build"
    assert "-DCOMPUTE_BACKEND=cuda" in advice(log.format(_TREE))
    assert judged(log.format(_WHEEL)).findings[0].cause == "framework_pkg_mismatch"


@pytest.mark.parametrize("name", ["torchvision", "torchaudio"])
def test_a_companion_that_was_compiled_with_another_nvcc_is_no_other_wheel(name: str) -> None:
    log = "RuntimeError: " + _OTHER_CUDA.format(name, name)
    assert judged(log).findings[0].cause == "framework_pkg_mismatch"
    assert judged(_BUILT_HERE + log).findings[0].cause == "toolkit_build_mismatch"
    assert "CUDA_HOME=/usr/local/cuda-11.3" in advice(_BUILT_HERE + log)


@pytest.mark.parametrize(
    "log",
    [
        "All matches were filtered out by modular filtering for argument: nvidia-driver\nError: Unable to find a match: nvidia-driver\n",
        "  - package cuda-drivers-3:550.54.15-1.el8.x86_64 is filtered out by modular filtering\n",
    ],
)
def test_a_module_that_hides_packages_is_reset(log: str) -> None:
    assert loud(judged(log)) == ["apt_conflict"]
    assert "dnf module reset" in str(judged(log).findings[0].remedy[0].command)


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ("Mar 11 07:40:12 nas jellyfin[1840]: ", "driver_library_mismatch"),
        ("mia@box:~/x$ ./deviceQuery\n", "driver_library_mismatch"),
        ("Mar 11 07:40:12 nas dockerd[1840]: ", "forward_compat_hw"),
        ("Mar 11 07:40:12 nas 4e1f0c9a77b2[1840]: ", "forward_compat_hw"),
        ("root@4e1f0c9a77b2:/samples# ./deviceQuery\n", "forward_compat_hw"),
        ("", "forward_compat_hw"),
    ],
)
def test_error_804_is_an_update_without_a_reboot_where_no_image_brings_a_libcuda(before: str, cause: str) -> None:
    assert loud(judged(before + "Error 804: forward compatibility was attempted on non supported HW\n")) == [cause]


@pytest.mark.parametrize(
    "log",
    [
        "ERROR: Unable to load the 'nvidia-drm' kernel module.\nERROR: Installation has failed.\n",
        "ERROR: You appear to be running an X server; please exit X before installing.\nERROR: Installation has failed.\n",
    ],
)
def test_the_installer_of_the_driver_is_not_taken_for_a_container(log: str) -> None:
    (first, *_) = judged(log).findings
    assert (first.cause, first.undecided) == ("driver_not_loaded", None)


def test_a_program_of_another_language_is_not_asked_for_packages_of_python() -> None:
    log = "> torch::install_torch()\n> torch::cuda_memory_stats()\nError in `cuda_memory_stats()`:\n! CUDA is not available.\n"
    assert "check with `nvidia-smi -L`," in str(judged(log).findings[0].undecided)


@pytest.mark.parametrize(("wanted", "cause"), [("__cuda", "driver_not_loaded"), ("__cuda >=12.6", "driver_too_old")])
def test_any_cuda_that_conda_misses_is_a_missing_driver(wanted: str, cause: str) -> None:
    log = f"error    libmamba Could not solve for environment specs\n  └─ {wanted}, which is missing on the system.\n"
    assert loud(judged(log)) == [cause]


def test_a_function_that_nvml_lacks_is_of_another_release_of_the_driver() -> None:
    (first, *_) = judged("$ nvidia-smi\nFailed to initialize NVML: Function Not Found\n").findings
    assert first.cause == "driver_library_mismatch"
    assert "libnvidia-ml" in first.remedy[0].text


@pytest.mark.parametrize(("release", "installed"), [("1.7.0", "mmcv-full==1.7.0"), ("", "mmcv-full")])
def test_mmcv_is_reinstalled_in_the_release_that_is_listed(release: str, installed: str) -> None:
    log = f"mmcv-full {release}\nImportError: /v/site-packages/mmcv/_ext.cpython-38-x86_64-linux-gnu.so: undefined symbol: _ZN2at5emptyE\n"
    assert f"mim install {installed}" in str(judged(log).findings[0].remedy[0].command).split(" && ")[-1]


_LIST = (
    "ERROR: Could not find a version that satisfies the requirement {0} (from versions: {1})\n"
    "ERROR: No matching distribution found for {0}\n"
)


@pytest.mark.parametrize(
    ("asked", "listed", "installed"),
    [
        ("tensorflow-gpu==2.12.0", "2.2.0, 2.10.1, 2.11.0", "tensorflow==2.12.0"),
        ("tensorflow-gpu>=2.13", "2.12.0", "'tensorflow>=2.13'"),
        ("tensorflow-gpu==2.5.0", "2.12.0", "tensorflow"),
        ("tensorflow-gpu==2.4.1", "2.8.0, 2.9.0, 2.12.0", "tensorflow-gpu==2.8.0"),
    ],
)
def test_nothing_is_under_the_retired_name_of_tensorflow(asked: str, listed: str, installed: str) -> None:
    assert judged(_LIST.format(asked, listed)).findings[0].remedy[0].command == f"python -m pip install {installed}"


@pytest.mark.parametrize(
    ("before", "level", "is_old"),
    [("", "", True), ("", "ERROR: ", False), ("C:\\Users\\mia>pip install torch==2.7.0\n", "", False)],
)
def test_only_a_pip_that_prints_no_level_lacks_tags_of_linux(before: str, level: str, *, is_old: bool) -> None:
    log = before + _LIST.format("torch==2.7.0", "2.2.0, 2.3.1, 2.4.1").replace("ERROR: ", level)
    assert ("before 19.0" in advice(log)) is is_old


@pytest.mark.parametrize(
    "said", ["ldd (Ubuntu GLIBC 2.35-0ubuntu3.8) 2.35", "ldd (GNU libc) 2.34", "Libc version: glibc-2.31", "glibc 2.36"]
)
def test_a_glibc_that_the_log_shows_is_known(said: str) -> None:
    listed = "1.12.0, 1.12.1, 1.13.1, 1.14.0, 1.14.1, 1.15.0, 1.15.1, 1.16.0, 1.16.1, 1.16.2, 1.16.3"
    log = _LIST.format("onnxruntime==1.18.0", listed)
    assert judged(log).findings[0].cause == "glibc_too_old"
    assert judged(f"{said}\n{log}").findings[0].cause == "pip_wheel_unavailable_for_python"
    assert judged(f"ldd (GNU libc) 2.17\n{log}").findings[0].cause == "glibc_too_old"


_NO_IMAGE = (
    "$ ./darknet detect cfg/yolov3.cfg\nCUDA Error: no kernel image is available for execution on the device\n"
    "|   0  {}     Off  | 00000000:01:00.0 Off |\n"
)


@pytest.mark.parametrize(
    ("log", "cause", "said"),
    [
        (_NO_IMAGE.format("GeForce GT 540M"), "gpu_arch_too_old_for_build", "ARCH='-gencode arch=compute_20,code=sm_21'"),
        (_NO_IMAGE.format("GeForce GT 740M"), "gpu_arch_too_old_for_build", "nvcc of CUDA 10.2 or older"),
        ("Found GPU0 GeForce 820M which is of cuda capability 2.1.\n    PyTorch no longer supports this GPU because it is too old.\n",
         "gpu_arch_too_old_for_build", "2.1: use another GPU or the CPU"),
        ("| N/A   40C    P0    20W /  N/A |    300MiB /  8192MiB |      0%   Prohibited |\n", "gpu_exclusive_mode", "compute mode"),
        ("worker.py:267] the rest of the memory reserved for KV Cache is -0.42GiB.\nRuntimeError: Engine core failed\n",
         "out_of_memory", "gpu_memory_utilization"),
        ("Exception in main training loop: out of memory to allocate 9961472 bytes (total 2039221760 bytes)\n", "out_of_memory", "batch"),
    ],
)  # fmt: skip
def test_what_a_line_tells_of_the_gpu(log: str, cause: str, said: str) -> None:
    assert judged(log).findings[0].cause == cause
    assert said in advice(log)


@pytest.mark.parametrize("pin", ["jaxlib==0.3.25+cuda11.cudnn82", "jaxlib==0.1.61+cuda110", "torch==1.8.1+cu111"])
def test_a_build_for_one_cuda_is_on_its_own_index(pin: str) -> None:
    lines = "ERROR: Could not find a version that satisfies the requirement {0}{1}\nERROR: No matching distribution found for {0}\n"
    found = judged(lines.format(pin, ""))
    assert [finding.cause for finding in found.findings] == ["pip_pin_unavailable"]
    assert f"install {pin} --find-links https://" in advice(lines.format(pin, ""))
    assert judged(lines.format(pin, " (from versions: none)")).findings[0].cause == "pip_wheel_unavailable_for_python"


def test_the_gpu_build_of_paddle_takes_the_place_of_the_other() -> None:
    log = "C:\\ocr\\lib\\site-packages\\paddle\\a.py: x\nE0814 4612 analysis_config.cc:169] Please use PaddlePaddle with GPU version.\n"
    assert judged(log).findings[0].cause == "cpu_only_build"
    assert "pip uninstall -y paddlepaddle && " in advice(log)


def test_what_windows_says_of_a_search_is_noise() -> None:
    assert not loud(judged("INFO: Could not find files for the given pattern(s).\nlocal_rank 0: epoch 1 done\n"))
