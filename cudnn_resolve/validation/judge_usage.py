"""Judge whether cuDNN did the work: by its own log of calls during each case, and where that is silent, by a profiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from cudnn_resolve.errors import first_few
from cudnn_resolve.validation.answers import CaseRun, ChildReport, WitnessAnswer, cases_in, one_line
from cudnn_resolve.validation.model import Check, Status
from cudnn_resolve.validation.payload import WATCHING

_MOST_NAMED = 4
Verdict = Literal["cudnn", "partly", "other", "unknown"]
MUST_USE = frozenset({"conv2d", "conv2d-strided", "conv2d-dilated", "conv2d-wide", "conv3d", "conv1d-encoder"})
"""Classes for which no framework has anything better than cuDNN; some have own kernels for depthwise and grouped ones."""
_CUDNN = re.compile(
    r"cudnn::|cudnn_(infer|train|winograd|generated|int8|[bt]?[fi]\w?\d|\d)|_ZN(5cudnn|\d\d?\w{0,20}_cudnn)"  # kernel names
    r"|cudnn(Tensor|Filter|Convolution)\w{0,6}Struct|im2col4d_kernel|gcgemm_"
    r"|aten::_?cudnn_(convolution|rnn\b)|__cudnn\$(conv|fusion)"  # operations of PyTorch, calls of XLA
    r"|_xmma_(fprop|dgrad|wgrad)_|_xmma_\w{0,60}implicit_gemm"
    r"|(im|ex)plicit_convolve_|precomputed_convolve_|convolve_common_engine|(dgrad|wgrad)(_alg\w*)?_engine|(dgrad|wgrad)2d_"
    r"|cutlass_(\d\d\d?_)?(tensorop|simt|wmma)\w*_\w*(fprop|dgrad|wgrad)"
    r"|\bfft[123]d_[rc]2[rc]_"
    r"|RNN_blockPersist|LSTM_elementWise|elemWiseRNNcell"
    r"|^CUDAExecutionProvider:(Nhwc)?(Fused)?Conv"  # has no alternative to cuDNN
    r"|^loaded libcudnn_(cnn|engines)|^MXNet: built with cuDNN",  # reported by our payloads
    re.IGNORECASE,
)
"""Kernels and operations of cuDNN."""
_OTHER = re.compile(
    r"slow_conv|thnn_conv|mkldnn_conv|nnpack|miopen_conv|conv_depthwise|DepthwiseConv|im2col|im2vol|vol2col|triton\w{0,40}conv"
    r"|^convolution$|^MXNet: (built without cuDNN|.{0,80}not supported by cudnn)|^(?!CUDA)\w{1,30}ExecutionProvider:(Nhwc)?(Fused)?Conv",
    re.IGNORECASE,
)
"""Convolutions by anything but cuDNN."""
_HELPERS = re.compile(r"onednn|Eigen|triton|gemm|nvjet", re.IGNORECASE)
"""May compute convolutions, or merely assist cuDNN: some of its algorithms call cuBLAS."""


class Observation(Struct, frozen=True, kw_only=True):
    """Names that a witness saw during one case."""

    how: str
    """The witness, `torch.profiler`."""
    cudnn: tuple[str, ...] = ()
    """Names that are cuDNN's."""
    other: tuple[str, ...] = ()
    """Names of anything that computed in its place."""
    why: str = ""
    """Why nothing was seen."""
    cut: int = 0
    """Number of names left out."""


def read_names(how: str, names: Sequence[str], why: str = "", cut: int = 0) -> Observation:
    """Classify names of kernels, operations and calls as cuDNN's or others'."""
    cudnn = tuple(name for name in names if _CUDNN.search(name))
    rest = [name for name in names if name not in cudnn]
    other = tuple(name for name in rest if _OTHER.search(name) or (not cudnn and _HELPERS.search(name)))
    return Observation(how=how, cudnn=cudnn, other=other, why=why, cut=cut)


def observations_in(report: ChildReport) -> dict[str, Observation]:
    """Map case ids to what a witness saw."""
    found = {}
    for id_, answer in report.values("witness", tuple[str, WitnessAnswer]):
        names = [one_line(name, 160) for name in answer.names[:100] if isinstance(name, str)]
        found[id_] = read_names(one_line(answer.how, 60), names, one_line(answer.why, 300), max(answer.cut, 0))
    if report.failure and report.step.startswith(WATCHING):
        why = f"the process ended while being watched: {report.failure}"
        found.setdefault(report.step.removeprefix(WATCHING), Observation(how="", why=why))
    return found


class CaseUsage(Struct, frozen=True, kw_only=True):
    """Evidence for or against cuDNN in one case that gave a result."""

    id: str
    must: bool
    """True if cuDNN is expected to compute it."""
    called: bool
    """True if cuDNN's own log shows that it computed."""
    silent: bool
    """True if that log was kept and shows nothing."""
    observation: Observation | None
    """Of this case, or else of another case of the same class and type."""

    @property
    def verdict(self) -> Verdict:
        """What computed it."""
        seen = self.observation
        if self.called or (seen and seen.cudnn):
            return "partly" if seen and seen.other else "cudnn"
        return "other" if self.silent or (seen and seen.other) else "unknown"


def case_usages(runs: Sequence[CaseRun]) -> list[CaseUsage]:
    """Collect the evidence on every case that gave a result."""
    own: dict[str, Observation] = {}
    similar: dict[tuple[str, str], Observation] = {}
    unheard: dict[str, Observation] = {}
    for cases, report in runs:
        observations = observations_in(report)
        fatal = observations.get(report.step.removeprefix(WATCHING)) if report.failure and report.step.startswith(WATCHING) else None
        for case in cases:
            observation = observations.get(case.id)
            if fatal is not None:
                # No witness after the one that ended the process was heard.
                unheard[case.id] = fatal
            if observation is not None:
                own[case.id] = observation
                known = similar.get((case.name, case.type))
                similar[case.name, case.type] = known if known and (known.cudnn or known.other) else observation
    usages = []
    for cases, report in runs:
        answers = cases_in(report)
        for case in cases:
            answer = answers.get(case.id)
            if answer is None or answer.y is None or case.kind == "matmul" or answer.own is not None:
                continue
            called = bool(answer.cudnn)
            # A log that shows this case at work outweighs observations of another case.
            observation = own.get(case.id) or (None if called else similar.get((case.name, case.type), unheard.get(case.id)))
            silent = answer.logged and not called
            usages.append(CaseUsage(id=case.id, must=case.name in MUST_USE, called=called, silent=silent, observation=observation))
    return usages


def judge_usage(id_: str, framework: str | None, runs: Sequence[CaseRun], gpu: int | None) -> Check:
    """Judge all cases that gave a result; a correct result without cuDNN is a warning if cuDNN was expected to compute it."""

    def check(status: Status, observed: str, detail: str = "") -> Check:
        expected = "cuDNN's own log, a profiler or the compiled program shows that it computed"
        return Check(id=id_, framework=framework, status=status, expected=expected, observed=observed, detail=detail, gpu=gpu)

    usages = case_usages(runs)
    if not usages:
        own = next((answer.own for _, report in runs for answer in cases_in(report).values() if answer.y is not None and answer.own), None)
        # A build without cuDNN has not fallen back.
        return check("skipped", f"{one_line(own)}: no libcudnn is loaded" if own else "nothing was computed")
    if all(usage.verdict == "unknown" for usage in usages):
        why = _why_unseen(usages)
        detail = "the framework computed without cuDNN, or with one that keeps no log" + (f"; no profiler saw it: {why}" if why else "")
        return check("warning", "cuDNN wrote no log", detail)
    words, details = [], []
    for verdict, phrase in _FAULTS.items():
        group = [usage for usage in usages if usage.must and usage.verdict == verdict]
        if group:
            words.append(f"{phrase}: {first_few([usage.id for usage in group], _MOST_NAMED)}")
            details.append(_detail(verdict, group))
    if words:
        return check("warning", "; ".join(words), "; ".join(details))
    used = [usage for usage in usages if usage.verdict == "cudnn"]
    seen = next((usage.observation for usage in used if usage.observation and usage.observation.cudnn), None)
    proof = f" ({seen.how} shows {seen.cudnn[0]})" if seen else ""
    rest = [usage.id for usage in usages if usage.verdict != "cudnn"]
    return check(
        "passed", f"in {len(used)} of {len(usages)} cases{proof}" + (f"; others without it: {first_few(rest, _MOST_NAMED)}" if rest else "")
    )


_FAULTS = {
    "other": "computed without cuDNN",
    "partly": "computed partly without cuDNN",
    "unknown": "not known what computed",
}


def _detail(verdict: str, group: Sequence[CaseUsage]) -> str:
    """Name what computed instead of cuDNN, or why that is unknown."""
    if verdict == "unknown":
        why = _why_unseen(group)
        return f"the numbers are correct, but nothing shows what computed them{f': {why}' if why else ''}"
    seen = [usage.observation for usage in group if usage.observation]
    names = list(dict.fromkeys(name for observation in seen for name in observation.other))
    how = next((observation.how for observation in seen if observation.other), "")
    cut = max((observation.cut for observation in seen), default=0)
    left_out = f"; {cut} names were left out" if cut else ""
    source = f"{first_few(names, _MOST_NAMED)} ({how}{left_out})" if names else "cuDNN's log was on and shows no call"
    return f"the numbers are correct, but something else computed {'them' if verdict == 'other' else 'part of them'}: {source}"


def _why_unseen(usages: Sequence[CaseUsage]) -> str:
    """Why a witness saw nothing; "" if none was asked."""
    seen = (usage.observation for usage in usages if usage.observation)
    blind = next((observation for observation in seen if not observation.cudnn and not observation.other), None)
    if blind is None or blind.why or not blind.how:
        return blind.why if blind else ""
    return f"{blind.how} shows no conclusive name" + (f", and {blind.cut} more were left out" if blind.cut else "")
