"""Which cause explains the others: every active symptom speaks for or against one, and a root takes what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Match, Suspect, Suspects
from cudnn_resolve.matrix.symptom import Cause

FINDING = 30
"""From this weight on a cause is a finding of its own severity; below it is mentioned (info) where there is nothing else."""
_FAR = 20
"""A cause that weighs less by more than this explains nothing of the other."""
_MORE = 3
_MOST_MORE = 9


def is_active(match: Match, features: frozenset[str]) -> bool:
    """True where what a symptom needs is there, and nothing that takes its meaning."""
    symptom = match.symptom
    return all(one in features for one in symptom.needs) and not any(one in features for one in symptom.unless)


def suspects(matches: Iterable[Match], features: frozenset[str]) -> Suspects:
    """The causes that symptoms speak for, by name."""
    speaking: dict[str, list[Match]] = {}
    against: dict[str, int] = {}
    for match in matches:
        symptom = match.symptom
        if symptom.cause is None or symptom.role in ("context", "harmless") or not is_active(match, features):
            continue
        if symptom.role == "excludes":
            against[symptom.cause] = against.get(symptom.cause, 0) + symptom.weight
        else:
            speaking.setdefault(symptom.cause, []).append(match)
    out = {}
    for cause, found in speaking.items():
        ordered = sorted(found, key=lambda one: (-one.symptom.weight, one.line))
        kinds = len({one.symptom.id for one in ordered})
        weight = ordered[0].symptom.weight + min((kinds - 1) * _MORE, _MOST_MORE) - against.get(cause, 0)
        if weight > 0:
            out[cause] = Suspect(cause=cause, weight=min(weight, 100), matches=tuple(ordered))
    return out


def summary_of(suspect: Suspect, cause: Cause) -> str:
    """The cause in one sentence, with what the strongest symptom tells."""
    if suspect.summary is not None:
        return suspect.summary
    for match in suspect.matches:
        if match.symptom.summary is not None:
            said = fill(match.symptom.summary, match.fields)
            if said is not None:
                return said
    return cause.summary


def fill(template: str, fields: Mapping[str, Any]) -> str | None:
    """A sentence with its fields; None where one of them is not known."""
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
    """A field as a sentence shows it."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return " ".join(map(str, value))
    return str(getattr(value, "file", value)).strip().rstrip(".,;:")


def rank(found: Mapping[str, Suspect], causes: Mapping[str, Cause]) -> list[Suspect]:
    """The causes that are left once each root has taken what it explains, the most likely first.

    A root explains another cause when the table says so and it is not weaker by far: then the other's symptoms are its evidence.
    """
    left = sorted(found.values(), key=lambda one: (-one.weight, one.matches[0].line if one.matches else 0))
    names = [one.cause for one in left]
    taken: dict[str, str] = {}
    for one in left:
        for other in names:
            if other != one.cause and other in causes[one.cause].explains and not _above(one.cause, other, taken):
                strong = found[other].weight
                if one.weight >= FINDING and one.weight >= strong - _FAR:
                    taken.setdefault(other, one.cause)
    roots = [one for one in left if one.cause not in taken]
    return [_with_effects(one, taken, found) for one in roots]


def _above(cause: str, other: str, taken: Mapping[str, str]) -> bool:
    """True where `other` explains `cause` already, be it through others."""
    seen: set[str] = set()
    at: str | None = cause
    while at is not None and at not in seen:
        seen.add(at)
        at = taken.get(at)
        if at == other:
            return True
    return False


def _with_effects(root: Suspect, taken: Mapping[str, str], found: Mapping[str, Suspect]) -> Suspect:
    """A root with the symptoms of what it explains, which makes it a little surer."""
    below = [match for other in found if _above(other, root.cause, taken) for match in found[other].matches]
    if not below:
        return root
    return replace(root, weight=min(root.weight + _MORE, 100), effects=tuple(sorted(below, key=lambda one: one.line)))


def evidence_of(suspect: Suspect, *, most: int = 6) -> Sequence[Match]:
    """The matches to show for a cause: different lines, the strongest ones, in the order of the log."""
    chosen: list[Match] = []
    lines: set[int] = set()
    for match in (*suspect.matches, *suspect.effects):
        if match.line not in lines and len(chosen) < most:
            chosen.append(match)
            lines.add(match.line)
    return sorted(chosen, key=lambda one: one.line)
