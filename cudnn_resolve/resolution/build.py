"""What the builds of frameworks need: of the machine, of CUDA and cuDNN, of other packages; and the channels of their CUDA libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cudnn_resolve.requirement.extra import CPU
from cudnn_resolve.requirement.target import VENDOR
from cudnn_resolve.resolution import compatibility
from cudnn_resolve.resolution.candidate import (
    Channel,
    CudaCandidate,
    CudnnCandidate,
    Kind,
    LibrariesCandidate,
    Need,
    PipCandidate,
    WheelCandidate,
    shared_major,
    slot_need,
)
from cudnn_resolve.resolution.channel import BESIDE, apt_beside, component_package, is_installed, lives_on_system, of_build, wheels_found
from cudnn_resolve.resolution.cuda import cuda_limit
from cudnn_resolve.resolution.framework_bounds import bound_needs, direct_needs
from cudnn_resolve.resolution.key import CUDA_LIMIT, CUDNN_LIMIT, CudaKey, CudnnKey, LibrariesKey, SlotKey, pip_key
from cudnn_resolve.resolution.package import file_needs
from cudnn_resolve.resolution.pin_override import requirement_need
from cudnn_resolve.resolution.release import extras_of
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.resolution.context import Context
    from cudnn_resolve.resolution.cuda import CudaRuntimes
    from cudnn_resolve.resolution.installed import InstalledFrameworks
    from cudnn_resolve.resolution.package import PipPackages
    from cudnn_resolve.resolution.release import Release

_THROUGH = {"pip": " as pip wheels", "apt": " from apt", "system": " of the system"}


def described(release: Release, build: Build) -> str:
    """A build's wheel in words: `torch 2.6.0 (cu124)`."""
    return f"{build.package} {release.text}" + (f" ({build.variant})" if "+" not in release.text else "")


def libraries_of(build: Build) -> str:
    """What a GPU build is built with: `CUDA 12.4 and cuDNN 9.1`."""
    return f"CUDA {build.cuda}" + (f" and cuDNN {build.cudnn}" if build.cudnn else "")


class Builds:
    """What each build of a framework needs."""

    def __init__(self, context: Context, packages: PipPackages, runtimes: CudaRuntimes, installed: InstalledFrameworks) -> None:
        self.context = context
        self.packages = packages
        self.runtimes = runtimes
        self.installed = installed
        self._lines: dict[int, list[CudaVersion]] = {}

    def wheel_needs(self, candidate: WheelCandidate) -> Iterator[Need]:
        """What the wheel of a build needs of the machine, of CUDA and cuDNN, and of other packages."""
        context, release, build = self.context, candidate.release, candidate.build
        yield from bound_needs(context, release)
        who = described(release, build)
        yield from file_needs(context, release, who)
        if build.cuda is not None:
            yield from self._cuda_needs(build, who)
        apart = self._is_separate(build)
        asked = context.added_extras(build.framework)
        extras = asked if build.cuda is None and build.extra != CPU else (*extras_of(build), *asked)
        context.metadata.prefetch_requirements(release, extras)
        for requirement, of in context.metadata.requirements(release, extras):
            name = canonicalize_name(requirement.name)
            brought = context.book.component(name) is not None
            if of not in asked and apart and ((brought and (of is not None or build.delivery == "wheel")) or name.startswith("tensorrt")):
                continue
            yield requirement_need(context, requirement, by=release, extra=of, who=who)
        yield from direct_needs(context, release)

    def _cuda_needs(self, build: Build, who: str) -> Iterator[Need]:
        assert build.cuda is not None
        yield from self.machine_needs(build, who)
        if build.delivery == "bundled":
            yield from compatibility.library_needs(self.context.book, self.context.machine, build.cuda, who)
            yield cuda_limit(build.cuda, (), who)
            yield from self._bundled_cudnn(build, who)
        elif self._is_separate(build):
            yield self._libraries_need(build, who)
        else:
            yield from self.library_needs(build, who, ("pip",))
            yield from self.loaded_needs(build, who)

    def machine_needs(self, build: Build, who: str) -> Iterator[Need]:
        """What a GPU build needs of driver and GPUs whatever else is chosen, and of the majors that all frameworks share."""
        assert build.cuda is not None
        context, book, machine = self.context, self.context.book, self.context.machine
        if build.driver is not None and context.request.driver_policy == "strict":
            yield compatibility.at_least(build.driver, f"{who}: its documentation asks for it")
        yield from compatibility.card_driver_needs(book, machine)
        yield from compatibility.code_needs(book, machine, build, who)
        if build.variant != VENDOR and not is_installed(context, build):
            yield from compatibility.jetson_needs(book, machine, build.cuda, who)
            yield from self.installed.beside_needs(build, who)
        need = compatibility.driver_need(book, build.cuda, context.request.driver_policy, who)
        if need is not None:
            yield need
        if build.delivery != "bundled":
            yield from self._early_needs(build, who)

    def _early_needs(self, build: Build, who: str) -> Iterator[Need]:
        """What any CUDA runtime that serves the build will need, said before one is chosen, so that a hopeless build is dropped at once.

        Frameworks share one CUDA major and one cuDNN major; only an installed one may live on libraries of its own.
        """
        assert build.cuda is not None
        yield from compatibility.library_needs(self.context.book, self.context.machine, build.cuda, who, any_minor=True)
        yield from self._early_limits(build, who)
        if is_installed(self.context, build):
            return
        yield shared_major("CUDA", build.cuda.major, f"{who} is built with CUDA {build.cuda}")
        if build.cudnn is not None:
            yield shared_major("cuDNN", build.cudnn.major, f"{who} is built with cuDNN {build.cudnn}")
            yield _file_major(build.cudnn.major, build.cuda.major, who)

    def _early_limits(self, build: Build, who: str) -> Iterator[Need]:
        """The needs that the user's limits leave something for a build, said before a CUDA or a cuDNN is chosen."""
        built, cudnn = build.cuda, build.cudnn
        assert built is not None
        book, request = self.context.book, self.context.request
        if request.cuda is not None:
            allowed = self._allowed_lines(built.major)
            # The floor of a build takes its metadata; it is asked for only where the CUDA that the build was built with does not decide.
            if not allowed or (max(allowed) < CudaVersion(built.line) and max(allowed) < self.runtimes.oldest_line(build)):
                text = f"CUDA {built.line} to {built.major}.x allowed"
                yield Need(CUDA_LIMIT, lambda other: other.value is None, text, f"{who} is built with CUDA {built}")
        if request.cudnn is not None and cudnn is not None:
            serving = [one.version for one in book.cudnn_builds() if one.cuda_major == built.major and one.version.serves(cudnn)]
            if not any(compatibility.allows(request.cudnn, *compatibility.cudnn_forms(one)) for one in serving):
                text = f"cuDNN {cudnn.major}.{cudnn.minor} or newer of {cudnn.major}.x allowed"
                yield Need(CUDNN_LIMIT, lambda other: other.value is None, text, f"{who} is built with cuDNN {cudnn}")

    def _allowed_lines(self, major: int) -> list[CudaVersion]:
        """The CUDA lines of a major that the user's limit allows."""
        limit = self.context.request.cuda
        if major not in self._lines:
            lines = (one for one in self.context.book.cuda_releases() if one.cuda.major == major)
            self._lines[major] = [one.cuda for one in lines if limit is None or compatibility.allows(limit, one.line, str(one.cuda))]
        return self._lines[major]

    def _is_separate(self, build: Build) -> bool:
        """True where the build's own code stands alone and only its CUDA libraries come by an extra or by hand.

        Then other channels may take their place. An extra that brings code, too (JAX's plugins), is no such extra.
        """
        if build.delivery != "wheel":
            return build.delivery == "system"
        if lives_on_system(self.context, build):
            return True
        if not extras_of(build) or self.context.release_of(build) is None:
            return False
        return next(self.context.plugins_of(build), None) is None

    def _libraries_need(self, build: Build, who: str) -> Need:
        """The need for a channel of the CUDA libraries: pip where the user asks for the extra that brings them as wheels."""
        extras = self.context.asked_extras(build.framework).intersection(extras_of(build))
        text = f"CUDA libraries for {who}" + (f" as pip wheels (extra {', '.join(sorted(extras))})" if extras else "")

        def test(other: LibrariesCandidate) -> bool:
            return other.build is build and (not extras or build.delivery != "wheel" or other.channel in ("pip", "folder"))

        return Need(LibrariesKey(build.framework), test, text, who, build=build)

    def _bundled_cudnn(self, build: Build, who: str) -> Iterator[Need]:
        """The needs of the cuDNN inside a wheel, which nobody can replace."""
        if build.cudnn is None or build.cuda is None:
            return
        yield compatibility.cudnn_limit(build.cudnn, who)
        if not is_installed(self.context, build):
            yield _file_major(build.cudnn.major, build.cuda.major, who)
        length = len(build.cudnn.parts)
        for row in self.context.book.cudnn_builds():
            if row.version.parts[:length] == build.cudnn.parts and row.cuda_major == build.cuda.major:
                yield from compatibility.cudnn_hardware(self.context.book, self.context.machine, row)
                return

    def library_needs(self, build: Build, who: str, allowed: tuple[Channel, ...], *, of_system: bool = False) -> Iterator[Need]:
        """The needs for a CUDA runtime and a cuDNN that serve the build, through some channels."""
        yield self._runtime_need(build, who, allowed, CudaKey(of_system))
        yield from self._cudnn_need(build, who, allowed, CudnnKey(of_system))

    def cuda_needs(self, build: Build, who: str) -> Iterator[Need]:
        """The needs for the wheels of CUDA alone, where the cuDNN is the system's."""
        yield self._runtime_need(build, who, ("pip",), CudaKey())
        yield from self.loaded_needs(build, who)

    def folder_needs(self, build: Build, who: str) -> Iterator[Need]:
        """The needs for the wheels of a CUDA runtime, and for a cuDNN that serves the build in a folder of its own."""
        yield self._runtime_need(build, who, ("pip",), CudaKey())
        yield from self._cudnn_need(build, who, ("folder",), CudnnKey(in_folder=True))

    def _runtime_need(self, build: Build, who: str, allowed: tuple[Channel, ...], key: CudaKey) -> Need:
        """The need for a CUDA runtime that serves the build: its major, not older than it can do with, the same library names.

        An older minor of the same major is let pass only for what is installed and lives on it already.
        """
        built = build.cuda
        assert built is not None
        beside = wheels_found(self.context, build) if "pip" not in allowed else None
        if beside is not None:
            return self._wheels_need(build, beside, who, key)
        floor = self.runtimes.oldest_line(build)
        libraries = [name for name in (build.loads or compatibility.LIBRARIES) if name in compatibility.LIBRARIES]
        lenient = is_installed(self.context, build)
        answers: dict[tuple[str, str], bool] = {}

        def serves(cuda: CudaVersion, channel: str) -> bool:
            if cuda.major != built.major:
                return False
            if cuda < floor and not (lenient and channel == "system" and built.major >= 11):
                return False
            if channel == "apt" and any(one in build.loads and apt_beside(self.context.book, one, cuda) is None for one in BESIDE):
                return False
            return compatibility.same_sonames(self.context.book, built, cuda, libraries) is None

        def test(other: CudaCandidate) -> bool:
            if other.channel not in allowed:
                return False
            answer = (other.channel, other.version)
            if answer not in answers:
                answers[answer] = serves(other.cuda, other.channel)
            return answers[answer]

        end, renamed = self._renamed(built, tuple(libraries))
        lines = f">= {floor}, < {end}" if built.major >= 11 else f"{built.line}"
        because = f"{who} is built with CUDA {built}{renamed}"
        if built.major < 11 and built < (first := self.context.book.first_cuda()):
            return Need(key, test, f"CUDA {lines}", f"{because}, and the oldest that can be planned is {first}", build=build)
        through = _THROUGH[allowed[0]] if len(allowed) == 1 else ""
        return Need(key, test, f"CUDA {lines}{through}", because, build=build)

    def _renamed(self, built: CudaVersion, libraries: tuple[str, ...]) -> tuple[str, str]:
        """The first CUDA line that lacks a library under the name of the one built with, and what it says; else the next major."""
        book = self.context.book

        def answer() -> tuple[str, str]:
            later = sorted({one.cuda for one in book.cuda_releases() if one.cuda.major == built.major and one.cuda > built})
            for cuda in later if built.major >= 11 else ():
                said = compatibility.same_sonames(book, built, cuda, libraries)
                if said is not None:
                    return cuda.line, f"; {said}"
            return str(built.major + 1), ""

        return book.remember("renamed", (str(built), libraries), answer)

    def _wheels_need(self, build: Build, found: CudaVersion, who: str, key: CudaKey) -> Need:
        """The need for the CUDA of the installed wheels, which the build loads whatever the system has; an older minor is warned of."""

        def test(other: CudaCandidate) -> bool:
            return other.channel == "pip" and other.cuda == found

        because = f"{who} looks for CUDA among the wheels of its environment before it looks on the system"
        return Need(key, test, f"CUDA {found} of the installed wheels", because, build=build)

    def _cudnn_need(self, build: Build, who: str, allowed: tuple[Channel, ...], key: CudnnKey) -> Iterator[Need]:
        """The need for a cuDNN that serves the build: same major, minor at least as new, for the same CUDA major."""
        built = build.cudnn
        if built is None or build.cuda is None:
            return
        major = build.cuda.major
        text = f"cuDNN >= {built.major}.{built.minor}, < {built.major + 1} for CUDA {major}"
        because = f"{who} is built with cuDNN {built}; cuDNN must be of the same major and at least that minor"

        def test(other: CudnnCandidate) -> bool:
            return other.channel in allowed and other.build.cuda_major == major and other.build.version.serves(built)

        yield Need(key, test, text, because, build=build)
        package = component_package(self.context.book, "cudnn", major)
        if allowed != ("pip",) or package is None:
            return

        def is_wheel(other: PipCandidate) -> bool:
            release = other.release
            if release is None:
                return False
            version = release.version
            return version.major == built.major and version.minor >= built.minor and not self.context.is_bad(release)

        yield Need(pip_key(package), is_wheel, f"{package} >= {built.major}.{built.minor}, < {built.major + 1}", because)

    def loaded_needs(self, build: Build, who: str) -> Iterator[Need]:
        """The needs for the wheels of the libraries that a build loads, where its own requirements do not name them."""
        assert build.cuda is not None
        book, line = self.context.book, CudaVersion(build.cuda.line)
        for library in build.loads:
            package = component_package(book, library, line.major)
            if package is None or library == "cudnn":
                continue

            def test(other: PipCandidate) -> bool:
                if other.release is None or self.context.is_bad(other.release):
                    return False
                cuda = book.cuda_of(other.release.package, other.release.text)
                return cuda is None or cuda >= line

            yield Need(pip_key(package), test, f"{package} of CUDA {line} or later", f"{who} loads {library}")


def _file_major(soname: int, cuda: int, who: str) -> Need:
    """The need that every libcudnn of one name in the process is for one CUDA: the first that is loaded serves all."""
    because = f"{who} loads libcudnn.so.{soname} for CUDA {cuda}, and a process keeps the first library of a name"
    return slot_need(SlotKey(f"libcudnn.so.{soname}"), str(cuda), f"libcudnn.so.{soname} for CUDA {cuda}", because)


class Libraries(Kind[LibrariesKey, LibrariesCandidate]):
    """CUDA libraries of a build that has none of its own: the channels through which they may come."""

    def __init__(self, builds: Builds) -> None:
        super().__init__()
        self._builds = builds
        self._of_build: dict[tuple[LibrariesKey, int], tuple[LibrariesCandidate, ...]] = {}

    def candidates(self, key: LibrariesKey, needs: Sequence[Need]) -> Iterable[LibrariesCandidate]:
        """The channels for the build that the needs are about, best first."""
        build = needs[0].build
        assert build is not None
        found = self._of_build.get((key, id(build)))
        if found is None:
            found = self._of_build[key, id(build)] = tuple(
                LibrariesCandidate(key=key, version=channel, build=build, channel=channel)
                for channel in of_build(self._builds.context, build)
            )
        return found

    def needs(self, candidate: LibrariesCandidate) -> Iterator[Need]:
        """What a build needs where its CUDA libraries come through one channel."""
        build, channel = candidate.build, candidate.channel
        who = f"{build.package} {build.wheel_version}"
        allowed: tuple[Channel, ...] = ("system", "apt") if channel == "apt" else (channel,)
        if channel == "folder":
            yield from self._builds.folder_needs(build, who)
        else:
            yield from self._builds.library_needs(build, who, allowed, of_system=channel != "pip" and self._lives_apart(build))
        if channel not in ("pip", "folder"):
            return
        named = set()
        for need in self._extra_needs(build, who, but="cudnn" if channel == "folder" else None):
            named.add(need.key)
            yield need
        yield from (need for need in self._builds.loaded_needs(build, who) if need.key not in named)

    def _extra_needs(self, build: Build, who: str, *, but: str | None) -> Iterator[Need]:
        """The needs for the library wheels that the extra of a build brings, but for one library."""
        builds = self._builds
        own = builds.context.release_of(build)
        if not build.extra or own is None:
            return
        binding = not builds.context.asked_extras(build.framework).isdisjoint(extras_of(build))
        for requirement, extra in builds.context.requirements_of(build):
            component = builds.context.book.component(canonicalize_name(requirement.name))
            if extra is not None and component is not None and component.library != but:
                yield requirement_need(builds.context, requirement, by=own, extra=extra, who=who, binding=binding)

    def _lives_apart(self, build: Build) -> bool:
        """True for a build that may have the system's libraries for itself: it is installed, or another one that is asked for is."""
        context = self._builds.context
        if is_installed(context, build):
            return True
        return any(context.holds(target.framework) for target in context.request.targets if target.framework != build.framework)
