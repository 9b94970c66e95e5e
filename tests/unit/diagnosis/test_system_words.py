"""Words that single programs of a system print: kernels, package managers, linkers, compilers and tests of hardware."""

import pytest

from tests.written_logs import judged

EXCLUDED = "The dkms.conf for this module includes a BUILD_EXCLUSIVE directive which\ndoes not match this kernel/arch/config.\n"
STRACE = "5.15.153.1-microsoft-standard-WSL2\n" + 'openat(AT_FDCWD, "/lib/x86_64-linux-gnu/libcuda.so.1", O_RDONLY|O_CLOEXEC) = {}\n'
NARROW = "/usr/bin/ld: skipping incompatible {0}/lib{1}.so when searching for -l{1}\n"
YUM = "Error: Package: nvidia-docker2-2.0.3-1.docker18.noarch (nvidia-docker)\n           Requires: docker-ce = 18.06\n"
ROCM = "{}\nRuntimeError: No HIP GPUs are available\n"

BANNER = "  CUDA Forward Compatibility is preferred over Minor Version Compatibility but was unavailable:\n"
BANNER += "  [[Forward compatibility was attempted on non supported HW (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE) cuInit()=804]]\n"
MINOR_MODE = "WARNING: CUDA Minor Version Compatibility mode ENABLED.\n" + BANNER
NO_DISPLAY = "ERROR: The control display is undefined; please run --help for usage information.\n\n"
NO_DISPLAY += "ERROR: Unable to load info from any available system\n\n$ nvidia-smi --query-gpu=name,temperature.gpu --format=csv\n{0}\n"
GMX = "CUDA compiler flags:-gencode;arch=compute_{0},code=sm_{0};-use_fast_math\n    #0: NVIDIA {1}, ECC:  no, "
GMX += (
    "stat: incompatible (please recompile with correct GPU architecture)\nFatal error:\nCannot run on a GPU because no GPU is\ndetected.\n"
)
XID = "NVRM: Xid (PCI:0000:08:00): 31, pid=7702, name=blender, Ch 00000020, intr 00000000. MMU Fault\n"
ENCODER = (
    "[h264_nvenc @ 0x55d0] OpenEncodeSessionEx failed: unsupported device (2): (no details)\n$ nvidia-smi -L\nGPU 0: NVIDIA {0} (UUID: G)\n"
)
RECORDED = "[h264_nvenc @ 0x7f2c] Cannot load libcuda.so.1\ninfo: NVENC not supported\ninfo: [FFmpeg VAAPI encoder: 'rec'] settings:\n"
RECORDED += "info: Output 'rec': Total frames output: 18022\n"
PENDING = (
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.\n$ kubectl get pods -n gpu-operator\nnvidia-driver-daemonset-8lkz2   {0}\n"
)
CMAKE = "CMake Error at FindPackageHandleStandardArgs.cmake:230 (message):\n  Could NOT find CUDAToolkit (missing: CUDA_CUDART)\n{0}"
FETCH = "E: Failed to fetch https://a.example/Packages.gz  File has unexpected size (631054 != 630712).\n"
IMAGE = "ERROR: Unable to find the kernel source tree for the currently running kernel.\n{0}$ docker run --rm x nvidia-smi -L\n"
IMAGE += "GPU 0: Tesla T4 (UUID: GPU-2a)\n"
BUILDING = "[ 50%] Building CUDA object src/CMakeFiles/app.dir/main.cu.o\n"
OLD_HEADERS = "/usr/include/c++/11/chrono:2320:9: internal compiler error: Segmentation fault\n"
NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY\nWARN: {0}\n"
LLAMA = "FileNotFoundError: Could not find module 'C:\\v\\llama_cpp\\lib\\llama.dll' (or one of its dependencies). Try the full path.\n{0}"


@pytest.mark.parametrize(
    ("log", "cause", "words"),
    [
        ("KLD nvidia.ko: depends on linux64 - not available or version mismatch\n", "driver_not_loaded", "FreeBSD"),
        ("linker_load_file: /boot/modules/nvidia-drm.ko - unsupported file type\n", "driver_not_loaded", "FreeBSD"),
        ("(kernel) Can't load kext com.nvidia.CUDA - link failed.\n", "driver_not_loaded", "Security & Privacy"),
        (EXCLUDED + "This indicates that it should not be built.\nSkipped module nvidia/390.157\n", "driver_not_loaded", "newer driver"),
        ("dkms autoinstall on 6.8.0-40-generic/x86_64 failed for nvidia(10)\n", "driver_not_loaded", ""),
        ("Error! nvidia/535.129.03: Missing the module source directory or the symbolic link\n", "driver_not_loaded", ""),
        ("systemd-modules-load[41]: Failed to insert module 'nvidia': No such device\n", "driver_not_loaded", ""),
        ("This graphics driver could not find compatible graphics hardware.\n", "driver_not_loaded", ""),
        ("nvidia-modeset: ERROR: GPU:0: Error while waiting for GPU progress: 0x0000c57d:0 2:0\n", "driver_wedged", "nvidia-suspend"),
        ("[drm:f] *ERROR* [nvidia-drm] [GPU ID 0x00000100] Flip event timeout on head 0\n", "driver_wedged", "restart"),
        ("Display driver nvlddmkm stopped responding and has successfully recovered.\n", "driver_wedged", "TdrDelay"),
        ("NVRM: _kgspLogRpcSanityCheckFailure: GPU0 sanity check failed 0xf\n", "driver_wedged", "reset"),
        ("nvidia 0000:01:00.0: not ready 65535ms after FLR; giving up\n", "hardware_fault", ""),
        ("pcieport 0000:b0:02.0: DPC: unmasked uncorrectable error detected\n", "hardware_fault", ""),
        ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n", "hardware_fault", ""),
        ("| Warning | GPU 2 Detected more than 8 PCIe replays per minute for GPU 2 : 31 |\n", "hardware_fault", ""),
        ("thermal_sys: critical temperature reached(105 C),shutting down\n", "hardware_fault", ""),
        ("MESA-LOADER: failed to open nvidia-drm: /usr/lib/dri/nvidia-drm_dri.so: cannot open\n", "driver_incomplete", ""),
        ("Couldn't find any of the following libraries: [libnvidia-fbc.so.1, libnvidia-fbc.so]\n", "driver_incomplete", ""),
        ("nvidia-settings: libnvidia-gtk3.so.535.54.03: cannot open shared object file\n", "driver_incomplete", ""),
        ("ERROR: A problem occured when loading the GUI library. Please check your\n", "driver_incomplete", ""),
        (
            'OpenPGP check for package "x" (/var/cache/libdnf5/a.rpm) has failed: No corresponding key was found.\n',
            "apt_key",
            "rpm --import",
        ),
        ("E: The repository 'https://nvidia.github.io/a amd64  InRelease' is no longer signed.\n", "apt_key", ""),
        ("Cannot enable multiple streams for module 'nvidia-driver'\n", "apt_conflict", "module reset"),
        ("Problem: the installed nvidia-video-G06-550 conflicts with 'nvidia-video-G05' provided by\n", "apt_conflict", ""),
        ("No provider of 'libcudnn8 = 8.9.7.29-1.cuda12.2' found.\n", "pip_pin_unavailable", "zypper search"),
        (
            "> winget install --id Nvidia.CUDA -e --version 11.8.0\nNo version found matching: 11.8.0\n",
            "pip_pin_unavailable",
            "winget show",
        ),
        ("Found NVIDIA CUDA Toolkit [Nvidia.CUDA]\nNo version found matching: 11.3\n", "pip_pin_unavailable", "winget show"),
        ("error: jaxlib-0.4.30 not supported for interpreter python3.13\n", "pip_wheel_unavailable_for_python", "nixpkgs"),
        ("Could not find requirements_lock.txt file matching specified Python version.\n", "pip_wheel_unavailable_for_python", "HERMETIC"),
        ("configure: error: unable to find CUDA at /usr/local/cuda\n", "cuda_runtime_missing", ""),
        ('error MSB4019: The imported project "C:\\v\\CUDA 11.8.props" was not found.\n', "cuda_runtime_missing", ""),
        (NARROW.format("/usr/local/cuda/lib", "cudart") + "/usr/bin/ld: cannot find -lcudart\n", "lib_not_on_path", "lib64"),
        ("Library not loaded: @rpath/libcublas.8.0.dylib\n", "lib_not_on_path", "/usr/local/cuda/lib"),
        (
            'CMake Error at a.cmake:1 (message):\n  Could NOT find CUDNN: Found unsuitable version "7.3.1"\n',
            "cudnn_too_old_for_framework",
            "",
        ),
        ("ERROR: Nothing RPROVIDES 'cudnn' (but /w/a.bb RDEPENDS on it)\n", "cudnn_missing", "meta-tegra"),
        ("Found NCCL header version and library version do not match! (include: /a)\n", "nccl_mix", "headers"),
        (
            'static assertion failed with "error STL1002: Unexpected compiler version, expected CUDA 12.4 or newer."\n',
            "unrecognised",
            "toolset",
        ),
        ('torch/csrc/jit/argument_spec.h(190): error: member "torch::jit::A::B" may not be initialized\n', "other_bug", "after 1.6"),
        ("Bad or missing usercopy whitelist? SLUB object 'nvidia_stack_cache' (offset 1)!\n", "other_bug", "upgrade the driver"),
        ("The accelerator does not match the profile for which this program was compiled\n", "gpu_arch_too_new_for_build", ""),
        (
            "rocBLAS error: Cannot read /opt/rocm/TensileLibrary.dat: Illegal seek for GPU arch : gfx1032\n",
            "gpu_arch_too_new_for_build",
            "HSA_",
        ),
        (ROCM.format("GPU 0: NVIDIA GeForce RTX 3060 (UUID: GPU-0d4b7e52)"), "cpu_only_build", ""),
        ("./llama-cli: CPU ISA level is lower than required\n", "cpu_without_avx", ""),
        ("verify that both the operating system and the processor support Intel(R) AVX\n", "cpu_without_avx", ""),
        ('Activation context generation failed for "a.pyd". Dependent Assembly Microsoft.VC90.CRT\n', "windows_runtime_missing", "2008"),
        (STRACE.format(3), "wsl_driver_shadowed", ""),
        ("/a/cuda_utils.so: undefined symbol: cuTensorMapEncodeTiled\n", "driver_too_old", ""),
        ("*ERROR* [nvidia-drm] Failed to allocate NVKMS memory for GEM object\n", "out_of_memory", ""),
    ],
)
def test_the_words_of_one_program_name_the_cause(log: str, cause: str, words: str) -> None:
    first = judged(log).findings[0]
    assert first.cause == cause
    assert words in " ".join(f"{step.text} {step.command}" for step in first.remedy)


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        # The kernel of WSL 1 takes no modules.
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/4.4.0-18362-Microsoft\n", "wsl --set-version", "apt-get"),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/5.15.153.1-microsoft-standard-WSL2\n", "--shutdown", "--set-"),
        # An image is mended where it is built.
        ("llm-1  | /server: error while loading shared libraries: libgomp.so.1: cannot open shared object file\n", "RUN apt-get", "sudo"),
        # A driver that was downgraded waits for a reboot; its packages are not leftovers.
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14\n$ modinfo -F version nvidia\n535.129.03\n", "reboot", "purge"),
        # These systems have no apt.
        ('kext rejected due to system policy: <OSKext> { ID = "com.nvidia.NVDAEGPUSupport" }\n', "macOS", "apt-get"),
        ("This graphics driver could not find compatible graphics hardware.\n", "for Windows", "apt-get"),
        ("nvidia-550.54.14_1: broken, unresolvable shlib `libssl.so.3'\n", "xbps-install -Su", "doctor LOG"),
        (YUM, "yum list", "apt-"),
        ("Warning: nvprof is not supported on devices with compute capability 8.0 and higher.\n", "ncu", "profile with nvprof"),
        # No index has a file that is tagged for the Linux of one machine.
        ("ERROR: torch-1.8.0-cp36-cp36m-linux_aarch64.whl is not a supported wheel on this platform.\n", "python3.6 -m pip", "torch=="),
        ("tensorflow-1.6.0-cp27-cp27mu-linux_aarch64.whl is not a supported wheel on this platform.\n", "python2.7 -m pip", "conda create"),
    ],
)
def test_the_step_is_one_for_the_system_that_the_words_show(log: str, has: str, lacks: str) -> None:
    steps = " ".join(f"{step.text} {step.command}" for step in judged(log).findings[0].remedy)
    assert has in steps
    assert lacks not in steps


@pytest.mark.parametrize(
    "log",
    [
        "KLD i915kms.ko: depends on drmn - not available or version mismatch\n",
        EXCLUDED + "Skipped module zfs/2.1.5\nSkipped module nvidia/550.90 (already installed)\n",
        STRACE.format("-1 ENOENT (No such file or directory)"),
        NARROW.format("/usr/lib32", "cudart") + "[100%] Built target app\n",
        ROCM.format("2.4.1+rocm6.1").split("Runtime", maxsplit=1)[0] + "True\nAMD Radeon RX 7900 XTX\n",
        "Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n",
        "pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0\n",
        "configure: WARNING: CUDA not found, building without GPU support\n",
        'Kext rejected due to system policy: <OSKext> { ID = "org.virtualbox.kext.VBoxDrv" }\n',
        "The operation would result in switching of module 'php' stream '7.4' to stream '8.0'\n",
        "Library not loaded: @rpath/libcurl.4.dylib\n",
        "No version found matching: 1.2.3\n",
    ],
)
def test_the_words_of_another_program_stay_quiet(log: str) -> None:
    assert not [found for found in judged(log).findings if found.severity != "info"]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (MINOR_MODE + "RuntimeError: Error 804: forward compatibility was attempted on non supported HW\n", "forward_compat_hw"),
        ("compatibility mode is UNAVAILABLE.\n" + BANNER, "forward_compat_hw"),
        (NO_DISPLAY.format("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."), "driver_not_loaded"),
        ("NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please\nNVRM: No NVIDIA GPU found.\n", "gpu_arch_too_old_for_build"),
        (GMX.format(70, "GeForce RTX 4090, compute cap.: 8.9"), "gpu_arch_too_new_for_build"),
        (GMX.format(75, "GeForce GTX 1080, compute cap.: 6.1"), "gpu_arch_too_old_for_build"),
        (XID, "unrecognised"),
        (XID + "$ nvidia-settings -a [gpu:0]/GPUGraphicsClockOffset[3]=150\n", "hardware_fault"),
        (ENCODER.format("A100-SXM4-40GB"), "unrecognised"),
        (ENCODER.format("GeForce GTX 960"), "gpu_arch_too_old_for_build"),
        ("VGA compatible controller: NVIDIA Corporation GA106\n" + RECORDED, "driver_not_loaded"),
        (PENDING.format("0/1   Init:CrashLoopBackOff"), "driver_not_loaded"),
        (PENDING.format("1/1   Running"), "container_toolkit_missing"),
        (CMAKE.format("$ find / -name nvcc\n/opt/cuda/bin/nvcc\n"), "lib_not_on_path"),
        (CMAKE.format("$ ls /opt/cuda/bin | grep nvcc\n"), "cuda_runtime_missing"),
        (BUILDING + OLD_HEADERS + "nvcc error   : 'cudafe++' died due to signal 11 (Invalid memory reference)\n", "other_bug"),
        (FETCH + "Setting up curl (7.81.0-1) ...\n", "unrecognised"),
        ("Setting up libcudnn8 (8.5.0.96-1+cuda11.7) ...\n" + FETCH, "unrecognised"),
        (IMAGE.format(""), "driver_not_loaded"),
        (NO_MEMORY.format("Not enough virtual memory, please increase the page file size"), "windows_page_file"),
        (NO_MEMORY.format("a larger page file needs more virtual memory"), "out_of_memory"),
        ("# echo 1 > /sys/bus/pci/rescan\n# nvidia-smi\nFailed to initialize NVML: Unknown Error\n", "driver_wedged"),
        ("no nvidia devices detected by library /usr/lib/libcuda.so\ncuda driver library init failure: 999\n", "driver_wedged"),
        ("no nvidia devices detected by library /usr/lib/libcuda.so\ncuda driver library init failure: 100\n", "driver_not_loaded"),
        ("NvRmMemInitNvmap failed with Permission denied\ncudaGetDeviceCount returned 999\n", "unrecognised"),
        (LLAMA.format(""), "lib_not_on_path"),
        (LLAMA.format("> where cublas64_12.dll\nINFO: Could not find files for the given pattern(s).\n"), "cuda_runtime_missing"),
    ],
)
def test_what_is_beside_the_words_decides(log: str, cause: str) -> None:
    assert judged(log).findings[0].cause == cause


@pytest.mark.parametrize(
    "log",
    [
        MINOR_MODE,
        BUILDING.replace("main", "cuda_error_no_device"),
        "detect: trying nvidia\nls: cannot access '/proc/driver/nvidia': No such file or directory\ndetect: using the ROCm backend\n",
        NO_DISPLAY.format("NVIDIA GeForce RTX 3080, 71"),
        RECORDED,
        FETCH + "Setting up libcudnn8 (8.5.0.96-1+cuda11.7) ...\n",
        IMAGE.format("Successfully built 21e9ad2b1170\n"),
    ],
)
def test_what_follows_the_words_shows_that_nothing_failed(log: str) -> None:
    assert not [found for found in judged(log).findings if found.severity != "info"]


def test_a_package_of_a_newer_release_is_not_run_in_a_container() -> None:
    found = judged("Error:\n - nothing provides libc.so.6(GLIBC_2.34)(64bit) needed by nvidia-persistenced-3:535.54.03-1.el9.x86_64\n")
    assert [step.command for step in found.findings[0].remedy] == ["rpm -E %dist; dnf repolist -v"]
