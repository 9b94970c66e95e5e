"""What people look up: one line of answers for each build of a framework, put together from several tables."""

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
_WINDOWED = ("==", "~=", "===", "<", "<=")
"""Operators that end somewhere; a companion that asks for `>=` alone pairs with everything."""


class Entry(Struct, frozen=True, kw_only=True):
    """One build with what follows from it."""

    build: Build
    pythons: tuple[str, ...] = ()
    """`3.9`, `3.13t`, `3.6+` (stable ABI); empty = not known."""
    driver_minor: DriverVersion | None = None
    """The oldest driver under minor-version compatibility; None for CPU builds and where it is not known."""
    driver_strict: DriverVersion | None = None
    """The toolkit's own driver."""
    requires: tuple[str, ...] | None = None
    """Requires-Dist lines of the wheel on x86_64, or on the one architecture that it has; None = not known."""
    companions: tuple[tuple[str, str], ...] = ()
    """Companion and its newest release that takes this version."""
    date: str | None = None
    """The day of its release: of its wheel, or of the same version on the default index."""


class Digest(Struct, frozen=True, kw_only=True):
    """A framework with its builds, newest first."""

    framework: Framework
    entries: tuple[Entry, ...]


def digest(book: Book, name: str, versions: SpecifierSet | None = None) -> Digest:
    """The digest of a framework, of the releases in `versions` only where that is given; KeyError for an unknown framework."""
    framework = book.framework(name)
    chosen = [one for one in framework.builds if versions is None or versions.contains(one.version, prereleases=True)]
    pairs = _pairs(book, framework, {one.version for one in chosen})
    releases = {package: {one.version: one for one in book.releases(package)} for package in {one.package for one in chosen}}
    entries = [_entry(book, one, releases[one.package], pairs.get(one.version, ())) for one in chosen]
    # A stable sort: rows of one version stay in the order of the table, which is the order of preference.
    entries.sort(key=lambda one: Version(one.build.version), reverse=True)
    return Digest(framework=framework, entries=tuple(entries))


def bounds_for(framework: Framework, version: str) -> tuple[Bound, ...]:
    """The bounds that one version of the framework has itself."""
    from packaging.specifiers import SpecifierSet  # not needed for `matrix list`

    own = (one for one in framework.bounds if one.package in (None, *framework.packages))
    return tuple(one for one in own if SpecifierSet(one.versions).contains(version, prereleases=True))


def traps_for(book: Book, framework: Framework, version: str) -> tuple[Trap, ...]:
    """The traps of one version."""
    from packaging.specifiers import SpecifierSet

    return tuple(one for one in book.traps(framework.name) if SpecifierSet(one.versions).contains(version, prereleases=True))


def capabilities_text(targets: Iterable[CodeTarget], first: Capability | None = None) -> str:
    """Compute capabilities in few letters: `5.0-9.0`, `3.5-7.5+PTX`, `3.5+ (docs)`; empty where nothing is known."""
    code = list(targets)
    cubins = sorted({one.capability for one in code if one.kind == "cubin"})
    ptx = sorted({one.capability for one in code if one.kind == "ptx"})
    if not code:
        return f"{first}+ (docs)" if first else ""
    low, high = min((*cubins, *ptx)), max((*cubins, *ptx))
    return f"{low if low == high else f'{low}-{high}'}{'+PTX' if ptx else ''}"


def pythons_text(pythons: Iterable[str]) -> str:
    """Python versions in few letters: `3.9-3.12`, `3.7 3.9`; builds without the GIL (`3.13t`) are left out."""
    known = list(pythons)
    if any(one.endswith("+") for one in known):
        return min((one for one in known if one.endswith("+")), key=_python_key)
    runs: list[list[str]] = []
    for one in sorted((one for one in known if not one.endswith("t")), key=_python_key):
        major, minor = _python_key(one)
        if runs and _python_key(runs[-1][-1]) == (major, minor - 1):
            runs[-1].append(one)
        else:
            runs.append([one])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def pythons_of(tags: Iterable[str], arch: Iterable[str] = ()) -> tuple[str, ...]:
    """The Python versions that compressed wheel tags serve, oldest first; with `arch`, on one of these architectures."""
    found: set[str | None] = set()
    wanted = tuple(arch)
    for tag in tags:
        interpreters, _, rest = tag.partition("-")
        abis, _, platforms = rest.partition("-")
        if wanted and platforms != "any" and not any(one in platforms for one in wanted):
            continue
        found.update(_python(one, abis) for one in interpreters.split("."))
    return tuple(sorted(filter(None, found), key=lambda one: (_python_key(one), one)))


def _bounded(pythons: tuple[str, ...], release: WheelRelease | None) -> tuple[str, ...]:
    """The Python versions; where the files are for every Python 3, from the one on that the metadata asks for."""
    least = re.search(r">=\s*(3\.\d+)", release.requires_python or "") if release else None
    if least is None or not any(one.endswith(".0+") for one in pythons):
        return pythons
    return tuple(f"{least[1]}+" if one == "3.0+" else one for one in pythons if one != "2.0+")


def _python(interpreter: str, abis: str) -> str | None:
    match = _INTERPRETER.fullmatch(interpreter)
    if match is None:
        return None
    free = "t" if abis.endswith("t") or match[3] else ""
    return f"{match[1]}.{match[2] or '0'}{free}{'+' if abis == 'abi3' or (interpreter.startswith('py') and not match[2]) else ''}"


def _python_key(text: str) -> tuple[int, int]:
    major, _, minor = text.rstrip("t+").partition(".")
    return int(major), int(minor or 0)


def _entry(book: Book, build: Build, releases: Mapping[str, WheelRelease], companions: tuple[tuple[str, str], ...]) -> Entry:
    release = releases.get(build.wheel_version)
    dated = release or releases.get(build.version)
    harvested = release if build.index == "default" else None
    given = tuple(filter(None, (_python(one, one) for one in build.pythons)))
    strict = book.toolkit_driver(build.cuda) if build.cuda else None
    floors = [one for one in (strict, book.floor(build.cuda.major) if build.cuda else None) if one is not None]
    requires = build.requires
    if requires is None and harvested and harvested.requires:
        requires = next((harvested.requires[one] for one in (*build.arch, "x86_64", "aarch64") if one in harvested.requires), None)
    return Entry(
        build=build,
        pythons=_bounded(given or (pythons_of(harvested.tags, build.arch) if harvested else ()), release),
        driver_minor=_newest(min(floors, default=None), build.driver),
        driver_strict=_newest(strict, build.driver),
        requires=requires,
        companions=companions,
        date=build.date or (dated.date if dated else None),
    )


def _newest(*versions: DriverVersion | None) -> DriverVersion | None:
    return max((one for one in versions if one is not None), default=None)


def _pairs(book: Book, framework: Framework, versions: set[str]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """For each version its companions, each with its newest release that takes this version and not any other one as well."""
    pairs: dict[str, dict[str, str]] = {version: {} for version in versions}
    for companion in framework.companions:
        seen: dict[str, frozenset[str]] = {}
        for release in book.releases(companion):
            for line in _about(framework, release):
                if line not in seen:
                    seen[line] = _taken(line, framework, versions)
                for version in seen[line]:
                    pairs[version][companion] = release.version
    return {version: tuple(found.items()) for version, found in pairs.items()}


def _about(framework: Framework, release: WheelRelease) -> set[str]:
    """The lines of a release that speak of the framework, extras apart."""
    names = tuple(framework.packages)
    every = (line for lines in (release.requires or {}).values() for line in lines)
    return {line for line in every if line.startswith(names) and "extra" not in line}


def _taken(line: str, framework: Framework, versions: set[str]) -> frozenset[str]:
    from packaging.requirements import Requirement

    wanted = Requirement(line)
    if wanted.name not in framework.packages or not any(one.operator in _WINDOWED for one in wanted.specifier):
        return frozenset()
    return frozenset(version for version in versions if wanted.specifier.contains(version, prereleases=True))
