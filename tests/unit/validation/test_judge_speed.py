"""How fast a framework is, judged: against the card's peak, against the CPU, and where there is no time at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cudnn_resolve.matrix.row import Architecture, Peak
from cudnn_resolve.validation import payload_framework
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.judge_speed import WIDE_WORK, WORK, SpeedLimits, judge_card, judge_speed, speed_limits, speed_question
from cudnn_resolve.validation.model import Check
from cudnn_resolve.version import Capability, CudaVersion
from tests.unit.validation.recordings import telling


def crashed(*events: tuple[str, object]) -> ChildReport:
    told = telling(*events, stderr="last words", end=False)
    return replace(told, failure="crashed (SIGABRT)")


TURING = Architecture(capability=Capability(7, 5), name="Turing", cuda_first=CudaVersion("10.0"), fp32_lanes=64)
T4 = telling(("card", {"multiprocessors": 40, "clock_khz": 1_590_000, "memory": True, "free_mib": 15_000, "total_mib": 15_360}))


def timed(seconds: object, cpu: object = 10.0, pace: SpeedLimits | None = None) -> Check:
    told = telling(("speed", {"type": "float32", "seconds": seconds, "cpu_seconds": cpu}))
    return judge_speed("torch/speed", "torch", told, pace or speed_limits(T4, TURING, None), 0)[0]


def test_the_peak_of_a_card_is_its_multiprocessors_times_lanes_times_clock() -> None:
    assert speed_limits(T4, TURING, None).peaks == {"float32": pytest.approx(8.14e12, rel=1e-3)}


def test_what_the_matrix_says_of_a_card_goes_before_what_its_driver_does() -> None:
    peak = Peak(name="Tesla T4", fp32=8.1, fp16=65.0)

    assert speed_limits(T4, TURING, peak).peaks == {"float32": 8.1e12, "float16": 65e12}
    assert speed_limits(telling(), TURING, None).peaks == {}


A100 = Peak(name="A100", fp32=19.5, fp16=312.0)
AMPERE = replace(TURING, capability=Capability(8, 0), name="Ampere")


@pytest.mark.parametrize(("count", "fp32", "fp16"), [(108, 19.5e12, 312e12), (98, 19.5e12, 312e12), (14, 2.53e12, 40.4e12)])
def test_a_slice_of_a_card_is_held_against_its_part_of_the_peak(count: int, fp32: float, fp16: float) -> None:
    told = telling(("card", {"multiprocessors": count, "clock_khz": 1_410_000}))

    found = speed_limits(told, AMPERE, A100).peaks

    assert found == {"float32": pytest.approx(fp32, rel=0.01), "float16": pytest.approx(fp16, rel=0.01)}


def test_a_slice_of_which_nobody_knows_how_large_it_is_has_no_peak() -> None:
    assert speed_limits(telling(), AMPERE, A100, is_slice=True).peaks == {}
    assert speed_limits(telling(), AMPERE, A100).peaks == {"float32": 19.5e12, "float16": 312e12}


def test_each_type_is_set_against_a_peak_of_its_own() -> None:
    rows = [("float32", WORK.operations / 4e12, 10.0), ("float16", WIDE_WORK.operations / 26e12, None)]
    told = telling(*[("speed", {"type": type_, "seconds": seconds, "cpu_seconds": cpu}) for type_, seconds, cpu in rows])

    pace = speed_limits(T4, TURING, Peak(name="Tesla T4", fp32=8.0, fp16=65.0))
    first, narrow = judge_speed("torch/speed", "torch", told, pace, 0, ("float32", "float16"))

    assert (first.observed or "").startswith("4 TFLOP/s in single precision, 50% of the GPU's peak of 8 TFLOP/s, ")
    assert (narrow.id, narrow.status) == ("torch/speed/float16", "passed")
    assert narrow.observed == "26 TFLOP/s in float16, 40% of the GPU's peak of 65 TFLOP/s"


@pytest.mark.parametrize(("rate", "status"), [(0.049, "warning"), (0.051, "passed")])
def test_tensor_cores_that_are_not_used_are_seen(rate: float, status: str) -> None:
    told = telling(("speed", {"type": "float16", "seconds": WIDE_WORK.operations / (rate * 65e12)}))

    pace = speed_limits(T4, TURING, Peak(name="Tesla T4", fp32=8.1, fp16=65.0))
    (narrow,) = judge_speed("torch/speed", "torch", told, pace, 0, ("float16",))

    assert narrow.status == status


FAST = ("speed", {"type": "float32", "seconds": WORK.operations / 4e12, "cpu_seconds": 10.0})


def speeds(told: ChildReport, *types: str) -> dict[str, tuple[str, str | None]]:
    checks = judge_speed("torch/speed", "torch", told, SpeedLimits(), 0, ("float32", *types))
    return {check.id: (check.status, check.observed) for check in checks[1:]}


def test_a_type_in_which_the_child_ended_fails_and_those_behind_it_too() -> None:
    told = crashed(FAST, ("step", "time a convolution in float16"))

    assert speeds(told, "float16", "tf32") == {
        "torch/speed/float16": ("failed", "time a convolution in float16: crashed (SIGABRT)"),
        "torch/speed/tf32": ("failed", "not reached: time a convolution in float16: crashed (SIGABRT)"),
    }
    assert judge_speed("x", "torch", told, SpeedLimits(), 0, ("float32", "float16"))[1].output == ("last words",)


def test_a_type_in_which_there_was_an_error_fails_and_one_that_is_not_there_is_left_out() -> None:
    rows = ("speed", {"type": "float16", "error": "CUDNN_STATUS_EXECUTION_FAILED"}), ("speed", {"type": "tf32", "unsupported": "old"})

    assert speeds(telling(FAST, *rows), "float16", "tf32", "bfloat16") == {
        "torch/speed/float16": ("failed", "time a convolution in float16: CUDNN_STATUS_EXECUTION_FAILED"),
        "torch/speed/bfloat16": ("failed", "no time was reported"),
    }


def test_a_framework_that_cannot_be_timed_at_all_fails_once() -> None:
    (check,) = judge_speed("x", "torch", crashed(("step", "import torch")), SpeedLimits(), 0, ("float32", "float16"))

    assert (check.status, check.observed) == ("failed", "import torch: crashed (SIGABRT)")


def test_work_that_a_framework_has_no_code_for_is_no_error() -> None:
    told: list[object] = []

    def refuses(_work: dict[str, object]) -> dict[str, object]:
        raise RuntimeError("\"slow_conv\" not implemented for 'Half'")

    payload_framework.take_times({"speed": [{"type": "float16"}]}, lambda *row: told.append(row[-1]), refuses)

    assert told[-1] == {"type": "float16", "unsupported": "RuntimeError: \"slow_conv\" not implemented for 'Half'"}


def test_old_cards_are_not_timed_in_types_that_they_lack() -> None:
    assert [one["type"] for one in speed_question(("float32", "float16"))] == ["float32", "float16"]
    assert [one["cpu_batch"] > 0 for one in speed_question(("float32", "float16"))] == [True, False]


@pytest.mark.parametrize(
    ("cpu", "pace", "status", "wanted"),
    [
        (10.0, SpeedLimits(peaks={"float32": 8e12}), "passed", "at least 5% of the peak, and faster than the CPU"),
        (None, SpeedLimits(peaks={"float32": 8e12}), "passed", "at least 5% of the peak"),
        (10.0, SpeedLimits(), "passed", "faster than the CPU"),
        (None, SpeedLimits(), "skipped", None),
    ],
)
def test_only_what_was_compared_is_expected(cpu: float | None, pace: SpeedLimits, status: str, wanted: str | None) -> None:
    check = timed(WORK.operations / 4e12, cpu, pace)

    assert (check.status, check.expected) == (status, wanted)
    assert (check.observed or "").startswith("4 TFLOP/s")
    assert check.detail == ("" if wanted else "nothing to compare with: neither the GPU's peak nor the CPU's time is known")


def test_a_fast_one_passes() -> None:
    check = timed(WORK.operations / 4e12)

    assert check.status == "passed"
    assert (check.observed or "").startswith("4 TFLOP/s in single precision, 49% of the GPU's peak of 8.14 TFLOP/s, ")


@pytest.mark.parametrize(("rate", "words"), [(0.3e12, "less than 5% of the peak"), (1e6, "no faster than the CPU")])
def test_a_slow_one_is_a_warning(rate: float, words: str) -> None:
    check = timed(WORK.operations / rate)

    assert check.status == "warning"
    assert words in check.detail
    assert "PTX" in check.detail


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"others": 2}, "2 other processes on the GPU"),
        ({"clock_mhz": 300, "most_mhz": 1590}, "the GPU runs at 300 of 1590 MHz"),
        ({"throttled": ["heat"]}, "clocks throttled by heat"),
    ],
)
def test_what_holds_a_card_back_is_named(facts: dict[str, object], words: str) -> None:
    told = telling(("card", {"multiprocessors": 40, "clock_khz": 1_590_000, **facts}))

    assert timed(WORK.operations / 0.1e12, pace=speed_limits(told, TURING, None)).detail.endswith(words)


@pytest.mark.parametrize("value", [None, 0, -1, "x", True, [], 1e300])
def test_a_time_that_cannot_be_is_none(value: object) -> None:
    assert timed(value).status == "failed"


def test_a_card_with_little_room_is_a_warning_and_one_that_loses_what_is_written_fails() -> None:
    little = judge_card("card", telling(("card", {"memory": True, "free_mib": 200, "total_mib": 15_360, "others": 3})), 0)
    broken = judge_card("card", telling(("card", {"memory": False})), 0)

    assert (little.status, little.observed) == ("warning", "200 of 15360 MiB are free")
    assert little.detail.endswith("3 other processes are on the GPU")
    assert broken.status == "failed"
