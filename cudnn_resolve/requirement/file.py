"""Requirement files as pip writes them: text in, requirements out.

Source: the requirements file format of pip's documentation. Requirements, constraints, further files, archives and projects, and the
options that say where packages come from are read; any other option is an error, never skipped in silence.
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
"""Options that ask for what is done anyway."""
_SHORT = {"-i": "--index-url", "-f": "--find-links"}
_HASH = r"--hash[=\s](\S+)"
FILES = 200
"""Files that may be read for one request."""
LONGEST = 20_000
"""Characters of one line."""

Reader = Callable[[str, "str | None"], tuple[str, str]]
"""Gives a file's own path and its text, its name being relative to the file of the second argument."""


class Setting(Struct, frozen=True, kw_only=True):
    """An option of a requirements file that says where packages come from."""

    option: str
    """As on the command line, `--extra-index-url`."""
    value: str
    """Empty for an option that has none, `--pre`."""
    origin: str


class Reference(Struct, frozen=True, kw_only=True):
    """A requirement that is one archive or one project's folder."""

    place: str
    """An address or a path, relative to the file that names it."""
    name: str | None
    """The package, where the requirement says which it is (`name @ address`)."""
    extras: tuple[str, ...]
    marker: str | None
    editable: bool
    origin: str
    """File and line."""
    base: str | None
    """The file that names it; None = the command line."""


Line = RequirementLine | Setting | Reference


def read_requirements(path: str, read: Reader, *, constraint: bool = False) -> Iterator[Line]:
    """What a file asks for, and the files that it names, in their order; with `constraint`, what it limits.

    InputError with file and line for what is no requirement, and for files that name one another without end.
    """
    waiting: list[Iterator[Line | _Nested]] = [_read(_Nested(path, None, constraint), read)]
    count = 1
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif not isinstance(found, _Nested):
            yield found
        else:
            count += 1
            if count > FILES:
                raise InputError(f"more than {FILES} requirements files name one another", code="requirements-invalid", context=found.base)
            waiting.append(_read(found, read))


class _Nested(NamedTuple):
    """A further file, and the one that names it."""

    path: str
    base: str | None
    constraint: bool


def _read(file: _Nested, read: Reader) -> Iterator[Line | _Nested]:
    path, base, constraint = file
    where, text = read(path, base)
    for number, line in logical_lines(text):
        origin = f"{where}:{number}"
        if len(line) > LONGEST:
            raise InputError(f"the line has {len(line)} characters, which no requirement has", code="requirements-invalid", context=origin)
        yield from _line(line, origin, where, constraint=constraint)


def _line(line: str, origin: str, where: str, *, constraint: bool) -> Iterator[Line | _Nested]:
    nested, limits, setting = re.fullmatch(_NESTED, line), re.fullmatch(_CONSTRAINT, line), re.fullmatch(_SETTING, line)
    if nested or limits:
        found = nested or limits
        assert found is not None
        yield _Nested(found[1].strip(), where, constraint or limits is not None)
    elif setting:
        yield Setting(option=_SHORT.get(setting[1], setting[1]), value=setting[2], origin=origin)
    elif line in _FLAGS:
        yield Setting(option=line, value="", origin=origin)
    elif line not in _IDLE:
        yield _requirement(line, origin, where, constraint=constraint)


def _requirement(line: str, origin: str, where: str, *, constraint: bool) -> RequirementLine | Reference:
    editable = re.fullmatch(_EDITABLE, line)
    plain = editable[1].strip() if editable else re.sub(_HASH, "", line).strip()
    if (editable and " @ " not in plain) or re.fullmatch(_PLACE, plain) or (plain.endswith(_ARCHIVES) and not re.fullmatch(_NAMED, plain)):
        return _reference(plain, origin, where, editable=editable is not None, constraint=constraint)
    if line.startswith("-") and not editable:
        raise InputError(
            f"the option `{line.split(maxsplit=1)[0]}` is not understood in a requirements file",
            code="requirements-invalid",
            context=origin,
            hint="leave it out of this file, or give it to the installer",
        )
    found = parse_requirement(plain, origin, base=where, constraint=constraint)
    hashes = tuple(one[1].lower() for one in re.finditer(_HASH, line))
    return replace(found, hashes=hashes) if hashes and isinstance(found, RequirementLine) else found


def parse_requirement(text: str, origin: str, *, base: str | None, constraint: bool = False) -> RequirementLine | Reference:
    """One PEP 508 requirement; InputError that names `origin` for any other text."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        meant = re.fullmatch(_SINGLE, text)
        raise InputError(
            f"`{without_logins(text)[:200]}` is no requirement: {without_logins(why)[:200]}",
            code="requirements-invalid",
            context=origin,
            hint=f"did you mean `{meant[1]}=={meant[2]}`?" if meant else "write one PEP 508 requirement a line, such as `numpy<2`",
        ) from error
    if requirement.url is None:
        return RequirementLine(text=text, origin=origin, constraint=constraint)
    if constraint:
        raise InputError(f"a constraint limits versions; `{requirement.name}` names a file", code="requirements-invalid", context=origin)
    return Reference(
        place=requirement.url,
        name=requirement.name,
        extras=tuple(sorted(requirement.extras)),
        marker=str(requirement.marker) if requirement.marker else None,
        editable=False,
        origin=origin,
        base=base,
    )


def _reference(text: str, origin: str, where: str, *, editable: bool, constraint: bool) -> Reference:
    """The reference in `./project[extra]`, `https://…/name-1.0-py3-none-any.whl` or the like."""
    if constraint:
        raise InputError(f"a constraint limits versions; `{text[:200]}` names a file", code="requirements-invalid", context=origin)
    place, _, inside = text.partition("[") if text.endswith("]") else (text, "", "]")
    extras = tuple(sorted(extra.strip() for extra in inside[:-1].split(",") if extra.strip()))
    return Reference(place=place.strip(), name=None, extras=extras, marker=None, editable=editable, origin=origin, base=where)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with the number of their first physical one: comments gone, continuations joined."""
    held, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start or number
        line = _without_comment(raw)
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        line = (held + line).strip()
        if line:
            yield start, line
        held, start = "", 0
    if held.strip():
        yield start, held.strip()


def _without_comment(line: str) -> str:
    """The line up to a `#` that stands at its start or after a blank."""
    at = line.find("#")
    while at > 0 and not line[at - 1].isspace():
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at].rstrip()
