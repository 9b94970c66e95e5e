"""Computes the cases with MXNet. Python 3.6 grammar, standard library only."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what MXNet computes on the device of the question."""
    shared = sys.modules["payload_run"].sibling("payload_case")
    tell("step", "import mxnet")
    mxnet = __import__(question["module"])
    bench = Bench(mxnet, __import__(question["numpy"]), question["device"], shared)
    tell("step", "mxnet opens the {}".format("CPU" if question["device"] == "cpu" else "GPU"))
    mxnet.nd.zeros((1,), ctx=bench.device).wait_to_read()
    tell("ready")
    with bench.device:
        shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """MXNet on one device."""

    def __init__(self, mxnet: "Any", numpy: "Any", device: str, shared: "Any") -> None:
        self.mxnet, self.numpy, self.shared = mxnet, numpy, shared
        self.is_cpu = device == "cpu"
        self.device = mxnet.cpu(0) if self.is_cpu else mxnet.gpu(0)

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The tensors of one case."""
        if case["type"] in ("bfloat16", "tf32"):
            raise self.shared.Unsupported("MXNet has no {} that one could ask for".format(case["type"]))
        if case["type"] == "float16" and self.is_cpu:
            raise self.shared.Unsupported("MXNet computes float16 on GPUs")
        if case["kind"] == "convolution" and case["layout"] != "nchw":
            raise self.shared.Unsupported("MXNet's own layout has the channels first")
        if case["kind"] == "matmul":
            return {"y": self.listed(self.mxnet.nd.dot(self.tensor(case, "x"), self.tensor(case, "w")))}
        return self.lstm(case) if case["kind"] == "lstm" else self.convolution(case)

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """What MXNet says of who computed a case."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        return witness.answer("MXNet", witness.mxnet_names(self.mxnet, lambda: self.compute(case)))  # type: ignore[no-any-return]

    def tensor(self, case: "dict[str, Any]", name: str) -> "Any":
        """One of the given tensors."""
        array = self.numpy.array(case[name], dtype="float32").reshape(case["shapes"][name])
        return self.mxnet.nd.array(array, ctx=self.device, dtype=case["type"])

    def listed(self, tensor: "Any") -> "list[float]":
        """The elements of a tensor."""
        return self.shared.flat(tensor.asnumpy())  # type: ignore[no-any-return]

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients."""
        x, w, dy = (self.tensor(case, name) for name in ("x", "w", "dy"))
        x.attach_grad()
        w.attach_grad()
        words = {"kernel": case["kernel"], "stride": case["stride"], "pad": case["padding"], "dilate": case["dilation"]}
        operation = self.mxnet.nd.Deconvolution if case["transposed"] else self.mxnet.nd.Convolution
        with self.mxnet.autograd.record():
            y = operation(x, w, no_bias=True, num_filter=case["filters"], num_group=case["groups"], **words)
        y.backward(dy)
        return {"y": self.listed(y), "dx": self.listed(x.grad), "dw": self.listed(w.grad)}

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer, forward."""
        nd, width = self.mxnet.nd, case["filters"]
        parts = [self.tensor(case, name).reshape((-1,)) for name in ("w", "h", "b")] + [nd.zeros((4 * width,), ctx=self.device)]
        zero = nd.zeros((1, case["batch"], width), ctx=self.device)
        y = nd.RNN(self.tensor(case, "x"), nd.concat(*parts, dim=0), zero, zero, state_size=width, num_layers=1, mode="lstm")
        return {"y": self.listed(y)}


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
