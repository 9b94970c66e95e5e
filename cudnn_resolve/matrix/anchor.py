"""Anchors of symptoms: strings, one of which every line that a pattern matches contains.

They let most lines of a log be skipped without running a regular expression. They are a column of the symptom tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_DIGITS = b"0123456789"
_WORD_BYTES = bytes(byte if bytes([byte]).isalnum() or byte in b"_+" or byte >= 0x80 else 0x20 for byte in range(256))
"""Translation table that replaces what separates words by a space."""
_COMMON = frozenset(
    b"all already and another because binary blas but cannot capable command compiled content could create defined device does "
    b"enabled error failed file find following for found from gpu have ignore initialize installed invalid is kernel launch "
    b"lib library load loaded loading lost manager match memory module name needed not num number only out package please "
    b"process public release removed require required requires root running runtime satisfy select should signed size software "
    b"source string such support symbol system that the this to too unable unknown unsupported using usr value version "
    b"versions wait was wheels which with you your".split()
)
"""Words of many log lines, used as a key only if an anchor has no better one."""
_SHORTEST_KEY = 3


def words_of(text: bytes) -> list[bytes]:
    """Split text into lower-case words without digits."""
    return text.translate(_WORD_BYTES, _DIGITS).split()


def key_of(anchor: str) -> bytes | None:
    """Return the most telling word of an anchor, part of a word in every line with the anchor; None if it has no word."""
    words = [word for word in words_of(anchor.encode()) if len(word) >= _SHORTEST_KEY]
    return max(words, key=lambda word: (word not in _COMMON, len(word))) if words else None


Clause = tuple[str, ...]
"""Lower-case literals, one of which every match of an alternative contains."""
Literals = tuple[tuple[Clause, ...], ...]
"""Clauses of each top-level alternative of a pattern."""
_TOKEN = re.compile(
    r"(?P<times>\{\d+,?\d*\}[?+]?|[*?+][?+]?)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\\(?P<class>x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|N\{[^}]*\}|[A-Za-z0-9])|\\(?P<escaped>.)"
    r"|(?P<empty>\(\?[a-z]+\)|\(\?P=\w+\))|(?P<absent>\(\?(?:<?!|#|\(\w+\)))|(?P<open>\((?:\?(?:P<\w+>|[a-z-]*:|<?=|>))?)"
    r"|(?P<close>\))|(?P<or>\|)|(?P<any>[.^$])|(?P<plain>.)",
    re.DOTALL,
)
"""One element of a regular expression."""


def literals_of(expression: str) -> Literals:
    """Return the literals that a match of a regular expression must contain; an alternative without any has the clause `("",)`."""
    return tuple(tuple(dict.fromkeys(clauses)) or (("",),) for clauses in _alternatives(_TOKEN.finditer(expression)))


def anchors_of(literals: Literals) -> Clause:
    """Return the most telling clause of each alternative."""
    return tuple(literal for clauses in literals for literal in max(clauses, key=_telling))


def anchors_of_lines(literals: Literals) -> Clause:
    """Return the longest text of each alternative of a message of several lines, without the space between two of them."""
    found = (max(clauses, key=lambda clause: (len(clause) == 1, len(clause[0]))) for clauses in literals)
    return tuple(literal.strip() for clause in found for literal in clause)


def may_match(literals: Literals, low: str) -> bool:
    """True if a text in lower case contains what a match must contain."""
    return any(all(any(literal in low for literal in clause) for clause in clauses) for clauses in literals)


def _telling(clause: Clause) -> tuple[int, int, int]:
    """Rank a clause by its least telling literal."""
    keys = [key_of(literal) for literal in clause]
    return min(0 if key is None else 1 if key in _COMMON else 2 for key in keys), min(map(len, clause)), -len(clause)


def _alternatives(tokens: Iterator[re.Match[str]]) -> list[list[Clause]]:
    """Return the clauses of each alternative of an expression, or of a group up to its closing parenthesis."""
    alternatives: list[list[Clause]] = []
    is_open = True
    while is_open:
        clauses, is_open = _clauses_of_sequence(tokens)
        alternatives.append(clauses)
    return alternatives


def _clauses_of_group(alternatives: list[list[Clause]]) -> list[Clause]:
    """Return clauses that hold for every alternative."""
    if len(alternatives) == 1 or not all(alternatives):
        return alternatives[0] if len(alternatives) == 1 else []
    return [tuple(dict.fromkeys(literal for clauses in alternatives for literal in max(clauses, key=_telling)))]


def _clauses_of_sequence(tokens: Iterator[re.Match[str]]) -> tuple[list[Clause], bool]:
    """Return the clauses of one alternative, and whether another one follows."""
    clauses: list[Clause] = []
    run, group, kind = "", list[Clause](), None  # literal characters so far, or the clauses of a group, until what follows is known
    for found in tokens:
        kind = found.lastgroup
        if kind in ("plain", "escaped"):
            clauses += group
            run, group = run + found[kind].lower(), []
            continue
        may_be_absent = kind == "times" and (found[0][0] in "*?" or found[0].startswith("{0"))
        clauses += [(run[:-1],)] if may_be_absent else [*group, (run,)]
        run, group = "", _clauses_of_group(_alternatives(tokens)) if kind in ("open", "absent") else []
        if kind == "absent":
            group = []
        if kind in ("close", "or"):
            break
    clauses += [*group, (run,)]
    return [clause for clause in clauses if clause[0]], kind == "or"
