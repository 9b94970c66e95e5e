"""How long a regular expression may take: the most steps from one place of a text, by its structure alone.

Every repeat of a table has an upper bound, so that no pattern takes more than a constant from one place; the constant is what counts. A
repeat adds ways to go on only where the text leaves a choice: where what it repeats can begin like what follows it. The bound is the
product of those choices, as a backtracking engine tries them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

MOST_STEPS = 4_000_000
"""From one place, in the worst text there could be; ordinary text takes a few."""
_EVERY = (1 << 129) - 1
"""The characters of ASCII as bits, and one for all others."""
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
}
_BEYOND = 1 << 128
_NOTHING = 1 << 129
"""Stands for an alternative that is empty."""
_HUGE = 10**30
Tree = Sequence[tuple[Any, Any]]


def most_steps(pattern: str) -> int:
    """An upper bound for the steps that a search takes from one place of a text."""
    tree = parser.parse(pattern)
    folded = bool(tree.state.flags & re.IGNORECASE)
    _, steps = _sequence(tree.data, 0, folded=folded)  # nothing follows that could fail
    return min(steps, _HUGE)


def _sequence(tree: Tree, follow: int, *, folded: bool) -> tuple[int, int]:
    """Ways that a sequence can be gone through, and the steps for all of them."""
    firsts = [follow]
    for operator, argument in reversed(tree):
        first, empty = _first(operator, argument, folded=folded)
        firsts.append(first | (firsts[-1] if empty else 0))
    firsts.reverse()
    ways, steps = 1, 0
    for place, (operator, argument) in enumerate(tree):
        its, cost = _node(operator, argument, firsts[place + 1], folded=folded)
        its = min(its, _places(operator, argument, tree[place + 1 :]))
        steps = min(steps + ways * cost, _HUGE)
        ways = min(ways * its, _HUGE)
    return ways, steps


def _places(operator: Any, argument: Any, rest: Tree) -> int:
    """Where a repeat of single characters can end before a literal text: as often as that text fits into what it passes over."""
    if operator not in (sre.MAX_REPEAT, sre.MIN_REPEAT) or argument[1] is sre.MAXREPEAT or len(argument[2]) != 1:
        return _HUGE
    if argument[2][0][0] not in (sre.ANY, sre.IN, sre.LITERAL, sre.NOT_LITERAL):
        return _HUGE
    word: list[int] = []
    for following, code in rest:
        if following is not sre.LITERAL:
            break
        word.append(code)
    period = next((size for size in range(1, len(word) + 1) if word[size:] == word[: len(word) - size]), 1)
    return int((argument[1] - argument[0]) // period + 1)


def _node(operator: Any, argument: Any, follow: int, *, folded: bool) -> tuple[int, int]:
    """Ways and steps of one node before a text that goes on with one of `follow`."""
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT) or operator is getattr(sre, "POSSESSIVE_REPEAT", None):
        return _repeat(argument, follow, folded=folded)
    if operator is sre.BRANCH:
        each = [_sequence(list(one), follow, folded=folded) for one in argument[1]]
        firsts = [
            first | ((follow | _NOTHING) if empty else 0) for first, empty in (_first_of(list(one), folded=folded) for one in argument[1])
        ]
        apart = all(not firsts[one] & firsts[other] for one in range(len(firsts)) for other in range(one))
        ways = max(one[0] for one in each) if apart else sum(one[0] for one in each)
        return ways, sum(one[1] for one in each) + len(each)
    if operator is sre.SUBPATTERN:
        inner = folded or bool(argument[1] & re.IGNORECASE)
        return _sequence(list(argument[-1]), follow, folded=inner)
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return 1, 1 + _sequence(list(argument[1]), _EVERY, folded=folded)[1]
    if operator is getattr(sre, "ATOMIC_GROUP", None):
        return 1, 1 + _sequence(list(argument), follow, folded=folded)[1]
    if operator is sre.GROUPREF:
        return 1, 400
    return 1, 1


def _repeat(argument: Any, follow: int, *, folded: bool) -> tuple[int, int]:
    least, most, body = argument
    first, empty = _first_of(list(body), folded=folded)
    inner, cost = _sequence(list(body), first | follow, folded=folded)
    if most is sre.MAXREPEAT:
        return _HUGE, _HUGE
    # Once the text decides whether the body comes again, there is one way out.
    decided = not first & follow and not empty
    rounds = most - least + 1
    if inner == 1:
        return (1 if decided else rounds), 1 + most * cost
    ways = 0
    power = inner**least if least * inner.bit_length() < 100 else _HUGE
    for _ in range(rounds):
        ways = min(ways + power, _HUGE)
        power = min(power * inner, _HUGE)
    return ways, min(ways * cost, _HUGE)


def _first_of(tree: Tree, *, folded: bool) -> tuple[int, bool]:
    """The characters that a sequence can begin with, and whether it can be empty."""
    found = 0
    for operator, argument in tree:
        first, empty = _first(operator, argument, folded=folded)
        found |= first
        if not empty:
            return found, False
    return found, True


def _first(operator: Any, argument: Any, *, folded: bool) -> tuple[int, bool]:
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT) or operator is getattr(sre, "POSSESSIVE_REPEAT", None):
        first, empty = _first_of(list(argument[2]), folded=folded)
        return first, empty or argument[0] == 0
    if operator is sre.BRANCH:
        each = [_first_of(list(one), folded=folded) for one in argument[1]]
        found = 0
        for first, _ in each:
            found |= first
        return found, any(empty for _, empty in each)
    if operator is sre.SUBPATTERN:
        return _first_of(list(argument[-1]), folded=folded or bool(argument[1] & re.IGNORECASE))
    if operator is getattr(sre, "ATOMIC_GROUP", None):
        return _first_of(list(argument), folded=folded)
    if operator in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return _EVERY, True  # a test that may fail
    if operator is sre.GROUPREF:
        return _EVERY, True
    return _characters(operator, argument, folded=folded), False


def _characters(operator: Any, argument: Any, *, folded: bool) -> int:
    """The characters that one character of a pattern stands for."""
    if operator is sre.ANY:
        return _EVERY & ~(1 << 10)
    if operator is sre.IN:
        found = 0
        for kind, value in argument:
            if kind is not sre.NEGATE:
                found |= _characters(kind, value, folded=folded)
        return ~found & _EVERY | _BEYOND if argument[0][0] is sre.NEGATE else found
    if operator is sre.LITERAL:
        return _bits([argument], folded=folded)
    if operator is sre.NOT_LITERAL:
        return _EVERY & ~_bits([argument], folded=folded)
    if operator is sre.RANGE:
        return _bits(range(argument[0], min(argument[1], 128) + 1), folded=folded) | (_BEYOND if argument[1] > 127 else 0)
    if operator is sre.CATEGORY and argument in _CATEGORIES:
        test = _CATEGORIES[argument]
        return _bits([one for one in range(128) if test(chr(one))], folded=False) | _BEYOND
    return _EVERY


def _bits(codes: Any, *, folded: bool) -> int:
    found = 0
    for code in codes:
        if code > 127:
            found |= _BEYOND
            continue
        found |= 1 << code
        if folded:
            found |= 1 << ord(chr(code).swapcase())
    return found
