"""Where releases run and which of them share an environment, on the shipped tables."""

from __future__ import annotations

import pytest

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.resolution.joint_map import gpus, pair, reach
from cudnn_resolve.version import Capability

BOOK = open_book()
T4 = 1 + gpus(BOOK).index(Capability(7, 5))
A5000 = 1 + gpus(BOOK).index(Capability(8, 6))
K80 = 1 + gpus(BOOK).index(Capability(3, 7))
"""Places among the drivers, of which the first is that without a GPU."""


@pytest.mark.slow
def test_a_build_runs_on_the_pythons_and_gpus_that_it_has_code_for() -> None:
    found = {one.build.version: one.pythons for one in reach(BOOK, "onnxruntime") if one.build.cuda}

    assert set(found["1.20.2"]) == {"3.10", "3.11", "3.12", "3.13"}
    assert found["1.20.2"]["3.11"][0] == found["1.20.2"]["3.11"][T4] == "525.60.13"
    assert found["1.20.2"]["3.11"][K80] is None


@pytest.mark.slow
def test_a_build_runs_on_no_gpu_that_its_cuda_does_not_know() -> None:
    found = {one.build.version: one.pythons for one in reach(BOOK, "mxnet") if one.build.cuda and one.build.cuda.line == "10.2"}

    assert found["1.7.0.post1"]["3.10"][T4] is not None
    assert found["1.7.0.post1"]["3.10"][A5000] is None


def test_gpus_of_a_jetson_are_left_out() -> None:
    assert Capability(8, 7) not in gpus(BOOK)


@pytest.mark.slow
def test_two_releases_share_an_environment_with_an_override() -> None:
    found = pair(BOOK, "tensorflow==2.18.0", "torch==2.6.0")

    assert list(found.shared) == ["3.12", "3.11", "3.10", "3.9"]
    assert found.shared["3.11"].cudnn == "9.3.0.75"
    assert any(one.startswith("nvidia-cudnn-cu12 9.3.0.75 for torch") for one in found.shared["3.11"].overrides)
    assert found.shared["3.11"].drivers[T4] == "525.60.13"
    assert found.shared["3.11"].drivers[K80] is None
    assert found.why == ""


def test_why_two_releases_share_none() -> None:
    assert "and frameworks of one environment share both majors" in pair(BOOK, "tensorflow==2.15.1", "torch==2.6.0").why
    assert pair(BOOK, "tensorflow==2.4.4", "torch==2.6.0").why == "no Python has wheels of both"
