"""Remedies for driver, GPU, containers and memory ask what decides, and leave alone what the log shows to be in order."""

from __future__ import annotations

from cudnn_resolve.diagnosis.model import Finding
from tests.written_logs import judged


def found(log: str) -> Finding:
    return judged(log).findings[0]


def commands(log: str) -> list[str]:
    return [remedy.command for remedy in found(log).remedy if remedy.command]


def every(log: str) -> str:
    """All steps of the first finding, as one text."""
    return "\n".join(f"{remedy.text}\n{remedy.command or ''}" for remedy in found(log).remedy)


def test_weak_evidence_leads_to_a_question_and_to_no_driver_or_reboot() -> None:
    log = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    assert found(log).confidence < 0.6
    assert commands(log)[0] == "nvidia-smi"
    assert not [word for word in ("install", "reboot", "dkms") if word in every(log)]


def test_what_cudnn_refuses_is_not_compiled_again() -> None:
    log = "F0628 conv_layer.cpp:53] Check failed: status == CUDNN_STATUS_SUCCESS (6 vs. 0)  CUDNN_STATUS_ARCH_MISMATCH\n"
    assert found(log).cause == "gpu_arch_too_old_for_build"
    assert found(log).undecided is None
    assert commands(log) == ["nvidia-smi -L"]
    assert "USE_CUDNN" in every(log)
    assert "-gencode" not in every(log)


def test_a_kernel_that_fails_is_short_of_memory_unless_the_gpu_or_cuda_tells_otherwise() -> None:
    failed = "F0525 1 cudnn_conv_layer.cu:28] Check failed: status == CUDNN_STATUS_SUCCESS (8 vs. 0)  CUDNN_STATUS_EXECUTION_FAILED\n"
    assert found(failed).cause == "out_of_memory"
    assert commands(failed) == ["nvidia-smi"]
    assert found("GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-1)\n" + failed).cause == "gpu_arch_too_new_for_build"
    assert found("Successfully opened dynamic library libcudart.so.10.0\n" + failed).cause == "gpu_arch_too_new_for_build"


def test_a_full_gpu_is_looked_at_before_the_driver_that_the_message_doubts() -> None:
    log = (
        "E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:439] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
        "E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:443] Memory usage: 7995392 bytes free, 11721572352 bytes total.\n"
        "E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:453] Possibly insufficient driver version: 510.47.3\n"
    )
    assert commands(log)[:2] == ["nvidia-smi", "export CUDA_VISIBLE_DEVICES=1"]
    assert "TensorFlow" not in every(log)
    assert "TF_FORCE" not in every(log)
    assert "driver" not in every(log)


def test_a_container_of_singularity_is_started_with_its_own_option() -> None:
    log = (
        "  INFO:    Environment variable SINGULARITYENV_TMPDIR is set, but APPTAINERENV_TMPDIR is preferred\n"
        "W dso_loader.cc:66] Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file\n"
        "E cuda_driver.cc:265] failed call to cuInit: UNKNOWN ERROR (303)\n"
    )
    assert found(log).cause == "container_gpu_not_passed"
    assert commands(log) == ["singularity exec --nv IMAGE.sif nvidia-smi"]
    assert "docker" not in every(log)


def test_a_docker_without_nvidias_runtime_gets_it_before_a_container_asks_for_the_gpu() -> None:
    failed = "root@14690d4eb9d4:/app# ./main\nCUDA initialization failure with error 35. Please check your CUDA installation\n"
    assert "nvidia-container-toolkit" in commands(f"{failed} Runtimes: runc\n")[0]
    assert "nvidia-container-toolkit" not in every(f"{failed} Runtimes: nvidia runc\n")


def test_a_context_that_is_not_permitted_is_of_a_container_that_lost_its_gpu() -> None:
    log = 'cuda driver library failed to get device context 800time=2025-02-11 level=WARN msg="error looking up nvidia GPU memory"\n'
    assert found(log).cause == "container_gpu_detached"
    assert commands(log)[0] == "docker restart CONTAINER"
    assert found(log.replace("800time", "999time")).cause == "driver_wedged"


def test_ptx_names_the_cuda_that_the_driver_knows() -> None:
    log = (
        "numba.cuda.cudadrv.driver.LinkerError: [218] Call to cuLinkAddData results in UNKNOWN_CUDA_ERROR\n"
        "ptxas application ptx input, line 9; fatal   : Unsupported .version {}; current version is '{}'\n"
    )
    assert commands(log.format("6.3", "6.1")) == ['conda install numba "cudatoolkit<=9.1"']
    assert "410.48 or newer" in every(log.format("6.3", "6.1"))
    assert commands(log.format("8.4", "8.2"))[0] == "python -m pip install -U 'numba-cuda[cu12]'"


def test_a_device_plugin_gets_the_runtime_on_its_node() -> None:
    log = "E0506 17:45:45.421965       1 factory.go:113] If this is a GPU node, did you configure the NVIDIA Container Toolkit?\n"
    assert commands(log)[0].startswith("sudo nvidia-ctk runtime configure --runtime=containerd")
    assert "runtimeClassName" in every(log)


def test_a_runtime_that_the_log_shows_is_not_proposed_again_on_a_jetson() -> None:
    start = "$ sudo docker run -it --rm {}--network host nvcr.io/nvidia/l4t-pytorch:r32.4.2-pth1.5-py3\n"
    failed = "OSError: libnvToolsExt.so.1: cannot open shared object file: No such file or directory\n"
    assert commands(start.format("--runtime nvidia ") + failed) == ["cat /etc/nv_tegra_release"]
    assert "--runtime nvidia" in commands(start.format("") + failed)[0]


def test_the_compat_directory_of_an_image_is_put_behind_the_drivers_own() -> None:
    log = "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination\n"
    assert commands(log)[1] == "export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:$LD_LIBRARY_PATH"
    assert commands(f"LD_LIBRARY_PATH=/usr/local/cuda/compat\n{log}")[1] == "unset LD_LIBRARY_PATH"


def test_a_dll_of_llama_cpp_that_does_not_start_is_a_question_of_the_processor() -> None:
    log = (
        "Initializing dynamic library: koboldcpp_cublas.dll\n"
        "OSError: [WinError 1114] A dynamic link library (DLL) initialization routine failed\n"
        "PyInstallerImportError: Failed to load dynlib/dll 'C:\\Temp\\koboldcpp_cublas.dll'. Most likely it was not found.\n"
    )
    assert found(log).cause == "cpu_without_avx"
    assert "Win32_Processor" in commands(log)[0]
    assert commands(log)[1] == "koboldcpp.exe --noavx2 --noblas --nommap"


def test_libgpuarray_on_windows_is_asked_for_the_cuda_that_it_opens() -> None:
    log = 'File "c:\\Theano\\theano\\gpuarray\\__init__.py", line 60, in init_dev\nGpuArrayException: Error loading library: 0\n'
    assert commands(log) == ["conda list pygpu & where nvrtc64_*.dll cublas64_*.dll"]


def test_a_driver_container_without_packages_needs_another_kernel_on_its_node() -> None:
    log = "Unable to open the file '/lib/modules/3.10.0-862.el7.x86_64/proc/version'. Could not resolve Linux kernel version\n"
    assert commands(log) == ["kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset --all-containers --tail=50"]
    assert "driver.enabled=false" in every(log)


def test_access_that_wsl_blocks_is_not_mended_by_a_reboot() -> None:
    log = "Failed to initialize NVML: GPU access blocked by the operating system\n"
    assert commands(log)[0] == "wsl --update && wsl --shutdown"
    assert "dpkg -l" in commands(log)[1]
    assert "reboot" not in every(log)


def test_a_device_that_cub_does_not_find_follows_from_code_that_is_absent() -> None:
    log = (
        "CUDA error 209 [../third_party/cccl/cub/cub/util_device.cuh, 83]: no kernel image is available for execution on the device\n"
        "CUDA error 101 [../third_party/cccl/cub/cub/util_device.cuh, 102]: invalid device ordinal\n"
    )
    assert "gpu_hidden_by_env" not in {one.cause for one in judged(log).findings}


def test_words_near_those_of_a_place_or_change_lead_to_no_steps_for_it() -> None:
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed and running.\n"
    assert "ubuntu-drivers" in every(f"pci 0000:01:00.0: BAR 1: assigned [mem 0xc0000000-0xc00000ff]\n$ nvidia-smi\n{failed}")
    refused = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n'
    offered = "Command 'docker' not found, but can be installed with:\nsudo snap install docker         # version 24.0.5, or\n"
    assert "nvidia-ctk runtime configure" in every(offered + refused)
    mismatch = "Failed to initialize NVML: Driver/library version mismatch\n"
    assert commands(f"$ sudo reboot\n$ sudo apt upgrade -y\n$ nvidia-smi\n{mismatch}")[0] == "sudo reboot"
    assert "sudo reboot" not in commands(f"$ sudo reboot\n$ nvidia-smi\n{mismatch}")


def test_apptainer_binds_the_library_of_debian_and_of_red_hat() -> None:
    missing = "Could not load library libcudnn_ops_infer.so.8. Error: libcuda.so: cannot open shared object file\n"
    assert "ldconfig -p | grep -m1 'libcuda.so.1 .*x86-64'" in commands(f"$ apptainer exec --nv a.sif ./a\n{missing}")[0]
