"""Computes the cases with ONNX Runtime, from models that are written here. Python 3.6 grammar, standard library only."""

import os
import shutil
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tells of each case what ONNX Runtime computes on the device of the question."""
    frame = sys.modules["payload_run"]
    shared, onnx = frame.sibling("payload_case"), frame.sibling("payload_onnx")
    tell("step", "import onnxruntime")
    runtime = __import__(question["module"])
    if question["device"] != "cpu" and hasattr(runtime, "preload_dlls") and question.get("preload"):
        runtime.preload_dlls()
    bench = Bench(runtime, __import__(question["numpy"]), question["device"], shared, onnx)
    tell("step", "onnxruntime opens the {}".format("CPU" if question["device"] == "cpu" else "GPU"))
    bench.multiply(2, 3, 4, "float32")
    tell("ready")
    if question.get("speed"):
        shared.go_through_work(question, tell, bench.speed)
        return
    shared.go_through(question, tell, bench.compute, bench.witness)


class Bench:
    """ONNX Runtime on one device."""

    def __init__(self, runtime: "Any", numpy: "Any", device: str, shared: "Any", onnx: "Any") -> None:
        self.runtime, self.numpy, self.shared, self.onnx = runtime, numpy, shared, onnx
        self.device = device
        self.threads = os.cpu_count() or 1
        self.profile = ""

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """The result of one case; models have no gradients."""
        if case["type"] == "bfloat16":
            raise self.shared.Unsupported("ONNX Runtime convolves no bfloat16")
        if case["kind"] == "convolution" and case["layout"] == "nhwc" and self.device == "cpu":
            raise self.shared.Unsupported("ONNX has the channels first")
        if case["kind"] == "lstm":
            return self.lstm(case)
        transposed = "ConvTranspose" if case["transposed"] else "Conv"
        operation = "MatMul" if case["kind"] == "matmul" else transposed
        words = {}  # type: dict[str, Any]
        if case["kind"] == "convolution":
            words = {"dilations": case["dilation"], "group": case["groups"], "kernel_shape": case["kernel"]}
            words.update(pads=[*case["padding"], *case["padding"]], strides=case["stride"])
        given = {name: self.array(case, name) for name in ("x", "w")}
        y = self.computed(operation, words, given, case["shapes"]["y"], case)
        return {"y": self.shared.flat(y), "forward_only": True}

    def array(self, case: "dict[str, Any]", name: str) -> "Any":
        """One of the given tensors."""
        kind = {"tf32": "float32"}.get(case["type"], case["type"])
        return self.numpy.array(case[name], dtype=kind).reshape(case["shapes"][name])

    def computed(self, operation: str, words: "dict[str, Any]", given: "dict[str, Any]", shape: "Any", case: "dict[str, Any]") -> "Any":
        """The output of a model of one operation."""
        kind = self.onnx.FLOAT16 if case["type"] == "float16" else self.onnx.FLOAT
        inputs = [self.onnx.value_info(name, kind, array.shape) for name, array in given.items()]
        nodes = [self.onnx.node(operation, list(given), ["y"], words)]
        session = self.session(self.onnx.model(nodes, inputs, [self.onnx.value_info("y", kind, shape)]), case)
        result = session.run(["y"], given)[0]
        if self.profile:
            self.profile = session.end_profiling()
        return result

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """On which provider the nodes of a case ran."""
        witness = sys.modules["payload_run"].sibling("payload_witness")
        # A name that others could foresee could be a link of theirs.
        folder = tempfile.mkdtemp(prefix="cudnn-resolve-")
        self.profile = os.path.join(folder, "profile")
        try:
            self.compute(case)
            return witness.answer("the profile of the session", witness.onnxruntime_names(self.profile))  # type: ignore[no-any-return]
        finally:
            self.profile = ""
            shutil.rmtree(folder, ignore_errors=True)

    def session(self, model: bytes, case: "dict[str, Any]") -> "Any":
        """A session on the device; RuntimeError where ONNX Runtime silently took another one."""
        options = self.runtime.SessionOptions()
        options.log_severity_level = 3
        if self.profile:
            options.enable_profiling, options.profile_file_prefix = True, self.profile
        if self.device == "cpu":
            return self.runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        wishes = {"device_id": "0", "use_tf32": "1" if case.get("type") == "tf32" else "0"}
        wishes["prefer_nhwc"] = "1" if case.get("layout") == "nhwc" else "0"
        older = self.shared.version_tuple(self.runtime.__version__)
        if older < (1, 18):
            wishes.pop("use_tf32")
        if older < (1, 20):
            wishes.pop("prefer_nhwc")
            if case.get("layout") == "nhwc":
                raise self.shared.Unsupported("this ONNX Runtime has the channels first")
        session = self.runtime.InferenceSession(model, options, providers=[("CUDAExecutionProvider", wishes)])
        if session.get_providers()[:1] != ["CUDAExecutionProvider"]:
            raise RuntimeError("the session fell back to {}".format(", ".join(session.get_providers())))
        return session

    def multiply(self, rows: int, inner: int, columns: int, kind: str) -> None:
        """A product of matrices, to see whether there is a device at all."""
        ones = {"x": self.numpy.ones((rows, inner), kind), "w": self.numpy.ones((inner, columns), kind)}
        self.computed("MatMul", {}, ones, (rows, columns), {"type": kind})

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A recurrent layer; ONNX has its gates in the order input, output, forget, cell."""
        width = case["filters"]
        order = [0, 3, 1, 2]

        def turned(name: str) -> "Any":
            array = self.array(case, name)
            return self.numpy.concatenate([array[gate * width : (gate + 1) * width] for gate in order])[None]

        bias = self.numpy.concatenate([turned("b"), self.numpy.zeros((1, 4 * width), "float32")], axis=1)
        given = {"x": self.array(case, "x"), "w": turned("w"), "r": turned("h"), "b": bias}
        shape = (case["size"][0], 1, case["batch"], width)
        y = self.computed("LSTM", {"hidden_size": width}, given, shape, case)
        return {"y": self.shared.flat(y), "forward_only": True}

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Seconds of one convolution on the device and of a part of it on the CPU, its input and output left where they are."""
        if work["type"] == "bfloat16":
            return {"unsupported": "ONNX Runtime convolves no bfloat16"}
        kind = {"tf32": "float32"}.get(work["type"], work["type"])
        number = self.onnx.FLOAT16 if kind == "float16" else self.onnx.FLOAT
        if self.shared.version_tuple(self.runtime.__version__) < (1, 20):
            work = dict(work, layout="nchw")
        words = {"pads": [work["padding"]] * 4, "kernel_shape": work["w"][2:]}

        def seconds(device: str, batch: int) -> float:
            before, self.device = self.device, device
            shape = [batch, *work["x"][1:]]
            inputs = [self.onnx.value_info("x", number, shape), self.onnx.value_info("w", number, work["w"])]
            out = self.onnx.value_info("y", number, [batch, work["w"][0], *work["x"][2:]])
            session = self.session(self.onnx.model([self.onnx.node("Conv", ["x", "w"], ["y"], words)], inputs, [out]), work)
            self.device = before
            binding, place = session.io_binding(), "cpu" if device == "cpu" else "cuda"
            random = self.numpy.random.RandomState(0)
            # On the CPU a value is the array itself, which lives no longer than somebody holds the value.
            given = {name: random.randn(*one).astype(kind) for name, one in (("x", shape), ("w", work["w"]))}
            values = {name: self.runtime.OrtValue.ortvalue_from_numpy(array, place, 0) for name, array in given.items()}
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            binding.bind_output("y", place)

            def once() -> None:
                session.run_with_iobinding(binding)

            return float(self.shared.timed(once, lambda _last: binding.synchronize_outputs(), work["seconds"])[0])

        return {
            "seconds": seconds(self.device, work["x"][0]),
            "cpu_seconds": seconds("cpu", work["cpu_batch"]) if work["cpu_batch"] else None,
        }


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
