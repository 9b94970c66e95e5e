"""Laws of the closure over random small indexes: what a resolution satisfies, and what adding or locking does to it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.version import Version

from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.model import Failure, Resolution
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.solve import Solved, solve
from cudnn_resolve.resolution.strategies import attempt
from cudnn_resolve.resolution.universe import Universe
from tests.examples import examples
from tests.fake_source import FakeSource, Published, index_of
from tests.worlds.load import facts, request, world

BOOK = world()
MACHINE = machine_of(facts(), BOOK)
NAMES = ("aa", "bb", "cc", "dd")
VERSIONS = ("1", "2", "3")

operators = st.sampled_from(["", "<2", ">=2", "==1", "==3", "!=2", "<3", ">1"])
requirements = st.builds(lambda name, spec: name + spec, st.sampled_from(NAMES), operators)
releases = st.lists(requirements, max_size=2).map(lambda lines: Published(tuple(lines)))
indexes = st.fixed_dictionaries({name: st.dictionaries(st.sampled_from(VERSIONS), releases, min_size=1) for name in NAMES})
wishes = st.lists(requirements, min_size=1, max_size=3)
Index = Mapping[str, Mapping[str, Published]]
quick = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])


def solved(index: Index, wanted: list[str], locked: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Versions of the random packages in the resolution; None where there is none."""
    found = attempt(
        BOOK, MACHINE, open_request(replace(request(BOOK, "north==2.0", extras=wanted), preferences=locked or {}), source_of(index))
    )
    if isinstance(found, Failure):
        assert not found.exhausted
        return None
    assert isinstance(found, Resolution)
    return {pin.name: str(pin.version) for pin in found.pip if pin.name in NAMES}


def source_of(index: Index) -> FakeSource:
    return index_of(BOOK, index)


def satisfied(requirement: str, chosen: Mapping[str, str]) -> bool:
    wanted = Requirement(requirement)
    return wanted.name in chosen and wanted.specifier.contains(chosen[wanted.name])


def is_consistent(index: Index, wanted: list[str], chosen: Mapping[str, str]) -> bool:
    needs = [*wanted, *(line for name, version in chosen.items() for line in index[name][version].requires)]
    return all(satisfied(line, chosen) for line in needs)


def brute_force(index: Index, wanted: list[str]) -> bool:
    """Whether any choice at all would do."""
    options = [[None, *index[name]] for name in NAMES]
    for choice in itertools.product(*options):
        chosen = {name: version for name, version in zip(NAMES, choice, strict=True) if version is not None}
        if is_consistent(index, wanted, chosen):
            return True
    return False


@quick
@given(indexes, wishes)
def test_a_resolution_satisfies_everything_in_it_and_is_found_where_there_is_one(index: Index, wanted: list[str]) -> None:
    chosen = solved(index, wanted)

    assert (chosen is not None) == brute_force(index, wanted)
    if chosen is not None:
        assert is_consistent(index, wanted, chosen)


@quick
@given(indexes, wishes)
def test_the_wishes_that_a_failure_names_exclude_one_another(index: Index, wanted: list[str]) -> None:
    found = attempt(BOOK, MACHINE, open_request(request(BOOK, "north==2.0", extras=wanted), source_of(index)))
    if isinstance(found, Failure):
        assert found.core <= set(wanted)
        assert not brute_force(index, sorted(found.core))


@quick
@given(indexes, st.lists(wishes, min_size=2, max_size=4))
def test_what_one_search_learns_holds_for_the_next(index: Index, requests: list[list[str]]) -> None:
    every = [line for wanted in requests for line in wanted]
    universe = Universe(Context(BOOK, MACHINE, open_request(request(BOOK, "north==2.0", extras=every), source_of(index))))
    for wanted in requests:
        needs = [need for need in universe.root_needs(()) if need.text in wanted]

        assert isinstance(solve(universe, needs), Solved) == brute_force(index, wanted)


@quick
@given(indexes, wishes)
def test_nothing_is_in_it_that_nobody_requires(index: Index, wanted: list[str]) -> None:
    chosen = solved(index, wanted)
    if chosen is None:
        return
    needed: set[str] = set()
    waiting = [Requirement(line).name for line in wanted]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [Requirement(line).name for line in index[name][chosen[name]].requires]
    assert set(chosen) == needed


@quick
@given(indexes, wishes)
def test_resolving_again_from_its_pins_changes_nothing(index: Index, wanted: list[str]) -> None:
    chosen = solved(index, wanted)
    if chosen is None:
        return
    newer = {name: {**versions, "9": Published()} for name, versions in index.items()}

    assert solved(index, wanted, chosen) == chosen
    assert solved(newer, wanted, chosen) == chosen


@quick
@given(indexes, wishes, requirements)
def test_one_more_requirement_never_makes_it_satisfiable(index: Index, wanted: list[str], more: str) -> None:
    if solved(index, wanted) is None:
        assert solved(index, [*wanted, more]) is None


@quick
@given(indexes, wishes)
def test_the_newest_release_of_a_lone_wish_is_taken(index: Index, wanted: list[str]) -> None:
    name = Requirement(wanted[0]).name
    free = {one: {version: Published() for version in versions} for one, versions in index.items()}
    fitting = [version for version in index[name] if Requirement(wanted[0]).specifier.contains(version)]
    chosen = solved(free, wanted[:1])

    assert chosen == ({name: max(fitting, key=Version)} if fitting else None)
