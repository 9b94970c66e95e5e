"""Mistakes that are planted into the program that speaks with cuDNN: the stand-ins mind each of them, as the real libraries would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_resolve.validation import payload_run
from cudnn_resolve.validation.case import CLASSES, Case, bare_cases
from tests.native.convolution import GPU, computing_cudnn, working_libcuda

PAYLOADS = Path(payload_run.__file__).parent
DOUBLE = next(case for case in bare_cases() if case.type == "float64")
PLAIN, GROUPED = CLASSES[1], next(case for case in CLASSES if case.name == "conv2d-grouped")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver and a cuDNN 9."""
    folder = tmp_path_factory.mktemp("libraries")
    computing_cudnn(folder, 90100)
    working_libcuda(folder)
    return folder


def told_by(payload: str, libraries: Path, tmp_path: Path, case: Case) -> str:
    """What a child says of one case, whose payload has that text."""
    for name in ("payload_run.py", "payload_case.py", "payload_log.py"):
        (tmp_path / name).write_text((PAYLOADS / name).read_text("utf-8"), "utf-8")
    (tmp_path / "payload_cudnn.py").write_text(payload, "utf-8")
    question = {"payload": "payload_cudnn", "library": str(libraries / "libcudnn.so.9"), "log": True, "cases": [case.question]}
    env = {"LD_LIBRARY_PATH": str(libraries), "STANDIN_GPUS": GPU}
    argv = [sys.executable, "-S", str(tmp_path / "payload_run.py")]
    done = subprocess.run(argv, input=json.dumps(question), env=env, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "case", "words"),
    [
        ("", "", PLAIN, '"dw": ['),
        ("", "", DOUBLE, '"dw": ['),
        ('self.call("cuCtxSetCurrent", context)', "pass", PLAIN, "CUDA_ERROR_INVALID_CONTEXT (201)"),
        ("struct.calcsize(self.letter) * len", "3 * len", PLAIN, "a tensor is not on the card, or not all of it"),
        ("bench.card.allocate(size.value)", "bench.card.allocate(1)", PLAIN, "the workspace is too small"),
        ("workspace, size, zero, target", "workspace, 0, zero, target", PLAIN, "the workspace is too small"),
        ("ctypes.c_double if self.type == DOUBLE else ctypes.c_float", "ctypes.c_float", DOUBLE, "alpha is not 1"),
        ("ctypes.byref(scalar(0))", "ctypes.byref(scalar(1))", PLAIN, "or beta not 0"),
        ("compute = DOUBLE if self.type == DOUBLE else FLOAT", "compute = FLOAT", DOUBLE, "the type that is computed in"),
        ("math = FMA_MATH if", "math = DEFAULT_MATH if", PLAIN, "TF32 is not forbidden"),
        ("CROSS_CORRELATION, compute", "1 - CROSS_CORRELATION, compute", PLAIN, "the kernel is not to be turned round"),
        ('made, case["groups"])', "made, 1)", GROUPED, "the channels do not agree"),
        ("rows[0], rows[1], rows[2], CROSS", "rows[1], rows[0], rows[2], CROSS", PLAIN, "strides and dilations begin at 1"),
        ("(w, y, convolution, x), (w", "(y, w, convolution, x), (w", PLAIN, "descriptors of other kinds"),
        ('"cudnnConvolution{}".format(_direction)] = "p', '"cudnnConvolution{}".format(_direction)] = "pp', PLAIN, "TypeError"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_cudnn_is_given_is_told(libraries: Path, tmp_path: Path, right: str, wrong: str, case: Case, words: str) -> None:
    payload = (PAYLOADS / "payload_cudnn.py").read_text("utf-8")
    assert payload.count(right) == 1 or not right

    assert words in told_by(payload.replace(right, wrong, 1), libraries, tmp_path, case)
