"""CuPy, which dropped its binding of cuDNN in CuPy 14: its build, and how it computes. Python 3.6, standard library only."""

from cudnn_resolve.validation.payload import Unsupported, import_named, try_call
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import time_call
from cudnn_resolve.validation.payload_load import cuda_text, cudnn_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Framework(Base):
    """CuPy on one GPU."""

    NUMPY = CPU_TOO = False

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """From its runtime, and its binding of cuDNN."""
        built = {"device": "cuda"}
        number = try_call(lambda: int(module.cuda.runtime.CUDA_VERSION)) or try_call(lambda: int(module.cuda.get_build_version()))
        if number:
            built["cuda"] = cuda_text(number)
        cudnn = try_call(lambda: int(module.cuda.cudnn.get_build_version()))
        if cudnn and cudnn > 0:
            built["cudnn"] = cudnn_text(cudnn)
        return built

    @classmethod
    def opens(cls, _module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """By importing its binding, which is linked against cuDNN."""
        import_named("cupy_backends.cuda.libs.cudnn")
        return "its binding of cuDNN"

    def open(self) -> None:
        """Compute something on the GPU, and import the binding if there is one."""
        self.lib.zeros((1,)).sum().item()
        self.cudnn, self.why = None, ""  # type: Any, str
        for name in (self.name + "x.cudnn", self.name + ".cudnn"):  # the second is the name before CuPy 8
            if self.cudnn is None:
                self.emit("step", "import {}".format(name))
                try:
                    self.cudnn = import_named(name)
                except Exception as error:
                    self.why = self.why or str(error)[:300]

    def allow(self, case: "dict[str, Any]") -> None:
        """Refuse what CuPy lacks, and types that cannot be requested."""
        if case["type"] in ("bfloat16", "tf32"):
            raise Unsupported("CuPy has no {} that could be requested".format(case["type"]))
        if case.get("kind") == "lstm":
            raise Unsupported("CuPy has no recurrent layer")
        if case.get("kind") != "matmul" and self.cudnn is None:
            raise Unsupported("this CuPy has no cuDNN: {}".format(self.why))
        if case.get("kind") == "convolution" and case["layout"] != "nchw":
            raise Unsupported("CuPy's convolutions have the channels first")

    def shape(self, case: "dict[str, Any]", name: str) -> "tuple[int, ...]":
        """Shape of a tensor, with at least two spatial dimensions."""
        shape = case["shapes"][name]
        return tuple(shape[:2]) + (1,) * (case["kind"] == "convolution" and len(shape) == 3) + tuple(shape[2:])

    def tensor(self, case: "dict[str, Any]", name: str, _order: "Sequence[int] | None" = None) -> "Any":
        """Tensor on the GPU."""
        return self.lib.array(case[name], dtype="float64").astype(case["type"]).reshape(self.shape(case, name))

    def fetch(self, tensor: "Any") -> "Any":
        """Copy to NumPy."""
        return self.lib.asnumpy(tensor)

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution with its gradients, by cuDNN's function for each; a transposed one is the gradient of another."""
        x, w, dy = self.operands(case)
        y, dx, dw = (self.lib.empty(self.shape(case, name), dtype=x.dtype) for name in ("y", "x", "w"))
        extra = 1 if len(case["size"]) == 1 else 0
        pads, strides, dilations = ((fill,) * extra + tuple(case[name]) for name, fill in (("padding", 0), ("stride", 1), ("dilation", 1)))
        geometry = (pads, strides, dilations, case["groups"])
        forward = {"auto_tune": False, "tensor_core": "never" if case["type"] == "float32" else "auto"}
        backward = dict(forward, deterministic=False)
        if case["transposed"]:
            self.cudnn.convolution_backward_data(w, x, None, y, *geometry, **backward)
            self.cudnn.convolution_forward(dy, w, None, dx, *geometry, **forward)
            self.cudnn.convolution_backward_filter(dy, x, dw, *geometry, **backward)
        else:
            self.cudnn.convolution_forward(x, w, None, y, *geometry, **forward)
            self.cudnn.convolution_backward_data(w, dy, None, dx, *geometry, **backward)
            self.cudnn.convolution_backward_filter(x, dy, dw, *geometry, **backward)
        return self.results((y, dx, dw))

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:  # noqa: ARG002 - it computes on GPUs only
        """Time one convolution."""
        dtype, pads = work["dtype"], (work["padding"],) * 2
        x, w = (self.lib.random.standard_normal(shape).astype(dtype) for shape in ([batch, *work["x"][1:]], work["w"]))
        y = self.lib.empty([batch, work["w"][0], *work["x"][2:]], dtype=dtype)

        def once() -> None:
            self.cudnn.convolution_forward(x, w, None, y, pads, (1, 1), (1, 1), 1, auto_tune=True, tensor_core="auto")

        return time_call(once, lambda _last: self.lib.cuda.Device().synchronize(), work["seconds"])
