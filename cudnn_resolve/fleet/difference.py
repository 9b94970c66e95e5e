"""Facts in which hosts can differ, as texts by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cudnn_resolve.facts.model import Facts, or_none

UNKNOWN_LIST = "not known"
LISTS = ("pip", "apt")


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _versions(items: Iterable[Any] | None) -> str:
    """Distinct versions of toolkits or of copies of cuDNN."""
    return ", ".join(sorted({_text(item.version) for item in items or ()})) or "none"


def _platform(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from ((name, _text(getattr(facts.platform, name))) for name in ("distribution", "release", "glibc"))


def _driver(facts: Facts) -> Iterator[tuple[str, str]]:
    driver = or_none(facts.driver)
    yield from ((name, _text(driver and getattr(driver, name))) for name in ("version", "cuda", "kernel_module"))


def _gpus(facts: Facts) -> str:
    cards = Counter(f"{gpu.name}{f', {gpu.memory_mib} MiB' if gpu.memory_mib else ''}" for gpu in or_none(facts.gpus) or ())
    return "; ".join(f"{count} x {card}" for card, count in sorted(cards.items())) or "none"


_SECTIONS: Mapping[str, Callable[[Facts], Iterable[tuple[str, str]]]] = {
    "platform": _platform,
    "python": lambda facts: (("version", _text(facts.python.version)),),
    "driver": _driver,
    "gpus": lambda facts: (("", _gpus(facts)),),
    "cuda_toolkits": lambda facts: (("", _versions(or_none(facts.cuda_toolkits))),),
    "cudnn": lambda facts: (("", _versions(or_none(facts.cudnn))),),
    "container": lambda facts: (("", _text(or_none(facts.container))),),
    "root": lambda facts: (("", _text(facts.root)),),
}
"""Reported facts by section; a section without parts has one fact with an empty name."""


def _leaves(section: str, facts: Facts) -> Iterator[tuple[str, str]]:
    return ((f"{section}.{name}" if name else section, value) for name, value in _SECTIONS[section](facts))


def leaves(facts: Facts) -> dict[str, str]:
    """Every fact in which hosts can differ, as text."""
    values = {fact: value for section in _SECTIONS for fact, value in _leaves(section, facts)}
    for name in LISTS:
        packages = _packages(facts, name)
        values[f"packages.{name}"] = UNKNOWN_LIST if packages is None else "known"
        values.update((f"packages.{name}.{package}", version) for package, version in (packages or {}).items())
    return values


def _packages(facts: Facts, name: str) -> Mapping[str, str] | None:
    packages: Mapping[str, str] | None = or_none(getattr(facts.packages, name))
    return packages


def differing(facts: Facts, other: Facts) -> Iterator[tuple[str, str]]:
    """Facts in which `other` differs from `facts`, with its values; `none` for absent ones."""
    for section in _SECTIONS:
        if getattr(facts, section) is not getattr(other, section):
            before = dict(_leaves(section, facts))
            yield from ((fact, value) for fact, value in _leaves(section, other) if before[fact] != value)
    for name in LISTS if facts.packages is not other.packages else ():
        old, new = _packages(facts, name), _packages(other, name)
        if (old is None) is not (new is None):
            yield f"packages.{name}", UNKNOWN_LIST if new is None else "known"
        if new is not None and old is not new:
            changed = {package for package, _ in (old or {}).items() ^ new.items()}
            yield from ((f"packages.{name}.{package}", new.get(package, "none")) for package in changed)
