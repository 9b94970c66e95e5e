"""Rare words of frameworks and of programs beside them lead to a cause and to a step of their own; neighbours stay quiet."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.test_rows import advice
from tests.written_logs import judged

TCNN = "OSError: Unknown compute capability. Specify the target compute capabilities in the TCNN_CUDA_ARCHITECTURES environment variable\n"
METAL = "errors_impl.NotFoundError: dlopen(/Users/u/lib/python3.10/site-packages/tensorflow-plugins/libmetal_plugin.dylib, 0x0006): "
PROTOBUF = "[libprotobuf FATAL google/protobuf/common.cc:61] This program requires version 3.0.0 of the Protocol Buffer runtime library"
DUPLICATE = "ncclInvalidUsage: This usually reflects invalid usage\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000\n"
NO_TPU = "XlaRuntimeError: ABORTED: The TPU is already in use by process with pid 7. Not attempting to load libtpu.so in this process.\n"
BNB = "UserWarning: WARNING: No libcudart.so found! Install CUDA or the cudatoolkit package (anaconda)!\n"
BNB += "CUDA SETUP: Highest compute capability among GPUs detected: 8.0\n"
BNB += "AttributeError: /v/bitsandbytes/libbitsandbytes_cpu.so: undefined symbol: cget_col_row_stats\n"
CUSOLVER = (
    "I dso_loader.cc:49] Successfully opened dynamic library libcudart.so.11.0\n"
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library 'libcusolver.so.10'; dlerror:"
    " libcusolver.so.10: cannot open shared object file: No such file or directory\n"
)
PRELOAD = "UserWarning: cuDNN library could not be preloaded.\nReason: ImportError (libcudnn.so.8: cannot open shared object file)\n"


@pytest.mark.parametrize(
    ("log", "cause", "step"),
    [
        (BNB, "cuda_runtime_missing", ""),
        (CUSOLVER, "cuda_runtime_missing", "CUDA 11.0"),
        ("/usr/include/c++/11/bits/std_function.h:5:1: error: parameter packs not expanded with '...':\n", "other_bug", "ccbin"),
        ("AssertionError: If capturable=False, state_steps should not be CUDA tensors.\n", "other_bug", "1.12.1"),
        ("RuntimeError: Resource exhausted: Out of memory while trying to allocate 198614 bytes.\n", "out_of_memory", ""),
        ("RuntimeError: nvjpeg error (5): The user-provided allocator functions, for memory allocation\n", "out_of_memory", ""),
        ("RuntimeError: Missing libdevice file for compute_61.\n", "ptxas_or_libdevice_missing", "numba"),
        ("Config use_gpu cannot be set as true while you are\n  using paddlepaddle cpu version !\n", "cpu_only_build", "paddlepaddle-gpu"),
        ("Out[4]: OrderedDict([('is_cuda_build', False), ('is_rocm_build', False)])\n", "cpu_only_build", ""),
        ("Fatal error:\nCannot compute on a GPU, because mdrun was compiled without GPU support\n", "cpu_only_build", "GMX_GPU"),
        ("gpu.go:139: INFO CUDA GPU is too old. Compute Capability detected: 3.5\n", "gpu_arch_too_old_for_build", "Ollama"),
        ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'\n", "unrecognised", "single precision"),
        ("RuntimeError: \"triu_tril_cuda_template\" not implemented for 'BFloat16'\n", "unrecognised", "2.1"),
        ("[LightGBM] [Info] This is the GPU trainer!!\n[LightGBM] [Fatal] No OpenCL device found\n", "driver_incomplete", "OpenCL"),
        ("LightGBMError: Check failed: best_split_info.left_count > 0 at /s/serial_tree_learner.cpp, line 7 .\n", "other_bug", "lightgbm"),
        ("ERROR (t:SelectGpuId():cu-device.cc:121) Failed to create CUDA context, no more unused GPUs\n", "gpu_exclusive_mode", "mode"),
        ("ERROR (t:AllocateNewRegion():cu-allocator.cc:5) Failed to allocate a memory region of 82 bytes.\n", "out_of_memory", "memory"),
        ("XGBoostError: Memory allocation error on worker 0: bad allocation\n- Free memory: 1\n", "out_of_memory", "memory"),
        ("RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.\n", "out_of_memory", "memory"),
        ("#17 21.44   " + TCNN, "container_gpu_not_passed", "TCNN_CUDA_ARCHITECTURES="),
        ("  CUDA backend for DNN module requires CC 5.3 or higher.  Please remove\n", "gpu_arch_too_old_for_build", "OPENCV_DNN_CUDA"),
        ("AssertionError: fp8e4nv data type is not supported on CUDA arch < 89\n", "gpu_arch_too_old_for_build", "newer GPU"),
        ("NotImplementedError: ImageCloneCalculator: ; GPU processing is disabled in build flags\n", "cpu_only_build", "Delegate.CPU"),
        ("ImportError: cannot import name 'gpu_rnnt' from 'warp_rnnt'\n", "cpu_only_build", "CUDA_HOME"),
        ("op. Cannot create operator of type 'MSRAFill' on the device 'CUDA'. Verify that\n", "cpu_only_build", "CUDA build"),
        ("ModuleNotFoundError: No module named 'amp_C'\n", "cpu_only_build", "APEX_CUDA_EXT"),
        ("RuntimeError: Unsupported device target GPU. This process only supports one of the ['CPU'].\n", "cpu_only_build", ""),
        (METAL + "Symbol not found: __ZN3tsl8internal10LogMessageC1EPKcii\n", "framework_pkg_mismatch", "tensorflow-metal"),
        (METAL + "symbol not found in flat namespace '_TF_GetInputPropertiesList'\n", "framework_pkg_mismatch", "tensorflow-metal"),
        ("ImportError: cannot import name 'silu_and_mul' from 'sgl_kernel'\n", "framework_pkg_mismatch", ""),
        ("ImportError: k2 was built using PyTorch 1.13.1\nBut you are using PyTorch 2.0.1 to run it\n", "framework_pkg_mismatch", ""),
        (PROTOBUF + ", but the installed version is 2.6.1.\n", "protobuf_abi", "ldd PROGRAM"),
        ("[libprotobuf] CHECK failed: GeneratedDatabase()->Add(encoded_file_descriptor, size):\n", "protobuf_abi", "ldd PROGRAM"),
        (DUPLICATE, "unrecognised", "LOCAL_RANK"),
        ("RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: open(/dev/a)\n", "unrecognised", "lsof"),
        (NO_TPU, "unrecognised", "lsof"),
    ],
)
def test_rare_words_lead_to_a_step_of_their_own(log: str, cause: str, step: str) -> None:
    assert judged(log).findings[0].cause == cause
    assert step in advice(log)


@pytest.mark.parametrize(
    "log",
    [
        "For CUDNN, the CUDA backend for DNN module requires CC 5.3 or higher.\n",
        "WARNING: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=18\n",
        "WARNING (t[5.5]:SelectGpuId():cu-device.cc:220) Will try again to get a GPU after 20 seconds.\n",
        "LOG (t:AllocateNewRegion():cu-allocator.cc:478) About to allocate new memory region of 612 bytes; free:11679M\n",
        TCNN.removeprefix("OSError: ") + "Successfully installed tinycudann-1.7\n",
        "INFO:jax._src.xla_bridge:Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so\n",
        PRELOAD + "\u2139 Initial learn rate: 0.001\n",
        "redzone_allocator.cc:314] INTERNAL: Failed to launch ptxas\nRelying on driver to perform ptx compilation.\n",
        "OrderedDict([('cuda_version', '12.2'), ('is_cuda_build', True), ('is_rocm_build', False)])\n",
        "Warning: apex was installed without --cuda_ext. Original ImportError was: ModuleNotFoundError(\"No module named 'amp_C'\",)\n",
    ],
)
def test_neighbours_of_rare_words_stay_quiet(log: str) -> None:
    assert not [one for one in judged(log).findings if one.severity != "info"]


@pytest.mark.parametrize(
    "listed",
    [
        "    #1: NVIDIA GeForce GT 710, compute cap.: 3.5, ECC:  no, stat: incompatible\n",
        "    NVJPEG_STATUS_ARCH_MISMATCH                 = 7,\n",
        "UCX  WARN  transport 'cuda_copy' is not available, please use one or more of: cma, self, tcp\n",
        "MESA-LOADER: failed to open nvidia-drm: /usr/lib/dri/nvidia-drm_dri.so: cannot open\n",
        "CUDA_VISIBLE_DEVICES=10000\n",
    ],
)
def test_what_a_program_lists_yields_to_its_failure(listed: str) -> None:
    log = f"{listed}RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert "illegal memory" in judged(log).findings[0].evidence[0].text


@pytest.mark.parametrize(
    ("log", "lacks"),
    [
        ("storage.cc:118: Compile with USE_CUDA=1 to enable GPU usage\n", "install mxnet-cu101"),  # which CUDA is installed is not known
        ("CUDA_ERROR_OPERATING_SYSTEM: OS call failed or operation not supported on this OS\n", "docker run"),
        ("Warning: nvprof is not supported on devices with compute capability 8.0 and higher.\n", "ncu from 7.0 on"),
    ],
)
def test_no_step_guesses_what_the_machine_has(log: str, lacks: str) -> None:
    assert lacks not in advice(log)


def test_listed_wheels_answer_where_the_libraries_are() -> None:
    wheels = "$ pip list | grep nvidia\nnvidia-cublas-cu12 12.2.5.6\nnvidia-cudnn-cu12 8.9.4.25\ntensorflow 2.15.0\n"
    log = (
        "W tensorflow/core/common_runtime/gpu/gpu_device.cc:2256] Cannot dlopen some GPU libraries.\nSkipping registering GPU devices...\n"
    )
    assert judged(log).findings[0].remedy[0].command == "cudnn-resolve detect"
    assert "LD_LIBRARY_PATH" in str(judged(wheels + log).findings[0].remedy[0].command)


def test_a_build_of_paddle_comes_from_its_own_page() -> None:
    pin = "paddlepaddle-gpu==2.3.2.post112"
    log = f"ERROR: Could not find a version that satisfies the requirement {pin} (from versions: 2.4.1, 2.5.0)\n"
    log += f"ERROR: No matching distribution found for {pin}\n"
    assert "paddlepaddle.org.cn" in str(judged(log).findings[0].remedy[0].command)
