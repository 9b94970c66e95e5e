#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Update the tables with what is new on the package index, or with --check print what that is.

usage: harvest_daily.py [--check] [--index-url URL] [--cache DIR]

Harvests the wheel tables (harvest.py --new), then the wheels of releases newer than the evidence (harvest_evidence.py --new). Known rows
are kept, so only pages and new releases are read, with or without a cache. Prints one line per package with what is new, gone or changed.
A new release of a framework needs no row: a plan derives a provisional one from its metadata.

Exit: 0 done, or with --check nothing new; 1 with --check something new; 2 something could not be read: the tables of those packages
stay as they are, the others are written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import harvest
import harvest_evidence
from harvest_command import INDEX_HELP
from harvest_index import cache_name_lookups


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the program."""
    parser = argparse.ArgumentParser(prog="harvest_daily", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="print what is new, write nothing, read no wheels")
    parser.add_argument("--index-url", metavar="URL", help=INDEX_HELP)
    parser.add_argument("--cache", metavar="DIR", help="cache of earlier runs")
    for name in ("lists", "out"):
        parser.add_argument(f"--{name}", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    words = ["--new"]
    for name in ("index_url", "cache"):
        if value := getattr(options, name):
            words += [f"--{name.replace('_', '-')}", value]
    check = ["--check"] if options.check else []
    status = harvest.main([*words, *check, *_folders(options, "packages", "wheel")])
    if options.check:
        return status
    return max(status, harvest_evidence.main([*words, *_folders(options, "evidence", "evidence")]))


def _folders(options: argparse.Namespace, listed: str, tables: str) -> list[str]:
    """Return the options for a list and tables outside the repository."""
    words = ["--list", f"{options.lists}/harvest_{listed}.toml"] if options.lists else []
    return [*words, "--out", f"{options.out}/{tables}"] if options.out else words


if __name__ == "__main__":
    cache_name_lookups()
    sys.exit(main())
