#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.10"
# dependencies = ["cudnn-resolve", "packaging>=23.1", "pip", "requests>=2.31", "tomli>=2; python_version < '3.11'"]
# ///
"""Takes what is new on the package index into the tables, or with --check says what that is.

usage: harvest_daily.py [--check] [--index-url URL] [--cache DIR]

The wheel tables are harvested again (harvest.py --new), then the wheels of releases that are newer than the evidence
(harvest_evidence.py --new): what is known stays known, so that pages and new releases are all that is read, with or without a cache.
One line for each package tells what is new, gone or changed. A new release of a framework needs no row of its own: a plan makes a
provisional one of its metadata.

Exit: 0 done, or with --check nothing new; 1 with --check something new; 2 something could not be read: the tables of those packages
stay as they are, the others are written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import harvest
import harvest_evidence
from harvest_index import ask_names_once


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status of the program."""
    parser = argparse.ArgumentParser(prog="harvest_daily", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="say what is new, and write nothing; wheels are not read")
    parser.add_argument("--index-url", metavar="URL", help="simple API to ask (that of pip)")
    parser.add_argument("--cache", metavar="DIR", help="what was read before")
    for name in ("lists", "out"):
        parser.add_argument(f"--{name}", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    words = [
        word for name in ("index_url", "cache") if (value := getattr(options, name)) for word in (f"--{name.replace('_', '-')}", value)
    ]
    status = harvest.main([*words, *_places(options, "packages", "wheel"), "--new", *(["--check"] if options.check else [])])
    if options.check:
        return status
    return max(status, harvest_evidence.main([*words, *_places(options, "evidence", "evidence"), "--new"]))


def _places(options: argparse.Namespace, listed: str, tables: str) -> list[str]:
    """The list and the folder of the tables, where they are not those of the repository."""
    found = ["--list", f"{options.lists}/harvest_{listed}.toml"] if options.lists else []
    return [*found, "--out", f"{options.out}/{tables}"] if options.out else found


if __name__ == "__main__":
    ask_names_once()
    sys.exit(main())
