"""What people look up of a framework: derived from several tables."""

from __future__ import annotations

import pytest
from packaging.specifiers import InvalidSpecifier

from cudnn_resolve.matrix.digest import bounds_for, capabilities_text, digest, pythons_of, pythons_text, traps_for
from cudnn_resolve.requirement.target import version_filter
from cudnn_resolve.version import Capability, CodeTarget
from tests.unit.matrix.toy import WORLD, book


def test_a_framework_newest_first() -> None:
    found = digest(book(), "al")
    assert [(one.build.version, one.build.variant) for one in found.entries] == [
        ("2.0", "cu124"),
        ("2.0", "cu118"),
        ("2.0", "cpu"),
        ("1.0", "cu124"),
    ]
    newest = found.entries[0]
    assert newest.pythons == ("3.0+", "3.11")
    assert (str(newest.driver_minor), str(newest.driver_strict)) == ("525.60.13", "550.54.14")
    assert newest.requires
    assert newest.requires[0] == "numpy>=1.20"
    assert newest.companions == (("alpha-vision", "0.2.1"),)
    elsewhere, cpu = found.entries[1:3]
    assert (elsewhere.pythons, elsewhere.requires) == (("3.11",), ("numpy",))
    assert str(elsewhere.driver_minor) == "450.51.06", "the toolkit's own driver is older than the floor of its major"
    assert cpu.driver_minor is None
    assert cpu.requires == ()


def test_only_what_was_asked_for() -> None:
    assert [one.build.version for one in digest(book(), "alpha", version_filter("1")).entries] == ["1.0"]
    assert digest(book(), "alpha", version_filter("9")).entries == ()
    with pytest.raises(KeyError):
        digest(book(), "gamma")


def test_a_driver_that_the_row_names_counts() -> None:
    text = WORLD["framework/alpha"].replace('finds = "rpath"', 'finds = "rpath"\ndriver = "545.1"')
    entry = digest(book(framework__alpha=text), "alpha").entries[0]
    assert (str(entry.driver_minor), str(entry.driver_strict)) == ("545.1", "550.54.14")


def test_remarks_of_a_version() -> None:
    world = book()
    alpha = world.framework("alpha")
    assert [one.requirement for one in bounds_for(alpha, "1.0")] == ["numpy<2"]
    assert bounds_for(alpha, "2.0") == ()
    assert [one.id for one in traps_for(world, alpha.name, "1.0")] == ["old-alpha"]
    assert traps_for(world, alpha.name, "2.0") == ()


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("2.15", ["2.15", "2.15.0", "2.15.0.post1", "2.15.1", "2.15.0rc1"], ["2.150", "2.16"]),
        ("v2.15.1", ["2.15.1"], ["2.15.0"]),
        ("2", ["2.0", "2.99"], ["20.1"]),
        (">=2.4,<2.6", ["2.5.1"], ["2.6.0"]),
        ("2.15.0.post1", ["2.15.0.post1"], ["2.15.0"]),
        ("==2.6.0", ["2.6"], ["2.6.1"]),
    ],
)
def test_version_filter(text: str, inside: list[str], outside: list[str]) -> None:
    found = version_filter(text)
    assert all(found.contains(one, prereleases=True) for one in inside)
    assert not any(found.contains(one, prereleases=True) for one in outside)


@pytest.mark.parametrize("text", ["latest", ">>1", "1.x", "=1"])
def test_no_version_filter(text: str) -> None:
    with pytest.raises(InvalidSpecifier):
        version_filter(text)


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        ("sm_75", "7.5"),
        ("sm_50 sm_90 sm_75", "5.0-9.0"),
        ("sm_50 sm_90 compute_90", "5.0-9.0+PTX"),
        ("compute_70", "7.0+PTX"),
        ("", ""),
    ],
)
def test_capabilities_in_few_letters(targets: str, text: str) -> None:
    assert capabilities_text(map(CodeTarget.parse, targets.split())) == text
    assert capabilities_text((), Capability(3, 5)) == "3.5+ (docs)"


@pytest.mark.parametrize(
    ("pythons", "text"),
    [
        (["3.9", "3.10", "3.11"], "3.9-3.11"),
        (["3.9", "3.11"], "3.9 3.11"),
        (["3.13", "3.13t"], "3.13"),
        (["3.6+"], "3.6+"),
        (["2.7", "3.5", "3.6"], "2.7 3.5-3.6"),
        ([], ""),
    ],
)
def test_pythons_in_few_letters(pythons: list[str], text: str) -> None:
    assert pythons_text(pythons) == text


def test_pythons_of_tags() -> None:
    tags = [
        "cp39-cp39-manylinux_2_17_x86_64",
        "cp310-cp310-manylinux_2_17_aarch64",
        "cp313-cp313t-manylinux_2_28_x86_64",
        "cp36-abi3-any",
        "sdist",
    ]
    assert pythons_of(tags) == ("3.6+", "3.9", "3.10", "3.13t")
    assert pythons_of(tags, ["aarch64"]) == ("3.6+", "3.10")
    assert pythons_of(["py2.py3-none-any"]) == ("2.0+", "3.0+")
