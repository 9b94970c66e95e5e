"""Chains of reasons behind a package of a resolution, up to the request; or why the package is absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.resolution.installed import UnrequestedFramework
from cudnn_resolve.resolution.key import ARCH, CUDA, CUDNN, DRIVER, GLIBC, OS, PYTHON, FrameworkKey, GpuKey, Key, pip_key
from cudnn_resolve.resolution.model import Reason, Resolution

_KEYS: Mapping[str, Key] = {str(key): key for key in (CUDA, CUDNN, DRIVER, PYTHON, GLIBC, ARCH, OS)}


class Link(Struct, frozen=True, kw_only=True):
    """A need in a chain; `links` are the needs behind the package that has it."""

    text: str
    because: str
    parent: str | None
    obeyed: bool
    links: tuple[Link, ...] = ()


class Chain(Struct, frozen=True, kw_only=True):
    """The chains behind one package."""

    package: str
    chosen: str | None
    """Version; None if the package is not part of the resolution."""
    links: tuple[Link, ...]
    absence: str | None = None
    """Why it is absent."""


def chain(resolution: Resolution, word: str, book: Book) -> Chain:
    """Reasons behind a package, a fact or `cuda`, `cudnn`, `driver` in a resolution."""
    keys = [key for key in _keys(word) if key in resolution.pins]
    if keys:
        seen = frozenset[Key | None](keys)
        reasons = [reason for key in keys for reason in resolution.pins[key].reasons if reason.parent_key not in seen]
        return Chain(package=word, chosen=resolution.pins[keys[0]].candidate.version, links=_links(resolution, reasons, seen))
    fact = _fact(resolution, word)
    if fact is not None:
        return Chain(package=word, chosen=fact, links=())
    name = canonicalize_name(word)
    kept = next((framework for framework in resolution.unrequested if framework.is_protected and framework.package == name), None)
    if kept is not None:
        return Chain(package=word, chosen=kept.version, links=(_kept_link(kept),))
    return Chain(package=word, chosen=None, links=(), absence=_absence(resolution, name, book))


def _fact(resolution: Resolution, word: str) -> str | None:
    """A fact that excluded nothing."""
    machine = resolution.machine
    if word.lower().startswith("gpu") and machine.gpus:
        return machine.gpus[0].label
    facts = {"python": machine.python_full, "arch": machine.arch, "os": machine.os, "driver": str(machine.driver or "unknown")}
    return facts.get(word.lower())


def _keys(word: str) -> tuple[Key, ...]:
    name = word.strip().lower()
    if name in _KEYS:
        return (_KEYS[name],)
    if name.startswith("gpu"):
        number = name.partition(":")[2] or "0"
        return (GpuKey(int(number)),) if number.isdecimal() else ()
    name = canonicalize_name(name)
    return pip_key(name), FrameworkKey(name)


def _links(resolution: Resolution, reasons: Iterable[Reason], seen: frozenset[Key | None]) -> tuple[Link, ...]:
    """Links of reasons, each text once; a step that only restates its parent is skipped."""
    found: dict[tuple[str, str, bool], Link] = {}
    for reason in reasons:
        parent = reason.parent_key
        kept = next((framework for framework in resolution.unrequested if reason.requested_by == framework.owner), None)
        links: tuple[Link, ...] = ()
        if kept is not None:
            links = (_kept_link(kept),)
        elif parent is not None and parent not in seen and parent in resolution.pins:
            behind = [other for other in resolution.pins[parent].reasons if other.parent_key not in seen]
            links = _links(resolution, behind, seen | {parent})
        own = Link(text=reason.text, because=reason.because, parent=reason.parent, obeyed=reason.obeyed, links=links)
        for link in links if reason.restates and isinstance(parent, FrameworkKey) else (own,):
            found.setdefault((link.text, link.because, link.obeyed), link)
    return tuple(found.values())


def _kept_link(framework: UnrequestedFramework) -> Link:
    """The first link of a chain that starts at an installed framework."""
    because = f"it works and is not part of the request, so the plan keeps it (`--allow-break {framework.framework}` gives it up)"
    return Link(text=f"{framework.who} is installed", because=because, parent=None, obeyed=True)


def _absence(resolution: Resolution, name: str, book: Book) -> str:
    slot = book.slot(name)
    if slot is not None:
        for pin in resolution.pip:
            if pin.name != name and book.slot(pin.name) == slot:
                if not book.shares_files(slot):
                    return f"{pin.name} is chosen, and an environment holds only one of the two"
                return f"{pin.name} is chosen, which owns the same files; the two would overwrite one another"
    installed = resolution.machine.pip.get(name)
    users = [
        framework.who
        for framework in resolution.unrequested
        if any(canonicalize_name(requirement.name) == name for requirement in framework.requires)
    ]
    if installed is not None and users:
        return f"it is installed ({installed}) for {' and '.join(users)}, and left alone"
    component = book.component(name)
    if component is not None and installed is None:
        major = resolution.cuda.partition(".")[0] if resolution.cuda else None
        if major is not None and str(component.cuda_major) != major:
            return f"it is for CUDA {component.cuda_major}, and the stack is CUDA {resolution.cuda}"
        channels = {channel for channel in resolution.channels.values() if channel != "pip"}
        if channels and "pip" not in resolution.channels.values():
            return f"the CUDA libraries are {' and '.join(sorted(channels))} here, not pip wheels"
    if installed is not None:
        return f"it is installed ({installed}) and nothing in the plan needs it, so it is left alone"
    return "nothing in the plan needs it"
