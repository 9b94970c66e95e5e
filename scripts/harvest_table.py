"""From the files of a project to the text of its wheel table."""

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
"""PEP 600: the names of before, and the glibc that they stand for."""
OLDEST_PYTHON = Version("3.6")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A wheel that a Linux machine with glibc may take."""

    file: RemoteFile
    interpreters: str
    abis: str
    platforms: tuple[str, ...]
    build: tuple[int, str] | tuple[()] = ()
    """Of two otherwise equal wheels the installer takes the one with the higher build tag."""

    def python(self) -> str:
        """The one Python that it is for, `3.11`; empty where it is for several."""
        found = re.fullmatch(r"cp(\d)(\d+)", self.interpreters)
        return f"{found[1]}.{found[2]}" if found and self.abis != "abi3" else ""

    def rank(self) -> tuple[object, ...]:
        """Orders the wheels of a release by how well they stand for it: its own platform, newest Python, plain ABI, newest build."""
        return "any" not in self.platforms, _natural(self.interpreters), -len(self.abis), self.build

    def serves(self, arch: str) -> bool:
        """True for the architecture's own wheels and for those of any platform."""
        return any(platform == "any" or platform.endswith(f"_{arch}") for platform in self.platforms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """The files of one version that count: its wheels, or where there are none its source archive."""

    version: Version
    files: tuple[RemoteFile, ...]
    wheels: tuple[Wheel, ...]
    has_archive: bool = False
    """True where there is a source archive, too."""

    def speakers(self, arch: str, *, each_python: bool = False) -> list[tuple[str, RemoteFile]]:
        """The files whose metadata stands for the architecture, each with its Python; none where no file serves it.

        One file without a Python, the best wheel or where there is no wheel at all the source archive; with `each_python`, where
        the best wheel is for one Python only, that of each Python from 3.6 on, oldest first.
        """
        served = sorted((one for one in self.wheels if one.serves(arch)), key=Wheel.rank)
        if not served:
            return [] if self.wheels else [("", self.files[-1])]
        if not each_python or not served[-1].python():
            return [("", served[-1].file)]
        best = {one.python(): one.file for one in served}
        return [(python, file) for python, file in best.items() if python and Version(python) >= OLDEST_PYTHON] or [("", served[-1].file)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Which releases count."""

    placeholders: frozenset[str] = frozenset()
    """Versions that hold nothing."""
    versions: tuple[str, ...] = ()
    """PEP 440 specifiers, of which a version meets one; empty = any version."""
    since: str = ""
    """Day of the first upload, `2014-01-01`; releases whose day the index does not say count."""
    prereleases: bool = False
    """Whether they count where there is something else."""


def releases(project: str, files: Iterable[RemoteFile], span: Span) -> list[Release]:
    """The releases that Linux can install, oldest first; pre-releases where the span says so or where there is nothing else."""
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
        version for version in (*wheels, *archives) if str(version) not in span.placeholders and any(version in one for one in allowed)
    }
    kept = {version for version in found if span.prereleases or not version.is_prerelease} or found
    every = (
        Release(
            version=version,
            wheels=tuple(wheels.get(version, ())),
            files=tuple(one.file for one in wheels.get(version, ())) or tuple(archives[version]),
            has_archive=version in archives,
        )
        for version in sorted(kept)
    )
    return [release for release in every if max((file.day or "9" for file in release.files), default="9") >= span.since]


def _identity(name: str) -> tuple[str, Version | None]:
    """Project and version of a wheel or source archive; no version for eggs, installers and names of before PEP 427, as in pip."""
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[:2]
        if name.endswith((".tar.gz", ".zip")):
            return parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        pass
    return name, None


def _wheel(file: RemoteFile) -> Wheel | None:
    """The wheel of a file; None where it is for other systems."""
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
    """Compressed tag sets, the wheels of one interpreter and ABI joined over their platforms.

    `sdist` stands where there is a source archive and no wheel, or none for Python 3 (clang 5.0).
    """
    joined: dict[tuple[str, str], set[str]] = {}
    for wheel in release.wheels:
        joined.setdefault((wheel.interpreters, wheel.abis), set()).update(wheel.platforms)
    keys = sorted(joined, key=lambda key: (_natural(key[0]), _natural(key[1])))
    found = [f"{key[0]}-{key[1]}-{'.'.join(sorted(joined[key], key=_natural))}" for key in keys]
    modern = any(re.search(r"(?:cp|py)3", key[0]) for key in keys)
    return found if modern or not release.has_archive else [*found, "sdist"]


def _natural(text: str) -> list[tuple[int, str]]:
    """A sort key in which cp39 stands before cp310."""
    spaced = re.sub(r"(?<=[a-z])([23])(\d+)", r"\1 \2", text)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", spaced)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A wheel table, decoded: `release` and `metadata` rows."""

    package: str
    release: list[dict[str, Any]]
    metadata: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What is written of a release."""

    drop_extras: frozenset[str] = frozenset()
    """Left out with their requirements."""
    keep_extras: frozenset[str] | None = None
    """The only ones that are not; None = all that are not dropped."""
    dates: bool = True
    each_python: bool = False
    """Whether the wheels of the Pythons may differ in what they require."""

    def dropped(self, declared: Iterable[str]) -> frozenset[str]:
        """Those that a package loses of the extras that it declares."""
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
    """The table of a project; `metadata` gives that of a file, None where it is not wanted or cannot be read.

    `kept` are entries of releases that are known already, by version and architecture.
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
                said = {python: metadata(file) for python, file in release.speakers(arch, each_python=chosen.each_python)}
                entry = merged({python: _entry(known, chosen.dropped(known.extras)) for python, known in said.items() if known})
            if entry is None:
                continue
            number = ids.setdefault(json.dumps(entry), len(ids) + 1)
            if number > len(entries):
                entries.append({"id": number, **entry})
            numbers[arch] = number
        rows.append({**plain_row(release, dates=chosen.dates), **_numbered(numbers)})
    return Table(package=project, release=rows, metadata=entries)


def merged(entries: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """One entry for the wheels of several Pythons, oldest first: what only some of them require gets a marker that says which.

    None where there is none.
    """
    if not entries:
        return None
    lines = {python: entry.get("requires", []) for python, entry in entries.items()}
    newest_first = [line for python in reversed(lines) for line in lines[python]]
    requires = []
    for line in dict.fromkeys(newest_first):
        asking = [python for python in lines if line in lines[python]]
        requires.append(line if len(asking) == len(lines) else _narrowed(line, asking, list(lines)))
    extras = sorted({extra for entry in entries.values() for extra in entry.get("extras", [])})
    return {**({"requires": requires} if requires else {}), **({"extras": extras} if extras else {})}


def _narrowed(line: str, asking: Sequence[str], pythons: Sequence[str]) -> str:
    """The requirement for some of the Pythons only."""
    if list(asking) == list(pythons[-len(asking) :]):
        condition = f'python_version >= "{asking[0]}"'
    elif list(asking) == list(pythons[: len(asking)]):
        condition = f'python_version <= "{asking[-1]}"'
    else:
        condition = " or ".join(f'python_version == "{python}"' for python in asking)
    requirement = Requirement(line)
    requirement.marker = Marker(f"({requirement.marker}) and ({condition})" if requirement.marker else condition)
    return str(requirement)


def plain_row(release: Release, *, dates: bool) -> dict[str, Any]:
    """What the page of the index says of a release."""
    row: dict[str, Any] = {"version": str(release.version)}
    days = [file.day for file in release.files if file.day]
    if dates and days:
        row["date"] = min(days)
    if all(file.yanked for file in release.files):
        row["yanked"] = True
    asked = [text for file in release.files if (text := _specifier(file.requires_python))]
    if asked:
        row["requires_python"] = asked[-1]
    return {**row, "tags": tags(release)}


def _specifier(text: str | None) -> str:
    """Without blanks; empty where it is none, which pip passes over, too."""
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
    """Requirements in one spelling, without those that no Linux can need and those that only a dropped extra brings."""
    extras = sorted({canonicalize_name(one) for one in known.extras} - dropped)
    lines = []
    for text in known.requires:
        try:
            requirement = Requirement(re.sub(r"\s+", " ", text).strip())
        except InvalidRequirement:
            continue  # pip refuses such a line, too: the release is as good as without it
        requirement.name = canonicalize_name(requirement.name)
        marker = on_linux(str(requirement.marker), dropped) if requirement.marker else ""
        if marker is not None:
            requirement.marker = Marker(marker) if marker else None
            lines.append(str(requirement))
    return {**({"requires": lines} if lines else {}), **({"extras": extras} if extras else {})}
