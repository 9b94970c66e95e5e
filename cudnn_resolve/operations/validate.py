"""`validate`: the stack at work, held against a lock or a plan where one is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.installed_files import package_folders, verify_files
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.against_lock import held_lock, pinned_by_plan, pinned_of, write_record
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.machine_facts import detect_facts
from cudnn_resolve.operations.options import ValidateRequest
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.requirement.derive import parse_target
from cudnn_resolve.resolution.model import Range
from cudnn_resolve.validation.model import Check, Status, Validation
from cudnn_resolve.validation.run import ValidationOptions


class ValidationResult(Validation, Result, frozen=True, kw_only=True):
    """What `validate` returns: the checks."""

    ranges: tuple[Range, ...] = ()
    """Where they are asked for: what the frameworks that are installed allow, with what is there."""

    def to_json(self) -> dict[str, Any]:
        """The object that `validate --format json` prints."""
        from cudnn_resolve.report.document import encode_validation

        return encode_validation(self)


def validate(request: ValidateRequest, listener: Listener = SILENT) -> ValidationResult:
    """What was found on this machine; what passed is written into the lock of `record`."""
    book = open_book(())
    wish = ValidationOptions(
        frameworks=tuple(parse_target(word, book).framework for word in request.framework),
        gpu=request.gpu,
        require_gpu=request.require_gpu,
        everything=request.full,
    )
    if request.plan and (request.lock or request.record):
        hint = "leave one of them out"
        raise UsageError("--plan and a lock both say what must be there", code="usage-contradiction", hint=hint)
    held = held_lock(request.lock, request.record)
    if request.plan:
        wish = replace(wish, pinned=pinned_by_plan(request.plan))
    facts = detect_facts(request)
    if held is not None:
        wish = replace(wish, pinned=pinned_of(held, facts))
    found = validation_of(wish, facts, listener)
    found = replace(found, checks=(*_installed(facts, book), *found.checks))
    if held is not None and held.record:
        listener.note(write_record(held, found, facts.python.version))
    if not request.ranges:
        return recast(ValidationResult, found)
    from cudnn_resolve.operations.verdict import ranges_of_facts

    return recast(ValidationResult, found, ranges=ranges_of_facts(facts, book))


def _installed(facts: Facts, book: Book) -> Iterator[Check]:
    """A check for each package whose files are not those that were installed, and for each library that lacks one that it needs."""
    from cudnn_resolve.operations.damage import damage_findings, link_findings, stack_packages

    def check(package: str, what: str, finding: Finding, expected: str, detail: str) -> Check:
        framework = package if book.framework_of(package) else None
        status: Status = "failed" if finding.severity == "error" else "warning"
        return Check(id=f"{package}/{what}", framework=framework, status=status, expected=expected, detail=detail)

    host = LinuxHost()
    folders = package_folders(host, facts)
    report = verify_files(host, folders, stack_packages(facts, book), code_only=True)
    for package, damage in {one.package: one for one in report.damages}.items():
        for finding in damage_findings((damage,), book):
            again = f"{finding.summary}; `{finding.remedy[0].command}` lays them down again"
            yield check(package, "files", finding, "the files that were installed", again)
    for package, finding in link_findings(host, folders, facts.python.path or host.python, book):
        yield check(package, "links", finding, "every library finds what it needs", finding.summary)


def validation_of(wish: ValidationOptions, facts: Facts, listener: Listener = SILENT) -> Validation:
    """What was found on this machine, with the causes of what failed as `doctor` sees them."""
    from cudnn_resolve.validation.run import validate, with_causes

    book = open_book(())
    found = validate(LinuxHost(), facts, wish, book, listener.tell)
    return with_causes(found, lambda text: explained(text, facts, book))


def explained(text: str, facts: Facts, book: Book) -> str:
    """The cause of a failure by its last words, and what helps; "" where they tell none."""
    from cudnn_resolve.diagnosis.diagnose import diagnose
    from cudnn_resolve.diagnosis.match import Reader

    reader = Reader(book.symptoms()).read([text.encode("utf-8", "replace")])
    findings = diagnose(reader, facts, book).findings
    told = (one for one in findings if one.severity != "info" and any(line.source == "log" for line in one.evidence))
    finding = next((one for one in told if one.cause != "unrecognised"), None)
    if finding is None:
        return ""
    command = next((f": `{one.command}`" if one.command else f": {one.text}" for one in finding.remedy), "")
    return f"{finding.summary} ({finding.cause}){command}"
