"""What pip could not find: no wheel for this Python, or a version that the index does not offer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.release import Wanted, parse
from cudnn_resolve.diagnosis.specifier import within
from cudnn_resolve.diagnosis.weigh import Suspect

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.context import Case
    from cudnn_resolve.diagnosis.model import Match

_LISTED = "pip-versions-listed"
_NOTICE, _MAJOR, _TOLD = "pip-cudnn-other-major", "cudnn_major_mismatch", 92
_PYTHON = "pip_wheel_unavailable_for_python"
_Key = tuple[tuple[int, ...], str]
"""The numbers of a version, and its text."""


def part_pip(found: dict[str, Suspect], case: Case) -> dict[str, Suspect]:
    """The suspects with pip's list of versions understood: where the wanted one lies in it."""
    for match in case.matches:
        if match.symptom.id != _LISTED:
            continue
        told = _verdict(match)
        if told is not None:
            cause, weight, summary = told
            before = found[cause].matches if cause in found else ()
            found[cause] = Suspect(cause=cause, weight=weight, matches=tuple(dict.fromkeys((match, *before))), summary=summary)
    if set(found) == {_MAJOR} and all(match.symptom.id == _NOTICE for match in found[_MAJOR].matches):
        # Beside a failure it may be of another framework; alone it is what pip says it is.
        found[_MAJOR] = replace(found[_MAJOR], weight=_TOLD)
    return found


def _verdict(match: Match) -> tuple[str, float, str] | None:
    requirement, listed = match.fields["requirement"], match.fields["versions"]
    wanted = parse(requirement)
    offered = re.split(r"[,\s]+", listed)[:2000]
    versions = sorted(filter(None, map(_key, offered)))
    if requirement.lower().startswith("nvidia-"):
        return "pip_pin_unavailable", 92, f"the index that is used does not offer {requirement}; it offers other versions"
    if not versions:
        return None
    low, high = versions[0][1], versions[-1][1]
    key = _key(wanted.version or "") if wanted is not None else None
    if wanted is None or key is None:
        return _PYTHON, 80, f"none of the releases for this Python ({low} to {high}) is {requirement}"
    if wanted.local and versions[0][0] <= key[0] <= versions[-1][0]:
        return "pip_pin_unavailable", 84, f"the index that is used has no {requirement}: builds with +{wanted.local} are on another index"
    if any(within(wanted.specifier, one) for one in offered):
        return _PYTHON, 66, f"the index lists {wanted.text}, but no wheel of it fits this Python or system"
    least, most = _bounds(wanted)
    what = f"{requirement} is" if wanted.is_pin else f"{requirement} asks for a release"
    if least is not None and least[0] >= versions[-1][0]:
        return _PYTHON, 90, f"{what} newer than the last one for this Python, {high}"
    if most is not None and most[0] <= versions[0][0]:
        return _PYTHON, 90, f"{what} older than the first one for this Python, {low}"
    return "pip_pin_unavailable", 80, f"{requirement} is not among the releases that the index offers, {low} to {high}"


def _bounds(wanted: Wanted) -> tuple[_Key | None, _Key | None]:
    """The least and the most of the releases that are wanted; a pin is both."""
    least, most = [], []
    for operator, version in re.findall(r"(===?|~=|>=|<=|!=|<|>)([\w.+!*-]{1,40})", wanted.specifier):
        key = _key(version)
        if key is not None and operator in ("==", "===", "~=", ">=", ">"):
            least.append(key)
        if key is not None and operator in ("==", "===", "~=", "<=", "<"):
            most.append(key)
    return max(least, default=None), min(most, default=None)


def _key(text: str) -> _Key | None:
    """A version to compare: its numbers; releases that are not final count as the release."""
    numbers = re.match(r"\d{1,6}(?:\.\d{1,6}){0,5}", text)
    return (tuple(int(part) for part in numbers[0].split(".")), text) if numbers else None
