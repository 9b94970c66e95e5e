"""Computes the cases with PaddlePaddle. Python 3.6 grammar, standard library only."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMATS = {(1, "nchw"): "NCL", (2, "nchw"): "NCHW", (3, "nchw"): "NCDHW", (1, "nhwc"): "NLC", (2, "nhwc"): "NHWC", (3, "nhwc"): "NDHWC"}
ONLY_GPU = ("is not registered", "not implemented", "is not supported", "Unimplemented", "data layout", "DataLayout")
"""What Paddle says of what it computes on GPUs only."""


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what Paddle computes on the device of the question."""
    shared = sys.modules["payload_run"].sibling("payload_case")
    tell("step", "import paddle")
    paddle = __import__(question["module"])
    tell("step", "paddle opens the {}".format("CPU" if question["device"] == "cpu" else "GPU"))
    paddle.set_device("cpu" if question["device"] == "cpu" else "gpu:0")
    bench = Bench(paddle, __import__(question["numpy"]), question["device"], shared)
    tell("ready")
    if question.get("speed"):
        shared.go_through_work(question, tell, bench.speed)
        return
    shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """PaddlePaddle on one device."""

    def __init__(self, paddle: "Any", numpy: "Any", device: str, shared: "Any") -> None:
        self.paddle, self.numpy, self.shared, self.device = paddle, numpy, shared, device

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The tensors of one case."""
        self.allow_tf32(case["type"])
        try:
            if case["kind"] == "matmul":
                return {"y": self.listed(self.paddle.matmul(self.tensor(case, "x"), self.tensor(case, "w")))}
            return self.lstm(case) if case["kind"] == "lstm" else self.convolution(case)
        except Exception as error:
            if self.device == "cpu" and any(words in str(error) for words in ONLY_GPU):
                raise self.shared.Unsupported("on the CPU: {}".format(str(error).strip().splitlines()[-1][:200])) from error
            raise

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """What PaddlePaddle's profiler sees of a case."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        names = witness.paddle_names(self.paddle, lambda: self.compute(case), self.device)
        return witness.answer("paddle.profiler", names)  # type: ignore[no-any-return]

    def allow_tf32(self, kind: str) -> None:
        """Whether the card may round the factors of products of single precision."""
        base = getattr(self.paddle, "base", None) or getattr(self.paddle, "fluid", None)
        for name in ("set_cublas_switch", "set_cudnn_switch"):
            switch = getattr(getattr(base, "core", None), name, None)
            if switch is not None:
                switch(kind == "tf32")

    def tensor(self, case: "dict[str, Any]", name: str, order: "Any" = None) -> "Any":
        """One of the given tensors, its axes in the given order."""
        kind = {"tf32": "float32"}.get(case["type"], case["type"])
        array = self.numpy.array(case[name], dtype="float32").reshape(case["shapes"][name])
        if order is not None:
            array = array.transpose(order)
        made = self.paddle.to_tensor(self.numpy.ascontiguousarray(array)).astype(kind)
        made.stop_gradient = False
        return made

    def listed(self, tensor: "Any", order: "Any" = None) -> "list[float]":
        """The elements of a tensor, its axes in the given order."""
        array = tensor.astype("float32").numpy()
        return self.shared.flat(array if order is None else array.transpose(order))  # type: ignore[no-any-return]

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients; weights have one order in all layouts."""
        rank = len(case["size"])
        there, back = self.shared.order_of(rank + 2, case["layout"])
        x, dy = self.tensor(case, "x", there), self.tensor(case, "dy", there)
        w = self.tensor(case, "w")
        name = "conv{}d{}".format(rank, "_transpose" if case["transposed"] else "")
        words = {key: case[key] if rank > 1 else case[key][0] for key in ("stride", "padding", "dilation")}
        y = getattr(self.paddle.nn.functional, name)(x, w, groups=case["groups"], data_format=FORMATS[rank, case["layout"]], **words)
        dx, dw = self.paddle.grad([y], [x, w], [dy])
        return {"y": self.listed(y, back), "dx": self.listed(dx, back), "dw": self.listed(dw)}

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer, forward."""
        layer = self.paddle.nn.LSTM(case["channels"], case["filters"], time_major=True)
        given = {"weight_ih_l0": "w", "weight_hh_l0": "h", "bias_ih_l0": "b"}
        for name, parameter in layer.named_parameters():
            short = given.get(name.rsplit(".", 1)[-1])
            shape = list(parameter.shape)
            array = self.numpy.array(case[short], dtype="float32").reshape(shape) if short else self.numpy.zeros(shape, "float32")
            parameter.set_value(array)
        y, _ = layer(self.tensor(case, "x"))
        return {"y": self.listed(y)}

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Seconds of one convolution on the device and of a part of it on the CPU."""
        paddle = self.paddle
        self.allow_tf32(work["type"])
        kind = {"tf32": "float32"}.get(work["type"], work["type"])

        def seconds(device: str, batch: int) -> float:
            paddle.set_device(device)
            x = paddle.randn([batch, *work["x"][1:]]).astype(kind)
            w = paddle.randn(work["w"]).astype(kind)
            wait = (lambda _last: paddle.device.cuda.synchronize()) if device != "cpu" else (lambda _last: None)
            with paddle.no_grad():
                return float(
                    self.shared.timed(lambda: paddle.nn.functional.conv2d(x, w, padding=work["padding"]), wait, work["seconds"])[0]
                )

        return {
            "seconds": seconds("cpu" if self.device == "cpu" else "gpu:0", work["x"][0]),
            "cpu_seconds": seconds("cpu", work["cpu_batch"]) if work["cpu_batch"] else None,
        }


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
