"""Computes the cases with JAX. Python 3.6 grammar, standard library only."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPACE = {1: "W", 2: "HW", 3: "DHW"}


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what JAX computes on the device of the question."""
    shared = sys.modules["payload_run"].sibling("payload_case")
    if question["device"] == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    tell("step", "import jax")
    jax = __import__(question["module"])
    __import__(question["module"] + ".lax")
    bench = Bench(jax, __import__(question["numpy"]), question["device"], shared)
    tell("step", "jax opens the {}".format("CPU" if question["device"] == "cpu" else "GPU"))
    bench.start()
    tell("ready")
    if question.get("speed"):
        shared.go_through_work(question, tell, bench.speed)
        return
    shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """JAX on one device."""

    def __init__(self, jax: "Any", numpy: "Any", device: str, shared: "Any") -> None:
        self.jax, self.numpy, self.shared = jax, numpy, shared
        self.platform = "gpu" if device == "gpu" else "cpu"
        self.device = None  # type: Any
        self.last = None  # type: Any

    def start(self) -> None:
        """Opens the device; JAX raises where it has none of that kind."""
        self.device = self.jax.devices(self.platform)[0]

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The tensors of one case."""
        if case["kind"] == "lstm":
            return self.lstm(case)
        if case["kind"] == "matmul":
            words = {"precision": self.precision(case)}
            multiply = self.jax.jit(lambda x, w: self.jax.numpy.matmul(x, w, **words))
            return {"y": self.listed(multiply(self.tensor(case, "x"), self.tensor(case, "w")))}
        return self.convolution(case)

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """What XLA made of a case."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        self.compute(case)
        function, given = self.last
        return witness.answer("the compiled HLO", witness.hlo_names(function.lower(*given).compile().as_text()))  # type: ignore[no-any-return]

    def precision(self, case: "dict[str, Any]") -> "Any":
        """What the products may be rounded to."""
        return self.jax.lax.Precision.HIGHEST if case["type"] == "float32" else self.jax.lax.Precision.DEFAULT

    def tensor(self, case: "dict[str, Any]", name: str, order: "Any" = None) -> "Any":
        """One of the given tensors, on the device, its axes in the given order."""
        kind = {"tf32": "float32"}.get(case["type"], case["type"])
        array = self.numpy.array(case[name], dtype="float64").reshape(case["shapes"][name])
        if order is not None:
            array = array.transpose(order)
        made = self.jax.numpy.asarray(array.astype("float32"), dtype=getattr(self.jax.numpy, kind))
        return self.jax.device_put(made, self.device)

    def listed(self, tensor: "Any", order: "Any" = None) -> "list[float]":
        """The elements of a tensor, its axes in the given order."""
        array = self.numpy.asarray(tensor.astype("float32"))
        return self.shared.flat(array if order is None else array.transpose(order))  # type: ignore[no-any-return]

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients; of a tensor with the channels last the weights have theirs last, too."""
        rank = len(case["size"])
        there, back = self.shared.order_of(rank + 2, case["layout"])
        names = ("NC" + SPACE[rank]) if case["layout"] == "nchw" else "N" + SPACE[rank] + "C"
        weights = ("OI" + SPACE[rank]) if case["layout"] == "nchw" else SPACE[rank] + "IO"
        order = there if case["layout"] == "nchw" else [*range(2, rank + 2), 1, 0]
        numbers = (names, weights, names)
        words = {"dimension_numbers": numbers, "precision": self.precision(case), "feature_group_count": case["groups"]}
        pads = [(pad, pad) for pad in case["padding"]]
        rows = list(zip(case["kernel"], case["dilation"], case["padding"]))
        turned = [(step * (kernel - 1) - pad,) * 2 for kernel, step, pad in rows]
        lax, spatial = self.jax.lax, tuple(range(2, rank + 2)) if case["layout"] == "nchw" else tuple(range(rank))

        def forward(x: "Any", w: "Any") -> "Any":
            if not case["transposed"]:
                return lax.conv_general_dilated(x, w, case["stride"], pads, rhs_dilation=case["dilation"], **words)
            # As the gradient of a convolution: the input widened by the stride, the kernel turned round, its channels exchanged.
            ones = (1,) * rank
            mirrored = self.jax.numpy.flip(w, spatial)
            first, second = (0, 1) if case["layout"] == "nchw" else (rank, rank + 1)
            mirrored = self.jax.numpy.swapaxes(mirrored, first, second)
            return lax.conv_general_dilated(x, mirrored, ones, turned, lhs_dilation=case["stride"], rhs_dilation=case["dilation"], **words)

        def everything(x: "Any", w: "Any", dy: "Any") -> "Any":
            y, pull = self.jax.vjp(forward, x, w)
            dx, dw = pull(dy)
            return y, dx, dw

        given = self.tensor(case, "x", there), self.tensor(case, "w", order), self.tensor(case, "dy", there)
        self.last = self.jax.jit(everything), given
        y, dx, dw = self.last[0](*given)
        inverse = [order.index(axis) for axis in range(rank + 2)]
        return {"y": self.listed(y, back), "dx": self.listed(dx, back), "dw": self.listed(dw, inverse)}

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer by cuDNN, where this JAX has one."""
        if self.platform == "cpu":
            raise self.shared.Unsupported("JAX's recurrent layer is cuDNN's own, and needs a GPU")
        try:
            rnn = __import__("{}.experimental.rnn".format(self.jax.__name__), fromlist=["_"])
        except ImportError as error:
            raise self.shared.Unsupported("this JAX has no jax.experimental.rnn") from error
        numpy, jnp = self.numpy, self.jax.numpy
        width, batch = case["filters"], case["batch"]
        parts = [case["w"], case["h"], case["b"], [0.0] * (4 * width)]
        weights = jnp.asarray(numpy.concatenate([numpy.array(part, dtype="float32") for part in parts]))
        x = self.tensor(case, "x", (1, 0, 2))
        zero = jnp.zeros((1, batch, width), jnp.float32)
        lengths = jnp.full((batch,), case["size"][0], jnp.int32)
        words = {"input_size": case["channels"], "hidden_size": width, "num_layers": 1, "dropout": 0.0, "bidirectional": False}
        try:
            y, _, _ = rnn.lstm(x, zero, zero, weights, lengths, precision=self.jax.lax.Precision.HIGHEST, **words)
        except TypeError:
            y, _, _ = rnn.lstm(x, zero, zero, weights, lengths, **words)
        return {"y": self.listed(y, (1, 0, 2))}

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Seconds of one convolution on the device and of a part of it on the CPU."""
        jnp, lax = self.jax.numpy, self.jax.lax
        kind = getattr(jnp, {"tf32": "float32"}.get(work["type"], work["type"]))
        precision = lax.Precision.HIGHEST if work["type"] == "float32" else lax.Precision.DEFAULT
        pads = [(work["padding"],) * 2] * 2
        names = ("NHWC", "HWIO", "NHWC")
        turned = [work["x"][2], work["x"][3], work["x"][1]]
        kernel = [work["w"][2], work["w"][3], work["w"][1], work["w"][0]]
        once = self.jax.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), pads, dimension_numbers=names, precision=precision))

        def seconds(device: "Any", batch: int) -> float:
            random = self.numpy.random.RandomState(0)
            x = self.jax.device_put(jnp.asarray(random.randn(batch, *turned).astype("float32"), dtype=kind), device)
            w = self.jax.device_put(jnp.asarray(random.randn(*kernel).astype("float32"), dtype=kind), device)
            return float(self.shared.timed(lambda: once(x, w), lambda last: last.block_until_ready(), work["seconds"])[0])

        return {
            "seconds": seconds(self.device, work["x"][0]),
            "cpu_seconds": seconds(self.jax.devices("cpu")[0], work["cpu_batch"]) if work["cpu_batch"] else None,
        }


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
