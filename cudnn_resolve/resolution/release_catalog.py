"""Releases of pip packages, from the matrix, the environment and the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

from packaging.version import Version

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build, ExtraRelease, WheelRelease
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.source import Direct, Offer
from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution.candidate import LazyList
from cudnn_resolve.resolution.metadata import ReleaseMetadata, incomplete_packages
from cudnn_resolve.resolution.offers import Offers, accepted_hashes
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import (
    SDIST,
    TOO_NEW,
    UNDATED,
    Details,
    Release,
    build_requires,
    is_too_new,
    parse_version,
    row_version,
    sort_key,
)
from cudnn_resolve.resolution.tag import EVERYWHERE, Fit, TargetPython, fit, interpreters_of, tags_of
from cudnn_resolve.resolution.vendor import vendor_build

RELEASED: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (3, 6): "2016-12-23",
        (3, 7): "2018-06-27",
        (3, 8): "2019-10-14",
        (3, 9): "2020-10-05",
        (3, 10): "2021-10-04",
        (3, 11): "2022-10-24",
        (3, 12): "2023-10-02",
        (3, 13): "2024-10-07",
        (3, 14): "2025-10-07",
    }
)
"""Date of each Python's final release. Source: the release schedules, PEP 494, 537, 569, 596, 619, 664, 693, 719 and 745."""


_CATALOGS = 16
"""Explaining a conflict tries a dozen machines that differ in one fact, and returns to each."""


class Releases:
    """Releases of every pip package, computed once per package."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest, offers: Offers) -> None:
        self._book = book
        self._machine = machine
        self._offers = offers
        self._direct = request.direct
        self._pre = request.pre
        self._wants_gpu = request.device == "gpu"
        self._upload_limit = request.source.exclude_newer if request.source is not None else None
        self.of: Callable[[str], LazyList[Release]] = cache(lambda package: LazyList(self._make(package)))
        """Releases of a package, newest first, computed lazily; empty for an unknown package."""
        self.plain: Callable[[str], LazyList[Release]] = cache(lambda package: LazyList(self._make_plain(package)))
        """Releases of an unrequested framework, newest first: the wheels alone, without CUDA libraries from an extra or the system."""
        self._by_build: dict[str, dict[int, Release]] = {}
        """Package to its releases by the identity of their builds."""
        self.vendor = cache(partial(vendor_build, book, machine))
        """Vendor build of an installed framework, by package; None if it comes from an index."""
        self.is_compiled: Callable[[str], bool] = cache(self._is_compiled)
        """True if any release of a package has a platform wheel."""
        self._target = TargetPython.of(machine)

    def _make_plain(self, package: str) -> Iterator[Release]:
        own = [
            release
            for release in self.of(package)
            if release.details.fit.arch and (release.build is None or not _needs_setup(release.build))
        ]
        installed = self._machine.pip.get(package)
        kept = {
            release.text: release
            for release in reversed(own)
            if (release.index == "default" and release.is_on_index) or release.text == installed
        }
        for release in self._of_rows(package, self._book.releases(package)):
            if release.version.local is None or release.text == installed or not self._wants_gpu:
                kept.setdefault(release.text, release)  # variants of other indexes, such as +cpu, are never chosen silently
        yield from sorted(kept.values(), key=sort_key, reverse=True)

    def of_build(self, build: Build) -> Release | None:
        """The release of a framework's build."""
        by_build = self._by_build.get(build.package)
        if by_build is None:
            by_build = {id(release.build): release for release in self.of(build.package) if release.build is not None}
            self._by_build[build.package] = by_build
        return by_build.get(id(build))

    def alone(self, build: Build) -> Release | None:
        """The release of a build without computing the others; None if these are known, or if not only the tables define it."""
        if build.package in self._by_build or build.package in self._direct or self._offers.listing(build.package) is not None:
            return None
        return self._from_build(build, self._book.release(build.package, build.version), None)

    def installed(self, package: str) -> Release | None:
        """The installed release of a package among all its releases; None if it is not among them, such as a build that no table has."""
        text = self._machine.pip.get(package)
        return next((release for release in self.of(package) if text in (release.text, str(release.version))), None)

    def _make(self, package: str) -> Iterator[Release]:
        direct = self._direct.get(package)
        if direct is not None:
            yield self._from_direct(direct)
            return
        builds = self._book.builds_of(package)
        vendor = self.vendor(package)
        builds = (vendor, *builds) if vendor is not None else builds
        extras = self._book.extra_releases(package)
        rows = self._book.releases(package)
        if builds or extras:
            yield from self._merged(package, rows, builds, extras)
        else:
            yield from self._of_rows(package, rows)

    def _of_rows(self, package: str, rows: Sequence[WheelRelease]) -> Iterator[Release]:
        """Releases on the configured indexes, or in the matrix if these were not queried, and the installed one, newest first."""
        installed = self._installed(package)
        spellings = {installed.text, str(installed.version)} if installed is not None else set()
        for release in self._offered(package, rows):
            if release.text in spellings:
                installed = None
            elif installed is not None and release.version < installed.version:
                yield installed
                installed = None
            yield release
        if installed is not None:
            yield installed

    def _offered(self, package: str, rows: Sequence[WheelRelease]) -> Iterator[Release]:
        listing = self._offers.listing(package)
        if listing is None:
            for row in reversed(rows):  # the table is sorted by version
                if not is_too_new(row.date, self._upload_limit):
                    yield self._from_row(package, row)
            return
        by_version = {row.version: row for row in rows}
        only_accepted = self._offers.accepts_by_hash(package)
        for listed in listing.offers:
            version = parse_version(listed.version)
            offer = self._offers.accepted(package, listed)
            if version is not None and (not only_accepted or offer.files):
                pre_counts = self._pre or listing.only_prereleases
                yield self._from_offer(package, version, offer, by_version.get(offer.version), pre_counts=pre_counts)

    def _merged(
        self, package: str, rows: Sequence[WheelRelease], builds: Sequence[Build], extras: Sequence[ExtraRelease]
    ) -> Iterator[Release]:
        """Releases of several origins, newest first."""
        by_version = {row.version: row for row in rows}
        if builds:
            listing = self._offers.listing(package)
            offers = {offer.version: self._offers.accepted(package, offer) for offer in listing.offers} if listing is not None else None
            found = [self._from_build(build, by_version.get(build.version), offers) for build in builds]
            releases = [release for release in found if release is not None]
        else:
            releases = list(self._offered(package, rows))
        seen = {release.text for release in releases}
        for extra in extras:
            release = None if extra.version in seen else self._from_extra(extra, by_version)
            if release is not None:
                seen.add(extra.version)
                releases.append(release)
        installed = None if builds else self._installed(package)
        if installed is not None and installed.version not in {release.version for release in releases}:
            releases.append(installed)
        yield from sorted(releases, key=sort_key, reverse=True)

    def _from_offer(self, package: str, version: Version, offer: Offer, row: WheelRelease | None, *, pre_counts: bool) -> Release:
        def load() -> Details:
            tags = tuple(dict.fromkeys(file.tag for file in offer.files if file.is_wheel))
            found = fit(tags, self._target)
            best = self._offers.file(offer)
            if best is not None and not best.is_wheel:
                can_build = self._can_build(package, tags, best.uploaded or (row.date if row is not None else None), found)
                tags, found = SDIST, Fit(python=can_build, arch=True, glibc=(0, 0))
            requires_python = best.requires_python if best is not None else next((file.requires_python for file in offer.files), None)
            return Details(
                fit=found,
                tags=tags,
                requires=self._requires(row) if row is not None else None,
                requires_python=requires_python or (row.requires_python if row else None),
                yanked=bool(offer.files) and all(file.yanked is not None for file in offer.files),
            )

        return Release(package=package, version=version, text=offer.version, load_details=load, offer=offer, pre_counts=pre_counts)

    def _from_direct(self, direct: Direct) -> Release:
        tags = tuple(file.tag for file in direct.offer.files) or SDIST
        details = Details(fit(tags, self._target), tags, direct.metadata.requires, direct.metadata.requires_python)
        text = direct.offer.version
        return Release(package=direct.name, version=Version(text), text=text, load_details=lambda: details, offer=direct.offer)

    def _from_extra(self, extra: ExtraRelease, rows: Mapping[str, WheelRelease]) -> Release | None:
        version = parse_version(extra.version)
        if version is None:
            return None
        base = rows.get(version.public)
        if self._why_too_new(extra.package, extra.version, base):
            return None

        def load() -> Details:
            tags = tags_of(extra.pythons, extra.arch, extra.glibc)
            requires = build_requires(extra.requires, extra.requires_like, self._requires(base) if base else None)
            requires_python = extra.requires_python or (base.requires_python if base else None)
            return Details(fit(tags, self._target), tags, requires or (), requires_python, extra.yanked)

        return Release(package=extra.package, version=version, text=extra.version, load_details=load, index=extra.index)

    def _installed(self, package: str) -> Release | None:
        """The installed release as a candidate: the indexes may no longer have it."""
        text = self._machine.pip.get(package)
        version = parse_version(text) if text is not None else None
        if text is None or version is None:
            return None
        requires = self._machine.requires.get(package)
        if requires is None:
            row = self._book.release(package, text)
            requires = (self._requires(row) or ()) if row is not None else ()
        details = Details(EVERYWHERE, (), requires)
        return Release(package=package, version=version, text=text, load_details=lambda: details)

    def _from_row(self, package: str, row: WheelRelease) -> Release:
        def load() -> Details:
            found = fit(row.tags, self._target) if row.tags else EVERYWHERE
            if "sdist" in row.tags and (self._predates_python(package, row) or not self._can_build(package, (), row.date, found)):
                found = Fit(python=False, arch=True, glibc=None)
            return Details(found, row.tags, self._requires(row) or (), row.requires_python, row.yanked)

        return Release(package=package, version=row_version(row.version), text=row.version, load_details=load)

    def _from_build(self, build: Build, row: WheelRelease | None, offers: Mapping[str, Offer] | None) -> Release | None:
        if build.variant == VENDOR:
            details = Details(EVERYWHERE, (), build.requires)
            text = build.wheel_version
            return Release(package=build.package, version=Version(build.version), text=text, load_details=lambda: details, build=build)
        version = parse_version(build.wheel_version)
        if version is None:
            return None
        # JAX itself is on the configured index even if its jaxlib is not.
        index = "default" if row is not None and version.local is None else build.index
        offer = offers.get(build.wheel_version) if offers is not None and index == "default" else None

        def load() -> Details:
            requires = build_requires(build.requires, build.requires_like, self._requires(row) if row else None)
            tags = self._tags_of_build(build, row)
            return Details(
                fit=fit(tags, self._target),
                tags=tags,
                requires=requires if requires is not None or offer is not None else (),
                requires_python=row.requires_python if row else None,
                yanked=build.yanked or bool(row and row.yanked),
            )

        return Release(
            package=build.package,
            version=version,
            text=build.wheel_version,
            load_details=load,
            index=index,
            build=build,
            offer=offer,
            is_on_index=self._is_on_index(build, index, offer, is_queried=offers is not None),
            too_new=self._why_too_new(build.package, build.wheel_version, row),
        )

    def _tags_of_build(self, build: Build, row: WheelRelease | None) -> tuple[str, ...]:
        is_for_other_arch = bool(build.arch and self._machine.arch) and self._machine.arch not in build.arch
        if row is None or build.index != "default" or is_for_other_arch:
            return tags_of(build.pythons, build.arch, build.glibc)
        return tuple(tag for tag in row.tags if not build.pythons or interpreters_of(tag) & set(build.pythons))

    def _is_on_index(self, build: Build, index: str, offer: Offer | None, *, is_queried: bool) -> bool:
        """False if the indexes were queried for a build and have no file of it that the user accepts."""
        if not self._offers.accepts_by_hash(build.package):
            return not is_queried or index != "default" or offer is not None
        if index != "default":
            try:
                offer = self._offers.on_index(build.package, build.wheel_version, index)
            except IndexUnavailableError:
                return False  # hashes that cannot be compared are not accepted
        elif not is_queried:
            return True
        return offer is not None and bool(offer.files)

    def _why_too_new(self, package: str, text: str, row: WheelRelease | None) -> str | None:
        """Why the upload limit excludes a release of the tables; None if it does not, and for the installed release."""
        if self._upload_limit is None or self._machine.pip.get(package) == text:
            return None
        if row is None or row.date is None:
            return UNDATED
        return TOO_NEW if is_too_new(row.date, self._upload_limit) else None

    def _can_build(self, package: str, tags: Sequence[str], uploaded: str | None, found: Fit) -> bool:
        """False for the source of compiled code if it has wheels for other Pythons only, or predates the target's Python."""
        if any(tag.startswith("cp") for tag in tags) and not found.python:
            return False
        return not (is_older(uploaded, self._target.python) and self.is_compiled(package))

    def _is_compiled(self, package: str) -> bool:
        listing = self._offers.listing(package)
        listed = (file.tag for offer in (listing.offers if listing is not None else ()) for file in offer.files)
        harvested = (tag for row in self._book.releases(package) for tag in row.tags)
        return is_compiled(listed) or is_compiled(harvested)

    def _predates_python(self, package: str, row: WheelRelease) -> bool:
        """True for the source of compiled code that predates the target's Python.

        The next release with compiled wheels decides: if even that has none for this Python, the older source will not build.
        """
        rows = self._book.releases(package)
        place = next((number for number, other in enumerate(rows) if other is row), len(rows))
        for later in rows[place + 1 :]:
            compiled = tuple(tag for tag in later.tags if tag.startswith("cp") and not tag.endswith("any"))
            if compiled:
                return not fit(compiled, self._target).python
        return False

    def _requires(self, row: WheelRelease) -> tuple[str, ...] | None:
        if row.requires is None:
            return None
        return row.requires.get(self._machine.arch or "x86_64") or row.requires.get("x86_64") or ()


def _needs_setup(build: Build) -> bool:
    """True if the wheel is that of the CPU build, and only an extra or external libraries make it a GPU build."""
    if build.variant == VENDOR:
        return False
    return build.extra is not None or build.delivery in ("system", "none") or (build.index != "default" and "+" not in build.wheel_version)


def is_older(uploaded: str | None, python: tuple[int, int] | None) -> bool:
    """True for a file that was uploaded before a Python's release; an unlisted newer Python counts as the last listed one."""
    if uploaded is None or python is None or python < min(RELEASED):
        return False
    return uploaded[:10] < RELEASED[min(python, max(RELEASED))]


def is_compiled(tags: Iterable[str]) -> bool:
    """True if a compressed tag set is for a platform."""
    return any(tag != "sdist" and not tag.endswith("any") for tag in tags)


class Catalog(NamedTuple):
    """The pip packages available to a machine."""

    offers: Offers
    metadata: ReleaseMetadata
    releases: Releases


def catalog_of(book: Book, machine: Machine, request: OpenRequest) -> Catalog:
    """The catalog for a machine, shared by all resolutions for which it is the same; a book keeps the last few."""
    platform = (machine.python, machine.free_threaded, machine.arch, machine.glibc)
    vendor = (machine.toolkits, machine.cudnn, machine.of_jetpack) if machine.pip else ()  # what vendor builds depend on
    installed = (*machine.pip.items(), *machine.requires.items())
    # A catalog keeps these objects alive, so their identities stay unique.
    identities = (id(request.source), id(request.direct) if request.direct else 0)
    options = (request.device, request.pre, tuple(accepted_hashes(request, book).items()), incomplete_packages(request, book))

    key = (*platform, *vendor, installed, *identities, *options)
    catalogs: dict[tuple[object, ...], tuple[Offers, Releases, dict[str | None, ReleaseMetadata]]]
    catalogs = book.remember("catalogs", None, dict)
    found = catalogs.get(key)
    if found is None:
        while len(catalogs) >= _CATALOGS:
            del catalogs[next(iter(catalogs))]
        offers = Offers(book, machine, request)
        found = catalogs[key] = (offers, Releases(book, machine, request, offers), {})
    offers, releases, by_python = found  # only markers depend on the patch release of Python
    metadata = by_python.get(machine.python_full)
    if metadata is None:
        metadata = by_python[machine.python_full] = ReleaseMetadata(book, machine, request, offers)
    return Catalog(offers, metadata, releases)
