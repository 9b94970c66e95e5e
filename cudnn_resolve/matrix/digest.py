"""Digest of a framework: for each build, the answers that people look up, combined from several tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.version import Version

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import Bound, Build, Framework, Trap, WheelRelease
from cudnn_resolve.version import Capability, CodeTarget, DriverVersion

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_INTERPRETER = re.compile(r"(?:cp|py)(\d)(\d*)(t?)")
_BOUNDED_ABOVE = ("==", "~=", "===", "<", "<=")
"""Operators with an upper end; a companion that requires only `>=` pairs with everything."""


class Entry(Struct, frozen=True, kw_only=True):
    """A build and what follows from it."""

    build: Build
    pythons: tuple[str, ...] = ()
    """`3.9`, `3.13t`, `3.6+` (stable ABI); empty = unknown."""
    driver_minor: DriverVersion | None = None
    """Oldest driver under minor-version compatibility; None for CPU builds or if unknown."""
    driver_strict: DriverVersion | None = None
    """The toolkit's own driver."""
    requires: tuple[str, ...] | None = None
    """Requires-Dist lines of the wheel on x86_64, or on its only architecture; None = unknown."""
    companions: tuple[tuple[str, str], ...] = ()
    """Each companion with its newest release that accepts this version."""
    date: str | None = None
    """Release day of its wheel, or of the same version on the default index."""


class Digest(Struct, frozen=True, kw_only=True):
    """A framework with its builds, newest first."""

    framework: Framework
    entries: tuple[Entry, ...]


def digest(book: Book, name: str, versions: SpecifierSet | None = None) -> Digest:
    """Return the digest of a framework, limited to `versions` if given; KeyError for an unknown framework."""
    framework = book.framework(name)
    builds = [build for build in framework.builds if versions is None or versions.contains(build.version, prereleases=True)]
    companions = _companions(book, framework, {build.version for build in builds})
    entries = [_entry(book, build, companions[build.version]) for build in builds]
    # Stable: rows of one version keep the order of the table, which is the order of preference.
    entries.sort(key=lambda entry: Version(entry.build.version), reverse=True)
    return Digest(framework=framework, entries=tuple(entries))


def bounds_for(framework: Framework, version: str) -> tuple[Bound, ...]:
    """Return the bounds of the framework's own packages for one version."""
    from packaging.specifiers import SpecifierSet  # not needed for `matrix list`

    own = (bound for bound in framework.bounds if bound.package in (None, *framework.packages))
    return tuple(bound for bound in own if SpecifierSet(bound.versions).contains(version, prereleases=True))


def traps_for(book: Book, framework: str, version: str) -> tuple[Trap, ...]:
    """Return the traps of one version."""
    from packaging.specifiers import SpecifierSet

    return tuple(trap for trap in book.traps(framework) if SpecifierSet(trap.versions).contains(version, prereleases=True))


def capabilities_text(targets: Iterable[CodeTarget], first: Capability | None = None) -> str:
    """Abbreviate compute capabilities: `5.0-9.0`, `3.5-7.5+PTX`, `3.5+ (docs)`; empty if unknown."""
    code = list(targets)
    if not code:
        return f"{first}+ (docs)" if first else ""
    low = min(target.capability for target in code)
    high = max(target.capability for target in code)
    ptx = any(target.kind == "ptx" for target in code)
    return f"{low if low == high else f'{low}-{high}'}{'+PTX' if ptx else ''}"


def pythons_text(pythons: Iterable[str]) -> str:
    """Abbreviate Python versions: `3.9-3.12`, `3.7 3.9`; free-threaded builds (`3.13t`) are left out."""
    known = list(pythons)
    open_ended = [python for python in known if python.endswith("+")]
    if open_ended:
        return min(open_ended, key=_python_key)
    runs: list[list[str]] = []
    for python in sorted((python for python in known if not python.endswith("t")), key=_python_key):
        major, minor = _python_key(python)
        if runs and _python_key(runs[-1][-1]) == (major, minor - 1):
            runs[-1].append(python)
        else:
            runs.append([python])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def pythons_of(tags: Iterable[str], arch: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the Python versions that compressed wheel tags support, oldest first; with `arch`, only on these architectures."""
    found: set[str | None] = set()
    wanted = tuple(arch)
    for tag in tags:
        interpreters, _, rest = tag.partition("-")
        abis, _, platforms = rest.partition("-")
        if wanted and platforms != "any" and not any(name in platforms for name in wanted):
            continue
        found.update(_python(interpreter, abis) for interpreter in interpreters.split("."))
    return tuple(sorted(filter(None, found), key=lambda python: (_python_key(python), python)))


def _python(interpreter: str, abis: str) -> str | None:
    match = _INTERPRETER.fullmatch(interpreter)
    if match is None:
        return None
    free_threaded = "t" if abis.endswith("t") or match[3] else ""
    open_ended = "+" if abis == "abi3" or (interpreter.startswith("py") and not match[2]) else ""
    return f"{match[1]}.{match[2] or '0'}{free_threaded}{open_ended}"


def _python_key(text: str) -> tuple[int, int]:
    major, _, minor = text.rstrip("t+").partition(".")
    return int(major), int(minor or 0)


def _from_requires_python(pythons: tuple[str, ...], release: WheelRelease | None) -> tuple[str, ...]:
    """Raise `3.0+` to the lower bound of Requires-Python, and drop `2.0+` with it."""
    least = re.search(r">=\s*(3\.\d+)", release.requires_python or "") if release else None
    if least is None or not any(python.endswith(".0+") for python in pythons):
        return pythons
    return tuple(f"{least[1]}+" if python == "3.0+" else python for python in pythons if python != "2.0+")


def _entry(book: Book, build: Build, companions: tuple[tuple[str, str], ...]) -> Entry:
    release = book.release(build.package, build.wheel_version)
    dated = release or book.release(build.package, build.version)
    harvested = release if build.index == "default" else None
    given = tuple(filter(None, (_python(tag, tag) for tag in build.pythons)))
    strict, minor = (book.toolkit_driver(build.cuda), book.oldest_driver(build.cuda)) if build.cuda else (None, None)
    requires = build.requires
    if requires is None and harvested and harvested.requires:
        by_arch = harvested.requires
        requires = next((by_arch[arch] for arch in (*build.arch, "x86_64", "aarch64") if arch in by_arch), None)
    return Entry(
        build=build,
        pythons=_from_requires_python(given or (pythons_of(harvested.tags, build.arch) if harvested else ()), release),
        driver_minor=_newest(minor, build.driver),
        driver_strict=_newest(strict, build.driver),
        requires=requires,
        companions=companions,
        date=build.date or (dated.date if dated else None),
    )


def _newest(*versions: DriverVersion | None) -> DriverVersion | None:
    return max((version for version in versions if version is not None), default=None)


def _companions(book: Book, framework: Framework, versions: set[str]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return for each version its companions, each with the newest release that requires this version."""
    newest: dict[str, dict[str, str]] = {version: {} for version in versions}
    for companion in framework.companions:
        accepted: dict[str, frozenset[str]] = {}
        for release in book.releases(companion):
            for line in _lines_about(framework, release):
                if line not in accepted:
                    accepted[line] = _accepted(line, framework, versions)
                for version in accepted[line]:
                    newest[version][companion] = release.version
    return {version: tuple(found.items()) for version, found in newest.items()}


def _lines_about(framework: Framework, release: WheelRelease) -> set[str]:
    """Return the Requires-Dist lines of a release about the framework, without those of extras."""
    every = (line for lines in (release.requires or {}).values() for line in lines)
    return {line for line in every if line.startswith(framework.packages) and "extra" not in line}


def _accepted(line: str, framework: Framework, versions: set[str]) -> frozenset[str]:
    from packaging.requirements import Requirement

    requirement = Requirement(line)
    if requirement.name not in framework.packages or not any(clause.operator in _BOUNDED_ABOVE for clause in requirement.specifier):
        return frozenset()
    return frozenset(version for version in versions if requirement.specifier.contains(version, prereleases=True))
