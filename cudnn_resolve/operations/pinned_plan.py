"""The plan that `validate` holds what it sees against: a file that `plan --format json` wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cudnn_resolve.errors import InputError
from cudnn_resolve.version import CudnnVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.validation.pinned import Pinned, PinnedLibrary

LIMIT_BYTES = 64 << 20
_SCHEMA = "cudnn-resolve/plan/1"
_HINT = "`cudnn-resolve plan --format json -o FILE` writes one"


def pinned_by_plan(path: str) -> Pinned:
    """What the plan in that file (`-`: standard input) says of packages and libraries; InputError where it is no plan."""
    from cudnn_resolve.host.files import STDIN, read_bounded
    from cudnn_resolve.host.tables import open_book

    return read_plan(read_bounded(path, LIMIT_BYTES, "plan"), "standard input" if path == STDIN else path, open_book(()))


def read_plan(text: str, where: str, book: Book) -> Pinned:
    """What a plan in JSON says; InputError where the text holds none, or one that found no stack."""
    from cudnn_resolve.validation.pinned import Pinned

    plan = _parse(text, where)
    if plan.get("status") == "unsatisfiable":
        raise InputError(f"{where} holds no plan but why there is none", code="plan-unsatisfiable", hint="see its `conflict`")
    if plan.get("status") != "ok":
        raise InputError(f"{where} holds no plan", code="plan-invalid", context='"status" must be "ok"', hint=_HINT)
    if not _rows(plan, "pip", where):
        raise InputError(f"{where} is no plan as it is written: pip is empty", code="plan-invalid", hint=_HINT)
    stack = plan.get("stack")
    stack = stack if isinstance(stack, dict) else {}
    actions = {_text(row, "name", where): row for row in _rows(plan, "pip", where)}
    packages = {name: _text(row, "version", where) for name, row in actions.items() if row.get("action") != "remove"}
    apt = {_text(row, "name", where): _text(row, "version", where) for row in _rows(plan, "apt", where) if row.get("action") != "remove"}
    frameworks = [row for row in _rows(stack, "frameworks", where) if row.get("cudnn") is not None]
    return Pinned(
        source="plan",
        packages=packages,
        removed=tuple(name for name in actions if name not in packages),
        apt=apt,
        cudnn=_parsed(stack, "cudnn", CudnnVersion, where),
        cudnns={_text(row, "name", where): _parsed(row, "cudnn", CudnnVersion, where) or "" for row in frameworks},
        driver_min=_parsed(stack, "driver_min", DriverVersion, where),
        libraries=tuple(libraries_of(packages.items(), book)),
    )


def libraries_of(packages: Iterable[tuple[str, str]], book: Book) -> Iterator[PinnedLibrary]:
    """The libraries that come out of these packages."""
    from cudnn_resolve.validation.pinned import PinnedLibrary

    for name, version in packages:
        component = book.component(name)
        if component is not None:
            yield PinnedLibrary(name=component.library.casefold(), package=name, version=version)


def _parse(text: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not JSON", code="plan-invalid", hint=_HINT) from None
    if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
        raise InputError(f"{where} holds no plan", code="plan-invalid", context=f'"schema" must be "{_SCHEMA}"', hint=_HINT)
    return found


def _rows(table: Mapping[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError(f"{where} is no plan as it is written: {name} is not a list of objects", code="plan-invalid", hint=_HINT)
    return found


def _parsed(row: Mapping[str, Any], name: str, parse: Callable[[str], object], where: str) -> str | None:
    """A version that can be read, or none."""
    found = row.get(name)
    if found is None:
        return None
    try:
        if isinstance(found, str):
            _ = parse(found)
            return found
    except ValueError:
        pass
    message = f"{where} is no plan as it is written: {name} is not what it should be: {found!r:.80}"
    raise InputError(message, code="plan-invalid", hint=_HINT)


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    found = row.get(name)
    if not isinstance(found, str):
        raise InputError(f"{where} is no plan as it is written: a row has no {name}", code="plan-invalid", hint=_HINT)
    return found
