"""One message with several causes: versions, cards, listings, and what follows decide."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

ENGINE = "$ python detect.py\nRuntimeError: GET was unable to find an engine to execute this computation\n"
DETECTED = "image 1/1 bus.jpg: 640x480 4 persons, 1 bus, 9.1ms\n"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
VLLM = "$ pip install vllm=={0} && python bench.py\n"
DONE = "Throughput: 12.03 requests/s\n"
NVRTC = "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
NONE = "ERROR: Could not find a version that satisfies the requirement {0} (from versions: none)\n"
NONE += "ERROR: No matching distribution found for {0}\n"
NVML = "UserWarning: Can't initialize NVML\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  535.171.04  Tue Mar 19 20:30:00 UTC 2024\n"
PADDLE = "PreconditionNotMetError: (libcudnn.so) (error code is libcudnn.so: cannot open shared object file: No such file or directory)\n"
LISTED = "(pd) $ ls $CONDA_PREFIX/lib | grep cudnn\nlibcudnn.so\nlibcudnn.so.8\nlibcudnn.so.8.2.1\n(pd) $ python a.py\n"
ORT = 'LoadLibrary failed with error 126 "" when trying to load "C:\\v\\onnxruntime\\capi\\onnxruntime_providers_cuda.dll"\n'
WHEELS = "$ pip list | grep nvidia\nnvidia-cublas-cu12        12.5.3.2\nnvidia-cuda-runtime-cu12  12.5.82\n"
CUSPARSE = "RuntimeError: Unable to load cuSPARSE. Is it installed?\n"
BUSY = "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n"
FACTORY = "AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'\n"
SDPA = "UserWarning: 1Torch was not compiled with flash attention. (Triggered internally at sdp_utils.cpp:263.)\n"
ASKED = "AssertionError: Invalid CUDA '--device 0' requested, use '--device cpu' or pass valid CUDA device(s)\n"
FALLING = "WARNING:absl:No GPU/TPU found, falling back to CPU.\n"
EMPTY = "$ env | grep CUDA\nCUDA_VISIBLE_DEVICES=\n"
EPOCH = "Epoch 1/10\n98/98 - 9s - 92ms/step - accuracy: 0.5120 - loss: 1.3741\n"
TOO_OLD = "UserWarning:\n    Found GPU{0} GeForce GT 710 which is of cuda capability 3.5.\n"
TOO_OLD += "    PyTorch no longer supports this GPU because it is too old.\n"
STEP = "Epoch 0: 100%|####| 1407/1407 [05:11<00:00,  4.52it/s, loss=0.412]\n"
IGNORED = "Ignoring visible gpu device (device: 1, name: Quadro K600, compute capability: 3.0) with Cuda compute capability 3.0. "
IGNORED += "The minimum required Cuda capability is 3.5.\n"
CREATED = (
    "Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 8792 MB memory) -> physical GPU (device: 0, name: {0})\n"
)
ACCEPTED = "Installed CUDA version 11.6 does not match the version torch was compiled with 11.7{0}\n"
COMPATIBLE = " but since the APIs are compatible, accepting this combination"
HIDDEN = "INFO:jax._src.xla_bridge:Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.\n"
DLOPEN = "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly\n"
DLOPEN += "$ pip list | grep -E 'tensorflow|nvidia'\ntensorflow 2.17.0\n"
FILES = "$ ldconfig -p | grep -oE 'lib(cu|cudnn).*'\nlibcublas.so.12\nlibcudart.so.12\nlibcufft.so.11\nlibcusolver.so.11\n"
PROVIDER = "Failed to create CUDAExecutionProvider. Please reference https://onnxruntime.ai/docs\nonnxruntime-gpu 1.15.1\n"
INCOMPATIBLE = "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version (9, 0, 0).\n"
COMPAT = "failed call to cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted on non supported HW\n"
COMPAT += "kernel version {0} does not match DSO version 470.57.2\n"
DOUBTED = "CUDA 9.0.176, cuDNN 7.1.4\ncould not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
DOUBTED += "E tensorflow/stream_executor/cuda/cuda_dnn.cc:463] possibly insufficient driver version: {0}\n"
OPENCV = (
    "    NVIDIA GPU arch:             {0}\nNVIDIA GeForce GTX 1650\ncv2.error: no kernel image is available for execution on the device\n"
)
NUMBA = "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init:\nCUDA driver library cannot be found.\n"
NVCC = "nvcc fatal   : Unsupported gpu architecture 'compute_89'\n"
MINOR = "The detected CUDA version (11.5) has a minor version mismatch with the version that was used to compile PyTorch (11.8).\n"
PRELOAD = "ValueError: libcublas.so.*[0-9] not found in the system path ['/srv/app', '/usr/lib/python3.10']\n"
CV2 = "ImportError: DLL load failed while importing cv2: The specified module could not be found.\n"
TOOLKIT = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v11.2\\bin"
THC = "torch {0}\nRuntimeError: cuda runtime error (30) : unknown error at ..\\aten\\src\\THC\\THCGeneral.cpp:87\n"
LIBDEVICE = "W nvptx_helper.cc:56] Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice. This may result in failures\n"
XFORMERS = "    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.2.1+cu121)\n"
BACKEND = "DNN module was not built with CUDA backend; switching to CPU\n[INFO] 2.4 fps\n"
TRITON = (
    "torch._dynamo.convert_frame: [WARNING] RuntimeError: Found Tesla P40 which is too old to be supported by the triton GPU compiler\n"
)
THEANO = "Can not use cuDNN on context None: cannot compile with cuDNN. We got this error:\n"
THEANO += "b'/tmp/try_flags_x.c:4:19: fatal error: cudnn.h: No such file or directory'\n"
NUMPY = "RuntimeError: module compiled against API version 0xe but this version of numpy is 0xd\n"
NO_GPU = "UserWarning: The installed version of bitsandbytes was compiled without GPU support.\n"
JAX = "RuntimeError: Unable to load cuDNN. Is it installed?\n"
CMAKE = "-- *** cuDNN V5.0 OR GREATER NOT FOUND.   ***\n$ ls {0}/libcudnn*\n{0}/libcudnn.so.8.9.7\n"
CURAND = "OSError: libcurand.so.10: cannot open shared object file: No such file or directory\n"
CURAND += "nano@nano:~$ ls /usr/local/cuda/lib64/libcurand.so.10\n/usr/local/cuda/lib64/libcurand.so.10\n"
LIBCUDA = "AssertionError: libcuda.so cannot found!\nPossible files are located at [{0}]."
LIBCUDA += "Please create a symlink of libcuda.so to any of the files.\n"
MOD_CU = "mod.cu(77): error: too few arguments in function call\n"
MORE_RECENT = "UserWarning: Your cuDNN version is more recent than the one Theano officially supports.\n"
XGBOOST = "WARNING: /workspace/src/context.cc:44: No visible GPU is found, setting device to CPU.\n"
EXHAUSTED = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 640000000000 bytes.\n"
DLL_INIT = "OSError: [WinError 1114] A dynamic link library (DLL) initialization routine failed. "
DLL_INIT += 'Error loading "C:\\v\\torch\\lib\\c10.dll"\n'
OLDER_DRIVER = "$ {0} run -it bvlc/caffe:gpu caffe train\nCUDA driver version is insufficient for CUDA runtime version\n"
OLDER_DRIVER += "$ nvidia-docker run bvlc/caffe:gpu nvidia-smi\n| NVIDIA-SMI 375.26     Driver Version: 375.26    |\n"
PADDLE_OLD = "The installed Paddle is compiled with CUDNN 8.6, but CUDNN version in your machine is 8.4, which may cause\n"
IMAGE = "UserWarning: Failed to load image Python extension: /lib64/libm.so.6: version `GLIBC_2.29' not found\n"
CUBLAS = "E0511 13:02:44.118301  3911 common.cpp:104] Cannot create Cublas handle. Cublas won't be available.\n"
PTXAS = "We fallback to the NVIDIA driver for some compilation. The ptxas error was: "
PTXAS += "ptxas fatal   : Value 'sm_86' is not defined for option 'gpu-name'\n"
NO_NVCC = "UserWarning: mamba_ssm was requested, but nvcc was not found.  Are you sure your environment has nvcc available?\n"
BOTTLENECK = "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.1 as it may crash.\n"
BOTTLENECK += '    bn = import_optional_dependency("bottleneck", errors="{0}")\nAttributeError: _ARRAY_API not found\n'
DLIB = "Could NOT find CUDA (missing: CUDA_NVCC_EXECUTABLE)\nDLIB WILL NOT USE CUDA\nSuccessfully built dlib\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (ENGINE + "$ env -u LD_LIBRARY_PATH python detect.py\n" + DETECTED, "ld_path_shadowing"),
        (ENGINE + "$ LD_LIBRARY_PATH= python detect.py\n" + DETECTED, "ld_path_shadowing"),
        (ENGINE + "$ unset LD_LIBRARY_PATH\n" + ENGINE, "out_of_memory"),
        (ENGINE + "$ unset LD_LIBRARY_PATH\n", "out_of_memory"),
        (VLLM.format("0.5.4") + ILLEGAL + VLLM.format("0.5.5") + DONE, "other_bug"),
        (VLLM.format("0.5.4") + ILLEGAL + VLLM.format("0.5.5") + ILLEGAL, "unrecognised"),
        (VLLM.format("0.5.4") + ILLEGAL + VLLM.format("0.5.4") + DONE, "unrecognised"),
        (ILLEGAL + "$ python gnn.py --device cpu\nIndexError: index 20133 is out of bounds for dimension 0 with size 19717\n", "bad_input"),
        (ILLEGAL + "$ python gnn.py --device cpu\nIndexError: index out of range in self\n", "bad_input"),
        (ILLEGAL + "IndexError: list index out of range\n", "unrecognised"),
        ("cupy-cuda13x        13.6.0\nb'Tesla P40' 61\n" + NVRTC, "gpu_arch_too_old_for_build"),
        ("cupy-cuda12x        13.3.0\nb'Tesla P40' 61\n" + NVRTC, "gpu_arch_too_new_for_build"),
        ("cupy-cuda11x        11.6.0\nNVIDIA GeForce RTX 5090\n" + NVRTC, "gpu_arch_too_new_for_build"),
        (NONE.format("trochvision==0.15.2"), "unrecognised"),
        (NONE.format("tensorlfow"), "unrecognised"),
        (NONE.format("torchvision==0.15.2"), "pip_wheel_unavailable_for_python"),
        (NONE.format("tensorflow-io"), "pip_wheel_unavailable_for_python"),
        (NVML + "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01\n", "driver_library_mismatch"),
        (NVML + "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.171.04\n", "driver_not_loaded"),
        ('$ find / -name "libcudnn*" 2>/dev/null | wc -l\n0\n' + PADDLE, "cudnn_missing"),
        (LISTED + PADDLE, "lib_not_on_path"),
        ("C:\\>where /R C:\\ cudnn*.dll\nINFO: Could not find files for the given pattern(s).\n" + ORT, "cudnn_missing"),
        ("onnxruntime-gpu    1.20.1\nC:\\cuda\\bin\\cudnn64_8.dll\n" + ORT, "cudnn_major_mismatch"),
        (ORT, "cuda_runtime_missing"),
        (WHEELS + CUSPARSE, "cuda_runtime_missing"),
        (WHEELS + "nvidia-cusparse-cu12      12.5.1.3\n" + CUSPARSE, "nvjitlink_mix"),
        ("C:\\> wsl -d Ubuntu-20.04\n" + BUSY, "other_bug"),
        (BUSY, "gpu_exclusive_mode"),
        ("AttributeError: module 'numpy' has no attribute 'bool'.\n", "unrecognised"),
        (DLOPEN + "nvidia-cudnn-cu12 9.3.0.75\n", "cudnn_major_mismatch"),
        (DLOPEN + "nvidia-cudnn-cu12 8.9.7.29\n", "lib_not_on_path"),
        (DLOPEN + FILES, "cudnn_missing"),
        (DLOPEN + FILES.replace("cudnn", "cublas"), "lib_not_on_path"),
        (DLOPEN + FILES.replace(".so.12", ".so.11"), "cuda_runtime_missing"),
        (PROVIDER + FILES + "libcudnn.so.8\n", "cuda_runtime_missing"),
        (INCOMPATIBLE + "nvidia-cudnn-cu12        9.0.0.312\n", "cudnn_too_old_for_framework"),
        (INCOMPATIBLE + "nvidia-cudnn-cu12        9.1.0.70\n", "ld_path_shadowing"),
        (COMPAT.format("470.42.1"), "driver_library_mismatch"),
        (COMPAT.format("450.119.3"), "forward_compat_hw"),
        (DOUBTED.format("384.59.0"), "driver_too_old"),
        (DOUBTED.format("384.81.0"), "out_of_memory"),
        (OPENCV.format("86"), "gpu_arch_too_old_for_build"),
        (OPENCV.format("61"), "gpu_arch_too_new_for_build"),
        ("$ docker run --rm numba-img:0.55 python a.py\n" + NUMBA, "container_gpu_not_passed"),
        (NUMBA, "driver_not_loaded"),
        (MINOR + NVCC, "toolkit_build_mismatch"),
        (NVCC, "gpu_arch_too_new_for_build"),
        (PRELOAD + "$ ls deps/nvidia/cublas/lib\nlibcublas.so.11  libcublasLt.so.11\n", "lib_not_on_path"),
        (PRELOAD, "cuda_runtime_missing"),
        (CV2 + f'C:\\> dir /b "{TOOLKIT}\\cud*64*.dll"\ncudnn64_8.dll\n', "lib_not_on_path"),
        (CV2 + f"C:\\> echo %PATH%\n{TOOLKIT}\n", "windows_runtime_missing"),
        (THC.format("1.0.1"), "other_bug"),
        (THC.format("1.3.1"), "driver_wedged"),
        ("jax 0.4.35\n" + JAX + "$ ls /apps/lib/libcudnn.so.8\n/apps/lib/libcudnn.so.8\n", "cudnn_major_mismatch"),
        (JAX + "$ ls /opt/env/lib/libcudnn.so.9\n/opt/env/lib/libcudnn.so.9\n", "lib_not_on_path"),
        (JAX, "cudnn_missing"),
        (CMAKE.format("/home/me/cudnn/lib"), "lib_not_on_path"),
        (CMAKE.format("/usr/lib/x86_64-linux-gnu"), "cudnn_missing"),
        (CMAKE.format("/usr/local/cuda/lib64"), "cudnn_missing"),
        ("$ docker run l4t-pytorch:r32.5.0-pth1.7-py3 python3 a.py\n" + CURAND, "container_gpu_not_passed"),
        ("$ docker run --runtime nvidia l4t-pytorch:r32.5.0-pth1.7-py3 python3 a.py\n" + CURAND, "lib_not_on_path"),
        ("$ docker run torch:2.4 python a.py\n" + LIBCUDA.format(""), "container_gpu_not_passed"),
        ("$ docker run torch:2.4 python a.py\n" + LIBCUDA.format("'/usr/lib/x86_64-linux-gnu/libcuda.so.1'"), "lib_not_on_path"),
        (LIBCUDA.format(""), "lib_not_on_path"),
        (MORE_RECENT + MOD_CU, "cudnn_too_new_for_framework"),
        (OLDER_DRIVER.format("docker"), "container_gpu_not_passed"),
        (OLDER_DRIVER.format("nvidia-docker"), "driver_too_old"),
        ("$ export CUDA_VISIBLE_DEVICES=-1\n" + XGBOOST, "gpu_hidden_by_env"),
        ("$ nvidia-smi -L\nGPU 0: Tesla T4 (UUID: GPU-0d5c)\n" + XGBOOST, "gpu_hidden_by_env"),
        ("$ JAX_PLATFORMS=cpu python a.py\n" + EXHAUSTED, "unrecognised"),
        (EXHAUSTED, "out_of_memory"),
        (">>> from PyQt5 import QtWidgets; import torch\n" + DLL_INIT, "other_bug"),
        (">>> import torch; from PyQt5 import QtWidgets\n" + DLL_INIT, "windows_runtime_missing"),
    ],
)
def test_what_else_the_log_shows_decides(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize(
    "log",
    [
        FACTORY + EPOCH,
        TOO_OLD.format(1) + "using cuda:0 GeForce RTX 3090\n" + STEP,
        IGNORED + CREATED.format("GeForce GTX 1080 Ti") + "Step 100: loss = 2.14 (0.052 sec)\n",
        ACCEPTED.format(COMPATIBLE) + "Loading extension module fused_adam...\n",
        '4:CUDA_VISIBLE_DEVICES="" python make.py   # cpu only\n$ bash run.sh\n' + HIDDEN + "wrote 512/512 shards\n",
        '$ CUDA_VISIBLE_DEVICES="" python make.py\n' + HIDDEN + "wrote 512/512 shards\n",
        "% python generate.py --device mps\n" + NO_GPU + "41 tokens in 3.9 s\n",
        LIBDEVICE + EPOCH,
        XFORMERS + "Applying attention optimization: sdp-no-mem... done.\n",
        "pi@raspberrypi:~ $ python3 cam.py\n" + BACKEND,
        TRITON + "iter 0: loss 10.98, time 5120ms\niter 10: loss 10.33, time 812ms\n",
        THEANO + "".join(f"epoch {number}, minibatch 83/83, validation error 12.458333 %\n" for number in (1, 2)),
        NUMPY + EPOCH,
        PADDLE_OLD + EPOCH,
        IMAGE + EPOCH,
        CUBLAS + "Saving results into out.npy\n",
        PTXAS + EPOCH + EPOCH,
        NO_NVCC + "Successfully built mamba_ssm\n",
        BOTTLENECK.format("warn") + EPOCH,
        "pi@raspberrypi:~ $ pip3 install -v dlib\n" + DLIB,
    ],
)
def test_is_quiet_where_what_follows_shows_that_it_does_not_matter(log: str) -> None:
    assert all(finding.severity == "info" for finding in judged(log).findings)


@pytest.mark.parametrize(
    "log",
    [
        "Traceback (most recent call last):\n" + FACTORY,
        TOO_OLD.format(1) + "using cuda:0 GeForce GT 710\n" + STEP,
        TOO_OLD.format(1) + "using cuda:0 GeForce RTX 3090\n",
        TOO_OLD.format(1) + "using cuda:0 GeForce RTX 3090\n" + STEP + "RuntimeError: CUDA error: no kernel image is available\n",
        IGNORED + "Step 100: loss = 2.14 (0.052 sec)\n",
        ACCEPTED.format(", unable to compile cuda/cpp extensions without a matching cuda version."),
        '$ CUDA_VISIBLE_DEVICES="" python make.py\n' + HIDDEN + "RuntimeError: no GPU\n",
        "$ python make.py\n" + HIDDEN + "wrote 512/512 shards\n",
        "$ python generate.py\n" + NO_GPU + "41 tokens in 3.9 s\n",
        LIBDEVICE + "Epoch 1/10\nInternalError: libdevice not found at ./libdevice.10.bc\n",
        XFORMERS + "Applying attention optimization: xformers... done.\n",
        "$ python3 cam.py\n" + BACKEND,
        TRITON + "iter 0: loss 10.98, time 5120ms\n" + TRITON.partition("] ")[2],
        THEANO + "Mapped name None to device cuda0: GeForce GTX 960\n",
        NUMPY + "ImportError: numpy.core.multiarray failed to import\n",
        PADDLE_OLD + "Epoch 1/10\nExternalError: CUDNN error(3), CUDNN_STATUS_BAD_PARAM.\n",
        IMAGE + EPOCH + "ImportError: /lib64/libm.so.6: version `GLIBC_2.29' not found (required by torch_sparse/_convert_cuda.so)\n",
        CUBLAS + "Check failed: status == CUBLAS_STATUS_SUCCESS (1 vs. 0)  CUBLAS_STATUS_NOT_INITIALIZED\n",
        PTXAS + "InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid\n",
        NO_NVCC + "Successfully installed einops-0.8.0\n",
        NO_NVCC + "ERROR: Failed building wheel for mamba_ssm\n",
        BOTTLENECK.format("raise") + EPOCH,
        BOTTLENECK.format("warn") + "ImportError: numpy.core.multiarray failed to import\n",
    ],
)
def test_stays_loud_where_nothing_shows_that(log: str) -> None:
    assert judged(log).findings[0].severity != "info"


NCCL = "RuntimeError: Distributed package doesn't have NCCL built in\n"
MODE = "$ nvidia-smi --query-gpu=compute_mode --format=csv,noheader\n{0}\n"
APT = "E: Unable to locate package libcudnn8\n"
NO_NAMES = "Err:1 http://archive.ubuntu.com/ubuntu jammy InRelease\n  Temporary failure resolving 'archive.ubuntu.com'\n"
FAISS = "AttributeError: module 'faiss' has no attribute '{0}'\n"
IR = "[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed: Unsupported model IR version: {0}, max supported IR version: {1}\n"
CUPTI = "$ python t.py\nImportError: libcupti.so.{0}: cannot open shared object file: No such file or directory\n"
HEADER = "src/a.cpp:3:10: fatal error: cuda_runtime.h: No such file or directory\n"
NVCC = "Cuda compilation tools, release {0}, V{0}.64\nnvcc fatal   : Unsupported gpu architecture 'compute_{1}'\n"
NVCC += "error: command '/usr/local/cuda/bin/nvcc' failed with exit code 1\n"
OUTDATED = "nvidia-cublas-cu12        12.8.4.1\n{0}\nRuntimeError: Outdated cuSOLVER installation found.\n"
ADAM = "torch 1.12.0+cu116\n{0}\n$ pip install torch==1.12.1 && python t.py\ntorch 1.12.1\nepoch 41: loss 0.231\n"
REGISTERED = "    AutoConfig.register('q', Q)\nValueError: 'q' is already used by a Transformers config, pick another name.\n"
SOLVER = "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_{0}, when calling `cusolverDnXsyevd(h)`."
KERAS = "RuntimeError: Failed to import transformers.{0} because of the following error (look up to see its traceback):\n"
KERAS += "Your currently installed version of Keras is Keras 3, but this is not yet supported in Transformers.\n"
BOUNDS = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Status Message: indices element out of data bounds, idx=7 must be within [-5,4]\n"
PYG = "typing.py:54: UserWarning: An issue occurred while importing '{0}'. Disabling its usage. Stacktrace: "
PYG += "/e/lib/python3.10/site-packages/{1}/_version_cuda.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs\n"
EPOCHS = "Epoch: 001, Loss: 1.9451\nEpoch: 002, Loss: 1.8312\nEpoch: 003, Loss: 1.7011\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("C:\\v\\Lib\\site-packages\\torch\\distributed\\c10d.py\n" + NCCL, "unrecognised"),
        ("/v/lib/python3.10/site-packages/torch/distributed/c10d.py\n" + NCCL, "cpu_only_build"),
        (MODE.format("Default") + BUSY, "driver_wedged"),
        (MODE.format("Exclusive_Process") + BUSY, "gpu_exclusive_mode"),
        (NO_NAMES + APT, "unrecognised"),
        (APT, "apt_conflict"),
        ("<module 'faiss' (namespace)>\n" + FAISS.format("StandardGpuResources"), "unrecognised"),
        ("<module 'faiss' from '/v/faiss/__init__.py'>\n" + FAISS.format("StandardGpuResources"), "cpu_only_build"),
        (FAISS.format("IndexFlatL2"), "unrecognised"),
        ("onnx             1.16.0\n" + IR.format(10, 9), "framework_pkg_mismatch"),
        ("onnxruntime-gpu  1.17.1\n" + IR.format(10, 9), "unrecognised"),
        ("/usr/local/cuda-11.8/extras/CUPTI/lib64/libcupti.so.11.8\n" + CUPTI.format("11.8"), "lib_not_on_path"),
        ("/usr/local/cuda-12.2/extras/CUPTI/lib64/libcupti.so.12\n" + CUPTI.format("11.8"), "cuda_runtime_missing"),
        (HEADER + "$ find / -name cuda_runtime.h\n/opt/cuda/include/cuda_runtime.h\n", "lib_not_on_path"),
        ("/opt/cuda/include/cuda_runtime.h\n$ make\n" + HEADER, "lib_not_on_path"),
        (HEADER + "$ find / -name cuda_runtime.h\n", "cuda_runtime_missing"),
        (HEADER + "$ ls /opt/cuda_runtime.h\nls: cannot access '/opt/cuda_runtime.h': No such file or directory\n", "cuda_runtime_missing"),
        ("torch 1.13.1+cu117\n" + NVCC.format("11.7", "90"), "gpu_arch_too_new_for_build"),
        ("torch 2.4.0+cu121\n" + NVCC.format("11.5", "89"), "toolkit_build_mismatch"),
        ("$ pip list; echo $LD_LIBRARY_PATH\n" + OUTDATED.format("/usr/local/cuda-12.0/lib64"), "ld_path_shadowing"),
        ("$ pip list; echo $LD_LIBRARY_PATH\n" + OUTDATED.format(""), "cuda_runtime_missing"),
        (">>> torch.__version__\n'2.0.0'\n" + ILLEGAL + "$ pip install torch==2.1.2 && python t.py\n4211 tokens/s\n", "other_bug"),
        ("torch 2.0.0\n" + ILLEGAL + "torch 2.0.0\n812.4 TFLOPS\n", "unrecognised"),
        ("vLLM API server version 0.6.2\n" + ILLEGAL + "vLLM API server version 0.6.3\nAvg throughput: 12.1 tokens/s\n", "other_bug"),
        (ADAM.format("AssertionError: If capturable=False, state_steps should not be CUDA tensors."), "other_bug"),
        (ADAM.format("AttributeError: 'Net' object has no attribute 'fuse'"), "unrecognised"),
        ('File "/v/lib/python3.12/site-packages/sglang/srt/configs/x.py", line 7\n' + REGISTERED, "framework_pkg_mismatch"),
        ('File "train.py", line 7\n' + REGISTERED, "unrecognised"),
        (SOLVER.format("EXECUTION_FAILED") + " This error may appear if the input matrix contains NaN.\n", "bad_input"),
        (SOLVER.format("INTERNAL_ERROR") + "\n", "out_of_memory"),
        (KERAS.format("modeling_tf_utils"), "framework_pkg_mismatch"),
        (BOUNDS, "bad_input"),
        ("InvalidArgumentError: logits and labels must be broadcastable: logits_size=[64,10] labels_size=[64,9]\n", "bad_input"),
        (f"{SDPA}!!! Exception during processing!!! Allocation on device 0 would exceed allowed memory.\n", "out_of_memory"),
        (f"torch-2.0.1+cpu CPU\n{ASKED}", "cpu_only_build"),
        (f"torch-2.0.1+cu118 CPU\n{ASKED}", "driver_not_loaded"),
        (f"torch-2.0.1+cu118 CUDA:0 (Tesla T4, 15102MiB)\n{ASKED}", "unrecognised"),
        (f"{FALLING}jaxlib 0.3.25+cuda11.cudnn82\n{EMPTY}", "gpu_hidden_by_env"),
        (f"{FALLING}jaxlib 0.3.25\n{EMPTY}", "cpu_only_build"),
        (PYG.format("torch-cluster", "torch_cluster"), "framework_pkg_mismatch"),
    ],
)
def test_versions_listings_and_what_follows_decide(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize("log", [PYG.format("torch-scatter", "torch_scatter"), PYG.format("torch-sparse", "torch_sparse")])
def test_a_library_that_a_training_does_without_is_a_note(log: str) -> None:
    assert all(finding.severity == "info" for finding in judged(log + EPOCHS).findings)
