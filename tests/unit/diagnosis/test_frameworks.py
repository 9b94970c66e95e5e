"""What frameworks print when their environment is wrong, in the words of their sources."""

from __future__ import annotations

import pytest

from tests.written_logs import judged, loud

SEES = '$ python -c "import torch; print(torch.cuda.is_available())"\nTrue\n'
IN_WSL = f"me@box:/mnt/c/p{SEES}"
NO_DRIVER = "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
PINNED = "W1 1 pinned_memory_manager.cc:237] Unable to allocate pinned system memory, pinned memory pool will not be available: CUDA driver"
ON_CPU = (
    f"{NO_DRIVER}\n{PINNED} version is insufficient for CUDA runtime version\nI1 1 cuda_memory_manager.cc:117] CUDA memory pool disabled"
)
CELL = "----> 2 import torch\n      3 import torchvision\n\n/usr/lib/python3.6/dist-packages/torch/__init__.py in <module>\n     79 \n"
TOOLKIT = "stderr: nvidia-container-cli: initialization error: "
NO_NVML = "OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
DLIB = "RuntimeError: Error while calling {} in file cudnn_dlibapi.cpp:801. code: {}, reason: CUDA Resources could not be allocated."
XLA = "F xla/service/gpu/nvptx_compiler.cc:619] ptxas returned an error during compilation of ptx to sass: 'INTERNAL: ptxas {} has a bug"
CUBLAS = "CUDA error: {}\n  current device: 0, in function ggml_cuda_op_mul_mat_cublas at ggml-cuda.cu:1234"
PROCEDURE = "ImportError: DLL load failed while importing {}: {}"


BANNER = "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\nTraceback (most recent call last):"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("Error: ../paddle/phi/kernels/funcs/gather.cu.h:67 Assertion `index_value >= 0` failed. The index is out of bounds", "bad_input"),
        ("Error: ../paddle/phi/kernels/gpu/nll_loss.h:71 Assertion `cur_label >= 0 && cur_label < n_classes` failed.", "bad_input"),
        (PROCEDURE.format("onnxruntime_pybind11_state", "The specified procedure could not be found."), "other_bug"),
        (PROCEDURE.format("onnx_cpp2py_export", "Die angegebene Prozedur wurde nicht gefunden."), "other_bug"),
        ("RuntimeError: This cuDF installation is missing the necessary PTX files that are <=50.", "gpu_arch_too_old_for_build"),
        ("OSError: Could not find compatible tinycudann extension for compute capability 120.", "gpu_arch_too_new_for_build"),
        ("Error: Runtime compute cap 75 is not compatible with compile time compute cap 80", "gpu_arch_too_old_for_build"),
        ("Error: Runtime compute cap 120 is not compatible with compile time compute cap 90", "gpu_arch_too_new_for_build"),
        ("NvvmError: libnvvm : error: -arch=compute_120 is an unsupported option", "gpu_arch_too_new_for_build"),
        ("NvvmError: libnvvm : error: -arch=compute_52 is an unsupported option", "gpu_arch_too_old_for_build"),
        ("Can not use cuDNN on context None: Device not supported", "gpu_arch_too_old_for_build"),
        (CUBLAS.format("an absent device architectural feature is required"), "gpu_arch_too_old_for_build"),
        (CUBLAS.format("the requested functionality is not supported"), "gpu_arch_too_old_for_build"),
        (CUBLAS.format("the function failed to launch on the GPU"), "gpu_arch_too_new_for_build"),
        ("cuBLAS error 1 at ggml-cuda.cu:6012\ncurrent device: 0", "out_of_memory"),
        ("MXNetError: stream_gpu-inl.h:181: Check failed: e == CUBLAS_STATUS_SUCCESS: CUBLAS: 1", "out_of_memory"),
        (
            "ERROR: Cublas Error in initializeCommonContext: 3 (Could not initialize cublas, please check cuda installation.)",
            "out_of_memory",
        ),
        (DLIB.format("cudnnFindConvolutionForwardAlgorithm( context() )", 2), "out_of_memory"),
        (DLIB.format("cublasCreate(&handles[new_device_id])", 3), "out_of_memory"),
        ("ai.onnxruntime.OrtException: Error code - ORT_EP_FAIL - message: Failed to find CUDA shared provider", "cpu_only_build"),
        ("ERROR: Dense stereo reconstruction requires CUDA, which is not available on your system.", "cpu_only_build"),
        (
            "cv2.error: OpenCV(4.5.2) dnn.cpp:1394: error: (-215:Assertion failed) haveCUDA() in function 'initCUDABackend'",
            "cpu_only_build",
        ),
        ("OSError: (Unimplemented) Place Place(gpu:0) is not supported. Please check that your paddle compiles", "cpu_only_build"),
        ("RuntimeError: (Unavailable) Cannot use GPU because you have installed CPU version PaddlePaddle.", "cpu_only_build"),
        ("TVMError: Check failed: bf != nullptr: target.build.cuda is not enabled", "cpu_only_build"),
        ("RuntimeError: CUDA environment is not correctly set up\n(see chainer#installation).No module named 'cupy'", "cpu_only_build"),
        (
            "ValueError: (InvalidArgument) Device id must be less than GPU count, but received id is: 0. GPU count is: 0.",
            "driver_not_loaded",
        ),
        ("UserWarning: You are using GPU version Paddle, but your CUDA device is not set properly.", "driver_not_loaded"),
        ('msg="no nvidia devices detected by library /usr/lib/libcuda.so.550.90.07"', "driver_not_loaded"),
        (
            (
                "failed to load 'a': instance group a_0 of model a specifies invalid or unsupported gpu id 0. "
                "GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are:"
            ),
            "driver_not_loaded",
        ),
        (
            (
                "E0920 common.cpp:113] Cannot create Cublas handle. Cublas won't be available.\n"
                "F0920 common.cpp:142] Check failed: error == cudaSuccess (38 vs. 0)  no CUDA-capable device is detected"
            ),
            "driver_not_loaded",
        ),
        (f"{TOOLKIT}driver error: failed to process request: unknown.", "driver_not_loaded"),
        ("CudaDriverError: driver missing function: cuDevicePrimaryCtxRetain.\nRequires CUDA 8.0 or above.", "driver_too_old"),
        ("WARN version mismatch between driver and cuda driver library - reboot or upgrade may be required", "driver_library_mismatch"),
        (f"$ podman run -it --rm docker.io/a/b:1 python detect.py\n{NO_NVML}", "container_gpu_not_passed"),
        (
            "$ singularity shell a.sif\nSingularity> python t.py\nNVMLError_LibraryNotFound: NVML Shared Library Not Found",
            "container_gpu_not_passed",
        ),
        (f"{IN_WSL}numba.cuda.cudadrv.driver.CudaAPIError: [100] Call to cuInit results in CUDA_ERROR_NO_DEVICE", "wsl_driver_shadowed"),
        (f"{CELL}ImportError: libcudart.so.10.2: cannot open shared object file", "cuda_runtime_missing"),
        ("Error: llama runner process has terminated: exit status 0xc000001d", "cpu_without_avx"),
        ("OSError: [WinError 126] The specified module could not be found: 'C:\\\\darknet\\\\yolo_cpp_dll.dll'", "lib_not_on_path"),
        (
            (
                '  File "C:\\mxnet\\base.py", line 112, in _load_lib\n    lib = ctypes.CDLL(lib_path[0], ctypes.RTLD_LOCAL)\n'
                "OSError: [WinError 126] The specified module could not be found"
            ),
            "lib_not_on_path",
        ),
        ('CompileException: cuda_fp16.h(129): catastrophic error: cannot open source file "vector_types.h"', "cuda_runtime_missing"),
        (f"{XLA.format('12.3.103')} that we think can affect XLA. Please use a different version.'", "other_bug"),
        ("TVMError: CUDALaunch Error: CUDA_ERROR_INVALID_VALUE", "unrecognised"),
        ("[TRT] [E] 6: CUDA initialization failure with error: 500. Please check your CUDA installation", "other_bug"),
        ("F1017 syncedmem.hpp:25] Check failed: *ptr host allocation of size 561259008 failed", "out_of_memory"),
        ("system_info: n_threads = 8 | AVX2 = 1 | BLAS = 0 | SSE3 = 1 |", "cpu_only_build"),
        ("Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}", "cudnn_major_mismatch"),
        ("$ kubectl get pods\ngpu-bxbc2   0/1   OutOfnvidia.com/gpu   0   2h", "unrecognised"),
        (
            f"{BANNER}\n  File \"/app/a.py\", line 1, in <module>\n    import gradio\nModuleNotFoundError: No module named 'gradio'",
            "unrecognised",
        ),
        ('daemon : could not select device driver "nvidia" with capabilities : [[gpu]]', "container_toolkit_missing"),
        (
            "x.so: symbol cudnnSetCTCLossDescriptorEx version libcudnn.so.7 not defined in file libcudnn.so.7 with link time reference",
            "cudnn_too_old_for_framework",
        ),
        ("CUDA failure 901: operation failed due to a previous error during capture ; GPU=0 ; hostname=q", "unrecognised"),
    ],
)
def test_the_cause_of_what_a_framework_prints(log: str, cause: str) -> None:
    assert judged(f"{log}\n").findings[0].cause == cause


def test_a_server_that_goes_on_without_a_gpu_has_no_fault() -> None:
    assert not loud(judged(f"{ON_CPU}\n"))


def test_a_faulty_ptxas_is_replaced() -> None:
    (found,) = judged(f"{XLA.format('12.3.103')} that we think can affect XLA. Please use a different version.'\n").findings
    assert "pip install -U nvidia-cuda-nvcc-cu12" in str(found.remedy[0].command)


def test_a_module_that_calls_windows_alone_needs_another_release() -> None:
    (step,) = judged(f"{PROCEDURE.format('onnxruntime_pybind11_state', '找不到指定的程序。')}\n").findings[0].remedy
    assert "1.15.1" in step.text


@pytest.mark.parametrize(
    "log",
    [
        "make CUBLAS=1 -j8",
        "cublas = 3 calls",
        "arena: pinned host allocation of size 1073741824 done in 12 ms",
        "system_info: n_threads = 8 | METAL = 1 | BLAS = 0 | SSE3 = 0 |",
        "-- Installing: /usr/include/pcl/outofcore/octree.h\nDeploy finished",
        "GPU has compute capability < 8, bf16 disabled\nstep 1 loss 0.5\nstep 2 loss 0.4",
        "Compute capability 6.1 is older than recommended 7.0; performance may suffer",
        "Recommendation: a GPU with NVIDIA Ampere architecture or newer gives best speed",
        "GPU count is: 0. Using the CPU as configured\ntraining done",
        "[I] [TRT] No importer registered for op: EfficientNMS_TRT. Attempting to import as plugin.\n&&&& PASSED TensorRT.trtexec",
        "WARNING: Your GPU compute capability 7.5 is lower than 8.0; falling back to float16.\nstep 1 loss 0.5",
        "ggml_init_cublas: found 1 CUDA devices:\noffloaded 33/33 layers to GPU\nsystem_info: AVX2 = 1 | BLAS = 0 | SSE3 = 1 |",
        "Place Place(gpu:0) is not supported, fallback to cpu\nepoch: 1, acc 0.9\nTraining done",
        "building with cudaErrorInvalidValue handler\n[100] Built target",
    ],
)
def test_what_only_sounds_like_a_failure_is_none(log: str) -> None:
    assert not loud(judged(f"{log}\n"))


@pytest.mark.parametrize(
    ("log", "not_cause"),
    [
        ("Error: src/list.h:42 Assertion `head != NULL` failed.", "bad_input"),
        (f"{SEES}$ docker run --rm image ./app\nCUDA error: no CUDA-capable device is detected", "wsl_driver_shadowed"),
        ("KeyError: 'CUDA_HOME'", "bad_input"),
        ("me@jetson-orin:~$ ./mytool\nIllegal instruction", "other_bug"),
        (f"{ON_CPU}\nE1 failed to load 'resnet'\nerror: creating server: Internal\nAborted (core dumped)", "harmless"),
    ],
)
def test_a_cause_needs_what_makes_it_true(log: str, not_cause: str) -> None:
    assert judged(f"{log}\n").findings[0].cause != not_cause


def test_the_driver_of_a_host_is_not_removed_for_a_container_that_it_starts() -> None:
    unmet = "The following packages have unmet dependencies:\n nvidia-driver-550 : Depends: libnvidia-gl-550 (= 550.90.07)"
    unmet += " but it is not going to be installed\n"
    unmet += "E: Unable to correct problems, you have held broken packages.\n"
    for prompt, is_removed in (("me@host:~$ docker compose up -d\n", False), ("root@76fa843f6c13:/# apt-get install cuda\n", True)):
        commands = " ".join(step.command or "" for finding in judged(prompt + unmet).findings for step in finding.remedy)
        assert ("purge" in commands) is is_removed


CHAINER = (
    "CuPy (cupy-cuda92) version 9.0.0 may not be compatible with this version of Chainer.\nPlease consider installing the supported version"
)
NVCC = "nvcc fatal   : Value '{}' is not defined for option 'gpu-architecture'\n"
ON_OTHER_GPU = "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to gpu.\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("RuntimeError: cuDNN Error: sdpa fp8 backward operation is only supported starting cudnn 9.1.0.", "cudnn_too_old_for_framework"),
        ("[cudnn_frontend] Error: bias gradient is not supported in cudnn versions below 8.9.6", "cudnn_too_old_for_framework"),
        ("Using cuDNN 9.1.0, supported since cuDNN 8", None),
        ("RuntimeError: Your CPU does not support FBGEMM.", "cpu_without_avx"),
        ("Warning: Your CPU does not support FBGEMM; using QNNPACK", None),
        ("FBGEMM is enabled, CPU supports AVX2", None),
        (NVCC.format("native") + NVCC.format("compute_86"), "gpu_arch_too_new_for_build"),
        (NVCC.format("compute_35"), "gpu_arch_too_old_for_build"),
        (NVCC.format("sm_61") + "ERROR (theano.sandbox.cuda): Failed to compile cuda_ndarray.cu", "gpu_arch_too_new_for_build"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_60'\n/usr/lib/python2.7/dist-packages/theano", "gpu_arch_too_new_for_build"),
        (NVCC.format("sm_61"), "gpu_arch_too_old_for_build"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "gpu_arch_too_old_for_build"),
        ("UserWarning: FlashAttention only supports Ampere GPUs or newer. Falling back to sdpa", None),
        (CHAINER, "framework_pkg_mismatch"),
        (ON_OTHER_GPU, None),
    ],
)
def test_what_a_program_supports_tells_the_cause(log: str, cause: str | None) -> None:
    assert next(iter(loud(judged(f"{log}\n"))), None) == cause


@pytest.mark.parametrize(("name", "commands"), [("cupy-cuda92", ["python -m pip install 'cupy-cuda92>=7.7.0,<8.0.0'"]), ("cupy-other", [])])
def test_the_cupy_that_chainer_names_is_installed(name: str, commands: list[str]) -> None:
    log = f"{CHAINER} by running:\n\n$ pip install '{name}>=7.7.0,<8.0.0'\n"
    assert [remedy.command for remedy in judged(log).findings[0].remedy] == commands
