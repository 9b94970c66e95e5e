"""What holds and what breaks in a set of packages as it is: each held against the needs of all the others and of the machine.

The needs are those of a search for a plan, so there is one set of rules; but here everything is chosen already, and every need that is
not met is told, not the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.evidence import evidence_of
from cudnn_resolve.resolution.build import libraries_of
from cudnn_resolve.resolution.candidate import LibrariesCandidate, PipCandidate
from cudnn_resolve.resolution.channel import (
    component_package,
    finds_wheel,
    folder_serves,
    main_wheel,
    system_serves,
    told_copies,
    wheels_found,
    wheels_serve,
)
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.evidence import evidence_needs
from cudnn_resolve.resolution.fault import NOT_THERE, UNNAMED, Fault, FaultKind, Judged, Judgement, merged
from cudnn_resolve.resolution.given import NOTHING, Given, spelt
from cudnn_resolve.resolution.installed import OTHER_DEVICES, bounds_of_installed, installed_build
from cudnn_resolve.resolution.key import ARCH, DRIVER, GLIBC, PYTHON, CudaKey, CudnnKey, LibrariesKey, PipKey, SlotKey
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.release import UNLISTED, is_far, parse_requirement, parse_version, unlisted
from cudnn_resolve.resolution.universe import FactCandidates, Universe
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.resolution.candidate import Candidate, Need


def judge(
    book: Book,
    machine: Machine,
    packages: Mapping[str, str],
    requires: Mapping[str, tuple[str, ...]] | None = None,
    *,
    live: bool = False,
    partial: bool = False,
) -> Judgement:
    """Judge a set of packages (normalized name to version) on a machine; `requires`: their Requires-Dist lines where they are known.

    `live`: they are installed there, so that of two builds of one version the one that finds its libraries is meant. `partial`: there may
    be more of them, so that what is missing is not known to be missing.
    """
    request = OpenRequest(targets=())
    alike = replace(machine, driver=None, driver_absent=False, native_cuda=None, compat=None, pip=packages, requires=requires or NOTHING)
    known: list[_Set] = book.remember("judged sets", None, list)
    found = next((one for one in known if one.is_of(alike, live=live, partial=partial)), None)
    if found is None:
        found = _Set(book, alike, request, live=live, partial=partial)
        known[:] = [*known[1 - _KEPT :], found]
    return found.judgement(FactCandidates(machine, request).by_key[DRIVER])


_KEPT = 32
"""Sets that are kept as judged but for the driver: the machines of a fleet differ in little else."""


class _Set:
    """The packages, and what they are held against."""

    def __init__(self, book: Book, machine: Machine, request: OpenRequest, *, live: bool, partial: bool) -> None:
        self.book = book
        self.machine = machine
        self.live, self.partial = live, partial
        self.packages = spelt(book, machine.pip)
        self.here = Context(book, replace(machine, pip=self.packages), request)
        """The set as an environment, to see which builds it consists of."""
        self.universe = Universe(Given(book, replace(machine, pip=NOTHING, requires=NOTHING), request))
        """The same machine with nothing installed: nothing is excused for being there."""
        self.owners: dict[SlotKey, dict[str, Need]] = {}
        """Who wants a slot for whom: two owners of one exclude each other."""
        self.users: dict[int, str] = {}
        """Framework of a need for a slot, by its identity."""
        self.of_driver: dict[int, Need] = {}
        """What is asked of the driver, by the identity of the fault that it is where the driver does not meet it."""
        self.floors: list[DriverVersion] = []
        self.judged = tuple(self._frameworks())
        self.faults = [fault for one in self.judged for fault in self._of_framework(one)]
        self.faults += (*self._libraries(), *self._companions(), *self._slots(), *self._advisories())

    def is_of(self, machine: Machine, *, live: bool, partial: bool) -> bool:
        """True where this is the set of a machine of which the driver is left open."""
        own = self.machine
        is_same = own.pip is machine.pip and own.requires is machine.requires  # dicts that are long, and one object for a fleet
        return is_same and (self.live, self.partial) == (live, partial) and own == machine

    def judgement(self, driver: Candidate) -> Judgement:
        """The faults with that driver."""
        faults = []
        for one in self.faults:
            need = self.of_driver.get(id(one))
            if need is None:
                faults.append(one)
            elif not need.test(driver):
                faults.append(replace(one, text=f"{one.text}here is {driver}"))
        told = merged(faults, (one.package for one in self.judged))
        return Judgement(frameworks=self.judged, faults=told, driver=max(self.floors, default=None))

    def _frameworks(self) -> Iterator[Judged]:
        for name in self.book.frameworks():
            for package in self.book.distributions(name):
                version = self.packages.get(package)
                if version is not None and parse_version(version) is not None:
                    build = self._whole(self._published(installed_build(self.here, name, package, version), version), version)
                    yield Judged(package=package, version=version, framework=name, build=build)

    def _published(self, build: Build | None, version: str) -> Build | None:
        """The build, or where the version names no variant the one of the configured index, which a lock or a list means by that."""
        if build is None or self.live or build.index == "default" or "+" in version:
            return build
        rows = self.book.framework(build.framework).builds
        same = (row for row in rows if row.package == build.package and row.wheel_version == version and row.index == "default")
        return next((row for row in same if row.cuda is not None), build)

    def _whole(self, build: Build | None, version: str) -> Build | None:
        """The build, or another one of its name that brings its libraries itself, where those of the first are not all there."""
        if build is None or build.delivery == "bundled" or all(name in self.packages for name in self._brought(build)):
            return build
        rows = self.book.framework(build.framework).builds
        same = (row for row in rows if row.package == build.package and row.wheel_version == version)
        return next((row for row in same if row.delivery == "bundled" and row.cuda is not None), build)

    def _brought(self, build: Build) -> Iterator[str]:
        """The wheels of CUDA libraries that a build requires."""
        for requirement, _ in self.universe.context.requirements_of(build):
            name = canonicalize_name(requirement.name)
            if self.book.component(name) is not None:
                yield name

    def _of_framework(self, one: Judged) -> Iterator[Fault]:
        who, build = f"{one.package} {one.version}", one.build
        yield from self._bounds(one)
        if build is None:
            yield self._without_build(one)
            return
        wheel = self.universe.packages.wheel_of(build)
        needs = list(self.universe.needs(wheel) if wheel is not None else self.universe.builds.machine_needs(build, who))
        channel = next((need for need in needs if isinstance(need.key, LibrariesKey)), None)
        if channel is not None:
            on_system = system_serves(self.here, build)
            if folder_serves(self.here, build):
                needs = [need for need in needs if need.key != SlotKey("cuDNN major")]  # its cuDNN is its own, whatever the others load
                needs += self.universe.builds.cuda_needs(build, who)
            elif self._brings_libraries(build) and (not on_system or wheels_serve(self.here, build) or finds_wheel(self.here, build)):
                candidates: Iterable[LibrariesCandidate] = self.universe.unordered(channel.key, (channel,))
                needs += [need for c in candidates if c.channel == "pip" for need in self.universe.needs(c)]
            elif on_system and wheels_found(self.here, build) is not None:
                needs += self.universe.builds.cuda_needs(build, who)
            elif not on_system:
                yield self._elsewhere(one, "CUDA libraries") if self.partial else self._without_libraries(one, build)
        self.floors += [need.floor for need in needs if isinstance(need.floor, DriverVersion)]
        for need in needs:
            fault = self._fault(need, one)
            if fault is not None:
                yield fault
        if build.provisional:
            text = f"{who} is newer than the tables: judged by its metadata alone"
            why = "nobody has read its GPU code"
            yield Fault(kind="unknown", severity="warning", text=text, because=why, frameworks=(one.package,))

    def _brings_libraries(self, build: Build) -> bool:
        """True where the set holds wheels of CUDA libraries for a build, whether they serve it or not."""
        return main_wheel(self.book, build) in self.packages

    def _without_build(self, one: Judged) -> Fault:
        version = parse_version(one.version)
        local = (version.local or "") if version is not None else ""
        rows = self.book.framework(one.framework).builds
        known = any(row.version in (one.version, version and version.public) for row in rows)
        who = f"{one.package} {one.version}"
        if local.startswith(OTHER_DEVICES) or known or not any(row.package == one.package and row.cuda is not None for row in rows):
            missing = next(self._parts(one), None) if not local.startswith(OTHER_DEVICES) else None
            if missing is not None and self.partial:
                return self._elsewhere(one, missing)
            text = f"{who} computes on the CPU alone" + (f": {missing} is not there" if missing else "")
            because = f"its GPU code is in {missing}" if missing else f"it is a build without CUDA ({local or 'by its package'})"
            gpus = self.here.machine.gpus
            return Fault(
                kind="cpu",
                severity="info" if self._is_meant(one) else "error" if gpus else "warning",
                text=text,
                because=because,
                package=missing or one.package,
                frameworks=(one.package,),
            )
        text = f"{who} is not in the tables: what it was built with is not known"
        return Fault(
            kind="unknown", severity="warning", text=text, because="no row of the matrix", package=one.package, frameworks=(one.package,)
        )

    def _is_meant(self, one: Judged) -> bool:
        """True for a framework that is not there for its own sake.

        One that another one requires for itself (TensorFlow 2.12 brings JAX), or a package that has no build for a GPU at all beside one
        that has: TensorFlow for the CPU reads the data of a model that JAX computes.
        """
        others = [
            build
            for name in self.book.frameworks()
            for package in self.book.distributions(name)
            if package != one.package and (version := self.packages.get(package)) is not None
            for build in [installed_build(self.here, name, package, version)]
            if build is not None
        ]
        is_for_cpu = not any(row.package == one.package and row.cuda for row in self.book.framework(one.framework).builds)
        if is_for_cpu and others:
            return all(build.framework != one.framework for build in others)
        needed = (requirement for build in others for requirement, _ in self.universe.context.requirements_of(build))
        return any(canonicalize_name(requirement.name) == one.package for requirement in needed)

    def _elsewhere(self, one: Judged, names: str) -> Fault:
        """What a list does not name that need not name everything."""
        text = f"{one.package} {one.version} needs {names}, which the list does not name; it need not name everything"
        return Fault(kind="unknown", severity="warning", text=text, because=UNNAMED, frameworks=(one.package,))

    def _parts(self, one: Judged) -> Iterator[str]:
        """Packages with the GPU code of a framework that are not there: JAX's plugins."""
        public = getattr(parse_version(one.version), "public", one.version)
        for row in self.book.framework(one.framework).builds:
            if row.package == one.package and row.version == public and row.cuda is not None:
                names = (canonicalize_name(requirement.name) for requirement in self.universe.context.plugins_of(row))
                yield from (name for name in names if name not in self.packages)

    def _without_libraries(self, one: Judged, build: Build) -> Fault:
        wanted = libraries_of(build)
        linked = build.delivery == "wheel" and build.extra is None
        toolkits = self.here.machine.toolkits
        what = "cannot be imported" if linked else "finds no GPU and computes on the CPU"
        extra = f": the extra {build.extra} brings them" if build.extra else ""
        copies = told_copies(self.here, build)
        there = f"; there is cuDNN {', '.join(copies)}" if copies else ""
        return Fault(
            kind="missing",
            severity="error" if toolkits or linked else "warning",
            text=f"{one.package} {one.version} {what} unless the machine has {wanted}: no wheel of the set brings them{there}",
            because=f"built with {wanted}{extra}",
            package=main_wheel(self.book, build) or "",
            frameworks=(one.package,),
        )

    def _fault(self, need: Need, one: Judged) -> Fault | None:
        """What is wrong where a need is not met; None where it is, or where nobody knows."""
        key = need.key
        if key == DRIVER:
            fault = self._unmet(need, one, "machine", "", "")
            self.of_driver[id(fault)] = need
            return fault
        fact = self.universe.fact(key)
        if fact is not None:
            kind: FaultKind = "wheel" if key in (PYTHON, ARCH, GLIBC) else "machine"
            return None if need.test(fact) else self._unmet(need, one, kind, f"here is {fact}", "")
        if isinstance(key, SlotKey):
            self._own(need, one.package)
            return None
        if isinstance(key, PipKey):
            return self._package(need, key.name, one)
        package = self._library_package(need)
        candidate = self._library(key, package) if package is not None and isinstance(key, (CudaKey, CudnnKey)) else None
        if package is None or candidate is None or need.test(candidate):
            return None
        fault = self._unmet(need, one, "library", f"there is {package} {self.packages[package]}", package)
        return replace(fault, severity="warning") if self._only_older(package, self.packages[package], one) else fault

    def _unmet(self, need: Need, one: Judged, kind: FaultKind, found: str, package: str) -> Fault:
        return Fault(
            kind=kind,
            severity="error",
            text=f"{one.package} {one.version} needs {need.text}; {found}",
            because=need.because,
            package=package,
            frameworks=(one.package,),
        )

    def _package(self, need: Need, name: str, one: Judged) -> Fault | None:
        version = self.packages.get(name)
        part = self.book.component(name) is not None
        own = self.book.framework_of(name) == one.framework and name != one.package
        if version is None:
            if not (part or own):
                return None
            text = f"{one.package} {one.version} needs {need.text}{NOT_THERE}"
            if not need.binding or name.startswith("tensorrt"):
                return None
            if one.build is not None and system_serves(self.here, one.build):
                return self._of_system(text, need, name, one) if part else None
            if self.partial:
                return self._elsewhere(one, "its CUDA libraries" if part else name)
            return Fault(kind="missing", severity="error", text=text, because=need.because, package=name, frameworks=(one.package,))
        candidate = self._candidate(name, version)
        if candidate is None or need.test(candidate):
            return None
        if part or own:
            fault = self._unmet(need, one, "library", f"there is {name} {version}", name)
            return replace(fault, severity="warning") if self._only_older(name, version, one) else fault
        text = f"{one.package} {one.version} declares {need.text}; there is {name} {version}"
        severity: Literal["warning", "info"] = "warning" if is_far(parse_requirement(need.text), version) else "info"
        return Fault(kind="declared", severity=severity, text=text, because=need.because, package=name, frameworks=(one.package,))

    def _of_system(self, text: str, need: Need, name: str, one: Judged) -> Fault | None:
        """A wheel that is missing among others of its CUDA, where the system has one, too: which is loaded is not known."""
        if one.build is None or not self._brings_libraries(one.build):
            return None
        text = f"{text}; the CUDA of the system may serve in its place"
        return Fault(kind="missing", severity="warning", text=text, because=need.because, package=name, frameworks=(one.package,))

    def _only_older(self, name: str, version: str, one: Judged) -> bool:
        """True for a CUDA library of the major that a build was made with, and of an older minor.

        NVIDIA promises nothing then, and yet most of them load. A cuDNN that is older, frameworks refuse themselves. NCCL is opened for
        several GPUs alone by those that are not linked to what they load.
        """
        cuda = self.book.cuda_of(name, version)
        built = one.build.cuda if one.build is not None else None
        component = self.book.component(name)
        if component is not None and component.library == "nccl":
            return one.build is not None and one.build.extra is not None
        if cuda is None or built is None or component is None or component.library == "cudnn":
            return False
        return built.major == cuda.major and built.major >= 11 and cuda < built

    def _candidate(self, name: str, version: str) -> PipCandidate | None:
        """The release as a search knows it; one that the tables do not know stands for itself."""
        parsed = parse_version(version)
        if parsed is None:
            return None
        framework = self.book.framework_of(name)
        if framework is not None and name in self.book.distributions(framework):
            build = installed_build(self.here, framework, name, version)
            wheel = self.universe.packages.wheel_of(build) if build is not None else None
            if wheel is not None:
                return wheel
        releases = self.universe.context.releases.of(name)
        found = next((one for one in releases if version == one.text or parsed == one.version), None)
        return self.universe.packages.candidate_of(found or unlisted(name, version))

    def _library_package(self, need: Need) -> str | None:
        """The wheel of the set with the CUDA runtime or the cuDNN that a build would find; None where there is none."""
        if need.build is None or need.build.cuda is None:
            return None
        package = component_package(self.book, "cudnn" if isinstance(need.key, CudnnKey) else "cudart", need.build.cuda.major)
        return package if package in self.packages else None

    def _library(self, key: CudaKey | CudnnKey, package: str) -> Candidate | None:
        """The CUDA or the cuDNN that a wheel of the set brings; None for a release that the tables do not know."""
        version = self.packages[package]
        cuda = self.book.cuda_of(package, version)
        for candidate in self.universe.unordered(key):
            if candidate.channel != "pip":
                continue
            if isinstance(key, CudnnKey):
                if candidate.build.wheel == package and str(candidate.build.version) == version:
                    return candidate  # type: ignore[no-any-return]
            elif cuda is not None and candidate.version == cuda.line:
                return candidate  # type: ignore[no-any-return]
        return None

    def _bounds(self, one: Judged) -> Iterator[Fault]:
        """What is true of other packages although the metadata of the framework does not say so."""
        for who, bound, requirement in bounds_of_installed(self.book, one.framework, one.package, self.packages):
            name = canonicalize_name(requirement.name)
            version = parse_version(self.packages.get(name, ""))
            if version is not None and not requirement.specifier.contains(version, prereleases=True):
                yield Fault(
                    kind="bound",
                    severity="warning" if bound.harm == "part" else "error",
                    text=f"{who} needs {bound.requirement}; there is {name} {self.packages[name]}",
                    because=bound.reason,
                    package=name,
                    frameworks=(one.package,),
                    wants=str(requirement.specifier),
                )

    def _libraries(self) -> Iterator[Fault]:
        """Needs of the CUDA libraries themselves: GPUs that they know, linkers as new as they are, files for themselves."""
        for name, version in self.packages.items():
            if self.book.component(name) is None:
                continue
            candidate = self._candidate(name, version)
            one = Judged(package=name, version=version, framework="", build=None)
            needs = tuple(self.universe.needs(candidate)) if candidate is not None else ()
            if candidate is not None and candidate.release is not None and candidate.release.tags == UNLISTED:
                text = f"{name} {version} is not in the tables: what it needs is not known"
                yield Fault(kind="unknown", severity="warning", text=text, because="no row of the matrix", package=name)
                needs = tuple(one for one in needs if isinstance(one.key, SlotKey))  # its files are those of every release
            for need in needs:
                linker = isinstance(need.key, PipKey) and "nvjitlink" in need.key.name
                if linker or self.universe.fact(need.key) is not None or isinstance(need.key, SlotKey):
                    fault = self._fault(need, one)
                    cuda = self.book.cuda_of(name, version)
                    if fault is not None and linker and cuda is not None and fault.package in self.packages:
                        text = f"{name} {version} needs {fault.package} of CUDA {cuda.line} or newer; there is {fault.package} "
                        fault = replace(fault, text=text + self.packages[fault.package])
                    if fault is not None:
                        yield fault

    def _companions(self) -> Iterator[Fault]:
        """Packages with libraries of their own: the CUDA that these are linked to."""
        arch = self.here.machine.arch
        for name, version in self.packages.items():
            framework = self.book.companion_of(name)
            if evidence_of(self.book, name, version, arch) is None and not (framework is not None and "+" in version):
                if framework is not None and framework in {self.book.framework_of(one) for one in self.packages}:
                    yield from self._unread(name, version)
                continue
            release = unlisted(name, version)
            known = next((row for row in self.book.extra_releases(name) if row.version == version), None)
            if known is not None:
                release = unlisted(name, version, known.index)
            for need in evidence_needs(self.book, arch, release, f"{name} {version}"):
                if isinstance(need.key, SlotKey):
                    self._own(need, name)
                elif isinstance(need.key, PipKey) and (there := self.packages.get(need.key.name)) is not None:
                    candidate = self._candidate(need.key.name, there)
                    if candidate is not None and not need.test(candidate):
                        yield Fault(
                            kind="companion",
                            severity="error",
                            text=f"{name} {version} needs {need.text}; there is {need.key.name} {there}",
                            because=need.because,
                            package=name,
                            frameworks=(need.key.name,),
                        )

    def _unread(self, name: str, version: str) -> Iterator[Fault]:
        if self.book.package(name) is None and not self.book.extra_releases(name):
            text = f"{name} {version}: what its libraries need is not known"
            yield Fault(kind="unknown", severity="info", text=text, because="nobody has read its wheel", package=name)

    def _own(self, need: Need, who: str) -> None:
        assert isinstance(need.key, SlotKey)
        self.owners.setdefault(need.key, {}).setdefault(need.owner or "", need)
        self.users[id(need)] = who

    def _slots(self) -> Iterator[Fault]:
        """What two want for themselves: a major of CUDA or cuDNN, the files of a folder."""
        for key, owners in self.owners.items():
            if len(owners) < 2 or (str(key).startswith("slot:libcudnn") and len(self.owners.get(SlotKey("CUDA major"), ())) > 1):
                continue  # two majors of CUDA are told once
            needs = list(owners.values())
            users = [self.users[id(need)] for need in needs]
            if all(owner in self.packages for owner in owners):
                text = f"{' and '.join(sorted(owners))} install the same files: what one lays, the other overwrites"
            else:
                text = " and ".join(f"{user} wants {need.text}" for user, need in zip(users, needs, strict=True))
            yield Fault(
                kind="majors" if str(key).endswith("major") else "files",
                # Majors of cuDNN have files of other names: where each framework has its own, both load.
                severity="warning" if key == SlotKey("cuDNN major") else "error",
                text=text,
                because="; ".join(need.because for need in needs),
                package=max((owner for owner in owners if owner in self.packages), default=""),
                frameworks=tuple(dict.fromkeys(users)),
            )

    def _advisories(self) -> Iterator[Fault]:
        capabilities = {gpu.capability for gpu in self.here.machine.gpus}
        for name, text in self.packages.items():
            version = parse_version(text)
            for advisory in self.book.advisories(name) if version is not None else ():
                if advisory.capability and not capabilities & set(advisory.capability):
                    continue
                if version is not None and SpecifierSet(advisory.versions).contains(version, prereleases=True):
                    said = f"{name} {text}: {advisory.summary}"
                    yield Fault(kind="advisory", severity="warning", text=said, because=f"advisory {advisory.id}", package=name)
