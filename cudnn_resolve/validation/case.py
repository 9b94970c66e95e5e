"""The work that is given to cuDNN and to every framework: one small computation for each class of convolution, type and layout.

No dimension equals another and no value is like its neighbour, so that a transposed kernel, a wrong layout or an index that is off by
one cannot give the right numbers. Kernels are not square either but in the one that is wide: Winograd's algorithm, which is less exact
than others, can then be chosen for that one only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

Kind = Literal["convolution", "matmul", "lstm", "encoder"]
Layout = Literal["nchw", "nhwc"]
Type = Literal["float32", "tf32", "float16", "bfloat16", "float64"]
"""`tf32` is float32 whose products the card may round to ten bits of fraction; in `float32` that is forbidden."""

TYPES: tuple[Type, ...] = ("float32", "tf32", "float16", "bfloat16")
NARROW: tuple[Type, ...] = ("float16", "bfloat16")
LEAST_CAPABILITY: Mapping[str, tuple[int, int]] = MappingProxyType({"tf32": (8, 0), "bfloat16": (8, 0), "float16": (5, 3)})
"""The compute capability from which on a card computes with a type itself; source: CUDA C++ Programming Guide, arithmetic throughput."""


class Case(Struct, frozen=True, kw_only=True):
    """One computation. Tensors are listed in the order batch, channels, space, whatever the layout in which they are computed."""

    name: str
    """The class, `conv2d-strided`."""
    kind: Kind = "convolution"
    type: Type = "float32"
    layout: Layout = "nchw"
    batch: int = 2
    channels: int = 3
    """Of the input; of a matrix the inner dimension, of a recurrent layer the width of its input."""
    filters: int = 4
    """Channels of the output; of a matrix its columns, of a recurrent layer its width."""
    size: tuple[int, ...] = ()
    """Of the input, one number for each dimension of space; of a matrix its rows, of a recurrent layer the steps."""
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    """On both sides of each dimension."""
    dilation: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False

    @property
    def id(self) -> str:
        """`conv2d-strided/float16/nhwc`; a matrix product has no layout."""
        return f"{self.name}/{self.type}" + (f"/{self.layout}" if self.kind == "convolution" else "")

    @property
    def out_size(self) -> tuple[int, ...]:
        """Size of the output in each dimension of space."""
        rows = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        if self.transposed:
            return tuple((size - 1) * stride - 2 * pad + (kernel - 1) * step + 1 for size, kernel, stride, pad, step in rows)
        return tuple((size + 2 * pad - (kernel - 1) * step - 1) // stride + 1 for size, kernel, stride, pad, step in rows)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the input `x`, the weights `w` and the output `y`; the weights as PyTorch has them."""
        if self.kind == "matmul":
            return {"x": (*self.size, self.channels), "w": (self.channels, self.filters), "y": (*self.size, self.filters)}
        if self.kind == "lstm":
            width = 4 * self.filters
            return {
                "x": (*self.size, self.batch, self.channels),
                "w": (width, self.channels),
                "h": (width, self.filters),
                "b": (width,),
                "y": (*self.size, self.batch, self.filters),
            }
        if self.kind == "encoder":
            frames = self.size[0] // 2
            return {
                "x": (self.batch, self.channels, *self.size),
                "w": (self.filters, self.channels, 3),
                "v": (self.filters, self.filters, 3),
                "y": (self.batch, frames, self.filters),
            }
        first, second = (self.channels, self.filters) if self.transposed else (self.filters, self.channels)
        return {
            "x": (self.batch, self.channels, *self.size),
            "w": (first, second // self.groups, *self.kernel),
            "y": (self.batch, self.filters, *self.out_size),
        }

    @property
    def operations(self) -> int:
        """Multiplications and additions of the forward computation."""
        shapes = self.shapes
        if self.kind == "matmul":
            return 2 * count(shapes["y"]) * self.channels
        if self.transposed:
            return 2 * count(shapes["x"]) * count(shapes["w"][1:])
        return 2 * count(shapes["y"]) * count(shapes["w"][1:])

    @property
    def question(self) -> dict[str, Any]:
        """What a payload is told: the case and its numbers."""
        shapes = {**self.shapes, "dy": self.shapes["y"]}
        return {**asdict(self), "id": self.id, "dtype": dtype_of(self.type), "shapes": shapes, **tensors(self)}

    @property
    def shared(self) -> Case:
        """The case of which this one has the numbers: they are the same for both narrow types, both wide ones and all layouts."""
        return replace(self, type="float16" if self.type in NARROW else "float32", layout="nchw")


def dtype_of(type_: str) -> str:
    """The type that tensors have."""
    return "float32" if type_ == "tf32" else type_


def count(shape: tuple[int, ...]) -> int:
    """Elements of a tensor of that shape."""
    product = 1
    for length in shape:
        product *= length
    return product


def tensors(case: Case) -> Mapping[str, tuple[float, ...]]:
    """The numbers of a case by tensor, `dy` for the gradient of the output; each can be written in the case's type exactly."""
    return _tensors(case.shared)


@cache
def _tensors(case: Case) -> Mapping[str, tuple[float, ...]]:
    shapes = {**case.shapes}
    if case.kind == "convolution":
        shapes["dy"] = shapes["y"]
    del shapes["y"]
    numbers = _numbers(sum(case.name.encode()) + 1)
    # Eight bits of significand are exact in bfloat16, in float16 and in everything wider: one reference serves both.
    write = _eight_bits if case.type in NARROW else _float32
    # What an output hands on to the next step is kept small: the bound of the error would otherwise grow from step to step.
    scale = {"h": 0.125}
    return MappingProxyType(
        {name: tuple(write(scale.get(name, 1.0) * next(numbers)) for _ in range(count(shape))) for name, shape in shapes.items()}
    )


def _numbers(seed: int) -> Iterator[float]:
    """Numbers without pattern between -1 and 1, the same on every machine (Knuth's MMIX generator)."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield (state >> 11) / (1 << 52) - 1.0


def _float32(number: float) -> float:
    """The nearest number of single precision."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _eight_bits(number: float) -> float:
    """The nearest multiple of 1/128."""
    return round(number * 128) / 128


def _convolution(name: str, channels: int, filters: int, size: tuple[int, ...], kernel: tuple[int, ...], **more: Any) -> Case:
    ones = (1,) * len(size)
    return Case(
        name=name,
        channels=channels,
        filters=filters,
        size=size,
        kernel=kernel,
        **{"stride": ones, "padding": (0,) * len(size), "dilation": ones, **more},
    )


CLASSES = (
    _convolution("conv1d", 3, 4, (11,), (4,), padding=(1,)),
    _convolution("conv2d", 3, 4, (7, 5), (3, 2), padding=(1, 0)),
    _convolution("conv3d", 2, 3, (5, 4, 6), (2, 3, 4), padding=(0, 1, 2)),
    _convolution("conv2d-grouped", 4, 6, (6, 5), (2, 3), padding=(0, 1), groups=2),
    _convolution("conv2d-depthwise", 4, 8, (6, 5), (3, 2), padding=(1, 0), groups=4),
    _convolution("conv2d-strided", 3, 4, (9, 8), (3, 2), stride=(2, 3), padding=(1, 0)),
    _convolution("conv2d-dilated", 3, 4, (9, 8), (3, 2), dilation=(2, 3), padding=(2, 1)),
    _convolution("conv2d-transposed", 4, 3, (4, 5), (3, 2), stride=(2, 3), padding=(1, 0), transposed=True),
)
"""One of each class."""
WIDE = _convolution("conv2d-wide", 32, 32, (6, 5), (3, 3), padding=(1, 1), batch=1)
"""As networks have them: enough channels for tensor cores, and a kernel for which every algorithm may be chosen."""
MATMUL = Case(name="matmul", kind="matmul", size=(5,), channels=37, filters=7)
ENCODER = Case(name="conv1d-encoder", kind="encoder", size=(10,), batch=2, channels=5, filters=6)
"""What CTranslate2 uses cuDNN for: two convolutions of one dimension with padding 1, the second with stride 2, GELU after each.

In narrow types the normalization at its end blows errors up too far for a wrong result to show.
"""
LSTM = Case(name="lstm", kind="lstm", size=(3,), batch=3, channels=5, filters=6)


def framework_cases(*, everything: bool = False) -> tuple[Case, ...]:
    """Every class with every type; matrix product, recurrent layer.

    The layouts come in turns, so that each class and each type meets both, or with `everything` both each time.
    """
    found = []
    for row, one in enumerate((*CLASSES, WIDE)):
        for column, type_ in enumerate(TYPES):
            layouts: tuple[Layout, ...] = ("nhwc", "nchw") if (row + column) % 2 else ("nchw", "nhwc")
            found += [replace(one, type=type_, layout=layout) for layout in layouts[: 2 if everything else 1]]
    return (*found, *(replace(MATMUL, type=type_) for type_ in TYPES), LSTM)


def bare_cases() -> tuple[Case, ...]:
    """What cuDNN is given without a framework: types and layouts that its oldest algorithm serves on every card."""
    plain = [one for one in (*CLASSES, WIDE) if not one.transposed]
    narrow = [replace(one, type="float16", layout=layout) for one in plain[1:2] for layout in ("nchw", "nhwc")]
    return (*plain, *(replace(one, type="float64") for one in plain[1:2]), *narrow)
