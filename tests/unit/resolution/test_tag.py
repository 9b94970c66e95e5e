"""Wheel tags against targets."""

import pytest

from cudnn_resolve.resolution.tag import Fit, TargetPython, fit, platform_floor, serves_python


def target(python: tuple[int, int] | None = (3, 11), *, free_threaded: bool = False, arch: str = "x86_64") -> TargetPython:
    return TargetPython(python, free_threaded, arch, (2, 35))


@pytest.mark.parametrize(
    ("pythons", "abis", "python", "expected"),
    [
        ("cp311", "cp311", (3, 11), True),
        ("cp311", "cp311", (3, 12), False),
        ("cp37", "cp37m", (3, 7), True),
        ("cp27", "cp27mu", (3, 7), False),
        ("cp38", "abi3", (3, 12), True),
        ("cp38", "abi3", (3, 7), False),
        ("py3", "none", (3, 9), True),
        ("py2.py3", "none", (3, 9), True),
        ("py2", "none", (3, 9), False),
        ("cp311", "none", (3, 11), True),
        ("cp310", "none", (3, 11), False),
        ("cp313", "cp313t", (3, 13), False),
        ("cp36.cp37", "cp36m", (3, 8), False),
        ("pp39", "pypy39_pp73", (3, 9), False),
    ],
)
def test_python_tags(pythons: str, abis: str, python: tuple[int, int], *, expected: bool) -> None:
    assert serves_python(pythons, abis, target(python)) is expected


def test_free_threaded_takes_its_own_abi_only() -> None:
    free = target((3, 13), free_threaded=True)

    assert serves_python("cp313", "cp313t", free)
    assert not serves_python("cp313", "cp313", free)
    assert not serves_python("cp38", "abi3", free)
    assert serves_python("py3", "none", free)


def test_an_unknown_python_excludes_nothing() -> None:
    assert serves_python("cp27", "cp27mu", target(None))


@pytest.mark.parametrize(
    ("platforms", "arch", "expected"),
    [
        ("manylinux1_x86_64", "x86_64", (2, 5)),
        ("manylinux2010_x86_64", "x86_64", (2, 12)),
        ("manylinux2014_aarch64", "aarch64", (2, 17)),
        ("manylinux2014_aarch64", "x86_64", None),
        ("manylinux_2_28_x86_64", "x86_64", (2, 28)),
        ("manylinux_2_17_x86_64.manylinux2014_x86_64.manylinux_2_28_x86_64", "x86_64", (2, 17)),
        ("linux_x86_64", "x86_64", (0, 0)),
        ("any", "aarch64", (0, 0)),
        ("win_amd64", "x86_64", None),
        ("musllinux_1_1_x86_64", "x86_64", None),
        ("macosx_11_0_arm64", "aarch64", None),
    ],
)
def test_platform_tags(platforms: str, arch: str, expected: tuple[int, int] | None) -> None:
    assert platform_floor(platforms, arch) == expected


def test_fit_joins_python_and_platform_of_one_file() -> None:
    tags = ("cp310-cp310-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux2014_aarch64")

    assert fit(tags, target()) == Fit(python=True, arch=True, glibc=(2, 28))
    assert fit(tags, target((3, 12))) == Fit(python=False, arch=True, glibc=None)
    assert fit(tags, target(arch="aarch64")) == Fit(python=True, arch=True, glibc=(2, 17))
    assert fit(("sdist",), target((3, 6))) == Fit(python=True, arch=True, glibc=(0, 0))


def test_a_tag_with_too_few_parts_fits_nothing() -> None:
    assert not fit(("cp311",), target()).arch
