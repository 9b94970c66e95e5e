"""What a machine installs from a lock, and whether the lock is for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from packaging.pylock import PackageDirectory
from packaging.tags import compatible_tags, cpython_tags
from packaging.version import Version

from cudnn_resolve.locking.fits_machine import machine_differences
from cudnn_resolve.locking.model import Lock, name_of
from cudnn_resolve.locking.pep751 import parse_pylock
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.select import select
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.matrix.toml import parse_toml
from cudnn_resolve.requirement.machine import Machine, machine_of
from cudnn_resolve.resolution.marker import marker_environment
from cudnn_resolve.resolution.model import AptPin
from tests.lock_maker import BOOK, changed, entry, lock_of, pinned, with_packages
from tests.worlds.load import facts, gpu

WHEELS = "cp311-cp311-manylinux_2_17_x86_64 cp311-cp311-manylinux_2_28_x86_64 cp39-abi3-manylinux_2_5_x86_64 py3-none-any"
BOTH = lock_of(
    pinned("pure==1.0", f"fast==1.0 {WHEELS}", "only==1.0", "two==1.0"),
    pinned("pure==1.0", "fast==1.0 cp311-cp311-manylinux_2_17_aarch64", "two==2.0", arch="aarch64"),
)


def here(**parts: Any) -> Machine:
    return machine_of(facts(**parts), BOOK)


def on(arch: str = "x86_64", glibc: str = "2.35") -> dict[str, Any]:
    return {"platform": {"system": "linux", "arch": arch, "glibc": glibc}}


def chosen(lock: Lock, machine: Machine) -> dict[str, str]:
    found = select(lock, machine)
    assert not found.differences, found.differences
    return {one.package.name: name_of(one.file) for one in found.chosen if one.file is not None}


def words(lock: Lock, **parts: Any) -> list[tuple[str, str, str]]:
    return [(one.what, one.locked, one.now) for one in machine_differences(lock, facts(**parts), BOOK)]


def test_each_platform_takes_its_own() -> None:
    assert chosen(BOTH, here()) == {
        "fast": "fast-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "only": "only-1.0-py3-none-any.whl",
        "pure": "pure-1.0-py3-none-any.whl",
        "two": "two-1.0-py3-none-any.whl",
    }
    assert chosen(BOTH, here(**on("aarch64"))) == {
        "fast": "fast-1.0-cp311-cp311-manylinux_2_17_aarch64.whl",
        "pure": "pure-1.0-py3-none-any.whl",
        "two": "two-2.0-py3-none-any.whl",
    }


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("glibc", [(2, 17), (2, 27), (2, 28), (2, 39)])
def test_it_takes_what_packaging_takes(arch: str, glibc: tuple[int, int]) -> None:
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(glibc[1], 4, -1)] + [f"linux_{arch}"]
    tags = [*cpython_tags((3, 11), ["cp311"], platforms), *compatible_tags((3, 11), "cp311", platforms)]
    machine = here(**on(arch, f"2.{glibc[1]}"))
    reference = parse_pylock(parse_toml(write(BOTH), "a test"), "a test").select(environment=marker_environment(machine), tags=tags)  # type: ignore[arg-type]

    assert {package.name: file.filename for package, file in reference} == chosen(BOTH, machine)  # type: ignore[union-attr]


def test_what_is_not_known_of_a_machine_excludes_nothing() -> None:
    assert "fast" in chosen(BOTH, here(**on(glibc="2.17"), python={}))
    assert not machine_differences(BOTH, facts(platform={}, python={}, driver=None, gpus=None, packages=None), BOOK)


def test_folders_and_source_archives_are_chosen_where_they_are_what_there_is() -> None:
    lock = lock_of(pinned("app==1.0 sdist"))
    app = entry("local", directory=PackageDirectory(path=".", editable=True))
    found = select(with_packages(lock, *lock.packages, app), here()).chosen

    assert [(one.package.name, one.file and name_of(one.file)) for one in found] == [("app", "app-1.0.tar.gz"), ("local", None)]
    assert found[1].source == PackageDirectory(path=".", editable=True)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, []),
        ({"python": {"version": "3.12.1"}}, [("Python", "==3.11.*", "3.12.1")]),
        (on("aarch64"), []),
        ({"driver": {"version": "470.82.01"}}, [("driver", "NVIDIA driver 525.60.13 or newer", "driver 470.82.01")]),
        ({"gpus": gpu("8.6")}, []),
        (
            {"gpus": gpu("3.5", "7.5")},
            [("gpu", "code for compute capability 7.5, 8.0, 8.6", "card 3.5 (compute capability 3.5)")],
        ),
        (
            {"gpus": gpu("9.0"), "driver": {"version": "535.54.03"}},
            [("gpu", "code for compute capability 7.5, 8.0, 8.6", "card 9.0 (compute capability 9.0) with driver 535.54.03")],
        ),
        ({"gpus": gpu("9.0")}, []),
    ],
)
def test_what_does_not_fit_a_machine_is_named(parts: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    stack: dict[str, Any] = {
        "driver_min": "525.60.13",
        "compute_capabilities": ("7.5", "8.0", "8.6"),
        "ptx_capabilities": ("9.0",),
        "ptx_driver_min": "550.54.14",
    }
    assert BOTH.tool is not None
    lock = replace(BOTH, tool=replace(BOTH.tool, stacks=tuple(replace(one, **stack) for one in BOTH.tool.stacks)))

    assert words(lock, **parts) == expected


def test_no_driver_is_said_as_such() -> None:
    bare = facts()
    assert [(one.what, one.now) for one in machine_differences(BOTH, replace(bare, driver=None), BOOK)] == [("driver", "no NVIDIA driver")]


def test_a_platform_that_the_lock_is_not_for() -> None:
    only = lock_of(pinned("app==1.0"))

    assert words(only, **on("aarch64")) == [("platform", "linux_x86_64", "linux_aarch64")]


def test_an_old_c_library_and_a_python_without_the_gil_are_named_with_the_package() -> None:
    lock = lock_of(pinned("fast==1.0 cp311-cp311-manylinux_2_28_x86_64"))

    ((what, locked, now),) = words(lock, **on(glibc="2.17"))
    assert (what, now) == ("fast 1.0", "glibc 2.17")
    assert "manylinux_2_28_x86_64" in locked
    ((what, _, now),) = words(lock, python={"version": "3.11.2", "free_threaded": True})
    assert (what, now) == ("fast 1.0", "Python 3.11.2 (free-threaded) on linux_x86_64")


def test_two_entries_for_one_machine_are_no_choice() -> None:
    lock = lock_of(pinned("app==1.0", "two==1.0"))
    other = changed(lock.packages[1], version=Version("2.0"))
    found = select(with_packages(lock, *lock.packages, other), here()).differences

    assert [one.what for one in found] == ["two"]
    assert "1.0 and 2.0 are both for this machine" in found[0].now


def test_apt_packages_must_be_there_in_their_version_unless_they_will_be_installed() -> None:
    lock = lock_of(pinned("app==1.0"))
    assert lock.tool is not None
    apt = (AptPin(name="libcudnn9-cuda-12", version="9.1.0.70-1", repository="ubuntu2204"),)
    lock = replace(lock, tool=replace(lock.tool, stacks=(replace(lock.tool.stacks[0], apt=apt),)))

    assert words(lock) == [("apt package libcudnn9-cuda-12", "9.1.0.70-1", "not installed")]
    assert not words(lock, packages={"pip": {}, "apt": {"libcudnn9-cuda-12": "9.1.0.70-1"}})
    assert not words(lock, packages={"pip": {}})
    assert not machine_differences(lock, facts(), BOOK, installed=False)


def test_groups_and_extras_of_another_programs_lock_are_those_that_are_installed_unasked() -> None:
    text = """
lock-version = "1.0"
created-by = "another"
extras = ["gpu"]
dependency-groups = ["dev", "docs"]
default-groups = ["dev"]
"""
    for name, marker in (("a", "'dev' in dependency_groups"), ("b", "'docs' in dependency_groups"), ("c", "'gpu' in extras")):
        text += f'[[packages]]\nname = "{name}"\nmarker = "{marker}"\ndirectory = {{ path = "{name}" }}\n'
    found = select(read(text), here())

    assert [one.package.name for one in found.chosen] == ["a"]
