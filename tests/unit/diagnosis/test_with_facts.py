"""One line of a log means several causes, which the environment that gave it parts: each line beside every environment that gives it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import Case, book, judged_there, of_machines

Tree = dict[str, Any]


class Given(NamedTuple):
    """A log, the environment that gives it, and its cause there."""

    cause: str
    log: str
    facts: Tree


SITE = "/venv/lib/python3.11/site-packages"
PYTHON = {"version": "3.11.9", "path": "/venv/bin/python", "prefix": "/venv"}
HOST: Tree = {
    "platform": {"system": "linux", "arch": "x86_64", "glibc": "2.35"},
    "python": PYTHON,
    "driver": {"version": "550.54.15", "cuda": "12.4", "kernel_module": "550.54.15"},
    "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"}],
    "loader": {"ld_library_path": [], "ldconfig": ["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]},
    "cudnn": [],
    "cuda_toolkits": [],
    "container": None,
    "packages": {"pip": {"onnxruntime-gpu": "1.18.0"}},
}
_NOT_OPENED = "libcudnn.so.{major}: cannot open shared object file: No such file or directory\n"
ABSENT = (
    "ImportError: " + _NOT_OPENED,
    "Could not load dynamic library 'libcudnn.so.{major}'; dlerror: " + _NOT_OPENED + "RuntimeError: no GPU\n",
    "[ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: " + _NOT_OPENED,
    "error while loading shared libraries: " + _NOT_OPENED,
    "OSError: libcudnn.so.{major}: Kann die Shared-Object-Datei nicht öffnen: Datei oder Verzeichnis nicht gefunden\n",
)
OLD = (
    "Loaded runtime CuDNN library: {found} but source was compiled with: {built}.  CuDNN library needs to have matching major version\n",
    "RuntimeError: Found cuDNN version {found}, but JAX was built against version {built}\n",
)
NO_DEVICE = (
    "RuntimeError: No CUDA GPUs are available\n",
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n",
)
HEADER = "/tmp/try_flags_x1y2z3.c:4:19: fatal error: cudnn.h: No such file or directory\n"
OLD_DRIVER = (
    "RuntimeError: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version\n",
    "cudaGetDeviceCount returned 35\n-> CUDA driver version is insufficient for CUDA runtime version\nResult = FAIL\n",
)
KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
RELEASES = {8: "8.9.7", 9: "9.1.0"}


def _copy(version: str, path: str, source: str = "pip") -> Tree:
    return {"version": version, "soname": int(version.split(".", maxsplit=1)[0]), "path": path, "source": source, "complete": True}


def _missing_and_its_like() -> list[Given]:
    out = []
    for major, other in ((8, 9), (9, 8)):
        for words in ABSENT:
            log = words.format(major=major)
            wheel = f"{SITE}/nvidia/cudnn/lib"
            out += [
                Given("cudnn_missing", log, {}),
                Given("lib_not_on_path", log, {"cudnn": [_copy(RELEASES[major], wheel)]}),
                Given("lib_not_on_path", log, {"cudnn": [_copy(RELEASES[major], "/opt/cudnn/lib64", "other")]}),
                Given("cudnn_major_mismatch", log, {"cudnn": [_copy(RELEASES[other], wheel)]}),
            ]
    return out


def _old_and_its_like() -> list[Given]:
    out = []
    for found, built, better in (("8.6.0", "8.9.4", "8.9.7"), ("9.0.0", "9.3.0", "9.5.1")):
        for words in OLD:
            log = words.format(found=found, built=built)
            before, wheel = _copy(found, "/usr/local/cuda/lib64", "other"), _copy(better, f"{SITE}/nvidia/cudnn/lib")
            path = {"loader": {"ld_library_path": ["/usr/local/cuda/lib64"], "ldconfig": []}}
            out += [
                Given("cudnn_too_old_for_framework", log, {"cudnn": [before], **path}),
                Given("ld_path_shadowing", log, {"cudnn": [before, wheel], **path}),
            ]
    return out


def _driver_and_its_like() -> list[Given]:
    torch = {"packages": {"pip": {"torch": "2.4.1"}}}
    none: Tree = {"driver": None, "gpus": None, "loader": {"ld_library_path": [], "ldconfig": []}}
    old = {"driver": {"version": "450.80.02", "cuda": "11.0", "kernel_module": "450.80.02"}}
    hidden = {"gpus": [{"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0", "hidden": True}]}
    out = []
    for log in OLD_DRIVER:
        out += [
            Given("driver_too_old", log, torch | old),
            Given("container_gpu_not_passed", log, torch | none | {"container": {"kind": "docker"}}),
        ]
    for log in NO_DEVICE:
        out += [
            Given("gpu_hidden_by_env", log, torch | hidden),
            Given("container_gpu_not_passed", log, torch | none | {"container": {"kind": "docker"}}),
            Given("no_gpu_runtime", log, torch | none | {"container": {"kind": "colab"}}),
        ]
    out += [
        Given("gpu_hidden_by_env", NO_DEVICE[1], torch),
        Given("driver_not_loaded", NO_DEVICE[1], {"problems": [{"what": "cuInit", "why": "failed with CUDA_ERROR_NO_DEVICE (100)"}]}),
        Given("lib_not_on_path", HEADER, {"cudnn": [_copy("7.6.5", "/opt/cuda/lib64", "other")]}),
        Given("cudnn_missing", HEADER, {}),
    ]
    mismatch = "Error 803: system has unsupported display driver / cuda driver combination\n"
    compat = "/usr/local/cuda-12.6/compat"
    out += [
        Given("driver_library_mismatch", mismatch, {"driver": {"version": "550.90.07", "cuda": "12.4", "kernel_module": "550.54.15"}}),
        Given("ld_path_shadowing", mismatch, {"loader": {"ld_library_path": [compat], "ldconfig": []}}),
        Given("ld_path_shadowing", mismatch, {"loader": {"ld_library_path": [], "ldconfig": [f"{compat}/libcuda.so.1"]}}),
    ]
    not_loaded = (
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
        "kernel driver does not appear to be running on this host (h): /proc/driver/nvidia/version does not exist\n"
        "Attempting to fetch value instead of handling error Not found: no CUDA devices found\n"
    )
    module = {"what": "NVIDIA kernel module", "why": "is not loaded and there is no device, although the driver's libraries exist"}
    idle: Tree = torch | {"gpus": None, "driver": {"version": "550.54.15", "cuda": "12.4"}, "problems": [module]}
    out += [
        Given("driver_not_loaded", not_loaded, idle),
        Given("no_gpu_runtime", not_loaded, idle | {"container": {"kind": "colab"}}),
        Given("container_gpu_not_passed", not_loaded, idle | {"container": {"kind": "docker"}}),
    ]
    return out


def _runtime_and_its_like() -> list[Given]:
    old = "ImportError: libcudart.so.8.0: cannot open shared object file: No such file or directory\n"
    toolkits = {version: [{"version": version, "path": f"/usr/local/cuda-{version}", "source": "runfile"}] for version in ("8.0", "7.5")}
    out = [
        Given("lib_not_on_path", old, {"cuda_toolkits": toolkits["8.0"]}),
        Given("cuda_runtime_missing", old, {"cuda_toolkits": toolkits["7.5"]}),
    ]
    for library, wheel in (
        ("libcublas.so.12", "nvidia-cublas-cu12"),
        ("libcufft.so.11", "nvidia-cufft-cu12"),
        ("libcudart.so.12", "nvidia-cuda-runtime-cu12"),
    ):
        log = f"ImportError: {library}: cannot open shared object file: No such file or directory\n"
        out += [
            Given("cuda_runtime_missing", log, {}),
            Given("lib_not_on_path", log, {"packages": {"pip": {"onnxruntime-gpu": "1.18.0", wheel: "12.4.5.8"}}}),
            *_toolkit_and_its_like(log),
        ]
    return out


def _toolkit_and_its_like(log: str) -> list[Given]:
    """A toolkit with the library is searched or not; one that is searched has parts of it only, or is of another CUDA."""
    cvmfs, local = "/cvmfs/soft/cuda/12.4.1", "/usr/local/cuda-12.4"
    cached = {"ld_library_path": [], "ldconfig": [f"{local}/lib64/libcudart.so.12"]}
    return [
        Given("lib_not_on_path", log, {"cuda_toolkits": [{"version": "12.4", "path": cvmfs, "source": "other"}]}),
        Given("lib_not_on_path", log, {"cuda_toolkits": [{"version": "12.4.1", "path": "/conda/envs/x", "source": "conda"}]}),
        Given("cuda_runtime_missing", log, {"cuda_toolkits": [{"version": "12.4", "path": "/conda/envs/x", "source": "conda"}]}),
        Given("cuda_runtime_missing", log, {"cuda_toolkits": [{"version": "10.2", "path": "/usr/local/cuda-10.2", "source": "other"}]}),
        Given("cuda_runtime_missing", log, {"cuda_toolkits": [{"version": "12.4", "path": local, "source": "apt"}], "loader": cached}),
        Given(
            "cuda_runtime_missing",
            log,
            {
                "cuda_toolkits": [{"version": "12.4", "path": local, "source": "apt"}],
                "loader": {"ld_library_path": [f"{local}/lib64"], "ldconfig": []},
            },
        ),
    ]


def _symbol_and_its_like() -> list[Given]:
    """A library that lacks a symbol was found: another copy of it may be there, but none is out of the loader's sight."""
    log = (
        "ImportError: /conda/envs/x/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: "
        "undefined symbol: cudaGraphInstantiateWithFlags, version libcudart.so.11.0\n"
    )
    conda: Tree = {"cuda_toolkits": [{"version": "11.3.1", "path": "/conda/envs/x", "source": "conda"}]}
    return [
        Given("ld_path_shadowing", log, conda | {"packages": {"pip": {"torch": "1.13.1", "nvidia-cuda-runtime-cu11": "11.7.99"}}}),
        Given("cuda_runtime_missing", log, conda | {"packages": {"pip": {"torch": "1.13.1"}}}),
    ]


def _brought_and_its_like() -> list[Given]:
    """The facts list the copies of cuDNN: what a release usually brings does not count beside them."""
    part = "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file\n"
    front = _copy("8.9.7", f"{SITE}/ctranslate2.libs") | {"complete": False, "owner": "ctranslate2", "problems": ["parts are missing"]}
    unnamed = "CUDA backend failed to initialize: Unable to load cuDNN. Is it installed?\n"
    names = ("cublas", "cuda-cupti", "cuda-nvcc", "cuda-runtime", "cufft", "cusolver", "cusparse", "nccl", "nvjitlink")
    wheels = {f"nvidia-{name}-cu12": "12.3.101" for name in names}
    jax: Tree = {"packages": {"pip": {"jax": "0.4.25", "jaxlib": "0.4.25+cuda12.cudnn89", **wheels}}}
    older = "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against 8700 but linked against 8204\n"
    conda = _copy("8.2.4", "/conda/envs/x/lib", "conda")
    torch: Tree = {"packages": {"pip": {"torch": "2.0.1"}}}
    return [
        Given("cudnn_missing", ABSENT[0].format(major=8), torch),
        Given("cudnn_missing", part, {"packages": {"pip": {"torch": "2.3.1+cpu", "ctranslate2": "4.4.0"}}, "cudnn": [front]}),
        Given("cudnn_major_mismatch", unnamed, jax | {"cudnn": [_copy("9.0.0", f"{SITE}/nvidia/cudnn/lib")]}),
        Given("cudnn_missing", unnamed, jax),
        Given("cudnn_too_old_for_framework", older, torch | {"cudnn": [conda]}),
        Given("ld_path_shadowing", older, torch | {"cudnn": [conda, _copy("8.7.0", f"{SITE}/torch/lib")]}),
    ]


def _wheels_and_their_like() -> list[Given]:
    """Wheels in a directory of Debian's Python, and a component that none of them contains."""
    debian: Tree = {
        "python": {"version": "3.10.12", "path": "/usr/bin/python3", "prefix": "/usr"},
        "cuda_toolkits": [{"version": "12.1", "path": "/usr/local/lib/python3.10/dist-packages/nvidia/cuda_runtime", "source": "pip"}],
        "cudnn": [_copy("9.10.1", "/usr/local/lib/python3.10/dist-packages/nvidia/cudnn/lib")],
    }
    nvrtc = "CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot open shared object file: No such file or directory\n"
    sparse = "RuntimeError: Unable to load cuSPARSE. Is it installed?\n"
    wheels = {"jax": "0.6.1", "jax-cuda12-plugin": "0.6.1", "nvidia-cuda-runtime-cu12": "12.9.37", "nvidia-nvjitlink-cu12": "12.9.41"}
    wheels["nvidia-cudnn-cu12"] = "9.10.1.4"
    return [
        Given("lib_not_on_path", nvrtc, debian | {"packages": {"pip": {"cupy-cuda12x": "13.0.0", "nvidia-cuda-nvrtc-cu12": "12.1.105"}}}),
        Given("cuda_runtime_missing", nvrtc, debian | {"packages": {"pip": {"cupy-cuda12x": "13.0.0"}}}),
        Given("cuda_runtime_missing", sparse, debian | {"packages": {"pip": wheels}}),
        Given("nvjitlink_mix", sparse, debian | {"packages": {"pip": wheels | {"nvidia-cusparse-cu12": "12.5.9.5"}}}),
    ]


def _container_and_its_like() -> list[Given]:
    """A driver that is new enough, in a container with and without its libraries."""
    ort: Tree = {"packages": {"pip": {"onnxruntime-gpu": "1.11.1"}}, "container": {"kind": "docker"}}
    bare: Tree = {"loader": {"ld_library_path": [], "ldconfig": ["/lib/x86_64-linux-gnu/libz.so.1"]}}
    old: Tree = {"driver": {"version": "440.33", "kernel_module": "440.33"}}
    return [
        Given("container_gpu_not_passed", OLD_DRIVER[0], ort | bare),
        Given("driver_too_old", OLD_DRIVER[0], ort | bare | old),
    ]


def _build_and_its_like() -> list[Given]:
    """A package without CUDA beside a framework that has it: what the log says of the one is not of the other."""
    log = (
        "CUDAExecutionProvider not found in onnxruntime.available_providers : "
        "['AzureExecutionProvider', 'CPUExecutionProvider'], use CPU instead. Check onnxruntime-gpu is installed\n"
    )
    return [Given("cpu_only_build", log, {"packages": {"pip": {"onnxruntime": "1.16.3", "torch": "2.4.1"}}})]


def _code_and_its_like() -> list[Given]:
    blackwell = [{"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0"}]
    pascal = [{"name": "Tesla P100-PCIE-16GB", "compute_capability": "6.0"}]
    return [
        Given("gpu_arch_too_new_for_build", KERNEL.partition(" for exec")[0], {"gpus": blackwell, "packages": {"pip": {}}}),
        Given("gpu_arch_too_new_for_build", KERNEL, {"gpus": blackwell, "packages": {"pip": {"torch": "2.4.1"}}}),
        Given("gpu_arch_too_old_for_build", KERNEL, {"gpus": pascal, "packages": {"pip": {"torch": "2.8.0"}}}),
    ]


def _without_libcuda_and_its_like() -> list[Given]:
    """A driver that is absent, a stub in its place, a card that is lost: the messages are those of an old or hidden one."""
    bare: Tree = {"ld_library_path": [], "ldconfig": []}
    none: Tree = {"packages": {"pip": {"torch": "2.4.1"}}, "driver": None, "gpus": None, "loader": bare}
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so.1 is the toolkit's stub for linking, which does not work"
    lost = "failed with NVML_ERROR_GPU_IS_LOST (15): a GPU has fallen off the bus"
    module: Tree = {"version": "352.63", "kernel_module": "352.63"}
    singularity = (
        "$ singularity exec --nv a.sif python t.py\nWARNING: Could not find any NVIDIA libraries on this host!\n"
        "RuntimeError: Found no NVIDIA driver on your system.\n"
    )
    unopened = (
        "I tensorflow/stream_executor/dso_loader.cc:99] Couldn't open CUDA library libcudnn.so. LD_LIBRARY_PATH: \n"
        "I tensorflow/stream_executor/dso_loader.cc:99] Couldn't open CUDA library libcuda.so.1. LD_LIBRARY_PATH: \n"
    )
    copy: Tree = {"cudnn": [_copy("4.0.7", "/usr/lib/x86_64-linux-gnu", "apt")], "packages": {"pip": {}}}
    out = []
    for log in OLD_DRIVER:
        out += [
            Given("no_gpu_runtime", log, none | {"container": {"kind": "colab"}}),
            Given("driver_not_loaded", log, none),
            Given("driver_not_loaded", log, none | {"container": {"kind": "wsl"}}),
        ]
    for log in (*OLD_DRIVER, *NO_DEVICE):
        out += [
            Given("ld_path_shadowing", log, {"problems": [{"what": "libcuda.so.1", "why": stub}]}),
            Given("driver_not_loaded", log, none | {"problems": [{"what": "libcuda.so.1", "why": stub}]}),
        ]
    return [
        *out,
        Given("hardware_fault", ">>> torch.cuda.is_available()\nFalse\n", {"gpus": None, "problems": [{"what": "NVML", "why": lost}]}),
        Given("driver_not_loaded", singularity, none),
        Given("container_gpu_not_passed", singularity.replace("this host", "this host, it"), none | {"container": {"kind": "docker"}}),
        Given("container_gpu_not_passed", unopened, copy | {"driver": module, "loader": bare, "container": {"kind": "docker"}}),
        Given("lib_not_on_path", unopened.partition("\n")[0] + "\n", copy),
    ]


def _started_and_its_like() -> list[Given]:
    """A cuDNN that does not start, or is another one than the build accepts: the copies of the machine tell why."""
    site, old = f"{SITE}/nvidia/cudnn/lib", "/usr/local/cuda/lib64"
    framework: Tree = {"name": "tensorflow", "version": "2.13.0", "cuda_built": "11.8", "cudnn_built": "8.6"}
    toolkit = [{"version": "11.8", "path": "/usr/local/cuda-11.8", "source": "apt"}]
    out = []
    for log in ("Fail to find the dnn implementation.\n", "UNIMPLEMENTED: DNN library is not found.\n"):
        for cause, version, copies in (
            ("out_of_memory", "8.6.0", [_copy("8.6.0", old)]),
            ("cudnn_too_old_for_framework", "8.1.0", [_copy("8.1.0", old)]),
            ("ld_path_shadowing", "8.1.0", [_copy("8.1.0", old), _copy("8.7.0", site)]),
            ("cudnn_major_mismatch", None, [_copy("9.1.0", site)]),
            ("cudnn_missing", None, []),
        ):
            loads = {"cudnn": {"version": version, "path": f"{old}/libcudnn.so.8"} if version else None, "because": "the linker cache"}
            facts = {"frameworks": [framework | {"would_load": loads}], "cudnn": copies, "cuda_toolkits": toolkit}
            out.append(Given(cause, f"tensorflow UnimplementedError: {log}", facts))
    newer = (
        "Loaded runtime CuDNN library: 7301 (compatibility version 7300) but source was compiled with 7003 (compatibility version 7000).\n",
        "RuntimeError: cuDNN version mismatch: PyTorch was compiled against 7003 but linked against 7301\n",
    )
    for log in newer:
        found, right = _copy("7.3.1.20", old, "other"), _copy("7.0.5.15", "/conda/lib", "conda")
        out += [
            Given("cudnn_too_new_for_framework", log, {"cudnn": [found]}),
            Given("ld_path_shadowing", log, {"cudnn": [found, right]}),
        ]
    older = "RuntimeError: Found cuBLAS version 120103, but JAX was built against version 120402, which is newer.\n"
    jax = {"jax": "0.4.35", "jax-cuda12-plugin": "0.4.35"}
    for cause, version in (("ld_path_shadowing", "12.4.5.8"), ("cuda_runtime_missing", "12.1.3.1")):
        out.append(Given(cause, older, {"packages": {"pip": jax | {"nvidia-cublas-cu12": version}}}))
    return out


def _instruction_and_its_like() -> list[Given]:
    log, jetson = "Illegal instruction (core dumped)\n", {"gpus": [{"name": "NVIDIA Tegra X1", "compute_capability": "5.3"}]}
    arm: Tree = {"platform": {"system": "linux", "arch": "aarch64"}}
    numpy = {version: {"packages": {"pip": {"numpy": version}}} for version in ("1.19.5", "1.26.4")}
    return [
        Given("cpu_without_avx", log, {}),
        Given("cpu_without_avx", log, arm),
        Given("other_bug", log, arm | numpy["1.19.5"]),
        Given("other_bug", log, arm | jetson),
        Given("cpu_without_avx", log, arm | jetson | numpy["1.26.4"]),
    ]


def _blind_and_its_like() -> list[Given]:
    """JAX names no GPU, as a CPU build does; the facts have its plugin, and say of the driver why. WSL blocks what a Linux driver hides."""
    log = "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present.\n"
    wheels = {"nvidia-cudnn-cu12": "9.5.0.50", "nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cublas-cu12": "12.6.3.3"}
    jax: Tree = {"packages": {"pip": {"jax": "0.4.35", "jaxlib": "0.4.35", "jax-cuda12-plugin": "0.4.35", **wheels}}}
    jax["frameworks"] = [{"name": "jax", "version": "0.4.35", "cuda_built": "12.1", "cudnn_built": "9.1"}]
    jax["cudnn"] = [_copy("9.5.0", f"{SITE}/nvidia/cudnn/lib")]
    bare: Tree = {"driver": None, "gpus": None, "loader": {"ld_library_path": [], "ldconfig": []}}
    gpu = {"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0", "hidden": True}
    refused = {number: [{"what": "cuInit", "why": f"failed with status {number}"}] for number in (100, 802, 999)}
    wsl: Tree = {"container": {"kind": "wsl"}, "problems": refused[100], "packages": {"apt": {"libnvidia-compute-535": "535.183.01"}}}
    return [
        Given("cpu_only_build", log, {"packages": {"pip": {"jax": "0.4.35", "jaxlib": "0.4.35"}}}),
        Given("gpu_hidden_by_env", log, jax | {"gpus": [gpu]}),
        Given("container_gpu_not_passed", log, jax | bare | {"container": {"kind": "docker"}}),
        Given("no_gpu_runtime", log, jax | bare | {"container": {"kind": "kaggle"}}),
        Given("driver_not_loaded", log, jax | bare),
        Given("driver_wedged", log, jax | {"problems": refused[999]}),
        Given("fabric_manager_missing", log, jax | {"problems": refused[802]}),
        Given("driver_too_old", log, jax | {"driver": {"version": "470.57.02", "cuda": "11.4", "kernel_module": "470.57.02"}}),
        Given("driver_wedged", "Failed to initialize NVML: GPU access blocked by the operating system\n", {"container": {"kind": "wsl"}}),
        Given("wsl_driver_shadowed", "Failed to initialize NVML: GPU access blocked by the operating system\n", wsl),
    ]


CASES = [
    *_missing_and_its_like(),
    *_old_and_its_like(),
    *_driver_and_its_like(),
    *_runtime_and_its_like(),
    *_symbol_and_its_like(),
    *_brought_and_its_like(),
    *_wheels_and_their_like(),
    *_container_and_its_like(),
    *_build_and_its_like(),
    *_code_and_its_like(),
    *_without_libcuda_and_its_like(),
    *_started_and_its_like(),
    *_instruction_and_its_like(),
    *_blind_and_its_like(),
]


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("given", CASES, ids=lambda one: one.cause)
def test_the_environment_parts_what_the_log_does_not(given: Given) -> None:
    told = {name: value for name, value in (HOST | given.facts).items() if (name, value) != ("gpus", None)}  # a card whose GPU is unknown
    found = diagnose(Reader(book().symptoms()).read([given.log.encode()]), from_mapping(told, "test"), book()).findings
    assert found[0].cause == given.cause, [(one.cause, one.severity, one.summary) for one in found[:3]]


@pytest.mark.parametrize("driver", ["450.80.02", "550.54.15"])
def test_a_driver_that_is_too_old_goes_before_what_looks_like_a_lack_of_memory(driver: str) -> None:
    old = from_mapping({**HOST, "driver": {"version": driver}, "packages": {"pip": {"torch": "2.6.0+cu124"}}}, "test")
    statuses = (
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    )
    for status in statuses:
        found = diagnose(Reader(book().symptoms()).read([f"RuntimeError: {status}\n".encode()]), old, book()).findings
        assert found[0].cause == ("driver_too_old" if driver < "5" else "out_of_memory")
    told = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 14.00 GiB already allocated)\n"
    assert diagnose(Reader(book().symptoms()).read([told.encode()]), old, book()).findings[0].cause == "out_of_memory"


@pytest.mark.parametrize(
    ("log", "machine", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "torch-5090", "out_of_memory"),
        ("INTEL MKL ERROR: libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent\n", "torch-numpy-2", "other_bug"),
        ("Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH CUDNN_INCLUDE_PATH)\n", "torch-5090", "cudnn_missing"),
        (
            "OSError: libcusparse.so.11: cannot open shared object file: No such file or directory\n",
            "jax-local-old",
            "cuda_runtime_missing",
        ),
    ],
)
def test_a_fault_of_the_machine_takes_nothing_that_the_log_says_itself(log: str, machine: str, cause: str) -> None:
    facts = next(case.facts for case in of_machines() if case.facts is not None and case.facts.parent.name == machine)
    assert judged_there(Case("", cause, log, facts)).findings[0].cause == cause


NO_CARD: Tree = {"driver": None, "gpus": [], "packages": {"pip": {"torch": "2.4.1"}}}
_GOES_ON = (
    "/v/lib/python3.10/site-packages/torch/cuda/__init__.py:52: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\n",
    "E tensorflow/stream_executor/cuda/cuda_driver.cc:314] failed call to cuInit: UNKNOWN ERROR (303)\n",
    "[E:onnxruntime:Default, x.cc:1548] libcublasLt.so.11: cannot open shared object file: No such file or directory\n",
)


@pytest.mark.parametrize("container", [None, "docker"])
@pytest.mark.parametrize("log", _GOES_ON)
def test_a_program_that_goes_on_without_a_gpu_is_right_where_there_is_none(log: str, container: str | None) -> None:
    found = diagnose(
        Reader(book().symptoms()).read([log.encode()]), from_mapping(HOST | NO_CARD | {"container": {"kind": container}}), book()
    )
    assert {one.severity for one in found.findings} == {"info"}
    assert "no NVIDIA GPU" in found.findings[0].summary


@pytest.mark.parametrize(
    "said", ["Found no NVIDIA driver on your system.\n", "CUDA error: CUDA driver version is insufficient for CUDA runtime version\n"]
)
def test_a_program_that_ends_for_want_of_a_gpu_is_not_sent_for_a_driver(said: str) -> None:
    log = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nRuntimeError: ' + said
    (first, *_) = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(HOST | NO_CARD), book()).findings
    assert (first.cause, first.severity) == ("driver_not_loaded", "error")
    assert "no NVIDIA GPU" in first.summary
    assert [one.command for one in first.remedy] == [None]
    assert "CPU" in first.remedy[0].text


_REGISTERED = "E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:8454] Unable to register cuDNN factory\n"


@pytest.mark.parametrize("failed", ["", "RuntimeError: Found no NVIDIA driver on your system.\n"])
def test_a_log_in_which_nothing_is_wrong_stays_quiet_beside_a_fault_that_it_does_not_show(failed: str) -> None:
    loads = {"cudnn": {"version": "9.1.0", "path": f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"}, "because": "RUNPATH"}
    tensorflow = {"name": "tensorflow", "version": "2.18.0", "cuda_built": "12.5", "cudnn_built": "9.3.0", "would_load": loads}
    facts = from_mapping(HOST | {"frameworks": [tensorflow], "cudnn": [_copy("9.1.0", f"{SITE}/nvidia/cudnn/lib")]})
    found = diagnose(Reader(book().symptoms()).read([(_REGISTERED + failed).encode()]), facts, book()).findings
    assert "cudnn_too_old_for_framework" in [one.cause for one in found]
    assert any(one.severity == "error" for one in found) == bool(failed)


def test_a_program_that_aborts_for_want_of_cudnn_did_not_go_on() -> None:
    log = (
        "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}\nInvalid handle. Cannot load symbol cudnnCreateTensorDescriptor\n"
    )
    (first, *_) = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(HOST | NO_CARD), book()).findings
    assert (first.cause, first.severity) == ("cudnn_missing", "error")


def test_an_extension_follows_the_tensorflow_that_is_installed() -> None:
    log = f"ImportError: {SITE}/tensorflow_text/core/pybinds/tflite_registrar.so: undefined symbol: _ZN4absl12lts_20220623E\n"
    facts = HOST | {"packages": {"pip": {"tensorflow-cpu": "2.15.1", "tensorflow-text": "2.10.0"}}}
    (first, *_) = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(facts), book()).findings
    assert first.remedy[0].command == "/venv/bin/python -m pip install --no-deps 'tensorflow-text~=2.15.0'"
