"""Copies of cuDNN on a machine: location, release, CUDA build, completeness and unmet dependencies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from cudnn_resolve.facts.cudnn_files import NEWEST_KNOWN, LibraryName, Opening, companions_of, parse_header, parse_name, parts_of
from cudnn_resolve.facts.loader_trace import Library, Missing
from cudnn_resolve.facts.model import CudnnCopy, Problem
from cudnn_resolve.host.child import answer_of, payload_path
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.probe.cudnn_places import Owner, choose_owner, find_directories, find_owners, same_release
from cudnn_resolve.probe.loader import DRIVER_LIBRARIES, CannotAskError, DynamicLoader, Process
from cudnn_resolve.probe.python import TargetEnvironment
from cudnn_resolve.version import CudaVersion, CudnnVersion

MOST_COPIES = 64
"""Upper limit on copies: a machine with more is a package mirror."""
TIMEOUT_SECONDS = 10.0
"""Time limit for the versions of all copies; a cold network disk needs seconds for one."""
_MOST_LETTERS = 300
_DRIVER_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version", "/sys/module/nvidia/version")
_HEADERS = ("cudnn_version.h", "cudnn_version_v{}.h", "cudnn.h", "cudnn_v{}.h")


class Candidate(Struct, frozen=True, kw_only=True):
    """Libraries of one soname in one directory."""

    directory: str
    """As found, links not resolved."""
    soname: int
    files: Mapping[str, str]
    """Part to the path that the loader would open; "" stands for libcudnn itself."""

    @property
    def library(self) -> str | None:
        """Path of libcudnn itself; None if the directory only has parts."""
        return self.files.get("")

    @property
    def can_answer(self) -> bool:
        """False if the part that knows the version is missing: libcudnn aborts when asked for it."""
        version_part = {8: "ops_infer", 9: "graph"}.get(self.soname)
        return version_part is None or version_part in self.files


def find_copies(loader: DynamicLoader) -> tuple[tuple[CudnnCopy, ...], tuple[Problem, ...]]:
    """Find every loadable copy in the loader's search order, and the problems with them."""
    candidates = tuple(find_candidates(loader, find_directories(loader.host, loader.environment)))[:MOST_COPIES]
    usable = [one.library for one in candidates if one.library and one.can_answer and loader.elf(one.library)]
    answers, problems = _ask_libraries(loader.host, loader.environment, usable)
    examinations = [_Examination(loader, candidate, answers.get(candidate.library or "", _Answer())) for candidate in candidates]
    copies = tuple(examination.examine() for examination in examinations)
    more = (problem for examination in examinations for problem in examination.problems)
    return copies, tuple(dict.fromkeys((*problems, *more)))


def find_candidates(loader: DynamicLoader, directories: tuple[str, ...]) -> Iterator[Candidate]:
    """Group the libraries in these directories by soname, without repeated files and other architectures."""
    seen: set[frozenset[str]] = set()
    for directory in directories:
        for soname, names in _by_soname(loader, directory).items():
            files: dict[str, str] = {}
            for name in sorted(names, key=_preference, reverse=True):
                files.setdefault(name.part, f"{directory}/{name.file}")
            real = frozenset(loader.realpath(path) for path in files.values())
            elf = loader.elf(next(iter(files.values())))
            if real in seen or (elf and loader.environment.arch not in (None, elf.arch)):
                continue
            seen.add(real)
            yield Candidate(directory=directory, soname=soname, files=files)


def _by_soname(loader: DynamicLoader, directory: str) -> dict[int, list[LibraryName]]:
    """Group cuDNN's libraries in a directory by soname, read from the file if its name has none."""
    found: dict[int, list[LibraryName]] = {}
    names = [name for name in map(parse_name, sorted(loader.names(directory))) if name is not None]
    for name in names:
        if name.soname is not None:
            found.setdefault(name.soname, []).append(name)
    for name in () if found else names:
        elf = loader.elf(f"{directory}/{name.file}")
        soname = parse_name(elf.soname or "") if elf else None
        if soname is not None and soname.soname is not None:
            found.setdefault(soname.soname, []).append(name)
    return found


def _preference(name: LibraryName) -> tuple[bool, CudnnVersion]:
    """Prefer the name that programs ask for, then the highest version."""
    return name.numbers == str(name.soname) and not name.mangled, CudnnVersion(name.numbers or "0")


class _Examination:
    """Examination of one candidate; `problems` are those that concern the machine and not the copy alone."""

    def __init__(self, loader: DynamicLoader, candidate: Candidate, answer: _Answer) -> None:
        self._loader = loader
        self._candidate = candidate
        self._answer = answer
        self._label = f"cuDNN in {candidate.directory}"
        self._faults: list[str] = []
        self._is_mixed = False
        self.problems: list[Problem] = []

    def examine(self) -> CudnnCopy:
        """Describe the copy with its faults."""
        answer = self._answer
        # Links of single libraries to elsewhere are not followed.
        real = self._loader.realpath(self._candidate.directory)
        owners = find_owners(self._loader.host, self._loader.environment, real, self._candidate.soname)
        reported = answer.version or self._named_version() or self._header_version()
        owner = choose_owner(owners, reported, str(answer.cuda.major) if answer.cuda else None)
        version = self._version(reported, owner)
        cuda = answer.cuda.line if answer.cuda else (owner.package.cuda if owner.package else None)
        self._judge_library()
        missing = self._missing_parts(version, owner)
        self._judge_releases()
        self._judge_owners(owners, owner)
        self._judge_needs(version, cuda)
        if self._is_mixed:
            self.problems.append(Problem(what=self._label, why="; ".join(self._faults)))
        return CudnnCopy(
            version=version.text if version else None,
            soname=self._candidate.soname,
            cuda=cuda,
            path=real,
            source=owner.source,
            complete=self._is_complete(missing),
            parts=tuple(sorted(part for part in self._candidate.files if part)),
            owner=owner.name,
            problems=tuple(self._faults),
        )

    def _is_complete(self, missing: tuple[str, ...]) -> bool | None:
        """None for a generation of cuDNN whose parts are not known yet."""
        if self._candidate.library is None or missing or self._is_mixed:
            return False
        return None if self._candidate.soname > NEWEST_KNOWN else True

    def _version(self, reported: CudnnVersion | None, owner: Owner) -> CudnnVersion | None:
        """The reported version, with the package's build number if that is of the same release."""
        package = owner.package
        if package is None:
            return reported
        if reported is None or same_release(package.version, reported):
            return package.version
        self._faults.append(f"the files are cuDNN {reported}, although {owner.label} is installed")
        self.problems.append(Problem(what=self._label, why=self._faults[-1]))
        return reported

    def _named_version(self) -> CudnnVersion | None:
        """Release in the name of the file behind the soname, `libcudnn.so.8.9.7`."""
        if self._candidate.library is None:
            return None
        name = parse_name(self._loader.realpath(self._candidate.library).rpartition("/")[2])
        return name.version if name else None

    def _header_version(self) -> CudnnVersion | None:
        """Release in a header at the place that belongs to this copy."""
        above = self._candidate.directory.rpartition("/")[0]
        parent = above.rpartition("/")[0]
        arch = self._loader.environment.arch or "x86_64"
        folders = [f"{above}/include", f"{self._candidate.directory}/include"]
        if self._candidate.directory.endswith(f"/{arch}-linux-gnu"):
            folders = [f"{parent}/include/{arch}-linux-gnu", f"{parent}/include"]
        for folder in folders:
            for file in _HEADERS:
                version = parse_header(self._loader.host.read_text(f"{folder}/{file.format(self._candidate.soname)}") or "")
                if version is not None and version.major == self._candidate.soname:
                    return version
        return None

    def _judge_library(self) -> None:
        library = self._candidate.library
        if library is None:
            self._faults.append(f"parts of cuDNN {self._candidate.soname} without libcudnn.so.{self._candidate.soname} itself")
            return
        elf = self._loader.look(library)
        if isinstance(elf, str):
            self._faults.append(f"{library.rpartition('/')[2]} cannot be used: {elf}")
        name = parse_name(library.rpartition("/")[2])
        if name is not None and not name.mangled and name.numbers != str(self._candidate.soname):
            self._faults.append(
                f"libcudnn.so.{self._candidate.soname}, the name that programs ask for, is missing: there is only {name.file}"
            )
        if self._answer.fault is not None:
            self._faults.append(f"{library.rpartition('/')[2]} {self._answer.fault}")
            self.problems.append(Problem(what=self._label, why=self._answer.fault))

    def _missing_parts(self, version: CudnnVersion | None, owner: Owner) -> tuple[str, ...]:
        release = version or CudnnVersion(str(self._candidate.soname))
        jit = owner.package is not None and owner.package.jit
        parts = parts_of(release, jit=jit)
        missing = tuple(part for part in parts if part not in self._candidate.files)
        if missing and missing == parts:
            self._faults.append("none of its parts lies beside it: they are searched for elsewhere")
        elif missing:
            names = ", ".join(f"libcudnn_{part}.so.{self._candidate.soname}" for part in missing)
            self._faults.append(f"incomplete: {names} {'is' if len(missing) == 1 else 'are'} not there")
        return missing

    def _judge_releases(self) -> None:
        """Detect parts of several releases, by their file names or by libcudnn's own check."""
        by_release: dict[str, list[str]] = {}
        for path in self._candidate.files.values():
            name = parse_name(self._loader.realpath(path).rpartition("/")[2])
            if name is not None and name.version is not None:
                by_release.setdefault(name.version.text, []).append(name.file)
        if len(by_release) > 1:
            self._is_mixed = True
            self._faults.append("mixed releases: " + "; ".join(", ".join(sorted(files)) for _, files in sorted(by_release.items())))
        if self._answer.other_release:
            self._is_mixed = True
            names = ", ".join(f"libcudnn_{part}.so.{self._candidate.soname}" for part in self._answer.other_release)
            self._faults.append(f"mixed releases: libcudnn rejects {names} (CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)")

    def _judge_owners(self, owners: tuple[Owner, ...], owner: Owner) -> None:
        """Detect wheels that overwrote each other's files, and files that differ from their wheel's."""
        if len(owners) > 1 and owner.source == "pip":
            labels = sorted(other.label for other in owners)
            why = f"they own the same files in {self._candidate.directory}; the files there are those of {owner.label}"
            self.problems.append(Problem(what=" and ".join(labels), why=f"{why}, and uninstalling one removes them from the other"))
        if owner.changed:
            self._is_mixed = self._is_mixed or len(owner.changed) < len(self._candidate.files)
            self._faults.append(f"not the files of {owner.label}: {', '.join(owner.changed)}")
        if owner.removed:
            self._faults.append(f"missing since {owner.label} was installed: {', '.join(owner.removed)}")

    def _judge_needs(self, version: CudnnVersion | None, cuda: str | None) -> None:
        """Detect libraries that its files need, or open when used, and that the loader would not find from here.

        Those that are only opened may be in another NVIDIA wheel: frameworks load these first.
        """
        library = self._candidate.library
        if library is None or self._loader.elf(library) is None:
            return
        # The driver's libraries are expected only on a machine with a driver.
        process = self._loader.process(driver=any(self._loader.host.stat(path) for path in _DRIVER_SIGNS))
        files = sorted(self._candidate.files.items())
        lacks: dict[str, list[str]] = {}
        objects: dict[str, Library] = {}
        try:
            answers = process.open_all([path for _, path in files])
            for part, path in files:
                found = answers[path]
                if isinstance(found, Library):
                    objects[part] = found
                elif parse_name(found.name) is None:
                    lacks.setdefault(found.name, []).append(found.by.rpartition("/")[2])
            release = version or CudnnVersion(str(self._candidate.soname))
            opened = list(self._not_opened(process, objects, companions_of(release, int(cuda.partition(".")[0]) if cuda else None)))
        except CannotAskError as error:
            self.problems.append(Problem(what="dependencies of cuDNN", why=f"are unknown: {error}"))
            return
        for name, by in lacks.items():
            where = "which comes with the driver and is not found" if name in DRIVER_LIBRARIES else "which is not found"
            verb = "needs" if len(set(by)) == 1 else "need"
            self._faults.append(f"{', '.join(dict.fromkeys(by))} {verb} {name}, {where}")
        opened = [name for name in opened if name not in lacks]
        if opened:
            names = " and ".join(opened)
            self._faults.append(f"opens {names} when it is used, which is found only if the program has loaded it before")

    def _not_opened(self, process: Process, objects: Mapping[str, Library], openings: Iterable[Opening]) -> Iterator[str]:
        """CUDA libraries that the parts open by name and would not find."""
        for opening in openings:
            name = opening.names[0]
            if opening.by in objects and not self._loader.wheels_with(name):
                found = process.open(name, objects[opening.by])
                if isinstance(found, Missing) and found.name == name:
                    yield name


# --- answers of the libraries ---


class _Answer(Struct, frozen=True, kw_only=True):
    """Answer of one library."""

    version: CudnnVersion | None = None
    """Three numbers; None if it reported none."""
    cuda: CudaVersion | None = None
    """CUDA line it was compiled with."""
    other_release: tuple[str, ...] = ()
    """Parts of another release than libcudnn."""
    fault: str | None = None
    """Why it gave no answer, or how it ended; None if nothing was wrong."""


def _ask_libraries(
    host: Host, environment: TargetEnvironment, libraries: Sequence[str]
) -> tuple[Mapping[str, _Answer], tuple[Problem, ...]]:
    """Ask each library for its version in a child; a problem if none could be asked."""
    python = environment.python.path or host.python
    if not libraries or not python:
        return {}, ()
    question = {"seconds": TIMEOUT_SECONDS, "paths": list(environment.ld_library_path), "libraries": list(libraries)}
    # The user's settings for programs that use cuDNN could make it log or load something else.
    env = {name: value for name, value in host.environ.items() if not name.startswith(("CUDNN_", "LD_PRELOAD"))}
    argv = [python, "-I", payload_path("probe/payload_library.py"), "cudnn", json.dumps(question)]
    result = host.run(argv, timeout_seconds=TIMEOUT_SECONDS + 5, env={**env, "LC_ALL": "C"})
    answer = answer_of(result.stdout)
    if answer is None or not isinstance(answer.get("answers"), dict):
        why = str((answer or {}).get("failed") or result.why() or "gave no answer")
        return {}, (Problem(what="versions of cuDNN", why=f"{python} {why}"),)
    answers = {path: _read_answer(row) for path, row in answer["answers"].items() if isinstance(row, dict)}
    unasked = {path: _Answer(fault="was not asked: the others used up the time limit") for path in libraries if path not in answers}
    return unasked | answers, ()


def _read_answer(row: Mapping[str, Any]) -> _Answer:
    """Read one answer, without values that the child cannot have printed."""
    version = row.get("version")
    cuda = row.get("cuda")
    checks = row.get("checks")
    return _Answer(
        version=CudnnVersion.from_encoded(version) if isinstance(version, int) else None,
        cuda=CudaVersion.from_encoded(cuda) if isinstance(cuda, int) else None,
        other_release=tuple(str(part) for part, status in checks.items() if status != 0) if isinstance(checks, dict) else (),
        fault=_fault(row),
    )


def _fault(row: Mapping[str, Any]) -> str | None:
    if row.get("error"):
        return f"cannot be loaded: {_last_line(str(row['error']))}"
    if row.get("done"):
        return None
    ended = row.get("ended")
    when = f"when its part {row['asking']} is asked" if row.get("asking") else "when it is asked for its version"
    if not row.get("loaded"):
        when = "while it is loaded"
    if ended == "time":
        return f"hangs {when}"
    words = _last_line(str(row.get("said") or ""))
    how = "gives no answer" if ended == "exit" else f"ends the process ({ended})"
    return f"{how} {when}" + (f": {words}" if words else "")


def _last_line(text: str) -> str:
    """Last non-empty line, without control characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(letter if letter.isprintable() else "?" for letter in (lines or [""])[-1])[:_MOST_LETTERS]
