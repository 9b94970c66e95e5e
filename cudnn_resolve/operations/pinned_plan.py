"""The plan that `validate` compares with what it sees: a file that `plan --format json` wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cudnn_resolve.errors import InputError
from cudnn_resolve.version import CudnnVersion, DriverVersion

if TYPE_CHECKING:
    from cudnn_resolve.locking.model import Environment
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.validation.pinned import Pinned, PinnedLibrary

LIMIT_BYTES = 64 << 20
_SCHEMA = "cudnn-resolve/plan/1"
_HINT = "`cudnn-resolve plan --format json -o FILE` writes one"


class _Package(Struct):
    name: str
    version: str | None = None
    action: str | None = None

    def __post_init__(self) -> None:
        if self.version is None and self.action != "remove":
            raise ValueError(f"{self.name:.80} has no version")


class _Framework(Struct):
    name: str
    cudnn: str | None = None

    def __post_init__(self) -> None:
        _ = CudnnVersion(self.cudnn) if self.cudnn is not None else None


class _Stack(Struct):
    cudnn: str | None = None
    driver_min: str | None = None
    frameworks: tuple[_Framework, ...] = ()

    def __post_init__(self) -> None:
        _ = CudnnVersion(self.cudnn) if self.cudnn is not None else None
        _ = DriverVersion(self.driver_min) if self.driver_min is not None else None


class _Step(Struct):
    kind: str = "none"
    value: str = ""


class _Plan(Struct):
    schema: str
    status: str | None = None
    pip: tuple[_Package, ...] = ()
    apt: tuple[_Package, ...] = ()
    stack: _Stack | None = None
    environment: tuple[_Step, ...] = ()


def pinned_by_plan(path: str) -> Pinned:
    """What the plan in that file (`-`: standard input) says of packages and libraries; InputError where it is no plan."""
    from cudnn_resolve.host.files import STDIN, read_bounded
    from cudnn_resolve.host.tables import open_book

    return read_plan(read_bounded(path, LIMIT_BYTES, "plan"), "standard input" if path == STDIN else path, open_book(()))


def read_plan(text: str, where: str, book: Book) -> Pinned:
    """What a plan in JSON says; InputError where the text holds none, or one that found no stack."""
    from cudnn_resolve.validation.pinned import Pinned

    try:
        plan = msgspec.json.decode(text, type=_Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where} is not a plan", code="plan-invalid", context=f"{error!s:.200}", hint=_HINT) from None
    if plan.schema != _SCHEMA:
        raise InputError(f"{where} is not a plan", code="plan-invalid", context=f'"schema" must be "{_SCHEMA}"', hint=_HINT)
    if plan.status == "unsatisfiable":
        raise InputError(f"{where} holds no plan but why there is none", code="plan-unsatisfiable", hint="see its `conflict`")
    if plan.status != "ok" or not plan.pip:
        context = '"status" must be "ok"' if plan.status != "ok" else "`pip` is empty"
        raise InputError(f"{where} is not a plan", code="plan-invalid", context=context, hint=_HINT)
    stack = plan.stack or _Stack()
    packages = _kept(plan.pip)
    return Pinned(
        source="plan",
        packages=packages,
        removed=tuple(one.name for one in plan.pip if one.name not in packages),
        apt=_kept(plan.apt),
        cudnn=stack.cudnn,
        cudnns={one.name: one.cudnn for one in stack.frameworks if one.cudnn is not None},
        driver_min=stack.driver_min,
        libraries=tuple(libraries_of(packages.items(), book)),
        preload=preloaded(plan.environment),
    )


def preloaded(environment: Iterable[_Step | Environment]) -> tuple[str, ...]:
    """The modules whose libraries a preload must load."""
    from cudnn_resolve.planning.preload import IMPORT_NAMES

    names = (name for one in environment if one.kind == "preload" for name in one.value.split())
    return tuple(IMPORT_NAMES.get(name, name) for name in names)


def _kept(rows: Iterable[_Package]) -> dict[str, str]:
    """Name to version of what is there once the plan is carried out."""
    return {one.name: one.version for one in rows if one.version is not None and one.action != "remove"}


def libraries_of(packages: Iterable[tuple[str, str]], book: Book) -> Iterator[PinnedLibrary]:
    """The libraries that come out of these packages."""
    from cudnn_resolve.validation.pinned import PinnedLibrary

    for name, version in packages:
        component = book.component(name)
        if component is not None:
            yield PinnedLibrary(name=component.library.casefold(), package=name, version=version)
