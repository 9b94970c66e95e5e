"""What the dynamic loader of the target's processes would find: its files, its settings, and such a process."""

from __future__ import annotations

import re

from msgspec.structs import replace

from cudnn_resolve.facts.elf import Elf, ElfError, read_elf
from cudnn_resolve.facts.loader_rules import Files, Loaded, Process, Surroundings, hardware_subdirectories
from cudnn_resolve.host.port import Host, is_dir
from cudnn_resolve.probe.environment import TargetEnvironment

_TRIPLETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_SPLIT = re.compile(r"[:\s]+")
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
PLACEHOLDER = "/the-driver-that-is-not-here"
"""Where a process finds the driver's libraries on a machine without a driver."""


class Loading:
    """The loader of one machine and one environment; libraries are read once, however many processes are simulated."""

    def __init__(self, host: Host, environment: TargetEnvironment) -> None:
        self._host = host
        self._environment = environment
        self._arch = environment.arch or "x86_64"
        self._looked: dict[str, Elf | str | None] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._identities: dict[str, str] = {}
        self.files = Files(look=self.look, names=self.names, identify=self.identify)
        self.surroundings = self._surroundings()

    def look(self, path: str) -> Elf | str | None:
        """The library at a path; why it cannot be used; None where there is no file."""
        if path not in self._looked:
            self._looked[path] = self._read(path)
        return self._looked[path]

    def names(self, directory: str) -> frozenset[str]:
        """Names in a directory; empty where there is none."""
        known = self._names.get(directory)
        if known is None:
            known = self._names[directory] = frozenset(self._host.list_dir(directory))
        return known

    def identify(self, path: str) -> str:
        """The path with links resolved."""
        known = self._identities.get(path)
        if known is None:
            known = self._identities[path] = self._host.realpath(path)
        return known

    def process(self, *, library_path: bool = True, driver: bool = False) -> Process:
        """A process of the target interpreter, as it is before anything was imported.

        Where the interpreter is no program that can be read (a script in its place, none at all), a program without a search path.
        Without `library_path` it has neither LD_LIBRARY_PATH nor LD_PRELOAD; with `driver` it finds the driver's libraries even on a
        machine that has none.
        """
        around = self.surroundings
        if not library_path:
            around = replace(around, library_path=(), preload=())
        if driver:
            around = replace(around, cache={**{name: f"{PLACEHOLDER}/{name}" for name in DRIVER_LIBRARIES}, **around.cache})
        for path in self._interpreters():
            real = self.identify(path)
            elf = self.look(real)
            if isinstance(elf, Elf):
                return Process(real, elf, self.files, around)
        return Process("/program", Elf(arch=self._arch, bits=64), self.files, around)

    def opener(self, process: Process) -> Loaded:
        """What calls the loader where Python code opens a library: the module `_ctypes`, or the interpreter that holds it."""
        program = process.program.path
        base = program.rpartition("/bin/")[0]
        version = ".".join((self._environment.python.version or "3").split(".")[:2])
        for directory in (f"{base}/lib/python{version}/lib-dynload", f"{base}/lib64/python{version}/lib-dynload"):
            for name in sorted(self.names(directory)):
                if name.startswith("_ctypes.") and name.endswith(".so"):
                    opened = process.open(f"{directory}/{name}")
                    if isinstance(opened, Loaded):
                        return opened
        return process.program

    def _interpreters(self) -> list[str]:
        prefix = self._environment.prefix.rstrip("/")
        given = [self._environment.python.path] if self._environment.python.path else []
        return given + [f"{prefix}/bin/{name}" for name in ("python3", "python") if prefix]

    def _read(self, path: str) -> Elf | str | None:
        if path.startswith(PLACEHOLDER):
            return Elf(arch=self._arch, bits=64, soname=path.rpartition("/")[2])
        if self._host.read_bytes(path, 0, 1) is None:
            return None
        try:
            return read_elf(lambda offset, size: self._host.read_bytes(path, offset, size))
        except ElfError as error:
            return str(error)

    def _surroundings(self) -> Surroundings:
        arch = self._arch
        triplet = _TRIPLETS.get(arch, f"{arch}-linux-gnu")
        # Debian and what comes from it builds its loader for directories of the architecture, others for lib64.
        multiarch = is_dir(self._host, f"/usr/lib/{triplet}")
        default = (
            (f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib", "/usr/lib") if multiarch else ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
        )
        cpuinfo = (self._host.read_text("/proc/cpuinfo", 1 << 13) or "") if arch == "x86_64" else ""
        wide = self._host.read_text("/etc/ld.so.preload", 1 << 16) or ""
        preload = [*_SPLIT.split(self._host.environ.get("LD_PRELOAD", "")), *_SPLIT.split(wide)]
        return Surroundings(
            library_path=self._environment.ld_library_path,
            cache={entry.name: entry.path for entry in reversed(self._environment.ldconfig)},
            default=default,
            preload=tuple(name for name in preload if name),
            subdirectories=hardware_subdirectories(cpuinfo),
            lib=f"lib/{triplet}" if multiarch else "lib64",
            platform=arch,
            directory=self._host.environ.get("PWD", "/"),
        )
