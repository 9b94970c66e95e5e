"""Rules about frameworks and pip packages, for `table_rules.check`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, combinations

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cudnn_resolve.matrix import row
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.evidence import evidence_rows
from cudnn_resolve.matrix.row import AptPattern, Build, ExtraRelease, Index, WheelRelease
from cudnn_resolve.matrix.row_fault import Fault, Placed
from cudnn_resolve.matrix.wheel_content import MeasuredBuild
from cudnn_resolve.version import CodeTarget, CudnnVersion, versions_agree

_TAG = re.compile(r"[a-z0-9_.]+-[a-z0-9_.]+-[a-z0-9_.]+|sdist")


def _release(book: Book, package: str, version: str) -> WheelRelease | None:
    """Return a harvested release of an equal version (`2.0` for `2.0.0`)."""
    wanted = Version(version)
    return next((release for release in book.releases(package) if release.version == version or Version(release.version) == wanted), None)


def _head_fault(book: Book, framework: str, message: str) -> Fault:
    return Fault(file=book.layers[0].path(f"framework/{framework}"), place="framework", message=message)


def whole_heads(book: Book, frameworks: Iterable[str] | None = None) -> Iterator[Fault]:
    """Every framework has a head with a name, a title and its packages."""
    for framework in book.frameworks() if frameworks is None else frameworks:
        head = book.head(framework)
        missing = [column for column in ("name", "title", "packages") if not getattr(head, column)]
        if missing:
            name = f"framework/{framework}"
            file = [layer.path(name) for layer in book.layers if name in layer.names()][-1]
            yield Fault(file=file, place="framework", message=f"is missing: {', '.join(missing)}")


def known_indexes(book: Book, frameworks: Iterable[str] | None = None) -> Iterator[Fault]:
    """The index of a build or release is `default` or a row of index.toml, and serves the package."""
    serves = {index.id: index.serves for index in book.rows(Index)}
    for framework in book.frameworks() if frameworks is None else frameworks:
        wheels: Iterator[Placed[Build] | Placed[ExtraRelease]]
        wheels = chain(book.placed(Build, framework), book.placed(ExtraRelease, framework))
        for placed in wheels:
            package, index = placed.row.package, placed.row.index
            if index == "default":
                continue
            if index not in serves:
                yield placed.fault("index", f"{index!r} is neither `default` nor an id of index.toml")
            elif serves[index] and package not in serves[index]:
                yield placed.fault("index", f"{index!r} does not serve {package} according to index.toml")


def one_framework_each(book: Book) -> Iterator[Fault]:
    """No name, alias or distribution stands for two frameworks."""
    seen: dict[str, str] = {}
    for name in book.frameworks():
        head = book.head(name)
        for word in dict.fromkeys((name, *head.aliases, *head.packages)):
            other = seen.setdefault(word, name)
            if other != name:
                yield _head_fault(book, name, f"{word} already stands for {other}")


def packages_harvested(book: Book) -> Iterator[Fault]:
    """Every distribution, GPU package and companion of a framework has a wheel table, or releases on another index."""
    known = set(book.packages())
    for name in book.frameworks():
        head = book.head(name)
        elsewhere = {build.package for build in book.rows(Build, name) if build.index != "default"}
        for package in dict.fromkeys((*head.packages, *head.companions, *filter(None, [head.gpu_package]))):
            if package not in known and package not in elsewhere and not book.extra_releases(package):
                yield _head_fault(book, name, f"{package} has no table wheel/{package}.toml")


def installable(book: Book) -> Iterator[Fault]:
    """A build on the default index is a harvested release with a wheel; for one elsewhere the requirements are given."""
    for placed in book.placed(Build):
        build = placed.row
        named = f"{build.package} {build.wheel_version}"
        if build.index == "default":
            release = _release(book, build.package, build.wheel_version)
            if release is None:
                yield placed.fault("version", f"{named} is not in wheel/{build.package}.toml")
            elif set(release.tags) <= {"sdist"}:
                yield placed.fault("version", f"{named} has no Linux wheel")
            elif build.requires is None and release.requires is None:
                yield placed.fault("version", f"the requirements of {named} were not harvested")
        elif build.requires is None and build.requires_like is None:
            yield placed.fault("requires", "is missing: the index is not harvested")


def requires_like_found(book: Book) -> Iterator[Fault]:
    """With `requires_like = "default"`, the default index has the same public version and its metadata."""
    wheels: Iterator[Placed[Build] | Placed[ExtraRelease]] = chain(book.placed(Build), book.placed(ExtraRelease))
    for placed in wheels:
        if placed.row.requires_like is not None:
            public = Version(placed.row.version).public
            release = _release(book, placed.row.package, public)
            if release is None or release.requires is None:
                yield placed.fault("requires_like", f"the requirements of {placed.row.package} {public} were not harvested")


def extras_exist(book: Book) -> Iterator[Fault]:
    """The wheel of a build has the extra that the build names."""
    for placed in book.placed(Build):
        build = placed.row
        release = _release(book, build.package, build.wheel_version) if build.extra and build.index == "default" else None
        if release is not None and release.requires is not None:
            marker = re.compile(rf"extra\s*==\s*['\"]{re.escape(build.extra or '')}['\"]")
            if not any(marker.search(line) for lines in release.requires.values() for line in lines):
                yield placed.fault("extra", f"{build.package} {build.wheel_version} has no extra {build.extra!r}")


def libraries_reachable(book: Book) -> Iterator[Fault]:
    """Every library that a build expects on the system comes by pip or by apt."""
    by_apt = {pattern.library for pattern in book.rows(AptPattern)}
    for placed in book.placed(Build):
        build = placed.row
        if build.cuda is None or build.delivery != "system":
            continue
        by_pip = {component.library for component in book.components(build.cuda.major)}
        for library in build.loads:
            if library in ("cudnn", "nccl") or library in by_pip:
                continue
            if library not in by_apt and "libraries" not in by_apt:
                yield placed.fault("loads", f"no component wheel and no apt package has {library} of CUDA {build.cuda}")


def cudnn_served(book: Book) -> Iterator[Fault]:
    """A build that does not bundle its cuDNN has one to load: same major, minor at least as new, for its CUDA."""
    served: dict[tuple[CudnnVersion, int], bool] = {}
    first = book.first_cuda()
    for placed in book.placed(Build):
        build = placed.row
        if build.cudnn is None or build.cuda is None or build.delivery == "bundled" or build.cuda < first:
            continue
        key = (build.cudnn, build.cuda.major)
        if key not in served:
            served[key] = any(cudnn.cuda_major == key[1] and cudnn.version.serves(key[0]) for cudnn in book.cudnn_builds())
        if not served[key]:
            yield placed.fault("cudnn", f"no row of cudnn/release.toml for CUDA {key[1]} serves {build.cudnn}")


def cpu_builds_plain(book: Book) -> Iterator[Fault]:
    """A build without CUDA has no cuDNN, libraries or GPU code; one with CUDA says how its libraries are delivered."""
    for placed in book.placed(Build):
        build = placed.row
        if build.cuda is None and (build.cudnn or build.loads or build.targets or build.delivery != "none"):
            yield placed.fault("cuda", "is missing, but the row has cuDNN, GPU code or libraries")
        if build.cuda is not None and build.delivery == "none":
            yield placed.fault("delivery", f"does not say how the libraries of CUDA {build.cuda} are delivered")


def cudnn_wheels_harvested(book: Book) -> Iterator[Fault]:
    """The pip package of a cuDNN build has that release."""
    for placed in book.placed(row.CudnnBuild):
        wheel = placed.row.wheel
        if wheel is not None and _release(book, wheel, str(placed.row.version)) is None:
            yield placed.fault("wheel", f"{wheel} {placed.row.version} is not in wheel/{wheel}.toml")


def components_harvested(book: Book) -> Iterator[Fault]:
    """A component package that provides a library of some build has a wheel table."""
    wanted = {(library, placed.row.cuda.major) for placed in book.placed(Build) if placed.row.cuda for library in placed.row.loads}
    known = set(book.packages())
    for placed in book.placed(row.Component):
        component = placed.row
        if (component.library, component.cuda_major) in wanted and component.package not in known:
            yield placed.fault("package", f"{component.package} has no table wheel/{component.package}.toml")


def specifiers_match(book: Book) -> Iterator[Fault]:
    """The versions of every advisory, trap and bound include a known release."""
    for advisory in book.placed(row.Advisory):
        yield from _specifier_faults(advisory, _versions_of(book, advisory.row.package))
    for trap in book.placed(row.Trap):
        name = trap.row.framework
        if name in book.frameworks():
            yield from _specifier_faults(trap, _framework_versions(book, name))
        elif book.is_harvested(name):
            yield from _specifier_faults(trap, [Version(release.version) for release in book.releases(name)])
        else:
            yield trap.fault("framework", f"{name!r} is not a framework and has no wheel table")
    for name in book.frameworks():
        for bound in book.placed(row.Bound, name):
            yield from _specifier_faults(bound, _framework_versions(book, name))


def _specifier_faults(placed: Placed[row.Advisory] | Placed[row.Trap] | Placed[row.Bound], versions: list[Version]) -> Iterator[Fault]:
    specifier = SpecifierSet(placed.row.versions)
    if not versions:
        yield placed.fault("package", "names a package without known releases")
    elif not any(specifier.contains(version, prereleases=True) for version in versions):
        yield placed.fault("versions", f"{placed.row.versions!r} matches no known release")


def _versions_of(book: Book, package: str) -> list[Version]:
    if package == "cudnn":
        return [Version(str(build.version)) for build in book.cudnn_builds()]
    framework = book.framework_of(package)
    builds = book.framework(framework).builds if framework else ()
    versions = (
        *(release.version for release in book.releases(package)),
        *(release.version for release in book.extra_releases(package)),
        *{version for version, _arch in evidence_rows(book, package)},
        *(build.wheel_version for build in builds if build.package == package),
    )
    return [Version(version) for version in versions]


def _framework_versions(book: Book, name: str) -> list[Version]:
    return list({Version(build.version) for build in book.framework(name).builds})


def releases_ordered(book: Book) -> Iterator[Fault]:
    """The releases of a wheel table go from oldest to newest, and their tags have three parts."""
    for package in book.packages():
        previous: Version | None = None
        for placed in book.placed(WheelRelease, package):
            version = Version(placed.row.version)
            if previous is not None and version < previous and placed.layer == 0:
                yield placed.fault("version", f"{version} comes after {previous}")
            previous = version
            wrong = [tag for tag in placed.row.tags if not _TAG.fullmatch(tag)]
            if wrong:
                yield placed.fault("tags", f"{wrong[0]!r} is not a wheel tag such as cp311-cp311-manylinux_2_17_x86_64")


def bounds_agree(book: Book) -> Iterator[Fault]:
    """A bound limits a package other than its framework, and no two bounds are equal."""
    for name in book.frameworks():
        bounds = book.placed(row.Bound, name)
        for placed in bounds:
            requirement = Requirement(placed.row.requirement)
            if book.framework_of(requirement.name) == name:
                yield placed.fault("requirement", f"{requirement.name} is the framework itself")
            if not requirement.specifier:
                yield placed.fault("requirement", f"{placed.row.requirement!r} has no version specifier")
        for one, other in combinations(bounds, 2):
            if one.row == other.row:
                yield other.fault("", f"repeats {one.place}")


def measurements_agree(book: Book) -> Iterator[Fault]:
    """A build on the default index agrees with its measured wheel: CUDA, cuDNN, and GPU code for the same GPUs.

    JAX is measured in the wheel of its plugin. A row may omit code for a single GPU (`sm_90a`) and of single kernels.
    """
    for placed in book.placed(Build):
        build = placed.row
        if build.index != "default" or build.cuda is None:
            continue
        name = build.package if build.package != "jax" else f"jax-cuda{build.cuda.major}-pjrt"
        measured = book.remember("measured", name, partial(_measured, book, name))
        for arch in build.arch or ("x86_64", "aarch64"):
            found = measured.get((build.wheel_version, arch))
            if found is not None:
                for column, message in _contradictions(build, build.code_on(arch), found, f"the {arch} wheel of {name}"):
                    yield placed.fault(column, message)


def _measured(book: Book, name: str) -> dict[tuple[str, str], MeasuredBuild]:
    return {(build.version, arch): build for build in book.rows(MeasuredBuild, name) for arch in build.arch}


def _contradictions(build: Build, targets: tuple[CodeTarget, ...], measured: MeasuredBuild, wheel: str) -> Iterator[tuple[str, str]]:
    """Yield the columns in which a build contradicts its wheel, each with a message."""
    if measured.cuda is not None and build.cuda is not None and measured.cuda.line != build.cuda.line:
        yield "cuda", f"is {build.cuda}, but {wheel} says {measured.cuda}"
    if measured.cudnn is not None and build.cudnn is not None and not versions_agree(str(build.cudnn), str(measured.cudnn)):
        yield "cudnn", f"is {build.cudnn}, but {wheel} says {measured.cudnn}"
    if not measured.code or not targets:
        return
    if extra := sorted(set(targets) - set(measured.code)):
        yield "capability", f"lists {', '.join(map(str, extra))}, which {wheel} lacks"
    oldest = min(target.capability for target in targets)  # older code belongs to libraries linked into it, such as NCCL
    missing = sorted(
        code for code in measured.code if code.capability > oldest and not any(target.runs_on(code.capability) for target in targets)
    )
    if missing:
        yield "capability", f"omits {', '.join(map(str, missing))}, which {wheel} has"


RULES: tuple[Callable[[Book], Iterable[Fault]], ...] = (
    whole_heads,
    known_indexes,
    one_framework_each,
    packages_harvested,
    installable,
    requires_like_found,
    extras_exist,
    libraries_reachable,
    cudnn_served,
    cpu_builds_plain,
    cudnn_wheels_harvested,
    components_harvested,
    specifiers_match,
    releases_ordered,
    bounds_agree,
    measurements_agree,
)
