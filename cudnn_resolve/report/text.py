"""Plain text for terminals: cleaned, coloured where that is wanted, and set in columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HARMFUL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_HARMFUL_OR_NEWLINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = re.compile(r"`[^`\n]{1,500}`")
_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def clean(text: str, *, lines: bool = False) -> str:
    """`text` with everything that a terminal would act on, hide or reorder written as an escape; `lines` keeps newlines.

    Names and paths come from other machines' files: an escape sequence in one must not reach a terminal.
    """
    return (_HARMFUL if lines else _HARMFUL_OR_NEWLINE).sub(lambda found: ascii(found[0])[1:-1], text)


class Style:
    """Colours, or none; and whether a line that is too long may be cut."""

    __slots__ = ("color", "whole")

    def __init__(self, color: bool = False, *, whole: bool = False) -> None:  # noqa: FBT001, FBT002 - what it is about
        self.color = color
        self.whole = whole
        """True where nothing is cut: what is piped is read by programs, or copied."""

    def __call__(self, text: str, *names: str) -> str:
        """`text` in the named styles (`bold`, `dim`, `red`, `green`, `yellow`, `cyan`); as it is where there are no colours."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_SGR[name] for name in names)}m{text}\x1b[0m"


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` columns, its middle left out where it is longer (the two ends of a path say most)."""
    if len(text) <= width:
        return text
    if width < 5:
        return text[:width]
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def table(rows: Sequence[Sequence[str]], *, width: int, indent: str = "  ", gap: str = "  ", flexible: int = -1) -> list[str]:
    """One line for each row, columns aligned; the `flexible` column is shortened where a line would exceed `width`.

    The cells must be clean. All rows have the same number of cells; a column that is empty in every row takes no room.
    """
    if not rows:
        return []
    used = [index for index in range(len(rows[0])) if any(row[index] for row in rows)]
    widths = {index: max(len(row[index]) for row in rows) for index in used}
    flexible %= len(rows[0])
    excess = len(indent) + sum(widths.values()) + len(gap) * (len(used) - 1) - width
    if excess > 0 and flexible in widths:
        widths[flexible] = max(12, widths[flexible] - excess)
    cells = ([shorten(row[index], widths[index]).ljust(widths[index]) for index in used] for row in rows)
    return [f"{indent}{gap.join(line)}".rstrip() for line in cells]


def wrap(text: str, *, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most `width` columns, the first one after `first`, the others after `rest` (default: as many blanks).

    Only blanks are broken at, so that a path or an address can be copied; `first` may be coloured, which takes no room.
    """
    from textwrap import wrap as break_lines

    blank = " " * len(_SEQUENCE.sub("", first))
    rest = blank if rest is None else rest
    found = break_lines(text, width, initial_indent=blank, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False)
    return [first + found[0][len(blank) :], *found[1:]] if found else [first.rstrip()]


def wrap_message(text: str, width: int) -> str:
    """A message for a terminal: each of its lines wrapped, commands in backquotes left whole."""
    held = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), text)
    return "\n".join(part for line in held.split("\n") for part in wrap(line, width=width) or [""]).replace("\0", " ")
