"""Texts of which every line that a pattern finds holds one: with them most lines of a log are passed over without a regular expression.

They are read off the pattern, so that no alternative of it can be forgotten. A text counts where it must be there: what may be left out,
or may be anything, parts one run of fixed text from the next, and of the runs the one that says most is taken. Where a message goes over
several lines, it is the first run that says enough, because the line on which the message begins is the one that is looked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

_DIGITS = b"0123456789"
_WORDS = bytes(byte if bytes([byte]).isalnum() or byte in b"_+" or byte >= 0x80 else 0x20 for byte in range(256))
"""What is no part of a word becomes a blank."""
_COMMON = frozenset(
    b"all already and another because binary blas but cannot capable command compiled content could create defined device does "
    b"enabled error failed file find following for found from gpu have ignore initialize installed invalid is kernel launch "
    b"lib library load loaded loading lost manager match memory module name needed not num number only out package please "
    b"process public release removed require required requires root running runtime satisfy select should signed size software "
    b"source string such support symbol system that the this to too unable unknown unsupported using usr value version "
    b"versions wait was wheels which with you your".split()
)
"""Words that are in many a line, and so are no key where an anchor has a better one."""
_SHORTEST_KEY = 3
_MOST_TEXTS = 16
"""Texts that a run may stand for before it is ended."""
_MOST_ALTERNATIVES = 120
_LONGEST = 60
_ENOUGH = 5
"""Letters of a word, not a common one, that make a run say enough."""
_BEGINNING = 12
"""Characters after which the beginning of a message that may be wrapped is cut at the next blank."""
Texts = frozenset[str]
Runs = list[Texts]
_NOTHING: Texts = frozenset([""])


def words_of(text: bytes) -> list[bytes]:
    """The words of a text in lower case, without digits."""
    return text.translate(_WORDS, _DIGITS).split()


def key_of(anchor: str) -> bytes | None:
    """The word of an anchor that says most: a line that holds the anchor has a word with that in it. None where it has no word."""
    words = [word for word in words_of(anchor.encode()) if len(word) >= _SHORTEST_KEY]
    return max(words, key=lambda word: (word not in _COMMON, len(word))) if words else None


def anchors_of(pattern: str, *, begins: bool = False) -> tuple[str, ...]:
    """Texts in lower case, one of which is in every text that the pattern finds; none where it has no fixed text.

    With `begins` they are of the beginning of the message.
    """
    runs = _parts(list(parser.parse(pattern).data))
    runs = [run for run in runs if run and "" not in run]
    if not runs:
        return ()
    chosen = next((run for run in runs if _says(run)[0] >= _ENOUGH), None) if begins else None
    if chosen is not None:
        return _least(frozenset(map(_cut, chosen)))
    return _least(max(runs, key=_says))


def _cut(text: str) -> str:
    """A text up to the first blank behind what says enough."""
    for blank in re.finditer(" ", text):
        if blank.start() >= _BEGINNING and _strength(text[: blank.start()]) >= _ENOUGH:
            return text[: blank.start()]
    return text


def _says(run: Texts) -> tuple[float, int, int]:
    """How much a run says: by its weakest text, then by how few and how long they are."""
    return min(map(_strength, run)), -len(run), min(map(len, run))


def _strength(text: str) -> float:
    key = key_of(text)
    if key is None:
        return 0
    return 1 + len(text) / 100 if key in _COMMON else min(len(key), 10) + len(text) / 100


def _least(run: Texts) -> tuple[str, ...]:
    """The texts without those that hold another one."""
    return tuple(sorted(one for one in run if not any(other != one and other in one for other in run)))


def _parts(tree: Sequence[tuple[Any, Any]]) -> Runs:
    """The runs of a sequence in their order; what stands between two of them may be anything."""
    runs: Runs = [_NOTHING]
    for operator, argument in tree:
        inner, open_ = _node(operator, argument)
        for place, texts in enumerate(inner):
            if place:
                runs.append(texts)
            else:
                runs += _joined(runs.pop(), texts)
        if open_:
            runs.append(_NOTHING)
    return runs


def _joined(run: Texts, texts: Texts) -> Runs:
    """One run of both, or two where that would be too many or too long."""
    if len(run) * len(texts) <= _MOST_TEXTS or _NOTHING in (run, texts):
        both = frozenset(one + other for one in run for other in texts)
        if max(map(len, both)) <= _LONGEST:
            return [both]
    return [run, texts]


def _node(operator: Any, argument: Any) -> tuple[Runs, bool]:
    """The runs of one node, the first of which follows what is before it at once, and whether what comes after does not follow at once."""
    if operator in (sre.LITERAL, sre.IN):
        letter = _letter(operator, argument)
        return ([_NOTHING], True) if letter is None else ([frozenset([letter])], False)
    if operator is sre.SUBPATTERN:
        return _closed(_parts(list(argument[-1])))
    if operator is getattr(sre, "ATOMIC_GROUP", None):
        return _closed(_parts(list(argument)))
    if operator in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return [_NOTHING], False
    if operator is sre.BRANCH:
        return _branch([_parts(list(one)) for one in argument[1]])
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT) or operator is getattr(sre, "POSSESSIVE_REPEAT", None):
        return _repeat(*argument)
    return [_NOTHING], True


def _closed(runs: Runs) -> tuple[Runs, bool]:
    return runs, False


def _letter(operator: Any, argument: Any) -> str | None:
    """The one letter, case apart, that a place of a pattern stands for; None where it may be another."""
    codes = [argument] if operator is sre.LITERAL else [code for kind, code in argument if kind is sre.LITERAL]
    if operator is sre.IN and len(codes) != len(argument):
        return None
    letters = {chr(code).lower() for code in codes}
    letter = letters.pop() if len(letters) == 1 else None
    # Of other scripts only what has no case: bytes are made lower case before they are decoded.
    return letter if letter is not None and len(letter) == 1 and (letter.isascii() or letter.upper() == letter) else None


def _branch(each: list[Runs]) -> tuple[Runs, bool]:
    if all(len(runs) == 1 for runs in each):
        whole = frozenset(text for runs in each for text in runs[0])
        if len(whole) <= _MOST_ALTERNATIVES:
            return [whole], False
    best = [max((run for run in runs if "" not in run), key=_says, default=None) for runs in each]
    if any(run is None for run in best):
        return [_NOTHING], True
    return [_NOTHING, frozenset(text for run in best if run is not None for text in run)], True


def _repeat(least: int, most: Any, body: Any) -> tuple[Runs, bool]:
    inner = _parts(list(body))
    if len(inner) == 1 and (least, most) == (0, 1):
        return [inner[0] | _NOTHING], False
    if not least:
        return [_NOTHING], True
    return inner, not (least == most == 1)
