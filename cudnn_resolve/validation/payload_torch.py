"""Computes the cases with PyTorch. Python 3.6 grammar, standard library only."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what PyTorch computes on the device of the question."""
    shared = sys.modules["payload_run"].sibling("payload_case")
    tell("step", "import torch")
    bench = Bench(__import__(question["module"]), question["device"], shared)
    if question["device"] != "cpu":
        tell("step", "torch opens the GPU")
        bench.torch.zeros(1, device=bench.device)
    tell("ready")
    if question.get("speed"):
        shared.go_through_work(question, tell, bench.speed)
        return
    shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """PyTorch on one device."""

    def __init__(self, torch: "Any", device: str, shared: "Any") -> None:
        self.torch = torch
        self.device = "cuda" if device == "gpu" else "cpu"
        self.shared = shared

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The tensors of one case."""
        torch = self.torch
        tf32 = case["type"] == "tf32"
        if hasattr(torch.backends.cudnn, "allow_tf32"):
            torch.backends.cudnn.allow_tf32 = tf32
            torch.backends.cuda.matmul.allow_tf32 = tf32
        elif tf32:
            raise self.shared.Unsupported("this PyTorch knows nothing of TF32")
        if case["type"] == "bfloat16" and not hasattr(torch, "bfloat16"):
            raise self.shared.Unsupported("this PyTorch has no bfloat16")
        if case["kind"] == "matmul":
            return {"y": self.listed(torch.matmul(self.tensor(case, "x"), self.tensor(case, "w")))}
        if case["kind"] == "lstm":
            return self.lstm(case)
        return self.convolution(case)

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """What PyTorch's profiler sees of a case."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        names = witness.torch_names(self.torch, lambda: self.compute(case), self.device)
        return witness.answer("torch.profiler", names)  # type: ignore[no-any-return]

    def tensor(self, case: "dict[str, Any]", name: str) -> "Any":
        """One of the given tensors, on the device."""
        kind = {"tf32": "float32"}.get(case["type"], case["type"])
        made = self.torch.tensor(case[name], dtype=self.torch.float64).reshape(case["shapes"][name])
        return made.to(dtype=getattr(self.torch, kind)).to(self.device)

    def listed(self, tensor: "Any") -> "list[float]":
        """The elements in the order batch, channels, space."""
        return tensor.detach().to(dtype=self.torch.float64).cpu().contiguous().reshape(-1).tolist()  # type: ignore[no-any-return]

    def laid(self, tensor: "Any", layout: str) -> "Any":
        """The same tensor with the channels last in memory."""
        if layout == "nchw":
            return tensor
        if tensor.dim() == 3:  # there is no such format of one dimension
            return tensor.transpose(1, 2).contiguous().transpose(1, 2)
        formats = {4: "channels_last", 5: "channels_last_3d"}
        return tensor.contiguous(memory_format=getattr(self.torch, formats[tensor.dim()]))

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A convolution and its gradients."""
        functional = self.torch.nn.functional
        name = "conv{}{}d".format("_transpose" if case["transposed"] else "", len(case["size"]))
        x = self.laid(self.tensor(case, "x"), case["layout"]).requires_grad_()
        w = self.laid(self.tensor(case, "w"), case["layout"]).requires_grad_()
        words = {key: tuple(case[key]) for key in ("stride", "padding", "dilation")}
        y = getattr(functional, name)(x, w, groups=case["groups"], **words)
        # The gradient of the sum of y * dy with respect to y is dy, exactly. To hand dy over would import SymPy, a second or two.
        (y * self.laid(self.tensor(case, "dy"), case["layout"])).sum().backward()
        return {"y": self.listed(y), "dx": self.listed(x.grad), "dw": self.listed(w.grad)}

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer, forward."""
        torch = self.torch
        layer = torch.nn.LSTM(case["channels"], case["filters"]).to(self.device)
        with torch.no_grad():
            layer.weight_ih_l0.copy_(self.tensor(case, "w"))
            layer.weight_hh_l0.copy_(self.tensor(case, "h"))
            layer.bias_ih_l0.copy_(self.tensor(case, "b"))
            layer.bias_hh_l0.zero_()
            y, _ = layer(self.tensor(case, "x"))
        return {"y": self.listed(y)}

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Seconds of one convolution on the device and of a part of it on the CPU."""
        torch = self.torch
        if work["type"] == "tf32" and not hasattr(torch.backends.cudnn, "allow_tf32"):
            return {"unsupported": "this PyTorch knows nothing of TF32"}
        if work["type"] == "bfloat16" and not hasattr(torch, "bfloat16"):
            return {"unsupported": "this PyTorch has no bfloat16"}
        torch.backends.cudnn.benchmark = True
        if hasattr(torch.backends.cudnn, "allow_tf32"):
            torch.backends.cudnn.allow_tf32 = work["type"] == "tf32"
        kind = getattr(torch, {"tf32": "float32"}.get(work["type"], work["type"]))

        def seconds(device: str, batch: int) -> float:
            x = torch.randn(batch, *work["x"][1:], device=device, dtype=kind)
            w = torch.randn(*work["w"], device=device, dtype=kind)
            if device == "cuda":
                x, w = self.laid(x, work["layout"]), self.laid(w, work["layout"])
            with torch.no_grad():
                return float(
                    self.shared.timed(
                        lambda: torch.nn.functional.conv2d(x, w, padding=work["padding"]),
                        lambda _last: torch.cuda.synchronize() if device == "cuda" else None,
                        work["seconds"],
                    )[0]
                )

        return {
            "seconds": seconds(self.device, work["x"][0]),
            "cpu_seconds": seconds("cpu", work["cpu_batch"]) if work["cpu_batch"] else None,
        }


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
