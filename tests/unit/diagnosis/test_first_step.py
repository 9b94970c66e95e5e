"""The first step of an answer: what the error itself asks for, and what fits the machine that the log shows."""

from __future__ import annotations

import re

import pytest

from tests.written_logs import judged

SITE = "/home/me/env/lib/python3.10/site-packages"
NO_WHEEL = "ERROR: Could not find a version that satisfies the requirement {0}\nERROR: No matching distribution found for {0}\n"
NO_LIBRARY = "prog: error while loading shared libraries: {}: cannot open shared object file: No such file or directory\n"
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 23.65 GiB of which {} GiB is free."
)


def steps(log: str) -> list[str]:
    """Texts and commands of the first finding's remedies."""
    return [part for remedy in judged(log).findings[0].remedy for part in (remedy.text, remedy.command) if part]


@pytest.mark.parametrize(
    ("error", "first"),
    [
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "is None"),
        ("TypeError: 'NoneType' object is not subscriptable", "is None"),
        ("AttributeError: 'numpy.ndarray' object has no attribute 'cuda'", "torch.as_tensor"),
        ("AttributeError: 'list' object has no attribute 'to'", "torch.as_tensor"),
        ("AttributeError: 'collections.OrderedDict' object has no attribute 'eval'", "load_state_dict"),
        ("KeyError: 'optimizer'", "the data"),
        ("NameError: name 'xrange' is not defined", "Python 2"),
    ],
)
def test_an_error_of_the_programs_code_is_explained_by_its_kind(error: str, first: str) -> None:
    log = f'Traceback (most recent call last):\n  File "run.py", line 3, in <module>\n    x()\n{error}\n'
    assert first in steps(log)[0]
    assert "look at line 3 of run.py" in steps(log)[-1]


@pytest.mark.parametrize(
    ("package", "error", "first"),
    [
        ("timm", "AttributeError: module 'diffusers' has no attribute 'x'", "/home/me/env/bin/python -m pip install -U diffusers timm"),
        (
            "peft",
            "ImportError: cannot import name 'Y' from 'transformers' (/x/__init__.py)",
            "/home/me/env/bin/python -m pip install -U transformers peft",
        ),
        ("timm", "TypeError: forward() got an unexpected keyword argument 'x'", "/home/me/env/bin/python -m pip install -U timm"),
        ("brax", "NotImplementedError: Only euler integration is supported.", "brax raised this error"),
        ("torch", "RuntimeError: one of the variables has been modified by an inplace operation", "torch raised this error"),
    ],
)
def test_what_a_package_lacks_is_upgraded_and_what_it_refuses_is_changed(package: str, error: str, first: str) -> None:
    log = f'Traceback (most recent call last):\n  File "run.py", line 3, in f\n  File "{SITE}/{package}/a.py", line 4, in g\n{error}\n'
    assert any(first in step for step in steps(log)[:2])


@pytest.mark.parametrize(
    "place", ["D:\\sd\\stable-diffusion-webui\\modules\\a.py", "/home/me/ComfyUI/nodes.py", "F:\\kohya_ss\\library\\a.py"]
)
def test_a_web_ui_is_updated_by_its_own_launcher(place: str) -> None:
    frame = f'Traceback (most recent call last):\n  File "{place}", line 3, in f\n    x()\n'
    assert "update the web UI" in steps(f"{frame}AttributeError: 'NoneType' object has no attribute 'a'\n")[0]
    assert "update the web UI" in steps(f"{frame}ModuleNotFoundError: No module named 'xyz_unknown'\n")[0]


def test_an_error_that_a_server_repeats_is_one_of_its_code() -> None:
    log = "E1028 08:21:03.47 1 model_lifecycle.cc:596] failed to load 'sd': Internal: AttributeError: 'A' object has no attribute 'b'\n"
    assert "error of Python code" in judged(log).findings[0].summary


@pytest.mark.parametrize(
    ("error", "first"),
    [
        ("/usr/include/c++/11/bits/std_function.h:435:145: error: parameter packs not expanded with '...':", "-ccbin g++-N"),
        ('***   /usr/include/c++/5/functional(78): error: class "std::thread" has no member "result_type"', "-ccbin g++-N"),
        ('/v/torch/include/c10/util/C++17.h:13:2: error: #error "a too old version of GCC. We need GCC 9 or later."', "gcc-11"),
        ("/v/ATen.h:4:2: error: #error C++17 or later compatible compiler is required to use ATen.", "-std=c++17"),
        ("a.cpp:5:1: error: 'AT_CHECK' was not declared in this scope", "older than the installed PyTorch"),
        ("src/a.cu:3:10: fatal error: THC/THC.h: No such file or directory", "older than the installed PyTorch"),
        ("a.cpp:5:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=2"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "MAX_JOBS=2"),
        ("CMake Error at F.cmake:230 (message):\n  Could NOT find OpenCV (missing: OpenCV_DIR)", "CMAKE_PREFIX_PATH"),
    ],
)
@pytest.mark.parametrize("end", ["", "ninja: build stopped: subcommand failed.\n"])
def test_a_compiler_error_is_explained_by_its_kind(error: str, first: str, end: str) -> None:
    assert any(first in step for step in steps(f"{error}\n{end}")[:2])


@pytest.mark.parametrize(
    ("log", "first"),
    [
        ("While parsing node number 195 [Resize]:\n[E] Failed to parse onnx file\n&&&& FAILED TensorRT.trtexec\n", "onnxsim"),
        ("[TensorRT] ERROR: No importer registered for op: NonMaxSuppression\n", "onnxsim"),
        ("onnxruntime.InvalidProtobuf: [ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from a.onnx failed:x\n", "download the file"),
        ("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid Feed Input Name:x\n", "get_inputs()"),
    ],
)
def test_a_refused_onnx_model_is_not_a_fault_of_the_gpu(log: str, first: str) -> None:
    assert (judged(log).findings[0].cause, judged(log).findings[0].severity) == ("unrecognised", "warning")
    assert any(first in step for step in steps(log)[:2])


NEWER = "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
NEWER += "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_90.\n"
TORCH_LACKS = 'Traceback (most recent call last):\n  File "/usr/local/lib/python3.8/dist-packages/torch/__init__.py", line 168, in f\n'
CUDNN_5 = "These bindings are for CUDNN 5.x (5005 <= cudnn.version > 6000) , while the loaded CuDNN is version: 7101\n"
IGNORED = (
    "Ignoring visible gpu device (device: 0, name: X, pci bus id: 0000:01:00.0, compute capability: {}) with Cuda compute capability {}. "
)
IGNORED += "The minimum required Cuda capability is {}.\n"
APT = "The following packages have unmet dependencies:\n {} : Depends: {} (= {}) but {} is to be installed\n"
EXPIRED = (
    "https://nvidia.github.io/nvidia-docker/{}/amd64  InRelease: The following signatures were invalid: EXPKEYSIG C45B1676A04EA552 N\n"
)
PLUGIN = '  File "/v/site-packages/vllm/a.py", line 5, in f\n  File "/v/site-packages/nixl_ep/__init__.py", line 2, in f\n'


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        # What is installed in a container is lost with it.
        ("$ docker run --rm --gpus all i\n" + NEWER, "`cudnn-resolve plan --format dockerfile -f torch`", "singularity"),
        (NEWER, "-f torch", "Dockerfile"),
        # Memory of a training run.
        ("    loss.backward()\n" + FULL.format(2, 1) + "\n", "gradient checkpointing", "a smaller model"),
        ("$ accelerate launch train_dreambooth.py\ndiffusers\n" + FULL.format(2, 1) + "\n", "8-bit optimizer", "--medvram"),
        ("diffusers\n" + FULL.format(2, 1) + "\n", "--medvram", "8-bit optimizer"),
        # Shapes and devices are told by the message.
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x512 and 256x10)\n", "print the shapes", "CUDA_LAUNCH_BLOCKING"),
        ("RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu!\n", "model.to(device)", "CUDA_LAUNCH"),
        ("Invalid argument: Received a label value of 67 which is outside the valid range of [0, 1).\n", "classes - 1", None),
        # A build for selected GPUs is replaced by the same release.
        (IGNORED.format("6.1", "6.1", "7.0"), "--force-reinstall tensorflow==RELEASE", None),
        (IGNORED.format("3.0", "3.0", "3.5"), "-f tensorflow", "selected GPUs"),
        # Old cuDNN has archives and bindings.
        (CUDNN_5, "clone -b R7", "conda install"),
        ("[cudnn init] libcudnn v5 with header v7 unmatched!\n", "$HOME/cudnn7", "doctor LOG"),
        # On a Jetson, CUDA is that of JetPack; PyPI's PyTorch opens other libraries first.
        (TORCH_LACKS + "OSError: libcufft.so.10: cannot open shared object file: No such file or directory\n", "nv_tegra_release", None),
        (
            TORCH_LACKS + "OSError: libcublas.so.11: cannot open shared object file: No such file or directory\n",
            "apply",
            "nv_tegra_release",
        ),
        # A plugin of vLLM is not PyTorch.
        (
            PLUGIN + "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory\n",
            "install nixl_ep",
            "--no-deps vllm",
        ),
        # The compiler of CUDA belongs to PyTorch.
        (
            "torch.__version__  = 2.0.1+cu117\nRuntimeError: FlashAttention is only supported on CUDA 11.6 and above.\n",
            "cuda-11.7",
            "C++14",
        ),
        # A container holds no driver, and sets of packages one version.
        (
            "root@76fa843f6c13:~# apt-get install cuda\n" + APT.format("cuda-drivers-520", "nvidia-driver-520", "520.61", "520.1"),
            "purge cuda-drivers-520",
            "downgrades",
        ),
        (APT.format("tensorrt", "libnvinfer-bin", "8.6.1.6-1+cuda12.0", "10.0.0.6-1+cuda12.4"), "tensorrt=8.6.1.6-1+cuda12.0", None),
        (APT.format("tensorrt", "libnvinfer-bin", "6.0.1-1+cuda10.1", "7.0.0-1+cuda10.2"), "libnvinfer-bin=6.0.1-1+cuda10.1", "tensorrt=6"),
        # Lists of before 2021 name no key file.
        (EXPIRED.format("ubuntu18.04"), "apt-key add -", "signed-by"),
        (EXPIRED.format("stable/deb"), "keyrings/nvidia-container-toolkit-keyring.gpg", "apt-key add"),
        ("D:\\stable-diffusion-webui>\n" + NO_WHEEL.format("torch==2.1.2 (from versions: 2.2.0, 2.3.1)"), "folder venv", "torch==2.2.0"),
        # What may be elsewhere is looked for, and each answer has its step.
        ("OSError: libcublas.so.10: cannot open shared object file: No such file or directory\n", "find / -name 'libcublas.so.10*'", None),
        ("/content\n" + NO_LIBRARY.format("libcublas.so.10.0"), "!ls -d /usr/local/cuda*", "conda install"),
    ],
)
def test_the_steps_fit_what_the_log_shows(log: str, there: str, absent: str | None) -> None:
    assert any(there in step for step in steps(log))
    assert absent is None or not any(absent in step for step in steps(log))


UNMET = "The following packages have unmet dependencies:\n {} : Depends: {} but it is not going to be installed\n"
TOO_NEW = "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
OLD_LIBC = "ImportError: /lib64/libc.so.6: version `GLIBC_2.27' not found\n"
OLD_LIBSTDCXX = (
    "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.26' not found (required by /home/a/v/lib/python3.8/site-packages/j/x.so)\n"
)
TENSORFLOW_DLL = "    from tensorflow.python._pywrap_tensorflow_internal import *\nImportError: DLL load failed{}: {}\n"
NO_START = "A dynamic link library (DLL) initialization routine failed."
NO_OLD_DLL = "Could not locate cudnn_ops_infer64_8.dll. Please make sure it is in your library path!\n"
DKMS = "Error! Bad return status for module build on kernel: 4.4.0-62-generic (x86_64)\n"
NO_SYMBOL = "ImportError: /usr/local/lib/python3.7/dist-packages/{}.so: undefined symbol: _ZNK2at6Tensor7is_cudaEv\n"
WINDOWS_SETUP = 'File "C:\\Users\\a\\AppData\\Local\\Temp\\pip-install-mc_psfw8\\nvidia-nccl-cu12_1\\setup.py", line 152, in <module>\n'


@pytest.mark.parametrize(
    ("log", "cause", "words"),
    [
        (UNMET.format("cuda-10-2", "cuda-runtime-10-2 (>= 10.2.89)"), "apt_conflict", ["sudo apt-get install cuda-toolkit-10-2"]),
        (UNMET.format("cuda", "cuda-12-4 (>= 12.4.1)"), "apt_conflict", ["sudo apt-get install cuda-toolkit-12-4"]),
        (OLD_LIBC + OLD_LIBSTDCXX, "glibc_too_old", ["xargs grep -l GLIBCXX_3.4.26", "glibc itself is too old too"]),
        ("trainer-0    0/1     OutOfnvidia.com/gpu   0     3m\n", "unrecognised", ["kubectl delete pod trainer-0"]),
        ("Warning  OutOfnvidia.com/mig-1g.5gb  12s   kubelet  Node didn't have enough\n", "unrecognised", ["kubectl delete pod POD"]),
        ("F0301 1 syncedmem.hpp:22] Check failed: *ptr host allocation of size 1048576 failed\n", "out_of_memory", ["free -m"]),
        ("AVX = 1 | AVX2 = 1 | BLAS = 0 | SSE3 = 1 |\n", "cpu_only_build", ["CMAKE_ARGS=-DGGML_CUDA=on python -m pip install", "-B build"]),
        ("PS C:\\me> .\\a.exe\nAVX2 = 1 | BLAS = 0 | SSE3 = 1 |\n", "cpu_only_build", ['$env:CMAKE_ARGS="-DGGML_CUDA=on"; python -m pip']),
        (TOO_NEW + "|   0  GeForce RTX 208...  Off  |\n", "gpu_arch_too_new_for_build", ["CUDA 10.0 or newer", "cupy-cuda101"]),
        (TOO_NEW + "|   0  NVIDIA GeForce RTX 309...  Off  |\n", "gpu_arch_too_new_for_build", ["CUDA 11.1 or newer"]),
        (
            "modprobe: ERROR: could not insert 'nvidia_384_uvm': Invalid argument\n",
            "driver_not_loaded",
            ["dkms status", "only 384 is there"],
        ),
        (
            "[TRT] 2: Error Code 2: Internal Error (Assertion upperBound != 0 failed. Unknown embedded device detected.)\n",
            "other_bug",
            ["update JetPack"],
        ),
        (
            "Error: Problem: package akmod-nvidia-3:550.54.14-1.fc40.x86_64 requires akmods, but none of the providers can be installed\n",
            "apt_conflict",
            ["sudo dnf upgrade --refresh"],
        ),
        ("OSError: Your operating system is not supported by `nvidia-pyindex`: win32.\n", "unrecognised", ["leave nvidia-pyindex out"]),
        ("This package is hosted on NVIDIA Python Package Index.\n", "pip_pin_unavailable", ["python -m pip install -U pip"]),
        (WINDOWS_SETUP + "This package is hosted on NVIDIA Python Package Index.\n", "pip_pin_unavailable", ["on Windows leave it out"]),
        # Without AVX no other TensorFlow helps, with it the runtime is missing.
        (TENSORFLOW_DLL.format("", NO_START), "cpu_without_avx", ["Win32_Processor"]),
        (TENSORFLOW_DLL.format("", "Eine DLL-Initialisierungsroutine ist fehlgeschlagen."), "cpu_without_avx", ["Win32_Processor"]),
        (
            TENSORFLOW_DLL.format(" while importing _pywrap_tensorflow_internal", NO_START),
            "windows_runtime_missing",
            ["without AVX", "winget install"],
        ),
        ("UNIMPLEMENTED:  DNN library is not found.\n [[{{node a/Conv2D}}]]\n", "cudnn_too_old_for_framework", ["-f tensorflow"]),
        (
            NO_OLD_DLL + "cublas64_12.dll\ncudnn64_9.dll\ncudnn_adv64_9.dll\ncufft64_11.dll\n",
            "cudnn_major_mismatch",
            ['"ctranslate2>=4.5.0"'],
        ),
        (UNMET.format("nvidia-jetpack", "nvidia-tensorrt (= 4.5.1-b17)"), "apt_conflict", ["lsb_release -rs"]),
        (
            "Unmet:\n libcufile-11-5 : Depends: liburcu6 but it is not installable\n",
            "apt_conflict",
            ["for another distribution release"],
        ),
        (
            "./sd: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by ./sd)\n",
            "glibc_too_old",
            ["xargs grep -l GLIBCXX_3.4.30"],
        ),
        (">>> from llama_cpp import Llama\nIllegal instruction (core dumped)\n", "cpu_without_avx", ["-DGGML_AVX2=off"]),
        ("initCnmem: cnmemInit call failed! Reason=CNMEM_STATUS_OUT_OF_MEMORY. numdev=1\n", "out_of_memory", ["lib.cnmem=0"]),
        (
            DKMS + "modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/4.4.0-62-generic\n",
            "driver_not_loaded",
            ["make.log"],
        ),
        (NO_SYMBOL.format("detectron2/_C"), "framework_pkg_mismatch", ["facebookresearch/detectron2.git"]),
        (NO_SYMBOL.format("apex/amp_C"), "framework_pkg_mismatch", ["pip list | grep -i torch"]),
        (
            'File "C:\\Python313\\Lib\\a.py", line 4, in f\n' + NO_WHEEL.format("torch==2.5.1 (from versions: 2.6.0+cu124)"),
            "pip_wheel_unavailable_for_python",
            ["uv venv --seed --python 3.12"],
        ),
    ],
)
def test_the_message_determines_the_step(log: str, cause: str, words: list[str]) -> None:
    assert judged(log).findings[0].cause == cause
    assert all(any(word in step for step in steps(log)[:6]) for word in words), steps(log)


def test_a_module_is_built_anew_for_the_system_of_the_log() -> None:
    every = steps("$ xbps-install nvidia-dkms\nBuilding DKMS module 'nvidia-367.35' for kernel-4.7.2_1... FAILED!\n")
    assert "why the build failed" in every[0]
    assert not any("apt-get" in step for step in every)


def test_an_old_cudnn_stays_out_of_an_environment_whose_framework_is_not_known() -> None:
    installs = [step for step in steps(NO_LIBRARY.format("libcudnn_ops_infer.so.8")) if "pip install" in step]
    assert "'ctranslate2>=4.5.0'" in installs[0]
    assert all("--target" in step for step in installs if "nvidia-cudnn" in step)


def test_libraries_of_pytorch_geometric_are_chosen_by_pytorch_on_windows_too() -> None:
    frame = 'File "C:\\env\\lib\\site-packages\\torch_sparse\\__init__.py", line 18, in <module>\n'
    finding = judged(f"{frame}OSError: [WinError 127] The specified procedure could not be found\n").findings[0]
    assert finding.cause == "framework_pkg_mismatch"
    assert "install torch-scatter torch-sparse again" in finding.remedy[0].text


@pytest.mark.parametrize(
    ("script", "python"),
    [("/app/env/bin/autotrain", "/app/env/bin/python"), ("/opt/conda/bin/torchrun", "/opt/conda/bin/python"), ("/usr/bin/tool", "python")],
)
def test_a_program_of_an_environment_shows_its_interpreter(script: str, python: str) -> None:
    log = f"Traceback (most recent call last):\n  File \"{script}\", line 3, in <module>\nModuleNotFoundError: No module named 'gradio'\n"
    assert f"{python} -m pip install gradio" in steps(log)


def test_an_egg_and_compiled_sources_are_of_a_package() -> None:
    egg = f'Traceback (most recent call last):\n  File "{SITE}/apex-0.1-py3.10-linux-x86_64.egg/apex/a.py", line 3, in f\n'
    log = f'{egg}  File "cupy/_core/core.pyx", line 1379, in cupy._core.core.ndarray.__array__\nTypeError: Implicit conversion\n'
    assert "that concerns apex" in judged(log).findings[0].summary


def test_a_folder_that_an_editor_opens_in_wsl_shows_wsl() -> None:
    log = "File [~/a.py:1](https://vscode-remote+wsl-002bubuntu.example/a.py:1)\nCall to cuInit results in CUDA_ERROR_NO_DEVICE (100):\n"
    assert judged(log).findings[0].cause == "wsl_driver_shadowed"


IMPORT = 'File "/v/lib/python3.6/site-packages/paddle/__init__.py", line 29, in {}\n'


@pytest.mark.parametrize(
    ("calls", "first"),
    [
        ('File "a.py", line 1, in <module>\n' + IMPORT.format("<module>"), "importing paddle fails"),
        ('File "a.py", line 1, in <module>\n' + IMPORT.format("run"), "paddle raised this error"),
        ('File "/usr/lib/python3.6/runpy.py", line 9, in _run_code\n' + IMPORT.format("<module>"), "paddle raised this error"),
        (IMPORT.format("<module>") + 'File "a.py", line 1, in callback\n', "paddle raised this error"),
    ],
)
def test_an_error_while_a_package_is_imported_is_one_of_its_installation(calls: str, first: str) -> None:
    assert first in steps(f"Traceback (most recent call last):\n{calls}TypeError: 'module' object is not callable\n")[0]


def test_a_statement_names_the_package_that_lacks_a_name() -> None:
    call = 'File "/c/lib/python3.5/site-packages/cudf/a.py", line 3, in <module>\n    from librmm_cffi import librmm as rmm\n'
    assert "/c/bin/python -m pip show librmm_cffi cudf" in steps(call + "ImportError: cannot import name 'librmm'\n")


def test_a_traceback_copied_as_links_has_its_calls() -> None:
    log = "[/usr/lib/python3.10/dist-packages/jax/_src/config.py](https://localhost:8080/#) in update(self, name)\n"
    assert "concerns jax" in judged(log + "AttributeError: Unrecognized config option: jax_array\n").findings[0].summary


def test_a_package_that_an_image_lacks_is_a_fault_of_its_tag() -> None:
    log = (
        "$ docker run --gpus all ghcr.io/a/b\nFile \"/opt/v/bin/web\", line 4, in <module>\nModuleNotFoundError: No module named 'b.app'\n"
    )
    assert "earlier tag" in steps(log)[0]
    assert "earlier tag" not in steps(log.partition("\n")[2])[0]


TOO_NEW = (
    r'venv "E:\webui\venv\Scripts\Python.exe"' + "\nPython 3.10.6\n"
    "NVIDIA GeForce RTX 5060 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
    "The current PyTorch install supports CUDA capabilities sm_50 sm_90.\npytorch version: 2.6.0+cu124\n"
    "xFormers was built for:\n    PyTorch 2.3.1+cu121 with CUDA 1201 (you have 2.6.0+cu124)\n"
)


def test_what_is_said_of_a_build_for_windows_is_of_the_build_that_is_installed() -> None:
    every = " ".join(steps(TOO_NEW))
    installed = re.findall(r"torch==([\d.]+)\+cu(\d\d)(\d)", every)

    assert installed
    assert all(f"PyTorch {version}, built with CUDA {major}.{minor}" in every for version, major, minor in installed)


def test_an_extension_waits_for_the_framework_that_replaces_the_present_one() -> None:
    (step,) = judged(TOO_NEW).findings[1].remedy

    assert step.command is None
    assert "after the first problem" in step.text


def test_a_miner_gets_no_advice_for_developers() -> None:
    every = judged("CUDA error in func search at line 346 calling sync : unspecified launch failure\n").findings

    assert [finding.cause for finding in every] == ["hardware_fault"]
    assert "clocks" in every[0].remedy[0].text


def test_a_library_with_the_name_of_a_wheel_is_linked() -> None:
    log = "libcudart.so.11.0: cannot open shared object file: No such file or directory\n$ ls lib\nlibcudart-80664282.so.11.0\n"

    assert "ln -s libcudart-80664282.so.11.0 libcudart.so.11.0" in steps(log)


def test_singularity_with_a_gpu_is_not_asked_for_it_again() -> None:
    log = "$ singularity -s exec -B /data --nv app.sif ./app\n" + NO_LIBRARY.format("libcuda.so.1")

    assert not any("--nv" in step for step in steps(log))
    assert "ls /.singularity.d/libs" in steps(log)


def test_a_job_that_asks_for_a_gpu_by_its_kind_is_not_told_that_it_asked_for_none() -> None:
    for option in ("-G 1", "-G a100:1", "--gpus-per-node=2"):
        (first, *_) = judged(f"$ srun {option} python fit.py\nRuntimeError: No CUDA GPUs are available\n").findings

        assert "requested no GPU" not in first.summary


@pytest.mark.parametrize(
    ("folder", "release"),
    [("D:\\env\\lib\\site-packages\\torch\\cuda\\", "1.10.2"), ("/srv/env/lib/python3.8/site-packages/torch/cuda/", "1.12.1")],
)
def test_no_wheels_of_linux_alone_are_offered_to_windows(folder: str, release: str) -> None:
    warning = "CUDA initialization: The NVIDIA driver on your system is too old (found version 10020). Please update your GPU driver"
    steps = judged(f"{folder}__init__.py:107: UserWarning: {warning}\n").findings[0].remedy
    assert f"PyTorch {release}, built with CUDA 10.2" in " ".join(step.text for step in steps)
