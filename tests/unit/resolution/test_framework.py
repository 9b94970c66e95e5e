"""Which build of a framework comes first, and what it needs."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.framework import Frameworks
from cudnn_resolve.resolution.key import FrameworkKey, LibrariesKey, PipKey
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.release import extras_of
from cudnn_resolve.resolution.universe import Universe
from tests.worlds.load import machine, request, universe, world

BOOK = world()


def builds(name: str = "north", **parts: Any) -> list[tuple[str, str]]:
    here = universe(BOOK, name, **parts)
    return [(one.build.wheel_version, one.build.variant) for one in here.candidates(FrameworkKey(name), ())]


def test_the_newest_release_first_then_the_configured_index() -> None:
    assert builds() == [("3.0", "cu130"), ("2.0", "cu124"), ("2.0+cu118", "cu118"), ("1.0", "cu118")]


def test_builds_for_the_wanted_device_only() -> None:
    assert builds(options={"device": "cpu"}) == [("2.0+cpu", "cpu")]


def test_what_is_installed_comes_first() -> None:
    held = {"pip": {"north": "2.0+cu118"}}

    assert builds(packages=held)[0] == ("2.0+cu118", "cu118")
    assert builds(packages=held, options={"prefer": "newest"})[0] == ("3.0", "cu130")


@pytest.mark.parametrize(
    ("near", "expected"),
    [("2.0", ["2.0", "2.0+cu118", "3.0", "1.0"]), ("1.0", ["1.0", "2.0", "2.0+cu118", "3.0"]), ("2.5", ["3.0", "2.0", "2.0+cu118", "1.0"])],
)
def test_the_nearest_release_first_where_one_is_left(near: str, expected: list[str]) -> None:
    here = Universe(Context(BOOK, machine(BOOK), open_request(request(BOOK, "north")), nearest_to={"north": near}))

    assert [one.build.wheel_version for one in here.candidates(FrameworkKey("north"), ())] == expected


def needs(name: str, version: str, **parts: Any) -> dict[str, list[str]]:
    """What a build needs: package of the universe to the words."""
    here = universe(BOOK, name, **parts)
    wheel = next(one for one in here.unordered(PipKey(name)) if one.version == version and one.build.cuda)
    out: dict[str, list[str]] = {}
    for need in here.needs(wheel):
        out.setdefault(str(need.key), []).append(need.text)
    return out


def test_a_build_on_wheels_needs_a_runtime_and_a_cudnn_as_wheels() -> None:
    found = needs("north", "2.0")

    assert found["cuda"] == ["CUDA >= 12.4, < 13 as pip wheels"]
    assert found["cudnn"] == ["cuDNN >= 9.1, < 10 for CUDA 12"]
    assert "numpy<2" in found["pip:numpy"]


def test_a_bundled_build_shares_nothing() -> None:
    found = needs("north", "2.0+cu118")

    assert not {"cuda", "cudnn", "libraries:north"} & set(found)
    assert "driver >= 450.80.02" in found["driver"]
    assert "limit:cuda" in found
    assert "limit:cudnn" in found
    assert not [name for name in found if name.startswith("pip:nvidia-")]


def test_a_build_whose_libraries_come_from_outside_asks_for_a_channel() -> None:
    assert "libraries:south" in needs("south", "1.1", python={"version": "3.10"})
    assert "libraries:south" in needs("south", "2.0")


def test_what_metadata_does_not_say() -> None:
    assert "numpy<2" in needs("south", "1.1", python={"version": "3.10"})["pip:numpy"]
    assert "numpy<2" not in needs("south", "2.0")["pip:numpy"]


def library_needs(channel: str, version: str = "2.0", **options: Any) -> dict[str, list[str]]:
    here = universe(BOOK, options.pop("target", "south"), python={"version": "3.10"}, options=options)
    wheel = next(one for one in here.unordered(PipKey("south")) if one.version == version)
    need = next(need for need in here.needs(wheel) if need.key == LibrariesKey("south"))
    candidate = next(one for one in here.candidates(need.key, [need]) if one.channel == channel)
    out: dict[str, list[str]] = {}
    for one in here.needs(candidate):
        out.setdefault(str(one.key), []).append(one.text)
    return out


def test_a_channel_brings_all_that_the_build_loads() -> None:
    wheels = library_needs("pip")

    assert {"cuda", "cudnn", "pip:nvidia-cudnn-cu12", "pip:nvidia-cublas-cu12", "pip:nvidia-cuda-runtime-cu12"} <= set(wheels)
    assert set(library_needs("apt")) == {"cuda", "cudnn"}


def test_pins_of_an_extra_bind_under_strict_pins_only_where_the_extra_is_asked_for() -> None:
    assert "nvidia-cudnn-cu12==9.3.0.75" in library_needs("pip", target="south[cuda]", strict_pins=True)["pip:nvidia-cudnn-cu12"]
    assert "nvidia-cudnn-cu12==9.3.0.75" not in library_needs("pip", strict_pins=True)["pip:nvidia-cudnn-cu12"]


def test_extras_are_read_from_the_build() -> None:
    here = universe(BOOK, "south")
    build = next(one.build for one in here.candidates(FrameworkKey("south"), ()) if one.build.version == "2.0")

    assert extras_of(build) == ("cuda",)


@pytest.mark.parametrize(
    ("pip", "count"),
    [
        ({}, 4),
        ({"numpy": "1.26.4"}, 3),
        ({"numpy": "1.26.4", "nvidia-cudnn-cu12": "9.3.0.75"}, 2),
        ({"numpy": "2.1.0", "nvidia-cudnn-cu12": "8.9.7.29"}, 4),
    ],
)
def test_requirements_of_an_installed_build_that_are_not_met(pip: dict[str, str], count: int) -> None:
    here = universe(BOOK, "north", packages={"pip": pip})
    build = next(one.build for one in here.candidates(FrameworkKey("north"), ()) if one.build.wheel_version == "2.0")

    assert Frameworks(here.builds).unmet(build) == count
