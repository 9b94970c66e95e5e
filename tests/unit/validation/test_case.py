"""The cases: nothing in them is symmetric, and every number is exact in the type that it is given in."""

from __future__ import annotations

import struct
from math import prod

import pytest

from cudnn_resolve.validation.case import (
    CLASSES,
    ENCODER,
    LSTM,
    MATMUL,
    NARROW,
    TYPES,
    WIDE,
    Case,
    bare_cases,
    framework_cases,
    tensors,
)


def bfloat16(number: float) -> float:
    """The number cut to the upper half of single precision."""
    return float(struct.unpack("<f", b"\0\0" + struct.pack("<f", number)[2:])[0])


def float16(number: float) -> float:
    return float(struct.unpack("<e", struct.pack("<e", number))[0])


def float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


@pytest.mark.parametrize("case", framework_cases(everything=True), ids=lambda case: case.id)
def test_numbers_are_exact_in_the_type_of_the_case(case: Case) -> None:
    for values in tensors(case).values():
        assert all(float32(value) == value for value in values)
        if case.type in NARROW:
            assert all(float16(value) == value == bfloat16(value) for value in values)


def test_numbers_of_single_precision_would_be_changed_by_ten_bits() -> None:
    values = tensors(CLASSES[1])["x"]

    assert sum(float16(value) != value for value in values) > len(values) * 0.9


@pytest.mark.parametrize("case", [*CLASSES, MATMUL], ids=lambda case: case.name)
def test_no_two_dimensions_can_be_confused(case: Case) -> None:
    space = [*case.size, *case.out_size] if case.kind == "convolution" else list(case.size)
    assert len(set(case.size)) == len(case.size)
    assert len(set(case.kernel)) == len(case.kernel)
    assert case.kind != "convolution" or case.channels != case.filters
    assert case.batch not in space[: len(case.size)]


@pytest.mark.parametrize("case", [*CLASSES, MATMUL, LSTM, *(ENCODER,)], ids=lambda case: case.name)
def test_no_number_is_like_another(case: Case) -> None:
    for values in tensors(case).values():
        assert len(set(values)) == len(values)
        assert 0.0 not in values


def test_every_class_meets_every_type_and_every_type_both_layouts() -> None:
    cases = framework_cases()

    assert {(case.name, case.type) for case in cases if case.kind == "convolution"} == {
        (one.name, type_) for one in (*CLASSES, WIDE) for type_ in TYPES
    }
    assert {(case.type, case.layout) for case in cases if case.kind == "convolution"} == {
        (type_, layout) for type_ in TYPES for layout in ("nchw", "nhwc")
    }
    assert {case.name for case in cases} >= {
        *("conv1d", "conv2d", "conv3d", "conv2d-grouped", "conv2d-depthwise", "conv2d-strided", "conv2d-dilated", "conv2d-transposed"),
        *("matmul", "lstm"),
    }


@pytest.mark.parametrize("cases", [framework_cases(), framework_cases(everything=True), bare_cases()], ids=["default", "every", "bare"])
def test_ids_are_distinct(cases: tuple[Case, ...]) -> None:
    assert len({case.id for case in cases}) == len(cases)


def test_full_holds_the_default() -> None:
    assert {case.id for case in framework_cases()} <= {case.id for case in framework_cases(everything=True)}


def test_sizes_of_outputs() -> None:
    by_name = {case.name: case for case in CLASSES}

    assert by_name["conv2d"].shapes == {"x": (2, 3, 7, 5), "w": (4, 3, 3, 2), "y": (2, 4, 7, 4)}
    assert by_name["conv2d-strided"].out_size == (5, 3)
    assert by_name["conv2d-dilated"].out_size == (9, 7)
    assert by_name["conv2d-transposed"].shapes == {"x": (2, 4, 4, 5), "w": (4, 3, 3, 2), "y": (2, 3, 7, 14)}
    assert by_name["conv2d-depthwise"].shapes["w"] == (8, 1, 3, 2)


def test_operations_count_a_multiplication_and_an_addition_for_each_product() -> None:
    assert CLASSES[1].operations == 2 * prod((2, 4, 7, 4)) * 3 * 3 * 2


def test_a_question_is_all_that_a_child_is_told() -> None:
    question = CLASSES[1].question

    assert question["id"] == "conv2d/float32/nchw"
    assert len(question["x"]) == prod(question["shapes"]["x"])
    assert len(question["dy"]) == prod(question["shapes"]["dy"]) == prod(question["shapes"]["y"])
