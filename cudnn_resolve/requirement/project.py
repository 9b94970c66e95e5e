"""Requirements of a pyproject.toml: dependencies, extras and dependency groups.

Sources: the pyproject.toml specification (`project.dependencies`, `project.optional-dependencies`) and PEP 735 (`dependency-groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.utils import canonicalize_name

from cudnn_resolve.errors import InputError
from cudnn_resolve.requirement.file import Reference, parse_requirement
from cudnn_resolve.requirement.model import RequirementLine


def read_project(document: Mapping[str, Any], path: str, extras: Sequence[str] = ()) -> Iterator[RequirementLine | Reference]:
    """Read the dependencies of a project and of some of its extras; InputError if the file alone does not define them."""
    project = document.get("project")
    if not isinstance(project, Mapping):
        raise InputError(
            "has no [project] table", code="project-invalid", context=path, hint="select a dependency group with --group, if it has one"
        )
    if "dependencies" in _strings(project.get("dynamic", []), f"{path}: project.dynamic"):
        raise InputError(
            "the dependencies are dynamic: only the build backend knows them",
            code="project-dynamic",
            context=path,
            hint="compile them into a requirements file, for example with `pip-compile`, and pass that to -r",
        )
    yield from _parse_all(project.get("dependencies", []), f"{path}: project.dependencies", path)
    by_extra = _by_name(project.get("optional-dependencies"))
    for extra in extras:
        if canonicalize_name(extra) not in by_extra:
            raise InputError(f"there is no extra `{extra}`", code="project-extra", context=path, hint=_known(by_extra))
        yield from _parse_all(by_extra[canonicalize_name(extra)], f"{path}: project.optional-dependencies.{extra}", path)


def read_group(document: Mapping[str, Any], path: str, name: str) -> Iterator[RequirementLine | Reference]:
    """Read a dependency group and the groups it includes; InputError if it is missing or invalid."""
    yield from _read_group(_by_name(document.get("dependency-groups")), path, name, ())


def _read_group(groups: Mapping[str, Any], path: str, name: str, parents: tuple[str, ...]) -> Iterator[RequirementLine | Reference]:
    key = canonicalize_name(name)
    where = f"{path}: dependency-groups.{name}"
    if key not in groups:
        raise InputError(f"there is no dependency group `{name}`", code="project-group", context=path, hint=_known(groups))
    if key in parents:
        raise InputError("the dependency group includes itself", code="project-group", context=where)
    group = groups[key]
    if not isinstance(group, list):
        raise InputError("is not a list", code="project-invalid", context=where)
    for entry in group:
        if isinstance(entry, Mapping) and set(entry) == {"include-group"} and isinstance(entry["include-group"], str):
            yield from _read_group(groups, path, entry["include-group"], (*parents, key))
        else:
            yield from _parse_all([entry], where, path)


def _by_name(table: object) -> dict[str, Any]:
    """Entries of a table by their normalized names; none if it is not a table."""
    return {canonicalize_name(name): entry for name, entry in table.items()} if isinstance(table, Mapping) else {}


def _parse_all(lines: object, where: str, path: str) -> Iterator[RequirementLine | Reference]:
    for text in _strings(lines, where):
        yield parse_requirement(text, where, base=path)


def _strings(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError("is not a list of strings", code="project-invalid", context=where)
    return value


def _known(names: Iterable[str]) -> str:
    return f"known: {', '.join(sorted(names)) or 'none'}"
