"""Judge whether cuDNN did the work: from its own log of calls during each case, and where that is silent, from a profiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from cudnn_resolve.validation.answers import Told, WitnessAnswer, cases_in, few, one_line
from cudnn_resolve.validation.case import Case
from cudnn_resolve.validation.model import Check, Status
from cudnn_resolve.validation.payload import WATCHING

Verdict = Literal["cudnn", "partly", "other", "unknown"]
MUST_USE = frozenset({"conv2d", "conv2d-strided", "conv2d-dilated", "conv2d-wide", "conv3d", "conv1d-encoder"})
"""Classes for which every framework has nothing better than cuDNN. For depthwise and grouped ones some have kernels of their own."""
_CUDNN = re.compile(
    r"cudnn::|cudnn_(infer|train|winograd|generated|int8|[bt]?[fi]\w?\d|\d)|_ZN(5cudnn|\d\d?\w{0,20}_cudnn)"  # its name in kernels
    r"|cudnn(Tensor|Filter|Convolution)\w{0,6}Struct|im2col4d_kernel|gcgemm_"
    r"|aten::_?cudnn_(convolution|rnn\b)|__cudnn\$(conv|fusion)"  # and in operations of PyTorch and calls of XLA
    r"|_xmma_(fprop|dgrad|wgrad)_|_xmma_\w{0,60}implicit_gemm"
    r"|(im|ex)plicit_convolve_|precomputed_convolve_|convolve_common_engine|(dgrad|wgrad)(_alg\w*)?_engine|(dgrad|wgrad)2d_"
    r"|cutlass_(\d\d\d?_)?(tensorop|simt|wmma)\w*_\w*(fprop|dgrad|wgrad)"
    r"|\bfft[123]d_[rc]2[rc]_"
    r"|RNN_blockPersist|LSTM_elementWise|elemWiseRNNcell"
    r"|^CUDAExecutionProvider:(Nhwc)?(Fused)?Conv"  # which has no other way
    r"|^loaded libcudnn_(cnn|engines)|^MXNet: built with cuDNN",  # and what else frameworks show
    re.IGNORECASE,
)
"""Kernels and operations that are cuDNN's."""
_OTHER = re.compile(
    r"slow_conv|thnn_conv|mkldnn_conv|nnpack|miopen_conv|conv_depthwise|DepthwiseConv|im2col|im2vol|vol2col|triton\w{0,40}conv"
    r"|^convolution$|^MXNet: (built without cuDNN|.{0,80}not supported by cudnn)|^(?!CUDA)\w{1,30}ExecutionProvider:(Nhwc)?(Fused)?Conv",
    re.IGNORECASE,
)
"""What computes convolutions where cuDNN does not."""
_HELPERS = re.compile(r"onednn|Eigen|triton|gemm|nvjet", re.IGNORECASE)
"""What may compute them, and as well may help cuDNN: some of its algorithms call cuBLAS."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What a witness saw of one case."""

    how: str
    """Who watched, `torch.profiler`."""
    cudnn: tuple[str, ...] = ()
    """Names of what is cuDNN's."""
    other: tuple[str, ...] = ()
    why: str = ""
    """Why nothing was seen."""
    cut: int = 0
    """The number of names that were left out."""


def read_names(how: str, names: Sequence[str], why: str = "", cut: int = 0) -> Evidence:
    """Sort the names of kernels, operations and calls into those of cuDNN and others."""
    cudnn = tuple(name for name in names if _CUDNN.search(name))
    rest = [name for name in names if name not in cudnn]
    other = tuple(name for name in rest if _OTHER.search(name) or (not cudnn and _HELPERS.search(name)))
    return Evidence(how=how, cudnn=cudnn, other=other, why=why, cut=cut)


def evidence_of(told: Told) -> dict[str, Evidence]:
    """Map the id of each case to what a witness saw of it."""
    found = {}
    for id_, seen in told.every("witness", tuple[str, WitnessAnswer]):
        names = [one_line(name, 160) for name in seen.names[:100] if isinstance(name, str)]
        found[id_] = read_names(one_line(seen.how, 60), names, one_line(seen.why, 300), max(seen.cut, 0))
    if told.failure and told.step.startswith(WATCHING):
        found.setdefault(told.step[len(WATCHING) :], Evidence(how="", why=f"the process ended while it was watched: {told.failure}"))
    return found


class Seen(Struct, frozen=True, kw_only=True):
    """What is known of one case that gave a result."""

    id: str
    must: bool
    """True where it was to be cuDNN's work."""
    called: bool
    """True where cuDNN's own log shows that it computed."""
    silent: bool
    """True where that log was kept, and shows nothing."""
    evidence: Evidence | None
    """Its own, else that of another case of its class and type."""

    @property
    def verdict(self) -> Verdict:
        """Who computed it."""
        one = self.evidence
        if self.called or (one and one.cudnn):
            return "partly" if one and one.other else "cudnn"
        return "other" if self.silent or (one and one.other) else "unknown"


def seen_cases(runs: Sequence[tuple[Sequence[Case], Told]]) -> list[Seen]:
    """Collect what is known of every case that gave a result."""
    own: dict[str, Evidence] = {}
    alike: dict[tuple[str, str], Evidence] = {}
    unheard: dict[str, Evidence] = {}
    for cases, told in runs:
        watched = evidence_of(told)
        ended = watched.get(told.step[len(WATCHING) :]) if told.failure and told.step.startswith(WATCHING) else None
        for case in cases:
            evidence = watched.get(case.id)
            if ended is not None:
                # Witnesses behind the one in which the process ended were not heard.
                unheard[case.id] = ended
            if evidence is not None:
                own[case.id] = evidence
                kept = alike.get((case.name, case.type))
                alike[case.name, case.type] = kept if kept and (kept.cudnn or kept.other) else evidence
    found = []
    for cases, told in runs:
        answers = cases_in(told)
        for case in cases:
            answer = answers.get(case.id)
            if answer is None or answer.y is None or case.kind == "matmul" or answer.own is not None:
                continue
            called = bool(answer.cudnn)
            # A log that shows this very case at work is not doubted for what was seen of another.
            evidence = own.get(case.id) or (None if called else alike.get((case.name, case.type), unheard.get(case.id)))
            silent = answer.logged and not called
            found.append(Seen(id=case.id, must=case.name in MUST_USE, called=called, silent=silent, evidence=evidence))
    return found


def judge_usage(id_: str, framework: str | None, runs: Sequence[tuple[Sequence[Case], Told]], gpu: int | None) -> Check:
    """Judge all cases that gave a result together; a right result without cuDNN is a warning where cuDNN was to be expected."""

    def check(status: Status, observed: str, detail: str = "") -> Check:
        expected = "cuDNN's own log, a profiler or the compiled program shows that it computed"
        return Check(id=id_, framework=framework, status=status, expected=expected, observed=observed, detail=detail, gpu=gpu)

    cases = seen_cases(runs)
    if not cases:
        own = next((one.own for _, told in runs for one in cases_in(told).values() if one.y is not None and one.own), None)
        # What was built without cuDNN has not fallen back.
        return check("skipped", f"{one_line(own)}: no libcudnn is in the process" if own else "nothing was computed")
    if all(one.verdict == "unknown" for one in cases):
        why = _why(cases)
        detail = "the framework computed without cuDNN, or with one that keeps no log" + (f"; no profiler saw it: {why}" if why else "")
        return check("warning", "cuDNN wrote no log", detail)
    words, details = [], []
    for verdict, told in _FAULTS.items():
        group = [one for one in cases if one.must and one.verdict == verdict]
        if group:
            words.append(f"{told}: {few([one.id for one in group])}")
            details.append(_detail(verdict, group))
    if words:
        return check("warning", "; ".join(words), "; ".join(details))
    used = [one for one in cases if one.verdict == "cudnn"]
    proof = next((f"{one.evidence.how} shows {one.evidence.cudnn[0]}" for one in used if one.evidence and one.evidence.cudnn), "")
    rest = [one.id for one in cases if one.verdict != "cudnn"]
    count = f"in {len(used)} of {len(cases)} cases"
    return check("passed", count + (f" ({proof})" if proof else "") + (f"; others without it: {few(rest)}" if rest else ""))


_FAULTS = {
    "other": "computed without cuDNN",
    "partly": "computed partly without cuDNN",
    "unknown": "not known who computed",
}


def _detail(verdict: str, group: Sequence[Seen]) -> str:
    """Say what computed instead of cuDNN, or why that is unknown."""
    if verdict == "unknown":
        why = _why(group)
        return f"the numbers are right, and nobody saw whose they are{f': {why}' if why else ''}"
    by = list(dict.fromkeys(name for one in group if one.evidence for name in one.evidence.other))
    how = next((one.evidence.how for one in group if one.evidence and one.evidence.other), "")
    cut = max((one.evidence.cut for one in group if one.evidence), default=0)
    names = f": {few(by)} ({how}{f'; {cut} names were left out' if cut else ''})" if by else ": cuDNN's log was on and shows no call"
    return f"the numbers are right, but something else gave {'them' if verdict == 'other' else 'a part of them'}{names}"


def _why(cases: Sequence[Seen]) -> str:
    """Say why a witness saw nothing; "" where none was asked."""
    found = next((one.evidence for one in cases if one.evidence and not one.evidence.cudnn and not one.evidence.other), None)
    if found is None or found.why or not found.how:
        return found.why if found else ""
    return f"{found.how} shows no name that tells" + (f", and {found.cut} more than it keeps" if found.cut else "")
