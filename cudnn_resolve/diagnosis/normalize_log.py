"""Normalize pasted logs: separate the prefixes of loggers, containers and forums, and join wrapped lines.

Symptoms are matched in the message of a line; its prefix identifies the writer and stays with the line. Lines keep the user's line
numbers.
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
"""Separator between the prefix of a line and its message."""
LONGEST_WHOLE = 1 << 19
"""Bytes up to which a log is normalized as a whole; longer ones come from files and are not wrapped."""
_MOST_LINES = 30_000
"""The same in lines, each of which takes much more memory than its bytes."""
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
    r"|\d{1,6}\.\d{1,4}(?= (?: {2,8}\S|Traceback|ERROR: |error: |E: |[\w.]{1,60}(?:Error|Exception): ))"
    r"|##\[(?:error|warning)\]"
    r") ?"
)
"""Unambiguous prefixes of launchers, init systems and containers."""
_COMMON_PREFIXES = tuple(
    re.compile(source)
    for source in (
        r"(?:> ?){1,8}?(?=>>> )|(?:> ?){1,8}(?!>)",  # but for Python's own prompt
        r"[\w./-]{1,40} {1,40}\| ",
        r"\d{1,4}: ",
        r"\d{1,6}\.\d{1,4}(?: |$)",  # BuildKit's seconds
        r"\[\d{1,5}\]:? ",
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? (?!\||std(?:out|err) [FP] )",
        r"\[[\w.@-]{1,40}\] ",
        r"(?:\d{1,5}|[│|])(?:\t| {2,8})",
    )
)
"""Prefixes that count only if most lines of a log have them: single ones may mean something else."""
_MARKDOWN = re.compile(r"(?<=[^\\])\\(?=[_.*()\[\]-])")
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
_WIDEST = 240
_USUAL = frozenset({79, 80, 100, 120, 132, 160})
_WIDTHS = sorted(_USUAL | {45, 50, 55, 60, 64, 66, 70, 72, 76, 78, 90, 96, 98, 99, 110, 118, 119, 130, 131, 140, 150, 158, 159, 180, 200})
_NARROW = frozenset(range(72, 81))
_DIGITS = re.compile(r"\d+")
_INTERRUPTED = re.compile(r"(?<=\S)\r?\n\^C(\r?)(?=\n)")
"""Ctrl-C on a line of its own, which has no word: it goes to the line before it."""
_NARROWEST = 40
_RAGGED = 16
"""Maximum by which the last line before a break may be shorter than the others."""
_HYPHEN = re.compile(r"[A-Za-z]-$")
_WORD = re.compile(r"\S{0,200}?(?:[A-Za-z]-(?=[A-Za-z])|(?=\s)|$)")
_TABLE = re.compile(r"[|+│╮╯]\s*$|^\S{1,100} {3,99}\S{1,60} {3,99}\S{1,60} {3,99}\S|\S {9,200}\S{1,16}\s*$")
"""A table row, whose length is not due to wrapping: its end, columns (kubectl, docker), or a last word at the right edge (compose)."""
_PADDED = re.compile(r"(?<![A-Za-z])([A-Za-z]{1,13}) {5,99}([A-Za-z]{1,13})(?![A-Za-z])")
_DOUBLED = re.compile(r"(?<=[A-Za-z][a-z.,]) {2}(?=[a-z]{2})")
_SPLIT = frozenset({"cannot", "cuda", "device", "driver", "error", "failed", "failure", "found", "initialized", "library", "mismatch"})
"""Words that a terminal may have broken, the rest of the line with it; padding remains in between."""
_MOST_JOINED = 40
_FEW = 8
"""Maximum lines of a log that is one wrapped message."""


def parted(text: str) -> tuple[str, str]:
    """Split a line into prefix and message, judging by the line alone."""
    found = _PREFIX.match(text)
    head = found[0] if found else ""
    rest = text[len(head) :]
    again = _PREFIX.match(rest) if head else None
    if again:
        head, rest = head + again[0], rest[again.end() :]
    return head, unwrapped(rest)


def unwrapped(text: str) -> str:
    """Extract a message from JSON, logfmt and HTML entities."""
    start = text.lstrip()[:1]
    if start in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        found = _of_json(text)
        text = text if found is None else found
    elif "=" in text[:40] and _IS_LOGFMT.match(text):
        values = [value.replace('\\"', '"').replace("\\n", "\n").replace("\\t", " ") for value in _LOGFMT.findall(text)]
        text = " ".join(values) + "; " + _LOGFMT.sub(" ", text) if values else text
    return _unescaped(text)


def _unescaped(text: str) -> str:
    """Replace HTML entities, and remove the backslashes of Markdown."""
    if "\\_" in text and _MARKDOWN.search(text) and not re.search(r"\\[A-Za-z0-9]", text):
        text = _MARKDOWN.sub("", text)
    if "&" in text and _ENTITY.search(text):
        from html import unescape

        return unescape(text).replace("\xa0", " ")
    return text


def _of_json(text: str) -> str | None:
    """Message of a JSON log entry."""
    try:
        held = json.decode(text.encode("utf-8", "replace"))
    except (DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(held, list):
        entries = [_said(entry) for entry in held if isinstance(entry, dict)]
        return "\n".join(entry for entry in entries if entry) or None
    return _said(held) if isinstance(held, dict) else None


def _said(held: dict[str, object]) -> str | None:
    """Message of one JSON entry, possibly empty; None without one."""
    texts = [text for key in _MESSAGE_KEYS if isinstance(text := held.get(key), str)]
    messages = dict.fromkeys(text for text in texts if text.strip())
    return "\n".join(text.rstrip("\n") for text in messages) if texts else None


class _Wrap(NamedTuple):
    """The way in which a log was wrapped."""

    width: int
    soft: bool
    """True if wrapped between words, False if within them."""
    sure: bool = False


class _Log(NamedTuple):
    """Lines of a log, each with its prefix and messages."""

    lines: list[str]
    parts: list[tuple[str, list[str]]]
    is_headed: bool
    """True if every line has a prefix, which then does not count for the width."""

    def size(self, at: int) -> int:
        """Length of the part of a line whose width was limited."""
        return len(self.lines[at]) - (len(self.parts[at][0]) if self.is_headed else 0)


class Formed(NamedTuple):
    """A normalized log: each line is prefix, separator and message."""

    text: str
    numbers: list[int]
    """User's line number of each line."""
    maybe: list[tuple[int, list[str]]]
    """Lines that may be one wrapped message, as pieces, with the number of the first."""
    is_one: bool
    """True if all lines are one message, wrapped at a usual width or not at all."""
    quoted_from: int
    """Number of the first line that only mentions errors, as in a diff; 0 without one."""


def formed(text: str) -> Formed:
    """Normalize a log."""
    text = _INTERRUPTED.sub(r" ^C\1\n", text) if "\n^C" in text else text
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    # Web pages escape text after wrapping, so entities do not count for the width.
    lines = [_unescaped(line if line.isprintable() else _ANSI.sub("", line)) for line in lines]
    common = _common(lines)
    parts = [_parts(line, common) for line in lines]
    log = _Log(lines, parts, all(head or not said[0].strip() for head, said in parts))
    wraps = _wraps(log)
    sure = next((wrap for wrap in wraps if wrap.sure), None)
    out: list[tuple[str, str, int]] = []
    for at, pieces in _messages(log, sure):
        head, messages = parts[at]
        out += [(head, message, at + 1) for message in (*messages[:-1], "".join(pieces))]
    quoted = quoted_lines([message for _, message, _ in out])
    out = [(head, "" if at in quoted else message, number) for at, (head, message, number) in enumerate(out)] if quoted else out
    joined = "\n".join(f"{head}{PARTED}{message}" if head else message for head, message, _ in out)
    joined = _DOUBLED.sub(" ", joined) if "ould not  " in joined or "annot  " in joined or "dlopen  " in joined else joined
    joined = _PADDED.sub(lambda cut: cut[1] + cut[2] if (cut[1] + cut[2]).lower() in _SPLIT else cut[0], joined)
    first = out[min(quoted)][2] if quoted else 0
    passed_over = {out[at][2] for at in quoted}
    doubted = (found for wrap in wraps if not wrap.sure for found in _messages(log, wrap))
    maybe = [(at + 1, pieces) for at, pieces in doubted if len(pieces) > 1 and at + 1 not in passed_over]
    return Formed(joined, [number for _, _, number in out], maybe, _is_one(log), first)


def _is_one(log: _Log) -> bool:
    """True if all lines may be one message that was wrapped at a usual width."""
    last = max((at for at, line in enumerate(log.lines) if line.strip()), default=0)
    if not 0 < last <= _FEW:
        return last == 0
    ways = ((width, soft) for width in _USUAL | _NARROW for soft in (False, True))
    return any(all(_goes_on(log, at, width, soft=soft) for at in range(last)) for width, soft in ways)


def _messages(log: _Log, wrap: _Wrap | None) -> Iterator[tuple[int, list[str]]]:
    """Lines on which a message starts, with the last message of each and the lines that continue it, if wrapped."""
    at = 0
    while at < len(log.lines):
        last = _last(log, at, wrap) if wrap else at
        yield at, _pieces(log, at, last, soft=wrap is not None and wrap.soft)
        at = last + 1


def _last(log: _Log, at: int, wrap: _Wrap) -> int:
    """Last line of the message that starts on a line."""
    last = at
    while last + 1 < len(log.lines) and last - at < _MOST_JOINED and _goes_on(log, last, wrap.width, soft=wrap.soft):
        last += 1
    return last


def _pieces(log: _Log, at: int, last: int, *, soft: bool) -> list[str]:
    """Last message of a line and the lines that continue it; after a hyphen, wrapped text continues without a space."""
    out = [log.parts[at][1][-1]]
    for _, (rest, *_) in log.parts[at + 1 : last + 1]:
        out.append(rest if not soft or _HYPHEN.search(out[-1]) else f" {rest}")
    return out


def _common(lines: Sequence[str]) -> re.Pattern[str] | None:
    """The common prefix that most lines have."""
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2:
        return next((pattern for pattern in _COMMON_PREFIXES[:1] if filled and pattern.match(filled[0])), None)
    for pattern in _COMMON_PREFIXES:
        if sum(pattern.match(line) is not None for line in filled) > 0.6 * len(filled):
            return pattern
    return None


def _parts(line: str, common: re.Pattern[str] | None) -> tuple[str, list[str]]:
    """Prefix of a line and its messages: several if a logger or notebook escaped their newlines."""
    found = common.match(line) if common else None
    if common and not found and line.rstrip() == ">":
        return line, [""]
    head = found[0] if found else ""
    more, message = parted(line[len(head) :])
    if _ESCAPED.search(message):
        message = message.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")
    return head + more, message.split("\n")


def _wraps(log: _Log) -> tuple[_Wrap, ...]:
    """Ways in which a log may have been wrapped."""
    sizes = [log.size(at) for at in range(len(log.lines))]
    longest = max(sizes, default=0)
    full = [at for at, size in enumerate(sizes) if size == longest and not _TABLE.search(log.lines[at])]
    near = sum(longest - _RAGGED < size <= longest for size in sizes)
    found = []
    if full and _NARROWEST <= longest <= _WIDEST and len(full) >= 0.4 * near:
        shapes = {_DIGITS.sub("", log.lines[at]) for at in full}
        fresh = any(MESSAGE_START.match(messages[0]) for _, messages in (log.parts[at + 1] for at in full if at + 1 < len(sizes)))
        many = len(shapes) > 2 and len(full) >= 0.7 * near
        hard = _Wrap(longest, soft=False, sure=many or (longest in _USUAL and len(shapes) > 1 and len(full) == near and not fresh))
        found.append(hard)
        if hard.sure:
            return (hard,)
    # Wrapping between words does not split a word that is longer than a line.
    widest = max((size for size, (_, messages) in zip(sizes, log.parts, strict=True) if " " in messages[0].strip()), default=0)
    width = next((width for width in _WIDTHS if width >= widest), 0)
    if widest >= _NARROWEST and width - widest < _RAGGED:
        breaks = [at for at in range(len(sizes) - 1) if _goes_on(log, at, width, soft=True)]
        shapes = {_DIGITS.sub("", log.lines[at]) for at in breaks}
        lower = sum(log.parts[at + 1][1][0][:1].islower() for at in breaks)
        sure = lower * 2 >= len(breaks) > 0 and (len(shapes) > 1 or (width in _NARROW and not found))
        found.append(_Wrap(width, soft=True, sure=sure))
    return tuple(found)


def _goes_on(log: _Log, at: int, width: int, *, soft: bool) -> bool:
    """True if the next line continues one that was split within a word, or, if `soft`, one whose next word would not have fit."""
    size = log.size(at)
    if not soft and size != width:
        return False
    line, (head, messages), (next_head, (message, *_)) = log.lines[at], *log.parts[at : at + 2]
    if len(messages) > 1 or not message.strip() or bool(head) < bool(next_head) or _TABLE.search(line):
        return False
    if not soft:
        return True
    if message[:1].isspace() or MESSAGE_START.match(message) or (size > width and " " in line.strip()):
        return False
    word = _WORD.match(message)
    return size + 1 + (word.end() if word else 0) > width


def whole(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """A short log as a whole, or nothing and the chunks of a long one."""
    rest, held, size, lines = iter(chunks), [], 0, 0
    for chunk in rest:
        held.append(chunk)
        size += len(chunk)
        lines += chunk.count(b"\n")
        if size > LONGEST_WHOLE or lines > _MOST_LINES:
            return b"", chain(held, rest)
    return b"".join(held), iter(())


def decoded(raw: bytes) -> str:
    """Decode a short log."""
    return raw.decode(encoding_of(raw[:400]) or "utf-8", "replace").removeprefix("\ufeff")


def encoding_of(head: bytes) -> str | None:
    """Name of the UTF-16 encoding indicated by a byte order mark or by zeros; else None."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) > 8:
        if head[1::2].count(0) * 2 > len(head) * 0.8:
            return "utf-16-le"
        if head[0::2].count(0) * 2 > len(head) * 0.8:
            return "utf-16-be"
    return None
