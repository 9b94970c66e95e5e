"""Tolerances: how far a computed value may be from the expected one, by the type of the computation.

Every element is a sum of K products. For any order of summation in a precision of unit u the error is at most K u/(1 - K u) times the
sum of the magnitudes of the products (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1). Added to that is
the rounding of factors, where the GPU rounds them (TF32), of partial sums kept in a narrow type, and of the result itself;
docs/tolerances.md derives the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from msgspec import Struct

from cudnn_resolve.validation.case import Type
from cudnn_resolve.validation.reference import Expected


class Precision(Struct, frozen=True, kw_only=True):
    """Rounding errors of one type of computation, each relative to the rounded value."""

    sums: float
    """Per addition. Tensor cores truncate instead of rounding, which doubles the unit of single precision, 2^-24."""
    factors: float = 0.0
    """Per factor before multiplication."""
    partial: float = 0.0
    """All partial sums together: kernels that split a sum among blocks may add at most four of them in a narrow type."""
    result: float = 0.0
    """Of the final result."""
    smallest: float = 2.0**-149
    """Spacing of the type's smallest numbers; anything below is lost."""


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
    """Comparison of a tensor with the expected one."""

    worst: float
    """Largest error as a share of the tolerance; at most 1 is correct, infinite for a non-number or a wrong count."""
    words: str
    """Description of the element that is furthest off."""

    @property
    def is_right(self) -> bool:
        """True if every element is within its tolerance."""
        return self.worst <= 1


def tolerance(type_: Type, wanted: Expected, value: float) -> float:
    """Largest error of an element whose correct value is `value`."""
    unit = PRECISIONS[type_]
    sums = wanted.terms * unit.sums / (1 - wanted.terms * unit.sums)
    factors = 2 * unit.factors + unit.factors * unit.factors
    return (sums + factors + unit.partial) * wanted.magnitude + unit.result * abs(value) + unit.smallest + wanted.extra_error


def compare(type_: Type, wanted: Expected, values: Sequence[object]) -> Comparison:
    """Compare every value with its expected one."""
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
