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
    (tmp_path / "default.json").write_text(
        json.dumps({"name": "default", "date": "2026-01-02", "words": [], "exit": 0, "seconds": 42.4, "told": TOLD}), "utf-8"
    )
    (tmp_path / "missing-cnn.json").write_text(json.dumps(BROKEN), "utf-8")

    assert proven.main([str(tmp_path), "--date", "2020-12-31", "-o", str(tmp_path / "page.md")]) == 0
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


def staged(name: str, *checks: dict[str, Any], code: int = 0) -> dict[str, Any]:
    return {"name": name, "words": [], "exit": code, "seconds": 1.0, "told": {**TOLD, "checks": list(checks)}}


@pytest.mark.parametrize("name", [name for name in proven.FAULTS if name != "older-first"])
def test_no_page_where_a_fault_was_not_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "default.json").write_text(json.dumps(TOLD), "utf-8")
    (tmp_path / "fault.json").write_text(json.dumps(staged(name, check("torch/cudnn"))), "utf-8")

    assert proven.main([str(tmp_path), "-o", str(tmp_path / "page.md")]) == 1
    assert proven.FAULTS[name] in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (staged("older-first", check("torch/cudnn")), "| 0 | nothing is wrong: no part of it is used |"),
        (staged("neighbour", check("card", "warning", "200 of 15360 MiB are free")), "| 0 | card: 200 of 15360 MiB are free |"),
        (
            staged("older-first", check("torch/cudnn", "failed", "9.0.0 from /tmp/x-1/older0/lib"), code=1),
            "| 1 | torch/cudnn: 9.0.0 from …/lib |",
        ),
    ],
)
def test_what_was_said_of_a_fault(run: dict[str, Any], line: str, tmp_path: Path) -> None:
    (tmp_path / "default.json").write_text(json.dumps(TOLD), "utf-8")
    (tmp_path / "fault.json").write_text(json.dumps(run), "utf-8")

    assert proven.main([str(tmp_path), "-o", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text("utf-8")
    assert line in text
    assert "| day | not recorded |" in text
    assert "/tmp" not in text


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3", '{"told": 3}', '{"status": "passed", "gpus": [], "checks": [1]}', "[" * 100_000])
def test_what_is_no_recording(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.json").write_text(text, "utf-8")

    assert proven.main([str(tmp_path / "odd.json"), "-o", str(tmp_path / "page.md")]) == 1
    assert "odd.json" in capsys.readouterr().err
    assert proven.main([str(tmp_path / "none.json"), "-o", str(tmp_path / "page.md")]) == 1


def test_no_page_where_a_test_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "default.json").write_text(json.dumps(TOLD), "utf-8")
    words = ["--run", "--record", str(tmp_path), "-o", str(tmp_path / "page.md")]
    monkeypatch.setattr(proven, "run_tests", lambda *_: 1)
    assert proven.main(words) == 1
    assert not (tmp_path / "page.md").exists()
    monkeypatch.setattr(proven, "run_tests", lambda *_: 0)
    assert proven.main(words) == 0
