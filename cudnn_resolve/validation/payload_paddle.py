"""PaddlePaddle: its build, and how it computes. Python 3.6, standard library only."""

import json
import os
import tempfile

from cudnn_resolve.validation.payload import MOST_BYTES
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import axes_of, order_of, time_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


class Framework(Base):
    """PaddlePaddle on one device."""

    WITNESS = "paddle.profiler"
    ONLY_GPU = ("is not registered", "not implemented", "is not supported", "Unimplemented", "data layout", "DataLayout")

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """From its version module."""
        if not module.is_compiled_with_cuda():
            return {"device": "cpu"}
        return {"device": "cuda", "cuda": str(module.version.cuda()), "cudnn": str(module.version.cudnn())}

    def open(self) -> None:
        """Select the device."""
        self.lib.set_device("cpu" if self.is_cpu else "gpu:0")

    def allow(self, case: "dict[str, Any]") -> None:
        """Switch TF32 on or off."""
        base = getattr(self.lib, "base", None) or getattr(self.lib, "fluid", None)
        for name in ("set_cublas_switch", "set_cudnn_switch"):
            switch = getattr(getattr(base, "core", None), name, None)
            if switch is not None:
                switch(case["type"] == "tf32")

    def shortened(self, error: Exception) -> str:
        """Last line of an error, which follows a C++ trace."""
        return str(error).strip().splitlines()[-1][:200]

    def tensor(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Tensor on the device."""
        made = self.lib.to_tensor(self.array(case, name, order)).astype(case["dtype"])
        made.stop_gradient = False
        return made

    def fetch(self, tensor: "Any") -> "Any":
        """Copy to NumPy."""
        return tensor.astype("float32").numpy()

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution with its gradients; the order of the weights is the same in all layouts."""
        rank, order = len(case["size"]), order_of(case)
        x, w, dy = self.operands(case, order)
        options = {key: case[key] if rank > 1 else case[key][0] for key in ("stride", "padding", "dilation")}
        function = getattr(self.lib.nn.functional, "conv{}d{}".format(rank, "_transpose" if case["transposed"] else ""))
        y = function(x, w, groups=case["groups"], data_format=axes_of(case, "L"), **options)
        dx, dw = self.lib.grad([y], [x, w], [dy])
        return self.results((y, dx, dw), order)

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Recurrent layer, forward."""
        layer = self.lib.nn.LSTM(case["channels"], case["filters"], time_major=True)
        given = {"weight_ih_l0": "w", "weight_hh_l0": "h", "bias_ih_l0": "b"}
        for name, parameter in layer.named_parameters():
            short = given.get(name.rsplit(".", 1)[-1])
            shape = list(parameter.shape)
            parameter.set_value(self.array(case, short).reshape(shape) if short else self.numpy.zeros(shape, "float32"))
        y, _ = layer(self.tensor(case, "x"))
        return {"y": self.listed(y)}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Operations, and on a GPU kernels, from PaddlePaddle's profiler, without the duration after each name."""
        profiler = self.lib.profiler
        targets = [profiler.ProfilerTarget.CPU] + ([] if self.is_cpu else [profiler.ProfilerTarget.GPU])
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            path = os.path.join(folder, "trace.json")
            with profiler.Profiler(targets=targets, on_trace_ready=lambda profile: profile.export(path, format="json")):
                self.compute(case)
            with open(path, encoding="utf-8", errors="replace") as file:
                events = json.loads(file.read(MOST_BYTES)).get("traceEvents") or []
        return sorted({str(event["name"]).partition("[")[0] for event in events if isinstance(event, dict) and event.get("name")})

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution."""
        paddle = self.lib
        paddle.set_device("cpu" if is_cpu else "gpu:0")
        x = paddle.randn([batch, *work["x"][1:]]).astype(work["dtype"])
        w = paddle.randn(work["w"]).astype(work["dtype"])

        def wait(_last: "Any") -> None:
            if not is_cpu:
                paddle.device.cuda.synchronize()

        with paddle.no_grad():
            return time_call(lambda: paddle.nn.functional.conv2d(x, w, padding=work["padding"]), wait, work["seconds"])
