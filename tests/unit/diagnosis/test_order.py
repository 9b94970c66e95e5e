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
        (MEMORY + END, "error"),  # no work is shown to have been done after it
        (GPU + MEMORY + END, "error"),
        (GPU + LIBRARY + END, "error"),
        (GPU + LIBRARY + "`Trainer.fit` stopped: `max_epochs=10` reached.\n", "warning"),
        (GPU + LIBRARY + epochs(1, 9), "warning"),
        (LIBRARY + epochs(1, 9) + END, "error"),  # without a GPU, for all that is known
        (GPU + END + LIBRARY, "error"),
        (GPU + LIBRARY + END + LIBRARY, "error"),
        (MEMORY + "Epoch 1/3 log of run 1 was kept\n" * 3, "error"),
        (MEMORY + "".join(f"worker-2 | {line}\n" for line in epochs(1, 5).splitlines()), "error"),
    ],
)
def test_what_comes_after_a_failure(log: str, severity: str) -> None:
    found = first(log)
    assert found.cause in ("out_of_memory", "cudnn_missing", "lib_not_on_path")
    assert found.severity == severity, found


def test_the_line_is_said_and_shown() -> None:
    found = first(GPU + MEMORY + END)
    assert "but afterwards the program succeeded (line 3)" in found.summary
    assert [one.line for one in found.evidence] == [2, 3]
    assert found.confidence <= 0.6
    assert judged(GPU + MEMORY + END).is_error
    assert "but afterwards the training continues (line 8)" in first(MEMORY + epochs(1, 7)).summary


@pytest.mark.parametrize(
    "end",
    [
        "Process finished with exit code 01\n",
        "Training finished with errors\n",
        "Training finished unsuccessfully\n",
        "ERROR: training ended because of an exception\n",
        "training completed: False\n",
        "Training done: 0 of 100 steps\n",
        "previous stage: pretraining finished\n",
        "job B: lint exited with code 0\n",
        "trainer-1 exited with code 1\nredis-1 exited with code 0\n",
        "[rank1]: Training finished\n",
        "evaluator-1  | Training finished.\n",
        "trainer exited with code 1\n" + END,
        "Traceback (most recent call last):\n" + END,
    ],
)
def test_what_is_no_good_end_of_the_program_that_failed(end: str) -> None:
    found = first(GPU + MEMORY + end)
    assert found.severity == "error"
    assert "succeeded" not in found.summary


@pytest.mark.parametrize(
    "line", ["trainer-1  | {}", "[rank0]: {}", "2026-05-01 10:00:01,123 - INFO - {}", "2026-05-01T10:00:01Z INFO train.py:88 {}"]
)
def test_a_good_end_is_known_behind_what_stands_before_it(line: str) -> None:
    log = line.format(MEMORY) + line.format(END)
    assert "the program succeeded" in first(log).summary
    assert "the program succeeded" in first(log.replace(" in 3h 12m", ".")).summary


def test_what_ended_the_program_goes_first() -> None:
    log = MEMORY + epochs(1, 9) + "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA versions\n"
    assert [one.cause for one in judged(log).findings][:2] == ["framework_pkg_mismatch", "out_of_memory"]
