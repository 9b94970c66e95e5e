"""Findings from a log and machine facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import GPU_THERE, NO_CARD, context_of, contradictions, features_of, speaking
from cudnn_resolve.diagnosis.derive import derive
from cudnn_resolve.diagnosis.harmless import harmless_finding, harmless_lines
from cudnn_resolve.diagnosis.line_origin import is_of_other, speaker
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import EMPTY, Case, Diagnosis, Evidence, Finding, Match, Suspect
from cudnn_resolve.diagnosis.remedy import WANT_CARD, Remedies
from cudnn_resolve.diagnosis.survived import cured, mark_survived
from cudnn_resolve.diagnosis.unknown import Unknown, careful_summary, unknown_failure
from cudnn_resolve.diagnosis.weigh import FINDING, OWN_FAULT, evidence_of, rank, summary_of, suspects
from cudnn_resolve.diagnosis.with_machine import INSTALLER, WHEREABOUTS, contradicted, root_of, together, with_question
from cudnn_resolve.errors import MatrixError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.requirement.model import Request

_CERTAIN = 0.98
_FRAMES = "context-traceback"
_DIED, _ERROR_LINE, _GOOD_END, _WENT_ON = "context-died", "context-error-line", "context-good-end", "context-went-on"
_CARRIED_ON, _ALARM, _WORK, _TESTS = "context-carried-on", "context-alarm", "context-at-work", "context-tests-passed"
_QUOTED = "text that only mentions errors (a diff, a changelog, source code, help, passed tests)"
_IGNORED = "noise-exception-ignored"
_AT_THE_END = 3
"""A line that only mentions an error ends the run if at most this many lines follow it."""
_GUESSED = 0.3
_OF_CARD = WANT_CARD | WHEREABOUTS | {"driver_too_old", "driver_wedged"}
"""Causes that say why a GPU is not used, which is as it should be where there is none."""
_NOTICE = (
    r": [IW] tensorflow/|: E tensorflow/\S{0,80}cuda_(?:driver|diagnostics)"
    r"|\bA(?:n NVIDIA)? GPU may be present|[Ff]alling back to (?:the )?cpu|GPU functionality will not be available"
)
"""Lines by which TensorFlow, JAX and NVIDIA's images say that they go on without a GPU."""
_WANTS_DRIVER = r"\bNVRM: |NVIDIA-SMI has failed|^modprobe: "
"""Lines of the driver's kernel module and tools: whoever has them expects a GPU."""
_PLAIN_ERROR = rf"{OWN_FAULT}|(?:[\w.]{{0,80}}\.)?(?:Value|NotImplemented)Error: "
"""Errors of a program's own code, which say nothing of a GPU unless they name it."""
_OF_GPU = r"(?i)gpu|cuda|cudnn|nvidia|device|driver|cpu|tensorrt|backend"
_SET_UP = "context-apt-set-up"
_NOT_FETCHED = r"E: (?:Failed to fetch|Some index files|The repository .{1,300} does not have a Release file)"
_SHORT = 60
"""A log of at most this many lines was pasted for its content: a line that sounds like a failure is reported."""


def diagnose(reader: Reader | None, facts: Facts | None, book: Book, wishes: Request | None = None) -> Diagnosis:
    """Findings of a log, of facts, or of both: the facts decide what the log leaves open.

    `wishes`: the user's options for plans.
    """
    log = reader if reader is not None else Reader(())
    matches = list(log.every())
    if facts is not None and any(match.symptom.feature == INSTALLER for match in matches):
        facts = replace(facts, container=None)
    machine = diagnose_facts(facts, book) if facts is not None else []
    context = context_of(matches, book, facts or Facts())
    case = Case(
        matches=speaking(matches, context, book),
        features=features_of(matches, context, book, facts),
        context=context,
        frames=(*log.matches[_FRAMES], *log.latest[_FRAMES]),
        book=book,
        facts=facts,
        wishes=wishes,
    )
    died = _died(log, case)
    has_failed = died is not None and _is_plain(died, log)
    ranked = _ranked(case, log, died, has_failed=has_failed)
    if "no-card" in case.features and not case.features & GPU_THERE:
        has_failed |= any("cut" in match.fields for match in log.latest[_ALARM])
        wants = any(re.search(_WANTS_DRIVER, match.text) for suspect in ranked for match in suspect.matches)
        has_failed |= wants or INSTALLER in case.features
        ranked = _without_card(ranked, has_failed=has_failed)
        machine = [replace(each, severity="info") if each.cause in WANT_CARD and not has_failed else each for each in machine]
    of_log, unknown = _of_log(log, ranked, died, case)
    against = contradictions(case)
    behind = {suspect.cause: suspect.matches for suspect in ranked}
    root = root_of(of_log[0], machine, case, behind.get(of_log[0].cause, ())) if of_log else None
    if root is not None:
        behind[root.cause] = behind.get(of_log[0].cause, ())
    findings = contradicted(together(of_log, machine, root, case), of_log, against)
    remedies = Remedies(case, behind, unknown, is_here=all(evidence.source != "gpus" for _, evidence in against))
    note = None if findings else "; ".join(_notes(reader, facts)) or None
    return Diagnosis(findings=tuple(remedies.all(findings)), lines=log.lines, note=note)


def _notes(reader: Reader | None, facts: Facts | None) -> Iterator[str]:
    """Remarks for a diagnosis without findings."""
    if reader is not None and not reader.lines:
        yield EMPTY
        return
    if reader is not None and reader.quoted_from:
        yield f"skipped {_QUOTED} from line {reader.quoted_from} on"
    if facts is not None and facts.driver is None:
        yield "this machine has no NVIDIA driver, and no framework that needs one"


def diagnose_facts(facts: Facts, book: Book) -> list[Finding]:
    """Predict failures of a machine, unsorted.

    Only what cannot work by a rule of the matrix is an error; what works although it differs from its declaration is a note.
    """
    # Imported only for facts: their imports take longer than a short log.
    from cudnn_resolve.diagnosis import machine_cudnn, machine_driver, machine_package, machine_wheel
    from cudnn_resolve.diagnosis.judged import judged_findings
    from cudnn_resolve.diagnosis.machine import inspect

    machine = inspect(facts, book)
    rooms = (machine_driver, machine_cudnn, machine_wheel, machine_package)
    return [*(finding for room in rooms for check in room.CHECKS for finding in check(machine)), *judged_findings(facts, book)]


def diagnose_installed(facts: Facts, book: Book) -> Iterator[Finding]:
    """Problems with copies of cuDNN and with files of packages, which no judgement of versions shows; without notes."""
    from cudnn_resolve.diagnosis import machine_cudnn, machine_package
    from cudnn_resolve.diagnosis.machine import inspect

    machine = inspect(facts, book)
    for check in (*machine_cudnn.CHECKS, *machine_package.CHECKS):
        yield from (finding for finding in check(machine) if finding.severity != "info")


def _ranked(case: Case, reader: Reader, died: Match | None, *, has_failed: bool) -> list[Suspect]:
    causes = case.book.causes()
    found = suspects(case.matches, case.features, died, has_failed=has_failed)
    derive(found, case)
    nameless = sorted(found.keys() - causes.keys())
    if nameless:  # from an unchecked overlay
        raise MatrixError(
            f"a row of the tables names the unknown cause {nameless[0][:80]!r}",
            hint="run `cudnn-resolve matrix check` with the same --matrix to find the row",
        )
    ranked = [_unless_failed(suspect, has_failed=has_failed) for suspect in rank(found, causes)]
    if died is not None and not ranked:
        return cured(died, reader.latest)
    return mark_survived(ranked, reader.latest, case.features, causes)


def _unless_failed(suspect: Suspect, *, has_failed: bool) -> Suspect:
    """Reduce a suspect to a note if only generic wording supports it and nothing has failed."""
    is_general = suspect.summary is None and bool(suspect.matches) and all(match.symptom.last for match in suspect.matches)
    return replace(suspect, severity="info") if is_general and not has_failed else suspect


def _without_card(ranked: list[Suspect], *, has_failed: bool) -> list[Suspect]:
    """What a log means on a machine without an NVIDIA GPU: a program that goes on without one has nothing wrong."""
    first = next((suspect for suspect in ranked if suspect.cause in _OF_CARD), None)
    if first is None:
        return ranked
    if has_failed:
        absent = replace(first, summary=f"{NO_CARD}: a program that needs one cannot run here")
        if first.cause in ("driver_too_old", "driver_wedged"):
            absent = replace(absent, cause="driver_not_loaded")
        return [absent if suspect is first and absent.cause in WANT_CARD else suspect for suspect in ranked]
    known = replace(first, cause="harmless", summary=f"{NO_CARD}, and the program goes on without one", severity="info")
    return [known, *(suspect for suspect in ranked if suspect.cause not in _OF_CARD)]


def _of_log(reader: Reader, ranked: Sequence[Suspect], died: Match | None, case: Case) -> tuple[list[Finding], Unknown | None]:
    """Findings of a log, and the failure of unknown cause among them; harmless lines only if nothing else is wrong."""
    causes, findings = case.book.causes(), []
    is_one_line = reader.is_one_message and case.facts is None
    for suspect in ranked:
        is_mild = is_one_line and all(each.symptom.mild for each in suspect.matches)
        severity = suspect.severity or causes[suspect.cause].severity
        evidence = tuple(Evidence(source="log", line=each.line, text=each.shown) for each in evidence_of(suspect))
        findings.append(
            Finding(
                cause=suspect.cause,
                severity=severity if suspect.weight >= FINDING and not is_mild else "info",
                summary=careful_summary(summary_of(suspect, causes[suspect.cause]), evidence),
                evidence=evidence,
                confidence=round(min(suspect.weight / 100, _CERTAIN), 2),
            )
        )
    findings[:1] = [with_question(finding, case) for finding in findings[:1]]
    if died is not None and ranked and _is_own_error(died, ranked[0]):
        own = unknown_failure(died, reader, case.book)
        return [own.finding, *(replace(finding, severity="info") for finding in findings)], own
    if any(finding.severity != "info" for finding in findings):
        return findings, None
    over = max((match.line for suspect in ranked if suspect.severity == "info" for match in suspect.effects), default=0)
    died = _died(reader, case, over)
    if died is None:
        findings += harmless_finding(reader, case)
        alarm = _alarming(reader, case, max((evidence.line or 0 for each in findings for evidence in each.evidence), default=0))
        return ([alarm.finding, *findings], alarm) if alarm is not None else (findings, None)
    unknown = None
    if not findings:
        unknown = unknown_failure(died, reader, case.book)
        findings = [unknown.finding]
    # There is little evidence for the cause, but the severity depends on whether something failed.
    severity = "warning" if _is_plain(died, reader) else "info"
    return [replace(findings[0], severity=severity), *findings[1:]], unknown


def _is_own_error(end: Match, first: Suspect) -> bool:
    """True if the program ended by an error of its own after notices that it was going on without a GPU."""
    notices = all(match.line < end.line and re.search(_NOTICE, match.text) for match in first.matches)
    return first.cause in _OF_CARD and notices and re.match(_PLAIN_ERROR, end.text) is not None and not re.search(_OF_GPU, end.text)


def _died(reader: Reader, case: Case, over: int = 0) -> Match | None:
    """The line at which a run died, if it did: neither harmless nor survived.

    `over`: line up to which failures are known to be survived.
    """
    noise = {one.line for match in harmless_lines(case) for one in (match, *reader.latest[match.symptom.id])}
    noise |= _ignored(reader) | _fetched_after_all(reader)
    went_on = [match for name in (_GOOD_END, _WENT_ON) for match in reader.latest[name]]
    ends = [match for match in reader.latest[_DIED] if match.line not in noise and match.line > over]
    ends = [end for end in ends if not any(on.line >= end.line and not is_of_other(on, end, reader.latest) for on in went_on)]
    over = max(over, reader.last_line(_GOOD_END, _WENT_ON))
    again = reader.last_line("context-epoch")
    ends = [match for match in ends if match.line > again or not match.text.startswith("KeyboardInterrupt")]
    if not ends:
        least = max(over, reader.lines - _AT_THE_END, reader.last_line(_TESTS))
        last = [match for match in reader.latest[_ERROR_LINE] if match.line > least]
        # Next to harmless lines, wording that only mentions an error may belong to them.
        ends = [match for match in last if match.line not in noise and (not noise or "said" in match.fields)]
    serves = [(match.line, speaker(match.text)) for match in _serving(reader)]
    ends = [match for match in ends if not any(line > match.line and who == speaker(match.text) for line, who in serves)]
    named = [match for match in ends if "last" in match.fields]
    return max(named or ends, key=lambda match: match.line, default=None)


def _ignored(reader: Reader) -> set[int]:
    """Lines of tracebacks that Python prints for errors which it ignores."""
    ends = [match.line for match in reader.of(_DIED)]
    starts = [match.line for match in reader.latest[_IGNORED]]
    return {line for start in starts for line in range(start, next((end for end in ends if end > start), start) + 1)}


def _fetched_after_all(reader: Reader) -> set[int]:
    """Lines of apt's failed downloads after which it sets up a package of CUDA, cuDNN or the driver."""
    done = reader.last_line(_SET_UP)
    ends = (match for name in (_DIED, _ERROR_LINE) for match in reader.latest[name])
    return {match.line for match in ends if match.line < done and re.match(_NOT_FETCHED, match.text)}


def _serving(reader: Reader) -> list[Match]:
    """Lines in which a service reports that it has started."""
    return [match for match in reader.latest[_WORK] if "serving" in match.fields]


def _is_plain(died: Match, reader: Reader) -> bool:
    """True if a line certainly ended the run; an error after which the program continued did not."""
    after = [match for match in reader.latest[_CARRIED_ON] if match.line > died.line]
    if died.symptom.id == _DIED:
        return "last" in died.fields or not any("again" in match.fields for match in after)
    return "said" in died.fields and not after


def _alarming(reader: Reader, case: Case, told: int) -> Unknown | None:
    """Report the last line that sounds like a failure, or a truncated traceback, in a short log without findings.

    `told`: last line of which a note is told, after which only a traceback counts.
    """
    ignored = _ignored(reader)
    found = [match for match in reader.latest[_ALARM] if "cut" in match.fields or (not told and reader.lines <= _SHORT)]
    found = [match for match in found if match.line not in ignored]
    over = reader.last_line(_GOOD_END, _WENT_ON, _CARRIED_ON, _TESTS, _SET_UP)
    over = max([over, told, *(match.line for match in _serving(reader))])
    last = max((match for match in found if match.line > over), key=lambda match: ("cut" in match.fields, match.line), default=None)
    if last is None:
        return None
    unknown = unknown_failure(last, reader, case.book, removed=())
    if "cut" in last.fields:
        summary = f"not recognised: the log shows a traceback (line {last.line}) without the error that ends it"
        return Unknown(finding=replace(unknown.finding, summary=summary))
    summary = f"nothing is recognised, but line {last.line} sounds like a failure; a complete log would show more"
    return replace(unknown, finding=replace(unknown.finding, severity="info", summary=summary, confidence=_GUESSED))
