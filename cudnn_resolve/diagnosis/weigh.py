"""Which cause explains the others: every active symptom speaks for or against one, and a root takes what follows from it.

What comes after a failure counts, too: a program that went on, and one that came to a good end, has outlived it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Match, Suspect, Suspects
from cudnn_resolve.matrix.symptom import Cause

FINDING = 30
"""From this weight on a cause is a finding of its own severity; below it is mentioned (info) where there is nothing else."""
_FAR = 20
"""A cause that weighs less by more than this explains nothing of the other."""
_WITHOUT = (
    r"(?i)\b(?:skipp(?:ed|ing)|optional|not (?:needed|required)|is recommended|for (?:the )?(?:best|better|optimal|full) performance"
    r"|(?:using|back to|switch\w{0,4} to|(?:continu|train|runn?)\w{0,4} (?:on|with)) (?:the )?cpu)\b"
)
"""What is said of a thing that a program does without, which is not why it ended."""
_OF_ANOTHER = (
    r"\bnvcc(?:\.exe)?['\"]? failed with exit (?:status|code)|\b(?:HTTP|ERROR|[Ee]rror)[ :]{1,2}(?:Error )?[45]\d\d\b"
    r"|Connection (?:refused|reset|timed out)"
    r"|^(?!.{0,300}fatal error)[^\s:]{1,200}\.(?:go|rs|c|cc|cpp|cxx|cu|cuh|h|hpp):\d{1,6}:\d{1,6}: "
)
"""A compiler that is there and found errors in what it was to compile, and a server that did not give what it was asked for."""
_OWN_FAULT = (
    r"(?:[\w.]{0,80}\.)?(?:AttributeError: (?!'NoneType')|(?:NameError|KeyError|IndexError|SyntaxError|IndentationError|UnboundLocalError"
    r"|ZeroDivisionError|TypeError|ModuleNotFoundError|FileNotFoundError|JSONDecodeError|UnicodeDecodeError|RecursionError): )"
)
"""An error that a program makes by itself, whatever was said before it; of nothing that an earlier failure left behind."""
_ONLY_WARNS = r"\b\w{0,30}[Ww]arning\b|\bWARN(?:ING)?\b|\[W\]|\b(?:INFO|DEBUG|NOTICE)\b|^[WI] ?\d{4} |: [IW] \w{1,40}/"
_RAISED = r"[\w.]{0,80}(?:Error|Exception)\b"
_MORE = 3
_MOST_MORE = 9
_MOST_SHOWN = 6


def is_active(match: Match, features: frozenset[str]) -> bool:
    """True where what a symptom needs is there, and nothing that takes its meaning."""
    symptom = match.symptom
    return all(one in features for one in symptom.needs) and not any(one in features for one in symptom.unless)


def suspects(matches: Iterable[Match], features: frozenset[str], died: Match | None = None, *, has_failed: bool = True) -> Suspects:
    """The causes that symptoms speak for, by name; general words count where no other does and something failed.

    `died`: the line at which the run ended, which general words have to explain.
    """
    spoken = [one for one in matches if is_active(one, features)]
    known = [one for one in spoken if not one.symptom.last]
    found = _suspects(known)
    if any(one.weight >= FINDING for one in found.values()) or (not has_failed and any(one.symptom.role == "harmless" for one in known)):
        return found
    lines = {one.line for one in known if one.symptom.role != "context"}
    general = [one for one in spoken if one.symptom.last and one.line not in lines and not (has_failed and re.search(_WITHOUT, one.text))]
    general = [one for one in general if not re.search(_OF_ANOTHER, one.text) and not _is_beside(one, died)]
    return _suspects([*known, *general])


def _is_beside(match: Match, died: Match | None) -> bool:
    """True for a line of general words that does not say why the run ended: it ended by a fault of its own, or the line merely warns."""
    if died is None or match.line == died.line or re.match(_RAISED, match.text.lstrip()):
        return False
    return re.match(_OWN_FAULT, died.text) is not None or (
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


def evidence_of(suspect: Suspect) -> Sequence[Match]:
    """The matches to show for a cause: different lines, the strongest ones, in the order of the log."""
    chosen: list[Match] = []
    lines: set[int] = set()
    for match in (*suspect.matches, *suspect.effects):
        if match.line not in lines and len(chosen) < _MOST_SHOWN:
            chosen.append(match)
            lines.add(match.line)
    return sorted(chosen, key=lambda one: one.line)


# --- what was outlived ---

_END, _BAD_END, _EPOCH, _WORKS = "context-good-end", "context-bad-end", "context-epoch", "gpu-works"
_AT_WORK, _TESTS, _WORK, _DIED = "context-gpu-works", "context-tests-passed", "context-at-work", "context-died"
_NO_GPU = frozenset({"driver_not_loaded", "no_gpu_runtime", "cuda_runtime_missing", "cpu_only_build"})
"""What a machine for the CPU lacks."""
_GPU_SHOWN = frozenset({"gpu-seen", "gpu-named", "gpu-works", "smi-table", "driver-seen", "docker-gpus", "cuda-opened"})
_AT_START = frozenset(
    {"driver_not_loaded", "driver_too_old", "driver_wedged", "gpu_hidden_by_env", "cuda_runtime_missing", "cpu_only_build"}
)
"""Causes with which a program finds no GPU; where it then shows one that it works with, it found another way."""
_PROGRAMS = tuple(
    map(
        re.compile,
        (
            r"tensorflow|Created device ",
            r"[Tt]orch\b",
            r"\bjax|Device\(id=",
            r"onnxruntime|ExecutionProvider",
            r"ggml|ollama|inference compute",
        ),
    )
)
"""How lines show whose they are, where several programs look for a GPU in one process."""
_HANDLED, _NEAR = "context-handled", 3
"""A line that shows a program ready for a lack of memory, and how far from the failure it stands."""
_IN_USE = frozenset({"out_of_memory", "bad_input", "hardware_fault"})
"""Causes whose failures come from a GPU that is in use: a program that goes on after them did not merely do without it."""
_EPOCHS = 3
"""So many lines of further epochs show that a training goes on; one may be of another rank, or be what was about to fail."""
_SURE = 0.6
_TIME = r"\s{0,8}\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?\s{0,4}(?:std(?:out|err) [FP] |\| )?"
_SPEAKER = re.compile(
    r"\s{0,8}(?:"
    r"\[?(?P<rank>rank ?\d{1,5})\]?"
    r"|(?!(?:debug|info|notice|warn(?:ing)?|error|critical|fatal|trace) {0,20}\|)(?P<service>[\w./-]{1,60}) {0,20}\| "
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
_LEVEL = r"\b(?:INFO|NOTICE|info|notice|Info)\b"
_PROSE = r"[A-Za-z]{2,30} [a-z]{2,30}"
_UNIT = r"(?:h|m|s|d|ms|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?)?"
_DURATION = (
    r"(?i)[\s.!,:;(-]{0,4}(?:(?:in|after|at|on|took|time|total time)[\s:=]{1,3})?"
    rf"(?:[\d:.,TZ+-]{{1,25}} ?{_UNIT}[ ,]{{0,2}}(?:and )?){{0,4}}[\s.!)]{{0,4}}"
)
_NONE = r"\W{0,4}0(?![\d.:])"


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
        started = next((match for match in after(_AT_WORK) if _found_after_all(one, match)), None)
        if started is not None:
            said = f"{summary_of(one, causes[one.cause])}; yet after it the program has a GPU (line {started.line})"
            out.append(replace(one, summary=said, weight=min(one.weight, FINDING - 1), severity="info", effects=(*one.effects, started)))
            continue
        handled = any(abs(match.line - failed.line) <= _NEAR for match in latest.get(_HANDLED, ()))
        went_on = None if _failed_again(failed, latest) else _went_on(one, after, features, handled=handled)
        if went_on is not None:
            shown, how = went_on
            said = f"{summary_of(one, causes[one.cause])}; yet after it {how} (line {shown.line})"
            out.append(replace(one, summary=said, weight=min(one.weight, FINDING - 1), severity="info", effects=(*one.effects, shown)))
            continue
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
        severity = "info" if goes_on and handled else "warning" if worked or handled else one.severity
        weight = min(one.weight, 100 * _SURE)
        out.append(replace(one, summary=said, weight=weight, severity=severity, effects=(*one.effects, shown)))
    return out


def _went_on(suspect: Suspect, after: Callable[[str], list[Match]], features: frozenset[str], *, handled: bool) -> tuple[Match, str] | None:
    """The line that shows that a program needs nothing of what it did not find or get, and that in words.

    Tests passed; or it got to its work where nothing shows that there is, or should be, a GPU, or where it was ready for a lack of memory.
    """
    passed = next(iter(after(_TESTS)), None)
    if passed is not None:
        return passed, "all tests passed"
    works = next(iter(after(_WORK)), None) if not after(_DIED) else None
    if works is not None and handled and suspect.cause == "out_of_memory":
        return works, "the program goes on, which was ready for it"
    if works is not None and suspect.cause in _NO_GPU and not features & _GPU_SHOWN:
        return works, "the program goes on, as one does that works on the CPU"
    return None


def _found_after_all(suspect: Suspect, shown: Match) -> bool:
    """True where a line shows at work the GPU that the same program did not find; another one's GPU says nothing."""
    if suspect.cause not in _AT_START or "started" not in shown.fields:
        return False
    whose = _programs((*suspect.matches, *suspect.effects))
    return not whose or bool(whose & _programs((shown,)))


def _programs(matches: Iterable[Match]) -> frozenset[int]:
    return frozenset(number for number, one in enumerate(_PROGRAMS) for match in matches if one.search(match.shown))


def _after(failed: Match, latest: Mapping[str, Sequence[Match]]) -> Callable[[str], list[Match]]:
    """The matches of a symptom that come after a failure and are of the program that failed."""
    who = speaker(failed.text)
    return lambda name: [match for match in latest.get(name, ()) if match.line > failed.line and speaker(match.text) == who]


def _is_end(match: Match) -> bool:
    """True where a line says no more than that the work is done: behind what a logger writes, with nothing but a time after it."""
    before, rest = match.fields.get("before", ""), match.fields.get("rest", "")
    before = before[_head(before) :] if before else ""
    before = re.sub(_LEVEL, "", before)
    last = re.split(r"[:\]|>]|- ", before)[-1]
    is_bare = not re.search(_PROSE, before) and not re.search(r"[A-Za-z]", re.sub(r"\bthe\b", "", last, flags=re.IGNORECASE))
    return is_bare and re.fullmatch(_DURATION, rest) is not None and not re.match(_NONE, rest)


def _failed_again(failed: Match, latest: Mapping[str, Sequence[Match]]) -> bool:
    """True where something, whoever it was, ends badly after a failure: a good end is not of what failed."""
    return any(match.line > failed.line for match in latest.get(_BAD_END, ()))


def speaker(text: str) -> str:
    """Who writes a line, as the launcher puts it before the line; nothing where it does not. A time is no one."""
    time = re.match(_TIME, text)
    found = _SPEAKER.match(text, time.end() if time else 0)
    return next(one for one in found.groups() if one) if found else ""


def _head(text: str) -> int:
    """Where the message begins behind the time and the name of who writes it."""
    time = re.match(_TIME, text)
    at = time.end() if time else 0
    found = _SPEAKER.match(text, at)
    return found.end() if found else at
