"""Wheel tags matched against a target: the Pythons, C libraries and architectures that a file supports.

Sources: the platform compatibility tags specification of the Python packaging user guide; PEP 425, 513, 571, 599 and 600.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.source import File

_MANYLINUX = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_PLATFORM = re.compile(r"(?:(manylinux1|manylinux2010|manylinux2014)|manylinux_(\d+)_(\d+)|(linux))_(x86_64|aarch64)")
_PYTHON = re.compile(r"(cp|py)(\d)(\d*)")


class TargetPython(NamedTuple):
    """The interpreter and platform that a file must support; None = unknown, which every file supports."""

    python: tuple[int, int] | None
    free_threaded: bool
    arch: str
    glibc: tuple[int, int] | None

    @classmethod
    def of(cls, machine: Machine, *, any_libc: bool = False) -> TargetPython:
        """Target of a machine; with `any_libc`, whatever its C library."""
        return cls(machine.python, machine.free_threaded, machine.arch, None if any_libc else machine.glibc)


@lru_cache(maxsize=4096)  # the files of a package have few different tags
def serves_python(pythons: str, abis: str, target: TargetPython) -> bool:
    """True if the compressed Python and ABI tags (`cp38.cp39`, `abi3`) support the target's interpreter."""
    if target.python is None:
        return True
    return any(_serves(python, abi, target, target.python) for python in pythons.split(".") for abi in abis.split("."))


def _serves(python: str, abi: str, target: TargetPython, version: tuple[int, int]) -> bool:
    tag = _PYTHON.fullmatch(python)
    if tag is None or int(tag[2]) != version[0]:
        return False
    minor = int(tag[3]) if tag[3] else None
    if abi == "none":
        return minor == version[1] if tag[1] == "cp" else minor is None or minor <= version[1]
    if tag[1] == "py" or minor is None:
        return False
    if abi == "abi3":
        return minor <= version[1] and not target.free_threaded
    return minor == version[1] and abi.endswith("t") == target.free_threaded


@lru_cache(maxsize=4096)
def platform_floor(platforms: str, arch: str, glibc: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Lowest glibc among the compressed platform tags for `arch`: (0, 0) for any, None if no tag is for it.

    With a `glibc`, the highest one up to it.
    """
    best: tuple[int, int] | None = None
    for platform in platforms.split("."):
        if platform == "any":
            return (0, 0)
        tag = _PLATFORM.fullmatch(platform)
        if tag is None or (arch and tag[5] != arch):
            continue
        floor = (0, 0) if tag[4] else _MANYLINUX[tag[1]] if tag[1] else (int(tag[2]), int(tag[3]))
        if glibc is not None and floor > glibc:
            continue
        if best is None or (floor > best if glibc is not None else floor < best):
            best = floor
    return best


class Fit(NamedTuple):
    """How a set of files fits a target."""

    python: bool
    """Some file supports its Python."""
    arch: bool
    """Some file supports its architecture."""
    glibc: tuple[int, int] | None
    """Lowest glibc of a file for this Python and architecture; None if there is no such file."""


EVERYWHERE = Fit(python=True, arch=True, glibc=(0, 0))


def _split_tag(tag: str) -> tuple[str, str, str]:
    """Python, ABI and platform tags; an overlay's row may have fewer, which fit nothing and which `matrix check` reports."""
    pythons, _, rest = tag.partition("-")
    abis, _, platforms = rest.partition("-")
    return pythons, abis, platforms


def fit(tags: tuple[str, ...], target: TargetPython) -> Fit:
    """How files with these compressed tag sets (`cp311-cp311-manylinux_2_28_x86_64`) fit the target; an sdist fits everything."""
    python = arch = False
    glibc: tuple[int, int] | None = None
    for tag in tags:
        if tag == "sdist":
            return EVERYWHERE
        pythons, abis, platforms = _split_tag(tag)
        floor = platform_floor(platforms, target.arch)
        arch = arch or floor is not None
        if serves_python(pythons, abis, target):
            python = True
            if floor is not None and (glibc is None or floor < glibc):
                glibc = floor
    return Fit(python, arch, glibc)


def best_file(files: Iterable[File], target: TargetPython) -> File | None:
    """The file that an installer would choose for the target; a source archive if no wheel fits, None if nothing does.

    The order of packaging.tags: the interpreter's own ABI, then the newest stable ABI, then none; within an ABI the newest C library,
    then the highest build number.
    """
    best: File | None = None
    best_rank: tuple[int, ...] = ()
    for file in files:
        if not file.is_wheel:
            best = best or file
            continue
        pythons, abis, platforms = _split_tag(file.tag)
        floor = platform_floor(platforms, target.arch, target.glibc)
        if floor is None or not serves_python(pythons, abis, target):
            continue
        rank = (*_closeness(pythons, abis, target), *floor, _build_number(file.filename))
        if best is None or not best.is_wheel or rank > best_rank:
            best, best_rank = file, rank
    return best


def _closeness(pythons: str, abis: str, target: TargetPython) -> tuple[int, int]:
    """How specific a wheel is to the target's interpreter: higher is better."""
    best = (0, 0)
    for python in pythons.split("."):
        tag = _PYTHON.fullmatch(python)
        minor = int(tag[3]) if tag is not None and tag[3] else 0
        if tag is None or (target.python is not None and minor > target.python[1]):
            continue
        for abi in abis.split("."):
            specificity = 1 if abi == "none" else 2 if abi == "abi3" else 3
            if specificity == 1 and tag[1] == "py":
                specificity = 0
            best = max(best, (specificity, minor))
    return best


def _build_number(filename: str) -> int:
    parts = filename.split("-")
    digits = re.match(r"\d+", parts[2]) if len(parts) == 6 else None
    return int(digits[0]) if digits else 0


def interpreters_of(tag: str) -> set[str]:
    """Interpreters that a compressed tag set names, `cp313t` for a free-threaded one."""
    pythons, abis, _ = _split_tag(tag)
    return {f"{python}t" if abis == f"{python}t" else python for python in pythons.split(".")}


def tags_of(pythons: tuple[str, ...], arch: tuple[str, ...], glibc: str | None) -> tuple[str, ...]:
    """Assumed wheel tags of a build whose files are not listed: one for each Python and architecture, none abi3."""
    platforms = [f"manylinux_{glibc.replace('.', '_')}_{name}" if glibc else f"linux_{name}" for name in arch or ("x86_64",)]
    tags: list[str] = []
    for python in pythons or ("py3",):
        abi = "none" if python.startswith("py") else python
        tags.extend(f"{python.rstrip('t')}-{abi}-{platform}" for platform in platforms)
    return tuple(tags)
