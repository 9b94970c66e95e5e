"""Locks made of the toy world, for tests: what an index that is a dictionary offers, resolved and merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.locking.merge import Answer, merge
from cudnn_resolve.locking.model import Asked, Lock, LockedEnvironment
from cudnn_resolve.locking.stack import stack_of
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.source import Offer, Source
from cudnn_resolve.resolution.model import PipPin, Resolution
from cudnn_resolve.resolution.resolve import resolve
from cudnn_resolve.resolution.tag import Target, best_file
from tests.fake_source import Published, files, index_of
from tests.worlds.load import facts, request, world

BOOK = world()
FOUND = (LockedEnvironment("none", "", "found by themselves"),)


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


def lock_of(*answers: Answer, asked: Asked | None = None, base: str = "/project") -> Lock:
    """The lock of these answers."""
    targets = tuple(one.text for one in answers[0].resolution.request.targets)
    return merge(answers, asked=asked or Asked(targets=targets, said=targets), matrix="2026-01-01.00000000", base=base)


def pins(lock: Lock) -> dict[str, str | None]:
    """Name to version."""
    return {one.name: one.version for one in lock.packages}


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
        target = Target((3, 11), False, arch, None)
        requires = tuple(word[1:] for word in words if word.startswith("+"))
        out.append(
            PipPin(name=name, version=version, index=None, reasons=(), offer=offer, file=best_file(offer.files, target), requires=requires)
        )
    resolution = replace(base.resolution, machine=replace(base.resolution.machine, arch=arch), pip=tuple(out), overrides=())
    return Answer(resolution=resolution, stack=replace(base.stack, platform=f"linux_{arch}", overrides=()))
