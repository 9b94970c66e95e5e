"""What hosts were, and what they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.fleet.classes import LISTS, UNTOLD, in_order, leaves
from cudnn_resolve.fleet.model import Change, FleetClass, Spread


class Host:
    """The facts of one host of a class: those of the class, but for its own."""

    def __init__(self, common: Mapping[str, str]) -> None:
        self.common = common
        self.own: dict[str, str] = {}

    def get(self, fact: str) -> str:
        """A fact in words; `none` for what is not there."""
        return self.own.get(fact) or self.common.get(fact, "none")

    def knows(self, fact: str) -> bool:
        """False for a package of a list that nobody knows."""
        return not any(fact.startswith(f"packages.{name}.") and self.get(f"packages.{name}") == UNTOLD for name in LISTS)


def by_host(classes: Iterable[FleetClass]) -> dict[str, Host]:
    """Each host with its facts."""
    found: dict[str, Host] = {}
    for one in classes:
        common = leaves(one.facts)
        found.update((host, Host(common)) for host in one.hosts)
        for spread in one.spreads:
            for value, hosts in spread.values.items():
                for host in hosts:
                    if host in found and value != common.get(spread.fact, "none"):
                        found[host].own[spread.fact] = value
    return found


def changed(before: Sequence[FleetClass], now: Sequence[FleetClass]) -> Iterator[Change]:
    """Every fact that is another one, and hosts that came and went."""
    old, new = by_host(before), by_host(now)
    found: dict[tuple[str, str, str], list[str]] = {}
    compared: dict[tuple[int, int], set[str]] = {}
    for host in new.keys() | old.keys():
        if host not in old or host not in new:
            found.setdefault(("host", "there" if host in old else "none", "there" if host in new else "none"), []).append(host)
            continue
        was, has = old[host], new[host]
        pair = id(was.common), id(has.common)
        if pair not in compared:
            every = was.common.keys() | has.common.keys()
            compared[pair] = {fact for fact in every if was.common.get(fact) != has.common.get(fact)}
        for fact in compared[pair] | was.own.keys() | has.own.keys():
            if was.get(fact) != has.get(fact) and was.knows(fact) and has.knows(fact):
                found.setdefault((fact, was.get(fact), has.get(fact)), []).append(host)
    for (fact, value, other), hosts in sorted(found.items()):
        yield Change(fact=fact, before=value, now=other, hosts=in_order(hosts))


class _Class(msgspec.Struct):
    name: str
    hosts: tuple[str, ...]
    facts: dict[str, Any]
    differences: tuple[Spread, ...] = ()


class _Document(msgspec.Struct):
    schema: str
    classes: tuple[_Class, ...]


def earlier(text: str, where: str) -> tuple[FleetClass, ...]:
    """The classes that `fleet VERB --format json` wrote; InputError where the text is something else."""
    try:
        found = msgspec.json.decode(text, type=_Document)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise _refusal(where, str(error)) from None
    if found.schema != "cudnn-resolve/fleet/1":
        raise _refusal(where, f"its schema is {found.schema[:60]!a}")
    return tuple(
        FleetClass(name=one.name, hosts=one.hosts, about={}, facts=from_mapping(one.facts, f"{where}: {one.name}"), spreads=one.differences)
        for one in found.classes
    )


def _refusal(where: str, why: str) -> InputError:
    hint = "`cudnn-resolve fleet detect --format json -o FILE` writes it"
    return InputError(f"{where} is no earlier answer of fleet: {why}", code="fleet-earlier", hint=hint)
