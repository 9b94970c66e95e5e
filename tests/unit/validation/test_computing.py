"""What frameworks computed, judged: right, wrong, impossible, or the end of the child; with cuDNN or without; fast or slow."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.model import Facts, Gpu, InstalledFramework, Packages, WouldLoad
from cudnn_resolve.matrix.row import Architecture, Peak
from cudnn_resolve.record import replace
from cudnn_resolve.validation.bench import cases_for
from cudnn_resolve.validation.case import CLASSES, MATMUL, Case
from cudnn_resolve.validation.child import Told
from cudnn_resolve.validation.computing import judge_cases, unanswered
from cudnn_resolve.validation.model import Check, Validation, VisibleGpu
from cudnn_resolve.validation.reference import expected
from cudnn_resolve.validation.run import libraries_of, with_causes
from cudnn_resolve.validation.speed import WIDE_WORK, WORK, Pace, judge_card, judge_speed, pace_of, question
from cudnn_resolve.validation.subject import environment_of, gpus_of, subjects_of
from cudnn_resolve.validation.usage import judge_usage
from cudnn_resolve.version import Capability, CudaVersion
from tests.unit.validation.recordings import recorded, telling

ONE, TWO, THREE = CLASSES[:3]


def right(case: Case, **more: object) -> dict[str, object]:
    """The answer of a child that computed everything exactly."""
    return {"id": case.id, "seconds": 0.25, **{name: list(one.values) for name, one in expected(case).items()}, **more}


def judged(told: Told, *cases: Case) -> list[Check]:
    return list(judge_cases("torch/", "torch", [(cases, told)], 0))


def test_right_numbers_pass() -> None:
    (check,) = judged(telling(("step", ONE.id), ("case", right(ONE))), ONE)

    assert (check.id, check.status, check.seconds, check.gpu, check.group) == (f"torch/{ONE.id}", "passed", 0.25, 0, "torch")
    assert check.observed == "error at most 0% of the tolerance (result)"


@pytest.mark.parametrize(("name", "words"), [("y", "result"), ("dx", "gradient of the input"), ("dw", "gradient of the weights")])
def test_one_wrong_number_in_any_tensor_fails(name: str, words: str) -> None:
    answer = right(TWO)
    values = list(expected(TWO)[name].values)
    values[7] += 0.01
    answer[name] = values

    (check,) = judged(telling(("case", answer)), TWO)

    assert check.status == "failed"
    assert (check.observed or "").startswith(f"wrong numbers ({words}); {words}: element 7 is")


def test_tf32_where_it_was_forbidden_is_named() -> None:
    answer = right(TWO)
    for name, one in expected(TWO).items():
        answer[name] = [value + 2.0**-11 * one.size for value in one.values]

    (check,) = judged(telling(("case", answer)), TWO)

    assert check.status == "failed"
    assert "was TF32 used though it was forbidden" in check.detail
    answer["y"] = [value + 1 for value in expected(TWO)["y"].values]
    assert judged(telling(("case", answer)), TWO)[0].detail == ""


@pytest.mark.parametrize("missing", ["y", "dx", "dw"])
def test_a_tensor_that_is_not_there_fails(missing: str) -> None:
    answer = right(TWO)
    del answer[missing]

    assert judged(telling(("case", answer)), TWO)[0].status == "failed"


def test_a_framework_without_gradients_gives_none() -> None:
    answer = {"id": TWO.id, "y": list(expected(TWO)["y"].values), "forward_only": True}

    assert judged(telling(("case", answer)), TWO)[0].status == "passed"


def test_what_a_framework_cannot_do_is_skipped_and_what_it_refuses_fails() -> None:
    told = telling(
        ("case", {"id": ONE.id, "unsupported": "no such type"}), ("case", {"id": TWO.id, "error": "RuntimeError: out of memory"})
    )

    first, second = judged(told, ONE, TWO)

    assert (first.status, first.observed) == ("skipped", "no such type")
    assert (second.status, second.observed) == ("failed", "RuntimeError: out of memory")


def crashed(*events: tuple[str, object]) -> Told:
    told = telling(*events, stderr="last words", end=False)
    return replace(told, failure="crashed (SIGABRT)")


def test_the_case_that_ended_the_child_is_named_and_the_rest_is_left_for_another() -> None:
    told = crashed(("ready", None), ("step", ONE.id), ("case", right(ONE)), ("step", TWO.id))

    checks = judged(told, ONE, TWO, THREE)

    assert unanswered((ONE, TWO, THREE), told) == (THREE,)
    assert [(check.id, check.status) for check in checks] == [(f"torch/{ONE.id}", "passed"), (f"torch/{TWO.id}", "failed")]
    assert checks[1].observed == "crashed (SIGABRT)"
    assert checks[1].output == ("last words",)


def test_a_child_that_did_not_come_so_far_fails_once() -> None:
    told = crashed(("step", "torch opens the GPU"))

    (check,) = judged(told, ONE, TWO)

    assert unanswered((ONE, TWO), told) == ()
    assert (check.id, check.status, check.observed) == ("torch/start", "failed", "crashed (SIGABRT) (torch opens the GPU)")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch-no-device", "RuntimeError: Unexpected error from cudaGetDeviceCount()"),
        ("tensorflow-no-device", "InternalError: cudaGetDevice() failed"),
        ("jax-no-device", "RuntimeError: Unknown backend: 'gpu' requested"),
        ("cudnn-no-device", "cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1001) (cuDNN: CUDNN_STATUS_NOT_INITIALIZED; Reason: cudaGet"),
    ],
)
def test_real_ones_without_a_device(name: str, words: str) -> None:
    (check,) = judged(recorded(name), CLASSES[1])

    assert check.id == "torch/start"
    assert words in (check.observed or "")


@pytest.mark.parametrize("answer", [None, 1, [], {}, {"id": 1}, {"id": "x"}, {"id": TWO.id, "y": "x"}, {"id": TWO.id, "seconds": "x"}])
def test_no_answer_upsets_the_judge(answer: object) -> None:
    (check,) = judged(telling(("ready", None), ("case", answer)), TWO)

    assert check.status in ("failed", "skipped")


# --- was it cuDNN ---


def used(*answers: tuple[Case, dict[str, int]], logged: bool = True) -> Check:
    told = telling(*[("case", right(case, cudnn=calls, logged=logged)) for case, calls in answers])
    return judge_usage("torch/cudnn-used", "torch", [(tuple(case for case, _ in answers), told)], 0)


DEPTHWISE = next(case for case in CLASSES if case.name == "conv2d-depthwise")


def test_cudnn_did_the_work() -> None:
    check = used((TWO, {"cudnnBackendExecute": 3}), (DEPTHWISE, {}), (MATMUL, {}))

    assert check.status == "passed"
    assert check.observed == f"in 1 of 2 cases; others without it: {DEPTHWISE.id}"


def test_right_numbers_without_cudnn_are_a_warning() -> None:
    check = used((TWO, {}), (THREE, {"cudnnConvolutionForward": 1}))

    assert check.status == "warning"
    assert check.observed == f"computed without cuDNN: {TWO.id}"


def test_a_cudnn_without_a_log_is_a_warning() -> None:
    assert used((TWO, {}), logged=False).observed == "cuDNN wrote no log"


def test_where_nothing_was_computed_nothing_is_said() -> None:
    assert judge_usage("x", "torch", [((TWO,), telling())], 0).status == "skipped"


# --- was it fast ---

TURING = Architecture(capability=Capability(7, 5), name="Turing", cuda_first=CudaVersion("10.0"), fp32_lanes=64)
T4 = telling(("card", {"multiprocessors": 40, "clock_khz": 1_590_000, "memory": True, "free_mib": 15_000, "total_mib": 15_360}))


def timed(seconds: object, cpu: object = 10.0, pace: Pace | None = None) -> Check:
    told = telling(("speed", {"type": "float32", "seconds": seconds, "cpu_seconds": cpu}))
    return judge_speed("torch/speed", "torch", told, pace or pace_of(T4, TURING, None), 0)[0]


def test_the_peak_of_a_card_is_its_multiprocessors_times_lanes_times_clock() -> None:
    assert pace_of(T4, TURING, None).peaks == {"float32": pytest.approx(8.14e12, rel=1e-3)}


def test_what_the_matrix_says_of_a_card_goes_before_what_its_driver_does() -> None:
    peak = Peak(name="Tesla T4", fp32=8.1, fp16=65.0)

    assert pace_of(T4, TURING, peak).peaks == {"float32": 8.1e12, "float16": 65e12}
    assert pace_of(telling(), TURING, None).peaks == {}


def test_each_type_is_set_against_a_peak_of_its_own() -> None:
    rows = [("float32", WORK.operations / 4e12, 10.0), ("float16", WIDE_WORK.operations / 26e12, None), ("tf32", "x", None)]
    told = telling(*[("speed", {"type": type_, "seconds": seconds, "cpu_seconds": cpu}) for type_, seconds, cpu in rows])

    first, narrow = judge_speed("torch/speed", "torch", told, pace_of(T4, TURING, Peak(name="Tesla T4", fp32=8.0, fp16=65.0)), 0)

    assert (first.observed or "").startswith("4 TFLOP/s in single precision, 50% of the card's peak of 8 TFLOP/s, ")
    assert (narrow.id, narrow.status) == ("torch/speed/float16", "passed")
    assert narrow.observed == "26 TFLOP/s in float16, 40% of the card's peak of 65 TFLOP/s"


@pytest.mark.parametrize(("rate", "status"), [(0.049, "warning"), (0.051, "passed")])
def test_tensor_cores_that_are_not_used_are_seen(rate: float, status: str) -> None:
    told = telling(("speed", {"type": "float16", "seconds": WIDE_WORK.operations / (rate * 65e12)}))

    _, narrow = judge_speed("torch/speed", "torch", told, pace_of(T4, TURING, Peak(name="Tesla T4", fp32=8.1, fp16=65.0)), 0)

    assert narrow.status == status


def test_old_cards_are_not_timed_in_types_that_they_lack() -> None:
    assert [one["type"] for one in question(("float32", "float16"))] == ["float32", "float16"]
    assert [one["cpu_batch"] > 0 for one in question(("float32", "float16"))] == [True, False]


def test_a_fast_one_passes() -> None:
    check = timed(WORK.operations / 4e12)

    assert check.status == "passed"
    assert (check.observed or "").startswith("4 TFLOP/s in single precision, 49% of the card's peak of 8.14 TFLOP/s, ")


@pytest.mark.parametrize(("rate", "words"), [(0.3e12, "less than 5% of the peak"), (1e6, "no faster than the CPU")])
def test_a_slow_one_is_a_warning(rate: float, words: str) -> None:
    check = timed(WORK.operations / rate)

    assert check.status == "warning"
    assert words in check.detail
    assert "PTX" in check.detail


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"others": 2}, "2 other processes on the card"),
        ({"clock_mhz": 300, "most_mhz": 1590}, "the card runs at 300 of 1590 MHz"),
        ({"throttled": ["heat"]}, "clocks held down by heat"),
    ],
)
def test_what_holds_a_card_back_is_named(facts: dict[str, object], words: str) -> None:
    told = telling(("card", {"multiprocessors": 40, "clock_khz": 1_590_000, **facts}))

    assert timed(WORK.operations / 0.1e12, pace=pace_of(told, TURING, None)).detail.endswith(words)


@pytest.mark.parametrize("value", [None, 0, -1, "x", True, [], 1e300])
def test_a_time_that_cannot_be_is_none(value: object) -> None:
    assert timed(value).status == "failed"


def test_a_card_with_little_room_is_a_warning_and_one_that_loses_what_is_written_fails() -> None:
    little = judge_card("card", telling(("card", {"memory": True, "free_mib": 200, "total_mib": 15_360, "others": 3})), 0)
    broken = judge_card("card", telling(("card", {"memory": False})), 0)

    assert (little.status, little.observed) == ("warning", "200 of 15360 MiB are free")
    assert little.detail.endswith("3 other processes are on the card")
    assert broken.status == "failed"


# --- what is tested ---


def test_frameworks_are_known_by_their_distributions() -> None:
    names = (
        "cupy-cuda12x",
        "jax",
        "mxnet-cu112",
        "onnxruntime-gpu",
        "paddlepaddle-gpu",
        "tensorflow",
        "tf-nightly",
        "torch",
        "torchvision",
    )
    installed = tuple(InstalledFramework(name=name, version="1") for name in names)
    facts = Facts(frameworks=installed, packages=Packages(pip={"jax-cuda12-plugin": "0.4.38"}))

    found = {one.module: one.name for one in subjects_of(facts)}

    assert found == {
        "cupy": "cupy-cuda12x",
        "jax": "jax",
        "mxnet": "mxnet-cu112",
        "onnxruntime": "onnxruntime-gpu",
        "paddle": "paddlepaddle-gpu",
        "tensorflow": "tensorflow",
        "torch": "torch",
    }
    assert next(one for one in subjects_of(facts) if one.module == "jax").plugin == "xla_cuda12"
    assert subjects_of(Facts()) == ()


def test_programs_see_one_card_each_and_only_those_that_the_user_lets_them_see() -> None:
    gpus = tuple(Gpu(name=f"card {index}", uuid=f"GPU-{index}", hidden=index == 0) for index in range(3))

    first, second = gpus_of(Facts(gpus=gpus))

    assert [(one.index, one.name, one.visible) for one in (first, second)] == [(0, "card 1", "GPU-1"), (1, "card 2", "GPU-2")]
    assert environment_of({"A": "b"}, second)["CUDA_VISIBLE_DEVICES"] == "GPU-2"
    (alone,) = gpus_of(Facts(gpus=gpus[:2]))
    assert alone.visible is None


def test_the_users_variables_are_kept() -> None:
    environ = {"LD_LIBRARY_PATH": "/x", "XLA_PYTHON_CLIENT_PREALLOCATE": "true", "CUDA_VISIBLE_DEVICES": "1"}

    found = environment_of(environ, VisibleGpu(index=0))

    assert {name: found[name] for name in environ} == environ
    assert found["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_each_libcudnn_that_a_framework_would_load_is_tested_once() -> None:
    names = ("jax", "tensorflow", "torch")
    paths = ("/a/libcudnn.so.9", "/b/libcudnn.so.9", "/a/libcudnn.so.9")
    installed = tuple(
        InstalledFramework(name=name, version="1", would_load=WouldLoad(path=path)) for name, path in zip(names, paths, strict=True)
    )
    facts = Facts(frameworks=installed)

    assert libraries_of(facts, subjects_of(facts)) == ("/a/libcudnn.so.9", "/b/libcudnn.so.9")


def test_frameworks_with_one_layout_are_given_every_class_in_it() -> None:
    layouts = {case.layout for case in cases_for("mxnet") if case.kind == "convolution"}

    assert layouts == {"nchw"}
    assert {case.name for case in cases_for("onnxruntime") if case.layout == "nhwc"} == {"conv2d", "conv2d-wide"}
    assert [case.kind for case in cases_for("ctranslate2")] == ["encoder"]


def test_status_of_the_whole() -> None:
    def status(*checks: Check) -> str:
        return Validation(checks=checks).status

    on_card = Check(id="a", status="passed", gpu=0)
    assert status() == "skipped"
    assert status(Check(id="a", status="passed")) == "skipped"
    assert status(on_card) == "passed"
    assert status(replace(on_card, status="warning")) == "passed"
    assert status(on_card, Check(id="b", status="failed")) == "failed"


def test_what_fails_on_a_card_without_room_says_so() -> None:
    card = judge_card("gpu1/card", telling(("card", {"memory": True, "free_mib": 200, "total_mib": 15_360})), 1)
    here, there = Check(id="gpu1/a", status="failed", gpu=1, detail="x"), Check(id="gpu0/a", status="failed", gpu=0)

    found = with_causes(Validation(checks=(card, here, there, replace(here, status="passed"))), lambda _text: "")

    assert [check.detail for check in found.checks[1:]] == [
        "x; perhaps for lack of memory: 200 of 15360 MiB are free on the card",
        "",
        "x",
    ]


def test_causes_are_asked_for_what_failed_only() -> None:
    failed = Check(id="a", status="failed", observed="boom", output=("last",))
    known = replace(failed, detail="the judge saw it")
    imported = replace(failed, id="torch/import", detail="import torch fails")
    found = with_causes(Validation(checks=(failed, known, imported, Check(id="b", status="passed"))), lambda text: f"cause of {text!r}")

    cause = "cause of 'boom\\nlast'"
    assert [check.detail for check in found.checks] == [cause, "the judge saw it", f"import torch fails; {cause}", ""]
