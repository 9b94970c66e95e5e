"""What other tools say is installed, or will be: their locks, lists and requirements files, recognised by content.

From a lock for several platforms and groups the packages are taken that the tool itself would install on the machine by default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Struct
from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import parse_toml
from cudnn_resolve.resolution.marker import marker_environment

if TYPE_CHECKING:
    from cudnn_resolve.requirement.machine import Machine

LIMIT_BYTES = 64 << 20
_PACKAGES = 50_000
_SECTIONS = 2_000_000
"""Steps of a walk through a lock; the largest real ones need a few ten thousand."""


class Listed(Struct, frozen=True, kw_only=True):
    """One package of a list."""

    name: str
    """Normalized."""
    version: str
    line: int | None = None
    """Where it stands in the file; None where that is not known."""
    files: tuple[str, ...] = ()
    """Names of the files that the lock holds of it."""


class PackageList(Struct, frozen=True, kw_only=True):
    """The packages of one file on one machine."""

    kind: str
    """What wrote it: `uv.lock`, `pip list`, …"""
    packages: tuple[Listed, ...]
    notes: tuple[str, ...] = ()
    """What of it is not judged, in words."""
    gaps: tuple[str, ...] = ()
    """What the file says and nobody followed, so that a verdict on the rest is no verdict on all."""


def read_list(text: str, where: str, machine: Machine) -> PackageList:
    """The packages that a file lists for a machine; InputError where it is of no known form, or pins nothing."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    kind, found = _recognised(text, where)
    environment = marker_environment(machine)
    notes = _Notes()
    rows = list(_READERS[kind](found, environment, notes))
    if len(rows) > _PACKAGES:
        raise InputError(f"{where} lists more than {_PACKAGES} packages", code="list-too-long")
    if not rows:
        hint = "`cudnn-resolve plan -r FILE` resolves what is not pinned; `cudnn-resolve lock` pins it"
        raise InputError(
            f"{where} pins no package for this machine ({kind})", code="list-empty", context="; ".join(notes.said()) or None, hint=hint
        )
    lines = _lines(text, is_lock=kind.endswith((".lock", ".toml")))
    packages: dict[str, Listed] = {}
    for name, version, files in rows:
        known = packages.setdefault(name, Listed(name=name, version=version, line=lines(name, version), files=files))
        if known.version != version:
            notes.gap(f"{name} is listed twice, as {known.version} and {version}: the first counts")
    return PackageList(kind=kind, packages=tuple(packages.values()), notes=tuple(notes.harmless), gaps=tuple(notes.gaps))


class _Notes:
    """What is to be said of a list."""

    def __init__(self) -> None:
        self.harmless: dict[str, None] = {}
        self.gaps: dict[str, None] = {}

    def append(self, text: str) -> None:
        """Note what changes no verdict."""
        self.harmless.setdefault(text)

    def gap(self, text: str) -> None:
        """Note what could change a verdict; of many the first are kept."""
        if len(self.gaps) < _GAPS:
            self.gaps.setdefault(text)

    def said(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.gaps, *self.harmless)


_GAPS = 6
Row = tuple[str, str, tuple[str, ...]]
Rows = Iterator[Row]


def _recognised(text: str, where: str) -> tuple[str, Any]:
    """What wrote a text, and the text parsed as far as that takes."""
    start = text.lstrip("\ufeff \t\r\n")
    if re.match(r"\{|\[\s*[\]{]", start):
        kind = _json_kind(found := _json(start, where))
        if kind is not None:
            return kind, found
    if re.match(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*(?:\[\[?[\w.-]+\]\]?|[\w-]+\s*=\s*[\[{\"'\d])", text):
        found = parse_toml(text, where)
        kind = _toml_kind(found)
        if kind is not None:
            return kind, found
    for kind, sign in _TEXTS:
        if sign.search(text):
            return kind, text
    if re.search(r"^(?:dependencies|environments|package):", text, re.MULTILINE):
        raise InputError(f"{where} is a file of conda or pixi, which is not read yet", code="list-form", hint=_CONDA_HINT)
    return "requirements file", text


_CONDA_HINT = "`conda list` or `conda list --json` in the environment gives a list that is read"
_TEXTS = (
    ("pip list", re.compile(r"^Package +Version[^\n]*\n-{3,} +-{3,}", re.MULTILINE)),
    ("conda list", re.compile(r"^# packages in environment at |^# +Name +Version +Build", re.MULTILINE)),
)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error!s:.200}", code="list-form") from None


def _json_kind(found: Any) -> str | None:
    if isinstance(found, dict) and "nbformat" in found:
        raise InputError("a notebook is not read yet", code="list-form", hint="`pip freeze` where it runs gives a list that is read")
    if isinstance(found, list):
        rows = [one for one in found if isinstance(one, dict)]
        return "conda list --json" if any("channel" in one or "build_string" in one for one in rows) else "pip list --format json"
    if isinstance(found.get("_meta"), dict) and isinstance(found.get("default"), dict):
        return "Pipfile.lock"
    return None


def _toml_kind(found: Mapping[str, Any]) -> str | None:
    if "lock-version" in found and isinstance(found.get("packages"), list):
        return "pylock.toml"
    metadata = found.get("metadata")
    if isinstance(found.get("package"), list):
        if isinstance(metadata, dict) and "lock-version" in metadata:
            return "poetry.lock"
        if isinstance(metadata, dict) and "lock_version" in metadata:
            return "pdm.lock"
        if "version" in found:
            return "uv.lock"
    return None


# ---- markers, names and files


def _holds(marker: Any, environment: Mapping[str, str], more: Mapping[str, Any] | None = None) -> bool:
    """True where a marker holds on the machine; one that cannot be judged does not exclude a package."""
    if not isinstance(marker, str) or not marker.strip():
        return True
    try:
        return Marker(marker).evaluate({"extra": "", **environment, **(more or {})})
    except _NO_MARKER:
        return True


_NO_MARKER = (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError)
"""What packaging raises for markers that are none, that compare what cannot be compared, or that are made to hurt."""


def _row(name: Any, version: Any, notes: _Notes, files: Iterable[Any] = ()) -> Iterator[Row]:
    """A row, where name and version are some."""
    if not isinstance(name, str) or not isinstance(version, str) or not name:
        return
    try:
        Version(version)
    except (InvalidVersion, ValueError):
        notes.gap(f"{name[:60]} has no version that can be read: {version[:40]!r}")
        return
    yield canonicalize_name(name), version, tuple(file for file in files if isinstance(file, str))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _files_of(one: Mapping[str, Any]) -> Iterator[str]:
    """Names of the wheels and of the source archive of an entry."""
    sdist = one.get("sdist")
    return _file_names([*_dicts(one.get("wheels")), *([sdist] if isinstance(sdist, dict) else [])])


def _file_names(rows: Any) -> Iterator[str]:
    """File names of wheels, as `file`, `filename` or the end of `url` says them."""
    for one in _dicts(rows):
        name = one.get("file") or one.get("filename") or one.get("name") or str(one.get("url") or "").partition("#")[0].rpartition("/")[2]
        if isinstance(name, str) and name:
            yield name


_IN_LOCKS = re.compile(r"""\s*(?:name\s*=\s*["']|["'])([A-Za-z0-9][\w.-]{0,120})["']""")
_IN_LISTS = re.compile(r"""[\s\[{]*(?:"name"\s*:\s*")?([A-Za-z0-9][\w.-]{0,120})""")


def _lines(text: str, *, is_lock: bool) -> Callable[[str, str], int | None]:
    """A function that finds the line on which a package is pinned; in a lock that is where its name stands."""
    lines = text.split("\n")
    by_name: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=1):
        found = (_IN_LOCKS if is_lock else _IN_LISTS).match(line[:400])
        if found:
            by_name.setdefault(canonicalize_name(found[1]), []).append(number)

    def line_of(name: str, version: str) -> int | None:
        places = by_name.get(name, [])
        after = 1 if is_lock else 0
        exact = (number for number in places if any(version in line for line in lines[number - 1 : number + after]))
        return next(exact, places[0] if places else None)

    return line_of


# ---- one reader for each form


def _pylock(found: dict[str, Any], environment: Mapping[str, str], notes: _Notes) -> Rows:
    stated = found.get("default-groups")
    groups = frozenset(one for one in stated if isinstance(one, str)) if isinstance(stated, list) else frozenset[str]()
    more = {"extras": frozenset[str](), "dependency_groups": groups}
    for one in _dicts(found["packages"]):
        if _lock_marker_holds(one.get("marker"), {**environment, **more}):
            if not isinstance(one.get("version"), str):
                notes.gap(f"{one.get('name')!s:.60} has no version in the lock: it comes from a folder or a repository")
            yield from _row(one.get("name"), one.get("version"), notes, _files_of(one))


def _lock_marker_holds(marker: Any, environment: dict[str, Any]) -> bool:
    try:
        return not isinstance(marker, str) or Marker(marker).evaluate(environment, context="lock_file")
    except _NO_MARKER:
        return True


def _uv(found: dict[str, Any], environment: Mapping[str, str], notes: _Notes) -> Rows:
    """What `uv sync` installs: from the project on, its dependencies and its group `dev`."""
    packages: dict[str, list[dict[str, Any]]] = {}
    for one in _dicts(found["package"]):
        packages.setdefault(canonicalize_name(str(one.get("name"))), []).append(one)
    roots = _uv_roots(packages, notes)
    waiting: list[tuple[dict[str, Any], frozenset[str]]] = [(one, frozenset()) for one in roots]
    seen: set[tuple[int, str]] = set()
    steps = 0
    while waiting and steps < _SECTIONS:
        one, extras = waiting.pop()
        for section in ("", *extras):
            if (id(one), section) in seen:
                continue
            seen.add((id(one), section))
            if not section and not _is_project(one):
                yield from _row(one.get("name"), one.get("version"), notes, _files_of(one))
            for needed in _uv_dependencies(one, section):
                steps += 1
                if _holds(needed.get("marker"), environment):
                    wanted = needed.get("extra")
                    more = frozenset(each for each in wanted if isinstance(each, str)) if isinstance(wanted, list) else frozenset[str]()
                    candidates = packages.get(canonicalize_name(str(needed.get("name"))), [])
                    waiting += [(each, more) for each in _uv_fork(candidates, needed, environment)]
    if waiting:
        notes.gap("the lock is too entangled to be followed to its end")
    if any(one.get("optional-dependencies") for one in roots):
        notes.append("extras of the project are left out, as `uv sync` leaves them out")


def _uv_roots(packages: Mapping[str, list[dict[str, Any]]], notes: _Notes) -> list[dict[str, Any]]:
    """The project of the lock's own folder, else all of its projects, else everything."""
    projects = [one for rows in packages.values() for one in rows if _is_project(one)]
    if not projects:
        notes.append("the lock names no project: everything in it is judged")
        return [one for rows in packages.values() for one in rows]
    return [one for one in projects if "." in one["source"].values()] or projects


def _is_project(one: Mapping[str, Any]) -> bool:
    source = one.get("source")
    return isinstance(source, dict) and bool(source.keys() & {"virtual", "editable"})


def _uv_dependencies(one: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    if section:
        optional = one.get("optional-dependencies")
        return _dicts(optional.get(section)) if isinstance(optional, dict) else []
    groups = one.get("dev-dependencies")
    return [*_dicts(one.get("dependencies")), *(_dicts(groups.get("dev")) if isinstance(groups, dict) else [])]


def _uv_fork(candidates: list[dict[str, Any]], needed: Mapping[str, Any], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Of several versions the one that the dependency names, else those whose markers hold."""
    version = needed.get("version")
    named = [one for one in candidates if version is None or one.get("version") == version]

    def is_here(one: Mapping[str, Any]) -> bool:
        markers = one.get("resolution-markers")
        return not isinstance(markers, list) or any(_holds(marker, environment) for marker in markers)

    return [one for one in named if is_here(one)] if len(named) > 1 else named


def _poetry(found: dict[str, Any], environment: Mapping[str, str], notes: _Notes) -> Rows:
    """What `poetry install` installs: all groups, no extras; before Poetry 2 the lock has no markers."""
    rows = _dicts(found["package"])
    if not any("groups" in one for one in rows):
        notes.gap("a lock of Poetry 1 names no markers: everything in it that is not optional is judged")
    for one in rows:
        marker = one.get("markers")
        if isinstance(marker, dict):  # by group; a group that is not named has no condition
            groups = one.get("groups")
            free = any(group not in marker for group in groups) if isinstance(groups, list) else False
            marker = None if free else " or ".join(f"({each})" for each in marker.values() if isinstance(each, str)) or None
        if not one.get("optional") and _holds(marker, environment):
            yield from _row(one.get("name"), one.get("version"), notes, _file_names(one.get("files")))


def _pdm(found: dict[str, Any], environment: Mapping[str, str], notes: _Notes) -> Rows:
    """What `pdm sync` installs: the default group and dev."""
    left = set()
    for one in _dicts(found["package"]):
        groups = one.get("groups")
        wanted = not isinstance(groups, list) or not groups or {"default", "dev"} & set(map(str, groups))
        left |= set() if wanted or not isinstance(groups, list) else set(map(str, groups))
        if wanted and _holds(one.get("marker"), environment):
            yield from _row(one.get("name"), one.get("version"), notes, _file_names(one.get("files")))
    if left:
        notes.append(f"groups that are left out: {', '.join(sorted(left))}")


def _pipfile(found: dict[str, Any], environment: Mapping[str, str], notes: _Notes) -> Rows:
    """The default packages of Pipenv."""
    if found.get("develop"):
        notes.append("the develop packages are left out")
    for name, one in found["default"].items():
        if isinstance(one, dict) and _holds(one.get("markers"), environment):
            yield from _row(name, str(one.get("version", "")).removeprefix("=="), notes)


def _pip_json(found: list[Any], _environment: Mapping[str, str], notes: _Notes) -> Rows:
    for one in _dicts(found):
        yield from _row(one.get("name"), one.get("version"), notes)


def _conda_json(found: list[Any], _environment: Mapping[str, str], notes: _Notes) -> Rows:
    yield from _of_conda(((one.get("name"), one.get("version"), one.get("channel")) for one in _dicts(found)), notes)


def _conda_list(text: str, _environment: Mapping[str, str], notes: _Notes) -> Rows:
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    yield from _of_conda(((row[0], row[1], row[-1] if len(row) > 2 else None) for row in rows if len(row) > 1), notes)


def _of_conda(rows: Iterable[tuple[Any, Any, Any]], notes: _Notes) -> Rows:
    """The packages of pip among those of conda."""
    own = 0
    for name, version, channel in rows:
        if channel == "pypi":
            yield from _row(name, version, notes)
        else:
            own += 1
    if own:
        notes.append(f"{own} packages of conda itself, which are built otherwise than wheels")


def _pip_list(text: str, _environment: Mapping[str, str], notes: _Notes) -> Rows:
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(r"-{3,} +-{3,}", line):
            break
    for line in lines:
        words = line.split()
        if len(words) > 1:
            yield from _row(words[0], words[1], notes)


_PIN = re.compile(r"={2,3}\s*[^*\s,;]+")


def _requirements(text: str, environment: Mapping[str, str], notes: _Notes) -> Rows:
    """Lines `name==version`, as `pip freeze`, `pip-compile` and `uv pip compile` write them."""
    loose = []
    for line in text.replace("\\\n", " ").split("\n"):
        words = re.split(r"(?:^|\s)#|\s--[a-z]", line, maxsplit=1)[0].strip()
        if not words:
            continue
        if words.startswith("-"):
            notes.gap(f"not followed: {words[:60]}")
            continue
        try:
            requirement = Requirement(words)
        except (InvalidRequirement, ValueError, RecursionError):
            notes.gap(f"no requirement: {words[:60]!r}")
            continue
        if requirement.marker is not None and not _holds(str(requirement.marker), environment):
            continue
        version = _pinned(requirement)
        if version is None:
            loose.append(requirement.name[:60])
        else:
            yield from _row(requirement.name, version, notes)
    if loose:
        shown = ", ".join(loose[:6]) + (f" and {len(loose) - 6} more" if len(loose) > 6 else "")
        notes.gap(f"not pinned, so not judged: {shown}")


def _pinned(requirement: Requirement) -> str | None:
    """The one version that a requirement admits: `==2.6.0`, or the wheel at its address."""
    if requirement.url is not None:
        try:
            return str(parse_wheel_filename(unquote(requirement.url.partition("#")[0].rpartition("/")[2]))[1])
        except (InvalidWheelFilename, ValueError):
            return None
    if _PIN.fullmatch(str(requirement.specifier)) is None:
        return None
    return str(requirement.specifier).lstrip("=").strip()


_READERS: dict[str, Callable[[Any, Mapping[str, str], _Notes], Rows]] = {
    "pylock.toml": _pylock,
    "uv.lock": _uv,
    "poetry.lock": _poetry,
    "pdm.lock": _pdm,
    "Pipfile.lock": _pipfile,
    "pip list --format json": _pip_json,
    "conda list --json": _conda_json,
    "conda list": _conda_list,
    "pip list": _pip_list,
    "requirements file": _requirements,
}
