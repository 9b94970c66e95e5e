"""Bounds of the matrix: what a framework needs of other packages although its metadata does not say so.

A bound requests no package. It applies to a package in the environment, whatever requires it and whichever is decided first: a release
of the framework and a release outside the bound own a slot that only one of them can have. For packages that the framework requires
itself, that are installed or that the user names, the bound is a plain requirement, too, which makes a better explanation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Bound
from cudnn_resolve.resolution.candidate import Need, slot_need
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.key import SlotKey, pip_key
from cudnn_resolve.resolution.pin_override import within
from cudnn_resolve.resolution.release import Release, parse_version


class FrameworkBound(NamedTuple):
    """A bound, parsed."""

    framework: str
    row: Bound
    versions: SpecifierSet
    requirement: Requirement
    package: str
    """The bounded package."""

    def applies_to(self, book: Book, release: Release) -> bool:
        """True for a release of the framework, or of the companion that the row names, that has this bound."""
        owner = self.row.package
        if owner != release.package and (owner is not None or book.framework_of(release.package) != self.framework):
            return False
        return self.versions.contains(release.version, prereleases=True)

    def allows(self, release: Release) -> bool:
        """True for a release of the bounded package within the bound."""
        return self.requirement.specifier.contains(release.version, prereleases=True)

    def slot(self, owner: str, text: str, because: str) -> Need:
        """Need for the slot that a bounded framework and a release outside the bound both own."""
        files = f"{self.requirement} for {self.row.package or self.framework} {self.versions}"
        return slot_need(SlotKey(files), owner, text, because)

    def plain_need(self, context: Context, release: Release) -> Need:
        """The bound of a release as a plain requirement."""
        return Need(pip_key(self.package), within(self.requirement.specifier, context), self.row.requirement, self.because(release))

    def because(self, release: Release) -> str:
        """Why the bound applies to a release."""
        return f"{release.package} {release.version.public}: {self.row.reason}"


def bound_needs(context: Context, release: Release) -> Iterator[Need]:
    """Bounds that a release has, and bounds of frameworks that it violates.

    A bound of a companion is a plain requirement: the companion is decided before the bounded package, so that the latter gives way.
    """
    book = context.book
    for bound in bounds_about(book, release.package):
        if bound.applies_to(book, release) and book.framework_of(release.package) is None:
            yield bound.plain_need(context, release)
        elif bound.applies_to(book, release):
            yield bound.slot("inside", str(bound.requirement), bound.because(release))
        elif bound.package == release.package and not bound.allows(release):
            because = f"{release.package} {release.text} is not {bound.requirement}: {bound.row.reason}"
            yield bound.slot("outside", f"no {bound.row.package or bound.framework} {bound.versions}", because)


def direct_needs(context: Context, release: Release) -> Iterator[Need]:
    """Bounds of a framework's release on packages that are present whatever else is chosen."""
    # setuptools is always present: a requirement of frameworks (tensorboard) installs it if nothing else does.
    present: set[str] = {"setuptools", *context.machine.pip}
    present.update(canonicalize_name(requirement.name) for requirement, _ in context.metadata.requirements(release))
    present.update(line.name for line in context.request.requirements)
    for bound in bounds_about(context.book, release.package):
        if bound.package in present and bound.applies_to(context.book, release):
            yield bound.plain_need(context, release)


def bounds_of_installed(book: Book, framework: str, package: str, versions: Mapping[str, str]) -> Iterator[tuple[str, FrameworkBound]]:
    """Bounds of a framework in an environment, each with its owner: `torch 2.6.0`, or an installed companion."""
    for bound in _bounds(book):
        owner = bound.row.package or package
        version = parse_version(versions.get(owner, "")) if bound.framework == framework else None
        if version is not None and bound.versions.contains(version.base_version, prereleases=True):
            yield f"{owner} {versions[owner]}", bound


def bounds_about(book: Book, package: str) -> tuple[FrameworkBound, ...]:
    """Bounds that a package has or that limit it."""

    def answer() -> tuple[FrameworkBound, ...]:
        framework = book.framework_of(package)
        return tuple(bound for bound in _bounds(book) if bound.framework == framework or package in (bound.package, bound.row.package))

    return book.remember("bounds about", package, answer)


def _bounds(book: Book) -> list[FrameworkBound]:
    def answer() -> list[FrameworkBound]:
        rows = ((framework, row, Requirement(row.requirement)) for framework in book.frameworks() for row in book.rows(Bound, framework))
        return [FrameworkBound(name, row, SpecifierSet(row.versions), bound, canonicalize_name(bound.name)) for name, row, bound in rows]

    return book.remember("bounds", None, answer)
