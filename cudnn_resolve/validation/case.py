"""Small computations for cuDNN and every framework: one for each class of convolution, type and layout.

All dimensions differ and neighbouring values are unrelated, so a transposed kernel, a wrong layout or an off-by-one index cannot give the
right numbers. Only the wide case has a square kernel: that is the one case in which Winograd's less exact algorithm can be chosen.
"""

from __future__ import annotations

import math
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
"""`tf32` is float32 whose factors the GPU may round to ten bits of fraction; `float32` forbids that."""

TYPES: tuple[Type, ...] = ("float32", "tf32", "float16", "bfloat16")
NARROW: tuple[Type, ...] = ("float16", "bfloat16")
LEAST_CAPABILITY: Mapping[str, tuple[int, int]] = MappingProxyType({"tf32": (8, 0), "bfloat16": (8, 0), "float16": (5, 3)})
"""Lowest compute capability with native arithmetic in a type; source: CUDA C++ Programming Guide, arithmetic throughput."""


class Case(Struct, frozen=True, kw_only=True):
    """One computation. Tensors are given in the order batch, channels, space, whatever layout is computed in."""

    name: str
    """Class of the case, `conv2d-strided`."""
    kind: Kind = "convolution"
    type: Type = "float32"
    layout: Layout = "nchw"
    batch: int = 2
    channels: int = 3
    """Input channels; inner dimension of a matrix product, input width of a recurrent layer."""
    filters: int = 4
    """Output channels; columns of a matrix product, width of a recurrent layer."""
    size: tuple[int, ...] = ()
    """Input size in each spatial dimension; rows of a matrix product, steps of a recurrent layer."""
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    """On both sides of each dimension."""
    dilation: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False

    @property
    def id(self) -> str:
        """Class, type and layout, `conv2d-strided/float16/nhwc`; only convolutions have a layout."""
        return f"{self.name}/{self.type}" + (f"/{self.layout}" if self.kind == "convolution" else "")

    @property
    def out_size(self) -> tuple[int, ...]:
        """Output size in each spatial dimension."""
        rows = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        if self.transposed:
            return tuple((size - 1) * stride - 2 * pad + (kernel - 1) * step + 1 for size, kernel, stride, pad, step in rows)
        return tuple((size + 2 * pad - (kernel - 1) * step - 1) // stride + 1 for size, kernel, stride, pad, step in rows)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the input `x`, the weights `w` (in PyTorch's order) and the output `y`."""
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
        """Multiplications and additions of a forward convolution."""
        return 2 * math.prod(self.shapes["y"]) * math.prod(self.shapes["w"][1:])

    @property
    def question(self) -> dict[str, Any]:
        """JSON form for a payload: the case and its numbers."""
        shapes = {**self.shapes, "dy": self.shapes["y"]}
        return {**asdict(self), "id": self.id, "dtype": dtype_of(self.type), "shapes": shapes, **tensors(self)}

    @property
    def shared(self) -> Case:
        """Case with the same numbers: both narrow types share them, as do both wide types, and all layouts."""
        return replace(self, type="float16" if self.type in NARROW else "float32", layout="nchw")


def dtype_of(type_: str) -> str:
    """Element type of the tensors."""
    return "float32" if type_ == "tf32" else type_


def tensors(case: Case) -> Mapping[str, tuple[float, ...]]:
    """Numbers of a case by tensor, `dy` for the output gradient; all are exact in the case's type."""
    return _tensors(case.shared)


@cache
def _tensors(case: Case) -> Mapping[str, tuple[float, ...]]:
    shapes = {**case.shapes}
    if case.kind == "convolution":
        shapes["dy"] = shapes["y"]
    del shapes["y"]
    numbers = _numbers(sum(case.name.encode()) + 1)
    # Eight significant bits are exact in bfloat16, float16 and every wider type: one reference serves both narrow types.
    quantize = _eight_bits if case.type in NARROW else _float32
    # Recurrent weights are small: the error bound would otherwise grow with every step.
    scale = {"h": 0.125}
    return MappingProxyType(
        {name: tuple(quantize(scale.get(name, 1.0) * next(numbers)) for _ in range(math.prod(shape))) for name, shape in shapes.items()}
    )


def _numbers(seed: int) -> Iterator[float]:
    """Yield pseudo-random numbers between -1 and 1, the same on every machine (Knuth's MMIX generator)."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield (state >> 11) / (1 << 52) - 1.0


def _float32(number: float) -> float:
    """Round to single precision."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _eight_bits(number: float) -> float:
    """Round to a multiple of 1/128."""
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
"""Shape of a real network: enough channels for tensor cores, and a kernel for which any algorithm can be chosen."""
MATMUL = Case(name="matmul", kind="matmul", size=(5,), channels=37, filters=7)
ENCODER = Case(name="conv1d-encoder", kind="encoder", size=(10,), batch=2, channels=5, filters=6)
"""CTranslate2's only use of cuDNN: two 1-d convolutions with padding 1, the second with stride 2, GELU after each.

Narrow types are left out: the final normalization amplifies rounding errors until wrong results no longer stand out.
"""
LSTM = Case(name="lstm", kind="lstm", size=(3,), batch=3, channels=5, filters=6)


def framework_cases(*, everything: bool = False) -> tuple[Case, ...]:
    """Every class in every type, a matrix product in every type, and a recurrent layer.

    Layouts alternate so that each class and each type meets both; `everything` combines each with both.
    """
    found = []
    for row, base in enumerate((*CLASSES, WIDE)):
        for column, type_ in enumerate(TYPES):
            layouts: tuple[Layout, ...] = ("nhwc", "nchw") if (row + column) % 2 else ("nchw", "nhwc")
            found += [replace(base, type=type_, layout=layout) for layout in layouts[: 2 if everything else 1]]
    return (*found, *(replace(MATMUL, type=type_) for type_ in TYPES), LSTM)


def bare_cases() -> tuple[Case, ...]:
    """Cases for cuDNN without a framework: types and layouts that its oldest algorithm supports on every GPU."""
    layouts: tuple[Layout, ...] = ("nchw", "nhwc")
    conv2d = CLASSES[1]
    return (
        *(case for case in (*CLASSES, WIDE) if not case.transposed),
        replace(conv2d, type="float64"),
        *(replace(conv2d, type="float16", layout=layout) for layout in layouts),
    )
