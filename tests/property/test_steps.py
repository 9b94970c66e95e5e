"""Patterns in linear time: the bound that their structure gives holds for every text, and what runs away is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cudnn_resolve.matrix.message import check_pattern, expand
from cudnn_resolve.matrix.steps import MOST_STEPS, most_steps
from tests.written_logs import book

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser


class Counter:
    """A backtracking engine that counts: every look at a character is a step."""

    def __init__(self, text: str) -> None:
        self.text, self.steps, self.calls = text, 0, 0

    def search_from_the_start(self, pattern: str) -> int:
        self._all(list(parser.parse(pattern).data), 0, lambda _: True)
        return self.steps

    def _all(self, tree: Sequence[Any], at: int, then: Callable[[int], bool]) -> bool:
        if not tree:
            return then(at)
        return self._one(tree[0], at, lambda after: self._all(tree[1:], after, then))

    def _one(self, node: Any, at: int, then: Callable[[int], bool]) -> bool:
        self.calls += 1
        assert self.calls < 200_000, "runs away"
        operator, argument = node
        if operator is sre.BRANCH:
            return any(self._all(list(one), at, then) for one in argument[1])
        if operator is sre.SUBPATTERN:
            return self._all(list(argument[-1]), at, then)
        if operator is sre.MAX_REPEAT:
            return self._repeat(argument, at, then, 0)
        self.steps += 1
        if operator is sre.AT:
            return at == len(self.text) and then(at)
        if at >= len(self.text):
            return False
        here = ord(self.text[at])
        codes = [value for kind, value in argument if kind is sre.LITERAL] if operator is sre.IN else [argument]
        return here in codes and then(at + 1)

    def _repeat(self, argument: Any, at: int, then: Callable[[int], bool], done: int) -> bool:
        least, most, body = argument
        more = done < most and self._all(
            list(body), at, lambda after: (after > at or done < least) and self._repeat(argument, after, then, done + 1)
        )
        return more or (done >= least and then(at))


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    times = st.sampled_from(["{0,2}", "{1,3}", "{2,3}", "{0,5}", "?"])
    return st.one_of(
        st.builds(lambda body, count: f"(?:{body}){count}", inner, times),
        st.builds(lambda one, other: f"(?:{one}|{other})", inner, inner),
        st.builds(lambda one, other: one + other, inner, inner),
    )


patterns = st.recursive(st.sampled_from(["a", "b", "[ab]", "ab", "aa", "a{0,4}", "[ab]{1,3}"]), repeated, max_leaves=5)


@settings(max_examples=80, deadline=None)
@given(patterns, st.sampled_from(["", "$", "b$", "c"]), st.text("ab", max_size=14))
def test_no_text_takes_more_steps_than_the_bound(pattern: str, end: str, text: str) -> None:
    bound = most_steps(pattern + end)
    assume(bound < 2000)  # what is beyond is refused, and is not tried here for the time that it takes
    for pumped in (text, text * 2, text[:3] * 8):
        # The last look of each repeat, which ends it, is a step that the bound does not count.
        assert Counter(pumped).search_from_the_start(pattern + end) <= 4 * bound + 4


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:a{0,30}){0,30}b",
        r"(?:\w{1,20} ?){1,20}$",
        r"(?:ab|a|b){1,40}c",
        r"(?:.{0,40}x){1,20}y",
        r"(?:[a-z]{1,9}[\w.]{0,9}){1,12}!",
        r"\d{1,200}\d{1,200}\d{1,200}x",
        r"a+b",
    ],
)
def test_what_runs_away_is_refused(pattern: str) -> None:
    assert most_steps(pattern) > MOST_STEPS
    with pytest.raises(ValueError, match=r"steps from one place|without an upper bound|repeats a repeat"):
        check_pattern(pattern)


def test_what_the_text_decides_is_not() -> None:
    assert most_steps(r"libcudnn\.so\.\d{1,3}(?:\.\d{1,3}){0,3}: cannot") < 200
    assert most_steps(r"(?:(?:sm|compute)_\d{2,3}[af]?[ ,]{0,2}){1,40}") < 2000
    assert most_steps(r"found .{0,80}but wanted .{0,80}here") < 10_000


def test_every_pattern_of_the_tables_is_within_the_bound() -> None:
    far = {symptom.id: most_steps(expand(one)) for symptom in book().symptoms() for one in symptom.pattern}
    assert len(far) > 150
    assert not [name for name, steps in far.items() if steps > MOST_STEPS]


def test_doubled_texts_take_no_more_than_twice_the_steps() -> None:
    # From one place the bound holds whatever the length; over the places of a text it adds up.
    for pattern in (r"x[ab]{0,9}[ab]{0,9}c", r"(?:ab|cd){1,9}e", r"a{0,9}b"):
        once, twice = (
            sum(Counter(text[at:]).search_from_the_start(pattern) for at in range(len(text))) for text in ("xab" * 40, "xab" * 80)
        )
        assert twice <= 2.1 * once
