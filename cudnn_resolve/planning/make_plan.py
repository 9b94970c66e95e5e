"""Plans from resolutions, or from the conflicts that rule them out."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import Loader, or_none
from cudnn_resolve.locking.model import Environment, FolderWheel
from cudnn_resolve.planning.difference import apt_actions, pip_actions
from cudnn_resolve.planning.model import AptAction, PipAction, Plan, Stack, StackFramework
from cudnn_resolve.planning.origin_warning import overlay_warnings
from cudnn_resolve.planning.step import steps
from cudnn_resolve.planning.unmet_pins import installed_requires, unmet_overrides, unmet_pins
from cudnn_resolve.planning.warning import warnings
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.assemble import loaded_cudnn, loads_wheels, versions_after
from cudnn_resolve.resolution.context import constraints
from cudnn_resolve.resolution.key import CUDNN, CUDNN_OF_SYSTEM
from cudnn_resolve.resolution.model import Conflict, Refusal, Resolution
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.release import parse_requirement
from cudnn_resolve.version import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.row import Build
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.source import Source
    from cudnn_resolve.resolution.model import PipPin, Reason


def make_plan(facts: Facts, outcome: Resolution | Conflict, book: Book, source: Source | None = None) -> Plan:
    """Plan the way from these facts to the resolution; for a conflict, return a plan that holds nothing else.

    `source` is the one that the resolution was made with; its remarks become notes and warnings.
    """
    request = outcome.request
    targets = (*(target.text for target in request.targets), *(f"{name} (reinstall)" for name in sorted(request.reinstall)))
    notes = tuple(source.notes) if source is not None else ()
    if isinstance(outcome, Conflict):
        conflict = Refusal(message=outcome.message, causes=outcome.causes, relaxations=outcome.relaxations)
        return Plan(targets=targets, facts=facts, conflict=conflict, notes=notes, warnings=overlay_warnings(book))
    pip = pip_actions(
        [_wanted(pin, pin.version, book) for pin in outcome.pip if pin.version is not None],
        outcome.machine.pip,
        book,
        gpu={pin.name: pin.build.cuda is not None for pin in outcome.pip if pin.build is not None},
        reinstall=request.reinstall,
    )
    unmet = unmet_pins(outcome.machine, book, pip, installed_requires(outcome, book))
    unpinned = sorted((pin for pin in outcome.pip if pin.version is None), key=attrgetter("name"))
    apt = (AptAction(name=pin.name, version=pin.version, repository=pin.repository, because=pin.because) for pin in outcome.apt)
    reasons = {pin.name: pin.reasons for pin in outcome.pip}
    draft = Plan(
        targets=targets,
        facts=facts,
        stack=_stack(outcome, book),
        pip=pip,
        unpinned=tuple(pin.name for pin in unpinned),
        left_open=tuple(_left_open(request, unpinned)),
        apt=apt_actions(apt, outcome.machine.apt),
        overrides=(*outcome.overrides, *unmet_overrides(unmet, outcome.overrides, reasons)),
        environment=loader_environment(outcome, facts, book),
        sources=_index_options(outcome),
        notes=notes,
        python=outcome.machine.python_full,
        arch=outcome.machine.arch,
    )
    found = warnings(draft, outcome, open_request(request, source), book, unmet)
    return replace(draft, steps=steps(draft, outcome.machine, book), warnings=(*overlay_warnings(book), *found))


def _wanted(pin: PipPin, version: str, book: Book) -> PipAction:
    row = book.index(pin.index) if pin.index is not None else None
    return PipAction(
        name=pin.name,
        version=version,
        index=row.url if row is not None else None,
        page=row is not None and row.kind == "find-links",
        because=_because(pin.reasons),
        file=pin.file,
        direct=pin.direct.place if pin.direct is not None else None,
    )


def _left_open(request: Request, unpinned: Iterable[PipPin]) -> Iterator[str]:
    """Packages whose versions are left to the installer, each with its combined specifiers."""
    limits = constraints(request)
    for pin in unpinned:
        requirements = [parse_requirement(reason.text) for reason in pin.reasons]
        specifiers = [str(found.specifier) for found in requirements if found is not None and canonicalize_name(found.name) == pin.name]
        specifiers += [str(specifier) for _, specifier in limits.get(pin.name, ())]
        yield f"{pin.name}{SpecifierSet(','.join(filter(None, specifiers)))}"


def _because(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """Distinct reasons behind a pin."""
    texts = (f"{reason.text}, asked for" if reason.because == "asked for" else f"{reason.text}: {reason.because}" for reason in reasons)
    return tuple(dict.fromkeys(texts))


def _index_options(resolution: Resolution) -> tuple[str, ...]:
    """Index options that the user gave; pip reads those of its configuration itself."""
    names = ("--index-url", "--extra-index-url", "--find-links")
    return tuple(word for name, value in resolution.request.context if name in names for word in (name, value))


def _stack(resolution: Resolution, book: Book) -> Stack:
    gpu = resolution.request.device == "gpu"
    return Stack(
        driver_min=resolution.driver_min if gpu else None,
        driver_because=resolution.driver_because if gpu else None,
        driver_policy=resolution.request.driver_policy,
        cuda=resolution.cuda,
        cudnn=resolution.cudnn,
        cudnn_soname=resolution.cudnn_soname,
        frameworks=(*_requested(resolution), *_unrequested(resolution, book)),
        cuda_of_wheels=any(loads_wheels(resolution, build.framework) for build in resolution.builds),
    )


def _requested(resolution: Resolution) -> Iterator[StackFramework]:
    for build in resolution.builds:
        channel = resolution.channels.get(build.framework, "none")
        libraries = "pip" if channel == "folder" else channel
        yield StackFramework.of(build, cudnn=loaded_cudnn(resolution, build), libraries=libraries)


def _unrequested(resolution: Resolution, book: Book) -> Iterator[StackFramework]:
    """Installed frameworks that nobody requested and that keep working."""
    after = versions_after(book, resolution)
    for standing in resolution.unrequested:
        build = standing.build
        if build is None or not standing.works or standing.broken_by(after) is not None:
            continue
        cudnn = str(build.cudnn) if build.cudnn and standing.libraries == "bundled" else None
        framework = StackFramework.of(build, cudnn=cudnn, libraries=standing.libraries, asked=False)
        yield replace(framework, version=after.get(standing.package, standing.version))


# ---- how the loader will find the CUDA libraries of each framework


_SEARCHED = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/cuda", "/usr/local/lib")


def loader_environment(resolution: Resolution, facts: Facts, book: Book) -> tuple[Environment, ...]:
    """Return one entry per loader setting that the stack needs; a single `none` if it needs no setting.

    Setting LD_LIBRARY_PATH in a running process is never an option: the loader reads it once, at process start (ld.so(8)).
    """
    entries: list[Environment] = []
    channels = resolution.channels
    preload = [build for build in resolution.builds if channels.get(build.framework) in ("pip", "folder") and build.finds == "none"]
    if preload:
        names = " ".join(build.framework for build in preload)
        why = "; ".join(f"{build.package} {build.version} does not search the NVIDIA wheels of its environment" for build in preload)
        entries.append(Environment(kind="preload", value=names, why=f"{why}: a preload opens the libraries before it is imported"))
    entries += _second_cudnn(resolution, book)
    entries += _linker_cache(resolution, facts)
    entries += _forward_compatibility(resolution, facts)
    if not entries:
        why = "; ".join(dict.fromkeys(_found_unaided(build, resolution) for build in resolution.builds)) or "no libraries to find"
        entries.append(Environment(kind="none", value="", why=why))
    return tuple(entries)


def _second_cudnn(resolution: Resolution, book: Book) -> Iterator[Environment]:
    """Second cuDNN in a folder of site-packages, and the frameworks that a preload loads it for."""
    pin = resolution.in_folder
    builds = [build for build in resolution.builds if resolution.channels.get(build.framework) == "folder"]
    if pin is None or pin.version is None or not builds:
        return
    row = book.index(pin.index) if pin.index is not None else None
    file = pin.file
    if file is not None:
        file = File(filename=file.filename, url=file.url, hashes=file.hashes, size=file.size, origin=file.origin)
    wheel = FolderWheel(name=pin.name, version=pin.version, index=row.url if row is not None else None, file=file)
    names = " and ".join(f"{build.package} {build.version}" for build in builds)
    why = f"{pin.name} {pin.version} for {names} is installed into {FOLDER} in site-packages; the other frameworks keep their cuDNN"
    yield Environment(kind="folder", value=" ".join(build.framework for build in builds), why=why, wheel=wheel)


def _found_unaided(build: Build, resolution: Resolution) -> str:
    """How a framework finds its libraries without any setting."""
    framework = f"{build.package} {build.version}"
    channel = resolution.channels.get(build.framework)
    if channel is None:
        return f"{framework} loads no CUDA library"
    if channel == "bundled":
        return f"{framework} bundles its libraries in its wheel"
    if loads_wheels(resolution, build.framework):
        return f"{framework} finds CUDA in the NVIDIA wheels by its {build.finds.upper()}, and the system's cuDNN through the linker cache"
    if channel in ("apt", "system"):
        return f"{framework} finds the system's libraries through the linker cache"
    ways = {
        "rpath": "finds the NVIDIA wheels by its RPATH",
        "runpath": "finds the NVIDIA wheels by its RUNPATH, unless LD_LIBRARY_PATH names another copy",
        "self": "loads the NVIDIA wheels by its own code",
    }
    return f"{framework} {ways.get(build.finds, 'finds its libraries')}"


def _linker_cache(resolution: Resolution, facts: Facts) -> Iterator[Environment]:
    """Linker-cache configuration for installed copies that the loader does not search."""
    if "system" not in resolution.channels.values():
        return
    loader = or_none(facts.loader) or Loader()
    directories = []
    cudnn = resolution.pins.get(CUDNN_OF_SYSTEM) or resolution.pins.get(CUDNN)
    version = cudnn.candidate.version if cudnn is not None else None
    for copy in resolution.machine.cudnn:
        same = version is not None and copy.version is not None and version.startswith(copy.version)
        if copy.source != "pip" and copy.path and same and not _is_searched(copy.path, loader):
            directories.append(copy.path)
    if directories:
        value = ":".join(dict.fromkeys(directories))
        why = "these directories are not in the linker cache; a file in /etc/ld.so.conf.d and `ldconfig` add them"
        yield Environment(kind="ldconfig", value=value, why=why)


def _forward_compatibility(resolution: Resolution, facts: Facts) -> Iterator[Environment]:
    """Directory of an installed forward-compatibility package, if the stack needs its driver and the loader does not search it."""
    machine, loader = resolution.machine, or_none(facts.loader) or Loader()
    compat, driver, needed = machine.compat, machine.driver, resolution.driver_min
    if compat is None or compat.package not in machine.apt or driver is None or needed is None or driver >= DriverVersion(needed):
        return
    folder = f"/usr/local/cuda-{compat.cuda}/compat"
    if not _is_configured(folder, loader):
        why = (
            f"the loader does not search the folder of {compat.package} and would load driver {driver}: "
            f"start programs with LD_LIBRARY_PATH={folder}"
        )
        yield Environment(kind="env", value=folder, why=why)


def _is_configured(folder: str, loader: Loader) -> bool:
    """True for a folder on LD_LIBRARY_PATH or in the linker cache."""
    return folder in loader.ld_library_path or any(entry.startswith(f"{folder}/") for entry in loader.ldconfig)


def _is_searched(folder: str, loader: Loader) -> bool:
    if _is_configured(folder, loader):
        return True
    return any(folder == root or folder.startswith((f"{root}/", f"{root}-")) for root in _SEARCHED)
