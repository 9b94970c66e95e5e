"""Releases of pip packages that the matrix, the machine or an index knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution.candidate import LazyList
from cudnn_resolve.resolution.metadata import ReleaseMetadata, incomplete_packages
from cudnn_resolve.resolution.offers import Offers, accepted_hashes
from cudnn_resolve.resolution.release import LATE, SDIST, UNDATED, Details, Release, declared, is_late, order, parse_version
from cudnn_resolve.resolution.tag import EVERYWHERE, Fit, Target, best_file, fit, python_of, tags_of
from cudnn_resolve.resolution.vendor import vendor_build

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, ExtraRelease, WheelRelease
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.source import Direct, Offer
    from cudnn_resolve.resolution.open_request import OpenRequest

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
"""Day of the final release of each Python. Source: the release schedules, PEP 494, 537, 569, 596, 619, 664, 693, 719 and 745."""


_CATALOGS = 16
"""A conflict tries a request on a dozen machines that differ in one thing, and comes back to each."""


class Releases:
    """All releases of pip packages, made once for each package."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest, offers: Offers) -> None:
        self._book = book
        self._machine = machine
        self._offers = offers
        self._direct = request.direct
        self._pre = request.pre
        self._wants_gpu = request.device == "gpu"
        self._limit = request.source.exclude_newer if request.source is not None else None
        self._releases: dict[str, LazyList[Release]] = {}
        self._plain: dict[str, LazyList[Release]] = {}
        self._of_builds: dict[str, dict[int, Release]] = {}
        """Package to the releases that are builds of a framework, by the identity of the build."""
        self.vendor = cache(partial(vendor_build, book, machine))
        """The installed build of a framework where it is an image's own, by its package."""
        self._compiled: dict[str, bool] = {}
        self._target = Target.of(machine)

    def of(self, package: str) -> LazyList[Release]:
        """Releases of the package, newest first, made as they are looked at; empty for one that nobody knows."""
        found = self._releases.get(package)
        if found is None:
            found = self._releases[package] = LazyList(self._make(package))
        return found

    def plain(self, package: str) -> LazyList[Release]:
        """Releases of a framework that nobody asked for, newest first.

        The wheels as they are, without what only an extra or the system brings.
        """
        found = self._plain.get(package)
        if found is None:
            found = self._plain[package] = LazyList(self._make_plain(package))
        return found

    def _make_plain(self, package: str) -> Iterator[Release]:
        own = [one for one in self.of(package) if one.fit.arch and (one.build is None or not _by_hand(one.build))]
        installed = self._machine.pip.get(package)
        kept = {one.text: one for one in reversed(own) if (one.index == "default" and one.served) or one.text == installed}
        for release in self._of_rows(package, self._book.releases(package)):
            if release.version.local is None or release.text == installed or not self._wants_gpu:
                kept.setdefault(release.text, release)  # a variant of another index or folder, such as +cpu, is never taken silently
        yield from sorted(kept.values(), key=order, reverse=True)

    def of_build(self, build: Build) -> Release | None:
        """The release of a framework's build."""
        known = self._of_builds.get(build.package)
        if known is None:
            known = self._of_builds[build.package] = {id(one.build): one for one in self.of(build.package) if one.build is not None}
        return known.get(id(build))

    def alone(self, build: Build) -> Release | None:
        """The release of a build without all the others of its package; None where those are made, or others than the tables have a say."""
        if build.package in self._of_builds or build.package in self._direct or self._offers.listing(build.package) is not None:
            return None
        return self._from_build(build, self._book.release(build.package, build.version), None)

    def _make(self, package: str) -> Iterator[Release]:
        direct = self._direct.get(package)
        if direct is not None:
            yield self._from_direct(direct)
            return
        framework = self._book.framework_of(package)
        builds = self._book.framework(framework).builds if framework else ()
        builds = tuple(build for build in builds if build.package == package)
        own = self.vendor(package)
        builds = (own, *builds) if own is not None else builds
        extras = self._book.extra_releases(package)
        rows = self._book.releases(package)
        if builds or extras:
            yield from self._gathered(package, rows, builds, extras)
        else:
            yield from self._of_rows(package, rows)

    def _of_rows(self, package: str, rows: Sequence[WheelRelease]) -> Iterator[Release]:
        """Releases of the configured indexes, newest first: what they offer, else what the matrix knows, and what is installed."""
        installed = self._installed(package)
        here = {installed.text, str(installed.version)} if installed is not None else set()
        for release in self._offered(package, rows):
            if release.text in here:
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
            for row in reversed(rows):  # the table is in order of version
                release = self._from_row(package, row)
                if release is not None and not is_late(row.date, self._limit):
                    yield release
            return
        known = {row.version: row for row in rows}
        only_accepted = self._offers.accepts_by_hash(package)
        for every in listing.offers:
            version = parse_version(every.version)
            offer = self._offers.accepted(package, every)
            if version is not None and (not only_accepted or offer.files):
                yield self._from_offer(package, version, offer, known.get(offer.version), pre_counts=self._pre or listing.only_prereleases)

    def _from_offer(self, package: str, version: Version, offer: Offer, row: WheelRelease | None, *, pre_counts: bool) -> Release:
        def look() -> Details:
            tags = tuple(dict.fromkeys(file.tag for file in offer.files if file.is_wheel))
            found = fit(tags, self._target)
            best = best_file(offer.files, self._target)
            if best is not None and not best.is_wheel:
                builds = self._builds(package, tags, best.uploaded or (row.date if row is not None else None), found)
                tags, found = SDIST, Fit(python=builds, arch=True, glibc=(0, 0))
            floor = best.requires_python if best is not None else next((one.requires_python for one in offer.files), None)
            return Details(
                fit=found,
                tags=tags,
                requires=self._requires(row) if row is not None else None,
                requires_python=floor or (row.requires_python if row else None),
                yanked=bool(offer.files) and all(file.yanked is not None for file in offer.files),
            )

        return Release(package=package, version=version, text=offer.version, look=look, offer=offer, pre_counts=pre_counts)

    def _from_direct(self, direct: Direct) -> Release:
        tags = tuple(file.tag for file in direct.offer.files) or SDIST
        details = Details(fit(tags, self._target), tags, direct.metadata.requires, direct.metadata.requires_python)
        text = direct.offer.version
        return Release(package=direct.name, version=Version(text), text=text, look=lambda: details, offer=direct.offer)

    def _gathered(
        self, package: str, rows: Sequence[WheelRelease], builds: Sequence[Build], extras: Sequence[ExtraRelease]
    ) -> Iterator[Release]:
        """Releases of several origins, in order of version."""
        known = {row.version: row for row in rows}
        listing = self._offers.listing(package)
        offers = {one.version: self._offers.accepted(package, one) for one in listing.offers} if listing is not None else None
        found = [self._from_build(build, known.get(build.version), offers) for build in builds]
        out = [release for release in found if release is not None]
        seen = {release.text for release in out}
        if not builds:
            out = list(self._offered(package, rows))
            seen = {release.text for release in out}
        for extra in extras:
            release = None if extra.version in seen else self._from_extra(extra, known)
            if release is not None:
                seen.add(extra.version)
                out.append(release)
        installed = None if builds else self._installed(package)
        if installed is not None and installed.version not in {release.version for release in out}:
            out.append(installed)
        yield from sorted(out, key=order, reverse=True)

    def _from_extra(self, extra: ExtraRelease, rows: Mapping[str, WheelRelease]) -> Release | None:
        version = parse_version(extra.version)
        if version is None:
            return None
        base = rows.get(version.public)
        if self._late(extra.package, extra.version, base):
            return None

        def look() -> Details:
            tags = tags_of(extra.pythons, extra.arch, extra.glibc)
            requires = declared(extra.requires, extra.requires_like, self._requires(base) if base else None)
            floor = extra.requires_python or (base.requires_python if base else None)
            return Details(fit(tags, self._target), tags, requires or (), floor, extra.yanked)

        return Release(package=extra.package, version=version, text=extra.version, look=look, index=extra.index)

    def _installed(self, package: str) -> Release | None:
        """The installed release as a candidate of its own: the indexes may have it no longer."""
        text = self._machine.pip.get(package)
        version = parse_version(text) if text is not None else None
        if text is None or version is None:
            return None
        row = self._book.release(package, text)
        own = self._machine.requires.get(package)
        requires = own if own is not None else (self._requires(row) or ()) if row is not None else ()
        details = Details(EVERYWHERE, (), requires)
        return Release(package=package, version=version, text=text, look=lambda: details)

    def _from_row(self, package: str, row: WheelRelease) -> Release | None:
        version = parse_version(row.version)
        if version is None:
            return None

        def look() -> Details:
            found = fit(row.tags, self._target) if row.tags else EVERYWHERE
            if "sdist" in row.tags and (self._too_old(package, row) or not self._builds(package, (), row.date, found)):
                found = Fit(python=False, arch=True, glibc=None)
            return Details(found, row.tags, self._requires(row) or (), row.requires_python, row.yanked)

        return Release(package=package, version=version, text=row.version, look=look)

    def _from_build(self, build: Build, row: WheelRelease | None, offers: Mapping[str, Offer] | None) -> Release | None:
        if build.variant == VENDOR:
            details = Details(EVERYWHERE, (), build.requires)
            text = build.wheel_version
            return Release(package=build.package, version=Version(build.version), text=text, look=lambda: details, build=build)
        version = parse_version(build.wheel_version)
        if version is None:
            return None
        # JAX itself is on the configured index even where its jaxlib is not.
        index = "default" if row is not None and version.local is None else build.index
        offer = offers.get(build.wheel_version) if offers is not None and index == "default" else None

        def look() -> Details:
            requires = declared(build.requires, build.requires_like, self._requires(row) if row else None)
            tags = tags_of(build.pythons, build.arch, build.glibc)
            if row is not None and build.index == "default":
                tags = tuple(tag for tag in row.tags if not build.pythons or python_of(tag) & set(build.pythons))
            if build.arch and self._machine.arch and self._machine.arch not in build.arch:
                tags = tags_of(build.pythons, build.arch, build.glibc)
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
            look=look,
            index=index,
            build=build,
            offer=offer,
            served=self._is_served(build, index, offer, asked=offers is not None),
            late=self._late(build.package, build.wheel_version, row),
        )

    def _is_served(self, build: Build, index: str, offer: Offer | None, *, asked: bool) -> bool:
        """False where the indexes were asked for a build and have no file of it, or none that the user accepts."""
        if not self._offers.accepts_by_hash(build.package):
            return not asked or index != "default" or offer is not None
        if index != "default":
            try:
                listing = self._offers.at(build.package, index)
            except IndexUnavailableError:
                return False  # what cannot be held against the hashes is not accepted
            offer = next((one for one in listing.offers if one.version == build.wheel_version), None) if listing is not None else offer
        elif not asked:
            return True
        return offer is not None and bool(self._offers.accepted(build.package, offer).files)

    def _late(self, package: str, text: str, row: WheelRelease | None) -> str | None:
        """Why a release of the tables does not count under a limit on uploads; never for what is installed."""
        if self._limit is None or self._machine.pip.get(package) == text:
            return None
        if row is None or row.date is None:
            return UNDATED
        return LATE if is_late(row.date, self._limit) else None

    def _builds(self, package: str, tags: Sequence[str], uploaded: str | None, found: Fit) -> bool:
        """False for a source archive of compiled code that has wheels for other Pythons only, or is older than the target's."""
        if any(tag.startswith("cp") for tag in tags) and not found.python:
            return False
        return not (is_older(uploaded, self._target.python) and self.is_compiled(package))

    def is_compiled(self, package: str) -> bool:
        """True for a package of compiled code, as far as the wheels of any of its releases tell."""
        answer = self._compiled.get(package)
        if answer is None:
            listing = self._offers.listing(package)
            tags = (file.tag for offer in (listing.offers if listing is not None else ()) for file in offer.files)
            rows = (tag for row in self._book.releases(package) for tag in row.tags)
            answer = self._compiled[package] = is_compiled(tags) or is_compiled(rows)
        return answer

    def _too_old(self, package: str, row: WheelRelease) -> bool:
        """True for a source archive of compiled code that knows nothing of the target's Python.

        Told by the next release with compiled wheels: where even that one has none for this Python, the older source will not build.
        """
        rows = self._book.releases(package)
        place = next((number for number, one in enumerate(rows) if one is row), len(rows))
        for one in rows[place + 1 :]:
            compiled = tuple(tag for tag in one.tags if tag.startswith("cp") and not tag.endswith("any"))
            if compiled:
                return not fit(compiled, self._target).python
        return False

    def _requires(self, row: WheelRelease) -> tuple[str, ...] | None:
        if row.requires is None:
            return None
        return row.requires.get(self._machine.arch or "x86_64") or row.requires.get("x86_64") or ()


def _by_hand(build: Build) -> bool:
    """True where a GPU build is the same wheel as the CPU build, and an extra or libraries from outside make the difference."""
    if build.variant == VENDOR:
        return False
    return build.extra is not None or build.delivery in ("system", "none") or (build.index != "default" and "+" not in build.wheel_version)


def is_older(uploaded: str | None, python: tuple[int, int] | None) -> bool:
    """True for a file from before a Python, both known; a Python after all of the list counts as the last of it."""
    if uploaded is None or python is None or python < min(RELEASED):
        return False
    return uploaded[:10] < RELEASED[min(python, max(RELEASED))]


def is_compiled(tags: Iterable[str]) -> bool:
    """True where a compressed wheel tag is for a platform, not for any."""
    return any(tag != "sdist" and not tag.endswith("any") for tag in tags)


class Catalog(NamedTuple):
    """What is known of pip packages on one machine."""

    offers: Offers
    metadata: ReleaseMetadata
    releases: Releases


def catalog_of(book: Book, machine: Machine, request: OpenRequest) -> Catalog:
    """The catalog for a machine, shared by all resolutions over one book for which it is the same; the last few are kept."""
    place = (machine.python, machine.free_threaded, machine.arch, machine.glibc)
    own = (machine.toolkits, machine.cudnn, machine.of_jetpack) if machine.pip else ()  # what a vendor's build is told by
    there = (*machine.pip.items(), *machine.requires.items())
    # A catalog holds what these identities are of, so that none is taken for another as long as it is kept.
    identities = (id(request.source), id(request.direct) if request.direct else 0)
    wishes = (request.device, request.pre, tuple(accepted_hashes(request, book).items()), incomplete_packages(request, book))

    key = (*place, *own, there, *identities, *wishes)
    catalogs: dict[tuple[object, ...], tuple[Offers, Releases, dict[str | None, ReleaseMetadata]]]
    catalogs = book.remember("catalogs", None, dict)
    found = catalogs.get(key)
    if found is None:
        while len(catalogs) >= _CATALOGS:
            del catalogs[next(iter(catalogs))]
        offers = Offers(book, machine, request)
        found = catalogs[key] = (offers, Releases(book, machine, request, offers), {})
    offers, releases, by_python = found  # markers ask for the patch release of Python, too, and are all that does
    metadata = by_python.get(machine.python_full)
    if metadata is None:
        metadata = by_python[machine.python_full] = ReleaseMetadata(book, machine, request, offers)
    return Catalog(offers, metadata, releases)
