"""CUDA runtimes and cuDNN through their channels."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.resolution.channel import allowed_channels
from cudnn_resolve.resolution.compatibility import cuda_limit, cudnn_limit
from cudnn_resolve.resolution.key import CUDA, CUDA_LIMIT, CUDNN, CUDNN_LIMIT, CUDNN_OF_SYSTEM, CudnnKey, FrameworkKey, PipKey
from cudnn_resolve.resolution.universe import Universe
from cudnn_resolve.version import CudaVersion, CudnnVersion
from tests.worlds.load import gpu, universe, world

BOOK = world()


def lines(found: Any) -> list[tuple[str, str | None]]:
    return [(one.version, one.channel) for one in found]


@pytest.mark.parametrize(("channel", "expected"), [("auto", ("pip", "system", "apt")), ("pip", ("pip",)), ("apt", ("system", "apt"))])
def test_channels_in_the_order_of_the_contract(channel: str, expected: tuple[str, ...]) -> None:
    assert allowed_channels(universe(BOOK, "north", options={"channel": channel}).context) == expected


def test_a_toolkit_that_is_there_is_a_candidate_and_a_pip_part_is_none() -> None:
    toolkits = [{"version": "12.2.1", "path": "/usr/local/cuda-12.2", "source": "runfile"}, {"version": "11.8", "source": "pip"}]
    found = list(universe(BOOK, "north", cuda_toolkits=toolkits, options={"channel": "apt"}).unordered(CUDA))

    assert lines(found)[0] == ("12.2", "system")
    assert [one.path for one in found if one.channel == "system"] == ["/usr/local/cuda-12.2"]


def test_wheels_give_the_lines_that_they_are_of() -> None:
    found = {one.version for one in universe(BOOK, "north", options={"channel": "pip"}).unordered(CUDA)}

    assert found == {"11.8", "12.2", "12.4", "12.8", "13.0"}


def apt(here: Universe) -> dict[str, tuple[str, bool]]:
    return {one.version: (one.repository, one.foreign) for one in here.unordered(CUDA) if one.channel == "apt"}


def test_the_own_repository_comes_before_that_of_an_older_release() -> None:
    found = apt(universe(BOOK, "north", options={"channel": "apt"}))

    assert found["12.2"] == ("newer", False)
    assert found["11.8"] == ("older", True)


def test_a_newer_repository_never_serves_an_older_release() -> None:
    focal = {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "20.04"}

    assert set(apt(universe(BOOK, "north", platform=focal, options={"channel": "apt"}))) == {"11.8", "12.2"}


@pytest.mark.parametrize(
    "platform",
    [
        {"system": "linux", "arch": "x86_64", "distribution": "fedora", "release": "42"},
        {"system": "linux", "arch": "aarch64", "distribution": "ubuntu", "release": "22.04"},
        {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "26.10"},
    ],
)
def test_other_distributions_have_no_repository(platform: dict[str, str]) -> None:
    assert apt(universe(BOOK, "north", platform=platform, options={"channel": "apt"})) == {}


def test_an_unknown_distribution_excludes_nothing() -> None:
    found = apt(universe(BOOK, "north", platform={"system": "linux", "arch": "x86_64"}, options={"channel": "apt"}))

    assert {"11.8", "12.2", "13.0"} <= set(found)
    assert not any(foreign for _, foreign in found.values())


def ordered(here: Universe, *, build: str | None = None) -> list[tuple[str, str | None]]:
    needs = []
    if build is not None:
        candidate = next(iter(here.candidates(FrameworkKey(build), ())))
        wheel = next(one for one in here.unordered(PipKey(build)) if one.build is candidate.build)
        needs = [need for need in here.needs(wheel) if need.key == CUDA]
    return lines(here.candidates(CUDA, needs))


def test_a_runtime_as_the_wheels_pin_it_is_the_oldest_that_serves() -> None:
    found = [line for line, channel in ordered(universe(BOOK, "north==2.0"), build="north") if channel == "pip"]

    assert found == sorted(found, key=CudaVersion)


def test_without_pins_the_newest_that_the_driver_supports_itself_comes_first() -> None:
    assert ordered(universe(BOOK, "north", options={"channel": "pip"}))[0] == ("12.4", "pip")
    assert ordered(universe(BOOK, "north", driver={"version": "535.54.03"}, options={"channel": "pip"}))[0] == ("12.2", "pip")


def test_the_installed_line_stays() -> None:
    held = {"pip": {"nvidia-cuda-runtime-cu12": "12.2.53"}}

    assert ordered(universe(BOOK, "north", packages=held))[0] == ("12.2", "pip")
    assert ordered(universe(BOOK, "north", packages=held, options={"prefer": "newest"}))[0] != ("12.2", "pip")


def cudnn(here: Universe, key: CudnnKey = CUDNN) -> list[tuple[str, str | None]]:
    return lines(here.unordered(key))


def test_known_bad_cudnn_is_no_candidate_unless_pins_are_strict() -> None:
    assert ("9.12.0.46", "pip") not in cudnn(universe(BOOK, "north"))
    assert ("9.12.0.46", "pip") in cudnn(universe(BOOK, "north", options={"strict_pins": True}))
    assert ("9.3.0.75", "pip") in cudnn(universe(BOOK, "north"))
    assert ("9.3.0.75", "pip") not in cudnn(universe(BOOK, "north", gpus=gpu("9.0")))


def test_only_whole_copies_of_the_system_count() -> None:
    copies = [
        {"version": "8.7.0", "soname": 8, "cuda": "11", "path": "/a", "source": "apt", "complete": True},
        {"version": "8.9.7.29", "soname": 8, "cuda": "12", "path": "/b", "source": "apt", "complete": False},
        {"version": "9.1.0.70", "soname": 9, "cuda": "12", "path": "/c", "source": "pip", "complete": True},
        {"version": "9.99.0.1", "soname": 9, "cuda": "12", "path": "/d", "source": "other", "complete": True},
        {"version": None, "soname": 9, "cuda": "12", "path": "/e", "source": "other", "complete": True},
    ]
    found = cudnn(universe(BOOK, "north", cudnn=copies), CUDNN_OF_SYSTEM)

    assert [one for one in found if one[1] == "system"] == [("8.7.0.84", "system"), ("9.99.0.1", "system")]


@pytest.mark.parametrize(
    ("limit", "line", "releases", "allowed"),
    [
        ("12.4", "12.4", ("12.4.0", "12.4.1"), True),
        ("12.4.1", "12.4", ("12.4.0", "12.4.1"), True),
        ("12.4.2", "12.4", ("12.4.0", "12.4.1"), False),
        ("<12", "12.2", (), False),
        (">=12,<13", "12.8", ("12.8.0",), True),
        ("!=12.8", "12.8", (), False),
    ],
)
def test_a_limit_on_cuda(limit: str, line: str, releases: tuple[str, ...], *, allowed: bool) -> None:
    here = universe(BOOK, "north", options={"cuda": limit})
    need = cuda_limit(CudaVersion(line), releases, "x")

    assert need.test(next(iter(here.unordered(CUDA_LIMIT)))) == allowed


@pytest.mark.parametrize(
    ("limit", "allowed"), [("9.1", True), ("9.1.0", True), ("9.1.0.70", True), ("9.1.1", False), (">=9.3", False), ("<9.2", True)]
)
def test_a_limit_on_cudnn(limit: str, *, allowed: bool) -> None:
    here = universe(BOOK, "north", options={"cudnn": limit})

    assert cudnn_limit(CudnnVersion("9.1.0.70"), "x").test(next(iter(here.unordered(CUDNN_LIMIT)))) == allowed


def test_a_cudnn_works_with_a_range_of_cuda() -> None:
    here = universe(BOOK, "north")
    old = next(one for one in here.unordered(CUDNN) if one.version == "8.9.7.29" and one.channel == "pip")
    need = next(need for need in here.needs(old) if need.key == CUDA)
    serving = [one for one in here.unordered(CUDA) if need.test(one)]

    assert {one.version for one in serving} == {"12.2", "12.4"}
    assert {one.channel for one in serving} == {"pip"}
