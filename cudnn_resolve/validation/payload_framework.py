"""Base of all framework payloads: import a framework, open a device, and compute or time the given work on it.

Python 3.6, standard library only.
"""

import contextlib
import os
import re
import time

from cudnn_resolve.validation.payload import Unsupported, compute_cases, import_named, result_or_error
from cudnn_resolve.validation.payload_load import mapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

TIMING = "time a convolution in "
"""Prefix of the step in which a type is timed."""
RELEVANT = re.compile(r"conv|cudnn|gemm|rnn|lstm|winograd|grad|fprop|im2col|im2vol|vol2col|triton|cutlass|xmma|fft|nvjet", re.IGNORECASE)
"""Anything that computes a convolution has one of these in its name."""
RANKS = (
    re.compile(r"cudnn|fprop|dgrad|wgrad|xmma|cutlass|implicit|winograd|convolve|fft[123]d_", re.IGNORECASE),
    re.compile(r"slow_conv|thnn|mkldnn|nnpack|miopen|depthwise|im2col|im2vol|vol2col|triton|^convolution$|Provider:", re.IGNORECASE),
    re.compile(r"conv|gemm|nvjet", re.IGNORECASE),
)
"""Most conclusive first: likely kernels of cuDNN, then of its substitutes, then anything that mentions convolutions."""
PART = re.compile(r"libcudnn_\w{1,40}(-[0-9a-f]{1,16})?\.so[.0-9]{0,20}$")
MOST_NAMES = 60
MOST_LETTERS = 160


# --- who computed: names of operations and kernels, which the parent judges ---


def evidence(how: str, names: "Iterable[str]") -> "dict[str, Any]":
    """Report of a witness: its name, the relevant names, most conclusive first, and how many were cut."""
    rest = sorted({str(name)[:MOST_LETTERS] for name in names if RELEVANT.search(str(name))})
    ranked = []  # type: list[list[str]]
    for pattern in RANKS:
        ranked.append([name for name in rest if pattern.search(name)])
        rest = [name for name in rest if name not in ranked[-1]]
    ranked.append(rest)
    # Each rank gets a share, so that many names of one do not crowd out another.
    first = [name for rank in ranked for name in rank[: MOST_NAMES // len(ranked)]]
    chosen = first + [name for rank in ranked for name in rank if name not in first]
    return {"how": how, "names": chosen[:MOST_NAMES], "cut": max(len(chosen) - MOST_NAMES, 0)}


def cudnn_parts() -> "set[str]":
    """Parts of cuDNN in this process; those that compute are loaded by the first convolution."""
    return {name for name in map(os.path.basename, mapped()) if PART.match(name)}


# --- timing ---


def take_times(question: "dict[str, Any]", emit: "Any", measure: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
    """Emit the time of every workload."""
    for work in question["speed"]:
        emit("step", TIMING + work["type"])
        emit("speed", dict(result_or_error(1000, measure, work), type=work["type"]))


def time_call(once: "Callable[[], Any]", wait: "Callable[[Any], Any]", seconds: float) -> float:
    """Seconds per call after warm-up, the best of several rounds; `wait` returns when the device has finished."""
    for _ in range(3):
        wait(once())
    best, repeat, deadline = float("inf"), 1, time.monotonic() + seconds
    while True:
        before = time.monotonic()
        last = None
        for _ in range(repeat):
            last = once()
        wait(last)
        spent = time.monotonic() - before
        best = min(best, spent / repeat)
        if time.monotonic() >= deadline:
            return best
        if spent < 0.02:
            repeat = min(repeat * 4, 4096)


# --- a framework ---


class Framework:
    """One framework on one device. Each payload defines how its framework imports, computes and is timed.

    `tensor` and `listed` take and return numbers in the order batch, channels, space; `order` lists the axes as the framework wants them.
    """

    NUMPY = True
    """False if it does not need NumPy."""
    CPU_TOO = True
    """False if it computes on GPUs only."""
    ONLY_GPU = ()  # type: tuple[str, ...]
    """Its errors about work that it does on GPUs only."""
    WITNESS = "/proc/self/maps"
    """Source of the names in `names`."""

    def __init__(self, question: "dict[str, Any]", emit: "Any") -> None:
        self.name = str(question["module"])
        self.is_cpu = question["device"] == "cpu"
        self.emit = emit
        self.prepare()
        emit("step", "import {}".format(self.name))
        self.lib = __import__(self.name)
        self.numpy = import_named("numpy") if self.NUMPY else None  # type: Any
        emit("step", "{} opens the {}".format(self.name, "CPU" if self.is_cpu else "GPU"))
        self.open()
        self.before = cudnn_parts()

    @classmethod
    def run(cls, question: "dict[str, Any]", emit: "Any") -> None:
        """Compute every case on the device of the question, or time every workload."""
        framework = cls(question, emit)
        with framework.scope():
            if question.get("speed"):
                take_times(question, emit, framework.speed)
            else:
                compute_cases(question, emit, framework.compute, framework.witness)

    @classmethod
    def built(cls, _module: "Any") -> "dict[str, Any]":
        """Versions it was built with, `{"cuda": "12.4", "cudnn": "9.1.0"}`; unknown ones are left out."""
        return {}

    @classmethod
    def opens(cls, _module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """Make it open its cuDNN without a GPU, and return how; None if it does not."""
        return None

    def prepare(self) -> None:
        """Set variables that it reads on import."""

    def open(self) -> None:
        """Open the device, or raise."""

    def scope(self) -> "Any":
        """Context manager around all computation."""
        return contextlib.ExitStack()

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Compute the tensors of one case."""
        self.allow(case)
        try:
            return dict(getattr(self, case["kind"])(case))
        except Unsupported:
            raise
        except Exception as error:
            if self.is_cpu and any(words in str(error) for words in self.ONLY_GPU):
                raise Unsupported("on the CPU: {}".format(self.shortened(error))) from error
            raise

    def allow(self, _case: "dict[str, Any]") -> None:
        """Configure the type of a case or workload; Unsupported if it cannot be computed here for a legitimate reason."""

    def shortened(self, error: Exception) -> str:
        """Most informative part of an error message."""
        return str(error)[:200]

    def matmul(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Matrix product."""
        return {"y": self.listed(self.lib.matmul(self.tensor(case, "x"), self.tensor(case, "w")))}

    def array(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Given tensor as a NumPy array, its axes in the given order."""
        array = self.numpy.array(case[name], dtype="float32").reshape(case["shapes"][name])
        return array if order is None else self.numpy.ascontiguousarray(array.transpose(order))

    def tensor(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Given tensor on the device, its axes in the given order."""
        raise NotImplementedError

    def operands(
        self, case: "dict[str, Any]", order: "Sequence[int] | None" = None, weights: "Sequence[int] | None" = None
    ) -> "tuple[Any, Any, Any]":
        """Input, weights and output gradient of a convolution; `weights` is the axis order of the weights, `order` that of the others."""
        return self.tensor(case, "x", order), self.tensor(case, "w", weights), self.tensor(case, "dy", order)

    def fetch(self, tensor: "Any") -> "Any":
        """Copy a tensor to a NumPy array."""
        raise NotImplementedError

    def listed(self, tensor: "Any", order: "Sequence[int] | None" = None) -> "list[float]":
        """Elements of a tensor whose axes are in the given order, in the order of the case."""
        array = self.fetch(tensor)
        array = array if order is None else array.transpose([list(order).index(axis) for axis in range(len(order))])
        return [float(number) for number in array.astype("float64").ravel().tolist()]

    def results(
        self, tensors: "tuple[Any, Any, Any]", order: "Sequence[int] | None" = None, weights: "Sequence[int] | None" = None
    ) -> "dict[str, Any]":
        """Elements of output, input gradient and weight gradient of a convolution."""
        y, dx, dw = tensors
        return {"y": self.listed(y, order), "dx": self.listed(dx, order), "dw": self.listed(dw, weights)}

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Observe what computes a case."""
        return evidence(self.WITNESS, self.names(case))

    def names(self, _case: "dict[str, Any]") -> "Iterable[str]":
        """Names of what computes a case: by default, the parts of cuDNN loaded since the start."""
        return ["loaded " + name for name in cudnn_parts() - self.before]

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Time one convolution on the device, and part of it on the CPU."""
        self.allow(work)
        cpu = work["cpu_batch"] if self.CPU_TOO else 0
        return {
            "seconds": float(self.seconds(work, work["x"][0], is_cpu=self.is_cpu)),
            "cpu_seconds": float(self.seconds(work, cpu, is_cpu=True)) if cpu else None,
        }

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution of `batch` images."""
        raise NotImplementedError


def order_of(case: "dict[str, Any]") -> "list[int]":
    """Axis order that brings a tensor from batch, channels, space into the layout of a case."""
    rank = len(case["size"]) + 2
    return list(range(rank)) if case["layout"] == "nchw" else [0, *range(2, rank), 1]


def axes_of(case: "dict[str, Any]", line: str = "W") -> str:
    """Axis letters of a layout, `NCHW`, `NDHWC`; `line` is the letter of a single spatial axis."""
    space = {1: line, 2: "HW", 3: "DHW"}[len(case["size"])]
    return "NC" + space if case["layout"] == "nchw" else "N" + space + "C"


def version_tuple(text: str) -> "tuple[int, ...]":
    """`2.6.0+cu124` as (2, 6, 0)."""
    numbers = []
    for part in text.split("+", maxsplit=1)[0].split("."):
        digits = "".join(letter for letter in part if letter.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
