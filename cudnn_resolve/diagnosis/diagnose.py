"""From what was read and what is known of the machine to findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import Case, context_of, speaking
from cudnn_resolve.diagnosis.derive import derive, features_of
from cudnn_resolve.diagnosis.machine_check import diagnose_facts
from cudnn_resolve.diagnosis.model import SEVERITIES, Diagnosis, Evidence, Finding, Match
from cudnn_resolve.diagnosis.order import outlived
from cudnn_resolve.diagnosis.remedy import Situation, remedies
from cudnn_resolve.diagnosis.weigh import FINDING, Suspect, evidence_of, fill, is_active, rank, summary_of, suspects

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.read import Reader
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.symptom import Cause
    from cudnn_resolve.requirement.model import Request

_CERTAIN = 0.98
_PAIR = "framework_pkg_mismatch"
_SURE = 0.9
"""From here on nothing is said to be undecided."""


def diagnose(reader: Reader | None, facts: Facts | None, book: Book, wishes: Request | None = None) -> Diagnosis:
    """The findings of a log, of facts, or of both together: what the facts show decides what the log leaves open.

    `wishes` says how remedies that are plans are to be made.
    """
    machine = diagnose_facts(facts, book) if facts is not None else []
    matches = list(reader.every()) if reader is not None else []
    context = context_of(matches, book, facts)
    matches = list(speaking(matches, context, book))
    features = features_of(matches, context, facts)
    case = Case(matches=tuple(matches), features=features, context=context, book=book, facts=facts)
    ranked = _ranked(case, reader)
    findings = _together(_of_log(reader, ranked, case, facts) if reader is not None else [], machine)
    situation = Situation(
        features=features,
        frameworks=context.frameworks,
        facts=facts,
        wishes=wishes,
        python=facts.python.path if facts is not None else None,
        matches={one.cause: one.matches for one in ranked},
    )
    bare = facts is not None and facts.driver is None and not findings
    return Diagnosis(
        findings=tuple(remedies(findings, situation, book)),
        lines=reader.lines if reader is not None else 0,
        note="there is no NVIDIA driver here, and no framework that wants one" if bare else None,
    )


def diagnose_log(reader: Reader, book: Book) -> Diagnosis:
    """The findings of a log by itself."""
    return diagnose(reader, None, book)


def _ranked(case: Case, reader: Reader | None) -> list[Suspect]:
    causes = case.book.causes()
    ranked = rank(derive(suspects(case.matches, case.features), case), causes)
    return outlived(ranked, reader.latest, case.features, causes) if reader is not None else ranked


def _of_log(reader: Reader, ranked: list[Suspect], case: Case, facts: Facts | None) -> list[Finding]:
    causes = case.book.causes()
    lone = reader.lines <= 1 and facts is None
    findings = [
        _finding(one, causes[one.cause], strong=one.weight >= FINDING and not (lone and all(each.symptom.mild for each in one.matches)))
        for one in ranked
    ]
    findings = _open(findings, causes, facts is not None)
    if all(one.severity == "info" for one in findings):
        findings = [*findings, *_harmless(reader, case.matches, case.features)]
    return findings


def _open(findings: list[Finding], causes: Mapping[str, Cause], has_facts: bool) -> list[Finding]:  # noqa: FBT001
    """The first finding with what is not decided between it and what looks alike, and the command that decides it."""
    if not findings or findings[0].severity == "info" or findings[0].confidence >= _SURE:
        return findings
    first = findings[0]
    cause = causes[first.cause]
    if not cause.confused:
        return findings
    alike = " or ".join(causes[one].title for one in cause.confused[:2] if one in causes)
    who = "" if has_facts else "; on the machine itself `cudnn-resolve doctor LOG` looks"
    told = f"it may also be that {alike}; `{cause.decide}` tells{who}" if cause.decide else f"it may also be that {alike}"
    return [replace(first, undecided=told), *findings[1:]]


def _together(log: list[Finding], machine: list[Finding]) -> list[Finding]:
    """Findings of both, one for each cause: the log's come first, since they are what happened."""
    out: list[Finding] = []
    rest = list(machine)
    for one in log:
        same = [other for other in rest if other.cause == one.cause and "info" not in (other.severity, one.severity)]
        for other in same:
            rest.remove(other)
        extra = tuple(evidence for other in same for evidence in other.evidence)
        sure = max([one.confidence, *(other.confidence for other in same)])
        what = tuple(remedy for other in same for remedy in other.remedy)
        open_ = None if same else one.undecided
        # What the facts are surer of than the log is said in their words.
        said = next((other.summary for other in same if other.severity == one.severity and other.confidence > one.confidence), one.summary)
        whole = replace(one, summary=said, evidence=(*one.evidence, *extra[:4]), remedy=(*one.remedy, *what))
        worst = min((one.severity, *(other.severity for other in same)), key=SEVERITIES.index)
        out.append(replace(whole, severity=worst, confidence=sure, undecided=open_))
    rest.sort(key=lambda one: (SEVERITIES.index(one.severity), -one.confidence))
    if log and any(one.severity != "info" for one in log):
        rest = [one for one in rest if one.cause != "harmless"]
    merged = [*_explained(out, rest), *rest]
    # A proven fault of the machine goes before what the log only suggests.
    return sorted(merged, key=lambda one: SEVERITIES.index(one.severity))


def _explained(log: list[Finding], machine: list[Finding]) -> list[Finding]:
    """The findings of a log, before them a pair of packages that is proven not to pair and that explains the first one."""
    first = log[0] if log else None
    for one in machine:
        if first and one.cause == _PAIR and one.severity == "error" and first.cause in ("cuda_runtime_missing", "lib_not_on_path"):
            machine.remove(one)
            return [replace(one, evidence=(*one.evidence, *first.evidence)), *log]
    return log


def _finding(suspect: Suspect, cause: Cause, *, strong: bool) -> Finding:
    return Finding(
        cause=suspect.cause,
        severity=(suspect.severity or cause.severity) if strong else "info",
        summary=summary_of(suspect, cause),
        evidence=tuple(Evidence(source="log", line=one.line, text=one.text) for one in evidence_of(suspect)),
        confidence=round(min(suspect.weight / 100, _CERTAIN), 2),
    )


def _harmless(reader: Reader, matches: Iterable[Match], features: frozenset[str]) -> list[Finding]:
    """One finding for all the noise."""
    noise = [one for one in matches if one.symptom.role == "harmless" and is_active(one, features)]
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
            evidence=tuple(Evidence(source="log", line=one.line, text=one.text) for one in noise[:6]),
            confidence=0.9,
        )
    ]
