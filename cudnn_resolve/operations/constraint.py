"""The limits that the environment hands to pip and uv, as those of `--constraint`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cudnn_resolve.errors import InputError
from cudnn_resolve.host.files import path_from, read_bounded
from cudnn_resolve.operations.request import REQUIREMENTS_BYTES
from cudnn_resolve.requirement.file import logical_lines, parse_requirement
from cudnn_resolve.requirement.model import Extra

MOST = 50
"""Files that are read, those that are named in others among them."""
_NESTED = r"(?:-c|--constraint|-r|--requirement)[=\s]\s*(\S.*)"
_AT_ADDRESS = r"([A-Za-z0-9][\w.-]{0,199})\s*(?:\[[^\]]{0,500}\])?\s*@\s*\S"


def configured(constraints: Iterable[tuple[str, str]], notes: list[str]) -> Iterator[Extra]:
    """What the files say, each named by its path and by who names it (`PIP_CONSTRAINT`).

    What cannot be read, or is no limit on a version (a package at one address, a file on a server, another option), does not count,
    and is added to `notes`: the environment's word is no reason to have no plan.
    """
    for path, said_by in constraints:
        found = list(_Reader(said_by, notes).read(path))
        if found:
            notes.append(f"{len(found)} limit{'s' if len(found) > 1 else ''} of {path} count ({said_by})")
        yield from found


class _Reader:
    """Reads a file of limits and those that it names."""

    def __init__(self, said_by: str, notes: list[str]) -> None:
        self._said_by, self._notes = said_by, notes
        self._seen: set[str] = set()

    def read(self, path: str, base: str | None = None) -> Iterator[Extra]:
        """The limits in a file, which is named in the file `base`."""
        place = _path_of(path)
        if place is None:
            self._note("limits on a server are not read; fetch the file, and name it with --constraint")
            return
        where = path_from(place, base)
        if where in self._seen or len(self._seen) >= MOST:
            return
        self._seen.add(where)
        try:
            text = read_bounded(where, REQUIREMENTS_BYTES, "constraints file")
        except InputError as error:
            self._note(f"{error.message}: no limits of it count")
            return
        for number, line in logical_lines(text):
            yield from self._line(line, f"{where}:{number}", where)

    def _line(self, line: str, origin: str, where: str) -> Iterator[Extra]:
        nested, pinned = re.fullmatch(_NESTED, line), re.match(_AT_ADDRESS, line)
        if nested is not None:
            yield from self.read(nested[1].strip(), where)
        elif line.startswith("-"):
            self._note(f"{origin}: an option does not count here")
        elif pinned is not None:
            self._note(f"{origin} pins {pinned[1]} to an address, which does not count here")
        else:
            try:
                found = parse_requirement(line.partition(" --")[0].strip(), origin, base=None, constraint=True)
            except InputError:
                self._note(f"{origin} is no requirement")
                return
            if isinstance(found, Extra):
                yield Extra(text=found.text, origin=f"{origin}, which {self._said_by} names", constraint=True)

    def _note(self, text: str) -> None:
        note = f"{self._said_by}: {text}"
        if note not in self._notes:
            self._notes.append(note)


def _path_of(text: str) -> str | None:
    """The path that is meant, None for what is not on this machine."""
    if text.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(text).path)
    return None if "://" in text or text == "-" else text
