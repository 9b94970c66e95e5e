"""Anchors of symptoms: texts of which every line that a pattern finds holds one.

With them most lines of a log are passed over without a regular expression. They are a column of the symptom tables.
"""

from __future__ import annotations

import re

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


def words_of(text: bytes) -> list[bytes]:
    """Split a text into its words in lower case, without digits."""
    return text.translate(_WORDS, _DIGITS).split()


def key_of(anchor: str) -> bytes | None:
    """Return the word of an anchor that says most: a line that holds the anchor has a word with that in it. None where it has no word."""
    words = [word for word in words_of(anchor.encode()) if len(word) >= _SHORTEST_KEY]
    return max(words, key=lambda word: (word not in _COMMON, len(word))) if words else None


_PIECE = re.compile(
    r"(?P<field>\{[a-z_]\w{0,30}:[a-z]{1,24}\})|(?P<times>\{\d+,?\d*\}[?+]?|[*?+][?+]?)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\\(?P<class>[A-Za-z0-9])|\\(?P<escaped>.)|(?P<open>\()|(?P<close>\))|(?P<or>\|)|(?P<any>[.^$])|(?P<plain>.)",
    re.DOTALL,
)
"""The parts of a pattern of the tables."""


def literals_of(pattern: str) -> tuple[str, ...]:
    """Return texts in lower case, one of which everything that a pattern finds holds; one is empty where none is seen without a parser."""
    whole, runs, depth = [], [""], 0
    for found in _PIECE.finditer(pattern):
        kind = found.lastgroup
        if kind == "or" and not depth:
            whole.append(max(runs, key=len))
            runs = [""]
        elif kind in ("open", "close"):
            depth += 1 if kind == "open" else -1
            runs.append("")
        elif kind == "times":
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif kind in ("plain", "escaped") and not depth:
            runs[-1] += found[kind].lower()
        else:
            runs.append("")
    whole.append(max(runs, key=len))
    return ("",) if "" in whole else tuple(whole)
