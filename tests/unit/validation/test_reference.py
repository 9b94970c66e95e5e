"""The reference, against sums written out by hand, against laws that hold for every bilinear operation, and against a second way."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cudnn_resolve.validation.case import CLASSES, ENCODER, LSTM, MATMUL, WIDE, Case, Type, tensors
from cudnn_resolve.validation.reference import _convolution_links, _lstm, expected
from cudnn_resolve.validation.tolerance import compare


def dot(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


FILTERING = settings(suppress_health_check=[HealthCheck.filter_too_much])
"""Most shapes that are drawn are no convolution, or none that can be turned round."""


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    case = Case(
        name="any",
        batch=draw(st.integers(1, 2)),
        channels=groups * draw(st.integers(1, 2)),
        filters=groups * draw(st.integers(1, 2)),
        groups=groups,
        transposed=draw(st.booleans()),
        size=draw(st.tuples(*[st.integers(1, 5)] * rank)),
        kernel=draw(st.tuples(*[st.integers(1, 3)] * rank)),
        stride=draw(st.tuples(*[st.integers(1, 3)] * rank)),
        padding=draw(st.tuples(*[st.integers(0, 2)] * rank)),
        dilation=draw(st.tuples(*[st.integers(1, 2)] * rank)),
    )
    assume(all(length > 0 for length in case.out_size))
    # A transposed convolution that leaves elements over when it is turned round has no single counterpart.
    assume(not case.transposed or replace(case, transposed=False, size=case.out_size).out_size == case.size)
    return case


@FILTERING
@given(convolutions())
def test_gradients_are_those_of_the_forward_computation(case: Case) -> None:
    """A bilinear operation gives one number, whichever of its three tensors is computed last."""
    inputs, out = tensors(case), expected(case)

    forward = dot(out["y"].values, inputs["dy"])
    assert dot(out["dx"].values, inputs["x"]) == pytest.approx(forward, abs=1e-9)
    assert dot(out["dw"].values, inputs["w"]) == pytest.approx(forward, abs=1e-9)


@FILTERING
@given(convolutions())
def test_a_transposed_convolution_is_the_gradient_of_a_convolution(case: Case) -> None:
    assume(not case.transposed)
    turned = replace(case, transposed=True, channels=case.filters, filters=case.channels, size=case.out_size)
    assume(turned.out_size == case.size)

    assert expected(turned)["y"].terms == expected(case)["dx"].terms
    assert math.prod(turned.shapes["y"]) == math.prod(case.shapes["x"])
    assert turned.shapes["w"] == case.shapes["w"]


def plain(case: Case, image: int, filter_: int, row: int, column: int) -> float:
    """One element of a convolution of two dimensions by the formula as textbooks print it."""
    x, w = tensors(case)["x"], tensors(case)["w"]
    (height, width), (tall, wide) = case.size, case.kernel
    inputs, outputs = case.channels // case.groups, case.filters // case.groups
    total = 0.0
    for channel in range(inputs):
        for i in range(tall):
            for j in range(wide):
                r = row * case.stride[0] - case.padding[0] + i * case.dilation[0]
                c = column * case.stride[1] - case.padding[1] + j * case.dilation[1]
                if 0 <= r < height and 0 <= c < width:
                    source = filter_ // outputs * inputs + channel
                    total += (
                        x[((image * case.channels + source) * height + r) * width + c]
                        * w[((filter_ * inputs + channel) * tall + i) * wide + j]
                    )
    return total


@pytest.mark.slow
@pytest.mark.parametrize("case", [one for one in (*CLASSES, WIDE) if len(one.size) == 2 and not one.transposed], ids=lambda case: case.name)
def test_two_dimensions_by_the_formula(case: Case) -> None:
    (rows, columns), values = case.out_size, expected(case)["y"].values
    for index in range(0, len(values), 7):
        rest, column = divmod(index, columns)
        rest, row = divmod(rest, rows)
        image, filter_ = divmod(rest, case.filters)
        assert values[index] == pytest.approx(plain(case, image, filter_, row, column), abs=1e-12)


def test_one_dimension_by_hand() -> None:
    case = Case(name="hand", batch=1, channels=1, filters=1, size=(3,), kernel=(2,), stride=(1,), padding=(1,), dilation=(1,))
    x, w = tensors(case)["x"], tensors(case)["w"]

    assert expected(case)["y"].values == pytest.approx(
        [x[0] * w[1], x[0] * w[0] + x[1] * w[1], x[1] * w[0] + x[2] * w[1], x[2] * w[0]], abs=1e-15
    )


def test_a_transposed_one_by_hand() -> None:
    case = Case(
        name="hand", batch=1, channels=1, filters=1, size=(2,), kernel=(3,), stride=(2,), padding=(0,), dilation=(1,), transposed=True
    )
    x, w = tensors(case)["x"], tensors(case)["w"]

    assert expected(case)["y"].values == pytest.approx(
        [x[0] * w[0], x[0] * w[1], x[0] * w[2] + x[1] * w[0], x[1] * w[1], x[1] * w[2]], abs=1e-15
    )


def test_a_matrix_product_by_hand() -> None:
    case = replace(MATMUL, size=(1,), channels=2, filters=2)
    x, w = tensors(case)["x"], tensors(case)["w"]

    found = expected(case)["y"]
    assert found.values == pytest.approx([x[0] * w[0] + x[1] * w[2], x[0] * w[1] + x[1] * w[3]], abs=1e-15)
    assert found.terms == 2
    assert found.magnitude == pytest.approx(max(abs(x[0] * w[0]) + abs(x[1] * w[2]), abs(x[0] * w[1]) + abs(x[1] * w[3])))


def test_a_recurrent_layer_of_one_by_hand() -> None:
    case = replace(LSTM, size=(2,), batch=1, channels=1, filters=1)
    given_ = tensors(case)
    hidden = cell = 0.0
    values = []
    for x in given_["x"]:
        enter, forget, fresh, leave = (x * w + hidden * h + b for w, h, b in zip(given_["w"], given_["h"], given_["b"], strict=True))
        cell = cell / (1 + math.exp(-forget)) + math.tanh(fresh) / (1 + math.exp(-enter))
        hidden = math.tanh(cell) / (1 + math.exp(-leave))
        values.append(hidden)

    assert expected(case)["y"].values == pytest.approx(values, abs=1e-15)


def test_a_speech_encoder_is_normalized() -> None:
    (case,) = (ENCODER,)
    values = expected(case)["y"].values

    for start in range(0, len(values), case.filters):
        row = values[start : start + case.filters]
        assert sum(row) == pytest.approx(0, abs=1e-9)
        assert sum(one * one for one in row) == pytest.approx(case.filters, rel=1e-3)


def mutants(case: Case) -> dict[str, Case]:
    """The same numbers computed as a mistaken reference, or a mistaken framework, would: each has one mistake in it."""
    ones = (1,) * len(case.size)
    found = {
        "strides taken as 1": replace(case, stride=ones),
        "strides in the other order": replace(case, stride=case.stride[::-1]),
        "no padding": replace(case, padding=(0,) * len(case.size)),
        "padding in the other order": replace(case, padding=case.padding[::-1]),
        "padding on one side more": replace(case, padding=tuple(pad + 1 for pad in case.padding)),
        "dilation taken as 1": replace(case, dilation=ones),
        "dilations in the other order": replace(case, dilation=case.dilation[::-1]),
        "groups taken as one": replace(case, groups=1),
        "kernel in the other order": replace(case, kernel=case.kernel[::-1]),
        "transposed or not": replace(case, transposed=not case.transposed),
    }
    return {name: mutant for name, mutant in found.items() if mutant != case}


@cache
def links_of(case: Case) -> tuple[tuple[int, int, int], ...]:
    """Where each product goes, and where it comes from."""
    return tuple(_convolution_links(case))


def values_of(case: Case, given_: dict[str, tuple[float, ...]]) -> dict[str, list[float]]:
    """What comes out of those tensors; an index that is not there reads as 0."""
    links = links_of(replace(case, type="float32"))
    sizes = {name: math.prod(case.shapes[name]) for name in ("y", "x", "w")}
    out = {name: [0.0] * size for name, size in sizes.items()}

    def at(name: str, index: int) -> float:
        return given_[name][index] if index < len(given_[name]) else 0.0

    for y, x, w in links:
        out["y"][y] += at("x", x) * at("w", w)
        out["x"][x] += at("dy", y) * at("w", w)
        out["w"][w] += at("dy", y) * at("x", x)
    return {"y": out["y"], "dx": out["x"], "dw": out["w"]}


@pytest.mark.parametrize("type_", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_every_mistake_in_how_a_class_is_computed_is_seen(case: Case, type_: Type) -> None:
    """In each of its tensors, in the narrowest type as in the widest; where a tensor cannot show it, its neighbours do."""
    case = replace(case, type=type_)
    given_, right = dict(tensors(case)), expected(case)

    blind = []
    for name, mutant in mutants(case).items():
        wrong = values_of(mutant, given_)
        if all(compare(type_, right[tensor], wrong[tensor]).is_right for tensor in right):
            blind.append(name)
    assert blind == []
    unchanged = values_of(case, given_)
    assert all(compare(type_, right[tensor], unchanged[tensor]).is_right for tensor in right)


@pytest.mark.parametrize("type_", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_tensors_laid_out_otherwise_are_seen(case: Case, type_: Type) -> None:
    """Weights turned round (a convolution instead of a correlation), channels or images exchanged, one tensor taken for its neighbour."""
    case = replace(case, type=type_)
    given_, right = dict(tensors(case)), expected(case)
    taps = math.prod(case.kernel)

    def turned(name: str, block: int) -> dict[str, tuple[float, ...]]:
        rows = [given_[name][start : start + block] for start in range(0, len(given_[name]), block)]
        return {**given_, name: tuple(value for row in rows for value in row[::-1])}

    rows = [given_["x"][start : start + math.prod(case.size)] for start in range(0, len(given_["x"]), math.prod(case.size))]
    for name, tensors_ in {
        "kernel turned round": turned("w", taps),
        "input turned round": turned("x", math.prod(case.size)),
        "channels exchanged": {**given_, "x": tuple(value for row in rows[::-1] for value in row)},
        "gradient of another output": {**given_, "dy": tuple(-value for value in given_["dy"])},
    }.items():
        wrong = values_of(case, tensors_)
        assert not all(compare(type_, right[tensor], wrong[tensor]).is_right for tensor in right if tensor in wrong), name


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 1, 3), (3, 1, 2, 0), (0, 1, 3, 2)], ids=str)
def test_gates_in_another_order_are_seen(order: tuple[int, ...]) -> None:
    """Frameworks have them in different orders; a mistake in the exchange must show."""
    given_ = dict(tensors(LSTM))

    def exchanged(values: tuple[float, ...]) -> tuple[float, ...]:
        length = len(values) // 4
        return tuple(value for gate in order for value in values[gate * length : (gate + 1) * length])

    mutant = {**given_, **{name: exchanged(given_[name]) for name in ("w", "h", "b")}}

    assert not compare("float32", expected(LSTM)["y"], _lstm(LSTM, mutant).values).is_right


def test_one_reference_serves_both_narrow_types_and_both_layouts() -> None:
    one = replace(CLASSES[1], type="float16", layout="nhwc")

    assert expected(one) is expected(replace(one, type="bfloat16", layout="nchw"))
    assert expected(one) is not expected(CLASSES[1])
