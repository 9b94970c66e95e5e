"""PyTorch: what it was built with, how it opens cuDNN, and how it computes. Python 3.6, standard library only."""

from cudnn_resolve.validation.payload import Unsupported, import_named, timed
from cudnn_resolve.validation.payload_framework import Framework as Base
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
        """Ask the module of versions, and the extension for cuDNN."""
        built = {"cuda": module.version.cuda, "device": "cuda" if module.version.cuda else "cpu"}
        if getattr(module.version, "hip", None):
            built["device"] = "rocm"
        compiled = import_named("torch._C").__dict__["_cudnn"].getCompileVersion() if built["cuda"] else None
        if compiled:
            built["cudnn"] = dotted(compiled)
        return built

    @classmethod
    def opens(cls, module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """Have it compare the loaded release with its own, as it does before the first convolution."""
        return "torch.backends.cudnn.version()" if module.backends.cudnn.version() else None

    def open(self) -> None:
        """Put a tensor on the card."""
        self.device = "cpu" if self.is_cpu else "cuda"
        if not self.is_cpu:
            self.lib.zeros(1, device=self.device)

    def allow(self, case: "dict[str, Any]") -> None:
        """Switch TF32 on or off."""
        backends, tf32 = self.lib.backends, case["type"] == "tf32"
        if hasattr(backends.cudnn, "allow_tf32"):
            backends.cudnn.allow_tf32 = backends.cuda.matmul.allow_tf32 = tf32
        elif tf32:
            raise Unsupported("this PyTorch knows nothing of TF32")
        if case["type"] == "bfloat16" and not hasattr(self.lib, "bfloat16"):
            raise Unsupported("this PyTorch has no bfloat16")

    def tensor(self, case: "dict[str, Any]", name: str, _order: "Sequence[int] | None" = None) -> "Any":
        """Put a tensor on the device."""
        made = self.lib.tensor(case[name], dtype=self.lib.float64).reshape(case["shapes"][name])
        return made.to(dtype=getattr(self.lib, case["dtype"])).to(self.device)

    def listed(self, tensor: "Any", _order: "Sequence[int] | None" = None) -> "list[float]":
        """List the elements."""
        return tensor.detach().to(dtype=self.lib.float64).cpu().contiguous().reshape(-1).tolist()  # type: ignore[no-any-return]

    def laid(self, tensor: "Any", layout: str) -> "Any":
        """The same tensor with the channels last in memory."""
        if layout == "nchw":
            return tensor
        if tensor.dim() == 3:  # there is no such format of one dimension
            return tensor.transpose(1, 2).contiguous().transpose(1, 2)
        formats = {4: "channels_last", 5: "channels_last_3d"}
        return tensor.contiguous(memory_format=getattr(self.lib, formats[tensor.dim()]))

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients."""
        name = "conv{}{}d".format("_transpose" if case["transposed"] else "", len(case["size"]))
        x, w, dy = (self.laid(self.tensor(case, name), case["layout"]) for name in ("x", "w", "dy"))
        words = {key: tuple(case[key]) for key in ("stride", "padding", "dilation")}
        y = getattr(self.lib.nn.functional, name)(x.requires_grad_(), w.requires_grad_(), groups=case["groups"], **words)
        # The gradient of the sum of y * dy with respect to y is dy, exactly. To hand dy over would import SymPy, a second or two.
        (y * dy).sum().backward()
        return {"y": self.listed(y), "dx": self.listed(x.grad), "dw": self.listed(w.grad)}

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer, forward."""
        layer = self.lib.nn.LSTM(case["channels"], case["filters"]).to(self.device)
        with self.lib.no_grad():
            layer.weight_ih_l0.copy_(self.tensor(case, "w"))
            layer.weight_hh_l0.copy_(self.tensor(case, "h"))
            layer.bias_ih_l0.copy_(self.tensor(case, "b"))
            layer.bias_hh_l0.zero_()
            y, _ = layer(self.tensor(case, "x"))
        return {"y": self.listed(y)}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Ask PyTorch's profiler for the operations, and on a GPU for the kernels."""
        profiler = getattr(self.lib, "profiler", None)
        if profiler is not None and hasattr(profiler, "profile") and hasattr(profiler, "ProfilerActivity"):
            kinds = profiler.ProfilerActivity
            seen = profiler.profile(activities=[kinds.CPU] if self.is_cpu else [kinds.CPU, kinds.CUDA])
        else:
            seen = self.lib.autograd.profiler.profile(use_cuda=not self.is_cpu)
        with seen:
            self.compute(case)
            if not self.is_cpu:
                self.lib.cuda.synchronize()
        return [str(one.key) for one in seen.key_averages()]

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution."""
        torch, device = self.lib, "cpu" if is_cpu else "cuda"
        torch.backends.cudnn.benchmark = True
        kind = getattr(torch, work["dtype"])
        x = torch.randn(batch, *work["x"][1:], device=device, dtype=kind)
        w = torch.randn(*work["w"], device=device, dtype=kind)
        if not is_cpu:
            x, w = self.laid(x, work["layout"]), self.laid(w, work["layout"])

        def wait(_last: "Any") -> None:
            if not is_cpu:
                torch.cuda.synchronize()

        with torch.no_grad():
            return timed(lambda: torch.nn.functional.conv2d(x, w, padding=work["padding"]), wait, work["seconds"])
