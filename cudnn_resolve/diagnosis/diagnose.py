"""From what was read and what is known of the machine to findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.context import context_of
from cudnn_resolve.diagnosis.derive import Case, derive, features_of
from cudnn_resolve.diagnosis.model import Diagnosis, Evidence, Finding, Match
from cudnn_resolve.diagnosis.weigh import FINDING, Suspect, evidence_of, is_active, rank, suspects

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.read import Reader
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.matrix.symptom import Cause

_CERTAIN = 0.98


def diagnose_log(reader: Reader, book: Book) -> Diagnosis:
    """The findings of a log by itself."""
    causes = book.causes()
    matches = list(reader.every())
    context = context_of(matches, book)
    features = features_of(matches, context)
    case = Case(matches=tuple(matches), features=features, context=context, book=book)
    found = derive(suspects(matches, features), case)
    ranked = rank(found, causes)
    findings = [_finding(one, causes[one.cause], strong=one.weight >= FINDING) for one in ranked]
    loud = [one for one in findings if one.severity != "info"]
    if not loud:
        findings = [*findings, *_harmless(reader, matches, features)]
    return Diagnosis(findings=tuple(findings), lines=reader.lines)


def _finding(suspect: Suspect, cause: Cause, *, strong: bool) -> Finding:
    return Finding(
        cause=suspect.cause,
        severity=cause.severity if strong else "info",
        summary=summary_of(suspect, cause),
        evidence=tuple(Evidence(source="log", line=one.line, text=one.text) for one in evidence_of(suspect)),
        confidence=round(min(suspect.weight / 100, _CERTAIN), 2),
    )


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


def fill(template: str, fields: object) -> str | None:
    """A sentence with its fields; None where one of them is not known."""
    from string import Formatter

    values = dict(fields)  # type: ignore[call-overload]
    out = []
    for text, name, _, _ in Formatter().parse(template):
        out.append(text)
        if name is not None:
            if values.get(name) is None:
                return None
            out.append(shown(values[name]))
    return "".join(out)


def shown(value: object) -> str:
    """A field as a sentence shows it."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return " ".join(map(str, value))
    return str(getattr(value, "file", value)).strip()


def _harmless(reader: Reader, matches: Iterable[Match], features: frozenset[str]) -> list[Finding]:
    """One finding for all the noise."""
    noise = [one for one in matches if one.symptom.role == "harmless" and is_active(one, features)]
    if not noise:
        return []
    noise.sort(key=lambda one: one.line)
    reasons = list(dict.fromkeys(one.symptom.summary for one in noise if one.symptom.summary))
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
