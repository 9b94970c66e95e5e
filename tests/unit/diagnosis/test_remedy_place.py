"""Remedies for driver, GPU, containers and memory fit the place where the program runs, and what the log says of it."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.diagnosis.remedy_machine import in_shell
from tests.written_logs import judged

NO_DEVICE = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n"
NO_CT2 = "ValueError: This CTranslate2 package was not compiled with CUDA support\n"
NO_WHEEL = "ERROR: Could not find a version that satisfies the requirement {0}\nERROR: No matching distribution found for {0}\n"
NO_RUNTIME = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n'
NO_KEY = (
    "Err:1 https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64  InRelease\n"
    "  The following signatures couldn't be verified because the public key is not available: NO_PUBKEY A4B469963BF863CC\n"
)
NO_LIBRARY = "prog: error while loading shared libraries: {}: cannot open shared object file: No such file or directory\n"
NO_CODE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. "
FULL += "GPU 0 has a total capacity of 23.65 GiB of which {} GiB is free. "
OWN = "Including non-PyTorch memory, this process has {} GiB memory in use. Of the allocated memory {} GiB is allocated by PyTorch, "
UNUSED = "and {} GiB is reserved by PyTorch but unallocated.\n"


def first(log: str) -> Finding:
    return judged(log).findings[0]


def said(log: str) -> str:
    return "\n".join(f"{one.text} $ {one.command or ''}" for one in first(log).remedy)


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        # The driver is the one of the place's host.
        (NO_DEVICE, "ldconfig -p", "FRAMEWORK"),
        ("$ srun -n 1 python train.py\n" + NO_DEVICE, "srun --gres=gpu:1", "FRAMEWORK"),
        ("$ kubectl logs pod\n" + NO_DRIVER, "nvidia.com/gpu: 1", "ubuntu-drivers"),
        (
            "nvidia-l4t-core 32.7\nImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n",
            "JetPack",
            "ubuntu",
        ),
        ("root@3f2504e04f89:/# nvidia-smi\nFailed to initialize NVML: Unknown Error\n", "docker restart 3f2504e04f89", "CONTAINER"),
        ("kubectl exec -it p -- nvidia-smi\nFailed to initialize NVML: Unknown Error\n", "kubectl delete pod", "docker restart"),
        (
            "C:\\Users\\u>docker run --gpus all i\n" + NO_RUNTIME,
            "wsl --update",
            "apt-get",
        ),
        (
            "# dnf install docker-ce\n" + NO_RUNTIME,
            "dnf install -y nvidia-container-toolkit",
            "apt-get",
        ),
        (
            "Error: crun: executable file `nvidia-smi` not found in $PATH: No such file\n",
            "podman run --device nvidia.com/gpu=all",
            "docker",
        ),
        (" ---> Running in eb9f2899e448\n" + NO_KEY, "ubuntu2004/x86_64/3bf863cc.pub", "wget"),
        # What concerns Docker itself is done on its host, also after the build of an image.
        (" => [stage-1  8/11] COPY . /docker\n" + NO_RUNTIME, "$ sudo apt-get install -y nvidia-container-toolkit", "$ apt-get"),
        ("The command '/bin/sh -c x' returned a non-zero code: 100\nNO_PUBKEY A4B469963BF863CC\n", "$ID$(echo", "wget"),
        (NO_KEY, "ubuntu2004/x86_64/cuda-keyring", "RUN"),
        (NO_KEY, "rm -f /etc/apt/sources.list.d/cuda.list && sudo dpkg", "nvidia-ml.list"),
        ("#5 24.1 Reading package lists...\n#5 24.2 NO_PUBKEY A4B469963BF863CC\n", "$ RUN rm -f /etc/apt/sources.list.d/cuda", "sudo"),
        ("#7 1.2 W: GPG error: https://nvidia.github.io/libnvidia-container  InRelease: NO_PUBKEY DDCAE044F796ECB0\n", "| gpg", "sudo"),
        ("W: GPG error: http://a.example  Release: NO_PUBKEY F60F4B3D7FA2AF80\n", "machine-learning/repos/$ID", "a.example/compute"),
        ("W: GPG error: http://a.example  Release: BADSIG F60F4B3D7FA2AF80 c\n", "rm -rf /var/lib/apt/lists/*", "RUN"),
        # A program that was not compiled here: the library's package, and the framework inside is none of Python's.
        (NO_LIBRARY.format("libnvrtc.so.10.1"), "install cuda-nvrtc-10-1", "$ make"),
        (NO_LIBRARY.format("libnvrtc.so.12"), "if you did not compile", "apt-get"),
        (
            (
                "I external/org_tensorflow/tensorflow/core/common_runtime/gpu/gpu_device.cc:1007] Ignoring visible gpu device (device: 0, "
                "name: GRID K520) with Cuda compute capability 3.0. "
                "The minimum required Cuda capability is 3.5.\n"
            ),
            "TF_CUDA_COMPUTE_CAPABILITIES=3.0",
            "apply",
        ),
        # TensorFlow 1 on a machine that the log does not show.
        (
            (
                '  File "/h/.local/lib/python2.7/site-packages/tensorflow/a.py", line 3, in f\n'
                "ImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory\n"
            ),
            "uname -m; ls -d",
            "R32.3",
        ),
        # A build of an image changes its Dockerfile, and not the host.
        (f"{NO_KEY}The command '/bin/sh -c {'x ' * 300}' returned a non-zero code: 100\n", "$ RUN apt-key adv", "sudo"),
        (f"{NO_KEY}executor failed running [/bin/sh -c apt-get update]: exit code: 100\n", "$ RUN rm -f /etc/apt/sources", "sudo"),
        (f"STEP 3/9: RUN apt-get update\n{NO_KEY}", "newer tag of the base image", "sudo"),
        ("mount error: file creation failed: /a/merged/usr/lib/aarch64-linux-gnu/libcudnn.so: file exists\n", "l4t-base", "upgrade"),
        ("Error: stat nvidia.com/gpu=all: no such file or directory\n", "podman --version", "kubectl"),
        (
            "$ docker run --gpus all i\nnvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.\n",
            "modprobe nvidia",
            "docker run",
        ),
        ("w  | RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n", "compose", "updated"),
        # What has no wheel for a processor has none for any Python of it.
        (NO_CT2, "uname -sm", "$ cmake"),
        ("$ uname -a\nLinux agx 5.15.148-tegra aarch64\n" + NO_CT2, "-DWITH_CUDA=ON", "cudnn-resolve"),
        ("name: GeForce GTX 1080\n" + NO_CT2, "install --force-reinstall --no-deps ctranslate2", "uname"),
        (NO_WHEEL.format("onnxruntime-gpu"), "begin with release 1.29.0", "$ python -m pip install"),
        ("Linux nano 4.9.253-tegra aarch64\n" + NO_WHEEL.format("onnxruntime-gpu"), "/etc/nv_tegra_release", "uv venv"),
        ("aarch64\n" + NO_WHEEL.format("tensorflow-gpu==1.15"), "no wheels of tensorflow-gpu==1.15", "uv venv"),
        ("linux-x86_64, cuda 12.2\n" + NO_WHEEL.format("onnxruntime-gpu"), "uv venv", "Jetson"),
        (NO_WHEEL.format("torch"), "uv venv", "Jetson"),
        ("ImportError: libcublas.so.8.0: cannot open shared object file: No such file or directory\n", "uname -m; ls -d", "R32.3"),
        # An old driver is first compared, and replaced where it is.
        (
            "InternalError: cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version\n",
            "if it fails",
            "FRAMEWORK",
        ),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver\n",
            "570.26 or newer",
            "cudnn-resolve",
        ),
        (
            "PS C:\\p> docker run i\nnvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update\n",
            "driver of Windows to 570 or newer",
            "570.26",
        ),
        ("dlerr: /usr/lib64/libcuda.so.418.74: undefined symbol: cuCtxCreate_v3\n", "from 470 on", "ldconfig"),
        ("Error 804: forward compatibility was attempted on non supported HW\n", "run this on the host", "unset"),
        # Who compiled a program compiles it again; other languages have tools of their own.
        (
            "F0225 14:29:46.455771   743 vol2col.cu:75] Check failed: error == cudaSuccess (8 vs. 0)  invalid device function\n",
            "Makefile.config",
            "cudnn-resolve",
        ),
        (
            "  Device 0: NVIDIA GeForce 940MX, compute capability 5.0\nggml-cuda.cu:5284: no kernel image is available\n",
            "=50",
            "nvidia-smi",
        ),
        (
            "ERROR: CUDNNError: CUDNN_STATUS_EXECUTION_FAILED (code 5000)\n@ cuDNN ~/.julia/packages/cuDNN/a/src/c.jl:15\n",
            "julia -e",
            "cmake",
        ),
        (
            "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  x: no kernel image is available\n",
            "-gencode",
            "doctor LOG",
        ),
        (
            "numba.cuda: ptxas application ptx input, line 9; fatal   : Unsupported .version 8.7; current version is '8.4'\n",
            "driver of the host",
            "TRITON",
        ),
        (
            "The TensorFlow library was compiled to use AVX instructions, but these aren't available.\nqemu: uncaught target signal 6\n",
            "linux/arm64",
            "lscpu",
        ),
        # Data that a kernel refuses.
        ("Loss.cu:92: block: [0,0,0], thread: [32,0,0] Assertion `input_val >= zero && input_val <= one` failed.\n", "sigmoid", "label"),
        (
            "Error: /paddle/k.cu:42 Assertion `(x >= static_cast<T>(0))` failed. Expected [0, 1], but received nan.\n",
            "FLAGS_check_nan_inf",
            "label",
        ),
        ("Loss.cu:1: block: [0,0,0], thread: [1,0,0] Assertion `t >= 0 && t < n_classes` failed.\n", "last layer", "sigmoid"),
        (
            "T.cu:11: block: [0,0,0], thread: [0,0,0] Assertion `probability tensor contains either `inf`, `nan`` failed.\n",
            "bfloat16",
            "label",
        ),
    ],
)
def test_a_remedy_fits_the_place_and_the_words_of_the_log(log: str, there: str, absent: str) -> None:
    assert there in said(log)
    assert absent not in said(log)


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        (FULL.format("29.76", "3.65"), "29.8 GiB", "nvidia-smi"),
        (FULL.format("1.55", "0.01") + OWN.format("22.9", "20.4") + UNUSED.format("0.2"), "smaller batch", "nvidia-smi"),
        (FULL.format("1.55", "0.01") + "Process 9 has 22.9 GiB memory in use. " + OWN.format("9", "20.4")[67:], "batch", "nvidia-smi"),
        ("CUDA out of memory occurred when warming up sampler with 256 dummy requests.\n", "max_num_seqs", "nvidia-smi"),
        (FULL.format("1.55", "0.01") + OWN.format("3.1", "2.4") + UNUSED.format("0.2"), "nvidia-smi", "PYTORCH"),
        (FULL.format("1.55", "0.01") + OWN.format("22.9", "12.4") + UNUSED.format("9.2"), "expandable_segments", "GPU's memory"),
        ("/content/x\n" + FULL.format("1.55", "0.01"), "restart the session", "nvidia-smi"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 14285187448 bytes.\njax\n", "13.3 GiB", "=.70"),
        ("ollama: CUDA error: out of memory\n", "quantized", "image size"),
        ("ggml_cuda: allocating 144817.04 MiB on device 0: cudaMalloc failed: out of memory\n", "141.4 GiB", "FlashAttention"),
        ("train.py: CUDA error: out of memory\n", "image size", "quantized"),
    ],
)
def test_the_sizes_in_a_log_tell_what_frees_memory(log: str, there: str, absent: str) -> None:
    assert first(log).cause == "out_of_memory"
    assert there in said(log)
    assert absent not in said(log)


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (
            "docker run -it -v $PWD:/w --rm pytorch/pytorch python t.py",
            "docker run --gpus all -it -v $PWD:/w --rm pytorch/pytorch python t.py",
        ),
        ("podman run --rm docker.io/a/b:1", "podman run --device nvidia.com/gpu=all --rm docker.io/a/b:1"),
        ("singularity exec a.sif python t.py", "singularity exec --nv a.sif python t.py"),
        ("docker run -it a/b:1 sh -c 'x; y'", "docker run --gpus all a/b:1"),
        ("docker run -it a/b:1 \\", "docker run --gpus all a/b:1"),
        ("docker run -it a/b:1 `reboot`", "docker run --gpus all a/b:1"),
        ("docker run -it a/b:1 $(reboot)", "docker run --gpus all a/b:1"),
    ],
)
def test_a_container_is_started_again_by_its_own_command(command: str, started: str) -> None:
    found = first(f"$ {command}\nno NVIDIA GPU device is present: /dev/nvidia0 does not exist\n")
    assert found.remedy[-1].command == started


@pytest.mark.parametrize(
    ("log", "there"),
    [
        (
            "Jan 11 15:37:50 pc ollama[5616]: Discovered GPU libraries: [{}]\n",
            "[Service] and Environment=LD_LIBRARY_PATH=/usr/lib/wsl/lib,",
        ),
        ("Jan 11 15:37:50 pc jupyterhub[7]: libraries: [{}]\n", "sudo systemctl edit jupyterhub"),
        ("Discovered GPU libraries: [{}]\n", "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$"),
        ("Jan 11 15:37:49 pc jupyterhub[7]: started\nDiscovered GPU libraries: [{}]\n", "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$"),
        ("Jan 11 15:37:50 pc evil;x[5616]: libraries: [{}]\n", "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$"),
    ],
)
def test_a_service_gets_its_setting_from_systemd(log: str, there: str) -> None:
    both = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.104.05 /usr/lib/wsl/lib/libnvidia-ml.so.1"
    failed = "Unable to load CUDA management library /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.104.05: nvml vram init failure: 9\n"
    found = first(log.format(both) + failed)
    assert found.cause == "wsl_driver_shadowed"
    assert there in f"{found.remedy[0].text} $ {found.remedy[0].command}"


@pytest.mark.parametrize(
    ("command", "features", "windows", "shown"),
    [
        ("export A_B=1", (), False, "export A_B=1"),
        ("export A_B=1", (), True, 'set "A_B=1"'),
        ("export A_B=1 C_D=.5", (), True, 'set "A_B=1" && set "C_D=.5"'),
        ("unset A_B", (), True, 'set "A_B="'),
        ("export A_B=1", ("hosted-notebook",), False, "%env A_B=1"),
        ("export A_B=1 C_D=.5", ("ipython-cell",), False, "import os; os.environ.update(A_B='1', C_D='.5')"),
        ("unset A_B", ("hosted-notebook",), False, "import os; os.environ.pop('A_B', None)"),
        ("export A_B=$HOME/lib", ("hosted-notebook",), False, "export A_B=$HOME/lib"),
        ("nvidia-smi", ("hosted-notebook",), True, "nvidia-smi"),
    ],
)
def test_a_setting_is_made_in_the_shell_of_the_log(command: str, features: tuple[str, ...], *, windows: bool, shown: str) -> None:
    assert in_shell(command, features, windows=windows) == shown


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "<ipython-input-1-4973789e8df1> in <module>()\n/usr/local/lib/python3.7/dist-packages/t.py\n-> 6     arch_list[-1] += '+PTX'\n",
            "no_gpu_runtime",
        ),
        (
            "root@3f2504e04f89:/w# pip install .\n-> 1606         arch_list[-1] += '+PTX'\nIndexError: list index out of range\n",
            "container_gpu_not_passed",
        ),
        (
            "  Device 0: GRID A100D-16C, compute capability 8.0\nCUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
            "driver_wedged",
        ),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable\n", "gpu_exclusive_mode"),
        ("|   0  GeForce GT 730     WDDM  |\n" + NO_CODE, "gpu_arch_too_old_for_build"),
        ("RuntimeError: cuBLAS failed with status CUBLAS_STATUS_NOT_SUPPORTED\n", "other_bug"),
        (
            "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx( handle, a, CUDA_R_16BF, lda)`\n",
            "gpu_arch_too_old_for_build",
        ),
    ],
)
def test_what_the_log_says_of_its_machine_decides_the_cause(log: str, cause: str) -> None:
    found = judged(log)
    assert found.findings[0].cause == cause
    assert len([one for one in found.findings if one.cause.startswith("gpu_arch")]) <= 1


NOT_OPENED = "{}: cannot open shared object file: No such file or directory\n"
NO_MODULE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure\n"


@pytest.mark.parametrize(
    ("log", "there"),
    [
        ("java.lang.UnsatisfiedLinkError: /t/libjnind4jcuda.so: " + NOT_OPENED.format("libcublas.so.11"), "cuda-platform-redist"),
        (
            "ai.onnxruntime.OrtException: Failed to load library libonnxruntime_providers_cuda.so with error: "
            + NOT_OPENED.format("libcudnn.so.9"),
            "cuDNN 9",
        ),
        ("   at Microsoft.ML.X.Train()\nCould not load dynamic library 'cudnn64_8.dll'; dlerror: cudnn64_8.dll not found\n", "PATH"),
        ("Error: " + NOT_OPENED.format("libcublas.so.10.0") + "    at /a/node_modules/@tensorflow/tfjs-node-gpu/i.js:60:16\n", "10.0"),
        ("Error: " + NOT_OPENED.format("libcudnn.so.8") + "    at /a/node_modules/@tensorflow/tfjs-node-gpu/i.js:60:16\n", "ldconfig"),
        ("Error in torch_tensor_cpp(data, dtype) :\n  PyTorch is not linked with support for cuda devices\n", "install_torch"),
        ("Error in cpp_lantern_init(path) :\n  /r/torch/lib/liblantern.so - " + NOT_OPENED.format("libcudnn.so.8"), "install_torch"),
        ("julia> using CUDA\nERROR: InitError: could not load library\n" + NOT_OPENED.format("libcublas.so.12"), "CUDA.versioninfo"),
        ("thread 'main' panicked at src/main.rs:31:10:\n" + NOT_OPENED.format("libcublas.so.12"), "ldconfig"),
        ("InvalidOperationException: Torch device type CUDA did not initialise on the current machine.\n", "TorchSharp-cuda"),
    ],
)
def test_a_program_in_another_language_takes_nothing_from_python(log: str, there: str) -> None:
    assert there in said(log)
    assert not any(word in said(log) for word in ("-m pip", "cudnn-resolve", "/etc/nv_tegra"))


@pytest.mark.parametrize(
    ("log", "there"),
    [
        (NO_MODULE + "Module nvidia not found in directory /lib/modules/6.9.1-arch1-1\n", "pacman -Syu"),
        ("$ sudo zypper ref\n" + NO_MODULE, "openSUSE"),
        ("/var/tmp/portage/x11-drivers/nvidia-drivers-535.1/work/kernel/nvidia-drm/drv.c:748:43: error: x undeclared\n", "emerge"),
        ("[nix-shell:~/p]$ python t.py\nImportError: " + NOT_OPENED.format("libcuda.so.1"), "/run/opengl-driver/lib"),
        ("[nix-shell:~/p]$ python t.py\nImportError: " + NOT_OPENED.format("libstdc++.so.6"), "nix-ld"),
        ("$ nix develop\nRuntimeError: Found no NVIDIA driver on your system. Please check\n", "/run/opengl-driver/lib"),
    ],
)
def test_a_system_has_its_own_package_manager(log: str, there: str) -> None:
    assert there in said(log)
    assert not any(word in said(log) for word in ("cudnn-resolve", "apt-get", "ubuntu-drivers", "apt-file", "dnf"))


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        (NO_MODULE + "Debian GNU/Linux 12 (bookworm)\n", "nvidia-driver", "ubuntu-drivers"),
        # What the log shows is not asked again.
        ("Error using gpuDevice (line 26)\nGraphics driver is out of date. Download and install the latest one.\n", "update", "nvidia-smi"),
        ("Error: OPTIX_ERROR_UNSUPPORTED_ABI_VERSION in optixInit\n", "update", "nvidia-smi"),
        (
            (
                "GPU 0: NVIDIA GeForce RTX 3070\nMXNetError: x.h:87: Check failed: e == CUDNN_STATUS_SUCCESS (8 vs. 0) "
                ": cuDNN: CUDNN_STATUS_EXECUTION_FAILED\nmxnet-cu101 1.6.0\n"
            ),
            "8.6",
            "compute_cap",
        ),
        # The place is not known.
        (NO_DRIVER, "lspci", "the notebook's settings"),
        ("unpacking\n" + NO_DRIVER + '  File "/content/a.py", line 1, in <module>\n', "the notebook's settings", "lspci"),
        # A toolkit that may be there is looked for, and on Windows it comes with an installer.
        ("Failed to execute `nvcc`: Os { code: 2, kind: NotFound }\nerror: build failed\n", "ls -d /usr/local/cuda*", "nvinfer"),
        ("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist\n", "ls -d /usr/local/cuda*", "LOG"),
        ("-- Building for: Visual Studio 17 2022\nCMake Error at C.cmake:506 (message):\n  No CUDA toolset found.\n", "Studio", "ls -d"),
        ("'nvcc' is not recognized as an internal or external command,\noperable program or batch file.\n", "installer", "ls -d"),
        ("Error in fail: Could not find any cudnn.h, cudnn_version.h matching version '8' in any subdirectory:\n", "cudnn=8", "cudnn=9"),
        ("ImportError: " + NOT_OPENED.format("libcustatevec.so.1"), "install custatevec-cu12", "apt-file"),
        ("ImportError: " + NOT_OPENED.format("libcutensor.so.2"), "install cutensor-cu12", "not show which framework"),
        ("ImportError: " + NOT_OPENED.format("libnvinfer.so.10"), "'tensorrt-cu12<11'", "not show which framework"),
        ("./app: error while loading shared libraries: " + NOT_OPENED.format("libnvinfer.so.8"), "ld.so.conf.d", "-m pip"),
        (
            "ImportError: Error loading shared library ld-x.so.2: No such file or directory (needed by /v/torch/lib/libc10.so)\n",
            "slim",
            "pip",
        ),
        ("  - nothing provides dkms >= 3.1.8 needed by nvidia-open-3:570-1.el9.noarch from cuda-rhel9\n", "epel-release", "apt-get"),
        ("     └─ __cuda >=12.0, for which no candidates were found.\n", "CONDA_OVERRIDE_CUDA", "ubuntu-drivers"),
        ("[cuda-sles|https://a/b] Valid metadata not found at specified URL\n$ zypper ref\n", "--gpg-auto-import-keys", "signed-by"),
        ("srun: error: Unable to allocate resources: Invalid generic resource (gres) specification\n", "sinfo", "cudnn-resolve"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available\n", "sinfo", "cudnn-resolve"),
    ],
)
def test_the_first_question_is_one_that_the_log_leaves_open(log: str, there: str, absent: str) -> None:
    assert there in said(log)
    assert absent not in said(log)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ('msg="Unable to load cudart library /usr/lib/libcuda.so.535.1: cuda driver library init failure: 999"\n', "driver_wedged"),
        ("ATTENTION! No OpenCL-compatible, HIP-compatible or CUDA-compatible platform found.\n", "driver_not_loaded"),
        (
            "UnsatisfiedLinkError: C:\\u\\pytorch\\2.1.1-cu121\\torch_cuda.dll: The specified module could not be found\n",
            "windows_runtime_missing",
        ),
        ("> tf$config$list_physical_devices('GPU')\nlist()\n", "cpu_only_build"),
        (
            (
                "ERROR: Unable to find a resolution for tensorflow because of the following conflicts:\n"
                "  tensorflow==2.15.0 (from project)\n  requires-python: >=3.13\n"
            ),
            "pip_wheel_unavailable_for_python",
        ),
    ],
)
def test_words_of_other_programs_lead_to_the_cause(log: str, cause: str) -> None:
    assert first(log).cause == cause


def test_a_wrapped_sentence_that_ends_in_detected_is_no_work() -> None:
    finding = first("Fatal error:\nCannot run short-ranged nonbonded interactions on a GPU because no GPU is\ndetected.\n")

    assert finding.cause == "driver_not_loaded"
    assert "continues" not in finding.summary


def test_an_environment_for_conda_has_a_python_of_its_list() -> None:
    log = (
        "UnsatisfiableError: The following specifications were found to be incompatible with the existing python installation:\n"
        "  - torchaudio -> python[version='>=3.10,<3.11.0a0|>=3.8,<3.9.0a0|>=3.9,<3.10.0a0']\nYour python: python=3.12\n"
    )

    assert "conda create -n py3.10 python=3.10" in said(log)
    assert "-m pip install" not in said(log)


@pytest.mark.parametrize(
    "tool", ["~/.local/share/pypoetry/venv", "/home/me/.local/pipx/venvs/pdm", "/home/me/.local/share/uv/tools/poetry"]
)
def test_the_environment_of_an_installer_is_not_that_of_the_program(tool: str) -> None:
    log = (
        f"  Unable to find installation candidates for torch (2.3.1+cu121)\n  at {tool}/lib/python3.12/site-packages/x/chooser.py:74 in f\n"
    )

    assert not any(word in said(log) for word in (tool, "python3.12"))


NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled\nme@box:~$ ls\n"


@pytest.mark.parametrize(
    "before",
    [
        "me@box:~$ docker run -it --gpus all pytorch/pytorch bash\nroot@3f2504e04f89:/# python a.py\n",
        "me@box:~$ docker run -d --gpus all i\nme@box:~$ docker exec -it c bash\n",
    ],
)
def test_a_dockerfile_is_named_where_the_failure_is_in_the_container(before: str) -> None:
    assert "Dockerfile" in said(before + NO_CUDA)


@pytest.mark.parametrize(
    "before",
    [
        "me@box:~$ docker run --gpus all nvidia/cuda:12.2.0-base nvidia-smi -L\nme@box:~$ python a.py\n",
        "$ docker run --gpus all i ls\n(base) me@box:/srv/app$ python a.py\n",
    ],
)
def test_no_dockerfile_is_named_where_the_failure_is_on_the_host(before: str) -> None:
    assert "Dockerfile" not in said(before + NO_CUDA)


@pytest.mark.parametrize(("python", "pin"), [("3.11.3", "tensorflow==2.12.0"), ("3.12.3", "tensorflow")])
def test_the_current_name_has_a_release_for_this_python(python: str, pin: str) -> None:
    lines = said(f"Python {python}\n{NO_WHEEL.format('tensorflow-gpu==2.12.0')}").split("\n")
    assert next(line for line in lines if "current name" in line).endswith(f" {pin}")


@pytest.mark.parametrize(
    ("log", "summary", "step"),
    [
        ("insmod: ERROR: could not insert module nvidia.ko: Invalid module format\n", "kernel module", "modprobe nvidia"),
        ("modprobe nvidia-uvm: nvidia_uvm Invalid argument\n", "kernel module", "modprobe nvidia"),
        ("web-0          0/1     UnexpectedAdmissionError   0          2h\n", "refused the pod", "kubectl delete pod web-0"),
        ("web-0   1/1   Running                    0   2h\nweb-1   0/1   UnexpectedAdmissionError   0   2h\n", "pod", "delete pod web-1"),
        ("web-0;id   0/1   UnexpectedAdmissionError   0   2h\n", "refused the pod", "delete pod POD"),
        ("ml   web-0   0/1   UnexpectedAdmissionError   0   2h\n", "refused the pod", "delete pod POD"),
        ("F1 syncedmem.hpp:25] Check failed: *ptr host allocation of size 561259008 failed\n", "system memory", "free -m"),
    ],
)
def test_other_words_for_what_refuses_a_gpu_lead_to_the_same_step(log: str, summary: str, step: str) -> None:
    assert summary in first(log).summary
    assert step in said(log)


def test_a_table_whose_rows_are_as_long_as_each_other_is_not_a_wrapped_sentence() -> None:
    row = "replica-{}                    {}          2h    10.2.2.9      node-1.cluster.local   <none>"
    refused, running = "0/1     OutOfnvidia.com/gpu   0", "1/1     Running               0"
    rows = [row.format("bw4gf", running), row.format("bxbc2", refused), row.format("n8srl", running)]

    assert [one.text for one in first("\n".join(rows)).evidence] == [rows[1]]


def test_a_file_is_looked_for_once() -> None:
    log = '  File "/usr/lib/python2.7/dist-packages/tensorflow/python/x.py", line 41\nImportError: libcublas.so.8.0: cannot open shared '
    found = said(f"{log}object file: No such file or directory\n")

    assert found.count("find / -name") == 1
    assert "uname -m" in found
