r"""What must come out of a case, computed in double precision by nothing but Python, and how far a right result may lie from it.

A convolution, its two gradients, a transposed convolution and a matrix product are one and the same list of products: for each of them
which element of the output it goes to, which element of the input and which of the weights are multiplied. What they have in common is
computed once, and a mistake in that list shows in every result.

Every element is a sum of K products. For any order of summation in a precision of unit u the error is at most K u/(1 - K u) times the
sum of the magnitudes of the products (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1). To that come
the rounding of the factors, where the card rounds them (TF32), of partial sums kept in a narrow type, and of the result itself;
docs/tolerances.md derives the formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.validation.case import Case, Type, count, tensors


class Expected(Struct, frozen=True, kw_only=True):
    """One tensor that must come out."""

    values: tuple[float, ...]
    terms: int
    """Most products that are added up in one element."""
    size: float
    """Largest sum of the magnitudes of those products: what a rounding error is measured against."""
    lost: float = 0.0
    """Error that comes from elsewhere than sums of products, in absolute terms."""


def expected(case: Case) -> Mapping[str, Expected]:
    """The tensors that a case must give: `y`, and of a convolution the gradients `dx` and `dw`."""
    return _expected(case.shared)


@cache
def _expected(case: Case) -> Mapping[str, Expected]:
    given = tensors(case)
    if case.kind == "lstm":
        return {"y": _lstm(case, given)}
    if case.kind == "encoder":
        return {"y": _encoder(case, given)}
    links = tuple(_matmul_links(case) if case.kind == "matmul" else _convolution_links(case))
    shapes = case.shapes
    found = {"y": _added([(y, x, w) for y, x, w in links], given["x"], given["w"], count(shapes["y"]))}
    if case.kind == "convolution":
        found["dx"] = _added([(x, y, w) for y, x, w in links], given["dy"], given["w"], count(shapes["x"]))
        found["dw"] = _added([(w, y, x) for y, x, w in links], given["dy"], given["x"], count(shapes["w"]))
    return found


def _added(links: Sequence[tuple[int, int, int]], one: Sequence[float], other: Sequence[float], size: int) -> Expected:
    values, magnitudes, terms = [0.0] * size, [0.0] * size, [0] * size
    for target, first, second in links:
        term = one[first] * other[second]
        values[target] += term
        magnitudes[target] += abs(term)
        terms[target] += 1
    return Expected(values=tuple(values), terms=max(terms), size=max(magnitudes))


def _matmul_links(case: Case) -> Iterator[tuple[int, int, int]]:
    (rows,), inner, columns = case.size, case.channels, case.filters
    for row, column, step in product(range(rows), range(columns), range(inner)):
        yield row * columns + column, row * inner + step, step * columns + column


def _convolution_links(case: Case) -> Iterator[tuple[int, int, int]]:
    """Output, input and weight of each product; a transposed convolution is one whose input and output have changed places."""
    if case.transposed:
        turned = replace(case, transposed=False, channels=case.filters, filters=case.channels, size=case.out_size)
        for y, x, w in _convolution_links(turned):
            yield x, y, w
        return
    inputs, outputs = case.channels // case.groups, case.filters // case.groups
    for place, tap, where in _places(case):
        for image, filter_, channel in product(range(case.batch), range(case.filters), range(inputs)):
            source = filter_ // outputs * inputs + channel
            yield (
                (image * case.filters + filter_) * count(case.out_size) + place,
                (image * case.channels + source) * count(case.size) + where,
                (filter_ * inputs + channel) * count(case.kernel) + tap,
            )


def _places(case: Case) -> Iterator[tuple[int, int, int]]:
    """For each place of the output and each tap of the kernel that does not fall on the padding: the place of the input."""
    for place, at in enumerate(product(*map(range, case.out_size))):
        for tap, step in enumerate(product(*map(range, case.kernel))):
            rows = zip(at, step, case.stride, case.padding, case.dilation, strict=True)
            where = [one * stride - pad + two * dilation for one, two, stride, pad, dilation in rows]
            if all(0 <= here < size for here, size in zip(where, case.size, strict=True)):
                flat = 0
                for here, size in zip(where, case.size, strict=True):
                    flat = flat * size + here
                yield place, tap, flat


_NORM_EPSILON = 1e-5
_STEEPEST = 1.13
_UNIT = 2.0**-23


def _encoder(case: Case, given: Mapping[str, Sequence[float]]) -> Expected:
    """Two convolutions, GELU after each, and the normalization of every frame (epsilon 1e-5, as everywhere)."""
    one = replace(case, kind="convolution", kernel=(3,), stride=(1,), padding=(1,), dilation=(1,))
    first = _added(list(_convolution_links(one)), given["x"], given["w"], count(one.shapes["y"]))
    hidden = [_gelu(value) for value in first.values]
    two = replace(one, channels=case.filters, stride=(2,))
    second = _added(list(_convolution_links(two)), hidden, given["v"], count(two.shapes["y"]))
    taps = [sum(map(abs, given["v"][row * 3 * case.filters : (row + 1) * 3 * case.filters])) for row in range(case.filters)]
    # GELU is nowhere steeper than 1.13; each result is rounded once when it is written, and once more as it passes the layer.
    error = _STEEPEST * (first.terms + 4) * _UNIT * first.size
    error = _STEEPEST * ((second.terms + 4) * _UNIT * second.size + max(taps) * error) + 2 * _UNIT * second.size
    width, frames = case.filters, two.out_size[0]
    values: list[float] = []
    lost = 0.0
    for image, frame in product(range(case.batch), range(frames)):
        row = [_gelu(second.values[(image * width + channel) * frames + frame]) for channel in range(width)]
        mean = sum(row) / width
        deviation = math.sqrt(sum((value - mean) ** 2 for value in row) / width + _NORM_EPSILON)
        normal = [(value - mean) / deviation for value in row]
        # Mean and deviation are off by the error at most, and what is normalized by both together.
        lost = max(lost, error * (2 + max(map(abs, normal))) / deviation)
        values += normal
    return Expected(values=tuple(values), terms=second.terms, size=1.0, lost=lost)


def _gelu(value: float) -> float:
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


_SQUASH_ERROR = 2.0**-11
"""The largest relative error of the hardware's own tanh; source: PTX ISA, `tanh.approx.f32`."""


def _lstm(case: Case, given: Mapping[str, Sequence[float]]) -> Expected:
    """The outputs of all steps (gates in the order input, forget, cell, output), with a bound of the error that each step adds."""
    (steps,), width = case.size, case.filters
    values: list[float] = []
    error_h = error_c = worst = 0.0
    state = [([0.0] * width, [0.0] * width) for _ in range(case.batch)]
    norm = max(sum(abs(given["h"][row * width + one]) for one in range(width)) for row in range(4 * width))
    for step in range(steps):
        for row in range(case.batch):
            start = (step * case.batch + row) * case.channels
            state[row] = _lstm_step(case, given, given["x"][start : start + case.channels], state[row])
            values += state[row][0]
        # The magnitudes of gates and of what they multiply are at most 1, that of the cell at most the number of steps.
        sums = (case.channels + width + 1) * _UNIT * (case.channels + width + 1) + norm * error_h
        gate, cell = sums / 4 + _SQUASH_ERROR, sums + _SQUASH_ERROR
        error_c = error_c + (step + 1) * gate + gate + cell
        error_h = error_c + gate + _SQUASH_ERROR
        worst = max(worst, error_h)
    return Expected(values=tuple(values), terms=case.channels + width + 1, size=1.0, lost=worst)


def _lstm_step(
    case: Case, given: Mapping[str, Sequence[float]], x: Sequence[float], state: tuple[Sequence[float], Sequence[float]]
) -> tuple[list[float], list[float]]:
    """Output and cell after one step."""
    width, (hidden, cell) = case.filters, state
    sums = []
    for row in range(4 * width):
        own = sum(one * given["w"][row * case.channels + index] for index, one in enumerate(x))
        back = sum(one * given["h"][row * width + index] for index, one in enumerate(hidden))
        sums.append(own + back + given["b"][row])
    gates = [sums[part * width : (part + 1) * width] for part in range(4)]
    enter, forget, leave = ([1 / (1 + math.exp(-one)) for one in gates[part]] for part in (0, 1, 3))
    fresh = [math.tanh(one) for one in gates[2]]
    new = [forget[one] * cell[one] + enter[one] * fresh[one] for one in range(width)]
    return [leave[one] * math.tanh(new[one]) for one in range(width)], new


# --- how far a result may lie off ---


class Precision(Struct, frozen=True, kw_only=True):
    """The rounding errors of one type of computation, each relative to what is rounded."""

    sums: float
    """Of one addition. Tensor cores cut off instead of rounding, which doubles the unit of single precision, 2^-24."""
    factors: float = 0.0
    """Of each factor before it is multiplied."""
    partial: float = 0.0
    """Of partial sums, all of them together: kernels that divide a sum among blocks may add at most four of them in a narrow type."""
    result: float = 0.0
    """Of the result when it is written."""
    smallest: float = 2.0**-149
    """Distance of the type's smallest numbers; what lies below is lost."""


PRECISIONS = MappingProxyType(
    {
        "float64": Precision(sums=2.0**-52, result=2.0**-53, smallest=2.0**-1074),
        "float32": Precision(sums=2.0**-23, result=2.0**-24),
        "tf32": Precision(sums=2.0**-23, factors=2.0**-10, result=2.0**-24),
        "float16": Precision(sums=2.0**-23, partial=4 * 2.0**-11, result=2.0**-11, smallest=2.0**-24),
        "bfloat16": Precision(sums=2.0**-23, partial=4 * 2.0**-8, result=2.0**-8, smallest=2.0**-133),
    }
)


class Comparison(Struct, frozen=True, kw_only=True):
    """How a tensor compares with what was expected."""

    worst: float
    """Largest error as a share of the tolerance; at most 1 is right, infinite where a value is no number or the count is wrong."""
    words: str
    """The element that is furthest off, in words."""

    @property
    def is_right(self) -> bool:
        """True where every element lies within its tolerance."""
        return self.worst <= 1


def tolerance(type_: Type, wanted: Expected, value: float) -> float:
    """The largest error that an element may have whose right value is `value`."""
    unit = PRECISIONS[type_]
    added = wanted.terms * unit.sums / (1 - wanted.terms * unit.sums)
    factors = 2 * unit.factors + unit.factors * unit.factors
    return (added + factors + unit.partial) * wanted.size + unit.result * abs(value) + unit.smallest + wanted.lost


def compare(type_: Type, wanted: Expected, values: Sequence[object]) -> Comparison:
    """Every value against its own tolerance."""
    if len(values) != len(wanted.values):
        return Comparison(worst=math.inf, words=f"{len(values)} values instead of {len(wanted.values)}")
    worst, words = 0.0, "no value"
    for index, (right, value) in enumerate(zip(wanted.values, values, strict=True)):
        if not isinstance(value, float) or not math.isfinite(value):
            return Comparison(worst=math.inf, words=f"element {index} is {str(value)[:20]} instead of {right:.6g}")
        allowed = tolerance(type_, wanted, right)
        share = abs(value - right) / allowed
        if share > worst or words == "no value":
            worst = share
            words = f"element {index} is {value:.9g} instead of {right:.9g}: off by {abs(value - right):.2g}, allowed {allowed:.2g}"
    return Comparison(worst=worst, words=words)
