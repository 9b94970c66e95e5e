"""A lock to the text of a `pylock.toml`: the same lock gives the same bytes, and a small change a small difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.check_pylock import parse_toml, require, shown, validated
from cudnn_resolve.locking.model import TOOL, Lock, Tool, marker_text, version_of
from cudnn_resolve.locking.tool_table import tool_table

if TYPE_CHECKING:
    from packaging.pylock import Package

HEADER = "Written by `cudnn-resolve lock`, which also renews it; `uv pip sync` and `pip install -r` install it."
OVERRIDDEN = "pip needs --no-deps for it: it would resolve again what wheels declare, and overrides leave some of that."
_ENTRY = "[[packages]]"
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")


def write(lock: Lock) -> str:
    """The text of the lock, checked against PEP 751; WorldError where packaging is too old to check it."""
    require()
    import tomli_w

    text = _UNPRINTABLE.sub(_escaped, tomli_w.dumps(_document(lock)))
    validated(parse_toml(text, "the lock that was made"), "the lock that was made")
    notes = [OVERRIDDEN if lock.tool.has_overrides else None, lock.tool.preload_note] if lock.tool is not None else []
    head = [HEADER, *(one for one in notes if one is not None)]
    return _commented(text, head, [list(comments(one, lock.tool)) for one in lock.packages])


def _document(lock: Lock) -> dict[str, Any]:
    """The tables of the file."""
    try:
        document = dict(lock.file.to_dict())
    except TypeError as error:  # packaging copies markers as text, and its text for one with a backslash is no marker
        raise InputError(f"the lock cannot be written: {shown(error)}", code="lock-invalid") from None
    for entry, package in zip(document["packages"], lock.packages, strict=True):
        if package.marker is not None:
            entry["marker"] = marker_text(package.marker)
    if lock.file.environments:
        document["environments"] = [marker_text(one) for one in lock.file.environments]
    return {**document, **({"tool": {TOOL: tool_table(lock.tool)}} if lock.tool is not None else {})}


def _escaped(found: re.Match[str]) -> str:
    """A character that would not be seen, as an escape: outside of its strings, TOML that is written has none; half a one as U+FFFD."""
    char, code = found[0], ord(found[0])
    if char.isprintable():
        return char
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _commented(text: str, head: list[str], entries: list[list[str]]) -> str:
    """The text with comments above it, and above each entry of a package; above all where entries stand in a list."""
    lines = text.split("\n")
    apart = lines.count(_ENTRY) == len(entries)
    out = [_comment(words) for words in (*head, *(() if apart else (words for one in entries for words in one)))]
    waiting: Iterator[Iterable[str]] = iter(entries if apart else ())
    for line in lines:
        if line == _ENTRY:
            out += [_comment(words) for words in next(waiting, ())]
        out.append(line)
    return "\n".join(out)


def _comment(words: str) -> str:
    """A comment line; whatever a comment cannot hold is written as an escape."""
    return "# " + "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(words.split()))


def comments(package: Package, tool: Tool | None) -> Iterator[str]:
    """What a reader should know before an entry: pins that it leaves, and how it is installed where that is not from a wheel."""
    overrides = (one for stack in (tool.stacks if tool is not None else ()) for one in stack.overrides)
    for one in dict.fromkeys(one for one in overrides if (one.package, one.chosen) == (package.name, version_of(package))):
        yield f"override: {one.requested_by} declares {one.declared}, {one.chosen} is chosen: {one.reason}"
    if package.directory is not None:
        yield f"folder: {package.name} is a project of yours; uv installs it, pip 26 refuses folders beside files with hashes"
    if package.sdist is not None:
        where = "has no wheel that fits" if not package.wheels else "has no wheel for every platform"
        yield f"source: {package.name} {package.version} {where}, and is built from source when it is installed"
