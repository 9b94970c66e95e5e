"""Plain text for terminals: escaping, colours, wrapping and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_HARMFUL_CHARACTERS = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
_HARMFUL = re.compile(f"[{_HARMFUL_CHARACTERS}]")
_HARMFUL_OR_NEWLINE = re.compile(rf"[\n{_HARMFUL_CHARACTERS}]")
_WORKFLOW = r"(?m)^([ \n]*)::(?=[A-Za-z-]+(?: [^\n]*)?::)"
"""A line that a GitHub Actions runner would execute as a workflow command, wherever it is printed."""
_SGR_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = r"`[^`\n]{1,500}`"
_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def clean(text: str, *, lines: bool = False) -> str:
    """Escape every character that a terminal would act on, hide or reorder; `lines` keeps newlines.

    Names and paths come from other machines' files: an escape sequence in one must not reach a terminal.
    """
    cleaned = (_HARMFUL if lines else _HARMFUL_OR_NEWLINE).sub(lambda found: ascii(found[0])[1:-1], text)
    return re.sub(_WORKFLOW, r"\1\\x3a:", cleaned) if lines and "::" in cleaned else cleaned


UNBROKEN = 1_000_000
"""Width for pipes and files, where text is parsed or copied and must not be wrapped."""


class Style:
    """Apply terminal styles, or nothing when colours are off."""

    __slots__ = ("color",)

    def __init__(self, color: bool = False) -> None:  # noqa: FBT001, FBT002 - the only thing a style has
        self.color = color

    def __call__(self, text: str, *names: str) -> str:
        """Return `text` in the named styles: `bold`, `dim`, `red`, `green`, `yellow`, `cyan`."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_SGR[name] for name in names)}m{text}\x1b[0m"


PLAIN = Style()
"""No colours."""


def table(rows: Sequence[Sequence[str]], *, width: int = UNBROKEN, indent: str = "  ") -> list[str]:
    """Lay out cells, which must be clean, in columns; only the last column is wrapped, and nothing is cut, so that it can be copied.

    All rows have the same number of cells. Columns that are empty in every row are dropped.
    """
    if not rows:
        return []
    used = [index for index in range(len(rows[0])) if any(row[index] for row in rows)]
    if not used:
        return []
    widths = [max(len(row[index]) for row in rows) for index in used[:-1]]
    lines: list[str] = []
    for row in rows:
        lead = "".join(f"{row[index].ljust(column)}  " for index, column in zip(used, widths, strict=False))
        lines += wrap(row[used[-1]], width=width, first=f"{indent}{lead}")
    return lines


def wrap(text: str, *, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Break text into lines of at most `width` columns, prefixed with `first`, then `rest` (default: blanks of the same length).

    Breaks occur only at blanks, so that paths and URLs can be copied. Colour sequences in `first` take no room.
    """
    blank = " " * len(_SGR_SEQUENCE.sub("", first))
    if len(blank) + len(text) <= width:
        return [f"{first}{text}".rstrip()]
    from textwrap import wrap as break_lines

    rest = blank if rest is None else rest
    lines = break_lines(text, width, initial_indent=blank, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False)
    return [first + lines[0][len(blank) :], *lines[1:]] if lines else [first.rstrip()]


def wrap_message(text: str, width: int) -> str:
    """Wrap each line of a message, keeping commands in backquotes whole."""
    held = re.sub(_COMMAND, lambda found: found[0].replace(" ", "\0"), text)
    return "\n".join(part for line in held.split("\n") for part in wrap(line, width=width) or [""]).replace("\0", " ")


class Page:
    """Lines of text under construction, none wider than `width`."""

    def __init__(self, style: Style = PLAIN, width: int = 100) -> None:
        self.style = style
        self.width = width
        self.lines: list[str] = []

    def gap(self) -> None:
        """Leave a blank line, except at the top."""
        if self.lines:
            self.lines.append("")

    def title(self, text: str) -> None:
        """Begin a section."""
        self.gap()
        self.lines += [self.style(line, "bold") for line in wrap(clean(text), width=self.width)]

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], *, droppable: Sequence[str] = ()) -> None:
        """Add columns with headings; columns that are empty in every row are dropped.

        If the page is too narrow, the columns of `droppable` are dropped in that order, and a line names them.
        """
        body = [[clean(cell) for cell in row] for row in rows]
        used = [index for index in range(len(header)) if any(row[index] for row in body)]
        if not used:
            return
        dropped = []
        for name in droppable:
            if sum(max(len(row[index]) for row in (header, *body)) + 2 for index in used) <= self.width:
                break
            if header.index(name) in used:
                used.remove(header.index(name))
                dropped.append(name)
        first, *rest = table([[line[index] for index in used] for line in (header, *body)], width=self.width)
        self.lines += [self.style(first, "dim"), *rest]
        if dropped:
            self.paragraph(f"(no room for: {', '.join(reversed(dropped))})")

    def rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Add columns without headings."""
        self.lines += table([[clean(cell) for cell in row] for row in rows], width=self.width)

    def paragraph(self, text: str, first: str = "  ", rest: str | None = None) -> None:
        """Add wrapped text, prefixed with `first`, then `rest` (default: blanks of the same length)."""
        self.lines += wrap(clean(text), width=self.width, first=first, rest=rest)

    def text(self) -> str:
        """Return the page as one string."""
        return "\n".join(self.lines) + "\n"
