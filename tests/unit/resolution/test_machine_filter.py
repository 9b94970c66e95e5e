"""What the machine alone forbids is known without a search."""

from __future__ import annotations

from typing import Any

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.family import solve_families
from cudnn_resolve.resolution.key import PYTHON, FrameworkKey
from cudnn_resolve.resolution.model import Failure
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.solve import ROUNDS, Solved
from cudnn_resolve.resolution.universe import Universe
from tests.fake_source import Published, index_of
from tests.worlds.load import changed, machine, request, texts, world

BOOK = world()
ELSEWHERE = Published(tags=("cp39-cp39-manylinux_2_17_x86_64",))


def found(target: str, extras: tuple[str, ...] = (), packages: Any = None, book: Book = BOOK, **parts: Any) -> Solved | Failure:
    asked = open_request(request(book, target, extras=extras), index_of(book, packages) if packages is not None else None)
    universe = Universe(Context(book, machine(book, **parts), asked))
    return solve_families(universe, universe.root_needs(()), ROUNDS)


def test_a_framework_that_no_wheel_brings_here() -> None:
    answer = found("north", python={"version": "3.5.9"})

    assert isinstance(answer, Failure)
    assert answer.rounds == 0
    assert {rejection.about for rejection in answer.rejections} == {PYTHON}


def test_a_wish_that_no_release_meets_here() -> None:
    answer = found("north", ("lib",), {"lib": {"1.0": ELSEWHERE, "2.0": ELSEWHERE}})

    assert isinstance(answer, Failure)
    assert answer.rounds == 0
    assert {rejection.candidate.version for rejection in answer.rejections} == {"1.0", "2.0"}


def test_a_build_whose_requirements_have_no_file_here_is_passed_over() -> None:
    table = texts()["wheel/north"].replace('{id = 3, requires = ["numpy>=1.26"', '{id = 3, requires = ["lib", "numpy>=1.26"')
    book = changed({"wheel/north": table})
    new = {"version": "580.65.06"}

    there = found("north", packages={"lib": {"1.0": Published()}}, book=book, driver=new)
    assert isinstance(there, Solved)
    assert there.pins[FrameworkKey("north")].candidate.version == "3.0"
    elsewhere = found("north", packages={"lib": {"1.0": ELSEWHERE}}, book=book, driver=new)
    assert isinstance(elsewhere, Solved)
    assert elsewhere.pins[FrameworkKey("north")].candidate.version == "2.0"
    assert elsewhere.rounds < 20
    only = found("north==3.0", packages={"lib": {"1.0": ELSEWHERE}}, book=book, driver=new)
    assert isinstance(only, Failure)
    assert only.rounds == 0
    assert [str(rejection.candidate.key) for rejection in only.rejections] == ["pip:lib"]
