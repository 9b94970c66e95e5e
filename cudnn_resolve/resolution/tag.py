"""Wheel tags against a target: which Pythons, C libraries and architectures a file serves.

Sources: the platform compatibility tags specification of the Python packaging user guide; PEP 425, 513, 571, 599 and 600.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.source import File

_MANYLINUX = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_PLATFORM = re.compile(r"(?:(manylinux1|manylinux2010|manylinux2014)|manylinux_(\d+)_(\d+)|(linux))_(x86_64|aarch64)")
_PYTHON = re.compile(r"(cp|py)(\d)(\d*)")


class Target(NamedTuple):
    """What a file must serve; None = unknown, then everything does."""

    python: tuple[int, int] | None
    free_threaded: bool
    arch: str
    glibc: tuple[int, int] | None

    @classmethod
    def of(cls, machine: Machine, *, any_libc: bool = False) -> Target:
        """What a file must serve on a machine, or on one like it with whatever C library."""
        return cls(machine.python, machine.free_threaded, machine.arch, None if any_libc else machine.glibc)


def serves_python(pythons: str, abis: str, target: Target) -> bool:
    """True where the compressed python and ABI tags (`cp38.cp39`, `abi3`) accept the target's interpreter."""
    if target.python is None:
        return True
    return any(_serves(python, abi, target, target.python) for python in pythons.split(".") for abi in abis.split("."))


def _serves(python: str, abi: str, target: Target, wanted: tuple[int, int]) -> bool:
    found = _PYTHON.fullmatch(python)
    if found is None or int(found[2]) != wanted[0]:
        return False
    minor = int(found[3]) if found[3] else None
    if abi == "none":
        return minor == wanted[1] if found[1] == "cp" else minor is None or minor <= wanted[1]
    if found[1] == "py" or minor is None:
        return False
    if abi == "abi3":
        return minor <= wanted[1] and not target.free_threaded
    return minor == wanted[1] and abi.endswith("t") == target.free_threaded


def platform_floor(platforms: str, arch: str, glibc: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """The oldest glibc that one of the compressed platform tags accepts on `arch`: (0, 0) for any, None where none is for it.

    With a `glibc`, the newest one that is not newer.
    """
    best: tuple[int, int] | None = None
    for platform in platforms.split("."):
        if platform == "any":
            return (0, 0)
        found = _PLATFORM.fullmatch(platform)
        if found is None or (arch and found[5] != arch):
            continue
        floor = (0, 0) if found[4] else _MANYLINUX[found[1]] if found[1] else (int(found[2]), int(found[3]))
        if glibc is not None and floor > glibc:
            continue
        if best is None or (floor > best if glibc is not None else floor < best):
            best = floor
    return best


class Fit(NamedTuple):
    """How a set of files meets a target."""

    python: bool
    """Some file is for its Python."""
    arch: bool
    """Some file is for its architecture."""
    glibc: tuple[int, int] | None
    """Oldest glibc that a file for this Python and architecture takes; None where there is no such file."""


EVERYWHERE = Fit(python=True, arch=True, glibc=(0, 0))


def _parts(tag: str) -> tuple[str, str, str]:
    """The Python, ABI and platform tags; an overlay's row may have fewer, which fits nothing and which `matrix check` tells."""
    pythons, _, rest = tag.partition("-")
    abis, _, platforms = rest.partition("-")
    return pythons, abis, platforms


def fit(tags: tuple[str, ...], target: Target) -> Fit:
    """How files with these compressed tags (`cp311-cp311-manylinux_2_28_x86_64`) meet the target; an sdist serves everything."""
    python = arch = False
    glibc: tuple[int, int] | None = None
    for tag in tags:
        if tag == "sdist":
            return EVERYWHERE
        pythons, abis, platforms = _parts(tag)
        floor = platform_floor(platforms, target.arch)
        arch = arch or floor is not None
        if serves_python(pythons, abis, target):
            python = True
            if floor is not None and (glibc is None or floor < glibc):
                glibc = floor
    return Fit(python, arch, glibc)


def best_file(files: Iterable[File], target: Target) -> File | None:
    """The file that an installer would take on the target; a source archive where no wheel serves, None where nothing does.

    The order of packaging.tags: the interpreter's own ABI, then the newest stable ABI, then none; of one ABI the newest C library. The
    last word has the build number.
    """
    best: File | None = None
    rank: tuple[int, ...] = ()
    for file in files:
        if not file.is_wheel:
            best = best or file
            continue
        pythons, abis, platforms = _parts(file.tag)
        floor = platform_floor(platforms, target.arch, target.glibc)
        if floor is None or not serves_python(pythons, abis, target):
            continue
        own = (*_closeness(pythons, abis, target), *floor, _build_number(file.filename))
        if best is None or not best.is_wheel or own > rank:
            best, rank = file, own
    return best


def _closeness(pythons: str, abis: str, target: Target) -> tuple[int, int]:
    """How close a file is to the target's interpreter: the bigger, the better."""
    best = (0, 0)
    for python in pythons.split("."):
        found = _PYTHON.fullmatch(python)
        minor = int(found[3]) if found is not None and found[3] else 0
        if found is None or (target.python is not None and minor > target.python[1]):
            continue
        for abi in abis.split("."):
            kind = 1 if abi == "none" else 2 if abi == "abi3" else 3
            if kind == 1 and found[1] == "py":
                kind = 0
            best = max(best, (kind, minor))
    return best


def _build_number(filename: str) -> int:
    parts = filename.split("-")
    digits = re.match(r"\d+", parts[2]) if len(parts) == 6 else None
    return int(digits[0]) if digits else 0


def pythons_of(tags: tuple[str, ...], arch: str) -> tuple[str, ...]:
    """The Python versions (`3.9`, `3.11`) that some file for `arch` names, oldest first; `>=3.8` forms for stable-ABI files."""
    out: set[tuple[int, int, str]] = set()
    for tag in tags:
        if tag == "sdist":
            continue
        pythons, abis, platforms = _parts(tag)
        if platform_floor(platforms, arch) is None:
            continue
        for python in pythons.split("."):
            found = _PYTHON.fullmatch(python)
            if found and found[3]:
                out.add((int(found[2]), int(found[3]), ">=" if abis == "abi3" else ""))
            elif found:
                out.add((int(found[2]), 0, ">="))
    return tuple(f"{prefix}{major}.{minor}" for major, minor, prefix in sorted(out))


def python_of(tag: str) -> set[str]:
    """The interpreters that a tag names, `cp313t` for a free-threaded one."""
    pythons, abis, _ = _parts(tag)
    return {f"{python}t" if abis == f"{python}t" else python for python in pythons.split(".")}


def tags_of(pythons: tuple[str, ...], arch: tuple[str, ...], glibc: str | None) -> tuple[str, ...]:
    """Wheel tags of a build whose files nobody listed; abi3-free, one for each Python and architecture."""
    platforms = [f"manylinux_{glibc.replace('.', '_')}_{one}" if glibc else f"linux_{one}" for one in arch or ("x86_64",)]
    out: list[str] = []
    for python in pythons or ("py3",):
        abi = "none" if python.startswith("py") else python
        out.extend(f"{python.rstrip('t')}-{abi}-{platform}" for platform in platforms)
    return tuple(out)
