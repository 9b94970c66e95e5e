"""Values as TOML 1.0 text; our own, because the writers that there are cannot place a comment, or one wheel on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class Moment(str):
    """An ISO 8601 time, written as a TOML date-time and not as a text."""

    __slots__ = ()


def key(name: str) -> str:
    """A key, quoted where it must be."""
    return name if _BARE.fullmatch(name) else text(name)


def text(value: str) -> str:
    """A basic string; what no printer shows is written as an escape, and half a character as U+FFFD."""
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def inline(value: object) -> str:
    """A value on one line; tables and arrays in their inline forms, None left out of tables."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Moment):
        return str(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = [f"{key(name)} = {inline(one)}" for name, one in value.items() if one is not None]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(inline(one) for one in value)}]"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def pair(name: str, value: object) -> Iterator[str]:
    """The lines of `name = value`; nothing for None, and an array with one element on each line."""
    if value is None:
        return
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield f"{key(name)} = ["
        yield from (f"    {inline(one)}," for one in value)
        yield "]"
    else:
        yield f"{key(name)} = {inline(value)}"


def comment(words: str) -> str:
    """A comment line; whatever a comment cannot hold is written as an escape."""
    return "# " + "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(words.split()))
