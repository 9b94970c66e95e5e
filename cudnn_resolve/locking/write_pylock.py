"""Write a lock as `pylock.toml`: the same lock gives the same bytes, and a small change a small difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import InputError, first_line
from cudnn_resolve.locking.model import TOOL, Lock, Tool, marker_text, version_of
from cudnn_resolve.locking.pep751 import parse_pylock
from cudnn_resolve.locking.tool_table import tool_table
from cudnn_resolve.matrix.toml import parse_toml

if TYPE_CHECKING:
    from packaging.pylock import Package

_HEADER = "Written by `cudnn-resolve lock`, which also renews it; install it with `uv pip sync` or `pip install -r`."
_OVERRIDDEN = "With pip, add --no-deps: some pins override what wheels declare, and pip would resolve that again."
_ENTRY = "[[packages]]"
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")


def write(lock: Lock) -> str:
    """Return the text of the lock, validated against PEP 751."""
    import tomli_w

    text = _UNPRINTABLE.sub(_escaped, tomli_w.dumps(_document(lock)))
    parse_pylock(parse_toml(text, "the new lock"), "the new lock")
    notes = [_OVERRIDDEN if lock.tool.has_overrides else None, lock.tool.preload_note] if lock.tool is not None else []
    head = [_HEADER, *(note for note in notes if note is not None)]
    return _commented(text, head, [list(comments(package, lock.tool)) for package in lock.packages])


def _document(lock: Lock) -> dict[str, Any]:
    try:
        document = dict(lock.file.to_dict())
    except TypeError as error:  # packaging copies markers as text, and its text for one with a backslash is not a marker
        raise InputError(f"the lock cannot be written: {first_line(error)}", code="lock-invalid") from None
    for entry, package in zip(document["packages"], lock.packages, strict=True):
        if package.marker is not None:
            entry["marker"] = marker_text(package.marker)
    if lock.file.environments:
        document["environments"] = [marker_text(marker) for marker in lock.file.environments]
    return {**document, **({"tool": {TOOL: tool_table(lock.tool)}} if lock.tool is not None else {})}


def _escaped(found: re.Match[str]) -> str:
    """Escape an invisible character, which only strings can contain; half a surrogate pair becomes U+FFFD."""
    char, code = found[0], ord(found[0])
    if char.isprintable():
        return char
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _commented(text: str, head: list[str], entries: list[list[str]]) -> str:
    """Add comments at the top and above each entry of a package, or all of them at the top if the entries are inline."""
    lines = text.split("\n")
    has_tables = lines.count(_ENTRY) == len(entries)
    out = [_comment(words) for words in head]
    if not has_tables:
        out += [_comment(words) for entry in entries for words in entry]
    waiting: Iterator[Iterable[str]] = iter(entries if has_tables else ())
    for line in lines:
        if line == _ENTRY:
            out += [_comment(words) for words in next(waiting, ())]
        out.append(line)
    return "\n".join(out)


def _comment(words: str) -> str:
    """A comment line, with escapes for what a comment cannot contain."""
    return "# " + "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(words.split()))


def comments(package: Package, tool: Tool | None) -> Iterator[str]:
    """Remarks on an entry: the pins that it overrides, and how it is installed if not from a wheel."""
    overrides = dict.fromkeys(override for stack in (tool.stacks if tool is not None else ()) for override in stack.overrides)
    for override in overrides:
        if (override.package, override.chosen) == (package.name, version_of(package)):
            yield f"override: {override.requested_by} declares {override.declared}, {override.chosen} is chosen: {override.reason}"
    if package.directory is not None:
        yield f"folder: {package.name} is a local project; uv installs it, pip 26 refuses folders beside files with hashes"
    if package.sdist is not None:
        where = "has no wheel that fits" if not package.wheels else "has no wheel for every platform"
        yield f"source: {package.name} {package.version} {where}, and is built from source when it is installed"
