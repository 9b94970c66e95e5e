"""What a message means depends on the release that prints it, and on what the same log proves otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.facts.codec import from_mapping
from tests.written_logs import book

NO_GPU = "Num GPUs Available:  0\n"
WINDOWS = 'File "C:\\Users\\me\\env\\tensorflow\\__init__.py", line 3, in <module>\n'
REFUSED = "RuntimeError: cuDNN version mismatch: PyTorch was compiled against 7102 but linked against 7605\n"
NO_CUDNN = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
NO_DRIVER = "Failed to initialize NVML: Driver Not Loaded\n"


def findings(log: str, pip: dict[str, str] | None = None) -> tuple[Finding, ...]:
    facts: dict[str, Any] | None = {"packages": {"pip": pip}} if pip is not None else None
    return diagnose(Reader(book().symptoms()).read([log.encode()]), from_mapping(facts, "test") if facts else None, book()).findings


@pytest.mark.parametrize(("told", "speaks"), [("", True), ("tensorflow 2.10.1\n", False), ("tensorflow 2.11.0\n", True)])
def test_a_message_says_nothing_of_releases_for_which_it_means_something_else(told: str, speaks: bool) -> None:  # noqa: FBT001
    found = findings(WINDOWS + told + NO_GPU)
    assert any("for Windows has no CUDA support" in one.summary for one in found) is speaks


def test_facts_tell_the_release_too() -> None:
    assert findings(REFUSED, {"torch": "0.4.1"})[0].cause == "cudnn_too_new_for_framework"
    assert findings(REFUSED, {})[0].cause == "cudnn_too_new_for_framework"
    assert all(one.cause != "cudnn_too_new_for_framework" for one in findings(REFUSED, {"torch": "2.6.0+cu124"}))
    assert findings(REFUSED, {"torch": "of my own"})[0].cause == "cudnn_too_new_for_framework"


def test_of_several_releases_in_a_log_one_is_enough() -> None:
    log = "Attempting uninstall: torch 2.6.0\nSuccessfully installed torch-1.0.1\nfound torch==1.0.1\n"
    assert findings(log + REFUSED)[0].cause == "cudnn_too_new_for_framework"


def weight(log: str, cause: str) -> float:
    return next((one.confidence for one in findings(log) if one.cause == cause), 0)


@pytest.mark.parametrize(
    ("proof", "trouble", "cause"),
    [
        ("I cuda_dnn.cc:454] Loaded cuDNN version 8904\n", NO_CUDNN, "cudnn_missing"),
        ("Created device /job:localhost/replica:0/task:0/device:GPU:0 with 14115 MB memory\n", NO_DRIVER, "driver_not_loaded"),
        ("| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |\n", NO_DRIVER, "driver_not_loaded"),
    ],
)
def test_what_was_at_work_speaks_against_its_absence(proof: str, trouble: str, cause: str) -> None:
    assert weight(trouble, cause) >= 0.7
    assert weight(proof + trouble, cause) <= weight(trouble, cause) - 0.15


def test_a_part_may_be_missing_of_what_was_loaded() -> None:
    part = "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8: cannot open shared object file\n"
    assert weight("I cuda_dnn.cc:428] Loaded cuDNN version 8600\n" + part, "cudnn_missing") >= weight(part, "cudnn_missing") >= 0.7
