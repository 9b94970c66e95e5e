r"""How far a right result may lie from the reference, and nothing beyond it; docs/tolerances.md derives the formula.

Every element is a sum of K products. For any order of summation in a precision of unit u the error is at most K u/(1 - K u) times the
sum of the magnitudes of the products (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1). To that come
the rounding of the factors, where the card rounds them (TF32), of partial sums kept in a narrow type, and of the result itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from msgspec import Struct

from cudnn_resolve.validation.case import Type
from cudnn_resolve.validation.reference import Expected


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
