"""`validate`: run the stack, and compare it with a lock or a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Finding
from cudnn_resolve.errors import ContradictionError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host.installed_files import package_folders, verify_files
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.expected_stack import expected_lock, pinned_by_lock, pinned_by_plan, write_record
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.machine_facts import detect_facts
from cudnn_resolve.operations.options import ValidateRequest
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.requirement.target import parse_target
from cudnn_resolve.resolution.model import Range
from cudnn_resolve.validation.model import Check, Status, Validation
from cudnn_resolve.validation.run import ValidationOptions


class ValidationResult(Validation, Result, frozen=True, kw_only=True):
    """Result of `validate`: the checks."""

    ranges: tuple[Range, ...] = ()
    """Versions that the installed frameworks allow, with the installed ones, if requested."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `validate --format json`."""
        from cudnn_resolve.report.document import encode_validation

        return encode_validation(self)


def validate(request: ValidateRequest, listener: Listener = SILENT) -> ValidationResult:
    """Check this machine; with `record`, write what passed into the lock."""
    book = open_book(())
    options = ValidationOptions(
        frameworks=tuple(parse_target(word, book).framework for word in request.framework),
        gpu=request.gpu,
        require_gpu=request.require_gpu,
        everything=request.full,
    )
    if request.plan and (request.lock or request.record):
        raise ContradictionError("--plan cannot be combined with a lock: both say what must be installed")
    expected = expected_lock(request.lock, request.record)
    if request.plan:
        options = replace(options, pinned=pinned_by_plan(request.plan))
    facts = detect_facts(request)
    if expected is not None:
        options = replace(options, pinned=pinned_by_lock(expected, facts))
    validation = validation_of(options, facts, listener)
    validation = replace(validation, checks=(*_file_checks(facts, book), *validation.checks))
    if expected is not None and expected.record:
        listener.note(write_record(expected, validation, facts.python.version))
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


def validation_of(options: ValidationOptions, facts: Facts, listener: Listener = SILENT) -> Validation:
    """Run the checks on this machine; failures are explained like by `doctor`."""
    from cudnn_resolve.validation.run import validate, with_causes

    book = open_book(())
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
