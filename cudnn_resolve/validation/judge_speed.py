"""Find silent slowness: compare the time of one convolution with the card's peak and with the same work on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.matrix.row import Architecture, Peak
from cudnn_resolve.validation.answers import CardAnswer, SpeedAnswer, Told, one_line
from cudnn_resolve.validation.case import Case, Type, dtype_of
from cudnn_resolve.validation.model import Check
from cudnn_resolve.validation.payload import TIMING
from cudnn_resolve.validation.payload_card import NVML

WORK = Case(name="speed", batch=32, channels=64, filters=64, size=(56, 56), kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
"""A layer of a ResNet, 7.4 GFLOP: more than any launch costs, less than a tenth of a second on the slowest card."""
WIDE_WORK = replace(WORK, channels=256, filters=256)
"""The same, 118 GFLOP: what tensor cores need to be told from what surrounds them."""
FIRST, NARROW, FURTHER = ("float32",), ("float16",), ("tf32", "bfloat16")
"""What is timed first, what else on every card, and what else where everything is asked for."""
CPU_BATCH = 2
"""So many of its images are enough to know the CPU's speed."""
ROUND_SECONDS = 0.4
NARROW_SECONDS = 0.2
LEAST_SHARE = 0.05
"""Of the peak: even old cards with small caches reach three times as much in this layer."""

LEAST_OF_A_WHOLE = 0.75
"""Of its peak in the matrix a whole card has at least as much by its multiprocessors and its clock; of a slice, only the largest has."""


class Pace(Struct, frozen=True, kw_only=True):
    """What a card could do, and what may hold it back."""

    peaks: Mapping[str, float] = MappingProxyType({})
    """Operations per second by type, where they are known."""
    causes: tuple[str, ...] = ()
    """What was seen that makes a card slow, in words."""


def work_of(type_: str) -> Case:
    """Choose the work that is timed in a type."""
    return WORK if type_ in FIRST else WIDE_WORK


def question(types: Sequence[Type]) -> list[dict[str, Any]]:
    """Describe the work to a payload; only single precision is compared with the CPU."""
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


def pace_of(told: Told, architecture: Architecture | None, peak: Peak | None, *, is_slice: bool = False) -> Pace:
    """Tell the peaks of a card by its row in the matrix; without one, in single precision, by what the driver tells of the card.

    A slice of a divided card (MIG) has the name of the whole one and a part of its multiprocessors: it is held against that part.
    """
    card = told.last("card", CardAnswer) or CardAnswer()
    count, clock = _positive(card.multiprocessors), _positive(card.clock_khz)
    lanes = architecture.fp32_lanes if architecture else None
    peaks = {}
    if lanes and count and clock:
        peaks["float32"] = 2.0 * lanes * count * clock * 1000
    own, whole = peaks.get("float32"), (peak.fp32 or 0.0) * 1e12 if peak is not None else 0.0
    share = own / whole if own and whole else None
    if share is None and is_slice:
        peak = None
    if peak is not None:
        part = share if share is not None and (is_slice or share < LEAST_OF_A_WHOLE) else 1.0
        rates = {"float32": peak.fp32, "tf32": peak.tf32, "float16": peak.fp16, "bfloat16": peak.bf16}
        peaks.update((type_, rate * 1e12 * part) for type_, rate in rates.items() if rate)
    return Pace(peaks=MappingProxyType(peaks), causes=tuple(_causes(card)))


def _positive(value: float | None) -> float | None:
    return float(value) if value is not None and 0 < value < 1e9 else None


def _causes(card: CardAnswer) -> list[str]:
    found = []
    others = _positive(card.others)
    if others:
        found.append(f"{others:.0f} other process{'es' if others > 1 else ''} on the card")
    clock, most = _positive(card.clock_mhz), _positive(card.most_mhz)
    if clock and most and clock < most / 2:
        found.append(f"the card runs at {clock:.0f} of {most:.0f} MHz")
    if card.throttled:
        found.append(f"clocks held down by {one_line(', '.join(card.throttled), 100)}")
    return found


def judge_speed(id_: str, framework: str, told: Told, pace: Pace, gpu: int | None, types: Sequence[str] = FIRST) -> tuple[Check, ...]:
    """Judge one framework's time in each of the types that it was asked for.

    A type other than the first that the framework does not have is left out; every other one without a time failed.
    """
    answers = {one.type: one for one in told.every("speed", SpeedAnswer)}
    beside = one_line(told.last("beside", str) or "", 200)
    blank = Check(id=id_, framework=framework, status="passed", gpu=gpu)
    if not answers and not told.step.startswith(TIMING):
        # The framework did not come so far: that is one failure.
        return (_untimed(blank, FIRST[0], None, told),)
    found = []
    for type_ in types:
        answer = answers.get(type_)
        here = blank if type_ in FIRST else replace(blank, id=f"{id_}/{type_}")
        if answer is not None and _positive(answer.seconds):
            found.append(_timed(here, type_, answer, pace, beside))
        elif type_ in FIRST or answer is None or answer.unsupported is None:
            found.append(_untimed(here, type_, answer, told))
    return tuple(found)


def _timed(blank: Check, type_: str, answer: SpeedAnswer, pace: Pace, beside: str = "") -> Check:
    """Judge the time of one type; where others worked beside it, slowness says nothing, and neither does the CPU's time."""
    seconds, cpu = _positive(answer.seconds) or 1.0, _positive(answer.cpu_seconds)
    work, peak = work_of(type_), pace.peaks.get(type_)
    rate = work.operations / seconds
    words = [f"{_rate(rate)} in {_WORDS.get(type_, type_)}"]
    faults, wanted = [], []
    if peak:
        wanted.append(f"at least {LEAST_SHARE:.0%} of the peak")
        words.append(f"{rate / peak:.0%} of the card's peak of {_rate(peak)}")
        if rate < LEAST_SHARE * peak:
            faults.append(f"less than {LEAST_SHARE:.0%} of the peak")
    if cpu and not beside:
        cpu_rate = work.operations * CPU_BATCH / work.batch / cpu
        wanted.append("faster than the CPU")
        words.append(f"{rate / cpu_rate:.3g} times the CPU")
        if rate <= cpu_rate:
            faults.append("no faster than the CPU")
    causes = pace.causes or ("nothing was seen that holds the card back; is its code compiled from PTX for a newer card?",)
    detail = f"{' and '.join(faults)}: {'; '.join(causes)}" if faults else "" if wanted else _ALONE
    return replace(
        blank,
        status=("skipped" if beside else "warning") if faults else "passed" if wanted else "skipped",
        expected=", and ".join(wanted) or None,
        observed=", ".join(words),
        detail="; ".join(filter(None, [detail, f"not timed alone: {beside}" if beside else ""])),
        seconds=seconds,
    )


_ALONE = "there is nothing to hold it against: neither the peak of this card nor the time of the CPU is known"
_WORDS = {"float32": "single precision", "tf32": "TF32"}


def _untimed(blank: Check, type_: str, answer: SpeedAnswer | None, told: Told) -> Check:
    """Say why there is no time."""
    if answer is not None and answer.unsupported is not None:
        return replace(blank, status="skipped", observed=one_line(answer.unsupported))
    step = TIMING + type_
    if answer is not None and answer.error is not None:
        why = f"{step}: {one_line(answer.error)}"
    elif answer is not None or not told.failure:
        why = "no time was told"
    elif told.step.startswith(TIMING) and told.step != step:
        why = f"not reached: {told.step}: {told.failure}"
    else:
        why = told.ending
    return replace(blank, status="failed", expected="the work can be timed", observed=why, output=told.output)


def _rate(operations: float) -> str:
    """Write operations per second as `8.1 TFLOP/s`."""
    return f"{operations / 1e12:.3g} TFLOP/s" if operations >= 1e12 else f"{operations / 1e9:.3g} GFLOP/s"


_NO_MEMORY = "no memory of the card is left for one more program: another one holds it"


def judge_card(id_: str, told: Told, gpu: int) -> Check:
    """Check that a program can use the card, and that there is room on it."""
    card = told.last("card", CardAnswer)
    sound = Check(id=id_, status="passed", expected="the driver gives a context and memory", gpu=gpu)
    if card is None or (told.failure and not (card.memory and told.step == NVML)):  # what NVML knows of its load is not needed
        detail = _NO_MEMORY if "OUT_OF_MEMORY" in told.failure else "neither cuDNN nor a framework was asked yet: driver or card"
        return replace(sound, status="failed", observed=told.ending or "nothing was told", detail=detail, output=told.output)
    if not card.memory:
        return replace(sound, status="failed", expected="memory holds what is written", observed="it holds something else")
    free, total = _positive(card.free_mib), _positive(card.total_mib)
    if total and (free or 0) < LEAST_FREE_MIB:
        others = _positive(card.others)
        who = f"; {others:.0f} other processes are on the card" if others else ""
        return replace(
            sound,
            status="warning",
            expected=f"{LEAST_FREE_MIB} MiB of memory are free",
            observed=f"{free or 0:.0f} of {total:.0f} MiB are free",
            detail=f"what fails below may fail for lack of memory only{who}",
        )
    if told.failure:
        observed = f"it does; {told.ending}"
        return replace(sound, status="warning", expected="NVML tells of the card", observed=observed, output=told.output)
    room = f", {free:.0f} of {total:.0f} MiB free" if free and total else ""
    return replace(sound, observed=f"it does{room}")


LEAST_FREE_MIB = 1024
"""A framework's context takes 300 to 600 MiB, cuDNN's workspace some more."""
