"""The fewest hosts that stand in the way of one lock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_resolve.facts.model import Facts, Python
from cudnn_resolve.fleet.joint import joint, left_out
from cudnn_resolve.fleet.model import FleetClass
from tests.examples import examples
from tests.fleet_maker import classes, told
from tests.program import shipped


def made(name: str, count: int, python: str = "3.11") -> FleetClass:
    hosts = tuple(f"{name}{number}" for number in range(count))
    return FleetClass(name=name, hosts=hosts, about={}, facts=Facts(python=Python(version=python)))


@settings(max_examples=examples(60))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.sets(st.frozensets(st.integers(0, 5), min_size=1, max_size=3), max_size=4))
def test_no_other_choice_leaves_out_fewer_hosts(counts: list[int], clashes: set[frozenset[int]]) -> None:
    fleet = [made(chr(97 + number), count) for number, count in enumerate(counts)]
    forbidden = [{chr(97 + number) for number in one} for one in clashes]

    def fits(some: Sequence[FleetClass]) -> bool:
        names = {one.name for one in some}
        return not any(one <= names for one in forbidden)

    dropped, is_fewest = left_out(fleet, fits, lambda: True)

    kept = [one for one in fleet if one not in dropped]
    choices = (some for size in range(len(fleet) + 1) for some in itertools.combinations(fleet, size) if fits(some))
    assert is_fewest
    assert not kept or fits(kept)
    assert sum(len(one.hosts) for one in kept) == max(sum(len(one.hosts) for one in some) for some in choices)


def test_a_bound_gives_a_choice_that_is_not_called_the_fewest() -> None:
    fleet = [made("a", 1), made("b", 2), made("c", 3)]
    dropped, is_fewest = left_out(fleet, lambda some: len(some) < 2, lambda: False)
    assert ([one.name for one in dropped], is_fewest) == (["a", "b"], False)


def test_a_lock_is_for_one_python() -> None:
    fleet = [made("a", 3, "3.10"), made("b", 2, "3.11"), made("c", 2, "3.11")]
    dropped, _ = left_out(fleet, lambda some: len({one.facts.python.version for one in some}) < 2, lambda: True)
    assert [one.name for one in dropped] == ["a"]


@pytest.mark.parametrize("order", [1, -1])
def test_all_as_one_machine(order: int) -> None:
    hosts = {"a": told("a", driver="535.104.05"), "b": told("b", "T4", glibc="2.28", python="3.11.2"), "c": told("c", "T4", None)}
    (found,) = joint(classes(shipped(), dict(list(hosts.items())[::order])), shipped())
    assert found.driver is not None
    assert (found.driver.version, found.platform.glibc, found.python.version) == ("535.104.05", "2.28", "3.11")  # type: ignore[union-attr]
    assert {one.name for one in found.gpus} == {"NVIDIA A100-SXM4-80GB", "Tesla T4"}  # type: ignore[union-attr]


def test_each_architecture_is_a_machine() -> None:
    fleet = classes(shipped(), {"a": told("a"), "b": told("b", arch="aarch64")})
    assert [one.platform.arch for one in joint(fleet, shipped())] == ["x86_64", "aarch64"]
