"""Stands in for glibc's loader on a made-up machine: traces a program over files that only a dictionary holds.

It prints what `ld.so` prints under `LD_TRACE_LOADED_OBJECTS=1 LD_DEBUG=libs,files`. The real one is asked in tests/functional.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cudnn_resolve.evidence.elf import Elf, ElfError, read_elf
from cudnn_resolve.host.protocol import CommandResult, Host

DEFAULT = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib")


@dataclass(eq=False)
class Mapped:
    """One library (or the program itself) in the process."""

    path: str
    elf: Elf
    by: Mapped | None = None


class RefusedError(Exception):
    """A file stands where the loader looks, and is none that it can map."""


class Trace:
    """One process; `argv` is the command line of `env`."""

    def __init__(self, host: Host, cache: Mapping[str, str], argv: tuple[str, ...]) -> None:
        self._host = host
        self._cache = cache
        settings = dict(word.split("=", 1) for word in argv if "=" in word)
        self._library_path = [one for one in settings.get("LD_LIBRARY_PATH", "").split(":") if one]
        self._preload = [one for one in settings["LD_PRELOAD"].split(":") if one]
        self._told: list[str] = []
        self._listed: list[str] = []
        self._names: dict[str, Mapped] = {}
        self._identities: dict[str, Mapped] = {}
        program = argv[-1]
        elf = self._look(program)
        assert isinstance(elf, Elf), f"{program} cannot be traced"
        self._program = Mapped(program, elf)
        self._identities[host.realpath(program)] = self._program

    def run(self) -> CommandResult:
        """What the loader prints."""
        queue = [self._program]
        for name in self._preload:
            try:
                found = self._map(name, self._program)
            except RefusedError as error:
                self._told.append(f"ERROR: ld.so: object '{name}' from LD_PRELOAD cannot be preloaded ({error}): ignored.")
                continue
            queue += [found] if found not in queue else []
        for one in queue:
            for need in one.elf.needed:
                try:
                    found = self._map(need, one)
                except FileNotFoundError:
                    line = f"\t{need} => not found"
                    self._listed += [line] if line not in self._listed else []
                    continue
                except RefusedError as error:
                    self._told.append(f"{self._program.path}: error while loading shared libraries: {need}: {error}")
                    return CommandResult(returncode=127, stderr="\n".join(self._told))
                queue += [found] if found not in queue else []
        return CommandResult(returncode=0, stdout="\n".join(self._listed), stderr="\n".join(self._told))

    def _tell(self, text: str) -> None:
        self._told.append(f"     4711:\t{text}")

    def _look(self, path: str) -> Elf | str | None:
        if self._host.read_bytes(path, 0, 1) is None:
            return None
        try:
            return read_elf(lambda offset, size: self._host.read_bytes(path, offset, size))
        except ElfError:
            return "invalid ELF header"

    def _map(self, name: str, by: Mapped) -> Mapped:
        """The object for a name, new or known; RefusedError as the loader words it."""
        known = self._names.get(name)
        if known is not None:
            return known
        self._tell(f"file={name} [0];  needed by {by.path} [0]")
        if "/" not in name:
            self._tell(f"find library={name} [0]; searching")
        for path in (name,) if "/" in name else self._tried(name, by):
            elf = self._look(path)
            if isinstance(elf, Elf) and (elf.arch, elf.bits) != (self._program.elf.arch, self._program.elf.bits):
                elf = "wrong ELF class: ELFCLASS32" if "/" in name else None
            if isinstance(elf, str):
                raise RefusedError(elf)
            if elf is not None:
                return self._keep(Mapped(path, elf, by), name)
        if name in self._preload and by is self._program:
            raise RefusedError("cannot open shared object file")
        raise FileNotFoundError(name)

    def _keep(self, one: Mapped, name: str) -> Mapped:
        """Takes an object in, or gives the one that is the same file; from then on it answers to the name."""
        known = self._identities.setdefault(self._host.realpath(one.path), one)
        if known is one:
            self._listed.append(f"\t{one.path} (0x0001)" if name == one.path else f"\t{name} => {one.path} (0x0001)")
            self._tell(f"file={name} [0];  generating link map")
            self._names.setdefault(one.path, one)
            if one.elf.soname:
                self._names.setdefault(one.elf.soname, one)
        self._names.setdefault(name, known)
        return known

    def _tried(self, name: str, by: Mapped) -> Iterator[str]:
        """Every path that the loader would try, in its order."""
        if by.elf.runpath is None:
            one: Mapped | None = by
            while one is not None:
                if one.elf.runpath is None and one.elf.rpath:
                    yield from self._in(name, self._expanded(one.elf.rpath, one), f"RPATH from file {one.path}")
                one = one.by
        yield from self._in(name, self._library_path, "LD_LIBRARY_PATH")
        if by.elf.runpath:
            yield from self._in(name, self._expanded(by.elf.runpath, by), f"RUNPATH from file {by.path}")
        self._tell(" search cache=/etc/ld.so.cache")
        if name in self._cache:
            self._tell(f"  trying file={self._cache[name]}")
            yield self._cache[name]
        yield from self._in(name, DEFAULT, "system search path")

    def _in(self, name: str, directories: list[str] | tuple[str, ...], rule: str) -> Iterator[str]:
        if directories:
            self._tell(f" search path={':'.join(directories)}\t\t({rule})")
        for directory in directories:
            path = f"{directory.rstrip('/')}/{name}"
            self._tell(f"  trying file={path}")
            yield path

    def _expanded(self, paths: str, one: Mapped) -> list[str]:
        origin = os.path.dirname(one.path)
        return [element.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", origin) for element in paths.split(":")]
