"""Ways out of a conflict."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution import relaxation, strategies
from cudnn_resolve.resolution.model import Conflict, Failure, Resolution
from cudnn_resolve.resolution.open_request import Budget, open_request
from cudnn_resolve.resolution.relaxation_driver import first_that_works
from cudnn_resolve.resolution.resolve import resolve
from cudnn_resolve.version import DriverVersion
from tests.fake_source import Published, index_of
from tests.worlds.load import facts, request, world

BOOK = world()

DRIVERS = [DriverVersion(f"{400 + number}.0") for number in range(30)]


@pytest.mark.parametrize("first", range(30))
@pytest.mark.parametrize("last", [29, 25])
def test_the_first_driver_that_works_is_found_in_few_searches(first: int, last: int) -> None:
    asked: list[DriverVersion] = []

    def tried(driver: DriverVersion) -> Any:
        asked.append(driver)
        return str(driver) if first <= driver.major - 400 <= last else None

    driver, found = first_that_works(DRIVERS, tried)
    if first <= min(last, 22):
        assert (driver, str(found)) == (DRIVERS[first], str(DRIVERS[first]))
    assert len(asked) <= 12
    assert len(set(asked)) == len(asked)


def test_there_may_be_none() -> None:
    assert first_that_works(DRIVERS, lambda _: None) == (None, None)
    assert first_that_works([], lambda _: None) == (None, None)


def ways_out(*targets: str, extras: tuple[str, ...] = (), python: str = "3.10.9") -> list[str]:
    source = index_of(BOOK, {"lib": {"1.0": Published(("numpy<2",))}})
    found = resolve(BOOK, machine_of(facts(python={"version": python}), BOOK), request(BOOK, *targets, extras=extras), source)
    assert isinstance(found, Conflict)
    return [one.change for one in found.relaxations]


@pytest.mark.parametrize("text", ["north====2.0", "north===>=2", "north===soon"])
def test_what_is_no_version_has_no_neighbours(text: str) -> None:
    assert not [way for way in ways_out(text) if "the nearest" in way]


def commands(*targets: str, context: tuple[tuple[str, str], ...] = (), verb: str = "plan") -> list[str]:
    asked = replace(request(BOOK, *targets), context=context, verb=verb)
    found = resolve(BOOK, machine_of(facts(python={"version": "3.13.1"}), BOOK), asked, index_of(BOOK, {}))
    assert isinstance(found, Conflict)
    return [one.command for one in found.relaxations]


def test_another_python_is_a_new_environment_where_the_machine_is_this_one() -> None:
    assert commands("north==2.0") == ["cudnn-resolve apply north==2.0 --env DIR"]
    assert commands("north==2.0", context=(("--env", "mine"), ("--pre", ""))) == ["cudnn-resolve apply north==2.0 --env mine --pre"]
    assert commands("north==2.0", context=(("--driver", "580.65.06"),)) == [
        "cudnn-resolve plan -f north==2.0 --python-version 3.11 --driver 580.65.06"
    ]
    assert commands("north==2.0", context=(("--machine", "colab-t4"),)) == [
        "cudnn-resolve plan -f north==2.0 --python-version 3.11 --machine colab-t4"
    ]
    assert commands("north==2.0", verb="lock") == ["cudnn-resolve lock -f north==2.0 --python-version 3.11"]


@pytest.mark.parametrize(("steps", "ways"), [(0, 0), (20, 1), (4000, 2)])
def test_all_ways_out_share_their_steps(monkeypatch: pytest.MonkeyPatch, steps: int, ways: int) -> None:
    monkeypatch.setattr(relaxation, "ALL_ROUNDS", steps)

    assert len(ways_out("south==2.0", extras=("numpy>=2", "lib"))) == ways


def test_other_pythons_share_steps_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ways_out("north==2.0", python="3.13.1") == ["Python 3.11 instead of 3.13.1, in a separate environment"]
    monkeypatch.setattr(relaxation, "PYTHON_ROUNDS", 0)
    assert ways_out("north==2.0", python="3.13.1") == []
    monkeypatch.setattr(relaxation, "ALL_ROUNDS", 0)
    monkeypatch.setattr(relaxation, "PYTHON_ROUNDS", 2000)
    assert ways_out("north==2.0", python="3.13.1") == ["Python 3.11 instead of 3.13.1, in a separate environment"]


def test_the_search_offline_of_what_the_cache_knows_leaves_steps_for_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    source = index_of(BOOK, {"lib": {"1.0": Published(("numpy<2",))}})
    source.offline = True
    asked = open_request(request(BOOK, "south==2.0", extras=("lib",)), source)
    here = machine_of(facts(python={"version": "3.10.9"}), BOOK)
    budget = Budget(1000)

    assert isinstance(strategies.attempt(BOOK, here, replace(asked, budget=budget)), Resolution)
    used = 1000 - budget.left
    assert 0 < used <= strategies.CACHED_ROUNDS_OF_RELAXATION
    assert isinstance(strategies.attempt(BOOK, here, replace(asked, budget=Budget(used - 1))), Failure)
    monkeypatch.setattr(strategies, "CACHED_ROUNDS_OF_RELAXATION", 1)
    exhausted = Budget(1000)
    strategies.attempt(BOOK, here, replace(asked, budget=exhausted))
    assert exhausted.left >= 999 - used
