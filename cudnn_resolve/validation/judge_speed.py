"""Detect silent slowness: compare the time of one convolution with the GPU's peak and with the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.matrix.row import Architecture, Peak
from cudnn_resolve.validation.answers import CardAnswer, ChildReport, SpeedAnswer, one_line
from cudnn_resolve.validation.case import Case, Type, dtype_of
from cudnn_resolve.validation.model import Check
from cudnn_resolve.validation.payload_card import NVML
from cudnn_resolve.validation.payload_framework import TIMING

WORK = Case(name="speed", batch=32, channels=64, filters=64, size=(56, 56), kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
"""A ResNet layer, 7.4 GFLOP: far above launch overhead, below a tenth of a second on the slowest GPU."""
WIDE_WORK = replace(WORK, channels=256, filters=256)
"""The same with 118 GFLOP: enough for tensor cores to dominate the time."""
FIRST, NARROW, FURTHER = ("float32",), ("float16",), ("tf32", "bfloat16")
"""Types timed on CPU and GPU, on every GPU, and only when everything is requested."""
CPU_BATCH = 2
"""Images that suffice to measure the CPU's speed."""
ROUND_SECONDS = 0.4
NARROW_SECONDS = 0.2
LEAST_SHARE = 0.05
"""Of the peak: even old GPUs with small caches reach three times that in this layer."""

LEAST_OF_A_WHOLE = 0.75
"""Share of its peak in the matrix that a whole GPU reaches at least, by multiprocessors and clock; of all slices, only the largest does."""
LEAST_FREE_MIB = 1024
"""A framework's context takes 300 to 600 MiB, cuDNN's workspace some more."""
_NO_MEMORY = "the GPU has no memory left for another program: something else holds it"
_NO_REFERENCE = "nothing to compare with: neither the GPU's peak nor the CPU's time is known"
_NO_CAUSE = "nothing seems to slow the GPU down; was its code compiled from PTX for a newer GPU?"
_TYPE_NAMES = {"float32": "single precision", "tf32": "TF32"}


class SpeedLimits(Struct, frozen=True, kw_only=True):
    """Peak speeds of a GPU, and circumstances that slow it down."""

    peaks: Mapping[str, float] = MappingProxyType({})
    """Type to operations per second, where known."""
    causes: tuple[str, ...] = ()
    """Observed reasons for a slow GPU, in words."""


def work_of(type_: str) -> Case:
    """Workload timed in a type."""
    return WORK if type_ in FIRST else WIDE_WORK


def speed_question(types: Sequence[Type]) -> list[dict[str, Any]]:
    """Describe the workloads to a payload; only single precision is compared with the CPU."""
    return [
        {
            "type": type_,
            "dtype": dtype_of(type_),
            "layout": "nchw" if type_ in FIRST else "nhwc",
            "x": work_of(type_).shapes["x"],
            "w": work_of(type_).shapes["w"],
            "padding": WORK.padding[0],
            "seconds": ROUND_SECONDS if type_ in FIRST else NARROW_SECONDS,
            "cpu_batch": CPU_BATCH if type_ in FIRST else 0,
        }
        for type_ in types
    ]


def speed_limits(report: ChildReport, architecture: Architecture | None, peak: Peak | None, *, is_slice: bool = False) -> SpeedLimits:
    """Determine a GPU's peaks from its row in the matrix, or in single precision from what the driver reports.

    A MIG slice has the name of the whole GPU but only part of its multiprocessors: its peaks are scaled to that part.
    """
    card = report.last("card", CardAnswer) or CardAnswer()
    count, clock = _positive(card.multiprocessors), _positive(card.clock_khz)
    lanes = architecture.fp32_lanes if architecture else None
    peaks = {}
    if lanes and count and clock:
        peaks["float32"] = 2.0 * lanes * count * clock * 1000
    measured, whole = peaks.get("float32"), (peak.fp32 or 0.0) * 1e12 if peak is not None else 0.0
    share = measured / whole if measured and whole else None
    if share is None and is_slice:
        peak = None
    if peak is not None:
        part = share if share is not None and (is_slice or share < LEAST_OF_A_WHOLE) else 1.0
        rates = {"float32": peak.fp32, "tf32": peak.tf32, "float16": peak.fp16, "bfloat16": peak.bf16}
        peaks.update((type_, rate * 1e12 * part) for type_, rate in rates.items() if rate)
    return SpeedLimits(peaks=MappingProxyType(peaks), causes=tuple(_causes(card)))


def _positive(value: float | None) -> float | None:
    return float(value) if value is not None and 0 < value < 1e9 else None


def _causes(card: CardAnswer) -> list[str]:
    causes = []
    others = _positive(card.others)
    if others:
        causes.append(f"{others:.0f} other process{'es' if others > 1 else ''} on the GPU")
    clock, most = _positive(card.clock_mhz), _positive(card.most_mhz)
    if clock and most and clock < most / 2:
        causes.append(f"the GPU runs at {clock:.0f} of {most:.0f} MHz")
    if card.throttled:
        causes.append(f"clocks throttled by {one_line(', '.join(card.throttled), 100)}")
    return causes


def judge_speed(
    id_: str, framework: str, report: ChildReport, limits: SpeedLimits, gpu: int | None, types: Sequence[str] = FIRST
) -> tuple[Check, ...]:
    """Judge one framework's time in each requested type.

    Types that the framework does not support are left out; any other without a time has failed.
    """
    answers = {answer.type: answer for answer in report.values("speed", SpeedAnswer)}
    blank = Check(id=id_, framework=framework, status="passed", gpu=gpu)
    if not answers and not report.step.startswith(TIMING):
        # The framework never began to time anything: one failure.
        return (_untimed(blank, FIRST[0], None, report),)
    checks = []
    for type_ in types:
        answer = answers.get(type_)
        check = blank if type_ in FIRST else replace(blank, id=f"{id_}/{type_}")
        if answer is not None and _positive(answer.seconds):
            checks.append(_timed(check, type_, answer, limits))
        elif type_ in FIRST or answer is None or answer.unsupported is None:
            checks.append(_untimed(check, type_, answer, report))
    return tuple(checks)


def _timed(blank: Check, type_: str, answer: SpeedAnswer, limits: SpeedLimits) -> Check:
    """Judge the time of one type."""
    seconds, cpu = _positive(answer.seconds) or 1.0, _positive(answer.cpu_seconds)
    work, peak = work_of(type_), limits.peaks.get(type_)
    rate = work.operations / seconds
    words = [f"{_format_rate(rate)} in {_TYPE_NAMES.get(type_, type_)}"]
    faults, wanted = [], []
    if peak:
        wanted.append(f"at least {LEAST_SHARE:.0%} of the peak")
        words.append(f"{rate / peak:.0%} of the GPU's peak of {_format_rate(peak)}")
        if rate < LEAST_SHARE * peak:
            faults.append(f"less than {LEAST_SHARE:.0%} of the peak")
    if cpu:
        cpu_rate = work.operations * CPU_BATCH / work.batch / cpu
        wanted.append("faster than the CPU")
        words.append(f"{rate / cpu_rate:.3g} times the CPU")
        if rate <= cpu_rate:
            faults.append("no faster than the CPU")
    return replace(
        blank,
        status="warning" if faults else "passed" if wanted else "skipped",
        expected=", and ".join(wanted) or None,
        observed=", ".join(words),
        detail=f"{' and '.join(faults)}: {'; '.join(limits.causes or (_NO_CAUSE,))}" if faults else "" if wanted else _NO_REFERENCE,
        seconds=seconds,
    )


def _untimed(blank: Check, type_: str, answer: SpeedAnswer | None, report: ChildReport) -> Check:
    """Explain the absence of a time."""
    if answer is not None and answer.unsupported is not None:
        return replace(blank, status="skipped", observed=one_line(answer.unsupported))
    step = TIMING + type_
    if answer is not None and answer.error is not None:
        why = f"{step}: {one_line(answer.error)}"
    elif answer is not None or not report.failure:
        why = "no time was reported"
    elif report.step.startswith(TIMING) and report.step != step:
        why = f"not reached: {report.step}: {report.failure}"
    else:
        why = report.ending
    return replace(blank, status="failed", expected="the work can be timed", observed=why, output=report.output)


def _format_rate(operations: float) -> str:
    """Format operations per second, `8.1 TFLOP/s`."""
    return f"{operations / 1e12:.3g} TFLOP/s" if operations >= 1e12 else f"{operations / 1e9:.3g} GFLOP/s"


def judge_card(id_: str, report: ChildReport, gpu: int) -> Check:
    """Check that a program can use the GPU, and that enough of its memory is free."""
    card = report.last("card", CardAnswer)
    sound = Check(id=id_, status="passed", expected="the driver gives a context and memory", gpu=gpu)
    if card is None or (report.failure and not (card.memory and report.step == NVML)):  # NVML's answers are optional
        detail = _NO_MEMORY if "OUT_OF_MEMORY" in report.failure else "driver or GPU: neither cuDNN nor a framework is involved yet"
        return replace(sound, status="failed", observed=report.ending or "no answer", detail=detail, output=report.output)
    if not card.memory:
        return replace(sound, status="failed", expected="memory returns what was written", observed="it returns something else")
    free, total = _positive(card.free_mib), _positive(card.total_mib)
    if total and (free or 0) < LEAST_FREE_MIB:
        others = _positive(card.others)
        who = f"; {others:.0f} other processes are on the GPU" if others else ""
        return replace(
            sound,
            status="warning",
            expected=f"{LEAST_FREE_MIB} MiB of memory are free",
            observed=f"{free or 0:.0f} of {total:.0f} MiB are free",
            detail=f"failures below may be due to lack of memory alone{who}",
        )
    if report.failure:
        observed = f"it does; {report.ending}"
        return replace(sound, status="warning", expected="NVML answers for the GPU", observed=observed, output=report.output)
    room = f", {free:.0f} of {total:.0f} MiB free" if free and total else ""
    return replace(sound, observed=f"it does{room}")
