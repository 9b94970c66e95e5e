"""Locks of Python's own tools: of each the packages that the tool itself would install on the machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import parse_toml
from cudnn_resolve.locking.install_lines import VARIANT
from cudnn_resolve.locking.listing import Listed, Reading, dicts, table
from cudnn_resolve.masking import without_logins
from cudnn_resolve.matrix.toml import texts
from cudnn_resolve.resolution.marker import NO_MARKER

_SECTIONS = 2_000_000
"""Steps of a walk through a lock; the largest real ones need a few ten thousand."""
_EXTRA = re.compile(r"\bextra\s*(==|!=)\s*(['\"])([^'\"]{0,300})\2")
_ALWAYS, _NEVER = "os_name == 'posix'", "os_name != 'posix'"


def _with_extras(marker: Any, extras: Iterable[str]) -> Any:
    """A marker that asks which extras are chosen, with the answers in their place: in a lock several may be."""
    if not isinstance(marker, str):
        return marker
    chosen = set(extras)
    return _EXTRA.sub(lambda found: _ALWAYS if (found[3] in chosen) == (found[1] == "==") else _NEVER, marker)


def _files_of(one: Mapping[str, Any]) -> Iterator[str]:
    """Names of the wheels and of the source archive of an entry."""
    sdist = one.get("sdist")
    return _file_names([*dicts(one.get("wheels")), *([sdist] if isinstance(sdist, dict) else [])])


def _file_names(rows: Any) -> Iterator[str]:
    """File names of wheels, as `file`, `filename` or the end of `url` says them."""
    for one in dicts(rows):
        name = one.get("file") or one.get("filename") or one.get("name") or str(one.get("url") or "").partition("#")[0].rpartition("/")[2]
        if isinstance(name, str) and name:
            yield name


def _built_from(one: Mapping[str, Any]) -> str | None:
    """What the source of a package is built from, where it is no wheel: as uv, Poetry, PDM and PEP 751 say it."""
    source = table(one.get("source"))
    kind = source.get("type")
    if kind == "git" or "git" in source or "git" in one or "vcs" in one:
        return "a repository"
    if kind == "directory" or "directory" in source or "directory" in one:
        return "a folder"
    place = source.get("url") or source.get("path") or one.get("path") or table(one.get("archive")).get("url") or one.get("url")
    is_apart = kind in ("url", "file") or not source.keys().isdisjoint(("url", "path")) or "archive" in one
    if isinstance(place, str) and (is_apart or "path" in one) and kind != "legacy" and not place.partition("#")[0].endswith(".whl"):
        return "an archive of its source"
    return None


def _note_places(places: Iterable[Any], reading: Reading, *, beside: int = 1) -> None:
    """Note the indexes `beside` the one that most packages come from: what is private there may be another build of the same name."""
    found = Counter(one for one in places if isinstance(one, str) and not VARIANT.search(one))
    for place, _ in found.most_common()[beside:]:
        reading.note(f"packages come from {without_logins(place)[:80]}, too: judged by name and version")


def _project(reading: Reading) -> dict[str, Any]:
    """The pyproject.toml beside a lock, which says what the lock does not; empty where there is none that can be read."""
    try:
        return parse_toml(reading.open("pyproject.toml", reading.where)[1], "pyproject.toml") if reading.open else {}
    except InputError:
        return {}


def read_pylock(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What an installer of PEP 751 takes: the default groups, and no extras."""
    extras = reading.chosen(reading.choice.extras, texts(found.get("extras")), "extra")
    groups = reading.chosen(reading.choice.groups, texts(found.get("dependency-groups")), "group")
    defaults = texts(found.get("default-groups")) if reading.choice.defaults else []
    more: dict[str, Any] = {"extras": extras, "dependency_groups": groups | frozenset(defaults)}
    reading.for_python(found.get("requires-python"))
    _note_places((one.get("index") for one in dicts(found["packages"])), reading)
    for one in dicts(found["packages"]):
        if _lock_marker_holds(one.get("marker"), {**reading.environment, **more}):
            if not isinstance(one.get("version"), str):
                reading.gap(f"{one.get('name')!s:.60} has no version in the lock: it comes from a folder or a repository")
            yield from reading.row(one.get("name"), one.get("version"), _files_of(one), built_from=_built_from(one))


def _lock_marker_holds(marker: Any, environment: dict[str, Any]) -> bool:
    try:
        return not isinstance(marker, str) or Marker(marker).evaluate(environment, context="lock_file")
    except NO_MARKER:
        return True


def read_uv(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What `uv sync` installs: from the project on, its dependencies, its default groups, and the extras and groups that are named."""
    packages: dict[str, list[dict[str, Any]]] = {}
    for one in dicts(found["package"]):
        packages.setdefault(canonicalize_name(str(one.get("name"))), []).append(one)
    reading.for_python(found.get("requires-python"))
    _note_places((table(one.get("source")).get("registry") for rows in packages.values() for one in rows), reading)
    roots = _uv_roots(packages, reading)
    extras = reading.chosen(reading.choice.extras, (name for one in roots for name in table(one.get("optional-dependencies"))), "extra")
    known = {name for one in roots for name in table(one.get("dev-dependencies"))}
    groups = reading.chosen(reading.choice.groups, known, "group")
    groups |= _uv_defaults(known, reading) if reading.choice.defaults else set()
    names = [str(one.get("name")) for one in roots]
    chosen = [f"{kind}-{len(name)}-{name}-{part}" for name in names for kind, of in (("extra", extras), ("group", groups)) for part in of]
    waiting: list[tuple[dict[str, Any], frozenset[str]]] = [(one, extras) for one in roots]
    seen: set[tuple[int, str]] = set()
    are_roots = {id(one) for one in roots if _is_project(one)}
    steps = 0
    while waiting and steps < _SECTIONS:
        one, wanted = waiting.pop()
        for section in ("", *wanted):
            if (id(one), section) in seen:
                continue
            seen.add((id(one), section))
            if not section and not _is_project(one):
                yield from reading.row(one.get("name"), one.get("version"), _files_of(one), built_from=_built_from(one))
            for needed in _uv_dependencies(one, section, groups if id(one) in are_roots else ()):
                steps += 1
                if reading.holds(_with_extras(needed.get("marker"), chosen)):
                    candidates = packages.get(canonicalize_name(str(needed.get("name"))), [])
                    fork = _uv_fork(candidates, needed, lambda marker: reading.holds(_with_extras(marker, chosen)))
                    waiting += [(each, frozenset(texts(needed.get("extra")))) for each in fork]
    if waiting:
        reading.gap("the lock is too entangled to be followed to its end")
    _uv_left(sorted({name for one in roots for name in table(one.get("optional-dependencies"))} - extras), sorted(known - groups), reading)


def _uv_left(extras: Sequence[str], groups: Sequence[str], reading: Reading) -> None:
    """Note what of the project is not installed."""
    if extras:
        reading.note(f"extras of the project are left out, as `uv sync` leaves them out: {', '.join(extras[:12])}")
    if groups:
        reading.note(f"groups of the project are left out: {', '.join(groups[:12])}")


def _uv_defaults(known: Iterable[str], reading: Reading) -> set[str]:
    """The groups that `uv sync` takes unasked: what the project says, else `dev`."""
    asked = table(table(_project(reading).get("tool")).get("uv")).get("default-groups", ["dev"])
    return set(known) if asked == "all" else {canonicalize_name(name) for name in texts(asked)}


def _uv_roots(packages: Mapping[str, list[dict[str, Any]]], reading: Reading) -> list[dict[str, Any]]:
    """The project of the lock's own folder, else all of its projects, else everything."""
    projects = [one for rows in packages.values() for one in rows if _is_project(one)]
    if not projects:
        reading.note("the lock names no project: everything in it is judged")
        return [one for rows in packages.values() for one in rows]
    return [one for one in projects if "." in one["source"].values()] or projects


def _is_project(one: Mapping[str, Any]) -> bool:
    source = one.get("source")
    return isinstance(source, dict) and bool(source.keys() & {"virtual", "editable"})


def _uv_dependencies(one: Mapping[str, Any], section: str, groups: Iterable[str]) -> list[dict[str, Any]]:
    if section:
        return dicts(table(one.get("optional-dependencies")).get(section))
    of_groups = table(one.get("dev-dependencies"))
    return [*dicts(one.get("dependencies")), *(row for group in groups for row in dicts(of_groups.get(group)))]


def _uv_fork(candidates: list[dict[str, Any]], needed: Mapping[str, Any], holds: Callable[[Any], bool]) -> list[dict[str, Any]]:
    """Of several versions the one that the dependency names, else those whose markers hold."""
    version = needed.get("version")
    named = [one for one in candidates if version is None or one.get("version") == version]

    def is_here(one: Mapping[str, Any]) -> bool:
        markers = one.get("resolution-markers")
        return not isinstance(markers, list) or any(holds(marker) for marker in markers)

    return [one for one in named if is_here(one)] if len(named) > 1 else named


def read_poetry(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What `poetry install` installs: all groups that are not optional, no extras; before Poetry 2 the lock has no markers."""
    rows = dicts(found["package"])
    if not any("groups" in one for one in rows):
        reading.gap("a lock of Poetry 1 names no markers: what is not optional, and not for other systems alone, is judged")
    reading.for_python(table(found.get("metadata")).get("python-versions"))
    sources = (table(one.get("source")) for one in rows)
    _note_places((one.get("url") for one in sources if one.get("type") == "legacy"), reading, beside=0)
    groups = {group for one in rows for group in texts(one.get("groups"))}
    named = reading.chosen(reading.choice.groups, groups - {"main"}, "group")
    settings = table(table(table(_project(reading).get("tool")).get("poetry")).get("group"))
    optional = {name for name, one in settings.items() if table(one).get("optional")}
    groups = (groups - optional if reading.choice.defaults else {"main"}) | named | {"main"}
    if left := sorted(optional - groups):
        reading.note(f"optional groups are left out: {', '.join(left)}")
    of_extras = table(found.get("extras"))
    extras = reading.chosen(reading.choice.extras, of_extras, "extra")
    if left := sorted(set(of_extras) - extras):
        reading.note(f"extras of the project are left out: {', '.join(left[:12])}")
    reached = _poetry_reached(rows, {canonicalize_name(name) for extra in extras for name in texts(of_extras[extra])})
    unasked = _poetry_unasked(rows, reading) if not any("groups" in one for one in rows) else set()
    for one in rows:
        name = canonicalize_name(str(one.get("name")))
        if (one.get("optional") and name not in reached) or name in unasked:
            continue
        markers = one.get("markers")
        own = [group for group in texts(one.get("groups")) if group in groups]
        wanted = [markers.get(group) for group in own] if isinstance(markers, dict) else [markers]
        if ("groups" not in one or own) and any(reading.holds(_with_extras(marker, extras)) for marker in wanted):
            yield from reading.row(one.get("name"), one.get("version"), _file_names(one.get("files")), built_from=_built_from(one))


def _poetry_reached(rows: Iterable[Mapping[str, Any]], start: Iterable[str]) -> set[str]:
    """What extras bring: the packages that they name, and what these need."""
    needs: dict[str, dict[str, Any]] = {canonicalize_name(str(one.get("name"))): table(one.get("dependencies")) for one in rows}
    waiting, reached = list(start), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += map(canonicalize_name, needs.get(name, {}))
    return reached


def _poetry_unasked(rows: Iterable[Mapping[str, Any]], reading: Reading) -> set[str]:
    """What a lock of Poetry 1 holds for other systems alone: each that needs it says so by a marker, and the project does not name it."""
    here, elsewhere = set[str](), set[str]()
    for one in rows:
        for name, asked in table(one.get("dependencies")).items():
            markers = [each.get("markers") if isinstance(each, dict) else None for each in (asked if isinstance(asked, list) else [asked])]
            (here if any(reading.holds(marker) for marker in markers) else elsewhere).add(canonicalize_name(name))
    poetry = table(table(_project(reading).get("tool")).get("poetry"))
    parts = [poetry, *map(table, table(poetry.get("group")).values())]
    named = (name for part in parts for key in ("dependencies", "dev-dependencies") for name in table(part.get(key)))
    return elsewhere - here - set(map(canonicalize_name, named))


def read_pdm(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What `pdm sync` installs: every group that was locked, or where one is named the default one and that one.

    Those for development come along, unless one of them is named.
    """
    metadata = table(found.get("metadata"))
    reading.for_python(metadata.get("requires_python"))
    rows = dicts(found["package"])
    known = {*texts(metadata.get("groups")), *(group for one in rows for group in texts(one.get("groups")))}
    asked = reading.chosen((*reading.choice.extras, *reading.choice.groups), known, "group or extra")
    project = _project(reading)
    of_tool = table(table(table(project.get("tool")).get("pdm")).get("dev-dependencies"))
    development = {"dev", *table(project.get("dependency-groups")), *of_tool} if reading.choice.defaults else set()
    if asked & development:  # a group for development that is named stands for all of them
        development = set()
    groups = known if reading.choice.defaults and not asked else asked | {"default"} | development
    for one in rows:
        own = texts(one.get("groups"))
        if (not own or groups & set(own)) and reading.holds(_with_extras(one.get("marker"), asked)):
            yield from reading.row(one.get("name"), one.get("version"), _file_names(one.get("files")), built_from=_built_from(one))
    if left := sorted(known - groups):
        reading.note(f"groups that are left out: {', '.join(left)}")


def read_pipfile(found: dict[str, Any], reading: Reading) -> Iterator[Listed]:
    """What `pipenv sync` installs: the default packages, and the categories that are named."""
    meta = table(found["_meta"])
    python = table(meta.get("requires")).get("python_version")
    reading.for_python(f"=={python}.*" if isinstance(python, str) else None)
    categories = {name for name, one in found.items() if isinstance(one, dict) and name not in ("_meta", "default")}
    asked = ("develop" if name in ("dev", "dev-packages") else name for name in reading.choice.groups)
    chosen = reading.chosen(asked, categories, "category")
    if left := sorted(name for name in categories - chosen if found[name]):
        reading.note(f"the {', '.join(left)} packages are left out")
    places = {one.get("name"): one.get("url") for one in dicts(meta.get("sources"))}
    taken = [one.get("index") for category in ("default", *chosen) for one in found[category].values() if isinstance(one, dict)]
    _note_places((places.get(name, name) for name in taken if name != next(iter(places), None)), reading, beside=0)
    for category in ("default", *sorted(chosen)):
        for name, one in found[category].items():
            if isinstance(one, dict) and reading.holds(one.get("markers")):
                if "version" not in one:
                    reading.gap(f"{name[:60]} has no version in the lock: it comes from a folder or a repository")
                yield from reading.row(name, str(one["version"]).removeprefix("==") if "version" in one else None, texts(one.get("file")))
