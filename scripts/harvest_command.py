"""Command line and table files, shared by the harvesters."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from harvest_cache import DEFAULT_CACHE
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SCRIPTS = os.path.dirname(os.path.abspath(__file__))
INDEX_HELP = "simple API to read (default: that of pip)"


def command_line(name: str, doc: str | None, *, listed: str, tables: str, new: str) -> argparse.ArgumentParser:
    """Return the parser of a harvester: its list in scripts/, the folder of its tables in matrices/, and the meaning of --new."""
    parser = argparse.ArgumentParser(prog=name, description=(doc or "").partition("\n")[0])
    parser.add_argument(
        "--package", action="append", metavar="NAME", type=canonicalize_name, help="only this package of the list; repeatable"
    )
    parser.add_argument("--check", action="store_true", help="print what would change, write nothing")
    parser.add_argument("--new", action="store_true", help=new)
    parser.add_argument("--index-url", metavar="URL", help=INDEX_HELP)
    parser.add_argument("--cache", metavar="DIR", default=DEFAULT_CACHE, help="cache of earlier runs (%(default)s)")
    parser.add_argument("--list", metavar="FILE", default=os.path.join(_SCRIPTS, listed), help=argparse.SUPPRESS)
    folder = os.path.join(os.path.dirname(_SCRIPTS), "matrices", tables)
    parser.add_argument("--out", metavar="DIR", default=folder, help=argparse.SUPPRESS)
    return parser


def selected(groups: Iterable[dict[str, Any]], only: Iterable[str] | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the packages of the list, or only some, each with its group."""
    return [(name, group) for group in groups for name in group["packages"] if not only or name in only]


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML."""
    return tomllib.loads(text)


def read_toml(path: str) -> dict[str, Any]:
    """Parse a TOML file."""
    with open(path, encoding="utf-8") as stream:
        return parse_toml(stream.read())


def read_table(path: str) -> dict[str, Any]:
    """Parse a table; empty if there is no file."""
    return read_toml(path) if os.path.exists(path) else {}


def write_table(path: str, text: str) -> None:
    """Write a table."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def today() -> str:
    """Return the UTC date."""
    return datetime.now(timezone.utc).date().isoformat()


def rows_text(script: str, package: str, array: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Render a table of one array, a row per line."""
    head = f'origin = "harvested"\nscript = "scripts/{script}"\nread = {today()}\npackage = "{package}"\n\n{array} = [\n'
    lines = (f"  {{{', '.join(f'{key} = {json.dumps(value)}' for key, value in row.items())}}},\n" for row in rows)
    return head + "".join(lines) + "]\n"


def update_rows(package: str, versions: Iterable[str], path: str, text: str, *, write: bool) -> bool:
    """Replace a table by `text` if they differ in more than the day, and return whether they do; a table without rows stays."""
    try:
        with open(path, encoding="utf-8") as stream:
            before = stream.read()
    except OSError:
        before = ""
    every = list(dict.fromkeys(versions))
    if _without_day(before) == _without_day(text) or not every:
        return False
    new = [version for version in every if json.dumps(version) not in before]
    print(f"{package}: " + (f"{len(new)} new ({', '.join(new[-5:])})" if new else "changed"))
    if write:
        write_table(path, text)
    return True


def exit_code(options: argparse.Namespace, changes: int, failures: int) -> int:
    """Print the totals, and return the exit code of a harvester."""
    print(f"{changes} tables {'to change' if options.check else 'written'}, {failures} packages not read")
    return 2 if failures else int(options.check and changes > 0)


def _without_day(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("read = ")]
