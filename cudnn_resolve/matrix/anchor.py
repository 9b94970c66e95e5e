"""Anchors of symptoms: strings, one of which every line that a pattern matches contains.

They let most lines of a log be skipped without running a regular expression. They are a column of the symptom tables.
"""

from __future__ import annotations

import re

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


_PIECE = re.compile(
    r"(?P<field>\{[a-z_]\w{0,30}:[a-z]{1,24}\})|(?P<times>\{\d+,?\d*\}[?+]?|[*?+][?+]?)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\\(?P<class>[A-Za-z0-9])|\\(?P<escaped>.)|(?P<open>\()|(?P<close>\))|(?P<or>\|)|(?P<any>[.^$])|(?P<plain>[^\\()\[\]{}|.^$*+?]+|.)",
    re.DOTALL,
)
"""One element of a pattern in the tables, or a run of plain characters."""


def literals_of(pattern: str) -> tuple[str, ...]:
    """Return lower-case literals, one per top-level alternative, that a match must contain; `("",)` if an alternative has none."""
    literals, runs, depth = [], [""], 0
    for found in _PIECE.finditer(pattern):
        kind = found.lastgroup
        if kind == "or" and not depth:
            literals.append(max(runs, key=len))
            runs = [""]
        elif kind in ("open", "close"):
            depth += 1 if kind == "open" else -1
            runs.append("")
        elif kind == "times":  # the element before it may be absent
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif kind in ("plain", "escaped") and not depth:
            runs[-1] += found[kind].lower()
        else:
            runs.append("")
    literals.append(max(runs, key=len))
    return ("",) if "" in literals else tuple(literals)
