"""A validation as text, JSON and JUnit XML, whatever stands in it."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.report.document import encode_validation
from cudnn_resolve.report.encode_json import render as render_json
from cudnn_resolve.report.junit import render as render_junit
from cudnn_resolve.report.validate import show_validation
from cudnn_resolve.validation.model import Check, Validation, VisibleGpu
from tests.pages import text_of
from tests.report_schemas import junit_faults

CHECKS = (
    Check(id="torch/import", framework="torch", status="passed", expected="2.6.0", observed="2.6.0+cu124", seconds=1.5),
    Check(
        id="torch/cudnn-parts",
        framework="torch",
        status="failed",
        expected="all parts of one release, from one directory",
        observed="cuDNN is split: libcudnn_graph.so.9 (9.0.0) from /old; libcudnn.so.9 (9.1.0) from /env",
        detail="LD_LIBRARY_PATH leads to /old: remove that from it",
        output=("Unable to load any of {libcudnn_cnn.so.9.1.0}", "Invalid handle"),
    ),
    *(
        Check(id=f"torch/{name}/float32/nchw", framework="torch", status="passed", observed="error", seconds=0.01, gpu=0, group="torch")
        for name in ("conv1d", "conv2d", "conv3d")
    ),
    Check(id="torch/conv2d/bfloat16/nchw", framework="torch", status="skipped", observed="no bfloat16", gpu=0, group="torch"),
    Check(
        id="torch/speed",
        framework="torch",
        status="warning",
        expected="faster",
        observed="0.1 TFLOP/s",
        detail="less than 5% of the peak: 2 other processes on the GPU",
        gpu=0,
    ),
)
VALIDATION = Validation(
    checks=CHECKS,
    gpus=(VisibleGpu(index=0, name="Tesla T4", compute_capability="7.5"),),
    driver="550.54.15",
    frameworks={"torch": "2.6.0"},
    loaded={"cudnn": "9.1.0"},
)


def test_text() -> None:
    assert text_of(show_validation, VALIDATION, width=90).splitlines() == [
        "GPU 0: Tesla T4, compute capability 7.5, driver 550.54.15",
        "loaded: cudnn 9.1.0",
        "ok       torch/import: 2.6.0+cu124 (1.50 s)",
        "FAILED   torch/cudnn-parts: cuDNN is split: libcudnn_graph.so.9 (9.0.0) from /old;",
        "         libcudnn.so.9 (9.1.0) from /env",
        "           expected: all parts of one release, from one directory",
        "           LD_LIBRARY_PATH leads to /old: remove that from it",
        "           | Unable to load any of {libcudnn_cnn.so.9.1.0}",
        "           | Invalid handle",
        "ok       torch: 3 cases (0.03 s): conv1d, conv2d, conv3d",
        "skipped  torch/conv2d/bfloat16/nchw: no bfloat16",
        "warning  torch/speed: 0.1 TFLOP/s",
        "           expected: faster",
        "           less than 5% of the peak: 2 other processes on the GPU",
        "",
        "failed: 4 passed, 1 failed, 1 warning, 1 skipped",
    ]


def test_everything_in_full() -> None:
    assert sum(line.startswith("ok       torch/conv") for line in text_of(show_validation, VALIDATION, verbose=True).splitlines()) == 3


def test_junit() -> None:
    suite = ET.fromstring(render_junit(VALIDATION)).find("testsuite")  # noqa: S314 - our own

    assert suite is not None
    assert junit_faults(render_junit(VALIDATION)) == []
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("7", "1", "1")
    cases = {f"{case.get('classname')}.{case.get('name')}": case for case in suite.findall("testcase")}
    assert set(cases) >= {"torch.import", "torch.cudnn-parts", "torch.conv2d.bfloat16.nchw", "torch.speed"}
    assert cases["torch.cudnn-parts"].find("failure") is not None
    assert cases["torch.speed"].find("system-out") is not None
    assert {one.get("name"): one.get("value") for one in suite.findall("properties/property")}["cudnn"] == "9.1.0"


texts = st.text(max_size=40)
checks = st.builds(
    Check,
    id=texts.map(lambda text: text or "x"),
    framework=st.none() | texts,
    status=st.sampled_from(["passed", "failed", "warning", "skipped"]),
    expected=st.none() | texts,
    observed=st.none() | texts,
    detail=texts,
    seconds=st.none() | st.floats(0, 1e6),
    gpu=st.none() | st.integers(0, 8),
    group=st.none() | texts,
    output=st.lists(texts, max_size=3).map(tuple),
)


@given(st.lists(checks, max_size=6).map(tuple))
def test_nothing_in_a_check_breaks_a_format(made: tuple[Check, ...]) -> None:
    validation = Validation(checks=made, loaded={"a": "\x1b[31m"}, gpus=(VisibleGpu(index=0, name="\x1b]0;x\x07"),))

    text = text_of(show_validation, validation)
    told = json.loads(render_json(encode_validation(validation)))
    suite = ET.fromstring(render_junit(validation)).find("testsuite")  # noqa: S314 - our own

    assert "\x1b" not in text
    assert len(told["checks"]) == len(made)
    assert suite is not None
    assert len(suite.findall("testcase")) == len(made)
