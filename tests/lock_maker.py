"""Locks made of the toy world, for tests: what an index that is a dictionary offers, resolved and merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from msgspec.structs import replace
from packaging.markers import Marker
from packaging.pylock import Package, Pylock
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.locking.merge import Answer, merge
from cudnn_resolve.locking.model import CREATED_BY, TOOL, Environment, Lock, LockedRequest, Tool, version_of
from cudnn_resolve.locking.stack import stack_of
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.source import Offer, Source
from cudnn_resolve.resolution.model import PipPin, Resolution
from cudnn_resolve.resolution.resolve import resolve
from cudnn_resolve.resolution.tag import TargetPython, best_file
from tests.fake_source import Published, files, index_of
from tests.worlds.load import facts, request, world

T = TypeVar("T")
BOOK = world()
FOUND = (Environment(kind="none", value="", why="found by themselves"),)


def answer(
    *targets: str,
    arch: str = "x86_64",
    source: Source | None = None,
    extras: tuple[str, ...] = (),
    machine: Mapping[str, Any] | None = None,
    book: Book = BOOK,
    **more: Any,
) -> Answer:
    """The answer for one platform in a fresh environment; `more` are fields of the request."""
    here = machine_of(facts(platform={"arch": arch}, **(machine or {})), book)
    found = resolve(book, here, replace(request(book, *targets, extras=extras), **more), source or index_of(book))
    assert isinstance(found, Resolution), found
    return Answer(resolution=found, stack=stack_of(found, FOUND, book))


def lock_of(*answers: Answer, asked: LockedRequest | None = None, base: str = "/project") -> Lock:
    """The lock of these answers."""
    targets = tuple(one.text for one in answers[0].resolution.request.targets)
    return merge(answers, request=asked or LockedRequest(targets=targets, direct_targets=targets), matrix="2026-01-01.00000000", base=base)


def pins(lock: Lock) -> dict[str, str | None]:
    """Name to version."""
    return {one.name: version_of(one) for one in lock.packages}


def lock_with(*packages: Package, tool: Tool | None = None, **more: Any) -> Lock:
    """A lock of these entries; `more` are fields of the PEP 751 file."""
    return Lock(file=Pylock(lock_version=Version("1.0"), created_by=CREATED_BY, packages=list(packages), **more), tool=tool)


def entry(name: str, version: str | None = None, *, marker: str | None = None, because: tuple[str, ...] = (), **more: Any) -> Package:
    """An entry of a lock; `more` are its further fields."""
    return Package(
        name=canonicalize_name(name),
        version=Version(version) if version is not None else None,
        marker=Marker(marker) if marker is not None else None,
        tool={TOOL: {"because": list(because)}} if because else None,
        **more,
    )


def changed(of: T, **fields: Any) -> T:
    """An entry or a file of a lock with other fields."""
    return type(of)(**{field.name: getattr(of, field.name) for field in dataclasses.fields(cast("Any", of))} | fields)


def with_packages(lock: Lock, *packages: Package) -> Lock:
    """The lock with these entries instead of its own."""
    return replace(lock, file=changed(lock.file, packages=list(packages)))


def pinned(*names: str, arch: str = "x86_64", of: Answer | None = None) -> Answer:
    """An answer with just these pins: `name==version` and the tags of its wheels, `sdist` for a source archive, `+` before what it needs.

    `numpy==1.0 py3-none-any cp311-cp311-manylinux_2_17_x86_64 +six`.
    """
    base = of or answer("north==2.0")
    out = []
    for text in names:
        spec, *words = text.split()
        name, _, version = spec.partition("==")
        tags = tuple(word for word in words if not word.startswith("+")) or ("py3-none-any",)
        offer = Offer(version=version, files=files(name, version, Published(tags=tags)))
        target = TargetPython((3, 11), False, arch, None)
        requires = tuple(word[1:] for word in words if word.startswith("+"))
        out.append(
            PipPin(name=name, version=version, index=None, reasons=(), offer=offer, file=best_file(offer.files, target), requires=requires)
        )
    resolution = replace(base.resolution, machine=replace(base.resolution.machine, arch=arch), pip=tuple(out), overrides=())
    return Answer(resolution=resolution, stack=replace(base.stack, platform=f"linux_{arch}", overrides=()))
