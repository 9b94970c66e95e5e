"""What must hold whatever is chosen: the user's words."""

from __future__ import annotations

import pytest
from packaging.version import Version

from cudnn_resolve.resolution.candidate import PipCandidate
from cudnn_resolve.resolution.key import PipKey
from cudnn_resolve.resolution.release import Details, Release
from cudnn_resolve.resolution.tag import Fit
from tests.worlds.load import universe, world

BOOK = world()


def test_needs_at_the_root() -> None:
    needs = universe(BOOK, "north==2.0", "south", options={"extras": ["numpy<2", "Some_Thing[b,A]>=1"]}).root_needs(())

    assert [str(need.key) for need in needs] == ["framework:north", "framework:south", "pip:numpy", "pip:some-thing[a,b]"]
    assert needs[0].because == "asked for"
    assert "requirements.txt:1" in needs[2].because


@pytest.mark.parametrize(
    ("spec", "version", "accepted"),
    [("<2", "1.26.4", True), ("<2", "2.0", False), (">=1", "2.0rc1", False), (">=2.0rc1", "2.0rc1", True), ("", "1", True)],
)
def test_a_further_requirement_tests_versions(spec: str, version: str, *, accepted: bool) -> None:
    details = Details(Fit(python=True, arch=True, glibc=(0, 0)), (), ())
    release = Release(package="numpy", version=Version(version), text=version, load_details=lambda: details)
    (_, need) = universe(BOOK, "north", options={"extras": [f"numpy{spec}"]}).root_needs(())

    assert bool(need.test(PipCandidate(key=PipKey("numpy"), version=version, release=release))) == accepted


def test_a_requirement_that_does_not_apply_is_no_need() -> None:
    needs = universe(BOOK, "north", options={"extras": ["numpy<2; python_version < '3'", "scipy"]}).root_needs(())

    assert [str(need.key) for need in needs] == ["framework:north", "pip:scipy"]
