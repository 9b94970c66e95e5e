"""The CUDA runtime and the cuDNN that an environment loads, each through one channel: pip wheels, apt packages, or what is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.row import Build, CudaRelease, CudnnBuild
from cudnn_resolve.requirement.model import Limit, Need
from cudnn_resolve.resolution import rule
from cudnn_resolve.resolution.model import Candidate, Channel
from cudnn_resolve.resolution.package import is_avoided, is_exact
from cudnn_resolve.resolution.release import Release, parse_version
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from cudnn_resolve.resolution.universe import Universe


class Runtime(Struct, frozen=True, kw_only=True):
    """One line of CUDA runtime libraries through one channel."""

    cuda: CudaVersion
    """The line, `12.4`."""
    channel: Channel
    releases: tuple[str, ...]
    """Toolkit releases of the line that the channel has, newest last."""
    path: str | None = None
    """Directory of an installed toolkit."""
    repository: str | None = None
    """Name of the apt repository."""
    foreign: bool = False
    """True for the repository of an older release of the distribution."""

    @property
    def line(self) -> str:
        """`12.4`."""
        return self.cuda.line


def extras_of(build: Build) -> tuple[str, ...]:
    """The extras that bring the CUDA libraries of a build."""
    return tuple(extra.strip() for extra in (build.extra or "").split(",") if extra.strip())


def channels(universe: Universe) -> tuple[Channel, ...]:
    """The channels that the request allows, in the order of the contract: pip where it serves, what is there, then apt."""
    wanted = universe.request.channel
    if wanted == "pip":
        return ("pip",)
    if wanted == "apt":
        return ("system", "apt")
    return ("pip", "system", "apt")


def preferred(universe: Universe, build: Build | None = None) -> tuple[Channel, ...]:
    """The allowed channels for a build, best first on this machine.

    An installed build stays with the channel that serves it now; any other order is the contract's.
    """
    allowed = channels(universe)
    if build is not None and build.delivery == "system" and universe.fixes_by_extra(build.framework):
        return tuple(sorted(allowed, key=lambda one: one == "pip"))  # an extra such as cuda12-local means the machine's own libraries
    if build is None or "pip" not in allowed or "system" not in allowed or not is_installed(universe, build):
        return allowed
    if lives_on_system(universe, build):
        return ("system", *(one for one in allowed if one != "system"))
    return allowed


def is_installed(universe: Universe, build: Build) -> bool:
    """True where the environment holds a build of this version, as far as the version tells, and the user does not ask for the newest."""
    installed = universe.machine.pip.get(build.package)
    if installed is None or universe.request.prefer != "installed":
        return False
    if installed == build.wheel_version:
        return True
    version = parse_version(installed)
    if version is None or version.public != build.version:
        return False
    if version.local is None:
        return build.index == "default"
    return build.index == "default" and version.local in (build.variant, build.wheel_version.partition("+")[2])


def lives_on_system(universe: Universe, build: Build) -> bool:
    """True for an installed build whose library wheels are missing and which loads the system's libraries instead.

    The loader falls back to its cache where an RPATH leads nowhere; Colab's images of 2024 ran PyTorch so.
    """
    return is_installed(universe, build) and not wheels_serve(universe, build) and system_serves(universe, build)


def wheels_serve(universe: Universe, build: Build) -> bool:
    """True where installed library wheels are all that the build needs; half a set is none."""
    if build.cuda is None:
        return True
    if build.delivery == "system":
        wanted = (component_package(universe, library, build.cuda.major) for library in build.loads)
        if not all(package in universe.machine.pip for package in wanted if package is not None):
            return False
    package = component_package(universe, "cudnn" if build.cudnn else "cudart", build.cuda.major)
    installed = universe.machine.pip.get(package or "")
    if installed is None:
        return False
    return build.cudnn is None or _cudnn_version(installed, build)


def system_serves(universe: Universe, build: Build) -> bool:
    """True where a toolkit and a cuDNN of the system are all that the build needs."""
    if build.cuda is None:
        return False
    major = build.cuda.major
    toolkits = any(one.version and one.source != "pip" and int(one.version.partition(".")[0]) == major for one in universe.machine.toolkits)
    if build.cudnn is None:
        return toolkits
    copies = (one.version for one in universe.machine.cudnn if one.version and one.source != "pip" and one.complete is not False)
    return toolkits and any(_cudnn_version(text, build) for text in copies)


def _cudnn_version(text: str, build: Build) -> bool:
    try:
        return build.cudnn is None or CudnnVersion(text).serves(build.cudnn)
    except ValueError:
        return False


def cuda_candidates(universe: Universe, name: str) -> Iterator[Candidate]:
    """Every CUDA line that some allowed channel has; for `cuda:system`, beside wheels, what is there and what apt has."""
    for channel in _of_system(universe) if name == "cuda:system" else channels(universe):
        if channel == "pip":
            yield from _wheel_lines(universe)
        elif channel == "system":
            for toolkit in universe.machine.toolkits:
                if toolkit.version and toolkit.source != "pip":
                    yield _runtime(name, CudaVersion(toolkit.version), "system", (toolkit.version,), toolkit.path)
        else:
            yield from _apt_lines(universe, name)


def _of_system(universe: Universe) -> tuple[Channel, ...]:
    """The channels that give the system's libraries."""
    allowed = channels(universe)
    return ("system", "apt") if "apt" in allowed else ("system",)


def _runtime(name: str, cuda: CudaVersion, channel: Channel, releases: tuple[str, ...], path: str | None = None) -> Candidate:
    runtime = Runtime(cuda=CudaVersion(cuda.line), channel=channel, releases=releases, path=path)
    return Candidate(name=name, version=cuda.line, kind="cuda", payload=runtime, channel=channel)


def _wheel_lines(universe: Universe) -> Iterator[Candidate]:
    for major in (13, 12, 11, 14, 15):
        package = component_package(universe, "cudart", major)
        if package is None:
            continue
        lines: dict[str, list[str]] = {}
        for release in universe.shelf.releases(package):
            cuda = universe.book.cuda_of(package, release.text)
            if cuda is not None and release.fit.arch:
                lines.setdefault(cuda.line, []).append(str(cuda))
        for line, releases in lines.items():
            yield _runtime("cuda", CudaVersion(line), "pip", tuple(reversed(releases)))


def _apt_lines(universe: Universe, name: str) -> Iterator[Candidate]:
    """CUDA lines of the distribution's own repository, then those that only the repositories of its older releases carry.

    Library packages of an older release run on a newer one, because glibc keeps its old interfaces. Where the distribution is not
    known, nothing is excluded.
    """
    seen: set[str] = set()
    for number, repository in enumerate(repositories(universe)):
        lines: dict[str, list[str]] = {}
        for release in _carried(universe, repository):
            lines.setdefault(release.line, []).append(str(release.cuda))
        for line, releases in lines.items():
            if line in seen:
                continue
            seen.add(line)
            runtime = Runtime(
                cuda=CudaVersion(line),
                channel="apt",
                releases=tuple(releases),
                repository=repository,
                foreign=number > 0 and universe.machine.os is not None,
            )
            yield Candidate(name=name, version=line, kind="cuda", payload=runtime, channel="apt")


def _carried(universe: Universe, repository: str) -> list[CudaRelease]:
    """The releases that a repository carries: those that name it, or where none does, those within its span."""
    releases = universe.book.cuda_releases()
    named = [one for one in releases if repository in one.repositories]
    row = next((one for one in universe.book.repositories() if one.name == repository), None)
    if named or row is None or row.cuda_first is None:
        return named
    last = row.cuda_last
    return [one for one in releases if one.repositories and row.cuda_first <= one.cuda and (last is None or one.line <= last.line)]


def repositories(universe: Universe) -> list[str]:
    """Names of the apt repositories that could serve, the distribution's own first, then older ones, the newest of them first."""
    machine = universe.machine
    rows = [row for row in universe.book.repositories() if not machine.arch or row.arch == machine.arch]
    if machine.os is None:
        return [row.name for row in reversed(rows) if row.os.startswith("ubuntu")]
    distribution = _distribution(machine.os)
    own = _release_of(machine.os)
    family = [row for row in rows if _distribution(row.os) == distribution and _release_of(row.os) <= own]
    if not any(row.os == machine.os for row in family):
        return []
    return [row.name for row in sorted(family, key=lambda row: _release_of(row.os), reverse=True)]


def _distribution(name: str) -> str:
    """`ubuntu` of `ubuntu22.04`."""
    return name.rstrip("0123456789.")


def _release_of(name: str) -> tuple[int, ...]:
    """(22, 4) of `ubuntu22.04`."""
    text = name[len(_distribution(name)) :]
    return tuple(int(part) for part in text.split(".") if part)


def component_package(universe: Universe, library: str, major: int) -> str | None:
    """The pip package that carries a CUDA library of a major, None where there is none."""
    for component in universe.book.components(major):
        if component.library == library:
            return component.package
    return None


def ordered(universe: Universe, found: Iterable[Candidate], needs: Sequence[Need]) -> Iterable[Candidate]:
    """CUDA lines or cuDNN builds, best first.

    The preferred channel; what is installed; what the frameworks were built with; then the newest that the driver knows.
    """
    rank = {channel: number for number, channel in enumerate(preferred(universe))}
    first = next(iter(found), None)
    if first is None:
        return ()
    if first.kind == "cudnn":
        return sorted(found, key=lambda candidate: (rank.get(candidate.channel or "pip", 9), *_newest(candidate.payload)))
    builds = [need.payload for need in needs if isinstance(need.payload, Build) and need.payload.cuda is not None]
    pinned = any(_pins_libraries(universe, build) for build in builds)
    installed = _installed_line(universe)
    native = universe.machine.native_cuda

    def key(candidate: Candidate) -> tuple[int, bool, bool, tuple[int, int]]:
        runtime: Runtime = candidate.payload
        line = (runtime.cuda.major, runtime.cuda.minor)
        beyond = native is not None and runtime.cuda > CudaVersion(native.line)
        ascending = pinned or beyond or native is None
        order = line if ascending else (-line[0], -line[1])
        return rank.get(runtime.channel, 9), runtime.line != installed, not pinned and beyond, order

    return sorted(found, key=key)


def _pins_libraries(universe: Universe, build: Build) -> bool:
    """True where the wheel of a build, or its extra, pins CUDA libraries exactly: then CUDA stays as near as it can."""
    answer = universe.pinning.get(id(build))
    if answer is None:
        wheel = universe.build_candidate(build)
        found = universe.shelf.requirements(wheel.payload, extras_of(build)) if wheel is not None else iter(())
        answer = any(
            is_exact(requirement.specifier) for requirement, _ in found if universe.book.component(canonicalize_name(requirement.name))
        )
        universe.pinning[id(build)] = answer
    return answer


def oldest_line(universe: Universe, build: Build) -> CudaVersion:
    """The oldest CUDA line whose runtime serves a build.

    That which it was built with, unless its own metadata gives a lower bound instead of a pin for the runtime library (JAX does):
    then its authors vouch for older ones.
    """
    assert build.cuda is not None
    line = CudaVersion(build.cuda.line)
    wheel = universe.build_candidate(build)
    package = component_package(universe, "cudart", build.cuda.major)
    if wheel is None or package is None:
        return line
    extras = extras_of(build)
    for name in (wheel.payload, *_plugins(universe, wheel.payload, extras)):
        for requirement, _ in universe.shelf.requirements(name, (*extras, "with-cuda")):
            if canonicalize_name(requirement.name) != package or is_exact(requirement.specifier):
                continue
            for one in requirement.specifier:
                bound = universe.book.cuda_of(package, one.version) if one.operator == ">=" else None
                if bound is not None and bound.major == line.major:
                    return min(line, CudaVersion(bound.line))
    return line


def _plugins(universe: Universe, release: Release, extras: tuple[str, ...]) -> Iterator[Release]:
    """Releases of the packages that an extra adds to a framework's own code, the newest that it accepts of each."""
    for requirement, extra in universe.shelf.requirements(release, extras):
        if extra is None or universe.book.component(canonicalize_name(requirement.name)) is not None:
            continue
        if universe.request.source is not None and universe.book.package(canonicalize_name(requirement.name)) is None:
            continue  # what the matrix does not know says nothing of CUDA, and asking for it would cost a download
        for other in universe.shelf.releases(canonicalize_name(requirement.name)):
            if requirement.specifier.contains(other.version, prereleases=True):
                yield other
                break


def _newest(build: CudnnBuild) -> tuple[int, ...]:
    parts = (*build.version.parts, 0, 0, 0)[:4]
    return (*(-part for part in parts), -build.cuda_major)


def _installed_line(universe: Universe) -> str | None:
    """CUDA line of the installed runtime wheel."""
    if universe.request.prefer != "installed":
        return None
    for major in (13, 12, 11):
        package = component_package(universe, "cudart", major)
        version = universe.machine.pip.get(package or "")
        if package and version:
            cuda = universe.book.cuda_of(package, version)
            if cuda is not None:
                return cuda.line
    return None


def cuda_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """What a CUDA runtime needs of the driver, of the GPUs and of the user's limit."""
    runtime: Runtime = candidate.payload
    who = f"CUDA {runtime.line}"
    need = rule.driver_need(universe.book, runtime.cuda, universe.request.driver_policy, who)
    if need is not None:
        yield need
    if runtime.channel == "apt" and universe.request.channel == "auto":
        yield Need("root", lambda other: other.payload is not False, "a user who may become root", f"{who} comes from apt")
    yield from rule.library_needs(universe.book, universe.machine, runtime.cuda, who)
    yield cuda_limit(runtime.cuda, runtime.releases, who)


def cuda_limit(cuda: CudaVersion, releases: Sequence[str], who: str) -> Need:
    """The need that the user's limit on CUDA allows this line, or one of its releases."""

    def test(candidate: Candidate) -> bool:
        limit: Limit | None = candidate.payload
        return limit is None or _allows(limit, cuda.line, *releases)

    return Need("limit:cuda", test, f"CUDA {cuda.line} allowed", f"{who} is that CUDA")


def early_limits(universe: Universe, build: Build, who: str) -> Iterator[Need]:
    """The needs that the user's limits leave something for a build, said before a CUDA or a cuDNN is chosen."""
    built, cudnn = build.cuda, build.cudnn
    if built is None:
        return
    cuda_limit_, cudnn_limit_ = universe.request.cuda, universe.request.cudnn
    if cuda_limit_ is not None:
        floor = oldest_line(universe, build)
        lines = [one for one in universe.book.cuda_releases() if one.cuda.major == built.major and one.cuda >= floor]
        if not any(_allows(cuda_limit_, one.line, str(one.cuda)) for one in lines):
            text = f"CUDA {built.line} to {built.major}.x allowed"
            yield Need("limit:cuda", lambda other: other.payload is None, text, f"{who} is built with CUDA {built}")
    if cudnn_limit_ is not None and cudnn is not None:
        serving = [one.version for one in universe.book.cudnn_builds() if one.cuda_major == built.major and one.version.serves(cudnn)]
        if not any(_allows(cudnn_limit_, str(one), _short(one)) for one in serving):
            text = f"cuDNN {cudnn.major}.{cudnn.minor} or newer of {cudnn.major}.x allowed"
            yield Need("limit:cudnn", lambda other: other.payload is None, text, f"{who} is built with cuDNN {cudnn}")


def _allows(limit: Limit, *texts: str) -> bool:
    return any(limit.specifier.contains(text, prereleases=True) for text in texts)


def _short(version: CudnnVersion) -> str:
    """`9.3.0` of `9.3.0.75`."""
    return ".".join(map(str, version.parts[:3]))


def cudnn_candidates(universe: Universe, name: str) -> Iterator[Candidate]:
    """Every cuDNN build that some allowed channel has; for `cudnn:system`, beside wheels, what is there and what apt has."""
    for channel in _of_system(universe) if name == "cudnn:system" else channels(universe):
        if channel == "system":
            yield from _system_cudnn(universe, name)
            continue
        for build in universe.book.cudnn_builds():
            if channel == "pip":
                if build.wheel is None or not _wheel_exists(universe, build):
                    continue
            elif build.apt_package is None or build.apt_version is None:
                continue
            if not _avoided(universe, build, channel):
                yield _cudnn(name, build, channel)


def _cudnn(name: str, build: CudnnBuild, channel: Channel) -> Candidate:
    return Candidate(name=name, version=str(build.version), kind="cudnn", payload=build, channel=channel)


def _wheel_exists(universe: Universe, build: CudnnBuild) -> bool:
    return any(release.text == str(build.version) for release in universe.shelf.releases(build.wheel or ""))


def _avoided(universe: Universe, build: CudnnBuild, channel: Channel) -> bool:
    version = parse_version(str(build.version))
    if version is None or universe.request.strict_pins:
        return False
    names = ("cudnn", build.wheel) if channel == "pip" and build.wheel else ("cudnn",)
    return any(is_avoided(universe, name, version) for name in names)


def _system_cudnn(universe: Universe, name: str) -> Iterator[Candidate]:
    builds = universe.book.cudnn_builds()
    for copy in universe.machine.cudnn:
        if copy.version is None or copy.source == "pip" or copy.complete is False:
            continue
        try:
            version = CudnnVersion(copy.version)
        except ValueError:
            continue
        major = int(copy.cuda.split(".")[0]) if copy.cuda and copy.cuda.split(".")[0].isdigit() else None
        known = [
            build
            for build in builds
            if (build.version == version or (len(version.parts) == 3 and build.version.parts[:3] == version.parts))
            and (major is None or build.cuda_major == major)
        ]
        for build in known[:1]:
            yield _cudnn(name, build, "system")
        if not known and major is not None:
            yield _cudnn(name, CudnnBuild(version=version, cuda_major=major, soname=copy.soname or version.major), "system")


def cudnn_needs(universe: Universe, candidate: Candidate) -> Iterator[Need]:
    """What a cuDNN needs: GPUs that it has code for, a CUDA that it works with, a driver, and to be allowed."""
    build: CudnnBuild = candidate.payload
    who = f"cuDNN {build.version} for CUDA {build.cuda_major}"
    yield from rule.cudnn_hardware(universe.book, universe.machine, build)
    if build.driver is not None and universe.request.driver_policy == "strict":
        yield rule.at_least(build.driver, f"{who} asks for it")
    yield cudnn_limit(build.version, who)
    with_ = {"pip": ("pip",), "apt": ("apt", "system"), "system": ("system", "apt")}[candidate.channel or "pip"]
    first, last = build.cuda_first, build.cuda_last

    def fits(other: Candidate) -> bool:
        runtime: Runtime = other.payload
        if runtime.channel not in with_ or runtime.cuda.major != build.cuda_major:
            return False
        return (first is None or runtime.cuda >= CudaVersion(first.line)) and (last is None or runtime.cuda <= CudaVersion(last.line))

    span = f"CUDA {first.line if first else build.cuda_major}" + (f" to {last.line}" if last else " or later of that major")
    yield Need("cuda:system" if candidate.name == "cudnn:system" else "cuda", fits, span, f"{who} works with it")
    if candidate.channel == "pip" and build.wheel:
        text = str(build.version)
        yield Need(
            f"pip:{build.wheel}", lambda other: other.payload.text == text, f"{build.wheel}=={text}", f"the wheel that carries {who}"
        )


def cudnn_limit(version: CudnnVersion, who: str) -> Need:
    """The need that the user's limit on cuDNN allows this version."""

    def test(candidate: Candidate) -> bool:
        limit: Limit | None = candidate.payload
        return limit is None or _allows(limit, str(version), _short(version))

    return Need("limit:cudnn", test, f"cuDNN {version} allowed", f"{who} is that cuDNN")
