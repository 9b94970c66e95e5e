"""ONNX Runtime: how it opens cuDNN, and how it computes. Python 3.6, standard library only.

ONNX models are protocol buffers, encoded here byte by byte since the target may lack the libraries. Source of the field numbers:
onnx.proto of ONNX, version 1.16.
"""

import ctypes
import json
import os
import tempfile

from cudnn_resolve.validation.payload import MOST_BYTES, Unsupported
from cudnn_resolve.validation.payload_framework import Framework as Base
from cudnn_resolve.validation.payload_framework import time_call, version_tuple
from cudnn_resolve.validation.payload_load import LIBRARY, dynamic_section, is_driver_missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

FLOAT, FLOAT16 = 1, 10
IR_VERSION, OPSET = 7, 13
INT, STRING, INTS = 2, 3, 7


def varint(number: int) -> bytes:
    """Encode a number in groups of seven bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: "Any") -> bytes:
    """Encode a field: an int as a varint, anything else as bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode("utf-8") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(name: str, value: "Any") -> bytes:
    """Encode an attribute of an operation: an int, a string, or a list of ints."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, INT)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, STRING)
    return field(1, name) + b"".join(field(8, item) for item in value) + field(20, INTS)


def value_info(name: str, kind: int, shape: "Sequence[int]") -> bytes:
    """Encode an input or output: name, type and shape."""
    dims = b"".join(field(1, field(1, length)) for length in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def node(operation: str, inputs: "Sequence[str]", outputs: "Sequence[str]", attributes: "dict[str, Any]") -> bytes:
    """Encode an operation."""
    content = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs)
    content += field(3, operation.lower()) + field(4, operation)
    return content + b"".join(field(5, attribute(name, value)) for name, value in sorted(attributes.items()))


def model(nodes: "Sequence[bytes]", inputs: "Sequence[bytes]", outputs: "Sequence[bytes]") -> bytes:
    """Encode a model."""
    graph = b"".join(field(1, content) for content in nodes) + field(2, "check")
    graph += b"".join(field(11, content) for content in inputs) + b"".join(field(12, content) for content in outputs)
    return field(1, IR_VERSION) + field(2, "cudnn-resolve") + field(7, graph) + field(8, field(1, "") + field(2, OPSET))


def open_all(names: "Iterable[str]") -> None:
    """Open libraries, or raise OSError; a missing driver is no fault of theirs and is reported elsewhere."""
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 - failures are rare
            if not is_driver_missing(error):
                raise


class Framework(Base):
    """ONNX Runtime on one device; inference only, without gradients."""

    WITNESS = "the profile of the session"
    profile = ""
    """Path prefix for the profile of the next session; "" for none."""

    @classmethod
    def built(cls, module: "Any") -> "dict[str, Any]":
        """From its providers, and since 1.21 its CUDA version."""
        if "CUDAExecutionProvider" not in module.get_available_providers():
            return {"device": "cpu"}
        return {"device": "cuda", "cuda": getattr(module, "cuda_version", None) or None}

    @classmethod
    def opens(cls, module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """By loading the dependencies of its CUDA provider, as a session does."""
        folder = os.path.join(os.path.dirname(module.__file__), "capi")
        provider = os.path.join(folder, "libonnxruntime_providers_cuda.so")
        if not os.path.exists(provider):
            return None
        # The provider cannot be opened outside of a session, and a session without a driver ends the process. It has no search path:
        # its dependencies are found like any name.
        needed = [name for name in dynamic_section(provider)[0] if LIBRARY.match(name)]
        try:
            open_all(needed)
        except OSError:
            if not hasattr(module, "preload_dlls"):
                raise
            module.preload_dlls()
            open_all(needed)
            return "onnxruntime.preload_dlls()"
        return "the dependencies of its CUDA provider"

    def open(self) -> None:
        """Run a product on the device, to see whether it works."""
        if not self.is_cpu and hasattr(self.lib, "preload_dlls"):
            self.lib.preload_dlls()
        ones = {"x": self.numpy.ones((2, 3), "float32"), "w": self.numpy.ones((3, 4), "float32")}
        self.result("MatMul", {}, ones, (2, 4), {"type": "float32"})

    def allow(self, case: "dict[str, Any]") -> None:
        """Refuse what ONNX Runtime lacks."""
        if case["type"] == "bfloat16":
            raise Unsupported("ONNX Runtime has no convolutions in bfloat16")
        if case.get("kind") == "convolution" and case["layout"] == "nhwc" and self.is_cpu:
            raise Unsupported("ONNX has the channels first")

    def matmul(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Matrix product."""
        return self.apply("MatMul", {}, case)

    def convolution(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Convolution."""
        attributes = {"dilations": case["dilation"], "group": case["groups"], "kernel_shape": case["kernel"]}
        attributes.update(pads=[*case["padding"], *case["padding"]], strides=case["stride"])
        return self.apply("ConvTranspose" if case["transposed"] else "Conv", attributes, case)

    def lstm(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Recurrent layer; ONNX orders the gates input, output, forget, cell."""
        width = case["filters"]

        def reordered(name: str) -> "Any":
            array = self.array(case, name)
            return self.numpy.concatenate([array[gate * width : (gate + 1) * width] for gate in (0, 3, 1, 2)])[None]

        bias = self.numpy.concatenate([reordered("b"), self.numpy.zeros((1, 4 * width), "float32")], axis=1)
        given = {"x": self.array(case, "x"), "w": reordered("w"), "r": reordered("h"), "b": bias}
        shape = (case["size"][0], 1, case["batch"], width)
        return {"y": self.listed(self.result("LSTM", {"hidden_size": width}, given, shape, case)), "forward_only": True}

    def apply(self, operation: str, attributes: "dict[str, Any]", case: "dict[str, Any]") -> "dict[str, Any]":
        """Apply an operation to the input and the weights of a case."""
        given = {name: self.array(case, name).astype(case["dtype"]) for name in ("x", "w")}
        return {"y": self.listed(self.result(operation, attributes, given, case["shapes"]["y"], case)), "forward_only": True}

    def result(self, operation: str, attributes: "dict[str, Any]", given: "dict[str, Any]", shape: "Any", case: "dict[str, Any]") -> "Any":
        """Output of a model with one operation."""
        kind = FLOAT16 if case["type"] == "float16" else FLOAT
        inputs = [value_info(name, kind, array.shape) for name, array in given.items()]
        made = model([node(operation, list(given), ["y"], attributes)], inputs, [value_info("y", kind, shape)])
        session = self.session(made, case, is_cpu=self.is_cpu)
        result = session.run(["y"], given)[0]
        if self.profile:
            self.profile = session.end_profiling()
        return result

    def fetch(self, tensor: "Any") -> "Any":
        """Results are arrays already."""
        return tensor

    def names(self, case: "dict[str, Any]") -> "Iterable[str]":
        """Provider and operation of each node in the profile of a session."""
        # A predictable name could be a symbolic link made by another user.
        with tempfile.TemporaryDirectory(prefix="cudnn-resolve-") as folder:
            self.profile = os.path.join(folder, "profile")
            try:
                self.compute(case)
                with open(self.profile, encoding="utf-8") as file:
                    events = json.loads(file.read(MOST_BYTES))
            finally:
                self.profile = ""
        rows = [event.get("args") or {} for event in events if isinstance(event, dict)]
        return sorted({"{}:{}".format(row["provider"], row["op_name"]) for row in rows if "provider" in row and "op_name" in row})

    def session(self, content: bytes, case: "dict[str, Any]", *, is_cpu: bool) -> "Any":
        """Session on the device; RuntimeError if ONNX Runtime silently fell back to another one."""
        options = self.lib.SessionOptions()
        options.log_severity_level = 3
        if self.profile:
            options.enable_profiling, options.profile_file_prefix = True, self.profile
        if is_cpu:
            return self.lib.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        is_nhwc = case.get("layout") == "nhwc"
        settings = {"device_id": "0"}
        if version_tuple(self.lib.__version__) >= (1, 18):
            settings["use_tf32"] = "1" if case.get("type") == "tf32" else "0"
        if version_tuple(self.lib.__version__) >= (1, 20):
            settings["prefer_nhwc"] = "1" if is_nhwc else "0"
        elif is_nhwc:
            raise Unsupported("this ONNX Runtime has the channels first")
        session = self.lib.InferenceSession(content, options, providers=[("CUDAExecutionProvider", settings)])
        if session.get_providers()[:1] != ["CUDAExecutionProvider"]:
            raise RuntimeError("the session fell back to {}".format(", ".join(session.get_providers())))
        return session

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution whose input and output stay on the device."""
        kind = FLOAT16 if work["dtype"] == "float16" else FLOAT
        if version_tuple(self.lib.__version__) < (1, 20):
            work = dict(work, layout="nchw")
        attributes = {"pads": [work["padding"]] * 4, "kernel_shape": work["w"][2:]}
        shapes = {"x": [batch, *work["x"][1:]], "w": work["w"]}
        inputs = [value_info(name, kind, shape) for name, shape in shapes.items()]
        out = value_info("y", kind, [batch, work["w"][0], *work["x"][2:]])
        session = self.session(model([node("Conv", ["x", "w"], ["y"], attributes)], inputs, [out]), work, is_cpu=is_cpu)
        binding, place = session.io_binding(), "cpu" if is_cpu else "cuda"
        random = self.numpy.random.RandomState(0)
        # On the CPU an OrtValue is a view of its array: both must stay referenced.
        given = {name: random.randn(*shape).astype(work["dtype"]) for name, shape in shapes.items()}
        values = {name: self.lib.OrtValue.ortvalue_from_numpy(array, place, 0) for name, array in given.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("y", place)

        def once() -> None:
            session.run_with_iobinding(binding)

        return time_call(once, lambda _last: binding.synchronize_outputs(), work["seconds"])
