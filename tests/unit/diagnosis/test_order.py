"""A failure after which the program went on weighs less than one with which it ended."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.model import Finding
from tests.written_logs import judged

GPU = "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 14000 MB memory: -> device: 0, name: Tesla T4\n"
MEMORY = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB\n"
LIBRARY = "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8: cannot open shared object file\n"
END = "Training finished in 3h 12m\n"


def epochs(first: int, last: int) -> str:
    return "".join(f"Epoch {one}/100 loss 0.{one}\n" for one in range(first, last + 1))


def first(log: str) -> Finding:
    return judged(log).findings[0]


@pytest.mark.parametrize(
    ("log", "severity"),
    [
        (epochs(1, 4) + MEMORY, "error"),
        (epochs(1, 4) + MEMORY + epochs(5, 9), "warning"),
        (epochs(1, 4) + MEMORY + epochs(5, 6), "error"),  # of other ranks, or about to fail
        (MEMORY + END, "warning"),
        (GPU + MEMORY + END, "info"),
        (GPU + LIBRARY + END, "info"),
        (GPU + LIBRARY + epochs(1, 9), "warning"),
        (LIBRARY + epochs(1, 9) + END, "error"),  # without a GPU, for all that is known
        (GPU + END + LIBRARY, "error"),
        (GPU + LIBRARY + END + LIBRARY, "error"),
        (GPU + LIBRARY + "Process finished with exit code 0\n", "info"),
        (GPU + LIBRARY + "Process finished with exit code 01\n", "error"),
        (GPU + LIBRARY + "Training finished with errors\n", "error"),
    ],
)
def test_what_comes_after_a_failure(log: str, severity: str) -> None:
    found = first(log)
    assert found.cause in ("out_of_memory", "cudnn_missing", "lib_not_on_path")
    assert found.severity == severity, found


def test_the_line_is_said_and_shown() -> None:
    found = first(GPU + MEMORY + END)
    assert "yet after it the program came to a good end (line 3)" in found.summary
    assert [one.line for one in found.evidence] == [2, 3]
    assert found.confidence <= 0.6
    assert "yet after it the training goes on (line 8)" in first(MEMORY + epochs(1, 7)).summary


def test_what_ended_the_program_goes_first() -> None:
    log = MEMORY + epochs(1, 9) + "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA versions\n"
    assert [one.cause for one in judged(log).findings][:2] == ["framework_pkg_mismatch", "out_of_memory"]
