"""What the reader of a plan should know besides its steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_resolve.facts.model import UNKNOWN, Facts
from cudnn_resolve.matrix.advisory import advisories_of
from cudnn_resolve.matrix.evidence import evidence_of, evidence_rows, holds_evidence
from cudnn_resolve.planning.model import Warning
from cudnn_resolve.planning.origin import origin_warnings
from cudnn_resolve.planning.unmet_pins import left_warnings
from cudnn_resolve.resolution.age import years_old
from cudnn_resolve.resolution.assemble import loaded_cudnn, loads_wheels, versions_after
from cudnn_resolve.resolution.build import libraries_of
from cudnn_resolve.resolution.candidate import PipCandidate
from cudnn_resolve.resolution.evidence import fitting_majors
from cudnn_resolve.resolution.framework import is_vague
from cudnn_resolve.resolution.installed import broken_by
from cudnn_resolve.resolution.key import CUDA, CUDA_OF_SYSTEM
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.release import extras_of
from cudnn_resolve.resolution.releases import catalog_of
from cudnn_resolve.resolution.solve import cuda_of
from cudnn_resolve.resolution.vendor import vendor_build
from cudnn_resolve.version import CudaVersion, CudnnVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.matrix.wheel_content import WheelEvidence
    from cudnn_resolve.planning.model import AptAction, PipAction
    from cudnn_resolve.planning.unmet_pins import LeftPin
    from cudnn_resolve.resolution.model import Resolution


def warnings(
    resolution: Resolution, facts: Facts, book: Book, pip: tuple[PipAction, ...], apt: tuple[AptAction, ...], left: Sequence[LeftPin]
) -> tuple[Warning, ...]:
    """Everything worth saying about a plan: what it breaks or mixes, then the machine, then the rest."""
    out = [*_unasked(resolution, facts, book), *_own_builds(resolution, book, pip)]
    if resolution.request.device == "gpu":
        out += _majors(resolution, book)
        out += _other_major(resolution, book)
        out += _left_open(resolution, book)
        out += _optional_cudnn(resolution)
        out += _channel(resolution)
        out += _driver(resolution)
        out += _gpu(resolution, facts)
        out += _shadowed(resolution, facts)
    out += _python(resolution, facts)
    for build in resolution.builds:
        out += _extra(resolution, book, build)
        out += _traps(book, build)
        out += _older_toolkit(resolution, build)
        out += _provisional(build)
        out += _known_in_part(resolution, build)
    out += _advisories(resolution, book)
    out += _from_source(resolution)
    out += _years_old(resolution, book)
    out += _near_names(resolution, book)
    out += _unread(resolution, book)
    out += _kernels(resolution, book)
    out += origin_warnings(resolution, book, pip)
    if resolution.dropped:
        names = ", ".join(resolution.dropped)
        out.append(Warning(code="companion-left", message=f"no release of {names} fits the new framework; it will not work with it"))
    out += _collisions(pip)
    out += left_warnings(left)
    if any(one.action != "keep" for one in apt):
        root = resolution.machine.root
        who = "" if root else " (unknown here)" if root is None else ", which this user is not: hand the commands to an administrator"
        out += _repository(resolution)
        out.append(Warning(code="needs-root", message=f"the apt packages need root{who}"))
    return tuple(dict.fromkeys(out))


def _own_builds(resolution: Resolution, book: Book, pip: tuple[PipAction, ...]) -> Iterator[Warning]:
    """Builds of an image's maker that the plan replaces: no index has them."""
    machine = resolution.machine
    for one in pip:
        local = (one.installed or "").partition("+")[2] if one.action != "keep" and book.framework_of(one.name) is not None else ""
        for what in (what for start, what in _OTHER_DEVICES if local.startswith(start)):
            lost = f"{one.name} {one.installed} is a build for {what}, which is lost; --env DIR keeps it"
            yield Warning(code="vendor-build", message=lost)
        build = vendor_build(book, machine, one.name) if one.action != "keep" and one.installed is not None else None
        if build is None or one.installed is None or one.installed.partition("+")[2].startswith("cu"):
            continue
        where = f"made for {libraries_of(build)} of this image" if build.delivery == "system" else "with its own CUDA libraries"
        built = sorted(name for name in machine.pip if name != one.name and book.companion_of(name) == build.framework)
        beside = f"; what was built against it may not load any more: {', '.join(built)}" if built else ""
        yield Warning(
            code="vendor-build",
            message=f"{one.name} {one.installed} is this image's own build, {where}; no index has it, and what its maker changed is lost"
            f"{beside}. {one.name}=={build.version} keeps it",
        )


_OTHER_DEVICES = (("rocm", "AMD's GPUs"), ("xpu", "Intel's GPUs"), ("cpu.", "the CPU with an ABI of its own"))


def _repository(resolution: Resolution) -> Iterator[Warning]:
    runtime = cuda_of(resolution.pins, CUDA_OF_SYSTEM) or cuda_of(resolution.pins, CUDA)
    if runtime is None or runtime.repository is None:
        return
    if resolution.machine.os is None:
        yield Warning(
            code="os-unknown",
            message=f"the distribution is not known: the apt packages are those of {runtime.repository}; name one with --os",
        )
    elif runtime.foreign:
        yield Warning(
            code="older-repository",
            message=f"CUDA {runtime.version} is not in the apt repository of {resolution.machine.os}: its libraries come from "
            f"{runtime.repository}, "
            "that of an older release, which serves for libraries alone",
        )


def _driver(resolution: Resolution) -> Iterator[Warning]:
    machine, minimum = resolution.machine, resolution.driver_min
    policy = resolution.request.driver_policy
    if machine.driver is None:
        state = "there is no NVIDIA driver here" if machine.driver_absent else "the driver is not known"
        if minimum:
            yield Warning(
                code="driver-unknown",
                message=f"{state}: the target machine must have driver {minimum} or newer ({resolution.driver_because}; policy {policy})",
            )
        return
    native = machine.native_cuda
    if policy == "minor" and native is not None and resolution.cuda and CudaVersion(resolution.cuda) > CudaVersion(native.line):
        yield Warning(
            code="driver-policy",
            message=f"driver {machine.driver_text} is made for CUDA {native} and runs CUDA {resolution.cuda} by minor-version "
            f"compatibility (policy minor): PTX that must be compiled by it and features of newer drivers are lost; "
            "--driver-policy strict rules this out",
        )


def _gpu(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    if resolution.machine.gpus:
        for gpu in resolution.machine.gpus:
            if gpu.capability is None:
                yield Warning(
                    code="gpu-unknown", message=f"the compute capability of {gpu.label} is not known: nothing was excluded for it"
                )
        return
    if not resolution.builds:
        return
    state = "there is no GPU here" if facts.gpus == () else "no GPU is known"
    covered = []
    for build in resolution.builds:
        targets = build.code_on(resolution.machine.arch)
        if targets:
            covered.append(f"{build.package} {build.version} has code for {', '.join(map(str, targets))}")
    detail = f": {'; '.join(covered)}" if covered else ""
    yield Warning(code="gpu-unknown", message=f"{state}, so the plan is for any GPU that the stack serves{detail}; name one with --gpu")


def _shadowed(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    """Copies on LD_LIBRARY_PATH that are found before the planned one.

    A RUNPATH gives way to it; an RPATH does not, but the libraries of the cuDNN wheel find one another by a RUNPATH, so that its
    parts come from the other copy (up to 9.20 all of them, later the engines; read in the wheels).
    """
    if facts.loader is UNKNOWN or resolution.cudnn is None or "pip" not in resolution.channels.values():
        return
    planned = CudnnVersion(resolution.cudnn)
    for directory in facts.loader.ld_library_path:
        for copy in resolution.machine.cudnn:
            folder = directory.rstrip("/")
            if copy.path is None or copy.version is None or not (copy.path == folder or copy.path.startswith(f"{folder}/")):
                continue
            found = CudnnVersion(copy.version)
            parts_only = all(build.finds == "rpath" for build in resolution.builds)
            if found.major != planned.major or found == planned:
                continue
            what = "whose parts are loaded into" if parts_only else "which is loaded instead of"
            yield Warning(
                code="shadowed-cudnn",
                message=f"LD_LIBRARY_PATH names {copy.path} with cuDNN {copy.version}, {what} the planned {planned}: "
                "take it out of LD_LIBRARY_PATH before Python starts",
            )


def _cuda_majors(resolution: Resolution) -> Iterator[Warning]:
    """Frameworks of one environment that live on different CUDA majors: what is installed already, and one beside it."""
    beside = [one.build for one in resolution.unasked if one.build is not None and one.libraries != "none"]
    builds = [build for build in (*resolution.builds, *beside) if build.cuda is not None]
    asked = {build.cuda.major for build in resolution.builds if build.cuda is not None}
    if asked and len(asked | {build.cuda.major for build in builds if build.cuda is not None}) > 1:
        each = ", ".join(f"{build.package} {build.wheel_version} on CUDA {build.cuda}" for build in builds)
        yield Warning(
            code="cuda-majors",
            message=f"two CUDA majors are in one environment: {each}; import them in processes of their own: libcurand.so.10 and, of 11 "
            "and 12, libcusolver.so.11 have one name in both, and the first that is loaded serves all",
        )


def _majors(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Frameworks that load different majors of cuDNN, those among them that are installed and stay."""
    yield from _cuda_majors(resolution)
    loaded = {f"{build.package} loads": text for build in resolution.builds if (text := loaded_cudnn(resolution, build)) is not None}
    after = versions_after(book, resolution)
    kept = [one for one in resolution.unasked if one.build is not None and one.works and broken_by(one, after) is None] if loaded else []
    wanted = {f"{one.package} wants": str(one.build.cudnn) for one in kept if one.build is not None and one.build.cudnn is not None}
    if len({text.partition(".")[0] for text in (*loaded.values(), *wanted.values())}) > 1:
        each = ", ".join(f"{who} cuDNN {text}" for who, text in (loaded | wanted).items())
        yield Warning(
            code="cudnn-majors",
            message=f"one cuDNN cannot serve them all, as its majors are apart: {each}; "
            "they can live side by side because the files have other names",
        )


def _other_major(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """CUDA libraries of another major that have the place of those which a package of the stack is made for."""
    if resolution.cuda is None:
        return
    own = {one.slot: one.package for one in book.components(CudaVersion(resolution.cuda).major)}
    for pin in resolution.pip:
        component = book.component(pin.name)
        twin = own.get(component.slot) if component is not None else None
        if component is None or twin is None or twin == pin.name:
            continue
        wants = re.compile(rf"{re.escape(twin)}(?![\w-])")
        texts = (
            (one.name, line) for one in resolution.pip for lines in book.requires(one.name, one.version or "").values() for line in lines
        )
        user = next((name for name, line in texts if wants.match(line)), None)
        if user is not None:
            yield Warning(
                code="other-major",
                message=f"{pin.name} {pin.version} has the place of {twin}, which {user} is made for: {user} finds a library of CUDA "
                f"{component.cuda_major} beside CUDA {resolution.cuda}, and NVIDIA does not promise that it works",
            )


def _left_open(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Packages whose release the installer picks, and of which every wheel that was read needs another CUDA."""
    if resolution.cuda is None:
        return
    for pin in resolution.pip:
        rows = evidence_rows(book, pin.name).values() if pin.version is None else ()
        majors = [fitting_majors(book, row) or frozenset({row.cuda.major} if row.cuda is not None else ()) for row in rows]
        here = CudaVersion(resolution.cuda).major
        linked = any(fitting_majors(book, row) for row in rows)  # what is built with an older CUDA and needs no library of it runs
        if majors and all(majors) and all(here not in one and (linked or min(one) > here) for one in majors):
            wanted = " or ".join(map(str, sorted(frozenset.union(*majors))))
            yield Warning(
                code="other-cuda",
                message=f"{pin.name} is left to the installer, and its wheels that were read are made for CUDA {wanted}: "
                f"they do not work beside CUDA {resolution.cuda}",
            )


def _optional_cudnn(resolution: Resolution) -> Iterator[Warning]:
    """Frameworks that would use a cuDNN of another major than the stack has, and do without."""
    if resolution.cudnn is None:
        return
    planned = CudnnVersion(resolution.cudnn).major
    there = {planned, *(copy.soname for copy in resolution.machine.cudnn if copy.source != "pip")}
    for build in resolution.builds:
        if build.cudnn_optional is not None and build.cudnn_optional not in there:
            yield Warning(
                code="cudnn-optional",
                message=f"{build.package} {build.wheel_version} uses cuDNN {build.cudnn_optional}, and the stack has cuDNN {planned}: "
                "it works without, but has no convolutions then",
            )


def _channel(resolution: Resolution) -> Iterator[Warning]:
    """Frameworks whose CUDA libraries come inside their wheels although the user names a channel for them."""
    if resolution.request.channel == "apt":
        inside = [one for one in resolution.builds if resolution.channels.get(one.framework) == "bundled"]
        for one in inside:
            yield Warning(
                code="channel-bundled",
                message=f"{one.package} {one.wheel_version} has its CUDA libraries inside its wheel: --channel apt changes nothing for it",
            )


def _python(resolution: Resolution, facts: Facts) -> Iterator[Warning]:
    if facts.python.version is None:
        chosen = resolution.machine.python_full
        yield Warning(
            code="python-unknown", message=f"the Python is not known: the plan is for Python {chosen}; name one with --python-version"
        )
    if facts.python.externally_managed:
        yield Warning(
            code="externally-managed",
            message="the environment is managed by the system (PEP 668) and pip refuses to change it: the plan makes a new one, .venv",
        )


def _extra(resolution: Resolution, book: Book, build: Build) -> Iterator[Warning]:
    """An extra that cannot be installed as it was published, and which the plan therefore spells out."""
    if not build.extra or resolution.channels.get(build.framework) != "pip":
        return
    catalog = catalog_of(book, resolution.machine, opened(resolution.request))
    release = catalog.releases.of_build(build)
    if release is None:
        return
    for requirement, extra in catalog.metadata.requirements(release, extras_of(build)):
        if extra is None:
            continue
        name = canonicalize_name(requirement.name)
        found = [one for one in catalog.releases.of(name) if requirement.specifier.contains(one.version, prereleases=True)]
        fits = [one for one in found if one.fit.python and one.fit.arch]
        if (book.package(name) is not None and not fits) and name not in {pin.name for pin in resolution.pip}:
            yield Warning(
                code="extra-not-installable",
                message=f"{build.package}[{extra}]=={build.version} cannot be installed as published: it wants {requirement.name}"
                f"{requirement.specifier}, which no index file serves here; the plan names the NVIDIA wheels one by one instead",
            )
            return


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OF_GPU_BUILDS = frozenset({"gpu-not-found"})
"""Kinds of traps into which no build without GPU falls."""


def _traps(book: Book, build: Build) -> Iterator[Warning]:
    version = Version(build.version)
    for trap in book.traps(build.framework):
        if build.cuda is None and trap.kind in _OF_GPU_BUILDS:
            continue
        if trap.action != "warn" or not SpecifierSet(trap.versions).contains(version, prereleases=True):
            continue
        remedy = f"; {trap.remedy}" if trap.remedy else ""
        yield Warning(code=f"trap-{trap.id}", message=f"{build.package} {build.version}: {trap.summary}{remedy}")


def _older_toolkit(resolution: Resolution, build: Build) -> Iterator[Warning]:
    wheels = loads_wheels(resolution, build.framework)
    if build.cuda is None or resolution.cuda is None or not (wheels or resolution.channels.get(build.framework) == "system"):
        return
    if CudaVersion(resolution.cuda) < CudaVersion(build.cuda.line):
        lives = f"lives on the installed {resolution.cuda}; it is kept because it is what this environment runs on"
        loads = (
            f"loads the CUDA {resolution.cuda} of the installed wheels, which it finds first: most code runs on an older minor of its "
            "major, and NVIDIA promises nothing; `validate` tells, and --env DIR gives it a CUDA of its own"
        )
        yield Warning(
            code="older-toolkit",
            message=f"{build.package} {build.version} is built with CUDA {build.cuda} as published and {loads if wheels else lives}",
        )


def _provisional(build: Build) -> Iterator[Warning]:
    """A release that the tables do not know."""
    if build.provisional:
        built = libraries_of(build) if build.cuda else "no GPU code"
        yield Warning(
            code="provisional",
            message=f"{build.package} {build.version} is not in the tables yet: {built} is taken from its metadata and the release before "
            "it, and for which GPUs it holds code is not known",
        )


def _known_in_part(resolution: Resolution, build: Build) -> Iterator[Warning]:
    """A build whose index nobody read: its libraries are those that its release is known to load. That of a new release was read."""
    if is_vague(build) and not build.provisional and resolution.channels.get(build.framework) == "pip":
        yield Warning(
            code="known-in-part",
            message=f"the requirements of {build.package} {build.wheel_version} are known in part only (its index was not read): "
            "`pip check` after the installation names what else it wants",
        )


def _advisories(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Known-bad releases that were avoided, and those that are chosen nevertheless."""
    for override in resolution.overrides:
        declared = next((one.version for one in SpecifierSet(override.declared) if one.operator == "=="), None)
        for advisory in (*book.advisories(override.package), *(book.advisories("cudnn") if "cudnn" in override.package else ())):
            if declared and advisory.action == "avoid" and SpecifierSet(advisory.versions).contains(declared, prereleases=True):
                yield Warning(
                    code="advisory",
                    message=f"{override.package} {declared}, which {override.requested_by} pins, is avoided: {advisory.summary}",
                )
    chosen = {pin.name: pin.version for pin in resolution.pip if pin.version}
    gpus = tuple(gpu.capability for gpu in resolution.machine.gpus if gpu.capability is not None)
    for name, advisory in advisories_of(book, chosen, gpus):
        remedy = f"; {advisory.remedy}" if advisory.remedy else ""
        yield Warning(code="advisory", message=f"{name} {chosen[name]}: {advisory.summary}{remedy}")


def _from_source(resolution: Resolution) -> Iterator[Warning]:
    """Packages without a wheel that the target could use."""
    names = []
    for pin in resolution.pins.values():
        release = pin.candidate.release if isinstance(pin.candidate, PipCandidate) else None
        if release is None or release.package in resolution.request.direct:
            continue
        if "sdist" in release.tags and resolution.machine.pip.get(release.package) != release.text:
            names.append(f"{release.package} {release.text}")
    if names:
        yield Warning(
            code="from-source", message=f"no wheel exists for {', '.join(sorted(set(names)))}: the installer builds it from source"
        )


def _years_old(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Packages that nobody asked for and that no newer release could take the place of."""
    if old := list(years_old(resolution, book)):
        are = "are" if len(old) > 1 else "is"
        yield Warning(code="years-old", message=f"{', '.join(old)} {are} years older than the frameworks: no newer release fits the rest")


def _near_names(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Packages that nobody looked up and whose names are nearly those of frameworks."""
    asked = {canonicalize_name(found[0]) for one in resolution.request.extras if (found := _NAME.match(one.text)) is not None}
    for pin in resolution.pip:
        near = book.nearest(pin.name) if pin.version is None and pin.name in asked and book.package(pin.name) is None else ()
        alike = [one for one in near if abs(len(one) - len(pin.name)) <= 1 and not pin.name.startswith(one)]
        if alike:
            yield Warning(code="near-name", message=f"{pin.name} is no package that the tables know: did you mean {' or '.join(alike)}?")


def _unread(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Extensions of a framework, and packages with GPU code, of which no wheel of this release has been read."""
    machine = resolution.machine
    if resolution.cuda is None:
        return
    names = []
    for pin in resolution.pip:
        if pin.build is not None or pin.version is None or pin.index is not None or machine.pip.get(pin.name) == pin.version:
            continue
        compiled = pin.file is None or not pin.file.filename.endswith("-any.whl")
        row = evidence_of(book, pin.name, pin.version, machine.arch)
        if compiled and holds_evidence(book, pin.name) and (row is None or _is_contradictory(book, row)):
            names.append(f"{pin.name} {pin.version}")
    if names:
        why = "no wheel of it has been read, or what it links to fits no CUDA that the tables know"
        message = f"whether {', '.join(names)} loads beside CUDA {resolution.cuda} is not known: {why}"
        yield Warning(code="unread", message=message)


def _is_contradictory(book: Book, row: WheelEvidence) -> bool:
    """True for a wheel whose CUDA runtime or cuBLAS is of no CUDA that goes with its other libraries."""
    return any(name.startswith(("libcudart.", "libcublas.")) for name in row.needs) and not fitting_majors(book, row)


def _kernels(resolution: Resolution, book: Book) -> Iterator[Warning]:
    """Packages with GPU code of their own, none of which runs on a GPU of the machine."""
    machine = resolution.machine
    if resolution.request.device != "gpu":
        return
    for pin in resolution.pip:
        row = evidence_of(book, pin.name, pin.version, machine.arch) if pin.version and pin.index is None and pin.build is None else None
        code = row.code if row is not None else ()
        for gpu in machine.gpus if code else ():
            if gpu.capability is not None and not any(target.runs_on(gpu.capability) for target in code):
                message = f"{pin.name} {pin.version} holds GPU code for {', '.join(map(str, code))} alone, none that {gpu.label} runs"
                yield Warning(code="no-kernel", message=message)


def _collisions(pip: tuple[PipAction, ...]) -> Iterator[Warning]:
    again = [one.name for one in pip if one.reinstall]
    gone = ", ".join(one.name for one in pip if one.action == "remove")
    if again and gone:
        message = f"{', '.join(again)} is installed again: {gone} owns the same files, and removing it takes them away"
        yield Warning(code="collision", message=message)


def _unasked(resolution: Resolution, facts: Facts, book: Book) -> Iterator[Warning]:
    """Installed frameworks that stop working, and those that could not be loaded before."""
    after = versions_after(book, resolution)
    for one in resolution.unasked:
        because = broken_by(one, after)
        if because is not None:
            becomes = "will no longer import" if one.is_linked else "will no longer work as it did"
            yield Warning(code="breaks-framework", message=f"{one.who} {becomes}: {because}")
        if not one.works and facts.cudnn is not UNKNOWN:
            yield Warning(
                code="broken-framework",
                message=f"{one.who} finds no CUDA libraries here and cannot be imported as it is: nothing is kept for it",
            )
