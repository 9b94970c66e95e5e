"""Did cuDNN do the work: judged from its own log of calls during each case, and where that is silent, from who watched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cudnn_resolve.record import dataclass
from cudnn_resolve.validation.case import Case
from cudnn_resolve.validation.child import Told, one_line
from cudnn_resolve.validation.computing import answers_of
from cudnn_resolve.validation.model import Check, Status

MUST_USE = frozenset({"conv2d", "conv2d-strided", "conv2d-dilated", "conv2d-wide", "conv3d", "conv1d-encoder"})
"""Classes for which every framework has nothing better than cuDNN. For depthwise and grouped ones some have kernels of their own."""
_CUDNN = re.compile(
    r"cudnn::|cudnn_(infer_|train_|winograd|[bt]?[fi]\w?\d|\d)"  # its name in kernels
    r"|aten::_?cudnn_(convolution|rnn\b)|__cudnn\$"  # and in operations of PyTorch and calls of XLA
    r"|_xmma_(fprop|dgrad|wgrad)_"
    r"|(im|ex)plicit_convolve_|convolve_common_engine|(dgrad|wgrad)(_alg\w*)?_engine|(dgrad|wgrad)2d_"
    r"|cutlass_tensorop_\w*(fprop|dgrad|wgrad)"
    r"|^fft2d_[rc]2[rc]_"
    r"|RNN_blockPersist|LSTM_elementWise|elemWiseRNNcell"
    r"|^CUDAExecutionProvider:Conv",  # which has no other way
    re.IGNORECASE,
)
"""Kernels and operations that are cuDNN's."""
_OTHER = re.compile(
    r"slow_conv|thnn_conv|mkldnn_conv|onednn|nnpack|conv_depthwise|DepthwiseConv|im2col|im2vol|vol2col|Eigen|triton"
    r"|gemm|nvjet|^convolution$|^CPUExecutionProvider:Conv",
    re.IGNORECASE,
)
"""What computes convolutions where cuDNN does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What a witness saw of one case."""

    how: str
    """Who watched, `torch.profiler`."""
    cudnn: tuple[str, ...] = ()
    """Names of what is cuDNN's."""
    other: tuple[str, ...] = ()
    why: str = ""
    """Why nothing was seen."""


def read_names(how: str, names: Iterable[str], why: str = "") -> Evidence:
    """What the names of kernels, operations and calls say."""
    cudnn = tuple(name for name in names if _CUDNN.search(name))
    other = tuple(name for name in names if name not in cudnn and _OTHER.search(name))
    return Evidence(how=how, cudnn=cudnn, other=other, why=why)


def evidence_of(told: Told) -> dict[str, Evidence]:
    """What witnesses told, by the id of the case."""
    found = {}
    for row in told.every("witness"):
        if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], dict):
            names = row[1].get("names")
            words = [one_line(name, 160) for name in names[:100] if isinstance(name, str)] if isinstance(names, list) else []
            found[row[0]] = read_names(one_line(str(row[1].get("how", "")), 60), words, one_line(str(row[1].get("why", "")), 300))
    return found


def judge_usage(id_: str, framework: str | None, runs: Sequence[tuple[Sequence[Case], Told]], gpu: int | None) -> Check:
    """One check over all cases that gave a result; a right result without cuDNN is a warning where cuDNN was to be expected."""
    used: list[str] = []
    without: list[str] = []
    logged = False
    seen: dict[str, Evidence] = {}
    for cases, told in runs:
        answers = answers_of(told)
        seen.update(evidence_of(told))
        for case in cases:
            answer = answers.get(case.id, {})
            if "y" not in answer or case.kind == "matmul":
                continue
            calls = answer.get("cudnn")
            logged = logged or answer.get("logged") is True
            (used if isinstance(calls, dict) and calls else without).append(case.id)

    def check(status: Status, observed: str, detail: str = "") -> Check:
        expected = "cuDNN's own log, a profiler or the compiled program shows that it computed"
        return Check(id=id_, framework=framework, status=status, expected=expected, observed=observed, detail=detail, gpu=gpu)

    if not used and not without:
        return check("skipped", "nothing was computed")
    # One case of a class was watched; the others of that class go the same way.
    by_class = {name.partition("/")[0]: one for name, one in seen.items()}
    shown = {name: by_class[name.partition("/")[0]] for name in without if name.partition("/")[0] in by_class}
    watched = [name for name, one in shown.items() if one.cudnn]
    missed = [name for name in without if name.partition("/")[0] in MUST_USE and name not in watched]
    if not logged and not any(one.cudnn or one.other for one in shown.values()):
        why = next((one.why for one in shown.values() if one.why), "")
        detail = "the framework computed without cuDNN, or with one that keeps no log" + (f"; no profiler saw it: {why}" if why else "")
        return check("warning", "cuDNN wrote no log", detail)
    if missed:
        by = list(dict.fromkeys(name for one in missed if one in shown for name in shown[one].other))
        how = next((shown[one].how for one in missed if one in shown and shown[one].other), "")
        words = f"the numbers are right, but something else gave them{f': {_few(by)} ({how})' if by else ''}"
        return check("warning", f"computed without cuDNN: {_few(missed)}", words)
    proof = next((f"{one.how} shows {one.cudnn[0]}" for one in shown.values() if one.cudnn), "")
    rest = [name for name in without if name not in watched]
    words = f"in {len(used) + len(watched)} of {len(used) + len(without)} cases"
    return check("passed", words + (f" ({proof})" if proof else "") + (f"; others without it: {_few(rest)}" if rest else ""))


def _few(names: Sequence[str]) -> str:
    """At most four of the names."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{more}"
