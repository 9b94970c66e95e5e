"""pip's notices of what installed packages say of one another: noise, but for a cuDNN of another major."""

from __future__ import annotations

import pytest

from tests.written_logs import judged, loud

PIP = (
    'torch 2.4.1 requires nvidia-cudnn-cu12==9.1.0.70; sys_platform == "linux", but you have nvidia-cudnn-cu12 {} which is incompatible.\n'
)
CHECK = "tensorflow 2.19.0 has requirement nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == 'and-cuda', but you have nvidia-cudnn-cu12 {}.\n"
UV = "The package `torch` requires `nvidia-cudnn-cu12==9.1.0.70 ; sys_platform == 'linux'`, but `{}` is installed\n"
NOISE = "I tensorflow/core: could not open file to read NUMA node: /sys/bus/pci\n"


@pytest.mark.parametrize("line", [PIP, CHECK, UV])
def test_another_major_is_a_finding_and_the_same_one_is_none(line: str) -> None:
    told = judged(NOISE + line.format("8.9.7.29") + NOISE).findings[0]
    assert (told.cause, told.severity, told.undecided) == ("cudnn_major_mismatch", "error", None)
    assert "needs cuDNN 9." in told.summary
    assert "the cuDNN 8.9.7.29 wheel is installed" in told.summary
    assert told.evidence[0].line == 2
    assert not loud(judged(NOISE + line.format("9.5.0.50") + NOISE))


def test_a_failure_goes_before_the_notice() -> None:
    failure = "E cuda_dnn.cc:447] Loaded runtime CuDNN library: {} but source was compiled with: {}.  CuDNN library needs\n"
    assert judged(PIP.format("8.9.7.29") + failure.format("9.0.0", "9.1.0")).findings[0].cause == "cudnn_too_old_for_framework"
    # What is wanted is not there, what is installed is: with it the older one that is loaded stands before it.
    assert judged(PIP.format("8.9.7.29") + failure.format("8.1.0", "8.6.0")).findings[0].cause == "ld_path_shadowing"
