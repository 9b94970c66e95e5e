"""Grouping of hosts: those with equal decisive facts form a class, which one resolution serves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.facts.model import Facts, Gpu, or_none
from cudnn_resolve.fleet.difference import differing, leaves
from cudnn_resolve.fleet.host_names import in_order, natural
from cudnn_resolve.fleet.model import FleetClass, Spread
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine, machine_of

_VENDOR = re.compile(r"\b(?:nvidia|tesla|geforce|quadro|graphics|\d+ ?gb)\b|[^a-z0-9]+")
_STACK_APT = re.compile(r"cuda|cudnn|nv|^lib(?:cu|npp)|^python|^tensorrt")
"""System packages that a plan can depend on."""
ClassKey = tuple[Any, ...]
"""Everything that decides which resolution a host gets."""
_MAX_SPREADS = 20_000
"""Limit on reported facts in which the hosts of a class differ."""
_MAX_CACHED = 1000
"""Limit on cached combinations of parts of facts."""


class Group:
    """The hosts of a class under construction, the facts that represent them, and what the others differ in."""

    def __init__(self, host: str, facts: Facts, machine: Machine) -> None:
        self.hosts = [host]
        self.first, self.facts, self.machine = facts, facts, machine
        self.differing: dict[str, dict[str, list[str]]] = {}
        self.cards = _cards(facts)

    def add(self, host: str, facts: Facts, machine: Machine) -> None:
        """Add a host; the one with the oldest driver represents the class."""
        self.hosts.append(host)
        self.cards |= _cards(facts)
        for fact, value in differing(self.first, facts):
            if fact in self.differing or len(self.differing) < _MAX_SPREADS:
                self.differing.setdefault(fact, {}).setdefault(value, []).append(host)
        if machine.driver is not None and self.machine.driver is not None and machine.driver < self.machine.driver:
            self.facts, self.machine = facts, machine

    def spreads(self) -> Iterator[Spread]:
        """Facts in which the hosts differ, with the hosts of each value."""
        first = leaves(self.first)
        for fact, values in sorted(self.differing.items()):
            others = {host for hosts in values.values() for host in hosts}
            hosts_of = {first.get(fact, "none"): [host for host in self.hosts if host not in others], **values}
            ordered = sorted(hosts_of.items(), key=lambda item: (-len(item[1]), item[0]))
            yield Spread(fact=fact, values={value: in_order(hosts) for value, hosts in ordered})


class Classes:
    """Builder of the classes.

    `whole`: installed packages decide too, as for a plan, as far as the tables know them; otherwise a new environment is planned, as for a
    lock. `diagnosed`: everything from which findings arise decides too.
    """

    def __init__(self, book: Book, *, whole: bool, policy: str | None = None, diagnosed: bool = False) -> None:
        self._book = book
        self._diagnosed = diagnosed
        self._whole, self._exact_driver = whole, policy == "strict"
        self._groups: dict[ClassKey, Group] = {}
        self._cache: dict[tuple[int, ...], tuple[tuple[Any, ...], ClassKey, Machine]] = {}
        self._gpus: dict[tuple[Gpu, ...], tuple[Gpu, ...]] = {}
        self._stack = frozenset(map(canonicalize_name, book.packages())) if whole else frozenset()
        floors = (book.floor(major) for major in range(8, 30))
        self._steps = sorted({*(row.driver for row in book.minimums()), *(floor for floor in floors if floor is not None)})

    def add(self, host: str, facts: Facts) -> None:
        """Add a host to its class."""
        key, machine = self._key_of(facts)
        if key in self._groups:
            self._groups[key].add(host, facts, machine)
        else:
            self._groups[key] = Group(host, facts, machine)

    def _key_of(self, facts: Facts) -> tuple[ClassKey, Machine]:
        """The key of the class, cached by the identity of the parts of the facts, which hosts share and the cache keeps alive."""
        gpus = tuple(replace(gpu, memory_mib=None, uuid=None) for gpu in or_none(facts.gpus) or ())
        gpus = self._gpus.setdefault(gpus, gpus) if len(self._gpus) < _MAX_CACHED else gpus
        basic: tuple[Any, ...] = (facts.platform, facts.python, facts.driver, facts.root, facts.packages.apt, facts.frameworks)
        parts = (*basic, gpus or facts.gpus)
        if self._whole:
            parts = (*parts, facts.packages, facts.cuda_toolkits, facts.cudnn)
        if self._diagnosed:
            parts = (*parts, facts.loader, facts.container)
        ids = tuple(map(id, parts))
        cached = self._cache.get(ids)
        if cached is None:
            if len(self._cache) > _MAX_CACHED:  # parts that differ on every host would fill it
                self._cache.clear()
            machine = machine_of(facts, self._book)
            cached = self._cache[ids] = (parts, self._key(facts, machine), machine)
        return cached[1], cached[2]

    def _key(self, facts: Facts, machine: Machine) -> ClassKey:
        driver = machine.driver
        gpus = {(str(gpu.capability) if gpu.capability else gpu.label, gpu.kind or "") for gpu in machine.gpus}
        return (
            machine.arch,
            machine.os,
            machine.glibc,
            machine.python_full if self._whole else machine.python and f"{machine.python[0]}.{machine.python[1]}",
            machine.free_threaded,
            "absent" if machine.driver_absent else str(driver if self._exact_driver else driver.major) if driver else "",
            sum(step <= driver for step in self._steps) if driver is not None else 0,  # the toolkits whose minimum it reaches
            str(machine.native_cuda) if machine.native_cuda else "",
            str(machine.compat),
            frozenset(gpus),
            machine.root,
            self._environment(facts, machine) if self._whole else (),
        )

    def _environment(self, facts: Facts, machine: Machine) -> tuple[Any, ...]:
        pip = frozenset((name, version) for name, version in machine.pip.items() if self._is_of_stack(name))
        apt = frozenset((name, version) for name, version in machine.apt.items() if _STACK_APT.search(name))
        return (
            pip,
            apt,
            frozenset(machine.requires.items()),
            machine.toolkits,
            machine.cudnn,
            machine.of_jetpack,
            facts.python.externally_managed,
            *((_diagnosed_facts(facts),) if self._diagnosed else ()),
        )

    def _is_of_stack(self, name: str) -> bool:
        name = canonicalize_name(name)
        return name in self._stack or name.startswith("nvidia-") or self._book.framework_named(name) is not None

    def build(self) -> tuple[FleetClass, ...]:
        """The classes, largest first; a name shared by several gets a hash of the key as suffix."""
        groups = sorted(self._groups.items(), key=lambda item: (-len(item[1].hosts), natural(min(item[1].hosts, key=natural))))
        names = Counter(_slug(group) for _, group in groups)
        return tuple(_class(key, group, is_unique=names[_slug(group)] == 1) for key, group in groups)


def _diagnosed_facts(facts: Facts) -> str:
    """Facts that matter for findings but not for plans: loaded libraries, and the state of the driver and its GPUs."""
    hidden = {gpu.hidden for gpu in or_none(facts.gpus) or ()}
    return repr((facts.driver, facts.frameworks, facts.loader, facts.container, sorted(hidden)))


def _class(key: ClassKey, group: Group, *, is_unique: bool) -> FleetClass:
    slug = _slug(group)
    suffix = blake2b(repr(_sorted(key)).encode("utf-8", "backslashreplace"), digest_size=3).hexdigest()
    return FleetClass(
        name=slug if is_unique else f"{slug}-{suffix}",
        hosts=in_order(group.hosts),
        about=dict(_about(group)),
        facts=group.facts,
        spreads=tuple(group.spreads()),
    )


def _sorted(value: Any) -> Any:
    """The value with its sets sorted, for a reproducible hash."""
    if isinstance(value, Struct):
        return [_sorted(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return [_sorted(item) for item in value] if isinstance(value, tuple) else value


def _slug(group: Group) -> str:
    """Short descriptive name, usable as a file name."""
    machine = group.machine
    gpus = sorted(group.cards) or sorted({gpu.capability.sm for gpu in machine.gpus if gpu.capability})
    gpus = gpus or ["cpu" if machine.driver_absent or group.facts.gpus == () else "unknown"]
    driver = "" if machine.driver is None else f"r{machine.driver.major}"
    python = "" if machine.python is None else f"py{machine.python[0]}{machine.python[1]}{'t' if machine.free_threaded else ''}"
    arch = "" if machine.arch == "x86_64" else re.sub(r"[^a-z0-9_]", "", machine.arch)[:20]
    return "-".join(part for part in ("-".join(gpus[:3]), driver, python, arch) if part)


def _cards(facts: Facts) -> set[str]:
    """Short names of the visible GPUs."""
    names = {gpu.name for gpu in or_none(facts.gpus) or () if gpu.name and not gpu.hidden}
    return {_short_name(name) for name in names} - {""}


@lru_cache(512)
def _short_name(card: str) -> str:
    return _VENDOR.sub("", card.casefold())[:20]


def _about(group: Group) -> Iterator[tuple[str, str]]:
    machine, facts = group.machine, group.facts
    if machine.gpus or facts.gpus == ():
        labels = dict.fromkeys(gpu.label.replace("compute capability ", "") for gpu in machine.gpus)
        yield "gpus", ", ".join(labels) or "none"
    if machine.driver is not None:
        newer = f", or newer of branch {machine.driver.major}" if "driver.version" in group.differing else ""
        yield "driver", f"{machine.driver_text}{newer}"
    elif machine.driver_absent:
        yield "driver", "none"
    if machine.python_full is not None:
        yield "python", f"{machine.python_full}{' free-threaded' if machine.free_threaded else ''}"
    if machine.glibc is not None:
        yield "glibc", f"{machine.glibc[0]}.{machine.glibc[1]}"
    yield "platform", " ".join(filter(None, (machine.os, machine.arch)))
