"""JAX: what it was built with, how it opens cuDNN, and how it computes. Python 3.6, standard library only."""

import os
import re

from cudnn_resolve.validation.payload import MOST_BYTES, Unsupported, import_named, quietly, timed
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import order_of
from cudnn_resolve.validation.payload_load import cuda_text, cudnn_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

SPACE = {1: "W", 2: "HW", 3: "DHW"}
TARGET = re.compile(r'custom_call_target="([^"\n]{1,120})"')
FUSION = re.compile(r'kind"?: ?"(__[^"\n]{1,120})"')
PLAIN = re.compile(r"= [^=\n]{1,400}? (convolution)\(")


def versions_module() -> "Any":
    """The module of versions in the CUDA plugin, or in an older jaxlib itself; None in a build for the CPU."""
    for name in ("jax_cuda13_plugin._versions", "jax_cuda12_plugin._versions", "jaxlib.cuda._versions"):
        module = quietly(import_named, name)
        if module is not None:
            return module
    return None


def hlo_names(text: str) -> "list[str]":
    """The library calls of a compiled XLA program, and `convolution` where it holds one that is no call."""
    found = {match.group(1) for pattern in (TARGET, FUSION, PLAIN) for match in pattern.finditer(text[:MOST_BYTES])}
    return sorted(found)


class Framework(Base):
    """JAX on one device."""

    WITNESS = "the compiled HLO"

    @classmethod
    def built(cls, _module: "Any") -> "dict[str, Any]":
        """Ask the module of versions."""
        versions = versions_module()
        if versions is None:
            return {"device": "cpu"}
        built = {"device": "cuda"}
        for key, name, text in (("cuda", "cuda_runtime_build_version", cuda_text), ("cudnn", "cudnn_build_version", cudnn_text)):
            number = quietly(lambda name=name: int(getattr(versions, name)()))
            if number:
                built[key] = text(number)
        return built

    @classmethod
    def opens(cls, _module: "Any", framework: "dict[str, Any]") -> "str | None":
        """Have its plugin open NVIDIA's wheels by path, as it does when it starts, and its module of versions ask the library that came."""
        if framework.get("plugin"):
            plugin = import_named("jax_plugins." + framework["plugin"])
            preload = getattr(plugin, "_load_nvidia_libraries", None) or getattr(plugin, "_load", None)
            if preload is not None:
                quietly(preload)
        versions = versions_module()
        if versions is None:
            return None
        versions.cudnn_get_version()
        return "cudnn_get_version() of its plugin"

    def prepare(self) -> None:
        """Keep it to the CPU where that is wanted."""
        if self.is_cpu:
            os.environ["JAX_PLATFORMS"] = "cpu"

    def open(self) -> None:
        """Ask for the device; JAX raises where it has none of that kind."""
        import_named(self.name + ".lax")
        self.device = self.lib.devices("cpu" if self.is_cpu else "gpu")[0]
        self.last = None  # type: Any

    def precision(self, case: "dict[str, Any]") -> "Any":
        """What the products may be rounded to."""
        return self.lib.lax.Precision.HIGHEST if case["type"] == "float32" else self.lib.lax.Precision.DEFAULT

    def tensor(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Put a tensor on the device."""
        made = self.lib.numpy.asarray(self.array(case, name, order), dtype=getattr(self.lib.numpy, case["dtype"]))
        return self.lib.device_put(made, self.device)

    def fetch(self, tensor: "Any") -> "Any":
        """Bring a tensor back."""
        return self.numpy.asarray(tensor.astype("float32"))

    def matmul(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A product of matrices."""
        precision = self.precision(case)
        multiply = self.lib.jit(lambda x, w: self.lib.numpy.matmul(x, w, precision=precision))
        return {"y": self.listed(multiply(self.tensor(case, "x"), self.tensor(case, "w")))}

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients; where a tensor has the channels last, the weights have theirs last, too."""
        rank, first = len(case["size"]), case["layout"] == "nchw"
        there = order_of(case)
        names, weights = ("NC" + SPACE[rank], "OI" + SPACE[rank]) if first else ("N" + SPACE[rank] + "C", SPACE[rank] + "IO")
        order = there if first else [*range(2, rank + 2), 1, 0]
        words = {"dimension_numbers": (names, weights, names), "precision": self.precision(case), "feature_group_count": case["groups"]}
        pads = [(pad, pad) for pad in case["padding"]]
        rows = zip(case["kernel"], case["dilation"], case["padding"])
        turned = [(step * (kernel - 1) - pad,) * 2 for kernel, step, pad in rows]
        lax, jnp = self.lib.lax, self.lib.numpy

        def forward(x: "Any", w: "Any") -> "Any":
            if not case["transposed"]:
                return lax.conv_general_dilated(x, w, case["stride"], pads, rhs_dilation=case["dilation"], **words)
            # As the gradient of a convolution: the input widened by the stride, the kernel turned round, its channels exchanged.
            mirrored = jnp.flip(w, tuple(range(2, rank + 2)) if first else tuple(range(rank)))
            mirrored = jnp.swapaxes(mirrored, *((0, 1) if first else (rank, rank + 1)))
            steps = {"lhs_dilation": case["stride"], "rhs_dilation": case["dilation"]}
            return lax.conv_general_dilated(x, mirrored, (1,) * rank, turned, **steps, **words)

        def everything(x: "Any", w: "Any", dy: "Any") -> "Any":
            y, pull = self.lib.vjp(forward, x, w)
            dx, dw = pull(dy)
            return y, dx, dw

        given = self.tensor(case, "x", there), self.tensor(case, "w", order), self.tensor(case, "dy", there)
        self.last = self.lib.jit(everything), given
        y, dx, dw = self.last[0](*given)
        return {"y": self.listed(y, there), "dx": self.listed(dx, there), "dw": self.listed(dw, order)}

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer by cuDNN, where this JAX has one."""
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
        words = {"input_size": case["channels"], "hidden_size": width, "num_layers": 1, "dropout": 0.0, "bidirectional": False}
        try:
            y, _, _ = rnn.lstm(x, zero, zero, weights, lengths, precision=self.lib.lax.Precision.HIGHEST, **words)
        except TypeError:
            y, _, _ = rnn.lstm(x, zero, zero, weights, lengths, **words)
        return {"y": self.listed(y, (1, 0, 2))}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Read what XLA made of a case."""
        self.compute(case)
        function, given = self.last
        return hlo_names(function.lower(*given).compile().as_text())

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution."""
        jnp, lax, precision = self.lib.numpy, self.lib.lax, self.precision(work)
        device = self.lib.devices("cpu")[0] if is_cpu else self.device
        pads, names = [(work["padding"],) * 2] * 2, ("NHWC", "HWIO", "NHWC")
        once = self.lib.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), pads, dimension_numbers=names, precision=precision))
        random = self.numpy.random.RandomState(0)
        shapes = ([batch, work["x"][2], work["x"][3], work["x"][1]], [work["w"][2], work["w"][3], work["w"][1], work["w"][0]])
        kind = getattr(jnp, work["dtype"])
        x, w = (self.lib.device_put(jnp.asarray(random.randn(*shape).astype("float32"), dtype=kind), device) for shape in shapes)
        return timed(lambda: once(x, w), lambda last: last.block_until_ready(), work["seconds"])
