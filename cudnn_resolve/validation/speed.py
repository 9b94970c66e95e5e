"""Was it silently slow: the time of one convolution against the card's own peak and against the same work on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_resolve.matrix.row import Architecture, Card
from cudnn_resolve.record import dataclass
from cudnn_resolve.validation.case import Case
from cudnn_resolve.validation.child import Told, one_line
from cudnn_resolve.validation.model import Check

WORK = Case(name="speed", batch=32, channels=64, filters=64, size=(56, 56), kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1))
"""A layer of a ResNet, 7.4 GFLOP: more than any launch costs, less than a tenth of a second on the slowest card."""
CPU_BATCH = 2
"""So many of its images are enough to know the CPU's speed."""
ROUND_SECONDS = 0.4
LEAST_SHARE = 0.05
"""Of the peak: even old cards with small caches reach three times as much in this layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """What a card could do, and what may hold it back."""

    peak: float | None = None
    """Operations per second in single precision."""
    causes: tuple[str, ...] = ()
    """What was seen that makes a card slow, in words."""


def question() -> dict[str, Any]:
    """What a payload is told of the work."""
    shapes = WORK.shapes
    return {
        "type": "float32",
        "layout": "nchw",
        "x": shapes["x"],
        "w": shapes["w"],
        "padding": WORK.padding[0],
        "seconds": ROUND_SECONDS,
        "cpu_batch": CPU_BATCH,
    }


def pace_of(told: Told, architecture: Architecture | None, card: Card | None) -> Pace:
    """The pace of a card from what the driver tells of it; its row in the matrix where the driver does not tell."""
    answer = told.last("card")
    facts: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    count, clock = _positive(facts.get("multiprocessors")), _positive(facts.get("clock_khz"))
    lanes = architecture.fp32_lanes if architecture else None
    peak = None
    if lanes and count and clock:
        peak = 2.0 * lanes * count * clock * 1000
    elif card is not None and card.tflops_fp32:
        peak = card.tflops_fp32 * 1e12
    return Pace(peak=peak, causes=tuple(_causes(facts)))


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9 else None


def _causes(facts: Mapping[str, Any]) -> list[str]:
    found = []
    others = _positive(facts.get("others"))
    if others:
        found.append(f"{others:.0f} other process{'es' if others > 1 else ''} on the card")
    clock, most = _positive(facts.get("clock_mhz")), _positive(facts.get("most_mhz"))
    if clock and most and clock < most / 2:
        found.append(f"the card runs at {clock:.0f} of {most:.0f} MHz")
    throttled = facts.get("throttled")
    if isinstance(throttled, list) and throttled:
        found.append(f"clocks held down by {one_line(', '.join(map(str, throttled)), 100)}")
    return found


def judge_speed(id_: str, framework: str, told: Told, pace: Pace, gpu: int | None) -> Check:
    """One framework's time for the work."""
    answer = told.last("speed")
    facts: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    seconds, cpu = _positive(facts.get("seconds")), _positive(facts.get("cpu_seconds"))
    if seconds is None:
        why = one_line(str(facts["unsupported"])) if "unsupported" in facts else told.failure or "no time was told"
        status = "skipped" if "unsupported" in facts else "failed"
        where = f"{told.step}: " if told.step and status == "failed" else ""
        output = told.output if status == "failed" else ()
        return Check(id=id_, framework=framework, status=status, observed=f"{where}{why}", gpu=gpu, output=output)  # type: ignore[arg-type]
    rate = WORK.operations / seconds
    words = [f"{_rate(rate)} in single precision"]
    faults = []
    if pace.peak:
        words.append(f"{rate / pace.peak:.0%} of the card's peak of {_rate(pace.peak)}")
        if rate < LEAST_SHARE * pace.peak:
            faults.append(f"less than {LEAST_SHARE:.0%} of the peak")
    if cpu:
        cpu_rate = WORK.operations * CPU_BATCH / WORK.batch / cpu
        words.append(f"{rate / cpu_rate:.3g} times the CPU")
        if rate <= cpu_rate:
            faults.append("no faster than the CPU")
    causes = pace.causes or ("nothing was seen that holds the card back; is its code compiled from PTX for a newer card?",)
    return Check(
        id=id_,
        framework=framework,
        status="warning" if faults else "passed",
        expected=f"faster than the CPU, and at least {LEAST_SHARE:.0%} of the peak",
        observed=", ".join(words),
        detail=f"{' and '.join(faults)}: {'; '.join(causes)}" if faults else "",
        seconds=seconds,
        gpu=gpu,
    )


def _rate(operations: float) -> str:
    """Operations per second, `8.1 TFLOP/s`."""
    return f"{operations / 1e12:.3g} TFLOP/s" if operations >= 1e12 else f"{operations / 1e9:.3g} GFLOP/s"


def judge_card(id_: str, told: Told, gpu: int) -> Check:
    """Whether the card can be used by a program at all, and whether there is room on it."""
    answer = told.last("card")
    facts: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    if told.failure or not facts:
        where = f"{told.step}: " if told.step else ""
        return Check(
            id=id_,
            status="failed",
            expected="the driver gives a context and memory",
            observed=f"{where}{told.failure or 'nothing was told'}",
            detail="neither cuDNN nor a framework was asked yet: driver or card",
            gpu=gpu,
            output=told.output,
        )
    if facts.get("memory") is not True:
        return Check(id=id_, status="failed", expected="memory holds what is written", observed="it holds something else", gpu=gpu)
    free, total = _positive(facts.get("free_mib")), _positive(facts.get("total_mib"))
    if total and (free or 0) < LEAST_FREE_MIB:
        others = _positive(facts.get("others"))
        who = f"; {others:.0f} other processes are on the card" if others else ""
        return Check(
            id=id_,
            status="warning",
            expected=f"{LEAST_FREE_MIB} MiB of memory are free",
            observed=f"{free or 0:.0f} of {total:.0f} MiB are free",
            detail=f"what fails below may fail for lack of memory only{who}",
            gpu=gpu,
        )
    room = f", {free:.0f} of {total:.0f} MiB free" if free and total else ""
    return Check(id=id_, status="passed", expected="the driver gives a context and memory", observed=f"it does{room}", gpu=gpu)


LEAST_FREE_MIB = 1024
"""A framework's context takes 300 to 600 MiB, cuDNN's workspace some more."""
