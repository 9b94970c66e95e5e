r"""Output of glibc's loader under `LD_TRACE_LOADED_OBJECTS=1 LD_DEBUG=libs,files`: what a process would load, by which rule, and what not.

Nothing is run in that mode: the loader maps the program, what LD_PRELOAD names and what they need, and prints on standard output

    \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f6e42ec9000)
    \tlibnope.so => not found

and on standard error how it came to that:

    29956:\tfile=libz.so.1 [0];  needed by /usr/bin/python3.11 [0]
    29956:\tfind library=libz.so.1 [0]; searching
    29956:\t search path=/opt/lib\t\t(RUNPATH from file /usr/bin/python3.11)
    29956:\t  trying file=/opt/lib/libz.so.1
    29956:\t search cache=/etc/ld.so.cache
    29956:\t  trying file=/lib/x86_64-linux-gnu/libz.so.1

Source: ld.so(8), and glibc's elf/rtld.c and elf/dl-load.c from 2.17 to 2.41, where these texts are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

_EVENT = re.compile(r"\s*\d+:\t(.*)")
_LISTED = re.compile(r"\t(.+?)(?: => (.+))? \(0x[0-9a-f]+\)")
_NOT_FOUND = re.compile(r"\t(.+) => not found")
_NEEDED = re.compile(r"file=(.*) \[\d+\];  (?:needed|dynamically loaded) by (.*) \[\d+\]")
_SEARCH = re.compile(r" search path=(.*)\t\t\((.*)\)")
_REFUSED = re.compile(r"ERROR: ld\.so: object '(.*)' from \S+ cannot be preloaded(?: \((.*)\))?: ignored\.")
_VERSION = re.compile(r".*?: (\S.*?): version `(.*)' not found \(required by (.*)\)")
_FATAL = re.compile(r".*?: error while loading shared libraries: (.*?): (.*)")
_TRYING = "  trying file="
_NO_NEEDS = "\tstatically linked"
_HARDWARE = re.compile(r"(?:/glibc-hwcaps/[^/]+|/tls|/haswell|/avx512_1|/x86_64|/aarch64|/atomics)+$")


class Rule(Enum):
    """Which rule of the loader led to a file; the value is how it is said."""

    PATH = "opened by its path"
    RPATH = "RPATH"
    LD_LIBRARY_PATH = "LD_LIBRARY_PATH"
    RUNPATH = "RUNPATH"
    CACHE = "linker cache"
    DEFAULT = "default directory"
    PRELOAD = "LD_PRELOAD"


class Library(Struct, frozen=True, kw_only=True):
    """One library in a process."""

    path: str
    """As the loader wrote it together, links not resolved."""
    rule: Rule = Rule.PATH
    by: str = ""
    """Path of what asked for it first."""
    where: str = ""
    """The directory that was searched, or the entry of LD_PRELOAD."""
    holder: str = ""
    """Path of the file whose RPATH or RUNPATH led to it."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def origin(self) -> str:
        """The directory that holds it."""
        return self.path.rpartition("/")[0] or "/"


class Missing(Struct, frozen=True, kw_only=True):
    """A library that could not be loaded."""

    name: str
    by: str
    """Path of what asked for it."""
    why: str
    tried: tuple[str, ...] = ()
    """Paths at which it was looked for."""


class Trace(Struct, frozen=True, kw_only=True):
    """What a process would hold."""

    libraries: tuple[Library, ...]
    """In the order of loading, without the program itself."""
    names: Mapping[str, str]
    """The name under which each was asked for, to its path."""
    missing: tuple[Missing, ...]
    """Needed libraries that were not found, and those that lack a version that is needed."""
    refused: Mapping[str, Missing]
    """Entries of LD_PRELOAD that could not be loaded."""
    fatal: Missing | None = None
    """What stopped the loader, so that nothing else is known."""


class _Request:
    """One library on its way through the loader's search."""

    def __init__(self, name: str, by: str) -> None:
        self.name = name
        self.by = by
        self.tried: list[str] = []
        self.is_mapped = False
        self.rule = Rule.PATH
        self.holder = ""

    def note(self, event: str) -> None:
        """Take in a step of the search; its words are `RPATH from file /x`, `LD_LIBRARY_PATH` or `system search path`."""
        searched = _SEARCH.fullmatch(event)
        if searched is not None:
            kind, _, self.holder = searched[2].partition(" from file ")
            self.rule = Rule[kind] if kind in Rule.__members__ else Rule.DEFAULT
        elif event.startswith(" search cache="):
            self.rule, self.holder = Rule.CACHE, ""
        elif event.startswith(_TRYING):
            self.tried.append(event.removeprefix(_TRYING))
        elif event.endswith(";  generating link map"):
            self.is_mapped = True

    def found(self, path: str) -> Library:
        """The library, after it was mapped from a path."""
        searched = self.rule not in (Rule.PATH, Rule.CACHE)
        where = _HARDWARE.sub("", path.rpartition("/")[0]) if searched else ""
        return Library(path=path, rule=self.rule, by=self.by, where=where, holder=self.holder)

    def missing(self, why: str) -> Missing:
        """The fault, after it was not mapped."""
        return Missing(name=self.name, by=self.by, why=why, tried=tuple(self.tried))


def parse_trace(listed: str, told: str) -> Trace | None:
    """Parse standard output and standard error of one trace; None where no loader wrote them."""
    search = _Search(told)
    names: dict[str, str] = {}
    missing: dict[str, Missing] = {}
    libraries: dict[str, Library] = {}
    for line in listed.splitlines():
        absent, there = _NOT_FOUND.fullmatch(line), _LISTED.fullmatch(line)
        if absent is not None:
            missing[absent[1]] = search.in_vain(absent[1]).missing("is not found")
        elif there is not None and there[1] != "linux-vdso.so.1":
            path = there[2] or there[1]
            names[there[1]] = path
            libraries.setdefault(path, search.request(there[1]).found(path))
    if _NO_NEEDS in listed:  # of a program without needs nothing is listed, whatever LD_PRELOAD brought
        names = search.mapped
        libraries = {path: search.request(name).found(path) for name, path in names.items()}
        missing = {name: search.in_vain(name).missing("is not found") for name in search.unmapped}
    if not (libraries or missing or search.refused or search.fatal):
        return None
    return Trace(
        libraries=tuple(libraries.values()),
        names=names,
        missing=(*missing.values(), *search.versions),
        refused=search.refused,
        fatal=search.fatal,
    )


class _Search:
    """What standard error tells: the searches for each name, and the faults."""

    def __init__(self, told: str) -> None:
        self._requests: dict[str, list[_Request]] = {}
        self.refused: dict[str, Missing] = {}
        self.versions: list[Missing] = []
        self.fatal: Missing | None = None
        current = _Request("", "")
        for line in told.splitlines():
            event = _EVENT.fullmatch(line)
            needed = _NEEDED.fullmatch(event[1]) if event else None
            if event is None:
                self._fault(line, current)
            elif needed is None:
                current.note(event[1])
            else:
                current = _Request(needed[1], needed[2])
                self._requests.setdefault(needed[1], []).append(current)

    def request(self, name: str) -> _Request:
        """The last search for a name: what is found is not searched again."""
        return self._requests.get(name, [_Request(name, "")])[-1]

    def in_vain(self, name: str) -> _Request:
        """The first search for a name that a library needs and that is nowhere."""
        own = self._requests.get(name, [])
        return next(iter(own[1:] if name in self.refused else own), self.request(name))

    @property
    def mapped(self) -> dict[str, str]:
        """The name of each library that was mapped, and its path."""
        found = ((name, own[-1]) for name, own in self._requests.items())
        return {name: one.tried[-1] if one.tried else name for name, one in found if one.is_mapped}

    @property
    def unmapped(self) -> list[str]:
        """Names of what libraries need and did not get."""
        return [name for name, own in self._requests.items() if not own[-1].is_mapped and name not in self.refused]

    def _fault(self, line: str, request: _Request) -> None:
        """Take in a line that the loader wrote to the user while it was at a request."""
        refused, version, fatal = _REFUSED.fullmatch(line), _VERSION.fullmatch(line), _FATAL.fullmatch(line)
        if refused is not None:
            why = "is not found" if refused[2] in (None, "cannot open shared object file") else refused[2]  # None: of an old glibc
            self.refused[refused[1]] = self.request(refused[1]).missing(why)
        elif version is not None:
            name = version[1].rpartition("/")[2]
            self.versions.append(Missing(name=name, by=version[3], why=f"{version[1]} does not define version {version[2]}"))
        elif fatal is not None:
            self.fatal = request.missing(fatal[2])
