"""Changes of hosts since an earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.fleet.difference import LISTS, UNKNOWN_LIST, leaves
from cudnn_resolve.fleet.host_names import in_order
from cudnn_resolve.fleet.model import Change, FleetClass, Spread


class Host:
    """Facts of one host: those of its class, with its own differences."""

    def __init__(self, common: Mapping[str, str]) -> None:
        self.common = common
        self.own: dict[str, str] = {}

    def get(self, fact: str) -> str:
        """A fact as text; `none` for an absent one."""
        return self.own.get(fact) or self.common.get(fact, "none")

    def knows(self, fact: str) -> bool:
        """False for a package of a list that is unknown."""
        return not any(fact.startswith(f"packages.{name}.") and self.get(f"packages.{name}") == UNKNOWN_LIST for name in LISTS)


def by_host(classes: Iterable[FleetClass]) -> dict[str, Host]:
    """Facts of each host."""
    facts: dict[str, Host] = {}
    for group in classes:
        common = leaves(group.facts)
        facts.update((host, Host(common)) for host in group.hosts)
        for spread in group.spreads:
            for value, hosts in spread.values.items():
                for host in hosts:
                    if host in facts and value != common.get(spread.fact, "none"):
                        facts[host].own[spread.fact] = value
    return facts


def changed(before: Sequence[FleetClass], now: Sequence[FleetClass]) -> Iterator[Change]:
    """Every changed fact, and hosts that were added or removed."""
    old, new = by_host(before), by_host(now)
    hosts_of: dict[tuple[str, str, str], list[str]] = {}
    compared: dict[tuple[int, int], set[str]] = {}
    for host in new.keys() | old.keys():
        if host not in old or host not in new:
            hosts_of.setdefault(("host", "there" if host in old else "none", "there" if host in new else "none"), []).append(host)
            continue
        past, present = old[host], new[host]
        classes = id(past.common), id(present.common)
        if classes not in compared:
            facts = past.common.keys() | present.common.keys()
            compared[classes] = {fact for fact in facts if past.common.get(fact) != present.common.get(fact)}
        for fact in compared[classes] | past.own.keys() | present.own.keys():
            if past.get(fact) != present.get(fact) and past.knows(fact) and present.knows(fact):
                hosts_of.setdefault((fact, past.get(fact), present.get(fact)), []).append(host)
    for (fact, before_value, value), hosts in sorted(hosts_of.items()):
        yield Change(fact=fact, before=before_value, now=value, hosts=in_order(hosts))


class _Class(msgspec.Struct):
    name: str
    hosts: tuple[str, ...]
    facts: dict[str, Any]
    differences: tuple[Spread, ...] = ()


class _Document(msgspec.Struct):
    schema: str
    classes: tuple[_Class, ...]


def earlier(text: str, where: str) -> tuple[FleetClass, ...]:
    """Classes in an output of `fleet VERB --format json`; InputError for anything else."""
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise _refusal(where, str(error)) from None
    if document.schema != "cudnn-resolve/fleet/1":
        raise _refusal(where, f"its schema is {document.schema[:60]!a}")
    return tuple(
        FleetClass(
            name=group.name,
            hosts=group.hosts,
            about={},
            facts=from_mapping(group.facts, f"{where}: {group.name}"),
            spreads=group.differences,
        )
        for group in document.classes
    )


def _refusal(where: str, why: str) -> InputError:
    hint = "`cudnn-resolve fleet detect --format json -o FILE` writes it"
    return InputError(f"{where} is not an earlier output of fleet: {why}", code="fleet-earlier", hint=hint)
