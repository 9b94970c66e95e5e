"""Mistakes that are planted into the program that speaks with cuDNN: the stand-ins mind each of them, as the real libraries would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.validation import child
from cudnn_resolve.validation.case import CLASSES, Case, bare_cases
from tests.native.convolution import GPU, computing_cudnn, working_libcuda

DOUBLE = next(case for case in bare_cases() if case.type == "float64")
PLAIN, GROUPED = CLASSES[1], next(case for case in CLASSES if case.name == "conv2d-grouped")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver and a cuDNN 9."""
    folder = tmp_path_factory.mktemp("libraries")
    computing_cudnn(folder, 90100)
    working_libcuda(folder)
    return folder


def told_by(libraries: Path, case: Case) -> str:
    """What a child says of one case."""
    question = {"payload": "payload_cudnn", "library": str(libraries / "libcudnn.so.9"), "log": True, "cases": [case.question]}
    env = {"LD_LIBRARY_PATH": str(libraries), "STANDIN_GPUS": GPU}
    told = child.run_payload(LinuxHost(), sys.executable, question, env=env, seconds=60)
    return json.dumps([told.events, told.failure])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "case", "words"),
    [
        ("", "", PLAIN, '"dw": ['),
        ("", "", DOUBLE, '"dw": ['),
        ('self.call("cuCtxSetCurrent", context)', "pass", PLAIN, "CUDA_ERROR_INVALID_CONTEXT (201)"),
        ("struct.calcsize(self.letter) * len", "3 * len", PLAIN, "a tensor is not on the card, or not all of it"),
        ("card.allocate(size.value)", "card.allocate(1)", PLAIN, "the workspace is too small"),
        ("workspace, size, *target", "workspace, 0, *target", PLAIN, "the workspace is too small"),
        ("ctypes.c_double if self.type == DOUBLE else ctypes.c_float", "ctypes.c_float", DOUBLE, "alpha is not 1"),
        ("ctypes.byref(scalar(0))", "ctypes.byref(scalar(1))", PLAIN, "or beta not 0"),
        ("compute = DOUBLE if self.type == DOUBLE else FLOAT", "compute = FLOAT", DOUBLE, "the type that is computed in"),
        ("math = FMA_MATH if", "math = DEFAULT_MATH if", PLAIN, "TF32 is not forbidden"),
        ("CROSS_CORRELATION, compute", "1 - CROSS_CORRELATION, compute", PLAIN, "the kernel is not to be turned round"),
        ('made, case["groups"])', "made, 1)", GROUPED, "the channels do not agree"),
        ("pads, strides, dilations, CROSS", "strides, pads, dilations, CROSS", PLAIN, "strides and dilations begin at 1"),
        ("(w, y, convolution, x), (w", "(y, w, convolution, x), (w", PLAIN, "descriptors of other kinds"),
        ('"cudnnConvolution{}".format(_direction)] = "p', '"cudnnConvolution{}".format(_direction)] = "pp', PLAIN, "TypeError"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_cudnn_is_given_is_told(
    libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, right: str, wrong: str, case: Case, words: str
) -> None:
    names = ("payload.py", "payload_card.py", "payload_load.py", "payload_cudnn.py")
    texts = {name: Path(child.FOLDERS[0], name).read_text("utf-8") for name in names}
    assert sum(text.count(right) for text in texts.values()) == 1 or not right
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace(right, wrong) if right else text, "utf-8")
    monkeypatch.setattr(child, "FOLDERS", [str(tmp_path)])

    assert words in told_by(libraries, case)
