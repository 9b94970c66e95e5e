"""From what was read and what is known of the machine to findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import context_of, contradictions, features_of, speaking
from cudnn_resolve.diagnosis.derive import derive
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import EMPTY, SEVERITIES, Case, Diagnosis, Evidence, Finding, Match, Suspect
from cudnn_resolve.diagnosis.place import missing
from cudnn_resolve.diagnosis.remedy import Remedies
from cudnn_resolve.diagnosis.weigh import FINDING, evidence_of, fill, is_active, outlived, rank, speaker, summary_of, suspects
from cudnn_resolve.errors import MatrixError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.symptom import Cause
from cudnn_resolve.requirement.model import Request

_CERTAIN = 0.98
_PAIR = "framework_pkg_mismatch"
_SURE = 0.9
"""From here on nothing is said to be undecided."""
_OPEN = _PROVEN = 0.85
"""Up to here a log leaves open what it comes from; from here on a finding of the facts explains it."""
_WHEREABOUTS = frozenset({"cudnn_missing", "cudnn_major_mismatch", "cuda_runtime_missing", "lib_not_on_path"})
"""Of a library that the log names the facts have said already which of these it is; one of no framework may be another program's."""
_FRAMES = "context-traceback"
_DIED, _ERROR_LINE, _GOOD_END, _WENT_ON = "context-died", "context-error-line", "context-good-end", "context-went-on"
_CARRIED_ON, _ALARM, _WORK, _TESTS = "context-carried-on", "context-alarm", "context-at-work", "context-tests-passed"
_SPOKEN_OF = (("cudnn", "cuDNN"), ("cuda", "CUDA"), ("cuinit", "CUDA"), ("driver", "driver"), ("gpu", "GPU"), ("memory", "memory"))
"""Words of a failure, and what is then not said to be unnamed."""
_TOLD = "text that only tells of errors (a diff, changes, source code, help, tests that passed)"
_AT_THE_END = 3
"""A line that merely speaks of an error ends the run where no more lines than these follow it."""
_UNKNOWN, _GUESSED = 0.5, 0.3
_SHORT = 60
"""A log of no more lines was pasted for what is in it, so that a line that sounds like a failure is not passed over."""


def diagnose(reader: Reader | None, facts: Facts | None, book: Book, wishes: Request | None = None) -> Diagnosis:
    """The findings of a log, of facts, or of both together: what the facts show decides what the log leaves open.

    `wishes` says how remedies that are plans are to be made.
    """
    machine = diagnose_facts(facts, book) if facts is not None else []
    matches = list(reader.every()) if reader is not None else []
    context = context_of(matches, book, facts)
    case = Case(
        matches=speaking(matches, context, book),
        features=features_of(matches, context, facts),
        context=context,
        frames=(*reader.matches.get(_FRAMES, ()), *reader.latest.get(_FRAMES, ())) if reader is not None else (),
        book=book,
        facts=facts,
        wishes=wishes,
    )
    ranked = _ranked(case, reader)
    log = _of_log(reader, ranked, case) if reader is not None else []
    against = contradictions(case)
    behind = {one.cause: one.matches for one in ranked}
    root = _root_of(log, machine, case, behind.get(log[0].cause, ())) if log else None
    if root is not None:
        behind[root.cause] = behind.get(log[0].cause, ())
    findings = _contradicted(_together(log, machine, root, case), log, against)
    remedies = Remedies(case, behind, is_here=all(one.source != "gpus" for _, one in against))
    return Diagnosis(
        findings=tuple(remedies.all(findings)),
        lines=reader.lines if reader is not None else 0,
        note=None if findings else "; ".join(_notes(reader, facts)) or None,
    )


def _notes(reader: Reader | None, facts: Facts | None) -> Iterator[str]:
    """What is to be known where nothing was found."""
    if reader is not None and not reader.lines:
        yield EMPTY
        return
    if reader is not None and reader.told:
        yield f"{_TOLD}, from line {reader.told} on, was passed over"
    if facts is not None and facts.driver is None:
        yield "there is no NVIDIA driver here, and no framework that wants one"


def diagnose_facts(facts: Facts, book: Book) -> list[Finding]:
    """What will fail on a machine before it fails, unsorted.

    An error is said only of what cannot work by a rule of the matrix; what works although it is not as declared is a note.
    """
    # Only facts need these, and what they import takes longer than a short log.
    from cudnn_resolve.diagnosis import machine_cudnn, machine_driver, machine_package, machine_pair, machine_wheel
    from cudnn_resolve.diagnosis.machine import inspect

    machine = inspect(facts, book)
    rooms = (machine_driver, machine_cudnn, machine_wheel, machine_package, machine_pair)
    return [finding for room in rooms for check in room.CHECKS for finding in check(machine)]


def diagnose_installed(facts: Facts, book: Book, *, pairs_only: bool = False) -> Iterator[Finding]:
    """What is wrong with the copies of cuDNN, with files of packages, and with packages beside one another; no mere notes.

    `pairs_only`: of a list of packages, which has no files and loads nothing.
    """
    from cudnn_resolve.diagnosis import machine_cudnn, machine_package, machine_pair
    from cudnn_resolve.diagnosis.machine import inspect

    machine = inspect(facts, book)
    rooms = (machine_pair,) if pairs_only else (machine_cudnn, machine_package, machine_pair)
    for check in (check for room in rooms for check in room.CHECKS):
        yield from (finding for finding in check(machine) if finding.severity != "info")


def _ranked(case: Case, reader: Reader | None) -> list[Suspect]:
    causes = case.book.causes()
    died = _died(reader, case) if reader is not None else None
    has_failed = died is not None and reader is not None and _is_plain(died, reader)
    found = derive(suspects(case.matches, case.features, died, has_failed=has_failed), case)
    nameless = sorted(found.keys() - causes.keys())
    if nameless:  # of an overlay that was never checked
        raise MatrixError(
            f"a row of the tables names the cause {nameless[0][:80]!r}, which no row describes",
            hint="`cudnn-resolve matrix check`, with the same --matrix, says which row it is",
        )
    ranked = [_unless_failed(one, has_failed=has_failed) for one in rank(found, causes)]
    return outlived(ranked, reader.latest, case.features, causes) if reader is not None else ranked


def _unless_failed(suspect: Suspect, *, has_failed: bool) -> Suspect:
    """A suspect; one of general words alone is only mentioned where nothing shows that something failed."""
    is_general = suspect.summary is None and bool(suspect.matches) and all(one.symptom.last for one in suspect.matches)
    return replace(suspect, severity="info") if is_general and not has_failed else suspect


def _of_log(reader: Reader, ranked: Iterable[Suspect], case: Case) -> list[Finding]:
    """The findings of a log; the noise in it only where nothing else is wrong."""
    causes, findings = case.book.causes(), []
    is_one_line = reader.is_one_message and case.facts is None
    for one in ranked:
        is_mild = is_one_line and all(each.symptom.mild for each in one.matches)
        severity = one.severity or causes[one.cause].severity
        findings.append(
            Finding(
                cause=one.cause,
                severity=severity if one.weight >= FINDING and not is_mild else "info",
                summary=summary_of(one, causes[one.cause]),
                evidence=tuple(Evidence(source="log", line=each.line, text=each.shown) for each in evidence_of(one)),
                confidence=round(min(one.weight / 100, _CERTAIN), 2),
            )
        )
    findings = _open(findings, causes, has_facts=case.facts is not None)
    if any(one.severity != "info" for one in findings):
        return findings
    over = max((each.line for one in ranked if one.severity == "info" for each in one.effects), default=0)
    died = _died(reader, case, over)
    if died is None:
        findings += _harmless(reader, case)
        return findings or _alarming(reader, case)
    if not findings:
        findings = [_unrecognised(died, reader.lines, causes["unrecognised"])]
    # Little speaks for the cause; whether something failed at all is another question.
    severity = "warning" if _is_plain(died, reader) else "info"
    return [replace(findings[0], severity=severity), *findings[1:]]


def _died(reader: Reader, case: Case, over: int = 0) -> Match | None:
    """The line at which a run died, where the log shows that it did: not one that is known to be noise, nor one that was outlived.

    `over`: the line up to which failures are known to be outlived.
    """
    noise = {one.line for one in case.matches if one.symptom.role == "harmless" and is_active(one, case.features)}
    over = max((over, *(one.line for name in (_GOOD_END, _WENT_ON) for one in reader.latest.get(name, ()))))
    ends = [one for one in reader.latest.get(_DIED, ()) if one.line not in noise and one.line > over]
    if not ends:
        least = max((over, reader.lines - _AT_THE_END, *(one.line for one in reader.latest.get(_TESTS, ()))))
        last = [one for one in reader.latest.get(_ERROR_LINE, ()) if one.line > least]
        # Beside noise, words that merely speak of an error may belong to it.
        ends = [one for one in last if one.line not in noise and (not noise or "said" in one.fields)]
    serves = [(one.line, speaker(one.text)) for one in _serving(reader)]
    ends = [one for one in ends if not any(line > one.line and who == speaker(one.text) for line, who in serves)]
    named = [one for one in ends if "last" in one.fields]
    return max(named or ends, key=lambda one: one.line, default=None)


def _serving(reader: Reader) -> list[Match]:
    """Lines in which a service says that it has started."""
    return [one for one in reader.latest.get(_WORK, ()) if "serving" in one.fields]


def _is_plain(died: Match, reader: Reader) -> bool:
    """True where a line leaves no doubt that it ended the run; words of an error after which the program went on do not."""
    after = [one for one in reader.latest.get(_CARRIED_ON, ()) if one.line > died.line]
    if died.symptom.id == _DIED:
        return "last" in died.fields or not any("again" in one.fields for one in after)
    return "said" in died.fields and not after


def _alarming(reader: Reader, case: Case) -> list[Finding]:
    """Of a short log in which nothing was recognised, the last line that sounds like a failure; a traceback that was cut off is one."""
    found = [one for one in reader.latest.get(_ALARM, ()) if "cut" in one.fields or reader.lines <= _SHORT]
    over = max((one.line for name in (_GOOD_END, _WENT_ON, _CARRIED_ON, _TESTS) for one in reader.latest.get(name, ())), default=0)
    over = max([over, *(one.line for one in _serving(reader))])
    last = max((one for one in found if one.line > over), key=lambda one: ("cut" in one.fields, one.line), default=None)
    if last is None:
        return []
    finding = _unrecognised(last, reader.lines, case.book.causes()["unrecognised"])
    if "cut" in last.fields:
        return [replace(finding, summary=f"not recognised: the log shows a traceback (line {last.line}) without the error that ends it")]
    said = f"nothing is recognised, though line {last.line} sounds like a failure; a log that goes to the end of the run says more"
    return [replace(finding, severity="info", summary=said, confidence=_GUESSED)]


def _unrecognised(died: Match, lines: int, cause: Cause) -> Finding:
    """That something failed and it is not known why, with the line at which it did."""
    none = "no library that cannot be opened, no cuDNN, CUDA or driver of another version, no GPU that is not seen, and no lack of memory"
    spoken = _spoken_of(died.text)
    why = f"it speaks of {spoken} in words that no row of the tables knows" if spoken else f"in its {lines} lines {none} is named"
    return Finding(
        cause=cause.id,
        severity=cause.severity,
        summary=f"not recognised: the log shows a failure (line {died.line}), and {why}",
        evidence=(Evidence(source="log", line=died.line, text=died.shown),),
        confidence=_UNKNOWN,
    )


def _spoken_of(text: str) -> str:
    """What of the GPU's stack a line names."""
    low = text.casefold()
    return " and ".join(dict.fromkeys(name for word, name in _SPOKEN_OF if word in low))


def _open(findings: list[Finding], causes: Mapping[str, Cause], *, has_facts: bool) -> list[Finding]:
    """The first finding with what is not decided between it and what looks alike, and the command that decides it."""
    if not findings or findings[0].severity == "info" or findings[0].confidence >= _SURE:
        return findings
    cause = causes[findings[0].cause]
    if not cause.confused:
        return findings
    told = f"it may also be that {' or '.join(causes[one].title for one in cause.confused[:2] if one in causes)}"
    if cause.decide:
        told += f"; `{cause.decide}` tells" + ("" if has_facts else "; on the machine itself `cudnn-resolve doctor LOG` looks")
    return [replace(findings[0], undecided=told), *findings[1:]]


def _together(log: list[Finding], machine: list[Finding], root: Finding | None, case: Case) -> list[Finding]:
    """Findings of both, one for each cause: the log's come first, since they are what happened; `root` stands in for the first of them."""
    causes, is_decided = case.book.causes(), root is not None
    if root is not None:
        first, machine = log[0], [one for one in machine if one is not root]
        shown = (*root.evidence, *first.evidence)
        failed = causes[root.cause].severity if first.cause == "unrecognised" else first.severity
        log = [replace(root, severity=min(root.severity, failed, key=SEVERITIES.index), evidence=shown), *log[1:]]
    out: list[Finding] = []
    rest = list(machine)
    for one in log:
        same = [other for other in rest if other.cause == one.cause and "info" not in (other.severity, one.severity)]
        rest = [other for other in rest if other not in same]
        is_decided |= bool(same) and not out
        # What the facts are surer of than the log is said in their words.
        said = next((other.summary for other in same if other.severity == one.severity and other.confidence > one.confidence), one.summary)
        out.append(
            replace(
                one,
                severity=min((one.severity, *(other.severity for other in same)), key=SEVERITIES.index),
                summary=said,
                evidence=(*one.evidence, *[evidence for other in same for evidence in other.evidence][:4]),
                remedy=(*one.remedy, *(remedy for other in same for remedy in other.remedy)),
                confidence=max([one.confidence, *(other.confidence for other in same)]),
                undecided=None if same else one.undecided,
            )
        )
    if is_decided:  # what the first explains is no second failure
        out = [one for one in out if one is out[0] or not _explains(out[0], one, causes)]
    rest = sorted(rest, key=lambda one: (SEVERITIES.index(one.severity), _follows(one, machine, causes), -one.confidence))
    if log and all(one.severity == "info" for one in log):
        # Nothing has failed: what may do so another time is a note.
        rest = [replace(one, severity="info") if one.severity == "warning" else one for one in rest]
    if any(one.severity != "info" for one in log):
        rest = [one for one in rest if one.cause != "harmless"]
    # A proven fault of the machine goes before what the log only suggests, but not before a failure that has no part in the GPU's stack.
    is_foreign = bool(log) and log[0].cause == "unrecognised" and log[0].severity != "info" and not _spoken_of(log[0].evidence[0].text)
    own, others = (out[:1], out[1:]) if is_foreign else ([], out)
    return [*own, *sorted([*others, *rest], key=lambda one: SEVERITIES.index(one.severity))]


def _root_of(log: list[Finding], machine: list[Finding], case: Case, matches: Sequence[Match]) -> Finding | None:
    """What is proven of the machine and explains the first finding of the log; None where nothing does, or the facts say the same.

    `matches` are those behind that first finding. Of several, the one that explains the others.
    """
    first = log[0] if log else None
    if first is None or first.severity == "info" or any(one.cause == first.cause and one.severity != "info" for one in machine):
        return None
    causes, of_log = case.book.causes(), _frameworks_of(matches, case)
    able = [one for one in machine if _explains(one, first, causes) and not _is_of_others(one, of_log, case.book)]
    if first.cause in _WHEREABOUTS and (any(missing(matches)) or not of_log):
        able = [one for one in able if one.cause == _PAIR]
    elif first.cause == "out_of_memory":  # a status is returned by what was loaded
        able = [one for one in able if one.cause not in _WHEREABOUTS]

    def rank(one: Finding) -> tuple[int, int, float]:
        return -SEVERITIES.index(one.severity), sum(other.cause in causes[one.cause].explains for other in able), one.confidence

    root = max(able, key=rank, default=None)
    while root is not None:  # which may follow from another one
        above = [one for one in machine if one.severity == "error" and root.cause in causes[one.cause].explains and one not in able]
        able += above
        if not above:
            break
        root = max(above, key=rank)
    return root


def _follows(one: Finding, others: Iterable[Finding], causes: Mapping[str, Cause]) -> bool:
    """True where another finding of the same severity explains one."""
    return any(other.severity == one.severity and one.cause in causes[other.cause].explains for other in others)


def _explains(one: Finding, first: Finding, causes: Mapping[str, Cause]) -> bool:
    """True where a finding of the facts explains what a log shows: as the tables have it, and as far as the log leaves it open."""
    if one.severity == "info":
        return False
    if first.cause == "unrecognised":
        # In words that no row knows, it says something of the GPU's stack; and the facts know why there is no GPU.
        return bool(_spoken_of(first.evidence[0].text)) and "cpu_only_build" in causes[one.cause].explains and one.confidence >= _PROVEN
    if first.confidence >= _OPEN:
        return one.cause == _PAIR and one.severity == "error" and first.cause in _WHEREABOUTS
    follows = first.cause in causes[one.cause].explains
    alike = first.cause in causes[one.cause].confused or one.cause in causes[first.cause].confused
    return (follows or alike) and one.confidence >= max(_PROVEN, first.confidence)


def _frameworks_of(matches: Iterable[Match], case: Case) -> frozenset[str]:
    """The frameworks that messages and the traceback before them are of."""
    frames = (str(one.fields["frame"]) for one in case.frames if "frame" in one.fields)
    names = (*(one.symptom.framework for one in matches), *frames)
    return frozenset(found for name in names if name and (found := case.book.framework_of(name)))


def _is_of_others(one: Finding, frameworks: frozenset[str], book: Book) -> bool:
    """True for a finding that rests on frameworks none of which is meant."""
    names = (evidence.text.partition(" ")[0] for evidence in one.evidence if evidence.source in ("frameworks", "packages.pip"))
    own = {found for name in names if (found := book.framework_of(name))}
    return bool(own and frameworks) and not own & frameworks


def _contradicted(findings: list[Finding], log: list[Finding], against: list[tuple[str, Evidence]]) -> list[Finding]:
    """The findings; the first that rests on the log says what in the log contradicts the facts."""
    causes = {one.cause for one in log}
    place = next((number for number, one in enumerate(findings) if one.cause in causes and one.severity != "info"), None)
    if place is None or not against:
        return findings
    told = "; ".join(text for text, _ in against)
    hint = "if the log is of another machine or environment, `--no-facts` judges it alone and `--facts FILE` with that machine's facts"
    one = findings[place]
    one = replace(
        one,
        evidence=(*one.evidence, *(evidence for _, evidence in against)),
        undecided=f"the log contradicts the facts: {told}; {hint}",
    )
    return [*findings[:place], one, *findings[place + 1 :]]


def _harmless(reader: Reader, case: Case) -> list[Finding]:
    """One finding for all the noise."""
    noise = [one for one in case.matches if one.symptom.role == "harmless" and is_active(one, case.features)]
    if not noise:
        return []
    noise.sort(key=lambda one: one.line)
    reasons = list(dict.fromkeys(said for one in noise if one.symptom.summary and (said := fill(one.symptom.summary, one.fields))))
    count = sum(reader.counts[name] for name in {one.symptom.id for one in noise})
    lines = "one line looks" if count == 1 else f"{count} lines look"
    return [
        Finding(
            cause="harmless",
            severity="info",
            summary=f"nothing to repair: {lines} alarming, but {'; '.join(reasons[:3]) or 'they change nothing'}",
            evidence=tuple(Evidence(source="log", line=one.line, text=one.shown) for one in noise[:6]),
            confidence=0.9,
        )
    ]
