"""Findings from a log and machine facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import GPU_THERE, NO_CARD, context_of, contradictions, features_of, speaking
from cudnn_resolve.diagnosis.derive import derive
from cudnn_resolve.diagnosis.library_path import missing
from cudnn_resolve.diagnosis.line_origin import is_of_other, speaker
from cudnn_resolve.diagnosis.log_stack import driver_of
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import EMPTY, SEVERITIES, Case, Diagnosis, Evidence, Finding, Match, Suspect, values_of
from cudnn_resolve.diagnosis.remedy import WANT_CARD, WEAK, Remedies, is_answered
from cudnn_resolve.diagnosis.remedy_machine import question, runs_on_windows
from cudnn_resolve.diagnosis.survived import cured, mark_survived
from cudnn_resolve.diagnosis.unknown import Unknown, careful_summary, mentioned_in, unknown_failure
from cudnn_resolve.diagnosis.weigh import FINDING, OWN_FAULT, evidence_of, fill, is_active, rank, summary_of, suspects
from cudnn_resolve.errors import MatrixError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.symptom import Cause
from cudnn_resolve.requirement.model import Request

_CERTAIN = 0.98
_PAIR = "framework_pkg_mismatch"
_SURE = 0.9
"""Confidence from which nothing is reported as undecided."""
_OPEN = _PROVEN = 0.85
"""Below it a log leaves its cause open; from it on a finding of the facts explains a log."""
_WHEREABOUTS = frozenset({"cudnn_missing", "cudnn_major_mismatch", "cuda_runtime_missing", "lib_not_on_path"})
"""For a library named in the log, the facts have decided between these; a log without a framework may be of another program."""
_FRAMES = "context-traceback"
_DIED, _ERROR_LINE, _GOOD_END, _WENT_ON = "context-died", "context-error-line", "context-good-end", "context-went-on"
_CARRIED_ON, _ALARM, _WORK, _TESTS = "context-carried-on", "context-alarm", "context-at-work", "context-tests-passed"
_QUOTED = "text that only mentions errors (a diff, a changelog, source code, help, passed tests)"
_IGNORED = "noise-exception-ignored"
_AT_THE_END = 3
"""A line that only mentions an error ends the run if at most this many lines follow it."""
_GUESSED = 0.3
_OF_CARD = WANT_CARD | _WHEREABOUTS | {"driver_too_old", "driver_wedged"}
"""Causes that say why a GPU is not used, which is as it should be where there is none."""
_OF_GUEST = frozenset({"no_gpu_runtime", "container_gpu_not_passed", "container_gpu_detached"})
"""Causes that only a notebook or container has."""
_NOTICE = (
    r": [IW] tensorflow/|: E tensorflow/\S{0,80}cuda_(?:driver|diagnostics)"
    r"|\bA(?:n NVIDIA)? GPU may be present|[Ff]alling back to (?:the )?cpu|GPU functionality will not be available"
)
"""Lines by which TensorFlow, JAX and NVIDIA's images say that they go on without a GPU."""
_INSTALLER = "driver-installer"
"""Feature of a log of the driver's installer, which works on the machine even where it runs in a driver container."""
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
    if facts is not None and any(match.symptom.feature == _INSTALLER for match in matches):
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
        has_failed |= wants or _INSTALLER in case.features
        ranked = _without_card(ranked, has_failed=has_failed)
        machine = [replace(each, severity="info") if each.cause in WANT_CARD and not has_failed else each for each in machine]
    of_log, unknown = _of_log(log, ranked, died, case)
    against = contradictions(case)
    behind = {suspect.cause: suspect.matches for suspect in ranked}
    root = _root_of(of_log[0], machine, case, behind.get(of_log[0].cause, ())) if of_log else None
    if root is not None:
        behind[root.cause] = behind.get(of_log[0].cause, ())
    findings = _contradicted(_together(of_log, machine, root, case), of_log, against)
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
    findings[:1] = [_open(finding, case) for finding in findings[:1]]
    if died is not None and ranked and _is_own_error(died, ranked[0]):
        own = unknown_failure(died, reader, case.book)
        return [own.finding, *(replace(finding, severity="info") for finding in findings)], own
    if any(finding.severity != "info" for finding in findings):
        return findings, None
    over = max((match.line for suspect in ranked if suspect.severity == "info" for match in suspect.effects), default=0)
    died = _died(reader, case, over)
    if died is None:
        findings += _harmless(reader, case)
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
    noise = {one.line for match in _noise(case) for one in (match, *reader.latest[match.symptom.id])}
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


def _open(first: Finding, case: Case) -> Finding:
    """Add to the first finding of a log what it may be confused with, and the command that decides it."""
    if first.severity == "info" or first.confidence >= _SURE:
        return first
    causes = case.book.causes()
    cause = causes[first.cause]
    if not cause.confused or is_answered(cause.id, case):
        return first
    is_driver_there = driver_of(case) is not None and "no-driver" not in case.features
    left_out = {"driver_not_loaded"} if is_driver_there else set()
    if _INSTALLER in case.features or case.known.container is None:
        left_out |= _OF_GUEST
    others = [causes[name].title for name in cause.confused[:2] if name in causes and name not in left_out]
    if not others:
        return first
    text = f"it may also be that {' or '.join(others)}"
    doctor = "`cudnn-resolve doctor LOG` on the machine itself"
    command = question(cause, case.features, windows=runs_on_windows(case.features))
    if command and case.facts is None and first.confidence < WEAK:
        text += "; the first step tells"
    elif command:
        text += f"; check with `{command}`" + ("" if case.facts is not None else f", or run {doctor}")
    elif case.facts is None:
        text += f"; run {doctor} to decide"
    return replace(first, undecided=text)


def _together(log: list[Finding], machine: list[Finding], root: Finding | None, case: Case) -> list[Finding]:
    """Merge both by cause, those of the log first since they have happened; `root` replaces the first of them."""
    causes, is_decided = case.book.causes(), root is not None
    if root is not None:
        first, machine = log[0], [finding for finding in machine if finding is not root]
        shown = (*root.evidence, *first.evidence)
        failed = causes[root.cause].severity if first.cause == "unrecognised" else first.severity
        log = [replace(root, severity=min(root.severity, failed, key=SEVERITIES.index), evidence=shown), *log[1:]]
    out: list[Finding] = []
    rest = list(machine)
    for finding in log:
        same = [other for other in rest if other.cause == finding.cause and "info" not in (other.severity, finding.severity)]
        rest = [other for other in rest if other not in same]
        is_decided |= bool(same) and not out
        out.append(_merged(finding, same))
    if is_decided:  # what the first finding explains is not a second failure
        out = [finding for finding in out if finding is out[0] or not _explains(out[0], finding, causes)]
    rest = sorted(rest, key=lambda finding: (SEVERITIES.index(finding.severity), _follows(finding, machine, causes), -finding.confidence))
    if log and all(finding.severity == "info" for finding in log):
        # Nothing has failed: what may fail another time is a note, and so is a fault that a log of harmless lines does not show.
        mild = ("warning", "error") if log[0].cause == "harmless" else ("warning",)
        rest = [replace(finding, severity="info") if finding.severity in mild else finding for finding in rest]
    if any(finding.severity != "info" for finding in log):
        rest = [finding for finding in rest if finding.cause != "harmless"]
    # A proven fault of the machine precedes what the log only suggests, but not a failure outside the GPU stack.
    is_foreign = bool(log) and log[0].cause == "unrecognised" and log[0].severity != "info" and not mentioned_in(log[0].evidence[0].text)
    own, others = (out[:1], out[1:]) if is_foreign else ([], out)
    return [*own, *sorted([*others, *rest], key=lambda finding: SEVERITIES.index(finding.severity))]


def _merged(finding: Finding, same: Sequence[Finding]) -> Finding:
    """A finding of the log with those of the facts about the same cause, which word the summary if they are surer than the log."""
    both = (finding, *same)
    surer = (other.summary for other in same if other.severity == finding.severity and other.confidence > finding.confidence)
    return replace(
        finding,
        severity=min((each.severity for each in both), key=SEVERITIES.index),
        summary=next(surer, finding.summary),
        evidence=(*finding.evidence, *[evidence for other in same for evidence in other.evidence][:4]),
        remedy=tuple(remedy for each in both for remedy in each.remedy),
        confidence=max(each.confidence for each in both),
        undecided=None if same else finding.undecided,
    )


def _root_of(first: Finding, machine: list[Finding], case: Case, matches: Sequence[Match]) -> Finding | None:
    """A proven fault of the machine that explains the first finding of the log; None without any, or if the facts report the same cause.

    `matches` are those of that finding. Of several faults, the one that explains the others is chosen.
    """
    if first.severity == "info" or any(finding.cause == first.cause and finding.severity != "info" for finding in machine):
        return None
    causes, of_log = case.book.causes(), _frameworks_of(matches, case)
    able = [finding for finding in machine if _explains(finding, first, causes) and not _is_of_others(finding, of_log, case.book)]
    is_named = any(missing(matches)) or any("component" in match.fields for match in matches)
    if first.cause in _WHEREABOUTS and (is_named or not of_log):
        able = [finding for finding in able if finding.cause == _PAIR]
    elif first.cause == "out_of_memory":  # the library that returned the status was loaded
        able = [finding for finding in able if finding.cause not in _WHEREABOUTS]

    def rank(finding: Finding) -> tuple[int, int, float]:
        return -SEVERITIES.index(finding.severity), sum(other.cause in causes[finding.cause].explains for other in able), finding.confidence

    root = max(able, key=rank, default=None)
    while root is not None:  # it may follow from another fault
        errors = (finding for finding in machine if finding.severity == "error" and finding not in able)
        above = [finding for finding in errors if root.cause in causes[finding.cause].explains]
        able += above
        if not above:
            break
        root = max(above, key=rank)
    return root


def _follows(finding: Finding, others: Iterable[Finding], causes: Mapping[str, Cause]) -> bool:
    """True if another finding of the same severity explains this one."""
    return any(other.severity == finding.severity and finding.cause in causes[other.cause].explains for other in others)


def _explains(finding: Finding, first: Finding, causes: Mapping[str, Cause]) -> bool:
    """True if a finding of the facts explains a finding of the log: by the tables, and if the log leaves its cause open."""
    if finding.severity == "info":
        return False
    if first.cause == "unrecognised":
        # Unknown wording about the GPU stack is explained by a known reason for a missing GPU.
        is_reason = "cpu_only_build" in causes[finding.cause].explains and finding.confidence >= _PROVEN
        return is_reason and bool(mentioned_in(first.evidence[0].text))
    if first.confidence >= _OPEN:
        is_proven_pair = finding.cause == _PAIR and finding.severity == "error" and finding.confidence >= _PROVEN
        return is_proven_pair and first.cause in _WHEREABOUTS
    follows = first.cause in causes[finding.cause].explains
    alike = first.cause in causes[finding.cause].confused or finding.cause in causes[first.cause].confused
    return (follows or alike) and finding.confidence >= max(_PROVEN, first.confidence)


def _frameworks_of(matches: Iterable[Match], case: Case) -> frozenset[str]:
    """Frameworks of messages and of the preceding traceback."""
    frames = map(str, values_of(case.frames, "frame"))
    names = (*(match.symptom.framework for match in matches), *frames)
    return frozenset(found for name in names if name and (found := case.book.framework_named(name)))


def _is_of_others(finding: Finding, frameworks: frozenset[str], book: Book) -> bool:
    """True if a finding concerns only other frameworks."""
    texts = (evidence.text for evidence in finding.evidence if evidence.source.startswith(("frameworks", "packages.pip")))
    names = (re.split("[ =:]", text, maxsplit=1)[0] for text in texts)
    own = {found for name in names if (found := book.framework_of(name))}
    return bool(own and frameworks) and not own & frameworks


def _contradicted(findings: list[Finding], log: list[Finding], against: list[tuple[str, Evidence]]) -> list[Finding]:
    """Add contradictions between log and facts to the first finding that comes from the log."""
    causes = {finding.cause for finding in log}
    place = next((number for number, finding in enumerate(findings) if finding.cause in causes and finding.severity != "info"), None)
    if place is None or not against:
        return findings
    contradiction = "; ".join(text for text, _ in against)
    hint = "for a log of another machine or environment, use `--no-facts`, or `--facts FILE` with that machine's facts"
    finding = findings[place]
    finding = replace(
        finding,
        evidence=(*finding.evidence, *(evidence for _, evidence in against)),
        undecided=f"the log contradicts the facts: {contradiction}; {hint}",
    )
    return [*findings[:place], finding, *findings[place + 1 :]]


def _harmless(reader: Reader, case: Case) -> list[Finding]:
    """One finding for all harmless lines."""
    noise = sorted(_noise(case), key=lambda match: match.line)
    if not noise:
        return []
    said = (fill(match.symptom.summary, match.fields) for match in noise if match.symptom.summary)
    reasons = list(dict.fromkeys(filter(None, said)))
    count = sum(reader.counts[name] for name in {match.symptom.id for match in noise})
    lines = "one line looks" if count == 1 else f"{count} lines look"
    return [
        Finding(
            cause="harmless",
            severity="info",
            summary=f"nothing to repair: {lines} alarming, but {'; '.join(reasons[:3]) or 'they change nothing'}",
            evidence=tuple(Evidence(source="log", line=match.line, text=match.shown) for match in noise[:6]),
            confidence=0.9,
        )
    ]


def _noise(case: Case) -> list[Match]:
    return [match for match in case.matches if match.symptom.role == "harmless" and is_active(match, case.features)]
