"""What the dynamic loader would load in the target's processes, by its own answer.

The loader runs in trace mode, as in `ldd`: it maps libraries and reports where it found them, but runs no code of theirs. Libraries that
a program opens one after the other go into LD_PRELOAD by path. For names that a library opens, that library is traced in place of the
program, so that its own search path applies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.evidence.elf import Elf, ElfError, read_elf
from cudnn_resolve.facts.loader_trace import Library, Missing, Rule, Trace, parse_trace
from cudnn_resolve.host.protocol import Host
from cudnn_resolve.probe.python import TargetEnvironment

TIMEOUT_SECONDS = 10.0
"""Time limit for one trace, which takes milliseconds; a cold network disk needs seconds."""
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_HERE = "./././"
"""Marks paths relative to the working directory in the loader's output."""
_SPLIT = re.compile(r"[:\s]+")
_UNSET = ("LD_AUDIT", "LD_BIND_NOW", "LD_DEBUG_OUTPUT", "LD_VERBOSE", "LD_WARN")


class CannotAskError(Exception):
    """The target's loader gives no answer; the message says why."""


class DynamicLoader:
    """The loader of one environment, and the libraries that it may load, each read once."""

    def __init__(self, host: Host, environment: TargetEnvironment) -> None:
        self.host = host
        self.environment = environment
        self.look = cache(self._read)
        """Read the library at a path: an ELF file, the reason why it cannot be used, or None if there is no file."""
        self.names = cache(lambda directory: frozenset(host.list_dir(directory)))
        """Names in a directory; empty if it does not exist."""
        self.realpath = cache(host.realpath)
        """Path with links resolved."""
        self.program = cache(self._find_program)
        """Paths of the loader, and of the program traced as the interpreter."""
        wide = host.read_text("/etc/ld.so.preload", 1 << 16) or ""
        self.preload = tuple(name for name in _SPLIT.split(host.environ.get("LD_PRELOAD", "")) if name)
        self.system_preload = tuple(name for name in _SPLIT.split(wide) if name)

    def elf(self, path: str) -> Elf | None:
        """The library at a path; None if there is none that can be used."""
        found = self.look(path)
        return found if isinstance(found, Elf) else None

    def needs(self, path: str) -> tuple[str, ...]:
        """DT_NEEDED of a library; empty without one."""
        elf = self.elf(path)
        return elf.needed if elf else ()

    def has_runpath(self, path: str) -> bool:
        """True for a library with RUNPATH, which makes the loader ignore every RPATH in its searches."""
        elf = self.elf(path)
        return elf is not None and elf.runpath is not None

    def wheels_with(self, name: str) -> list[str]:
        """Directories of NVIDIA's wheels in the environment that have a library of that name."""
        folders = (f"{site}/nvidia/{wheel}/lib" for site in self.environment.site_packages for wheel in self.names(f"{site}/nvidia"))
        return [folder for folder in folders if name in self.names(folder)]

    def process(self, *, library_path: bool = True, driver: bool = False) -> Process:
        """Start a process of the target interpreter that has imported nothing.

        Without `library_path` it has neither LD_LIBRARY_PATH nor LD_PRELOAD. Missing driver libraries count only with `driver`.
        """
        return Process(self, library_path=library_path, ignored=() if driver else DRIVER_LIBRARIES)

    def _find_program(self) -> tuple[str, str]:
        """Choose the interpreter, or if it is not a readable program (but a script), another program without a search path."""
        prefix = self.environment.prefix.rstrip("/")
        candidates = [self.environment.python.path or "", *(f"{prefix}/bin/{name}" for name in ("python3", "python") if prefix)]
        for path in (*candidates, self.host.python, "/usr/bin/env"):
            real = self.realpath(path) if path else ""
            elf = self.elf(real) if real else None
            if elf is not None and elf.interpreter and "musl" not in elf.interpreter:
                return elf.interpreter, real
        raise CannotAskError("there is no program of glibc whose loader could be asked")

    def trace(self, program: str, preload: Sequence[str], *, library_path: bool = True) -> Trace:
        """Trace a program or library with these names in LD_PRELOAD."""
        loader, _ = self.program()
        folder, preload = _preload_names(preload)
        paths = self.environment.ld_library_path if library_path else ()
        unset = [word for name in (*_UNSET, *(() if paths else ("LD_LIBRARY_PATH",))) for word in ("-u", name)]
        settings = [f"LD_PRELOAD={':'.join(preload)}", *([f"LD_LIBRARY_PATH={':'.join(paths)}"] if paths else [])]
        argv = [
            "env",
            *(("-C", folder) if folder else ()),
            *unset,
            "LD_TRACE_LOADED_OBJECTS=1",
            "LD_DEBUG=libs,files",
            *settings,
            loader,
            program,
        ]
        result = self.host.run(argv, timeout_seconds=TIMEOUT_SECONDS)
        listed, log = (text.replace(f"/{_HERE}", "/").replace(_HERE, f"{folder}/") for text in (result.stdout, result.stderr))
        trace = parse_trace(listed, log)
        if trace is None or result.returncode is None:
            raise CannotAskError(f"{loader} {result.why() or 'does not say what it would load'}")
        return trace

    def with_exact_rule(self, library: Library, others: Mapping[str, Library]) -> Library:
        """Correct the rule of a library that was searched for.

        The loader's log attributes a directory to whatever named it first in the process, be it LD_LIBRARY_PATH or another file's RPATH.
        Here the directories are compared in the loader's search order. `others` are the process's libraries.
        """
        if library.rule in (Rule.PATH, Rule.PRELOAD, Rule.CACHE):
            return library
        requester = library.by
        for _ in range(0 if self.has_runpath(requester) else len(others) + 1):
            elf = self.elf(requester)
            if elf is not None and elf.runpath is None and library.where in _expand_rpath(elf.rpath, requester):
                return replace(library, rule=Rule.RPATH, holder=requester)
            if requester not in others:
                break
            requester = others[requester].by
        if library.where in [path.rstrip("/") for path in self.environment.ld_library_path]:
            return replace(library, rule=Rule.LD_LIBRARY_PATH, holder="")
        return replace(library, holder=library.by) if library.rule is Rule.RUNPATH else library

    def explain(self, fault: Missing) -> Missing:
        """Refine a fault by the file in question, if there is one."""
        _, program = self.program()
        own = self.elf(program)
        candidates = (fault.name,) if "/" in fault.name else fault.tried
        existing = [(path, elf) for path in candidates if (elf := self.look(path)) is not None]
        if not existing:
            return replace(fault, why="is not there") if "/" in fault.name and fault.why == "is not found" else fault
        path, elf = existing[-1]
        if isinstance(elf, str):
            return replace(fault, why=elf if "/" in fault.name else f"{path} cannot be used: {elf}")
        if own is not None and (elf.arch, elf.bits) != (own.arch, own.bits):
            foreign = f"is for {elf.arch}, {elf.bits} bit" if "/" in fault.name else "only files of another architecture are found"
            return replace(fault, why=foreign)
        return fault

    def _read(self, path: str) -> Elf | str | None:
        if self.host.read_bytes(path, 0, 1) is None:
            return None
        try:
            return read_elf(lambda offset, size: self.host.read_bytes(path, offset, size))
        except ElfError as error:
            return str(error)


class Process:
    """Libraries of a process that opens them one after the other; a failure to open one changes nothing."""

    def __init__(self, loader: DynamicLoader, *, library_path: bool, ignored: tuple[str, ...]) -> None:
        self._loader = loader
        self._library_path = library_path
        self._ignored = ignored
        self._held: dict[str, Library] = {}
        self.lacks_driver = False
        """True if something needs a driver library that this machine lacks."""

    @property
    def libraries(self) -> tuple[Library, ...]:
        """Loaded libraries in the order of loading, without the program and its own dependencies."""
        return tuple(self._held.values())

    def open(self, name: str, by: Library | None = None) -> Library | Missing:
        """Result of `dlopen(name)` called in `by` (default: in the program), including dependencies."""
        return self.open_all((name,), by)[name]

    def open_all(self, names: Sequence[str], by: Library | None = None) -> Mapping[str, Library | Missing]:
        """Open several names; those with a slash are paths, any other is searched for."""
        _, program = self._loader.program()
        answers = self._ask(program, [name for name in names if "/" in name])
        searched = [name for name in names if "/" not in name]
        by_requester: list[_Answers] = []
        for requester in self._requesters(program, by) if searched else ():
            found = self._ask(requester, searched)
            by_requester.append(found)
            by_rpath = {name: answer for name, answer in found.items() if answer.library and answer.library.rule is Rule.RPATH}
            answers = {**by_rpath, **answers}
            searched = [name for name in searched if name not in by_rpath]
        chosen = {**(by_requester[0] if by_requester else {}), **answers}
        for answer in chosen.values():
            if answer.fault is None:
                self._held |= {library.path: library for library in answer.loaded if library.path not in self._held}
        return {
            name: answer.fault or answer.library or Missing(name=name, by=program, why="is not found") for name, answer in chosen.items()
        }

    def _requesters(self, program: str, by: Library | None) -> Iterator[str]:
        """Yield the requesting library, its requester, and so on up to the program: the RPATH of each is searched first of all."""
        if by is None:
            yield program
            return
        yield by.path
        if self._loader.has_runpath(by.path):
            return
        for _ in self._held:
            if by.by in self._held:
                by = self._held[by.by]
                yield by.path
        yield program

    def _ask(self, program: str, names: Sequence[str]) -> _Answers:
        """Trace these names as if opened by a program, or by a library in its place."""
        if not names:
            return {}
        preload = self._loader.preload if self._library_path else ()
        trace = self._loader.trace(program, [*preload, *self._held, *names], library_path=self._library_path)
        if trace.fatal is not None and len(names) > 1:
            return {name: answer for single in names for name, answer in self._ask(program, [single]).items()}
        self.lacks_driver = self.lacks_driver or any(missing.name in DRIVER_LIBRARIES for missing in trace.missing)
        reader = _TraceReader(self._loader, trace, self._held, self._ignored)
        for name in dict.fromkeys([*preload, *self._loader.system_preload]):
            answer = reader.answer(name)
            if answer.library is not None and answer.library.path not in self._held:
                preloaded = replace(answer.library, rule=Rule.PRELOAD, where=name)
                self._held |= {library.path: preloaded if library.path == preloaded.path else library for library in answer.loaded}
        return {name: reader.answer(name) for name in names}


class _Answer(Struct, frozen=True, kw_only=True):
    """Result for one name."""

    library: Library | None = None
    fault: Missing | None = None
    loaded: tuple[Library, ...] = ()
    """The library and its dependencies."""


_Answers = dict[str, _Answer]


class _TraceReader:
    """Reads the result for single names from a trace."""

    def __init__(self, loader: DynamicLoader, trace: Trace, held: Mapping[str, Library], ignored: tuple[str, ...]) -> None:
        self._loader = loader
        self._trace = trace
        self._missing = [missing for missing in trace.missing if missing.name not in ignored]
        self._libraries = {library.path: held.get(library.path, library) for library in trace.libraries}

    def answer(self, name: str) -> _Answer:
        """The library behind a name, or the fault that stops it."""
        trace = self._trace
        if trace.fatal is not None or name in trace.refused:
            return _Answer(fault=trace.fatal or trace.refused[name])
        path = trace.names.get(name) or next((path for path in self._libraries if self._has_name(path, name)), None)
        if path is None:
            return _Answer()
        library = self._loader.with_exact_rule(self._libraries[path], self._libraries)
        loaded = tuple(library if other.path == path else other for other in self._loaded_for(library))
        return _Answer(library=library, fault=self._fault(path, loaded) if self._missing else None, loaded=loaded)

    def _has_name(self, path: str, name: str) -> bool:
        if "/" in name:
            return self._loader.realpath(path) == self._loader.realpath(name)
        elf = self._loader.elf(path)
        return path.rpartition("/")[2] == name or (elf is not None and elf.soname == name)

    def _loaded_for(self, library: Library) -> Iterator[Library]:
        """Yield a library, and those loaded afterwards for it or for another one yielded."""
        paths = {library.path}
        for other in self._libraries.values():
            if other.path in paths or other.by in paths:
                paths.add(other.path)
                yield other

    def _fault(self, path: str, loaded: tuple[Library, ...]) -> Missing | None:
        """First missing dependency of a library, direct or not."""
        requesters = {library.path for library in loaded}
        for missing in self._missing:
            if missing.by in requesters:
                return missing
            by = next((other for other in self._needed(path) if other == missing.by or missing.name in self._loader.needs(other)), None)
            if by is not None:
                return replace(missing, by=by)
        return None

    def _needed(self, path: str) -> list[str]:
        """Paths of a library and all its dependencies, breadth first."""
        by_name = {**{library.name: library.path for library in self._libraries.values()}, **self._trace.names}
        found = [path]
        for current in found:
            found += {by_name[need]: None for need in self._loader.needs(current) if need in by_name and by_name[need] not in found}
        return found


def _expand_rpath(paths: str | None, path: str) -> list[str]:
    """Directories of an RPATH, `$ORIGIN` replaced."""
    origin = os.path.dirname(path)
    return [entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin).rstrip("/") for entry in (paths or "").split(":")]


def _preload_names(preload: Sequence[str]) -> tuple[str, list[str]]:
    """Working directory, and the names as LD_PRELOAD can hold them: paths with a space or colon become relative to it."""
    odd = [name for name in preload if _SPLIT.search(name)]
    folder = os.path.commonpath([os.path.dirname(name) for name in odd]) if odd else ""
    names = [f"{_HERE}{os.path.relpath(name, folder)}" if name in odd else name for name in preload]
    if any(_SPLIT.search(name) for name in names):
        raise CannotAskError(f"the loader cannot be asked about paths with a space or a colon, such as {odd[0]}")
    return folder, names
