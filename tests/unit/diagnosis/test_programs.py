"""Words of single programs lead to their cause, and those of one cause are not taken for another's."""

from __future__ import annotations

import pytest

from cudnn_resolve.matrix.symptom import Symptom
from tests.unit.diagnosis.test_rows import advice
from tests.written_logs import book, judged

NO_DEVICE = "torch.cuda.is_available(): False\nInvalid CUDA 'device=0' requested\n"
SEEN = "GPU 0: Tesla T4 (UUID: GPU-1)\n"
OUTDATED = "Outdated cuBLAS installation found.\n"
PROGRAMS = [one for one in book().symptoms() if one.cause and one.source == ("words",) and not one.needs and one.role != "effect"]


SYSTEM = "Warning: CUDA runtime library `libcublasLt.so.11` was loaded from a system path, `/sw/lib64/libcublasLt.so.11`.\n"
SHM = "node08:106:302 [0] misc/shmutils.cc:85 NCCL WARN "
SEGMENT = "Error while creating shared memory segment"
NVVM = "NvvmSupportError: libNVVM cannot be found. Do `conda install cudatoolkit`:\n"
XFORMERS = "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    PyTorch"
OLD_TORCH = "ERROR: Could not find a version that satisfies the requirement torch==2.1.0 (from versions: 2.6.0, 2.7.0, 2.7.1, 2.8.0)\n"
OLD_GLIBC = "ImportError: /lib64/libc.so.6: version `GLIBC_{}' not found (required by /home/u/env/lib/python3.7/site-packages/{})\n"
OLD_PIN = "ERROR: Could not find a version that satisfies the requirement tensorflow-gpu<=1.12.0 (from versions: 2.2.0, 2.3.0)\n"
CAPSULE = 'ImportError: PyCapsule_Import could not import module "datetime"\n'


@pytest.mark.parametrize("symptom", PROGRAMS, ids=lambda one: one.id)
def test_words_of_a_program_lead_to_their_cause(symptom: Symptom) -> None:
    assert {judged(f"{sample}\n").findings[0].cause for sample in symptom.sample} == {symptom.cause}


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("CudaSupportError: Error at driver init: Call to cuInit results in CUDA_ERROR_UNKNOWN (999)\n", "driver_wedged"),
        ("CudaSupportError: Error at driver init: \n[999] Call to cuInit results in CUDA_ERROR_UNKNOWN:\n", "driver_wedged"),
        ("CudaSupportError: Error at driver init: \n[100] Call to cuInit results in CUDA_ERROR_NO_DEVICE:\n", "driver_not_loaded"),
        ("[[ Forward compatibility was attempted on non supported HW (error 804) ]]\n", "forward_compat_hw"),
        ("could not find cudnnCreate in cudnn DSO; dlerror: /v/_pywrap.so: undefined symbol: cudnnCreate\n", "cudnn_missing"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable\n", "gpu_exclusive_mode"),
        ("no device code compatible with CUDA arch 520. ggml-cuda.cu was compiled for: 520\n", "gpu_arch_too_new_for_build"),
        ("no device code compatible with CUDA arch 700. ggml-cuda.cu was compiled for: 700\n", "gpu_arch_too_old_for_build"),
        (
            (
                "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\nPossibly insufficient driver version: 530.30.2\n"
                "XlaRuntimeError: DNN library initialization failed. Look at the errors above for more details.\n"
            ),
            "out_of_memory",
        ),
        ("os.environ['CUDA_VISIBLE_DEVICES']: None\n" + NO_DEVICE, "cpu_only_build"),
        ("os.environ['CUDA_VISIBLE_DEVICES']: 2\n" + NO_DEVICE, "gpu_hidden_by_env"),
        ("bin C:\\v\\libbitsandbytes_cpu.so\nNo libcudart.so found! Install CUDA or the cudatoolkit package\n", "cpu_only_build"),
    ],
)
def test_what_stands_beside_it_decides(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        ("ptxas /tmp/a.ptx, line 5; fatal   : Unsupported .version 8.6; current version is '8.5'\n", "TRITON_PTXAS_PATH", "driver-policy"),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.\n", "kubectl describe nodes", "runtime=docker"),
        ("argument of type 'WindowsPath' is not iterable\n", "bitsandbytes>=0.43", "release before"),
        ("Failed to initialize NVML: GPU access blocked by the operating system\n", "wsl --update", "rmmod"),
    ],
)
def test_a_remedy_of_a_program_is_one_that_can_work(log: str, has: str, lacks: str) -> None:
    assert has in advice(log)
    assert lacks not in advice(log)


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        (
            "luajit: cuda runtime error (35) : CUDA driver version is insufficient at THCGeneral.c:16\n",
            "driver of the host",
            "cudnn-resolve",
        ),
        ("TypeError: Couldn't build proto file into descriptor pool!\n", "install -U protobuf", "protobuf<"),
        ('CMake Error\n  Could NOT find NVJPEG: Found unsuitable version "", but required is at\n', "CUDA toolkit", "cudnn-resolve"),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all\n", "nvidia-ctk cdi generate", "runtime=docker"),
        ("Error! Bad return status for module build on kernel: 6.8.0 (x86_64)\n", "linux-headers-", "cudnn-resolve"),
        ("RuntimeError: DataLoader worker is killed; dataloader's workers are out of shared memory.\n", "--shm-size", "smaller batch"),
        (f"{SHM}Call to shm_open failed : Permission denied\n{SHM}{SEGMENT} nccl-shm-1 (size 9)\n", "chmod 1777", "--shm-size"),
        (f"{SHM}{SEGMENT} /dev/shm/nccl-a1 (size 9), error: Permission denied (13)\n", "chmod 1777", "--shm-size"),
        (f"{SHM}{SEGMENT} /dev/shm/nccl-a1 (size 9), error: No space left on device (28)\n", "--shm-size", "chmod 1777"),
        ("RuntimeError: unable to open shared memory object </torch_42_1> in read-write mode: Permission denied (13)\n", "1777", "docker"),
        ("E1 1 manager.cc:1004] Poll failed for model directory '1': Invalid model name\n", "the directory above", "doctor LOG"),
        # A wheel with a stable ABI does not tell the Python that takes it.
        ("Using cached opencv_python-4.8.1.78-cp37-abi3-win_amd64.whl (38.1 MB)\n" + OLD_TORCH, "Python 3.10", "Python 3.8"),
        # A glibc for which neither wheels nor conda-forge build leaves another system or a container.
        (OLD_GLIBC.format("2.14", "cuml/libcuml.so"), "singularity exec", "--no-binary"),
        (OLD_GLIBC.format("2.17", "tensorflow/python/_p.so"), "CentOS 7", "conda-forge's build ("),
        (OLD_GLIBC.format("2.27", "tensorflow/python/_p.so"), "conda-forge's build (", "CentOS 7"),
        # Who has no adapter in WSL has asked for the GPU already.
        (
            "root@a1b2c3d4e5f6:/# nvidia-container-cli: WSL environment detected but no adapters were found\n",
            "wsl --shutdown",
            "docker run",
        ),
        # Windows PowerShell has no `&&`.
        (f"(base) PS C:\\p> pip install -r r.txt\n{OLD_PIN}", "python=3.6; conda run", "&&"),
        (f"C:\\p> pip install -r r.txt\n{OLD_PIN}", "python=3.6 && conda run", "3.6; "),
        ("ctypes.WinDLL(build_info.cudart_dll_name)\nOSError: [WinError 126] x\n", "1.5 to 1.12", "the CUDA that it was built with"),
        (f"{NVVM}/opt/cuda-9.0/nvvm/lib64/libnvvm.so: cannot open\n__ROC Information__\n", "conda install cudatoolkit", "numba-cuda"),
        (f"{XFORMERS} 2.10.0+cu128 with CUDA 1208 (you have 2.11.0+cu130)\n", "newest xFormers", "doctor LOG"),
        ('  File "/v/lib/python3.8/site-packages/numpy/core/overrides.py", line 7, in <module>\n' + CAPSULE, "datetime.__file__", "paddle"),
    ],
)
def test_the_remedy_is_for_what_failed(log: str, has: str, lacks: str) -> None:
    assert has in advice(log)
    assert lacks not in advice(log)


CUDA_NONE = "Error initializing CUDA: CUDA_ERROR_NO_DEVICE (100) at CudaContext.cpp:91\n"
TRITON = (
    "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n\n"
    "W0829 1 pinned_memory_manager.cc:236] Unable to: CUDA driver version is insufficient for CUDA runtime version\n"
)
KOKKOS = (
    "WARNING: compiled for compute capability 8.0 on device with compute capability {} , this will likely reduce potential performance.\n"
)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("cudaMalloc GpuBuffer::Allocate failed out of memory\n", "out_of_memory"),
        ("cuMemAlloc_v2 returned 2: out of memory\n", "out_of_memory"),
        ("Error: model requires more system memory (24.9 GiB) than is available (11.2 GiB)\n", "unrecognised"),
        ("ERROR: LoadError: KernelException: exception thrown during kernel execution on device NVIDIA T4\n", "bad_input"),
        ("IndexError: tid=[3, 0, 0] ctaid=[0, 0, 0]: index is out of bounds\n", "bad_input"),
        ("nvcc cannot target gpu arch 120. Available nvcc targets are [50, 90].\n", "gpu_arch_too_new_for_build"),
        ("ERROR: Accelerator sharing is not currently supported on system (../gpu_extra.h:47)\n", "gpu_exclusive_mode"),
        ("FATAL ERROR: CUDA error on Pe 3: All CUDA devices are in prohibited mode, of compute capability 1.0\n", "gpu_exclusive_mode"),
        ("The requested API version [22] is not available, only API versions [1, 17] are supported\n", "framework_pkg_mismatch"),
        ('Could NOT find CUDNN: Found unsuitable version "7.4.2", but required is at least "7.5"\n', "cudnn_too_old_for_framework"),
        ('Could NOT find CUDNN: Found unsuitable version "..", but required is\nDNN: CUDA backend requires cuDNN.\n', "other_bug"),
        (f"CUDA_VISIBLE_DEVICES=[-1]\n{CUDA_NONE}", "gpu_hidden_by_env"),
        (f"CUDA_VISIBLE_DEVICES=[]\n{CUDA_NONE}", "gpu_hidden_by_env"),
        (f"CUDA_VISIBLE_DEVICES=[0]\n{CUDA_NONE}", "driver_not_loaded"),
        ("/content# a\ncudaErrorInsufficientDriver: insufficient\nnvidia-smi: command not found\n", "no_gpu_runtime"),
        (f"{TRITON}E0829 1 a.cc:596] model m specifies invalid or unsupported gpu id 0. GPUs with\n", "container_gpu_not_passed"),
        (f"{TRITON}I0829 1 grpc_server.cc:4610] Started GRPCInferenceService at 0.0.0.0:8001\n", "harmless"),
        (KOKKOS.format("8.6"), "harmless"),
        ("error: compiled for compute capability 8.0 on device with compute capability 8.6\n", "gpu_arch_too_new_for_build"),
    ],
)
def test_programs_outside_of_python_say_it_in_words_of_their_own(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize(
    "log",
    [
        "tid=[0, 0, 0] ctaid=[0, 0, 0]: value 5\n",
        "compiled for sm_80 sm_86 sm_90; device 0 has capability sm_86\n",
        "compiled for sm_80 and sm_86; GPU has capability sm_89\n",
        "Accelerator sharing is not currently supported; each process has a GPU\n",
        "Accelerator sharing is not currently supported on this device type; running exclusive\n",
        "WARNING Missing tool nvidia-container-cli 1.2 (optional)\n",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.525.125.06\nkernel 5.15.90.1-microsoft-standard-WSL2\ncuInit(0) = 0\n",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.525.125.06\nkernel 5.15.90.1-microsoft-standard-WSL2\nno_device: no\n",
    ],
)
def test_the_same_words_of_a_program_that_works_are_no_failure(log: str) -> None:
    assert not judged(f"{log}step 1 loss 0.5\n").findings


def test_an_integrator_is_no_jetson() -> None:
    assert "Jetson" not in advice(f"  simulation = Simulation(topology, system, integrator)\n{CUDA_NONE}")


TENSORRT = "ImportError: libnvinfer.so.{}: cannot open shared object file: No such file or directory\n"
CONDA = """The following packages are incompatible
├─ pytorch 2.0.1** is requested and can be installed;
└─ torchaudio 2.1.0** is not installable because it requires
   └─ pytorch {}.0 , which conflicts with any installable versions previously reported.
"""
NO_CUDNN = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
WSL = "Linux 5.15.90.1-microsoft-standard-WSL2\n"
KERNEL = "nothing provides 'kernel-default = 6.4' needed by the to be installed nvidia-open-driver-G06-kmp-default-550.1-1.x86_64\n"
STEP = """Traceback (most recent call last):
  File "{}", line 2514, in train
    self.training_step({})
TypeError: training_step() takes 3 positional arguments but 4 were given
"""
LOOKUP = (
    'gpu.go:568 msg="unable to load cuda driver library" library=/usr/lib64/libcuda.so.460.106.00 error="symbol lookup for {} failed"\n'
)
TIMEOUT = "/usr/bin/timeout: failed to run command 'nvidia-smi': No such file or directory\n"
UNSHOWN = "kernel 5.15.90.1-microsoft-standard-WSL2\n/usr/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.525.125.06\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (LOOKUP.format("cuCtxCreate_v3"), "driver_too_old"),
        ("lookup err: symbol lookup for cuMemGetInfo_v2 failed\n", "driver_too_old"),
        ("Linker error log: ERROR -1 in nvvmAddNVVMContainerToProgram, may need newer version of nvJitLink library\n", "nvjitlink_mix"),
        (TENSORRT.format(10) + "tensorrt_cu12_libs        10.0.1\n", "lib_not_on_path"),
        (TENSORRT.format(8) + "tensorrt_cu12_libs        10.0.1\n", "cuda_runtime_missing"),
        (TENSORRT.format(8) + "Collecting tensorrt-libs==8.6.1\n", "cuda_runtime_missing"),
        ("ImportError: /x/a.so: undefined symbol: __isoc23_strtol\n", "glibc_too_old"),
        ("OSError: /x/libxgboost.so: undefined symbol: pthread_mutex_clocklock\n", "glibc_too_old"),
        # That -lpthread was not linked, or a library of its own has checks, says nothing of the age of glibc.
        ("ImportError: /x/a.so: undefined symbol: pthread_create\n", "unrecognised"),
        ("ImportError: /x/a.so: undefined symbol: __my_check_chk\n", "unrecognised"),
        ("ImportError: /x/a.so: undefined symbol: _ZN2at4_ops9fft_irfft4callERKNS_6TensorE\n", "framework_pkg_mismatch"),
        (CONDA.format("2.1"), "framework_pkg_mismatch"),
        (f"Apr 13, 2023, 6:53:42 PM | WARNING | {TIMEOUT}", "harmless"),
        (f"$ /usr/bin/timeout 5 nvidia-smi\n{TIMEOUT}", "driver_not_loaded"),
        (f"2023-04-13 | WARNING | {TIMEOUT}", "driver_not_loaded"),
        (f"{UNSHOWN}failed call to cuInit: UNKNOWN ERROR (303)\n", "wsl_driver_shadowed"),
        (f"{UNSHOWN}cuInit returned 100\n", "wsl_driver_shadowed"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\ntoolkit is not ready\n", "driver_not_loaded"),
        ("bash: nvidia-smi: No such file or directory\n", "driver_not_loaded"),
        ("Error: /paddle/operators/cross_entropy.cu:88 Assertion `label >= 0 && label < n`\nCuda error(719)\n", "bad_input"),
        ('toolkit is not ready\nlevel=info msg="Error: error validating toolkit installation: exit status 12"\n', "lib_not_on_path"),
        ("dd: failed to open '/dev/nvidia0': Operation not permitted\n", "container_gpu_detached"),
        ("LightGBMError: No OpenCL device found\n", "driver_incomplete"),
        ("[0] misc/nvmlwrap.cc:48 NCCL WARN Failed to open libnvidia-ml.so.1\n", "driver_incomplete"),
        (f"{OUTDATED}LD_LIBRARY_PATH=/usr/local/cuda/lib64\nnvidia-cublas-cu12 12.5.3.2\n", "ld_path_shadowing"),
        (f"{OUTDATED}LD_LIBRARY_PATH=/usr/local/cuda/lib64\n", "cuda_runtime_missing"),
        ("5.15.90-microsoft-standard-WSL2\n 9: calling init: /lib/x86_64-linux-gnu/libcuda.so.1\n", "wsl_driver_shadowed"),
        ("The procedure entry point cublasLtA could not be located in the dynamic link library C:\\a\\cublas64_12.dll.", "cublas_mismatch"),
        ("cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE\nExclusive_Process, 10961 MiB\n", "gpu_exclusive_mode"),
        ("CUDA_VISIBLE_DEVICES=none\nCUDA failure 100: no CUDA-capable device is detected\n", "gpu_hidden_by_env"),
        ("RuntimeError: cuDNN not available: Version is too old. Update to v5, was 3007.\n", "cudnn_too_old_for_framework"),
        ("  Unknown CUDA Architecture Name Hopper in CUDA_SELECT_NVCC_ARCH_FLAGS\n", "gpu_arch_too_new_for_build"),
    ],
)
def test_words_that_look_alike_are_of_their_own_cause(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        (TENSORRT.format(8) + "tensorrt-libs             8.6.1\n", "tensorrt_libs", "pip install"),
        ("toolkit is not ready\nError: error validating toolkit installation: exit status 12\n", "ldconfig.real", "LD_LIBRARY_PATH"),
        ("F0410 common.cpp:66] Cannot use GPU in CPU-only Caffe: check mode.\n", "set_mode_cpu", "doctor LOG"),
        (CONDA.format("2.1"), "version of torchaudio 2.1.0", "cudnn-resolve"),
        (CONDA.format("2.1"), "version of torchaudio 2.1.0", "pip install"),
        ("tensorrt-libs 8.6.1\nnvidia-cudnn-cu11 8.9.6.50\n" + NO_CUDNN, "nvidia/*/lib", "tensorrt_libs"),
        (WSL + "tensorrt-libs 8.6.1\nImportError: libcuda.so.1: cannot open shared object file\n", "/usr/lib/wsl/lib", "tensorrt_libs"),
        ("https://nvidia.github.io/x InRelease: NO_PUBKEY DDCAE044F796ECB0\ngpg: no valid OpenPGP data found", "/gpgkey", "s,http"),
        (STEP.format("x/transformers/trainer.py", "m, x, num_items_in_batch"), "transformers<4.46", "-U transformers"),
        (STEP.format("x/pytorch_lightning/strategy.py", "*args"), "lightning", "transformers<4.46"),
        ("dyld: Library not loaded: @rpath/CUDA.framework/Versions/A/CUDA\n", "build without CUDA", "sudo"),
        ("ImportError: dlopen(/x/a.so): Library not loaded: @rpath/libcuda.dylib\n", "build without CUDA", "nvidia-smi"),
        ("nvidia-580.76.05_1 (update) breaks installed pkg `nvidia-dkms-575.64_1'\n", "xbps-install -Su", "zypper"),
        (KERNEL, "zypper lr -u", "xbps"),
        (KERNEL, "zypper lr -u", "modprobe"),
        ("TypeError: Trainer.training_step() takes 3 positional arguments but 4 were given\n", "transformers<4.46", "-U transformers"),
        ("may need newer version of nvJitLink library\n", "nvidia-nvjitlink", "unset"),
        (f"{SEEN}clGetPlatformIDs() = -1001\n", "nvidia.icd", "OptiX"),
        ("[E] Static dimension mismatch while setting input shape.\n", "--minShapes", "CUDA_LAUNCH_BLOCKING"),
        ("[TRT] Supplied binding dimension [8,3] for x exceed min ~ max range\n", "--minShapes", "CUDA_LAUNCH_BLOCKING"),
        ("ImportError: Numba requires at least version 0.40.0 of llvmlite.\n", "numba llvmlite", "cudnn-resolve"),
        ("OSError: /v/lib/libllama.so: undefined symbol: ggml_backend_load_all\n", "grep -E 'llama", "cudnn-resolve"),
        ("nvlink fatal   : Input file 'a.a:b.o' newer than toolkit (124 vs 118) (target: sm_90)\n", "CMAKE_CUDA_COMPILER", "index"),
        ('There is no registered Platform called "CUDA"\n', "getPluginLoadFailures", "$ nvidia-smi\n"),
        ('clang-14: error: unable to execute command: Executable "ptxas" doesn\'t exist!\n', "--cuda-path", "XLA"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", "--mem-fraction-static", "driver"),
        ("ERROR: Package gpu command without GPU package installed (src/input.cpp:1)\n", "PKG_GPU=on", "doctor LOG"),
    ],
)
def test_a_remedy_is_for_what_is_at_fault(log: str, has: str, lacks: str) -> None:
    assert has in advice(log)
    assert lacks not in advice(log)


@pytest.mark.parametrize(
    "log",
    [
        "chmod: changing permissions of '/dev/nvidia0': Operation not permitted\n",
        "env: CUDA_VISIBLE_DEVICES=None\nepoch 1 done\n",
        "9: calling init: /usr/lib/x86_64-linux-gnu/libcuda.so.1\nTrue\n",
        SYSTEM + "Training finished.\n",
        "CUEW initialization failed: Error opening the library\nHIPEW initialization succeeded\n",
        "00:00.47  cycles | WARNING CUEW initialization failed: Error opening the library\nSaved: '/tmp/0001.png'\n",
        "NVML: cannot get fan speed, error 3 (not supported)\n",
        "20210406 22:10:44 Tip: reduce overclock if the share rate drops\n",
        "#0: GTX 1080, compute cap.: 6.1, ECC:  no, stat: compatible\n",
    ],
)
def test_a_neighbour_without_a_failure_stays_quiet(log: str) -> None:
    assert not [finding for finding in judged(log).findings if finding.severity != "info"]


SLOT = "x11-drivers/nvidia-drivers:0\n  (x11-drivers/nvidia-drivers-515.65.01:0/515::gentoo, installed)\n"
GONE = "01:00.0 VGA: NVIDIA Corporation GP104 [GeForce GTX 1070] (rev ff) (prog-if ff)\n        !!! Unknown header type 7f\n        "
HEADER = "Failed to import the CUDA driver interface, with an error message indicating that the version of your CUDA header does"
NO_DLL = "ImportError: DLL load failed: The specified module could not be found.\n"
SMI = "| NVIDIA-SMI 525.85.12    Driver Version: 525.85.12    CUDA Version: 12.0     |\n"
ALLOCATED = "I tensorflow/core/common_runtime/bfc_allocator.cc:1004] total_region_allocated_bytes_: 55115776"
HELD = "The following held packages will be changed:\n  {}\nE: Held packages were changed and -y was used.\n"
KEY = "curl -fsSL https://{} | apt-key add -\n/bin/sh: 1: apt-key: not found\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("/nix/store/ab-python3/lib/x.py\nOSError: libcuda.so.1: cannot open shared object file: No such file\n", "lib_not_on_path"),
        ("ImportError: /v/_pywrap_tensorflow_internal.so: undefined symbol: PyCMethod_New\n", "unrecognised"),
        ("a.cc:397] failed call to cuInit: CUresult(-1)\n", "driver_not_loaded"),
        ("tf-docker /app > python\na.cc:271] failed call to cuInit: UNKNOWN ERROR (34)\n", "container_gpu_not_passed"),
        ("NVIDIA GPU detected, but nvidia-smi is not installed. GPU acceleration will not be available.\n", "container_gpu_not_passed"),
        (f"{SMI}Cannot load libcuda.so.1\nConversion failed!\n", "lib_not_on_path"),
        (f"{ALLOCATED} memory_limit_: 55115776 available bytes: 0\nTraceback (most recent call last):\n", "out_of_memory"),
        (f"{HEADER} not match\nundefined symbol: cuFoo_v2\n", "driver_too_old"),
        ("run.py: error: argument --execution-provider: invalid choice: 'cuda' (choose from 'azure', 'cpu')\n", "cpu_only_build"),
        ("Error: C:\\Paddle\\paddle\\phi\\one_hot_kernel.cu:37 \nAssertion `p[i] >= 0 && p[i] < depth` failed.\n", "bad_input"),
        ("   └─ cudnn 8.2.1.* , which requires\n      └─ __glibc >=2.17,<3.0.a0 , which is missing on the system.\n", "glibc_too_old"),
        ("Unable to create plugin manager: nvml init failed: ERROR_LIBRARY_NOT_FOUND\n", "container_toolkit_missing"),
        (
            "bfc_allocator.cc:431] Allocator (GPU_0_bfc) ran out of memory\ntrying to allocate 2GiB requested by op Conv2D\n",
            "out_of_memory",
        ),
        (HELD.format("libnccl-dev libnccl2"), "apt_conflict"),
        (f"resulting in a slot conflict:\n\n{SLOT}", "apt_conflict"),
        ("FriendlyName   : NVIDIA GeForce RTX 2070\nProblem        : CM_PROB_UNSIGNED_DRIVER\n", "driver_not_loaded"),
        ("CudaSupportError: CUDA is disabled due to setting NUMBA_DISABLE_CUDA=1 in the environment, or because\n", "gpu_hidden_by_env"),
        ("libva info: requested driver 'nvidia'\nlibva info: va_openDriver() returns -1\n", "driver_incomplete"),
        ("kernel: traps: Missing ENDBR: _nv011446rm+0x0/0x10 [nvidia]\n", "other_bug"),
        (f"{GONE}Kernel driver in use: nvidia\n", "hardware_fault"),
        (HELD.format("kubeadm kubelet"), "unrecognised"),
        ("Error: Unable to find a match: nvidia-container-toolkit libcudnn9-cuda-12\n", "apt_conflict"),
        ("Failed to resolve the transaction:\nNo match for argument: cuda-toolkit-12-9\n", "apt_conflict"),
        (KEY.format("nvidia.github.io/nvidia-docker/gpgkey"), "apt_key"),
        (KEY.format("dl.google.com/linux/linux_signing_key.pub"), "unrecognised"),
        ("repomd.xml: [Errno -1] repomd.xml signature could not be verified for cuda-rhel7-x86_64\n", "apt_key"),
        ("Virtual package '__cuda >=12' does not match any of the available virtual packages on your machine\n", "driver_too_old"),
        ("The platform you are running on should at least have the virtual package __cuda on version 12\n", "driver_too_old"),
        ("libtorch =2.7.1 cuda129*, which requires\n __glibc >=2.28,<3.0.a0, which is missing on the system.\n", "glibc_too_old"),
        ("./nvtop: /lib/libc.so.6: version `GLIBC_ABI_DT_RELR' not found (required by ./nvtop)\n", "glibc_too_old"),
        ("This program can only be run on AMD64 processors with v3 microarchitecture support.\n", "cpu_without_avx"),
        ("OSError: /v/libtorch_cpu.so: cannot enable executable stack as shared object requires: Permission denied\n", "other_bug"),
        ("CMake Error (message):\n  Found two conflicting CUDA installs:\n", "toolkit_build_mismatch"),
        ("    #0: NVIDIA A100, compute cap.: 8.0, ECC: yes, stat: unavailable\n0, Exclusive_Process\n", "gpu_exclusive_mode"),
        ("jit_optix_api_init(): could not initialize OptiX!\n", "driver_incomplete"),
        ("factory.go:87] Incompatible strategy detected auto\n", "container_toolkit_missing"),
        ("$ docker exec plex ffmpeg\n[AVHWDeviceContext @ 0x55] Cannot load libcuda.so.1\n", "container_gpu_not_passed"),
        ("Error: Cannot perform the requested operation because NVML doesn't exist on this system.\n", "driver_not_loaded"),
        ("==> ERROR: module not found: `nvidia_modeset'\n", "driver_not_loaded"),
        (
            "NVRM: kgspBootGspRm_TU102: unexpected WPR2 already up\nNVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2023)\n",
            "driver_wedged",
        ),
        ("nvidia 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible\n", "hardware_fault"),
        ("soctherm: OC ALARM 0x00000001\n", "hardware_fault"),
        ("NVRM: Can't find an IRQ for your NVIDIA card!\n", "hardware_fault"),
        ("VIDEO_TDR_FAILURE (116) nvlddmkm.sys\n", "hardware_fault"),
        ("Failed to create GPU instances: Insufficient Resources\n", "unrecognised"),
        (
            'NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":965\n',
            "out_of_memory",
        ),
    ],
)
def test_systems_and_package_managers_are_understood(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


def test_dnf_is_not_told_what_apt_does() -> None:
    said = advice("Error: Unable to find a match: libcudnn8-8.6.0.163-1.cuda11.8\n")
    assert "dnf list --showduplicates" in said
    assert "apt" not in said


OPENACC = "Accelerator Fatal Error: This file was compiled: -acc=gpu -gpu=cc80\nRebuild this file with -gpu=cc{} to use NVIDIA GPU\n"
NO_GPUS = 'level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"\n'
LIBMAMBA = "    └─ python 3.12**  is not installable because it conflicts with any "


IRAY = "rend warn : CUDA device 0"
CYCLES = "CUDA binary kernel for this graphics card compute capability ({}) not found.\n"
DYNAMIC = 'Unable to dynamically load the "cuda" shared library - searched for library names: ["cuda", "nvcuda"].\n'
WEBUI = (
    "This program is tested with 3.10.6 Python, but you have 3.12.0.\n"
    'If you encounter an error with "RuntimeError: Couldn\'t install torch." message,\n'
    "Launching Web UI\nRuntimeError: Couldn't install torch.\n"
)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (OPENACC.format(100), "gpu_arch_too_new_for_build"),
        (OPENACC.format(70), "gpu_arch_too_old_for_build"),
        ("This file was compiled: -ta=tesla:cc35,cc60\nRebuild this file with -ta=tesla:cc70 to use NVIDIA", "gpu_arch_too_new_for_build"),
        ("ERROR: GPU library not compiled for this accelerator (src/GPU/gpu_extra.h:41)\n", "gpu_arch_too_new_for_build"),
        ("ERROR: Could not find/initialize a specified accelerator device (src/GPU/gpu_extra.h:57)\n", "driver_not_loaded"),
        ("updater_gpu_hist.cu:787: Check failed: ctx_->gpu_id >= 0 (-1 vs. 0) : Must have at least one device\n", "driver_not_loaded"),
        ("RTX 5090 GPU (compute capability 12.0) is not fully supported by CUDA 12.6.3.\n", "gpu_arch_too_new_for_build"),
        ("clang: error: GPU arch sm_90 is supported by CUDA versions between 11.8 and 12.3\n", "gpu_arch_too_new_for_build"),
        ('RuntimeError: Function "cuDeviceGetDevResource" not found\n', "driver_too_old"),
        ("由于找不到 zlibwapi.dll 无法继续执行代码。\n", "zlib_missing"),
        ("由于找不到 MSVCP140_1.dll 无法继续执行代码。\n", "windows_runtime_missing"),
        ("nothing provides __glibc >=2.28,<3.0.a0 needed by libcudf-25.04.00\n", "glibc_too_old"),
        ("undefined reference to `__nvJitLinkCreate_12_5@libnvJitLink.so.12'\n", "nvjitlink_mix"),
        ("sh: 1: ptxas: not found\n", "ptxas_or_libdevice_missing"),
        ("code=54 exclusive-thread device already in use by a different thread\n", "gpu_exclusive_mode"),
        ("SoftmaxMultiClassObj: label must be in [0, num_class).\n", "bad_input"),
        ("You should always run with libnvidia-ml.so that is installed with your\n", "ld_path_shadowing"),
        ("error: 'cudnnSetRNNDescriptor_v6' was not declared; did you mean 'cudnnSetRNNDescriptor_v8'?\n", "cudnn_too_new_for_framework"),
        ("$ docker run -d --name ollama ollama/ollama\n" + NO_GPUS, "container_gpu_not_passed"),
        (NO_GPUS, "driver_not_loaded"),
        (LIBMAMBA + "installable versions previously reported.\n", "pip_wheel_unavailable_for_python"),
        ("Failed to create CUDA context (No CUDA-capable device is detected)\n", "driver_not_loaded"),
        ("CUEW initialization failed: Error opening the library\n", "driver_not_loaded"),
        ("OptiX initialization failed because driver does not support ABI version 41\n", "driver_too_old"),
        ("OptiX initialization failed with error code 7804\n", "driver_incomplete"),
        ("CUDADriverVersion::nodriver: CUDALink was not able to locate the NVIDIA driver binary.\n", "driver_not_loaded"),
        (f"{IRAY} (RTX 5090): compute capability 12.0: unsupported by this version of iray\n", "gpu_arch_too_new_for_build"),
        (f"{IRAY} (Quadro K2000): compute capability 3.0: unsupported by this version of iray\n", "gpu_arch_too_old_for_build"),
        (CYCLES.format("3.0"), "gpu_arch_too_old_for_build"),
        (CYCLES.format("8.6"), "gpu_arch_too_new_for_build"),
        ("#0: Quadro 4000, compute cap.: 2.0, ECC:  no, stat: incompatible\nno GPU is detected.\n", "gpu_arch_too_old_for_build"),
        ("ValueError: unresolved issues with devices with GPU compute capability less than 6.0.\n", "gpu_arch_too_old_for_build"),
        ("[AVFilterGraph @ 0x5] No such filter: 'scale_npp'\nError opening filters!\n", "cpu_only_build"),
        ("ImageCloneCalculator: GPU processing is disabled in build flags\n", "cpu_only_build"),
        ("ERROR: pair style 'x/kk' is part of the KOKKOS package which is not enabled in this LAMMPS binary.\n", "cpu_only_build"),
        ("skcuda.cufft.cufftAllocFailed\n", "out_of_memory"),
        ("OPTIX_ERROR_DEVICE_OUT_OF_MEMORY in optixAccelBuild\n", "out_of_memory"),
        (" *** caught illegal operation ***\naddress 0x7f, cause 'illegal operand'\n", "cpu_without_avx"),
        (" *** caught segfault ***\naddress 0x7f, cause 'memory not mapped'\n", "unrecognised"),
        ("  C:\\R\\torch\\lib\\lantern.dll - The specified module could not be found.\n", "windows_runtime_missing"),
        ("NVML: cannot get current temperature, error 15\n", "hardware_fault"),
        ("NVML: can't get fan speed for GPU #2, error code 999\n", "driver_wedged"),
        ("CUDA_ERROR_LAUNCH_FAILED, try to reduce overclock to stabilize GPU state\n", "hardware_fault"),
        ("[F glutil.cpp:338] eglInitialize() failed\n", "driver_incomplete"),
        ("[LightGBM] [Fatal] No OpenCL device found\n", "driver_incomplete"),
        (DYNAMIC, "driver_not_loaded"),
        ("me@DESKTOP-1A2B3C4:~$ ./tts\n" + DYNAMIC, "lib_not_on_path"),
        (SYSTEM + "ERROR: CUBLASError: the library was not initialized (CUBLAS_STATUS_NOT_INITIALIZED)\n", "ld_path_shadowing"),
    ],
)
def test_a_program_s_own_words_name_the_cause(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        ("error: use of undeclared identifier 'ncclCommInitRankConfig'\n", "nccl.h", "pip list"),
        ("#error This file was generated by a newer version of protoc which is\n", "type -a protoc", "pip install"),
        ("CMake Error\n  Found two conflicting CUDA installs:\n", "CPATH", "wheel"),
        ("pycuda._driver.LogicError: cuModuleGetFunction failed: named symbol not found\n", 'extern "C"', "compute_cap"),
        ("Error: this tch version expects PyTorch 2.1.0, got 1.13.1, this check can\n", "LIBTORCH", "cudnn-resolve apply"),
        ("Unknown encoder 'h264_nvenc'\n", "CUDA build of this program", "doctor LOG"),
        ("CUDA_ERROR_LAUNCH_FAILED, try to reduce overclock to stabilize GPU state\n", "clocks back", "unset"),
        (WEBUI, "3.10 for web UIs", "index"),
    ],
)
def test_a_remedy_of_a_build_is_for_that_build(log: str, has: str, lacks: str) -> None:
    assert has in advice(log)
    assert lacks not in advice(log)


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (
            "    import dropout_layer_norm\nImportError: libtorch_cuda_cu.so: cannot open shared object file\n",
            "framework_pkg_mismatch",
            "from source",
        ),
        (
            '  File "a.py", line 1, in x\n    with safe_open(file) as f:\nOSError: No such device (os error 19)\n',
            "unrecognised",
            "local disk",
        ),
        (f'> python -c "import pycuda._driver"\n{NO_DLL}', "lib_not_on_path", "add_dll_directory"),
        (
            f'import pycuda.driver\n  File "C:\\\\v\\\\site-packages\\\\h5py\\\\a.py", line 1\n{NO_DLL}',
            "windows_runtime_missing",
            "Redistributable",
        ),
        ("unable to create plugin manager: nvml init failed: ERROR_LIBRARY_NOT_FOUND\n", "container_toolkit_missing", "runtimeClassName"),
        (
            "    import flash_attn_2_cuda\nImportError: libc10.so: cannot open shared object file\n",
            "framework_pkg_mismatch",
            "matching releases",
        ),
    ],
)
def test_a_module_that_does_not_load_gets_its_own_step(log: str, cause: str, step: str) -> None:
    assert judged(log).findings[0].cause == cause
    assert step in advice(log)
