"""Warnings of a plan made from a resolution."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.facts.model import UNKNOWN
from cudnn_resolve.matrix.advisory import advisories_of
from cudnn_resolve.matrix.digest import traps_for
from cudnn_resolve.matrix.evidence import evidence_of, evidence_rows
from cudnn_resolve.planning.library_warning import library_warnings
from cudnn_resolve.planning.model import Warning
from cudnn_resolve.planning.origin_warning import origin_warnings
from cudnn_resolve.planning.unmet_pins import unmet_warnings
from cudnn_resolve.resolution.age_limit import years_old
from cudnn_resolve.resolution.assemble import loads_wheels, versions_after
from cudnn_resolve.resolution.build import libraries_of
from cudnn_resolve.resolution.candidate import PipCandidate
from cudnn_resolve.resolution.evidence import fitting_majors
from cudnn_resolve.resolution.framework import is_vague
from cudnn_resolve.resolution.key import CUDA, CUDA_OF_SYSTEM
from cudnn_resolve.resolution.release import extras_of
from cudnn_resolve.resolution.release_catalog import catalog_of
from cudnn_resolve.resolution.solve import cuda_of
from cudnn_resolve.resolution.vendor import vendor_build
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.matrix.wheel_content import WheelEvidence
    from cudnn_resolve.planning.model import PipAction, Plan
    from cudnn_resolve.planning.unmet_pins import UnmetPin
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.resolution.open_request import OpenRequest

_OTHER_DEVICES = (("rocm", "AMD GPUs"), ("xpu", "Intel GPUs"), ("cpu.", "the CPU with an ABI of its own"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TRAPS_OF_GPU_BUILDS = frozenset({"gpu-not-found"})
"""Kinds of traps that do not affect builds without GPU support."""


def warnings(draft: Plan, resolution: Resolution, request: OpenRequest, book: Book, unmet: Sequence[UnmetPin]) -> tuple[Warning, ...]:
    """Return the distinct warnings of a plan made so far: what it breaks or mixes, then the machine, then its packages."""
    facts, pip = draft.facts, draft.pip
    found = [*_standing_frameworks(resolution, facts, book), *_vendor_builds(resolution, book, pip)]
    if resolution.request.device == "gpu":
        found += library_warnings(resolution, book)
    found += _machine_warnings(resolution, facts)
    for build in resolution.builds:
        found += _extra(resolution, request, book, build)
        found += _traps(book, build)
        found += _older_toolkit(resolution, build)
        found += _provisional(build)
        found += _partly_known(resolution, build)
    found += _advisories(resolution, book)
    found += _from_source(resolution)
    found += _years_old(resolution, request, book)
    found += _near_names(resolution, book)
    found += _uninspected(resolution, book)
    found += _no_kernel(resolution, book)
    found += origin_warnings(resolution, request, book, pip)
    found += _companions_left(resolution)
    found += _collisions(pip)
    found += unmet_warnings(unmet)
    if any(package.action != "keep" for package in draft.apt):
        found += _apt_warnings(resolution)
    return tuple(dict.fromkeys(found))


def _standing_frameworks(resolution: Resolution, facts: Facts, book: Book) -> Iterator[Warning]:
    """Installed frameworks that the plan breaks, and those that were broken before."""
    after = versions_after(book, resolution)
    for framework in resolution.unrequested:
        message = framework.breakage(after)
        if message is not None:
            yield Warning(code="breaks-framework", message=message)
        if not framework.works and facts.cudnn is not UNKNOWN:
            yield Warning(
                code="broken-framework",
                message=f"{framework.who} finds no CUDA libraries here and cannot be imported: the plan does not protect its libraries",
            )


def _vendor_builds(resolution: Resolution, book: Book, pip: tuple[PipAction, ...]) -> Iterator[Warning]:
    """Builds that no index serves and that the plan replaces: those of an image's vendor, and those for other devices."""
    machine = resolution.machine
    for action in pip:
        if action.action == "keep" or action.installed is None:
            continue
        local = action.installed.partition("+")[2]
        if book.framework_of(action.name) is not None:
            for prefix, device in _OTHER_DEVICES:
                if local.startswith(prefix):
                    message = f"{action.name} {action.installed} is a build for {device}, which is lost; --env DIR keeps it"
                    yield Warning(code="vendor-build", message=message)
        build = vendor_build(book, machine, action.name)
        if build is None or local.startswith("cu"):
            continue
        libraries = f"built for {libraries_of(build)} of this image" if build.delivery == "system" else "with bundled CUDA libraries"
        dependents = sorted(name for name in machine.pip if name != action.name and book.companion_of(name) == build.framework)
        effect = f"; packages built against it may no longer load: {', '.join(dependents)}" if dependents else ""
        yield Warning(
            code="vendor-build",
            message=f"{action.name} {action.installed} is this image's own build, {libraries}; no index has it, and its vendor's changes "
            f"are lost{effect}. {action.name}=={build.version} keeps it",
        )


def _extra(resolution: Resolution, request: OpenRequest, book: Book, build: Build) -> Iterator[Warning]:
    """An extra that cannot be installed as published, so the plan lists its packages itself."""
    if not build.extra or resolution.channels.get(build.framework) != "pip":
        return
    catalog = catalog_of(book, resolution.machine, request)
    release = catalog.releases.of_build(build)
    if release is None:
        return
    for requirement, extra in catalog.metadata.requirements(release, extras_of(build)):
        if extra is None:
            continue
        name = canonicalize_name(requirement.name)
        found = [other for other in catalog.releases.of(name) if requirement.specifier.contains(other.version, prereleases=True)]
        fits = any(other.details.fit.python and other.details.fit.arch for other in found)
        if book.is_harvested(name) and not fits and name not in {pin.name for pin in resolution.pip}:
            yield Warning(
                code="extra-not-installable",
                message=f"{build.package}[{extra}]=={build.version} cannot be installed as published: it requires {requirement.name}"
                f"{requirement.specifier}, which has no file for this machine; the plan lists the NVIDIA wheels one by one instead",
            )
            return


def _traps(book: Book, build: Build) -> Iterator[Warning]:
    for trap in traps_for(book, build.framework, build.version):
        if trap.action == "warn" and not (build.cuda is None and trap.kind in _TRAPS_OF_GPU_BUILDS):
            remedy = f"; {trap.remedy}" if trap.remedy else ""
            yield Warning(code=f"trap-{trap.id}", message=f"{build.package} {build.version}: {trap.summary}{remedy}")


def _older_toolkit(resolution: Resolution, build: Build) -> Iterator[Warning]:
    """A build that runs on an installed CUDA older than the one that it was published for."""
    wheels = loads_wheels(resolution, build.framework)
    if build.cuda is None or resolution.cuda is None or not (wheels or resolution.channels.get(build.framework) == "system"):
        return
    if CudaVersion(resolution.cuda) < CudaVersion(build.cuda.line):
        effect = f"runs on the installed CUDA {resolution.cuda}, which is kept because this environment runs on it"
        if wheels:
            effect = (
                f"loads CUDA {resolution.cuda} from the installed wheels, which it finds first: most code runs on an older minor of the "
                "same major, but NVIDIA does not guarantee it; `validate` tests it, and --env DIR gives it its own CUDA"
            )
        message = f"{build.package} {build.version} was published for CUDA {build.cuda} and {effect}"
        yield Warning(code="older-toolkit", message=message)


def _provisional(build: Build) -> Iterator[Warning]:
    """A release that is not in the tables."""
    if build.provisional:
        libraries = libraries_of(build) if build.cuda else "no GPU code"
        yield Warning(
            code="provisional",
            message=f"{build.package} {build.version} is not in the tables yet: {libraries} is inferred from its metadata and the previous "
            "release; the GPUs that it has code for are unknown",
        )


def _partly_known(resolution: Resolution, build: Build) -> Iterator[Warning]:
    """A build whose index was not read, so that only the libraries its release is known to load are certain; new releases were read."""
    if is_vague(build) and not build.provisional and resolution.channels.get(build.framework) == "pip":
        yield Warning(
            code="known-in-part",
            message=f"the requirements of {build.package} {build.wheel_version} are known only in part (its index was not read): "
            "after the installation, `pip check` lists what is missing",
        )


def _advisories(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Releases with advisories: those that were avoided, and those that are chosen nevertheless."""
    for override in resolution.overrides:
        declared = next((specifier.version for specifier in SpecifierSet(override.declared) if specifier.operator == "=="), None)
        for advisory in book.advisories(override.package):
            if declared and advisory.action == "avoid" and SpecifierSet(advisory.versions).contains(declared, prereleases=True):
                message = f"{override.package} {declared}, pinned by {override.requested_by}, is avoided: {advisory.summary}"
                yield Warning(code="advisory", message=message)
    chosen = {pin.name: pin.version for pin in resolution.pip if pin.version}
    for name, advisory in advisories_of(book, chosen, resolution.machine.capabilities):
        remedy = f"; {advisory.remedy}" if advisory.remedy else ""
        yield Warning(code="advisory", message=f"{name} {chosen[name]}: {advisory.summary}{remedy}")


def _from_source(resolution: Resolution) -> Iterator[Warning]:
    """Packages that have no wheel for the target."""
    names = set()
    for pin in resolution.pins.values():
        release = pin.candidate.release if isinstance(pin.candidate, PipCandidate) else None
        if release is None or release.package in resolution.request.direct:
            continue
        if "sdist" in release.details.tags and resolution.machine.pip.get(release.package) != release.text:
            names.add(f"{release.package} {release.text}")
    if names:
        yield Warning(code="from-source", message=f"no wheel exists for {', '.join(sorted(names))}: the installer builds from source")


def _years_old(resolution: Resolution, request: OpenRequest, book: Book) -> Iterator[Warning]:
    if request.source is not None and (names := list(years_old(resolution, request.source, book))):
        verb = "are" if len(names) > 1 else "is"
        message = f"{', '.join(names)} {verb} years older than the frameworks: no newer release fits the rest"
        yield Warning(code="years-old", message=message)


def _near_names(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Requested packages that no index was asked for and whose names nearly match a framework's."""
    requested = {canonicalize_name(found[0]) for line in resolution.request.requirements if (found := _NAME.match(line.text)) is not None}
    for pin in resolution.pip:
        if pin.version is not None or pin.name not in requested or book.is_harvested(pin.name):
            continue
        near = [name for name in book.nearest(pin.name) if abs(len(name) - len(pin.name)) <= 1 and not pin.name.startswith(name)]
        if near:
            yield Warning(code="near-name", message=f"unknown package {pin.name}: did you mean {' or '.join(near)}?")


def _uninspected(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Packages with native code for GPUs or frameworks whose wheels of the chosen release were not inspected."""
    machine = resolution.machine
    if resolution.cuda is None:
        return
    names = []
    for pin in resolution.pip:
        if pin.build is not None or pin.version is None or pin.index is not None or machine.pip.get(pin.name) == pin.version:
            continue
        compiled = pin.file is None or not pin.file.filename.endswith("-any.whl")
        row = evidence_of(book, pin.name, pin.version, machine.arch)
        if compiled and evidence_rows(book, pin.name) and (row is None or _is_contradictory(book, row)):
            names.append(f"{pin.name} {pin.version}")
    if names:
        yield Warning(
            code="unread",
            message=f"unknown whether {', '.join(names)} loads with CUDA {resolution.cuda}: no wheel of it was inspected, or the libraries "
            "that it links to match no CUDA in the tables",
        )


def _is_contradictory(book: Book, row: WheelEvidence) -> bool:
    """True for a wheel whose CUDA runtime or cuBLAS matches no CUDA that goes with its other libraries."""
    return any(name.startswith(("libcudart.", "libcublas.")) for name in row.needs) and not fitting_majors(book, row)


def _no_kernel(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Packages whose GPU code does not run on a GPU of the machine."""
    machine = resolution.machine
    if resolution.request.device != "gpu":
        return
    for pin in resolution.pip:
        if pin.version is None or pin.index is not None or pin.build is not None:
            continue
        row = evidence_of(book, pin.name, pin.version, machine.arch)
        if row is None or not row.code:
            continue
        for gpu in machine.gpus:
            if gpu.capability is not None and not any(target.runs_on(gpu.capability) for target in row.code):
                targets = ", ".join(map(str, row.code))
                message = f"{pin.name} {pin.version} has GPU code for {targets} only, which does not run on {gpu.label}"
                yield Warning(code="no-kernel", message=message)


def _companions_left(resolution: Resolution) -> Iterator[Warning]:
    if resolution.dropped:
        names = ", ".join(resolution.dropped)
        message = f"no release of {names} fits the new framework; the installed one will not work with it"
        yield Warning(code="companion-left", message=message)


def _collisions(pip: tuple[PipAction, ...]) -> Iterator[Warning]:
    reinstalled = ", ".join(action.name for action in pip if action.reinstall)
    removed = ", ".join(action.name for action in pip if action.action == "remove")
    if reinstalled and removed:
        yield Warning(
            code="collision", message=f"{reinstalled} is reinstalled: removing {removed}, which owns the same files, deletes them"
        )


# ---- the machine: driver, GPUs, loader, Python and apt


def _machine_warnings(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    """Warn of unknown facts that the plan had to assume, and of settings of the machine that interfere with it."""
    if resolution.request.device == "gpu":
        yield from _driver(resolution)
        yield from _gpu(resolution, facts)
        yield from _shadowed(resolution, facts)
    yield from _python(resolution, facts)


def _driver(resolution: Resolution) -> Iterator[Warning]:
    machine, minimum = resolution.machine, resolution.driver_min
    policy = resolution.request.driver_policy
    if machine.driver is None:
        state = "no NVIDIA driver found" if machine.driver_absent else "unknown driver"
        if minimum:
            yield Warning(
                code="driver-unknown",
                message=f"{state}: the target machine needs driver {minimum} or newer ({resolution.driver_because}; policy {policy})",
            )
        return
    native = machine.native_cuda
    if policy == "minor" and native is not None and resolution.cuda and CudaVersion(resolution.cuda) > CudaVersion(native.line):
        yield Warning(
            code="driver-policy",
            message=f"driver {machine.driver_text} is made for CUDA {native} and runs CUDA {resolution.cuda} by minor-version "
            "compatibility (policy minor): PTX that the driver must compile and features of newer drivers do not work; "
            "--driver-policy strict excludes such plans",
        )


def _gpu(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    if resolution.machine.gpus:
        for gpu in resolution.machine.gpus:
            if gpu.capability is None:
                message = f"the compute capability of {gpu.label} is unknown: no build was excluded because of it"
                yield Warning(code="gpu-unknown", message=message)
        return
    covered = []
    for build in resolution.builds:
        targets = build.code_on(resolution.machine.arch)
        if targets:
            covered.append(f"{build.package} {build.version} has code for {', '.join(map(str, targets))}")
    state = "no GPU found" if facts.gpus == () else "unknown GPU"
    detail = f": {'; '.join(covered)}" if covered else ""
    yield Warning(code="gpu-unknown", message=f"{state}, so the plan is for any GPU that the stack supports{detail}; name one with --gpu")


def _shadowed(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    """Copies on LD_LIBRARY_PATH that the loader finds before the planned one.

    LD_LIBRARY_PATH overrides a RUNPATH but not an RPATH. The libraries of the cuDNN wheel, however, find one another by RUNPATH, so even
    behind an RPATH its parts come from the other copy (all of them up to cuDNN 9.20, later the engines; read from the wheels).
    """
    if facts.loader is UNKNOWN or resolution.cudnn is None or "pip" not in resolution.channels.values():
        return
    planned = CudnnVersion(resolution.cudnn)
    only_rpath = all(build.finds == "rpath" for build in resolution.builds)
    effect = "whose parts are loaded into" if only_rpath else "which is loaded instead of"
    for directory in facts.loader.ld_library_path:
        folder = directory.rstrip("/")
        for copy in resolution.machine.cudnn:
            if copy.path is None or copy.version is None or not (copy.path == folder or copy.path.startswith(f"{folder}/")):
                continue
            found = CudnnVersion(copy.version)
            if found.major == planned.major and found != planned:
                yield Warning(
                    code="shadowed-cudnn",
                    message=f"LD_LIBRARY_PATH names {copy.path} with cuDNN {copy.version}, {effect} the planned {planned}: "
                    "remove it from LD_LIBRARY_PATH before starting Python",
                )


def _python(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    if facts.python.version is None:
        assumed = resolution.machine.python_full
        message = f"unknown Python version: the plan is for Python {assumed}; name one with --python-version"
        yield Warning(code="python-unknown", message=message)
    if facts.python.externally_managed:
        yield Warning(
            code="externally-managed",
            message="the system manages this environment (PEP 668), and pip refuses to change it: the plan makes a new one, .venv",
        )


def _apt_warnings(resolution: Resolution) -> Iterator[Warning]:
    """Warn of what a plan with apt packages assumes of the system's repositories and user."""
    root = resolution.machine.root
    runtime = cuda_of(resolution.pins, CUDA_OF_SYSTEM) or cuda_of(resolution.pins, CUDA)
    if runtime is not None and runtime.repository is not None:
        if resolution.machine.os is None:
            message = f"unknown distribution: the apt packages are those of {runtime.repository}; name one with --os"
            yield Warning(code="os-unknown", message=message)
        elif runtime.foreign:
            yield Warning(
                code="older-repository",
                message=f"the apt repository of {resolution.machine.os} has no CUDA {runtime.version}: its libraries come from "
                f"{runtime.repository}, the repository of an older release, which is safe for libraries only",
            )
    detail = {None: " (unknown here)", True: "", False: ", which this user is not: hand the commands to an administrator"}[root]
    yield Warning(code="needs-root", message=f"the apt packages need root{detail}")
