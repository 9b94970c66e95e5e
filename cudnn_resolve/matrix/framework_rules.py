"""Rules over frameworks and pip packages, for `table_rules.check`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.evidence import evidence_rows
from cudnn_resolve.matrix.position import Fault, Placed
from cudnn_resolve.matrix.row import Build, WheelRelease
from cudnn_resolve.matrix.wheel_content import MeasuredBuild
from cudnn_resolve.version import CodeTarget, CudnnVersion

_TAG = re.compile(r"[a-z0-9_.]+-[a-z0-9_.]+-[a-z0-9_.]+|sdist")


def whole_heads(book: Book, names: Iterable[str] | None = None) -> Iterator[Fault]:
    """Every framework has a head with a name, a title and its packages."""
    for name in sorted(names) if names is not None else book.names():
        if name.startswith("framework/"):
            head = book.head(name)
            missing = [column for column in ("name", "title", "packages") if not head.get(column)]
            if missing:
                file = [layer.path(name) for layer in book.layers if name in layer.names()][-1]
                yield Fault(file=file, place="framework", message=f"is missing: {', '.join(missing)}")


def known_indexes(book: Book, names: Iterable[str] | None = None) -> Iterator[Fault]:
    """The index of a build or release is `default` or a row of index.toml, and that index serves the package."""
    serves = {one.id: one.serves for one in book.indexes()}
    for name in sorted(names) if names is not None else book.names():
        for array in ("build", "release") if name.startswith("framework/") else ():
            for line in book.placed(name, array):
                package, index = line.row.package, line.row.index
                if index == "default":
                    continue
                if index not in serves:
                    yield line.fault("index", f"{index!r} is not `default` or an id of index.toml")
                elif serves[index] and package not in serves[index]:
                    yield line.fault("index", f"{index!r} does not serve {package} by index.toml")


def one_framework_each(book: Book) -> Iterator[Fault]:
    """No name, alias or distribution means two frameworks."""
    seen: dict[str, str] = {}
    for name in book.frameworks():
        head = book.head(f"framework/{name}")
        for word in dict.fromkeys((name, *head.get("aliases", ()), *head.get("packages", ()))):
            other = seen.setdefault(word, name)
            if other != name:
                file = book.layers[0].path(f"framework/{name}")
                yield Fault(file=file, place="framework", message=f"{word} means {other} already")


def _builds(book: Book) -> Iterator[Placed]:
    for name in book.frameworks():
        yield from book.placed(f"framework/{name}", "build")


def _extras(book: Book) -> Iterator[Placed]:
    for name in book.frameworks():
        yield from book.placed(f"framework/{name}", "release")


def packages_harvested(book: Book) -> Iterator[Fault]:
    """Every distribution, GPU package and companion of a framework has a wheel table, or releases on another index."""
    known = set(book.packages())
    for name in book.frameworks():
        table, head = f"framework/{name}", book.head(f"framework/{name}")
        elsewhere = {line.row.package for line in book.placed(table, "build") if line.row.index != "default"}
        wanted = [*head.get("packages", ()), *head.get("companions", ()), *filter(None, [head.get("gpu_package")])]
        for package in dict.fromkeys(wanted):
            if package not in known and package not in elsewhere and not book.extra_releases(package):
                file = book.layers[0].path(table)
                yield Fault(file=file, place="framework", message=f"{package} has no table wheel/{package}.toml")


def installable(book: Book) -> Iterator[Fault]:
    """Each build can be had: on the default index a harvested release with a wheel, elsewhere what it requires is written down."""
    for line in _builds(book):
        build: Build = line.row
        if build.index == "default":
            release = _release(book, build.package, build.wheel_version)
            if release is None:
                yield line.fault("version", f"{build.package} {build.wheel_version} is not in wheel/{build.package}.toml")
            elif set(release.tags) <= {"sdist"}:
                yield line.fault("version", f"{build.package} {build.wheel_version} has no Linux wheel")
            elif build.requires is None and release.requires is None:
                yield line.fault("version", f"what {build.package} {build.wheel_version} requires was not harvested")
        elif build.requires is None and build.requires_like is None:
            yield line.fault("requires", "is missing: an index that is not harvested cannot say it")


def requires_like_found(book: Book) -> Iterator[Fault]:
    """`requires_like = "default"` stands where the default index has the same public version with its metadata."""
    for line in (*_builds(book), *_extras(book)):
        if line.row.requires_like is not None:
            public = Version(line.row.version).public
            release = _release(book, line.row.package, public)
            if release is None or release.requires is None:
                yield line.fault("requires_like", f"the requirements of {line.row.package} {public} were not harvested")


def extras_exist(book: Book) -> Iterator[Fault]:
    """The extra that a build names is one of its wheel's."""
    for line in _builds(book):
        build: Build = line.row
        release = _release(book, build.package, build.wheel_version) if build.extra and build.index == "default" else None
        if release is not None and release.requires is not None:
            said = re.compile(rf"extra\s*==\s*['\"]{re.escape(build.extra or '')}['\"]")
            if not any(said.search(line_) for lines_ in release.requires.values() for line_ in lines_):
                yield line.fault("extra", f"{build.package} {build.wheel_version} has no extra {build.extra!r}")


def libraries_reachable(book: Book) -> Iterator[Fault]:
    """Every library that a build wants from outside can be had by pip or by apt, in a release that serves it."""
    by_apt = {one.library for one in book.apt_patterns()}
    for line in _builds(book):
        build: Build = line.row
        if build.cuda is None:
            continue
        named = {one.library for one in book.components(build.cuda.major)}
        for library in build.loads if build.delivery == "system" else ():
            if library in ("cudnn", "nccl") or library in named:
                continue
            if library not in by_apt and "libraries" not in by_apt:
                yield line.fault("loads", f"{library} of CUDA {build.cuda} comes by no component wheel and no apt package")


def cudnn_served(book: Book) -> Iterator[Fault]:
    """For every build that wants a cuDNN from outside there is one: same major, minor as new, for its CUDA."""
    served: dict[tuple[CudnnVersion, int], bool] = {}
    first = book.first_cuda()
    for line in _builds(book):
        build: Build = line.row
        if build.cudnn is None or build.cuda is None or build.delivery == "bundled" or build.cuda < first:
            continue
        key = (build.cudnn, build.cuda.major)
        if key not in served:
            served[key] = any(one.cuda_major == key[1] and one.version.serves(key[0]) for one in book.cudnn_builds())
        if not served[key]:
            yield line.fault("cudnn", f"no row of cudnn/release.toml for CUDA {key[1]} serves {build.cudnn}")


def cpu_builds_plain(book: Book) -> Iterator[Fault]:
    """A build without CUDA wants no cuDNN, loads nothing and has no GPU code; one with CUDA says how its libraries arrive."""
    for line in _builds(book):
        build: Build = line.row
        if build.cuda is None and (build.cudnn or build.loads or build.targets or build.delivery != "none"):
            yield line.fault("cuda", "is missing, yet the row speaks of cuDNN, GPU code or libraries")
        if build.cuda is not None and build.delivery == "none":
            yield line.fault("delivery", f"says nothing of how the libraries of CUDA {build.cuda} arrive")


def cudnn_wheels_harvested(book: Book) -> Iterator[Fault]:
    """The pip package of a cuDNN build has that very release."""
    for line in book.placed("cudnn/release", "build"):
        if line.row.wheel is not None and _release(book, line.row.wheel, str(line.row.version)) is None:
            yield line.fault("wheel", f"{line.row.wheel} {line.row.version} is not in wheel/{line.row.wheel}.toml")


def components_harvested(book: Book) -> Iterator[Fault]:
    """A component package that some build's libraries come from has a wheel table."""
    wanted = {(library, line.row.cuda.major) for line in _builds(book) if line.row.cuda for library in line.row.loads}
    known = set(book.packages())
    for line in book.placed("cuda/component", "component"):
        if (line.row.library, line.row.cuda_major) in wanted and line.row.package not in known:
            yield line.fault("package", f"{line.row.package} has no table wheel/{line.row.package}.toml")


def specifiers_meet(book: Book) -> Iterator[Fault]:
    """The versions of every advisory, trap and bound hold for at least one known release."""
    for line in book.placed("advisory", "advisory"):
        yield from _meets(line, _versions_of(book, line.row.package))
    for line in book.placed("trap", "trap"):
        if line.row.framework in book.frameworks():
            yield from _meets(line, _framework_versions(book, line.row.framework))
        elif (package := book.package(line.row.framework)) is not None:
            yield from _meets(line, [Version(one.version) for one in package.releases])
        else:
            yield line.fault("framework", f"{line.row.framework!r} is no framework and has no wheel table")
    for name in book.frameworks():
        for line in book.placed(f"framework/{name}", "bound"):
            yield from _meets(line, _framework_versions(book, name))


def _meets(line: Placed, versions: list[Version]) -> Iterator[Fault]:
    wanted = SpecifierSet(line.row.versions)
    if not versions:
        yield line.fault("package", "names a package of which no release is known")
    elif not any(wanted.contains(one, prereleases=True) for one in versions):
        yield line.fault("versions", f"{line.row.versions!r} holds for no known release")


def _versions_of(book: Book, package: str) -> list[Version]:
    if package == "cudnn":
        return [Version(str(one.version)) for one in book.cudnn_builds()]
    found = [one.version for one in book.releases(package)]
    framework = book.framework_of(package)
    builds = book.framework(framework).builds if framework else ()
    extra = [one.version for one in book.extra_releases(package)]
    read = {version for version, _arch in evidence_rows(book, package)}
    return [Version(one) for one in (*found, *extra, *read, *(one.wheel_version for one in builds if one.package == package))]


def _framework_versions(book: Book, name: str) -> list[Version]:
    return list({Version(one.version) for one in book.framework(name).builds})


def releases_ordered(book: Book) -> Iterator[Fault]:
    """The releases of a wheel table go from the oldest to the newest, and their tags have three parts."""
    for name in book.names():
        if not name.startswith("wheel/"):
            continue
        previous: Version | None = None
        for line in book.placed(name, "release"):
            version = Version(line.row.version)
            if previous is not None and version < previous and line.layer == 0:
                yield line.fault("version", f"{version} stands after {previous}")
            previous = version
            wrong = [tag for tag in line.row.tags if not _TAG.fullmatch(tag)]
            if wrong:
                yield line.fault("tags", f"{wrong[0]!r} is not a wheel tag such as cp311-cp311-manylinux_2_17_x86_64")


def bounds_agree(book: Book) -> Iterator[Fault]:
    """A bound is on another package than its framework, and no two bounds of one version exclude one another wholly."""
    for name in book.frameworks():
        bounds = list(book.placed(f"framework/{name}", "bound"))
        for line in bounds:
            about = Requirement(line.row.requirement)
            if book.framework_of(about.name) == name:
                yield line.fault("requirement", f"{about.name} is the framework itself")
            if not about.specifier:
                yield line.fault("requirement", f"{line.row.requirement!r} bounds nothing")
        for one, other in combinations(bounds, 2):
            if one.row == other.row:
                yield other.fault("", f"says what {one.place} says")


def measured_alike(book: Book) -> Iterator[Fault]:
    """A build on the default index is as its wheel was measured: its CUDA, its cuDNN, and GPU code for the same GPUs.

    JAX's wheel is that of its plugin. Of code for one GPU only (`sm_90a`) and of single kernels a row need not speak.
    """
    for line in _builds(book):
        build: Build = line.row
        if build.index != "default" or build.cuda is None:
            continue
        name = build.package if build.package != "jax" else f"jax-cuda{build.cuda.major}-pjrt"
        measured = book.remember("measured", name, partial(_measured, book, name))
        for arch in build.arch or ("x86_64", "aarch64"):
            one: MeasuredBuild | None = measured.get((build.wheel_version, arch))
            if one is not None:
                yield from (line.fault(*fault) for fault in _unlike(build, build.code_on(arch), one, f"the {arch} wheel of {name}"))


def _measured(book: Book, name: str) -> dict[tuple[str, str], MeasuredBuild]:
    found = book.placed(f"measured/{name}", "build") if f"measured/{name}" in book.names() else ()
    return {(one.row.version, arch): one.row for one in found for arch in one.row.arch}


def _unlike(build: Build, targets: tuple[CodeTarget, ...], one: MeasuredBuild, wheel: str) -> Iterator[tuple[str, str]]:
    """Columns of a build that its wheel contradicts, and how."""
    if one.cuda is not None and build.cuda is not None and one.cuda.line != build.cuda.line:
        yield "cuda", f"is {build.cuda}, {wheel} says {one.cuda}"
    if one.cudnn is not None and build.cudnn is not None and not _agree(str(build.cudnn), str(one.cudnn)):
        yield "cudnn", f"is {build.cudnn}, {wheel} says {one.cudnn}"
    if not one.code or not targets:
        return
    if more := sorted(set(targets) - set(one.code)):
        yield "capability", f"names {', '.join(map(str, more))}, which {wheel} does not hold"
    oldest = min(own.capability for own in targets)  # below it is code of what is linked into it, such as NCCL's
    if less := sorted(had for had in one.code if had.capability > oldest and not any(own.runs_on(had.capability) for own in targets)):
        yield "capability", f"leaves out {', '.join(map(str, less))}, which {wheel} holds"


def _agree(one: str, other: str) -> bool:
    """True where two versions are the same as far as both are said."""
    return all(mine == its for mine, its in zip(one.split("."), other.split("."), strict=False))


def _release(book: Book, package: str, version: str) -> WheelRelease | None:
    """A harvested release, by equality of versions."""
    wanted = Version(version)
    return next((one for one in book.releases(package) if one.version == version or Version(one.version) == wanted), None)


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
    specifiers_meet,
    releases_ordered,
    bounds_agree,
    measured_alike,
)
