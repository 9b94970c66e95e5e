"""Where a log names the package, the key, the device or the place, the first step cures with it and nothing is looked up again."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

REJECTED = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
LOCKED = (
    "modprobe: ERROR: could not insert 'nvidia': Operation not permitted\n"
    "kernel: Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7\n"
)
ABSENT = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/"
OLD = "AssertionError: The NVIDIA driver on your system is too old (found version 8000).\n"
COMPARED = "Loaded runtime CuDNN library: {} (compatibility version 7000) but source was compiled with 7004 (compatibility version 7000).\n"
REFUSED = (
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:{})\n"
    "NVRM: installed in this system is not supported by the\n"
    "NVRM: NVIDIA {} driver release.\n"
)
OVERWRITE = (
    "dpkg: error processing archive {}/libnvidia-compute-495_495.29.05-0ubuntu1_amd64.deb (--unpack):\n"
    " trying to overwrite '/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1', which is also in package libnvidia-compute-470:amd64 470.57\n"
)
RANGE = "AssertionError: MMCV==1.2.7 is used but incompatible. Please install mmcv{}.\n"
FULL = "could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n|    0   N/A  N/A      7711      C   {}        {}MiB |\n"


def first(log: str) -> str:
    step = judged(log).findings[0].remedy[0]
    return f"{step.text} $ {step.command or ''}"


@pytest.mark.parametrize(
    ("log", "there"),
    [
        # Each system has a key of its own.
        ("akmod-nvidia-550.107.02-1.fc40.x86_64\n" + REJECTED, "--import /etc/pki/akmods/certs/public_key.der &&"),
        ("Linux nb 6.8.0-40-generic #40-Ubuntu SMP\n$ sudo apt install ubuntu-desktop\n" + REJECTED, "shim-signed/mok/MOK.der"),
        ("ii  nvidia-kernel-dkms  525.147.05-7~deb12u1\n" + REJECTED, "--import /var/lib/dkms/mok.pub"),
        ("$ sudo zypper in nvidia-driver-G06-kmp-default\n" + REJECTED, "/usr/share/nvidia-pubkeys/"),
        ("ghcr.io/ublue-os/bazzite-nvidia:stable\n" + REJECTED, "--import /etc/pki/akmods/certs/akmods-ublue.der &&"),
        (REJECTED, "elsewhere DKMS has /var/lib/dkms/mok.pub"),
        (LOCKED, "an unsigned one, build again"),
        # Why the module is not there, or who holds the card.
        (ABSENT + "6.2.0-26-generic\n", "dkms autoinstall"),
        (ABSENT + "6.9.4-200.fc40.x86_64\nakmod-nvidia-550.90.07-1.fc40.x86_64\n", "akmods --force"),
        ("modprobe: ERROR: could not insert 'nvidia': No such device\nNVRM: GPU 0000:0b:00.0 is already bound to vfio-pci.\n", "vfio"),
        ("nouveau 0000:0b:00.0: unknown chipset (b74000a1)\n$ nvidia-smi\nbash: nvidia-smi: command not found\n", "ubuntu-drivers"),
        ("slurmd: fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory\n", "systemctl restart slurmd"),
        ("nvidia-persistenced[8]: Failed to query NVIDIA devices. Please ensure\n", "systemctl restart nvidia-persistenced"),
        ("Linux 5.15.167.4-microsoft-standard-WSL2\n[h264_nvenc @ 0x5] Cannot load libnvidia-encode.so.1\n", "ls /usr/lib/wsl/lib"),
        # The release of the driver, and the kind of its modules.
        (REFUSED.format("2684", "515.65.01"), "to 520.61.05 or newer"),
        (REFUSED.format("2b85", "535.183.01"), "open kernel modules"),
        (REFUSED.format("2882", "525.60.11"), "update the NVIDIA driver (in a container or pod that of its host) $ "),
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n", "nvidia-driver-580-open"),
        # Packages and their keys.
        (OVERWRITE.format("/tmp/apt-dpkg-install-q1"), "libnvidia-compute-470:amd64 && sudo apt-get --fix-broken install"),
        (OVERWRITE.format("/var/cache/apt/archives"), "_amd64.deb; sudo apt-get --fix-broken install"),
        ("gpgkey https://a/compute/cuda/repos/rhel9/sbsa/D42D0685.pub\nError: GPG check FAILED\n", "repos/rhel9/sbsa/D42D0685.pub"),
        (":: installing nvidia-utils (570-1) breaks dependency 'nvidia-utils=565' required by lib32-nvidia-utils\n", "pacman -Syu"),
        (RANGE.format(">=1.3.17, <=1.5.0"), "mim install 'mmcv-full>=1.3.17, <=1.5.0'"),
        (RANGE.format(">=2.0.0rc4, <2.2.0"), "mim install 'mmcv>=2.0.0rc4, <2.2.0'"),
        # A cuDNN of one CUDA serves TensorFlow for this CUDA alone.
        ("tensorflow/stream_executor/cuda/cuda_dnn.cc:378] " + COMPARED.format(7102), "tensorflow-gpu==1.10.1"),
        ("tensorflow/stream_executor/cuda/cuda_dnn.cc:378] " + COMPARED.format(7605), "tensorflow-gpu==1.12.3"),
        # Devices, memory and the reset of a GPU.
        ("CUDA_VISIBLE_DEVICES=MIG-0a1b2c3d\nRuntimeError: No CUDA GPUs are available\n", "grep -om1 'MIG-"),
        (FULL.format("/opt/conda/bin/python", 10650), "/opt/conda/bin/python (pid 7711, 10650 MiB)"),
        (FULL.format("python", 412), ""),
        ("uncorrectable ECC error encountered\nXid (PCI:0000:c1:00): 63, pid=1, Row Remapper: New row marked for r\n", "-i 0000:c1:00.0"),
        # Libraries.
        ("located at ['/usr/lib64/libcuda.so.1'].Please create a symlink of libcuda.so to any of the file.\n", "/usr/lib64/libcuda.so"),
        (
            "/usr/lib/python3.6/site-packages/torch/cuda/__init__.py\n" + OLD,
            "--no-index torch==1.0.0 -f https://download.pytorch.org/whl/cu80/",
        ),
    ],
)
def test_the_first_step_uses_what_the_log_names(log: str, there: str) -> None:
    assert there in first(log)


def test_no_purge_names_a_pattern_that_apt_may_not_know() -> None:
    log = "user@DESKTOP-1A2B3C4:~$ python3 a.py\n/usr/lib/wsl/lib/nvidia-smi works\nNVIDIA-SMI has failed because it couldn't communicate\n"
    steps = " ".join(one.command or "" for one in judged(log).findings[0].remedy)
    assert '"cuda-drivers*"' not in steps


def test_macos_gets_no_command_of_linux() -> None:
    failed = "THCudaCheck FAIL file=/tmp/THC/THCTensorRandom.cu line=20 error=2 : out of memory\n"
    frame = "/torch/install/share/lua/5.1/cutorch/init.lua:2: in main chunk\n"

    on_mac, on_linux = (str(judged(f"{failed}{home}{frame}").findings[0].remedy) for home in ("/Users/ann", "/opt/ann"))

    assert "nvidia-smi" in on_linux
    assert "nvidia-smi" not in on_mac
    assert "smaller" in on_mac


def test_the_fabric_manager_of_the_gpu_operator_is_in_its_driver_pod() -> None:
    pods = "nvidia-driver-daemonset-x5k2v   1/1     Running   0   38m\n"
    (found,) = judged(f"{pods}RuntimeError: Error 802: system not yet initialized\n").findings
    assert [step.command for step in found.remedy if step.command and "systemctl" in step.command] == []
    assert "kubectl" in str(found.remedy[0].command)


def test_a_hosted_runner_is_not_told_to_install_a_driver() -> None:
    log = 'ERROR: could not load symbol "cuDriverGetVersion":\n{}/julia: undefined symbol: cuDriverGetVersion\n'
    (hosted,) = judged(log.format("/opt/hostedtoolcache/julia/1.6.5/x64/bin")).findings
    (own,) = judged(log.format("/opt/julia/bin")).findings
    assert [step.command for step in hosted.remedy] == [None]
    assert any("ubuntu-drivers" in str(step.command) for step in own.remedy)
