"""A name that an installed package, or this Python, does not have: the release that has it, and what to write instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import RemovedName

_ASKED = re.compile(
    r"No module named '?(?P<module>[A-Za-z_][\w.]{0,120})"
    r"|cannot import name '?(?P<name>\w{1,80})'?(?: from (?:partially initialized module )?'(?P<origin>[A-Za-z_][\w.]{0,120})')?"
    r"|'(?P<owner>[A-Za-z_][\w.]{0,120})'(?: object)? has no attribute '(?P<attribute>\w{1,80})'"
)
_REQUIREMENT = re.compile(r"([A-Za-z][\w.-]{1,40}?)(<|>=)([\d.]{1,10})")


def removed_values(
    text: str, known: Iterable[RemovedName], packages: Sequence[str] = (), imported: str = ""
) -> tuple[dict[str, str], set[str]]:
    """Fields and features for a name of another release; none if the table does not know it.

    `packages` are those that an error concerns; `imported` is the module of an import statement before an error that does not name it.
    All but `removed_name` is of the table: `removed_pin` (`'pillow<10'`), `removed_from`, `pin_pythons`, `older_python`, `instead`.
    """
    rows = {(row.name.casefold(), row.raised_by): row for row in known}
    names = list(_names(text, imported))
    for name in names:
        for package in (*packages, None):
            row = rows.get((name.casefold(), package))
            if row is not None:
                is_of_other = package is not None and not (row.release or "").startswith(package)
                return _values(f"what this {package} expects" if is_of_other else names[0], row)
    folded = text.casefold()
    said = next((row for (name, by), row in rows.items() if " " in name and name in folded and by in (None, *packages)), None)
    return _values("what the message names", said) if said is not None else ({}, set())


def _names(text: str, imported: str) -> Iterator[str]:
    """Names that an error asks for in vain, the most specific first."""
    for found in _ASKED.finditer(text):
        if found["module"]:
            parts = found["module"].rstrip(".").split(".")
            yield ".".join(parts)
            for end in range(len(parts) - 1, 0, -1):
                yield f"{'.'.join(parts[:end])}."
                if end > 1:
                    yield ".".join(parts[:end])
        else:
            owner = found["owner"] or found["origin"] or imported
            yield from (f"{owner}.{found['attribute'] or found['name']}", f"{owner}.*")


def _values(name: str, row: RemovedName) -> tuple[dict[str, str], set[str]]:
    values = {"removed_name": name} | ({"instead": row.instead} if row.instead else {})
    features = {"name-removed"}
    if (limit := _REQUIREMENT.fullmatch(row.release or "")) is not None:
        package, relation, release = limit.groups()
        values["removed_from"] = f"{'Python' if package == 'python' else package} {release}"
        features |= {"name-newer"} if relation == ">=" else set()
        if package == "python":
            values["older_python"] = f"3.{int(release.partition('.')[2]) - 1}"
        else:
            values["removed_pin"] = shlex.quote(limit[0])
            values["pin_pythons"] = f" (its wheels are for Python {row.newest_python} and older)" if row.newest_python else ""
            if package == "setuptools":
                values["pin_pythons"] = " (if pip fails so when it builds a package, take a release of that with a wheel for this Python)"
    return values, features
