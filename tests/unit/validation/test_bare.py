"""cuDNN alone: which of its answers are refusals, after which another algorithm is tried, and which are faults."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from cudnn_resolve.validation import payload_cudnn
from cudnn_resolve.validation.payload_cudnn import Convolution, Cudnn, Direction, Refused, Unknown


class Tried(Convolution):
    """A convolution whose algorithms answer what they are told to; `proposed` are those of the heuristics."""

    def __init__(self, proposed: list[int], answers: dict[int, Exception]) -> None:
        self.proposed, self.answers = proposed, answers

    def algorithms(self, direction: Direction) -> list[int]:  # noqa: ARG002
        return self.proposed

    def run_algorithm(self, direction: Direction, algorithm: int) -> list[float]:  # noqa: ARG002
        if algorithm in self.answers:
            raise self.answers[algorithm]
        return [1.0]

    def first(self) -> tuple[list[float], int]:
        return self.compute_direction(FORWARD)


FORWARD = Direction("Forward", "y", (None,) * 4, (), None)
NO, ODD, BAD = Refused("NOT_SUPPORTED"), Unknown("BAD_PARAM"), RuntimeError("EXECUTION_FAILED")
EVERY = payload_cudnn.ALGORITHMS["Forward"]


def test_after_a_refusal_another_one_is_tried() -> None:
    assert Tried([3, 5], {3: NO}).first() == ([1.0], 5)
    assert Tried([3], {3: NO, 0: ODD}).first() == ([1.0], 1)
    assert Tried([], {0: ODD, 1: NO}).first() == ([1.0], 2)


@pytest.mark.parametrize(
    ("proposed", "answers", "error"),
    [
        ([3], {3: NO, 0: BAD}, BAD),
        ([], {0: NO, 1: BAD}, BAD),
        ([3], {3: BAD}, BAD),
        ([3], {3: ODD}, ODD),
        ([3], dict.fromkeys(EVERY, NO), NO),
        ([], {**dict.fromkeys(EVERY, ODD), 4: NO}, NO),
        ([], dict.fromkeys(EVERY, ODD), ODD),
    ],
)
def test_a_fault_is_none_of_the_refusals_around_it(proposed: list[int], answers: dict[int, Exception], error: Exception) -> None:
    with pytest.raises(RuntimeError) as caught:
        Tried(proposed, answers).first()
    assert caught.value is error


@pytest.mark.parametrize(
    ("version", "status", "kind"),
    [
        (7605, 9, Refused),
        (8907, 6, Refused),
        (8907, 3, Unknown),
        (8907, 8, RuntimeError),
        (8907, 11, RuntimeError),
        (90100, 3000, Refused),
        (90100, 3007, Refused),
        (90100, 2000, Unknown),
        (90100, 3009, RuntimeError),
        (90100, 3008, RuntimeError),
        (90100, 3005, RuntimeError),
        (90100, 5000, RuntimeError),
    ],
)
def test_what_a_status_means(version: int, status: int, kind: type[Exception]) -> None:
    cudnn = Cudnn.__new__(Cudnn)
    cudnn.version = version

    assert cudnn.error_kind(status) is kind


class Counting:
    """A card that counts what it holds, below a cuDNN that answers as it is told."""

    def __init__(self, answers: dict[str, Exception]) -> None:
        self.answers, self.held, self.handle, self.card, self.version = answers, set[int](), 0, self, 90100

    def allocate(self, _size: int) -> int:
        self.held.add(number := len(self.held) + 1000)
        return number

    def store(self, content: bytes) -> int:
        return self.allocate(len(content))

    def fetch(self, _pointer: int, size: int) -> bytes:
        return bytes(size)

    def free(self, pointers: list[int]) -> None:
        self.held -= set(pointers)

    def call(self, name: str, *_arguments: object) -> None:
        if name in self.answers:
            raise self.answers[name]


def work_on(card: Counting) -> Any:
    work: Any = Convolution.__new__(Convolution)
    work.cudnn, work.type, work.letter, work.format, work.shapes = card, 0, "f", payload_cudnn.NCHW, {"y": [1, 1, 2, 2]}
    work.convolution, work.pointers = None, []
    return work


@pytest.mark.parametrize("answer", [None, NO])
def test_what_a_try_took_is_given_back(answer: Exception | None) -> None:
    card = Counting({"cudnnConvolutionForward": answer} if answer else {})

    with contextlib.suppress(Refused):
        work_on(card).run_algorithm(FORWARD, 0)

    assert card.held == set()


def test_heuristics_that_fail_are_a_fault_and_those_that_refuse_are_none() -> None:
    name = "cudnnGetConvolutionForwardAlgorithm_v7"

    assert work_on(Counting({name: NO})).algorithms(FORWARD) == []
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        work_on(Counting({name: BAD})).algorithms(FORWARD)
