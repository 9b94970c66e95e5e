"""One message with several causes, of builds and systems: what the log lists, sets or shows afterwards decides."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

HEADER = "csrc/ops.cpp:2:10: fatal error: {0}: No such file or directory\nerror: command '/usr/bin/g++' failed with exit code 1\n"
LINK = "/usr/bin/ld: cannot find -l{0}\ncollect2: error: ld returned 1 exit status\n"
HOME = "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"
CMAKE = "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY CUDNN_INCLUDE_DIR)\nCMake Error at x.txt:41:\n"
UNREAD = '-- Could NOT find CUDNN: Found unsuitable version "{0}" (found /usr/lib/libcudnn.so)\nCMake Error: x\n'
PTX = "      arch_list[-1] += '+PTX'\n  IndexError: list index out of range\n"
ONE = "$ nvidia-smi -L\nGPU 0: NVIDIA GeForce RTX 4080 (UUID: GPU-e1f0b6d2-1b9f-6c57-2d0c-5f1f4df0a9c1)\n"
OLD = "cudaGetDeviceCount returned 35\n-> CUDA driver version is insufficient for CUDA runtime version\n"
NVENC = "[h264_nvenc @ 0x55] OpenEncodeSessionEx failed: {0}: (no details)\n[h264_nvenc @ 0x55] No capable devices found\n"
CDI = "$ {0} run --device nvidia.com/gpu=all {1}\nError: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all\n"
SPEC = "ERRO[0000] failed to generate CDI spec: failed to create device CDI specs: failed to initialize NVML: {0}\n"
NEEDED = "Error:\n Problem: conflicting requests\n  - nothing provides {0} needed by {1}\n$ rpm -q dnf\n"
CUVID = "[h264_cuvid @ 0x5617a0] Cannot load libnvcuvid.so.1\n"
NVML = "Failed to initialize NVML: Driver/library version mismatch\n"
PERSISTENCED = "nvidia-persistenced-3:535.54.03-1.el9.x86_64"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (HEADER.format("cublas_v2.h") + "$ find / -name cublas_v2.h 2>/dev/null\n/opt/cuda-12.2/include/cublas_v2.h\n", "lib_not_on_path"),
        (HEADER.format("cublas_v2.h") + "$ find / -name cublas_v2.h\n$ ls /opt\ncuda-12.2\n", "cuda_runtime_missing"),
        (HEADER.format("nccl.h") + "$ locate nccl.h\n/home/a/nccl/include/nccl.h\n", "lib_not_on_path"),
        ("src/a.cu:1:10: 致命错误\uff1acuda_runtime.h\uff1a没有那个文件或目录\n", "cuda_runtime_missing"),
        (LINK.format("cusparse") + "$ ls /opt/cuda/lib64 | grep sparse\nlibcusparse.so\nlibcusparse.so.12\n", "lib_not_on_path"),
        (LINK.format("cusparse") + "$ find / -name 'libcusparse*'\n/v/nvidia/cusparse/lib/libcusparse.so.12\n", "cuda_runtime_missing"),
        (LINK.format("cusparse") + "$ ls /opt/cuda/lib64/stubs\nlibcublas.so\n", "cuda_runtime_missing"),
        (HOME + "$ ls -l /apps/cuda/12.4/bin/nvcc\n-rwxr-xr-x 1 root root 217 Mar 28 2024 /apps/cuda/12.4/bin/nvcc\n", "lib_not_on_path"),
        (HOME + "$ module avail cuda\n   cuda/11.8.0    cuda/12.4.1 (D)\n", "lib_not_on_path"),
        (HOME + "$ ls /apps/cuda/bin/nvcc\nls: cannot access '/apps/cuda/bin/nvcc': No such file or directory\n", "cuda_runtime_missing"),
        (CMAKE + "$ locate libcudnn.so\n/home/rw/cudnn/lib64/libcudnn.so\n", "lib_not_on_path"),
        (CMAKE + "$ find / -name 'libcudnn*'\n/home/rw/v/lib/python3.9/site-packages/nvidia/cudnn/lib/libcudnn.so.8\n", "lib_not_on_path"),
        (UNREAD.format(".."), "other_bug"),
        (UNREAD.format("."), "other_bug"),
        (UNREAD.format("7.4.2"), "cudnn_too_old_for_framework"),
        ("$ echo $CUDA_VISIBLE_DEVICES\n-1\n" + PTX + ONE, "gpu_hidden_by_env"),
        ("> echo %CUDA_VISIBLE_DEVICES%\n3\n" + PTX + ONE, "gpu_hidden_by_env"),
        ("$ echo $CUDA_VISIBLE_DEVICES\n0\n" + PTX, "driver_not_loaded"),
        (OLD + "cat: /proc/driver/nvidia/version: No such file or directory\n", "driver_not_loaded"),
        (OLD + "ls: cannot access '/proc/driver/nvidia': No such file or directory\n", "driver_not_loaded"),
        (OLD, "driver_too_old"),
        (NVENC.format("out of memory (10)"), "out_of_memory"),
        (NVENC.format("unsupported device (2)"), "gpu_arch_too_old_for_build"),
        (CDI.format("podman", "ubi9") + SPEC.format("Driver Not Loaded"), "driver_not_loaded"),
        (CDI.format("docker", "ubi9") + SPEC.format("ERROR_LIBRARY_NOT_FOUND"), "driver_not_loaded"),
        (CDI.format("podman", "ubi9") + "$ ls /etc/cdi\n", "container_toolkit_missing"),
        (NEEDED.format("libc.so.6(GLIBC_2.34)(64bit)", PERSISTENCED), "glibc_too_old"),
        (NEEDED.format("libm.so.6(GLIBC_2.38)(64bit)", PERSISTENCED), "glibc_too_old"),
        (NEEDED.format("dkms", "kmod-nvidia-latest-dkms-3:515.65.01-1.el8.x86_64"), "apt_conflict"),
        ("$ docker run --rm ffmpeg:4.4 -c:v h264_cuvid -i a.mp4\n" + CUVID, "container_gpu_not_passed"),
        ("$ docker run --gpus all --rm ffmpeg:4.4 -c:v h264_cuvid -i a.mp4\n" + CUVID, "driver_incomplete"),
        ("$ nvidia-smi\n" + NVML + "$ env -u LD_LIBRARY_PATH nvidia-smi -L\nGPU 0: Tesla V100 (UUID: GPU-0)\n", "ld_path_shadowing"),
        ("$ nvidia-smi\n" + NVML + "$ env -u LD_LIBRARY_PATH nvidia-smi -L\n" + NVML, "driver_library_mismatch"),
    ],
)
def test_what_decides(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause
    assert judged(log).findings[0].severity != "info"


SANDBOX = 'Warning  FailedCreatePodSandBox  pod/{0}  Failed to create pod sandbox: no runtime for "nvidia" is configured\n'
PLUGIN = "nvidia-device-plugin-daemonset-x8x2p"
WATCH = "Mar 05 02:00:40 n7 w[911]: " + NVML
LOADED = "Mar 05 02:03:18 n7 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.161.07\n"
BOOT = "-- Boot 41d09c3b6be04f1f8c0f3ad6d9d7a1c2 --\n"
NOTICE = "#9 [4/4] RUN pip wheel .\n#9 3.4 No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n"
NVCC = "#9 9.1 /usr/local/cuda/bin/nvcc -gencode=arch=compute_80,code=sm_80 -c q.cu\n"
DRIVER = "nvidia-driver-daemonset-tz9bw   {0}     3     7m\n"
NAMED = "#10 naming to registry.local/x:1 done\n"


@pytest.mark.parametrize(
    ("log", "is_quiet"),
    [
        (SANDBOX.format(PLUGIN) + PLUGIN + "   1/1     Running     0          7m\n", True),
        (SANDBOX.format(PLUGIN) + "gpu-operator   " + PLUGIN + "   2/2     Running     0          7m\n", True),
        (SANDBOX.format(PLUGIN) + PLUGIN + "   0/1     ContainerCreating     0          7m\n", False),
        (SANDBOX.format(PLUGIN) + PLUGIN + "   1/1     Running     6 (2m ago)     7m\n", False),
        (SANDBOX.format(PLUGIN) + "nvidia-driver-daemonset-tz9bw   1/1     Running     0          7m\n", False),
        (DRIVER.format("0/1   Init:Error") + DRIVER.format("1/1   Running"), True),
        (DRIVER.format("1/1   Running") + DRIVER.format("0/1   Init:Error"), False),
        (DRIVER.format("0/1   Init:Error") + DRIVER.format("1/1   Running").replace("tz9bw", "aa1bb"), False),
        ("[pod/" + PLUGIN + "/c] Found no NVIDIA driver on your system\n" + PLUGIN + "   1/1     Running     0          7m\n", False),
        (WATCH + BOOT + LOADED, True),
        (WATCH + "-- Reboot --\n" + LOADED, True),
        (WATCH + BOOT + LOADED + WATCH, False),
        (WATCH + BOOT, False),
        (LOADED + WATCH, False),
        (NOTICE + NVCC + NAMED, True),
        (NOTICE + NAMED, False),
        (NOTICE + NVCC, False),
    ],
)
def test_what_is_over_is_quiet(log: str, *, is_quiet: bool) -> None:
    assert all(finding.severity == "info" for finding in judged(log).findings) is is_quiet


def test_linker_step() -> None:
    log = LINK.format("cusparse") + "$ ls /opt/cuda/lib64 | grep sparse\nlibcusparse.so\n"
    assert judged(log).findings[0].remedy[0].command == "export LIBRARY_PATH=DIRECTORY:$LIBRARY_PATH"


IMPORT = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import ops\n'
LISTED = "nvcc fatal   : Unsupported gpu architecture 'compute_{0}'\nPyTorch version: 2.1.0\nCUDA used to build PyTorch: {1}\n"
GPT4ALL = (
    '>>> m = GPT4All("a.gguf", device="{0}")\n'
    "Failed to load libllamamodel-mainline-cuda.so: dlopen: libcuda.so.1: cannot open shared object file: No such file or directory\n"
)
DYLIB = "ImportError: dlopen(/v/ops.so, 6): Library not loaded: @rpath/{0}\n  Referenced from: /v/ops.so\n  Reason: image not found\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (IMPORT + "ImportError: DLL load failed while importing ops: Kan opgegeven module niet vinden.\n", "windows_runtime_missing"),
        (IMPORT + "ImportError: DLL load failed: Det går inte att hitta den angivna modulen.\n", "windows_runtime_missing"),
        (IMPORT + "ImportError: DLL load failed: Selhala inicializační rutina dynamické knihovny (DLL).\n", "windows_runtime_missing"),
        (IMPORT + "OSError: [WinError 1114] En DLL-initialiseringsrutine blev ikke udført.\n", "windows_runtime_missing"),
        (IMPORT + "ImportError: DLL load failed while importing ops: Kan opgegeven procedure niet vinden.\n", "framework_pkg_mismatch"),
        (IMPORT + "ImportError: DLL load failed: Die Auslagerungsdatei ist zu klein.\n", "windows_page_file"),
        (IMPORT + DYLIB.format("libtensorflow_framework.2.dylib"), "framework_pkg_mismatch"),
        (IMPORT + DYLIB.format("libtorch_cpu.dylib"), "framework_pkg_mismatch"),
        (IMPORT + DYLIB.format("libpng16.16.dylib"), "unrecognised"),
        (LISTED.format("90", "12.1") + "CUDA runtime version: 11.5.119\n", "toolkit_build_mismatch"),
        (LISTED.format("86", "11.3") + "NVCC   Cuda compilation tools, release 10.2, V10.2.89\n", "toolkit_build_mismatch"),
        (LISTED.format("60", "12.6") + "Cuda compilation tools, release 13.0, V13.0.48\n", "toolkit_build_mismatch"),
        (LISTED.format("120", "12.1") + "CUDA runtime version: 11.8.89\n", "gpu_arch_too_new_for_build"),
        (GPT4ALL.format("cpu"), "harmless"),
        (GPT4ALL.format("cuda"), "driver_not_loaded"),
        ("E0101 analysis_config.cc:80] Please compile with gpu to EnableGpu\n", "cpu_only_build"),
        ("Error: could not select device driver with capabilities: [[compute utility]].\n", "container_toolkit_missing"),
        (">>> tensorflow.python.client\n['/device:CPU:0']\nDetected 2 CUDA Capable device(s)\n", "cpu_only_build"),
    ],
)
def test_shape_of_a_message_decides(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause
