"""Source archives: of compiled code only where there is no wheel, and never from before the target's Python."""

from __future__ import annotations

import pytest

from cudnn_resolve.resolution import release_catalog
from cudnn_resolve.resolution.model import Conflict, Resolution
from tests.fake_source import Published, index_of
from tests.worlds.load import changed, facts, outcome, pins, request, world

BOOK = world()
COMPILED = ("cp311-cp311-manylinux_2_17_x86_64",)
OLD, NEW = "2015-01-01T10:00:00Z", "2025-01-01T10:00:00Z"


def answer(*extras: str, **packages: dict[str, Published]) -> Resolution | Conflict:
    return outcome(BOOK, facts(), request(BOOK, "north==2.0", extras=extras), index_of(BOOK, packages))


def archive(uploaded: str | None, *requires: str) -> Published:
    return Published(requires, ("sdist",), uploaded=uploaded)


def test_compiled_code_from_before_the_python_is_no_answer() -> None:
    found = answer("lib<2", lib={"1.0": archive(OLD), "2.0": Published(tags=COMPILED)})

    assert isinstance(found, Conflict)
    assert any("source archive has compiled code" in cause.because for cause in found.causes)


def test_pure_python_is_built_however_old_it_is() -> None:
    assert pins(answer("lib", lib={"1.0": archive(OLD)}))["lib"] == "1.0"
    assert pins(answer("lib<2", lib={"1.0": archive(OLD), "2.0": Published()}))["lib"] == "1.0"


@pytest.mark.parametrize("uploaded", [NEW, None])
def test_compiled_code_is_built_where_there_is_no_wheel(uploaded: str | None) -> None:
    lib = {"2.0": Published(tags=COMPILED), "2.1": archive(uploaded)}

    assert pins(answer("lib>=2.1", lib=lib))["lib"] == "2.1"
    assert pins(answer("lib", lib=lib))["lib"] == "2.0"


def test_compiled_code_is_not_built_because_its_wheel_asks_for_too_much() -> None:
    lib = {"1.9": archive(NEW), "2.0": Published(("other>=2",), COMPILED)}
    other = {"1.0": Published(), "2.0": Published()}

    assert isinstance(answer("lib", "other<2", lib=lib, other=other), Conflict)
    assert pins(answer("lib<2", "other<2", lib=lib, other=other))["lib"] == "1.9"


def test_a_wheel_that_the_machine_cannot_use_leaves_the_archive() -> None:
    lib = {"1.9": archive(NEW), "2.0": Published(tags=("cp311-cp311-manylinux_2_99_x86_64", "sdist"), uploaded=NEW)}

    assert pins(answer("lib", lib=lib))["lib"] == "2.0"


def test_the_tables_know_the_age_of_an_archive_too() -> None:
    table = """
origin = "harvested"
script = "scripts/harvest.py"
read = 2026-11-21
package = "lib"
release = [
  {version = "0.9", date = 2025-01-01, tags = ["sdist"]},
  {version = "1.0", date = 2015-01-01, tags = ["sdist"]},
  {version = "2.0", date = 2025-01-01, tags = ["cp311-cp311-manylinux_2_17_x86_64"]},
]
"""
    book = changed({"wheel/lib": table})
    found = outcome(book, facts(), request(book, "north==2.0", extras=["lib<2"]))

    assert pins(found)["lib"] == "0.9"


@pytest.mark.parametrize(
    ("uploaded", "python", "older"),
    [
        ("2023-10-01T23:59:59Z", (3, 12), True),
        ("2023-10-02T00:00:00Z", (3, 12), False),
        ("2023-10-01", (3, 11), False),
        ("2024-01-01", (3, 99), True),
        ("1999-01-01", (2, 7), False),
        (None, (3, 12), False),
        ("1999-01-01", None, False),
    ],
)
def test_what_is_older_than_a_python(uploaded: str | None, python: tuple[int, int] | None, *, older: bool) -> None:
    assert release_catalog.is_older(uploaded, python) == older
