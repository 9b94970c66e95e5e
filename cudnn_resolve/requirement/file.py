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

_COMMENT = re.compile(r"(^|\s+)#.*$")
_NESTED = re.compile(r"(?:-r|--requirement)[=\s]\s*(.+)")
_HASHES = re.compile(r"\s+--hash[=\s]\S+")
DEPTH = 20
"""Files that may name one another in a row."""


def read_requirements(path: str, read: Callable[[str, str | None], tuple[str, str]], depth: int = 0) -> Iterator[Extra]:
    """The requirements of a file and of those that it names.

    `read(path, base)` gives a file's own path and its text, with `path` relative to the file `base`. InputError with file and line for
    what is no requirement.
    """
    yield from _read(path, None, read, depth)


def _read(path: str, base: str | None, read: Callable[[str, str | None], tuple[str, str]], depth: int) -> Iterator[Extra]:
    where, text = read(path, base)
    if depth > DEPTH:
        raise InputError("requirement files name one another without end", code="requirements-invalid", context=where)
    for number, line in _lines(text):
        origin = f"{where}:{number}"
        nested = _NESTED.fullmatch(line)
        if nested:
            yield from _read(nested[1].strip(), where, read, depth + 1)
            continue
        if line.startswith("-"):
            raise InputError(
                f"the option `{line.split()[0]}` is not understood in a requirements file",
                code="requirements-invalid",
                context=origin,
                hint="give index options on the command line; leave editable and constraint lines out of this file",
            )
        plain = _HASHES.sub("", line).strip()
        try:
            requirement = Requirement(plain)
        except InvalidRequirement as error:
            raise InputError(
                f"`{plain}` is no requirement: {str(error).splitlines()[0]}",
                code="requirements-invalid",
                context=origin,
                hint="write one PEP 508 requirement a line, such as `numpy<2`",
            ) from error
        if requirement.url:
            raise InputError(f"`{requirement.name}` comes from a URL, which cannot be judged", code="requirements-invalid", context=origin)
        yield Extra(text=plain, origin=origin)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with the number of their first physical one: comments gone, continuations joined."""
    held, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start or number
        line = _COMMENT.sub("", raw)
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        line = (held + line).strip()
        if line:
            yield start, line
        held, start = "", 0
    if held.strip():
        yield start, held.strip()
