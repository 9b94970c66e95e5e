"""`validate`: run the stack, and compare it with a lock or a plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.errors import ContradictionError, InputError, UsageError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.clock import today
from cudnn_resolve.host.files import STDIN, read_bounded, write_atomic
from cudnn_resolve.host.installed_files import package_folders, verify_files
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.listener import Listener
from cudnn_resolve.locking.model import Environment, Lock
from cudnn_resolve.locking.proof import add_record
from cudnn_resolve.locking.select import installed_packages
from cudnn_resolve.locking.stack import bundled_cudnns
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.lock_file import read_lock
from cudnn_resolve.operations.machine_facts import detect_facts
from cudnn_resolve.operations.options import ValidateRequest
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.planning.preload import IMPORT_NAMES
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.target import parse_target
from cudnn_resolve.resolution.model import Range
from cudnn_resolve.validation.against_lock import PinnedEnvironment, PinnedLibrary, records_of
from cudnn_resolve.validation.model import Check, Status, Validation
from cudnn_resolve.validation.run import ValidationOptions
from cudnn_resolve.version import CudnnVersion, DriverVersion


class ValidationResult(Validation, Result, frozen=True, kw_only=True):
    """Result of `validate`: the checks."""

    ranges: tuple[Range, ...] = ()
    """Versions that the installed frameworks allow, with the installed ones, if requested."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `validate --format json`."""
        from cudnn_resolve.report.document import encode_validation

        return encode_validation(self)


def validate(request: ValidateRequest, listener: Listener) -> ValidationResult:
    """Check this machine; with `record`, write what passed into the lock."""
    book = open_book()
    options = ValidationOptions(
        frameworks=tuple(parse_target(word, book).framework for word in request.framework),
        gpu=request.gpu,
        require_gpu=request.require_gpu,
        everything=request.full,
    )
    if request.plan and (request.lock or request.record):
        raise ContradictionError("--plan cannot be combined with a lock: both say what must be installed")
    expected = _expected_lock(request.lock, request.record)
    if request.plan:
        where = "standard input" if request.plan == STDIN else request.plan
        options = replace(options, pinned=read_plan(read_bounded(request.plan, LIMIT_BYTES, "plan"), where, book))
    facts = detect_facts(request)
    if expected is not None:
        options = replace(options, pinned=pinned_by_lock(*expected, facts, book))
    validation = validation_of(options, facts, book, listener)
    validation = replace(validation, checks=(*_file_checks(facts, book), *validation.checks))
    if expected is not None and request.record:
        listener.note(_write_record(*expected, validation, facts.python.version))
    if not request.ranges:
        return recast(ValidationResult, validation)
    from cudnn_resolve.operations.verdict import ranges_of_facts

    return recast(ValidationResult, validation, ranges=ranges_of_facts(facts, book))


def _file_checks(facts: Facts, book: Book) -> Iterator[Check]:
    """A check for each package with damaged files, and for each library that misses another one."""
    from cudnn_resolve.operations.damaged_files import damage_findings, link_findings, stack_packages

    def check(package: str, what: str, finding: Finding, expected: str, detail: str) -> Check:
        framework = package if book.framework_of(package) else None
        status: Status = "failed" if finding.severity == "error" else "warning"
        return Check(id=f"{package}/{what}", framework=framework, status=status, expected=expected, detail=detail)

    host = LinuxHost()
    folders = package_folders(host, facts)
    report = verify_files(host, folders, stack_packages(facts, book), code_only=True)
    for package, damage in {damage.package: damage for damage in report.damages}.items():
        for finding in damage_findings((damage,), book):
            detail = f"{finding.summary}; `{finding.remedy[0].command}` restores them"
            yield check(package, "files", finding, "the files that were installed", detail)
    for package, finding in link_findings(host, folders, facts.python.path or host.python, book):
        yield check(package, "links", finding, "every library finds what it needs", finding.summary)


def validation_of(options: ValidationOptions, facts: Facts, book: Book, listener: Listener) -> Validation:
    """Run the checks on this machine; failures are explained like by `doctor`."""
    from cudnn_resolve.validation.run import validate, with_causes

    validation = validate(LinuxHost(), facts, options, book, listener.tell)
    return with_causes(validation, lambda text: explained(text, facts, book))


def explained(text: str, facts: Facts, book: Book) -> str:
    """Cause and remedy of a failure, found in its last output; "" if unknown."""
    from cudnn_resolve.diagnosis.diagnose import diagnose
    from cudnn_resolve.diagnosis.match import Reader

    reader = Reader(book.symptoms()).read([text.encode("utf-8", "replace")])
    findings = diagnose(reader, facts, book).findings
    of_log = (finding for finding in findings if finding.severity != "info" and any(line.source == "log" for line in finding.evidence))
    finding = next((finding for finding in of_log if finding.cause != "unrecognised"), None)
    if finding is None:
        return ""
    remedy = next((f": `{remedy.command}`" if remedy.command else f": {remedy.text}" for remedy in finding.remedy), "")
    return f"{finding.summary} ({finding.cause}){remedy}"


# ---- the stack that is expected: from a lock, into which passed validations are recorded, or from a plan in JSON


LIMIT_BYTES = 64 << 20
_SCHEMA = "cudnn-resolve/plan/1"
_HINT = "`cudnn-resolve plan --format json -o FILE` writes one"


def _expected_lock(lock: str | None, record: str | None) -> tuple[Lock, str] | None:
    """Read the lock of `--lock` or `--record`, before anything is tested, with its path; InputError for an unusable one."""
    if lock and record and lock != record:
        raise ContradictionError(
            "--lock and --record name two locks: results for one would be recorded in the other",
            hint="leave --lock out: --record compares as well",
        )
    path = record or lock
    if path is None:
        return None
    if record == "-":
        raise UsageError("--record needs a file to write to, not -", code="usage-path", hint="name the lock: --record pylock.toml")
    found = read_lock(path)
    if record and found.tool is None:
        raise InputError(
            f"{path} was written by another program: it has no place for validation records",
            code="lock-foreign",
            hint="`cudnn-resolve lock` writes one that has",
        )
    return found, path


def pinned_by_lock(lock: Lock, path: str, facts: Facts, book: Book) -> PinnedEnvironment:
    """Pins of the lock for this machine and interpreter."""
    machine = machine_of(facts, book)
    stack = lock.stack(machine.platform) or (lock.stacks[0] if len(lock.stacks) == 1 else None)
    installed = installed_packages(lock, machine)
    packages = {name: str(package.version) for name, package in installed.items() if package.version is not None}
    return PinnedEnvironment(
        packages=packages,
        cudnn=stack.cudnn if stack else None,
        cudnns=bundled_cudnns(lock, stack, book) if stack else {},
        apt={package.name: package.version for package in stack.apt} if stack else {},
        driver_min=stack.driver_min if stack else None,
        libraries=tuple(_libraries_of(packages, book)),
        preload=_preloaded_modules(stack.environment) if stack else (),
        preload_command=shlex.join(["cudnn-resolve", "apply", path]),
    )


def _write_record(lock: Lock, path: str, validation: Validation, python: str | None) -> str:
    """Record in the lock each GPU on which everything passed; returns a note on what was recorded, or why nothing was."""
    records = records_of(validation, today(), python)
    if not records:
        why = "not everything passed" if validation.status == "failed" else "nothing was computed on a GPU"
        return f"{path} is unchanged: {why}"
    for record in records:
        lock = add_record(lock, record)
    write_atomic(path, write(lock))
    return f"recorded in {path}: {', '.join(str(record['gpu']) for record in records)}"


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


def read_plan(text: str, where: str, book: Book) -> PinnedEnvironment:
    """Pins of a plan in JSON; InputError if the text holds none, or one without a stack."""
    try:
        plan = msgspec.json.decode(text, type=_Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where} is not a plan", code="plan-invalid", context=f"{error!s:.200}", hint=_HINT) from None
    if plan.schema != _SCHEMA:
        raise InputError(f"{where} is not a plan", code="plan-invalid", context=f'"schema" must be "{_SCHEMA}"', hint=_HINT)
    if plan.status == "unsatisfiable":
        raise InputError(f"{where} holds a conflict instead of a plan", code="plan-unsatisfiable", hint="see its `conflict`")
    if plan.status != "ok" or not plan.pip:
        context = '"status" must be "ok"' if plan.status != "ok" else "`pip` is empty"
        raise InputError(f"{where} is not a plan", code="plan-invalid", context=context, hint=_HINT)
    stack = plan.stack or _Stack()
    packages = _versions(plan.pip)
    return PinnedEnvironment(
        source="plan",
        packages=packages,
        removed=tuple(package.name for package in plan.pip if package.name not in packages),
        apt=_versions(plan.apt),
        cudnn=stack.cudnn,
        cudnns={framework.name: framework.cudnn for framework in stack.frameworks if framework.cudnn is not None},
        driver_min=stack.driver_min,
        libraries=tuple(_libraries_of(packages, book)),
        preload=_preloaded_modules(plan.environment),
    )


def _preloaded_modules(environment: Iterable[_Step | Environment]) -> tuple[str, ...]:
    """Modules whose libraries a preload must load."""
    names = (name for step in environment if step.kind in ("preload", "folder") for name in step.value.split())
    return tuple(IMPORT_NAMES.get(name, name) for name in names)


def _versions(packages: Iterable[_Package]) -> dict[str, str]:
    """Versions after the plan is applied, by name."""
    return {package.name: package.version for package in packages if package.version is not None and package.action != "remove"}


def _libraries_of(packages: Mapping[str, str], book: Book) -> Iterator[PinnedLibrary]:
    """Libraries that come from these packages."""
    for name, version in packages.items():
        component = book.component(name)
        if component is not None:
            yield PinnedLibrary(name=component.library.casefold(), package=name, version=version)
