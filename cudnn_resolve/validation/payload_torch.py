"""PyTorch: its build, how it opens cuDNN, and how it computes. Python 3.6, standard library only."""

from cudnn_resolve.validation.payload import Unsupported, import_named
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import time_call
from cudnn_resolve.validation.payload_load import dotted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


class Framework(Base):
    """PyTorch on one device."""

    NUMPY = False
    WITNESS = "torch.profiler"

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """From torch.version, and the cuDNN extension."""
        built = {"cuda": module.version.cuda, "device": "cuda" if module.version.cuda else "cpu"}
        if getattr(module.version, "hip", None):
            built["device"] = "rocm"
        compiled = import_named("torch._C").__dict__["_cudnn"].getCompileVersion() if built["cuda"] else None
        if compiled:
            built["cudnn"] = dotted(compiled)
        return built

    @classmethod
    def opens(cls, module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """By comparing the loaded release with its own, as before the first convolution."""
        return "torch.backends.cudnn.version()" if module.backends.cudnn.version() else None

    def open(self) -> None:
        """Allocate a tensor."""
        self.device = "cpu" if self.is_cpu else "cuda"
        if not self.is_cpu:
            self.lib.zeros(1, device=self.device)

    def allow(self, case: "dict[str, Any]") -> None:
        """Switch TF32 on or off."""
        backends, tf32 = self.lib.backends, case["type"] == "tf32"
        if hasattr(backends.cudnn, "allow_tf32"):
            backends.cudnn.allow_tf32 = backends.cuda.matmul.allow_tf32 = tf32
        elif tf32:
            raise Unsupported("this PyTorch has no TF32")
        if case["type"] == "bfloat16" and not hasattr(self.lib, "bfloat16"):
            raise Unsupported("this PyTorch has no bfloat16")

    def tensor(self, case: "dict[str, Any]", name: str, _order: "Sequence[int] | None" = None) -> "Any":
        """Tensor on the device."""
        made = self.lib.tensor(case[name], dtype=self.lib.float64).reshape(case["shapes"][name])
        return made.to(dtype=getattr(self.lib, case["dtype"])).to(self.device)

    def listed(self, tensor: "Any", _order: "Sequence[int] | None" = None) -> "list[float]":
        """Elements of a tensor."""
        return tensor.detach().to(dtype=self.lib.float64).cpu().contiguous().reshape(-1).tolist()  # type: ignore[no-any-return]

    def with_layout(self, tensor: "Any", layout: str) -> "Any":
        """Same tensor in the memory format of a layout."""
        if layout == "nchw":
            return tensor
        if tensor.dim() == 3:  # one spatial dimension has no such format
            return tensor.transpose(1, 2).contiguous().transpose(1, 2)
        formats = {4: "channels_last", 5: "channels_last_3d"}
        return tensor.contiguous(memory_format=getattr(self.lib, formats[tensor.dim()]))

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution with its gradients."""
        x, w, dy = (self.with_layout(tensor, case["layout"]) for tensor in self.operands(case))
        options = {key: tuple(case[key]) for key in ("stride", "padding", "dilation")}
        function = getattr(self.lib.nn.functional, "conv{}{}d".format("_transpose" if case["transposed"] else "", len(case["size"])))
        y = function(x.requires_grad_(), w.requires_grad_(), groups=case["groups"], **options)
        # The gradient of sum(y * dy) with respect to y is exactly dy. Passing dy itself would import SymPy, a second or two.
        (y * dy).sum().backward()
        return self.results((y, x.grad, w.grad))

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Recurrent layer, forward."""
        layer = self.lib.nn.LSTM(case["channels"], case["filters"]).to(self.device)
        with self.lib.no_grad():
            layer.weight_ih_l0.copy_(self.tensor(case, "w"))
            layer.weight_hh_l0.copy_(self.tensor(case, "h"))
            layer.bias_ih_l0.copy_(self.tensor(case, "b"))
            layer.bias_hh_l0.zero_()
            y, _ = layer(self.tensor(case, "x"))
        return {"y": self.listed(y)}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Operations, and on a GPU kernels, from PyTorch's profiler."""
        profiler = getattr(self.lib, "profiler", None)
        if profiler is not None and hasattr(profiler, "profile") and hasattr(profiler, "ProfilerActivity"):
            kinds = profiler.ProfilerActivity
            profile = profiler.profile(activities=[kinds.CPU] if self.is_cpu else [kinds.CPU, kinds.CUDA])
        else:
            profile = self.lib.autograd.profiler.profile(use_cuda=not self.is_cpu)
        with profile:
            self.compute(case)
            if not self.is_cpu:
                self.lib.cuda.synchronize()
        return [str(event.key) for event in profile.key_averages()]

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution."""
        torch, device = self.lib, "cpu" if is_cpu else "cuda"
        torch.backends.cudnn.benchmark = True
        dtype = getattr(torch, work["dtype"])
        x = torch.randn(batch, *work["x"][1:], device=device, dtype=dtype)
        w = torch.randn(*work["w"], device=device, dtype=dtype)
        if not is_cpu:
            x, w = self.with_layout(x, work["layout"]), self.with_layout(w, work["layout"])

        def wait(_last: "Any") -> None:
            if not is_cpu:
                torch.cuda.synchronize()

        with torch.no_grad():
            return time_call(lambda: torch.nn.functional.conv2d(x, w, padding=work["padding"]), wait, work["seconds"])
