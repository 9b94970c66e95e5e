"""Rare words of kernels, installers, package managers, compilers and profilers, and neighbours that mean nothing."""

import pytest

from tests.written_logs import judged

WINDOWS = "Device PCI\\VEN_{}&DEV_1EB8\nDevice status: The drivers for this device are not installed. (Code {})\n"
BAR = "pci 0000:0b:00.0: BAR {}: {} [mem {} 64bit pref]\n"
LINKED = "a.o: undefined reference to `__cudaRegisterFatBinaryEnd'\n"
MAPPED = "5.15.90.1-microsoft-standard-WSL2\n7f0b8a400000-7f0b8a567000 r--p 00000000 08:20 118822   /usr/lib/{}\n"
COLLISION = "error: collision between `/nix/store/0g-{0}-12.2/lib/a.so' and `/nix/store/5m-{0}-11.8/lib/a.so'\n"
OPENMPI = "mca:mpi:base:param:mpi_built_with_cuda_support:value:false\n"
MKNOD = "{0}: Process '/usr/bin/bash -c '/usr/bin/mknod -Z -m 666 /dev/{0} c $(grep {0} /proc/devices) 0'' failed with exit code 1.\n"
WHEA = "A {} hardware error has occurred.\n\nComponent: PCI Express Endpoint\nPrimary Device Name:PCI\\VEN_10DE&DEV_2204\n"
MISSING_DLL = "OSError: [WinError 126] The specified module could not be found\n"
PLUGIN = "unable to create plugin manager: {}\n"
NOT_LOADED = "Cannot load onnxruntime.capi. Error: 'DLL load failed: The specified module could not be found.'\n"
LISTED = "Library libcublas.so.12 is not found or cannot be loaded\n\tlibcublas.so.12 (libc6,x86-64) => /opt/cuda/lib64/libcublas.so.12\n"
OLLAMA = "gpu management search paths: [/usr/lib/aarch64-linux-gnu/nvidia/current/libnvidia-ml.so*]\nDiscovered GPU libraries: []\n"
TREE_LEARNER = "LightGBMError: GPU Tree Learner was not enabled in this build. Recompile with CMake option -DUSE_GPU=1\n"
LEGACY = "Apr 13 16:41:14 {} kernel: NVRM: supported through the NVIDIA 470.xx Legacy drivers.\n"
KMOD = "package kmod-nvidia-1:2-3.el9.x86_64 from {} conflicts with kmod-nvidia-{} provided by kmod-nvidia-open-dkms-3:2.el9.x86_64\n"
BOUND = "wb_command: version `GLIBC_2.38' not found (required by /.singularity.d/libs/libGLX.so.0)\n"
NVRTC = "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
GSP = "NVRM: _kgspLogVersionMismatch: GSP firmware image version mismatch: expected version 550.54.14, got version 535.183.01\n"
PTXAS = 'W asm_compiler.cc:234] Used ptxas at ptxas\nE cuda_driver.cc:628] failed to get PTX kernel "add" from module: '
PTXAS += "CUDA_ERROR_NOT_FOUND: named symbol not found\n"
CUFFT = "E cuda_fft.cc:261] failed to make cuFFT batched plan:{}\nF cuda_fft.cc:444] failed to initialize batched cufft plan with"
CUFFT += " customized allocator: Failed to make cuFFT batched plan.\n"
LOADED_STUB = (
    "libcuda.so.1 => /usr/local/cuda/lib64/stubs/libcuda.so.1 (0x00007f9d)\nE cuda_driver.cc:406] failed call to cuInit: CUresult(-1)\n"
)
NONE = (
    "Python 3.11.0 (main, Oct 24 2022, 18:26:48) [MSC v.1933 64 bit (AMD64)]\nCommand: python -m pip install torch==1.12.1+cu113"
    " --extra-index-url https://download.pytorch.org/whl/cu113\nError code: 1\nstdout: Looking in indexes:"
    " https://download.pytorch.org/whl/cu113\n\nstderr: ERROR: Could not find a version that satisfies the requirement"
    " torch==1.12.1+cu113 (from versions: none)\n"
)
ATTENTION = "RuntimeError: cuDNN Frontend error: s_kv not a multiple of 64 is not supported with cudnn version below 9.0.0\n"


@pytest.mark.parametrize(
    ("log", "cause", "words"),
    [
        (WINDOWS.format("10DE", 31), "driver_not_loaded", "driver for Windows"),
        ("FriendlyName : NVIDIA RTX A2000\nProblem : CM_PROB_FAILED_INSTALL\n", "driver_not_loaded", "driver for Windows"),
        (" * Currently loaded NVIDIA modules do not match the newly installed\n", "driver_library_mismatch", "reboot"),
        (GSP, "driver_library_mismatch", "firmware"),
        ("   Compiler version check failed:\n", "driver_not_loaded", ""),
        (BAR.format(1, "failed to assign", "size 0x400000000"), "hardware_fault", "Above 4G"),
        ("pci 0000:0b:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space\n", "hardware_fault", "Above 4G"),
        ('panic: "GPU Panic: [<None>] 3 3 7f : NVRM[0/1:0:0]: Read Error 0x00000100: CFG 0xffffffff"\n', "hardware_fault", ""),
        (WHEA.format("fatal"), "hardware_fault", ""),
        ("==ERROR== Cuda driver is not compatible with Nvidia Nsight Compute.\n", "driver_too_old", "update"),
        ("==ERROR== Profiling is not supported on device 0. See --list-chips option.\n", "gpu_arch_too_old_for_build", "nvprof"),
        ("== Warning: nvprof is not supported on devices with compute capability 8.0 and higher.\n", "gpu_arch_too_new_for_build", "ncu"),
        ("nvc-Error-Switch -gpu with unknown keyword cc90\n", "gpu_arch_too_new_for_build", ""),
        ("pgfortran-Error-Switch -ta with unknown keyword cc35\n", "gpu_arch_too_old_for_build", ""),
        ("Could not get 'vkCreateInstance' via 'vk_icdGetInstanceProcAddr' for ICD libGLX_nvidia.so.0\n", "driver_incomplete", ""),
        ('NVRM version: NVIDIA UNIX 367.44\nXlib:  extension "GLX" missing on display ":0".\n', "driver_incomplete", "GLX"),
        (MAPPED.format("x86_64-linux-gnu/libcuda.so.525.125.06"), "wsl_driver_shadowed", ""),
        ("+ export CUDA_VISIBLE_DEVICES=\ncall to cuInit returned error 100: No device\n", "gpu_hidden_by_env", ""),
        ("gpg: keyserver receive failed: No dirmngr\n", "apt_key", "dirmngr"),
        ("gpg: Signature made by RSA key ID 7FA2AF80\ngpg: Can't check signature: public key not found\n", "apt_key", ""),
        (COLLISION.format("cuda_cudart"), "apt_conflict", "cudaPackages"),
        ('[blocks B      ] <dev-libs/cudnn-8 ("<dev-libs/cudnn-8" is soft blocking a)\n', "apt_conflict", "emerge"),
        ("the to be installed nvidia-open-G06 conflicts with 'nvidia-G06' provided by the installed x\n", "apt_conflict", "Turing"),
        ('!!! All ebuilds that could satisfy "=dev-libs/cudnn-8.0*" have been masked.\n', "unrecognised", "'=dev-libs/cudnn-8.0*'"),
        ('The supported CUDA versions are ["12.3.2"]. Please provide a supported version in HERMETIC_A\n', "pip_pin_unavailable", "Bazel"),
        ("cudatoolkit 10.3** does not exist (perhaps a typo or a missing channel).\n", "pip_pin_unavailable", "mamba"),
        ("Version was specified as '9.0'. It does not exist for 'cuda' at the source specified.\n", "pip_pin_unavailable", "choco"),
        (LINKED, "toolkit_build_mismatch", "compile"),
        (LINKED + "a.o: undefined reference to `cudaMalloc'\n", "cuda_runtime_missing", ""),
        ("/usr/lib/libcudnn.so.7: version `libcudnn.so.7' not found (required by a)\n", "cudnn_major_mismatch", "cuDNN 7"),
        ("/usr/local/cuda-10.2/bin/nvcc\nCommand 'nvcc' not found, but can be installed with:\n", "lib_not_on_path", "PATH"),
        ("of the Protocol Buffer runtime library, but the installed version is 2.6.1.\n", "protobuf_abi", ""),
        (OPENMPI + "[gn03:11840] Signal: Segmentation fault (11)\n", "cpu_only_build", "--with-cuda"),
        ('a.h(36): error: identifier "__builtin_ia32_monitorx" is undefined\n', "other_bug", "-ccbin"),
        ("nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)\n", "other_bug", ""),
        (PTXAS, "gpu_arch_too_new_for_build", "which -a ptxas"),
        (CUFFT.format(5), "gpu_arch_too_new_for_build", "TF_FORCE_GPU_ALLOW_GROWTH"),
        ("Check failed: (cufftPlanMany(&p, 1, &n)) == CUFFT_SUCCESS (5 vs. 0)\n", "gpu_arch_too_new_for_build", ""),
        (CUFFT.format(2), "out_of_memory", ""),
        ("XlaRuntimeError: INTERNAL: Failed to make cuFFT batched plan.\n", "out_of_memory", ""),
        (LOADED_STUB, "ld_path_shadowing", "ld.so.conf.d"),
        ("  1234:\tcalling init: /opt/cuda/lib64/stubs/libnvidia-ml.so.1\n", "ld_path_shadowing", "stubs"),
        ("7f1b2c000-7f1b2c00a r-xp 00000000 08:02 1311 /usr/local/cuda/lib64/stubs/libcuda.so\n", "ld_path_shadowing", "stubs"),
        ("skcuda.cufft.cufftInternalError\n", "gpu_arch_too_new_for_build", ""),
        ("InternalError: cuSolverDN call failed with status =7\n", "out_of_memory", ""),
        (NONE.replace("3.11", "3.8"), "pip_wheel_unavailable_for_python", "64-bit"),
        (NONE, "pip_wheel_unavailable_for_python", "Python 3.10"),
        (ATTENTION, "other_bug", "enable_cudnn_sdp"),
        ("E           AttributeError: module 'pandas' has no attribute 'Panel'\n", "unrecognised", "pandas"),
        ("AttributeError: `a.b` was deprecated in v1.6 and is no longer accessible. Use `c`.\n", "unrecognised", "in place of"),
        ("Illegal Instruction (core dumped)\n", "cpu_without_avx", "avx"),
        ("command terminated by signal: 4 (Illegal Instruction)\n", "cpu_without_avx", ""),
        ("    Exit Code:    132\n", "cpu_without_avx", ""),
        ("cuInit(0) = 802\n", "fabric_manager_missing", ""),
        ("[hashcat] cuInit(): 999\n", "driver_wedged", ""),
        ("CUresult: 804\n", "forward_compat_hw", ""),
        ("Cannot init CUDA driver, err 803\n", "driver_library_mismatch", ""),
        ("Failed to initialize CUDA driver: 222\n", "ptx_too_new", ""),
        ('error="cuda driver library init failur             e: 802"\n', "fabric_manager_missing", ""),
        (PLUGIN.format("platform detection failed"), "container_toolkit_missing", "set-as-default"),
        (PLUGIN.format("invalid device discovery strategy"), "container_toolkit_missing", "set-as-default"),
        (NOT_LOADED + "ImportError: cannot import name 'a' from 'onnxruntime.capi._pybind_state'\n", "windows_runtime_missing", "VCRedist"),
        ("cuBLAS failed with status : CUBLAS_STATUS_NOT_SUPPORTED\n", "other_bug", "float16"),
        ("No module named 'paddle.utils'\n", "unrecognised", "import paddle"),
        ("No module named 'torch.nn'\n", "unrecognised", "import torch"),
        ('OSError: [WinError 127] x. Error loading "C:\\v\\torch\\lib\\caffe2_ops.dll" or one\n', "ld_path_shadowing", "PATH"),
        ('OSError: [WinError 126] x. Error loading "C:\\v\\torch\\lib\\caffe2_ops.dll" or one\n', "cuda_runtime_missing", ""),
        ("AttributeError: module 'torch' has no attribute 'no_grad'\n", "unrecognised", "import torch"),
        ("Received a label value of -2147483648 which is outside the valid range of [0, 256).\n", "bad_input", "label"),
        (
            "cuDNN version incompatibility: PyTorchwas compiled  against (8, 7, 0) but found runtime version (8, 6, 0).\n",
            "ld_path_shadowing",
            "",
        ),
        (f"    ctypes.CDLL(dll)\n    self._handle = _dlopen(self._name, mode)\n{MISSING_DLL}", "windows_runtime_missing", "VCRedist"),
        (
            "Using CUDA toolkit version (12, 3) with CUDA driver version (12, 2) requires minor version compatibility, which\n",
            "driver_too_old",
            "",
        ),
        ("No module named 'torch.utils.flop_counter'\n", "framework_pkg_mismatch", ""),
        ("built for NVIDIA Driver Release 545.23 or later, butversion 535.104.05 was detected\n", "driver_too_old", "host"),
        ("libcudf.so: undefined symbol: _ZN3rmm\n", "framework_pkg_mismatch", "RAPIDS"),
        ("library=/usr/lib/aarch64-linux-gnu/tegra\nCUDA error: PTX JIT compiler library not found\n", "driver_incomplete", "l4t"),
        ("nvidia: Unknown symbol drm_ioctl (err 0)\n", "driver_not_loaded", "linux-modules-extra"),
        ("unable to connect to broker library\n", "unrecognised", "msg-broker-conn-str"),
        (LISTED, "lib_not_on_path", "runs elsewhere"),
        (OLLAMA, "driver_not_loaded", "--gpus all"),
        (BOUND, "glibc_too_old", "nvliblist"),
        (NVRTC, "gpu_arch_too_new_for_build", "7.5 10.0"),
        (f"NVIDIA GeForce RTX 4090\n{NVRTC}", "gpu_arch_too_new_for_build", "use CUDA 11.8"),
        ("a/__clang_cuda_runtime_wrapper.h:365:10: fatal error: 'texture_fetch.h' file not found\n", "other_bug", "Clang"),
        (TREE_LEARNER, "cpu_only_build", "--no-deps lightgbm"),
        (f'File "/e/lib/python3.6/site-packages/a.py", line 1, in f\n{TREE_LEARNER}', "cpu_only_build", "--install-option=--gpu"),
        ("Fabric Manager 550.127.05 don't match with driver version 560.35. Update\n", "fabric_manager_missing", "560=560.35-*"),
        (LEGACY.format("nixos"), "gpu_arch_too_old_for_build", "nvidiaPackages.legacy_470"),
        (LEGACY.format("box"), "gpu_arch_too_old_for_build", "apt-cache"),
        (KMOD.format("@System", "open-dkms"), "apt_conflict", "nvidia-driver:open-dkms"),
        (KMOD.format("cuda", "open-dkms"), "apt_conflict", "distro-sync"),
        ("$ lxc shell a1\nCUDA unknown error\n", "container_gpu_not_passed", "lxc config device add a1 uvm"),
        ("$ pct enter 101\nCUDA unknown error\n", "container_gpu_not_passed", "lxc.cgroup2"),
        ("Driver Version: 470.223.02\nnvrtc: error: invalid value for --gpu-architecture\n", "gpu_arch_too_new_for_build", "Quadro K"),
        ("$ dkms status\ndkms: command not found\nModule nvidia not found\n", "driver_not_loaded", "install dkms"),
        ("$ CUDA_VISIBLE_DEVICES=$0 ./a\nno CUDA-capable device is detected\n", "gpu_hidden_by_env", "$0 is the shell's name"),
    ],
)
def test_a_rare_word_names_the_cause(log: str, cause: str, words: str) -> None:
    first = judged(log).findings[0]
    assert first.cause == cause
    assert words in " ".join(f"{step.text} {step.command}" for step in first.remedy)


@pytest.mark.parametrize(
    "log",
    [
        WINDOWS.format("8086", 28),
        "FriendlyName : NVIDIA RTX A2000\nFriendlyName : Ethernet\nProblem : CM_PROB_FAILED_INSTALL\n",
        BAR.format(7, "failed to assign", "size 0x00200000"),
        BAR.format(1, "no space for", "size 0x400000000") + BAR.format(1, "assigned", "0x4000000000-0x43ffffffff"),
        WHEA.format("corrected"),
        "g++ a.o -L/usr/local/cuda/lib64/stubs -lcuda\n-- Found CUDA driver: /usr/local/cuda/lib64/stubs/libcuda.so\n",
        'openat(AT_FDCWD, "/usr/local/cuda/lib64/stubs/libcuda.so.1", O_RDONLY) = -1 ENOENT (No such file or directory)\n',
        "/usr/local/cuda/include/cufft.h:88:  CUFFT_INTERNAL_ERROR = 0x5,\n",
        MAPPED.format("wsl/lib/libcuda.so.1"),
        COLLISION.format("numpy").replace("error", "warning"),
        OPENMPI,
        "cuInit(0): 100 ms\n",
        "cuInit(0) = 0\nCUresult: 0\n",
        "[[(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) cuInit()=803]]\n",
        "an illegal instruction is a bug of old processors\n",
        "NAME      fail      ure\n",
        LISTED.partition("\n")[2],
        MKNOD.format("nvidiactl"),
        MKNOD.format("nvidia-uvm"),
    ],
)
def test_a_neighbour_of_a_rare_word_stays_quiet(log: str) -> None:
    assert not [found for found in judged(log).findings if found.severity != "info"]
