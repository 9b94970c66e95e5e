"""A name that an installed package, or this Python, does not have: the release that has it, what to write instead, who asks for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.log_stack import known_framework
from cudnn_resolve.diagnosis.model import Case, Match, of_symptom

if TYPE_CHECKING:
    from cudnn_resolve.matrix.row import RemovedName

_ASKED = re.compile(
    r"No module named '?(?P<module>[A-Za-z_][\w.]{0,120})"
    r"|cannot import name '?(?P<name>\w{1,80})'?(?: from (?:partially initialized module )?'(?P<origin>[A-Za-z_][\w.]{0,120})')?"
    r"|'(?P<owner>[A-Za-z_][\w.]{0,120})'(?: object)? has no attribute '(?P<attribute>\w{1,80})'"
)
_NAMES, _NEXT = frozenset({"names-of-another-release", "jax-name-removed"}), 3
"""Symptoms of a name that another release has, and their distance from the call that asks for it."""
_FAMILIES = ("torch", "tensorflow", "keras", "jax", "triton")
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


def importer_values(failed: Sequence[Match], case: Case, python: str | None) -> dict[str, str]:
    """Fields for a package that asks for a missing name; with ranges for it, and for the package without the name, if conda lists them.

    The installed JAX stays, for the sake of its jaxlib: the command asks `python` for its release (None: the shell cannot do that).
    """
    importer = _importer(failed, case)
    is_of_jax = bool(failed) and failed[0].symptom.id == "jax-name-removed"
    if importer is None or (is_of_jax and python is None):
        return {}
    rows = (match.fields for match in case.matches if "conda_name" in match.fields)
    listed = {str(fields["conda_name"]): str(fields["conda_release"]).split(".") for fields in rows}
    with_jax = f" \"jax==$({python} -c 'import jax; print(jax.__version__)')\"" if is_of_jax else ""
    values, own = {"importer": importer, "importer_with": with_jax}, listed.get(importer, [])
    if len(own) > 1 and own[1].isdigit():
        values["importer_conda"] = shlex.quote(f"{importer}>{'.'.join(own)},<{own[0]}.{int(own[1]) + 1}")
    asked = next((str(value).partition(".")[0] for name, value in failed[0].fields.items() if name.startswith("module")), "")
    owner = listed.get(asked, ["0"])
    values["owner_conda"] = f"the last {asked or 'package'} that it fits" if owner[0] in ("0", "1") else shlex.quote(f"{asked}<{owner[0]}")
    return values


def _importer(failed: Sequence[Match], case: Case) -> str | None:
    """Package whose code asked another one for a name that it does not have, unless it is a framework or a part of one."""
    asked = next(of_symptom(failed[:1], *_NAMES), None)
    calls = (frame for frame in case.frames if "-packages" in frame.text)
    near = [frame for frame in calls if asked is not None and 0 < asked.line - frame.line <= _NEXT]
    name = str(max(near, key=lambda frame: frame.line).fields.get("frame", "")) if near else ""
    is_of_framework = known_framework(name, case.book) is not None or name.startswith(_FAMILIES)
    return shlex.quote(name) if name and not is_of_framework else None


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
