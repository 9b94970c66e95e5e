"""The driver and its GPUs, asked of stand-ins for NVIDIA's libraries that are compiled here: working, hanging, crashing, lying."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudnn_resolve.facts.model import UNKNOWN, Driver, Gpu, Problem, Unknown
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.probe import driver_sources
from cudnn_resolve.probe.driver import find_driver
from cudnn_resolve.probe.driver_sources import DriverSources
from cudnn_resolve.probe.gpu import find_gpus
from tests.fake_host import FakeHost, really
from tests.native.build import build_library

T4_UUID = "GPU-00000000-0000-0000-0000-00000000000a"
L4_UUID = "GPU-00000000-0000-0000-0000-00000000000b"
GPUS = f"Tesla T4|7.5|15360|{T4_UUID};NVIDIA L4|8.9|23034|{L4_UUID}"
T4 = Gpu(name="Tesla T4", compute_capability="7.5", memory_mib=15360, uuid=T4_UUID)
L4 = Gpu(name="NVIDIA L4", compute_capability="8.9", memory_mib=23034, uuid=L4_UUID)
MODULE_550 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
MODULE_535 = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"


@dataclass(frozen=True)
class Found:
    driver: Driver | Unknown | None
    gpus: tuple[Gpu, ...] | Unknown
    sources: Mapping[str, str]
    gpu_source: str
    problems: tuple[Problem, ...]

    def said(self, what: str) -> str:
        """The one problem with something; fails where there is none, or more than one."""
        (problem,) = [one for one in self.problems if one.what == what]
        return problem.why


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both stand-ins, of driver 550.54.15."""
    folder = tmp_path_factory.mktemp("driver")
    build_library("standin_nvml.c", folder, "libnvidia-ml.so.1", "libnvidia-ml.so.550.54.15")
    build_library("standin_cuda.c", folder, "libcuda.so.1", "libcuda.so.550.54.15")
    return folder


@pytest.fixture
def bare_machine() -> None:
    """The test is about what is nowhere; a machine with a driver of its own cannot show that."""
    if any(library.path for library in driver_sources.ask_libraries(LinuxHost())):
        pytest.skip("this machine has a driver of its own")


def find(folder: Path, files: Mapping[str, str] | None = None, **settings: str) -> Found:
    """What is found where the loader searches `folder`, the kernel's files are `files`, and the stand-ins behave as told."""
    environ = {"LD_LIBRARY_PATH": str(folder), "STANDIN_GPUS": GPUS, **settings}
    host = FakeHost(files, environ=environ, programs=really(environ), python=sys.executable)
    evidence = DriverSources(host, *driver_sources.ask_libraries(host))
    driver, sources, driver_problems = find_driver(evidence)
    gpus, gpu_source, gpu_problems = find_gpus(evidence, driver)
    return Found(driver, gpus, sources, gpu_source, driver_problems + gpu_problems)


@pytest.mark.slow
def test_a_working_driver_gives_everything(libraries: Path) -> None:
    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550})

    assert found.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert found.gpus == (T4, L4)
    assert found.problems == ()
    assert found.sources["driver.version"] == f"NVML ({libraries}/libnvidia-ml.so.550.54.15)"
    assert found.sources["driver.kernel_module"] == "/proc/driver/nvidia/version"
    assert found.gpu_source == "NVML"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hang", "abort", "segfault"])
def test_a_broken_nvml_hides_nothing_that_libcuda_knows(libraries: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(driver_sources, "LIBRARY_SECONDS", 1.0)

    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550}, STANDIN_NVML=how)

    assert found.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert found.gpus == (T4, L4)
    words = {"hang": "did not answer within 1 s", "abort": "crashed (SIGABRT)", "segfault": "crashed (SIGSEGV)"}
    assert found.said("libnvidia-ml.so.1") == words[how]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hang", "abort", "segfault"])
def test_a_broken_libcuda_hides_nothing_that_nvml_knows(libraries: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(driver_sources, "LIBRARY_SECONDS", 1.0)

    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550}, STANDIN_LIBCUDA=how)

    assert found.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert found.gpus == (T4, L4)
    words = {"hang": "did not answer within 1 s", "abort": "crashed (SIGABRT)", "segfault": "crashed (SIGSEGV)"}
    assert found.said("libcuda.so.1") == words[how]


@pytest.mark.slow
def test_a_library_that_takes_memory_without_end_is_ended_by_the_bound(libraries: Path) -> None:
    environ = {"LD_LIBRARY_PATH": str(libraries), "STANDIN_GPUS": GPUS, "STANDIN_NVML": "devour", "STANDIN_LIBCUDA": "devour"}
    bounded = LinuxHost(environ=environ)
    host = FakeHost(
        environ=environ, programs=lambda argv: bounded.run(argv, timeout_seconds=30, memory_limit_mib=200), python=sys.executable
    )

    told = driver_sources.ask_libraries(host)

    for library in told:
        assert re.fullmatch(r"crashed \(SIGABRT, out of memory: it had taken \d+ of 200 MiB\)", library.failure)


@pytest.mark.slow
def test_both_hanging_cost_one_time_limit_and_leave_what_they_had_said(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_sources, "LIBRARY_SECONDS", 1.5)
    before = time.monotonic()

    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550}, STANDIN_NVML="hang-late", STANDIN_LIBCUDA="hang")

    assert time.monotonic() - before < 10
    assert found.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert found.gpus == (T4,)
    assert found.said("libnvidia-ml.so.1") == found.said("libcuda.so.1") == "did not answer within 1.5 s"


def test_a_crash_of_both_leaves_the_kernels_files(libraries: Path) -> None:
    information = f"Model: \t\t Tesla T4\nGPU UUID: \t {T4_UUID}\n"
    files = {"/sys/module/nvidia/version": "550.54.15\n", "/proc/driver/nvidia/gpus/0000:00:04.0/information": information}

    found = find(libraries, files, STANDIN_NVML="abort", STANDIN_LIBCUDA="segfault")

    assert found.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert found.gpus == (Gpu(name="Tesla T4", uuid=T4_UUID),)
    assert found.sources["driver.kernel_module"] == "/sys/module/nvidia/version"
    assert found.gpu_source == "/proc/driver/nvidia/gpus"


def test_kernel_module_and_libraries_of_two_releases_are_both_facts(libraries: Path) -> None:
    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_535}, STANDIN_NVML="18", STANDIN_LIBCUDA="803")

    assert found.driver == Driver(version="550.54.15", cuda="12.4", kernel_module="535.104.05")
    why = found.said("driver/library version mismatch")
    assert "kernel module 535.104.05" in why
    assert "libraries 550.54.15" in why
    assert found.gpus is UNKNOWN
    assert len(found.problems) == 1


def test_nvml_may_be_the_only_one_to_tell_of_two_releases(libraries: Path) -> None:
    found = find(libraries, STANDIN_NVML="18")

    assert "different releases" in found.said("driver/library version mismatch")


def test_no_gpu_is_an_answer(libraries: Path) -> None:
    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550}, STANDIN_GPUS="")

    assert found.gpus == ()
    assert found.said("cuInit") == "failed with CUDA_ERROR_NO_DEVICE (100): it sees no GPU"


def test_libraries_without_a_kernel_module_are_named(libraries: Path) -> None:
    found = find(libraries, STANDIN_GPUS="", STANDIN_NVML="9")

    assert found.driver == Driver(version="550.54.15", cuda="12.4")
    assert "is not loaded and there is no device" in found.said("NVIDIA kernel module")
    assert found.said("NVML") == "failed with Driver Not Loaded (9): the kernel module is not loaded"
    assert found.gpus == ()


def test_garbage_is_not_believed_and_named(libraries: Path) -> None:
    found = find(libraries, STANDIN_NVML="garbage")

    assert found.driver == Driver(version="550.54.15", cuda="12.4")
    assert found.gpus == (T4, L4)
    reasons = "\n".join(problem.why for problem in found.problems)
    versions = ("the impossible CUDA version -77", "the impossible driver version")
    for words in (*versions, "4000000000 GPUs", "capability -3.700", "3 bytes", "UUID 'GPU-?'"):
        assert words in reasons


def test_a_gpu_that_is_lost_does_not_hide_the_others(libraries: Path) -> None:
    found = find(libraries, STANDIN_GPUS=f"lost|7.5|15360|{T4_UUID};NVIDIA L4|8.9|23034|{L4_UUID}", STANDIN_LIBCUDA="999")

    assert found.gpus == (L4,)
    assert found.said("GPU 0") == "does not answer libnvidia-ml.so.1: GPU is lost"


def test_an_old_nvml_is_completed_by_libcuda(libraries: Path) -> None:
    found = find(libraries, STANDIN_OLD="1")

    assert found.gpus == (T4, L4)
    assert found.gpu_source == "NVML, libcuda"


@pytest.mark.parametrize(
    ("value", "hidden", "words"),
    [
        ("", (True, True), "hides every GPU"),
        ("-1", (True, True), "hides every GPU"),
        ("1", (True, False), "hides GPU 0 (Tesla T4)"),
        ("0", (False, True), "hides GPU 1 (NVIDIA L4)"),
    ],
)
def test_hidden_gpus_are_seen_and_marked(libraries: Path, value: str, hidden: tuple[bool, bool], words: str) -> None:
    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550}, CUDA_VISIBLE_DEVICES=value)

    assert not isinstance(found.gpus, Unknown)
    assert [gpu.name for gpu in found.gpus] == ["Tesla T4", "NVIDIA L4"]
    assert tuple(gpu.hidden for gpu in found.gpus) == hidden
    assert words in found.said("CUDA_VISIBLE_DEVICES")
    assert len(found.problems) == 1


def test_what_libcuda_really_sees_decides_which_gpu_is_hidden(libraries: Path) -> None:
    """CUDA may count the cards in another order than NVML: with "1" the stand-in shows the L4, whatever NVML's order is."""
    found = find(
        libraries,
        {"/proc/driver/nvidia/version": MODULE_550},
        CUDA_VISIBLE_DEVICES="1",
        STANDIN_GPUS=f"{GPUS};Tesla V100|7.0|16384|GPU-00000000-0000-0000-0000-00000000000c",
    )

    assert not isinstance(found.gpus, Unknown)
    assert [gpu.hidden for gpu in found.gpus] == [True, False, True]


def test_everything_visible_is_no_problem(libraries: Path) -> None:
    found = find(libraries, {"/proc/driver/nvidia/version": MODULE_550}, CUDA_VISIBLE_DEVICES="0,1")

    assert found.gpus == (T4, L4)
    assert found.problems == ()


def test_hidden_gpus_that_only_libcuda_could_tell_are_unknown(libraries: Path) -> None:
    found = find(libraries, STANDIN_NVML="abort", CUDA_VISIBLE_DEVICES="")

    assert found.gpus is UNKNOWN


def test_libcuda_alone_cannot_tell_what_is_hidden(libraries: Path) -> None:
    found = find(libraries, STANDIN_NVML="abort", CUDA_VISIBLE_DEVICES="1")

    assert found.gpus == (L4,)
    assert "there may be more GPUs" in found.said("CUDA_VISIBLE_DEVICES")


def test_a_divided_gpu_is_named(libraries: Path) -> None:
    instance = "MIG-11112222-0000-0000-0000-000000000000"
    found = find(libraries, STANDIN_MIG=instance, STANDIN_LIBCUDA="999", CUDA_VISIBLE_DEVICES=instance)

    assert "MIG" in found.said("GPU 0")
    assert not isinstance(found.gpus, Unknown)
    assert [gpu.hidden for gpu in found.gpus] == [False, True]


def test_a_forward_compatibility_libcuda_gives_its_cuda_and_says_so(libraries: Path, tmp_path: Path) -> None:
    compat = tmp_path / "cuda-13.0/compat"
    build_library("standin_cuda.c", compat, "libcuda.so.1", "libcuda.so.580.82.07")

    found = find(
        Path(f"{compat}:{libraries}"),
        {"/proc/driver/nvidia/version": MODULE_550},
        STANDIN_CUDA="13000",
    )

    assert found.driver == Driver(version="550.54.15", cuda="13.0", kernel_module="550.54.15")
    library = f"{compat}/libcuda.so.580.82.07"
    assert found.said("libcuda.so.1").startswith(f"{library} belongs to a forward-compatibility package: it offers CUDA 13.0")
    assert len(found.problems) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("bare_machine")
def test_a_compat_library_alone_is_no_driver(tmp_path: Path) -> None:
    compat = tmp_path / "cuda-13.0/compat"
    build_library("standin_cuda.c", compat, "libcuda.so.1", "libcuda.so.580.82.07")

    found = find(compat, STANDIN_GPUS="")

    assert found.driver is None
    assert "forward-compatibility" in found.said("libcuda.so.1")


@pytest.mark.slow
@pytest.mark.usefixtures("bare_machine")
def test_a_stub_on_the_loaders_path_is_named_and_is_no_driver(tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    build_library("standin_cuda.c", stubs, "libcuda.so.1")

    found = find(stubs, STANDIN_LIBCUDA="34")

    assert found.driver is None
    assert "stub" in found.said("libcuda.so.1")


@pytest.mark.usefixtures("bare_machine")
def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("this is no library")

    found = find(tmp_path, {"/dev/nvidiactl": ""})

    assert found.driver is UNKNOWN
    assert found.gpus is UNKNOWN
    assert "cannot be loaded" in found.said("libcuda.so.1")
    assert "its version is unknown" in found.said("driver")


@pytest.mark.usefixtures("bare_machine")
def test_without_any_library_there_is_no_driver(tmp_path: Path) -> None:
    found = find(tmp_path, {"/sys/bus/pci/devices/0000:00:05.0/vendor": "0x1af4\n"})

    assert (found.driver, found.gpus, found.problems) == (None, (), ())
    assert found.sources["driver"] == "no driver library, no kernel module, no device"


@pytest.mark.usefixtures("bare_machine")
def test_a_library_outside_of_the_loaders_search_is_found_and_named(libraries: Path, tmp_path: Path) -> None:
    """The payload is told the directories here; those that it tries by itself are real ones of Colab, Kubernetes and WSL."""
    environ = {"STANDIN_GPUS": GPUS}

    host = FakeHost(
        {"/proc/driver/nvidia/version": MODULE_550},
        programs=lambda argv: really(environ)((*argv, str(tmp_path / "empty"), str(libraries))),
        python=sys.executable,
    )
    evidence = DriverSources(host, *driver_sources.ask_libraries(host))
    driver, _, problems = find_driver(evidence)

    assert driver == Driver(version="550.54.15", cuda="12.4", kernel_module="550.54.15")
    assert [problem.what for problem in problems] == ["libnvidia-ml.so.1", "libcuda.so.1"]
    assert all(f"is in {libraries}, where the loader does not look" in problem.why for problem in problems)
