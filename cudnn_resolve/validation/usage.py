"""Did cuDNN do the work: judged from its own log of calls during each case."""

from __future__ import annotations

from collections.abc import Sequence

from cudnn_resolve.validation.case import Case
from cudnn_resolve.validation.child import Told
from cudnn_resolve.validation.computing import answers_of
from cudnn_resolve.validation.model import Check

MUST_USE = frozenset({"conv2d", "conv2d-strided", "conv2d-dilated", "conv2d-wide", "conv3d", "conv1d-encoder"})
"""Classes for which every framework has nothing better than cuDNN. For depthwise and grouped ones some have kernels of their own."""


def judge_usage(id_: str, framework: str | None, runs: Sequence[tuple[Sequence[Case], Told]], gpu: int | None) -> Check:
    """One check over all cases that gave a result; a right result without cuDNN is a warning where cuDNN was to be expected."""
    used: list[str] = []
    without: list[str] = []
    logged = False
    for cases, told in runs:
        answers = answers_of(told)
        for case in cases:
            answer = answers.get(case.id, {})
            if "y" not in answer or case.kind == "matmul":
                continue
            calls = answer.get("cudnn")
            logged = logged or answer.get("logged") is True
            (used if isinstance(calls, dict) and calls else without).append(case.id)

    def check(status: str, observed: str, detail: str = "") -> Check:
        return Check(
            id=id_,
            framework=framework,
            status=status,  # type: ignore[arg-type]
            expected="cuDNN's own log shows that it computed",
            observed=observed,
            detail=detail,
            gpu=gpu,
        )

    if not used and not without:
        return check("skipped", "nothing was computed")
    if not logged:
        return check("warning", "cuDNN wrote no log", "the framework computed without cuDNN, or with one that keeps no log")
    missed = [one for one in without if one.partition("/")[0] in MUST_USE]
    rest = f"; others without it: {_few(without)}" if without else ""
    if missed:
        return check("warning", f"computed without cuDNN: {_few(missed)}", "the numbers are right, but something else gave them")
    return check("passed", f"in {len(used)} of {len(used) + len(without)} cases{rest}")


def _few(names: Sequence[str]) -> str:
    """At most four of the names."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{more}"
