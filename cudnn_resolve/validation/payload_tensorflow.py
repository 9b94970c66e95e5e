"""Computes the cases with TensorFlow 2. Python 3.6 grammar, standard library only."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMATS = {(1, "nchw"): "NCW", (2, "nchw"): "NCHW", (3, "nchw"): "NCDHW", (1, "nhwc"): "NWC", (2, "nhwc"): "NHWC", (3, "nhwc"): "NDHWC"}
ONLY_GPU = (
    "only supports the NHWC",
    "only supports NHWC",
    "Depthwise convolution on CPU is only supported for NHWC",
    "not yet support dilation",
    "not supported on CPU",
    "only supports channel-last",
    "DataFormat",
    "data format",
    "Fused conv implementation does not support grouped",
    "No OpKernel was registered",
    "Could not find device for node",
    "Conv3DBackpropInputOpV2",
)
"""What TensorFlow says of what it computes on GPUs only."""


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what TensorFlow computes on the device of the question."""
    shared = sys.modules["payload_run"].sibling("payload_case")
    if question["device"] == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    tell("step", "import tensorflow")
    tensorflow = __import__(question["module"])
    if shared.version_tuple(tensorflow.__version__) < (2,):
        raise RuntimeError("TensorFlow {} cannot be tested: its graphs are of another kind".format(tensorflow.__version__))
    if question["device"] != "cpu":
        tell("step", "tensorflow opens the GPU")
        if not tensorflow.config.list_physical_devices("GPU"):
            raise RuntimeError("TensorFlow sees no GPU: {}".format(tensorflow.sysconfig.get_build_info()))
    bench = Bench(tensorflow, __import__(question["numpy"]), question["device"], shared)
    tell("ready")
    with tensorflow.device(bench.device):
        if question.get("speed"):
            shared.go_through_work(question, tell, bench.speed)
            return
        shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """TensorFlow on one device."""

    def __init__(self, tensorflow: "Any", numpy: "Any", device: str, shared: "Any") -> None:
        self.tf, self.numpy, self.shared = tensorflow, numpy, shared
        self.device = "/CPU:0" if device == "cpu" else "/GPU:0"

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The tensors of one case."""
        self.allow_tf32(case["type"])
        try:
            if case["kind"] == "matmul":
                return {"y": self.listed(self.tf.matmul(self.tensor(case, "x"), self.tensor(case, "w")))}
            return self.lstm(case) if case["kind"] == "lstm" else self.convolution(case)
        except Exception as error:
            if self.device == "/CPU:0" and any(words in str(error) for words in ONLY_GPU):
                raise self.shared.Unsupported("on the CPU: {}".format(str(error)[:200])) from error
            raise

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """What TensorFlow's profiler sees of a case."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        return witness.answer("TensorFlow's profiler", witness.tensorflow_names(self.tf, lambda: self.compute(case)))  # type: ignore[no-any-return]

    def allow_tf32(self, kind: str) -> None:
        """Whether the card may round the factors of products of single precision."""
        switch = getattr(self.tf.config.experimental, "enable_tensor_float_32_execution", None)
        if switch is not None:
            switch(kind == "tf32")
        elif kind == "tf32":
            raise self.shared.Unsupported("this TensorFlow knows nothing of TF32")

    def tensor(self, case: "dict[str, Any]", name: str, order: "Any" = None) -> "Any":
        """One of the given tensors, its axes in the given order."""
        kind = {"tf32": "float32"}.get(case["type"], case["type"])
        array = self.numpy.array(case[name], dtype="float64").reshape(case["shapes"][name])
        if order is not None:
            array = array.transpose(order)
        return self.tf.cast(self.tf.constant(array.astype("float32")), getattr(self.tf, kind))

    def listed(self, tensor: "Any", order: "Any" = None) -> "list[float]":
        """The elements of a tensor, its axes in the given order."""
        array = self.tf.cast(tensor, self.tf.float64).numpy()
        return self.shared.flat(array if order is None else array.transpose(order))  # type: ignore[no-any-return]

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients. Weights have the taps first, then input and output channels."""
        rank, layout = len(case["size"]), case["layout"]
        there, back = self.shared.order_of(rank + 2, layout)
        weights = [*range(2, rank + 2), 1, 0]
        x, dy = self.tensor(case, "x", there), self.tensor(case, "dy", there)
        w = self.tensor(case, "w", weights)
        with self.tf.GradientTape() as tape:
            tape.watch([x, w])
            y = self.transposed(case, x, w) if case["transposed"] else self.forward(case, x, w)
        dx, dw = tape.gradient(y, [x, w], output_gradients=dy)
        inverse = [weights.index(axis) for axis in range(rank + 2)]
        return {"y": self.listed(y, back), "dx": self.listed(dx, back), "dw": self.listed(dw, inverse)}

    def spaced(self, layout: str, inner: "Any", outer: "Any") -> "list[Any]":
        """Something for each axis: `inner` for those of space, `outer` for batch and channels."""
        return [outer, outer, *inner] if layout == "nchw" else [outer, *inner, outer]

    def forward(self, case: "dict[str, Any]", x: "Any", w: "Any") -> "Any":
        """A convolution; the padding is laid round the input first."""
        rank, layout = len(case["size"]), case["layout"]
        x = self.tf.pad(x, self.spaced(layout, [[pad, pad] for pad in case["padding"]], [0, 0]))
        words = {"padding": "VALID", "data_format": FORMATS[rank, layout]}
        if case["groups"] == case["channels"] and rank == 2:
            shape = [*case["kernel"], case["channels"], case["filters"] // case["channels"]]
            # The filters of one channel stand together, as they do in PyTorch.
            kernel = self.tf.reshape(w, shape)
            strides = self.spaced(layout, case["stride"], 1)
            return self.tf.nn.depthwise_conv2d(x, kernel, strides=strides, dilations=case["dilation"], **words)
        name = "conv{}d".format(rank)
        if rank == 1:
            return self.tf.nn.conv1d(x, w, stride=case["stride"][0], dilations=case["dilation"][0], **words)
        strides, steps = self.spaced(layout, case["stride"], 1), self.spaced(layout, case["dilation"], 1)
        return getattr(self.tf.nn, name)(x, w, strides=strides, dilations=steps, **words)

    def transposed(self, case: "dict[str, Any]", x: "Any", w: "Any") -> "Any":
        """A transposed convolution, whose padding is cut off the output."""
        layout, pads = case["layout"], case["padding"]
        whole = [size + 2 * pad for size, pad in zip(case["shapes"]["y"][2:], pads)]
        shape = [case["batch"], case["filters"], *whole] if layout == "nchw" else [case["batch"], *whole, case["filters"]]
        strides = self.spaced(layout, case["stride"], 1)
        y = self.tf.nn.conv2d_transpose(x, w, shape, strides, padding="VALID", data_format=FORMATS[2, layout])
        begin = self.spaced(layout, pads, 0)
        size = [case["batch"], *case["shapes"]["y"][1:]] if layout == "nchw" else [case["batch"], *case["shapes"]["y"][2:], case["filters"]]
        return self.tf.slice(y, begin, size)

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer as Keras makes it, which takes cuDNN's where it can."""
        layer = self.tf.keras.layers.LSTM(case["filters"], return_sequences=True)
        x = self.tensor(case, "x", (1, 0, 2))
        layer.build(x.shape)
        arrays = [self.numpy.array(case[name], dtype="float32").reshape(case["shapes"][name]) for name in ("w", "h", "b")]
        layer.set_weights([arrays[0].T, arrays[1].T, arrays[2]])
        return {"y": self.listed(layer(x), (1, 0, 2))}

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Seconds of one convolution on the device and of a part of it on the CPU."""
        tf = self.tf
        self.allow_tf32(work["type"])
        kind = getattr(tf, {"tf32": "float32"}.get(work["type"], work["type"]))
        turned, pad = [work["x"][2], work["x"][3], work["x"][1]], work["padding"]
        kernel = [work["w"][2], work["w"][3], work["w"][1], work["w"][0]]
        pads = [[0, 0], [pad, pad], [pad, pad], [0, 0]]

        def seconds(device: str, batch: int) -> float:
            with tf.device(device):
                x = tf.cast(tf.random.normal([batch, *turned]), kind)
                w = tf.cast(tf.random.normal(kernel), kind)
                once = tf.function(lambda: tf.nn.conv2d(x, w, strides=1, padding=pads)[:, 0, 0, 0])
                return float(self.shared.timed(once, lambda last: last.numpy(), work["seconds"])[0])

        return {
            "seconds": seconds(self.device, work["x"][0]),
            "cpu_seconds": seconds("/CPU:0", work["cpu_batch"]) if work["cpu_batch"] else None,
        }


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
