"""Metadata of releases, from the matrix or from the indexes, with markers evaluated for the machine."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.extra import named_extras
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.source import File, Metadata
from cudnn_resolve.resolution.marker import is_true, marker_environment
from cudnn_resolve.resolution.offers import Offers
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import Release, parse_requirement

_FILE_ERRORS = ("metadata-", "file-")
"""Prefixes of error codes about a single file: its release is no candidate, others may be."""


class ReleaseMetadata:
    """Metadata of releases for one machine."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest, offers: Offers) -> None:
        self._offers = offers
        self._source = request.source
        self._direct = request.direct
        self._incomplete = incomplete_packages(request, book)
        self._environment = marker_environment(machine)
        self._markers: dict[tuple[str, str], bool] = {}
        self._known: dict[int, Metadata | None] = {}
        self._unreadable: dict[int, str] = {}
        self.uncached: set[str] = set()
        """Packages of which the metadata of a release was looked for offline in vain."""

    def of(self, release: Release) -> Metadata | None:
        """Metadata of a release, requested from the index if the matrix does not have it; None if unknown."""
        details = release.details
        listed = Metadata(details.requires, details.requires_python, ()) if details.requires is not None else None
        if listed is not None and release.package not in self._incomplete:
            return listed
        key = id(release)
        if key not in self._known:
            direct = self._direct.get(release.package)
            file = self._offers.file(release.offer)
            if direct is not None:
                self._known[key] = direct.metadata
            elif file is None:
                self._known[key] = listed
            else:
                self._known[key] = self._request(release, file) or listed
                if self._known[key] is None and self._offers.is_offline:
                    self.uncached.add(release.package)
        return self._known[key]

    def _request(self, release: Release, file: File) -> Metadata | None:
        if self._source is None:
            return None
        try:
            return self._source.metadata(release.package, file)
        except IndexUnavailableError as error:
            if not error.code.startswith(_FILE_ERRORS):
                raise
            self._unreadable[id(release)] = error.message
            return None

    def unreadable(self, release: Release) -> str | None:
        """Why the metadata of a release cannot be used; None if it can, or if it is unknown."""
        if self.of(release) is None and self._offers.is_offline and release.offer is not None:
            return f"the metadata of {release.package} {release.text} is not in the cache, and no index is queried offline"
        return self._unreadable.get(id(release))

    def requires(self, release: Release) -> tuple[str, ...]:
        """Requires-Dist lines of a release; none if its metadata is unknown."""
        metadata = self.of(release)
        return metadata.requires if metadata is not None else ()

    def requirements(self, release: Release, extras: tuple[str, ...] = ()) -> Iterator[tuple[Requirement, str | None]]:
        """Requirements of the release on this machine, each with the extra that adds it (None: unconditional)."""
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

    def applies(self, requirement: Requirement) -> bool:
        """True if a requirement applies to the target without an extra."""
        return requirement.marker is None or self._holds(requirement, str(requirement.marker), "")

    def _holds(self, requirement: Requirement, marker: str, extra: str) -> bool:
        key = (marker, extra)
        answer = self._markers.get(key)
        if answer is None:
            answer = self._markers[key] = requirement.marker is not None and is_true(requirement.marker, self._environment, extra)
        return answer

    def prefetch_requirements(self, release: Release, extras: tuple[str, ...]) -> None:
        """Let the source request every package that a release requires."""
        if self._source is not None:
            names = (canonicalize_name(requirement.name) for requirement, _ in self.requirements(release, extras))
            self._source.prefetch(name for name in names if name not in self._direct)

    def prefetch_metadata(self, release: Release) -> None:
        """Let the source request the metadata of a release."""
        if self._source is None or release.details.requires is not None or release.offer is None or id(release) in self._known:
            return
        file = self._offers.file(release.offer)
        if file is not None and release.package not in self._direct:
            self._source.prefetch_metadata(release.package, file)


def incomplete_packages(request: OpenRequest, book: Book) -> frozenset[str]:
    """Packages with a requested extra that the tables leave out: their requirements come from the index."""
    return frozenset(
        package
        for target in request.targets
        for package in book.framework(target.framework).packages
        if target.extras and not book.extras(package).issuperset(target.extras)
    )
