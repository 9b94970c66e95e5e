"""How pins of NVIDIA's libraries are read, and which releases of a package come first."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cudnn_resolve.matrix.row import Component
from cudnn_resolve.resolution import assemble, package
from cudnn_resolve.resolution import pin_override as pin
from cudnn_resolve.resolution.candidate import Need
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.key import PipKey, SlotKey, pip_key
from cudnn_resolve.resolution.model import Reason
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.pin_override import abi_range
from cudnn_resolve.resolution.universe import Universe
from tests.fake_source import FakeSource, Published
from tests.worlds.load import gpu, machine, request, universe, world

BOOK = world()


def component(name: str) -> Component:
    found = BOOK.component(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "spec", "words", "inside", "outside"),
    [
        ("nvidia-cudnn-cu12", "==9.1.0.70", ">=9.1,<10", ["9.1.0.70", "9.1.0.5", "9.3.0.75"], ["9.0.0.312", "8.9.7.29", "10.0"]),
        ("nvidia-cublas-cu12", "==12.4.5.8", ">=12.4.5.8,<13", ["12.4.5.8", "12.8.3.14"], ["12.4.5.7", "12.2.1.16", "13.0"]),
        ("nvidia-nccl-cu12", "==2.27.5", ">=2,<3", ["2.19.3", "2.27.5", "2.99"], ["1.9", "3.0"]),
        ("nvidia-cusparselt-cu12", "==0.6.2", "==0.6.2", ["0.6.2"], ["0.6.3", "0.7.1"]),
        ("nvidia-cudnn-cu12", ">=9.3,<10", "<10,>=9.3", ["9.3.0.75", "9.9"], ["9.1.0.70", "10.0"]),
        ("nvidia-cudnn-cu12", "==9.*", "==9.*", ["9.0.0.312", "9.9"], ["8.9"]),
        ("nvidia-cudnn-cu12", "==9.1.0.70,!=9.8.0.87", ">=9.1,<10,!=9.8.0.87", ["9.3.0.75"], ["9.8.0.87"]),
        ("nvidia-cudnn-cu12", "", "", ["8.9.7.29", "9.1.0.70"], []),
    ],
)
def test_a_pin_is_read_as_its_abi_range(name: str, spec: str, words: str, inside: list[str], outside: list[str]) -> None:
    text, test = abi_range(component(name), SpecifierSet(spec))

    assert text == words
    assert all(test(Version(one)) for one in inside)
    assert not any(test(Version(one)) for one in outside)


def need_of(here: Universe, line: str, by: str = "north", **more: Any) -> tuple[str, set[str]]:
    """The words of the need behind a Requires-Dist line of a package, and the versions that it accepts."""
    release = next(iter(here.context.releases.of(by)))
    requirement = Requirement(line)
    need = pin.requirement_need(here.context, requirement, by=release, extra=None, who=by, **more)
    candidates = here.unordered(need.key)
    return need.text, {one.version for one in candidates if need.test(one)}


def test_a_library_wheel_may_leave_its_pin() -> None:
    assert need_of(universe(BOOK, "north"), "nvidia-cudnn-cu12==9.1.0.70") == (
        "nvidia-cudnn-cu12>=9.1,<10",
        {"9.1.0.70", "9.3.0.75", "9.8.0.87"},
    )


def test_pins_hold_where_the_user_wants_them() -> None:
    strict = universe(BOOK, "north", options={"strict_pins": True})

    assert need_of(strict, "nvidia-cudnn-cu12==9.1.0.70") == ("nvidia-cudnn-cu12==9.1.0.70", {"9.1.0.70"})
    assert need_of(strict, "nvidia-cudnn-cu12==9.1.0.70", binding=False)[1] == {"9.1.0.70", "9.3.0.75", "9.8.0.87"}


def test_what_the_matrix_does_not_know_keeps_its_pins() -> None:
    assert need_of(universe(BOOK, "north"), "numpy==1.26.4") == ("numpy==1.26.4", {"1.26.4"})


def test_known_bad_releases_are_not_accepted() -> None:
    assert need_of(universe(BOOK, "north"), "nvidia-cudnn-cu13==9.12.0.46")[1] == {"9.13.0.50"}


@pytest.mark.parametrize(("capability", "avoided"), [("9.0", True), ("8.0", False)])
def test_an_advisory_may_be_about_some_gpus_only(capability: str, *, avoided: bool) -> None:
    here = universe(BOOK, "north", gpus=gpu(capability))

    assert here.context.is_avoided("nvidia-cudnn-cu12", Version("9.3.0.75")) == avoided


def test_one_avoided_gpu_of_several_is_enough() -> None:
    assert universe(BOOK, "north", gpus=gpu("8.0", "9.0")).context.is_avoided("nvidia-cudnn-cu12", Version("9.3.0.75"))


def arranged(here: Universe, name: str, *lines: str) -> list[str]:
    release = next(iter(here.context.releases.of("north")))
    needs = [pin.requirement_need(here.context, Requirement(line), by=release, extra=None, who="north") for line in lines]
    return [one.version for one in here.candidates(PipKey(name), needs)]


def test_a_plain_package_comes_newest_first() -> None:
    assert arranged(universe(BOOK, "north"), "numpy", "numpy>=1") == ["2.1.0", "1.26.4", "1.24.4"]


def test_what_is_installed_comes_before_the_newest() -> None:
    held = {"pip": {"numpy": "1.26.4"}, "apt": {}}

    assert arranged(universe(BOOK, "north", packages=held), "numpy", "numpy>=1")[0] == "1.26.4"
    assert arranged(universe(BOOK, "north", packages=held, options={"prefer": "newest"}), "numpy", "numpy>=1")[0] == "2.1.0"


def test_a_library_wheel_follows_the_pins_then_goes_as_little_beyond_as_it_must() -> None:
    found = arranged(universe(BOOK, "north"), "nvidia-cudnn-cu12", "nvidia-cudnn-cu12==9.1.0.70")

    assert found[0] == "9.1.0.70"
    assert found.index("9.3.0.75") < found.index("9.8.0.87")


def test_a_package_that_nobody_knows_is_left_to_the_installer() -> None:
    found = list(universe(BOOK, "north").unordered(PipKey("left-pad")))

    assert [(one.release, one.version) for one in found] == [(None, "unpinned")]


def test_an_installed_package_that_nobody_knows_is_that_version() -> None:
    held = {"pip": {"left-pad": "1.3"}, "apt": {}}

    assert [one.version for one in universe(BOOK, "north", packages=held).unordered(PipKey("left-pad"))] == ["1.3"]


@pytest.mark.parametrize(
    ("name", "extras", "full"), [("NumPy", (), "pip:numpy"), ("a_b", ("Z", "x"), "pip:a-b[x,z]"), ("a", ("x", "X"), "pip:a[x]")]
)
def test_names_of_the_universe(name: str, extras: tuple[str, ...], full: str) -> None:
    assert str(pip_key(name, extras)) == full


def needs_of(version: str, **parts: Any) -> dict[str, str]:
    """What the files of `north` of a version need of the machine."""
    here = universe(BOOK, "north", **parts)
    release = next(one for one in here.context.releases.of("north") if one.text == version)
    return {str(need.key): need.text for need in package.file_needs(here.context, release, "north") if not fits(here, need)}


def fits(here: Universe, need: Need) -> bool:
    found = here.unordered(need.key) if not isinstance(need.key, SlotKey) else ()
    return all(map(need.test, found))


def test_files_for_another_python_another_c_library_another_architecture() -> None:
    plain = {"system": "linux", "arch": "x86_64", "glibc": "2.35"}

    assert needs_of("2.0") == {}
    assert needs_of("2.0", python={"version": "3.12"}) == {"python": "Python 3.10, 3.11"}
    assert needs_of("3.0", platform={**plain, "glibc": "2.17"}) == {"glibc": "glibc >= 2.28"}
    assert needs_of("2.0", platform={**plain, "glibc": "2.17"}) == {}
    assert "arch" in needs_of("2.0", platform={**plain, "arch": "aarch64"})


def test_a_release_for_another_system_is_not_blamed_on_the_architecture() -> None:
    tags = ("py3-none-win_amd64",)
    source = FakeSource({"lib": {"1.0": Published((), tags)}})
    here = Universe(Context(BOOK, machine(BOOK), open_request(request(BOOK, "north"), source)))
    needs = {str(need.key): need for need in package.file_needs(here.context, next(iter(here.context.releases.of("lib"))), "lib 1.0")}

    assert (needs["arch"].text, needs["arch"].because) == ("another system", "lib 1.0 has no wheel for Linux")


def test_unknown_facts_exclude_no_file() -> None:
    assert needs_of("3.0", python={}, platform={"system": "linux"}) == {}


def test_an_installed_package_that_nobody_knows_is_left_to_the_installer_where_a_requirement_excludes_it() -> None:
    here = universe(BOOK, "north", packages={"pip": {"left-pad": "1.3"}, "apt": {}})

    def kept(requirement: str) -> str | None:
        return assemble.kept_version(here, "left-pad", [Reason(text=requirement, because="x", parent=None)])

    assert kept("left-pad>=1") == kept("left-pad") == "1.3"
    assert kept("left-pad==2.0") is None
