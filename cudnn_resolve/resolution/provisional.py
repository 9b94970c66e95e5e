"""Provisional rows for framework releases that the index has and the tables lack, derived from their metadata.

A new release is assumed to be built like the previous one, except for what its metadata says: its CUDA and cuDNN are those of the NVIDIA
wheels that it requires. Its GPU code is unknown. The rows are a layer over the tables, so that every lookup sees them; a plan that uses
one warns about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build, WheelRelease
from cudnn_resolve.matrix.table import PartT, Table, table_type
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.requirement.model import Request, Target
from cudnn_resolve.requirement.source import Offer, Source
from cudnn_resolve.requirement.target import is_exact, packages_of
from cudnn_resolve.resolution.marker import applies, marker_environment
from cudnn_resolve.resolution.release import extras_of, parse_requirement, parse_version, row_version
from cudnn_resolve.resolution.tag import TargetPython, best_file
from cudnn_resolve.version import CudaVersion, CudnnVersion

_NVIDIA = re.compile(r"nvidia-(cudnn)-cu\d{2}|nvidia-cuda-runtime(?:-cu\d{2})?|cuda-toolkit")
_CUDA_VARIANT = re.compile(r"cu\d{2,3}")
NEWEST = 2
"""Number of new releases read per distribution, besides those requested by version."""


class NewReleases:
    """A layer of provisional rows."""

    remark = ""

    def __init__(self, tables: dict[str, Table]) -> None:
        self._tables = tables

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewReleases) and self._tables == other._tables

    __hash__ = object.__hash__

    def names(self) -> Sequence[str]:
        """Tables with a provisional row."""
        return tuple(self._tables)

    def load(self, name: str) -> Table:
        """A table."""
        return self._tables[name]

    def part(self, name: str, part: type[PartT]) -> PartT | None:  # noqa: ARG002 - the whole table is in memory
        """None: only the whole table is available."""
        return None

    def path(self, name: str) -> str:
        """Origin of the rows, for messages."""
        return f"{name} (read from the index)"

    def version(self) -> str:
        """The releases, by name and version."""
        tables = (table for name, table in self._tables.items() if name.startswith("framework/"))
        builds = (build for table in tables for build in getattr(table, "build", ()))
        return "new:" + ",".join(sorted({f"{build.package}-{build.version}" for build in builds}))


def with_new_releases(book: Book, request: Request, machine: Machine, source: Source) -> Book:
    """Add provisional rows for the targets of a request; the same book if the tables have every release."""
    tables: dict[str, Table] = {}
    for target in request.targets:
        builds: list[Build] = []
        framework = book.framework(target.framework)
        packages = packages_of(target, book)
        for package in packages:
            known = [build for build in book.builds_of(package) if build.index == "default"]
            releases = list(_new_releases(package, known, target, machine, source, pre=request.pre)) if known else []
            if releases:
                builds += [build for offer, requires in releases for build in _provisional_builds(machine, known, offer, requires)]
                tables[f"wheel/{package}"] = _table(f"wheel/{package}", release=[_wheel_row(offer) for offer, _ in releases])
        versions = (build.version for build in (*framework.builds, *builds))
        if is_exact(target.specifier) and not any(target.specifier.contains(version, prereleases=True) for version in versions):
            for package in dict.fromkeys((*packages, target.framework)):
                if f"wheel/{package}" not in tables and (offers := _requested_offers(book, package, target, source)):
                    tables[f"wheel/{package}"] = _table(f"wheel/{package}", release=[_wheel_row(offer) for offer in offers])
        if builds:
            tables[f"framework/{target.framework}"] = _table(f"framework/{target.framework}", build=builds)
    return Book(*book.layers, NewReleases(tables)) if tables else book


def _table(name: str, **rows: Iterable[Build | WheelRelease]) -> Table:
    type_ = table_type(name)
    assert type_ is not None
    return type_(**{array: tuple(found) for array, found in rows.items()})  # type: ignore[arg-type]


def _new_releases(
    package: str, known: Sequence[Build], target: Target, machine: Machine, source: Source, *, pre: bool
) -> Iterator[tuple[Offer, tuple[str, ...]]]:
    """New releases of a distribution with a wheel for the machine, and their Requires-Dist lines, newest first."""
    listing = source.listing(package)
    if listing is None or listing.is_partial:
        return
    versions = {row_version(build.version) for build in known}
    newest = max((version for version in versions if not version.is_prerelease), default=max(versions))
    count = 0
    for offer in listing.offers:
        version = parse_version(offer.version)
        if version is None or version in versions or version.local is not None:
            continue
        is_requested = _is_requested(target, version)
        if not is_requested and (version < newest or count >= NEWEST or (version.is_prerelease and not pre)):
            if version < newest and not any(part.operator == "==" for part in target.specifier):
                return
            continue
        file = best_file(offer.files, TargetPython.of(machine))
        if is_requested and (file is None or not file.is_wheel):  # the resolution then explains why it does not fit
            file = next((other for other in offer.files if other.is_wheel), None)
        if file is None or not file.is_wheel or (file.yanked is not None and not is_requested):
            continue
        count += 1
        try:
            metadata = source.metadata(package, file)
        except IndexUnavailableError:
            metadata = None
        if metadata is not None:
            yield offer, metadata.requires


def _requested_offers(book: Book, package: str, target: Target, source: Source) -> list[Offer]:
    """Releases requested by version that only the index has: without a build, but a conflict must not deny that they exist."""
    known = {row.version for row in book.releases(package)}
    listing = source.listing(package)
    new = (offer for offer in (listing.offers if listing is not None else ()) if offer.version not in known)
    return [offer for offer in new if (version := parse_version(offer.version)) and _is_requested(target, version)]


def _is_requested(target: Target, version: Version) -> bool:
    """True if the target pins that version."""
    return any(part.operator in ("==", "===") and parse_version(part.version) == version for part in target.specifier)


def _provisional_builds(machine: Machine, known: Sequence[Build], offer: Offer, requires: tuple[str, ...]) -> Iterator[Build]:
    """Builds of a new release: those of the nearest older release, updated from the new metadata."""
    version = parse_version(offer.version)
    assert version is not None
    by_text = {build.version: row_version(build.version) for build in known}
    older = [text for text, parsed in by_text.items() if parsed < version]
    model = max(older, key=by_text.__getitem__) if older else min(by_text, key=by_text.__getitem__)
    if not older and not any(_required_libraries(build, machine, requires)[0] for build in known if build.version == model):
        return  # older than every known release, and nothing names its CUDA
    for build in known:
        if build.version != model:
            continue
        cuda, cudnn = _required_libraries(build, machine, requires)
        is_gpu = build.cuda is not None
        if is_gpu and cuda is None and build.delivery == "wheel" and build.extra is None:
            continue  # the older release names its CUDA, and this one does not
        variant = build.variant
        if is_gpu and cuda is not None and _CUDA_VARIANT.fullmatch(variant):
            variant = f"cu{cuda.major}{cuda.minor}"
        yield replace(
            build,
            version=offer.version,
            wheel_version=offer.version,
            variant=variant,
            cuda=(cuda or build.cuda) if is_gpu else None,
            cudnn=(cudnn or build.cudnn) if is_gpu else None,
            requires=requires,
            requires_like=None,
            pythons=(),
            glibc=None,
            date=None,
            yanked=False,
            targets=(),
            targets_aarch64=(),
            capability_first=None,
            capability_last=None,
            provisional=True,
        )


def _required_libraries(build: Build, machine: Machine, requires: Iterable[str]) -> tuple[CudaVersion | None, CudnnVersion | None]:
    """CUDA line and cuDNN of the NVIDIA wheels that a release requires here, with the extras of the build.

    The first two numbers of a CUDA runtime wheel are those of its toolkit.
    """
    cuda: CudaVersion | None = None
    cudnn: CudnnVersion | None = None
    environment = marker_environment(machine)
    for line in requires:
        requirement = parse_requirement(line)
        nvidia = _NVIDIA.fullmatch(canonicalize_name(requirement.name)) if requirement is not None else None
        if requirement is None or nvidia is None or not applies(requirement, environment, extras_of(build)):
            continue
        bounds = [parse_version(part.version.removesuffix(".*")) for part in requirement.specifier if part.operator in ("==", ">=", "~=")]
        numbers = max((bound.release for bound in bounds if bound is not None), default=())
        if len(numbers) < 2 or not all(number < 10_000 for number in numbers):
            continue
        if nvidia[1] == "cudnn":
            cudnn = CudnnVersion(".".join(map(str, numbers[:4])))
        else:
            cuda = CudaVersion(f"{numbers[0]}.{numbers[1]}")
    return cuda, cudnn


def _wheel_row(offer: Offer) -> WheelRelease:
    wheels = [file for file in offer.files if file.is_wheel]
    return WheelRelease(
        version=offer.version,
        requires_python=next((file.requires_python for file in wheels if file.requires_python), None),
        tags=tuple(dict.fromkeys(file.tag for file in wheels)),
    )
