"""Failed checks of GPU kernels: the first step is about the data that the check is of."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

ATEN = "../aten/src/ATen/native/cuda/{}: block: [0,0,0], thread: [3,0,0] Assertion `{}` failed.\n"
LABEL, TABLE, INDEX = "a label is outside", "an index is outside of its table", "the tensor that it selects"
PADDLE = "Error: /paddle/paddle/{}:10 Assertion `{}` failed. {}\n"


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (ATEN.format("Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d", "t >= 0 && t < n_classes"), LABEL),
        (ATEN.format("Indexing.cu:1146: indexSelectSmallIndex", "srcIndex < srcSelectDimSize"), TABLE),
        (ATEN.format("IndexKernelUtils.cu:16: vectorized_gather_kernel", "ind >=0 && ind < ind_dim_size && "), TABLE),
        (ATEN.format("ScatterGatherKernel.cu:144: operator()", 'idx_dim < index_size && "index out of bounds"'), INDEX),
        (ATEN.format("IndexKernel.cu:93: operator()", '-sizes[i] <= index && "index out of bounds"'), INDEX),
        (PADDLE.format("fluid/operators/math/cross_entropy.cu", "label[i] >= 0 && label[i] < D || label[i] == ignore_index", ""), LABEL),
        (PADDLE.format("phi/kernels/gpu/embedding_kernel.cu", "id < N", "Variable value (input) expected >= 0 and < 9, but got 9."), TABLE),
        ("RuntimeError: CUDA error: device-side assert triggered\n", "does not say which check failed"),
    ],
)
@pytest.mark.parametrize("more", ["", "RuntimeError: CUDA error: device-side assert triggered\n"])
def test_the_data_of_the_check_comes_before_the_trace(log: str, first: str, more: str) -> None:
    steps = judged(log + more).findings[0].remedy
    assert first in steps[0].text
    assert [step.command for step in steps] == [None, "export CUDA_LAUNCH_BLOCKING=1"]
