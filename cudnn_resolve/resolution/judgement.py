"""Judgement of a given set of packages: each is held against the needs of all the others and of the machine.

The needs are those of a search for a plan, so there is one set of rules; but everything is chosen already, and every unmet need is
reported, not only the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.matrix.advisory import advisories_of
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.evidence import evidence_of
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.requirement.machine import Machine
from cudnn_resolve.resolution.build import libraries_of
from cudnn_resolve.resolution.candidate import Candidate, LibrariesCandidate, Need, PipCandidate
from cudnn_resolve.resolution.channel import (
    component_package,
    cuda_of_found_wheels,
    describe_copies,
    finds_wheel,
    folder_serves,
    main_wheel,
    system_serves,
    wheels_serve,
)
from cudnn_resolve.resolution.compatibility import library_needs
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.evidence import evidence_needs
from cudnn_resolve.resolution.fault import (
    UNNAMED,
    Fault,
    FaultKind,
    JudgedFramework,
    Judgement,
    Severity,
    framework_fault,
    merge_faults,
    unmet_need_fault,
)
from cudnn_resolve.resolution.framework_bounds import bounds_of_installed
from cudnn_resolve.resolution.identify import as_listed, identify_build
from cudnn_resolve.resolution.installed import COMPILED_AGAINST, OTHER_DEVICES, installed_build
from cudnn_resolve.resolution.key import ARCH, DRIVER, GLIBC, PYTHON, CudaKey, CudnnKey, GpuKey, LibrariesKey, PipKey, SlotKey
from cudnn_resolve.resolution.open_request import OpenRequest
from cudnn_resolve.resolution.pair import pair_faults, requirements_of_installed
from cudnn_resolve.resolution.release import UNLISTED, Release, is_far, is_newer_major, parse_requirement, parse_version, unlisted_release
from cudnn_resolve.resolution.shared_files import shared_file_faults, shared_slots
from cudnn_resolve.resolution.universe import FactCandidates, Universe
from cudnn_resolve.version import DriverVersion

_CACHED_SETS = 32
"""Judged sets kept for machines that differ only in their driver, as in a fleet."""


def judge(
    book: Book,
    machine: Machine,
    packages: Mapping[str, str],
    requires: Mapping[str, tuple[str, ...]] | None = None,
    *,
    live: bool = False,
    partial: bool = False,
) -> Judgement:
    """Judge a set of packages (normalized name to version) on a machine; `requires`: their Requires-Dist lines, if known.

    `live`: they are installed there, so that of two builds of a version the one that finds its libraries is meant. `partial`: the set may
    be incomplete, so that a missing package is not a fault.
    """
    without_driver = replace(
        machine, driver=None, driver_absent=False, native_cuda=None, compat=None, pip=packages, requires=requires or {}
    )
    cached: list[_PackageSet] = book.remember("judged sets", None, list)
    found = next((known for known in cached if (known.machine, known.live, known.partial) == (without_driver, live, partial)), None)
    if found is None:
        found = _PackageSet(book, without_driver, live=live, partial=partial)
        cached[:] = [*cached[1 - _CACHED_SETS :], found]
    if machine.has_own_driver:
        machine = replace(machine, driver=None)
    return found.judgement(FactCandidates(machine, OpenRequest(targets=())).by_key[DRIVER])


class _FixedContext(Context):
    """A context without choices: an unwanted release is there already, and its advisory is a fault of its own."""

    def is_unwanted(self, release: Release) -> bool:  # noqa: ARG002
        """False: the needs of the others decide."""
        return False


class _PackageSet:
    """The packages, and their faults on a machine of which only the driver is open."""

    def __init__(self, book: Book, machine: Machine, *, live: bool, partial: bool) -> None:
        request = OpenRequest(targets=())
        self.book = book
        self.machine = machine
        self.live, self.partial = live, partial
        self.packages = as_listed(book, machine.pip)
        self.installed = Context(book, replace(machine, pip=self.packages), request)
        """The set as an environment, to identify its builds."""
        self.universe = Universe(_FixedContext(book, replace(machine, pip={}, requires={}), request))
        """The same machine with nothing installed: no package is excused for being installed."""
        self.owners: dict[SlotKey, dict[str, tuple[Need, str]]] = {}
        """Slot to its owners, each with a need for it and the package that has that need; two owners exclude each other."""
        self.driver_needs: dict[int, Need] = {}
        """Needs on the driver, by the identity of the fault if they are not met."""
        self.floors: list[DriverVersion] = []
        self.frameworks = tuple(self._identify_frameworks())
        self.shared = shared_slots(book, self.packages)
        self.faults = list(pair_faults(self.installed))
        self.unpaired = {(fault.package, *fault.frameworks) for fault in self.faults}
        """Packages with their framework of which a fault tells already that they do not go together."""
        self.torn = {name for fault in self.faults if fault.severity == "error" for name in fault.frameworks}
        self.faults += (fault for framework in self.frameworks for fault in self._framework_faults(framework))
        self.faults += (
            *self._library_faults(),
            *self._companion_faults(),
            *self._slot_faults(),
            *shared_file_faults(book, self.packages, self.frameworks),
        )
        self.faults += self._advisory_faults()

    def judgement(self, driver: Candidate) -> Judgement:
        """The faults with a driver."""
        faults = []
        for fault in self.faults:
            need = self.driver_needs.get(id(fault))
            if need is None:
                faults.append(fault)
            elif not need.test(driver):
                faults.append(unmet_need_fault(need, fault.who, fault.frameworks, "machine", f"here is {driver}"))
        merged = merge_faults(faults, (framework.package for framework in self.frameworks))
        return Judgement(frameworks=self.frameworks, faults=merged, driver=max(self.floors, default=None))

    def _identify_frameworks(self) -> Iterator[JudgedFramework]:
        for name in self.book.frameworks():
            for package in self.book.distributions(name):
                version = self.packages.get(package)
                if version is not None and parse_version(version) is not None:
                    build = identify_build(self.installed, name, package, live=self.live)
                    yield JudgedFramework(package=package, version=version, framework=name, build=build)

    def _framework_faults(self, framework: JudgedFramework) -> Iterator[Fault]:
        yield from self._bound_faults(framework)
        build = framework.build
        if build is None:
            is_overwritten = any(framework.package in names for names in self.shared.values())
            if framework.package not in self.torn and not is_overwritten:  # whose faults say why it does not use the GPU
                yield self._fault_without_build(framework)
            yield from self._declared_faults(framework)
            return
        wheel = self.universe.packages.wheel_of(build)
        needs = list(self.universe.needs(wheel) if wheel is not None else self._needs_of_own_build(build, framework.who))
        channel = next((need for need in needs if isinstance(need.key, LibrariesKey)), None)
        if channel is not None:
            uses_system = system_serves(self.installed, build)
            finds_wheels = not uses_system or wheels_serve(self.installed, build) or finds_wheel(self.installed, build)
            if folder_serves(self.installed, build):
                needs = [need for need in needs if need.key != SlotKey("cuDNN major")]  # it has a cuDNN of its own
                needs += self.universe.builds.cuda_needs(build, framework.who)
            elif self._has_libraries(build) and finds_wheels:
                candidates: Iterable[LibrariesCandidate] = self.universe.unordered(channel.key, (channel,))
                wheels = (candidate for candidate in candidates if candidate.channel == "pip")
                needs += [need for candidate in wheels for need in self.universe.needs(candidate)]
            elif uses_system and cuda_of_found_wheels(self.installed, build) is not None:
                needs += self.universe.builds.cuda_needs(build, framework.who)
            elif not uses_system:
                yield self._unlisted_fault(framework, "CUDA libraries") if self.partial else self._fault_without_libraries(framework, build)
        self.floors += [need.floor for need in needs if isinstance(need.floor, DriverVersion)]
        yield from self._need_faults(needs, framework)
        if build.provisional:
            basis = "is newer than the tables: judged by its metadata alone"
            if wheel is None:
                basis = "is not in the tables: judged by its CUDA alone"
            yield framework_fault(framework, "unknown", "warning", f"{framework.who} {basis}", "its GPU code was not read")

    def _needs_of_own_build(self, build: Build, who: str) -> Iterator[Need]:
        """Needs of a build that is not made from a wheel of an index."""
        assert build.cuda is not None
        yield from self.universe.builds.machine_needs(build, who)
        if build.delivery == "bundled":
            yield from library_needs(self.book, self.machine, build.cuda, who)

    def _has_libraries(self, build: Build) -> bool:
        """True if the set has wheels of CUDA libraries for a build, sufficient or not."""
        return main_wheel(self.book, build) in self.packages

    def _fault_without_build(self, framework: JudgedFramework) -> Fault:
        version = parse_version(framework.version)
        local = (version.local or "") if version is not None else ""
        rows = self.book.framework(framework.framework).builds
        is_known = any(row.version in (framework.version, version and version.public) for row in rows)
        is_for_other_device = local.startswith(OTHER_DEVICES)
        has_gpu_build = any(row.cuda is not None for row in self.book.builds_of(framework.package))
        if not (is_for_other_device or is_known or not has_gpu_build):
            text = f"{framework.who} is not in the tables: what it was built with is not known"
            return framework_fault(framework, "unknown", "warning", text, "no row of the matrix", framework.package)
        missing = next(self._missing_plugins(framework), None) if not is_for_other_device else None
        if missing is not None and self.partial:
            return self._unlisted_fault(framework, missing)
        if missing is not None:
            text, because = f"{framework.who} computes on the CPU only: {missing} is missing", f"its GPU code is in {missing}"
        else:
            text, because = f"{framework.who} computes on the CPU only", f"it is a build without CUDA ({local or 'by its package'})"
        severity: Severity = "error" if self.machine.gpus else "warning"
        if self._is_secondary(framework):
            severity = "info"
        return framework_fault(framework, "cpu", severity, text, because, missing or framework.package)

    def _is_secondary(self, framework: JudgedFramework) -> bool:
        """True for a framework that is not there for its own sake.

        Either another one requires it (TensorFlow 2.12 requires JAX), or its package has no GPU build and another framework has one:
        TensorFlow for the CPU reads the data of a model that JAX computes.
        """
        others = [
            build
            for other in self.frameworks
            if other is not framework and (build := installed_build(self.installed, other.package, other.version)) is not None
        ]
        if others and not any(row.cuda for row in self.book.builds_of(framework.package)):
            return all(build.framework != framework.framework for build in others)
        required = (requirement for build in others for requirement, _ in self.universe.context.requirements_of(build))
        return any(canonicalize_name(requirement.name) == framework.package for requirement in required)

    def _unlisted_fault(self, framework: JudgedFramework, names: str) -> Fault:
        """Fault about packages that an incomplete list leaves out."""
        text = f"{framework.who} needs {names}, which the list does not name; it need not name everything"
        return framework_fault(framework, "unknown", "warning", text, UNNAMED)

    def _missing_plugins(self, framework: JudgedFramework) -> Iterator[str]:
        """Missing packages with GPU code of a framework: JAX's plugins."""
        public = getattr(parse_version(framework.version), "public", framework.version)
        for row in self.book.builds_of(framework.package):
            if row.version == public and row.cuda is not None:
                names = (canonicalize_name(requirement.name) for requirement in self.universe.context.plugins_of(row))
                yield from (name for name in names if name not in self.packages)

    def _fault_without_libraries(self, framework: JudgedFramework, build: Build) -> Fault:
        wanted = libraries_of(build)
        is_linked = build.delivery == "wheel" and build.extra is None
        effect = "cannot be imported" if is_linked else "finds no GPU and computes on the CPU"
        copies = describe_copies(self.installed, build)
        present = f"; there is cuDNN {', '.join(copies)}" if copies else ""
        text = f"{framework.who} {effect} unless the machine has {wanted}: the set has no wheels of them{present}"
        because = f"built with {wanted}" + (f": the extra {build.extra} installs them" if build.extra else "")
        severity: Severity = "error" if self.machine.toolkits or is_linked else "warning"
        return framework_fault(framework, "missing", severity, text, because, main_wheel(self.book, build) or "")

    def _need_faults(self, needs: Iterable[Need], framework: JudgedFramework) -> Iterator[Fault]:
        """Faults of unmet needs; those about a GPU are warnings if another one of the machine runs the framework."""
        found = [(need, fault) for need in needs if (fault := self._need_fault(need, framework)) is not None]
        unserved = {need.key for need, _ in found if isinstance(need.key, GpuKey)}
        for need, fault in found:
            yield replace(fault, severity="warning") if need.key in unserved and len(unserved) < len(self.machine.gpus) else fault

    def _need_fault(self, need: Need, framework: JudgedFramework) -> Fault | None:
        """The fault of an unmet need; None if it is met, or if that is unknown."""
        key, who, frameworks = need.key, framework.who, (framework.package,)
        if key == DRIVER:
            fault = unmet_need_fault(need, who, frameworks, "machine", "")
            self.driver_needs[id(fault)] = need
            return fault
        fact = self.universe.fact(key)
        if fact is not None:
            kind: FaultKind = "wheel" if key in (PYTHON, ARCH, GLIBC) else "machine"
            return None if need.test(fact) else unmet_need_fault(need, who, frameworks, kind, f"here is {fact}")
        if isinstance(key, SlotKey):
            self._add_owner(key, need, framework.package)
            return None
        if isinstance(key, PipKey):
            return self._package_fault(need, key.name, framework)
        package = self._library_package(need)
        candidate = self._library_candidate(key, package) if package is not None and isinstance(key, (CudaKey, CudnnKey)) else None
        if package is None or candidate is None or need.test(candidate):
            return None
        return self._library_fault(need, package, framework)

    def _library_fault(self, need: Need, package: str, framework: JudgedFramework) -> Fault:
        version = self.packages[package]
        fault = unmet_need_fault(need, framework.who, (framework.package,), "library", f"there is {package} {version}", package)
        return replace(fault, severity="warning") if self._is_only_older(package, version, framework) else fault

    def _package_fault(self, need: Need, name: str, framework: JudgedFramework) -> Fault | None:
        is_library = self.book.component(name) is not None
        is_own_part = self.book.framework_of(name) == framework.framework and name != framework.package
        version = self.packages.get(name)
        if (name, framework.package) in self.unpaired:
            return None
        if version is None:
            return self._missing_fault(need, name, framework) if is_library or is_own_part else None
        candidate = self._candidate(name, version)
        if candidate is None or need.test(candidate):
            return None
        if is_library or is_own_part:
            return self._library_fault(need, name, framework)
        return self._declared_fault(framework, need.text, need.because, name)

    def _declared_faults(self, framework: JudgedFramework) -> Iterator[Fault]:
        """Faults of a build without CUDA or of an unknown one, by its metadata alone."""
        for requirement in requirements_of_installed(self.installed, framework.package):
            name = canonicalize_name(requirement.name)
            version = parse_version(self.packages.get(name, ""))
            is_told = self.book.component(name) is not None or (name, framework.package) in self.unpaired
            if version is not None and not is_told and not requirement.specifier.contains(version, prereleases=True):
                text = f"{requirement.name}{requirement.specifier}"
                yield self._declared_fault(framework, text, f"the metadata of {framework.who}", name)

    def _declared_fault(self, framework: JudgedFramework, wanted: str, because: str, name: str) -> Fault:
        version = self.packages[name]
        text = f"{framework.who} declares {wanted}; there is {name} {version}"
        declared = parse_requirement(wanted)
        is_newer = is_newer_major(declared, version)
        severity: Severity = (
            "error" if is_newer and name in COMPILED_AGAINST else "warning" if is_newer or is_far(declared, version) else "info"
        )
        return framework_fault(framework, "declared", severity, text, because, name)

    def _missing_fault(self, need: Need, name: str, framework: JudgedFramework) -> Fault | None:
        """The fault of a missing library or part of a framework."""
        if not need.binding or name.startswith("tensorrt"):
            return None
        is_library = self.book.component(name) is not None
        missing = f"{need.text}, which is not among the packages"
        if framework.build is not None and system_serves(self.installed, framework.build):
            if not is_library or not self._has_libraries(framework.build):
                return None
            # Wheels of some libraries and a CUDA of the system: which is loaded is unknown.
            text = f"{framework.who} needs {missing}; the CUDA of the system may serve in its place"
            return framework_fault(framework, "missing", "warning", text, need.because, name)
        if self.partial:
            return self._unlisted_fault(framework, "its CUDA libraries" if is_library else name)
        fault = framework_fault(framework, "missing", "error", f"{framework.who} needs {missing}", need.because, name)
        return replace(fault, who=framework.who, need=missing)

    def _is_only_older(self, name: str, version: str, framework: JudgedFramework) -> bool:
        """True for a CUDA library of an older minor of the major that a build was made with.

        NVIDIA promises nothing then, but most of them load. Not for cuDNN: frameworks themselves refuse an older one. NCCL is loaded only
        for several GPUs, by frameworks that are not linked to their libraries.
        """
        cuda = self.book.cuda_of(name, version)
        built = framework.build.cuda if framework.build is not None else None
        component = self.book.component(name)
        if component is not None and component.library == "nccl":
            return framework.build is not None and framework.build.extra is not None
        if cuda is None or built is None or component is None or component.library == "cudnn":
            return False
        return built.major == cuda.major and built.major >= 11 and cuda < built

    def _candidate(self, name: str, version: str) -> PipCandidate | None:
        """The candidate of a release; an unlisted release stands for itself."""
        parsed = parse_version(version)
        if parsed is None:
            return None
        framework = self.book.framework_of(name)
        if framework is not None and name in self.book.distributions(framework):
            build = installed_build(self.installed, name, version)
            wheel = self.universe.packages.wheel_of(build) if build is not None else None
            if wheel is not None:
                return wheel
        releases = self.universe.context.releases.of(name)
        release = next((release for release in releases if version == release.text or parsed == release.version), None)
        return self.universe.packages.candidate_of(release or unlisted_release(name, version))

    def _library_package(self, need: Need) -> str | None:
        """The set's wheel with the CUDA runtime or the cuDNN that a build finds; None if there is none."""
        if need.build is None or need.build.cuda is None:
            return None
        package = component_package(self.book, "cudnn" if isinstance(need.key, CudnnKey) else "cudart", need.build.cuda.major)
        return package if package in self.packages else None

    def _library_candidate(self, key: CudaKey | CudnnKey, package: str) -> Candidate | None:
        """The CUDA or the cuDNN of a wheel of the set; None for an unlisted release."""
        version = self.packages[package]
        cuda = self.book.cuda_of(package, version)
        for candidate in self.universe.unordered(key):
            if candidate.channel != "pip":
                continue
            if isinstance(key, CudnnKey):
                is_same = candidate.build.wheel == package and str(candidate.build.version) == version
            else:
                is_same = cuda is not None and candidate.version == cuda.line
            if is_same:
                return candidate  # type: ignore[no-any-return]
        return None

    def _bound_faults(self, framework: JudgedFramework) -> Iterator[Fault]:
        """Bounds of the matrix that other packages violate."""
        for who, bound in bounds_of_installed(self.book, framework.framework, framework.package, self.packages):
            row, name, specifier = bound.row, bound.package, bound.requirement.specifier
            version = parse_version(self.packages.get(name, ""))
            if version is not None and not specifier.contains(version, prereleases=True):
                text = f"{who} needs {row.requirement}; there is {name} {self.packages[name]}"
                fault = framework_fault(framework, "bound", "warning" if row.harm == "part" else "error", text, row.reason, name)
                yield replace(fault, wants=str(specifier))

    def _library_faults(self) -> Iterator[Fault]:
        """Faults of the CUDA libraries themselves: unsupported GPUs, too old linkers, shared files."""
        for name, version in self.packages.items():
            candidate = self._candidate(name, version) if self.book.component(name) is not None else None
            if candidate is None:
                continue
            needs = list(self.universe.needs(candidate))
            if candidate.release is not None and candidate.release.details.tags == UNLISTED:
                text = f"{name} {version} is not in the tables: what it needs is not known"
                yield Fault(kind="unknown", severity="warning", text=text, because="no row of the matrix", package=name)
                needs = [need for need in needs if isinstance(need.key, SlotKey)]  # its files are those of every release
            library = JudgedFramework(package=name, version=version, framework="", build=None)
            for need in needs:
                if isinstance(need.key, PipKey):
                    fault = self._linker_fault(need, need.key, library) if "nvjitlink" in need.key.name else None
                else:
                    is_checked = self.universe.fact(need.key) is not None or isinstance(need.key, SlotKey)
                    fault = self._need_fault(need, library) if is_checked else None
                if fault is not None:
                    yield fault

    def _linker_fault(self, need: Need, key: PipKey, library: JudgedFramework) -> Fault | None:
        """The fault of an nvJitLink that is missing or too old for a library."""
        fault = self._package_fault(need, key.name, library)
        cuda = self.book.cuda_of(library.package, library.version)
        if fault is None or cuda is None or fault.package not in self.packages:
            return fault
        text = f"{fault.package} of CUDA {cuda.line} or newer; there is {fault.package} {self.packages[fault.package]}"
        return replace(fault, text=f"{library.who} needs {text}", need=text)

    def _companion_faults(self) -> Iterator[Fault]:
        """Faults of packages with compiled extensions: the CUDA that these are linked to."""
        arch = self.machine.arch
        frameworks = {self.book.framework_of(name) for name in self.packages} - {None}
        for name, version in self.packages.items():
            framework = self.book.companion_of(name)
            is_variant = framework is not None and "+" in version
            if evidence_of(self.book, name, version, arch) is None and not is_variant:
                if framework in frameworks and not self.book.is_harvested(name) and not self.book.extra_releases(name):
                    text = f"{name} {version}: what its libraries need is not known"
                    yield Fault(kind="unknown", severity="info", text=text, because="its wheel was not read", package=name)
                continue
            row = next((row for row in self.book.extra_releases(name) if row.version == version), None)
            release = unlisted_release(name, version, row.index) if row is not None else unlisted_release(name, version)
            for need in evidence_needs(self.book, arch, release, f"{name} {version}"):
                if isinstance(need.key, SlotKey):
                    self._add_owner(need.key, need, name)
                elif (
                    isinstance(need.key, PipKey)
                    and (other := self.packages.get(need.key.name))
                    and (name, need.key.name) not in self.unpaired
                ):
                    candidate = self._candidate(need.key.name, other)
                    if candidate is not None and not need.test(candidate):
                        found = f"there is {need.key.name} {other}"
                        fault = unmet_need_fault(need, f"{name} {version}", (need.key.name,), "companion", found, name)
                        if version.endswith("+cpu"):  # it is imported, and only its own operators do not run on the GPU
                            text = f"{fault.text}, and {name} without CUDA has no operators for the GPU"
                            fault = replace(fault, severity="warning", text=text)
                        yield fault

    def _add_owner(self, key: SlotKey, need: Need, package: str) -> None:
        self.owners.setdefault(key, {}).setdefault(need.owner or "", (need, package))

    def _slot_faults(self) -> Iterator[Fault]:
        """Slots with two owners: majors of CUDA or cuDNN, or the files of a folder."""
        for key, owners in self.owners.items():
            # Two majors of CUDA are one fault, not two.
            is_repeated = key.files.startswith("libcudnn") and len(self.owners.get(SlotKey("CUDA major"), ())) > 1
            if len(owners) < 2 or is_repeated or key.files in self.shared:
                continue
            yield Fault(
                kind="majors" if key.files.endswith("major") else "files",
                # cuDNN majors have different file names: if each framework has its own, both load.
                severity="warning" if key == SlotKey("cuDNN major") else "error",
                text=" and ".join(f"{package} needs {need.text}" for need, package in owners.values()),
                because="; ".join(need.because for need, _ in owners.values()),
                frameworks=tuple(dict.fromkeys(package for _, package in owners.values())),
            )

    def _advisory_faults(self) -> Iterator[Fault]:
        for name, advisory in advisories_of(self.book, self.packages, self.machine.capabilities):
            text, because = f"{name} {self.packages[name]}: {advisory.summary}", f"advisory {advisory.id}"
            severity: Severity = "warning" if advisory.action == "avoid" else "info"
            yield Fault(kind="advisory", severity=severity, text=text, because=because, package=name, remedy=advisory.remedy or "")
