"""Findings from facts alone."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from cudnn_resolve.diagnosis import plan_remedy
from cudnn_resolve.diagnosis.diagnose import diagnose, diagnose_facts
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book, judged

T4 = {"name": "Tesla T4", "compute_capability": "7.5", "memory_mib": 15360}
RTX5090 = {"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0"}
RTX3090 = {"name": "NVIDIA GeForce RTX 3090", "compute_capability": "8.6"}
P100 = {"name": "Tesla P100-PCIE-16GB", "compute_capability": "6.0"}
LINUX = {
    "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
    "python": {"version": "3.11.9"},
}


def findings(**facts: Any) -> list[Finding]:
    return diagnose_facts(from_mapping({**LINUX, **facts}, "test"), book())


def causes(severity: str, **facts: Any) -> set[str]:
    return {one.cause for one in findings(**facts) if one.severity == severity}


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"driver": {"version": "470.57.02"}, "gpus": [T4], "packages": {"pip": {"torch": "2.6.0+cu124"}}}, "driver_too_old"),
        ({"driver": {"version": "550.54.15"}, "gpus": [T4], "packages": {"pip": {"torch": "2.11.0"}}}, "driver_too_old"),
        (
            {"driver": {"version": "580.82.07"}, "gpus": [RTX5090], "packages": {"pip": {"torch": "2.6.0+cu124"}}},
            "gpu_arch_too_new_for_build",
        ),
        ({"driver": {"version": "580.82.07"}, "gpus": [P100], "packages": {"pip": {"torch": "2.8.0+cu128"}}}, "gpu_arch_too_old_for_build"),
        (  # its own code runs from PTX, but cuBLAS of CUDA 10 does not run on Ampere
            {"driver": {"version": "455.45.01"}, "gpus": [RTX3090], "packages": {"pip": {"tensorflow-gpu": "1.15.0"}}},
            "gpu_arch_too_new_for_build",
        ),
        ({"driver": {"version": "535.161.07", "kernel_module": "535.129.03"}}, "driver_library_mismatch"),
        ({"packages": {"pip": {"torch": "2.2.2", "numpy": "2.1.3"}}}, "numpy_abi"),
        ({"packages": {"pip": {"tensorflow": "2.8.0", "protobuf": "4.25.5"}}}, "protobuf_abi"),
        (
            {"gpus": [RTX5090], "loader": {"ld_library_path": ["/usr/local/cuda-12.4/compat"], "ldconfig": []}},
            "forward_compat_hw",
        ),
        (
            {
                "cudnn": [{"version": "9.1.0.70", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip"}],
                "frameworks": [
                    {
                        "name": "tensorflow",
                        "version": "2.18.0",
                        "cuda_built": "12.5.1",
                        "cudnn_built": "9.3.0",
                        "would_load": {"cudnn": {"version": "9.1.0.70", "path": "/v/nvidia/cudnn/lib/libcudnn.so.9"}, "because": "RUNPATH"},
                    }
                ],
            },
            "cudnn_too_old_for_framework",
        ),
        (
            {
                "cudnn": [
                    {"version": "9.3.0.75", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip"},
                    {"version": "9.0.0", "soname": 9, "path": "/opt/cudnn", "source": "other"},
                ],
                "frameworks": [
                    {
                        "name": "tensorflow",
                        "version": "2.18.0",
                        "cudnn_built": "9.3.0",
                        "would_load": {"cudnn": {"version": "9.0.0", "path": "/opt/cudnn/libcudnn.so.9"}, "because": "LD_LIBRARY_PATH"},
                    }
                ],
            },
            "ld_path_shadowing",
        ),
        (
            {
                "cudnn": [
                    {"version": "8.3.2.44", "soname": 8, "path": "/v/lib/python3.7/dist-packages/torch/lib", "source": "pip"},
                    {"version": "8.0.5.39", "soname": 8, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt"},
                ],
                "frameworks": [
                    {
                        "name": "tensorflow",
                        "version": "2.9.1",
                        "cudnn_built": "8.1.0",
                        "would_load": {
                            "cudnn": {"version": "8.0.5.39", "path": "/usr/lib/x86_64-linux-gnu/libcudnn.so.8"},
                            "because": "cache",
                        },
                    }
                ],
            },
            "cudnn_too_old_for_framework",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_will_fail_is_an_error(facts: dict[str, Any], cause: str) -> None:
    assert cause in causes("error", **facts)


@pytest.mark.parametrize(
    "facts",
    [
        {"gpus": [RTX5090], "loader": {"ld_library_path": ["/usr/local/cuda/compat/lib", "/usr/local/nvidia/lib64"], "ldconfig": []}},
        {"driver": {"version": "550.54.15"}, "gpus": [T4], "packages": {"pip": {"torch": "2.6.0+cu124", "numpy": "2.1.3"}}},
        {"driver": {"version": "580.82.07"}, "gpus": [RTX5090], "packages": {"pip": {"torch": "2.8.0"}}},
        {"driver": {"version": "525.60.13"}, "gpus": [T4], "packages": {"pip": {"torch": "2.6.0+cu124"}}},
        {"packages": {"pip": {"tensorflow": "2.15.1", "numpy": "1.26.4", "protobuf": "4.25.5"}}},
        {"driver": {"version": "455.45.01"}, "gpus": [RTX3090], "packages": {"pip": {"torch": "1.7.1+cu110"}}},
        {},
    ],
)
def test_what_works_is_no_error(facts: dict[str, Any]) -> None:
    assert not causes("error", **facts)
    assert not causes("warning", **facts)


def test_a_framework_that_was_inspected_is_judged_once() -> None:
    seen = {"name": "tensorflow", "version": "1.15.0", "cuda_built": "10.0", "cudnn_built": "7.6.0"}
    found = findings(gpus=[RTX3090], frameworks=[seen], packages={"pip": {"tensorflow-gpu": "1.15.0"}})
    assert [one.cause for one in found].count("gpu_arch_too_new_for_build") == 1


def test_the_build_of_jax_is_that_of_its_jaxlib() -> None:
    copy = {"version": "8.2.4", "soname": 8, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt"}
    pip = {"jax": "0.4.4", "jaxlib": "0.4.4+cuda11.cudnn82"}
    facts = {"driver": {"version": "525.60.13"}, "gpus": [T4], "cudnn": [copy], "packages": {"pip": pip}}
    assert "cudnn_too_old_for_framework" not in causes("error", **facts)


def test_the_directory_of_the_copy_is_put_on_the_path() -> None:
    wheel = {"version": "8.7.0.84", "soname": 8, "path": "/v/nvidia/cudnn/lib", "source": "pip"}
    toolkit = {"version": "8.9.2.26", "soname": 8, "path": "/usr/local/cuda-11.8/lib64", "source": "runfile"}
    loads = {"cudnn": None, "because": "nothing provides libcudnn.so"}
    paddle = {"name": "paddlepaddle", "version": "2.6.1", "cuda_built": "11.8", "cudnn_built": "8.6.0", "would_load": loads}
    facts = {**LINUX, "driver": {"version": "525.60.13"}, "gpus": [T4], "cudnn": [wheel, toolkit], "frameworks": [paddle]}
    log = (
        '  File "/v/lib/python3.11/site-packages/paddle/inference/wrapper.py", line 52\n'
        "RuntimeError: (PreconditionNotMet) Cannot load cudnn shared library.\n"
    )
    finding = diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(facts, "test"), book()).findings[0]
    assert finding.cause == "lib_not_on_path"
    assert [step.command for step in finding.remedy if "LD_LIBRARY_PATH" in (step.command or "")] == [
        "export LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    ]


def test_wheels_of_two_cuda_majors_share_files() -> None:
    assert "cudnn_sublibrary_mix" in causes(
        "warning", packages={"pip": {"nvidia-cudnn-cu12": "9.28.0.42", "nvidia-cudnn-cu13": "9.19.0.56"}}
    )


def test_a_system_copy_lends_a_part_that_the_wheel_lacks() -> None:
    found = findings(
        cudnn=[
            {"version": "9.20.0.48", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip"},
            {"version": "9.23.0", "soname": 9, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt"},
        ]
    )
    assert any(one.cause == "cudnn_sublibrary_mix" and one.severity == "warning" for one in found)


def test_a_build_without_cuda_is_named_where_there_is_a_gpu() -> None:
    facts = {"driver": {"version": "580.82.07"}, "gpus": [T4]}
    assert "cpu_only_build" in causes("warning", **facts, packages={"pip": {"torch": "2.8.0+cpu"}})
    assert "cpu_only_build" not in causes("warning", **facts, packages={"pip": {"torch": "2.8.0", "jax": "0.7.2", "jaxlib": "0.7.2"}})


DECLARED = ["nvidia-cublas-cu12==12.1.3.1", "nvidia-cudnn-cu12==9.1.0.70; platform_system == 'Linux'", "nvidia-nccl-cu12==2.20.5", "sympy"]


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({"cuda_toolkits": []}, "error"),
        ({"cuda_toolkits": [], "driver": None}, "warning"),
        ({"cuda_toolkits": [{"version": "12.1", "path": "/usr/local/cuda-12.1", "source": "apt"}]}, "info"),
        ({"cuda_toolkits": [{"version": "11.8", "path": "/usr/local/cuda-11.8", "source": "apt"}]}, "error"),
        ({"cuda_toolkits": [{"version": "12.1", "path": "/venv/site-packages/nvidia/cuda_runtime", "source": "pip"}]}, "error"),
    ],
)
def test_every_declared_wheel_that_is_lacking_is_named(facts: dict[str, Any], severity: str) -> None:
    packages = {"pip": {"torch": "2.4.1", "nvidia-nccl-cu12": "2.20.5"}, "requires": {"torch": DECLARED}}
    [one] = [one for one in findings(packages=packages, **facts) if one.cause == "cuda_runtime_missing"]
    assert one.severity == severity
    assert "torch 2.4.1 declares 2 NVIDIA packages that are not installed: nvidia-cublas-cu12, nvidia-cudnn-cu12" in one.summary


@pytest.mark.parametrize(
    ("where", "cause"),
    [("", "cuda_runtime_missing"), ("; nothing leads to the one in /venv/site-packages/nvidia/cublas/lib", "lib_not_on_path")],
)
def test_a_library_that_a_framework_does_not_load_lies_elsewhere_or_nowhere(where: str, cause: str) -> None:
    because = f"libonnxruntime_providers_cuda.so needs libcublasLt.so.12, which is not found{where}"
    row = {"name": "onnxruntime-gpu", "version": "1.20.2", "cudnn_built": "9", "would_load": {"cudnn": None, "because": because}}
    assert cause in causes("error", frameworks=[row], packages={"pip": {"onnxruntime-gpu": "1.20.2"}})


def test_the_runtime_of_a_wheel_is_no_toolkit() -> None:
    pip = {"torch": "2.4.1", "nvidia-cuda-runtime-cu12": "12.1.105"}
    runtime = {"version": "12.1", "path": "/venv/site-packages/nvidia/cuda_runtime", "source": "pip"}
    assert not [one for one in findings(packages={"pip": pip}, cuda_toolkits=[runtime]) if "plays no part" in one.summary]


def test_every_declared_wheel_that_is_lacking_is_in_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_remedy, "_ALL_ROUNDS", 1)
    log = "ImportError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
    packages = {"pip": {"torch": "2.4.1", "nvidia-nccl-cu12": "2.20.5"}, "requires": {"torch": DECLARED}}
    found = _with(log, packages=packages, cuda_toolkits=[])[0]
    assert "nvidia-cublas-cu12, nvidia-cudnn-cu12" in found.summary
    assert any("pip install nvidia-cublas-cu12==12.1.3.1 nvidia-cudnn-cu12==9.1.0.70 && " in str(remedy.command) for remedy in found.remedy)


def test_what_no_metadata_declares_is_not_lacking() -> None:
    assert not findings(packages={"pip": {"torch": "2.4.1", "nvidia-nccl-cu12": "2.20.5"}})
    packages = {"pip": {"torch": "2.4.1"}, "requires": {"torch": DECLARED[1:2]}}
    assert [one.cause for one in findings(packages=packages)] == ["cudnn_missing"]


def test_facts_decide_what_the_log_leaves_open() -> None:
    log = "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    assert judged(log).findings[0].cause == "cudnn_missing"
    assert judged(log).findings[0].undecided
    for copies, cause in (
        ([{"version": "9.1.0.70", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip"}], "lib_not_on_path"),
        ([{"version": "8.9.7.29", "soname": 8, "path": "/usr/lib/x86_64-linux-gnu", "source": "apt"}], "cudnn_major_mismatch"),
        ([], "cudnn_missing"),
    ):
        assert _with(log, cudnn=copies)[0].cause == cause


def test_facts_tell_a_container_from_an_old_driver() -> None:
    log = "RuntimeError: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version\n"
    assert judged(log).findings[0].cause == "driver_too_old"
    assert _with(log, container={"kind": "docker"}, driver=None, gpus=[])[0].cause == "container_gpu_not_passed"


def _with(log: str, **facts: Any) -> tuple[Finding, ...]:
    from cudnn_resolve.diagnosis.match import Reader

    return diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping({**LINUX, **facts}, "test"), book()).findings


def test_a_remedy_is_a_plan_for_this_machine() -> None:
    facts = {"driver": {"version": "550.54.15"}, "gpus": [T4], "packages": {"pip": {"torch": "2.11.0"}}}
    found = diagnose(None, from_mapping({**LINUX, **facts}, "test"), book()).findings[0]
    assert found.cause == "driver_too_old"
    assert found.remedy[0].command == "cudnn-resolve apply -f torch"
    assert "torch 2" in found.remedy[0].text


def test_the_wheel_of_a_library_is_of_the_cuda_that_is_installed() -> None:
    log = "OSError: libcusparse.so.12: cannot open shared object file: No such file or directory\n"  # of CUDA 12, and of CUDA 13
    for installed, wheel in (("nvidia-cusolver-cu12", "nvidia-cusparse-cu12"), ("nvidia-cusolver", "nvidia-cusparse")):
        commands = [one.command for one in _with(log, packages={"pip": {installed: "11.6.1.9"}})[0].remedy]
        assert any(f"pip install {wheel} && export LD_LIBRARY_PATH=" in str(command) for command in commands)


def test_a_wheel_with_parts_missing_is_unpacked_again() -> None:
    copy = {
        "version": "9.1.0.70",
        "soname": 9,
        "path": "/v/nvidia/cudnn/lib",
        "complete": False,
        "problems": ["libcudnn_cnn.so.9 is missing"],
    }
    wheel = copy | {"source": "pip", "owner": "nvidia-cudnn-cu12"}
    found = findings(cudnn=[wheel], packages={"pip": {"nvidia-cudnn-cu12": "9.1.0.70"}})[0]
    assert "libcudnn_cnn.so.9 is missing" in found.summary
    assert str(found.remedy[0].command).endswith("install --force-reinstall --no-deps nvidia-cudnn-cu12==9.1.0.70")
    found = findings(cudnn=[copy | {"source": "apt", "owner": "libcudnn9-cuda-12"}])[0]
    assert found.remedy[0].command == "sudo apt-get install --reinstall libcudnn9-cuda-12"
    assert not findings(cudnn=[copy | {"source": "apt", "owner": "x; rm -rf /"}])[0].remedy


def test_the_matrix_knows_the_parts_of_each_release() -> None:
    known = next(one for one in reversed(book().cudnn_builds()) if one.cuda_major == 12 and len(one.parts) > 8)
    copy = {"version": str(known.version), "soname": 9, "cuda": "12", "path": "/v/nvidia/cudnn/lib", "source": "pip"}
    # What the probe itself thinks of a release counts only where the matrix does not know it.
    wrong = {"complete": False, "problems": ["incomplete: libcudnn_new.so.9 is not there"]}
    assert not findings(cudnn=[copy | wrong | {"parts": sorted(known.parts)}])
    assert "libcudnn_new" in findings(cudnn=[copy | wrong | {"parts": sorted(known.parts), "version": "9.98.1"}])[0].summary
    lacking = findings(cudnn=[copy | {"complete": True, "parts": sorted(known.parts[1:])}])[0]
    assert lacking.cause == "cudnn_sublibrary_mix"
    assert f"libcudnn_{known.parts[0]}.so.9 is not there" in lacking.summary
    mixed = findings(cudnn=[copy | {"complete": False, "parts": sorted(known.parts), "problems": ["two releases"]}])[0]
    assert "two releases" in mixed.summary


@pytest.mark.parametrize("name", ["nvidia-x; touch /tmp/a", "$(reboot)", "nvidia-cudnn-cu12'", "-r", "not-installed", "nvidia cudnn"])
@pytest.mark.parametrize("version", ["9.1.0.70", "1; reboot", "'"])
@pytest.mark.parametrize("why", ["removed: x", "overwritten by {}: x"])
def test_commands_hold_no_words_that_are_not_names_and_versions(name: str, version: str, why: str) -> None:
    pip = {"nvidia-cudnn-cu12": "9.1.0.70"} if name == "not-installed" else {name: version, "nvidia-cudnn-cu12": "9.1.0.70"}
    problems = [
        {"what": f"packages.pip.{name}", "why": why.format("nvidia-cudnn-cu12")},
        {"what": "packages.pip.nvidia-cudnn-cu12", "why": why.format(name)},
    ]
    for finding in findings(packages={"pip": pip}, problems=problems):
        for remedy in finding.remedy:
            assert all(not set(word) & set(";$ '`") for word in shlex.split(remedy.command or ""))


OUTER = {
    "version": "9.1.0",
    "soname": 9,
    "path": "/v/ctranslate2.libs",
    "source": "pip",
    "owner": "ctranslate2",
    "parts": [],
    "complete": False,
}
WHOLE = {"version": "9.3.0.75", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip", "owner": "nvidia-cudnn-cu12"}
UNOPENED = (
    "libcudnn-74a4c495.so.9.1.0 would be loaded from /v/ctranslate2.libs, but none of its parts can be opened, which ends the program"
)


@pytest.mark.parametrize(
    ("others", "why", "cause"),
    [
        ([], UNOPENED, "cudnn_missing"),
        ([WHOLE], UNOPENED, "lib_not_on_path"),
        ([{**WHOLE, "version": "8.9.7.29", "soname": 8}], UNOPENED, "cudnn_major_mismatch"),
        ([WHOLE], None, None),
    ],
)
def test_a_libcudnn_that_comes_without_its_parts_is_served_from_elsewhere_or_not(
    others: list[dict[str, Any]], why: str | None, cause: str | None
) -> None:
    problems = [{"what": "ctranslate2 4.6.0", "why": why}] if why else []
    packages = {"pip": {"ctranslate2": "4.6.0"}}
    loads = {"cudnn": {"version": "9.1.0", "path": OUTER["path"]}, "because": "RPATH leads to it"}
    frameworks = [{"name": "ctranslate2", "version": "4.6.0", "cudnn_built": "9.1.0", "would_load": loads}]
    common: dict[str, Any] = {"driver": {"version": "580.82.07"}, "gpus": [T4], "packages": packages, "frameworks": frameworks}
    found = [one for one in findings(cudnn=[OUTER, *others], problems=problems, **common) if one.severity != "info"]

    assert [one.cause for one in found] == ([cause] if cause else [])
    for one in found:
        assert "bundles only libcudnn.so.9" in one.summary
        assert [remedy.command for remedy in one.remedy] == ["cudnn-resolve apply -f ctranslate2==4.6.0"], "which no reinstallation mends"
    if cause is not None:
        log = "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}\n"
        assert _with(log, cudnn=[OUTER, *others], problems=problems, **common)[0].cause == cause


def test_a_plan_that_takes_long_is_proposed_without_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All searches for it have one bound together; what they found before it may not be the best, and is not told."""
    facts = {"driver": {"version": "550.54.15"}, "gpus": [T4], "packages": {"pip": {"torch": "2.11.0"}}}
    for rounds, text in ((10_000, "torch 2."), (1, "")):
        monkeypatch.setattr(plan_remedy, "_ALL_ROUNDS", rounds)
        first = diagnose(None, from_mapping({**LINUX, **facts}, "test"), book()).findings[0].remedy[0]
        assert first.command == "cudnn-resolve apply -f torch"
        assert text in first.text
        assert (": " in first.text) == bool(text)


@pytest.mark.parametrize(
    ("container", "cause"), [(None, "driver_not_loaded"), ("docker", "container_gpu_not_passed"), ("colab", "no_gpu_runtime")]
)
def test_a_driver_that_is_not_there_is_looked_for_where_it_would_come_from(container: str | None, cause: str) -> None:
    packages = {"pip": {"torch": "2.4.1+cu121", "jax": "0.4.30", "jaxlib": "0.4.30+cuda12.cudnn91"}}
    [one] = [one for one in findings(driver=None, container={"kind": container}, packages=packages) if "driver" in one.summary]
    assert (one.cause, one.severity) == (cause, "warning")


def test_where_nothing_wants_a_driver_none_is_missed() -> None:
    found = diagnose(None, from_mapping({**LINUX, "driver": None, "gpus": []}, "test"), book())
    assert (found.findings, found.note) == ((), "this machine has no NVIDIA driver, and no framework that needs one")


ALL = {"torch": "2.6.0+cu124", "tensorflow": "2.18.0", "jax": "0.5.2", "cupy-cuda12x": "13.3.0", "nvidia-cublas-cu12": "12.5.3.2"}


@pytest.mark.parametrize(
    ("log", "there", "not_there"),
    [
        (
            "ERROR: Could not find a version that satisfies the requirement tensorflow==2.8.0 (from versions: 2.12.0, 2.18.0)\n",
            ["cudnn-resolve plan -f tensorflow", "uv venv --seed --python 3.10"],
            "-f torch",
        ),
        ("RuntimeError: operator torchvision::nms does not exist\n", ["cudnn-resolve apply -f torch"], "-f jax"),
        ("ImportError: libcublas.so.11: cannot open shared object file\n", ["pip install nvidia-cublas-cu11 &&"], "cudnn-resolve apply"),
        ("libcudnn_ops_infer.so.8: cannot open shared object file: No such file or directory\n", ["'nvidia-cudnn-cu12==8.*'"], "cu11"),
    ],
)
def test_a_remedy_is_about_what_the_message_is_about(log: str, there: list[str], not_there: str) -> None:
    """Other frameworks of the machine, and a plan that does not bring what is missing, are no part of it."""
    facts = {"driver": {"version": "550.54.15"}, "gpus": [T4], "packages": {"pip": ALL}}
    cudnn = [{"version": "9.3.0.75", "soname": 9, "path": "/v/nvidia/cudnn/lib", "source": "pip"}]
    commands = [one.command for one in _with(log, **facts, cudnn=cudnn)[0].remedy if one.command]
    for one in there:
        assert any(one in command for command in commands), commands
    assert not [command for command in commands if not_there in command]


def test_a_note_of_the_facts_is_no_evidence_for_an_error_of_the_log() -> None:
    log = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n"
    packages = {"pip": {"tensorflow": "2.18.0"}}
    found = _with(log, driver={"version": "550.54.15"}, packages=packages)
    assert [(one.cause, one.severity) for one in found][:2] == [("driver_too_old", "error"), ("driver_too_old", "info")]
    assert [one.source for one in found[0].evidence] == ["log"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("opens libnvrtc.so.12 and libcublasLt.so.12 when it is used, not found from here", ("warning", "cuda_runtime_missing")),
        ("libcudnn_cnn_infer.so.8 needs libz.so.1, which is not found", ("error", "zlib_missing")),
        (
            "libcudnn_ops.so.9, libcudnn_cnn.so.9 need libcuda.so.1, which comes with the driver and is not found",
            ("error", "driver_incomplete"),
        ),
        ("libcudnn_ops.so.9 needs libcublas.so.12, which is not found", ("error", "cuda_runtime_missing")),
    ],
)
def test_what_a_whole_cudnn_lacks_besides_its_parts_is_no_mix(text: str, expected: tuple[str, str]) -> None:
    copy = {**WHOLE, "complete": True, "problems": [text]}
    loads = {"cudnn": {"version": "9.3.0.75", "path": f"{WHOLE['path']}/libcudnn.so.9"}, "because": "RPATH leads to it"}
    torch = {"name": "torch", "version": "2.6.0", "cudnn_built": "9.1.0", "would_load": loads}
    facts: dict[str, Any] = {"driver": {"version": "580.82.07"}, "gpus": [T4], "packages": {"pip": {"torch": "2.6.0"}}, "cudnn": [copy]}

    assert [(one.severity, one.cause) for one in findings(frameworks=[torch], **facts)] == [expected]
    assert "cudnn_sublibrary_mix" not in {one.cause for one in findings(frameworks=[], **facts)}
    log = "OSError: libcudnn_ops.so.9: cannot open shared object file: No such file or directory\n"
    assert _with(log, frameworks=[torch], **facts)[0].cause == "lib_not_on_path"


@pytest.mark.parametrize(("loaded", "severity"), [("/opt/cudnn/lib", "error"), ("/opt/cudnn/lib64", "warning")])
def test_an_incomplete_copy_is_an_error_where_a_framework_loads_it_and_not_one_beside_it(loaded: str, severity: str) -> None:
    copy = {"version": "9.1.0.70", "soname": 9, "path": "/opt/cudnn/lib", "complete": False, "problems": ["libcudnn_cnn.so.9 is missing"]}
    loads = {"cudnn": {"version": "9.1.0.70", "path": f"{loaded}/libcudnn.so.9"}, "because": "LD_LIBRARY_PATH leads to it"}
    torch = {"name": "torch", "version": "2.6.0", "cudnn_built": "9.1.0", "would_load": loads}
    found = findings(cudnn=[copy], frameworks=[torch], packages={"pip": {"torch": "2.6.0"}})
    assert [one.severity for one in found if one.cause == "cudnn_sublibrary_mix"] == [severity]
