"""Findings with little evidence: the question that decides comes first, then at most one change."""

from __future__ import annotations

import re

import pytest

from cudnn_resolve.diagnosis.model import Remedy
from cudnn_resolve.diagnosis.remedy import WEAK
from cudnn_resolve.diagnosis.remedy_machine import question
from tests.written_logs import book, judged

CHANGES = r"\bsudo (?!dmesg)|\b(?:install|apply|rmmod|modprobe|reboot|dkms|export)\b|%env"
JAX = "WARNING:absl:No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0 and rerun for more info.)\n"
CONTEXT = "level=ERROR cuda driver library failed to get device context 999\n"


def steps(log: str) -> tuple[Remedy, ...]:
    """Steps of the first finding."""
    return judged(log).findings[0].remedy


def test_every_weak_cause_begins_with_a_question() -> None:
    causes, seen = book().causes(), 0
    for symptom in book().symptoms():
        for sample in symptom.sample if symptom.weight < WEAK * 100 and symptom.cause else ():
            for finding in judged(f"{sample}\n").findings[:1]:
                if finding.confidence >= WEAK or not finding.remedy or not causes[finding.cause].decide:
                    continue
                seen += 1
                first = finding.remedy[0].command
                assert first is not None, (symptom.id, finding.remedy)
                assert not re.search(CHANGES, first), (symptom.id, first)
                changes = [step for step in finding.remedy if step.command is None or re.search(CHANGES, step.command)]
                assert len(changes) <= 1, (symptom.id, changes)
    assert seen > 20


def test_the_build_is_blamed_only_after_a_look_at_the_gpu() -> None:
    asked, change = steps(JAX)
    assert asked.command == "nvidia-smi -L; python -m pip list"
    assert change.text.startswith("if this is the cause: install")
    assert change.command == "cudnn-resolve apply -f jax"


def test_a_driver_is_not_reloaded_on_a_guess() -> None:
    log = judged(CONTEXT).findings[0]
    assert [step.command for step in log.remedy] == ["nvidia-smi; ls -l /dev/nvidia*; sudo dmesg | grep -i -e nvrm -e xid | tail"]
    assert log.undecided is not None
    assert "check with" not in log.undecided


def test_a_sure_finding_keeps_all_its_steps() -> None:
    assert len(steps("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")) > 1


@pytest.mark.parametrize(
    "stated",
    [
        "CUDA available: False",
        "torch.cuda.is_available() -> False",
        ">>> torch.cuda.device_count()\n0",
        "  libtorch           conda-forge/linux-64::libtorch-2.6.0-cpu_mkl_hf6ddc5a_104",
        'level=INFO source=routes.go:1339 msg="Dynamic LLM libraries" runners=[cpu]',
        'level=INFO source=routes.go:1339 msg="Dynamic LLM libraries" runners="[cpu cpu_avx cpu_avx2]"',
    ],
)
def test_a_statement_that_there_is_no_gpu_is_told_but_is_no_failure(stated: str) -> None:
    [found] = judged(f"{stated}\n").findings
    assert (found.cause, found.severity) == ("cpu_only_build", "info")


@pytest.mark.parametrize(
    "stated",
    [
        "CUDA available: True",
        "torch.cuda.device_count() -> 2",
        "torch.cuda.device_count() -> 0.5",
        "  libtorch           conda-forge/linux-64::libtorch-2.6.0-cuda126_mkl_h99b69db_304",
        'level=INFO source=routes.go:1339 msg="Dynamic LLM libraries" runners="[cpu cpu_avx cuda_v11]"',
    ],
)
def test_another_statement_tells_nothing(stated: str) -> None:
    assert not judged(f"{stated}\n").findings


@pytest.mark.parametrize(
    ("cause", "features", "command"),
    [
        ("driver_wedged", {"docker"}, "nvidia-smi; ls -l /dev/nvidia*"),
        ("driver_wedged", {"hosted-notebook"}, "!nvidia-smi; ls -l /dev/nvidia*"),
        ("driver_wedged", {"windows"}, "nvidia-smi"),
        ("cuda_runtime_missing", {"windows"}, "where /r C:\\ cudart64_*.dll cublas*.dll cudnn*.dll & path"),
        ("cuda_runtime_missing", set(), "cudnn-resolve detect --python /e/bin/python"),
        ("cpu_only_build", set(), "nvidia-smi -L; /e/bin/python -m pip list"),
        ("forward_compat_hw", {"windows"}, None),
        ("zlib_missing", set(), None),
    ],
)
def test_the_question_is_one_for_the_system_of_the_log(cause: str, features: set[str], command: str | None) -> None:
    assert question(book().causes()[cause], features, windows="windows" in features, python="/e/bin/python") == command
