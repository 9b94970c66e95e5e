"""One wording, and what beside it decides the cause or the step."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.remedy_machine import in_shell
from tests.written_logs import judged, loud

NVRTC = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
NUMBA = "numba.cuda.cudadrv.driver.CudaAPIError: [222] Call to cuLinkAddData results in UNKNOWN_CUDA_ERROR\n"
FRAME = '  File "/opt/conda/envs/a/lib/python{}/site-packages/numba/cuda/cudadrv/driver.py", line 2683, in add_ptx\n'
STUB = "Ignore above cudart dlerror if you do not have a GPU set up on your machine.\n"
CUT = 'Traceback (most recent call last):\n  File "demo.py", line 9, in <module>\n    main()\n'
XLA = "Failed to determine best cudnn convolution algorithm for:\n%c = custom-call(%p), metadata={}\nDNN library is not found.\n"
DLL = "ImportError: DLL load failed: A dynamic link library (DLL) initialization routine failed.\n"
LOADED = "    _mod = imp.load_module('_pywrap_tensorflow_internal', fp, pathname, description)\n"
CUPY = '  File "/v/lib/python3.12/site-packages/cupy/cuda/compiler.py", line 731, in compile\n'
NO_CODE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
PRINTED = ">>> torch.cuda.get_device_capability()\n({})\n>>> torch.cuda.get_arch_list()\n[{}]\n" + NO_CODE
FOUND = "UserWarning: Found GPU0 {} which is of compute capability (CC) {}.\nThe following list shows the CCs this version was built for\n"
GEMM = "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa)`\n"
LISTED = "GPU 0: NVIDIA RTX A4000 (UUID: GPU-b2b7)\n"
SAVED = "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.\n"
LAYER = "F0912 14:07:35.655189  7723 roi_pooling_layer.cu:91] Check failed: error == cudaSuccess (8 vs. 0)  invalid device function\n"
BESIDE = "$ docker compose up\nweb-1  | W cuda_driver.cc:269] failed call to cuInit: UNKNOWN ERROR (303)\n$ nvidia-smi -L\n"
NO_FILE = "I cuda_diagnostics.cc:163] no NVIDIA GPU device is present: /dev/nvidia0 does not exist\n"
MMCV = '  File "/e/lib/python3.8/site-packages/mmcv/utils/ext_loader.py", line 13, in load_ext\nImportError: libcudart.so.10.2: cannot open'
MMCV += " shared object file: No such file or directory\n"
NO_PLACE = 'File "E:\\Python37\\lib\\site-packages\\paddle\\fluid\\framework.py", line 3, in f\nAssertionError: Not compiled with CUDA\n'
OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[3,512] and type float by allocator GPU_0_bfc\n"
ON_HOST = "OOM when allocating tensor with shape[3,512] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu\n"
PTXAS = "E0103 16:41:38.4 22 a.cc:87] *** WARNING *** Invoking ptxas with version 12.1.66, which corresponds to a CUDA version"
PTXAS += " <=12.6.2. CUDA versions 12.x.y up to 12.6.2 miscompile.\nPlease upgrade to CUDA 12.6.3 or newer.\n"
IPYTHON = "/v/lib/python3.9/site-packages/cudf/utils/gpu_utils.py in f()\n     18     from cuda.cudart import cudaError_t\n"
CONFLICT = "Additionally, some packages in these conflicts have no matching distributions available for your environment:\n    {}\n\n"
CONFLICT += "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io\n"
PINNED = (
    "ERROR: Cannot install torch==2.5.1 and nvidia-cublas-cu12==12.1.3.1 because these package versions have conflicting dependencies.\n\n"
)
PINNED += "The conflict is caused by:\n    torch 2.5.1 depends on nvidia-cublas-cu12==12.4.5.8\n\n" + CONFLICT.format("nvidia-cublas-cu12")
PADDLE = "ERROR: Could not find a version that satisfies the requirement paddlepaddle-gpu==2.3.2.post112 (from versions: 2.3.1, 2.3.2)\n"
PADDLE += "ERROR: No matching distribution found for paddlepaddle-gpu==2.3.2.post112\n"
NO_SWITCH = (
    "nv-fabricmanager[1]: request to query NVSwitch device information from NVSwitch driver failed with error:[NV_WARN_NOTHING_TO_DO]\n"
)
SECCOMP = (
    "OCI runtime create failed: starting container process caused: error adding seccomp filter rule for syscall clone3: permission denied\n"
)


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (f"ResourceExhaustedError: {ON_HOST}", "unrecognised", "system memory"),
        (f"W op_kernel.cc:993] Resource exhausted: {ON_HOST}{OOM}", "out_of_memory", "GPU"),
        ("INTERNAL: Failed to update CUDA graph: CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE\n", "other_bug", "command_buffer="),
        (f"Step 1/20 : FROM nvcr.io/nvidia/l4t-base:r32.5.0\n{SECCOMP}", "other_bug", "nvidia-docker2=2.8.0-1"),
        (f"docker: Error response from daemon: {SECCOMP}", "other_bug", "libseccomp2"),
        ("NvRmMemInitNvmap failed with No such file or directory\n", "container_gpu_not_passed", "--runtime nvidia"),
        ("NvRmMemInitNvmap failed: error Permission denied\n", "unrecognised", "usermod -aG video"),
        ("ImportError: /a/libgomp.so.1: cannot allocate memory in static TLS block\n", "unrecognised", "LD_PRELOAD=/a/libgomp.so.1"),
        (f"{IPYTHON}---> 19     from rmm import (\n\nValueError: x\n", "unrecognised", "cudf raised"),
        ("1 GPU\n2 RuntimeError: CUDA error: out of memory\n--> 3 done\n", "out_of_memory", "GPU"),
        (CONFLICT.format("nvidia-cudnn-cu11"), "pip_pin_unavailable", "nvidia-cudnn-cu11"),
        (CONFLICT.format("transformers"), "unrecognised", ""),
        (PINNED, "apt_conflict", "torch==2.5.1"),
        (f"{PTXAS}{CUT[:74]}", "ptxas_or_libdevice_missing", "which -a ptxas"),
        (f"{PTXAS}{CUT}KeyError: 'x'\n", "unrecognised", ""),
        ("ImportError: libtorch_cuda.so: failed to map segment from shared object\n", "unrecognised", "findmnt"),
        ("OSError: libcudnn.so.8: failed to map segment from shared object: Cannot allocate memory\n", "unrecognised", "findmnt"),
        ("h:1:2 [0] ibvwrap.c:130 NCCL WARN Call to ibv_create_qp failed\n", "unrecognised", "ulimit -l"),
        (PADDLE, "pip_pin_unavailable", "-f https://www.paddle"),
        ("a/horovod/torch/mpi_lib_v2.so: undefined symbol: _ZN2at6detail20dynamicCUDAHooksE\n", "framework_pkg_mismatch", "Horovod"),
        ("PermissionError: [WinError 32] The process cannot access the file: 'a.exe'\n", "unrecognised", "virus scanner"),
        ("storage.cc:118: Compile with USE_CUDA=1 to enable GPU usage\n", "cpu_only_build", "mxnet-cu"),
        (
            'File "/v/vllm/config/device.py", line 78, in f\n    self.device = f(a)\nRuntimeError: Device string must not be empty\n',
            "driver_not_loaded",
            "libcuda.so",
        ),
    ],
)
def test_the_first_step_is_of_this_failure(log: str, cause: str, step: str) -> None:
    first = judged(log).findings[0]
    assert first.cause == cause
    assert step in " ".join(f"{one.text} {one.command}" for one in first.remedy[:2])


@pytest.mark.parametrize(
    "log",
    [
        f"{NO_SWITCH}nvidia-fabricmanager.service: Failed with result 'exit-code'.\n",
        f"{PTXAS}step 100 loss 0.3\n",
        "* fix: cudaErrorGraphExecUpdateFailure is handled by instantiating the graph again\n",
    ],
)
def test_a_warning_that_stops_nothing_stays_quiet(log: str) -> None:
    assert not loud(judged(log))


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("[ERROR] failed to configure all the available GPUs or NVSwitches\n", "fabric_manager_missing"),
        ("#0  0x00007f1234567890 in nvmlInit_v2 () from /usr/lib/wsl/lib/libnvidia-ml.so.1\n", "other_bug"),
        (NVRTC, "gpu_arch_too_new_for_build"),
        ("NVRTC Version                : (13, 0)\n" + NVRTC, "gpu_arch_too_old_for_build"),
        ("NVRTC Version                : (12, 2)\n" + NVRTC, "gpu_arch_too_new_for_build"),
        (NVRTC + "Options: -I/usr/local/cuda-13.0/include -ftz=true -arch=compute_61\n", "gpu_arch_too_old_for_build"),
        (NVRTC + "Options: -I/usr/local/cuda-12.2/include -ftz=true -arch=compute_61\n", "gpu_arch_too_new_for_build"),
        ("E cuda_blas.cc:428] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n", "gpu_arch_too_new_for_build"),
        ("E cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n", "out_of_memory"),
        ("CUDA error 304 at /home/u/.llamafile/ggml-cuda.cu:60: OS call failed or operation not supported on this OS\n", "other_bug"),
        ("CUDA error 304 at /tmp/x/ggml-cuda.cu:60: OS call failed or operation not supported on this OS\n", "driver_wedged"),
        (LOADED + '  File "imp.py", line 242, in load_module\n  File "imp.py", line 342, in load_dynamic\n' + DLL, "cpu_without_avx"),
        (LOADED.replace("tensorflow", "other") + DLL, "windows_runtime_missing"),
        (STUB + CUT, "unrecognised"),
        (CUT + STUB, "harmless"),
        (STUB + CUT + "1875/1875 [==============================] - 3s 2ms/step\n", "harmless"),
        ("reservations value Additional properties are not allowed ('devices' was unexpected)\n", "unrecognised"),
        ("/bin/sh: 1: apt-key: not found\nThe command '/bin/sh -c apt-key add developer.download.nvidia.com/a' returned 127\n", "apt_key"),
        (PRINTED.format("8, 6", "'sm_37', 'sm_70', 'sm_75'"), "gpu_arch_too_new_for_build"),
        (PRINTED.format("6, 1", "'sm_75', 'sm_80', 'sm_120'"), "gpu_arch_too_old_for_build"),
        (FOUND.format("NVIDIA GeForce RTX 5060 Ti", "12.0"), "gpu_arch_too_new_for_build"),
        (FOUND.format("Tesla V100-SXM2-16GB", "7.0"), "gpu_arch_too_old_for_build"),
        ("PyTorch version: 1.6.0+cu101\nGPU 0: GeForce RTX 3090\n" + GEMM, "gpu_arch_too_new_for_build"),
        ("CUDA used to build PyTorch: 10.2\n" + GEMM, "gpu_arch_too_new_for_build"),
        ("PyTorch version: 2.1.0+cu121\nGPU 0: GeForce RTX 3090\n" + GEMM, "out_of_memory"),
        (LAYER + "GPU 0: GeForce GTX 1080 (UUID: GPU-2d1c)\n", "gpu_arch_too_new_for_build"),
        (LISTED + "export CUDA_VISIBLE_DEVICES=1\n" + SAVED, "gpu_hidden_by_env"),
        (LISTED + LISTED.replace("0", "1") + "export CUDA_VISIBLE_DEVICES=1\n" + SAVED, "cpu_only_build"),
        (NO_FILE, "container_gpu_not_passed"),
        (BESIDE + LISTED, "container_gpu_not_passed"),
        ("Intel(R) Core(TM) i7 CPU         920  @ 2.67GHz\n" + DLL, "cpu_without_avx"),
        ("Intel(R) Core(TM) i7-9700K CPU @ 3.60GHz\n" + DLL, "windows_runtime_missing"),
        ("E cuda_blas.cc:9] libcublas.so.10: failed to run cuBLAS routine: CUBLAS_STATUS_NOT_SUPPORTED\n", "gpu_arch_too_new_for_build"),
        ("AttributeError: module 'google._upb._message' has no attribute 'Message'\n", "protobuf_abi"),
    ],
)
def test_what_stands_beside_it_decides(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


WELL = [
    "Successfully configured all the available GPUs and NVSwitches to route NVLink traffic.\n",
    STUB,
    FOUND.format("Orin", "8.7"),
]


@pytest.mark.parametrize("log", WELL)
def test_what_went_well_is_not_reported(log: str) -> None:
    assert not [one for one in judged(log).findings if one.severity != "info"]


@pytest.mark.parametrize(
    ("log", "step"),
    [
        (XLA.replace("{}", '{source_file="/v/lib/python3.7/dist-packages/keras/layers/base_conv.py"}'), "apply -f tensorflow"),
        (XLA.replace("{}", '{op_name="jit(f)/conv"}'), "apply -f jax"),
        (FRAME.format("3.11") + NUMBA, "numba-cuda"),
        (f"NVRTC Version                : (13, 0)\n{CUPY}{NVRTC}", "cupy-cuda12x"),
        ("Limit:                    39190528\n" + OOM, "the limit shows how little"),
        ("ModuleNotFoundError: No module named 'keras'\n", "from tensorflow import keras"),
        ("E tensorflow/x/cuda_blas.cc:4] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n", "nvidia-tensorflow"),
        (LAYER + "GPU 0: GeForce GTX 1080 (UUID: GPU-2d1c)\n", "sm_61"),
        (NO_FILE, "nvidia-modprobe"),
        (NO_PLACE, 'install "paddlepaddle-gpu<3"'),
        ("allocating 144.00 MiB on device 4: cudaMalloc failed: out of memory\nllama_new_context_with_model: failed\n", "tensor_split"),
        ("    from adet import _C\nImportError: libc10_cuda.so: cannot open shared object file: No such file\n", "build the extension"),
        ("EP Error Unknown Provider Type: cuda when using ['cuda']\n", "CUDAExecutionProvider"),
        ("ImportError: dlopen(/a/_C.cpython-36m-darwin.so, 10): Symbol not found: _PySlice_AdjustIndices\n", "update a Python 3.6.0"),
        ("- **PyTorch:** 2.9.1+cu130\n- **GPU:** NVIDIA GeForce GTX 1080 Ti\n" + NO_CODE[14:], "apply -f torch"),
        ("OS: Windows-11-10.0.26200-SP0\nGPU: NVIDIA GeForce GTX 1080 Ti\nPyTorch: 2.9.1+cu130\n" + NO_CODE, "/whl/cu126"),
        ("xgboost.core.XGBoostError: [10:1] c.cuh:431: bad_alloc: cudaErrorMemoryAllocation: out of memory\n", "max_bin"),
        ("ValueError: Layer #3, weight k has shape (1024, 24), but the saved weight has shape (1024, 8).\n", "create the model"),
    ],
)
def test_what_stands_beside_it_is_what_the_step_is_for(log: str, step: str) -> None:
    assert step in " ".join(f"{one.text} {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "step"),
    [
        (FRAME.format("3.7") + NUMBA, "numba-cuda"),
        ("Limit:                  7226148352\n" + OOM, "the limit shows how little"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "XGBoost"),
        (MMCV + "torch                 1.9.0+cu111\n", "torch.version.cuda"),
        ("But your machine only has: []\n_pytorch_select           0.1                       cpu_0\n", "nvidia-smi -L"),
        (LISTED.join(("web-1  | ", "web-1  | torch.OutOfMemoryError: CUDA out of memory.\n")), "reserve the GPU"),
        ("ModuleNotFoundError: No module named 'keras_tuner'\n", "from tensorflow import keras"),
    ],
)
def test_a_step_for_something_else_is_left_out(log: str, step: str) -> None:
    assert step not in " ".join(f"{one.text} {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "step"),
    [
        ("ImportError: libx.so.4: cannot enable executable stack as shared object requires: Invalid argument\n", "nvidia-smi -q"),
        ("CUDA error 304 at /home/u/.llamafile/ggml-cuda.cu:60: OS call failed\n", "nvidia-smi -q"),
        ("$ curl https://nvidia.github.io/x/gpgkey | sudo apt-key add -\nsudo: apt-key: command not found\n", "disable that"),
        ("error: use of undeclared identifier 'ncclCommInitRankConfig'\n", "$(find"),  # without a header, grep would read from the terminal
        ("The program can't start because MSVCP120.dll is missing from your computer.\n", "2015"),
        (
            "numba.cuda.cudadrv.error.NvvmSupportError: libNVVM cannot be found.\n/a/libnvvm.so: cannot open\n",
            "CUDA release that this program",
        ),
        ("E tensorflow/a.cc:1] this)failed with error CUPTI could not be loaded or symbol could not be found.\n", "/nvidia/"),
    ],
)
def test_no_step_is_of_another_failure(log: str, step: str) -> None:
    assert judged(log).findings[0].remedy
    assert step not in " ".join(f"{one.text} {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("where zlibwapi.dll", "where.exe zlibwapi.dll"),
        ("conda list a & where /r C:\\ b.dll", "conda list a; where.exe /r C:\\ b.dll"),
        ("unset A_B", '$env:A_B=""'),
        ("set A_B=0&& pip list", '$env:A_B="0"; pip list'),
        ('set A_B=--c="%DIR%"', '$env:A_B="--c=`"$env:DIR`""'),
        ("set A_B=%ProgramFiles%\\C D", '$env:A_B="$env:ProgramFiles\\C D"'),
        ('(if not exist C:\\t mkdir C:\\t) && set "A_B=C:\\t"', 'mkdir -Force C:\\t; $env:A_B="C:\\t"'),
    ],
)
def test_a_command_for_cmd_is_written_for_powershell(command: str, shown: str) -> None:
    assert in_shell(command, ("powershell",), windows=True) == shown


NO_NVCC = "CMake Error at CMakeLists.txt:4 (project):\n  No CMAKE_CUDA_COMPILER could be found.\n"
NO_HEADER = "csrc/ops.cu:3:10: fatal error: cudnn.h: No such file or directory\n    3 | #include <cudnn.h>\ncompilation terminated.\n"
VLLM = "RuntimeError: Failed to infer device type\n$ pip list | grep torch\ntorch      {}\n"
IS_STUB = "Failed to allocate device vector A (error code CUDA driver is a stub library)!\n$ ls /dev/nvidia*\n"
NO_DEVICE = (
    "$ kubectl logs a\nRuntimeError: No CUDA GPUs are available\n$ kubectl exec a -- env\nNVIDIA_VISIBLE_DEVICES={}\n  nvidia.com/gpu:  4\n"
)
IN_LXC = "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error\nlxc.mount.entry: /dev/nvidia{0} dev/nvidia{0} none bind\n"
HANDLE = "$ nvidia-smi\nUnable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\n"
GLIBC = "UnsatisfiableError: The following specifications were found to be incompatible with your system:\n\n"
GLIBC += "  - feature:/linux-64::__glibc=={}=0\n  - pytorch=2.6 -> __glibc[version='>=2.28,<3.0.a0']\n"
NOT_FOUND = "CMake Error: The following variables are used in this project, but they are set to NOTFOUND.\nCUDA_{}_LIBRARY (ADVANCED)\n"
PROBED = (
    "AutoBatch: Computing optimal batch size for --imgsz 640\nCUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 7.79 GiB total)\n"
)
CHOSEN = "AutoBatch: Using batch-size 22 for CUDA:0 6.9G/7.8G (88%)\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (NO_NVCC + "$ find / -name nvcc\n/usr/local/cuda-11.8/bin/nvcc\n", "lib_not_on_path"),
        (NO_NVCC + "$ ls /opt/cuda/bin | grep nvcc\nnvcc\n", "lib_not_on_path"),
        (NO_NVCC + "$ ls /opt/cuda/bin/nvcc\nls: cannot access '/opt/cuda/bin/nvcc': No such file or directory\n", "cuda_runtime_missing"),
        (NO_HEADER + "$ find / -name cudnn.h\n/e/nvidia/cudnn/include/cudnn.h\n", "lib_not_on_path"),
        (NO_HEADER + "$ cp a/cudnn.h /opt/include/cudnn.h\ncp: cannot stat 'a/cudnn.h': No such file or directory\n", "cudnn_missing"),
        (NO_HEADER + "$ find / -name cudnn.h\n", "cudnn_missing"),
        (VLLM.format("2.7.0+cpu"), "cpu_only_build"),
        (VLLM.format("2.7.0+cu126"), "driver_not_loaded"),
        (
            "root@0a1b2c3d4e5f:/# ./a\n" + IS_STUB + "ls: cannot access '/dev/nvidia*': No such file or directory\n",
            "container_gpu_not_passed",
        ),
        ("root@0a1b2c3d4e5f:/# ./a\n" + IS_STUB + "/dev/nvidia0\n", "ld_path_shadowing"),
        (NO_DEVICE.format("void"), "container_gpu_not_passed"),
        (IN_LXC.format("0"), "container_gpu_not_passed"),
        (IN_LXC.partition("lxc")[0], "driver_wedged"),
        ("[ 9130.1] PM: suspend exit\n" + HANDLE, "driver_wedged"),
        ("[ 9130.1] PM: suspend exit\nNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n" + HANDLE, "hardware_fault"),
        (HANDLE, "hardware_fault"),
        (GLIBC.format("2.17"), "glibc_too_old"),
        (GLIBC.format("2.31"), "apt_conflict"),
        (NOT_FOUND.format("cublas_device"), "other_bug"),
        (NOT_FOUND.format("nppi"), "other_bug"),
        ("E: Unable to locate package nvidia-container-toolkit\n", "container_toolkit_missing"),
        ("E: Unable to locate package libcudnn9-cuda-12\n", "apt_conflict"),
        (PROBED + "Killed\n", "out_of_memory"),
        (PROBED + CHOSEN + PROBED.splitlines()[-1] + "\n", "out_of_memory"),
    ],
)
def test_what_a_log_lists_and_reports_later_parts_the_causes_of_one_message(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


def test_a_batch_size_that_is_found_by_trying_needs_no_repair() -> None:
    assert not loud(judged(PROBED + CHOSEN))
    assert loud(judged(PROBED + CHOSEN + PROBED.splitlines()[-1] + "\n"))
