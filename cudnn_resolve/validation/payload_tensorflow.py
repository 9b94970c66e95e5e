"""TensorFlow 2: its build, how it opens cuDNN, and how it computes. Python 3.6, standard library only."""

import glob
import os
import re
import tempfile

from cudnn_resolve.validation.payload import MOST_BYTES, Unsupported
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import axes_of, order_of, time_call, version_tuple
from cudnn_resolve.validation.payload_load import mapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

PRINTABLE = re.compile(rb"[\x20-\x7e]{4,2000}")


class Framework(Base):
    """TensorFlow on one device."""

    WITNESS = "TensorFlow's profiler"
    ONLY_GPU = (
        *("only supports the NHWC", "only supports NHWC", "Depthwise convolution on CPU is only supported for NHWC"),
        *("not yet support dilation", "not supported on CPU", "only supports channel-last", "DataFormat", "data format"),
        *("Fused conv implementation does not support grouped", "No OpKernel was registered", "Could not find device for node"),
        "Conv3DBackpropInputOpV2",
    )

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """From its build info, which has only the major of cuDNN."""
        info = module.sysconfig.get_build_info()
        if not info.get("is_cuda_build"):
            return {"device": "cpu"}
        return {"device": "cuda", "cuda": info.get("cuda_version"), "cudnn": info.get("cudnn_version")}

    @classmethod
    def opens(cls, module: "Any", framework: "dict[str, Any]") -> "str | None":
        """By name from its own library, as it does once it sees a GPU."""
        path = framework.get("would_load")
        if not path:
            return None
        before = set(mapped())
        try:
            module.load_op_library(os.path.basename(path))
        except Exception:
            if set(mapped()) == before:
                raise
        return "TensorFlow's own loader"

    def prepare(self) -> None:
        """Hide all GPUs from a CPU run."""
        if self.is_cpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def open(self) -> None:
        """Check the release, and look for a GPU."""
        if version_tuple(self.lib.__version__) < (2,):
            raise RuntimeError("TensorFlow {} cannot be tested: only TensorFlow 2 is supported".format(self.lib.__version__))
        if not self.is_cpu and not self.lib.config.list_physical_devices("GPU"):
            raise RuntimeError("TensorFlow sees no GPU: {}".format(self.lib.sysconfig.get_build_info()))

    def scope(self) -> "Any":
        """Placement on the device."""
        return self.lib.device("/CPU:0" if self.is_cpu else "/GPU:0")

    def allow(self, case: "dict[str, Any]") -> None:
        """Switch TF32 on or off."""
        switch = getattr(self.lib.config.experimental, "enable_tensor_float_32_execution", None)
        if switch is not None:
            switch(case["type"] == "tf32")
        elif case["type"] == "tf32":
            raise Unsupported("this TensorFlow has no TF32")

    def tensor(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Tensor on the device."""
        return self.lib.cast(self.lib.constant(self.array(case, name, order)), getattr(self.lib, case["dtype"]))

    def fetch(self, tensor: "Any") -> "Any":
        """Copy to NumPy."""
        return self.lib.cast(tensor, self.lib.float64).numpy()

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution with its gradients. Weights have the taps first, then input and output channels."""
        order, weights = order_of(case), [*range(2, len(case["size"]) + 2), 1, 0]
        x, w, dy = self.operands(case, order, weights)
        with self.lib.GradientTape() as tape:
            tape.watch([x, w])
            y = self.transposed(case, x, w) if case["transposed"] else self.forward(case, x, w)
        dx, dw = tape.gradient(y, [x, w], output_gradients=dy)
        return self.results((y, dx, dw), order, weights)

    def per_axis(self, layout: str, space: "Any", other: "Any") -> "list[Any]":
        """One value per axis: those of `space` for spatial axes, `other` for batch and channels."""
        return [other, other, *space] if layout == "nchw" else [other, *space, other]

    def forward(self, case: "dict[str, Any]", x: "Any", w: "Any") -> "Any":
        """Convolution of an explicitly padded input."""
        tf, rank, layout = self.lib, len(case["size"]), case["layout"]
        x = tf.pad(x, self.per_axis(layout, [[pad, pad] for pad in case["padding"]], [0, 0]))
        options = {"padding": "VALID", "data_format": axes_of(case)}
        if rank == 1:
            return tf.nn.conv1d(x, w, stride=case["stride"][0], dilations=case["dilation"][0], **options)
        strides = self.per_axis(layout, case["stride"], 1)
        if case["groups"] == case["channels"] and rank == 2:
            # Filters of one channel are adjacent, as in PyTorch.
            kernel = tf.reshape(w, [*case["kernel"], case["channels"], case["filters"] // case["channels"]])
            return tf.nn.depthwise_conv2d(x, kernel, strides=strides, dilations=case["dilation"], **options)
        dilations = self.per_axis(layout, case["dilation"], 1)
        return getattr(tf.nn, "conv{}d".format(rank))(x, w, strides=strides, dilations=dilations, **options)

    def transposed(self, case: "dict[str, Any]", x: "Any", w: "Any") -> "Any":
        """Transposed convolution, with the padding cropped from its output."""
        layout, pads, out = case["layout"], case["padding"], case["shapes"]["y"]

        def shape(space: "Sequence[int]") -> "list[int]":
            return [out[0], out[1], *space] if layout == "nchw" else [out[0], *space, out[1]]

        whole = shape([size + 2 * pad for size, pad in zip(out[2:], pads)])
        strides = self.per_axis(layout, case["stride"], 1)
        y = self.lib.nn.conv2d_transpose(x, w, whole, strides, padding="VALID", data_format=axes_of(case))
        return self.lib.slice(y, self.per_axis(layout, pads, 0), shape(out[2:]))

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Keras's recurrent layer, which uses cuDNN where it can."""
        layer = self.lib.keras.layers.LSTM(case["filters"], return_sequences=True)
        x = self.tensor(case, "x", (1, 0, 2))
        layer.build(x.shape)
        w, h, b = (self.array(case, name) for name in ("w", "h", "b"))
        layer.set_weights([w.T, h.T, b])
        return {"y": self.listed(layer(x), (1, 0, 2))}

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Printable strings in the output of TensorFlow's profiler: operations and kernels."""
        names = set()  # type: set[str]
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            self.lib.profiler.experimental.start(folder)
            try:
                self.compute(case)
            finally:
                self.lib.profiler.experimental.stop()
            for path in glob.glob(os.path.join(glob.escape(folder), "**", "*.xplane.pb"), recursive=True):
                with open(path, "rb") as file:
                    names.update(found.decode("ascii") for found in PRINTABLE.findall(file.read(MOST_BYTES)))
        return sorted(names)

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution."""
        tf, dtype, pad = self.lib, getattr(self.lib, work["dtype"]), [work["padding"]] * 2
        shape = [batch, work["x"][2], work["x"][3], work["x"][1]]
        weights = [work["w"][2], work["w"][3], work["w"][1], work["w"][0]]
        with tf.device("/CPU:0" if is_cpu else "/GPU:0"):
            x = tf.cast(tf.random.normal(shape), dtype)
            w = tf.cast(tf.random.normal(weights), dtype)
            pads = [[0, 0], pad, pad, [0, 0]]
            once = tf.function(lambda: tf.nn.conv2d(x, w, strides=1, padding=pads)[:, 0, 0, 0], autograph=False)
            return time_call(once, lambda last: last.numpy(), work["seconds"])
