"""Frameworks of the target environment: build, the libcudnn that each would load and by which rule, and whether the two fit."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.cudnn_files import openings_of, parse_name
from cudnn_resolve.facts.loader_trace import Library, Missing, Rule
from cudnn_resolve.facts.model import CudnnCopy, InstalledFramework, LoadedCudnn, Problem, WouldLoad
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.probe.cudnn_places import same_release
from cudnn_resolve.probe.framework_start import FrameworkFiles, Reading, Search, find_preload, read_framework, with_preload
from cudnn_resolve.probe.loader import CannotAskError, Loading, Process
from cudnn_resolve.probe.python import TargetEnvironment
from cudnn_resolve.version import CudaVersion, CudnnVersion

TIMEOUT_SECONDS = 10.0
"""For a module that is asked for what it was built with."""
_SET_BY_USER = (Rule.LD_LIBRARY_PATH, Rule.PRELOAD)


def find_frameworks(
    host: Host, environment: TargetEnvironment, copies: tuple[CudnnCopy, ...]
) -> tuple[tuple[InstalledFramework, ...], tuple[Problem, ...]]:
    """Find the installed frameworks, which of the copies each would load, and what is wrong with that.

    Nothing is imported: their files are read, and the dynamic loader is asked. Only JAX's module of versions is asked in a child.
    """
    loading = Loading(host, environment)
    preload = find_preload(host, environment, loading)
    found: list[InstalledFramework] = []
    wrong: list[Problem] = []
    absent: list[Problem] = []
    for distribution in environment.distributions:
        reading = read_framework(FrameworkFiles(host, environment, loading, distribution))
        if reading is None:
            continue
        reading = with_preload(_ask(host, environment, reading), preload)
        assessment = _Assessment(environment, loading, copies, reading)
        found.append(assessment.framework())
        # A wrong cuDNN fails in ways that nobody understands; one that is not there says so itself.
        (wrong if assessment.loads else absent).extend(assessment.problems)
    return tuple(sorted(found, key=lambda one: one.name)), (*wrong, *absent)


def _ask(host: Host, environment: TargetEnvironment, reading: Reading) -> Reading:
    """Add what a module of the framework itself says, where there is one to ask and it answers."""
    question, python = reading.question, environment.python.path
    if question is None or python is None:
        return reading
    words = {"directory": question.directory, "module": question.module, "calls": [question.cuda, question.cudnn]}
    argv = [python, "-I", payload_path("probe/payload_library.py"), "module", json.dumps(words)]
    answer = answer_of(host.run(argv, timeout_seconds=TIMEOUT_SECONDS)) or {}
    cuda, cudnn = answer.get(question.cuda), answer.get(question.cudnn)
    cuda_built = CudaVersion.from_encoded(cuda) if isinstance(cuda, int) else None
    cudnn_built = CudnnVersion.from_encoded(cudnn) if isinstance(cudnn, int) else None
    return replace(
        reading,
        cuda_built=cuda_built.line if cuda_built else reading.cuda_built,
        cudnn_built=cudnn_built.text if cudnn_built else reading.cudnn_built,
    )


class _Assessment:
    """What one framework would load, in words, and what does not fit."""

    def __init__(self, environment: TargetEnvironment, loading: Loading, copies: tuple[CudnnCopy, ...], reading: Reading) -> None:
        self._environment = environment
        self._loading = loading
        self._copies = copies
        self._reading = reading
        self._by_place: Mapping[tuple[str | None, int | None], CudnnCopy] = {(copy.path, copy.soname): copy for copy in copies}
        self.problems: list[Problem] = []
        self.loads = False
        """True where it would load some cuDNN."""

    def framework(self) -> InstalledFramework:
        """Build the framework's facts."""
        reading, would_load = self._reading, None
        try:
            would_load = self._would_load() if reading.steps else None
        except CannotAskError as error:
            self._complain(f"which cuDNN it would load is not known: {error}")
        return InstalledFramework(
            name=reading.name,
            version=reading.version,
            variant=reading.variant,
            cuda_built=reading.cuda_built,
            cudnn_built=reading.cudnn_built,
            would_load=would_load,
        )

    def _would_load(self) -> WouldLoad | None:
        outcome = start(self._loading, self._reading)
        if outcome.library is None and outcome.fault is None:
            return None
        if outcome.library is None or outcome.fault is not None:
            because = self._failure(outcome)
            self._complain(because)
            return WouldLoad(because=because)
        library = outcome.library
        self.loads = True
        version = self._version_of(library)
        other = start(self._loading, self._reading, library_path=False).library if library.rule in _SET_BY_USER else None
        because = self._reason(library, other)
        if outcome.process.lacks_driver:
            because += "; on this machine only once the driver's libraries are there"
        parts = open_parts(outcome.process, library, version or CudnnVersion(str(self._soname(library) or 9)))
        self._judge_parts(library, version, parts)
        self._judge_version(library, self._effective(version, parts), other)
        self._judge_cuda(self._copy_of(library))
        copy = LoadedCudnn(version=version.text if version else None, path=self._place(library))
        return WouldLoad(cudnn=copy, because=because)

    # --- which copy it is ---

    def _copy_of(self, one: Library) -> CudnnCopy | None:
        return self._by_place.get((self._loading.identify(one.origin), self._soname(one)))

    def _place(self, one: Library) -> str:
        """Its path in the directory that the copy is known by."""
        return f"{self._loading.identify(one.origin)}/{one.name}"

    def _version_of(self, one: Library) -> CudnnVersion | None:
        """Release of the copy that a library belongs to, else the one in its file name."""
        copy = self._copy_of(one)
        if copy is not None and copy.version is not None:
            return CudnnVersion(copy.version)
        name = parse_name(self._loading.identify(one.path).rpartition("/")[2])
        return name.version if name else None

    def _effective(self, version: CudnnVersion | None, parts: Parts) -> CudnnVersion | None:
        """Release that a program is told: a part answers, not libcudnn itself."""
        teller = parts.found.get("graph") or parts.found.get("ops_infer")
        return self._version_of(teller) or version if teller else version

    # --- why it is that one ---

    def _reason(self, library: Library, other: Library | None) -> str:
        """The rule of the loader that led to the library, in words; `other` would come without LD_LIBRARY_PATH and LD_PRELOAD."""
        by = _name(library.by) or self._reading.name
        if library.rule is Rule.PATH and library.path in self._reading.preloaded:
            return f"the preload of this environment ({self._reading.preload}) opens it before {self._reading.name} is imported"
        if library.rule is Rule.PATH:
            return f"{self._reading.name}'s own code opens it by its path before its libraries ask for it"
        if library.rule is Rule.PRELOAD:
            return f"LD_PRELOAD={library.where} comes before everything"
        if library.rule is Rule.RPATH:
            rest = "; LD_LIBRARY_PATH cannot change that" if self._environment.ld_library_path else ""
            return f"RPATH of {_name(library.holder)} leads to it{rest}"
        if library.rule is Rule.LD_LIBRARY_PATH:
            if other is None:
                return f"LD_LIBRARY_PATH={library.where} is the only way by which {by} finds it"
            return f"LD_LIBRARY_PATH={library.where} comes before {self._phrase(other)}"
        if library.rule is Rule.RUNPATH:
            rest = "; LD_LIBRARY_PATH would come first, and does not hold it" if self._environment.ld_library_path else ""
            return f"RUNPATH of {by} leads to it{rest}"
        place = f"it is in {library.where}, a default directory of the loader"
        if library.rule is Rule.CACHE:
            place = "the linker cache leads to it"
        return f"{place}; {by} names no directory that holds it, and LD_LIBRARY_PATH neither"

    def _phrase(self, other: Library) -> str:
        """What would have been loaded without LD_LIBRARY_PATH: `the wheel (RUNPATH of libtensorflow_framework.so.2)`."""
        copy = self._copy_of(other)
        owner = (copy.owner if copy else None) or self._place(other)
        how = f"{other.rule.value} of {_name(other.holder)}" if other.holder else other.rule.value
        version = self._version_of(other)
        return f"{owner}{f' {version}' if version else ''} ({how})"

    def _failure(self, outcome: Outcome) -> str:
        """Why no libcudnn would be loaded."""
        assert outcome.fault is not None
        fault = self._loading.explain(outcome.fault)
        by, name = fault.by.rpartition("/")[2], fault.name.rpartition("/")[2]
        if fault.why != "is not found":
            return f"{name} cannot be loaded: it {fault.why}" if fault.name.startswith("/") else f"{by} cannot load {name}: {fault.why}"
        if parse_name(name) is None:
            return f"{by} needs {name}, which is not found{self._elsewhere(name)}"
        asker = self._loading.elf(fault.by)
        rpath, runpath = (asker.rpath, asker.runpath) if asker else (None, None)
        places = ["its RPATH"] if rpath and runpath is None else []
        places.append("LD_LIBRARY_PATH" if self._environment.ld_library_path else "LD_LIBRARY_PATH (not set)")
        places += ["its RUNPATH"] if runpath else []
        places.append("the linker cache and the default directories")
        return f"{by} looks for {name} in {', '.join(places)}, and it is not there{self._elsewhere(name)}"

    def _elsewhere(self, name: str) -> str:
        """Where a library lies that the loader is not led to; "" where none is known."""
        number = name.rpartition(".so.")[2]
        directories = [copy.path for copy in self._copies if copy.path and str(copy.soname) == number and copy.complete is not False]
        if parse_name(name) is None:
            directories = self._loading.wheels_with(name)
        return f"; nothing leads to the one in {min(directories)}" if directories else ""

    # --- whether that fits ---

    def _complain(self, why: str) -> None:
        self.problems.append(Problem(what=f"{self._reading.name} {self._reading.version}", why=why))

    def _judge_parts(self, library: Library, version: CudnnVersion | None, parts: Parts) -> None:
        """Parts of another release than libcudnn itself, or parts that are not found."""
        home = self._loading.identify(library.origin)
        strangers: dict[str, list[Library]] = {}
        for one in parts.found.values():
            directory = self._loading.identify(one.origin)
            release = self._version_of(one)
            if directory != home and not (release and version and same_release(release, version)):
                strangers.setdefault(directory, []).append(one)
        for directory, ones in strangers.items():
            names = "its parts" if len(ones) == len(parts.found) else ", ".join(one.name for one in ones)
            release = self._version_of(ones[0])
            rule = f"to which {ones[0].rule.value} leads ({self._search_path(ones[0].by or library.path)})"
            self._complain(
                f"two releases of cuDNN in one process: {library.name} {version or ''} from {home}, "
                f"but {names} {release or ''} from {directory}, {rule}"
            )
        if parts.missing:
            first = f"; {parts.faults[0].by.rpartition('/')[2]} needs {parts.faults[0].name}, which is not found" if parts.faults else ""
            names = f"{', '.join(parts.missing)} cannot be opened" if parts.found else "none of its parts can be opened"
            self._complain(f"{library.name} would be loaded from {home}, but {names}, which ends the program that uses it{first}")

    def _judge_version(self, library: Library, version: CudnnVersion | None, other: Library | None) -> None:
        """A release older than the framework was built with, or than the one that lies ready for it."""
        built = self._reading.cudnn_built
        where = self._loading.identify(library.origin)
        shadowed = self._version_of(other) if other else None
        if version is not None and built is not None and not version.serves(CudnnVersion(built)):
            rule = "the same major and at least the same minor are needed"
            self._complain(f"would load cuDNN {version} from {where}, but was built with {built}: {rule}")
        elif version is not None and shadowed is not None and not version.serves(shadowed):
            self._complain(f"would load cuDNN {version} from {where} ({library.rule.value}), though a newer {shadowed} lies ready for it")

    def _soname(self, one: Library) -> int | None:
        """The number in the soname of a library of cuDNN."""
        name = parse_name(one.name)
        if name is None or name.soname is None:
            elf = self._loading.elf(one.path)
            name = parse_name(elf.soname or "") if elf else None
        return name.soname if name is not None else None

    def _search_path(self, path: str) -> str:
        """How libcudnn or a part of it looks for others."""
        elf = self._loading.elf(path)
        if self._loading.has_runpath(path):
            return f"{_name(path)} has only a RUNPATH"
        return f"{_name(path)} has an RPATH" if elf and elf.rpath else f"{_name(path)} names no directory"

    def _judge_cuda(self, copy: CudnnCopy | None) -> None:
        built, own = self._reading.cuda_built, copy.cuda if copy else None
        if built and own and built.partition(".")[0] != own.partition(".")[0]:
            self._complain(f"was built for CUDA {built}, but would load a cuDNN for CUDA {own} ({copy.path if copy else ''})")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# --- asking the loader ---


class Outcome(Struct, frozen=True, kw_only=True):
    """What starting a framework led to."""

    process: Process
    library: Library | None
    """libcudnn itself; None where it was not found or not reached."""
    fault: Missing | None = None
    """What stopped it."""


class Parts(Struct, frozen=True, kw_only=True):
    """The sub-libraries that a libcudnn would open, by part."""

    found: Mapping[str, Library]
    missing: tuple[str, ...]
    """Names of those that are not found, `libcudnn_ops.so.9`."""
    faults: tuple[Missing, ...]
    """Libraries that those which are found need in turn, and that are not."""


def start(loading: Loading, reading: Reading, *, library_path: bool = True) -> Outcome:
    """Open what a framework opens, in its order."""
    process = loading.process(library_path=library_path)
    for step in reading.steps:
        if isinstance(step, Search):
            fault = _search(process, step)
        else:
            opened = process.open(step.path)
            fault = opened if step.required and isinstance(opened, Missing) else None
        if fault is not None:
            return Outcome(process=process, library=None, fault=fault)
    library = next((one for one in process.libraries if (name := parse_name(one.name)) and name.part == ""), None)
    held = {one.path: one for one in process.libraries}
    return Outcome(process=process, library=loading.exact(library, held) if library else None)


def _search(process: Process, step: Search) -> Missing | None:
    """Open the first name that is found; the fault of the first name where none is."""
    caller = next((one for begin in step.by for one in process.libraries if one.name.startswith(begin)), None)
    faults = []
    for name in step.names:
        opened = process.open(name, caller)
        if isinstance(opened, Library):
            return None
        faults.append(opened)
    return faults[0] if faults else None


def open_parts(process: Process, library: Library, release: CudnnVersion) -> Parts:
    """Open the parts that libcudnn of a release opens by name, each from where the loader finds it then."""
    found: dict[str, Library] = {"": library}
    missing: list[str] = []
    faults: list[Missing] = []
    openings = openings_of(release)
    for by in dict.fromkeys(opening.by for opening in openings):
        asker = found.get(by)
        if asker is None:
            continue
        own = [opening for opening in openings if opening.by == by]
        answers = process.open_all([name for opening in own for name in opening.names], asker)
        for opening in own:
            told = [answers[name] for name in opening.names]
            first = next((one for one in told if isinstance(one, Library)), None)
            if first is not None:
                found[opening.part] = first
            elif opening.expected:
                missing.append(f"libcudnn_{opening.part}.so.{release.major}")
                faults += [one for one in told if isinstance(one, Missing) and one.name not in opening.names][:1]
    del found[""]
    return Parts(found=found, missing=tuple(missing), faults=tuple(faults))
