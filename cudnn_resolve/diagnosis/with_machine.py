"""The findings of a log together with those of its machine: which fills gaps of which, and which explains the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.library_path import missing
from cudnn_resolve.diagnosis.log_stack import driver_of
from cudnn_resolve.diagnosis.model import SEVERITIES, Case, Evidence, Finding, Match, values_of
from cudnn_resolve.diagnosis.remedy import WEAK, is_answered
from cudnn_resolve.diagnosis.remedy_machine import question, runs_on_windows
from cudnn_resolve.diagnosis.unknown import mentioned_in
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.symptom import Cause

_PAIR = "framework_pkg_mismatch"
_SURE = 0.9
"""Confidence from which nothing is reported as undecided."""
_OPEN = _PROVEN = 0.85
"""Below it a log leaves its cause open; from it on a finding of the facts explains a log."""
WHEREABOUTS = frozenset({"cudnn_missing", "cudnn_major_mismatch", "cuda_runtime_missing", "lib_not_on_path"})
"""For a library named in the log, the facts have decided between these; a log without a framework may be of another program."""
_OF_GUEST = frozenset({"no_gpu_runtime", "container_gpu_not_passed", "container_gpu_detached"})
"""Causes that only a notebook or container has."""
INSTALLER = "driver-installer"
"""Feature of a log of the driver's installer, which works on the machine even where it runs in a driver container."""


def with_question(first: Finding, case: Case) -> Finding:
    """Add to the first finding of a log what it may be confused with, and the command that decides it."""
    if first.severity == "info" or first.confidence >= _SURE:
        return first
    causes = case.book.causes()
    cause = causes[first.cause]
    if not cause.confused or is_answered(cause.id, case):
        return first
    is_driver_there = driver_of(case) is not None and "no-driver" not in case.features
    left_out = {"driver_not_loaded"} if is_driver_there else set()
    if INSTALLER in case.features or case.known.container is None:
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


def together(log: list[Finding], machine: list[Finding], root: Finding | None, case: Case) -> list[Finding]:
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


def root_of(first: Finding, machine: list[Finding], case: Case, matches: Sequence[Match]) -> Finding | None:
    """A proven fault of the machine that explains the first finding of the log; None without any, or if the facts report the same cause.

    `matches` are those of that finding. Of several faults, the one that explains the others is chosen.
    """
    if first.severity == "info" or any(finding.cause == first.cause and finding.severity != "info" for finding in machine):
        return None
    causes, of_log = case.book.causes(), _frameworks_of(matches, case)
    able = [finding for finding in machine if _explains(finding, first, causes) and not _is_of_others(finding, of_log, case.book)]
    is_named = any(missing(matches)) or any("component" in match.fields for match in matches)
    if first.cause in WHEREABOUTS and (is_named or not of_log):
        able = [finding for finding in able if finding.cause == _PAIR]
    elif first.cause == "out_of_memory":  # the library that returned the status was loaded
        able = [finding for finding in able if finding.cause not in WHEREABOUTS]

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
        return is_proven_pair and first.cause in WHEREABOUTS
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


def contradicted(findings: list[Finding], log: list[Finding], against: list[tuple[str, Evidence]]) -> list[Finding]:
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
