"""Markers that cannot be judged: with the oldest packaging that is allowed they raise what newer ones answer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from cudnn_resolve.resolution.marker import applies, holds, marker_environment
from cudnn_resolve.resolution.prefetch import likely_packages
from tests.worlds.load import machine, request, world

BOOK = world()
UNJUDGED = ('platform_release > "5"', 'os_name >= "1.0"', 'platform_version >= "#1 SMP"', 'extra >= "3"')


@pytest.mark.parametrize("marker", UNJUDGED)
def test_a_marker_that_compares_no_versions_holds_nowhere(marker: str) -> None:
    here = machine(BOOK)
    target = replace(request(BOOK, "north").targets[0], marker=marker)

    assert not applies(Requirement(f"numpy; {marker}"), marker_environment(here), ("cuda",))
    assert not holds(target, marker_environment(here))


def test_what_such_a_marker_is_of_is_not_asked_for_ahead() -> None:
    asked = request(BOOK, "north", extras=[*(f"unjudged-{number}; {marker}" for number, marker in enumerate(UNJUDGED)), "wanted"])

    likely = set(likely_packages(BOOK, machine(BOOK), asked))

    assert "wanted" in likely
    assert not any(name.startswith("unjudged") for name in likely)
