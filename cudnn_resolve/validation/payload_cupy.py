"""Computes the cases with CuPy, whose binding of cuDNN went with CuPy 14. Python 3.6 grammar, standard library only."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what CuPy computes on the first GPU that is visible."""
    shared = sys.modules["payload_run"].sibling("payload_case")
    tell("step", "import cupy")
    cupy = __import__(question["module"])
    tell("step", "cupy opens the GPU")
    cupy.zeros((1,)).sum().item()
    cudnn, why = None, ""
    for name in (question["module"] + "x.cudnn", question["module"] + ".cudnn"):  # the second is the name before CuPy 8
        if cudnn is None:
            tell("step", "import {}".format(name))
            try:
                cudnn = __import__(name, fromlist=["_"])
            except Exception as error:
                why = why or str(error)[:300]
    bench = Bench(cupy, cudnn, why, shared)
    tell("ready")
    if question.get("speed"):
        shared.go_through_work(question, tell, bench.speed)
        return
    shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """CuPy on one GPU."""

    def __init__(self, cupy: "Any", cudnn: "Any", why: str, shared: "Any") -> None:
        self.cupy, self.cudnn, self.why, self.shared = cupy, cudnn, why, shared
        self.before = sys.modules["payload_run"].sibling("payload_witness").parts()

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The tensors of one case."""
        if case["type"] in ("bfloat16", "tf32"):
            raise self.shared.Unsupported("CuPy has no {} that one could ask for".format(case["type"]))
        if case["kind"] == "lstm":
            raise self.shared.Unsupported("CuPy has no recurrent layer")
        if case["kind"] == "matmul":
            return {"y": self.listed(self.cupy.matmul(self.tensor(case, "x"), self.tensor(case, "w")))}
        if self.cudnn is None:
            raise self.shared.Unsupported("this CuPy has no cuDNN: {}".format(self.why))
        if case["layout"] != "nchw":
            raise self.shared.Unsupported("CuPy's convolutions have the channels first")
        return self.convolution(case)

    def witness(self, _case: "dict[str, Any]") -> "dict[str, Any]":
        """Which parts of cuDNN came with the convolutions: that its binding could be called does not show who computed."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        return witness.answer("/proc/self/maps", ["loaded " + name for name in witness.parts() - self.before])  # type: ignore[no-any-return]

    def shape(self, case: "dict[str, Any]", name: str) -> "tuple[int, ...]":
        """The shape of a tensor, with at least two dimensions of space."""
        shape = case["shapes"][name]
        return tuple(shape[:2]) + (1,) * (case["kind"] == "convolution" and len(shape) == 3) + tuple(shape[2:])

    def tensor(self, case: "dict[str, Any]", name: str) -> "Any":
        """One of the given tensors."""
        return self.cupy.array(case[name], dtype="float64").astype(case["type"]).reshape(self.shape(case, name))

    def listed(self, tensor: "Any") -> "list[float]":
        """The elements of a tensor."""
        return self.shared.flat(self.cupy.asnumpy(tensor))  # type: ignore[no-any-return]

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients, each by cuDNN's function for it; a transposed one is the gradient of another."""
        x, w, dy = (self.tensor(case, name) for name in ("x", "w", "dy"))
        y, dx, dw = (self.cupy.empty(self.shape(case, name), dtype=x.dtype) for name in ("y", "x", "w"))
        extra = 2 - len(case["size"]) if len(case["size"]) < 2 else 0
        rows = [(0,) * extra + tuple(case["padding"]), (1,) * extra + tuple(case["stride"]), (1,) * extra + tuple(case["dilation"])]
        words = (rows[0], rows[1], rows[2], case["groups"])
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

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Seconds of one convolution on the card; CuPy has nothing to compare it with on the CPU."""
        if self.cudnn is None:
            return {"unsupported": "this CuPy has no cuDNN"}
        if work["type"] in ("bfloat16", "tf32"):
            return {"unsupported": "CuPy has no {} that one could ask for".format(work["type"])}
        cupy, cudnn = self.cupy, self.cudnn
        kind = {"tf32": "float32"}.get(work["type"], work["type"])
        x, w = (cupy.random.standard_normal(work[name]).astype(kind) for name in ("x", "w"))
        y = cupy.empty([work["x"][0], work["w"][0], *work["x"][2:]], dtype=kind)
        pads = (work["padding"],) * 2

        def once() -> None:
            cudnn.convolution_forward(x, w, None, y, pads, (1, 1), (1, 1), 1, auto_tune=True, tensor_core="auto")

        spent = self.shared.timed(once, lambda _last: cupy.cuda.Device().synchronize(), work["seconds"])[0]
        return {"seconds": float(spent), "cpu_seconds": None}


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
