"""A toy matrix of tests/worlds/, and what tests ask of one: a machine, a request, a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.parse import compile_table
from cudnn_resolve.matrix.table import Table
from cudnn_resolve.matrix.toml import decode
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.requirement.machine import Machine, machine_of
from cudnn_resolve.requirement.model import Request, RequirementLine
from cudnn_resolve.requirement.source import Source
from cudnn_resolve.requirement.target import parse_limit, parse_target
from cudnn_resolve.resolution.context import Context
from cudnn_resolve.resolution.model import Conflict, Resolution
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.resolve import resolve
from cudnn_resolve.resolution.universe import Universe
from tests.unit.matrix.toy import TextTables

WORLDS = Path(__file__).parent


@lru_cache(maxsize=4)
def texts(name: str = "small") -> Mapping[str, str]:
    """The tables of a world by their names."""
    root = WORLDS / name
    return {path.relative_to(root).with_suffix("").as_posix(): path.read_text("utf-8") for path in sorted(root.rglob("*.toml"))}


@lru_cache(maxsize=512)
def compiled(name: str, text: str) -> Table:
    """A table, made once for each text: most tables of the worlds that a test makes up are the same."""
    found, faults = compile_table(name, decode(text), file=f"{name}.toml")
    assert not faults, "\n".join(map(str, faults))
    return found


class WorldTables(TextTables):
    """Tables of texts whose compiled forms are kept."""

    def __init__(self, of: Mapping[str, str]) -> None:
        super().__init__(of)
        self._of = of

    def _compile(self, name: str) -> Table:
        return compiled(name, self._of[name])


@lru_cache(maxsize=4)
def world(name: str = "small") -> Book:
    """The book of a world."""
    return Book(WorldTables(texts(name)))


def changed(tables: Mapping[str, str], name: str = "small") -> Book:
    """The book of a world with some tables of its own."""
    return Book(WorldTables({**texts(name), **tables}))


def facts(**parts: Any) -> Facts:
    """A machine with a T4, driver 550 and Python 3.11, but for what is said; None leaves a part out."""
    whole: dict[str, Any] = {
        "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
        "python": {"version": "3.11.9", "path": "/env/bin/python"},
        "driver": {"version": "550.54.15"},
        "gpus": [{"name": "Tesla T4", "compute_capability": "7.5"}],
        "packages": {"pip": {}, "apt": {}},
    }
    for key, value in parts.items():
        if value is None:
            del whole[key]
        else:
            whole[key] = value
    return from_mapping({"schema": "cudnn-resolve/detect/1", **whole}, "a test")


def gpu(*capabilities: str) -> list[dict[str, str]]:
    """GPUs of these compute capabilities."""
    return [{"name": f"card {capability}", "compute_capability": capability} for capability in capabilities]


def request(book: Book, *targets: str, extras: Iterable[str] = (), **options: Any) -> Request:
    """A request for these targets, and for further requirements as a file would name them."""
    for name in ("cuda", "cudnn"):
        if name in options:
            options[name] = parse_limit(options[name], f"--{name}")
    return Request(
        targets=tuple(parse_target(target, book) for target in targets),
        requirements=tuple(RequirementLine(text=text, origin=f"requirements.txt:{number}") for number, text in enumerate(extras, 1)),
        **options,
    )


def machine(book: Book, **parts: Any) -> Machine:
    """The machine behind `facts`."""
    return machine_of(facts(**parts), book)


def universe(book: Book, *targets: str, options: Mapping[str, Any] | None = None, **parts: Any) -> Universe:
    """The universe of a request on a machine."""
    return Universe(Context(book, machine(book, **parts), open_request(request(book, *targets, **(options or {})))))


def outcome(book: Book, of: Facts, asked: Request, source: Source | None = None) -> Resolution | Conflict:
    """What the resolution answers."""
    return resolve(book, machine_of(of, book), asked, source)


def plan(book: Book, of: Facts, asked: Request) -> Plan:
    """The plan for a request on a machine."""
    return make_plan(of, outcome(book, of, asked), book)


def pins(found: Resolution | Conflict) -> dict[str, str | None]:
    """Version of each package of a resolution."""
    assert isinstance(found, Resolution), found
    return {pin.name: pin.version for pin in found.pip}


def versions(found: Plan) -> dict[str, str]:
    """What the environment holds of the plan's packages once it is carried out."""
    return {one.name: one.version for one in found.pip if one.action != "remove"}
