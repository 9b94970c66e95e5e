"""Frozen values behave as those of `dataclasses` do."""

import copy
import pickle

import pytest

from cudnn_resolve.record import FrozenInstanceError, dataclass, field, fields, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A value with defaults."""

    x: int
    y: int = 0
    tags: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """A value by position."""

    left: int
    right: int = 5

    @property
    def total(self) -> int:
        """Both together."""
        return self.left + self.right


@dataclass(frozen=True, slots=True, eq=False)
class Thing:
    """A value that is compared by identity."""

    name: str


def test_fields_and_defaults() -> None:
    point = Point(x=1)

    assert (point.x, point.y, point.tags) == (1, 0, {})
    assert Point(x=1).tags is not point.tags
    assert [one.name for one in fields(Point)] == ["x", "y", "tags"]
    assert repr(Pair(1)) == "Pair(left=1, right=5)"
    assert Pair(1, 2).total == 3


def test_equality_is_by_value_and_type() -> None:
    assert Pair(1, 2) == Pair(1, right=2)
    assert Pair(1, 2) != Pair(2, 2)
    assert hash(Pair(1, 2)) == hash(Pair(1, 2))
    other: object = (1, 2)
    assert Pair(1, 2) != other
    assert Thing("a") != Thing("a")
    assert len({Thing("a"), Thing("a")}) == 2


def test_values_do_not_change() -> None:
    pair = Pair(1)
    with pytest.raises(FrozenInstanceError):
        pair.left = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del pair.left
    with pytest.raises(AttributeError):
        pair.other = 2  # type: ignore[attr-defined]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="lacks x"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no field z"):
        Point(x=1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no positional"):
        Point(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Pair(1, 2, 3)  # type: ignore[call-arg]


def test_replace_copy_and_pickle() -> None:
    pair = Pair(1)

    assert replace(pair, left=3) == Pair(3)
    assert pair == Pair(1)
    assert copy.copy(pair) == pair
    assert pickle.loads(pickle.dumps(pair)) == pair  # noqa: S301 - our own bytes


def test_match_by_position() -> None:
    match Pair(1, 2):
        case Pair(left, right):
            assert (left, right) == (1, 2)
