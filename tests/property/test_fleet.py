"""Hosts of one class get one plan."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Resolution
from cudnn_resolve.resolution.resolve import resolve
from tests.examples import examples
from tests.fleet_maker import CARDS, classes, told
from tests.program import shipped
from tests.worlds.load import request

DRIVERS = ("470.82.01", "525.60.13", "525.147.05", "535.54.03", "535.183.01", "550.40.07", "550.54.14", "550.54.15", "550.127.05", "570.26")


def planned(facts: dict[str, Any]) -> object:
    """What a plan of torch 2.4 would hold."""
    book = shipped()
    found = resolve(book, machine_of(from_mapping(facts), book), request(book, "torch==2.4.1"))
    return [(one.name, one.version) for one in found.pip] if isinstance(found, Resolution) else "none"


@settings(max_examples=examples(12))
@given(st.sampled_from(sorted(CARDS)), st.sampled_from(DRIVERS), st.sampled_from(DRIVERS))
def test_hosts_of_one_class_have_one_plan(card: str, one: str, other: str) -> None:
    hosts = {"a": told("a", card, one), "b": told("b", card, other)}
    if len(classes(shipped(), hosts, whole=True)) == 1:
        assert planned(hosts["a"]) == planned(hosts["b"])
