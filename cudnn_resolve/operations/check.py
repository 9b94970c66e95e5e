"""`check`: the verdict on what somebody already has: an environment with its files, or a file that lists packages."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.diagnosis.machine_cudnn import UNLOADED
from cudnn_resolve.diagnosis.model import Comparison, Evidence, Finding, Moved, Remedy, Verdict
from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.assume import fresh_environment
from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.host import disk
from cudnn_resolve.locking.package_list import PartSelection
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.machine_facts import gather_facts, refuse_other_systems
from cudnn_resolve.operations.options import CheckRequest, StatedOptions, option_words
from cudnn_resolve.operations.package_set import Subject, subject_of_facts, subject_of_file, text_of
from cudnn_resolve.operations.question import gather_book
from cudnn_resolve.operations.results import Result
from cudnn_resolve.operations.verdict import machine_name, verdict_on
from cudnn_resolve.planning.preload import MODULE
from cudnn_resolve.requirement.machine import Machine, machine_of

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.host.installed_files import FilesReport


class CheckResult(Struct, Result, frozen=True, kw_only=True):
    """What `check` returns: a verdict for each thing that was named."""

    verdicts: tuple[Verdict, ...]
    strict: bool = False
    """True where what is not known counts as a no."""
    changes: tuple[Comparison, ...] = ()
    """With `diff`: what becomes of each machine; the verdicts are those on the new list."""

    @property
    def is_broken(self) -> bool:
        """True where something breaks, or with `strict` is not known to run."""
        return any(one.status == "breaks" or (self.strict and one.status != "runs") for one in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """The object that `check --format json` prints."""
        from cudnn_resolve.report.document import encode_verdicts

        return encode_verdicts(self.verdicts, self.changes)


def check(request: CheckRequest) -> CheckResult:
    """A verdict on each file that is named, else on the environment: the live one, or that of `--facts`."""
    book = gather_book(request)
    named = bool(request.facts) or request.given is not None
    if not request.what and not named and request.assumptions.elsewhere:
        raise UsageError(
            "a machine is stated, but nothing to judge for it",
            code="usage-contradiction",
            hint="name a lock, a requirements file or a list of packages: `cudnn-resolve check uv.lock ...`",
        )
    if request.diff:
        changes = tuple(_changes(request, book))
        return CheckResult(verdicts=tuple(one.after for one in changes), strict=request.strict, changes=changes)
    verdicts = tuple(_on_packages(request, book)) if request.what or named else (_on_environment(request, book),)
    return CheckResult(verdicts=verdicts, strict=request.strict)


def _on_packages(request: CheckRequest, book: Book) -> Iterator[Verdict]:
    """Verdicts on lists of packages, on the machine that is stated, or on this one."""
    judged: list[tuple[Machine, tuple[Verdict, ...]]] = []  # a fleet has few kinds of machines
    for subjects, machine, where, facts, stated in _asked(request, book):
        known = next((verdicts for other, verdicts in judged if other == machine), None)
        if known is None or facts is not None or any(one.base is not None for one in subjects):
            known = tuple(verdict_on(one, book, machine, where, facts, ranges=request.ranges) for one in subjects)
            judged.append((machine, known))
        else:
            known = tuple(replace(one, machine=where) for one in known)
        yield from (_on_machine(one, stated, subject) for one, subject in zip(known, subjects, strict=True))


def _on_machine(one: Verdict, stated: StatedOptions, subject: Subject) -> Verdict:
    """The verdict with commands that are for the same machine, and for the Python of the file."""
    if subject.base is not None and subject.base.python is not None:
        stated = replace(stated, python_version=subject.base.python)
    names = (name for name in stated.__struct_fields__ if name not in ("python", "given", "ranges", "project_matrix"))
    words = shlex.join(word for pair in option_words(stated, names) for word in pair)

    def of_machine(remedy: Remedy) -> Remedy:
        is_ours = remedy.command is not None and remedy.command.startswith(("cudnn-resolve plan ", "cudnn-resolve lock "))
        return replace(remedy, command=f"{remedy.command} {words}") if is_ours and words else remedy

    return replace(one, remedy=tuple(map(of_machine, one.remedy)))


def _changes(request: CheckRequest, book: Book) -> Iterator[Comparison]:
    """What the step from one list to another does to each machine."""
    if len(request.what) != 2:
        raise UsageError("--diff compares two files", code="usage-contradiction", hint="cudnn-resolve check --diff OLD NEW")
    for (old, new), machine, where, _, stated in _asked(request, book):
        names = sorted(old.packages.keys() | new.packages.keys())
        rows = (Moved(name=name, before=old.packages.get(name), after=new.packages.get(name)) for name in names)
        moved = tuple(one for one in rows if one.before != one.after)
        before, after = (_on_machine(verdict_on(one, book, machine, where), stated, one) for one in (old, new))
        yield Comparison(before=before, after=after, moved=moved)


def _asked(request: CheckRequest, book: Book) -> Iterator[tuple[tuple[Subject, ...], Machine, str, Facts | None, StatedOptions]]:
    """Each machine with what is to be judged on it, what it is called, its facts where its own environment is judged, and its options."""
    if [*request.what, *request.facts].count("-") > 1:
        raise UsageError("standard input can be one thing only", code="usage-contradiction", hint="name a file for the others")
    choice = PartSelection(extras=request.extra, groups=request.group, defaults=not request.no_default_groups)
    texts = {path: text_of(path) for path in request.what}
    known: dict[tuple[object, ...], Subject] = {}
    for one in _machines(request):
        facts = gather_facts(one, book)
        refuse_other_systems(facts)
        where = machine_name(facts, one.facts)
        if not request.what:
            yield (subject_of_facts(facts, one.facts),), machine_of(facts, book), where, facts, one
            continue
        fresh = replace(fresh_environment(facts), python=replace(facts.python, path=None, prefix=None, externally_managed=None))
        machine = machine_of(fresh, book)
        alike = machine.python_full, machine.free_threaded, machine.arch, machine.glibc  # what a list and an installer ask of a machine
        for path in request.what:
            if (path, alike) not in known:
                found = subject_of_file(path, texts[path], book, machine, choice)
                same = next((one for one in known.values() if one.packages == found.packages), found)
                known[path, alike] = replace(found, packages=same.packages)  # what is known of one object's packages is known of all
        yield tuple(known[path, alike] for path in request.what), machine, where, None, one


def _machines(request: CheckRequest) -> Iterator[StatedOptions]:
    """The options of each machine: `--facts` may be said several times, and be a folder with a file for each."""
    for one in request.machines:
        if one.facts is None or not disk.is_folder(one.facts):
            yield one
            continue
        names = sorted(name for name in disk.names_in(one.facts) if not name.startswith("."))
        if not names:
            raise InputError(f"the folder {one.facts} holds no facts", code="facts-empty", hint="a file for each machine")
        for name in names:
            yield replace(one, facts=os.path.join(one.facts, name))


def _on_environment(request: CheckRequest, book: Book) -> Verdict:
    """The verdict on the live environment: its files, and what its packages need of one another and of the machine."""
    from cudnn_resolve.execution.environment import ask_environment
    from cudnn_resolve.host.installed_files import verify_files
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.operations.damage import damage_findings, link_findings

    host = LinuxHost()
    facts = gather_facts(request.machines[0], book)
    environment = ask_environment(host, facts.python.path or host.python)
    report = verify_files(host, environment.packages, foreign=True)
    links = tuple(link_findings(host, environment.packages, environment.python, book))
    broken = {os.path.basename(path) for one in report.damages if one.kind != "foreign" for path in one.paths}
    lacking = {evidence.text.removeprefix("needs ") for _, one in links for evidence in one.evidence}
    alone = (one for _, one in links if not {evidence.text.removeprefix("needs ") for evidence in one.evidence} & broken)
    damages = [*_unfinished(environment), *_not_loaded(facts), *damage_findings(report.damages, book, lacking), *alone, *_unlisted(report)]
    damaged = {one.package for one in report.damages if one.kind != "foreign"} | {name for name, one in links if one.severity == "error"}
    apart = replace(facts, problems=tuple(one for one in facts.problems if not one.what.startswith("packages.pip.")))  # told by `damages`
    subject, machine = subject_of_facts(facts, environment.prefix), machine_of(facts, book)
    found = verdict_on(subject, book, machine, machine_name(facts, None), apart, ranges=request.ranges)
    told = broken | lacking
    findings = (*damages, *(one for one in found.findings if UNLOADED not in one.summary or not any(name in one.summary for name in told)))
    is_torn = any(one.severity == "error" for one in damages)
    unread = (f"{report.unread} large files written after their package",) if report.unread else ()
    judged = f"{report.files} files of {report.packages} packages, by size, and by content where they were written after their package"
    python = request.machines[0].python
    return replace(
        found,
        remedy=tuple(_for(python, one) for one in found.remedy),
        status="breaks" if is_torn else found.status,
        frameworks=tuple(replace(one, status="breaks") if one.name in damaged else one for one in found.frameworks),
        findings=tuple(
            replace(one, remedy=tuple(_for(python, each) for each in one.remedy))
            for one in sorted(findings, key=lambda one: ("error", "warning", "info").index(one.severity))
        ),
        judged=(judged, "whether every library finds what it needs", "the cuDNN that each framework loads", *found.judged),
        not_judged=(*found.not_judged[:-1], "their work on a GPU (`validate`)", *unread),
    )


def _for(python: str | None, remedy: Remedy) -> Remedy:
    """The remedy for the environment of an interpreter, where one is named: its command would change the active one."""
    command = remedy.command
    if python is None or command is None or "--python" in command:
        return remedy
    if command.startswith("pip install "):
        return replace(remedy, command=f"{shlex.quote(python)} -m {command}")
    return replace(remedy, command=f"{command} --python {shlex.quote(python)}") if command.startswith("cudnn-resolve ") else remedy


def _unlisted(report: FilesReport) -> Iterator[Finding]:
    if report.unlisted:
        names = ", ".join(report.unlisted[:8]) + (f" and {len(report.unlisted) - 8} more" if len(report.unlisted) > 8 else "")
        said = f"{len(report.unlisted)} packages have no list of their files (RECORD), so nothing can be said of them: {names}"
        yield Finding(cause="harmless", severity="info", summary=said, confidence=0.9)


def _not_loaded(facts: Facts) -> Iterator[Finding]:
    """A cuDNN in a folder of its own that nothing loads any more: the file that did is gone."""
    for copy in or_none(facts.cudnn) or ():
        site, is_apart, _ = (copy.path or "").partition(f"/{FOLDER}/")
        gone = [name for name in (f"{MODULE}.py", f"{MODULE}.pth") if is_apart and disk.is_missing(os.path.join(site, name))]
        if gone:
            words = " ".join(f"-f {shlex.quote(f'{one.name}=={one.version}')}" for one in or_none(facts.frameworks) or () if one.version)
            yield Finding(
                cause="cudnn_missing",
                severity="error",
                summary=f"cuDNN {copy.version} lies in a folder of its own, and nothing loads it: {' and '.join(gone)} is gone",
                evidence=(Evidence(source=copy.path or FOLDER, line=None, text=f"no {gone[0]} in {site}"),),
                remedy=(Remedy(text="have the files written again", command=f"cudnn-resolve apply {words}".strip()),),
                confidence=0.95,
            )


def _unfinished(environment: Environment) -> Iterator[Finding]:
    """An `apply` that did not come to its end, and packages that others changed since the last one."""
    from cudnn_resolve.execution.journals import Journals
    from cudnn_resolve.execution.payload_recover import is_another
    from cudnn_resolve.execution.recover import changed_packages, interrupted, unfinished_of_others

    journals = Journals(environment)
    torn = interrupted(journals)
    unknown = unfinished_of_others(environment) if torn is None else None
    if unknown is not None:  # nothing that `--undo` or `--resume` could begin with: the mark itself says what is left
        remedy = (Remedy(text=unknown.hint or "make the environment again"),)
        yield _torn(unknown.message, unknown.context or environment.prefix, remedy)
    elif torn is not None and is_another(torn.begin):
        said = "an apply was stopped in the middle of an environment that was made again since: nothing of it has a place here"
        yield _torn(said, torn.folder, (Remedy(text="`cudnn-resolve apply --force ...` forgets that apply and goes on"),), "warning")
    elif torn is not None:
        here = f"--python {shlex.quote(environment.python)}"
        undo = Remedy(text="put back what it replaced", command=f"cudnn-resolve apply --undo {here}")
        again = Remedy(text="or do it again", command=f"cudnn-resolve apply --resume {here}")
        said = "an apply was stopped in the middle: the environment is neither the old nor the new one"
        yield _torn(said, torn.folder, (undo, again))
    last = next((one for one in reversed(journals.all()) if one.state == "committed"), None)
    changed = changed_packages(last, environment) if last is not None and torn is None else ()
    if last is not None and changed:
        yield Finding(
            cause="harmless",
            severity="info",
            summary=f"installed or changed by others since apply number {last.id}: {', '.join(changed)}",
            evidence=(Evidence(source="journal", line=None, text=last.folder),),
            confidence=0.9,
        )


def _torn(said: str, place: str, remedy: tuple[Remedy, ...], severity: Literal["error", "warning"] = "error") -> Finding:
    evidence = (Evidence(source="journal", line=None, text=place),)
    return Finding(cause="framework_pkg_mismatch", severity=severity, summary=said, evidence=evidence, remedy=remedy, confidence=0.99)
