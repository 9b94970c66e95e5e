"""Frameworks of the target environment: build, the libcudnn that each would load and by which rule, and whether they fit."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.cudnn_files import openings_of, parse_name
from cudnn_resolve.facts.loader_trace import Library, Missing, Rule
from cudnn_resolve.facts.model import CudnnCopy, InstalledFramework, LoadedCudnn, Problem, WouldLoad
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.probe.cudnn_places import same_release
from cudnn_resolve.probe.framework_build import FrameworkBuild, FrameworkFiles, Search, find_preload, read_framework, with_preload
from cudnn_resolve.probe.loader import CannotAskError, DynamicLoader, Process
from cudnn_resolve.version import CudaVersion, CudnnVersion

TIMEOUT_SECONDS = 10.0
"""Time limit for a module that is asked what it was built with."""
_VERSION_CALLS = ("cuda_runtime_build_version", "cudnn_build_version")
"""Functions of JAX's version module, which return encoded versions."""
_SET_BY_USER = (Rule.LD_LIBRARY_PATH, Rule.PRELOAD)


def find_frameworks(loader: DynamicLoader, copies: tuple[CudnnCopy, ...]) -> tuple[tuple[InstalledFramework, ...], tuple[Problem, ...]]:
    """Find the installed frameworks, the copy that each would load, and problems with that.

    Nothing is imported: files are read, and the dynamic loader is asked. Only JAX's version module is asked, in a child.
    """
    preload = find_preload(loader)
    found: list[InstalledFramework] = []
    wrong: list[Problem] = []
    absent: list[Problem] = []
    for distribution in loader.environment.distributions:
        build = read_framework(FrameworkFiles(loader, distribution))
        if build is None:
            continue
        build = with_preload(_with_own_versions(loader, build), preload)
        assessment = _Assessment(loader, copies, build)
        found.append(assessment.framework())
        # A wrong cuDNN fails obscurely, a missing one with a clear message: the former come first.
        (wrong if assessment.loads else absent).extend(assessment.problems)
    return tuple(sorted(found, key=lambda framework: framework.name)), (*wrong, *absent)


def _with_own_versions(loader: DynamicLoader, build: FrameworkBuild) -> FrameworkBuild:
    """Add versions from the framework's own module, if there is one and it answers."""
    framework, python = build.framework, loader.environment.python.path
    if build.version_module is None or python is None:
        return build
    directory, module = build.version_module
    request = {"directory": directory, "module": module, "calls": _VERSION_CALLS}
    argv = [python, "-I", payload_path("probe/payload_library.py"), "module", json.dumps(request)]
    answer = answer_of(loader.host.run(argv, timeout_seconds=TIMEOUT_SECONDS).stdout) or {}
    cuda, cudnn = map(answer.get, _VERSION_CALLS)
    cuda_built = CudaVersion.from_encoded(cuda) if isinstance(cuda, int) else None
    cudnn_built = CudnnVersion.from_encoded(cudnn) if isinstance(cudnn, int) else None
    framework = replace(
        framework,
        cuda_built=cuda_built.line if cuda_built else framework.cuda_built,
        cudnn_built=cudnn_built.text if cudnn_built else framework.cudnn_built,
    )
    return replace(build, framework=framework)


class _Assessment:
    """Assessment of the cuDNN that one framework would load."""

    def __init__(self, loader: DynamicLoader, copies: tuple[CudnnCopy, ...], build: FrameworkBuild) -> None:
        self._loader = loader
        self._copies = copies
        self._build = build
        self._framework = build.framework
        self._by_path: Mapping[tuple[str | None, int | None], CudnnCopy] = {(copy.path, copy.soname): copy for copy in copies}
        self.problems: list[Problem] = []
        self.loads = False
        """True if it would load any cuDNN."""

    def framework(self) -> InstalledFramework:
        """Build the framework's facts."""
        would_load = None
        try:
            would_load = self._would_load() if self._build.steps else None
        except CannotAskError as error:
            self._complain(f"the cuDNN it would load is unknown: {error}")
        return replace(self._framework, would_load=would_load)

    def _would_load(self) -> WouldLoad | None:
        outcome = start(self._loader, self._build)
        if outcome.fault is not None:
            because = self._failure(outcome.fault)
            self._complain(because)
            return WouldLoad(because=because)
        library = outcome.library
        if library is None:
            return None
        self.loads = True
        version = self._version_of(library)
        other = start(self._loader, self._build, library_path=False).library if library.rule in _SET_BY_USER else None
        because = self._reason(library, other)
        if outcome.process.lacks_driver:
            because += "; on this machine only once the driver's libraries are installed"
        parts = open_parts(outcome.process, library, version or CudnnVersion(str(self._soname(library) or 9)))
        self._judge_parts(library, version, parts)
        self._judge_version(library, self._effective(version, parts), other)
        self._judge_cuda(self._copy_of(library))
        copy = LoadedCudnn(version=version.text if version else None, path=self._place(library))
        return WouldLoad(cudnn=copy, because=because)

    # --- identity of the copy ---

    def _copy_of(self, library: Library) -> CudnnCopy | None:
        return self._by_path.get((self._loader.realpath(library.origin), self._soname(library)))

    def _place(self, library: Library) -> str:
        """Path of a library in the directory of its copy."""
        return f"{self._loader.realpath(library.origin)}/{library.name}"

    def _version_of(self, library: Library) -> CudnnVersion | None:
        """Release of a library's copy, or else the one in its file name."""
        copy = self._copy_of(library)
        if copy is not None and copy.version is not None:
            return CudnnVersion(copy.version)
        name = parse_name(self._loader.realpath(library.path).rpartition("/")[2])
        return name.version if name else None

    def _effective(self, version: CudnnVersion | None, parts: Parts) -> CudnnVersion | None:
        """Release reported to a program: a part answers, not libcudnn itself."""
        part = parts.found.get("graph") or parts.found.get("ops_infer")
        return self._version_of(part) or version if part else version

    # --- reason for the choice ---

    def _reason(self, library: Library, other: Library | None) -> str:
        """Describe the loader's rule behind a library; `other` would be loaded without LD_LIBRARY_PATH and LD_PRELOAD."""
        by = _name(library.by) or self._framework.name
        if library.rule is Rule.PATH and library.path in self._build.preloaded:
            return f"the preload of this environment ({self._build.preload}) opens it before {self._framework.name} is imported"
        if library.rule is Rule.PATH:
            return f"{self._framework.name}'s own code opens it by path before its libraries request it"
        if library.rule is Rule.PRELOAD:
            return f"LD_PRELOAD={library.where} comes first"
        if library.rule is Rule.RPATH:
            rest = "; LD_LIBRARY_PATH cannot change that" if self._loader.environment.ld_library_path else ""
            return f"RPATH of {_name(library.holder)} leads to it{rest}"
        if library.rule is Rule.LD_LIBRARY_PATH:
            if other is None:
                return f"LD_LIBRARY_PATH={library.where} is the only way for {by} to find it"
            return f"LD_LIBRARY_PATH={library.where} comes before {self._describe(other)}"
        if library.rule is Rule.RUNPATH:
            rest = "; LD_LIBRARY_PATH would come first, but does not have it" if self._loader.environment.ld_library_path else ""
            return f"RUNPATH of {by} leads to it{rest}"
        place = f"it is in {library.where}, a default directory of the loader"
        if library.rule is Rule.CACHE:
            place = "the linker cache leads to it"
        return f"{place}; neither {by} nor LD_LIBRARY_PATH names a directory that has it"

    def _describe(self, other: Library) -> str:
        """Owner, version and rule: `nvidia-cudnn-cu12 9.1.0.70 (RUNPATH of libtensorflow_framework.so.2)`."""
        copy = self._copy_of(other)
        owner = (copy.owner if copy else None) or self._place(other)
        how = f"{other.rule.value} of {_name(other.holder)}" if other.holder else other.rule.value
        version = self._version_of(other)
        return f"{owner}{f' {version}' if version else ''} ({how})"

    def _failure(self, fault: Missing) -> str:
        """Explain why no libcudnn would be loaded."""
        fault = self._loader.explain(fault)
        by, name = fault.by.rpartition("/")[2], fault.name.rpartition("/")[2]
        if fault.why != "is not found":
            return f"{name} cannot be loaded: it {fault.why}" if fault.name.startswith("/") else f"{by} cannot load {name}: {fault.why}"
        if parse_name(name) is None:
            return f"{by} needs {name}, which is not found{self._elsewhere(name)}"
        requester = self._loader.elf(fault.by)
        rpath, runpath = (requester.rpath, requester.runpath) if requester else (None, None)
        places = ["its RPATH"] if rpath and runpath is None else []
        places.append("LD_LIBRARY_PATH" if self._loader.environment.ld_library_path else "LD_LIBRARY_PATH (not set)")
        places += ["its RUNPATH"] if runpath else []
        places.append("the linker cache and the default directories")
        return f"{by} does not find {name}, which is not in {', '.join(places)}{self._elsewhere(name)}"

    def _elsewhere(self, name: str) -> str:
        """Mention a copy outside the loader's search path; "" if none is known."""
        number = name.rpartition(".so.")[2]
        directories = [copy.path for copy in self._copies if copy.path and str(copy.soname) == number and copy.complete is not False]
        if parse_name(name) is None:
            directories = self._loader.wheels_with(name)
        return f"; nothing leads to the one in {min(directories)}" if directories else ""

    # --- whether it fits ---

    def _complain(self, why: str) -> None:
        self.problems.append(Problem(what=f"{self._framework.name} {self._framework.version}", why=why))

    def _judge_parts(self, library: Library, version: CudnnVersion | None, parts: Parts) -> None:
        """Detect parts of another release than libcudnn itself, and parts that are not found."""
        home = self._loader.realpath(library.origin)
        foreign: dict[str, list[Library]] = {}
        for part in parts.found.values():
            directory = self._loader.realpath(part.origin)
            release = self._version_of(part)
            if directory != home and not (release and version and same_release(release, version)):
                foreign.setdefault(directory, []).append(part)
        for directory, found in foreign.items():
            first = found[0]
            names = "its parts" if len(found) == len(parts.found) else ", ".join(part.name for part in found)
            release = self._version_of(first)
            rule = f"to which {first.rule.value} leads ({self._search_path(first.by or library.path)})"
            self._complain(
                f"two releases of cuDNN in one process: {library.name} {version or ''} from {home}, "
                f"but {names} {release or ''} from {directory}, {rule}"
            )
        if parts.missing:
            fault = f"; {_name(parts.faults[0].by)} needs {parts.faults[0].name}, which is not found" if parts.faults else ""
            names = f"{', '.join(parts.missing)} cannot be opened" if parts.found else "none of its parts can be opened"
            self._complain(f"{library.name} would be loaded from {home}, but {names}, which ends the program that uses it{fault}")

    def _judge_version(self, library: Library, version: CudnnVersion | None, other: Library | None) -> None:
        """Detect a release older than the one that the framework was built with, or than the one installed for it."""
        built = self._framework.cudnn_built
        where = self._loader.realpath(library.origin)
        shadowed = self._version_of(other) if other else None
        if version is not None and built is not None and not version.serves(CudnnVersion(built)):
            rule = "the same major and at least the same minor are needed"
            self._complain(f"would load cuDNN {version} from {where}, but was built with {built}: {rule}")
        elif version is not None and shadowed is not None and not version.serves(shadowed):
            self._complain(
                f"would load cuDNN {version} from {where} ({library.rule.value}), although a newer {shadowed} is installed for it"
            )

    def _soname(self, library: Library) -> int | None:
        """Soname number of a cuDNN library."""
        name = parse_name(library.name)
        if name is None or name.soname is None:
            elf = self._loader.elf(library.path)
            name = parse_name(elf.soname or "") if elf else None
        return name.soname if name is not None else None

    def _search_path(self, path: str) -> str:
        """Describe the search path of libcudnn or one of its parts."""
        elf = self._loader.elf(path)
        if self._loader.has_runpath(path):
            return f"{_name(path)} has only a RUNPATH"
        return f"{_name(path)} has an RPATH" if elf and elf.rpath else f"{_name(path)} names no directory"

    def _judge_cuda(self, copy: CudnnCopy | None) -> None:
        built, own = self._framework.cuda_built, copy.cuda if copy else None
        if built and own and built.partition(".")[0] != own.partition(".")[0]:
            self._complain(f"was built for CUDA {built}, but would load a cuDNN for CUDA {own} ({copy.path if copy else ''})")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# --- asking the loader ---


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of opening a framework's libraries."""

    process: Process
    library: Library | None
    """libcudnn itself; None if it was not found or not reached."""
    fault: Missing | None = None
    """Missing library that stopped it."""


class Parts(Struct, frozen=True, kw_only=True):
    """Sub-libraries that a libcudnn would open, by part."""

    found: Mapping[str, Library]
    missing: tuple[str, ...]
    """Names of those not found, `libcudnn_ops.so.9`."""
    faults: tuple[Missing, ...]
    """Missing dependencies of those found."""


def start(loader: DynamicLoader, build: FrameworkBuild, *, library_path: bool = True) -> Outcome:
    """Open the libraries of a framework in its own order."""
    process = loader.process(library_path=library_path)
    for step in build.steps:
        if isinstance(step, Search):
            fault = _search(process, step)
        else:
            opened = process.open(step.path)
            fault = opened if step.required and isinstance(opened, Missing) else None
        if fault is not None:
            return Outcome(process=process, library=None, fault=fault)
    library = next((held for held in process.libraries if (name := parse_name(held.name)) and name.part == ""), None)
    held = {other.path: other for other in process.libraries}
    return Outcome(process=process, library=loader.with_exact_rule(library, held) if library else None)


def _search(process: Process, step: Search) -> Missing | None:
    """Open the first name that is found; the fault of the first name if none is."""
    caller = next((held for prefix in step.by for held in process.libraries if held.name.startswith(prefix)), None)
    faults = []
    for name in step.names:
        opened = process.open(name, caller)
        if isinstance(opened, Library):
            return None
        faults.append(opened)
    return faults[0] if faults else None


def open_parts(process: Process, library: Library, release: CudnnVersion) -> Parts:
    """Open the parts that a libcudnn of that release opens by name, as the loader finds them."""
    found: dict[str, Library] = {"": library}
    missing: list[str] = []
    faults: list[Missing] = []
    openings = openings_of(release)
    for by in dict.fromkeys(opening.by for opening in openings):
        requester = found.get(by)
        if requester is None:
            continue
        own = [opening for opening in openings if opening.by == by]
        opened = process.open_all([name for opening in own for name in opening.names], requester)
        for opening in own:
            results = [opened[name] for name in opening.names]
            first = next((result for result in results if isinstance(result, Library)), None)
            if first is not None:
                found[opening.part] = first
            elif opening.expected:
                missing.append(f"libcudnn_{opening.part}.so.{release.major}")
                faults += [result for result in results if isinstance(result, Missing) and result.name not in opening.names][:1]
    del found[""]
    return Parts(found=found, missing=tuple(missing), faults=tuple(faults))
