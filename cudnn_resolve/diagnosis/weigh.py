"""Rank causes: active symptoms support or exclude a cause, and a root cause takes over the symptoms of what follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Match, Suspect, Suspects
from cudnn_resolve.matrix.symptom import Cause

FINDING = 30
"""Weight from which a cause is a finding with its own severity; below it is only mentioned (info)."""
_FAR = 20
"""A cause that weighs less by more than this does not explain the other."""
_WITHOUT = (
    r"(?i)\b(?:skipp(?:ed|ing)|optional|not (?:needed|required)|is recommended|for (?:the )?(?:best|better|optimal|full) performance"
    r"|(?:using|back to|switch\w{0,4} to|(?:continu|train|runn?)\w{0,4} (?:on|with)) (?:the )?cpu)\b"
)
"""Wording for something optional, which is not why a program ended."""
_OF_ANOTHER = (
    r"\bnvcc(?:\.exe)?['\"]? failed with exit (?:status|code)|\b(?:HTTP|ERROR|[Ee]rror)[ :]{1,2}(?:Error )?[45]\d\d\b"
    r"|Connection (?:refused|reset|timed out)|^.{0,60}[$#] (?:sudo )?(?:apt(?:-get)?|dnf|yum|pip3?|conda|mamba) "
    r"|^(?!.{0,300}fatal error)[^\s:]{1,200}\.(?:go|rs|c|cc|cpp|cxx|cu|cuh|h|hpp):\d{1,6}:\d{1,6}: "
)
"""Errors found by a working compiler, and failed requests to a server."""
OWN_FAULT = (
    r"(?:.{0,200}: )?(?:[\w.]{0,80}\.)?(?:AttributeError: (?!'NoneType')"
    r"|(?:NameError|KeyError|IndexError|SyntaxError|IndentationError|UnboundLocalError"
    r"|ZeroDivisionError|TypeError|ModuleNotFoundError|FileNotFoundError|JSONDecodeError|UnicodeDecodeError|RecursionError): )"
)
"""Errors of the program's own code, unrelated to earlier messages; not those that an earlier failure may leave behind."""
_ONLY_WARNS = r"\b\w{0,30}[Ww]arning\b|\bWARN(?:ING)?\b|\[W\]|\b(?:INFO|DEBUG|NOTICE)\b|^[WI] ?\d{4} |: [IW] \w{1,40}/"
_RAISED = r"[\w.]{0,80}(?:Error|Exception)\b"
_MORE = 3
_MOST_MORE = 9
_MOST_SHOWN = 6


def is_active(match: Match, features: frozenset[str]) -> bool:
    """True if all features that a symptom needs are present and none that exclude it."""
    symptom = match.symptom
    return all(feature in features for feature in symptom.needs) and not any(feature in features for feature in symptom.unless)


def suspects(matches: Iterable[Match], features: frozenset[str], died: Match | None, *, has_failed: bool) -> Suspects:
    """Causes supported by symptoms; generic wording counts only if nothing else matches and something failed.

    `died`: the line at which the run ended, which generic wording must explain.
    """
    spoken = [match for match in matches if is_active(match, features)]
    known = [match for match in spoken if not match.symptom.last]
    found = _suspects(known)
    if any(suspect.weight >= FINDING for suspect in found.values()) or (
        not has_failed and any(match.symptom.role == "harmless" for match in known)
    ):
        return found
    lines = {match.line for match in known if match.symptom.role != "context"}
    general = [match for match in spoken if match.symptom.last and match.line not in lines and not re.search(_OF_ANOTHER, match.text)]
    general = [match for match in general if not (has_failed and re.search(_WITHOUT, match.text)) and not _is_beside(match, died)]
    return _suspects([*known, *general])


def _is_beside(match: Match, died: Match | None) -> bool:
    """True if a line of generic wording does not explain the end of the run: an error of its own ended it, or the line only warns."""
    if died is None or match.line == died.line or re.match(_RAISED, match.text.lstrip()):
        return False
    return re.match(OWN_FAULT, died.text) is not None or (
        re.search(_ONLY_WARNS, match.text) is not None and re.match(_RAISED, died.text) is not None
    )


def _suspects(matches: Iterable[Match]) -> Suspects:
    speaking: dict[str, list[Match]] = {}
    against: dict[str, int] = {}
    for match in matches:
        symptom = match.symptom
        if symptom.cause is None or symptom.role in ("context", "harmless"):
            continue
        if symptom.role == "excludes":
            against[symptom.cause] = against.get(symptom.cause, 0) + symptom.weight
        else:
            speaking.setdefault(symptom.cause, []).append(match)
    out = Suspects()
    for cause, found in speaking.items():
        ordered = sorted(found, key=lambda match: (-match.symptom.weight, match.line))
        kinds = len({match.symptom.id for match in ordered})
        weight = ordered[0].symptom.weight + min((kinds - 1) * _MORE, _MOST_MORE) - against.get(cause, 0)
        if weight > 0:
            out[cause] = Suspect(cause=cause, weight=min(weight, 100), matches=tuple(ordered))
    return out


def summary_of(suspect: Suspect, cause: Cause) -> str:
    """The cause in one sentence, with the fields of the strongest symptom."""
    if suspect.summary is not None:
        return suspect.summary
    filled = (fill(match.symptom.summary, match.fields) for match in suspect.matches if match.symptom.summary is not None)
    return next((summary for summary in filled if summary is not None), cause.summary)


def fill(template: str, fields: Mapping[str, Any]) -> str | None:
    """Fill the fields of a sentence; None if one of them is unknown."""
    from string import Formatter

    out = []
    for text, name, _, _ in Formatter().parse(template):
        out.append(text)
        if name is not None:
            if fields.get(name) is None:
                return None
            out.append(shown(fields[name]))
    return "".join(out)


def shown(value: object) -> str:
    """Format a field for a sentence."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return " ".join(map(str, value))
    return str(getattr(value, "file", value)).strip().rstrip(".,;:")


def rank(found: Mapping[str, Suspect], causes: Mapping[str, Cause]) -> list[Suspect]:
    """Root causes, most likely first.

    A root explains another cause if the table says so and it is not far weaker; the other's symptoms become its evidence.
    """
    left = sorted(found.values(), key=lambda suspect: (-suspect.weight, suspect.matches[0].line if suspect.matches else 0))
    names = [suspect.cause for suspect in left]
    taken: dict[str, str] = {}
    for suspect in left:
        for other in names:
            if other != suspect.cause and other in causes[suspect.cause].explains and not _above(suspect.cause, other, taken):
                strong = found[other].weight
                if suspect.weight >= FINDING and suspect.weight >= strong - _FAR:
                    taken.setdefault(other, suspect.cause)
    roots = [suspect for suspect in left if suspect.cause not in taken]
    return sorted((_with_effects(suspect, taken, found) for suspect in roots), key=lambda suspect: -suspect.weight)


def _above(cause: str, other: str, taken: Mapping[str, str]) -> bool:
    """True if `other` already explains `cause`, directly or through other causes."""
    while cause in taken:
        cause = taken[cause]
        if cause == other:
            return True
    return False


def _with_effects(root: Suspect, taken: Mapping[str, str], found: Mapping[str, Suspect]) -> Suspect:
    """Add the symptoms of explained causes to their root, which becomes a little surer."""
    below = [match for other in found if _above(other, root.cause, taken) for match in found[other].matches]
    if not below:
        return root
    return replace(root, weight=min(root.weight + _MORE, 100), effects=tuple(sorted(below, key=lambda match: match.line)))


def evidence_of(suspect: Suspect) -> Sequence[Match]:
    """Matches to show for a cause: the strongest, one per line, in the order of the log."""
    by_line: dict[int, Match] = {}
    for match in suspect.every:
        by_line.setdefault(match.line, match)
    return sorted(list(by_line.values())[:_MOST_SHOWN], key=lambda match: match.line)
