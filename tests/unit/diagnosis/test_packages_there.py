"""Packages that do not belong together are named, and the remedy reinstalls these, in the log's environment."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

TORCH_SYMBOL = "undefined symbol: _ZN3c104cuda9SetDeviceEi\n"
BOTH = "file /usr/bin/x conflicts between attempted installs of {}.x86_64 and {}.x86_64\n"
INSTALLED = "file /usr/bin/x from install of {}.x86_64 conflicts with file from package {}.x86_64\n"
WHL = "https://download.pytorch.org/whl"
NMS = "Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.\n"
FRAME = '  File "C:\\env\\lib\\site-packages\\{}\\ops.py", line 4, in <module>\n'


def first(log: str) -> tuple[str, list[str]]:
    """Cause and commands of the first finding."""
    found = judged(log).findings[0]
    return found.cause, [one.command for one in found.remedy if one.command]


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (NMS, "pip install --force-reinstall torchvision $("),
        ("torch 2.9.0.dev20250901+cu129\n" + NMS, f"install torchvision torch==2.9.0.dev20250901+cu129 --index-url {WHL}/cu129"),
        ("torch 1.1.0\n" + NMS, "python -m pip install --force-reinstall --no-deps torchvision==0.3.0"),
        ("torch 2.4.1+cu121\n" + NMS, f"pip install --force-reinstall --no-deps torchvision==0.19.1 --index-url {WHL}/cu121"),
        (
            "PyTorch 2.2.0+cu121 with CUDA 1201 (you have 2.3.0+cu121)\n",
            f"pip install --force-reinstall --no-deps xformers==0.0.26.post1 --index-url {WHL}/cu121",
        ),
        (
            "/e/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: " + TORCH_SYMBOL,
            "/e/bin/python -m pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps flash-attn",
        ),
        (
            FRAME.format("mmcv") + "ImportError: DLL load failed while importing _ext: The specified module could not be found.\n",
            "-m mim install mmcv",
        ),
        (
            FRAME.format("torch_scatter")
            + "ImportError: DLL load failed while importing _C: The specified procedure could not be found.\n",
            "C:\\env\\Scripts\\python.exe -m pip list | findstr torch",
        ),
        (
            "JAX plugin jax_cuda12_plugin version 0.9.2 is installed, but it is not compatible with the installed jaxlib version 0.9.0.1\n",
            "pip install 'jax_cuda12_plugin==0.9.0.1'",
        ),
    ],
)
def test_what_does_not_belong_together_is_reinstalled(log: str, command: str) -> None:
    found = first(log)
    assert found[0] == "framework_pkg_mismatch"
    assert command in found[1][0], found[1]


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (
            BOTH.format("nvidia-driver-3:560.35-1.el9", "xorg-x11-nvidia-3:560.35-2.el9"),
            "dnf repoquery --location nvidia-driver xorg-x11-nvidia",
        ),
        (
            INSTALLED.format("nvidia-modprobe-3:495.29-1.el7", "nvidia-tools-3:495.29-1.el7"),
            "repoquery --location nvidia-modprobe nvidia-tools",
        ),
        ("nvidia-utils: /usr/lib/libcuda.so exists in filesystem\n", "pacman -Qo /usr/lib/libcuda.so"),
        ("linux-firmware-nvidia: /usr/lib/firmware/nvidia/ad103 exists in filesystem\n", "pacman -Syu linux-firmware"),
        (":: removing nvidia-utils breaks dependency 'nvidia-utils' required by nvidia-prime\n", "pacman -Qi nvidia-utils"),
    ],
)
def test_files_of_two_packages_of_the_system(log: str, command: str) -> None:
    found = first(log)
    assert found[0] == "apt_conflict"
    assert any(command in one for one in found[1]), found[1]


def test_other_packages_are_no_matter_of_the_gpu() -> None:
    found = judged("v4l-utils: /usr/bin/edid-decode exists in filesystem (owned by edid-decode-git)\n").findings
    assert "apt_conflict" not in [one.cause for one in found]


def test_libstdcxx_goes_into_the_environment_of_the_log() -> None:
    log = "/h/envs/k/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /h/envs/k/lib/python3.11/site-packages/x.so)\n"
    assert first(log)[1][0].startswith("conda install -p /h/envs/k -c conda-forge 'libstdcxx-ng>=13.2'")
    old = log.replace("3.4.32", "3.4.20")  # which every release on conda-forge has
    assert first(old)[1][0].startswith("conda install -p /h/envs/k -c conda-forge 'libstdcxx-ng'")


@pytest.mark.parametrize(("channel", "said"), [("osx-64", "no CUDA on macOS"), ("win-32", "32-bit"), ("linux-64", "pytorch-cuda")])
def test_a_cudatoolkit_that_conda_does_not_have(channel: str, said: str) -> None:
    log = (
        "conda install pytorch==1.13.1 cudatoolkit=11.7 -c pytorch\n"
        "PackagesNotFoundError: The following packages are not available from current channels:\n\n"
        f"  - cudatoolkit=11.7\n\nCurrent channels:\n\n  - https://example.org/pytorch/{channel}\n"
    )
    found = judged(log).findings[0]
    assert (found.cause, said in found.remedy[0].text) == ("pip_pin_unavailable", True), found.remedy


def test_an_extension_for_another_cuda_is_built_again() -> None:
    log = FRAME.format("diff_rasterization") + "    from . import _C\n"
    log += "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n{}\n"
    rebuilt = "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps ."
    other = first(log.format("Cuda compilation tools, release 12.2, V12.2.140"))[1]
    assert rebuilt in other[0]
    assert not any("cu11" in one for one in other)
    assert not any(rebuilt in one for one in first(log.format("Cuda compilation tools, release 11.8, V11.8.89"))[1])


def test_a_repository_that_two_files_list_needs_no_new_key() -> None:
    twice = "E: Conflicting values set for option Signed-By regarding source https://{}/ubuntu/ focal: /a.gpg != /b.gpg\n"
    found = judged(twice.format("download.docker.com") + twice.format("nvidia.github.io/libnvidia-container")).findings[0]
    assert found.cause == "apt_key"
    assert "nvidia.github.io" in found.summary
    (remedy,) = found.remedy
    assert "'nvidia.github.io|download.docker.com'" in (remedy.command or "")


def test_a_program_for_another_driver_branch_does_not_change_the_driver() -> None:
    lost = " {} : Depends: libnvidia-compute-418 but it is not going to be installed\n"
    lost += "E: Unable to correct problems, you have held broken packages.\n"
    cause, commands = first(lost.format("nvtop"))
    assert cause == "apt_conflict"
    assert commands == ["dpkg -l 'libnvidia-compute*' 'nvidia-driver*' | grep '^ii'; apt-cache policy nvtop libnvidia-compute-418"]
    assert "dpkg -l" not in first(lost.format("nvidia-driver-418"))[1][0]


def test_a_dll_that_fails_to_start_asks_for_the_older_runtime() -> None:
    failed = "OSError: [WinError 1114] A dynamic link library (DLL) initialization routine failed. "
    failed += 'Error loading "D:\\v\\Lib\\site-packages\\torch\\lib\\c10.dll"\n'
    cause, commands = first(failed)
    assert cause == "windows_runtime_missing"
    assert commands[1] == "where msvcp140.dll vcruntime140.dll"


def test_a_jax_that_is_too_old_is_not_moved_before_its_users_are_known() -> None:
    commands = first(FRAME.format("haiku") + "ModuleNotFoundError: No module named 'jax.extend'\n")[1]
    assert "pip check" in commands[0]
    assert "pip check" not in first("AttributeError: module 'jaxlib.xla_extension' has no attribute 'DistributedRuntimeService'\n")[1][0]


@pytest.mark.parametrize(("number", "first_toolkit"), [("75", "10.0"), ("70", "9.0")])
def test_a_compiler_that_is_too_old_is_told_which_toolkit_will_do(number: str, first_toolkit: str) -> None:
    log = f"nvcc fatal   : Unsupported gpu architecture 'compute_{number}'\n"
    log += "error: command '/usr/local/cuda-8.0/bin/nvcc' failed with exit status 1\n"
    cause, commands = first(log)
    assert cause == "toolkit_build_mismatch"
    assert "torch.version.cuda" in commands[0]
    assert f"from CUDA {first_toolkit} on" in judged(log).findings[0].remedy[0].text
    assert first(log.partition("error:")[0] + "make: *** [/usr/local/cuda-8.0/x.o] Error 1\n")[0] == "gpu_arch_too_new_for_build"


def test_a_name_that_transformers_5_removed_asks_for_transformers_4() -> None:
    found = judged("AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended\n").findings[0]
    assert (found.cause, found.severity) == ("unrecognised", "warning")
    assert (found.remedy[0].command or "").endswith("pip install 'transformers<5'")


def test_a_release_that_an_extension_was_built_for_is_not_taken_for_gpu_code() -> None:
    log = (
        "    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.4.0+cu121)\n"
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
    )
    assert "framework_pkg_mismatch" in [finding.cause for finding in judged(log).findings]


def test_headers_of_one_cuda_are_asked_for_with_their_library() -> None:
    asked = "apt-get install libcudnn8-dev=8.6.0.163-1+cuda11.8 libnvinfer-dev=8.5.3-1+cuda11.8"
    (command, *_) = first(f"E: Unable to correct problems, you have held broken packages. ({asked})\n")[1]

    for package in ("libcudnn8", "libcudnn8-dev"):
        assert f" {package}=8.6.0.163-1+cuda11.8" in command
    for package in ("libnvinfer8", "libnvinfer-dev"):
        assert f" {package}=8.5.3-1+cuda11.8" in command


def test_the_address_of_an_archive_names_no_installed_cuda() -> None:
    log = "ImportError: Could not find 'cudart64_100.dll'. Download and install CUDA 10.0 from: https://x.org/cuda-90-download-archive\n"

    assert not any("CUDA 9.0" in step.text for step in judged(log).findings[0].remedy)


def test_headers_that_belong_to_no_library_ask_for_none() -> None:
    asked = "apt-get install libnvinfer-headers-dev=8.6.1.6-1+cuda11.8 libnvinfer-dev=8.6.1.6-1+cuda11.8"
    (command, *_) = first(f"E: Unable to correct problems, you have held broken packages. ({asked})\n")[1]

    assert " libnvinfer8=8.6.1.6-1+cuda11.8" in command
    assert "libnvinfer-headers8" not in command
