"""TOML text of a wheel table: releases from oldest to newest, in an order determined by the data alone.

What several releases share is written once: those that differ only in version and day share a row, Requires-Python and tags are under
`files`, requirements under `lines`. Ids are assigned in order of the second occurrence, so that a new release extends a file without
moving anything. Tags of one platform are one string, `cp312 cp313 cp313-cp313t-manylinux_2_28_x86_64`, in which an ABI named like its
interpreter is left out. Extras named by a requirement are not listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from itertools import groupby
from typing import Any

from harvest_table import Table

SHARED = ("requires_python", "tags")
LISTED = ("version", "date")
MOST_LISTED = 20
"""Most releases per row, so that a new one changes a short line."""
_EXTRA = re.compile(r'\bextra == "([^"]+)"')


def rendered(written: Table, read: str) -> str:
    """Render a table read on the day `read`; equal rows always give the same text."""
    lines = _repeated(line for entry in written.metadata for line in entry.get("requires", ()))
    releases = [{**row, "tags": _joined_tags(row["tags"])} for row in written.release]
    files = {key: number + 1 for key, number in _repeated(map(_files_of, releases)).items()}
    parts = [
        'origin = "harvested"\nscript = "scripts/harvest.py"\n',
        f"read = {read}\npackage = {_text(written.package)}\n",
        *(["\nlines = [\n", *(f"  {_text(line)},\n" for line in lines), "]\n"] if lines else []),
        "\nrelease = [\n",
        *(f"  {_inline(row)},\n" for row in _joined([_release(row, files) for row in releases])),
        "]\n",
    ]
    shared = {
        "files": [
            {"id": number, **({"requires_python": python} if python else {}), "tags": tags} for (python, tags), number in files.items()
        ],
        "metadata": [
            {
                "id": entry["id"],
                **({"requires": [lines.get(line, line) for line in entry["requires"]]} if "requires" in entry else {}),
                **({"extras": extras} if (extras := [extra for extra in entry.get("extras", ()) if extra not in _named(entry)]) else {}),
            }
            for entry in written.metadata
        ],
    }
    for array, rows in shared.items():
        parts += [f"\n{array} = [\n", *(f"  {_inline(row)},\n" for row in rows), "]\n"] if rows else []
    return "".join(parts)


def expanded(table: Mapping[str, Any]) -> dict[str, Any]:
    """Undo the sharing of `rendered` in a parsed wheel table; an empty table gets empty arrays."""
    files = {entry["id"]: {key: entry[key] for key in SHARED if key in entry} for entry in table.get("files", ())}
    releases = []
    for row in table.get("release", ()):
        for release in _split(row):
            whole = {**release, **files.get(release.get("files"), {})}
            whole["tags"] = [tag for text in whole["tags"] for tag in _split_tags(text)]
            releases.append({key: value for key, value in whole.items() if key != "files"})
    lines = table.get("lines", ())
    metadata = []
    for entry in table.get("metadata", ()):
        whole = dict(entry)
        if "requires" in entry:
            whole["requires"] = [lines[line] if isinstance(line, int) else line for line in entry["requires"]]
        if extras := sorted({*whole.get("extras", ()), *_named(whole)}):
            whole["extras"] = extras
        metadata.append(whole)
    plain = {key: value for key, value in table.items() if key not in ("files", "lines")}
    return {**plain, "release": releases, "metadata": metadata}


def _named(entry: Mapping[str, Any]) -> set[str]:
    """Return the extras named by the requirements of an entry."""
    return {extra for line in entry.get("requires", ()) for extra in _EXTRA.findall(line)}


def _joined_tags(tags: Iterable[str]) -> list[str]:
    """Join neighbouring tags of one platform into one string."""
    found = []
    for platform, group in groupby((tag.rpartition("-") for tag in tags), key=lambda parts: parts[2]):
        pairs = [pair for pair, _, _ in group]
        plain = [pair.partition("-")[0] if len(set(pair.split("-"))) == 1 else pair for pair in pairs] if len(pairs) > 1 else pairs
        found.append(f"{' '.join(plain)}-{platform}".lstrip("-"))
    return found


def _split_tags(text: str) -> list[str]:
    pairs, _, platform = text.rpartition("-")
    if " " not in pairs:
        return [text]
    return [f"{pair}-{platform}" if "-" in pair else f"{pair}-{pair}-{platform}" for pair in pairs.split(" ")]


def _repeated(values: Iterable[Hashable]) -> dict[Any, int]:
    """Return the repeated values, numbered from 0 in order of their second occurrence."""
    seen: set[Hashable] = set()
    found: dict[Hashable, int] = {}
    for value in values:
        if value in seen:
            found.setdefault(value, len(found))
        seen.add(value)
    return found


def _files_of(row: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    return row.get("requires_python"), tuple(row["tags"])


def _release(row: Mapping[str, Any], files: Mapping[Any, int]) -> dict[str, Any]:
    number = files.get(_files_of(row))
    return dict(row) if number is None else {**{key: row[key] for key in row if key not in SHARED}, "files": number}


def _joined(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbouring rows that differ only in version and day into one, with lists of both."""
    found: list[dict[str, Any]] = []
    for row in rows:
        alike = found and found[-1].keys() == row.keys() and all(found[-1][key] == row[key] for key in row if key not in LISTED)
        if alike and len(found[-1]["version"]) < MOST_LISTED:
            for key in LISTED:
                if key in row:
                    found[-1][key].append(row[key])
        else:
            found.append({key: [value] if key in LISTED else value for key, value in row.items()})
    return [{key: value[0] if key in LISTED and len(value) == 1 else value for key, value in row.items()} for row in found]


def _split(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the releases of a row."""
    if not isinstance(row["version"], list):
        return [row]
    return [{**row, **{key: row[key][number] for key in LISTED if key in row}} for number in range(len(row["version"]))]


def _inline(row: Mapping[str, Any]) -> str:
    fields = [f"{key} = {_days(value) if key == 'date' else _value(value)}" for key, value in row.items()]
    return "{" + ", ".join(fields) + "}"


def _days(value: Any) -> str:
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return _inline(value)
    return "[" + ", ".join(map(_value, value)) + "]"


def _text(text: str) -> str:
    """Quote text as a literal string if it has double quotes, otherwise as a basic one."""
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)
