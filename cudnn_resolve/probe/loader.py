"""The dynamic loader of the target's processes, asked what it would load.

The loader itself is run in trace mode (as `ldd` does): it maps libraries and says where it found them, but no code of theirs runs.
What a program opens one after the other is put into LD_PRELOAD by its path; what a library opens by name is asked with that library in the
place of the program, so that its own search path counts.
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
"""For one trace, which takes milliseconds; a cold network disk needs seconds."""
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_HERE = "./././"
"""Begins paths below the working directory, so that they are known again."""
_SPLIT = re.compile(r"[:\s]+")
_UNSET = ("LD_AUDIT", "LD_BIND_NOW", "LD_DEBUG_OUTPUT", "LD_VERBOSE", "LD_WARN")


class CannotAskError(Exception):
    """The loader of the target gives no answer; the message says why."""


class Loading:
    """Libraries of one machine and environment, each read once, and the loader that can be asked about them."""

    def __init__(self, host: Host, environment: TargetEnvironment) -> None:
        self._host = host
        self._environment = environment
        self.look = cache(self._read)
        """Read the library at a path; a text says why it cannot be used, None that there is no file."""
        self.names = cache(lambda directory: frozenset(host.list_dir(directory)))
        """Names in a directory; empty where there is none."""
        self.identify = cache(host.realpath)
        """The path with links resolved."""
        self.start = cache(self._find_start)
        """Paths of the loader and of the program in whose place the interpreter is traced."""
        wide = host.read_text("/etc/ld.so.preload", 1 << 16) or ""
        self.preload = tuple(name for name in _SPLIT.split(host.environ.get("LD_PRELOAD", "")) if name)
        self.preloaded_anyway = tuple(name for name in _SPLIT.split(wide) if name)

    def elf(self, path: str) -> Elf | None:
        """The library at a path; None where there is none that can be used."""
        found = self.look(path)
        return found if isinstance(found, Elf) else None

    def needs(self, path: str) -> tuple[str, ...]:
        """Names that a library needs; empty where there is no library."""
        elf = self.elf(path)
        return elf.needed if elf else ()

    def has_runpath(self, path: str) -> bool:
        """True for a library with RUNPATH, for whose own searches no RPATH counts."""
        elf = self.elf(path)
        return elf is not None and elf.runpath is not None

    def wheels_with(self, name: str) -> list[str]:
        """Directories of NVIDIA's wheels in the environment that have a library of that name."""
        folders = (f"{site}/nvidia/{one}/lib" for site in self._environment.site_packages for one in self.names(f"{site}/nvidia"))
        return [folder for folder in folders if name in self.names(folder)]

    def process(self, *, library_path: bool = True, driver: bool = False) -> Process:
        """A process of the target interpreter before anything was imported.

        Without `library_path` it has neither LD_LIBRARY_PATH nor LD_PRELOAD. The driver's libraries are missed only with `driver`.
        """
        return Process(self, library_path=library_path, forgiven=() if driver else DRIVER_LIBRARIES)

    def _find_start(self) -> tuple[str, str]:
        """Where the interpreter is no program that can be read (a script in its place), another program without a search path."""
        prefix = self._environment.prefix.rstrip("/")
        candidates = [self._environment.python.path or "", *(f"{prefix}/bin/{name}" for name in ("python3", "python") if prefix)]
        for path in (*candidates, self._host.python, "/usr/bin/env"):
            real = self.identify(path) if path else ""
            elf = self.elf(real) if real else None
            if elf is not None and elf.interpreter and "musl" not in elf.interpreter:
                return elf.interpreter, real
        raise CannotAskError("there is no program of glibc whose loader could be asked")

    def trace(self, program: str, preload: Sequence[str], *, library_path: bool = True) -> Trace:
        """Trace a program or library with these names in LD_PRELOAD."""
        loader, _ = self.start()
        folder, preload = _speakable(preload)
        paths = self._environment.ld_library_path if library_path else ()
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
        result = self._host.run(argv, timeout_seconds=TIMEOUT_SECONDS)
        listed, told = (text.replace(f"/{_HERE}", "/").replace(_HERE, f"{folder}/") for text in (result.stdout, result.stderr))
        trace = parse_trace(listed, told)
        if trace is None or result.returncode is None:
            raise CannotAskError(f"{loader} {result.why() or 'does not say what it would load'}")
        return trace

    def exact(self, library: Library, others: Mapping[str, Library]) -> Library:
        """Correct the rule of a library that was searched for.

        The loader's log names a directory after whatever named it first in the process, be it LD_LIBRARY_PATH or another file's
        RPATH. Here the places are compared in the order in which the loader searches them. `others` are the process's libraries.
        """
        if library.rule in (Rule.PATH, Rule.PRELOAD, Rule.CACHE):
            return library
        asker = library.by
        for _ in range(0 if self.has_runpath(asker) else len(others) + 1):
            elf = self.elf(asker)
            if elf is not None and elf.runpath is None and library.where in _expanded(elf.rpath, asker):
                return replace(library, rule=Rule.RPATH, holder=asker)
            if asker not in others:
                break
            asker = others[asker].by
        if library.where in [one.rstrip("/") for one in self._environment.ld_library_path]:
            return replace(library, rule=Rule.LD_LIBRARY_PATH, holder="")
        return replace(library, holder=library.by) if library.rule is Rule.RUNPATH else library

    def explain(self, fault: Missing) -> Missing:
        """Put a fault into words of what lies there, where something does."""
        _, program = self.start()
        own = self.elf(program)
        candidates = (fault.name,) if "/" in fault.name else fault.tried
        there = [(path, elf) for path in candidates if (elf := self.look(path)) is not None]
        if not there:
            return replace(fault, why="is not there") if "/" in fault.name and fault.why == "is not found" else fault
        path, elf = there[-1]
        if isinstance(elf, str):
            return replace(fault, why=elf if "/" in fault.name else f"{path} cannot be used: {elf}")
        if own is not None and (elf.arch, elf.bits) != (own.arch, own.bits):
            foreign = f"is for {elf.arch}, {elf.bits} bit" if "/" in fault.name else "only files of another architecture are found"
            return replace(fault, why=foreign)
        return fault

    def _read(self, path: str) -> Elf | str | None:
        if self._host.read_bytes(path, 0, 1) is None:
            return None
        try:
            return read_elf(lambda offset, size: self._host.read_bytes(path, offset, size))
        except ElfError as error:
            return str(error)


class Process:
    """What a process holds after it opened one library after the other; one that cannot be opened leaves it as it was."""

    def __init__(self, loading: Loading, *, library_path: bool, forgiven: tuple[str, ...]) -> None:
        self._loading = loading
        self._library_path = library_path
        self._forgiven = forgiven
        self._held: dict[str, Library] = {}
        self.lacks_driver = False
        """True where something needs a library of the driver that this machine has not."""

    @property
    def libraries(self) -> tuple[Library, ...]:
        """Everything that is loaded, in the order of loading, without the program and what it needs itself."""
        return tuple(self._held.values())

    def open(self, name: str, by: Library | None = None) -> Library | Missing:
        """What `dlopen(name)` called in `by` (the program, if it is left out) gives, with all that it needs."""
        return self.open_all((name,), by)[name]

    def open_all(self, names: Sequence[str], by: Library | None = None) -> Mapping[str, Library | Missing]:
        """Open several names; one with a slash is a path, any other is searched for."""
        _, program = self._loading.start()
        answers = self._ask(program, [name for name in names if "/" in name])
        searched = [name for name in names if "/" not in name]
        otherwise: list[_Answers] = []
        for asker in self._askers(program, by) if searched else ():
            found = self._ask(asker, searched)
            otherwise.append(found)
            by_rpath = {name: one for name, one in found.items() if one.library is not None and one.library.rule is Rule.RPATH}
            answers = {**by_rpath, **answers}
            searched = [name for name in searched if name not in by_rpath]
        chosen = {**(otherwise[0] if otherwise else {}), **answers}
        for one in chosen.values():
            if one.fault is None:
                self._held |= {library.path: library for library in one.brought if library.path not in self._held}
        return {name: one.fault or one.library or Missing(name=name, by=program, why="is not found") for name, one in chosen.items()}

    def _askers(self, program: str, by: Library | None) -> Iterator[str]:
        """Yield the library that asks, what asked for that, up to the program: the RPATH of each is searched before all else."""
        if by is None:
            yield program
            return
        yield by.path
        if self._loading.has_runpath(by.path):
            return
        for _ in self._held:
            if by.by in self._held:
                by = self._held[by.by]
                yield by.path
        yield program

    def _ask(self, program: str, names: Sequence[str]) -> _Answers:
        """Trace these names as if a program, or a library in its place, opened them."""
        if not names:
            return {}
        preload = self._loading.preload if self._library_path else ()
        trace = self._loading.trace(program, [*preload, *self._held, *names], library_path=self._library_path)
        if trace.fatal is not None and len(names) > 1:
            return {name: one for single in names for name, one in self._ask(program, [single]).items()}
        self.lacks_driver = self.lacks_driver or any(one.name in DRIVER_LIBRARIES for one in trace.missing)
        reader = _TraceReader(self._loading, trace, self._held, self._forgiven)
        for name in dict.fromkeys([*preload, *self._loading.preloaded_anyway]):
            first = reader.answer(name)
            if first.library is not None and first.library.path not in self._held:
                own = replace(first.library, rule=Rule.PRELOAD, where=name)
                self._held |= {one.path: own if one.path == own.path else one for one in first.brought}
        return {name: reader.answer(name) for name in names}


class _Answer(Struct, frozen=True, kw_only=True):
    """Outcome for one name."""

    library: Library | None = None
    fault: Missing | None = None
    brought: tuple[Library, ...] = ()
    """The library and what it needs."""


_Answers = dict[str, _Answer]


class _TraceReader:
    """Reads the outcome for single names from a trace."""

    def __init__(self, loading: Loading, trace: Trace, held: Mapping[str, Library], forgiven: tuple[str, ...]) -> None:
        self._loading = loading
        self._trace = trace
        self._missing = [one for one in trace.missing if one.name not in forgiven]
        self._libraries = {one.path: held.get(one.path, one) for one in trace.libraries}

    def answer(self, name: str) -> _Answer:
        """The library behind a name, or what stops it."""
        trace = self._trace
        if trace.fatal is not None or name in trace.refused:
            return _Answer(fault=trace.fatal or trace.refused[name])
        path = trace.names.get(name) or next((one for one in self._libraries if self._answers_to(one, name)), None)
        if path is None:
            return _Answer()
        library = self._loading.exact(self._libraries[path], self._libraries)
        brought = tuple(library if one.path == path else one for one in self._brought(library))
        return _Answer(library=library, fault=self._fault(path, brought) if self._missing else None, brought=brought)

    def _answers_to(self, path: str, name: str) -> bool:
        if "/" in name:
            return self._loading.identify(path) == self._loading.identify(name)
        elf = self._loading.elf(path)
        return path.rpartition("/")[2] == name or (elf is not None and elf.soname == name)

    def _brought(self, library: Library) -> Iterator[Library]:
        """The library, and what was loaded since it, or something that it brought, asked for it."""
        paths = {library.path}
        for one in self._libraries.values():
            if one.path in paths or one.by in paths:
                paths.add(one.path)
                yield one

    def _fault(self, path: str, brought: tuple[Library, ...]) -> Missing | None:
        """The first thing that is missing of what a library needs, directly or not."""
        asked_first = {one.path for one in brought}
        for one in self._missing:
            if one.by in asked_first:
                return one
            by = next((own for own in self._needed(path) if own == one.by or one.name in self._loading.needs(own)), None)
            if by is not None:
                return replace(one, by=by)
        return None

    def _needed(self, path: str) -> list[str]:
        """Paths of a library and of all that it needs, breadth first."""
        by_name = {**{one.name: one.path for one in self._libraries.values()}, **self._trace.names}
        found = [path]
        for one in found:
            found += {by_name[need]: None for need in self._loading.needs(one) if need in by_name and by_name[need] not in found}
        return found


def _expanded(paths: str | None, path: str) -> list[str]:
    """Directories of an RPATH with `$ORIGIN` replaced."""
    origin = os.path.dirname(path)
    return [one.replace("${ORIGIN}", origin).replace("$ORIGIN", origin).rstrip("/") for one in (paths or "").split(":")]


def _speakable(preload: Sequence[str]) -> tuple[str, list[str]]:
    """A directory to start in and the names as LD_PRELOAD can hold them: paths with a space or a colon are made relative to it."""
    odd = [name for name in preload if _SPLIT.search(name)]
    folder = os.path.commonpath([os.path.dirname(name) for name in odd]) if odd else ""
    found = [f"{_HERE}{os.path.relpath(name, folder)}" if name in odd else name for name in preload]
    still = [name for name in found if _SPLIT.search(name)]
    if still:
        raise CannotAskError(f"the loader cannot be asked for paths with a space or a colon, such as {odd[0]}")
    return folder, found
