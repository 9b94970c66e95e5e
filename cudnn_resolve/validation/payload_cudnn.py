"""Compute the cases with cuDNN 7, 8 or 9 alone, by functions that all three have, without a framework or NumPy.

This tells a broken framework from a broken cuDNN. GPU memory comes from the driver's own library. Python 3.6
grammar, standard library only.
"""

import contextlib
import ctypes
import struct

from cudnn_resolve.validation.payload import Unsupported, compute_cases, try_call
from cudnn_resolve.validation.payload_card import Card, prototyped
from cudnn_resolve.validation.payload_load import cuda_libraries_beside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FLOAT, DOUBLE, HALF = 0, 1, 2
KINDS = {"float32": (FLOAT, "f"), "float64": (DOUBLE, "d"), "float16": (HALF, "e")}
NCHW, NHWC = 0, 1
CROSS_CORRELATION = 1
DEFAULT_MATH, FMA_MATH = 0, 3
"""Since cuDNN 8 the default allows TF32; before there is none."""
BAD_PARAM = 3
"""Up to cuDNN 8."""
ALGORITHMS = {"Forward": (0, 1, 2, 3, 4, 5, 6, 7), "BackwardData": (1, 2, 3, 4, 5, 0), "BackwardFilter": (1, 2, 4, 5, 6, 0, 3)}
"""Algorithms of each direction, the same in 7, 8 and 9; last those whose order of summation varies from call to call."""
DETERMINISTIC = 1

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
"""Argument types of the cuDNN functions in use: pointers, ints and enumerations, sizes (`n`)."""
for _kind in ("Tensor", "Filter", "Convolution"):
    PROTOTYPES.update({"cudnn{}{}Descriptor".format(verb, _kind): "p" for verb in ("Create", "Destroy")})
for _direction in ALGORITHMS:
    PROTOTYPES["cudnnGetConvolution{}Algorithm_v7".format(_direction)] = "pppppipp"
    PROTOTYPES["cudnnGetConvolution{}WorkspaceSize".format(_direction)] = "pppppip"
    PROTOTYPES["cudnnConvolution{}".format(_direction)] = "pppppppipnppp"
REFUSALS = (6, 9)
"""CUDNN_STATUS_ARCH_MISMATCH and NOT_SUPPORTED up to cuDNN 8; cuDNN 9 has the range 3000 to 3999, with reasons."""
BROKEN = (3005, 3006, 3008, 3009)
"""Statuses in that range that are faults: incompatible driver or CUDA runtime, a library that is missing or does not load."""


class Unknown(RuntimeError):  # noqa: N818 - an answer of cuDNN
    """cuDNN does not know the request, which is no fault if its heuristics did not propose it."""


class Refused(RuntimeError):  # noqa: N818 - an answer of cuDNN
    """cuDNN does not support the request, which is no fault if the request is unusual."""


def run(question: "dict[str, Any]", emit: "Any") -> None:
    """Compute every case with the libcudnn of the question on the first visible GPU."""
    path = question["library"]
    for library in cuda_libraries_beside(path):
        # One that cannot be opened is missed later, by those that need it.
        try_call(ctypes.CDLL, library, ctypes.RTLD_GLOBAL)
    emit("step", "open the driver's library")
    card = Card()
    emit("step", "open {}".format(path))
    cudnn = Cudnn(path, card)
    emit("step", "cudnnCreate()")
    cudnn.start()
    compute_cases(question, emit, cudnn.compute)


class Perf(ctypes.Structure):
    """cudnnConvolution*AlgoPerf_t: one row from the heuristics, the same in 7, 8 and 9 and for all directions."""

    _fields_ = [
        ("algo", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    ]


class Cudnn:
    """One libcudnn."""

    def __init__(self, path: str, card: Card) -> None:
        self.card = card
        self.library = ctypes.CDLL(path)
        self.library.cudnnGetVersion.restype = ctypes.c_size_t
        self.library.cudnnGetErrorString.restype = ctypes.c_char_p
        self.version = int(prototyped(self.library, "cudnnGetVersion", PROTOTYPES)())
        self.handle = ctypes.c_void_p()

    def start(self) -> None:
        """Create the handle, cuDNN's first access to the GPU."""
        self.call("cudnnCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: "Any") -> None:
        """Call a function; RuntimeError if it fails."""
        status = prototyped(self.library, name, PROTOTYPES)(*arguments)
        if status != 0:
            words = prototyped(self.library, "cudnnGetErrorString", PROTOTYPES)(status) or b"error"
            raise self.error_kind(status)("{}: {} ({})".format(name, words.decode("ascii", "replace"), status))

    def error_kind(self, status: int) -> "type[RuntimeError]":
        """Classify a status as a refusal, an unknown request, or a fault."""
        if self.version >= 90000:
            if 3000 <= status < 4000 and status not in BROKEN:
                return Refused
            return Unknown if 2000 <= status < 3000 else RuntimeError
        return Refused if status in REFUSALS else Unknown if status == BAD_PARAM else RuntimeError

    def descriptor(self, kind: str) -> "ctypes.c_void_p":
        """Create a descriptor."""
        made = ctypes.c_void_p()
        self.call("cudnnCreate{}Descriptor".format(kind), ctypes.byref(made))
        return made

    def compute(self, case: "dict[str, Any]") -> "dict[str, Any]":
        """Compute the result and the gradients of one convolution."""
        try:
            convolution = Convolution(self, case)
            try:
                answer = convolution.compute()
            except BaseException:
                # On a failed GPU the first error says more than the failure to free memory.
                with contextlib.suppress(RuntimeError):
                    convolution.close()
                raise
            convolution.close()
        except Refused as error:
            if case["type"] == "float32" and case["layout"] == "nchw":
                raise
            raise Unsupported(str(error)) from error
        return answer


class Direction:
    """One direction of a convolution: its operation, the tensor shaped like its result, and the arguments of cuDNN's functions.

    `descriptors` are those of the heuristics, `operands` descriptor and memory of each input, `target` is the descriptor of the result.
    """

    def __init__(self, operation: str, tensor: str, descriptors: "Sequence[Any]", operands: "Sequence[Any]", target: "Any") -> None:
        self.operation, self.tensor = operation, tensor
        self.descriptors, self.operands, self.target = descriptors, operands, target


class Convolution:
    """One convolution: its descriptors and its memory."""

    def __init__(self, cudnn: Cudnn, case: "dict[str, Any]") -> None:
        self.cudnn = cudnn
        self.case = case
        self.type, self.letter = KINDS[case["type"]]
        self.format = NHWC if case["layout"] == "nhwc" else NCHW
        # cuDNN's interface begins at two spatial dimensions.
        self.extra = 1 if len(case["size"]) == 1 else 0
        self.shapes = {name: self.widened(case["shapes"][name]) for name in ("x", "w", "y")}
        self.descriptors = {"x": self.describe_tensor("x"), "y": self.describe_tensor("y"), "w": self.describe_filter()}
        self.convolution = self.describe_convolution()
        self.pointers = []  # type: list[ctypes.c_void_p]

    def widened(self, shape: "Sequence[int]") -> "list[int]":
        """Extend a shape to at least two spatial dimensions."""
        return list(shape[:2]) + [1] * self.extra + list(shape[2:])

    def ints(self, numbers: "Sequence[int]", fill: int) -> "Any":
        """C array with one number per spatial dimension."""
        numbers = [fill] * self.extra + list(numbers)
        return (ctypes.c_int * len(numbers))(*numbers)

    def describe_tensor(self, name: str) -> "ctypes.c_void_p":
        """Describe an input or output by strides that match its layout."""
        shape = self.shapes[name]
        strides = [0] * len(shape)
        step = 1
        axes = list(range(len(shape)))
        if self.format == NHWC:
            axes = [0, *axes[2:], 1]
        for axis in reversed(axes):
            strides[axis] = step
            step *= shape[axis]
        made = self.cudnn.descriptor("Tensor")
        ints = ctypes.c_int * len(shape)
        self.cudnn.call("cudnnSetTensorNdDescriptor", made, self.type, len(shape), ints(*shape), ints(*strides))
        return made

    def describe_filter(self) -> "ctypes.c_void_p":
        """Describe the weights."""
        shape = self.shapes["w"]
        made = self.cudnn.descriptor("Filter")
        self.cudnn.call("cudnnSetFilterNdDescriptor", made, self.type, self.format, len(shape), (ctypes.c_int * len(shape))(*shape))
        return made

    def describe_convolution(self) -> "ctypes.c_void_p":
        """Describe the convolution."""
        case, made = self.case, self.cudnn.descriptor("Convolution")
        rank = len(case["size"]) + self.extra
        compute = DOUBLE if self.type == DOUBLE else FLOAT
        pads, strides, dilations = self.ints(case["padding"], 0), self.ints(case["stride"], 1), self.ints(case["dilation"], 1)
        self.cudnn.call("cudnnSetConvolutionNdDescriptor", made, rank, pads, strides, dilations, CROSS_CORRELATION, compute)
        self.cudnn.call("cudnnSetConvolutionGroupCount", made, case["groups"])
        math = FMA_MATH if self.cudnn.version >= 8000 and self.type == FLOAT else DEFAULT_MATH
        self.cudnn.call("cudnnSetConvolutionMathType", made, math)
        return made

    def compute(self) -> "dict[str, Any]":
        """Compute all three directions."""
        stored = {name: self.keep(self.cudnn.card.store(self.pack(name, tensor))) for name, tensor in (("x", "x"), ("w", "w"), ("dy", "y"))}
        x, w, y, convolution = self.descriptors["x"], self.descriptors["w"], self.descriptors["y"], self.convolution
        directions = {
            "y": Direction("Forward", "y", (x, w, convolution, y), (x, stored["x"], w, stored["w"]), y),
            "dx": Direction("BackwardData", "x", (w, y, convolution, x), (w, stored["w"], y, stored["dy"]), x),
            "dw": Direction("BackwardFilter", "w", (x, y, convolution, w), (x, stored["x"], y, stored["dy"]), w),
        }
        answer = {"algorithms": {}}  # type: dict[str, Any]
        for name, direction in directions.items():
            answer[name], answer["algorithms"][name] = self.compute_direction(direction)
        return answer

    def compute_direction(self, direction: Direction) -> "tuple[list[float], int]":
        """Compute one direction with the first algorithm that cuDNN does not refuse; the result and that algorithm."""
        proposed = self.algorithms(direction)
        refusal = None  # type: Refused | None
        unknown = None  # type: Unknown | None
        for algorithm in [*proposed, *(other for other in ALGORITHMS[direction.operation] if other not in proposed)]:
            try:
                return self.run_algorithm(direction, algorithm), algorithm
            except Refused as error:  # noqa: PERF203 - seldom more than one is tried
                refusal = refusal or error
            except Unknown as error:
                if algorithm in proposed:
                    raise
                unknown = unknown or error
        raise refusal or unknown or RuntimeError("cuDNN has no algorithm")

    def algorithms(self, direction: Direction) -> "list[int]":
        """Algorithms proposed by cuDNN's heuristics, deterministic ones first; none if they refuse the request.

        Any other failure of the heuristics is a fault.
        """
        rows = (Perf * 8)()
        found = ctypes.c_int()
        function = "cudnnGetConvolution{}Algorithm_v7".format(direction.operation)
        try:
            self.cudnn.call(function, self.cudnn.handle, *direction.descriptors, 8, ctypes.byref(found), rows)
        except (Refused, Unknown):
            return []
        useful = [row for row in rows[: found.value] if row.status == 0]
        # Deterministic results: any difference from yesterday is then a change of the stack.
        return [int(row.algo) for row in sorted(useful, key=lambda row: row.determinism != DETERMINISTIC)]

    def run_algorithm(self, direction: Direction, algorithm: int) -> "list[float]":
        """Compute one direction with one algorithm."""
        cudnn, card = self.cudnn, self.cudnn.card
        size = ctypes.c_size_t()
        function = "cudnnGetConvolution{}WorkspaceSize".format(direction.operation)
        cudnn.call(function, cudnn.handle, *direction.descriptors, algorithm, ctypes.byref(size))
        kept = len(self.pointers)
        workspace = self.keep(card.allocate(size.value))
        # Garbage in the output must not matter, since beta is 0.
        result = self.keep(card.store(b"\xff" * self.length(direction.tensor)))
        scalar = ctypes.c_double if self.type == DOUBLE else ctypes.c_float
        one, zero = ctypes.byref(scalar(1)), ctypes.byref(scalar(0))
        function = "cudnnConvolution{}".format(direction.operation)
        target = (zero, direction.target, result)
        try:
            cudnn.call(function, cudnn.handle, one, *direction.operands, self.convolution, algorithm, workspace, size, *target)
            content = card.fetch(result, self.length(direction.tensor))
        except (Refused, Unknown):
            # The next algorithm needs the memory.
            self.free_after(kept)
            raise
        self.free_after(kept)
        return self.unpack(content, direction.tensor)

    # --- numbers to bytes and back ---

    def length(self, tensor: str) -> int:
        """Size of a tensor in bytes."""
        return struct.calcsize(self.letter) * len(self.order(tensor))

    def order(self, tensor: str) -> "list[int]":
        """For each place in memory, the index in the order batch, channels, space."""
        shape = self.shapes[tensor]
        space = 1
        for length in shape[2:]:
            space *= length
        if self.format == NCHW:
            return list(range(shape[0] * shape[1] * space))
        images, channels = range(shape[0]), range(shape[1])
        return [(image * shape[1] + channel) * space + place for image in images for place in range(space) for channel in channels]

    def pack(self, name: str, tensor: str) -> bytes:
        """Numbers of a tensor as laid out in memory."""
        numbers = self.case[name]
        order = self.order(tensor)
        return struct.pack("<{}{}".format(len(order), self.letter), *[numbers[index] for index in order])

    def unpack(self, content: bytes, tensor: str) -> "list[float]":
        """Numbers in the order batch, channels, space."""
        order = self.order(tensor)
        numbers = [0.0] * len(order)
        for index, value in zip(order, struct.unpack("<{}{}".format(len(order), self.letter), content)):
            numbers[index] = value
        return numbers

    # --- memory ---

    def keep(self, pointer: "ctypes.c_void_p") -> "ctypes.c_void_p":
        """Remember a pointer to free later."""
        self.pointers.append(pointer)
        return pointer

    def free_after(self, count: int) -> None:
        """Free all but the first `count` remembered pointers."""
        taken, self.pointers[count:] = self.pointers[count:], []
        self.cudnn.card.free(taken)

    def close(self) -> None:
        """Free memory and descriptors."""
        self.cudnn.card.free(self.pointers)
        kinds = {"x": "Tensor", "y": "Tensor", "w": "Filter"}
        for name, made in self.descriptors.items():
            self.cudnn.call("cudnnDestroy{}Descriptor".format(kinds[name]), made)
        self.cudnn.call("cudnnDestroyConvolutionDescriptor", self.convolution)
