"""NVIDIA's rules on drivers, GPUs and GPU code, on a toy matrix."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.matrix.row import Build
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.version import Capability, CodeTarget, CudaVersion, DriverVersion
from tests.worlds.load import gpu, machine, world

BOOK = world()


@pytest.mark.parametrize(
    ("cuda", "policy", "driver"),
    [
        ("10.0", "minor", "410.48"),
        ("10.0", "strict", "410.48"),
        ("11.2", "minor", "450.80.02"),
        ("11.2", "strict", "460.27.03"),
        ("12.4", "minor", "525.60.13"),
        ("12.4", "strict", "550.54.14"),
        ("12.4.1", "strict", "550.54.15"),
        ("13.0", "minor", "580.65.06"),
        ("9.2", "minor", None),
    ],
)
def test_the_oldest_driver_of_a_runtime(cuda: str, policy: str, driver: str | None) -> None:
    needs = list(compatibility.driver_needs(BOOK, CudaVersion(cuda), policy, "x"))

    assert [str(need.floor) for need in needs] == ([driver] if driver else [])
    assert all(driver in need.because for need in needs if driver)


def test_a_runtime_without_a_known_driver_needs_none() -> None:
    assert not list(compatibility.driver_needs(BOOK, CudaVersion("9.2"), "strict", "x"))


@pytest.mark.parametrize(
    ("capability", "first", "last"),
    [
        ("3.5", "5.0", "11.8"),
        ("7.5", "10.0", None),
        ("8.0", "11.0", None),
        ("8.6", "11.0", None),  # machine code for 8.0 runs on it
        ("8.7", "11.4", None),  # a Tegra is served by Tegra builds
        ("12.0", "12.8", None),
        ("5.0", None, None),  # not in the tables: nothing is excluded
    ],
)
def test_the_cuda_releases_of_a_gpu(capability: str, first: str | None, last: str | None) -> None:
    found = compatibility.cuda_span(BOOK, Capability.parse(capability))

    assert tuple(str(one) if one else None for one in found) == (first, last)


@pytest.mark.parametrize(
    ("cuda", "capability", "count"),
    [
        ("11.8", "3.5", 0),
        ("11.8.89", "3.5", 0),
        ("12.0", "3.5", 1),
        ("12.9", "6.0", 0),
        ("13.0", "6.0", 1),
        ("12.6", "12.0", 1),
        ("12.8", "12.0", 0),
    ],
)
def test_libraries_know_a_range_of_gpus(cuda: str, capability: str, count: int) -> None:
    needs = list(compatibility.library_needs(BOOK, machine(BOOK, gpus=gpu(capability)), CudaVersion(cuda), "x"))

    assert [str(need.key) for need in needs] == ["gpu:0"] * count


@pytest.mark.parametrize(
    ("cuda", "capability", "text"),
    [
        ("12.4", "12.0", None),  # CUDA 12.8 knows it
        ("11.8", "12.0", "a GPU that CUDA 11 supports"),
        ("10.2", "8.6", "a GPU that CUDA 10 supports"),
        ("13.0", "12.0", None),
        ("12.0", "3.5", "a GPU that CUDA 12.0 still supports"),
    ],
)
def test_a_gpu_that_no_later_minor_knows_either(cuda: str, capability: str, text: str | None) -> None:
    found = compatibility.library_needs(BOOK, machine(BOOK, gpus=gpu(capability)), CudaVersion(cuda), "x", any_minor=True)

    assert [need.text for need in found] == ([text] if text else [])


def build(*targets: str, **more: Any) -> Build:
    fields: dict[str, Any] = {"framework": "f", "version": "1", "variant": "v", "package": "f", "wheel_version": "1", "index": "default"}
    return Build(**fields, cuda=CudaVersion("12.4"), targets=tuple(map(CodeTarget.parse, targets)), **more)


def code(built: Build, capability: str, arch: str = "x86_64") -> list[tuple[str, str]]:
    platform = {"system": "linux", "arch": arch}
    found = compatibility.code_needs(BOOK, machine(BOOK, platform=platform, gpus=gpu(capability)), built, "it")
    return [(str(need.key), need.text) for need in found]


@pytest.mark.parametrize(
    ("targets", "capability"),
    [
        (["sm_75"], "7.5"),
        (["sm_80"], "8.6"),
        (["sm_90a"], "9.0"),
        (["sm_80", "compute_90"], "8.6"),
        (["sm_100f"], "10.3"),
        ([], "7.5"),
    ],
)
def test_machine_code_of_the_same_major_serves(targets: list[str], capability: str) -> None:
    assert not code(build(*targets), capability)


@pytest.mark.parametrize(
    ("targets", "capability"),
    [
        (["sm_86"], "8.0"),
        (["sm_75"], "8.0"),
        (["sm_90a"], "12.0"),
        (["sm_100a"], "10.3"),
        (["compute_90"], "8.6"),
        (["compute_90a"], "12.0"),
    ],
)
def test_other_code_does_not_serve(targets: list[str], capability: str) -> None:
    assert [name for name, _ in code(build(*targets), capability)] == ["gpu:0"]


def test_ptx_serves_where_the_driver_is_as_new_as_the_toolkit() -> None:
    assert code(build("sm_80", "compute_80"), "9.0") == [("driver", "driver >= 550.54.14")]


def test_each_gpu_is_asked_for() -> None:
    found = compatibility.code_needs(BOOK, machine(BOOK, gpus=gpu("7.5", "9.0")), build("sm_75"), "it")

    assert [str(need.key) for need in found] == ["gpu:1"]


def test_code_may_differ_on_aarch64() -> None:
    built = build("sm_75", "sm_90", targets_aarch64=(CodeTarget.parse("sm_90"),))

    assert not code(built, "7.5")
    assert [name for name, _ in code(built, "7.5", "aarch64")] == ["gpu:0"]


def test_documented_first_capability() -> None:
    built = build(capability_first=Capability(7, 0))

    assert not code(built, "7.5")
    assert [name for name, _ in code(built, "6.0")] == ["gpu:0"]


def test_documented_last_capability() -> None:
    built = build(capability_first=Capability(5, 0), capability_last=Capability(8, 9))

    assert not code(built, "8.9")
    assert [name for name, _ in code(built, "9.0")] == ["gpu:0"]


def test_a_gpu_that_nobody_knows_excludes_nothing() -> None:
    unknown = machine(BOOK, gpus=[{"name": "a new one"}])

    assert not list(compatibility.code_needs(BOOK, unknown, build("sm_75"), "it"))
    assert not list(compatibility.library_needs(BOOK, unknown, CudaVersion("11.0"), "it"))


@pytest.mark.parametrize(
    ("capability", "refused"),
    [("6.0", {"9.3.0.75", "9.8.0.87"}), ("7.5", set()), ("8.6", set()), ("12.0", {"8.9.7.29", "9.1.0.70", "9.3.0.75"})],
)
def test_cudnn_has_code_for_a_gpu_or_not(capability: str, refused: set[str]) -> None:
    here = machine(BOOK, gpus=gpu(capability))
    rows = [row for row in BOOK.cudnn_builds() if row.cuda_major == 12]

    assert {str(row.version) for row in rows if list(compatibility.cudnn_hardware(BOOK, here, row))} == refused


@pytest.mark.parametrize(("capability", "problem"), [("6.0", "gpu-too-old"), ("12.0", "gpu-too-new")])
def test_a_gpu_is_too_old_or_too_new_for_a_cudnn(capability: str, problem: str) -> None:
    row = next(row for row in BOOK.cudnn_builds() if str(row.version) == "9.3.0.75")

    assert [need.problem for need in compatibility.cudnn_hardware(BOOK, machine(BOOK, gpus=gpu(capability)), row)] == [problem]


def test_the_ceiling_of_an_old_gpu_is_named() -> None:
    row = next(row for row in BOOK.cudnn_builds() if str(row.version) == "9.3.0.75")
    need = next(iter(compatibility.cudnn_hardware(BOOK, machine(BOOK, gpus=gpu("6.0")), row)))

    assert "9.1.0.70 is the last" in need.because


@pytest.mark.parametrize(
    ("built", "runtime", "libraries", "same"),
    [
        ("11.2", "11.8", ("cudart", "cublas", "cusolver"), True),
        ("11.0", "11.8", ("cudart", "cublas"), True),
        ("11.0", "11.8", ("cusolver",), False),
        ("11.8", "12.2", ("cublas",), False),
        ("12.2", "13.0", ("cusolver",), False),
        ("12.2", "12.8", ("a library that no table names",), True),
    ],
)
def test_libraries_keep_their_names_or_not(built: str, runtime: str, libraries: tuple[str, ...], *, same: bool) -> None:
    assert (compatibility.soname_mismatch(BOOK, CudaVersion(built), CudaVersion(runtime), libraries) is None) == same


def test_a_driver_need_accepts_newer_ones_and_an_unknown_one() -> None:
    need = compatibility.at_least(DriverVersion("525.60.13"), "because")

    class Fact:
        def __init__(self, value: DriverVersion | None) -> None:
            self.value = value

    assert [need.test(Fact(DriverVersion(one) if one else None)) for one in (None, "525.60.13", "525.60.12", "580.1", "470.223.02")] == [
        True,
        True,
        False,
        True,
        False,
    ]
