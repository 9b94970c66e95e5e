"""`check`: verdict on an existing environment with its files, or on a file that lists packages."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.diagnosis.machine_cudnn import UNLOADED
from cudnn_resolve.diagnosis.model import SEVERITIES, Comparison, Evidence, Finding, Moved, Remedy, Verdict
from cudnn_resolve.errors import ContradictionError, first_few
from cudnn_resolve.facts.assume import fresh_environment
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host import disk
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.machine_facts import facts_files, gather_facts, refuse_other_systems
from cudnn_resolve.operations.options import CheckRequest, StatedOptions, option_words
from cudnn_resolve.operations.package_set import Subject, subject_of_facts, subject_of_file, text_of
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.operations.verdict import machine_name, verdict_on
from cudnn_resolve.package_lists.model import PartSelection
from cudnn_resolve.planning.preload import MODULE
from cudnn_resolve.requirement.machine import Machine, machine_of

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.installed_files import FilesReport


class CheckResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `check`: a verdict on each file, or on the environment."""

    verdicts: tuple[Verdict, ...]
    strict: bool = False
    """True if an unknown verdict counts as broken."""
    changes: tuple[Comparison, ...] = ()
    """With `diff`: the effect on each machine; the verdicts are those on the new list."""

    @property
    def is_broken(self) -> bool:
        """True if something breaks, or with `strict` is not known to run."""
        return any(verdict.status == "breaks" or (self.strict and verdict.status != "runs") for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `check --format json`."""
        from cudnn_resolve.report.document import encode_verdicts

        return encode_verdicts(self.verdicts, self.changes)


def check(request: CheckRequest) -> CheckResult:
    """Verdict on each file, else on the environment: the live one, or that of `--facts`."""
    book = gather_book(request)
    has_facts = bool(request.facts) or request.given is not None
    if not request.what and not has_facts and request.assumptions.elsewhere:
        raise ContradictionError(
            "a machine is stated, but nothing to check on it",
            hint="name a lock, a requirements file or a list of packages: `cudnn-resolve check uv.lock ...`",
        )
    if request.diff:
        changes = tuple(_changes(request, book))
        return CheckResult(verdicts=tuple(change.after for change in changes), strict=request.strict, changes=changes)
    verdicts = tuple(_on_packages(request, book)) if request.what or has_facts else (_on_environment(request, book),)
    return CheckResult(verdicts=verdicts, strict=request.strict)


class _Case(NamedTuple):
    """Package sets to judge on one machine."""

    subjects: tuple[Subject, ...]
    machine: Machine
    machine_name: str
    facts: Facts | None
    """Given if the machine's own environment is judged."""
    options: StatedOptions


def _on_packages(request: CheckRequest, book: Book) -> Iterator[Verdict]:
    """Verdicts on lists of packages, on each machine."""
    judged: list[tuple[Machine, tuple[Verdict, ...]]] = []  # a fleet has few kinds of machines
    for subjects, machine, name, facts, options in _cases(request, book):
        verdicts = next((verdicts for other, verdicts in judged if other == machine), None)
        if verdicts is None or facts is not None or any(subject.base is not None for subject in subjects):
            verdicts = tuple(verdict_on(subject, book, machine, name, facts, ranges=request.ranges) for subject in subjects)
            judged.append((machine, verdicts))
        else:
            verdicts = tuple(replace(verdict, machine=name) for verdict in verdicts)
        pairs = zip(verdicts, subjects, strict=True)
        yield from (_with_machine_options(verdict, options, subject) for verdict, subject in pairs)


def _with_machine_options(verdict: Verdict, options: StatedOptions, subject: Subject) -> Verdict:
    """Let the proposed commands of a verdict target the same machine, and the Python of the file."""
    if subject.base is not None and subject.base.python is not None:
        options = replace(options, python_version=subject.base.python)
    names = (name for name in options.__struct_fields__ if name != "python")
    words = shlex.join(word for pair in option_words(options, names) for word in pair)

    def for_machine(remedy: Remedy) -> Remedy:
        is_ours = remedy.command is not None and remedy.command.startswith(("cudnn-resolve plan ", "cudnn-resolve lock "))
        return replace(remedy, command=f"{remedy.command} {words}") if is_ours and words else remedy

    return replace(verdict, remedy=tuple(map(for_machine, verdict.remedy)))


def _changes(request: CheckRequest, book: Book) -> Iterator[Comparison]:
    """Effect of the step from an old to a new list on each machine."""
    if len(request.what) != 2:
        raise ContradictionError("--diff compares two files", hint="cudnn-resolve check --diff OLD NEW")
    for (old, new), machine, machine_label, _, options in _cases(request, book):
        names = sorted(old.packages.keys() | new.packages.keys())
        rows = (Moved(name=name, before=old.packages.get(name), after=new.packages.get(name)) for name in names)
        moved = tuple(row for row in rows if row.before != row.after)
        before, after = (
            _with_machine_options(verdict_on(subject, book, machine, machine_label), options, subject) for subject in (old, new)
        )
        yield Comparison(before=before, after=after, moved=moved)


def _cases(request: CheckRequest, book: Book) -> Iterator[_Case]:
    """Each machine with the package sets to judge on it."""
    if [*request.what, *request.facts].count("-") > 1:
        raise ContradictionError("standard input can be used only once", hint="name a file for the others")
    choice = PartSelection(extras=request.extra, groups=request.group, defaults=not request.no_default_groups)
    texts = {path: text_of(path) for path in request.what}
    known: dict[tuple[object, ...], Subject] = {}
    for options in _machines(request):
        facts = gather_facts(options, book)
        refuse_other_systems(facts)
        name = machine_name(facts, options.facts)
        if not request.what:
            yield _Case((subject_of_facts(facts, options.facts),), machine_of(facts, book), name, facts, options)
            continue
        fresh = replace(fresh_environment(facts), python=replace(facts.python, path=None, prefix=None, externally_managed=None))
        machine = machine_of(fresh, book)
        decisive = machine.python_full, machine.free_threaded, machine.arch, machine.glibc  # for the contents of a list
        for path in request.what:
            if (path, decisive) not in known:
                subject = subject_of_file(path, texts[path], book, machine, choice)
                same = next((other for other in known.values() if other.packages == subject.packages), subject)
                known[path, decisive] = replace(subject, packages=same.packages)  # releases are cached by the identity of `packages`
        yield _Case(tuple(known[path, decisive] for path in request.what), machine, name, None, options)


def _machines(request: CheckRequest) -> Iterator[StatedOptions]:
    """Options for each machine: `--facts` is repeatable, and may be a folder with one file per machine."""
    for place in request.facts or (None,):
        for path in (None,) if place is None else facts_files(place):
            yield recast(StatedOptions, request, facts=path)


def _on_environment(request: CheckRequest, book: Book) -> Verdict:
    """Verdict on the live environment: its files, and what its packages need of each other and of the machine."""
    from cudnn_resolve.execution.environment import ask_environment
    from cudnn_resolve.host.installed_files import verify_files
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.operations.damaged_files import damage_findings, link_findings

    host = LinuxHost()
    facts = gather_facts(recast(StatedOptions, request, facts=None), book)
    environment = ask_environment(host, facts.python.path or host.python)
    report = verify_files(host, environment.packages, foreign=True)
    damages = [damage for damage in report.damages if damage.kind != "foreign"]
    links = tuple(link_findings(host, environment.packages, environment.python, book))
    damaged_files = {os.path.basename(path) for damage in damages for path in damage.paths}
    missing_libraries = {library for _, finding in links for library in _missing_libraries(finding)}
    other_links = (finding for _, finding in links if not _missing_libraries(finding) & damaged_files)
    findings = [
        *_unfinished(environment),
        *_unloaded_cudnn(facts),
        *damage_findings(report.damages, book, missing_libraries),
        *other_links,
        *_unlisted(report),
    ]
    is_damaged = any(finding.severity == "error" for finding in findings)
    broken_packages = {damage.package for damage in damages} | {package for package, finding in links if finding.severity == "error"}
    problems = tuple(problem for problem in facts.problems if not problem.what.startswith("packages.pip."))  # others are in `findings`
    subject, machine = subject_of_facts(facts, environment.prefix), machine_of(facts, book)
    verdict = verdict_on(subject, book, machine, machine_name(facts, None), replace(facts, problems=problems), ranges=request.ranges)
    explained = damaged_files | missing_libraries
    findings += (
        finding for finding in verdict.findings if UNLOADED not in finding.summary or not any(name in finding.summary for name in explained)
    )
    files = f"{report.files} files of {report.packages} packages, by size, and by content if written after their package"
    unread = (f"{report.unread} large files written after their package",) if report.unread else ()
    return replace(
        verdict,
        remedy=tuple(_for_interpreter(request.python, remedy) for remedy in verdict.remedy),
        status="breaks" if is_damaged else verdict.status,
        frameworks=tuple(
            replace(framework, status="breaks") if framework.name in broken_packages else framework for framework in verdict.frameworks
        ),
        findings=tuple(
            replace(finding, remedy=tuple(_for_interpreter(request.python, remedy) for remedy in finding.remedy))
            for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
        ),
        judged=(files, "whether every library finds what it needs", "the cuDNN that each framework loads", *verdict.judged),
        not_judged=(*verdict.not_judged[:-1], "their work on a GPU (`validate`)", *unread),
    )


def _missing_libraries(finding: Finding) -> set[str]:
    """Names of the libraries that a finding of the link check misses."""
    return {evidence.text.removeprefix("needs ") for evidence in finding.evidence}


def _for_interpreter(python: str | None, remedy: Remedy) -> Remedy:
    """Let a command change the environment of the named interpreter instead of the active one."""
    command = remedy.command
    if python is None or command is None or "--python" in command:
        return remedy
    if command.startswith("pip install "):
        return replace(remedy, command=f"{shlex.quote(python)} -m {command}")
    return replace(remedy, command=f"{command} --python {shlex.quote(python)}") if command.startswith("cudnn-resolve ") else remedy


def _unlisted(report: FilesReport) -> Iterator[Finding]:
    """Note on packages without a list of their files."""
    if report.unlisted:
        names = first_few(report.unlisted, 8)
        summary = f"{len(report.unlisted)} packages have no list of their files (RECORD), and cannot be verified: {names}"
        yield Finding(cause="harmless", severity="info", summary=summary, confidence=0.9)


def _unloaded_cudnn(facts: Facts) -> Iterator[Finding]:
    """Finding for a cuDNN in a separate folder that nothing loads, because the file that did is missing."""
    for copy in or_none(facts.cudnn) or ():
        site, is_separate, _ = (copy.path or "").partition(f"/{FOLDER}/")
        missing = [name for name in (f"{MODULE}.py", f"{MODULE}.pth") if is_separate and disk.is_missing(os.path.join(site, name))]
        if missing:
            frameworks = (framework for framework in or_none(facts.frameworks) or () if framework.version)
            words = " ".join(f"-f {shlex.quote(f'{framework.name}=={framework.version}')}" for framework in frameworks)
            yield Finding(
                cause="cudnn_missing",
                severity="error",
                summary=f"cuDNN {copy.version} is in a separate folder, and nothing loads it: {' and '.join(missing)} is missing",
                evidence=(Evidence(source=copy.path or FOLDER, line=None, text=f"no {missing[0]} in {site}"),),
                remedy=(Remedy(text="restore the files", command=f"cudnn-resolve apply {words}".strip()),),
                confidence=0.95,
            )


def _unfinished(environment: Environment) -> Iterator[Finding]:
    """Findings for an interrupted `apply`, and for packages that others have changed since the last one."""
    from cudnn_resolve.execution.journal_store import Journals
    from cudnn_resolve.execution.recover import changed_packages, interrupted, unfinished_of_others

    journals = Journals(environment)
    past = interrupted(journals)
    unknown = unfinished_of_others(environment) if past is None else None
    if unknown is not None:  # `--undo` and `--resume` have no journal here: the mark itself says what is left
        remedies = (Remedy(text=unknown.hint or "make the environment again"),)
        yield _interrupted(unknown.message, unknown.context or environment.prefix, remedies)
    elif past is not None and past.is_of_another:
        summary = "an apply was interrupted, but the environment was made again since: nothing of that apply is left in it"
        remedies = (Remedy(text="`cudnn-resolve apply --force ...` discards that apply and continues"),)
        yield _interrupted(summary, past.folder, remedies, "warning")
    elif past is not None:
        here = f"--python {shlex.quote(environment.python)}"
        undo = Remedy(text="put back what it replaced", command=f"cudnn-resolve apply --undo {here}")
        resume = Remedy(text="or run it again", command=f"cudnn-resolve apply --resume {here}")
        summary = "an apply was interrupted: the environment is neither the old nor the new one"
        yield _interrupted(summary, past.folder, (undo, resume))
    last = next((past for past in reversed(journals.all()) if past.state == "committed"), None)
    changed = changed_packages(last, environment) if last is not None and past is None else ()
    if last is not None and changed:
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"installed or changed by others since apply number {last.id}: {', '.join(changed)}",
            evidence=(Evidence(source="journal", line=None, text=last.folder),),
            confidence=0.9,
        )


def _interrupted(summary: str, place: str, remedies: tuple[Remedy, ...], severity: Literal["error", "warning"] = "error") -> Finding:
    evidence = (Evidence(source="journal", line=None, text=place),)
    return Finding(cause="framework_pkg_mismatch", severity=severity, summary=summary, evidence=evidence, remedy=remedies, confidence=0.99)
