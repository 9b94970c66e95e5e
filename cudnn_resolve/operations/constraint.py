"""Constraints files that the environment configures for pip and uv, read like those of `--constraint`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cudnn_resolve.errors import InputError
from cudnn_resolve.host.files import path_from, read_bounded
from cudnn_resolve.operations.request import REQUIREMENTS_BYTES
from cudnn_resolve.requirement.file import logical_lines, parse_requirement
from cudnn_resolve.requirement.model import RequirementLine

MOST_FILES = 50
"""Limit on files that are read, including nested ones."""
_NESTED = r"(?:-c|--constraint|-r|--requirement)[=\s]\s*(\S.*)"
_AT_URL = r"([A-Za-z0-9][\w.-]{0,199})\s*(?:\[[^\]]{0,500}\])?\s*@\s*\S"


def configured_constraints(constraints: Iterable[tuple[str, str]], notes: list[str]) -> Iterator[RequirementLine]:
    """Read constraints from files, each given with the setting that names it (`PIP_CONSTRAINT`).

    Whatever is unreadable or no limit on a version (a package at a URL, a file on a server, another option) is skipped and added to
    `notes`: the environment's configuration must not prevent a plan.
    """
    for path, setting in constraints:
        found = list(_Reader(setting, notes).read(path))
        if found:
            notes.append(f"applied {len(found)} constraint{'s' if len(found) > 1 else ''} from {path} ({setting})")
        yield from found


class _Reader:
    """Reads a constraints file and those nested in it."""

    def __init__(self, setting: str, notes: list[str]) -> None:
        self._setting, self._notes = setting, notes
        self._seen: set[str] = set()

    def read(self, path: str, base: str | None = None) -> Iterator[RequirementLine]:
        """Constraints in a file that is named in the file `base`."""
        local = _local_path(path)
        if local is None:
            self._note("constraints on a server are not read; download the file, and name it with --constraint")
            return
        where = path_from(local, base)
        if where in self._seen or len(self._seen) >= MOST_FILES:
            return
        self._seen.add(where)
        try:
            text = read_bounded(where, REQUIREMENTS_BYTES, "constraints file")
        except InputError as error:
            self._note(f"{error.message}: its constraints are ignored")
            return
        for number, line in logical_lines(text):
            yield from self._read_line(line, f"{where}:{number}", where)

    def _read_line(self, line: str, origin: str, where: str) -> Iterator[RequirementLine]:
        nested, at_url = re.fullmatch(_NESTED, line), re.match(_AT_URL, line)
        if nested is not None:
            yield from self.read(nested[1].strip(), where)
        elif line.startswith("-"):
            self._note(f"{origin}: options are ignored here")
        elif at_url is not None:
            self._note(f"{origin} pins {at_url[1]} to a URL, which is ignored here")
        else:
            try:
                requirement = parse_requirement(line.partition(" --")[0].strip(), origin, base=None, constraint=True)
            except InputError:
                self._note(f"{origin} is not a valid requirement")
                return
            if isinstance(requirement, RequirementLine):
                yield RequirementLine(text=requirement.text, origin=f"{origin}, named by {self._setting}", constraint=True)

    def _note(self, text: str) -> None:
        note = f"{self._setting}: {text}"
        if note not in self._notes:
            self._notes.append(note)


def _local_path(text: str) -> str | None:
    """The path in a setting; None for a file on a server."""
    if text.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(text).path)
    return None if "://" in text or text == "-" else text
