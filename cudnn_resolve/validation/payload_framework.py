"""What the parts of all frameworks share: they import one, open a device, and compute or time what they are given there.

Python 3.6, standard library only.
"""

import contextlib
import re

from cudnn_resolve.validation.payload import Unsupported, compute_cases, take_times

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

TELLING = re.compile(r"conv|cudnn|gemm|rnn|lstm|winograd|grad|fprop|im2col|im2vol|vol2col|triton|cutlass|xmma|fft|nvjet", re.IGNORECASE)
"""Some of this stands in the name of whatever computes a convolution."""
RANKS = (
    re.compile(r"cudnn|fprop|dgrad|wgrad|xmma|cutlass|implicit|winograd|convolve|fft[123]d_", re.IGNORECASE),
    re.compile(r"slow_conv|thnn|mkldnn|nnpack|miopen|depthwise|im2col|im2vol|vol2col|triton|^convolution$|Provider:", re.IGNORECASE),
    re.compile(r"conv|gemm|nvjet", re.IGNORECASE),
)
"""What a judge needs first: what looks like cuDNN's kernels, then what stands in for them, then what is told of them."""
PART = re.compile(r"libcudnn_\w{1,40}(-[0-9a-f]{1,16})?\.so[.0-9]{0,20}$")
MOST_NAMES = 60
MOST_LETTERS = 160


# --- who computed: names of operations and kernels, which the parent judges ---


def evidence(how: str, names: "Iterable[str]") -> "dict[str, Any]":
    """What a witness tells: who was asked, the names that say something, what says most first, and how many of them were left out."""
    found = sorted({str(name)[:MOST_LETTERS] for name in names if TELLING.search(str(name))})
    ranked = []  # type: list[list[str]]
    for pattern in RANKS:
        ranked.append([name for name in found if pattern.search(name)])
        found = [name for name in found if name not in ranked[-1]]
    ranked.append(found)
    # Of each rank some, so that a crowd of one does not hide another.
    first = [name for rank in ranked for name in rank[: MOST_NAMES // len(ranked)]]
    told = first + [name for rank in ranked for name in rank if name not in first]
    return {"how": how, "names": told[:MOST_NAMES], "cut": max(len(told) - MOST_NAMES, 0)}


def cudnn_parts() -> "set[str]":
    """List the parts of cuDNN that this process holds; those that compute come with the first convolution."""
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        return {match.group(0) for line in lines for match in [PART.search(line.rstrip())] if match}


# --- a framework ---


class Framework:
    """One framework on one device. A part of its own fills in how this one imports, computes and is timed.

    `tensor` and `listed` take and give numbers in the order batch, channels, space; `order` says which axes the framework wants.
    """

    TITLE = ""
    """Its name in messages."""
    NUMPY = True
    """False where it needs none."""
    CPU_TOO = True
    """False where it computes on GPUs only."""
    WITHOUT = ()  # type: tuple[str, ...]
    """Types that it does not compute, or that cannot be asked for."""
    ONLY_GPU = ()  # type: tuple[str, ...]
    """What it says of what it computes on GPUs only."""
    WITNESS = "/proc/self/maps"
    """Who says what computed a case."""

    def __init__(self, question: "dict[str, Any]", tell: "Any") -> None:
        self.name = str(question["module"])
        self.is_cpu = question["device"] == "cpu"
        self.tell = tell
        self.prepare()
        tell("step", "import {}".format(self.name))
        self.lib = __import__(self.name)
        self.numpy = __import__(question["numpy"]) if self.NUMPY else None  # type: Any
        tell("step", "{} opens the {}".format(self.name, "CPU" if self.is_cpu else "GPU"))
        self.open()
        self.before = cudnn_parts()
        tell("ready")

    @classmethod
    def run(cls, question: "dict[str, Any]", tell: "Any") -> None:
        """Tell of each case what the framework computes on the device of the question, or how long each work takes."""
        framework = cls(question, tell)
        with framework.scope():
            if question.get("speed"):
                take_times(question, tell, framework.speed)
            else:
                compute_cases(question, tell, framework.compute, framework.witness)

    @classmethod
    def built(cls, _module: "Any") -> "dict[str, Any]":
        """Ask what it was built with, `{"cuda": "12.4", "cudnn": "9.1.0"}`; a key is left out where it does not say."""
        return {}

    @classmethod
    def opens(cls, _module: "Any", _framework: "dict[str, Any]") -> "str | None":
        """Let it open its cuDNN without a GPU, and say how; None where it does not."""
        return None

    def prepare(self) -> None:
        """Set variables that it reads as it is imported."""

    def open(self) -> None:
        """Open the device, or raise."""

    def scope(self) -> "Any":
        """The context in which everything is computed."""
        return contextlib.ExitStack()

    def refusal(self, _case: "dict[str, Any]") -> str:
        """Why a case cannot be computed here, which is no fault; "" where it can."""
        return ""

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

    def allow(self, case: "dict[str, Any]") -> None:
        """Set the framework to the type of a case or work; Unsupported where it has none."""
        if case["type"] in self.WITHOUT:
            raise Unsupported("{} has no {} that one could ask for".format(self.TITLE, case["type"]))
        why = self.refusal(case)
        if why:
            raise Unsupported(why)

    def shortened(self, error: Exception) -> str:
        """Choose the words of an error that say most."""
        return str(error)[:200]

    def matmul(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """A product of matrices."""
        return {"y": self.listed(self.lib.matmul(self.tensor(case, "x"), self.tensor(case, "w")))}

    def array(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Make one of the given tensors in NumPy, its axes in the given order."""
        array = self.numpy.array(case[name], dtype="float32").reshape(case["shapes"][name])
        return array if order is None else self.numpy.ascontiguousarray(array.transpose(order))

    def tensor(self, case: "dict[str, Any]", name: str, order: "Sequence[int] | None" = None) -> "Any":
        """Put one of the given tensors on the device, its axes in the given order."""
        raise NotImplementedError

    def fetch(self, tensor: "Any") -> "Any":
        """Bring a tensor back as an array of NumPy."""
        raise NotImplementedError

    def listed(self, tensor: "Any", order: "Sequence[int] | None" = None) -> "list[float]":
        """List the elements of a tensor, whose axes are in the given order, in that of the case."""
        array = self.fetch(tensor)
        array = array if order is None else array.transpose([list(order).index(axis) for axis in range(len(order))])
        return [float(one) for one in array.astype("float64").ravel().tolist()]

    def witness(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Say what computed a case."""
        return evidence(self.WITNESS, self.names(case))

    def names(self, _case: "dict[str, Any]") -> "Iterable[str]":
        """Name what computes a case: here the parts of cuDNN that came with the first convolution."""
        return ["loaded " + name for name in cudnn_parts() - self.before]

    def speed(self, work: "dict[str, Any]") -> "dict[str, Any]":
        """Time one convolution on the device, and a part of it on the CPU."""
        self.allow(work)
        cpu = work["cpu_batch"] if self.CPU_TOO else 0
        return {
            "seconds": float(self.seconds(work, work["x"][0], is_cpu=self.is_cpu)),
            "cpu_seconds": float(self.seconds(work, cpu, is_cpu=True)) if cpu else None,
        }

    def seconds(self, work: "dict[str, Any]", batch: int, *, is_cpu: bool) -> float:
        """Time one convolution of so many images."""
        raise NotImplementedError


def order_of(case: "dict[str, Any]") -> "list[int]":
    """Axes that bring a tensor from batch, channels, space into the layout of a convolution."""
    rank = len(case["size"]) + 2
    return list(range(rank)) if case["layout"] == "nchw" else [0, *range(2, rank), 1]


def version_tuple(text: str) -> "tuple[int, ...]":
    """`2.6.0+cu124` as (2, 6, 0)."""
    numbers = []
    for part in text.split("+", maxsplit=1)[0].split("."):
        digits = "".join(letter for letter in part if letter.isdigit())
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
