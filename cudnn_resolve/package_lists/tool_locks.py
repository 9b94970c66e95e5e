"""Read the locks of Python tools: of each, the packages that the tool itself would install on the machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import InputError
from cudnn_resolve.matrix.toml import parse_toml, texts
from cudnn_resolve.package_lists.install_lines import VARIANT
from cudnn_resolve.package_lists.model import ListedPackage, ReadContext, dicts, table
from cudnn_resolve.resolution.marker import MARKER_ERRORS

_MOST_STEPS = 2_000_000
"""Steps of a walk through a lock; the largest real locks need tens of thousands."""
_EXTRA = re.compile(r"\bextra\s*(==|!=)\s*(['\"])([^'\"]{0,300})\2")
_ALWAYS, _NEVER = "os_name == 'posix'", "os_name != 'posix'"


def _with_extras(marker: Any, extras: Iterable[str]) -> Any:
    """Replace the conditions on `extra` by their results: a lock may have several extras selected, a marker knows one."""
    if not isinstance(marker, str):
        return marker
    chosen = set(extras)
    return _EXTRA.sub(lambda found: _ALWAYS if (found[3] in chosen) == (found[1] == "==") else _NEVER, marker)


def _files_of(row: Mapping[str, Any]) -> Iterator[str]:
    """File names of the wheels and the source archive of an entry."""
    sdist = row.get("sdist")
    return _file_names([*dicts(row.get("wheels")), *([sdist] if isinstance(sdist, dict) else [])])


def _file_names(rows: Any) -> Iterator[str]:
    """File names, from `file`, `filename`, `name` or the end of `url`."""
    for row in dicts(rows):
        name = row.get("file") or row.get("filename") or row.get("name") or str(row.get("url") or "").partition("#")[0].rpartition("/")[2]
        if isinstance(name, str) and name:
            yield name


def _built_from(row: Mapping[str, Any]) -> str | None:
    """What a package is built from, in the terms of uv, Poetry, PDM or PEP 751; None for a wheel."""
    source = table(row.get("source"))
    kind = source.get("type")
    if kind == "git" or "git" in source or "git" in row or "vcs" in row:
        return "a repository"
    if kind == "directory" or "directory" in source or "directory" in row:
        return "a folder"
    place = source.get("url") or source.get("path") or row.get("path") or table(row.get("archive")).get("url") or row.get("url")
    is_direct = kind in ("url", "file") or not source.keys().isdisjoint(("url", "path")) or "archive" in row or "path" in row
    if isinstance(place, str) and is_direct and kind != "legacy" and not place.partition("#")[0].endswith(".whl"):
        return "an archive of its source"
    return None


def _note_indexes(urls: Iterable[Any], context: ReadContext, *, most_common: int = 1) -> None:
    """Note indexes other than the `most_common` ones."""
    found = Counter(url for url in urls if isinstance(url, str) and not VARIANT.search(url))
    for url, _ in found.most_common()[most_common:]:
        context.note_index(url)


def _note_left_out(what: str, names: Iterable[str], context: ReadContext) -> None:
    left = sorted(names)
    if left:
        context.note(f"{what} left out: {', '.join(left[:12])}")


def _project(context: ReadContext) -> dict[str, Any]:
    """The pyproject.toml beside a lock, with settings that the lock lacks; empty if it cannot be read."""
    try:
        return parse_toml(context.open("pyproject.toml", context.where)[1], "pyproject.toml") if context.open else {}
    except InputError:
        return {}


def read_pylock(found: dict[str, Any], context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that an installer of PEP 751 installs: the default groups, and no extras."""
    extras = context.selected(context.selection.extras, texts(found.get("extras")), "extra")
    groups = context.selected(context.selection.groups, texts(found.get("dependency-groups")), "group")
    defaults = texts(found.get("default-groups")) if context.selection.defaults else []
    environment: dict[str, Any] = {**context.environment, "extras": extras, "dependency_groups": groups | frozenset(defaults)}
    context.require_python(found.get("requires-python"))
    _note_indexes((row.get("index") for row in dicts(found["packages"])), context)
    for row in dicts(found["packages"]):
        if _lock_marker_holds(row.get("marker"), environment):
            if not isinstance(row.get("version"), str):
                context.miss_version(row.get("name"))
            yield from context.package(row.get("name"), row.get("version"), _files_of(row), built_from=_built_from(row))


def _lock_marker_holds(marker: Any, environment: dict[str, Any]) -> bool:
    try:
        return not isinstance(marker, str) or Marker(marker).evaluate(environment, context="lock_file")
    except MARKER_ERRORS:
        return True


def read_uv(found: dict[str, Any], context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `uv sync` installs: dependencies of the project, its default groups, and the selected extras and groups."""
    packages: dict[str, list[dict[str, Any]]] = {}
    for row in dicts(found["package"]):
        packages.setdefault(canonicalize_name(str(row.get("name"))), []).append(row)
    context.require_python(found.get("requires-python"))
    _note_indexes((table(row.get("source")).get("registry") for rows in packages.values() for row in rows), context)
    roots = _uv_roots(packages, context)
    known_extras = {name for root in roots for name in table(root.get("optional-dependencies"))}
    known_groups = {name for root in roots for name in table(root.get("dev-dependencies"))}
    extras = context.selected(context.selection.extras, known_extras, "extra")
    groups = context.selected(context.selection.groups, known_groups, "group")
    if context.selection.defaults:
        groups |= _uv_default_groups(known_groups, context)
    yield from _uv_reached(packages, roots, extras, groups, context)
    _note_left_out("extras of the project", known_extras - extras, context)
    _note_left_out("groups of the project", known_groups - groups, context)


def _uv_reached(
    packages: Mapping[str, list[dict[str, Any]]],
    roots: Sequence[dict[str, Any]],
    extras: frozenset[str],
    groups: Iterable[str],
    context: ReadContext,
) -> Iterator[ListedPackage]:
    """The packages that the roots need with these extras and groups; the roots themselves unless they are projects."""
    # Markers of the lock name an extra or a group together with its project: `extra-5-other-cpu`.
    names = [str(root.get("name")) for root in roots]
    marked = [
        f"{kind}-{len(name)}-{name}-{part}" for name in names for kind, parts in (("extra", extras), ("group", groups)) for part in parts
    ]

    def holds(marker: Any) -> bool:
        return context.holds(_with_extras(marker, marked))

    waiting = [(root, extras) for root in roots]
    seen: set[tuple[int, str]] = set()
    project_ids = {id(root) for root in roots if _is_project(root)}
    steps = 0
    while waiting and steps < _MOST_STEPS:
        row, wanted = waiting.pop()
        for section in ("", *wanted):
            if (id(row), section) in seen:
                continue
            seen.add((id(row), section))
            if not section and not _is_project(row):
                yield from context.package(row.get("name"), row.get("version"), _files_of(row), built_from=_built_from(row))
            for needed in _uv_dependencies(row, section, groups if id(row) in project_ids else ()):
                steps += 1
                if holds(needed.get("marker")):
                    candidates = packages.get(canonicalize_name(str(needed.get("name"))), [])
                    fork = _uv_fork(candidates, needed, holds)
                    waiting += [(each, frozenset(texts(needed.get("extra")))) for each in fork]
    if waiting:
        context.gap("the dependency graph of the lock is too large to be followed to its end")


def _uv_default_groups(known: Iterable[str], context: ReadContext) -> set[str]:
    """The groups that `uv sync` installs by default: those in the settings of the project, else `dev`."""
    setting = table(table(_project(context).get("tool")).get("uv")).get("default-groups", ["dev"])
    return set(known) if setting == "all" else {canonicalize_name(name) for name in texts(setting)}


def _uv_roots(packages: Mapping[str, list[dict[str, Any]]], context: ReadContext) -> list[dict[str, Any]]:
    """The project in the lock's own folder, else all of its projects, else every package."""
    projects = [row for rows in packages.values() for row in rows if _is_project(row)]
    if not projects:
        context.note("the lock names no project: all of its packages are judged")
        return [row for rows in packages.values() for row in rows]
    return [project for project in projects if "." in project["source"].values()] or projects


def _is_project(row: Mapping[str, Any]) -> bool:
    source = row.get("source")
    return isinstance(source, dict) and bool(source.keys() & {"virtual", "editable"})


def _uv_dependencies(row: Mapping[str, Any], section: str, groups: Iterable[str]) -> list[dict[str, Any]]:
    if section:
        return dicts(table(row.get("optional-dependencies")).get(section))
    by_group = table(row.get("dev-dependencies"))
    return [*dicts(row.get("dependencies")), *(needed for group in groups for needed in dicts(by_group.get(group)))]


def _uv_fork(candidates: list[dict[str, Any]], needed: Mapping[str, Any], holds: Callable[[Any], bool]) -> list[dict[str, Any]]:
    """Of several versions, the one that the dependency names, else those whose markers hold."""
    version = needed.get("version")
    named = [row for row in candidates if version is None or row.get("version") == version]

    def applies(row: Mapping[str, Any]) -> bool:
        markers = row.get("resolution-markers")
        return not isinstance(markers, list) or any(holds(marker) for marker in markers)

    return [row for row in named if applies(row)] if len(named) > 1 else named


def read_poetry(found: dict[str, Any], context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `poetry install` installs: all groups that are not optional, and no extras; locks before Poetry 2 have no markers."""
    rows = dicts(found["package"])
    is_poetry_1 = not any("groups" in row for row in rows)
    if is_poetry_1:
        context.gap("locks of Poetry 1 have no markers: all packages are judged that are neither optional nor for other systems only")
    context.require_python(table(found.get("metadata")).get("python-versions"))
    sources = (table(row.get("source")) for row in rows)
    _note_indexes((source.get("url") for source in sources if source.get("type") == "legacy"), context, most_common=0)
    groups = _poetry_groups(rows, context)
    known_extras = table(found.get("extras"))
    extras = context.selected(context.selection.extras, known_extras, "extra")
    _note_left_out("extras of the project", set(known_extras) - extras, context)
    of_extras = _poetry_reached(rows, {canonicalize_name(name) for extra in extras for name in texts(known_extras[extra])})
    elsewhere = _poetry_elsewhere(rows, context) if is_poetry_1 else set()
    for row in rows:
        name = canonicalize_name(str(row.get("name")))
        if (row.get("optional") and name not in of_extras) or name in elsewhere:
            continue
        markers = row.get("markers")
        own_groups = [group for group in texts(row.get("groups")) if group in groups]
        wanted = [markers.get(group) for group in own_groups] if isinstance(markers, dict) else [markers]
        if ("groups" not in row or own_groups) and any(context.holds(_with_extras(marker, extras)) for marker in wanted):
            yield from context.package(row.get("name"), row.get("version"), _file_names(row.get("files")), built_from=_built_from(row))


def _poetry_groups(rows: Iterable[Mapping[str, Any]], context: ReadContext) -> set[str]:
    """The groups to install: `main`, those that are not optional, and those selected."""
    groups = {group for row in rows for group in texts(row.get("groups"))}
    named = context.selected(context.selection.groups, groups - {"main"}, "group")
    settings = table(table(table(_project(context).get("tool")).get("poetry")).get("group"))
    optional = {name for name, setting in settings.items() if table(setting).get("optional")}
    chosen = (groups - optional if context.selection.defaults else set()) | named | {"main"}
    _note_left_out("optional groups", optional - chosen, context)
    return chosen


def _poetry_reached(rows: Iterable[Mapping[str, Any]], start: Iterable[str]) -> set[str]:
    """Packages that extras install: those that they name, and their dependencies."""
    needs: dict[str, dict[str, Any]] = {canonicalize_name(str(row.get("name"))): table(row.get("dependencies")) for row in rows}
    waiting, reached = list(start), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += map(canonicalize_name, needs.get(name, {}))
    return reached


def _poetry_elsewhere(rows: Iterable[Mapping[str, Any]], context: ReadContext) -> set[str]:
    """Packages of a Poetry 1 lock for other systems only: every dependent's marker says so, and the project does not name them."""
    here, elsewhere = set[str](), set[str]()
    for row in rows:
        for name, needed in table(row.get("dependencies")).items():
            markers = [
                each.get("markers") if isinstance(each, dict) else None for each in (needed if isinstance(needed, list) else [needed])
            ]
            (here if any(context.holds(marker) for marker in markers) else elsewhere).add(canonicalize_name(name))
    poetry = table(table(_project(context).get("tool")).get("poetry"))
    parts = [poetry, *map(table, table(poetry.get("group")).values())]
    named = (name for part in parts for key in ("dependencies", "dev-dependencies") for name in table(part.get(key)))
    return elsewhere - here - set(map(canonicalize_name, named))


def read_pdm(found: dict[str, Any], context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `pdm sync` installs: every locked group, or the default group and those selected.

    Development groups are included, unless one of them is selected.
    """
    metadata = table(found.get("metadata"))
    context.require_python(metadata.get("requires_python"))
    rows = dicts(found["package"])
    selection = context.selection
    known = {*texts(metadata.get("groups")), *(group for row in rows for group in texts(row.get("groups")))}
    named = context.selected((*selection.extras, *selection.groups), known, "group or extra")
    project = _project(context)
    legacy = table(table(table(project.get("tool")).get("pdm")).get("dev-dependencies"))
    development = {"dev", *table(project.get("dependency-groups")), *legacy} if selection.defaults else set()
    if named & development:  # a selected development group replaces all of them
        development = set()
    groups = known if selection.defaults and not named else named | {"default"} | development
    for row in rows:
        own_groups = texts(row.get("groups"))
        if (not own_groups or groups & set(own_groups)) and context.holds(_with_extras(row.get("marker"), named)):
            yield from context.package(row.get("name"), row.get("version"), _file_names(row.get("files")), built_from=_built_from(row))
    _note_left_out("groups", known - groups, context)


def read_pipfile(found: dict[str, Any], context: ReadContext) -> Iterator[ListedPackage]:
    """Packages that `pipenv sync` installs: the default ones, and the selected categories."""
    meta = table(found["_meta"])
    python = table(meta.get("requires")).get("python_version")
    context.require_python(f"=={python}.*" if isinstance(python, str) else None)
    categories = {name for name, value in found.items() if isinstance(value, dict) and name not in ("_meta", "default")}
    wanted = ("develop" if name in ("dev", "dev-packages") else name for name in context.selection.groups)
    chosen = context.selected(wanted, categories, "category")
    _note_left_out("categories", (name for name in categories - chosen if found[name]), context)
    places = {source.get("name"): source.get("url") for source in dicts(meta.get("sources"))}
    indexes = [row.get("index") for category in ("default", *chosen) for row in found[category].values() if isinstance(row, dict)]
    first = next(iter(places), None)
    _note_indexes((places.get(name, name) for name in indexes if name != first), context, most_common=0)
    for category in ("default", *sorted(chosen)):
        for name, row in found[category].items():
            if isinstance(row, dict) and context.holds(row.get("markers")):
                if "version" not in row:
                    context.miss_version(name)
                version = str(row["version"]).removeprefix("==") if "version" in row else None
                yield from context.package(name, version, texts(row.get("file")))
