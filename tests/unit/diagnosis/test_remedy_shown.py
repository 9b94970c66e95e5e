"""Remedies ask for nothing that the log shows, and name nothing that cannot help there."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.test_remedy_place import NOT_OPENED, first, said

NO_SYMBOL = "{}: symbol {} version libcudart.so.11.0 not defined in file libcudart.so.11.0 with link time reference\n"
CODE_35 = "RuntimeError: CUDA failed with error CUDA driver version is insufficient for CUDA runtime version\n"
SMI = "| NVIDIA-SMI {0}             Driver Version: {0}     CUDA Version: {1}     |\n"
PARTS_OF_9 = "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}\n"
STUBS = (
    "ERROR: Could not find a version that satisfies the requirement nvidia-cudnn-cu11==8.5.0.96 (from versions: 0.0.1.dev5, 2021.10.26)\n"
)
CODE_3 = (
    "RuntimeError: Error while calling cudaGetDevice(&the_device_id) in file /d/gpu_data.cpp:178. code: 3, reason: initialization error\n"
)
UNMET = " libcudnn4-dev : Depends: libcudnn4 but it is not going to be installed\n"
NVRTC = '  File "/e/lib/python3.8/site-packages/cupy/a.py", line 1, in f\n'
NVRTC += "nvrtc: error: invalid value for --gpu-architecture (-arch)\nOptions: -I/c/cupy/core/include -arch=compute_{}\n"


@pytest.mark.parametrize(
    ("log", "cause", "there"),
    [
        # The steps of a build have no GPU.
        (
            "#9 1.2 Torch is not able to use GPU; add --skip-torch-cuda-test\nfailed to solve: process x\n",
            "container_gpu_not_passed",
            "RUN",
        ),
        (" ---> Running in 8f2c3f6a1b2c\nImportError: " + NOT_OPENED.format("libcuda.so.1"), "container_gpu_not_passed", "CMD"),
        # A driver that is new enough for every build of the program is not too old.
        (CODE_35 + SMI.format("550.144.03", "12.4"), "container_gpu_not_passed", "limits nvidia.com/gpu"),
        (CODE_35 + SMI.format("470.144.03", "11.4"), "driver_too_old", "CTranslate2 3.24.0"),
        (CODE_35 + SMI.format("550.144.03", "12.4") + "C:\\Users\\me\\a.py\n", "driver_too_old", "driver"),
        ("torch==2.1.0+cu118\nC:\\Users\\me\\a.py\n" + CODE_35 + SMI.format("550.144.03", "12.4"), "driver_too_old", "driver"),
        (
            "torch==2.1.0+cu118\ncuda runtime error (35) : CUDA driver version is insufficient\n" + SMI.format("535.104.05", "12.2"),
            "container_gpu_not_passed",
            "nvidia-smi -L",
        ),
        # What contains a program's libraries decides where they are replaced.
        (NO_SYMBOL.format("/n/envs/r/lib/python3.8/site-packages/rmm/a.so", "cudaMemPoolCreate"), "cuda_runtime_missing", "envs/r cuda"),
        (NO_SYMBOL.format("/opt/conda/lib/libcuml.so", "cudaMemPoolCreate"), "cuda_runtime_missing", "conda list cuda"),
        (NO_SYMBOL.format("/u/.pyenv/versions/3.9.1/envs/f/lib/python3.9/site-packages/rmm/a.so", "cudaX"), "ld_path_shadowing", "unset"),
        (
            "/c/envs/t/lib/python3.8/site-packages/cudf/_lib/csv.so: undefined symbol: _ZN4cudf2io8read_csvE\n",
            "framework_pkg_mismatch",
            "conda list",
        ),
        ("Standalone Faster-Whisper r167.4\n" + NOT_OPENED.format("libcudnn_ops_infer.so.8"), "cudnn_missing", "tag libs"),
        (NOT_OPENED.format("libcudart.so.7.5") + "Cuda compilation tools, release 8.0, V8.0.44\n", "cuda_runtime_missing", "for CUDA 8.0"),
        ("/content/a.py\n" + PARTS_OF_9, "cudnn_major_mismatch", "ctranslate2==4.4.0"),
        # The last CUDA for a card.
        (NVRTC.format(20), "gpu_arch_too_old_for_build", "cupy-cuda80"),
        (NVRTC.format(37), "gpu_arch_too_old_for_build", "cupy-cuda11x"),
        # What is installed in part is repaired first.
        ("E: Unmet dependencies. Try 'apt-get -f install' with no packages\n" + UNMET, "apt_conflict", "apt-get -f install"),
        # A pin that contradicts is named, and one that no index offers is not.
        (
            "UnsatisfiableError: in conflict:\npytorch=1.3.1 -> cudatoolkit[version='>=10.1,<10.2']\ncudatoolkit=10.0\n",
            "apt_conflict",
            "pytorch=1.3.1 needs cudatoolkit >=10.1,<10.2, but cudatoolkit=10.0",
        ),
        (
            "  - package cupy-13.0 requires cuda-version 12.*, but none\n  cuda-version 11.8 is requested\n",
            "apt_conflict",
            "but cuda-version 11.8",
        ),
        (STUBS, "pip_pin_unavailable", "all other pins of nvidia-*"),
        # A forked worker, a machine without a card, and a name that is cut.
        ('  File "/u/lib/python3.5/multiprocessing/pool.py", line 6, in next\n' + CODE_3, "bad_input", "spawn"),
        (CODE_3, "driver_wedged", "nvidia-smi"),
        ("NVIDIA: no NVIDIA devices found\nCUDA error: unknown error\n", "driver_not_loaded", "lspci | grep -i nvidia"),
        (
            'Error loading "D:\\v\\onnxruntime_providers_cuda.dll" which depN0Rc")Lt64_12.dll" which is missing. (Error 126\n',
            "cuda_runtime_missing",
            "preload_dlls",
        ),
        # What has no GPU, and what needs no toolkit.
        ("nvidia-container-cli: WSL environment detected but no adapters were found\n", "driver_not_loaded", "Device Manager"),
        (
            'FATAL:   container creation failed: exec: "nvidia-container-cli": executable file not found in $PATH\n',
            "container_toolkit_missing",
            "use nvidia-container-cli = no",
        ),
    ],
)
def test_a_log_is_not_asked_for_what_it_shows(log: str, cause: str, there: str) -> None:
    assert first(log).cause == cause
    assert there in said(log)


def test_what_cannot_help_is_not_named() -> None:
    assert "pip" not in said("Standalone Faster-Whisper r167.4\n" + NOT_OPENED.format("libcudnn_ops_infer.so.8"))
    assert "runtime=docker" not in said('FATAL:   container creation failed: exec: "nvidia-container-cli": not found in $PATH\n')
    assert "==2021" not in said(STUBS)
    refused = "No matching distribution found for {}\n".format
    assert "pip install tensorflow" in said(refused("tensorflow-gpu"))
    assert "pip install" not in said(refused("tensorflow-gpu") + refused("tensorflow"))
    assert "rmmod" not in said("NVIDIA: no NVIDIA devices found\nCUDA error: unknown error\n")
    assert "export" not in said("/content/a.py\n" + PARTS_OF_9)
    assert "ls -d" not in said(NOT_OPENED.format("libcudart.so.7.5") + "Cuda compilation tools, release 8.0, V8.0.44\n")


def test_the_general_step_is_shown_only_where_no_other_is() -> None:
    general = "previous or the next release"
    assert general in said(
        "5.15.90.1-microsoft-standard-WSL2\nRuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n"
    )
    installed = "$ pip install -q vllm=={} && python bench.py\n"
    faulty = installed.format("0.5.4") + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    cured = said(faulty + installed.format("0.5.5") + "Throughput: 12.03 requests/s, 5491.17 tokens/s\n")
    assert "keep the release" in cured
    assert general not in cured
    jetson = '# R32 (release), REVISION: 5.1\nnumpy 1.19.5\n$ python3 -c "import numpy"\nIllegal instruction (core dumped)\n'
    assert "OPENBLAS_CORETYPE" in said(jetson)
    assert general not in said(jetson)


def test_only_what_can_help_and_works_there_is_offered() -> None:
    flash = "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
    assert "TORCH_CUDA_ARCH_LIST" not in said(f"torch 2.3.0+cu121 Tesla T4\n{flash}")
    rescan = "{}# echo 1 > /sys/bus/pci/rescan\nCUDA unknown error - this may be due to an incorrectly set up environment\n".format
    assert "nvidia_drm" in said(rescan(""))
    assert "nvidia_drm" not in said(rescan("root@3f2a1b4c5d6e:/"))  # whose host has the driver
    typed = "ValueError: Requested float16 compute type, but the target device or backend do not support it\n"
    assert '("cuda")' not in said(f"C:\\v> python w.py\n{typed}")
    header = "a.cpp:1:10: fatal error: cuda_runtime.h: No such file or directory\n$ locate cuda_runtime.h\n"
    assert "CPATH=/opt/cuda-12.4/include$" in said(f"{header}/opt/cuda-12.4/include/cuda_runtime.h\n")
    assert "lspci -d 1002:" in said("ImportError: librccl.so.1: cannot open shared object file: No such file or directory\n")
    lower = "GPUGraphicsClockOffset[3]=150\nNVRM: Xid (PCI:0000:01:00): 31, pid=100, MMU Fault\n"
    assert said(lower).count("clocks") == 1
    solver = "Could not load dynamic library 'cusolver64_10.dll'; dlerror: cusolver64_10.dll not found\n"
    of_tensorflow = "W tensorflow/stream_executor/platform/default/dso_loader.cc:60] "
    assert "or install CUDA 11" not in said(f"{of_tensorflow}{solver}Successfully opened dynamic library cudart64_110.dll\n")
    assert "1.2 or newer" in said("RuntimeError: cuda runtime error (30) : unknown error at ..\\aten\\src\\THC\\THCGeneral.cpp:87\n")


def test_only_placeholders_of_nvidia_are_from_its_index() -> None:
    refused = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})\n".format
    assert "pypi.nvidia.com" in said(refused("nvidia-tensorrt==8.4.1.5", "0.0.1.dev4, 0.0.1.dev5"))
    assert "pypi.nvidia.com" not in said(refused("nvidia-cublas-cu12==12.1.3.1", "0.0.1.dev5"))  # as on macOS
    for log in (refused("own-tools>=2", "0.0.1"), refused("nvidia-tool>=2", "0.0.10, 0.0.11")):
        assert "pypi.nvidia.com" not in said(log)
        assert "pip install" in said(log)


NEWER = "{0}NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
NEWER += "{0}The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.\n"
NO_RELEASE = "ERROR: Could not find a version that satisfies the requirement {0} (from versions: {1})\n"
NO_RELEASE += "ERROR: No matching distribution found for {0}\n"
NO_DRIVER_NAMED = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n'
CLI = "nvidia-container-cli: initialization error: {}: unknown.\n"
AS_CELL = "NameError       Traceback (most recent call last)\n<ipython-input-2-9d125d75209e> in <module>()\n----> 3 model = a.b()\n\n"


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        # What is installed has to go on working, and to stay.
        ('File "/v/lib/python3.12/site-packages/vllm/engine.py", line 3\n' + NEWER.format(""), "install -U vllm", "apply -f torch"),
        (NEWER.format("2025-03-03 01:34:41 fluxgym  | "), "as RUN, then docker compose up -d --build; ", "fluxgym"),
        (NEWER.format("2025-03-03 01:34:41 trainer | "), "apply -f torch", "docker"),
        (
            "(vllm) # python vllm/collect_env.py\nImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found\n",
            "run it in a container",
            "plan -f torch",
        ),
        # The index has another name or release of it.
        ("/Users/me/p\n" + NO_RELEASE.format("tensorflow-gpu==2.5.0", "0.12.1, 1.1.0"), "install tensorflow==2.5.0", "gpu==1.1.0"),
        (NO_RELEASE.format("tensorflow-gpu==2.5.0", "0.12.1, 1.1.0"), "1.1.0", "install tensorflow==2.5.0"),
        (NO_RELEASE.format('tensorrt-libs==8.6.1; extra == "and-cuda"', "9.0.1"), "[and-cuda]==2.15.1", "LOG"),
        # Who runs the container, and where its driver is.
        ("$ ls -la /dev/dxg\ncrw-rw-rw- 1 root root 245, 0 /dev/dxg\n" + NO_DRIVER_NAMED, "docker info", "LOG"),
        (CLI.format("load library failed: libnvidia-ml.so.1: cannot open"), "docker context use default", "LOG"),
        (CLI.format("nvml error: driver not loaded"), "nvidia-smi", "docker context"),
        # A library of another time, or that only the linker wants.
        (
            "cuDNN optimization was enabled, but Theano was not able to use it. We got this error:\n/usr/bin/ld: cannot find -lcudnn\n",
            ".theanorc",
            "libcudnn9",
        ),
        ("/usr/bin/ld: cannot find -lcudnn\n", "libcudnn9", ".theanorc"),
        (
            "cuda_dnn.cc:222] could not find cudnnCreate in cudnn DSO; dlerror: /v/_pywrap_tensorflow.so: undefined symbol: cudnnCreate\n",
            "6 in 1.3",
            "LOG",
        ),
        ("DLL load failed while importing _ext: The specified procedure could not be found.\n", "mmcv", "LOG"),
        (
            "ImportError: /v/torchaudio-0.2-py3.6.egg/_torch_sox.so: undefined symbol: _ZN3c1019UndefinedTensorImpl10_singletonE\n",
            "compile its sources",
            "--force-reinstall torchaudio",
        ),
        ("FileNotFoundError: Could not find module 'C:\\llama_cpp\\llama.dll' (or one of its dependencies)\n", 'dir "%CUDA_PATH%', "LOG"),
        ("ModuleNotFoundError: No module named 'tensorrt.tensorrt'\n", "JetPack 4", "LOG"),
        ("NCCL operation ncclCommInitRank(&c, n, i, r) failed: unhandled system error\n", "NCCL_DEBUG=INFO", "LOG"),
        # The line of the program is in the log.
        (AS_CELL + "AttributeError: 'module' object has no attribute 'b'\n", "the first arrow", "whole traceback"),
        ("AttributeError: 'module' object has no attribute 'b'\n", "", "the first arrow"),
    ],
)
def test_a_step_is_for_the_program_and_the_place_that_the_log_shows(log: str, there: str, absent: str) -> None:
    steps = said(log)

    assert there in steps
    assert absent not in steps
