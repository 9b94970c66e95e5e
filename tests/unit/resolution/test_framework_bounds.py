"""Bounds of the matrix: they hold for a package whoever brings it, and ask for none."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.resolution.chain import chain
from cudnn_resolve.resolution.model import Conflict, Resolution
from tests.fake_source import Published, index_of
from tests.worlds.load import changed, facts, outcome, pins, request, texts

BOUND = """
[[bound]]
versions = "<3"
requirement = "lib<2"
reason = "made for lib 1"
source = "made"
"""
BOOK = changed({"framework/north": texts()["framework/north"] + BOUND})
NEW = {"driver": {"version": "580.65.06"}}
LIB = {"1.0": Published(), "2.0": Published()}


def answer(*extras: str, target: str = "north==2.0", **packages: dict[str, Published]) -> Resolution | Conflict:
    source = index_of(BOOK, {"lib": LIB, **packages})
    return outcome(BOOK, facts(**NEW), request(BOOK, target, extras=extras), source)


def app(*requires: str) -> dict[str, Any]:
    return {"app": {"1.0": Published(requires)}}


def test_a_bound_holds_for_what_comes_in_through_another_package() -> None:
    assert pins(answer("app", **app("lib")))["lib"] == "1.0"
    assert pins(answer("app", target="north==3.0", **app("lib")))["lib"] == "2.0"


def test_a_bound_holds_for_what_is_decided_before_the_framework() -> None:
    found = answer("app==1.0", target="north", **app("lib==2.0"))

    assert pins(found) | {"north": "3.0", "lib": "2.0"} == pins(found)


def test_a_bound_holds_for_a_framework_that_only_comes_in_through_another_package() -> None:
    found = answer("app", target="south==2.0", **app("lib", "north<3"))

    assert pins(found)["lib"] == "1.0"


def test_a_release_that_asks_for_more_than_the_bound_gives_way() -> None:
    found = answer("app", app={"1.0": Published(("lib>=1",)), "1.1": Published(("lib>=2",))})

    assert pins(found) | {"app": "1.0", "lib": "1.0"} == pins(found)


def test_where_no_release_is_inside_the_bound_it_is_the_reason() -> None:
    found = answer("app", **app("lib>=2"))

    assert isinstance(found, Conflict)
    assert "made for lib 1" in " ".join(cause.because for cause in found.causes)


def test_a_bound_asks_for_nothing() -> None:
    assert "lib" not in pins(answer())


def test_why_names_the_bound() -> None:
    found = answer("app", **app("lib"))
    assert isinstance(found, Resolution)

    reasons = [link.because for link in chain(found, "lib", BOOK).links]
    assert "north 2.0: made for lib 1" in reasons
    assert any("lib<2" in reason.text for pin in found.pip if pin.name == "lib" for reason in pin.reasons)


def test_what_a_package_beside_a_framework_has_is_what_it_requires() -> None:
    own = BOUND.replace('versions = "<3"', 'package = "app"\nversions = ">=1.1"')
    book = changed({"framework/north": texts()["framework/north"] + own})
    source = index_of(book, {"lib": LIB, "app": {"1.0": Published(("lib",)), "1.1": Published()}})

    found = pins(outcome(book, facts(**NEW), request(book, "north==2.0", extras=("app",)), source))
    other = pins(outcome(book, facts(**NEW), request(book, "north==2.0", extras=("app==1.0",)), source))

    assert found | {"app": "1.1", "lib": "1.0"} == found
    assert other["lib"] == "2.0"
