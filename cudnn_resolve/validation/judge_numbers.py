"""Judge what frameworks computed: each tensor of each case against the reference, and how a case ended that gave none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cudnn_resolve.validation.answers import CaseAnswer, Told, cases_in, one_line
from cudnn_resolve.validation.case import NARROW, WIDE, Case
from cudnn_resolve.validation.model import Check, Status
from cudnn_resolve.validation.reference import compare, expected

NOT_REACHED = "not reached"
WRONG = "wrong numbers"
"""Begins what is said of a result that is not right."""
_STATUS = re.compile(r"CUDNN_STATUS_([A-Z0-9_]+)")
_NOT_MADE = frozenset(
    {"NOT_SUPPORTED", *(f"NOT_SUPPORTED_{what}" for what in ("GRAPH_PATTERN", "SHAPE", "DATA_TYPE", "LAYOUT", "PADDING"))}
)
"""The statuses that speak of what was asked for; others of that beginning speak of card, driver or a library (cudnn_graph.h)."""
_NO_ENGINE = ("unable to find an engine", "No algorithm worked")
"""What PyTorch and XLA say where cuDNN has no kernel for a convolution."""
_PLAIN = "conv2d"
"""Of three channels as pictures have them: every network begins with it, in every type."""
_NAMES = {"y": "result", "dx": "gradient of the input", "dw": "gradient of the weights"}


def unanswered(cases: Sequence[Case], told: Told) -> tuple[Case, ...]:
    """List the cases after the one in which a child ended; none where it came to its end, or where no case was begun."""
    if not told.failure:
        return ()
    ids = [case.id for case in cases]
    return tuple(cases[ids.index(told.step) + 1 :]) if told.step in ids else ()


def judge_case(prefix: str, framework: str | None, case: Case, told: Told, gpu: int | None) -> Check:
    """Judge one case: right, wrong, not possible with this framework, or the end of the child."""
    answer = cases_in(told).get(case.id)
    status, observed, detail = _judged(case, answer, told)
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
        output=told.output if status == "failed" and (answer is None or answer.error is not None) else (),
    )


def _judged(case: Case, answer: CaseAnswer | None, told: Told) -> tuple[Status, str, str]:
    if answer is None and told.step == case.id:
        return "failed", told.failure or "ended without an answer", "the process ended while it computed this"
    if answer is None:
        return "failed", NOT_REACHED, _ending(told) if told.failure else "the process ended without an answer"
    if answer.unsupported is not None:
        return "skipped", one_line(answer.unsupported), ""
    if answer.error is not None:
        return "failed", one_line(answer.error, 1000), ""
    return _compared(case, answer)


def _compared(case: Case, answer: CaseAnswer) -> tuple[Status, str, str]:
    """Compare every tensor that must come out, and report the worst."""
    results = []
    for name, wanted in expected(case).items():
        values = getattr(answer, name)
        if values is None and name != "y" and answer.forward_only:
            continue
        found = compare(case.type, wanted, values or ())
        results.append((found.worst, _NAMES[name], found))
    worst, name, found = max(results, key=lambda one: one[0])
    if not found.is_right:
        wrong = ", ".join(label for share, label, _ in results if share > 1)
        tensors = ((wanted, getattr(answer, tensor) or ()) for tensor, wanted in expected(case).items())
        is_tf32 = case.type == "float32" and all(compare("tf32", wanted, values).is_right for wanted, values in tensors)
        return "failed", f"{WRONG} ({wrong}); {name}: {found.words}", _LIKE_TF32 if is_tf32 else ""
    return "passed", f"error at most {worst:.0%} of the tolerance ({name})", ""


_LIKE_TF32 = "right within the tolerance of TF32: was TF32 used though it was forbidden (NVIDIA_TF32_OVERRIDE)?"


def judge_cases(prefix: str, framework: str | None, runs: Sequence[tuple[Sequence[Case], Told]], gpu: int | None) -> tuple[Check, ...]:
    """Judge all cases of one framework; a rare shape that cuDNN lacks in a narrow type is a warning where it has the common ones."""
    checks = list(_judged_cases(prefix, framework, runs, gpu))
    asked = {f"{prefix}{case.id}": case for cases, _ in runs for case in cases}
    wide = {(case.type, case.layout): check.status for check in checks if (case := asked.get(check.id)) and case.name == WIDE.name}

    def is_served(case: Case) -> bool:
        """Its type in the wide case, which has each in one layout unless everything was asked for; then in the same layout."""
        statuses = [status for (type_, _), status in wide.items() if type_ == case.type]
        return "passed" in statuses and wide.get((case.type, case.layout), "passed") == "passed"

    return tuple(_excused(check) if (case := asked.get(check.id)) and _is_rare(case) and is_served(case) else check for check in checks)


def _is_rare(case: Case) -> bool:
    """True for a convolution in a narrow type of an odd number of channels, for which cuDNN may have no kernel."""
    odd = any(number // case.groups % 2 for number in (case.channels, case.filters))
    return case.kind == "convolution" and case.type in NARROW and case.name != _PLAIN and odd


def _excused(check: Check) -> Check:
    """Turn the failure into a warning where cuDNN has nothing for what was asked and says nothing else."""
    words = check.observed or ""
    statuses = set(_STATUS.findall(words))
    told = statuses or any(one in words for one in _NO_ENGINE)
    if check.status != "failed" or not told or not statuses <= _NOT_MADE:
        return check
    return replace(check, status="warning", detail="cuDNN has nothing for this shape in this type; what has more channels is right in it")


def _judged_cases(prefix: str, framework: str | None, runs: Sequence[tuple[Sequence[Case], Told]], gpu: int | None) -> Iterator[Check]:
    """Judge each case once, though it took several children where one ended early."""
    for number, (cases, told) in enumerate(runs, 1):
        rest = unanswered(cases, told)
        here = cases[: len(cases) - len(rest)]
        answers = cases_in(told)
        failed = Check(id=f"{prefix}start", framework=framework, status="failed", gpu=gpu, output=told.output)
        if number == 1 and told.failure and not answers and told.step not in {case.id for case in cases}:
            yield replace(failed, expected="the framework computes", observed=_ending(told))
            continue
        for case in here:
            yield judge_case(prefix, framework, case, told, gpu)
        if told.failure and told.step in answers:
            ending = f"{_ending(told)} once it had been told"
            yield replace(failed, id=f"{prefix}end", expected="the process comes to its end", observed=ending)
        # What another child took on is judged with that one.
        for case in rest if number == len(runs) else ():
            yield judge_case(prefix, framework, case, told, gpu)


def _ending(told: Told) -> str:
    """Say how a child ended, and in which step."""
    return f"{told.failure} ({told.step})" if told.step else told.failure
