"""Compute the cases with cuDNN alone, 7, 8 or 9, by the functions that all three have; no framework and no NumPy is needed.

A broken framework and a broken cuDNN are told apart by this. Memory of the card comes from the driver's own library. Tells `ready` once
cuDNN has a handle. Python 3.6 grammar, standard library only.
"""

import contextlib
import ctypes
import struct

from cudnn_resolve.validation.payload import Unsupported, compute_cases, quietly
from cudnn_resolve.validation.payload_card import Card, function_of
from cudnn_resolve.validation.payload_load import neighbours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FLOAT, DOUBLE, HALF = 0, 1, 2
KINDS = {"float32": (FLOAT, "f"), "float64": (DOUBLE, "d"), "float16": (HALF, "e")}
NCHW, NHWC = 0, 1
CROSS_CORRELATION = 1
DEFAULT_MATH, FMA_MATH = 0, 3
"""Before cuDNN 8 there is no TF32 to forbid; from then on the default allows it."""
BAD_PARAM = 3
"""Up to cuDNN 8."""
ALGORITHMS = {"Forward": (0, 1, 2, 3, 4, 5, 6, 7), "BackwardData": (1, 2, 3, 4, 5, 0), "BackwardFilter": (1, 2, 4, 5, 6, 0, 3)}
"""Those of each direction, the same in 7, 8 and 9; last those that add in an order that changes from call to call."""
DETERMINISTIC = 1

DIRECTIONS = ("Forward", "BackwardData", "BackwardFilter")
PROTOTYPES = {
    "cudnnGetVersion": "",
    "cudnnGetErrorString": "i",
    "cudnnCreate": "p",
    "cudnnSetTensorNdDescriptor": "piipp",
    "cudnnSetFilterNdDescriptor": "piiip",
    "cudnnSetConvolutionNdDescriptor": "pipppii",
    "cudnnSetConvolutionGroupCount": "pi",
    "cudnnSetConvolutionMathType": "pi",
}  # type: dict[str, str]
"""The arguments of every function of cuDNN that is called: pointers, ints and enumerations, sizes."""
for _kind in ("Tensor", "Filter", "Convolution"):
    PROTOTYPES.update({"cudnn{}{}Descriptor".format(verb, _kind): "p" for verb in ("Create", "Destroy")})
for _direction in DIRECTIONS:
    PROTOTYPES["cudnnGetConvolution{}Algorithm_v7".format(_direction)] = "pppppipp"
    PROTOTYPES["cudnnGetConvolution{}WorkspaceSize".format(_direction)] = "pppppip"
    PROTOTYPES["cudnnConvolution{}".format(_direction)] = "pppppppipnppp"
REFUSALS = (6, 9)
"""CUDNN_STATUS_ARCH_MISMATCH and NOT_SUPPORTED up to cuDNN 8; in 9 a thousand of their own with the reasons."""
BROKEN = (3005, 3006, 3008, 3009)
"""Reasons among these that are no answer but a fault: incompatible driver or CUDA runtime, a library that is missing or does not load."""


class Unknown(RuntimeError):  # noqa: N818 - an answer of cuDNN
    """cuDNN does not know what it was asked for, which is no fault of its where nobody had proposed it."""


class Refused(RuntimeError):  # noqa: N818 - an answer of cuDNN
    """cuDNN has nothing for what it was asked, which is no sign of a fault where the question was a rare one."""


def run(question: "dict[str, Any]", tell: "Any") -> None:
    """Tell of each case what the libcudnn of the question computes on the first GPU that is visible."""
    path = question["library"]
    for neighbour in neighbours(path):
        # One that cannot be opened is missed later, by those that need it.
        quietly(ctypes.CDLL, neighbour, ctypes.RTLD_GLOBAL)
    tell("step", "open the driver's library")
    card = Card()
    tell("step", "open {}".format(path))
    bench = Bench(path, card)
    tell("step", "cudnnCreate()")
    bench.start()
    tell("ready", bench.version)
    compute_cases(question, tell, bench.compute)


class Perf(ctypes.Structure):
    """One row of what cuDNN's heuristics answer; the same in 7, 8 and 9, for all three directions."""

    _fields_ = [
        ("algo", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    ]


class Bench:
    """One libcudnn."""

    def __init__(self, path: str, card: Card) -> None:
        self.card = card
        self.cudnn = ctypes.CDLL(path)
        self.cudnn.cudnnGetVersion.restype = ctypes.c_size_t
        self.cudnn.cudnnGetErrorString.restype = ctypes.c_char_p
        self.version = int(function_of(self.cudnn, "cudnnGetVersion", PROTOTYPES)())
        self.handle = ctypes.c_void_p()

    def start(self) -> None:
        """Make the handle, which is when cuDNN first speaks to the card."""
        self.call("cudnnCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: "Any") -> None:
        """Call a function of cuDNN; RuntimeError where it does not succeed."""
        status = function_of(self.cudnn, name, PROTOTYPES)(*arguments)
        if status != 0:
            words = function_of(self.cudnn, "cudnnGetErrorString", PROTOTYPES)(status) or b"error"
            raise self.kind_of(status)("{}: {} ({})".format(name, words.decode("ascii", "replace"), status))

    def kind_of(self, status: int) -> "type[RuntimeError]":
        """Tell what a status means: a refusal, a question that cuDNN does not know, or a fault."""
        if self.version >= 90000:
            if 3000 <= status < 4000 and status not in BROKEN:
                return Refused
            return Unknown if 2000 <= status < 3000 else RuntimeError
        return Refused if status in REFUSALS else Unknown if status == BAD_PARAM else RuntimeError

    def descriptor(self, kind: str) -> "ctypes.c_void_p":
        """Make a descriptor."""
        made = ctypes.c_void_p()
        self.call("cudnnCreate{}Descriptor".format(kind), ctypes.byref(made))
        return made

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Compute the result and the gradients of one convolution."""
        plain = case["type"] == "float32" and case["layout"] == "nchw"
        try:
            return self.worked(Work(self, case))
        except Refused as error:
            if plain:
                raise
            raise Unsupported(str(error)) from error

    def worked(self, work: "Work") -> "dict[str, Any]":
        """Do the work and free what it took."""
        try:
            answer = work.all()
        except BaseException:
            # What cannot be given back to a card that failed says less than how it failed.
            with contextlib.suppress(RuntimeError):
                work.close()
            raise
        work.close()
        return answer


class Work:
    """One convolution: its descriptors and its memory."""

    def __init__(self, bench: Bench, case: "dict[str, Any]") -> None:
        self.bench = bench
        self.case = case
        self.type, self.letter = KINDS[case["type"]]
        self.format = NHWC if case["layout"] == "nhwc" else NCHW
        # The interface begins at two dimensions.
        self.extra = 1 if len(case["size"]) == 1 else 0
        self.shapes = {name: self.widened(case["shapes"][name]) for name in ("x", "w", "y")}
        self.descriptors = {"x": self.tensor("x"), "y": self.tensor("y"), "w": self.filter()}
        self.convolution = self.described()
        self.pointers = []  # type: list[ctypes.c_void_p]

    def widened(self, shape: "Sequence[int]") -> "list[int]":
        """Give a shape at least two dimensions of space."""
        return list(shape[:2]) + [1] * self.extra + list(shape[2:])

    def array(self, numbers: "Sequence[int]", fill: int) -> "Any":
        """Make a C array of numbers for each dimension of space."""
        numbers = [fill] * self.extra + list(numbers)
        return (ctypes.c_int * len(numbers))(*numbers)

    def tensor(self, name: str) -> "ctypes.c_void_p":
        """Describe an input or output, whose strides tell its layout."""
        shape = self.shapes[name]
        strides = [0] * len(shape)
        step = 1
        order = list(range(len(shape)))
        if self.format == NHWC:
            order = [0, *order[2:], 1]
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        made = self.bench.descriptor("Tensor")
        ints = ctypes.c_int * len(shape)
        self.bench.call("cudnnSetTensorNdDescriptor", made, self.type, len(shape), ints(*shape), ints(*strides))
        return made

    def filter(self) -> "ctypes.c_void_p":
        """Describe the weights."""
        shape = self.shapes["w"]
        made = self.bench.descriptor("Filter")
        self.bench.call("cudnnSetFilterNdDescriptor", made, self.type, self.format, len(shape), (ctypes.c_int * len(shape))(*shape))
        return made

    def described(self) -> "ctypes.c_void_p":
        """Describe the convolution."""
        case, made = self.case, self.bench.descriptor("Convolution")
        rank = len(case["size"]) + self.extra
        compute = DOUBLE if self.type == DOUBLE else FLOAT
        rows = self.array(case["padding"], 0), self.array(case["stride"], 1), self.array(case["dilation"], 1)
        self.bench.call("cudnnSetConvolutionNdDescriptor", made, rank, rows[0], rows[1], rows[2], CROSS_CORRELATION, compute)
        self.bench.call("cudnnSetConvolutionGroupCount", made, case["groups"])
        math = FMA_MATH if self.bench.version >= 8000 and self.type == FLOAT else DEFAULT_MATH
        self.bench.call("cudnnSetConvolutionMathType", made, math)
        return made

    def all(self) -> "dict[str, Any]":
        """Compute all three directions."""
        card = self.bench.card
        there = {name: self.kept(card.store(self.packed(name, tensor))) for name, tensor in (("x", "x"), ("w", "w"), ("dy", "y"))}
        x, w, y, convolution = self.descriptors["x"], self.descriptors["w"], self.descriptors["y"], self.convolution
        directions = (
            ("y", "Forward", (x, w, convolution, y), (x, there["x"], w, there["w"]), y),
            ("dx", "BackwardData", (w, y, convolution, x), (w, there["w"], y, there["dy"]), x),
            ("dw", "BackwardFilter", (x, y, convolution, w), (x, there["x"], y, there["dy"]), w),
        )
        answer = {"algorithms": {}}  # type: dict[str, Any]
        for name, direction, question, given, target in directions:
            answer[name], answer["algorithms"][name] = self.first_of(name, direction, (question, given, target))
        return answer

    def first_of(self, name: str, direction: str, words: "tuple[Any, Any, Any]") -> "tuple[list[float], int]":
        """Compute one direction by the first algorithm that cuDNN does not refuse, and which that was."""
        likely = self.algorithms(direction, words[0])
        refusal = None  # type: Refused | None
        unknown = None  # type: Unknown | None
        for algorithm in [*likely, *(one for one in ALGORITHMS[direction] if one not in likely)]:
            try:
                return self.directed(name, direction, algorithm, words), algorithm
            except Refused as error:  # noqa: PERF203 - seldom more than one is tried
                refusal = refusal or error
            except Unknown as error:
                if algorithm in likely:
                    raise
                unknown = unknown or error
        raise refusal or unknown or RuntimeError("cuDNN has no algorithm")

    def algorithms(self, direction: str, question: "Sequence[Any]") -> "list[int]":
        """Ask cuDNN's heuristics for algorithms, first those that always give the same; none where they refuse the question.

        Any other fault of theirs is one.
        """
        rows = (Perf * 8)()
        found = ctypes.c_int()
        function = "cudnnGetConvolution{}Algorithm_v7".format(direction)
        try:
            self.bench.call(function, self.bench.handle, question[0], question[1], question[2], question[3], 8, ctypes.byref(found), rows)
        except (Refused, Unknown):
            return []
        useful = [row for row in rows[: found.value] if row.status == 0]
        # One and the same number each time: what differs from yesterday is then a change of the stack.
        return [int(row.algo) for row in sorted(useful, key=lambda row: row.determinism != DETERMINISTIC)]

    def directed(self, name: str, direction: str, algorithm: int, words: "tuple[Any, Any, Any]") -> "list[float]":
        """Compute one direction by one algorithm."""
        question, given, target = words
        bench, tensor = self.bench, {"y": "y", "dx": "x", "dw": "w"}[name]
        size = ctypes.c_size_t()
        bench.call("cudnnGetConvolution{}WorkspaceSize".format(direction), bench.handle, *question, algorithm, ctypes.byref(size))
        held = len(self.pointers)
        workspace = self.kept(bench.card.allocate(size.value))
        # What stands there before must not count: beta is 0.
        result = self.kept(bench.card.store(b"\xff" * self.length(tensor)))
        scalar = ctypes.c_double if self.type == DOUBLE else ctypes.c_float
        one, zero = ctypes.byref(scalar(1)), ctypes.byref(scalar(0))
        convolution = self.convolution
        name = "cudnnConvolution{}".format(direction)
        try:
            bench.call(name, bench.handle, one, *given, convolution, algorithm, workspace, size, zero, target, result)
            content = bench.card.fetch(result, self.length(tensor))
        except (Refused, Unknown):
            # Another algorithm is tried, which needs the room.
            self.give_back(held)
            raise
        self.give_back(held)
        return self.unpacked(content, tensor)

    def give_back(self, held: int) -> None:
        """Free the memory that was taken since so many pointers were held."""
        taken, self.pointers[held:] = self.pointers[held:], []
        self.bench.card.free(taken)

    # --- numbers to bytes and back ---

    def length(self, tensor: str) -> int:
        """Count the bytes of a tensor."""
        return struct.calcsize(self.letter) * len(self.order(tensor))

    def order(self, tensor: str) -> "list[int]":
        """Map each place in memory to the place in the order batch, channels, space."""
        shape = self.shapes[tensor]
        space = 1
        for length in shape[2:]:
            space *= length
        if self.format == NCHW:
            return list(range(shape[0] * shape[1] * space))
        images, channels = range(shape[0]), range(shape[1])
        return [(image * shape[1] + channel) * space + place for image in images for place in range(space) for channel in channels]

    def packed(self, name: str, tensor: str) -> bytes:
        """Pack the numbers of a tensor as they lie in memory."""
        numbers = self.case[name]
        order = self.order(tensor)
        return struct.pack("<{}{}".format(len(order), self.letter), *[numbers[place] for place in order])

    def unpacked(self, content: bytes, tensor: str) -> "list[float]":
        """Unpack numbers into the order batch, channels, space."""
        order = self.order(tensor)
        numbers = [0.0] * len(order)
        for place, value in zip(order, struct.unpack("<{}{}".format(len(order), self.letter), content)):
            numbers[place] = value
        return numbers

    def kept(self, pointer: "ctypes.c_void_p") -> "ctypes.c_void_p":
        """Remember a pointer, so that its memory is freed with the rest."""
        self.pointers.append(pointer)
        return pointer

    def close(self) -> None:
        """Free memory and descriptors."""
        self.bench.card.free(self.pointers)
        kinds = {"x": "Tensor", "y": "Tensor", "w": "Filter"}
        for name, made in self.descriptors.items():
            self.bench.call("cudnnDestroy{}Descriptor".format(kinds[name]), made)
        self.bench.call("cudnnDestroyConvolutionDescriptor", self.convolution)
