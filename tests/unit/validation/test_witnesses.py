"""Frameworks whose own means say who computed, where cuDNN's log is silent: PaddlePaddle, MXNet, CuPy, CTranslate2.

What PaddlePaddle's profiler writes is recorded from 2.6.2 and 3.3.1 on a CPU; MXNet's words are those of its source.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudnn_resolve.validation import payload_ctranslate2, payload_cupy, payload_framework, payload_mxnet, payload_paddle
from cudnn_resolve.validation.case import ENCODER, Case
from cudnn_resolve.validation.judge_usage import judge_usage, read_names
from cudnn_resolve.validation.reference import expected
from tests.unit.validation.recordings import telling

PADDLE_2 = ["conv2d dygraph[22.355 ms]", "conv2d compute[22.215 ms]", "Conv2dGradNodeFinal[155.842 us]", "process_name", None]
PADDLE_3 = ["conv2d kernel launch[34.811 ms]", "Global_Conv2dGradNodeFinal[158.176 us]", "thread_name"]


class Profiler:
    """Stands in for PaddlePaddle's: writes events as that writes them."""

    def __init__(self, names: list[str | None]) -> None:
        self.names = names
        self.targets: list[str] = []
        self.ProfilerTarget = SimpleNamespace(CPU="cpu", GPU="gpu")

    def Profiler(self, targets: list[str], on_trace_ready: Callable[[object], None]) -> ExitStack:  # noqa: N802 - as it is called there
        self.targets = targets
        ending = ExitStack()
        ending.callback(on_trace_ready, self)
        return ending

    def export(self, path: str, *, format: str) -> None:  # noqa: A002
        assert format == "json"
        Path(path).write_text(json.dumps({"schemaVersion": "1.0.2", "traceEvents": [{"name": name, "ph": "X"} for name in self.names]}))


def made(kind: Any, lib: object, *, is_cpu: bool = False) -> Any:
    """A framework that was not opened."""
    framework = kind.__new__(kind)
    framework.lib, framework.is_cpu, framework.before = lib, is_cpu, payload_framework.cudnn_parts()
    return framework


@pytest.mark.parametrize(("device", "targets"), [("cpu", ["cpu"]), ("gpu", ["cpu", "gpu"])])
def test_what_paddles_profiler_saw(monkeypatch: pytest.MonkeyPatch, device: str, targets: list[str]) -> None:
    profiler = Profiler([*PADDLE_2, *PADDLE_3])
    done: list[int] = []

    paddle = made(payload_paddle.Framework, SimpleNamespace(profiler=profiler), is_cpu=device == "cpu")
    monkeypatch.setattr(paddle, "compute", lambda _case: done.append(1))

    names = paddle.names({})

    assert (done, profiler.targets) == ([1], targets)
    assert {"conv2d compute", "conv2d kernel launch", "Conv2dGradNodeFinal"} <= set(names)
    assert not any("[" in name for name in names)
    # The names of its operations do not tell who computed; those of kernels do.
    assert read_names("x", names).cudnn == read_names("x", names).other == ()


def mxnet(version: str, *, has_cudnn: bool) -> Any:
    features = SimpleNamespace(is_enabled=lambda name: name == "CUDNN" and has_cudnn)
    return SimpleNamespace(__version__=version, runtime=SimpleNamespace(Features=lambda: features))


WARNING = "[12:00:00] src/operator/nn/convolution.cu:108: This convolution is not supported by cudnn, MXNET convolution is applied.\n"


@pytest.mark.parametrize(
    ("module", "printed", "verdict"),
    [
        (mxnet("1.9.1", has_cudnn=True), "", "cudnn"),
        (mxnet("1.9.1", has_cudnn=True), WARNING, "other"),
        (mxnet("1.9.1", has_cudnn=False), "", "other"),
        (mxnet("2.0.0", has_cudnn=True), "", ""),
    ],
)
def test_what_mxnet_says(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], module: Any, printed: str, verdict: str
) -> None:
    framework = made(payload_mxnet.Framework, module)
    monkeypatch.setattr(framework, "compute", lambda _case: os.write(2, printed.encode()))

    told = framework.witness({})

    found = read_names("MXNet", told["names"])
    assert (bool(found.cudnn), bool(found.other)) == (verdict == "cudnn", verdict == "other")
    # What was printed is not swallowed: it may hold the cause of a failure.
    assert not told["names"] or "without" in told["names"][0] or capfd.readouterr().err == printed


@pytest.mark.parametrize("kind", [payload_ctranslate2.Framework, payload_cupy.Framework])
@pytest.mark.parametrize(
    ("came", "proof"),
    [
        ({"libcudnn_cnn.so.9", "libcudnn_ops.so.9"}, ("loaded libcudnn_cnn.so.9",)),
        ({"libcudnn_engines_precompiled.so.9"}, ("loaded libcudnn_engines_precompiled.so.9",)),
        ({"libcudnn_cnn_infer.so.8"}, ("loaded libcudnn_cnn_infer.so.8",)),
        (set(), ()),
    ],
)
def test_parts_of_cudnn_that_come_with_the_first_convolution(
    monkeypatch: pytest.MonkeyPatch, kind: Any, came: set[str], proof: tuple[str, ...]
) -> None:
    monkeypatch.setattr(payload_framework, "cudnn_parts", lambda: {"libcudnn_graph.so.9"})
    bench = made(kind, None)
    monkeypatch.setattr(payload_framework, "cudnn_parts", lambda: {"libcudnn_graph.so.9", *came})

    assert read_names("x", bench.witness({})["names"]).cudnn == proof


def test_parts_are_read_from_what_the_process_has_mapped(tmp_path: Path) -> None:
    assert payload_framework.cudnn_parts() == set()

    with ExitStack() as stack:
        for name in ("libcudnn_cnn.so.9.1.0", "libcudnn.so.9"):
            (tmp_path / name).write_bytes(b"x")
            file = stack.enter_context((tmp_path / name).open("rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

        assert payload_framework.cudnn_parts() == {"libcudnn_cnn.so.9.1.0"}


def encoder(**more: object) -> tuple[tuple[Case, ...], Any]:
    right = {"id": ENCODER.id, "y": list(expected(ENCODER)["y"].values), "forward_only": True, "seconds": 0.1, "cudnn": {}, **more}
    return (ENCODER,), telling(("case", right))


def test_a_build_without_cudnn_has_not_fallen_back() -> None:
    own = judge_usage("x", "ctranslate2", [encoder(logged=False, own="CTranslate2 4.8.5 has its own convolutions")], 0)
    silent = judge_usage("x", "ctranslate2", [encoder(logged=True)], 0)

    assert (own.status, own.observed) == ("skipped", "CTranslate2 4.8.5 has its own convolutions: no libcudnn is loaded")
    assert (silent.status, silent.observed) == ("warning", f"computed without cuDNN: {ENCODER.id}")
