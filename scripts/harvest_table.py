"""Wheel table of a project, made from its files on the index."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harvest_archive import Metadata
from harvest_index import RemoteFile
from harvest_marker import ARCHITECTURES, on_linux
from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

LEGACY = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}
"""Legacy platform names by PEP 600."""
OLDEST_PYTHON = Version("3.6")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A wheel for Linux with glibc."""

    file: RemoteFile
    interpreters: str
    abis: str
    platforms: tuple[str, ...]
    build: tuple[int, str] | tuple[()] = ()
    """Build tag; of two otherwise equal wheels the installer takes the higher one."""

    def python(self) -> str:
        """Return the only Python that it is for, `3.11`; empty if it is for several."""
        found = re.fullmatch(r"cp(\d)(\d+)", self.interpreters)
        return f"{found[1]}.{found[2]}" if found and self.abis != "abi3" else ""

    def rank(self) -> tuple[object, ...]:
        """Return a sort key for how well it represents its release: own platform, newest Python, plain ABI, newest build."""
        return "any" not in self.platforms, _natural(self.interpreters), -len(self.abis), self.build

    def serves(self, arch: str) -> bool:
        """True for wheels of the architecture or of any platform."""
        return any(platform == "any" or platform.endswith(f"_{arch}") for platform in self.platforms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """Usable files of one version: its wheels, or its source archive if there are none."""

    version: Version
    files: tuple[RemoteFile, ...]
    wheels: tuple[Wheel, ...]
    has_archive: bool = False
    """True if there is a source archive, too."""

    def best_wheel(self, arch: str) -> Wheel | None:
        """Return the wheel that represents the release on an architecture: of its own platform, for the newest Python."""
        served = sorted((wheel for wheel in self.wheels if wheel.serves(arch)), key=Wheel.rank)
        return served[-1] if served else None

    def metadata_files(self, arch: str, *, each_python: bool = False) -> list[tuple[str, RemoteFile]]:
        """Return the files with the metadata for an architecture, each with its Python; empty if no file serves it.

        Usually one file without a Python: the best wheel, or the source archive of a release without wheels. With `each_python`, if the
        best wheel is for a single Python, one wheel for each Python from 3.6 on, oldest first.
        """
        best = self.best_wheel(arch)
        if best is None:
            return [] if self.wheels else [("", self.files[-1])]
        if each_python and best.python():
            served = sorted((wheel for wheel in self.wheels if wheel.serves(arch)), key=Wheel.rank)
            by_python = {wheel.python(): wheel.file for wheel in served}
            found = [(python, file) for python, file in by_python.items() if python and Version(python) >= OLDEST_PYTHON]
            if found:
                return found
        return [("", best.file)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Selection of releases."""

    placeholders: frozenset[str] = frozenset()
    """Versions without content."""
    versions: tuple[str, ...] = ()
    """PEP 440 specifiers, of which a version must meet one; empty = any version."""
    since: str = ""
    """Earliest upload day, `2014-01-01`; releases without a known day are included."""
    prereleases: bool = False
    """True to include them even if there are final releases."""


def releases(project: str, files: Iterable[RemoteFile], span: Span) -> list[Release]:
    """Return the releases that Linux can install, oldest first; pre-releases if the span includes them or there are no others."""
    allowed = [SpecifierSet(text, prereleases=True) for text in span.versions or ("",)]
    wheels: dict[Version, list[Wheel]] = {}
    archives: dict[Version, list[RemoteFile]] = {}
    for file in files:
        name, version = _identity(file.name)
        if name != project or version is None:
            continue
        if not file.name.endswith(".whl"):
            archives.setdefault(version, []).append(file)
        elif wheel := _wheel(file):
            wheels.setdefault(version, []).append(wheel)
    found = {
        version
        for version in (*wheels, *archives)
        if str(version) not in span.placeholders and any(version in specifier for specifier in allowed)
    }
    kept = {version for version in found if span.prereleases or not version.is_prerelease} or found
    every = (
        Release(
            version=version,
            wheels=tuple(wheels.get(version, ())),
            files=tuple(wheel.file for wheel in wheels.get(version, ())) or tuple(archives[version]),
            has_archive=version in archives,
        )
        for version in sorted(kept)
    )
    return [release for release in every if max((file.day or "9" for file in release.files), default="9") >= span.since]


def _identity(name: str) -> tuple[str, Version | None]:
    """Return project and version of a wheel or source archive; no version for eggs, installers and names older than PEP 427, as in pip."""
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[:2]
        if name.endswith((".tar.gz", ".zip")):
            return parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        pass
    return name, None


def _wheel(file: RemoteFile) -> Wheel | None:
    """Return the wheel of a file; None if it is for other systems."""
    interpreters, abis, platforms = file.name.removesuffix(".whl").rsplit("-", 3)[1:]
    lowest: dict[str, tuple[list[tuple[int, str]], str]] = {}
    for plain in platforms.split("."):
        found = re.fullmatch(rf"(manylinux\w*?|linux)_({'|'.join(ARCHITECTURES)})", plain)
        if plain != "any" and found is None:
            continue
        arch = found[2] if found else "any"
        platform = f"{LEGACY.get(found[1], found[1])}_{arch}" if found else "any"
        lowest[arch] = min(lowest.get(arch, (_natural(platform), platform)), (_natural(platform), platform))
    kept = tuple(platform for _, platform in lowest.values())
    build = parse_wheel_filename(file.name)[2]
    return Wheel(file=file, interpreters=interpreters, abis=abis, platforms=kept, build=build) if kept else None


def tags(release: Release) -> list[str]:
    """Return compressed tag sets, with the wheels of one interpreter and ABI joined over their platforms.

    Includes `sdist` if there is a source archive and no wheel for Python 3 (clang 5.0).
    """
    joined: dict[tuple[str, str], set[str]] = {}
    for wheel in release.wheels:
        joined.setdefault((wheel.interpreters, wheel.abis), set()).update(wheel.platforms)
    keys = sorted(joined, key=lambda key: (_natural(key[0]), _natural(key[1])))
    found = [f"{key[0]}-{key[1]}-{'.'.join(sorted(joined[key], key=_natural))}" for key in keys]
    modern = any(re.search(r"(?:cp|py)3", key[0]) for key in keys)
    return found if modern or not release.has_archive else [*found, "sdist"]


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts cp39 before cp310."""
    spaced = re.sub(r"(?<=[a-z])([23])(\d+)", r"\1 \2", text)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", spaced)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A wheel table: `release` and `metadata` rows."""

    package: str
    release: list[dict[str, Any]]
    metadata: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """Selection of what is written of a release."""

    drop_extras: frozenset[str] = frozenset()
    """Extras left out together with their requirements."""
    keep_extras: frozenset[str] | None = None
    """The only extras kept; None = all that are not dropped."""
    dates: bool = True
    each_python: bool = False
    """True if the requirements may differ between the wheels of the Pythons."""

    def dropped(self, declared: Iterable[str]) -> frozenset[str]:
        """Return the extras to leave out, of those that a package declares."""
        if self.keep_extras is None:
            return self.drop_extras
        return self.drop_extras | (frozenset(map(canonicalize_name, declared)) - self.keep_extras)


def table(
    project: str,
    found: Sequence[Release],
    metadata: Callable[[RemoteFile], Metadata | None],
    chosen: Content,
    kept: Mapping[str, Mapping[str, dict[str, Any]]] | None = None,
) -> Table:
    """Return the table of a project; `metadata` returns that of a file, or None if it is unwanted or unreadable.

    `kept` has the entries of known releases, by version and architecture.
    """
    ids: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for release in found:
        numbers: dict[str, int] = {}
        for arch in ARCHITECTURES:
            if kept is not None and str(release.version) in kept:
                entry = kept[str(release.version)].get(arch)
            else:
                files = release.metadata_files(arch, each_python=chosen.each_python)
                read = {python: known for python, file in files if (known := metadata(file))}
                entry = merged({python: _entry(known, chosen.dropped(known.extras)) for python, known in read.items()})
            if entry is None:
                continue
            number = ids.setdefault(json.dumps(entry), len(ids) + 1)
            if number > len(entries):
                entries.append({"id": number, **entry})
            numbers[arch] = number
        rows.append({**plain_row(release, dates=chosen.dates), **_numbered(numbers)})
    return Table(package=project, release=rows, metadata=entries)


def merged(entries: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Merge the entries of wheels for several Pythons, oldest first, marking what only some require; None without entries."""
    if not entries:
        return None
    lines = {python: entry.get("requires", []) for python, entry in entries.items()}
    newest_first = [line for python in reversed(lines) for line in lines[python]]
    requires = []
    for line in dict.fromkeys(newest_first):
        requiring = [python for python in lines if line in lines[python]]
        requires.append(line if len(requiring) == len(lines) else _narrowed(line, requiring, list(lines)))
    extras = sorted({extra for entry in entries.values() for extra in entry.get("extras", [])})
    return {**({"requires": requires} if requires else {}), **({"extras": extras} if extras else {})}


def _narrowed(line: str, requiring: Sequence[str], pythons: Sequence[str]) -> str:
    """Return the requirement limited to some of the Pythons."""
    if list(requiring) == list(pythons[-len(requiring) :]):
        condition = f'python_version >= "{requiring[0]}"'
    elif list(requiring) == list(pythons[: len(requiring)]):
        condition = f'python_version <= "{requiring[-1]}"'
    else:
        condition = " or ".join(f'python_version == "{python}"' for python in requiring)
    requirement = Requirement(line)
    requirement.marker = Marker(f"({requirement.marker}) and ({condition})" if requirement.marker else condition)
    return str(requirement)


def plain_row(release: Release, *, dates: bool) -> dict[str, Any]:
    """Return the columns of a release that come from the page of the index."""
    row: dict[str, Any] = {"version": str(release.version)}
    days = [file.day for file in release.files if file.day]
    if dates and days:
        row["date"] = min(days)
    if all(file.yanked for file in release.files):
        row["yanked"] = True
    specifiers = [text for file in release.files if (text := _specifier(file.requires_python))]
    if specifiers:
        row["requires_python"] = specifiers[-1]
    return {**row, "tags": tags(release)}


def _specifier(text: str | None) -> str:
    """Strip a specifier of spaces; empty if it is invalid, which pip ignores, too."""
    plain = re.sub(r"\s+", "", text or "")
    try:
        SpecifierSet(plain)
    except InvalidSpecifier:
        return ""
    return plain


def _numbered(numbers: Mapping[str, int]) -> dict[str, Any]:
    if not numbers:
        return {}
    return {"metadata": next(iter(numbers.values())) if len(set(numbers.values())) == 1 else dict(numbers)}


def _entry(known: Metadata, dropped: frozenset[str]) -> dict[str, Any]:
    """Return normalized requirements, without those that do not apply on Linux or only with a dropped extra."""
    extras = sorted({canonicalize_name(extra) for extra in known.extras} - dropped)
    lines = []
    for text in known.requires:
        try:
            requirement = Requirement(re.sub(r"\s+", " ", text).strip())
        except InvalidRequirement:
            continue  # pip refuses such a line, too
        requirement.name = canonicalize_name(requirement.name)
        marker = on_linux(str(requirement.marker), dropped) if requirement.marker else ""
        if marker is not None:
            requirement.marker = Marker(marker) if marker else None
            lines.append(str(requirement))
    return {**({"requires": lines} if lines else {}), **({"extras": extras} if extras else {})}
