"""What frameworks computed, judged: right, wrong, impossible, or the end of the child; with cuDNN or without; fast or slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Gpu, InstalledFramework, LoadedCudnn, Packages, WouldLoad
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.validation import payload
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.case import CLASSES, MATMUL, WIDE, Case
from cudnn_resolve.validation.children import ChildRunner, cases_for
from cudnn_resolve.validation.judge_numbers import judge_cases, unanswered
from cudnn_resolve.validation.judge_speed import judge_card
from cudnn_resolve.validation.judge_usage import judge_usage
from cudnn_resolve.validation.model import Check, Validation, VisibleGpu, environment_of, gpus_of, subjects_of
from cudnn_resolve.validation.reference import expected
from cudnn_resolve.validation.run import libraries_of, with_causes
from tests.fake_host import FakeHost
from tests.unit.validation.recordings import recorded, telling

ONE, TWO, THREE = CLASSES[:3]


def right(case: Case, **more: object) -> dict[str, object]:
    """The answer of a child that computed everything exactly."""
    return {"id": case.id, "seconds": 0.25, **{name: list(one.values) for name, one in expected(case).items()}, **more}


def judged(told: ChildReport, *cases: Case) -> list[Check]:
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
        answer[name] = [value + 2.0**-11 * one.magnitude for value in one.values]

    (check,) = judged(telling(("case", answer)), TWO)

    assert check.status == "failed"
    assert "was TF32 used although it was disabled" in check.detail
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


def crashed(*events: tuple[str, object]) -> ChildReport:
    told = telling(*events, stderr="last words", end=False)
    return replace(told, failure="crashed (SIGABRT)")


def test_the_case_that_ended_the_child_is_named_and_the_rest_is_left_for_another() -> None:
    told = crashed(("step", ONE.id), ("case", right(ONE)), ("step", TWO.id))

    checks = judged(told, ONE, TWO, THREE)

    assert unanswered((ONE, TWO, THREE), told) == (THREE,)
    assert [(check.id, check.status) for check in checks[:2]] == [(f"torch/{ONE.id}", "passed"), (f"torch/{TWO.id}", "failed")]
    assert checks[1].observed == "crashed (SIGABRT)"
    assert checks[1].output == ("last words",)


def test_cases_that_no_child_reached_fail_and_those_of_another_child_come_up_once() -> None:
    first = crashed(("step", ONE.id))
    second = crashed(("step", TWO.id))

    checks = list(judge_cases("torch/", "torch", [((ONE, TWO, THREE), first), ((TWO, THREE), second)], 0))

    assert [(check.id, check.status) for check in checks] == [(f"torch/{case.id}", "failed") for case in (ONE, TWO, THREE)]
    assert (checks[2].observed, checks[2].detail) == ("not reached", f"{TWO.id}: crashed (SIGABRT)")


def test_another_child_that_does_not_start_leaves_no_case_out() -> None:
    first = crashed(("step", ONE.id))

    checks = list(judge_cases("torch/", "torch", [((ONE, TWO, THREE), first), ((TWO, THREE), crashed(("step", "import")))], 0))

    assert [(check.id, check.status) for check in checks] == [(f"torch/{case.id}", "failed") for case in (ONE, TWO, THREE)]


def test_a_child_that_ends_between_two_cases_fails() -> None:
    checks = judged(crashed(("step", ONE.id), ("case", right(ONE))), ONE)

    assert [(check.id, check.status) for check in checks] == [(f"torch/{ONE.id}", "passed"), ("torch/end", "failed")]


def test_a_child_that_ends_well_and_leaves_a_case_out_fails() -> None:
    assert [check.status for check in judged(telling(("case", right(ONE))), ONE, TWO)] == ["passed", "failed"]


def test_a_witness_that_ends_its_child_costs_no_case() -> None:
    told = crashed(("step", TWO.id), ("case", right(TWO, cudnn={})), ("step", f"watch {TWO.id}"))

    (check,) = judged(told, TWO)

    assert check.status == "passed"
    assert judge_usage("x", "torch", [((TWO,), told)], 0).detail.endswith("the process ended while being watched: crashed (SIGABRT)")


def test_witnesses_are_heard_after_all_cases() -> None:
    told: list[tuple[str, object]] = []

    def ends(case: dict[str, object]) -> dict[str, object]:
        raise KeyboardInterrupt(case["id"])

    with pytest.raises(KeyboardInterrupt):
        payload.compute_cases(
            {"cases": [{"id": "a"}, {"id": "b"}], "witness": ["a"]}, lambda *row: told.append(row), lambda _: {"y": []}, ends
        )

    assert [(key, value if key == "step" else None) for key, value in told] == [
        ("step", "a"),
        ("case", None),
        ("step", "b"),
        ("case", None),
        ("step", "watch a"),
    ]


def test_a_child_that_did_not_come_so_far_fails_once() -> None:
    told = crashed(("step", "torch opens the GPU"))

    (check,) = judged(told, ONE, TWO)

    assert unanswered((ONE, TWO), told) == ()
    assert (check.id, check.status, check.observed) == ("torch/start", "failed", "torch opens the GPU: crashed (SIGABRT)")


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
    (check,) = judged(telling(("case", answer)), TWO)

    assert check.status in ("failed", "skipped")


NARROW_WIDE = replace(WIDE, type="float16", layout="nhwc")
NARROW_ONE = replace(ONE, type="float16")
NO_ENGINE = "RuntimeError: GET was unable to find an engine to execute this computation"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "wide", "status"),
    [
        (NO_ENGINE, True, "warning"),
        (f"{NO_ENGINE} (CUDNN_STATUS_INTERNAL_ERROR)", True, "failed"),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", True, "warning"),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_SHAPE", True, "warning"),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH", True, "failed"),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_CUBLAS_UNAVAILABLE", True, "failed"),
        ("CUDNN_STATUS_NOT_SUPPORTED: reason CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT", True, "failed"),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", False, "failed"),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE", True, "failed"),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", True, "failed"),
    ],
)
def test_what_cudnn_has_not_for_a_rare_shape_is_a_warning_where_it_has_it_for_a_common_one(error: str, *, wide: bool, status: str) -> None:
    other = right(NARROW_WIDE) if wide else {"id": NARROW_WIDE.id, "error": error}
    plain = {"id": ONE.id, "error": error}

    checks = judged(
        telling(("case", {"id": NARROW_ONE.id, "error": error}), ("case", other), ("case", plain)), NARROW_ONE, NARROW_WIDE, ONE
    )

    assert [check.status for check in checks] == [status, "passed" if wide else "failed", "failed"]


def test_what_every_network_has_and_what_has_even_channels_is_never_rare() -> None:
    cases = [replace(case, type="float16") for case in (*CLASSES, WIDE)]
    rest = [replace(WIDE, type="float16", layout="nhwc"), replace(MATMUL, type="float16"), replace(CLASSES[0], type="bfloat16")]

    checks = judged(
        telling(*[("case", {"id": case.id, "error": NO_ENGINE}) for case in (*cases, *rest[1:])], ("case", right(rest[0]))), *cases, *rest
    )

    # The wide one failed in this layout, which tells more than that it is right in the other one.
    assert {check.status for check in checks if check.id != f"torch/{rest[0].id}"} == {"failed"}
    checks = judged(
        telling(*[("case", {"id": case.id, "error": NO_ENGINE}) for case in cases[:-1]], ("case", right(rest[0]))), *cases[:-1], rest[0]
    )
    assert [check.id for check in checks if check.status == "failed"] == ["torch/conv2d/float16/nchw"]


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
        InstalledFramework(name=name, version="1", would_load=WouldLoad(cudnn=LoadedCudnn(path=path)))
        for name, path in zip(names, paths, strict=True)
    )
    facts = Facts(frameworks=installed)

    assert libraries_of(facts, subjects_of(facts)) == ("/a/libcudnn.so.9", "/b/libcudnn.so.9")


def test_frameworks_with_one_layout_are_given_every_class_in_it() -> None:
    layouts = {case.layout for case in cases_for("mxnet") if case.kind == "convolution"}

    assert layouts == {"nchw"}
    assert {case.name for case in cases_for("onnxruntime") if case.layout == "nhwc"} == {"conv2d", "conv2d-wide"}
    assert [case.kind for case in cases_for("ctranslate2")] == ["encoder"]


@pytest.mark.parametrize(("version", "override"), [("1.17.3", "0"), ("1.9.0", "0"), ("1.18.0", None), ("1.20.2", None), ("2.0.0", None)])
def test_tf32_is_forbidden_from_outside_where_there_is_no_switch(version: str, override: str | None) -> None:
    subjects = subjects_of(Facts(frameworks=(InstalledFramework(name="onnxruntime-gpu", version=version),)))
    seen: list[Mapping[str, str]] = []

    class Host(FakeHost):
        def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> CommandResult:
            assert argv[0] == "python"
            seen.append(env or {})
            return CommandResult(returncode=1)

    host = Host()
    ChildRunner(host=host, python="python", progress=lambda _text: None).computed(subjects[0], VisibleGpu(index=0))

    assert seen[0].get("NVIDIA_TF32_OVERRIDE") == override


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

    wrong = replace(here, observed="wrong numbers (result); result: element 7 is 1 instead of 2", detail="")
    found = with_causes(Validation(checks=(card, here, there, replace(here, status="passed"), wrong)), lambda _text: "")

    assert [check.detail for check in found.checks[1:]] == [
        "x; perhaps for lack of memory: 200 of 15360 MiB are free on the GPU",
        "",
        "x",
        "",
    ]


def test_causes_are_asked_for_what_failed_only() -> None:
    failed = Check(id="a", status="failed", observed="boom", output=("last",))
    known = replace(failed, detail="the judge saw it")
    imported = replace(failed, id="torch/import", detail="import torch fails")
    found = with_causes(Validation(checks=(failed, known, imported, Check(id="b", status="passed"))), lambda text: f"cause of {text!r}")

    cause = "cause of 'boom\\nlast'"
    assert [check.detail for check in found.checks] == [cause, "the judge saw it", f"import torch fails; {cause}", ""]
