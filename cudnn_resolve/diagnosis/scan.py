"""A log of any size, cut into the few lines that can mean anything.

Bytes come in chunks of any size and are looked through for a handful of words; only lines that hold one are decoded. What is kept in
memory does not grow with the log, nor with a line that never ends.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

TRIGGERS = (
    "cuda",
    "cudn",
    "nvidia",
    "libc",
    "could not",
    "cannot",
    "failed to",
    "has failed",
    "not found",
    "unable",
    "torch",
    "tensorflow",
    "jax",
    "numpy",
    "descriptors",
    "_pubkey",
    "depends",
    "requirement",
    "assert",
    "gpu",
    "dll",
    "/content",
    "memory",
    "device",
    "undefined symbol",
    "wsl",
    "pip",
)
"""Words (in lower case) of which a line must hold one to be looked at. An anchor of the tables without one is a word of its own."""

LONGEST_LINE = 12_000
"""Bytes of a line that are looked at around a word; longer lines are looked at in pieces."""
LOOK_AHEAD = 6_000
"""Bytes after a line that may belong to its message."""
_BLOCK = 1 << 18
_NEWLINES = (b"\n", b"\r")
_ANSI = re.compile(r"\x1b\[[0-9;:?]{0,40}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0e-\x1f\x7f]")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "‛": "'", "´": "'", "“": '"', "”": '"', "«": '"', "»": '"', "\xa0": " ", "…": "..."})
_PREFIX = re.compile(
    r"\s{0,8}(?:"
    r"\[(?:rank ?)?\d{1,5}\](?:\[[^\]]{0,30}\])?:?"
    r"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d [\w.-]{1,60} [\w./@-]{1,60}(?:\[\d{1,9}\])?:"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: (?:std(?:out|err) [FP]|\|))?"
    r"|[\w./-]{1,40}(?:\[\d{1,7}\]|-\d{1,4}|_\d{1,4})? {0,20}\|"
    r"|\[[\d,]{1,9}\]<std(?:out|err)>:"
    r"|\([\w ]{1,40}pid=\d{1,9}[^)]{0,40}\)"
    r"|\[\w{1,20}\] (?:std(?:out|err))?:?"
    r"|\d{1,4}:"
    r"|#\d{1,4} [\d.]{1,9}"
    r")\s?"
)
"""What launchers, init systems and containers write before each line."""
_NUMBERS = re.compile(r"\d{1,20}")


class Line(NamedTuple):
    """One line of a log and what follows it."""

    number: int
    text: str
    rest: bytes
    """What stands after it, bounded."""


def triggers_for(anchors: Iterable[str]) -> tuple[bytes, ...]:
    """The words that every line with one of `anchors` holds one of."""
    own = {anchor for anchor in anchors if not any(word in anchor for word in TRIGGERS)}
    return tuple(word.encode() for word in (*TRIGGERS, *sorted(own)))


def plain(raw: bytes) -> str:
    """The text of a line: decoded, without colours and control characters, with plain quotes."""
    text = raw.decode("utf-8", "replace")
    if not text.isascii():
        text = text.translate(_QUOTES)
    return _ANSI.sub("", text) if not text.isprintable() else text


def joined(line: Line, span: int) -> str:
    """A line and the `span - 1` lines after it as one text, without what a launcher writes before the lines of each rank."""
    rest = [plain(one) for one in line.rest.splitlines()[: 12 * span]]
    prefix = _PREFIX.match(line.text)
    if prefix:
        rest = [one[found.end() :] for one in rest if (found := _PREFIX.match(one)) and _same(found[0], prefix[0])] or rest
    return " ".join([line.text, *(one.strip() for one in rest if one.strip())][:span])


def _same(one: str, other: str) -> bool:
    """True for prefixes of one kind: those of a rank are equal, those with a time differ in their numbers only."""
    if ":" in one and len(one) > 14:
        return _NUMBERS.sub("0", one) == _NUMBERS.sub("0", other)
    return one == other


class Scanner:
    """The lines of a log that hold a trigger; `feed` takes its bytes, `finish` says that there are no more."""

    def __init__(self, triggers: tuple[bytes, ...]) -> None:
        self.triggers = triggers
        self.lines = 0
        """Lines seen so far."""
        self._rest = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """The lines that can be told so far."""
        chunk = self._bytes(chunk)
        for start in range(0, len(chunk), _BLOCK):
            self._rest += chunk[start : start + _BLOCK]
            yield from self._work(final=False)

    def finish(self) -> Iterator[Line]:
        """The lines that were held back."""
        yield from self._work(final=True)
        if self._rest:
            self.lines += 1
        self._rest = b""

    def _bytes(self, chunk: bytes) -> bytes:
        """UTF-8 for UTF-16, which a byte order mark or its zeros announce; other bytes as they are."""
        if not self._begun and chunk:
            self._begun = True
            name = _encoding(chunk[:400])
            self._decoder = codecs.getincrementaldecoder(name)("replace") if name else None
            if chunk.startswith(codecs.BOM_UTF8):
                chunk = chunk[3:]
        return self._decoder.decode(chunk).encode("utf-8", "replace") if self._decoder else chunk

    def _work(self, *, final: bool) -> Iterator[Line]:
        block = self._rest
        limit = len(block) if final else self._limit(block)
        if limit <= 0:
            return
        low = block.lower()
        done = 0
        counted = 0
        for place in sorted(self._places(low, limit)):
            if place < done:
                continue
            start, end = _bounds(block, place)
            self.lines += block.count(b"\n", counted, start)
            counted = max(counted, start)
            yield Line(self.lines + 1, plain(block[start:end]), block[end + 1 : end + 1 + LOOK_AHEAD])
            done = end
        self.lines += block.count(b"\n", counted, limit)
        self._rest = block[limit:]

    def _limit(self, block: bytes) -> int:
        """Where to stop for now: at a line's end, with enough after it to look ahead."""
        if len(block) <= LOOK_AHEAD:
            return 0
        safe = len(block) - LOOK_AHEAD
        cut = max(block.rfind(mark, 0, safe) for mark in _NEWLINES) + 1
        if cut == 0 and len(block) > _BLOCK:
            return safe
        return cut

    def _places(self, low: bytes, limit: int) -> set[int]:
        places = set()
        for word in self.triggers:
            place = low.find(word, 0, limit)
            while place >= 0:
                places.add(place)
                line_end = low.find(b"\n", place)
                place = low.find(word, min(line_end if line_end >= 0 else limit, place + LONGEST_LINE // 2), limit)
        return places


def _bounds(block: bytes, place: int) -> tuple[int, int]:
    start = max(place - LONGEST_LINE // 2, 0)
    end = min(place + LONGEST_LINE, len(block))
    first = max(block.rfind(mark, start, place) for mark in _NEWLINES)
    last = min((found for mark in _NEWLINES if (found := block.find(mark, place, end)) >= 0), default=end)
    return (first + 1 if first >= 0 else start), last


def _encoding(head: bytes) -> str | None:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) > 8:
        if head[1::2].count(0) * 2 > len(head) * 0.8:
            return "utf-16-le"
        if head[0::2].count(0) * 2 > len(head) * 0.8:
            return "utf-16-be"
    return None
