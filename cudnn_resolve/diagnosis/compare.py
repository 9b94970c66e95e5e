"""Comparisons of the fields of a message: `found < built`, `major found != major built`, `capability above targets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cudnn_resolve.version import CodeTarget, Dotted

_SIMPLE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    ">=": lambda one, other: one >= other,
    ">": lambda one, other: one > other,
}


def holds(comparison: str, fields: Mapping[str, Any]) -> bool:
    """True where the comparison holds for these fields; False also where one of them is not there."""
    words = comparison.split()
    left, words = _operand(words, fields)
    operator, words = words[0], words[1:]
    right, _ = _operand(words, fields)
    if left is None or right is None:
        return False
    try:
        if operator in _SIMPLE:
            return bool(_SIMPLE[operator](*_alike(left, right)))
        return _SETS[operator](left, right)
    except (TypeError, ValueError, AttributeError):
        return False


def _operand(words: list[str], fields: Mapping[str, Any]) -> tuple[Any, list[str]]:
    if words[0] == "major":
        value, rest = _operand(words[1:], fields)
        return (getattr(value, "major", value) if value is not None else None), rest
    return fields.get(words[0]) if words[0].isidentifier() else words[0], words[1:]


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both as values of one kind: a text that a row wrote becomes what the field is."""
    if isinstance(left, Dotted) and isinstance(right, Dotted):
        length = min(len(left.parts), len(right.parts))
        return (left.parts[:length], right.parts[:length]) if length >= 2 else (left.parts, right.parts)
    if isinstance(right, str) and not isinstance(left, str):
        right = int(right) if isinstance(left, int) else CodeTarget.parse(right) if isinstance(left, CodeTarget) else type(left)(right)
    if isinstance(left, CodeTarget) and isinstance(right, CodeTarget):
        return left.capability, right.capability
    return left, right


def _machine(targets: tuple[CodeTarget, ...]) -> list[CodeTarget]:
    return [one for one in targets if one.kind == "cubin"]


_SETS: dict[str, Callable[[Any, Any], bool]] = {
    # Newer than everything in the list, whose machine code does not run on it.
    "above": lambda gpu, targets: (
        not any(one.runs_on(gpu.capability) for one in _machine(targets)) and gpu.capability > min(one.capability for one in targets)
    ),
    "below": lambda gpu, targets: gpu.capability < min(one.capability for one in targets),
    "among": lambda gpu, targets: any(one.runs_on(gpu.capability) for one in targets),
    "within": lambda one, many: one in many,
}
