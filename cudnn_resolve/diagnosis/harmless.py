"""What a log contains that is harmless: notices of working programs, told apart from failures."""

from __future__ import annotations

from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Case, Evidence, Finding, Match
from cudnn_resolve.diagnosis.weigh import fill, is_active


def harmless_finding(reader: Reader, case: Case) -> list[Finding]:
    """One finding for all harmless lines."""
    noise = sorted(harmless_lines(case), key=lambda match: match.line)
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


def harmless_lines(case: Case) -> list[Match]:
    """Matches of the rows for harmless messages that apply here."""
    return [match for match in case.matches if match.symptom.role == "harmless" and is_active(match, case.features)]
