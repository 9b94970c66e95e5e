"""Releases of pip packages as candidates, and what each of them requires: from the matrix, the machine and the indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.requirement.derive import VENDOR
from cudnn_resolve.requirement.extra import named_extras
from cudnn_resolve.requirement.source import Metadata, Offer, Place
from cudnn_resolve.resolution.accepted import accepted_hashes, with_hashes
from cudnn_resolve.resolution.candidate import LazyList
from cudnn_resolve.resolution.marker import marker_environment
from cudnn_resolve.resolution.release import SDIST, Details, Release, declared, is_late, order, parse_requirement, parse_version
from cudnn_resolve.resolution.sdist import is_compiled, is_older
from cudnn_resolve.resolution.tag import Fit, Target, best_file, fit, python_of, tags_of
from cudnn_resolve.resolution.vendor import vendor_build

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build, ExtraRelease, WheelRelease
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.source import Direct, File, Listing
    from cudnn_resolve.resolution.opened import OpenRequest


_OF_ONE_FILE = ("metadata-", "file-")
"""How codes of errors begin that speak of one file: that release is no candidate, and others may be."""


class Shelf:
    """All releases of pip packages that the matrix, the machine or an index knows, made once for each package."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest) -> None:
        self._book = book
        self._machine = machine
        self._source = request.source
        self._direct = request.direct
        self._hashes = accepted_hashes(request, book)
        self._incomplete = _incomplete(request, book)
        self._pre = request.pre
        self._wants_gpu = request.device == "gpu"
        self._limit = request.source.exclude_newer if request.source is not None else None
        self._releases: dict[str, LazyList[Release]] = {}
        self._plain: dict[str, LazyList[Release]] = {}
        self.vendor = cache(partial(vendor_build, book, machine))
        """The installed build of a framework where it is an image's own, by its package."""
        self._compiled: dict[str, bool] = {}
        self._markers: dict[tuple[str, str], bool] = {}
        self._requires_of: dict[int, Metadata | None] = {}
        self._unreadable: dict[int, str] = {}
        self._target = Target(machine.python, machine.free_threaded, machine.arch, machine.glibc)
        self._environment = marker_environment(machine)

    def releases(self, package: str) -> LazyList[Release]:
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
        own = [one for one in self.releases(package) if one.fit.arch and (one.build is None or not _by_hand(one.build))]
        installed = self._machine.pip.get(package)
        kept = {one.text: one for one in reversed(own) if (one.index == "default" and one.served) or one.text == installed}
        table = self._book.package(package)
        for release in self._of_rows(package, table.releases if table else ()):
            if release.version.local is None or release.text == installed or not self._wants_gpu:
                kept.setdefault(release.text, release)  # a variant of another index or folder, such as +cpu, is never taken silently
        yield from sorted(kept.values(), key=order, reverse=True)

    def offer(self, release: Release) -> Offer | None:
        """The files of a release; None where no index was asked, or none has it.

        IndexUnavailableError where the index that the matrix names for it does not answer.
        """
        if release.offer is not None or self._source is None or release.index == "default":
            return release.offer
        row = self._book.index(release.index)
        listing = self._source.listing(release.package, Place(row.url, row.kind))
        found = next((one for one in listing.offers if one.version == release.text), None) if listing is not None else None
        accepted = self._hashes.get(release.package)
        return found if found is None or accepted is None else with_hashes(found, accepted)

    def file(self, offer: Offer) -> File | None:
        """The file of an offer that serves the target best; None where none does."""
        return best_file(offer.files, self._target)

    def metadata(self, release: Release) -> Metadata | None:
        """What a release says of itself, asked of the index where the matrix does not know it; None where nobody does."""
        known = Metadata(release.requires, release.requires_python, ()) if release.requires is not None else None
        if known is not None and release.package not in self._incomplete:
            return known
        key = id(release)
        if key not in self._requires_of:
            direct = self._direct.get(release.package)
            offer = release.offer
            file = self.file(offer) if offer is not None else None
            if direct is not None:
                self._requires_of[key] = direct.metadata
            elif self._source is None or file is None:
                self._requires_of[key] = known
            else:
                self._requires_of[key] = self._ask(release, file) or known
        return self._requires_of[key]

    def _ask(self, release: Release, file: File) -> Metadata | None:
        assert self._source is not None
        try:
            return self._source.metadata(release.package, file)
        except IndexUnavailableError as error:
            if not error.code.startswith(_OF_ONE_FILE):
                raise
            self._unreadable[id(release)] = error.message
            return None

    def unreadable(self, release: Release) -> str | None:
        """Why the metadata of a release cannot be used, in words; None where it can, or nobody knows it."""
        if self.metadata(release) is None and self.is_offline and release.offer is not None:
            return f"what {release.package} {release.text} requires is not in the cache, and nobody is asked offline"
        return self._unreadable.get(id(release))

    def is_answered(self, package: str) -> bool:
        """True where the indexes were asked for a package: what they do not have then is nowhere."""
        return package in self._direct or self._listing(package) is not None

    def accepts_by_hash(self, package: str) -> bool:
        """True where the user accepts files of a package by their hashes only."""
        return package in self._hashes

    def is_known(self, package: str) -> bool:
        """True where everything is known that the indexes offer of a package."""
        listing = self._listing(package)
        return listing is not None and bool(listing.offers) and not listing.is_partial

    @property
    def is_offline(self) -> bool:
        """True where indexes answer from the cache alone."""
        return self._source is not None and self._source.offline

    def requires(self, release: Release) -> tuple[str, ...]:
        """Its Requires-Dist lines; none for a release whose metadata nobody knows."""
        found = self.metadata(release)
        return found.requires if found is not None else ()

    def expect(self, release: Release, extras: tuple[str, ...]) -> None:
        """Lets the source ask ahead for every package that a release requires."""
        if self._source is not None:
            names = (canonicalize_name(requirement.name) for requirement, _ in self.requirements(release, extras))
            self._source.expect(name for name in names if name not in self._direct)

    def expect_metadata(self, release: Release) -> None:
        """Lets the source ask ahead for what a release says of itself."""
        if self._source is None or release.requires is not None or release.offer is None or id(release) in self._requires_of:
            return
        file = self.file(release.offer)
        if file is not None and release.package not in self._direct:
            self._source.expect_metadata(release.package, file)

    def origins(self, package: str) -> tuple[str, ...]:
        """Addresses of the indexes that have a package, where the best version of several wins."""
        listing = self._listing(package)
        return listing.origins if listing is not None else ()

    def left_out(self, package: str) -> tuple[str, ...]:
        """What the user's settings left out of the releases of a package, in words."""
        listing = self._listing(package)
        return listing.left_out if listing is not None else ()

    def _listing(self, package: str) -> Listing | None:
        found = self._source.listing(package) if self._source is not None else None
        # What the matrix knows of an index that cannot be asked is more than what a folder of wheels has.
        return None if found is not None and found.is_partial and self._book.package(package) is not None else found

    def applies(self, text: str) -> bool:
        """True where the marker of a requirement holds for the target, or there is none."""
        requirement = parse_requirement(text)
        return requirement is None or requirement.marker is None or self._holds(requirement, str(requirement.marker), "")

    def requirements(self, release: Release, extras: tuple[str, ...] = ()) -> Iterator[tuple[Requirement, str | None]]:
        """Requirements of the release on this machine, each with the extra that brings it (None: it always holds)."""
        for line in self.requires(release):
            named = named_extras(line) if "extra" in line and ";" in line else ()
            if named and not any(extra in named for extra in extras):
                continue
            requirement = parse_requirement(line)
            if requirement is None:
                continue
            if requirement.marker is None:
                yield requirement, None
                continue
            marker = str(requirement.marker)
            if self._holds(requirement, marker, ""):
                yield requirement, None
                continue
            for extra in extras:
                if self._holds(requirement, marker, extra):
                    yield requirement, extra
                    break

    def _holds(self, requirement: Requirement, marker: str, extra: str) -> bool:
        key = (marker, extra)
        answer = self._markers.get(key)
        if answer is None:
            try:
                answer = bool(requirement.marker and requirement.marker.evaluate({**self._environment, "extra": extra}))
            except (UndefinedEnvironmentName, UndefinedComparison):
                answer = False
            self._markers[key] = answer
        return answer

    def _make(self, package: str) -> Iterator[Release]:
        direct = self._direct.get(package)
        if direct is not None:
            yield self._from_direct(direct)
            return
        table = self._book.package(package)
        framework = self._book.framework_of(package)
        builds = self._book.framework(framework).builds if framework else ()
        builds = tuple(build for build in builds if build.package == package)
        own = self.vendor(package)
        builds = (own, *builds) if own is not None else builds
        extras = self._book.extra_releases(package)
        rows = table.releases if table else ()
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
        listing = self._listing(package)
        if listing is None:
            for row in reversed(rows):  # the table is in order of version
                release = self._from_row(package, row)
                if release is not None and not is_late(row.date, self._limit):
                    yield release
            return
        known = {row.version: row for row in rows}
        accepted = self._hashes.get(package)
        for every in listing.offers:
            version = parse_version(every.version)
            offer = every if accepted is None else with_hashes(every, accepted)
            if version is not None and (accepted is None or offer.files):
                yield self._from_offer(package, version, offer, known.get(offer.version), lone=self._pre or listing.only_prereleases)

    def _from_offer(self, package: str, version: Version, offer: Offer, row: WheelRelease | None, *, lone: bool) -> Release:
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

        return Release(package=package, version=version, text=offer.version, look=look, offer=offer, lone=lone)

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
        listing = self._listing(package)
        accepted = self._hashes.get(package)
        offers = None
        if listing is not None:
            offers = {offer.version: offer if accepted is None else with_hashes(offer, accepted) for offer in listing.offers}
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
        if self._is_late(extra.package, extra.version, base):
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
        table = self._book.package(package)
        row = next((row for row in table.releases if row.version == text), None) if table else None
        own = self._machine.requires.get(package)
        requires = own if own is not None else (self._requires(row) or ()) if row is not None else ()
        details = Details(Fit(python=True, arch=True, glibc=(0, 0)), (), requires)
        return Release(package=package, version=version, text=text, look=lambda: details)

    def _from_row(self, package: str, row: WheelRelease) -> Release | None:
        version = parse_version(row.version)
        if version is None:
            return None

        def look() -> Details:
            found = fit(row.tags, self._target) if row.tags else Fit(python=True, arch=True, glibc=(0, 0))
            if "sdist" in row.tags and (self._too_old(package, row) or not self._builds(package, (), row.date, found)):
                found = Fit(python=False, arch=True, glibc=None)
            return Details(found, row.tags, self._requires(row) or (), row.requires_python, row.yanked)

        return Release(package=package, version=version, text=row.version, look=look)

    def _from_build(self, build: Build, row: WheelRelease | None, offers: Mapping[str, Offer] | None) -> Release | None:
        if build.variant == VENDOR:
            details = Details(Fit(python=True, arch=True, glibc=(0, 0)), (), build.requires)
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
            late=self._is_late(build.package, build.wheel_version, row),
        )

    def _is_served(self, build: Build, index: str, offer: Offer | None, *, asked: bool) -> bool:
        """False where the indexes were asked for a build and have no file of it, or none that the user accepts."""
        if build.package not in self._hashes:
            return not asked or index != "default" or offer is not None
        if index != "default" and self._source is not None:
            row = self._book.index(index)
            try:
                listing = self._source.listing(build.package, Place(row.url, row.kind))
            except IndexUnavailableError:
                return False  # what cannot be held against the hashes is not accepted
            every = {one.version: one for one in listing.offers} if listing is not None else {}
            offer = every.get(build.wheel_version)
        if not asked and index == "default":
            return True
        return offer is not None and bool(with_hashes(offer, self._hashes[build.package]).files)

    def _is_late(self, package: str, text: str, row: WheelRelease | None) -> bool:
        """True where the tables know that a release was uploaded too late; never for what is installed."""
        return row is not None and self._machine.pip.get(package) != text and is_late(row.date, self._limit)

    def _builds(self, package: str, tags: Sequence[str], uploaded: str | None, found: Fit) -> bool:
        """False for a source archive of compiled code that has wheels for other Pythons only, or is older than the target's."""
        if any(tag.startswith("cp") for tag in tags) and not found.python:
            return False
        return not (is_older(uploaded, self._target.python) and self.is_compiled(package))

    def is_compiled(self, package: str) -> bool:
        """True for a package of compiled code, as far as the wheels of any of its releases tell."""
        answer = self._compiled.get(package)
        if answer is None:
            listing, table = self._listing(package), self._book.package(package)
            tags = (file.tag for offer in (listing.offers if listing is not None else ()) for file in offer.files)
            rows = (tag for row in (table.releases if table is not None else ()) for tag in row.tags)
            answer = self._compiled[package] = is_compiled(tags) or is_compiled(rows)
        return answer

    def _too_old(self, package: str, row: WheelRelease) -> bool:
        """True for a source archive of compiled code that knows nothing of the target's Python.

        Told by the next release with compiled wheels: where even that one has none for this Python, the older source will not build.
        """
        table = self._book.package(package)
        rows = table.releases if table else ()
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


def shelf_of(book: Book, machine: Machine, request: OpenRequest) -> Shelf:
    """The shelf for a machine, shared by all resolutions over one book for which it is the same; the last few are kept."""
    place = (machine.python_full, machine.free_threaded, machine.arch, machine.glibc)
    # A shelf holds what these identities are of, so that none is taken for another as long as it is kept.
    identities = (id(machine.pip), id(machine.requires), id(request.source), id(request.direct) if request.direct else 0)
    wishes = (request.device, request.pre, tuple(accepted_hashes(request, book).items()), _incomplete(request, book))
    key = (*place, *identities, *wishes)
    shelves: dict[tuple[object, ...], Shelf] = book.remember("shelves", None, dict)
    found = shelves.get(key)
    if found is None:
        while len(shelves) >= _SHELVES:
            del shelves[next(iter(shelves))]
        found = shelves[key] = Shelf(book, machine, request)
    return found


def _incomplete(request: OpenRequest, book: Book) -> frozenset[str]:
    """Packages with an extra that is asked for and that the tables leave out: what they require is asked of the index."""
    return frozenset(
        package
        for target in request.targets
        for package in book.framework(target.framework).packages
        if not book.extras(package).issuperset(target.extras)
    )


_SHELVES = 16
"""A conflict tries a request on a dozen machines that differ in one thing, and comes back to each."""


def _by_hand(build: Build) -> bool:
    """True where a GPU build is the same wheel as the CPU build, and an extra or libraries from outside make the difference."""
    if build.variant == VENDOR:
        return False
    return build.extra is not None or build.delivery in ("system", "none") or (build.index != "default" and "+" not in build.wheel_version)
