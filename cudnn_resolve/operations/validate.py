"""`validate`: the stack at work, held against a lock or a plan where one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.operations.gather import detect_facts
from cudnn_resolve.operations.listener import NOBODY, Listener
from cudnn_resolve.operations.results import Result, grown
from cudnn_resolve.validation.model import Check, Validation

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.operations.options import ValidateRequest
    from cudnn_resolve.resolution.model import Range
    from cudnn_resolve.validation.run import Wish


class ValidationResult(Validation, Result, frozen=True, kw_only=True):
    """What `validate` returns: the checks."""

    ranges: tuple[Range, ...] = ()
    """Where they are asked for: what the frameworks that are installed allow, with what is there."""

    def to_json(self) -> dict[str, Any]:
        """The object that `validate --format json` prints."""
        from cudnn_resolve.report.document import encode_validation

        return encode_validation(self, self.ranges)


def validate(request: ValidateRequest, listener: Listener = NOBODY) -> ValidationResult:
    """What was found on this machine; what passed is written into the lock of `record`."""
    from cudnn_resolve.operations.against_lock import held_lock, pinned_by_plan, pinned_of, write_record

    wish = wish_of(request)
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
    found = replace(found, checks=(*_files(facts), *_links(facts), *found.checks))
    if held is not None and held.record:
        listener.note(write_record(held, found, facts.python.version))
    return grown(ValidationResult, found, ranges=_ranges(facts) if request.ranges else ())


def _ranges(facts: Facts) -> tuple[Range, ...]:
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.operations.judge import ranges_of_facts

    return ranges_of_facts(facts, open_book(()))


def _files(facts: Facts) -> tuple[Check, ...]:
    """A check for each package of the stack whose files are not those that were installed; none where all are."""
    from cudnn_resolve.host.installed_files import package_folders, verify_files
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.operations.check import damage_findings, stack_packages

    host, book = LinuxHost(), open_book(())
    report = verify_files(host, package_folders(host, facts), stack_packages(facts, book), code_only=True)
    damages = {one.package: one for one in report.damages}
    return tuple(
        Check(
            id=f"{name}/files",
            framework=name if book.framework_of(name) else None,
            status="failed" if finding.severity == "error" else "warning",
            expected="the files that were installed",
            detail=f"{finding.summary}; `{finding.remedy[0].command}` lays them down again",
        )
        for name, one in damages.items()
        for finding in damage_findings((one,), book)
    )


def _links(facts: Facts) -> tuple[Check, ...]:
    """A check for each library of the environment that lacks one that it needs; none where all find theirs."""
    from cudnn_resolve.host.installed_files import package_folders
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.operations.link_check import link_findings

    host, book = LinuxHost(), open_book(())
    return tuple(
        Check(
            id=f"{name}/links",
            framework=name if book.framework_of(name) else None,
            status="failed" if finding.severity == "error" else "warning",
            expected="every library finds what it needs",
            detail=finding.summary,
        )
        for name, finding in link_findings(host, package_folders(host, facts), facts.python.path or host.python, book)
    )


def wish_of(request: ValidateRequest) -> Wish:
    """What is to be tested; UsageError for a framework that nobody knows."""
    from cudnn_resolve.validation.run import Wish

    return Wish(
        frameworks=tuple(map(_framework, request.framework)),
        gpu=request.gpu,
        require_gpu=request.require_gpu,
        everything=request.full,
    )


def _framework(word: str) -> str:
    """The framework that a word names, by its own name in the tables."""
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.requirement.derive import parse_target

    return parse_target(word, open_book(())).framework


def validation_of(wish: Wish, facts: Facts, listener: Listener = NOBODY) -> Validation:
    """What was found on this machine, with the causes of what failed as `doctor` sees them."""
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.host.tables import open_book
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
