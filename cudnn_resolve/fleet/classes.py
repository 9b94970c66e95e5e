"""Hosts grouped by what decides: equal facts as far as they matter are one class, and one resolution serves it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Gpu, or_none
from cudnn_resolve.fleet.model import FleetClass, Spread
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import Machine, machine_of

_NUMBER = re.compile(r"(\d+)")
_VENDOR = re.compile(r"\b(?:nvidia|tesla|geforce|quadro|graphics|\d+ ?gb)\b|[^a-z0-9]+")
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,18})(\D*)")
_STACK_APT = re.compile(r"cuda|cudnn|nv|^lib(?:cu|npp)|^python|^tensorrt")
"""Packages of the system that a plan can depend on."""
UNTOLD = "not known"
LISTS = ("pip", "apt")
_SPREADS = 20_000
"""Facts of one class in which hosts differ, and that are told."""


class Group:
    """The hosts of one class while they come in: the facts of the first and of the one that stands for all, and what others differ in."""

    def __init__(self, host: str, facts: Facts, machine: Machine) -> None:
        self.hosts = [host]
        self.first, self.facts, self.machine = facts, facts, machine
        self.others: dict[str, dict[str, list[str]]] = {}
        self.cards = _cards(facts)

    def add(self, host: str, facts: Facts, machine: Machine) -> None:
        """Take in a host; the one with the oldest driver stands for all."""
        self.hosts.append(host)
        self.cards |= _cards(facts)
        for fact, value in differing(self.first, facts):
            if fact in self.others or len(self.others) < _SPREADS:
                self.others.setdefault(fact, {}).setdefault(value, []).append(host)
        if machine.driver is not None and self.machine.driver is not None and machine.driver < self.machine.driver:
            self.facts, self.machine = facts, machine

    def spreads(self) -> Iterator[Spread]:
        """What hosts differ in, with the hosts of each value."""
        first = leaves(self.first)
        for fact, values in sorted(self.others.items()):
            told = {host for hosts in values.values() for host in hosts}
            found = {first.get(fact, "none"): [host for host in self.hosts if host not in told], **values}
            ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
            yield Spread(fact=fact, values={value: in_order(hosts) for value, hosts in ordered})


class Classes:
    """Classes of hosts under construction.

    `whole`: what is installed counts, as for a plan, as far as the tables know it; without it a new environment is meant, as for a lock.
    `diagnosed`: so does all that findings come from.
    """

    def __init__(self, book: Book, *, whole: bool, policy: str | None = None, diagnosed: bool = False) -> None:
        self._book = book
        self._diagnosed = diagnosed
        self._whole, self._exact = whole, policy == "strict"
        self._groups: dict[Mattering, Group] = {}
        self._known: dict[tuple[int, ...], tuple[tuple[Any, ...], Mattering, Machine]] = {}
        self._gpus: dict[tuple[Gpu, ...], tuple[Gpu, ...]] = {}
        self._stack = frozenset(map(_normalized, book.packages())) if whole else frozenset()
        floors = (book.floor(major) for major in range(8, 30))
        self._steps = sorted({*(one.driver for one in book.minimums()), *(one for one in floors if one is not None)})

    def add(self, host: str, facts: Facts) -> None:
        """Put a host into its class."""
        key, machine = self._mattering(facts)
        if key in self._groups:
            self._groups[key].add(host, facts, machine)
        else:
            self._groups[key] = Group(host, facts, machine)

    def _mattering(self, facts: Facts) -> tuple[Mattering, Machine]:
        """What matters of the facts; parts that are the same objects were looked at before."""
        gpus = tuple(replace(one, memory_mib=None, uuid=None) for one in or_none(facts.gpus) or ())
        gpus = self._gpus.setdefault(gpus, gpus) if len(self._gpus) < _KNOWN else gpus
        own: tuple[Any, ...] = (facts.platform, facts.python, facts.driver, facts.root, facts.packages.apt, facts.frameworks)
        parts = (*own, gpus or facts.gpus)
        if self._whole:
            parts = (*parts, facts.packages, facts.cuda_toolkits, facts.cudnn)
        if self._diagnosed:
            parts = (*parts, facts.loader, facts.container)
        ids = tuple(map(id, parts))
        found = self._known.get(ids)
        if found is None:
            if len(self._known) > _KNOWN:  # what is different on every host is no use here
                self._known.clear()
            machine = machine_of(facts, self._book)
            found = self._known[ids] = (parts, self._key(facts, machine), machine)
        return found[1], found[2]

    def _key(self, facts: Facts, machine: Machine) -> Mattering:
        driver = machine.driver
        step = sum(one <= driver for one in self._steps) if driver is not None else 0
        gpus = {(str(one.capability) if one.capability else one.label, one.kind or "") for one in machine.gpus}
        return Mattering(
            arch=machine.arch,
            os=machine.os,
            glibc=machine.glibc,
            python=machine.python_full if self._whole else machine.python and f"{machine.python[0]}.{machine.python[1]}",
            free_threaded=machine.free_threaded,
            driver="absent" if machine.driver_absent else str(driver if self._exact else driver.major) if driver else "",
            step=step,
            cuda=str(machine.native_cuda) if machine.native_cuda else "",
            compat=str(machine.compat),
            gpus=frozenset(gpus),
            root=machine.root,
            environment=self._environment(facts, machine) if self._whole else (),
        )

    def _environment(self, facts: Facts, machine: Machine) -> tuple[Any, ...]:
        pip = frozenset(one for one in machine.pip.items() if self._is_of_stack(one[0]))
        apt = frozenset(one for one in machine.apt.items() if _STACK_APT.search(one[0]))
        return (
            pip,
            apt,
            frozenset(machine.requires.items()),
            machine.toolkits,
            machine.cudnn,
            machine.of_jetpack,
            facts.python.externally_managed,
            *((_signs(facts),) if self._diagnosed else ()),
        )

    def _is_of_stack(self, name: str) -> bool:
        name = _normalized(name)
        return name in self._stack or name.startswith("nvidia-") or self._book.is_framework(name)

    def made(self) -> tuple[FleetClass, ...]:
        """The classes, the largest first; a name that two would have gets a mark of what the class is."""
        groups = sorted(self._groups.items(), key=lambda one: (-len(one[1].hosts), natural(min(one[1].hosts, key=natural))))
        names = Counter(_slug(group) for _, group in groups)
        return tuple(_class(key, group, is_alone=names[_slug(group)] == 1) for key, group in groups)


def _signs(facts: Facts) -> str:
    """What findings come from, and plans do not: what is loaded, and how the driver and its GPUs are."""
    hidden = {one.hidden for one in or_none(facts.gpus) or ()}
    return repr((facts.driver, facts.frameworks, facts.loader, facts.container, sorted(hidden)))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_KNOWN = 1000
"""Combinations of parts of facts that are remembered."""


class Mattering(Struct, frozen=True, kw_only=True):
    """What decides which resolution a host gets."""

    arch: str
    os: str | None
    glibc: tuple[int, int] | None
    python: str | None
    free_threaded: bool
    driver: str
    """Its branch; the version where the policy asks for more."""
    step: int
    """How many drivers that a toolkit asks for are not newer."""
    cuda: str
    compat: str
    gpus: frozenset[tuple[str, str]]
    root: bool | None
    environment: tuple[Any, ...]


def _class(key: Mattering, group: Group, *, is_alone: bool) -> FleetClass:
    slug = _slug(group)
    mark = blake2b(repr(_sorted(key)).encode("utf-8", "backslashreplace"), digest_size=3).hexdigest()
    return FleetClass(
        name=slug if is_alone else f"{slug}-{mark}",
        hosts=in_order(group.hosts),
        about=dict(_about(group)),
        facts=group.facts,
        spreads=tuple(group.spreads()),
    )


def _sorted(value: Any) -> Any:
    """The value with its sets in an order that does not change from run to run."""
    if isinstance(value, Struct):
        return [_sorted(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return [_sorted(one) for one in value] if isinstance(value, tuple) else value


def _slug(group: Group) -> str:
    """A short name that says what a host is, and that a file can have."""
    machine = group.machine
    gpus = sorted(group.cards) or sorted({one.capability.sm for one in machine.gpus if one.capability})
    gpus = gpus or ["cpu" if machine.driver_absent or group.facts.gpus == () else "unknown"]
    driver = "" if machine.driver is None else f"r{machine.driver.major}"
    python = "" if machine.python is None else f"py{machine.python[0]}{machine.python[1]}{'t' if machine.free_threaded else ''}"
    arch = "" if machine.arch == "x86_64" else re.sub(r"[^a-z0-9_]", "", machine.arch)[:20]
    return "-".join(part for part in ("-".join(gpus[:3]), driver, python, arch) if part)


def _cards(facts: Facts) -> set[str]:
    """The GPUs that programs see, in the short words of a file's name."""
    names = {one.name for one in or_none(facts.gpus) or () if one.name and not one.hidden}
    return {_word(name) for name in names} - {""}


@lru_cache(512)
def _word(name: str) -> str:
    return _VENDOR.sub("", name.casefold())[:20]


def _about(group: Group) -> Iterator[tuple[str, str]]:
    machine, facts = group.machine, group.facts
    if machine.gpus or facts.gpus == ():
        yield "gpus", ", ".join(dict.fromkeys(one.label.replace("compute capability ", "") for one in machine.gpus)) or "none"
    if machine.driver is not None:
        yield "driver", machine.driver_text + (f", or newer of branch {machine.driver.major}" if "driver.version" in group.others else "")
    elif machine.driver_absent:
        yield "driver", "none"
    if machine.python_full is not None:
        yield "python", f"{machine.python_full}{' free-threaded' if machine.free_threaded else ''}"
    if machine.glibc is not None:
        yield "glibc", f"{machine.glibc[0]}.{machine.glibc[1]}"
    yield "platform", " ".join(filter(None, (machine.os, machine.arch)))


# ---- differences


def _told(value: object) -> str:
    return "none" if value is None else str(value)


def _platform(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from ((name, _told(getattr(facts.platform, name))) for name in ("distribution", "release", "glibc"))


def _driver(facts: Facts) -> Iterator[tuple[str, str]]:
    driver = or_none(facts.driver)
    yield from ((name, _told(driver and getattr(driver, name))) for name in ("version", "cuda", "kernel_module"))


def _gpus(facts: Facts) -> Iterator[tuple[str, str]]:
    cards = Counter(f"{one.name}{f', {one.memory_mib} MiB' if one.memory_mib else ''}" for one in or_none(facts.gpus) or ())
    yield "", "; ".join(f"{count} x {text}" for text, count in sorted(cards.items())) or "none"


_SECTIONS: Mapping[str, Callable[[Facts], Iterator[tuple[str, str]]]] = {
    "platform": _platform,
    "python": lambda facts: iter((("version", _told(facts.python.version)),)),
    "driver": _driver,
    "gpus": _gpus,
    "cuda_toolkits": lambda facts: iter(
        (("", ", ".join(sorted({_told(one.version) for one in or_none(facts.cuda_toolkits) or ()})) or "none"),)
    ),
    "cudnn": lambda facts: iter((("", ", ".join(sorted({_told(one.version) for one in or_none(facts.cudnn) or ()})) or "none"),)),
    "container": lambda facts: iter((("", _told(or_none(facts.container))),)),
    "root": lambda facts: iter((("", _told(facts.root)),)),
}
"""The facts that are told where hosts of one class differ, by the part of the facts that holds them."""


def _leaves(name: str, facts: Facts) -> Iterator[tuple[str, str]]:
    return ((f"{name}.{leaf}" if leaf else name, value) for leaf, value in _SECTIONS[name](facts))


def leaves(facts: Facts) -> dict[str, str]:
    """Every fact in which hosts can differ, with its value in words."""
    found = {fact: value for name in _SECTIONS for fact, value in _leaves(name, facts)}
    for name in LISTS:
        packages = _listed(facts, name)
        found[f"packages.{name}"] = UNTOLD if packages is None else "known"
        found.update((f"packages.{name}.{package}", version) for package, version in (packages or {}).items())
    return found


def _listed(facts: Facts, name: str) -> Mapping[str, str] | None:
    found: Mapping[str, str] | None = or_none(getattr(facts.packages, name))
    return found


def differing(one: Facts, other: Facts) -> Iterator[tuple[str, str]]:
    """The facts in which `other` differs from `one`, with its values; `none` for what is not there."""
    for name in _SECTIONS:
        if getattr(one, name) is not getattr(other, name):
            before = dict(_leaves(name, one))
            yield from ((fact, value) for fact, value in _leaves(name, other) if before[fact] != value)
    for name in LISTS if one.packages is not other.packages else ():
        packages, others = _listed(one, name), _listed(other, name)
        if (packages is None) is not (others is None):
            yield f"packages.{name}", UNTOLD if others is None else "known"
        if others is not None and packages is not others:
            changed = (packages or {}).items() ^ others.items()
            yield from ((f"packages.{name}.{package}", others.get(package, "none")) for package in {package for package, _ in changed})


# ---- names of hosts


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key that sorts `node2` before `node10`."""
    parts = _NUMBER.split(name[:200])
    return tuple((text, int(number or 0)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


def in_order(hosts: Iterable[str]) -> tuple[str, ...]:
    """Names of hosts as people sort them."""
    return tuple(sorted(hosts, key=natural))


def ranges(hosts: Sequence[str]) -> str:
    """Names of hosts in few words: `node[001-128,130], login1`."""
    shaped: dict[tuple[str, str, int], list[int]] = {}
    for host in in_order(hosts):
        found = _LAST_NUMBER.fullmatch(host)
        if found is None:
            shaped[host, "", -1] = []
            continue
        head, digits, tail = found.groups()
        shaped.setdefault((head, tail, len(digits) if digits[0] == "0" else 0), []).append(int(digits))
    return ", ".join(_range(head, tail, width, numbers) for (head, tail, width), numbers in shaped.items())


def _range(head: str, tail: str, width: int, numbers: list[int]) -> str:
    if width < 0:
        return head
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda one: one[1] - one[0])]
    texts = [f"{run[0]:0{width}d}" if len(run) == 1 else f"{run[0]:0{width}d}-{run[-1]:0{width}d}" for run in runs]
    return f"{head}{texts[0]}{tail}" if len(numbers) == 1 else f"{head}[{','.join(texts)}]{tail}"
