r"""Parse the output of glibc's loader under `LD_TRACE_LOADED_OBJECTS=1 LD_DEBUG=libs,files`: what a process would load, and why.

No code runs in that mode: the loader maps the program, the entries of LD_PRELOAD and all that they need, and prints on standard output

    \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f6e42ec9000)
    \tlibnope.so => not found

and on standard error how it found them:

    29956:\tfile=libz.so.1 [0];  needed by /usr/bin/python3.11 [0]
    29956:\tfind library=libz.so.1 [0]; searching
    29956:\t search path=/opt/lib\t\t(RUNPATH from file /usr/bin/python3.11)
    29956:\t  trying file=/opt/lib/libz.so.1
    29956:\t search cache=/etc/ld.so.cache
    29956:\t  trying file=/lib/x86_64-linux-gnu/libz.so.1

Source: ld.so(8), and glibc's elf/rtld.c and elf/dl-load.c from 2.17 to 2.41, which print the same texts.
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
    """Rule by which the loader found a file; the value is its description."""

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
    """As the loader composed it, links not resolved."""
    rule: Rule = Rule.PATH
    by: str = ""
    """Path of the file that needed it first."""
    where: str = ""
    """Directory that was searched, or the entry of LD_PRELOAD."""
    holder: str = ""
    """Path of the file whose RPATH or RUNPATH was searched."""

    @property
    def name(self) -> str:
        """Last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def origin(self) -> str:
        """Directory that contains it."""
        return self.path.rpartition("/")[0] or "/"


class Missing(Struct, frozen=True, kw_only=True):
    """A library that could not be loaded."""

    name: str
    by: str
    """Path of the file that needs it."""
    why: str
    tried: tuple[str, ...] = ()
    """Paths that were tried."""


class Trace(Struct, frozen=True, kw_only=True):
    """Libraries that a process would load."""

    libraries: tuple[Library, ...]
    """In order of loading, without the program itself."""
    names: Mapping[str, str]
    """Path of each library, by the name that it was requested under."""
    missing: tuple[Missing, ...]
    """Needed libraries that were not found, and those that lack a needed version."""
    refused: Mapping[str, Missing]
    """Entries of LD_PRELOAD that could not be loaded."""
    fatal: Missing | None = None
    """Fault that stopped the loader, so that nothing else is known."""


class _Request:
    """The loader's search for one library."""

    def __init__(self, name: str, by: str) -> None:
        self.name = name
        self.by = by
        self.tried: list[str] = []
        self.is_mapped = False
        self.rule = Rule.PATH
        self.holder = ""

    def note(self, event: str) -> None:
        """Record a step of the search; it names `RPATH from file /x`, `LD_LIBRARY_PATH` or `system search path`."""
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
        """The library, mapped from a path."""
        searched = self.rule not in (Rule.PATH, Rule.CACHE)
        where = _HARDWARE.sub("", path.rpartition("/")[0]) if searched else ""
        return Library(path=path, rule=self.rule, by=self.by, where=where, holder=self.holder)

    def missing(self, why: str) -> Missing:
        """The fault, if it was not mapped."""
        return Missing(name=self.name, by=self.by, why=why, tried=tuple(self.tried))


def parse_trace(stdout: str, stderr: str) -> Trace | None:
    """Parse standard output and standard error of one trace; None if no loader wrote them."""
    search = _Search(stderr)
    names: dict[str, str] = {}
    missing: dict[str, Missing] = {}
    libraries: dict[str, Library] = {}
    for line in stdout.splitlines():
        not_found, listed = _NOT_FOUND.fullmatch(line), _LISTED.fullmatch(line)
        if not_found is not None:
            name = not_found[1]
            missing[name] = search.failed_request(name).missing("is not found")
        elif listed is not None and listed[1] != "linux-vdso.so.1":
            name, path = listed[1], listed[2] or listed[1]
            names[name] = path
            libraries.setdefault(path, search.request(name).found(path))
    if _NO_NEEDS in stdout:  # nothing is listed for a program without needs, whatever LD_PRELOAD loaded
        names = search.mapped
        libraries = {path: search.request(name).found(path) for name, path in names.items()}
        missing = {name: search.failed_request(name).missing("is not found") for name in search.unmapped}
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
    """Standard error of a trace: the searches for each name, and the faults."""

    def __init__(self, stderr: str) -> None:
        self._requests: dict[str, list[_Request]] = {}
        self.refused: dict[str, Missing] = {}
        self.versions: list[Missing] = []
        self.fatal: Missing | None = None
        current = _Request("", "")
        for line in stderr.splitlines():
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
        """The last search for a name: once found, it is not searched again."""
        return self._requests.get(name, [_Request(name, "")])[-1]

    def failed_request(self, name: str) -> _Request:
        """The first search of a library, rather than of LD_PRELOAD, for a name that was not found."""
        requests = self._requests.get(name, [])
        return next(iter(requests[1:] if name in self.refused else requests), self.request(name))

    @property
    def mapped(self) -> dict[str, str]:
        """Path of each library that was mapped, by name."""
        last = {name: requests[-1] for name, requests in self._requests.items()}
        return {name: request.tried[-1] if request.tried else name for name, request in last.items() if request.is_mapped}

    @property
    def unmapped(self) -> list[str]:
        """Names of needed libraries that were not mapped."""
        return [name for name, requests in self._requests.items() if not requests[-1].is_mapped and name not in self.refused]

    def _fault(self, line: str, request: _Request) -> None:
        """Record an error message that the loader printed during a request."""
        refused, version, fatal = _REFUSED.fullmatch(line), _VERSION.fullmatch(line), _FATAL.fullmatch(line)
        if refused is not None:
            why = "is not found" if refused[2] in (None, "cannot open shared object file") else refused[2]  # None: an old glibc
            self.refused[refused[1]] = self.request(refused[1]).missing(why)
        elif version is not None:
            name = version[1].rpartition("/")[2]
            self.versions.append(Missing(name=name, by=version[3], why=f"{version[1]} does not define version {version[2]}"))
        elif fatal is not None:
            self.fatal = request.missing(fatal[2])
