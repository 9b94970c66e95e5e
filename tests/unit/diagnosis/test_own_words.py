"""What is quoted and proposed is the user's own: their line, their framework, the wheels of their CUDA."""

from __future__ import annotations

import json
import textwrap

import pytest

from cudnn_resolve.diagnosis.model import EMPTY
from cudnn_resolve.diagnosis.normalize_log import whole
from tests.unit.diagnosis.test_rows import advice
from tests.written_logs import book, judged

CUBLAS = "OSError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
CUDNN = "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("before", "framework"),
    [
        ("$ python3 -c 'import torch; print(torch.cuda.is_available())'\n", "torch"),
        ("$ conda install pytorch torchvision pytorch-cuda=12.1 -c pytorch -c nvidia\n", "torch"),
        ("$ pip install -U tensorflow\n", "tensorflow"),
        ("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: no\n", "jax"),
        ("cupy_backends.cuda.api.runtime.CUDARuntimeError: no\n", "cupy"),
    ],
)
def test_the_framework_is_the_one_that_the_log_names(before: str, framework: str) -> None:
    assert f"apply -f {framework}" in advice(before + CUBLAS)
    assert "FRAMEWORK" not in advice(before + CUBLAS)


def test_numba_is_given_what_numba_wants() -> None:
    said = advice("NvvmSupportError: libNVVM cannot be found. Do `conda install cudatoolkit`:\n")
    assert "numba-cuda" in said
    assert "FRAMEWORK" not in said


def test_a_library_of_two_releases_of_cuda_is_in_two_wheels() -> None:
    bare = "ImportError: libcusparse.so.12: cannot open shared object file: No such file or directory\n"
    assert "nvidia-cusparse-cu12 or nvidia-cusparse" in advice(bare)
    assert "pip install nvidia-cusparse-cu12" in advice(bare + "torch==2.4.1+cu121\n")
    assert "pip install nvidia-cublas-cu12" in advice(CUBLAS)


def test_a_version_of_tensorflow_alone_brings_no_cudnn() -> None:
    log = "$ pip install tensorflow==2.15.0\nRuntimeError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"
    assert "PyTorch" not in judged(log).findings[0].summary


def test_what_decides_is_of_no_framework() -> None:
    assert not [one.id for one in book().causes().values() if one.decide and "torch" in one.decide]


@pytest.mark.parametrize(
    ("log", "line", "text"),
    [
        ("ok\n" + CUDNN + "\n", 2, CUDNN),
        (
            "ERROR: Could not find a version that satisfies the requirement torch==1.2 (from versions: 1.9.0)\nERROR: No matching\n",
            1,
            "ERROR: Could not find a version that satisfies the requirement torch==1.2 (from versions: 1.9.0)",
        ),
        ('  File "/v/lib/python3.8/site-packages/mxnet/base.py", line 204, in _load_lib\n' + CUDNN + "\n", 2, CUDNN),
    ],
)
def test_the_evidence_is_a_line_of_the_user(log: str, line: int, text: str) -> None:
    shown = judged(log).findings[0].evidence[0]
    assert (shown.line, shown.text) == (line, text)


@pytest.mark.parametrize("log", [b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1b[0m\n\x1b[31m\x1b[0m\n", b"\n\n \n"])
def test_a_log_without_a_word_is_empty(log: bytes) -> None:
    assert judged(log).note == EMPTY


def test_the_line_of_death_is_the_last_one_however_often_its_like_came() -> None:
    found = judged("KeyError: 'x'\nretry\n" * 400 + "KeyError: 'y'\n").findings[0]
    assert found.evidence[0].line == 801


@pytest.mark.slow
def test_lines_that_only_fail_are_counted_and_the_last_one_is_told() -> None:
    log = "".join(f"ERROR worker {'abcdefghij'[number % 10] * (number % 37)} failed {number:x}\n" for number in range(12_000))
    assert judged(log).findings[0].evidence[0].line == 12_000


def test_an_array_of_entries_is_read_entry_by_entry() -> None:
    entries = [{"level": "info", "msg": "start"}, {"level": "error", "msg": CUDNN}]
    assert judged(json.dumps(entries)).findings[0].evidence[0].text == CUDNN


@pytest.mark.parametrize("width", [45, 60])
def test_narrow_wraps_are_undone(width: int) -> None:
    lines = [
        "2026-01-05 10:20:30 the loader of this program begins its work and opens what it needs for the model",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device of this machine",
        "the worker has ended, and what it had made until then is in the folder that was given to it",
    ]
    log = "\n".join(part for line in lines for part in textwrap.wrap(line, width)) + "\n"
    assert judged(log).findings[0].cause.startswith("gpu_arch")


def test_a_log_of_very_many_lines_is_not_held_as_a_whole() -> None:
    assert whole([b"\n" * 100_000])[0] == b""
    assert whole([b"a line\n"])[0] == b"a line\n"


def test_what_a_plan_assumes_is_no_failure() -> None:
    log = "  ! no NVIDIA driver found: the target machine needs driver 525.60.13 or newer (CUDA 12.x needs it; policy minor)\n"
    assert judged(log + CUBLAS).findings[0].cause == "cuda_runtime_missing"
    assert not [one for one in judged(log).findings if one.severity != "info"]
