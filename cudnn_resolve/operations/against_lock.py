"""What `validate` holds what it sees against: a lock, which also takes in what was proven, or a plan in JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.clock import today
from cudnn_resolve.host.files import STDIN, read_bounded, write_atomic
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.locking.model import Environment, Lock
from cudnn_resolve.locking.proof import add_record
from cudnn_resolve.locking.select import applies
from cudnn_resolve.locking.stack import bundled_cudnns
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.planning.preload import IMPORT_NAMES
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.validation.against_lock import PinnedEnvironment, PinnedLibrary, records_of
from cudnn_resolve.validation.model import Validation
from cudnn_resolve.version import CudnnVersion, DriverVersion

LIMIT_BYTES = 64 << 20
_SCHEMA = "cudnn-resolve/plan/1"
_HINT = "`cudnn-resolve plan --format json -o FILE` writes one"


class Held(Struct, frozen=True, kw_only=True):
    """A lock that was read, and where from."""

    path: str
    lock: Lock
    record: bool
    """What passes goes into it."""


def held_lock(lock: str | None, record: str | None) -> Held | None:
    """The lock that the options name; InputError where it cannot be used, before anything has been tested."""
    if lock and record and lock != record:
        raise UsageError(
            "--lock and --record name two locks: what is proven of one would be written into the other",
            code="usage-contradiction",
            hint="leave --lock out: --record compares, too",
        )
    path = record or lock
    if path is None:
        return None
    from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read

    if record == "-":
        raise UsageError("--record writes into a file, which - is not", code="usage-path", hint="name the lock: --record pylock.toml")
    found = read(read_bounded(path, LIMIT_BYTES, "lock"), path)
    if record and found.tool is None:
        raise InputError(
            f"{path} was written by another program: there is no room in it for what was proven",
            code="lock-foreign",
            hint="`cudnn-resolve lock` writes one",
        )
    return Held(path=path, lock=found, record=bool(record))


def pinned_of(held: Held, facts: Facts) -> PinnedEnvironment:
    """What the lock pins for this machine and interpreter."""
    book = open_book(())
    lock, machine = held.lock, machine_of(facts, book)
    stack = lock.stack(machine.platform) or (lock.stacks[0] if len(lock.stacks) == 1 else None)
    found = ((one.name, one.version) for one in lock.packages if one.version is not None and applies(one.marker, lock, machine))
    packages: dict[str, str] = {name: str(version) for name, version in found}
    return PinnedEnvironment(
        packages=packages,
        cudnn=stack.cudnn if stack else None,
        cudnns=bundled_cudnns(lock, stack, book) if stack else {},
        apt={one.name: one.version for one in stack.apt} if stack else {},
        driver_min=stack.driver_min if stack else None,
        libraries=tuple(libraries_of(packages.items(), book)),
        preload=preloaded(stack.environment) if stack else (),
        preload_command=shlex.join(["cudnn-resolve", "apply", held.path]),
    )


def write_record(held: Held, validation: Validation, python: str | None) -> str:
    """Write a record into the lock for each card on which everything passed; what was recorded, or why nothing was."""
    records = records_of(validation, today(), python)
    if not records:
        why = "not everything passed" if validation.status == "failed" else "nothing was computed on a GPU"
        return f"{held.path} is left as it is: {why}"
    lock = held.lock
    for record in records:
        lock = add_record(lock, record)
    write_atomic(held.path, write(lock))
    return f"recorded in {held.path}: {', '.join(str(record['gpu']) for record in records)}"


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


def pinned_by_plan(path: str) -> PinnedEnvironment:
    """What the plan in that file (`-`: standard input) says of packages and libraries; InputError where it is no plan."""
    return read_plan(read_bounded(path, LIMIT_BYTES, "plan"), "standard input" if path == STDIN else path, open_book(()))


def read_plan(text: str, where: str, book: Book) -> PinnedEnvironment:
    """What a plan in JSON says; InputError where the text holds none, or one that found no stack."""
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
    return PinnedEnvironment(
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
    names = (name for one in environment if one.kind in ("preload", "folder") for name in one.value.split())
    return tuple(IMPORT_NAMES.get(name, name) for name in names)


def _kept(rows: Iterable[_Package]) -> dict[str, str]:
    """Name to version of what is there once the plan is carried out."""
    return {one.name: one.version for one in rows if one.version is not None and one.action != "remove"}


def libraries_of(packages: Iterable[tuple[str, str]], book: Book) -> Iterator[PinnedLibrary]:
    """The libraries that come out of these packages."""
    for name, version in packages:
        component = book.component(name)
        if component is not None:
            yield PinnedLibrary(name=component.library.casefold(), package=name, version=version)
