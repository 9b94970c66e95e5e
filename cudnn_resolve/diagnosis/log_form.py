"""One form for logs as people paste them: without what loggers, containers and forums put around each line, wrapped lines joined.

The message of a line is what a symptom is looked for in; the prefix says who wrote it and stays with the line. Lines keep the numbers
that they have for the user.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import DecodeError, json

from cudnn_resolve.diagnosis.quoted_text import MESSAGE_START, quoted_lines

PARTED = "\x1f"
"""Stands between the prefix of a line and its message."""
LONGEST_WHOLE = 1 << 19
"""Bytes up to which a log is brought into form as a whole; longer ones come from a file, and nobody wrapped them."""
_MOST_LINES = 30_000
"""The same in lines, each of which takes far more memory than its bytes."""
_ANSI = re.compile(r"\x1b\[[0-9;:?]{0,40}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_PREFIX = re.compile(
    r"\s{0,8}(?:"
    rf"\[?{_TIME}\]?(?: (?:std(?:out|err) [FP]|\d\d[OE][ +]?))?(?=[\s{{]|$)"
    r"|(?:<\d{1,3}>)?[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d [\w.-]{1,60} [\w./@-]{1,60}(?:\[\d{1,9}\])?:"
    r"|\[(?:rank ?)\d{1,5}\](?:\[[^\]]{0,30}\])?:"
    r"|\[[\d,]{1,9}\]<std(?:out|err)>:"
    r"|[\w./-]{1,60}[-_]\d{1,3} {1,40}\|(?= |$)"
    r"|\([\w ]{1,40}pid=\d{1,9}[^)]{0,40}\)(?: (?:ERROR|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d [\w.]{1,60}:\d{1,5}\])?"
    r"|#\d{1,4} \d{1,6}\.\d{1,4}(?= )"
    r"|##\[(?:error|warning)\]"
    r") ?"
)
"""What nothing but a launcher, an init system or a container writes before a line."""
_COMMON_PREFIXES = tuple(
    re.compile(source)
    for source in (
        r"(?:> ?){1,8}?(?=>>> )|(?:> ?){1,8}(?!>)",  # but for Python's own prompt
        r"[\w./-]{1,40} {1,40}\| ",
        r"\d{1,4}: ",
        r"\[\d{1,5}\]:? ",
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? (?!\||std(?:out|err) [FP] )",
        r"\[[\w.@-]{1,40}\] ",
        r"(?:\d{1,5}|[│|])(?:\t| {2,8})",
    )
)
"""The same where most lines of a log begin so: single ones may mean something else."""
_ENTITY = re.compile(r"&(?:quot|amp|lt|gt|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,6});")
_MESSAGE_KEYS = (
    "log",
    "message",
    "msg",
    "MESSAGE",
    "text",
    "textPayload",
    "line",
    "event",
    "body",
    "output",
    "stack",
    "exception",
    "exc_info",
    "traceback",
    "stacktrace",
    "error",
    "errorMessage",
    "err",
    "stderr",
    "reason",
    "detail",
    "details",
)
_LOGFMT = re.compile(r'(?:^|\s)(?:msg|message|error|err|output)="((?:[^"\\]|\\.){1,4000})"')
_IS_LOGFMT = re.compile(r"\s{0,4}(?:time|ts|level|t)=\S{1,60} (?:[\w.]{1,30}=\S{1,80} )*")
_ESCAPED = re.compile(r'\\n\s{1,8}File \\{0,2}"|most recent call last\):\\n')
_WIDTHS = (
    45,
    50,
    55,
    60,
    64,
    66,
    70,
    72,
    76,
    78,
    79,
    80,
    90,
    96,
    98,
    99,
    100,
    110,
    118,
    119,
    120,
    130,
    131,
    132,
    140,
    150,
    158,
    159,
    160,
    180,
    200,
)
_WIDEST = 240
_USUAL = frozenset({79, 80, 100, 120, 132, 160})
_NARROW = frozenset(range(72, 81))
_DIGITS = re.compile(r"\d+")
_NARROWEST = 40
_RAGGED = 16
"""The last line before a break may be so much shorter than the others."""
_HYPHEN = re.compile(r"[A-Za-z]-$")
_WORD = re.compile(r"\S{0,200}?(?:[A-Za-z]-(?=[A-Za-z])|(?=\s)|$)")
_TABLE = re.compile(r"[|+│╮╯]\s*$")
"""How a row of a table ends, which is as long as the others for another reason."""
_MOST_JOINED = 40
_FEW = 8
"""Lines that one message may be wrapped into for the whole log to be that message."""


def parted(text: str) -> tuple[str, str]:
    """The prefix of a line and its message, by what can be told from the line alone."""
    found = _PREFIX.match(text)
    head = found[0] if found else ""
    rest = text[len(head) :]
    again = _PREFIX.match(rest) if head else None
    if again:
        head, rest = head + again[0], rest[again.end() :]
    return head, unwrapped(rest)


def unwrapped(text: str) -> str:
    """A message out of its JSON, its logfmt and its HTML."""
    start = text.lstrip()[:1]
    if start in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        found = _of_json(text)
        text = text if found is None else found
    elif "=" in text[:40] and _IS_LOGFMT.match(text):
        said = [value.replace('\\"', '"').replace("\\n", "\n").replace("\\t", " ") for value in _LOGFMT.findall(text)]
        text = " ".join(said) + "; " + _LOGFMT.sub(" ", text) if said else text
    return _unescaped(text)


def _unescaped(text: str) -> str:
    """A text with the characters that HTML writes as entities."""
    if "&" in text and _ENTITY.search(text):
        from html import unescape

        return unescape(text).replace("\xa0", " ")
    return text


def _of_json(text: str) -> str | None:
    """What a logger that writes JSON was given to write."""
    try:
        held = json.decode(text.encode("utf-8", "replace"))
    except (DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(held, list):
        entries = [_said(entry) for entry in held if isinstance(entry, dict)]
        return "\n".join(entry for entry in entries if entry) or None
    return _said(held) if isinstance(held, dict) else None


def _said(held: dict[str, object]) -> str | None:
    """What one entry of a log in JSON says, which may be an empty line; None where it has no message."""
    texts = [text for key in _MESSAGE_KEYS if isinstance(text := held.get(key), str)]
    said = dict.fromkeys(text for text in texts if text.strip())
    return "\n".join(text.rstrip("\n") for text in said) if texts else None


class _Wrap(NamedTuple):
    """How a log was wrapped."""

    width: int
    soft: bool
    """Between words, not within them."""
    sure: bool = False


class _Log(NamedTuple):
    """A log in its lines, and each line as its prefix and its messages."""

    lines: list[str]
    parts: list[tuple[str, list[str]]]
    is_headed: bool
    """True where every line has a prefix, which then takes nothing of the width."""

    def size(self, at: int) -> int:
        """The length of a line, as far as its width was limited."""
        return len(self.lines[at]) - (len(self.parts[at][0]) if self.is_headed else 0)


class Formed(NamedTuple):
    """A log in one form: each line as prefix, mark and message."""

    text: str
    numbers: list[int]
    """The number of the user's line that each line begins on."""
    maybe: list[tuple[int, list[str]]]
    """Lines that may be one message, in pieces, and the number of the first."""
    is_one: bool
    """True where all lines are one message, wrapped at a usual width or not at all."""
    quoted_from: int
    """The number of the first line in which nothing failed although it names errors, as in a diff; 0 where there is none."""


def formed(text: str) -> Formed:
    """A log in one form."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    # A page escapes what was wrapped before, so that entities take nothing of the width.
    lines = [_unescaped(line if line.isprintable() else _ANSI.sub("", line)) for line in lines]
    common = _common(lines)
    parts = [_parts(line, common) for line in lines]
    log = _Log(lines, parts, all(head or not said[0].strip() for head, said in parts))
    wraps = _wraps(log)
    sure = next((wrap for wrap in wraps if wrap.sure), None)
    out: list[tuple[str, str, int]] = []
    maybe = [found for wrap in wraps if not wrap.sure for found in _maybe(log, wrap)]
    at = 0
    while at < len(lines):
        head, messages = parts[at]
        last = _last(log, at, sure) if sure else at
        pieces = _pieces(log, at, last, soft=sure is not None and sure.soft)
        out += [(head, message, at + 1) for message in (*messages[:-1], "".join(pieces))]
        at = last + 1
    quoted = quoted_lines([message for _, message, _ in out])
    out = [(head, "" if at in quoted else message, number) for at, (head, message, number) in enumerate(out)] if quoted else out
    said = "\n".join(f"{head}{PARTED}{message}" if head else message for head, message, _ in out)
    first = out[min(quoted)][2] if quoted else 0
    passed_over = {out[at][2] for at in quoted}
    maybe = [found for found in maybe if found[0] not in passed_over]
    return Formed(said, [number for _, _, number in out], maybe, _is_one(log), first)


def _is_one(log: _Log) -> bool:
    """True where all lines may be one message that was wrapped at a usual width."""
    last = max((at for at, line in enumerate(log.lines) if line.strip()), default=0)
    if not 0 < last <= _FEW:
        return last == 0
    ways = ((width, goes_on) for width in _USUAL | _NARROW for goes_on in (_goes_on, _goes_on_softly))
    return any(all(goes_on(log, at, width) for at in range(last)) for width, goes_on in ways)


def _maybe(log: _Log, wrap: _Wrap) -> Iterator[tuple[int, list[str]]]:
    at = 0
    while at < len(log.lines):
        last = _last(log, at, wrap)
        if last > at:
            yield at + 1, _pieces(log, at, last, soft=wrap.soft)
        at = last + 1


def _last(log: _Log, at: int, wrap: _Wrap) -> int:
    """The last line of the message that begins on a line."""
    last, goes_on = at, _goes_on_softly if wrap.soft else _goes_on
    while last + 1 < len(log.lines) and last - at < _MOST_JOINED and goes_on(log, last, wrap.width):
        last += 1
    return last


def _pieces(log: _Log, at: int, last: int, *, soft: bool) -> list[str]:
    """The last message of a line and the lines that continue it; text is wrapped behind a hyphen without a blank, too."""
    out = [log.parts[at][1][-1]]
    for _, (rest, *_) in log.parts[at + 1 : last + 1]:
        out.append(rest if not soft or _HYPHEN.search(out[-1]) else f" {rest}")
    return out


def _common(lines: Sequence[str]) -> re.Pattern[str] | None:
    """The prefix that most lines begin with, of those that single lines may have for another reason."""
    said = [line for line in lines if line.strip()]
    if len(said) < 2:
        return next((pattern for pattern in _COMMON_PREFIXES[:1] if said and pattern.match(said[0])), None)
    for pattern in _COMMON_PREFIXES:
        if sum(pattern.match(line) is not None for line in said) > 0.6 * len(said):
            return pattern
    return None


def _cut(line: str, common: re.Pattern[str] | None) -> tuple[str, str]:
    found = common.match(line) if common else None
    head = found[0] if found else ""
    if not found and common and line.rstrip() == ">":
        return line, ""
    more, rest = parted(line[len(head) :])
    return head + more, rest


def _parts(line: str, common: re.Pattern[str] | None) -> tuple[str, list[str]]:
    """The prefix of a line and its messages: several where a logger or a notebook wrote their ends of lines out."""
    head, message = _cut(line, common)
    if _ESCAPED.search(message):
        message = message.replace("\\n", "\n").replace('\\"', '"')
    return head, message.split("\n")


def _wraps(log: _Log) -> tuple[_Wrap, ...]:
    """The ways in which a log may have been wrapped."""
    sizes = [log.size(at) for at in range(len(log.lines))]
    longest = max(sizes, default=0)
    full = [at for at, size in enumerate(sizes) if size == longest and not _TABLE.search(log.lines[at])]
    near = sum(longest - _RAGGED < size <= longest for size in sizes)
    found = []
    if full and _NARROWEST <= longest <= _WIDEST and len(full) >= 0.4 * near:
        shapes = {_DIGITS.sub("", log.lines[at]) for at in full}
        fresh = any(MESSAGE_START.match(said[0]) for _, said in (log.parts[at + 1] for at in full if at + 1 < len(sizes)))
        many = len(shapes) > 2 and len(full) >= 0.7 * near
        hard = _Wrap(longest, soft=False, sure=many or (longest in _USUAL and len(shapes) > 1 and len(full) == near and not fresh))
        found.append(hard)
        if hard.sure:
            return (hard,)
    # A word that is longer than a line is not cut where text is wrapped between words.
    widest = max((size for size, (_, said) in zip(sizes, log.parts, strict=True) if " " in said[0].strip()), default=0)
    width = next((width for width in _WIDTHS if width >= widest), 0)
    if widest >= _NARROWEST and width - widest < _RAGGED:
        breaks = [at for at in range(len(sizes) - 1) if _goes_on_softly(log, at, width)]
        shapes = {_DIGITS.sub("", log.lines[at]) for at in breaks}
        lower = sum(log.parts[at + 1][1][0][:1].islower() for at in breaks)
        sure = lower * 2 >= len(breaks) > 0 and (len(shapes) > 1 or (width in _NARROW and not found))
        found.append(_Wrap(width, soft=True, sure=sure))
    return tuple(found)


def _goes_on(log: _Log, at: int, width: int) -> bool:
    """True where the next line is the rest of one that was cut within a word."""
    return log.size(at) == width and _may_go_on(log, at)


def _goes_on_softly(log: _Log, at: int, width: int) -> bool:
    """True where the next line is the rest of one whose next word would have been too long."""
    line, message = log.lines[at], log.parts[at + 1][1][0]
    if not _may_go_on(log, at) or message[:1].isspace() or MESSAGE_START.match(message) or (log.size(at) > width and " " in line.strip()):
        return False
    word = _WORD.match(message)
    return log.size(at) + 1 + (word.end() if word else 0) > width


def _may_go_on(log: _Log, at: int) -> bool:
    (head, said), (next_head, following) = log.parts[at : at + 2]
    return len(said) == 1 and bool(following[0].strip()) and bool(head) >= bool(next_head) and not _TABLE.search(log.lines[at])


def whole(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """A log that is short, or nothing and the chunks of one that is not."""
    rest, held, size, lines = iter(chunks), [], 0, 0
    for chunk in rest:
        held.append(chunk)
        size += len(chunk)
        lines += chunk.count(b"\n")
        if size > LONGEST_WHOLE or lines > _MOST_LINES:
            return b"", chain(held, rest)
    return b"".join(held), iter(())


def decoded(raw: bytes) -> str:
    """The text of a short log."""
    return raw.decode(encoding_of(raw[:400]) or "utf-8", "replace").removeprefix("\ufeff")


def encoding_of(head: bytes) -> str | None:
    """The name of UTF-16, which a byte order mark or its zeros announce."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) > 8:
        if head[1::2].count(0) * 2 > len(head) * 0.8:
            return "utf-16-le"
        if head[0::2].count(0) * 2 > len(head) * 0.8:
            return "utf-16-be"
    return None
