"""The build of a framework that a set of packages means: by what was seen of its files, else by its version and the packages beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.installed import installed_build
from cudnn_resolve.resolution.release import parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion


def as_listed(book: Book, packages: Mapping[str, str]) -> Mapping[str, str]:
    """Spell the versions of frameworks like the tables, `2.6.0` for `2.6`."""
    found = dict(packages)
    for name, version in packages.items():
        parsed = parse_version(version)
        if book.framework_of(name) is not None and parsed is not None:
            listed = {row.wheel_version for row in book.builds_of(name)}
            if version not in listed:
                found[name] = next((other for other in listed if parse_version(other) == parsed), version)
    return found


def identify_build(context: Context, framework: str, package: str, *, live: bool) -> Build | None:
    """The CUDA build that a package of a set is; None if it has none, or if the matrix does not have it.

    `live`: the set is installed, so that of two builds of a version the one that finds its libraries is meant.
    """
    version = context.machine.pip[package]
    spellings = (version, version.partition("+")[0])  # what a framework reports of itself may lack the local part
    seen = next((one for one in context.machine.seen if one.name in (package, framework) and one.version in spellings), None)
    if seen is not None and seen.variant == "cpu":
        return None
    build = installed_build(context, package, version)
    cuda = CudaVersion(seen.cuda_built) if seen is not None and seen.cuda_built else None
    arch = context.machine.arch
    rows = [row for row in context.book.builds_of(package) if row.cuda is not None and (not row.arch or arch in row.arch)]
    if seen is not None and cuda is not None and (build is None or not _is_of(build, cuda)):
        public = version.partition("+")[0] if build is None or build.variant != VENDOR else None
        of_release = [row for row in rows if row.version == public]
        exact = next((row for row in of_release if _is_of(row, cuda)), None)
        # A release that finds CUDA outside does so however it was built; some report its CUDA only roughly.
        outside = (row for row in of_release if row.delivery == "system" or row.extra)
        rough = (row for row in outside if row.cuda is not None and row.cuda.major == cuda.major)
        is_unlisted = not of_release and public is not None
        own = _own_build(framework, package, version, cuda, seen.cudnn_built, provisional=is_unlisted)
        return exact or next(rough, own)
    if build is None:
        return _of_same_minor(rows, version)
    if build.variant == VENDOR:
        return build
    rows = [row for row in rows if row.wheel_version == version]
    if not live and build.index != "default" and "+" not in version:
        # A version without a variant, in a lock or a list, means the configured index.
        build = next((row for row in rows if row.index == "default"), build)
    if build.delivery != "bundled" and not all(name in context.machine.pip for name in _libraries(context, build)):
        # Another build of the same name may contain the libraries that the set lacks.
        build = next((row for row in rows if row.delivery == "bundled"), build)
    return build


def _of_same_minor(rows: Iterable[Build], version: str) -> Build | None:
    """For a patch release that the tables lack: the build of another one of its minor, if all of them are built alike."""
    minor = version.split(".")[:2]
    near = [row for row in rows if row.version.split(".")[:2] == minor] if re.fullmatch(r"\d+(\.\d+){1,2}", version) else []
    kinds: dict[str, set[tuple[object, ...]]] = {}
    for row in near:
        kinds.setdefault(row.version, set()).add((row.variant, row.index, row.cuda, row.cudnn, row.delivery))
    is_alike = version not in kinds and len(set(map(frozenset, kinds.values()))) == 1
    model = next((row for row in near if row.index == "default"), None) if is_alike else None
    return replace(model, version=version, wheel_version=version, provisional=True) if model is not None else None


def _is_of(build: Build, cuda: CudaVersion) -> bool:
    """True for a build of a CUDA, as precisely as that was reported."""
    return build.cuda is not None and build.cuda.parts[: min(2, len(cuda.parts))] == cuda.parts[:2]


def _own_build(framework: str, package: str, version: str, cuda: CudaVersion, cudnn: str | None, *, provisional: bool) -> Build:
    """A build that the tables do not have: of conda, of a distribution, or made from source. Its GPU code is unknown."""
    return Build(
        framework=framework,
        package=package,
        version=version,
        wheel_version=version,
        variant=VENDOR,
        cuda=cuda,
        cudnn=CudnnVersion(cudnn) if cudnn else None,
        delivery="bundled",
        provisional=provisional,
    )


def _libraries(context: Context, build: Build) -> Iterable[str]:
    """Wheels of CUDA libraries that a build requires."""
    names = (canonicalize_name(requirement.name) for requirement, _ in context.requirements_of(build))
    return (name for name in names if context.book.component(name) is not None)
