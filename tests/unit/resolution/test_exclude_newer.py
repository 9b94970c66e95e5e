"""A limit on the time of upload binds what comes from the tables, too."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Conflict, Resolution
from cudnn_resolve.resolution.resolve import resolve
from tests.fake_source import FakeSource
from tests.worlds.load import changed, facts, request, texts

DATES = {"1.0": "2020-01-01", "2.0": "2021-01-01", "3.0": "2022-01-01"}
NORTH = re.sub(r'version = "([\d.]+)"', lambda found: f"{found[0]}, date = {DATES[found[1]]}", texts()["wheel/north"])
BOOK = changed({"wheel/north": NORTH})


class NothingKept(FakeSource):
    """A cache that knows nothing."""

    def listing(self, name: str, place: Any = None) -> None:
        del name, place


def asked(limit: str, target: str = "north", **parts: Any) -> Resolution | Conflict:
    source = NothingKept({})
    source.offline, source.exclude_newer = True, limit
    here = machine_of(facts(python={"version": "3.10.9"}, **parts), BOOK)
    return resolve(BOOK, here, request(BOOK, target), source)


@pytest.mark.parametrize(("limit", "version"), [("2021-01-02T00:00:00.000000Z", "2.0"), ("2021-01-01T12:00:00.000000Z", "1.0")])
def test_a_build_of_the_tables_is_as_old_as_the_limit_asks(limit: str, version: str) -> None:
    found = asked(limit)

    assert isinstance(found, Resolution)
    assert found.builds[0].version == version


@pytest.mark.parametrize("target", ["north", "north==2.0+cu118"])
def test_where_every_build_is_newer_the_limit_is_named(target: str) -> None:
    found = asked("1999-01-01T00:00:00.000000Z", target)

    assert isinstance(found, Conflict)
    assert found.message == f"{target} cannot be satisfied with --exclude-newer"
    assert found.relaxations[0].change == "without --exclude-newer"


def test_a_build_of_which_nobody_knows_the_day_does_not_count() -> None:
    found = asked("2100-01-01T00:00:00.000000Z", "south")

    assert isinstance(found, Conflict)
    assert found.message == "south cannot be satisfied with --exclude-newer"
    assert any("has no known upload date" in cause.because for cause in found.causes)


def test_what_is_installed_stays_however_new_it_is() -> None:
    found = asked("1999-01-01T00:00:00.000000Z", packages={"pip": {"north": "2.0+cu118", "numpy": "1.26.4"}, "apt": {}})

    assert isinstance(found, Resolution)
    assert found.builds[0].wheel_version == "2.0+cu118"
