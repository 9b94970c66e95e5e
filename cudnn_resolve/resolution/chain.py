"""Why a package is in a resolution, up to the user's own words; or why it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.utils import canonicalize_name

from cudnn_resolve.resolution.installed import installed_name
from cudnn_resolve.resolution.key import ARCH, CUDA, CUDNN, DRIVER, GLIBC, OS, PYTHON, FrameworkKey, GpuKey, Key, pip_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.resolution.installed import UnrequestedFramework
    from cudnn_resolve.resolution.model import Reason, Resolution


_PARTS: Mapping[str, Key] = {str(key): key for key in (CUDA, CUDNN, DRIVER, PYTHON, GLIBC, ARCH, OS)}


class Link(Struct, frozen=True, kw_only=True):
    """One requirement in a chain; `links` are those behind the package that brought it."""

    text: str
    because: str
    parent: str | None
    obeyed: bool
    links: tuple[Link, ...] = ()


class Chain(Struct, frozen=True, kw_only=True):
    """The chains behind one package."""

    package: str
    chosen: str | None
    """Version, None where the package is not part of the resolution."""
    links: tuple[Link, ...]
    absence: str | None = None
    """Why it is not there."""


def chain(resolution: Resolution, word: str, book: Book) -> Chain:
    """The reasons behind a package, a fact or `cuda`, `cudnn`, `driver` in a resolution."""
    keys = [key for key in _keys(word) if key in resolution.pins]
    if not keys:
        fact = _fact(resolution, word)
        if fact is not None:
            return Chain(package=word, chosen=fact, links=())
        kept = _kept(resolution, canonicalize_name(word))
        if kept is not None:
            return Chain(package=word, chosen=kept.version, links=(_stays(kept),))
        return Chain(package=word, chosen=None, links=(), absence=_absence(resolution, word, book))
    seen = frozenset[Key | None](keys)
    reasons = [reason for key in keys for reason in resolution.pins[key].reasons if reason.parent_key not in seen]
    return Chain(package=word, chosen=resolution.pins[keys[0]].candidate.version, links=_links(resolution, reasons, seen))


def _fact(resolution: Resolution, word: str) -> str | None:
    """A fact that excluded nothing."""
    machine = resolution.machine
    known = {"python": machine.python_full, "arch": machine.arch, "os": machine.os, "driver": str(machine.driver or "unknown")}
    if word.lower().startswith("gpu") and machine.gpus:
        return machine.gpus[0].label
    return known.get(word.lower())


def _keys(word: str) -> tuple[Key, ...]:
    plain = word.strip().lower()
    if plain in _PARTS:
        return (_PARTS[plain],)
    if plain.startswith("gpu"):
        number = plain.partition(":")[2] or "0"
        return (GpuKey(int(number)),) if number.isdecimal() else ()
    name = canonicalize_name(plain)
    return pip_key(name), FrameworkKey(name)


def _links(resolution: Resolution, reasons: Iterable[Reason], seen: frozenset[Key | None]) -> tuple[Link, ...]:
    """What stands behind reasons, each sentence once; a step from a framework to its own wheel is none."""
    found: dict[tuple[str, str, bool], Link] = {}
    for reason in reasons:
        above = reason.parent_key
        stays = next((one for one in resolution.unrequested if reason.requested_by == installed_name(one)), None)
        links: tuple[Link, ...] = (_stays(stays),) if stays is not None else ()
        if stays is None and above is not None and above not in seen and above in resolution.pins:
            behind = [one for one in resolution.pins[above].reasons if one.parent_key not in seen]
            links = _links(resolution, behind, seen | {above})
        link = Link(text=reason.text, because=reason.because, parent=reason.parent, obeyed=reason.obeyed, links=links)
        for one in links if reason.because == f"{reason.text} is that build" else (link,):
            found.setdefault((one.text, one.because, one.obeyed), one)
    return tuple(found.values())


def _stays(one: UnrequestedFramework) -> Link:
    """The end of a chain that begins with an installed framework."""
    because = f"nobody asks for it, it works, and a plan keeps what works (`--allow-break {one.framework}` gives it up)"
    return Link(text=f"{one.who} is installed", because=because, parent=None, obeyed=True)


def _kept(resolution: Resolution, name: str) -> UnrequestedFramework | None:
    """The installed framework of that package that a plan keeps although nobody asks for it."""
    found = (one for one in resolution.unrequested if one.package == name and one.works and not one.may_break)
    return next(found, None)


def _absence(resolution: Resolution, word: str, book: Book) -> str:
    name = canonicalize_name(word)
    slot = book.slot(name)
    if slot is not None:
        for pin in resolution.pip:
            if pin.name != name and book.slot(pin.name) == slot:
                if not book.shares_files(slot):
                    return f"{pin.name} is chosen, and one environment holds one of the two"
                return f"{pin.name} is chosen, which owns the same files; the two would overwrite one another"
    here = resolution.machine.pip.get(name)
    users = [one.who for one in resolution.unrequested if any(canonicalize_name(each.name) == name for each in one.requires)]
    if here is not None and users:
        return f"it is installed ({here}) for {' and '.join(users)}, and left alone"
    component = book.component(name)
    if component is not None and here is None:
        major = resolution.cuda.partition(".")[0] if resolution.cuda else None
        if major is not None and str(component.cuda_major) != major:
            return f"it is for CUDA {component.cuda_major}, and the stack is CUDA {resolution.cuda}"
        channels = {channel for channel in resolution.channels.values() if channel != "pip"}
        if channels and "pip" not in resolution.channels.values():
            return f"the CUDA libraries do not come as pip wheels here but are {' and '.join(sorted(channels))}"
    if here is not None:
        return f"it is installed ({here}) and nothing in the plan needs it, so it is left alone"
    return "nothing in the plan needs it"
