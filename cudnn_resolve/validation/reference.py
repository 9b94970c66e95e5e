"""Reference result of a case, computed in double precision by plain Python.

A convolution, its two gradients, a transposed convolution and a matrix product are all the same list of products: each names an output
element and the input and weight elements that are multiplied. That list is built once, so a mistake in it shows in every result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.validation.case import Case, tensors


class Expected(Struct, frozen=True, kw_only=True):
    """One expected tensor."""

    values: tuple[float, ...]
    terms: int
    """Largest number of products summed in one element."""
    magnitude: float
    """Largest sum of the magnitudes of those products: rounding errors scale with it."""
    extra_error: float = 0.0
    """Absolute error from anything but sums of products."""


def expected(case: Case) -> Mapping[str, Expected]:
    """Compute the tensors that a case must give: `y`, and for a convolution the gradients `dx` and `dw`."""
    return _expected(case.shared)


@cache
def _expected(case: Case) -> Mapping[str, Expected]:
    given = tensors(case)
    if case.kind == "lstm":
        return {"y": _lstm(case, given)}
    if case.kind == "encoder":
        return {"y": _encoder(case, given)}
    links = tuple(_matmul_links(case) if case.kind == "matmul" else _convolution_links(case))
    sizes = {name: math.prod(shape) for name, shape in case.shapes.items()}
    found = {"y": _sum_products(links, given["x"], given["w"], sizes["y"])}
    if case.kind == "convolution":
        found["dx"] = _sum_products([(x, y, w) for y, x, w in links], given["dy"], given["w"], sizes["x"])
        found["dw"] = _sum_products([(w, y, x) for y, x, w in links], given["dy"], given["x"], sizes["w"])
    return found


def _sum_products(links: Sequence[tuple[int, int, int]], left: Sequence[float], right: Sequence[float], size: int) -> Expected:
    values, magnitudes, terms = [0.0] * size, [0.0] * size, [0] * size
    for target, left_index, right_index in links:
        term = left[left_index] * right[right_index]
        values[target] += term
        magnitudes[target] += abs(term)
        terms[target] += 1
    return Expected(values=tuple(values), terms=max(terms), magnitude=max(magnitudes))


def _matmul_links(case: Case) -> Iterator[tuple[int, int, int]]:
    (rows,), inner, columns = case.size, case.channels, case.filters
    for row, column, step in product(range(rows), range(columns), range(inner)):
        yield row * columns + column, row * inner + step, step * columns + column


def _convolution_links(case: Case) -> Iterator[tuple[int, int, int]]:
    """Yield output, input and weight index of each product; a transposed convolution swaps input and output of a plain one."""
    if case.transposed:
        plain = replace(case, transposed=False, channels=case.filters, filters=case.channels, size=case.out_size)
        for y, x, w in _convolution_links(plain):
            yield x, y, w
        return
    inputs, outputs = case.channels // case.groups, case.filters // case.groups
    out_size, in_size, taps = math.prod(case.out_size), math.prod(case.size), math.prod(case.kernel)
    for out_place, tap, in_place in _places(case):
        for image, filter_, channel in product(range(case.batch), range(case.filters), range(inputs)):
            source = filter_ // outputs * inputs + channel
            yield (
                (image * case.filters + filter_) * out_size + out_place,
                (image * case.channels + source) * in_size + in_place,
                (filter_ * inputs + channel) * taps + tap,
            )


def _places(case: Case) -> Iterator[tuple[int, int, int]]:
    """Yield flat output position, kernel tap and flat input position; taps that fall on the padding are left out."""
    for out_place, out_indices in enumerate(product(*map(range, case.out_size))):
        for tap, tap_indices in enumerate(product(*map(range, case.kernel))):
            axes = zip(out_indices, tap_indices, case.stride, case.padding, case.dilation, strict=True)
            in_indices = [out * stride - pad + step * dilation for out, step, stride, pad, dilation in axes]
            if all(0 <= index < size for index, size in zip(in_indices, case.size, strict=True)):
                flat = 0
                for index, size in zip(in_indices, case.size, strict=True):
                    flat = flat * size + index
                yield out_place, tap, flat


_NORM_EPSILON = 1e-5
_STEEPEST_GELU = 1.13
_UNIT = 2.0**-23


def _encoder(case: Case, given: Mapping[str, Sequence[float]]) -> Expected:
    """Two convolutions, GELU after each, then layer normalization of every frame (with the usual epsilon, 1e-5)."""
    conv1 = replace(case, kind="convolution", kernel=(3,), stride=(1,), padding=(1,), dilation=(1,))
    first = _sum_products(list(_convolution_links(conv1)), given["x"], given["w"], math.prod(conv1.shapes["y"]))
    hidden = [_gelu(value) for value in first.values]
    conv2 = replace(conv1, channels=case.filters, stride=(2,))
    second = _sum_products(list(_convolution_links(conv2)), hidden, given["v"], math.prod(conv2.shapes["y"]))
    taps = [sum(map(abs, given["v"][row * 3 * case.filters : (row + 1) * 3 * case.filters])) for row in range(case.filters)]
    # GELU's slope is at most 1.13; each result is rounded once when written, and once more as it passes the layer.
    error = _STEEPEST_GELU * (first.terms + 4) * _UNIT * first.magnitude
    error = _STEEPEST_GELU * ((second.terms + 4) * _UNIT * second.magnitude + max(taps) * error) + 2 * _UNIT * second.magnitude
    width, frames = case.filters, conv2.out_size[0]
    values: list[float] = []
    extra_error = 0.0
    for image, frame in product(range(case.batch), range(frames)):
        row = [_gelu(second.values[(image * width + channel) * frames + frame]) for channel in range(width)]
        mean = sum(row) / width
        deviation = math.sqrt(sum((value - mean) ** 2 for value in row) / width + _NORM_EPSILON)
        normalized = [(value - mean) / deviation for value in row]
        # Mean and deviation are off by at most the error, normalized values by both together.
        extra_error = max(extra_error, error * (2 + max(map(abs, normalized))) / deviation)
        values += normalized
    return Expected(values=tuple(values), terms=second.terms, magnitude=1.0, extra_error=extra_error)


def _gelu(value: float) -> float:
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


_TANH_ERROR = 2.0**-11
"""Largest relative error of the hardware's tanh; source: PTX ISA, `tanh.approx.f32`."""


def _lstm(case: Case, given: Mapping[str, Sequence[float]]) -> Expected:
    """Outputs of all steps (gates in the order input, forget, cell, output), with a bound on the error that each step adds."""
    (steps,), width = case.size, case.filters
    values: list[float] = []
    error_h = error_c = worst = 0.0
    state = [([0.0] * width, [0.0] * width) for _ in range(case.batch)]
    norm = max(sum(abs(given["h"][row * width + column]) for column in range(width)) for row in range(4 * width))
    for step in range(steps):
        for row in range(case.batch):
            start = (step * case.batch + row) * case.channels
            state[row] = _lstm_step(case, given, given["x"][start : start + case.channels], state[row])
            values += state[row][0]
        # Gates and their operands are at most 1 in magnitude, the cell at most the number of steps.
        sums = (case.channels + width + 1) * _UNIT * (case.channels + width + 1) + norm * error_h
        gate, cell = sums / 4 + _TANH_ERROR, sums + _TANH_ERROR
        error_c = error_c + (step + 1) * gate + gate + cell
        error_h = error_c + gate + _TANH_ERROR
        worst = max(worst, error_h)
    return Expected(values=tuple(values), terms=case.channels + width + 1, magnitude=1.0, extra_error=worst)


def _lstm_step(
    case: Case, given: Mapping[str, Sequence[float]], x: Sequence[float], state: tuple[Sequence[float], Sequence[float]]
) -> tuple[list[float], list[float]]:
    """Output and cell after one step."""
    width, (hidden, cell) = case.filters, state
    sums = []
    for row in range(4 * width):
        from_input = sum(value * given["w"][row * case.channels + index] for index, value in enumerate(x))
        from_hidden = sum(value * given["h"][row * width + index] for index, value in enumerate(hidden))
        sums.append(from_input + from_hidden + given["b"][row])
    gates = [sums[part * width : (part + 1) * width] for part in range(4)]
    input_gate, forget_gate, output_gate = ([1 / (1 + math.exp(-value)) for value in gates[part]] for part in (0, 1, 3))
    candidate = [math.tanh(value) for value in gates[2]]
    new_cell = [forget_gate[unit] * cell[unit] + input_gate[unit] * candidate[unit] for unit in range(width)]
    return [output_gate[unit] * math.tanh(new_cell[unit]) for unit in range(width)], new_cell
