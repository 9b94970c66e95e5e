"""The limits that the environment hands to pip and uv, as those of `--constraint`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cudnn_resolve.errors import InputError
from cudnn_resolve.record import replace

if TYPE_CHECKING:
    from cudnn_resolve.requirement.model import Extra


def configured(constraints: Iterable[tuple[str, str]], notes: list[str]) -> Iterator[Extra]:
    """What the files say, each named by its path and by who names it (`PIP_CONSTRAINT`); InputError where one cannot be read.

    What is no limit on a version (a package at one address, a file on a server) does not count, and is added to `notes`.
    """
    from cudnn_resolve.requirement.file import read_requirements
    from cudnn_resolve.requirement.model import Extra

    for path, said_by in constraints:
        if "://" in path:
            notes.append(f"{said_by} names limits on a server, which are not read; fetch the file, and name it with --constraint")
            continue
        reader = _Reader(said_by, notes)
        found = [one for one in read_requirements(path, reader, constraint=True) if isinstance(one, Extra)]
        if found:
            notes.append(f"{len(found)} limits of {path} count, as for pip ({said_by})")
        yield from (replace(one, origin=f"{one.origin}, which {said_by} names") for one in found)


class _Reader:
    """Reads files of limits without the lines that name an address."""

    def __init__(self, said_by: str, notes: list[str]) -> None:
        self._said_by, self._notes = said_by, notes

    def __call__(self, name: str, base: str | None) -> tuple[str, str]:
        """The path and the text of a file that is named in another."""
        from cudnn_resolve.cli.request import SIZE
        from cudnn_resolve.host.files import beside, read_bounded

        where = beside(name, base)
        try:
            lines = read_bounded(where, SIZE, "constraints file").splitlines()
        except InputError as error:
            hint = f"{self._said_by} names it, and pip would refuse, too: correct that, or take it out"
            raise InputError(error.message, code=error.code, context=error.context, hint=hint) from None
        at_address = ["@" in line.partition("#")[0] for line in lines]
        if any(at_address):
            named = lines[at_address.index(True)].partition("@")[0].strip()[:100]
            self._notes.append(f"{where} ({self._said_by}) pins {named} to an address: such limits do not count here")
        return where, "\n".join("" if left else line for line, left in zip(lines, at_address, strict=True))
