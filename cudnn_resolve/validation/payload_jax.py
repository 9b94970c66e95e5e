"""JAX: its build, how it opens cuDNN, and how it computes. Python 3.6, standard library only."""

import os
import re

from cudnn_resolve.validation.payload import MOST_BYTES, Unsupported, import_named, try_call
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import axes_of, order_of, time_call
from cudnn_resolve.validation.payload_load import cuda_text, cudnn_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

TARGET = re.compile(r'custom_call_target="([^"\n]{1,120})"')
FUSION = re.compile(r'kind"?: ?"(__[^"\n]{1,120})"')
PLAIN = re.compile(r"= [^=\n]{1,400}? (convolution)\(")


def versions_module() -> "Any":
    """Version module of the CUDA plugin, or of an older jaxlib; None in a build for the CPU."""
    for name in ("jax_cuda13_plugin._versions", "jax_cuda12_plugin._versions", "jaxlib.cuda._versions"):
        module = try_call(import_named, name)
        if module is not None:
            return module
    return None


def hlo_names(text: str) -> "list[str]":
    """Library calls of a compiled XLA program, and `convolution` for any that is not a call."""
    return sorted({match.group(1) for pattern in (TARGET, FUSION, PLAIN) for match in pattern.finditer(text[:MOST_BYTES])})


class Framework(Base):
    """JAX on one device."""

    WITNESS = "the compiled HLO"

    @classmethod
    def built(cls, _module: "Any") -> "dict[str, Any]":
        """From its version module."""
        versions = versions_module()
        if versions is None:
            return {"device": "cpu"}
        built = {"device": "cuda"}
        for key, name, text in (("cuda", "cuda_runtime_build_version", cuda_text), ("cudnn", "cudnn_build_version", cudnn_text)):
            number = try_call(lambda name=name: int(getattr(versions, name)()))
            if number:
                built[key] = text(number)
        return built

    @classmethod
    def opens(cls, _module: "Any", framework: "dict[str, Any]") -> "str | None":
        """By path from NVIDIA's wheels through its plugin, as on start-up; the version module then asks the loaded library."""
        if framework.get("plugin"):
            plugin = import_named("jax_plugins." + framework["plugin"])
            preload = getattr(plugin, "_load_nvidia_libraries", None) or getattr(plugin, "_load", None)
            if preload is not None:
                try_call(preload)
        versions = versions_module()
        if versions is None:
            return None
        versions.cudnn_get_version()
        return "cudnn_get_version() of its plugin"

    def prepare(self) -> None:
        """Keep a CPU run off the GPUs."""
        if self.is_cpu:
            os.environ["JAX_PLATFORMS"] = "cpu"

    def open(self) -> None:
        """Request the device; JAX raises if there is none of that kind."""
        import_named(self.name + ".lax")
        self.device = self.lib.devices("cpu" if self.is_cpu else "gpu")[0]
        self.last = None  # type: Any

    def precision(self, case: "dict[str, Any]") -> "Any":
        """Permitted rounding of the factors."""
        return self.lib.lax.Precision.HIGHEST if case["type"] == "float32" else self.lib.lax.Precision.DEFAULT

    def tensor(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Tensor on the device."""
        made = self.lib.numpy.asarray(self.array(case, name, order), dtype=getattr(self.lib.numpy, case["dtype"]))
        return self.lib.device_put(made, self.device)

    def fetch(self, tensor: "Any") -> "Any":
        """Copy to NumPy."""
        return self.numpy.asarray(tensor.astype("float32"))

    def matmul(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Matrix product."""
        precision = self.precision(case)
        multiply = self.lib.jit(lambda x, w: self.lib.numpy.matmul(x, w, precision=precision))
        return {"y": self.listed(multiply(self.tensor(case, "x"), self.tensor(case, "w")))}

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution with its gradients; with channels last, the weights have theirs last, too."""
        rank, is_first = len(case["size"]), case["layout"] == "nchw"
        order = order_of(case)
        axes = axes_of(case)
        space = axes[2:] if is_first else axes[1:-1]
        weight_axes, weight_order = ("OI" + space, order) if is_first else (space + "IO", [*range(2, rank + 2), 1, 0])
        options = {"dimension_numbers": (axes, weight_axes, axes), "precision": self.precision(case), "feature_group_count": case["groups"]}
        pads = [(pad, pad) for pad in case["padding"]]
        rows = zip(case["kernel"], case["dilation"], case["padding"])
        transposed_pads = [(step * (kernel - 1) - pad,) * 2 for kernel, step, pad in rows]
        lax, jnp = self.lib.lax, self.lib.numpy

        def forward(x: "Any", w: "Any") -> "Any":
            if not case["transposed"]:
                return lax.conv_general_dilated(x, w, case["stride"], pads, rhs_dilation=case["dilation"], **options)
            # As the gradient of a convolution: the input dilated by the stride, the kernel flipped, its channels swapped.
            flipped = jnp.flip(w, tuple(range(2, rank + 2)) if is_first else tuple(range(rank)))
            flipped = jnp.swapaxes(flipped, *((0, 1) if is_first else (rank, rank + 1)))
            dilations = {"lhs_dilation": case["stride"], "rhs_dilation": case["dilation"]}
            return lax.conv_general_dilated(x, flipped, (1,) * rank, transposed_pads, **dilations, **options)

        def everything(x: "Any", w: "Any", dy: "Any") -> "Any":
            y, pull = self.lib.vjp(forward, x, w)
            dx, dw = pull(dy)
            return y, dx, dw

        operands = self.operands(case, order, weight_order)
        self.last = self.lib.jit(everything), operands
        return self.results(self.last[0](*operands), order, weight_order)

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """CuDNN's recurrent layer, in releases of JAX that have it."""
        if self.is_cpu:
            raise Unsupported("JAX's recurrent layer is cuDNN's own, and needs a GPU")
        try:
            rnn = import_named("{}.experimental.rnn".format(self.name))
        except ImportError as error:
            raise Unsupported("this JAX has no jax.experimental.rnn") from error
        numpy, jnp, width, batch = self.numpy, self.lib.numpy, case["filters"], case["batch"]
        parts = [case["w"], case["h"], case["b"], [0.0] * (4 * width)]
        weights = jnp.asarray(numpy.concatenate([numpy.array(part, dtype="float32") for part in parts]))
        x = self.tensor(case, "x", (1, 0, 2))
        zero = jnp.zeros((1, batch, width), jnp.float32)
        lengths = jnp.full((batch,), case["size"][0], jnp.int32)
        options = {"input_size": case["channels"], "hidden_size": width, "num_layers": 1, "dropout": 0.0, "bidirectional": False}
        try:
            y, _, _ = rnn.lstm(x, zero, zero, weights, lengths, precision=self.lib.lax.Precision.HIGHEST, **options)
        except TypeError:
            y, _, _ = rnn.lstm(x, zero, zero, weights, lengths, **options)
        return {"y": self.listed(y, (1, 0, 2))}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Calls in the program that XLA compiled for a case."""
        self.compute(case)
        function, operands = self.last
        return hlo_names(function.lower(*operands).compile().as_text())

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution."""
        jnp, lax, precision = self.lib.numpy, self.lib.lax, self.precision(work)
        device = self.lib.devices("cpu")[0] if is_cpu else self.device
        pads, axes = [(work["padding"],) * 2] * 2, ("NHWC", "HWIO", "NHWC")
        once = self.lib.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), pads, dimension_numbers=axes, precision=precision))
        random = self.numpy.random.RandomState(0)
        shapes = ([batch, work["x"][2], work["x"][3], work["x"][1]], [work["w"][2], work["w"][3], work["w"][1], work["w"][0]])
        dtype = getattr(jnp, work["dtype"])
        x, w = (self.lib.device_put(jnp.asarray(random.randn(*shape).astype("float32"), dtype=dtype), device) for shape in shapes)
        return time_call(lambda: once(x, w), lambda last: last.block_until_ready(), work["seconds"])
