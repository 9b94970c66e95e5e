"""The page of real runs holds what was recorded, and nothing where nothing was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import proven
import pytest


def check(id_: str, status: str = "passed", observed: str = "", seconds: float | None = None, detail: str = "") -> dict[str, Any]:
    return {"id": id_, "status": status, "observed": observed, "seconds": seconds, "detail": detail, "framework": None, "gpu": 0}


TOLD = {
    "status": "passed",
    "gpus": [{"name": "A Card", "compute_capability": "9.9"}],
    "driver": "1.2.3",
    "frameworks": {"torch": "2.0"},
    "loaded": {"cudnn": "9.1.0"},
    "checks": [
        check("cudnn/libcudnn.so.9/conv1d/float32/nchw", observed="error at most 3% of the tolerance (result)", seconds=0.25),
        check("torch/conv2d-strided/float32/nchw", observed="error at most 12% of the tolerance (result)", seconds=0.5),
        check("torch/conv2d-strided/float16/nhwc", observed="error at most 7% of the tolerance (result)", seconds=0.25),
        check("torch/conv2d/tf32/nchw", "skipped", "not on this | card"),
        check("torch/cudnn-used", observed="in 2 of 2 cases"),
        check("torch/speed", "warning", "1 TFLOP/s in single precision", 0.002, "no faster than the CPU"),
        check("torch/speed/float16", observed="9 TFLOP/s in float16", seconds=0.001),
    ],
}
BROKEN = {
    "name": "missing-cnn",
    "words": ["-f", "torch"],
    "exit": 1,
    "seconds": 3.0,
    "told": {"status": "failed", "gpus": [], "checks": [check("torch/cudnn-parts", "failed", "gone | from /x/lib/site-packages/nvidia")]},
}


def test_the_page(tmp_path: Path) -> None:
    (tmp_path / "default.json").write_text(json.dumps({"name": "default", "words": [], "exit": 0, "seconds": 42.4, "told": TOLD}), "utf-8")
    (tmp_path / "missing-cnn.json").write_text(json.dumps(BROKEN), "utf-8")

    assert proven.main([str(tmp_path), "--date", "2026-01-02", "-o", str(tmp_path / "page.md")]) == 0
    lines = (tmp_path / "page.md").read_text("utf-8").splitlines()

    assert "## A Card (compute capability 9.9), driver 1.2.3: `validate`" in lines
    for line in (
        "| day | 2026-01-02 |",
        "| loaded | cudnn 9.1.0 |",
        "| checks | 5 passed, 1 warning, 1 skipped in 42 s |",
        "| cudnn/libcudnn.so.9 | conv1d | float32 nchw | 3% | 0.250 |",
        "| torch | conv2d-strided | float32 nchw, float16 nhwc | 12% | 0.750 |",
        "| torch | float32 | 2.000 ms | 1 TFLOP/s in single precision |",
        "| torch | float16 | 1.000 ms | 9 TFLOP/s in float16 |",
        "| torch/speed | warning | 1 TFLOP/s in single precision no faster than the CPU |",
        "| the cnn part is missing | `validate -f torch` | 1 | torch/cudnn-parts: gone \\| from …/site-packages/nvidia |",
    ):
        assert line in lines


@pytest.mark.parametrize("change", [{"status": "skipped"}, {"gpus": []}, {"status": "failed"}])
def test_no_page_without_a_run_that_passed_on_a_card(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "told.json").write_text(json.dumps({**TOLD, **change}), "utf-8")
    page = tmp_path / "page.md"

    assert proven.main([str(tmp_path / "told.json"), "-o", str(page)]) == 1
    assert not page.exists()
