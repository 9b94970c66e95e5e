"""The verdicts of the tests on a GPU, with faults that are planted in them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu_verdicts import not_for_lack_of_memory, without_cudnn


def row(status: str, observed: str, detail: str = "", gpu: int | None = 0) -> dict[str, Any]:
    return {"id": "torch/x", "status": status, "observed": observed, "detail": detail, "gpu": gpu}


@pytest.mark.parametrize(
    ("status", "observed", "is_fine"),
    [
        ("passed", "in 9 of 9 cases", True),
        ("warning", "computed without cuDNN: conv3d/bfloat16/nhwc", True),
        ("warning", "computed without cuDNN: conv3d/bfloat16/nhwc, conv3d/float16/nchw", True),
        ("warning", "computed without cuDNN: conv3d/float32/nchw", False),
        ("warning", "computed without cuDNN: conv3d/bfloat16/nhwc, conv2d/float16/nchw", False),
        ("warning", "computed without cuDNN: conv3d/bfloat16/nhwc; not known what computed: conv3d/float16/nchw", False),
        ("warning", "cuDNN wrote no log", False),
        ("skipped", "nothing was computed", False),
        ("failed", "conv3d", False),
    ],
)
def test_who_computed(status: str, observed: str, is_fine: bool) -> None:  # noqa: FBT001 - a parameter of a test
    assert (without_cudnn([row(status, observed)]) == []) is is_fine


@pytest.mark.parametrize(
    ("check", "is_fine"),
    [
        (row("failed", "CUDA out of memory"), True),
        (row("failed", "crashed (SIGABRT)", "perhaps for lack of memory: 200 MiB are free on the GPU"), True),
        (row("passed", "wrong numbers"), True),
        (row("failed", "crashed (SIGABRT)"), False),
        (row("failed", "wrong numbers (result)", "perhaps for lack of memory"), False),
        (row("failed", "CUDA out of memory", gpu=None), False),
    ],
)
def test_what_lack_of_memory_does_not_do(check: dict[str, Any], is_fine: bool) -> None:  # noqa: FBT001 - a parameter of a test
    assert (not_for_lack_of_memory([check]) == []) is is_fine
