"""Logs in `tests/logs`: written after public reports, recorded from environments that were really broken, and of known machines."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.model import Diagnosis
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.book import Book

LOGS = Path(__file__).parent / "logs"


class Case(NamedTuple):
    """A log with its cause."""

    name: str
    cause: str
    log: str
    facts: Path | None = None
    """The facts of the machine that it is of."""


@cache
def book() -> Book:
    """The shipped tables."""
    return open_book()


def written(file: str = "written.txt") -> list[Case]:
    """The logs of a text file in which a line of `===` starts each."""
    cases: list[Case] = []
    for line in (LOGS / file).read_text("utf-8").splitlines(keepends=True):
        if line.startswith("=== ") and " | " in line:
            cause, _, name = line[4:].strip().partition(" | ")
            cases.append(Case(f"{cause}: {name}", cause, ""))
        elif cases:
            cases[-1] = cases[-1]._replace(log=cases[-1].log + line)
    return cases


def broken() -> list[Case]:
    """The logs that `scripts/broken_environments.py` recorded."""
    cases = []
    for path in sorted((LOGS / "broken").glob("*.log")):
        head, _, log = path.read_text("utf-8").partition("\n")
        cases.append(Case(path.stem, head.removeprefix("cause: "), log))
    return cases


def of_machines() -> list[Case]:
    """The logs beside the facts of an environment that gives them; the same lines stand beside several, with other causes."""
    cases = []
    for path in sorted((LOGS / "machines").glob("*/*.log")):
        head, _, log = path.read_text("utf-8").partition("\n")
        cases.append(Case(f"{path.parent.name}: {path.stem}", head.removeprefix("cause: "), log, path.with_name("facts.json")))
    return cases


def judged_there(case: Case) -> Diagnosis:
    """The findings of a log together with the facts of its machine."""
    assert case.facts is not None
    facts = from_mapping(json.loads(case.facts.read_text("utf-8")))
    return diagnose(Reader(book().symptoms()).read([case.log.encode()]), facts, book())


@cache
def judged(log: str | bytes, *, piece: int = 1 << 20) -> Diagnosis:
    """The findings of a log by itself, handed over in pieces of that size."""
    raw = log.encode() if isinstance(log, str) else log
    reader = Reader(book().symptoms()).read(raw[start : start + piece] for start in range(0, len(raw), piece))
    return diagnose(reader, None, book())


def loud(diagnosis: Diagnosis) -> list[str]:
    """The causes above `info`."""
    return [one.cause for one in diagnosis.findings if one.severity != "info"]
