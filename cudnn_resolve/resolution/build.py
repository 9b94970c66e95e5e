"""Needs of framework builds, on the machine, CUDA, cuDNN and other packages; and the channels of their CUDA libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.row import Build
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
    known_mismatch,
    shared_major,
    slot_need,
)
from cudnn_resolve.resolution.channel import (
    EXTRA_LIBRARIES,
    channels_of_build,
    component_package,
    cuda_of_found_wheels,
    extra_apt_package,
    is_installed,
    uses_system,
)
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.cuda import CudaRuntimes
from cudnn_resolve.resolution.framework_bounds import bound_needs, direct_needs
from cudnn_resolve.resolution.installed import InstalledFrameworks
from cudnn_resolve.resolution.key import CUDA_LIMIT, CUDNN_LIMIT, CudaKey, CudnnKey, LibrariesKey, SlotKey, pip_key
from cudnn_resolve.resolution.package import PipPackages, file_needs
from cudnn_resolve.resolution.pin_override import requirement_need
from cudnn_resolve.resolution.release import Release, extras_of
from cudnn_resolve.version import CudaVersion

_THROUGH = {"pip": " as pip wheels", "apt": " from apt", "system": " of the system"}


def describe_wheel(release: Release, build: Build) -> str:
    """Display name of a build's wheel: `torch 2.6.0 (cu124)`."""
    return f"{build.package} {release.text}" + (f" ({build.variant})" if "+" not in release.text else "")


def libraries_of(build: Build) -> str:
    """Libraries that a GPU build was built with: `CUDA 12.4 and cuDNN 9.1`."""
    return f"CUDA {build.cuda}" + (f" and cuDNN {build.cudnn}" if build.cudnn else "")


class Builds:
    """Needs of framework builds."""

    def __init__(self, context: Context, packages: PipPackages, runtimes: CudaRuntimes, installed: InstalledFrameworks) -> None:
        self.context = context
        self.packages = packages
        self.runtimes = runtimes
        self.installed = installed
        self._allowed_lines: Callable[[int], list[CudaVersion]] = cache(self._find_allowed_lines)

    def wheel_needs(self, candidate: WheelCandidate) -> Iterator[Need]:
        """What the wheel of a build needs of the machine, CUDA, cuDNN and other packages."""
        context, release, build = self.context, candidate.release, candidate.build
        yield from bound_needs(context, release)
        who = describe_wheel(release, build)
        yield from file_needs(context, release, who)
        if build.cuda is not None:
            yield from self._gpu_needs(build, who)
        is_separate = self._has_separate_libraries(build)
        requested = context.package_extras(build.framework)
        extras = requested if build.cuda is None and build.extra != CPU else (*extras_of(build), *requested)
        context.metadata.prefetch_requirements(release, extras)
        for requirement, extra in context.metadata.requirements(release, extras):
            name = canonicalize_name(requirement.name)
            is_library = context.book.component(name) is not None and (extra is not None or build.delivery == "wheel")
            if is_separate and extra not in requested and (is_library or name.startswith("tensorrt")):
                continue
            yield requirement_need(context, requirement, by=release, extra=extra, who=who)
        yield from direct_needs(context, release)

    def _gpu_needs(self, build: Build, who: str) -> Iterator[Need]:
        assert build.cuda is not None
        yield from self.machine_needs(build, who)
        if build.delivery == "bundled":
            yield from compatibility.library_needs(self.context.book, self.context.machine, build.cuda, who)
            yield compatibility.cuda_limit(build.cuda, (), f"{who} bundles it")
            yield from self._bundled_cudnn_needs(build, who)
        elif self._has_separate_libraries(build):
            yield self._libraries_need(build, who)
        else:
            yield from self.library_needs(build, who, ("pip",))
            yield from self.loaded_needs(build, who)

    def machine_needs(self, build: Build, who: str) -> Iterator[Need]:
        """What a GPU build needs of the driver, the GPUs and the shared majors, whatever else is chosen."""
        assert build.cuda is not None
        context, book, machine = self.context, self.context.book, self.context.machine
        if build.driver is not None and context.request.driver_policy == "strict":
            yield compatibility.at_least(build.driver, f"{who}: its documentation requires it")
        yield from compatibility.card_driver_needs(book, machine)
        yield from compatibility.code_needs(book, machine, build, who)
        if build.variant != VENDOR and not is_installed(context, build):
            yield from compatibility.jetson_needs(book, machine, build.cuda, who)
            yield from self.installed.beside_needs(build, who)
        yield from compatibility.driver_needs(book, build.cuda, context.request.driver_policy, who)
        if build.delivery != "bundled":
            yield from self._early_needs(build, who)

    def _early_needs(self, build: Build, who: str) -> Iterator[Need]:
        """Needs of every CUDA runtime that works for the build, stated before one is chosen so that a hopeless build is dropped early.

        Frameworks share one CUDA major and one cuDNN major; only an installed one may use libraries of its own.
        """
        assert build.cuda is not None
        yield from compatibility.library_needs(self.context.book, self.context.machine, build.cuda, who, any_minor=True)
        yield from self._early_limits(build, who)
        if is_installed(self.context, build):
            return
        yield shared_major("CUDA", build.cuda.major, f"{who} is built with CUDA {build.cuda}")
        if build.cudnn is not None:
            yield shared_major("cuDNN", build.cudnn.major, f"{who} is built with cuDNN {build.cudnn}")
            yield _same_cuda_need(build.cudnn.major, build.cuda.major, who)

    def _early_limits(self, build: Build, who: str) -> Iterator[Need]:
        """Needs that the user's limits allow some CUDA and cuDNN for a build, stated before one is chosen."""
        built, cudnn = build.cuda, build.cudnn
        assert built is not None
        book, request = self.context.book, self.context.request
        if request.cuda is not None:
            allowed = self._allowed_lines(built.major)
            # `oldest_line` reads metadata, so it is called only if the CUDA that the build was built with does not decide.
            if not allowed or (max(allowed) < CudaVersion(built.line) and max(allowed) < self.runtimes.oldest_line(build)):
                text = f"--cuda to allow CUDA {built.line} to {built.major}.x"
                yield known_mismatch(CUDA_LIMIT, text, f"{who} is built with CUDA {built}")
        if request.cudnn is not None and cudnn is not None:
            of_major = (row.version for row in book.cudnn_builds() if row.cuda_major == built.major)
            serving = [version for version in of_major if version.serves(cudnn)]
            if not any(compatibility.allows(request.cudnn, *compatibility.cudnn_spellings(version)) for version in serving):
                text = f"--cudnn to allow cuDNN {cudnn.major}.{cudnn.minor} or newer of {cudnn.major}.x"
                yield known_mismatch(CUDNN_LIMIT, text, f"{who} is built with cuDNN {cudnn}")

    def _find_allowed_lines(self, major: int) -> list[CudaVersion]:
        """CUDA releases of a major that the user's limit allows."""
        limit = self.context.request.cuda
        rows = (row for row in self.context.book.cuda_releases() if row.cuda.major == major)
        return [row.cuda for row in rows if limit is None or compatibility.allows(limit, row.line, str(row.cuda))]

    def _has_separate_libraries(self, build: Build) -> bool:
        """True if the wheel is complete but for CUDA libraries, which an extra or the user provides, so that any channel may.

        False for an extra that adds framework code, too (JAX's plugins).
        """
        if build.delivery != "wheel":
            return build.delivery == "system"
        if uses_system(self.context, build):
            return True
        if not extras_of(build) or self.context.releases.of_build(build) is None:
            return False
        return next(self.context.plugins_of(build), None) is None

    def _libraries_need(self, build: Build, who: str) -> Need:
        """Need for a channel of the CUDA libraries: pip if the user requests the extra that installs them as wheels."""
        extras = self.context.requested_extras(build.framework).intersection(extras_of(build))
        text = f"CUDA libraries for {who}" + (f" as pip wheels (extra {', '.join(sorted(extras))})" if extras else "")

        def test(other: LibrariesCandidate) -> bool:
            return other.build is build and (not extras or build.delivery != "wheel" or other.channel in ("pip", "folder"))

        return Need(LibrariesKey(build.framework), test, text, who, build=build)

    def _bundled_cudnn_needs(self, build: Build, who: str) -> Iterator[Need]:
        """Needs of the cuDNN inside a wheel, which cannot be replaced."""
        if build.cudnn is None or build.cuda is None:
            return
        yield compatibility.cudnn_limit(build.cudnn, f"{who} bundles it")
        if not is_installed(self.context, build):
            yield _same_cuda_need(build.cudnn.major, build.cuda.major, who)
        length = len(build.cudnn.parts)
        for row in self.context.book.cudnn_builds():
            if row.version.parts[:length] == build.cudnn.parts and row.cuda_major == build.cuda.major:
                yield from compatibility.cudnn_hardware(self.context.book, self.context.machine, row)
                return

    def library_needs(self, build: Build, who: str, allowed: tuple[Channel, ...], *, of_system: bool = False) -> Iterator[Need]:
        """Needs for a CUDA runtime and a cuDNN that work for the build, through some channels."""
        yield self._runtime_need(build, who, allowed, CudaKey(of_system))
        yield from self._cudnn_needs(build, who, allowed, CudnnKey(of_system))

    def cuda_needs(self, build: Build, who: str) -> Iterator[Need]:
        """Needs for CUDA wheels alone, for a build with the system's cuDNN."""
        yield self._runtime_need(build, who, ("pip",), CudaKey())
        yield from self.loaded_needs(build, who)

    def folder_needs(self, build: Build, who: str) -> Iterator[Need]:
        """Needs for the wheels of a CUDA runtime, and for a cuDNN in a separate folder."""
        yield self._runtime_need(build, who, ("pip",), CudaKey())
        yield from self._cudnn_needs(build, who, ("folder",), CudnnKey(in_folder=True))

    def _runtime_need(self, build: Build, who: str, allowed: tuple[Channel, ...], key: CudaKey) -> Need:
        """Need for a CUDA runtime that works for the build: same major, not too old, same sonames.

        An older minor of the same major is accepted only for an installed build that uses it already.
        """
        built = build.cuda
        assert built is not None
        of_wheels = cuda_of_found_wheels(self.context, build) if "pip" not in allowed else None
        if of_wheels is not None:
            return self._wheels_need(build, of_wheels, who, key)
        floor = self.runtimes.oldest_line(build)
        libraries = tuple(name for name in (build.loads or compatibility.LIBRARIES) if name in compatibility.LIBRARIES)
        accepts_older = is_installed(self.context, build)
        book, loaded = self.context.book, [library for library in EXTRA_LIBRARIES if library in build.loads]

        def test(other: CudaCandidate) -> bool:
            cuda, channel = other.cuda, other.channel
            if channel not in allowed or cuda.major != built.major:
                return False
            if cuda < floor and not (accepts_older and channel == "system" and built.major >= 11):
                return False
            if channel == "apt" and any(extra_apt_package(book, library, cuda) is None for library in loaded):
                return False
            return compatibility.soname_mismatch(book, built, cuda, libraries) is None

        end, mismatch = self._first_mismatch(built, libraries)
        lines = f">= {floor}, < {end}" if built.major >= 11 else built.line
        because = f"{who} is built with CUDA {built}{mismatch}"
        if built.major < 11 and built < (first := book.first_cuda()):
            return Need(key, test, f"CUDA {lines}", f"{because}, and the oldest supported one is {first}", build=build)
        through = _THROUGH[allowed[0]] if len(allowed) == 1 else ""
        return Need(key, test, f"CUDA {lines}{through}", because, build=build)

    def _first_mismatch(self, built: CudaVersion, libraries: tuple[str, ...]) -> tuple[str, str]:
        """First CUDA line in which a library has another soname, and a description; otherwise the next major and no text."""
        book = self.context.book

        def answer() -> tuple[str, str]:
            later = sorted({row.cuda for row in book.cuda_releases() if row.cuda.major == built.major and row.cuda > built})
            for cuda in later if built.major >= 11 else ():
                mismatch = compatibility.soname_mismatch(book, built, cuda, libraries)
                if mismatch is not None:
                    return cuda.line, f"; {mismatch}"
            return str(built.major + 1), ""

        return book.remember("first soname mismatch", (str(built), libraries), answer)

    def _wheels_need(self, build: Build, found: CudaVersion, who: str, key: CudaKey) -> Need:
        """Need for the CUDA of the installed wheels, which the build loads whatever the system has; an older minor is warned about."""
        because = f"{who} loads CUDA from the wheels of its environment rather than from the system"
        text = f"CUDA {found} of the installed wheels"
        return Need(key, lambda other: other.channel == "pip" and other.cuda == found, text, because, build=build)

    def _cudnn_needs(self, build: Build, who: str, allowed: tuple[Channel, ...], key: CudnnKey) -> Iterator[Need]:
        """Needs for a cuDNN that works for the build: same major, minor at least as new, same CUDA major."""
        built = build.cudnn
        if built is None or build.cuda is None:
            return
        major = build.cuda.major
        text = f"cuDNN >= {built.major}.{built.minor}, < {built.major + 1} for CUDA {major}"
        because = f"{who} is built with cuDNN {built}, and needs the same major and at least that minor"

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
            return version.major == built.major and version.minor >= built.minor and not self.context.is_unwanted(release)

        yield Need(pip_key(package), is_wheel, f"{package} >= {built.major}.{built.minor}, < {built.major + 1}", because)

    def loaded_needs(self, build: Build, who: str) -> Iterator[Need]:
        """Needs for the wheels of libraries that a build loads, which its requirements may not name."""
        assert build.cuda is not None
        book, line = self.context.book, CudaVersion(build.cuda.line)
        for library in build.loads:
            package = component_package(book, library, line.major)
            if package is None or library == "cudnn":
                continue

            def test(other: PipCandidate) -> bool:
                if other.release is None or self.context.is_unwanted(other.release):
                    return False
                cuda = book.cuda_of(other.release.package, other.release.text)
                return cuda is None or cuda >= line

            yield Need(pip_key(package), test, f"{package} of CUDA {line} or later", f"{who} loads {library}")


def _same_cuda_need(soname: int, cuda: int, who: str) -> Need:
    """Need that every loaded libcudnn of one soname is for the same CUDA: the first one loaded is used by all."""
    because = f"{who} loads libcudnn.so.{soname} for CUDA {cuda}, and a process loads one library of a name"
    return slot_need(SlotKey(f"libcudnn.so.{soname}"), str(cuda), f"libcudnn.so.{soname} for CUDA {cuda}", because)


class Libraries(Kind[LibrariesKey, LibrariesCandidate]):
    """Channels for the CUDA libraries of a build that contains none."""

    def __init__(self, builds: Builds) -> None:
        super().__init__()
        self._builds = builds
        self._of_build: dict[tuple[LibrariesKey, int], tuple[LibrariesCandidate, ...]] = {}

    def candidates(self, key: LibrariesKey, needs: Sequence[Need]) -> Iterable[LibrariesCandidate]:
        """Channels for the build that the needs are about, best first."""
        build = needs[0].build
        assert build is not None
        found = self._of_build.get((key, id(build)))
        if found is None:
            channels = channels_of_build(self._builds.context, build)
            found = tuple(LibrariesCandidate(key=key, version=channel, build=build, channel=channel) for channel in channels)
            self._of_build[key, id(build)] = found
        return found

    def needs(self, candidate: LibrariesCandidate) -> Iterator[Need]:
        """What a build needs if its CUDA libraries come through a channel."""
        build, channel = candidate.build, candidate.channel
        who = f"{build.package} {build.wheel_version}"
        allowed: tuple[Channel, ...] = ("system", "apt") if channel == "apt" else (channel,)
        if channel == "folder":
            yield from self._builds.folder_needs(build, who)
        else:
            yield from self._builds.library_needs(build, who, allowed, of_system=channel != "pip" and self._may_differ(build))
        if channel not in ("pip", "folder"):
            return
        named = set()
        for need in self._extra_needs(build, who, except_library="cudnn" if channel == "folder" else None):
            named.add(need.key)
            yield need
        yield from (need for need in self._builds.loaded_needs(build, who) if need.key not in named)

    def _extra_needs(self, build: Build, who: str, *, except_library: str | None) -> Iterator[Need]:
        """Needs for the library wheels of a build's extra."""
        context = self._builds.context
        release = context.releases.of_build(build)
        if not build.extra or release is None:
            return
        is_requested = not context.requested_extras(build.framework).isdisjoint(extras_of(build))
        for requirement, extra in context.requirements_of(build):
            component = context.book.component(canonicalize_name(requirement.name))
            if extra is not None and component is not None and component.library != except_library:
                yield requirement_need(context, requirement, by=release, extra=extra, who=who, binding=is_requested)

    def _may_differ(self, build: Build) -> bool:
        """True for a build that may use other libraries than the shared ones, because it or another target is installed."""
        context = self._builds.context
        if is_installed(context, build):
            return True
        return any(context.is_present(target.framework) for target in context.request.targets if target.framework != build.framework)
