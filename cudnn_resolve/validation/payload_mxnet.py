"""MXNet: its build, and how it computes. Python 3.6, standard library only."""

import os
import sys
import tempfile

from cudnn_resolve.validation.payload import Unsupported
from cudnn_resolve.validation.payload_framework import Framework as Base

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


class Framework(Base):
    """MXNet on one device."""

    WITNESS = "MXNet"

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """From its list of features."""
        return {"device": "cuda" if module.runtime.Features().is_enabled("CUDA") else "cpu"}

    def open(self) -> None:
        """Allocate a tensor on the device."""
        self.device = self.lib.cpu(0) if self.is_cpu else self.lib.gpu(0)
        self.lib.nd.zeros((1,), ctx=self.device).wait_to_read()

    def scope(self) -> "Any":
        """Placement on the device."""
        return self.device

    def allow(self, case: "dict[str, Any]") -> None:
        """Refuse what MXNet lacks, and types that cannot be requested."""
        if case["type"] in ("bfloat16", "tf32"):
            raise Unsupported("MXNet has no {} that could be requested".format(case["type"]))
        if case["type"] == "float16" and self.is_cpu:
            raise Unsupported("MXNet computes float16 on GPUs only")
        if case["kind"] == "convolution" and case["layout"] != "nchw":
            raise Unsupported("MXNet's own layout has the channels first")

    def tensor(self, case: "dict[str, Any]", name: str, _order: "Sequence[int] | None" = None) -> "Any":
        """Tensor on the device."""
        return self.lib.nd.array(self.array(case, name), ctx=self.device, dtype=case["type"])

    def fetch(self, tensor: "Any") -> "Any":
        """Copy to NumPy."""
        return tensor.asnumpy()

    def matmul(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Matrix product."""
        return {"y": self.listed(self.lib.nd.dot(self.tensor(case, "x"), self.tensor(case, "w")))}

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution with its gradients."""
        x, w, dy = self.operands(case)
        x.attach_grad()
        w.attach_grad()
        options = {"kernel": case["kernel"], "stride": case["stride"], "pad": case["padding"], "dilate": case["dilation"]}
        operation = self.lib.nd.Deconvolution if case["transposed"] else self.lib.nd.Convolution
        with self.lib.autograd.record():
            y = operation(x, w, no_bias=True, num_filter=case["filters"], num_group=case["groups"], **options)
        y.backward(dy)
        return self.results((y, x.grad, w.grad))

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Recurrent layer, forward."""
        nd, width = self.lib.nd, case["filters"]
        parts = [self.tensor(case, name).reshape((-1,)) for name in ("w", "h", "b")] + [nd.zeros((4 * width,), ctx=self.device)]
        zero = nd.zeros((1, case["batch"], width), ctx=self.device)
        y = nd.RNN(self.tensor(case, "x"), nd.concat(*parts, dim=0), zero, zero, state_size=width, num_layers=1, mode="lstm")
        return {"y": self.listed(y)}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Build features of MXNet 1: its convolutions are cuDNN's if it was built with it, and it warns of each that is not.

        Source: src/operator/nn/convolution.cu of MXNet 1.9.1.
        """
        if not self.lib.runtime.Features().is_enabled("CUDNN"):
            return ["MXNet: built without cuDNN"]
        warnings = [line for line in stderr_of(lambda: self.compute(case)).splitlines() if "not supported by cudnn" in line]
        if warnings:
            return ["MXNet: " + line.rpartition("] ")[2].rpartition(": ")[2] for line in warnings]
        return ["MXNet: built with cuDNN, and no warning that it was not used"] if str(self.lib.__version__).startswith("1.") else []


def stderr_of(call: "Callable[[], Any]") -> str:
    """Capture what libraries print to standard error during a call; it is printed there afterwards all the same."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        saved = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            call()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            content = file.read(1 << 20)
            os.write(2, content)
    return content.decode("utf-8", "replace")
