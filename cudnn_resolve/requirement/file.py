"""Requirement files as pip writes them: text in, requirements out.

Source: the requirements file format of pip's documentation. Only lines that name requirements, constraints and further files are read;
an option that would change what is installed is an error, never skipped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from packaging.requirements import InvalidRequirement, Requirement

from cudnn_resolve.errors import InputError
from cudnn_resolve.requirement.model import Extra

_NESTED = re.compile(r"(?:-r|--requirement)[=\s]\s*(\S.*)")
_HASH = re.compile(r"--hash[=\s]\S+")
FILES = 200
"""Files that may be read for one request."""
LONGEST = 20_000
"""Characters of one line."""

Reader = Callable[[str, "str | None"], tuple[str, str]]
"""Gives a file's own path and its text, its name being relative to the file of the second argument."""


def read_requirements(path: str, read: Reader) -> Iterator[Extra]:
    """The requirements of a file and of those that it names, in their order.

    InputError with file and line for what is no requirement, and for files that name one another without end.
    """
    waiting: list[Iterator[Extra | tuple[str, str]]] = [_read(path, None, read)]
    count = 1
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif isinstance(found, Extra):
            yield found
        else:
            count += 1
            if count > FILES:
                raise InputError(f"more than {FILES} requirements files name one another", code="requirements-invalid", context=found[1])
            waiting.append(_read(*found, read))


def _read(path: str, base: str | None, read: Reader) -> Iterator[Extra | tuple[str, str]]:
    """Requirements, and names of further files with the file that names them."""
    where, text = read(path, base)
    for number, line in _lines(text):
        origin = f"{where}:{number}"
        if len(line) > LONGEST:
            raise InputError(f"the line has {len(line)} characters, which no requirement has", code="requirements-invalid", context=origin)
        nested = _NESTED.fullmatch(line)
        if nested:
            yield nested[1].strip(), where
        else:
            yield _requirement(line, origin)


def _requirement(line: str, origin: str) -> Extra:
    if line.startswith("-"):
        raise InputError(
            f"the option `{line.split(maxsplit=1)[0]}` is not understood in a requirements file",
            code="requirements-invalid",
            context=origin,
            hint="give index options on the command line; leave editable and constraint lines out of this file",
        )
    plain = _HASH.sub("", line).strip()
    try:
        requirement = Requirement(plain)
    except (InvalidRequirement, RecursionError) as error:
        raise InputError(
            f"`{plain[:200]}` is no requirement: {(str(error) or type(error).__name__).splitlines()[0][:200]}",
            code="requirements-invalid",
            context=origin,
            hint="write one PEP 508 requirement a line, such as `numpy<2`",
        ) from error
    if requirement.url:
        raise InputError(f"`{requirement.name}` comes from a URL, which cannot be judged", code="requirements-invalid", context=origin)
    return Extra(text=plain, origin=origin)


def _lines(text: str) -> Iterator[tuple[int, str]]:
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
