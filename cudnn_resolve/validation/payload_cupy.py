"""CuPy, whose binding of cuDNN went with CuPy 14: what it was built with, and how it computes. Python 3.6, standard library only."""

from cudnn_resolve.validation.payload import import_named, quietly, timed
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_load import cuda_text, cudnn_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Framework(Base):
    """CuPy on one GPU."""

    TITLE = "CuPy"
    NUMPY = CPU_TOO = False
    WITHOUT = ("bfloat16", "tf32")

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """Ask its runtime, and its binding of cuDNN."""
        built = {"device": "cuda"}
        number = quietly(lambda: int(module.cuda.runtime.CUDA_VERSION)) or quietly(lambda: int(module.cuda.get_build_version()))
        if number:
            built["cuda"] = cuda_text(number)
        cudnn = quietly(lambda: int(module.cuda.cudnn.get_build_version()))
        if cudnn and cudnn > 0:
            built["cudnn"] = cudnn_text(cudnn)
        return built

    @classmethod
    def opens(cls, _module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """Import its binding, which is linked against cuDNN."""
        import_named("cupy_backends.cuda.libs.cudnn")
        return "its binding of cuDNN"

    def open(self) -> None:
        """Compute on the card, and import the binding where there is one."""
        self.lib.zeros((1,)).sum().item()
        self.cudnn, self.why = None, ""  # type: Any, str
        for name in (self.name + "x.cudnn", self.name + ".cudnn"):  # the second is the name before CuPy 8
            if self.cudnn is None:
                self.tell("step", "import {}".format(name))
                try:
                    self.cudnn = import_named(name)
                except Exception as error:
                    self.why = self.why or str(error)[:300]

    def refusal(self, case: "dict[str, Any]") -> str:
        """Say what this CuPy has not."""
        if case.get("kind") == "lstm":
            return "CuPy has no recurrent layer"
        if case.get("kind") != "matmul" and self.cudnn is None:
            return "this CuPy has no cuDNN: {}".format(self.why)
        return "CuPy's convolutions have the channels first" if case.get("kind") == "convolution" and case["layout"] != "nchw" else ""

    def shape(self, case: "dict[str, Any]", name: str) -> "tuple[int, ...]":
        """The shape of a tensor, with at least two dimensions of space."""
        shape = case["shapes"][name]
        return tuple(shape[:2]) + (1,) * (case["kind"] == "convolution" and len(shape) == 3) + tuple(shape[2:])

    def tensor(self, case: "dict[str, Any]", name: str, _order: "Sequence[int] | None" = None) -> "Any":
        """Put a tensor on the card."""
        return self.lib.array(case[name], dtype="float64").astype(case["type"]).reshape(self.shape(case, name))

    def fetch(self, tensor: "Any") -> "Any":
        """Bring a tensor back."""
        return self.lib.asnumpy(tensor)

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients, each by cuDNN's function for it; a transposed one is the gradient of another."""
        x, w, dy = (self.tensor(case, name) for name in ("x", "w", "dy"))
        y, dx, dw = (self.lib.empty(self.shape(case, name), dtype=x.dtype) for name in ("y", "x", "w"))
        extra = 1 if len(case["size"]) == 1 else 0
        pads, strides, steps = ((fill,) * extra + tuple(case[name]) for name, fill in (("padding", 0), ("stride", 1), ("dilation", 1)))
        words = (pads, strides, steps, case["groups"])
        forward = {"auto_tune": False, "tensor_core": "never" if case["type"] == "float32" else "auto"}
        backward = dict(forward, deterministic=False)
        if case["transposed"]:
            self.cudnn.convolution_backward_data(w, x, None, y, *words, **backward)
            self.cudnn.convolution_forward(dy, w, None, dx, *words, **forward)
            self.cudnn.convolution_backward_filter(dy, x, dw, *words, **backward)
        else:
            self.cudnn.convolution_forward(x, w, None, y, *words, **forward)
            self.cudnn.convolution_backward_data(w, dy, None, dx, *words, **backward)
            self.cudnn.convolution_backward_filter(x, dy, dw, *words, **backward)
        return {"y": self.listed(y), "dx": self.listed(dx), "dw": self.listed(dw)}

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:  # noqa: ARG002 - it has nothing for the CPU
        """Time one convolution."""
        kind, pads = work["dtype"], (work["padding"],) * 2
        x, w = (self.lib.random.standard_normal(shape).astype(kind) for shape in ([batch, *work["x"][1:]], work["w"]))
        y = self.lib.empty([batch, work["w"][0], *work["x"][2:]], dtype=kind)

        def once() -> None:
            self.cudnn.convolution_forward(x, w, None, y, pads, (1, 1), (1, 1), 1, auto_tune=True, tensor_core="auto")

        return timed(once, lambda _last: self.lib.cuda.Device().synchronize(), work["seconds"])
