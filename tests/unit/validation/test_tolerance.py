"""Tolerances: what rounding does stays within them, and nothing else does."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from cudnn_resolve.validation.case import CLASSES, ENCODER, LSTM, MATMUL, TYPES, WIDE, Case, Type, tensors
from cudnn_resolve.validation.reference import Expected, expected
from cudnn_resolve.validation.tolerance import compare, tolerance

CONVOLUTIONS = (*CLASSES, WIDE)


def float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def float16(number: float) -> float:
    return float(struct.unpack("<e", struct.pack("<e", number))[0])


def bits(count: int) -> Callable[[float], float]:
    """Rounds to so many bits of significand."""

    def write(number: float) -> float:
        if number == 0:
            return number
        fraction, exponent = math.frexp(number)
        return math.ldexp(round(math.ldexp(fraction, count)), exponent - count)

    return write


def cut(number: float) -> float:
    """Cuts to the eleven bits of TF32, as tensor cores may do that are fed with single precision."""
    fraction, exponent = math.frexp(number)
    return math.ldexp(math.trunc(math.ldexp(fraction, 11)), exponent - 11)


ROUNDINGS: Mapping[Type, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "float32": (float, float32),
    "tf32": (cut, float32),
    "float16": (float, float16),
    "bfloat16": (float, bits(8)),
}
"""What happens to the factors, and to the result."""


def products(case: Case) -> list[list[tuple[float, float]]]:
    """The factors of each element of a convolution of two dimensions or fewer, in the order in which the reference adds them."""
    from cudnn_resolve.validation.reference import _convolution_links

    given = tensors(case)
    rows: list[list[tuple[float, float]]] = [[] for _ in expected(case)["y"].values]
    for y, x, w in _convolution_links(case):
        rows[y].append((given["x"][x], given["w"][w]))
    return rows


def computed(case: Case, *, backwards: bool = False) -> list[float]:
    """The forward result as a card computes it: factors rounded, sums in single precision, the result written in its type."""
    factor, write = ROUNDINGS[case.type]
    values = []
    for row in products(case):
        total = 0.0
        for one, other in reversed(row) if backwards else row:
            total = float32(total + float32(factor(one) * factor(other)))
        values.append(write(total))
    return values


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_rounding_stays_within(case: Case, type_: Type, *, backwards: bool) -> None:
    case = replace(case, type=type_)

    found = compare(type_, expected(case)["y"], computed(case, backwards=backwards))

    assert found.is_right, found.words
    assert found.worst > 0


@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_tf32_is_seen_where_it_is_forbidden(case: Case) -> None:
    values = computed(replace(case, type="tf32"))

    assert not compare("float32", expected(case)["y"], values).is_right


@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_sums_in_half_precision_are_seen_in_single_precision(case: Case) -> None:
    values = [float16(value) for value in computed(case)]

    assert not compare("float32", expected(case)["y"], values).is_right


EVERY = (*(replace(case, type=type_) for case in (*CONVOLUTIONS, MATMUL) for type_ in TYPES), LSTM, *(ENCODER,))
"""Their results are worked out by the tests: to collect these takes seconds of every worker otherwise."""


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.id)
def test_one_unit_in_the_last_place_beyond_is_wrong(case: Case) -> None:
    for wanted in expected(case).values():
        hold_the_edge(case.type, wanted)


def hold_the_edge(type_: Type, wanted: Expected) -> None:
    """At the edge a result is right; the next number beyond it is wrong, whichever element it is."""
    for index in {0, len(wanted.values) // 3, len(wanted.values) - 1}:
        right = wanted.values[index]
        edge = right + tolerance(type_, wanted, right)
        while abs(edge - right) > tolerance(type_, wanted, right):  # the sum was rounded up
            edge = math.nextafter(edge, right) if hasattr(math, "nextafter") else edge
        values: list[object] = list(wanted.values)

        values[index] = edge
        assert compare(type_, wanted, values).is_right
        values[index] = right + tolerance(type_, wanted, right) * (1 + 2.0**-50) + 2.0**-48 * abs(right)
        assert not compare(type_, wanted, values).is_right


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.id)
def test_an_error_planted_in_the_reference_is_seen(case: Case) -> None:
    assert [(name, wrong) for name, wanted in expected(case).items() if (wrong := unseen(case.type, wanted))] == []


def unseen(type_: Type, wanted: Expected) -> list[str]:
    """The mistakes in a reference that do not make right results wrong: elements exchanged, a shift by one, a sign."""
    values = list(wanted.values)
    mutants = {
        "shifted by one": [*values[1:], values[0]],
        "turned round": values[::-1],
        "negated": [-value for value in values],
        "one product left out": [value * (1 - 1 / wanted.terms) for value in values],
        "nothing": [0.0] * len(values),
    }
    if wanted.extra_error or type_ != "float32":  # too wide for one product of many; that one shows in single precision
        del mutants["one product left out"]
    return [name for name, mutant in mutants.items() if compare(type_, replace(wanted, values=tuple(mutant)), values).is_right]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1.0", [], True, 1, 10**400], ids=lambda value: str(value)[:8])
def test_what_is_no_number_is_wrong(value: object) -> None:
    wanted = expected(MATMUL)["y"]
    values: list[object] = list(wanted.values)
    values[3] = value

    found = compare("float32", wanted, values)

    assert not found.is_right
    assert "element 3" in found.words


@pytest.mark.parametrize("count", [0, 1, 34, 36])
def test_a_wrong_number_of_values_is_wrong(count: int) -> None:
    wanted = expected(MATMUL)["y"]

    assert compare("float32", wanted, [0.0] * count).worst == math.inf


def test_words_name_the_worst_element() -> None:
    wanted = expected(MATMUL)["y"]
    values: list[object] = list(wanted.values)
    values[5] = wanted.values[5] + 1.0

    assert compare("float32", wanted, values).words.startswith(f"element 5 is {wanted.values[5] + 1.0:.9g} instead of")
