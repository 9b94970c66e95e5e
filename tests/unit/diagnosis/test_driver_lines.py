"""Lines of the kernel, of containers and of package managers that say what is wrong with a driver."""

import pytest

from tests.written_logs import judged

REFUSED = (
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:{})\nNVRM: installed in this system is not supported by the\n"
    "NVRM: NVIDIA {} driver release.\nnvidia: probe of 0000:01:00.0 failed with error -1\n"
)
CLI = "nvidia-container-cli: mount error: {}: operation not permitted: unknown.\n"
UNSIGNED = "nvidia: module license 'NVIDIA' taints kernel.\n{}Lockdown: modprobe: unsigned module loading is restricted\n"
SEEN = "$ nvidia-smi -L\nGPU 0: Tesla V100-SXM2-32GB (UUID: GPU-7d3c0f7e)\n"
CLI_INIT = "nvidia-container-cli: initialization error: "
HUNG = "INFO: task python:7 blocked for more than 122 seconds.\n      Tainted: P OE 6.1.0\nCall Trace:\n __schedule+0x34d/0x9e0\n {}\n"
DENIED = 'avc:  denied  {{ open }} for  pid=7 path="{}" scontext=system_u:system_r:container_t:s0:c1 tclass=chr_file permissive={}\n'
DESKTOP = "desktop-linux *   Docker Desktop   unix:///home/eva/.docker/desktop/docker.sock\n"
NO_DRIVERS = "cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used.\n"
WSL = "me@DESKTOP-AB1C2D3:~$ nvidia-smi\nFailed to initialize NVML: GPU access blocked by the operating system\n$ "
NO_GPU = 'time=2024-03-01T10:00:01.000Z level=INFO source=gpu.go:1 msg="no compatible GPUs were discovered"\n'
IN_USE = "NVRM: Attempting to remove device 0000:09:00.0 with non-zero usage count!\n"
AER = "nvidia 0000:01:00.0: AER: {}\n"
NO_CUDA = "OSError: libcuda.so.1: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("log", "cause", "words"),
    [
        (REFUSED.format("2484", "440.100"), "driver_too_old", "440.100"),
        (REFUSED.format("2684", "515.65.01"), "driver_too_old", "update"),
        (REFUSED.format("2b85", "550.54.14"), "driver_too_old", "update"),
        (REFUSED.format("26b9", "570.86.15"), "driver_not_loaded", "vGPU"),
        (REFUSED.format("0fc6", "535.54.03"), "driver_not_loaded", "older branch"),
        ("NVRM: RmFetchGspRmImages: No firmware image found\nNVRM: GPU 0: RmInitAdapter failed! (0x61)\n", "driver_incomplete", "firmware"),
        (
            "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n",
            "driver_wedged",
            "reset",
        ),
        ("gpu: Unable to determine the device handle for GPU 0000:0F:00.0: GPU requires reset\n", "driver_wedged", "reset"),
        ("NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot.\n", "driver_wedged", "reboot"),
        ("NVRM: GPU 0: PreserveVideoMemoryAllocations module parameter is set. System Power\n", "driver_wedged", "nvidia-suspend"),
        ("pyopencl._cl.LogicError: clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR\n", "driver_incomplete", "nvidia.icd"),
        ("Failed to open VDPAU backend libvdpau_nvidia.so: cannot open shared object file\n", "driver_incomplete", "vdpau"),
        ("Clocks Throttle Reasons\n    HW Power Brake Slowdown   : Active\n", "hardware_fault", "power"),
        (UNSIGNED.format(""), "driver_not_loaded", "mokutil"),
        ("Error relocating /usr/bin/nvidia-smi: gnu_get_libc_version: symbol not found\n", "glibc_too_old", "-alpine"),
        ("[ERROR] detected number of NVSwitches don't match with any supported system topology, aborting\n", "fabric_manager_missing", ""),
        ("nvcc error   : Path to libdevice library not specified\n", "ptxas_or_libdevice_missing", "readlink"),
        ("nvcc error   : 'cudafe++' died with status 0xC0000005 (ACCESS_VIOLATION)\n", "other_bug", "newer CUDA toolkit"),
        ('a.h(79): error: exception specification is incompatible with that of previous function "sinpif"\n', "other_bug", "glibc"),
        ("clang++-18: error: unsupported CUDA gpu architecture: sm_120\n", "gpu_arch_too_new_for_build", ""),
        ('error: nvidia-utils: signature from "A B <a@b.org>" is marginal trust\n', "apt_key", "archlinux-keyring"),
        ("Error: repomd.xml GPG signature verification error: Bad GPG signature\n", "apt_key", ""),
        ("  Sub-process /usr/bin/sqv returned an error code (1), error message is: Missing key 9A\n", "apt_key", ""),
        ("nothing provides 'kernel-default = 6.4' needed by the to be installed nvidia-driver-G06-kmp-default-550\n", "apt_conflict", ""),
        (
            "Protected multilib versions: 3:nvidia-driver-libs-418.67-3.el7.x86_64 != 3:nvidia-driver-libs-418.43-4.el7.i686\n",
            "apt_conflict",
            "",
        ),
        ("Cannot solve the request because of: No candidates were found for cudnn 9.8.0.87.*.\n", "pip_pin_unavailable", "cudnn"),
        (" * ERROR: x11-drivers/nvidia-drivers-535.183.01::gentoo failed (compile phase):\n", "driver_not_loaded", ""),
        ("Error: The NVIDIA container tools couldn't be found\n", "container_toolkit_missing", "toolkit"),
        ("NVRM: Xid (PCI:0000:41:00): 120, pid=7, GSP task timeout\n", "driver_wedged", "--gpu-reset"),
        ("node gpu-1: NVIDIA Xid: 79\n", "hardware_fault", "power"),
        ("XidCriticalError: Xid=48 on Device=GPU-5a1b, the device will go unhealthy.\n", "hardware_fault", "power"),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0\n", "hardware_fault", "Above 4G"),
        ("libEGL_nvidia.so.0: cannot open shared object file\n", "driver_incomplete", "libnvidia-gl"),
        ("NVRM: GPU 0: RmInitAdapter failed! (0x26:0xffff:1290)\n", "hardware_fault", "power"),
        (CLI.format("write error: /sys/fs/cgroup/devices/docker/7f/devices.allow"), "container_gpu_not_passed", "no-cgroups"),
        (SEEN + "$ apptainer exec a.sif python t.py\n" + NO_CUDA, "container_gpu_not_passed", "--nv"),
        ("$ apptainer exec --nv a.sif nvidia-smi -L\n" + SEEN[16:] + NO_CUDA, "driver_not_loaded", "nvidia"),
        ("#9 1.2 No CUDA runtime is found, using CUDA_HOME\n#9 2.1     arch_list[-1] += '+PTX'\n", "container_gpu_not_passed", "ARCH_LIST"),
        (
            "Because app depends on torch (2.1.0) which doesn't match any versions, version solving failed.\n",
            "pip_pin_unavailable",
            "torch",
        ),
        ("ValueError: invalid literal for int() with base 10: 'GPU-5a1b1bcb'\n", "other_bug", "CUDA_VISIBLE_DEVICES=0"),
        ("CUDA error: MPS server is not ready to accept new MPS client requests\n", "unrecognised", "nvidia-cuda-mps-control"),
        ("--> Processing Conflict: 3:nvidia-driver-branch-470-1.el7.x86_64 conflicts nvidia-driver > 470\n", "apt_conflict", "one branch"),
        ("Warning: MIG mode is in pending enable state for GPU 00000000:07:00.0\n", "unrecognised", "fuser"),
        (
            "Error setting watches. Result: -33: This request is serviced by a module of DCGM that is not currently loaded\n",
            "unrecognised",
            "PROF",
        ),
        (":: unable to satisfy dependency 'nvidia-utils=570.1' required by nvidia-settings\n", "apt_conflict", "-Syu"),
        ("nvidia-container-cli.real: initialization error: driver rpc error: timed out: unknown.\n", "driver_wedged", "nvidia-smi -pm 1"),
        ("INFO: task nvidia-persiste:12 blocked for more than 241 seconds.\n", "driver_wedged", "dmesg"),
        (HUNG.format("uvm_release+0x3a/0x90 [nvidia_uvm]"), "driver_wedged", "dmesg"),
        ("nvidia-container-cli: device error: 3: unknown device: unknown.\n", "container_gpu_not_passed", "nvidia-smi -L"),
        (DENIED.format("/dev/nvidiactl", 0), "container_gpu_not_passed", "setsebool"),
        (DESKTOP + 'could not select device driver "" with capabilities: [[gpu]].\n', "container_gpu_not_passed", "docker context use"),
        (DESKTOP + CLI_INIT + "load library failed: libnvidia-ml.so.1: cannot open\n", "container_gpu_not_passed", "docker context use"),
        ("invoking the NVIDIA Container Runtime Hook directly is not supported.\n", "container_gpu_not_passed", "--runtime nvidia"),
        ("docker run tensorflow/tensorflow:latest-gpu-jupyter\n" + NO_DRIVERS, "container_gpu_not_passed", "--gpus"),
        ("Error: The NVIDIA LXC hook couldn't be found\n", "container_toolkit_missing", "nvidia-container-toolkit"),
        ('error validating toolkit installation: exec: "nvidia-smi": not found\n', "container_toolkit_missing", "runtime=containerd"),
        ('could not stat CDI host device "/dev/nvidia2": no such file or directory\n', "container_toolkit_missing", "cdi generate"),
        ("Pod was rejected: Allocate failed due to no healthy devices present; for nvidia.com/mig-1g.5gb\n", "unrecognised", "registered"),
        ("Error: error validating driver installation: exit status 9\n", "driver_not_loaded", "nvidia-smi"),
        ("unable to find CUDA device 0 among 2 EGL devices in total\n", "driver_incomplete", "libnvidia-gl"),
        (WSL + "/usr/lib/wsl/lib/nvidia-smi -L\n" + SEEN[16:], "wsl_driver_shadowed", "/usr/lib/wsl/lib"),
        (WSL + "dpkg -S /usr/bin/nvidia-smi\nnvidia-utils-510: /usr/bin/nvidia-smi\n", "wsl_driver_shadowed", "purge"),
        ("RuntimeError: Found 0 GPUs on your machine (GPU devices found: [])!\n", "gpu_hidden_by_env", "CUDA_VISIBLE_DEVICES"),
        ("We were configured to autodetect nvml functionality, but we weren't able to find that lib\n", "cpu_only_build", "gres.conf"),
        ("pcieport 0000:20:01.1: pciehp: Slot(3): Card not present\n", "hardware_fault", "power"),
        ("systemd[1]: ollama.service: Main process exited, code=dumped, status=4/ILL\n", "cpu_without_avx", "lscpu"),
        ("this)failed with error CUPTI could not be loaded or symbol could not be found.\n", "lib_not_on_path", "extras/CUPTI"),
        ("pciehp: Slot(1): Card not present\n[7.1] " + IN_USE, "hardware_fault", "left its slot"),
        ("Uncorrectable ECC error count: 12\n", "hardware_fault", "power"),
        (AER.format("PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer"), "hardware_fault", "power"),
        (AER.format("can't recover (no error_detected callback)"), "hardware_fault", "power"),
        ("[error] CUDA initialization failed: driver is not loaded\n", "driver_not_loaded", "nvidia-smi"),
        ("$ docker run --gpus '\"device=0\"' -d ollama/ollama:0.5\n" + NO_GPU, "driver_not_loaded", "nvidia-smi"),
    ],
)
def test_a_line_about_a_driver_has_its_cause_and_steps(log: str, cause: str, words: str) -> None:
    found = judged(log).findings[0]
    assert found.cause == cause
    assert words in " ".join([found.summary, *(f"{step.text} {step.command}" for step in found.remedy)])


@pytest.mark.parametrize(
    "log",
    [
        "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)\n",
        "nvidia 0000:01:00.0: PM: pci_pm_suspend(): nv_pmops_suspend+0x0/0x30 [nvidia] returns 0 after 9 usecs\n",
        "clGetPlatformIDs: -1001 is what a machine without drivers returns.\n",
        "Clocks Throttle Reasons\n    HW Power Brake Slowdown   : Not Active\n",
        UNSIGNED.format("NVRM: loading NVIDIA UNIX Kernel Module  570.86.15\n"),
        "Error relocating /usr/bin/htop: ncurses_init: symbol not found\n",
        "INFO: libEGL_nvidia.so.0: not found, using Mesa\nepoch 1 loss 0.5\n",
        "WARNING: failed to load libGLX_nvidia.so.0, using llvmpipe\nepoch 1 loss 0.5\n",
        "could not load libGLX_nvidia.so.0; falling back to software rendering\nepoch 1 loss 0.5\n",
        "FlashAttention only supports Ampere GPUs or newer; using the math kernel instead\nepoch 1 loss 0.5\n",
        "FlashAttention only supports Ampere GPUs or newer, so xformers will be used\nepoch 1 loss 0.5\n",
        "Error: error validating toolkit installation: exit status 12\ntoolkit validation is successful\n",
        "couldn't find libnvidia-ml.so library in your system\ntoolkit is not ready, retrying\ntoolkit validation successful\n",
        "Xid: 79 -> 0\nrecommended action for Xid: 79 is reset\n",
        "checking: Missing tool nvidia-container-cli? no\n",
        "Policy: isolate a node when Xid 79 or Xid 119 occurs\nGPU 0: xid 79 count 0\n",
        "LOG:  redo done at xid: 79\nDETAIL:  oldest xid 120\n",
        "vfio-pci 0000:09:00.0: enabling device\n" + IN_USE,
        "epoch 1 maxid: 95\nrows with taxid=119: 64\n",
        "W0523 nvc_info.c:404] missing compat32 library libEGL_nvidia.so\n",
        "> An error while retrieving `fan_speed`: Not Supported -> Total 8 occurrences.\n",
        "INFO: task nfsd:312 blocked for more than 120 seconds.\nModules linked in: nvidia(POE)\n nfs_wait+0x1/0x20 [nfs]\n",
        DENIED.format("/dev/nvidiactl", 1) + "epoch 1 loss 0.5\n",
        DENIED.format("/var/www", 0),
        DESKTOP + "Hello from Docker!\n",
        "docker run tensorflow/tensorflow:2.15.0 python t.py\n" + NO_DRIVERS + "epoch 1 loss 0.5\n",
        "each of them failed.  CUDA-aware support is disabled.\n" + NO_CUDA[9:] + "Hello from rank 0 of 2\n",
        "INFO:    Could not find any nv files on this host!\n1200/1200 files written\n",
        "me@DESKTOP-AB1C2D3:~$ /usr/lib/wsl/lib/nvidia-smi -L\n" + SEEN[16:],
        "nginx.service: Main process exited, code=killed, status=9/KILL\n",
        'level=info msg="Not collecting DCP metrics: This request is serviced by a module of DCGM that is not currently loaded"\n',
    ],
)
def test_a_missing_part_that_nothing_wants_is_no_failure(log: str) -> None:
    assert all(found.severity == "info" for found in judged(log).findings)


NO_SMI = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"


@pytest.mark.parametrize(
    ("log", "there", "absent"),
    [
        ("libx.so.4: cannot enable executable stack as shared object requires: Invalid argument\n", "patchelf", "COMPUTE"),
        ("0x00007ffff66809a1 in ?? () from /usr/lib/wsl/lib/libnvidia-ml.so.1\n", "wsl --update", "COMPUTE"),
        ("Error: The NVIDIA container tools couldn't be found\n", "nvidia-container-toolkit", "--runtime=docker"),
        ("nvidia-container-cli: device error: 3: unknown device: unknown.\n", "nvidia-smi -L", "only-upgrade"),
        ("a.cc:1:2: error: 'ncclCommGetAsyncError' was not declared in this scope\n", "-exec grep", "$(find"),
        ("The program can't start because MSVCP120.dll is missing from your computer.\n", "VCRedist.2013", "2015+"),
        ("The program can't start because MSVCR100.dll is missing from your computer.\n", "VCRedist.2010.x64", "YEAR"),
        ("The program can't start because MSVCP140.dll is missing from your computer.\n", "2015+", "2013"),
        ("eva@Evas-MacBook-Pro ~ % ssh -A -p 22 gpu1\neva@gpu1:~$ nvidia-smi\n" + NO_SMI, "modprobe", "macOS"),
        ("PS C:\\Users\\eva> ssh eva@gpu1\neva@gpu1:~$ nvidia-smi\n" + NO_SMI, "modprobe", "Windows"),
        ("eva@gpu1:~$ ssh gpu2\nPS C:\\Users\\eva> nvidia-smi\n" + NO_SMI, "Windows", "modprobe"),
    ],
)
def test_steps_are_for_the_failure_and_the_machine_of_the_log(log: str, there: str, absent: str) -> None:
    said = " ".join(f"{step.text} {step.command}" for found in judged(log).findings for step in found.remedy)
    assert there in said
    assert absent not in said


def test_a_hosted_notebook_does_not_reset_its_gpu() -> None:
    log = "/content# python a.py\nNVRM: Xid (PCI:0000:41:00): 119, pid=7, Timeout waiting for RPC from GSP!\n"
    assert [step.command for step in judged(log).findings[0].remedy] == [None]


@pytest.mark.parametrize("after", ["", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). import torch\n"])
def test_no_older_build_runs_on_a_card_that_the_driver_refuses(after: str) -> None:
    (step,) = judged(REFUSED.format("2684", "515.65.01") + after).findings[0].remedy
    assert "driver" in step.text
    assert step.command is None


KEY = "$ curl -fsSL https://{} | sudo gpg --dearmor -o /x.gpg\ncurl: (22) error: 404\ngpg: no valid OpenPGP data found.\n"
OLLAMA = 'level=INFO source=routes.go:1 msg="server config" env="map[CUDA_VISIBLE_DEVICES:{} HIP_VISIBLE_DEVICES:]"\n'
IN_POD = "$ kubectl exec t -- nvidia-smi --query-gpu=name,driver_version --format=csv\nname, driver_version\nTesla T4, 418.67\n"
FABRIC = "    Fabric\n        State                             : {}\n"
SXID = "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, {}, Link 44 egress non-posted PRIV error\n"
NGC = "ERROR: Detected NVIDIA {} GPU, which is not {}\nERROR: No supported GPU(s) detected to run this container\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (OLLAMA.format("-1") + NO_GPU, "gpu_hidden_by_env"),
        (OLLAMA.format("") + NO_GPU, "driver_not_loaded"),
        (IN_POD + "CUDA driver version is insufficient for CUDA runtime version\n", "driver_too_old"),
        (FABRIC.format("In Progress"), "fabric_manager_missing"),
        (FABRIC.format("Completed"), None),
        (SXID.format("Fatal"), "hardware_fault"),
        (SXID.format("Non-fatal"), None),
        (NGC.format("A100", "yet supported in this version of the container"), "gpu_arch_too_new_for_build"),
        (NGC.format("Tesla K80", "supported by this container"), "gpu_arch_too_old_for_build"),
        ("CUDA device requires compute capability 5.0 or higher, found 3.5\n", "gpu_arch_too_old_for_build"),
        ("CUDA device requires compute capability 3.5 or higher, found 8.6\nrunning step 1\n", None),
        ("CPU does not support x86-64-v4, falling back to x86-64-v2 build\nstarted ok\n", None),
        ("dlsym: symbol lookup for cuDeviceGetUuid succeeded\n", None),
        ("checking for undefined symbol: gettid... no\n", None),
        ("NVRM: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from memdescAlloc\n", "out_of_memory"),
        ("ERROR: modpost: GPL-incompatible module nvidia-uvm.ko uses GPL-only symbol 'rcu'\n", "other_bug"),
        ("dyld: Library not loaded: @rpath/CUDA.framework/Versions/A/CUDA\n  Reason: image not found\n", "driver_not_loaded"),
        ("(EE) NVIDIA(GPU-0): Failed to initialize the GLX module; please check in your X\n", "driver_incomplete"),
        ("Error on querying NVIDIA devices. Use --debug flag to see more details.\nUnknown Error\n", "container_gpu_detached"),
        ("ERROR: Missing tool nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container\n", "container_toolkit_missing"),
        ("/content/app\nNVMLError_LibraryNotFound: NVML Shared Library Not Found\n", "no_gpu_runtime"),
        ("Compute Mode : Exclusive_Process\nException: No compatible CUDA device is available\n", "gpu_exclusive_mode"),
        ("Fatal glibc error: CPU does not support x86-64-v3\n", "cpu_without_avx"),
        ("libort.a(env.o): undefined reference to `__isoc23_strtol'\n", "glibc_too_old"),
        ("InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid rank for input: ids Got: 3 Expected: 2\n", "bad_input"),
        ("gpg: no valid OpenPGP data found.\n", None),
        (KEY.format("nvidia.github.io/libnvidia-container/gpgkey"), "apt_key"),
        (KEY.format("download.docker.com/linux/ubuntu/gpg"), "unrecognised"),
        ('gpg: key F60F4B3D7FA2AF80: "cudatools <cudatools@nvidia.com>" 1 new signature\n', None),
        ("apt-key adv --fetch-keys https://developer.download.nvidia.com/compute/3bf863cc.pub\n", None),
        ('gpg: key F60F4B3D7FA2AF80: public key "cudatools <cudatools@nvidia.com>" imported\n', None),
        ("nothing provides 'kernel = 6.4' needed by the to be installed nvidia-kmp-default-550.1-1.x86_64\n", "apt_conflict"),
        ("nvidia-580.76.05_1 (update) breaks installed pkg `nvidia-dkms-575.64_1'\n", "apt_conflict"),
    ],
)
def test_programs_and_systems_in_their_own_words(log: str, cause: str | None) -> None:
    loud = [finding.cause for finding in judged(log).findings if finding.severity != "info"]
    assert loud[:1] == ([cause] if cause else [])


MAC = "dyld: Library not loaded: @rpath/CUDA.framework/Versions/A/CUDA\n  Reason: image not found\n"
DMESG = "NVRM: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x51) returned from memdescAlloc\n"


@pytest.mark.parametrize(
    ("log", "has", "lacks"),
    [
        # A Mac has no apt, dkms or Docker with GPUs.
        (MAC, "no driver for NVIDIA GPUs", ("apt-get", "ubuntu-drivers", "docker run")),
        # The driver's own allocation does not follow the batch of a program.
        (DMESG, "free -m", ("smaller batch", "nvidia-smi")),
        ("host allocation of size 5612 failed\n", "smaller batch", ()),
    ],
)
def test_steps_are_for_the_system_and_memory_that_the_line_names(log: str, has: str, lacks: tuple[str, ...]) -> None:
    found = judged(log).findings[0]
    steps = " ".join(f"{step.text} {step.command}" for step in found.remedy)
    assert has in steps
    assert not [words for words in lacks if words in steps]


def test_memory_that_the_driver_lacks_is_a_weak_sign() -> None:
    assert judged(DMESG).findings[0].confidence <= 0.45
