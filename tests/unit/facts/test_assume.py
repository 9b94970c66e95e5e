"""Facts that the user states: what they replace, what they leave, and what cannot be."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.facts.assume import Assumptions, assume
from cudnn_resolve.facts.distribution import split_os
from cudnn_resolve.facts.model import (
    UNKNOWN,
    CudnnCopy,
    Driver,
    Facts,
    Gpu,
    InstalledFramework,
    Loader,
    Packages,
    Platform,
    Problem,
    Python,
    Toolkit,
)

MACHINE = Facts(
    platform=Platform(system="linux", arch="x86_64", distribution="ubuntu", release="22.04", glibc="2.35"),
    python=Python(version="3.11.13", path="/env/bin/python", implementation="cpython", prefix="/env"),
    driver=Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15"),
    gpus=(Gpu(name="Tesla T4", compute_capability="7.5"),),
    cuda_toolkits=(
        Toolkit(version="12.4", path="/usr/local/cuda-12.4", source="apt"),
        Toolkit(version="12.6", path="/env/lib/nvidia", source="pip"),
    ),
    cudnn=(
        CudnnCopy(version="9.1.0.70", path="/usr/lib", source="apt"),
        CudnnCopy(version="9.3.0.75", path="/env/lib/nvidia/cudnn/lib", source="pip"),
        CudnnCopy(version="9.2.0.82", path="/env/opt/cudnn", source="other"),
        CudnnCopy(version="8.9.7.29", path="/environment/cudnn", source="other"),
    ),
    frameworks=(InstalledFramework(name="torch", version="2.6.0"),),
    loader=Loader(ld_library_path=("/usr/lib64-nvidia",)),
    packages=Packages(pip={"torch": "2.6.0"}, apt={"libc6": "2.35"}, requires={"torch": ("filelock",)}),
    container="docker",
    root=True,
    sources={"driver.version": "NVML", "driver.cuda": "NVML", "gpus": "NVML", "python.version": "asked", "platform.glibc": "asked"},
    problems=(Problem(what="driver.cuda", why="x"), Problem(what="nvidia-smi", why="y"), Problem(what="packages.pip", why="z")),
)


def card(name: str) -> Gpu:
    if name == "980":
        return Gpu(name="GTX 980", compute_capability="5.2")
    if name == "T4":
        return Gpu(name="Tesla T4", compute_capability="7.5")
    raise UsageError(f"no card {name}", code="option-gpu")


def stated(facts: Facts = MACHINE, **words: object) -> Facts:
    return assume(facts, Assumptions(**words), card)  # type: ignore[arg-type]


def test_nothing_stated_changes_nothing() -> None:
    assert stated() == MACHINE


def test_a_driver_replaces_the_driver_and_what_was_known_of_it() -> None:
    facts = stated(driver="535.104.05")

    assert facts.driver == Driver(version="535.104.05")
    assert facts.sources == {"driver.version": "--driver", "gpus": "NVML", "python.version": "asked", "platform.glibc": "asked"}
    assert [problem.what for problem in facts.problems] == ["nvidia-smi", "packages.pip"]
    assert replace(facts, driver=MACHINE.driver, sources=MACHINE.sources, problems=MACHINE.problems) == MACHINE


def test_gpus_replace_all_gpus() -> None:
    facts = stated(gpus=("T4", "sm_90", "8.6", "120", "980", "compute_80", "9.0a"))

    assert isinstance(facts.gpus, tuple)
    assert [(gpu.name, gpu.compute_capability) for gpu in facts.gpus] == [
        ("Tesla T4", "7.5"),
        (None, "9.0"),
        (None, "8.6"),
        (None, "12.0"),
        ("GTX 980", "5.2"),
        (None, "8.0"),
        (None, "9.0"),
    ]
    assert facts.sources["gpus"] == "--gpu"
    assert facts.packages == MACHINE.packages


@pytest.mark.parametrize("word", ["none", "", " ", "CPU", "GTX 123", "\u0667.5"])
def test_a_gpu_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        stated(gpus=(word,))

    assert caught.value.code == "option-gpu"
    assert caught.value.exit_code is ExitCode.USAGE


def test_no_gpu_is_asked_for_with_another_option() -> None:
    with pytest.raises(UsageError) as caught:
        stated(gpus=("none",))

    assert "--device cpu" in (caught.value.hint or "")


def test_another_python_means_a_fresh_environment_on_the_machine_of_the_facts() -> None:
    facts = stated(python_version="3.12")

    assert facts.python == Python(version="3.12")
    assert facts.packages == Packages(pip={}, apt={"libc6": "2.35"})
    assert facts.frameworks == ()
    assert facts.cudnn == (MACHINE.cudnn[0], MACHINE.cudnn[3])  # type: ignore[index]
    assert facts.cuda_toolkits == (MACHINE.cuda_toolkits[0],)  # type: ignore[index]
    assert (facts.driver, facts.gpus, facts.platform, facts.loader) == (MACHINE.driver, MACHINE.gpus, MACHINE.platform, MACHINE.loader)
    assert facts.sources["python.version"] == "--python-version"
    assert facts.sources["driver.version"] == "NVML"


def test_elsewhere_what_is_not_said_is_unknown() -> None:
    facts = stated(Facts(), python_version="3.12")

    assert facts.packages.pip == {}
    assert facts.frameworks == ()
    assert facts.packages.apt is UNKNOWN
    assert facts.driver is UNKNOWN
    assert facts.gpus is UNKNOWN
    assert facts.cudnn is UNKNOWN
    assert facts.platform == Platform()
    assert facts.root is None


@pytest.mark.parametrize(
    ("text", "version", "free_threaded"),
    [("3.11", "3.11", None), ("3.11.13", "3.11.13", None), ("3.13t", "3.13", True), ("3.14.0rc2", "3.14.0rc2", None), ("2.7", "2.7", None)],
)
def test_python_versions(text: str, version: str, free_threaded: Literal[True] | None) -> None:
    assert stated(python_version=text).python == Python(version=version, free_threaded=free_threaded)


@pytest.mark.parametrize(
    ("text", "arch", "glibc"),
    [
        ("linux_x86_64", "x86_64", "2.35"),
        ("linux_amd64", "x86_64", "2.35"),
        ("manylinux_2_28_x86_64", "x86_64", "2.28"),
        ("manylinux2014_x86_64", "x86_64", "2.17"),
        ("Linux_AArch64", "aarch64", "2.35"),
        ("manylinux_2_34_aarch64", "aarch64", "2.34"),
    ],
)
def test_platforms(text: str, arch: str, glibc: str) -> None:
    facts = stated(platform=text)

    assert (facts.platform.system, facts.platform.arch, facts.platform.glibc) == ("linux", arch, glibc)
    assert facts.packages.pip == {}
    assert facts.python == Python()


def test_another_architecture_loses_what_was_built_for_the_old_one() -> None:
    facts = stated(platform="linux_aarch64")

    assert (facts.cuda_toolkits, facts.cudnn, facts.loader, facts.packages.apt) == (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    assert facts.driver == MACHINE.driver


def test_the_same_architecture_keeps_the_machine() -> None:
    facts = stated(platform="linux_x86_64")

    assert facts.cudnn == (MACHINE.cudnn[0], MACHINE.cudnn[3])  # type: ignore[index]
    assert facts.packages.apt == MACHINE.packages.apt


@pytest.mark.parametrize(
    ("text", "expected", "glibc"),
    [
        ("ubuntu22.04", ("ubuntu", "22.04"), "2.35"),
        ("Ubuntu 20.04", ("ubuntu", "20.04"), "2.31"),
        ("ubuntu1804", ("ubuntu", "18.04"), "2.27"),
        ("debian12", ("debian", "12"), "2.36"),
        ("rocky9", ("rocky", "9"), "2.34"),
        ("rocky9.4", ("rocky", "9.4"), "2.34"),
        ("redhat8", ("rhel", "8"), "2.28"),
        ("amzn2023", ("amzn", "2023"), "2.34"),
        ("opensuse-leap15.6", ("opensuse-leap", "15.6"), None),
    ],
)
def test_a_distribution_brings_its_c_library(text: str, expected: tuple[str, str], glibc: str | None) -> None:
    assert split_os(text) == expected

    facts = stated(Facts(), os=text)

    assert (facts.platform.distribution, facts.platform.release, facts.platform.glibc) == (*expected, glibc)
    assert facts.sources.get("platform.glibc") == (None if glibc is None else "--os")


def test_the_same_distribution_keeps_the_c_library_that_was_found() -> None:
    found = replace(MACHINE, platform=replace(MACHINE.platform, glibc="2.35.1"))

    assert stated(found, os="ubuntu22.04").platform == found.platform
    assert stated(found, os="debian11").platform.glibc == "2.31"
    assert stated(found, os="opensuse-leap15.6").platform.glibc is None


@pytest.mark.parametrize("order", [{"os": "ubuntu22.04", "glibc": "2.31"}, {"platform": "manylinux_2_28_x86_64", "glibc": "2.31"}])
def test_a_stated_c_library_is_the_last_word(order: dict[str, str]) -> None:
    facts = stated(Facts(), **order)

    assert facts.platform.glibc == "2.31"
    assert facts.sources["platform.glibc"] == "--glibc"


def test_a_platform_with_its_c_library_is_stronger_than_a_distribution() -> None:
    facts = stated(Facts(), platform="manylinux_2_28_x86_64", os="ubuntu24.04")

    assert facts.platform == Platform(system="linux", arch="x86_64", distribution="ubuntu", release="24.04", glibc="2.28")
    assert facts.sources["platform.glibc"] == "--platform"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"driver": "new"}, "option-driver"),
        ({"driver": "12.4"}, "option-driver"),
        ({"driver": "99999.1"}, "option-driver"),
        ({"driver": "550.54.15.1"}, "option-driver"),
        ({"driver": "\u0665\u0665\u0660.54"}, "option-driver"),
        ({"driver": ""}, "option-driver"),
        ({"python_version": "3"}, "option-python-version"),
        ({"python_version": "11.3"}, "option-python-version"),
        ({"python_version": "3.11; rm"}, "option-python-version"),
        ({"platform": "win_amd64"}, "option-platform"),
        ({"platform": "macosx_11_0_arm64"}, "option-platform"),
        ({"platform": "linux"}, "option-platform"),
        ({"glibc": "3.0"}, "option-glibc"),
        ({"glibc": "2"}, "option-glibc"),
        ({"os": "ubuntu"}, "option-os"),
        ({"os": "22.04"}, "option-os"),
        ({"os": ""}, "option-os"),
    ],
)
def test_what_cannot_be_is_refused_with_a_next_step(words: dict[str, str], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        stated(MACHINE, **words)

    assert caught.value.code == code
    assert caught.value.hint
    assert next(iter(words)).replace("_", "-") in caught.value.message


def test_a_cuda_version_for_a_driver_is_recognized() -> None:
    with pytest.raises(UsageError) as caught:
        stated(driver="12.4")

    assert "CUDA version" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        stated(driver="99999")

    assert "CUDA version" not in (caught.value.hint or "")
