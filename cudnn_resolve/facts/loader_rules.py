"""The rules by which glibc's dynamic loader finds libraries: a process as it would be, without starting one.

Source: ld.so(8), dlopen(3), and glibc's elf/dl-load.c (`_dl_map_object`), elf/dl-deps.c and elf/dl-version.c, read at 2.36;
the order of the places has been the same since 2.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from msgspec import Struct, field

from cudnn_resolve.facts.elf import Elf

_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM))")
_LEVELS = {
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
}
"""Subdirectories of glibc-hwcaps and the flags of /proc/cpuinfo that each asks for, together with those below it."""


class Rule(Enum):
    """Which rule of the loader led to a file; the value is how it is said."""

    PATH = "opened by its path"
    RPATH = "RPATH"
    LD_LIBRARY_PATH = "LD_LIBRARY_PATH"
    RUNPATH = "RUNPATH"
    CACHE = "linker cache"
    DEFAULT = "default directory"
    PRELOAD = "LD_PRELOAD"


class Files(Struct, frozen=True, kw_only=True):
    """The files of a machine, as far as the loader asks for them."""

    look: Callable[[str], Elf | str | None]
    """The library at a path; a text where there is a file that no loader can use (why not); None where there is none."""
    names: Callable[[str], frozenset[str]]
    """Names in a directory; empty where there is none."""
    identify: Callable[[str], str]
    """The same text for two paths that lead to the same file."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """What every process of a machine and an environment starts with."""

    library_path: tuple[str, ...] = ()
    """Directories of LD_LIBRARY_PATH."""
    cache: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The linker cache: name to path."""
    default: tuple[str, ...] = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
    """The directories that the loader was built with."""
    preload: tuple[str, ...] = ()
    """Entries of LD_PRELOAD."""
    subdirectories: tuple[str, ...] = ()
    """Searched below every directory before it, `glibc-hwcaps/x86-64-v3`; see `hardware_subdirectories`."""
    lib: str = "lib64"
    """What `$LIB` stands for."""
    platform: str = "x86_64"
    """What `$PLATFORM` stands for."""
    directory: str = "/"
    """The working directory, which an empty element of a path list means."""


class Loaded(Struct, frozen=True, eq=False):
    """One library (or the program itself) in a process; two of them are the same only where they are one object."""

    path: str
    """As the loader wrote it together, links not resolved."""
    elf: Elf
    rule: Rule
    by: Loaded | None = None
    """What asked for it first."""
    where: str = ""
    """The directory, cache entry or setting that led to it."""

    @property
    def origin(self) -> str:
        """What `$ORIGIN` stands for in it."""
        return self.path.rpartition("/")[0] or "/"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


class Missing(Struct, frozen=True, kw_only=True):
    """Why a library could not be opened; nothing that it brought stays in the process."""

    name: str
    """The library that failed: the one that was asked for, or one of those that it needs."""
    by: str
    """Path of what asked for it."""
    why: str


def hardware_subdirectories(cpuinfo: str) -> tuple[str, ...]:
    r"""The subdirectories of glibc-hwcaps that fit an x86-64 machine, best first, from the text of /proc/cpuinfo.

    Sample line: `flags\t\t: fpu vme … avx2 …`. Empty where no line of flags is there. Source: x86-64 psABI, micro-architecture levels.
    """
    line = next((text for text in cpuinfo.splitlines() if text.startswith("flags")), "")
    flags = frozenset(line.partition(":")[2].split())
    fitting: list[str] = []
    for level, wanted in reversed(_LEVELS.items()):
        if not wanted <= flags:
            break
        fitting.insert(0, f"glibc-hwcaps/{level}")
    return tuple(fitting)


class Process:
    """One process, simulated: which libraries it holds, and what another one asked for would bring.

    `program` is the path of the executable with links resolved, as `/proc/self/exe` gives it.
    """

    def __init__(self, program: str, elf: Elf, files: Files, surroundings: Surroundings) -> None:
        self._files = files
        self._around = surroundings
        self._names: dict[str, Loaded] = {}
        self._identities: dict[str, Loaded] = {}
        self._objects: list[Loaded] = []
        self.program = self._keep(Loaded(program, elf, Rule.PATH), program)
        self._start()

    @property
    def objects(self) -> tuple[Loaded, ...]:
        """Everything that is loaded, in the order in which it came."""
        return tuple(self._objects)

    def open(self, name: str, by: Loaded | None = None) -> Loaded | Missing:
        """What `dlopen(name)` called in `by` (the program, if it is left out) gives, with all that it needs.

        A name with a slash is a path, any other is searched for. On failure the process is as it was.
        """
        before = dict(self._names), dict(self._identities), list(self._objects)
        asker = by or self.program
        opened = self._map(name, asker)
        failed = opened if isinstance(opened, Missing) else self._load_needs([opened])
        if failed is not None:
            self._names, self._identities, self._objects = before
            return failed
        return opened

    def find(self, name: str, by: Loaded | None = None) -> Loaded | Missing:
        """The file that `name` would lead to, without what it needs; the process stays as it is."""
        before = dict(self._names), dict(self._identities), list(self._objects)
        found = self._map(name, by or self.program)
        self._names, self._identities, self._objects = before
        return found

    def _start(self) -> None:
        """The loader itself, what LD_PRELOAD names, and what the program needs; what fails here is left out."""
        interpreter = self.program.elf.interpreter
        elf = self._files.look(interpreter) if interpreter else None
        if interpreter and isinstance(elf, Elf):
            self._keep(Loaded(interpreter, elf, Rule.PATH, self.program), interpreter)
        preloaded = [self._map(name, self.program, Rule.PRELOAD) for name in self._around.preload]
        self._load_needs([self.program, *(one for one in preloaded if isinstance(one, Loaded))])

    def _load_needs(self, fresh: list[Loaded]) -> Missing | None:
        """Maps what the fresh objects need, breadth first, then compares symbol versions; the first fault."""
        fault: Missing | None = None
        queue = list(fresh)
        for one in queue:
            for need in one.elf.needed:
                known = len(self._objects)
                found = self._map(need, one)
                if isinstance(found, Missing):
                    fault = fault or found
                elif len(self._objects) > known:
                    queue.append(found)
        return fault or next((fault for fault in map(self._version_fault, queue) if fault is not None), None)

    def _version_fault(self, one: Loaded) -> Missing | None:
        """The first symbol version that `one` wants and that the library that is there does not define."""
        for library, version in one.elf.wants:
            there = self._names.get(library)
            # A library that defines no versions at all only earns a warning.
            if there is not None and there.elf.defines and version not in there.elf.defines:
                return Missing(name=library, by=one.path, why=f"{there.path} does not define version {version}")
        return None

    def _map(self, name: str, by: Loaded, rule: Rule | None = None) -> Loaded | Missing:
        """The object for a name, new or known, without what it needs; `rule` replaces the one that found it."""
        name = self._expand(name, by)
        known = self._names.get(name)
        if known is not None:
            return known
        if "/" in name:
            return self._map_path(name, by, rule or Rule.PATH)
        other_class = False
        for directory, path, found_by in self._places(name, by):
            elf = self._files.look(path)
            if elf is None:
                continue
            if isinstance(elf, str):
                return Missing(name=name, by=by.path, why=f"{path} cannot be used: {elf}")
            if self._is_foreign(elf):
                other_class = True
                continue
            return self._keep(Loaded(path, elf, rule or found_by, by, directory), name)
        why = "only files of another architecture are found" if other_class else "is not found"
        return Missing(name=name, by=by.path, why=why)

    def _map_path(self, path: str, by: Loaded, rule: Rule) -> Loaded | Missing:
        if not path.startswith("/"):
            path = f"{self._around.directory.rstrip('/')}/{path}"
        elf = self._files.look(path)
        if elf is None or isinstance(elf, str):
            return Missing(name=path, by=by.path, why=elf or "is not there")
        if self._is_foreign(elf):
            return Missing(name=path, by=by.path, why=f"is for {elf.arch}, {elf.bits} bit")
        return self._keep(Loaded(path, elf, rule, by, path), path)

    def _is_foreign(self, elf: Elf) -> bool:
        own = self.program.elf
        return (elf.arch, elf.bits) != (own.arch, own.bits)

    def _keep(self, one: Loaded, name: str) -> Loaded:
        """Takes an object in, or gives the one that is the same file; from then on it answers to the name."""
        identity = self._files.identify(one.path)
        known = self._identities.get(identity)
        if known is None:
            known = one
            self._identities[identity] = one
            self._objects.append(one)
            self._names.setdefault(one.path, one)
            if one.elf.soname:
                self._names.setdefault(one.elf.soname, one)
        self._names.setdefault(name, known)
        return known

    def _places(self, name: str, by: Loaded) -> Iterator[tuple[str, str, Rule]]:
        """Every place in which the loader would look, in its order: what led there, the path, and the rule."""
        if by.elf.runpath is None:
            for one in self._askers(by):
                yield from self._in_list(name, one, one.elf.rpath, Rule.RPATH)
        library_path = tuple(self._expand(element, self.program) for element in self._around.library_path)
        yield from self._in_directories(name, library_path, Rule.LD_LIBRARY_PATH)
        yield from self._in_list(name, by, by.elf.runpath, Rule.RUNPATH)
        cached = self._around.cache.get(name)
        default = () if by.elf.no_default else self._around.default
        if cached is not None and not (by.elf.no_default and cached.rpartition("/")[0] in self._around.default):
            yield cached, cached, Rule.CACHE
        yield from self._in_directories(name, default, Rule.DEFAULT)

    def _askers(self, by: Loaded) -> Iterator[Loaded]:
        """The object that asks, what asked for that, and so on up to the program."""
        one: Loaded | None = by
        while one is not None:
            # RPATH does not count in an object that has RUNPATH, too.
            if one.elf.runpath is None:
                yield one
            one = one.by

    def _in_list(self, name: str, one: Loaded, paths: str | None, rule: Rule) -> Iterator[tuple[str, str, Rule]]:
        if not paths:
            return
        yield from self._in_directories(name, tuple(self._expand(element, one) for element in paths.split(":")), rule)

    def _in_directories(self, name: str, directories: tuple[str, ...], rule: Rule) -> Iterator[tuple[str, str, Rule]]:
        for written in directories:
            directory = written.rstrip("/") or ("/" if written else "")
            if not directory.startswith("/"):
                directory = f"{self._around.directory.rstrip('/')}/{directory}".rstrip("/") or "/"
            names = self._files.names(directory)
            prefix = "" if directory == "/" else directory
            for subdirectory in self._around.subdirectories:
                if subdirectory.partition("/")[0] in names and name in self._files.names(f"{prefix}/{subdirectory}"):
                    yield directory, f"{prefix}/{subdirectory}/{name}", rule
            if name in names:
                yield directory, f"{prefix}/{name}", rule

    def _expand(self, text: str, one: Loaded) -> str:
        """The text with `$ORIGIN`, `$LIB` and `$PLATFORM` replaced."""
        if "$" not in text:
            return text
        values = {"ORIGIN": one.origin, "LIB": self._around.lib, "PLATFORM": self._around.platform}
        return _TOKEN.sub(lambda found: values[found[1] or found[2]], text)
