"""Load checks and orders, over what real frameworks told, whole and broken on purpose."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.judge_loading import judge_library, judge_loading, judge_order
from cudnn_resolve.validation.loaded import loaded_libraries
from cudnn_resolve.validation.model import Check, Subject
from cudnn_resolve.validation.run import with_real_paths
from tests.fake_host import FakeHost
from tests.unit.validation.recordings import ENV, JAX, ONNX, TENSORFLOW, TORCH, answered, facts, recorded, subject, telling


def judged(subject_: Subject, told: ChildReport, known: Facts, *, has_gpu: bool = False) -> dict[str, Check]:
    return {check.id.rpartition("/")[2]: check for check in judge_loading(subject_, told, known, has_gpu=has_gpu)}


def statuses(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.status for name, check in checks.items()}


@pytest.mark.parametrize(
    ("name", "subject_", "version", "env"),
    [("torch", TORCH, "9.1.0", "9.1.0.70"), ("tensorflow", TENSORFLOW, "9.3.0", "9.3.0.75"), ("jax", JAX, "9.3.0", "9.3.0.75")],
)
def test_a_whole_stack_passes(name: str, subject_: Subject, version: str, env: str) -> None:
    checks = judged(subject_, recorded(name), facts(env=env))

    assert statuses(checks) == {"import": "passed", "cudnn": "passed", "cudnn-parts": "passed", "cuda": "passed"}
    assert checks["cudnn"].observed == f"{version} from {ENV}"
    assert checks["cudnn-parts"].observed == f"8 parts from {ENV}"
    assert checks["import"].seconds == 1.5


def test_an_older_cudnn_on_the_path_splits_torch_and_is_too_old() -> None:
    checks = judged(TORCH, recorded("torch-older-first"), facts("/old/cudnn/lib"))

    assert statuses(checks) == {"import": "passed", "cudnn": "failed", "cudnn-parts": "failed", "cuda": "passed"}
    assert checks["cudnn"].expected == "cuDNN 9.1 or a later 9.x"
    assert checks["cudnn"].observed is not None
    assert checks["cudnn"].observed.startswith("RuntimeError: cuDNN version incompatibility") or "9.0.0" in checks["cudnn"].observed
    assert "libcudnn.so.9 (9.1.0.70) from " + ENV in (checks["cudnn-parts"].observed or "")
    assert "(9.0.0.312) from /old/cudnn/lib" in (checks["cudnn-parts"].observed or "")
    assert "LD_LIBRARY_PATH leads to /old/cudnn/lib: remove that from it" in checks["cudnn-parts"].detail


def test_a_newer_cudnn_on_the_path_is_split_though_nothing_complains() -> None:
    checks = judged(TORCH, recorded("torch-newer-first"), facts("/new/cudnn/lib"))

    assert statuses(checks)["cudnn"] == "passed"
    assert statuses(checks)["cudnn-parts"] == "failed"
    assert "cuDNN is split" in (checks["cudnn-parts"].observed or "")


CT2 = subject("ctranslate2", version="4.6.0", cudnn="9.1.0", variant="gpu")
LIBS = "/env/site-packages/ctranslate2.libs"


def test_an_outer_library_that_finds_its_parts_elsewhere_is_not_split() -> None:
    """CTranslate2 up to 4.6.2 brings it alone; to take its parts off the path would end every program that uses it."""
    told = recorded("ctranslate2-newer-parts")
    checks = judged(CT2, told, facts("/new/cudnn/lib"))

    assert statuses(checks) == {"import": "passed", "cudnn": "passed", "cudnn-parts": "passed"}
    assert checks["cudnn-parts"].observed == f"8 parts from {LIBS}, /new/cudnn/lib"
    older = replace(facts("/new/cudnn/lib"), cudnn=(CudnnCopy(version="9.0.0.312", soname=9, path="/new/cudnn/lib"),))
    assert statuses(judged(CT2, told, older))["cudnn-parts"] == "failed"
    # Nobody looked there, but the outer library answers with the release of its parts.
    assert statuses(judged(CT2, told, Facts()))["cudnn-parts"] == "passed"


@pytest.mark.parametrize(
    ("outer", "parts", "answer", "status"),
    [
        # Of parts that nobody looked into the outer library tells the release, and so may their names.
        ("9.1.0", "9", "9.3.0", "passed"),
        ("9.1.0", "9", "9.0.0", "failed"),
        ("9.1.0", "9.5.0", None, "passed"),
        ("9.1.0", "9.0.0", None, "failed"),
        ("9.1.0", "9", None, "failed"),
        ("9", "9", "9.3.0", "failed"),
    ],
)
def test_an_outer_library_may_be_elsewhere_only_where_all_releases_are_known(
    outer: str, parts: str, answer: str | None, status: str
) -> None:
    paths = [f"{LIBS}/libcudnn-74a4c495.so.{outer}", *(f"/x/libcudnn_{name}.so.{parts}" for name in ("graph", "ops", "cnn"))]
    cudnn: dict[str, object] = {"path": paths[0], "version": answer, "checks": {}, "engines": {}}
    told = telling(
        ("imported", ["ctranslate2", "4.6.0", 1.0]), ("built", ["ctranslate2", {}]), ("cudnn", cudnn), ("libraries", dict.fromkeys(paths))
    )

    check = judged(CT2, told, Facts())["cudnn-parts"]

    assert check.status == status
    assert status == "passed" or "cuDNN is split" in (check.observed or "")


def test_an_outer_library_without_its_parts_says_where_they_must_be() -> None:
    told = recorded("ctranslate2-alone")
    checks = judged(CT2, told, facts())

    assert statuses(checks) == {"import": "passed", "cudnn": "failed", "cudnn-parts": "failed"}
    for check in (checks["cudnn"], checks["cudnn-parts"], *judge_library("x", told, facts())):
        assert "must be on LD_LIBRARY_PATH before Python starts" in check.detail


def test_a_single_older_part_ends_the_process_and_is_named() -> None:
    checks = judged(TORCH, recorded("torch-half-graph"), facts("/half"))

    parts = checks["cudnn-parts"]
    assert parts.status == "failed"
    assert "libcudnn_graph.so.9 (release unknown) from /half" in (parts.observed or "")
    assert "cudnnCnnVersionCheck(): crashed (SIGABRT)" in (parts.observed or "")
    assert any("Unable to load any of {libcudnn_cnn.so.9.1.0" in line for line in parts.output)


def test_an_older_part_that_does_not_end_the_process_is_told_by_its_status() -> None:
    checks = judged(TORCH, recorded("torch-half-ops"), facts("/halfops"))

    assert "Ops 1002" in (checks["cudnn-parts"].observed or "")
    assert "LD_LIBRARY_PATH leads to /halfops" in checks["cudnn-parts"].detail


def test_a_missing_part_is_seen_before_the_first_convolution() -> None:
    checks = judged(TORCH, recorded("torch-missing-cnn"), facts())

    assert statuses(checks) == {"import": "passed", "cudnn": "passed", "cudnn-parts": "failed"}
    assert checks["cudnn-parts"].detail == "a part is missing or of another release: reinstall this copy of cuDNN"


def test_tensorflow_takes_an_older_one_from_the_path_whole() -> None:
    checks = judged(TENSORFLOW, recorded("tensorflow-older-first"), facts("/old/cudnn/lib", env="9.3.0.75"))

    assert statuses(checks)["cudnn"] == "failed"
    assert statuses(checks)["cudnn-parts"] == "passed"
    assert checks["cudnn"].observed == "9.0.0 from /old/cudnn/lib"
    assert checks["cudnn"].detail == "built with 9.3: the same major and at least the same minor are needed"


def test_jax_is_split_where_its_own_check_says_nothing() -> None:
    checks = judged(JAX, recorded("jax-older-first"), facts("/old/cudnn/lib", env="9.3.0.75"))

    assert statuses(checks)["cudnn"] == "failed"
    assert statuses(checks)["cudnn-parts"] == "failed"


def test_a_provider_whose_libraries_are_not_found_fails() -> None:
    checks = judged(ONNX, recorded("onnxruntime-not-on-path"), facts())

    assert statuses(checks) == {"import": "passed", "cudnn": "failed"}
    assert checks["cudnn"].observed == "OSError: libcublasLt.so.12: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("name", "pair"), [("jax-then-tensorflow", (JAX, TENSORFLOW)), ("tensorflow-then-jax", (TENSORFLOW, JAX))], ids=["jax", "tensorflow"]
)
def test_both_orders_of_a_pair(name: str, pair: tuple[Subject, Subject]) -> None:
    check = judge_order(pair, recorded(name), facts(env="9.3.0.75"))

    assert check.status == "passed"
    assert check.id == f"order/{pair[0].name} then {pair[1].name}"
    assert check.observed == f"9.3.0 from {ENV}"


def test_the_second_one_is_not_served() -> None:
    check = judge_order((TORCH, ONNX), recorded("torch-then-onnxruntime"), facts())

    assert check.status == "failed"
    assert check.observed is not None
    assert check.observed.startswith("onnxruntime-gpu: OSError: libcudnn_adv.so.9")


def test_an_import_that_fails_after_another_one() -> None:
    told = telling(("step", "import torch"), ("imported", ["torch", "2.6.0", 1.0]), ("step", "import jax"), ("failed", "ImportError: no"))

    check = judge_order((TORCH, JAX), told, facts())

    assert check.status == "failed"
    assert check.observed == "import jax: ImportError: no"
    assert check.detail == "jax does not load"


def cudnn(path: str, version: str, **more: object) -> tuple[str, object]:
    return "cudnn", {"path": path, "version": version, "checks": {}, "descriptors": {}, **more}


def test_two_majors_in_one_process_are_two_and_each_framework_has_its_own() -> None:
    old, new = subject("tensorflow", cudnn="8.9"), subject("torch", cudnn="9.1")
    libraries = {"/a/libcudnn.so.8": None, "/a/libcudnn_ops_infer.so.8": None, "/b/libcudnn.so.9": None, "/b/libcudnn_graph.so.9": None}
    told = telling(
        ("imported", ["tensorflow", "2.15.1", 1.0]),
        ("imported", ["torch", "2.6.0", 1.0]),
        cudnn("/a/libcudnn.so.8", "8.9.7"),
        cudnn("/b/libcudnn.so.9", "9.1.0"),
        ("libraries", libraries),
    )

    check = judge_order((old, new), told, Facts())

    assert check.status == "passed"
    assert check.observed == "8.9.7 from /a; 9.1.0 from /b"


def test_one_release_from_two_directories_is_a_warning() -> None:
    known = replace(facts(), cudnn=tuple(replace(copy, version="9.1.0.70") for copy in facts().cudnn))  # type: ignore[union-attr]
    libraries = {f"{ENV}/libcudnn.so.9": None, "/old/cudnn/lib/libcudnn_graph.so.9": None}
    told = telling(("imported", ["torch", "2.6.0", 1.0]), cudnn(f"{ENV}/libcudnn.so.9", "9.1.0"), ("libraries", libraries))

    assert judged(TORCH, told, known)["cudnn-parts"].status == "warning"
    # A directory tells three parts of its release, a wheel four.
    short = replace(known, cudnn=tuple(replace(copy, version="9.1.0") if copy.path != ENV else copy for copy in known.cudnn))  # type: ignore[union-attr]
    assert judged(TORCH, told, short)["cudnn-parts"].status == "warning"
    other = replace(known, cudnn=tuple(replace(copy, version="9.1.1") if copy.path != ENV else copy for copy in known.cudnn))  # type: ignore[union-attr]
    assert judged(TORCH, told, other)["cudnn-parts"].status == "failed"


@pytest.mark.parametrize(
    ("name", "has_gpu", "is_asked", "status"),
    [
        ("torch", True, False, "failed"),
        ("torch", False, False, "skipped"),
        ("onnxruntime", True, False, "warning"),  # what something else requires is often for the CPU by its name
        ("onnxruntime", True, True, "failed"),
    ],
)
def test_a_build_for_the_cpu(name: str, has_gpu: bool, is_asked: bool, status: str) -> None:  # noqa: FBT001
    told = telling(("imported", [name, "1.0", 0.1]), ("built", [name, {"device": "cpu"}]))

    _, build = judge_loading(subject(name), told, Facts(), has_gpu=has_gpu, is_asked=is_asked)

    assert (build.id, build.status, build.observed) == (f"{name}/build", status, "a build for the CPU (1.0)")


def test_a_copy_is_known_by_its_real_path_too() -> None:
    known = replace(facts("/usr/local/cuda/lib64"), cudnn=(CudnnCopy(version="9.0.0.312", soname=9, path="/usr/local/cuda/lib64"),))
    host = FakeHost(links={"/usr/local/cuda/lib64": "/usr/local/cuda-12.4/lib"})
    told = telling(
        ("imported", ["torch", "2.6.0", 1.0]),
        ("libraries", {f"{ENV}/libcudnn.so.9": None, "/usr/local/cuda-12.4/lib/libcudnn_ops.so.9": None}),
    )

    parts = judged(TORCH, told, with_real_paths(host, known))["cudnn-parts"]

    assert "(9.0.0.312) from /usr/local/cuda-12.4/lib" in (parts.observed or "")
    assert "LD_LIBRARY_PATH leads to /usr/local/cuda-12.4/lib" in parts.detail


def test_engines_that_cannot_be_opened_fail() -> None:
    engines = {"libcudnn_engines_precompiled.so.9": "", "libcudnn_engines_runtime_compiled.so.9": "libnvrtc.so.12: cannot open"}
    told = telling(
        ("imported", ["torch", "2.6.0", 1.0]),
        cudnn(f"{ENV}/libcudnn.so.9", "9.1.0", engines=engines),
        ("libraries", {f"{ENV}/libcudnn.so.9": None}),
    )

    parts = judged(TORCH, told, facts())["cudnn-parts"]

    assert parts.status == "failed"
    assert parts.observed == "libcudnn_engines_runtime_compiled.so.9 cannot be opened: libnvrtc.so.12: cannot open"


@pytest.mark.parametrize(
    ("libraries", "words"),
    [
        ({"/a/libcudart.so.11.0": "11.8"}, "built for CUDA 12.4, but CUDA runtime 11.8 is loaded"),
        (
            {"/a/libcudart.so.12": "12.4", "/a/libcublas.so.12": "12.4.5", "/b/libcublasLt.so.12": None},
            "cuBLAS and cuBLASLt come from different directories: /a, /b",
        ),
        (
            {"/a/libcudart.so.12": "12.4", "/b/libcudart.so.12": "12.1"},
            "CUDA runtime is loaded 2 times: /a/libcudart.so.12, /b/libcudart.so.12",
        ),
    ],
)
def test_cuda_that_does_not_belong_together(libraries: dict[str, str | None], words: str) -> None:
    told = telling(("imported", ["torch", "2.6.0", 1.0]), ("built", ["torch", {"cuda": "12.4"}]), ("libraries", libraries))

    check = judged(TORCH, told, facts())["cuda"]

    assert check.status == "failed"
    assert check.observed == words


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_build_for_the_cpu_fails_only_where_there_is_a_gpu(*, has_gpu: bool) -> None:
    told = telling(("imported", ["torch", "2.6.0+cpu", 1.0]), ("built", ["torch", {"device": "cpu"}]), ("libraries", {}))

    check = judged(subject("torch", version="2.6.0"), told, facts(), has_gpu=has_gpu)["build"]

    assert check.status == ("failed" if has_gpu else "skipped")
    assert ("plan -f torch" in check.detail) == has_gpu


def test_cupy_without_cudnn_is_a_warning() -> None:
    told = telling(("imported", ["cupy", "13.6.0", 1.0]), ("unopened", ["cupy", "ImportError: libcudnn.so.8: …"]), ("libraries", {}))

    assert judged(subject("cupy-cuda12x", "cupy", cudnn="8.8"), told, facts())["cudnn"].status == "warning"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (CommandResult(signal="SIGSEGV", stdout='cudnn-resolve-answer ["step", "import torch"]'), "crashed (SIGSEGV)"),
        (CommandResult(timed_out=True), "did not end within 120 s and was stopped"),
        (CommandResult(flooded=True), "printed too much and was stopped"),
        (CommandResult(missing=True, stderr="/x: No such file"), "/x: No such file"),
        (CommandResult(returncode=0), "ended before its last answer"),
        (CommandResult(returncode=1, stderr="Traceback\nImportError: numpy.core.multiarray failed to import"), "numpy.core.multiarray"),
        (
            CommandResult(signal="SIGKILL", stdout='cudnn-resolve-answer ["memory", 512]'),
            "held more than 512 MiB of memory and was stopped",
        ),
    ],
    ids=["segfault", "hang", "flood", "missing", "silent", "traceback", "memory"],
)
def test_an_import_that_ends_in_any_way_is_a_result(result: CommandResult, words: str) -> None:
    (check,) = judged(TORCH, answered(result), facts()).values()

    assert check.id == "torch/import"
    assert check.status == "failed"
    assert words in (check.observed or "")


def test_one_library_by_itself() -> None:
    told = telling(cudnn("/a/libcudnn.so.8", "8.9.7"), ("libraries", {"/a/libcudnn.so.8": None, "/a/libcudnn_ops_infer.so.8": None}))

    assert [(check.id, check.status, check.observed) for check in judge_library("cudnn/libcudnn.so.8", told, Facts())] == [
        ("cudnn/libcudnn.so.8/load", "passed", "8.9.7 from /a"),
        ("cudnn/libcudnn.so.8/parts", "passed", "2 parts from /a"),
    ]


def test_parts_of_two_majors_in_one_directory_are_all_counted() -> None:
    libraries = {"/usr/lib/libcudnn.so.8": None, "/usr/lib/libcudnn.so.9": None, "/usr/lib/libcudnn_graph.so.9": None}
    told = telling(cudnn("/usr/lib/libcudnn.so.8", "8.9.7"), ("libraries", libraries))

    assert judge_library("cudnn/libcudnn.so.8", told, Facts())[1].observed == "3 parts from /usr/lib"


def test_one_library_that_cannot_be_opened() -> None:
    (check,) = judge_library("cudnn/x", telling(("step", "open /a/libcudnn.so.8"), ("failed", "OSError: no")), Facts())

    assert (check.id, check.status, check.observed) == ("cudnn/x/load", "failed", "open /a/libcudnn.so.8: OSError: no")


@pytest.mark.parametrize("key", ["cudnn", "libraries", "imported", "built", "opened", "unopened", "mapped"])
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], [1, 2], ["a", {}, 1], {"path": 1}, {"a": 1}, {"path": "/x", "version": [1]}])
def test_nothing_that_a_child_may_tell_upsets_the_judge(key: str, value: object) -> None:
    told = telling(("imported", ["torch", "2.6.0", 1.0]), (key, value))

    assert loaded_libraries(told).imported["torch"][0] == "2.6.0"
    assert judged(TORCH, told, facts())["import"].status == "passed"


NO_LIBCUDA = "libcuda.so.1: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize("driver", [None, Driver(version="550.54.15", cuda="12.4")], ids=["without a driver", "with one"])
def test_what_only_the_driver_brings_is_no_fault_of_a_framework(driver: Driver | None) -> None:
    paddle = subject("paddlepaddle-gpu", "paddle", version="3.0.0")
    known = replace(facts(), driver=driver)
    status = "failed" if driver else "skipped"
    told = telling(("step", "import paddle"), ("failed", f"ImportError: {NO_LIBCUDA}"))

    check = judged(paddle, told, known)["import"]

    assert check.status == status
    assert ("no driver: libcuda.so.1" in (check.observed or "")) == (driver is None)
    assert judge_order((TORCH, paddle), told, known).status == status
    imported = ("imported", ["cupy", "13.6.0", 1.0])
    cupy = subject("cupy-cuda12x", "cupy", version="13.6.0")
    expected = "warning" if driver else "skipped"
    assert judged(cupy, telling(imported, ("unopened", ["cupy", f"ImportError: {NO_LIBCUDA}"])), known)["cudnn"].status == expected


def test_a_missing_library_of_cuda_is_no_fault_of_cudnn() -> None:
    lines = "Could not load library libcudnn_ops_infer.so.8. Error: libcublas.so.11: cannot open shared object file: No such file"
    path = "/env/nvidia/cudnn/lib/libcudnn.so.8"
    events = (("cudnn", {"path": path, "version": "8.6.0"}), ("libraries", {path: None}), ("step", "cudnnOpsInferVersionCheck()"))

    checks = judge_library("cudnn/libcudnn.so.8", telling(*events, ("failed", "crashed"), stderr=lines), Facts(driver=None))

    assert [check.status for check in checks] == ["passed", "failed"]
    assert checks[1].detail.startswith("libcublas.so.11 belongs to CUDA, not to cuDNN: install nvidia-cublas-cu11")
