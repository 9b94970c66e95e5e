"""What pip could not find: no wheel for this Python, or a version that the index does not offer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cudnn_resolve.diagnosis.weigh import Suspect

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match

_LISTED = "pip-versions-listed"


def part_pip(found: dict[str, Suspect], case: Any) -> dict[str, Suspect]:
    """The suspects with pip's list of versions understood: where the wanted one lies in it."""
    for match in case.matches:
        if match.symptom.id != _LISTED:
            continue
        told = _verdict(match)
        if told is not None:
            cause, weight, summary = told
            before = found[cause].matches if cause in found else ()
            found[cause] = Suspect(cause=cause, weight=weight, matches=tuple(dict.fromkeys((match, *before))), summary=summary)
    return found


def _verdict(match: Match) -> tuple[str, float, str] | None:
    requirement, listed = match.fields["requirement"], match.fields["versions"]
    name, wanted = _wanted(requirement)
    versions = sorted(filter(None, (_key(one) for one in re.split(r"[,\s]+", listed)[:2000])))
    if name.startswith("nvidia-"):
        return "pip_pin_unavailable", 92, f"the index that is used does not offer {requirement}; it offers other versions"
    if not versions:
        return None
    low, high = versions[0][1], versions[-1][1]
    key = _key(wanted) if wanted else None
    if key is None:
        return "pip_wheel_unavailable_for_python", 80, f"none of the releases for this Python ({low} to {high}) is {requirement}"
    if "+" in wanted and versions[0][0] <= key[0] <= versions[-1][0]:
        local = wanted.partition("+")[2]
        return "pip_pin_unavailable", 84, f"the index that is used has no {requirement}: builds with +{local} are on another index"
    if key[0] > versions[-1][0]:
        return "pip_wheel_unavailable_for_python", 90, f"{requirement} is newer than the last release for this Python, {high}"
    if key[0] < versions[0][0]:
        return "pip_wheel_unavailable_for_python", 90, f"{requirement} is older than the first release for this Python, {low}"
    if any(key[0] == one[0] for one in versions):
        return "pip_wheel_unavailable_for_python", 66, f"the index lists {requirement}, but no wheel of it fits this Python or platform"
    return "pip_pin_unavailable", 80, f"{requirement} is not among the releases that the index offers, {low} to {high}"


def _wanted(requirement: str) -> tuple[str, str]:
    parts = re.match(r"([A-Za-z0-9][\w.-]{0,79}?)(?:\[[^\]]{0,80}\])?(?:[=<>!~]=?=?([\w.+!-]{1,60}))?$", requirement.rstrip(",;"))
    return (parts[1].lower(), parts[2] or "") if parts else (requirement.lower(), "")


def _key(text: str) -> tuple[tuple[int, ...], str] | None:
    """A version to compare: its numbers; releases that are not final count as the release."""
    numbers = re.match(r"\d{1,6}(?:\.\d{1,6}){0,5}", text)
    return (tuple(int(part) for part in numbers[0].split(".")), text) if numbers else None
