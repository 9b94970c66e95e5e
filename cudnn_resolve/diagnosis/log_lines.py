"""Split a log of any size into the lines that need examination.

Bytes come in chunks of any size. Training prints the same lines repeatedly with other numbers; a line whose shape, without its digits,
had no match before is skipped without being decoded. Memory is bounded, whatever the size of the log or of a line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence

from cudnn_resolve.diagnosis.normalize_log import PARTED, encoding_of, parted
from cudnn_resolve.matrix.anchor import key_of, words_of

LONGEST_LINE = 12_000
"""Bytes of a line that are examined at once; longer lines are examined in overlapping pieces."""
_OVERLAP = 600
LOOK_AHEAD = 80
"""Following lines that may belong to a line's message."""
_AHEAD_BYTES = 12_000
_BLOCK = 1 << 18
_ENDLESS = 1 << 20
"""Bytes without a newline after which a line is split."""
_TAIL = 200
"""Lines at the end of a log that are examined whatever their shape: a program may have died at one of them."""
_SHAPES = 20_000
_SHAPE_BYTES = 400
_SAME = b"0123456789#=>.-"
"""Characters of progress bars and numbers."""
_REACHED = b"<00:00, "
_LONG_WORD = 40
_VOCABULARY = 100_000
"""Number of words that are cached."""
_ANSI = re.compile(r"\x1b\[[0-9;:?]{0,40}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f]")
_QUOTES = str.maketrans("\u2018\u2019\u201b\u00b4\u201c\u201d\u00ab\u00bb\u00a0", "''''\"\"\"\" ")
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
"""Prefixes of launchers, init systems and containers."""
_NUMBERS = re.compile(r"\d{1,20}")
_MARK = PARTED.encode()


class Line:
    """One line of a log, with access to the following lines."""

    __slots__ = ("_at", "_pieces", "head", "is_late", "number", "shape", "text")

    def __init__(self, number: int, raw: bytes, pieces: Sequence[bytes] = (), at: int = 0, *, is_late: bool = False) -> None:
        self.number = number
        self.is_late = is_late
        """True among the last lines of a log."""
        self.head, self.text = message_of(raw)
        self.shape = raw.translate(None, _SAME)
        """What stays the same between the lines of a progress bar or a table."""
        self._pieces = pieces
        self._at = at

    def following(self, count: int) -> list[tuple[str, str]]:
        """Up to `count` lines after this one, each as its prefix and its message."""
        out, used = [], 0
        for raw in self._pieces[self._at + 1 : self._at + 1 + count]:
            used += len(raw)
            if used > _AHEAD_BYTES:
                break
            out.append(message_of(raw))
        return out


def message_of(raw: bytes) -> tuple[str, str]:
    """Split a line into the prefix of a launcher or logger, and its message."""
    head, mark, rest = raw.partition(_MARK)
    return (plain(head), plain(rest)) if mark else parted(plain(raw))


def plain(raw: bytes) -> str:
    """Decode a line, without colours and control characters, with ASCII quotes."""
    text = raw.decode("utf-8", "replace")
    if not text.isascii():
        text = text.translate(_QUOTES)
    return text if text.isprintable() else _ANSI.sub("", text).expandtabs(4)


def joined(line: Line, span: int) -> str:
    """Join a line and the `span - 1` lines after it, without a launcher's prefixes and the lines of other ranks."""
    after = line.following(12 * span)
    rest = [message for head, message in after if head and _same(head, line.head)] if line.head else []
    rest = rest or [message for _, message in after]
    prefix = _PREFIX.match(line.text)
    if prefix:
        rest = [text[found.end() :] for text in rest if (found := _PREFIX.match(text)) and _same(found[0], prefix[0])] or rest
    return " ".join([line.text, *(text.strip() for text in rest if text.strip())][:span])


def _same(prefix: str, other: str) -> bool:
    """True for prefixes of one writer: equal, or different only in the numbers of a time."""
    if ":" in prefix and len(prefix) > 14:
        return _NUMBERS.sub("0", prefix) == _NUMBERS.sub("0", other)
    return prefix == other


def _before_last_lines(block: bytes, count: int) -> int:
    """Offset at which the last `count` lines and the unfinished one start; 0 if there are fewer."""
    at = len(block)
    for _ in range(count + 1):
        at = block.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


class Scanner:
    """Scanner for lines with new shapes; `feed` takes bytes, `finish` ends the log."""

    def __init__(self, index: Index) -> None:
        self.lines = 0
        """Lines seen so far."""
        self.is_blank = True
        """True while only whitespace and control characters were read."""
        self._index = index
        self._rest = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False
        self._idle: set[bytes] = set()

    def forget(self, line: Line) -> None:
        """Skip further lines of this shape."""
        if len(self._idle) < _SHAPES and len(line.shape) <= _SHAPE_BYTES:
            self._idle.add(line.shape)

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that are complete so far."""
        chunk = self._bytes(chunk)
        for start in range(0, len(chunk), _BLOCK):
            self._rest += chunk[start : start + _BLOCK]
            if len(self._rest) >= _BLOCK:
                yield from self._work(final=False)

    def finish(self) -> Iterator[Line]:
        """Yield the lines that were held back."""
        if self._decoder is not None:
            self._rest += self._decoder.decode(b"", final=True).encode("utf-8", "replace")
        yield from self._work(final=True)

    def _bytes(self, chunk: bytes) -> bytes:
        """Convert UTF-16 to UTF-8; return other bytes unchanged."""
        if not self._begun and chunk:
            self._begun = True
            name = encoding_of(chunk[:400])
            self._decoder = codecs.getincrementaldecoder(name)("replace") if name else None
            if chunk.startswith(codecs.BOM_UTF8):
                chunk = chunk[3:]
        return self._decoder.decode(chunk).encode("utf-8", "replace") if self._decoder else chunk

    def _work(self, *, final: bool) -> Iterator[Line]:
        block = self._rest
        if not block:
            return
        if b"\r" in block:
            # A line overwritten by carriage returns counts as one; each of its states is examined. Replacing CR LF takes twice the time.
            first, *rest = block.split(b"\r")
            block = first + b"".join(piece if piece.startswith(b"\n") else b"\n\r" + piece for piece in rest)
        end = len(block) if final else _before_last_lines(block, LOOK_AHEAD)
        if not end and len(block) > _ENDLESS:
            end = block.rfind(b"\n") + 1
            if not end:
                yield from self._long(self.lines + 1, block[: _ENDLESS - _OVERLAP])
                self._rest = block[_ENDLESS - 2 * _OVERLAP :]
                return
        self.is_blank = self.is_blank and not _ANSI.sub("", block.decode("utf-8", "replace")).strip("\ufeff \t\r\n")
        if end:
            yield from self._new(block, block if final else block[: end - 1], is_end=final)
        self._rest = b"" if final else block[end:].replace(b"\n\r", b"\r")

    def _new(self, block: bytes, examined: bytes, *, is_end: bool) -> Iterator[Line]:
        """Lines of the first part of a block that may match; at the end of a log the last ones even if their shape is known."""
        idle = self._idle
        drawn = examined.count(b"\r") if b"\r" in examined else 0
        shapes = examined.translate(None, _SAME).split(b"\n")
        base, over, last = self.lines, 0, 0
        self.lines = base + len(shapes) - drawn - (is_end and examined.endswith(b"\n"))
        if not is_end and idle.issuperset(shapes):
            return
        tail = max(len(shapes) - _TAIL, 0) if is_end else len(shapes)
        pieces = block.split(b"\n")
        for at in [place for place, shape in enumerate(shapes) if shape not in idle or place >= tail]:
            if drawn:
                over += sum(piece.startswith(b"\r") for piece in pieces[last : at + 1])
                last = at + 1
            raw, number = pieces[at], base + at + 1 - over
            if len(raw) > LONGEST_LINE:
                yield from self._long(number, raw, pieces, at)
            elif shapes[at] not in idle or at >= tail:
                if self._interests(raw):
                    yield Line(number, raw, pieces, at, is_late=at >= tail)
                elif len(idle) < _SHAPES and len(raw) <= _SHAPE_BYTES:
                    idle.add(shapes[at])

    def _long(self, number: int, raw: bytes, pieces: Sequence[bytes] = (), at: int = 0) -> Iterator[Line]:
        """Overlapping parts of a long or endless line that may match."""
        for start in range(0, len(raw), LONGEST_LINE - _OVERLAP):
            part = raw[start : start + LONGEST_LINE]
            if self._interests(part):
                yield Line(number, part, pieces, at)

    def _interests(self, raw: bytes) -> bool:
        """True if a line has a word of an anchor, or is a progress bar that has reached its end, which has no word."""
        anchors = self._index.anchors
        return _REACHED in raw or any(anchors(word) for word in words_of(raw.lower()))


class Index:
    """Index of anchors by their keys, with a bounded cache of words."""

    def __init__(self, anchors: Iterable[str]) -> None:
        self.always: list[str] = []
        """Anchors without a word, which are searched only in lines that are examined anyway."""
        self._by_key: dict[bytes, list[str]] = {}
        self._known: dict[bytes, tuple[str, ...]] = {}
        for anchor in dict.fromkeys(anchors):
            key = key_of(anchor)
            if key is None:
                self.always.append(anchor)
            else:
                self._by_key.setdefault(key, []).append(anchor)
        self._places = {key: place for place, key in enumerate(self._by_key)}
        self._lengths = sorted(set(map(len, self._by_key)))

    def anchors(self, word: bytes) -> tuple[str, ...]:
        """Anchors that a word may belong to."""
        found = self._known.get(word)
        if found is None:
            found = tuple(anchor for key in self._keys(word) for anchor in self._by_key[key])
            if len(self._known) < _VOCABULARY:
                self._known[word] = found
        return found

    def _keys(self, word: bytes) -> Sequence[bytes]:
        """Keys contained in a word, in the order of their anchors."""
        if len(word) > _SHAPE_BYTES:  # a word of hundreds of letters is not part of a message
            return ()
        if len(word) > _LONG_WORD:
            return [key for key in self._by_key if key in word]
        # Most words have fewer substrings than there are keys.
        pieces = {word[start : start + length] for length in self._lengths for start in range(len(word) - length + 1)}
        return sorted(pieces & self._places.keys(), key=self._places.__getitem__)
