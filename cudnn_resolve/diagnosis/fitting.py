"""Why no wheel fits: the Python, or the system; as far as the message, its file name, the facts and the releases of the matrix tell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.release import is_elsewhere, own_line, parse_file, python_tags, releases_within, wanted_of

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.context import Case
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.diagnosis.weigh import Suspect
    from cudnn_resolve.facts.model import Facts, Platform

_CAUSE = "pip_wheel_unavailable_for_python"
_OPEN = frozenset({"pip-versions-none", "pip-no-matching", "uv-wheel", "uv-python", "pip-wheel-file"})
"""Symptoms that leave open which of the two it is."""
_GLIBC = re.compile(r"manylinux_(\d{1,2})_(\d{1,3})_")
_SYSTEMS = {"linux": "Linux", "windows": "Windows", "darwin": "macOS"}
_MOST_LINES = 2
_DECIDED = 91
"""The weight of what two sources say, so that nothing is left open."""
Told = tuple[str, bool]
"""A sentence, and whether it says which of the two it is."""


def part_wheel(found: dict[str, Suspect], case: Case) -> dict[str, Suspect]:
    """The suspects, where a wheel is lacking with whether the Python or the system is why."""
    suspect = found.get(_CAUSE)
    if suspect is None or suspect.summary is not None or suspect.matches[0].symptom.id not in _OPEN:
        return found
    matches = list(suspect.matches)
    told, sure = _of_file(matches, case) or _of_releases(matches, case) or (None, False)
    if told is not None:
        found[_CAUSE] = replace(suspect, summary=told, weight=max(suspect.weight, _DECIDED) if sure else suspect.weight)
    return found


def is_of_system(matches: Iterable[Match], facts: Facts | None) -> bool:
    """True where it is the system that wheels are not made for: no other Python takes them here."""
    for match in matches:
        file = match.fields.get("wheel")
        wanted = parse_file(file) if isinstance(file, str) else None
        if match.symptom.id == "uv-platform" or (wanted is not None and is_elsewhere(wanted.platform, facts)):
            return True
    return False


def _of_file(matches: list[Match], case: Case) -> Told | None:
    """Of a wheel file, whose name says what it is made for."""
    file = next((match.fields["wheel"] for match in matches if isinstance(match.fields.get("wheel"), str)), None)
    wanted = parse_file(file) if file is not None else None
    if file is None or wanted is None:
        return None
    lines = sorted({line for line, _ in python_tags([f"{wanted.tag}-{wanted.platform}"])})
    made = " and ".join(one for one in (f"Python {_shown(lines)}" if lines else "", _system_of(wanted.platform)) if one)
    own = _own(matches, case)
    another = bool(own and lines and own not in lines and not ("abi3" in wanted.tag and lines[0] <= own))
    elsewhere = is_elsewhere(wanted.platform, case.facts)
    here = [f"Python {own[0]}.{own[1]}"] if own and another else []
    here += [_here(case.facts.platform)] if elsewhere and case.facts is not None else []
    if here:
        return f"{file} is made for {made}, and this is {' and '.join(here)}", True
    return (f"{file} is made for {made}, and this is another Python or another system", False) if made else None


def _of_releases(matches: list[Match], case: Case) -> Told | None:
    """Of a release whose wheels the matrix knows."""
    wanted, own = wanted_of(matches), _own(matches, case)
    releases = releases_within(wanted, case.book) if wanted is not None else []
    if wanted is None or own is None or not releases:
        return None
    pairs = [pair for one in releases for pair in python_tags(one.tags, one.requires_python)]
    fits = [platform for line, platform in pairs if line == own]
    if not fits:
        lines = sorted({line for line, _ in pairs})
        told = f"{wanted.text} has no wheel for Python {own[0]}.{own[1]}: its wheels are for Python {_shown(lines)}"
        return (told, True) if lines else None
    of = f"{wanted.text} has wheels for Python {own[0]}.{own[1]}"
    if case.facts is None:
        return f"{of}: it is this system that they do not fit, or an index that lacks them", False
    if not any(_suits(one, case.facts) for one in fits):
        return f"{of}, but none for {_here(case.facts.platform)}", True
    return f"{of} and this system: the index that is used does not offer them, or could not be reached", False


def _own(matches: Iterable[Match], case: Case) -> tuple[int, int] | None:
    """The Python of the messages or of the facts, else the only one that the log shows."""
    told = own_line(matches, case.facts)
    if told is not None:
        return told
    shown = {own_line([one], None) for one in case.matches if one.symptom.id == "context-python"}
    return shown.pop() if len(shown) == 1 else None


def _shown(lines: list[tuple[int, int]]) -> str:
    words = [f"{line[0]}.{line[1]}" for line in lines]
    return " and ".join(words) if len(words) <= _MOST_LINES else f"{words[0]} to {words[-1]}"


def _system_of(platform: str) -> str:
    """The system that a platform tag means, in words; nothing for any."""
    if platform == "any":
        return ""
    name = "Windows" if platform.startswith("win") else "macOS" if platform.startswith("macosx") else "Linux"
    arch = next((one for one in ("x86_64", "aarch64", "amd64", "arm64", "ppc64le", "i686") if platform.endswith(one)), None)
    return f"{name} on {arch}" if arch else name


def _here(platform: Platform) -> str:
    system = _SYSTEMS.get(platform.system or "", platform.system or "this system")
    return " ".join(
        one
        for one in (system, f"on {platform.arch}" if platform.arch else "", f"(glibc {platform.glibc})" if platform.glibc else "")
        if one
    )


def _suits(platforms: str, facts: Facts) -> bool:
    """True where one of the platform tags, with dots between them, may be this system."""
    for one in platforms.split("."):
        least = _GLIBC.match(one)
        own = facts.platform.glibc
        old = bool(least and own and tuple(map(int, own.split(".")[:2])) < (int(least[1]), int(least[2])))
        if not old and not is_elsewhere(one, facts):
            return True
    return False
