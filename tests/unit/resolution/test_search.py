"""What a search learns: which needs cannot be met together, so that it ends soon and says what matters."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.model import Conflict, Failure, Resolution
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.solve import Solved, solve
from cudnn_resolve.resolution.strategies import attempt
from cudnn_resolve.resolution.universe import Universe
from tests.fake_source import FakeSource, Published, index_of
from tests.worlds.load import changed, facts, outcome, request, world

BOOK = world()
MANY = 300
Index = Mapping[str, Mapping[str, Published]]


def universe_of(index: Index, *wanted: str) -> Universe:
    source: FakeSource = index_of(BOOK, index)
    return Universe(Context(BOOK, machine_of(facts(), BOOK), open_request(request(BOOK, "north==2.0", extras=wanted), source)))


def solved(index: Index, *wanted: str) -> Solved | Failure:
    universe = universe_of(index, *wanted)
    return solve(universe, [need for need in universe.root_needs(()) if need.text in wanted])


def chosen(found: Solved | Failure) -> dict[str, str]:
    assert isinstance(found, Solved), found
    return {str(key).partition(":")[2]: pin.candidate.version for key, pin in found.pins.items()}


def releases(count: int, line: str) -> dict[str, Published]:
    """So many releases, each with the one requirement; `{}` stands for the number of the release."""
    return {str(number): Published((line.format(number),)) for number in range(1, count + 1)}


@pytest.mark.slow
def test_two_lines_that_exclude_one_another_are_found_among_many_releases() -> None:
    index = {
        "bundle": releases(MANY, "core=={}"),
        "core": {str(number): Published() for number in range(1, MANY + 1)},
        "files": releases(20, "link>={}"),
        "link": {str(number): Published((f"core>={number + 40}",)) for number in range(1, 100)},
        "other": releases(20, "core"),
    }
    found = solved(index, "other", "bundle", "core<30", "files>=2")

    assert isinstance(found, Failure)
    assert found.core == {"core<30", "files>=2"}
    assert found.rounds < 120


def test_releases_with_the_same_needs_are_turned_down_as_one() -> None:
    index = {
        "left": releases(MANY, "core<2"),
        "right": releases(MANY, "core>=2"),
        "core": {"1": Published(), "2": Published()},
    }
    found = solved(index, "left", "right")

    assert isinstance(found, Failure)
    assert found.core == {"left", "right"}
    assert found.rounds <= 4


def test_the_next_search_in_a_universe_knows_what_the_last_one_learnt() -> None:
    index = {
        "left": {str(number): Published((f"core=={number}",)) for number in range(1, 9)},
        "right": {str(number): Published((f"core=={number + 100}",)) for number in range(1, 9)},
        "core": {str(number): Published() for number in range(1, 200)},
    }
    universe = universe_of(index, "left", "right")
    needs = [need for need in universe.root_needs(()) if need.text in {"left", "right"}]
    first, second = solve(universe, needs), solve(universe, needs)

    assert isinstance(first, Failure)
    assert isinstance(second, Failure)
    assert second.core == first.core
    assert second.rounds <= 1 < first.rounds


def test_a_package_is_decided_once_more_where_something_else_is_needed_of_it() -> None:
    index = {
        "aa": {"2": Published(("only-of-two",)), "1": Published()},
        "bb": {"1": Published(("aa<2",))},
        "only-of-two": {"1": Published()},
    }

    assert chosen(solved(index, "aa", "bb")) == {"aa": "1", "bb": "1"}


def test_packages_that_move_one_another_for_ever_are_no_answer() -> None:
    index = {
        "aa": {"1": Published(("bb<1",)), "0": Published(("bb>=1",))},
        "bb": {"1": Published(("aa>=1",)), "0": Published(("aa<1",))},
    }
    found = solved(index, "aa", "bb")

    assert isinstance(found, Failure)
    assert not found.exhausted
    assert found.rounds < 200


def test_a_package_of_which_many_releases_were_turned_down_waits_for_the_others() -> None:
    index = {
        "aa": releases(MANY, "core=={}"),
        "core": {str(number): Published() for number in range(1, MANY + 1)},
        "zz": {"1": Published(("core>=200",))},
    }
    universe = universe_of(index, "aa", "core<100", "zz")
    needs = [need for need in universe.root_needs(()) if need.text != "north==2.0"]
    found = solve(universe, needs)

    assert isinstance(found, Failure)
    assert found.core == {"core<100", "zz"}
    assert len(found.rejections) < 40


def test_an_archive_that_must_not_be_built_is_no_fault_of_packages_that_have_nothing_to_do_with_it() -> None:
    compiled = ("cp311-cp311-manylinux_2_17_x86_64",)
    index = {
        "frame": {"2": Published(("lib>=2",)), "1": Published(("lib",))},
        "lib": {
            "3": Published(tags=("sdist",), uploaded="2025-01-01T10:00:00Z"),
            **{f"2.{number}": Published(("limit>=2",), compiled) for number in range(90)},
            "1": Published((), compiled),
        },
        "limit": {"1": Published(), "2": Published()},
        **{f"other{number}": releases(MANY, "core") for number in range(4)},
        "core": {"1": Published()},
    }
    found = solved(index, *(f"other{number}" for number in range(4)), "frame", "limit<2")

    assert chosen(found)["frame"] == "1"
    assert isinstance(found, Solved)
    assert found.rounds < 60


@pytest.mark.slow
def test_where_any_answer_will_do_few_of_many_releases_are_read() -> None:
    index = {
        "aa": releases(MANY, "core=={}"),
        "core": {str(number): Published() for number in range(1, MANY + 1)},
    }
    read: dict[bool, int] = {}
    for any_answer in (False, True):
        source = index_of(BOOK, index)
        asked = replace(open_request(request(BOOK, "north==2.0", extras=["aa", "core<9"]), source), any_answer=any_answer)
        universe = Universe(Context(BOOK, machine_of(facts(), BOOK), asked))
        found = solve(universe, [need for need in universe.root_needs(()) if need.text != "north==2.0"])

        assert int(chosen(found)["aa"]) <= 8
        read[any_answer] = len(source.read)

    assert read[True] < 80 < read[False]


@pytest.mark.parametrize("last", ["aa", "zz"])
def test_an_archive_is_built_where_a_package_that_is_decided_later_leaves_no_wheel(last: str) -> None:
    compiled = ("cp311-cp311-manylinux_2_17_x86_64",)
    index = {
        "lib": {
            "2.0": Published(("other>=2",), compiled),
            "1.9": Published(tags=("sdist",), uploaded="2025-01-01T10:00:00Z"),
        },
        "other": {"1": Published(), "2": Published()},
        last: {"1": Published(("lib<2",))},
    }

    assert chosen(solved(index, "lib", "other<2", last))["lib"] == "1.9"


@pytest.mark.slow
def test_many_needs_of_one_package_do_not_wait_for_one_another_too_deep() -> None:
    count = 520
    index = {
        "core": {str(number): Published() for number in range(1, count + 3)},
        **{f"user{number}": {"1": Published((f"core!={count + 3 - number}",))} for number in range(1, count + 1)},
    }

    assert chosen(solved(index, *index))["core"] == "2"


def test_a_package_that_nothing_needs_any_more_is_no_reason() -> None:
    index = {
        "aa": {"2": Published(("bb",)), "1": Published()},
        "bb": {"1": Published(("cc",))},
        "cc": {"1": Published(("bb", "num<2"))},
        "num": {"1": Published(), "2": Published()},
        "zz": {"1": Published(("aa<2",))},
    }
    found = solved(index, "aa", "num", "zz")

    assert isinstance(found, Solved)
    assert set(chosen(found)) == {"aa", "num", "zz"}
    assert {reason.parent for pin in found.pins.values() for reason in pin.reasons} == {None, "zz 1"}


def hard(count: int, *requires: str) -> dict[str, dict[str, Published]]:
    """The newer release of `aaa` wants places for more packages than there are, which is seen only by trying; the older none."""
    holes, pigeons = range(1, count), range(1, count + 1)
    return {
        "aaa": {"2": Published((*(f"pigeon{one}" for one in pigeons), *requires)), "1": Published(requires)},
        **{f"pigeon{one}": {str(hole): Published((f"hole{hole}=={one}",)) for hole in holes} for one in pigeons},
        **{f"hole{hole}": {str(one): Published() for one in pigeons} for hole in holes},
    }


@pytest.mark.slow
def test_a_part_of_a_conflict_that_is_only_given_up_is_no_conflict() -> None:
    source = index_of(BOOK, {**hard(8, "k>=2"), "k": {"1": Published(), "2": Published()}})
    found = outcome(BOOK, facts(), request(BOOK, "north==2.0", extras=["aaa", "k<2"]), source)

    assert isinstance(found, Conflict)
    assert found.message == "aaa and k<2 cannot share one environment"


@pytest.mark.slow
def test_offline_a_search_of_what_is_known_whole_has_all_its_steps() -> None:
    header = 'origin = "harvested"\nscript = "scripts/harvest.py"\nread = 2026-11-21\n'
    tables = {}
    for name, versions in hard(7).items():
        numbered = list(enumerate(versions.items(), 1))
        metadata = ", ".join(f"{{id = {number}, requires = {json.dumps(list(one.requires))}}}" for number, (_, one) in numbered)
        rows = ", ".join(f'{{version = "{version}", tags = ["py3-none-any"], metadata = {number}}}' for number, (version, _) in numbered)
        tables[f"wheel/{name}"] = f'{header}package = "{name}"\nmetadata = [{metadata}]\nrelease = [{rows}]\n'
    book = changed(tables)
    source = index_of(book)
    source.offline = True
    found = attempt(book, machine_of(facts(), book), open_request(request(book, "north==2.0", extras=["aaa"]), source))

    assert isinstance(found, Resolution)


def test_an_archive_that_moves_away_what_left_no_wheel_is_not_built() -> None:
    compiled = ("cp311-cp311-manylinux_2_17_x86_64",)
    index = {
        "aa": {"4": Published(("cc>1",)), "3": Published()},
        "bb": {"4": Published(("aa>=3",)), "1": Published()},
        "cc": {"2": Published(("aa<4",), ("sdist",), uploaded="2025-01-01T10:00:00Z"), "1": Published(("bb==1",), compiled)},
    }

    assert isinstance(solved(index, "cc<3", "bb>=4"), Failure)
