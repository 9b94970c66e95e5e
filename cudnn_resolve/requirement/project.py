"""What a project's pyproject.toml asks for: its dependencies, extras and dependency groups.

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
    """The dependencies of a project and those of some of its extras; InputError where they cannot be read from the file alone."""
    project = document.get("project")
    if not isinstance(project, Mapping):
        raise InputError(
            "has no [project] table", code="project-invalid", context=path, hint="name a dependency group of it with --group, if it has one"
        )
    if "dependencies" in _texts(project.get("dynamic", []), f"{path}: project.dynamic"):
        raise InputError(
            "its dependencies are dynamic: only its build backend knows them",
            code="project-dynamic",
            context=path,
            hint="write them into a requirements file, for example with `pip-compile`, and give that to -r",
        )
    yield from _all(project.get("dependencies", []), f"{path}: project.dependencies", path)
    known = project.get("optional-dependencies", {})
    by_name = {canonicalize_name(name): lines for name, lines in known.items()} if isinstance(known, Mapping) else {}
    for extra in extras:
        if canonicalize_name(extra) not in by_name:
            raise InputError(f"there is no extra `{extra}`", code="project-extra", context=path, hint=_known(by_name))
        yield from _all(by_name[canonicalize_name(extra)], f"{path}: project.optional-dependencies.{extra}", path)


def read_group(document: Mapping[str, Any], path: str, name: str) -> Iterator[RequirementLine | Reference]:
    """The requirements of one dependency group and of those that it includes; InputError where it cannot be had."""
    groups = document.get("dependency-groups", {})
    by_name: dict[str, Any] = {canonicalize_name(one): lines for one, lines in groups.items()} if isinstance(groups, Mapping) else {}
    yield from _group(by_name, path, name, ())


def _group(groups: Mapping[str, Any], path: str, name: str, above: tuple[str, ...]) -> Iterator[RequirementLine | Reference]:
    own = canonicalize_name(name)
    where = f"{path}: dependency-groups.{name}"
    if own not in groups:
        raise InputError(f"there is no dependency group `{name}`", code="project-group", context=path, hint=_known(groups))
    if own in above:
        raise InputError("dependency groups include one another without end", code="project-group", context=where)
    found = groups[own]
    if not isinstance(found, list):
        raise InputError("is not a list", code="project-invalid", context=where)
    for one in found:
        if isinstance(one, Mapping) and set(one) == {"include-group"} and isinstance(one["include-group"], str):
            yield from _group(groups, path, one["include-group"], (*above, own))
        else:
            yield from _all([one], where, path)


def _all(found: object, where: str, path: str) -> Iterator[RequirementLine | Reference]:
    for text in _texts(found, where):
        yield parse_requirement(text, where, base=path)


def _texts(found: object, where: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InputError("is not a list of texts", code="project-invalid", context=where)
    return found


def _known(names: Iterable[str]) -> str:
    return f"known: {', '.join(sorted(names)) or 'none'}"
