"""The texts by which lines are chosen: no alternative of a pattern is left out."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest

from cudnn_resolve.diagnosis.log_lines import Index, Scanner
from cudnn_resolve.matrix.anchor import key_of, literals_of, may_match
from cudnn_resolve.matrix.message import expand
from cudnn_resolve.matrix.symptom import Symptom
from tests.written_logs import book

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

Made = tuple[str, frozenset[int]]
"""A text, and the alternatives that were taken for it."""


class Maker:
    """Texts that a pattern finds: with the first alternative everywhere, then with each other one in its place.

    `fill` stands for a character that may be any; with `long`, what may be left out is there unless it is its turn to be left out.
    """

    def __init__(self, pattern: str, *, fill: str = "~", long: bool = False) -> None:
        self._tree = parser.parse(pattern).data
        self._fill, self._long = fill, long
        self.alternatives: set[int] = set()
        """All that there are, by their places in the tree."""

    def texts(self) -> list[Made]:
        return [(_settled(text), taken) for text, taken in self._sequence(self._tree)]

    def _sequence(self, tree: Sequence[tuple[Any, Any]]) -> list[Made]:
        every: list[Made] = [("", frozenset())]
        for operator, argument in tree:
            first, *others = self._pieces(operator, argument)
            begun = every[0]
            every = [_both(one, first) for one in every] + [_both(begun, one) for one in others]
        return every

    def _pieces(self, operator: Any, argument: Any) -> list[Made]:
        if operator is sre.BRANCH:
            places = range(len(self.alternatives), len(self.alternatives) + len(argument[1]))
            self.alternatives.update(places)
            each = zip(places, argument[1], strict=True)
            return [(text, taken | {place}) for place, one in each for text, taken in self._sequence(one)]
        if operator is sre.SUBPATTERN:
            return [(f"\x01{argument[0]}\x02{text}\x03", taken) for text, taken in self._sequence(argument[-1])]
        if operator is sre.GROUPREF:
            return [(f"\x04{argument}\x05", frozenset())]
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            once = [(text * max(argument[0], 1), taken) for text, taken in self._sequence(argument[2])]
            return once if argument[0] else [*once, ("", frozenset())] if self._long else [("", frozenset()), *once]
        return [(self._letter(operator, argument), frozenset())]

    def _letter(self, operator: Any, argument: Any) -> str:
        if operator is sre.LITERAL:
            return chr(argument)
        if operator is sre.IN:
            return self._letter(*argument[0])
        if operator is sre.RANGE:
            return chr(argument[0])
        if operator is sre.CATEGORY:
            return {sre.CATEGORY_DIGIT: "1", sre.CATEGORY_SPACE: " "}.get(argument, "x")
        return self._fill if operator in (sre.ANY, sre.NOT_LITERAL, sre.NEGATE) else ""


def _settled(text: str) -> str:
    """A text with what its groups were once more where the pattern asks for the same."""
    while inner := re.search("\x01([^\x02]*)\x02([^\x01-\x03]*)\x03", text):
        text = text[: inner.start()] + inner[2] + text[inner.end() :].replace(f"\x04{inner[1]}\x05", inner[2])
    return text


def _both(one: Made, other: Made) -> Made:
    return one[0] + other[0], one[1] | other[1]


@lru_cache(maxsize=1)
def samples() -> tuple[tuple[tuple[Any, str], ...], tuple[tuple[str, str], ...]]:
    """Each symptom with the texts of its patterns' alternatives; id and pattern of those of which an alternative is in none of them."""
    found, empty = [], []
    for symptom in book().symptoms():
        for pattern in symptom.pattern:
            whole = re.compile(expand(pattern))
            left: set[int] | None = None
            for fill, long in (("~", False), (" ", False), ("9", True), (" ", True)):
                maker = Maker(expand(pattern), fill=fill, long=long)
                made = [(text, taken) for text, taken in maker.texts() if whole.search(text)]
                found += [(symptom, text) for text, _ in made]
                left = (maker.alternatives if left is None else left) - {place for _, taken in made for place in taken}
                if made and not left:
                    break
            else:
                empty.append((symptom.id, pattern))
    return tuple(found), tuple(empty)


@pytest.mark.slow
def test_every_alternative_of_every_pattern_is_let_through() -> None:
    every, _ = samples()
    assert len(every) > 2500
    assert not [(symptom.id, text) for symptom, text in every if not any(one in text.lower() for one in symptom.anchor)]
    scanner = Scanner(Index(anchor for symptom in book().symptoms() for anchor in symptom.anchor))
    lines = [text for symptom, text in every if symptom.role != "context"]
    seen = {line.number for line in [*scanner.feed("\n".join(lines).encode()), *scanner.finish()]}
    assert not [text for number, text in enumerate(lines, 1) if number not in seen]


@pytest.mark.slow
def test_every_alternative_of_every_pattern_finds_something() -> None:
    assert not samples()[1]


def test_the_texts_are_of_every_alternative() -> None:
    maker = Maker(r"a(?:b|cd?)[ef]{2}")
    assert maker.texts() == [("abee", frozenset([0])), ("acee", frozenset([1])), ("acdee", frozenset([1]))]
    assert maker.alternatives == {0, 1}


def test_a_key_is_a_word_that_says_something() -> None:
    assert key_of("could not load libcudnn") == b"libcudnn"
    assert key_of("error 803") == b"error"
    assert key_of("a10 is 5") is None


@pytest.mark.slow
def test_what_a_pattern_finds_holds_its_literals() -> None:
    every, _ = samples()
    lost = []
    for symptom, text in every:
        for pattern, literals in zip(symptom.pattern, symptom.literals, strict=True):
            found = re.search(expand(pattern), text)
            if found and not may_match(literals, text.lower()):
                lost.append((symptom.id, pattern))
    assert not lost


@pytest.mark.parametrize(
    ("expression", "literals"),
    [
        (r"\bCUDA[_ ]error: (?:lost|found) in (?P<name>\d+)", [[("cuda",), ("error: ",), ("lost", "found"), (" in ",)]]),
        ("one|other", [[("one",)], [("other",)]]),
        ("one(?:two|three)four", [[("one",), ("two", "three"), ("four",)]]),
        ("(?i)ABC{2}d(?:xyz)?(?!no)(?=.*yes)?end", [[("abc",), ("d",), ("end",)]]),
        ("(?:foo|bar){1,2}-(baz)*(qux){0,3}", [[("foo", "bar"), ("-",)]]),
        (r"(?:a|[bc])\.so(?P=name)|(?:or)?", [[(".so",)], [("",)]]),
        (r"\x41bc\u00e4d(?#note)(e)?(?(1)f|g)h", [[("bc",), ("d",), ("h",)]]),
        ("", [[("",)]]),
    ],
)
def test_the_literals_of_an_expression_are_what_each_alternative_needs(expression: str, literals: list[list[tuple[str, ...]]]) -> None:
    assert [list(clauses) for clauses in literals_of(expression)] == literals


def test_a_line_may_match_if_it_has_a_literal_of_each_clause() -> None:
    literals = literals_of("error (?:lost|found)|warning")
    assert may_match(literals, "an error is found")
    assert may_match(literals, "a warning")
    assert not may_match(literals, "an error")
    assert not may_match(literals, "lost and found")


@pytest.mark.parametrize(("span", "anchor"), [(1, (" the bus", "fallen off ")), (2, ("the bus", "fallen off"))])
def test_a_row_without_anchors_takes_them_from_its_patterns(span: int, anchor: tuple[str, ...]) -> None:
    patterns = ("GPU .{0,9} the bus|Fallen off {name:word}", "fallen off ")
    row = Symptom(id="lost", pattern=patterns, role="context", sample=("GPU left the bus",), source=("own",), span=span)
    assert row.anchor == anchor
