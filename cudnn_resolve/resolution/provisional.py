"""Releases of frameworks that the index has and the tables do not know yet: provisional rows, made of what their metadata say.

A new release is built like the one before it until its metadata say otherwise: CUDA and cuDNN are those of the NVIDIA wheels that it
requires. For which GPUs it holds code is not known. The rows lie over the tables, so that everything which asks the tables sees them;
a plan that takes one says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import IndexUnavailableError
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build, WheelRelease
from cudnn_resolve.matrix.table import PartT, Table, table_type
from cudnn_resolve.requirement.target import is_exact, packages_of
from cudnn_resolve.resolution.marker import applies, marker_environment
from cudnn_resolve.resolution.release import extras_of, parse_requirement, parse_version
from cudnn_resolve.resolution.tag import Target as Files
from cudnn_resolve.resolution.tag import best_file
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from packaging.version import Version

    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Request, Target
    from cudnn_resolve.requirement.source import Offer, Source

_NVIDIA = re.compile(r"nvidia-(cudnn)-cu\d{2}|nvidia-cuda-runtime(?:-cu\d{2})?|cuda-toolkit")
_OF_LINE = re.compile(r"cu\d{2,3}")
NEWEST = 2
"""So many new releases of a distribution are looked at, besides those that are asked for by name."""


class NewReleases:
    """Tables of provisional rows, as a layer over the others."""

    remark = ""

    def __init__(self, tables: dict[str, Table]) -> None:
        self._tables = tables

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewReleases) and self._tables == other._tables

    __hash__ = object.__hash__

    def names(self) -> Sequence[str]:
        """Every table with a provisional row."""
        return tuple(self._tables)

    def load(self, name: str) -> Table:
        """One table."""
        return self._tables[name]

    def part(self, name: str, part: type[PartT]) -> PartT | None:  # noqa: ARG002 - a table whole costs nothing more
        """None: the rows are there."""
        return None

    def path(self, name: str) -> str:
        """For messages: where the rows come from."""
        return f"{name} (read from the index)"

    def version(self) -> str:
        """The releases, by name and version."""
        builds = (one for name, table in self._tables.items() if name.startswith("framework/") for one in getattr(table, "build", ()))
        return "new:" + ",".join(sorted({f"{one.package}-{one.version}" for one in builds}))


def with_new_releases(book: Book, request: Request, machine: Machine, source: Source) -> Book:
    """The book with provisional rows for the targets of a request; the same book where the tables know every release."""
    tables: dict[str, Table] = {}
    for target in request.targets:
        builds: list[Build] = []
        framework = book.framework(target.framework)
        packages = packages_of(target, book)
        for package in packages:
            known = [one for one in framework.builds if one.package == package and one.index == "default"]
            releases = list(_releases(package, known, target, machine, source, pre=request.pre)) if known else []
            if releases:
                builds += [build for offer, requires in releases for build in _builds(machine, known, offer, requires)]
                tables[f"wheel/{package}"] = _table(f"wheel/{package}", release=[_wheel(offer) for offer, _ in releases])
        if is_exact(target.specifier) and not any(
            target.specifier.contains(one.version, prereleases=True) for one in (*framework.builds, *builds)
        ):
            for package in dict.fromkeys((*packages, target.framework)):
                if f"wheel/{package}" not in tables and (offers := _unread(book, package, target, source)):
                    tables[f"wheel/{package}"] = _table(f"wheel/{package}", release=[_wheel(offer) for offer in offers])
        if builds:
            tables[f"framework/{target.framework}"] = _table(f"framework/{target.framework}", build=builds)
    return Book(*book.layers, NewReleases(tables)) if tables else book


def _table(name: str, **rows: Iterable[Build | WheelRelease]) -> Table:
    type_ = table_type(name)
    assert type_ is not None
    return type_(**{array: tuple(found) for array, found in rows.items()})  # type: ignore[arg-type]


def _releases(
    package: str, known: Sequence[Build], target: Target, machine: Machine, source: Source, *, pre: bool
) -> Iterator[tuple[Offer, tuple[str, ...]]]:
    """New releases of a distribution that have a file for the machine, with their Requires-Dist lines, the newest first."""
    listing = source.listing(package)
    if listing is None or listing.is_partial:
        return
    versions = {version for one in known if (version := parse_version(one.version)) is not None}
    newest = max((one for one in versions if not one.is_prerelease), default=max(versions))
    taken = 0
    for offer in listing.offers:
        version = parse_version(offer.version)
        if version is None or version in versions or version.local is not None:
            continue
        named = _names(target, version)
        if not named and (version < newest or taken >= NEWEST or (version.is_prerelease and not pre)):
            if version < newest and not any(one.operator == "==" for one in target.specifier):
                return
            continue
        file = best_file(offer.files, Files.of(machine))
        if named and (file is None or not file.is_wheel):  # the resolution says what it is not made for
            file = next((one for one in offer.files if one.is_wheel), None)
        if file is None or not file.is_wheel or (file.yanked is not None and not named):
            continue
        taken += 1
        try:
            said = source.metadata(package, file)
        except IndexUnavailableError:
            said = None
        if said is not None:
            yield offer, said.requires


def _unread(book: Book, package: str, target: Target, source: Source) -> list[Offer]:
    """Releases asked for by name that only the index knows: no build is made of them, and none denies them."""
    known = {one.version for one in book.releases(package)}
    listing = source.listing(package)
    offers = listing.offers if listing is not None else ()
    return [one for one in offers if one.version not in known and (version := parse_version(one.version)) and _names(target, version)]


def _names(target: Target, version: Version) -> bool:
    """True where the user asks for that very version."""
    return any(one.operator in ("==", "===") and parse_version(one.version) == version for one in target.specifier)


def _builds(machine: Machine, known: Sequence[Build], offer: Offer, requires: tuple[str, ...]) -> Iterator[Build]:
    """The builds of a new release: those of the nearest known release before it, with what its own metadata say."""
    version = parse_version(offer.version)
    assert version is not None
    by_version = {one: found for build in known if (found := parse_version(build.version)) is not None for one in (build.version,)}
    below = [text for text, one in by_version.items() if one < version]
    home = max(below, key=by_version.__getitem__) if below else min(by_version, key=by_version.__getitem__)
    if not below and not any(_stated(build, machine, requires)[0] for build in known if build.version == home):
        return  # older than all that is known, of which nothing tells its CUDA
    for build in known:
        if build.version == home:
            cuda, cudnn = _stated(build, machine, requires)
            gpu = build.cuda is not None
            if gpu and cuda is None and build.delivery == "wheel" and build.extra is None:
                continue  # the release before named its CUDA, and this one says nothing that could be read
            yield replace(
                build,
                version=offer.version,
                wheel_version=offer.version,
                variant=f"cu{cuda.major}{cuda.minor}" if gpu and cuda is not None and _OF_LINE.fullmatch(build.variant) else build.variant,
                cuda=(cuda or build.cuda) if gpu else None,
                cudnn=(cudnn or build.cudnn) if gpu else None,
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
                sonames=(),
                provisional=True,
            )


def _stated(build: Build, machine: Machine, requires: Iterable[str]) -> tuple[CudaVersion | None, CudnnVersion | None]:
    """CUDA line and cuDNN of the NVIDIA wheels that a release requires here, by itself or by the extras of the build.

    The first two numbers of a wheel of the CUDA runtime are those of its toolkit.
    """
    cuda: CudaVersion | None = None
    cudnn: CudnnVersion | None = None
    environment = marker_environment(machine)
    for line in requires:
        requirement = parse_requirement(line)
        found = _NVIDIA.fullmatch(canonicalize_name(requirement.name)) if requirement is not None else None
        if requirement is None or found is None or not applies(requirement, environment, extras_of(build)):
            continue
        pins = [parse_version(one.version.removesuffix(".*")) for one in requirement.specifier if one.operator in ("==", ">=", "~=")]
        release = max((one.release for one in pins if one is not None), default=())
        text = ".".join(str(number) for number in release[:4])
        if not release or not all(number < 10_000 for number in release):
            continue
        if found[1] == "cudnn":
            cudnn = CudnnVersion(text) if len(release) > 1 else cudnn
        elif len(release) > 1:
            cuda = CudaVersion(f"{release[0]}.{release[1]}")
    return cuda, cudnn


def _wheel(offer: Offer) -> WheelRelease:
    files = [one for one in offer.files if one.is_wheel]
    return WheelRelease(
        version=offer.version,
        requires_python=next((one.requires_python for one in files if one.requires_python), None),
        tags=tuple(dict.fromkeys(one.tag for one in files)),
    )
