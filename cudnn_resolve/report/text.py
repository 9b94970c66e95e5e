"""Plain text for terminals: cleaned, coloured where that is wanted, and set in columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_HARMFUL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_HARMFUL_OR_NEWLINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_WORKFLOW = r"(?m)^([ \n]*)::(?=[A-Za-z-]+(?: [^\n]*)?::)"
"""A line that a runner of GitHub would carry out, wherever it is printed."""
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = r"`[^`\n]{1,500}`"
_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def clean(text: str, *, lines: bool = False) -> str:
    """`text` with everything that a terminal would act on, hide or reorder written as an escape; `lines` keeps newlines.

    Names and paths come from other machines' files: an escape sequence in one must not reach a terminal.
    """
    cleaned = (_HARMFUL if lines else _HARMFUL_OR_NEWLINE).sub(lambda found: ascii(found[0])[1:-1], text)
    return re.sub(_WORKFLOW, r"\1\\x3a:", cleaned) if lines and "::" in cleaned else cleaned


UNBROKEN = 1_000_000
"""The width of text that nobody reads in columns: what is piped or written to a file is read by programs, or copied."""


class Style:
    """Colours, or none."""

    __slots__ = ("color",)

    def __init__(self, color: bool = False) -> None:  # noqa: FBT001, FBT002 - what it is about
        self.color = color

    def __call__(self, text: str, *names: str) -> str:
        """`text` in the named styles (`bold`, `dim`, `red`, `green`, `yellow`, `cyan`); as it is where there are no colours."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_SGR[name] for name in names)}m{text}\x1b[0m"


def table(rows: Sequence[Sequence[str]], *, width: int = UNBROKEN, indent: str = "  ") -> list[str]:
    """Columns, of which the last one is wrapped; nothing is cut, so that it can be copied.

    The cells must be clean. All rows have the same number of cells; a column that is empty in every row takes no room.
    """
    used = [index for index in range(len(rows[0])) if any(row[index] for row in rows)] if rows else []
    widths = [max(len(row[index]) for row in rows) for index in used[:-1]]
    lines: list[str] = []
    for row in rows:
        lead = "".join(f"{row[index].ljust(room)}  " for index, room in zip(used, widths, strict=False))
        lines += wrap(row[used[-1]], width=width, first=f"{indent}{lead}") if used else []
    return lines


def wrap(text: str, *, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most `width` columns, the first one after `first`, the others after `rest` (default: as many blanks).

    Only blanks are broken at, so that a path or an address can be copied; `first` may be coloured, which takes no room.
    """
    blank = " " * len(_SEQUENCE.sub("", first))
    if len(blank) + len(text) <= width:
        return [f"{first}{text}".rstrip()]
    from textwrap import wrap as break_lines

    rest = blank if rest is None else rest
    found = break_lines(text, width, initial_indent=blank, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False)
    return [first + found[0][len(blank) :], *found[1:]] if found else [first.rstrip()]


def wrap_message(text: str, width: int) -> str:
    """A message for a terminal: each of its lines wrapped, commands in backquotes left whole."""
    held = re.sub(_COMMAND, lambda found: found[0].replace(" ", "\0"), text)
    return "\n".join(part for line in held.split("\n") for part in wrap(line, width=width) or [""]).replace("\0", " ")


def mib(count: int) -> str:
    """Bytes for a reader."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.{0 if count >= 10 << 20 else 2}f} MiB"


class Page:
    """Lines under construction, none wider than `width`."""

    def __init__(self, style: Style | None = None, width: int = 100) -> None:
        self.style, self.width = style or Style(), width
        self.lines: list[str] = []

    def title(self, text: str) -> None:
        """Begin a section."""
        if self.lines:
            self.lines.append("")
        self.lines += [self.style(line, "bold") for line in wrap(clean(text), width=self.width)]

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], *, least: Sequence[str] = ()) -> None:
        """Columns under their names; one that is empty in every row is left out.

        Where the page is too narrow, the columns of `least` are dropped in that order, and a line says which.
        """
        body = [[clean(cell) for cell in row] for row in rows]
        used = [index for index in range(len(header)) if any(row[index] for row in body)]
        if not used:
            return
        dropped = []
        for name in least:
            if sum(max(len(row[index]) for row in (header, *body)) + 2 for index in used) <= self.width:
                break
            if header.index(name) in used:
                used.remove(header.index(name))
                dropped.append(name)
        first, *rest = table([[line[index] for index in used] for line in (header, *body)], width=self.width)
        self.lines += [self.style(first, "dim"), *rest]
        if dropped:
            self.say(f"(no room for: {', '.join(reversed(dropped))})")

    def rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Columns without names."""
        self.lines += table([[clean(cell) for cell in row] for row in rows], width=self.width)

    def say(self, text: str, first: str = "  ", rest: str | None = None) -> None:
        """A paragraph, the first line after `first`, the others after `rest` (default: as many blanks)."""
        self.lines += wrap(clean(text), width=self.width, first=first, rest=rest)

    def text(self) -> str:
        """The page."""
        return "\n".join(self.lines) + "\n"
