"""What logs of drivers, GPUs and their containers decide is not asked again, and what they leave open is asked first."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book, judged

NO_CODE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
PTX = "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\n"
NO_GPUS = "RuntimeError: No CUDA GPUs are available\n"
NO_HANDLE = "tensorflow: failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED\n"
DKMS = (
    "Error! Bad return status for module build on kernel: 6.8.0-40-generic (x86_64)\n"
    "Consult /var/lib/dkms/nvidia/535.86.05/build/make.log for more information.\n"
    "dpkg: error processing package nvidia-dkms-535 (--configure):\n"
    " installed nvidia-dkms-535 package post-installation script subprocess returned error exit status 10\n"
    "dpkg: dependency problems prevent configuration of nvidia-driver-535:\n"
)
PYTHON_37 = "Python 3.7.11 (default, Jul 27 2021, 14:32:16) \n>>> import paddle\n"
PADDLE = (
    "paddlepaddle-gpu {}\n"
    "device_context.cc:447] Please NOTE: device: 0, GPU Compute Capability: 8.6, Driver API Version: 11.4, Runtime API Version: 10.2\n"
    + NO_CODE
)
LEGACY = (
    "NVRM: The NVIDIA GeForce GTX 560 Ti GPU installed in this system is\n"
    "NVRM:  supported through the NVIDIA 390.xx Legacy drivers. Please\n"
    "NVRM: None of the NVIDIA devices were initialized.\n"
)
NO_LOAD = (
    "ERROR: Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when this kernel module was built against the "
    "wrong sources, or if another driver, such as nouveau, is present and prevents the NVIDIA kernel module from obtaining ownership\n"
)
NGC = (
    "ERROR: This container was built for NVIDIA Driver Release 535.86 or later, but\n"
    "       version 470.57.02 was detected and compatibility mode is UNAVAILABLE.\n"
    "       [[Forward compatibility was attempted on non supported HW: cuInit()=804]]\n"
)
BACKUP = (
    "dpkg: error processing archive /a/libnvidia-compute-535_amd64.deb (--unpack):\n"
    " unable to make backup link of './usr/lib/x86_64-linux-gnu/{}' before installing new version: {}\n"
)


def said(log: str) -> str:
    return "\n".join(f"{one.text} $ {one.command}" for one in judged(log).findings[0].remedy)


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        # A device plugin is a pod: nobody starts it with docker run.
        ("2017/11/29 01:54:30 could not load NVML library\nx-daemonset-zb8xn 0/1 CrashLoopBackOff\n", "--set-as-default", "docker run"),
        ("dcgm-exporter-7x 0/1 CrashLoopBackOff\n/dev/nvidia0 does not exist\nFound no NVIDIA driver\n", "nvidia.com/gpu: 1", "docker run"),
        ("nvidia-docker | 2016/04/23 02:17:43 Error: could not load NVML library\n", "ubuntu-drivers autoinstall", "compose"),
        # What was built has its headers; what was not built is not asked whether it works.
        (DKMS, "boot the previous kernel", "ubuntu-drivers"),
        (DKMS, "make.log", "nvidia-smi"),
        ("Your kernel headers for kernel 5.15.0-91-generic cannot be found\n", "linux-headers", "nvidia-smi"),
        ("modprobe: ERROR: could not insert 'nvidia_367_uvm': Unknown symbol in module\n", "--reinstall nvidia-367", "ubuntu-drivers"),
        # A module that was built is refused by Secure Boot, or by another driver that is there.
        (NO_LOAD, "mokutil --sb-state", "tee /etc/modprobe.d"),
        ("modprobe: ERROR: could not insert 'nvidia': Operation not permitted\n", "mokutil --sb-state", "dkms autoinstall"),
        ("-> Kernel module load error: Key was rejected by service\n", "mokutil --import", "dkms autoinstall"),
        ("NVRM: This can occur when a driver such as: nouveau, rivafb was loaded\n" + NO_LOAD, "tee /etc/modprobe.d", "mokutil"),
        # Of module and libraries the older one is at fault.
        ("Failed to initialize NVML: Driver/library version mismatch\n", "dkms autoinstall", "purge"),
        ("/nix/store/z6-nvidia-x11-545.29.06/lib/libnvidia-ml.so.545.29.06: nvml vram init failure: 18\n", "opengl-driver", "apt-get"),
        # Names of packages before Ubuntu 18.04.
        (" libcuda1-390 : Depends: nvidia-compute-390 but it is not installable\n", "install libnvidia-compute-390", "take a release"),
        (" nvidia-396-dev : Depends: nvidia-396 but it is not going to be installed\n", "install nvidia-driver-396", "take a release"),
        (" libcuda1-304 : Depends: nvidia-304 but it is not going to be installed\n", "apt-cache policy nvidia-304", "compute-304"),
        # A card that the driver refuses needs another driver, not the same one again.
        (LEGACY, "nvidia.*390", "dkms"),
        ("This GPU is supported through the NVIDIA 340.xx legacy Linux graphics drivers.\n", "nvidia.*340", "dkms"),
        ("Your card is only supported up to the 340 legacy drivers series.\n", "nvidia.*340", "nvidia-smi"),
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n", "-open", "dkms autoinstall"),
        ("NVRM: installed in this system is not supported by open\nNVRM: nvidia.ko because\n", "proprietary modules", "dkms autoinstall"),
        # The module decides: first what is loaded, then the device file.
        ("nvidia-docker | 2016/07/13 23:40:32 Error: Could not load UVM kernel module\n", "lsmod", "restart the container"),
        ("ls: cannot access '/dev/nvidia-uvm': No such file or directory\n", "nvidia-modprobe -u", "rmmod"),
        # Of two drivers the right one stays.
        ("kernel version 384.130.0 does not match DSO version 375.66.0\n", "-)?375(-", "&&"),
        ("kernel version 535.104.5 does not match DSO version 535.86.10\n", "dpkg -S", "purge"),
        # An image that names its driver has answered which one.
        (NGC, "from 470.57.02 to 535.86", "purge"),
        ("ERROR: /usr/lib64/libcuda.so.418.74: undefined symbol: cuCtxCreate_v3\n", "from 470 on", "nvidia-smi"),
        ("ERROR: Cuda initialization failure with error 35. Please check cuda installation\n", "525.60.13 for CUDA 12", "cudnn-resolve"),
        # ARM has no AVX.
        ("Linux nano 4.9.253-tegra aarch64\n>>> import tensorflow\nIllegal instruction (core dumped)\n", "OPENBLAS_CORETYPE", "conda"),
        (
            "Successfully opened dynamic library libcudart.so.10.2\ntensorflow: Illegal instruction (core dumped)\n",
            "uname -m",
            "conda-forge",
        ),
        # A notebook may have the GPU that its program does not see.
        ("/content/a.py\n" + NO_GPUS, "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES", "ubuntu-drivers"),
        # A GPU that is not named: each answer has its step.
        (NO_CODE, "below 7.5", "see which it is"),
        ("ggml_cuda_compute_forward at /a/ggml-cuda.cu:75\n" + NO_CODE, "below 7.5", "cudnn-resolve"),
        # An image names its CUDA; a driver of 2014 serves no build.
        ("configure --require=cuda>=10.0 brand=tesla,driver>=384\nrequirement error: unsatisfied condition: brand = x\n", "410.48", "smi"),
        ("configure --require=cuda>=12.4 brand=tesla\nunsatisfied condition: brand = geforce\n", "550.54.14", "nvidia-smi"),
        ("AssertionError: The NVIDIA driver on your system is too old (found version 6050).\n", "$ sudo ubuntu-drivers", "compile"),
        # The same release is built with another CUDA, or none is built for the GPU.
        ("torch==1.7.1+cu101\nGeForce RTX 3090\n" + NO_CODE, "apply -f torch==1.7.1", "2.1"),
        (PADDLE.format("2.2.2"), "PaddlePaddle 2.2.2, built with CUDA 11", "3.3"),
        (PYTHON_37 + PADDLE.format(""), "PaddlePaddle 2.5.2, built with CUDA 11", "3.3"),
        ("torch==2.5.1+cu124\nNVIDIA GeForce RTX 5090\n" + NO_CODE, "PyTorch 2.1", "-f torch=="),
        ("tensorflow/a.cc:4] cuModuleLoadData failed with 'CUDA_ERROR_INVALID_PTX'\n", "nvcr.io/nvidia/tensorflow", "change one"),
        (
            "Found GPU0 GTX 650 which is of cuda capability 3.0.\nPyTorch no longer supports this GPU because it is too old.\n",
            "10.2 or",
            "-f",
        ),
        # PTX needs the driver of its own CUDA: drivers of the same major are no answer.
        (PTX, "at least the CUDA that the program was built with", "450.80"),
        ("[TensorRT] ERROR: CUDA initialization failure with error 222.\n", "the same major is not enough", "450.80"),
        ("/usr/local/cuda-11.8/bin/nvcc -o a a.cu\n" + PTX, "520.61.05 or newer, for the PTX of CUDA 11.8", "525.60"),
        ("Driver Version: 515.86.01    CUDA Version: 11.7\n" + PTX, "with CUDA 11.7 or older", "nvidia-smi"),
        ("C:\\a\\b.exe\nCuda compilation tools, release 12.4, V12.4.99\n" + PTX, "one made for CUDA 12.4 or newer", "550.54"),
        ('  File "/home/orin/a.py", line 3\n' + PTX, "for the board", "driver of the host"),
        ("PyTorch version: 2.1.0+cu118\n" + PTX, "520.61.05", "450.80"),
        ("torch/a.py: " + PTX, "TORCH_CUDA_ARCH_LIST", "450.80"),
        # PyTorch stays where it has code for the GPU of the log.
        ("PyTorch version: 2.1.2+cu121\nGPU 0: Tesla P100-PCIE-16GB\n" + NO_CODE, "TORCH_CUDA_ARCH_LIST=6.0", "apply"),
        ("torch==2.7.1+cu128\nGPU 0: NVIDIA GeForce RTX 5090\n" + NO_CODE, "TORCH_CUDA_ARCH_LIST=12.0", "apply"),
        # Memory.
        ("tensorflow-gpu==1.12.0\ncould not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n", "tf.ConfigProto()", "ALLOW_GROWTH"),
        ("Created TensorFlow device (/device:GPU:0 with 104 MB memory)\n" + NO_HANDLE, "nvidia-smi", "ALLOW_GROWTH"),
        ("tensorflow/cuda_blas.cc:428] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n", "nvidia-tensorflow", "export"),
        ("ollama: allocating 24289.03 MiB on device 0: cudaMalloc failed: out of memory\n", "num_gpu", "nvidia-smi"),
    ],
)
def test_the_first_steps_are_those_that_the_log_leaves_to_take(log: str, there: str, absent: str) -> None:
    assert there in said(log)
    assert absent not in said(log)


@pytest.mark.parametrize("place", [("libnvidia-ml.so.535.1", "Invalid cross-device link"), ("libcuda.so.535.1", "Device or resource busy")])
def test_files_of_the_driver_that_are_mounted_are_no_conflict(place: tuple[str, str]) -> None:
    found = judged(BACKUP.format(*place)).findings
    assert [one.cause for one in found] == ["unrecognised"]
    assert "mounted" in found[0].summary
    assert "image's build" in said(BACKUP.format(*place))


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (DKMS, "driver_not_loaded"),
        (
            'could not select device driver "" with capabilities: [[gpu]].\nFound no NVIDIA driver on your system\n',
            "container_toolkit_missing",
        ),
        ('hostname: 18a61c37a941\nlibcuda reported version is: Invalid argument; got "1"\n', "container_gpu_not_passed"),
        (NO_CODE, "gpu_arch_too_old_for_build"),
        ("CUDA error: no kernel image is available for execution on the device\n", "gpu_arch_too_new_for_build"),
        (
            "could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\ncould not destroy cudnn handle: CUDNN_STATUS_BAD_PARAM\n",
            "out_of_memory",
        ),
    ],
)
def test_what_follows_from_a_failure_is_no_second_one(log: str, cause: str) -> None:
    assert [one.cause for one in judged(log).findings] == [cause]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("/content/a.py\n" + NO_GPUS, "no_gpu_runtime"),
        ('/content/a.py\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n' + NO_GPUS, "gpu_hidden_by_env"),
    ],
)
def test_a_notebook_that_shows_no_gpu_is_not_sure_to_have_none(log: str, cause: str) -> None:
    found = judged(log).findings[0]
    assert found.cause == cause
    assert (found.confidence < 0.8) == (cause == "no_gpu_runtime")


def test_a_command_for_windows_sets_its_variable_as_windows_does() -> None:
    log = 'PyTorch 2.1.0+cu118, Tesla P100-PCIE-16GB\n  File "C:\\a\\venv\\lib\\site-packages\\xformers\\ops\\f.py", line 1, in f\n'
    assert 'set "TORCH_CUDA_ARCH_LIST=6.0" && ' in said(log + NO_CODE)


@pytest.mark.parametrize(("installed", "is_named"), [("390.77", False), ("375.66", True)])
def test_an_update_to_what_is_installed_is_none(installed: str, *, is_named: bool) -> None:
    facts = {
        "platform": {"system": "linux", "arch": "x86_64", "glibc": "2.27"},
        "python": {"version": "3.6.9", "path": "/v/bin/python"},
        "driver": {"version": installed, "kernel_module": installed},
        "packages": {"pip": {"tensorflow-gpu": "1.12.0"}},
    }
    log = b"tensorflow: cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version\n"
    found = diagnose(Reader(book().symptoms()).read([log]), from_mapping(facts, "test"), book()).findings[0]
    assert any("384.81" in step.text for step in found.remedy) is is_named
