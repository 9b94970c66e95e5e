"""Bounds of the matrix: what a framework needs of other packages although no metadata says so.

A bound of a framework asks for no package. It holds for one that is in the environment, whoever brings it and whichever of the two is
decided first: a release of the framework and a release outside the bound own a slot that only one of them can have. For what the
framework requires itself, what is installed and what the user names, the bound is a plain requirement too, which explains itself better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.resolution.candidate import Need, PipCandidate, slot_need
from cudnn_resolve.resolution.key import Key, SlotKey, pip_key
from cudnn_resolve.resolution.model import Pin, Reason
from cudnn_resolve.resolution.pin_override import within
from cudnn_resolve.resolution.release import Release, parse_requirement

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Bound
    from cudnn_resolve.resolution.context import Context


class FrameworkBound(NamedTuple):
    """A bound with its parts parsed."""

    framework: str
    bound: Bound
    versions: SpecifierSet
    requirement: Requirement

    @property
    def package(self) -> str:
        """The package that is bounded."""
        return canonicalize_name(self.requirement.name)

    def is_of(self, book: Book, release: Release) -> bool:
        """True for a release of the framework, or of the package beside it, that has this bound."""
        owner = self.bound.package
        if owner != release.package and (owner is not None or book.framework_of(release.package) != self.framework):
            return False
        return self.versions.contains(release.version, prereleases=True)

    def allows(self, release: Release) -> bool:
        """True for a release of the bounded package that is inside."""
        return self.requirement.specifier.contains(release.version, prereleases=True)

    def slot(self, owner: str, text: str, because: str) -> Need:
        """The need for the slot that a bounded framework and a release outside the bound would both own."""
        files = f"{self.requirement} for {self.bound.package or self.framework} {self.versions}"
        return slot_need(SlotKey(files), owner, text, because)


def bound_needs(context: Context, release: Release) -> Iterator[Need]:
    """The bounds that a release of a framework has, and those of frameworks that it does not keep itself.

    What a package beside a framework has, it requires: it is decided before what it needs, so that this gives way and not the package.
    """
    book = context.book
    for one in _bounds_about(book, release.package):
        if one.is_of(book, release) and book.framework_of(release.package) is None:
            yield _plain_need(context, one, release)
        elif one.is_of(book, release):
            yield one.slot("inside", str(one.requirement), _because(one, release))
        elif one.package == release.package and not one.allows(release):
            because = f"{release.package} {release.text} is not {one.requirement}: {one.bound.reason}"
            yield one.slot("outside", f"no {one.bound.package or one.framework} {one.versions}", because)


def direct_needs(context: Context, release: Release) -> Iterator[Need]:
    """The bounds of a framework's release on packages that are there whatever else is chosen."""
    # setuptools is counted in: what a framework requires (tensorboard) brings it where nothing else does.
    there: set[str] = {"setuptools", *context.machine.pip}
    there.update(canonicalize_name(one.name) for one, _ in context.metadata.requirements(release))
    for extra in context.request.requirements:
        asked = parse_requirement(extra.text)
        if asked is not None:
            there.add(canonicalize_name(asked.name))
    for one in _bounds_about(context.book, release.package):
        if one.package in there and one.is_of(context.book, release):
            yield _plain_need(context, one, release)


def _plain_need(context: Context, one: FrameworkBound, release: Release) -> Need:
    return Need(pip_key(one.package), within(one.requirement.specifier, context), one.bound.requirement, _because(one, release))


def with_bounds(book: Book, pins: dict[Key, Pin]) -> dict[Key, Pin]:
    """The pins, those that a bound holds back with it among their reasons."""
    out = dict(pins)
    for pin in pins.values():
        framework = pin.candidate
        if not isinstance(framework, PipCandidate) or framework.release is None or framework.key.extras:
            continue
        for one in _bounds_about(book, framework.key.name):
            key = pip_key(one.package)
            if key in out and one.is_of(book, framework.release):
                out[key] = _with_reason(out[key], one, framework, framework.release)
    return out


def _with_reason(pin: Pin, one: FrameworkBound, framework: PipCandidate, release: Release) -> Pin:
    because = _because(one, release)
    if any(reason.because == because for reason in pin.reasons):
        return pin
    text = str(one.requirement)
    reason = Reason(text=text, because=because, parent=str(framework), parent_key=framework.key, key=pin.candidate.key)
    return Pin(candidate=pin.candidate, reasons=(*pin.reasons, reason))


def _because(one: FrameworkBound, release: Release) -> str:
    return f"{release.package} {release.version.public}: {one.bound.reason}"


def _bounds_about(book: Book, package: str) -> tuple[FrameworkBound, ...]:
    """The bounds that a package has as a framework's, or that limit it."""

    def answer() -> tuple[FrameworkBound, ...]:
        framework = book.framework_of(package)
        every: tuple[FrameworkBound, ...] = book.remember("bounds", None, lambda: tuple(_parsed(book)))
        return tuple(one for one in every if one.framework == framework or package in (one.package, one.bound.package))

    return book.remember("bounds about", package, answer)


def _parsed(book: Book) -> Iterator[FrameworkBound]:
    for framework in book.frameworks():
        for bound in book.bounds(framework):
            requirement = parse_requirement(bound.requirement)
            if requirement is not None:
                yield FrameworkBound(framework, bound, SpecifierSet(bound.versions), requirement)
