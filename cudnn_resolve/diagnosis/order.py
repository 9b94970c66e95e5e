"""What comes after a failure: a program that went on, and one that came to a good end, has outlived it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Match, Suspect
from cudnn_resolve.diagnosis.weigh import summary_of
from cudnn_resolve.matrix.symptom import Cause

_END, _BAD_END, _EPOCH, _WORKS = "context-good-end", "context-bad-end", "context-epoch", "gpu-works"
_IN_USE = frozenset({"out_of_memory", "bad_input", "hardware_fault"})
"""Causes whose failures come from a GPU that is in use: a program that goes on after them did not merely do without it."""
_EPOCHS = 3
"""So many lines of further epochs show that a training goes on; one may be of another rank, or be what was about to fail."""
_SURE = 0.6
_TIME = re.compile(
    r"\s{0,8}\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?\s{0,4}(?:std(?:out|err) [FP] |\| )?"
)
_SPEAKER = re.compile(
    r"\s{0,8}(?:"
    r"\[?(?P<rank>rank ?\d{1,5})\]?"
    r"|(?P<service>[\w./-]{1,60}) {0,20}\| "
    r"|(?P<service2>[\w./-]{1,40}-\d{1,4}) exited with "
    r"|(?P<job>(?:job|task|stage|node|worker|pod|host|build)[ #-]?[\w.-]{1,40}): "
    r"|\((?P<process>[\w ]{1,40}pid=\d{1,9})[^)]{0,40}\)"
    r"|\[(?P<number>[\d,]{1,9})\](?:<std(?:out|err)>)?:"
    r"|(?P<label>\d{1,4}): "
    r"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d (?P<unit>[\w.-]{1,60} [\w./@-]{1,60}(?:\[\d{1,9}\])?):"
    r")",
    re.IGNORECASE,
)
"""Who writes a line, where several write into one log."""
_LEVEL = re.compile(r"\b(?:INFO|NOTICE|info|notice|Info)\b")
_PROSE = re.compile(r"[A-Za-z]{2,30} [a-z]{2,30}")
_UNIT = r"(?:h|m|s|d|ms|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?)?"
_DURATION = re.compile(
    r"[\s.!,:;(-]{0,4}(?:(?:in|after|at|on|took|time|total time)[\s:=]{1,3})?"
    rf"(?:[\d:.,TZ+-]{{1,25}} ?{_UNIT}[ ,]{{0,2}}(?:and )?){{0,4}}[\s.!)]{{0,4}}",
    re.IGNORECASE,
)
_NONE = re.compile(r"\W{0,4}0(?![\d.:])")


def outlived(
    ranked: Iterable[Suspect], latest: Mapping[str, Sequence[Match]], features: frozenset[str], causes: Mapping[str, Cause]
) -> list[Suspect]:
    """The suspects, those after whose last line the same program went on with less weight, and with the line that shows it.

    A word of a good end makes a failure less sure; only work that was done after it makes it a warning. Where the log does not show
    that a GPU is at work nothing is taken from a GPU that was not found: that program went on without it.
    """
    out = []
    for one in ranked:
        failed = max((latest[match.symptom.id][-1] for match in (*one.matches, *one.effects)), key=lambda match: match.line)
        after = _after(failed, latest)
        end = None if _failed_again(failed, latest) else next(filter(_is_end, after(_END)), None)
        epochs = after(_EPOCH)
        goes_on = len(epochs) >= _EPOCHS
        if not (_WORKS in features or one.cause in _IN_USE) or not (end or goes_on):
            out.append(one)
            continue
        shown = end or epochs[-1]
        how = "the program came to a good end" if end else "the training goes on"
        said = f"{summary_of(one, causes[one.cause])}; yet after it {how} (line {shown.line})"
        worked = goes_on or (end is not None and "reached" in end.fields)
        severity = "warning" if worked else one.severity
        weight = min(one.weight, 100 * _SURE)
        out.append(replace(one, summary=said, weight=weight, severity=severity, effects=(*one.effects, shown)))
    return out


def _after(failed: Match, latest: Mapping[str, Sequence[Match]]) -> Callable[[str], list[Match]]:
    """The matches of a symptom that come after a failure and are of the program that failed."""
    who = speaker(failed.text)
    return lambda name: [match for match in latest.get(name, ()) if match.line > failed.line and speaker(match.text) == who]


def _is_end(match: Match) -> bool:
    """True where a line says no more than that the work is done: behind what a logger writes, with nothing but a time after it."""
    before, rest = match.fields.get("before", ""), match.fields.get("rest", "")
    before = before[_head(before) :] if before else ""
    before = _LEVEL.sub("", before)
    last = re.split(r"[:\]|>]|- ", before)[-1]
    is_bare = not _PROSE.search(before) and not re.search(r"[A-Za-z]", re.sub(r"\bthe\b", "", last, flags=re.IGNORECASE))
    return is_bare and _DURATION.fullmatch(rest) is not None and not _NONE.match(rest)


def _failed_again(failed: Match, latest: Mapping[str, Sequence[Match]]) -> bool:
    """True where something, whoever it was, ends badly after a failure: a good end is not of what failed."""
    return any(match.line > failed.line for match in latest.get(_BAD_END, ()))


def speaker(text: str) -> str:
    """Who writes a line, as the launcher puts it before the line; nothing where it does not. A time is no one."""
    time = _TIME.match(text)
    found = _SPEAKER.match(text, time.end() if time else 0)
    return next(one for one in found.groups() if one) if found else ""


def _head(text: str) -> int:
    """Where the message begins behind the time and the name of who writes it."""
    time = _TIME.match(text)
    at = time.end() if time else 0
    found = _SPEAKER.match(text, at)
    return found.end() if found else at
