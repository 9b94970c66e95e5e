"""What will fail on a machine before it fails: findings from facts alone.

An error is said only of what cannot work by a rule of the matrix; what works although it is not as declared is a note.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.installed import Installed, installed_of
from cudnn_resolve.diagnosis.model import Evidence, Finding, Remedy
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, Loader, Toolkit, Unknown, or_none
from cudnn_resolve.record import dataclass
from cudnn_resolve.version import Capability, CudaVersion, CudnnVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Facts as the checks read them; what is unknown is empty, and `known` says what was asked."""

    facts: Facts
    book: Book
    installed: tuple[Installed, ...]
    driver: Driver | None
    driver_absent: bool
    gpus: tuple[Gpu, ...]
    cudnn: tuple[CudnnCopy, ...]
    pip: Mapping[str, str]
    loader: Loader

    @property
    def version(self) -> DriverVersion | None:
        """The driver's version, where it is known."""
        return _driver(self.driver.version) if self.driver else None


def machine_of(facts: Facts, book: Book) -> Machine:
    """The machine behind the facts."""
    driver = None if isinstance(facts.driver, Unknown) else facts.driver
    pip = or_none(facts.packages.pip) or {}
    return Machine(
        facts=facts,
        book=book,
        installed=installed_of(facts, book),
        driver=driver,
        driver_absent=facts.driver is None,
        gpus=or_none(facts.gpus) or (),
        cudnn=or_none(facts.cudnn) or (),
        pip=pip,
        loader=Loader() if isinstance(facts.loader, Unknown) else facts.loader,
    )


def diagnose_facts(facts: Facts, book: Book) -> list[Finding]:
    """Every finding of the facts, unsorted."""
    machine = machine_of(facts, book)
    return [finding for check in _CHECKS for finding in check(machine)]


def _fact(source: str, text: str) -> Evidence:
    return Evidence(source=source, line=None, text=text)


def _no_driver(machine: Machine) -> Iterator[Finding]:
    """A GPU build without any driver: it will run on the CPU, or not at all."""
    builds = [one for one in machine.installed if one.cuda is not None]
    if not machine.driver_absent or not builds:
        return
    names = ", ".join(one.label for one in builds)
    hosted = machine.facts.container in ("colab", "kaggle")
    yield Finding(
        cause="no_gpu_runtime" if hosted else "driver_not_loaded",
        severity="warning",
        summary=f"{names} is built for CUDA {builds[0].cuda}, and this machine has no NVIDIA driver: it will run on the CPU or refuse to",
        evidence=(_fact("driver", "no NVIDIA driver was found"), *(_fact("frameworks", one.label) for one in builds)),
        confidence=0.9,
    )


def _driver_mismatch(machine: Machine) -> Iterator[Finding]:
    driver = machine.driver
    if driver is None or not driver.version or not driver.kernel_module or _driver(driver.version) == _driver(driver.kernel_module):
        return
    yield Finding(
        cause="driver_library_mismatch",
        severity="error",
        summary=f"the driver's libraries are {driver.version} and the kernel module that is loaded is {driver.kernel_module}",
        evidence=(_fact("driver.version", driver.version), _fact("driver.kernel_module", driver.kernel_module)),
        confidence=0.97,
    )


def _driver_old(machine: Machine) -> Iterator[Finding]:
    version = machine.version
    for one in machine.installed:
        if version is None or one.cuda is None:
            continue
        floor = machine.book.floor(one.cuda.major)
        own = machine.book.toolkit_driver(one.cuda)
        least = floor or own
        if least is not None and version < least:
            yield Finding(
                cause="driver_too_old",
                severity="error",
                summary=f"{one.label} is built for CUDA {one.cuda}, which needs driver {least} or newer, and the driver is {version}",
                evidence=(_fact("driver.version", str(version)), _fact("frameworks", f"{one.label}: CUDA {one.cuda}")),
                confidence=0.95,
            )
        elif own is not None and version < own:
            yield Finding(
                cause="driver_too_old",
                severity="info",
                summary=f"{one.label} is built for CUDA {one.cuda}, whose own driver is {own}; with {version} it runs by NVIDIA's "
                f"minor-version rule, and PTX of CUDA {one.cuda} cannot be compiled",
                evidence=(_fact("driver.version", str(version)),),
                confidence=0.6,
            )


def _architecture(machine: Machine) -> Iterator[Finding]:
    for gpu in _visible(machine):
        capability = _capability(gpu)
        for one in machine.installed:
            if capability is None or not one.targets:
                continue
            code = [target for target in one.targets if target.runs_on(capability)]
            name = gpu.name or f"the GPU of capability {capability}"
            shown = " ".join(map(str, one.targets))
            evidence = (_fact("gpus", f"{name}: compute capability {capability}"), _fact("frameworks", f"{one.label}: {shown}"))
            if not code:
                newer = capability > min(target.capability for target in one.targets)
                yield Finding(
                    cause="gpu_arch_too_new_for_build" if newer else "gpu_arch_too_old_for_build",
                    severity="error",
                    summary=f"{one.label} has code for {shown} and none that runs on {name} (capability {capability}), "
                    f"which is {'newer' if newer else 'older'} than the build",
                    evidence=evidence,
                    confidence=0.96,
                )
            elif all(target.kind == "ptx" for target in code) and one.cuda is not None:
                yield from _by_ptx(machine, one, name, evidence)


def _by_ptx(machine: Machine, one: Installed, name: str, evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    """Only PTX serves the card: the driver must be able to compile it."""
    native = machine.book.native_cuda(machine.version) if machine.version else None
    if native is not None and one.cuda is not None and CudaVersion(native.line) < CudaVersion(one.cuda.line):
        yield Finding(
            cause="ptx_too_new",
            severity="error",
            summary=f"{one.label} serves {name} by PTX of CUDA {one.cuda} only, and driver {machine.version} compiles PTX "
            f"up to CUDA {native}",
            evidence=evidence,
            confidence=0.9,
        )


def _hidden(machine: Machine) -> Iterator[Finding]:
    if machine.gpus and all(gpu.hidden for gpu in machine.gpus):
        yield Finding(
            cause="gpu_hidden_by_env",
            severity="warning",
            summary="CUDA_VISIBLE_DEVICES hides every GPU of this machine from programs",
            evidence=tuple(_fact("gpus", f"{gpu.name or 'GPU'}: hidden") for gpu in machine.gpus[:4]),
            confidence=0.95,
        )


def _cudnn_loaded(machine: Machine) -> Iterator[Finding]:
    """The cuDNN that each framework would load against the one that it was built with."""
    for one in machine.installed:
        built, loads = one.cudnn, one.would_load
        if built is None or loads is None:
            continue
        found = _cudnn(loads.version)
        evidence = (_fact("frameworks", f"{one.label}: built with cuDNN {built}, would load {loads.version or 'none'} ({loads.because})"),)
        if found is None:
            if loads.path is None and not loads.version:
                yield from _cudnn_absent(machine, one, built, evidence)
            continue
        if found.serves(built):
            continue
        others = [copy for copy in machine.cudnn if (version := _cudnn(copy.version)) and version.serves(built)]
        if others and found.major == built.major:
            yield Finding(
                cause="ld_path_shadowing",
                severity="error",
                summary=f"{one.label} wants cuDNN {built} or newer; {others[0].version} is in {others[0].path}, but {found} in "
                f"{loads.path} is found first ({loads.because})",
                evidence=evidence,
                confidence=0.93,
            )
        else:
            major = found.major != built.major
            yield Finding(
                cause="cudnn_major_mismatch" if major else "cudnn_too_old_for_framework",
                severity="error",
                summary=f"{one.label} is built with cuDNN {built} and would load {found}, "
                f"which is {'of another major' if major else 'older'}",
                evidence=evidence,
                confidence=0.93,
            )


def _cudnn_absent(machine: Machine, one: Installed, built: CudnnVersion, evidence: tuple[Evidence, ...]) -> Iterator[Finding]:
    same = [copy for copy in machine.cudnn if copy.soname == built.major]
    other = [copy for copy in machine.cudnn if copy.soname is not None and copy.soname != built.major]
    severity = "warning" if machine.driver_absent else "error"
    if same:
        cause, text = "lib_not_on_path", f"cuDNN {same[0].version} is in {same[0].path}, where it does not look"
    elif other:
        cause, text = "cudnn_major_mismatch", f"there is cuDNN {other[0].version}, whose files have other names"
    elif isinstance(machine.facts.cudnn, Unknown):
        return
    else:
        cause, text = "cudnn_missing", "there is none"
    yield Finding(
        cause=cause,
        severity=severity,
        summary=f"{one.label} wants cuDNN {built.major} and finds none: {text}",
        evidence=evidence,
        confidence=0.9,
    )


def _cudnn_broken(machine: Machine) -> Iterator[Finding]:
    """Copies of cuDNN with parts missing or of two releases."""
    for copy in machine.cudnn:
        if copy.complete is False or copy.problems:
            loaded = any(
                one.would_load and one.would_load.path and copy.path and one.would_load.path.startswith(copy.path)
                for one in machine.installed
            )
            why = "; ".join(copy.problems) or "parts of it are missing or of another release"
            yield Finding(
                cause="cudnn_sublibrary_mix",
                severity="error" if loaded else "warning",
                summary=f"the cuDNN {copy.version or copy.soname} in {copy.path} is not one whole release: {why}",
                evidence=(_fact("cudnn", f"{copy.path}: {why}"),),
                confidence=0.9 if loaded else 0.6,
            )


def _cudnn_borrowed(machine: Machine) -> Iterator[Finding]:
    """A wheel's cuDNN that opens a part which it lacks, beside a system copy that has it."""
    for copy in machine.cudnn:
        version = _cudnn(copy.version)
        if copy.source != "pip" or version is None:
            continue
        for advisory in (
            *machine.book.advisories("cudnn"),
            *machine.book.advisories(copy.owner or f"nvidia-cudnn-cu{(copy.cuda or '12')[:2]}"),
        ):
            if "SUBLIBRARY_VERSION_MISMATCH" not in advisory.summary or not _within(advisory.versions, copy.version):
                continue
            system = [other for other in machine.cudnn if other.source != "pip" and (newer := _cudnn(other.version)) and newer > version]
            system = [other for other in system if other.soname == copy.soname]
            if system:
                yield Finding(
                    cause="cudnn_sublibrary_mix",
                    severity="warning",
                    summary=f"the wheel's cuDNN {version} opens a part that it does not carry, and the loader would take it from "
                    f"{system[0].path} ({system[0].version}): {advisory.summary}",
                    evidence=(_fact("cudnn", f"{copy.path}: {version}"), _fact("cudnn", f"{system[0].path}: {system[0].version}")),
                    confidence=0.85,
                )


def _two_cudnn(machine: Machine) -> Iterator[Finding]:
    versions = {(copy.version, copy.path) for copy in machine.cudnn}
    if len(versions) > 1:
        each = " and ".join(f"{copy.version} ({copy.path or copy.source})" for copy in machine.cudnn[:4])
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"there are {len(versions)} copies of cuDNN: {each}; which one a framework loads is told by `cudnn-resolve detect`",
            evidence=tuple(_fact("cudnn", f"{copy.version}: {copy.path or copy.owner or copy.source}") for copy in machine.cudnn[:4]),
            confidence=0.9,
        )


def _shared_files(machine: Machine) -> Iterator[Finding]:
    """Packages that write the same files."""
    slots: dict[str, list[str]] = {}
    for name in machine.pip:
        slot = machine.book.slot(name)
        if slot is not None:
            slots.setdefault(slot, []).append(name)
    told = {problem.what.removeprefix("packages.pip.") for problem in machine.facts.problems if "overwritten" in problem.why}
    for names in slots.values():
        if told & set(names) or len(names) < 2 or not any(name.startswith(("nvidia-", "cupy-")) for name in names):
            continue
        each = " and ".join(f"{name} {machine.pip[name]}" for name in sorted(names))
        cudnn = any("cudnn" in name for name in names)
        yield Finding(
            cause="cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch",
            severity="warning" if cudnn or (len({machine.pip[name] for name in names}) > 1 and "cupy" in each) else "info",
            summary=f"{each} install the same files: whichever was unpacked last is there, and removing one takes them from the other",
            evidence=tuple(_fact("packages.pip", f"{name} {machine.pip[name]}") for name in sorted(names)),
            confidence=0.8,
        )


def _overwritten(machine: Machine) -> Iterator[Finding]:
    """What the probe found of wheels whose files are not their own."""
    for problem in machine.facts.problems:
        if problem.what.startswith("packages.pip.") and "overwritten" in problem.why:
            name = problem.what.removeprefix("packages.pip.")
            cudnn = "cudnn" in name
            yield Finding(
                cause="cudnn_sublibrary_mix" if cudnn else "framework_pkg_mismatch",
                severity="error" if cudnn else "warning",
                summary=f"files of {name} are not those that it installed: {problem.why}",
                evidence=(_fact(problem.what, problem.why),),
                remedy=tuple(_restore(machine, name, problem.why)),
                confidence=0.93,
            )


def _restore(machine: Machine, name: str, why: str) -> Iterator[Remedy]:
    """Both away, the wanted one back: removing one of two takes the files of the other along."""
    pip = f"{shlex.quote(machine.facts.python.path or 'python')} -m pip"
    other = next((one for one in machine.pip if f"overwritten by {one}:" in why), None)
    if other:
        yield Remedy(
            text=f"if {name} is the one that is wanted: remove both, then install it again "
            "(removing one alone takes the files of the other along)",
            command=f"{pip} uninstall -y {other} {name} && {pip} install --no-deps {name}=={machine.pip[name]}",
        )
        yield Remedy(
            text=f"if it is {other}: remove {name}, then install {other} again",
            command=f"{pip} uninstall -y {name} && {pip} install --force-reinstall --no-deps {other}=={machine.pip[other]}",
        )
    else:
        yield Remedy(text=f"install {name} again", command=f"{pip} install --force-reinstall --no-deps {name}=={machine.pip[name]}")


def _abi(machine: Machine) -> Iterator[Finding]:
    """NumPy and protobuf that an installed framework cannot use, by bounds that its metadata does not say."""
    from packaging.requirements import Requirement

    for one in machine.installed:
        framework = machine.book.framework_of(one.name)
        for bound in machine.book.framework(framework).bounds if framework else ():
            requirement = Requirement(bound.requirement)
            version = machine.pip.get(requirement.name)
            cause = {"numpy": "numpy_abi", "protobuf": "protobuf_abi"}.get(requirement.name)
            if (
                cause is None
                or version is None
                or (bound.package and bound.package != one.name)
                or not _within(bound.versions, one.version)
            ):
                continue
            if not _within(str(requirement.specifier), version):
                yield Finding(
                    cause=cause,
                    severity="error",
                    summary=f"{one.label} wants {bound.requirement} and {requirement.name} {version} is installed: {bound.reason}",
                    evidence=(_fact("packages.pip", f"{requirement.name} {version}"), _fact("packages.pip", one.label)),
                    confidence=0.92,
                )


def _cpu_only(machine: Machine) -> Iterator[Finding]:
    """Builds without CUDA on a machine with a GPU."""
    if not machine.gpus or machine.driver_absent:
        return
    gpu_builds = [one for one in machine.installed if one.cuda is not None]
    for one in machine.installed:
        if one.is_cpu:
            yield Finding(
                cause="cpu_only_build",
                severity="info" if gpu_builds else "warning",
                summary=f"{one.label} is built without CUDA: it runs on the CPU although there is a {machine.gpus[0].name or 'GPU'}",
                evidence=(_fact("packages.pip", one.label), _fact("gpus", machine.gpus[0].name or "a GPU")),
                confidence=0.9,
            )


def _forward(machine: Machine) -> Iterator[Finding]:
    """A compat libcuda that the loader finds on a card that does not support it."""
    places = [one for one in (*machine.loader.ld_library_path, *machine.loader.ldconfig) if "/compat" in one]
    if not places:
        return
    for gpu in machine.gpus:
        card = machine.book.card(gpu.name) if gpu.name else None
        if card is not None and card.kind == "geforce":
            yield Finding(
                cause="forward_compat_hw",
                severity="error",
                summary=f"the loader looks for libcuda in {places[0]}, a forward-compatibility package, and {gpu.name} does not support it",
                evidence=(_fact("loader", places[0]), _fact("gpus", gpu.name or "")),
                confidence=0.85,
            )
            return


def _wsl(machine: Machine) -> Iterator[Finding]:
    apt = or_none(machine.facts.packages.apt) or {}
    drivers = [name for name in apt if name.startswith(("nvidia-driver-", "libnvidia-compute-", "cuda-drivers"))]
    if machine.facts.container == "wsl" and drivers:
        yield Finding(
            cause="wsl_driver_shadowed",
            severity="warning",
            summary=f"{drivers[0]} is installed inside WSL, where the driver is that of Windows: "
            "its libcuda hides the one in /usr/lib/wsl/lib",
            evidence=tuple(_fact("packages.apt", f"{name} {apt[name]}") for name in drivers[:4]),
            confidence=0.85,
        )


def _declared(machine: Machine) -> Iterator[Finding]:
    """NVIDIA's wheels in other versions than a framework declares: a note, since the matrix knows the ABI."""
    from packaging.requirements import InvalidRequirement, Requirement

    differ = []
    for one in machine.installed:
        for line in one.requires:
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            version = machine.pip.get(requirement.name)
            if version and requirement.name.startswith("nvidia-") and not _within(str(requirement.specifier), version):
                differ.append(f"{one.label} declares {requirement.name}{requirement.specifier} and {version} is installed")
    if differ:
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"{len(differ)} NVIDIA packages differ from what a framework declares, within what its libraries accept: {differ[0]}",
            evidence=tuple(_fact("packages.pip", text) for text in differ[:6]),
            confidence=0.8,
        )


def _toolkits(machine: Machine) -> Iterator[Finding]:
    """CUDA toolkits that play no part, since the wheels bring what they load."""
    toolkits: tuple[Toolkit, ...] = or_none(machine.facts.cuda_toolkits) or ()
    own = [one for one in machine.installed if one.cuda is not None and one.delivery in ("wheel", "bundled")]
    need = [one for one in machine.installed if one.cuda is not None and one.delivery == "system"]
    if toolkits and own and not need:
        each = ", ".join(f"{one.version} ({one.path or one.source})" for one in toolkits[:3])
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"CUDA {each} plays no part for {', '.join(one.label for one in own)}: their wheels bring the libraries that they load",
            evidence=tuple(_fact("cuda_toolkits", f"{one.version}: {one.path}") for one in toolkits[:3]),
            confidence=0.8,
        )


_CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    _driver_mismatch,
    _driver_old,
    _no_driver,
    _hidden,
    _architecture,
    _cudnn_loaded,
    _cudnn_broken,
    _cudnn_borrowed,
    _overwritten,
    _shared_files,
    _abi,
    _cpu_only,
    _forward,
    _wsl,
    _two_cudnn,
    _declared,
    _toolkits,
)


def _visible(machine: Machine) -> list[Gpu]:
    seen: dict[tuple[str | None, str | None], Gpu] = {}
    for gpu in machine.gpus:
        if not gpu.hidden:
            seen.setdefault((gpu.name, gpu.compute_capability), gpu)
    return list(seen.values())


def _capability(gpu: Gpu) -> Capability | None:
    try:
        return Capability.parse(gpu.compute_capability) if gpu.compute_capability else None
    except ValueError:
        return None


def _driver(text: str | None) -> DriverVersion | None:
    try:
        return DriverVersion(text) if text else None
    except ValueError:
        return None


def _cudnn(text: str | None) -> CudnnVersion | None:
    try:
        return CudnnVersion(text) if text else None
    except ValueError:
        return None


def _within(specifier: str, version: str | None) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return version is not None and SpecifierSet(specifier).contains(Version(Version(version).public), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        return False
