"""Judge computed numbers: each tensor of each case against the reference, and the cases that gave none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cudnn_resolve.validation.answers import CaseAnswer, CaseRun, ChildReport, cases_in, one_line
from cudnn_resolve.validation.case import NARROW, WIDE, Case
from cudnn_resolve.validation.model import Check, Status
from cudnn_resolve.validation.reference import expected
from cudnn_resolve.validation.tolerance import compare

NOT_REACHED = "not reached"
WRONG = "wrong numbers"
"""Prefix of observations about incorrect results."""
_STATUS = re.compile(r"CUDNN_STATUS_([A-Z0-9_]+)")
_NOT_SUPPORTED = frozenset(
    {"NOT_SUPPORTED", *(f"NOT_SUPPORTED_{what}" for what in ("GRAPH_PATTERN", "SHAPE", "DATA_TYPE", "LAYOUT", "PADDING"))}
)
"""Statuses about the request itself; others with that prefix are about the GPU, the driver or a library (cudnn_graph.h)."""
_NO_ENGINE = ("unable to find an engine", "No algorithm worked")
"""Errors of PyTorch and XLA when cuDNN has no kernel for a convolution."""
_COMMON = "conv2d"
"""Three channels, as in images: every network begins with it, in every type."""
_NAMES = {"y": "result", "dx": "gradient of the input", "dw": "gradient of the weights"}
_LIKE_TF32 = "correct within the tolerance of TF32: was TF32 used although it was disabled (NVIDIA_TF32_OVERRIDE)?"


def unanswered(cases: Sequence[Case], report: ChildReport) -> tuple[Case, ...]:
    """List the cases after the one in which a child ended; none if it finished, or ended before its first case."""
    if not report.failure:
        return ()
    ids = [case.id for case in cases]
    return tuple(cases[ids.index(report.step) + 1 :]) if report.step in ids else ()


def _judge_case(prefix: str, framework: str | None, case: Case, answer: CaseAnswer | None, report: ChildReport, gpu: int | None) -> Check:
    """Judge one case: correct, wrong, unsupported by this framework, or fatal to the child."""
    status, observed, detail = _verdict(case, answer, report)
    return Check(
        id=f"{prefix}{case.id}",
        framework=framework,
        status=status,
        expected="every element within the tolerance of docs/tolerances.md",
        observed=observed,
        detail=detail,
        seconds=answer.seconds if answer else None,
        gpu=gpu,
        group=prefix.rstrip("/"),
        output=report.output if status == "failed" and (answer is None or answer.error is not None) else (),
    )


def _verdict(case: Case, answer: CaseAnswer | None, report: ChildReport) -> tuple[Status, str, str]:
    """Status, observation and detail of one case."""
    if answer is None and report.step == case.id:
        return "failed", report.failure or "ended without an answer", "the process ended while computing this"
    if answer is None:
        return "failed", NOT_REACHED, report.ending if report.failure else "the process ended without an answer"
    if answer.unsupported is not None:
        return "skipped", one_line(answer.unsupported), ""
    if answer.error is not None:
        return "failed", one_line(answer.error, 1000), ""
    return _compare(case, answer)


def _compare(case: Case, answer: CaseAnswer) -> tuple[Status, str, str]:
    """Compare every expected tensor, and describe the worst."""
    results = []
    for name, wanted in expected(case).items():
        values = getattr(answer, name)
        if values is None and name != "y" and answer.forward_only:
            continue
        found = compare(case.type, wanted, values or ())
        results.append((found.worst, _NAMES[name], found))
    worst, name, found = max(results, key=lambda result: result[0])
    if not found.is_right:
        wrong = ", ".join(label for share, label, _ in results if share > 1)
        tensors = ((wanted, getattr(answer, tensor) or ()) for tensor, wanted in expected(case).items())
        is_tf32 = case.type == "float32" and all(compare("tf32", wanted, values).is_right for wanted, values in tensors)
        return "failed", f"{WRONG} ({wrong}); {name}: {found.words}", _LIKE_TF32 if is_tf32 else ""
    return "passed", f"error at most {worst:.0%} of the tolerance ({name})", ""


def judge_cases(prefix: str, framework: str | None, runs: Sequence[CaseRun], gpu: int | None) -> tuple[Check, ...]:
    """Judge all cases of one framework.

    A rare shape that cuDNN does not support in a narrow type is only a warning if it supports common shapes in it.
    """
    checks = list(_judge_runs(prefix, framework, runs, gpu))
    cases = {f"{prefix}{case.id}": case for run_cases, _ in runs for case in run_cases}
    wide = {(case.type, case.layout): check.status for check in checks if (case := cases.get(check.id)) and case.name == WIDE.name}

    def is_served(case: Case) -> bool:
        """True if the wide case passed in this type, and in this layout if that was tested."""
        statuses = [status for (type_, _), status in wide.items() if type_ == case.type]
        return "passed" in statuses and wide.get((case.type, case.layout), "passed") == "passed"

    return tuple(_excuse(check) if (case := cases.get(check.id)) and _is_rare(case) and is_served(case) else check for check in checks)


def _is_rare(case: Case) -> bool:
    """True for a convolution with an odd number of channels in a narrow type: cuDNN may have no kernel for it."""
    odd = any(number // case.groups % 2 for number in (case.channels, case.filters))
    return case.kind == "convolution" and case.type in NARROW and case.name != _COMMON and odd


def _excuse(check: Check) -> Check:
    """Downgrade a failure to a warning if missing support is all that cuDNN reports."""
    words = check.observed or ""
    statuses = set(_STATUS.findall(words))
    says_so = statuses or any(phrase in words for phrase in _NO_ENGINE)
    if check.status != "failed" or not says_so or not statuses <= _NOT_SUPPORTED:
        return check
    return replace(check, status="warning", detail="cuDNN has no kernel for this shape in this type; the wide case passes in it")


def _judge_runs(prefix: str, framework: str | None, runs: Sequence[CaseRun], gpu: int | None) -> Iterator[Check]:
    """Judge each case once, even if it took several children because one ended early."""
    for number, (cases, report) in enumerate(runs, 1):
        rest = unanswered(cases, report)
        attempted = cases[: len(cases) - len(rest)]
        answers = cases_in(report)
        failed = Check(id=f"{prefix}start", framework=framework, status="failed", gpu=gpu, output=report.output)
        if number == 1 and report.failure and not answers and report.step not in {case.id for case in cases}:
            yield replace(failed, expected="the framework computes", observed=report.ending)
            continue
        for case in attempted:
            yield _judge_case(prefix, framework, case, answers.get(case.id), report, gpu)
        if report.failure and report.step in answers:
            observed = f"{report.ending} after it had given its result"
            yield replace(failed, id=f"{prefix}end", expected="the process ends normally", observed=observed)
        # The next child takes over the rest, which is judged with it.
        for case in rest if number == len(runs) else ():
            yield _judge_case(prefix, framework, case, answers.get(case.id), report, gpu)
