"""Parser for pip's requirements files.

Source: the requirements file format in pip's documentation. Requirements, constraints, nested files, archives and projects, and the
options that select package sources are supported; any other option is an error and is never skipped silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from cudnn_resolve.errors import InputError
from cudnn_resolve.masking import without_logins
from cudnn_resolve.requirement.model import RequirementLine

_NESTED = r"(?:-r|--requirement)[=\s]\s*(\S.*)"
_CONSTRAINT = r"(?:-c|--constraint)[=\s]\s*(\S.*)"
_EDITABLE = r"(?:-e|--editable)[=\s]\s*(\S.*)"
_SETTING = r"(-i|--index-url|--extra-index-url|-f|--find-links|--no-binary|--only-binary|--trusted-host)[=\s]\s*(\S+)"
_SINGLE = r"([\w.-]{1,200}(?:\[[\w,. -]{0,200}\])?)\s{0,9}=\s{0,9}(\d[\w.+!*-]{0,60})"
_FLAGS = frozenset({"--no-index", "--pre"})
_PLACE = r"(?i)(?:[a-z][a-z0-9+.-]{1,20}://|file:|\.{0,2}/|\.(?:$|\[)|~/).*"
_NAMED = r"(?i)[\w.-]{1,200}\s{0,9}(?:\[[^\]]{0,500}\])?\s{0,9}@\s{0,9}[a-z][a-z0-9+.-]{1,20}:.*"
_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz")
_IDLE = frozenset({"--prefer-binary", "--require-hashes"})
"""Options whose effect is always on."""
_SHORT = {"-i": "--index-url", "-f": "--find-links"}
_HASH = r"--hash[=\s](\S+)"
FILES = 200
"""Largest number of files read for one request."""
LONGEST = 20_000
"""Longest line, in characters."""

Reader = Callable[[str, "str | None"], tuple[str, str]]
"""Resolve a file name relative to the file of the second argument; return its path and its text."""


class Setting(Struct, frozen=True, kw_only=True):
    """An option of a requirements file that selects package sources."""

    option: str
    """As on the command line, `--extra-index-url`."""
    value: str
    """Empty for a flag such as `--pre`."""
    origin: str


class Reference(Struct, frozen=True, kw_only=True):
    """A direct reference: an archive or the folder of a project."""

    place: str
    """URL, or path relative to the file that names it."""
    name: str | None
    """The package, if the requirement names it (`name @ url`)."""
    extras: tuple[str, ...]
    marker: str | None
    editable: bool
    origin: str
    """File and line."""
    base: str | None
    """The file that names it; None on the command line."""


Line = RequirementLine | Setting | Reference


def read_requirements(path: str, read: Reader, *, constraint: bool = False) -> Iterator[Line]:
    """Parse a requirements file and the files it names, in order; with `constraint`, every requirement is a constraint.

    InputError with file and line for an invalid requirement and for files that include each other endlessly.
    """
    stack: list[Iterator[Line | _NestedFile]] = [_read_file(_NestedFile(path, None, constraint), read)]
    count = 1
    while stack:
        line = next(stack[-1], None)
        if line is None:
            stack.pop()
        elif not isinstance(line, _NestedFile):
            yield line
        else:
            count += 1
            if count > FILES:
                raise InputError(
                    f"more than {FILES} requirements files; do they include one another?", code="requirements-invalid", context=line.base
                )
            stack.append(_read_file(line, read))


class _NestedFile(NamedTuple):
    """A requirements file, and the file that names it."""

    path: str
    base: str | None
    constraint: bool


def _read_file(file: _NestedFile, read: Reader) -> Iterator[Line | _NestedFile]:
    path, text = read(file.path, file.base)
    for number, line in logical_lines(text):
        origin = f"{path}:{number}"
        if len(line) > LONGEST:
            raise InputError(
                f"the line has {len(line)} characters, more than the {LONGEST} allowed", code="requirements-invalid", context=origin
            )
        parsed = _parse_line(line, origin, path, constraint=file.constraint)
        if parsed is not None:
            yield parsed


def _parse_line(line: str, origin: str, path: str, *, constraint: bool) -> Line | _NestedFile | None:
    """Parse one line; None for an option whose effect is always on."""
    if nested := re.fullmatch(_NESTED, line):
        return _NestedFile(nested[1].strip(), path, constraint)
    if limits := re.fullmatch(_CONSTRAINT, line):
        return _NestedFile(limits[1].strip(), path, constraint=True)
    if setting := re.fullmatch(_SETTING, line):
        return Setting(option=_SHORT.get(setting[1], setting[1]), value=setting[2], origin=origin)
    if line in _FLAGS:
        return Setting(option=line, value="", origin=origin)
    if line in _IDLE:
        return None
    return _parse_requirement_line(line, origin, path, constraint=constraint)


def _parse_requirement_line(line: str, origin: str, path: str, *, constraint: bool) -> RequirementLine | Reference:
    editable = re.fullmatch(_EDITABLE, line)
    text = editable[1].strip() if editable else re.sub(_HASH, "", line).strip()
    is_archive = text.endswith(_ARCHIVES) and not re.fullmatch(_NAMED, text)
    if (editable and " @ " not in text) or re.fullmatch(_PLACE, text) or is_archive:
        return _parse_reference(text, origin, path, editable=editable is not None, constraint=constraint)
    if line.startswith("-") and not editable:
        raise InputError(
            f"the option `{line.split(maxsplit=1)[0]}` is not supported in a requirements file",
            code="requirements-invalid",
            context=origin,
            hint="remove it from this file, or pass it to the installer",
        )
    requirement = parse_requirement(text, origin, base=path, constraint=constraint)
    hashes = tuple(found[1].lower() for found in re.finditer(_HASH, line))
    return replace(requirement, hashes=hashes) if hashes and isinstance(requirement, RequirementLine) else requirement


def parse_requirement(text: str, origin: str, *, base: str | None, constraint: bool = False) -> RequirementLine | Reference:
    """Parse one PEP 508 requirement; InputError that names `origin` for any other text."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        single = re.fullmatch(_SINGLE, text)
        raise InputError(
            f"`{without_logins(text)[:200]}` is not a valid requirement: {without_logins(reason)[:200]}",
            code="requirements-invalid",
            context=origin,
            hint=f"did you mean `{single[1]}=={single[2]}`?" if single else "write one PEP 508 requirement per line, such as `numpy<2`",
        ) from error
    if requirement.url is None:
        return RequirementLine(text=text, origin=origin, constraint=constraint)
    if constraint:
        raise _constraint_on_file(requirement.name, origin)
    return Reference(
        place=requirement.url,
        name=requirement.name,
        extras=tuple(sorted(requirement.extras)),
        marker=str(requirement.marker) if requirement.marker else None,
        editable=False,
        origin=origin,
        base=base,
    )


def _parse_reference(text: str, origin: str, path: str, *, editable: bool, constraint: bool) -> Reference:
    """Parse `./project[extra]`, `https://…/name-1.0-py3-none-any.whl` and the like."""
    if constraint:
        raise _constraint_on_file(text[:200], origin)
    place, _, inside = text.partition("[") if text.endswith("]") else (text, "", "]")
    extras = tuple(sorted(extra.strip() for extra in inside[:-1].split(",") if extra.strip()))
    return Reference(place=place.strip(), name=None, extras=extras, marker=None, editable=editable, origin=origin, base=path)


def _constraint_on_file(name: str, origin: str) -> InputError:
    return InputError(f"a constraint limits versions; `{name}` names a file", code="requirements-invalid", context=origin)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Split into logical lines, without comments, each with the number of its first physical line."""
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start or number
        line = _without_comment(raw)
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        line = (joined + line).strip()
        if line:
            yield start, line
        joined, start = "", 0
    if joined.strip():
        yield start, joined.strip()


def _without_comment(line: str) -> str:
    """Cut a line at a `#` that is first or follows white space."""
    at = line.find("#")
    while at > 0 and not line[at - 1].isspace():
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at].rstrip()
