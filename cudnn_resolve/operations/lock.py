"""`lock`: resolve a request on every platform and merge the answers into one lock; or check an existing lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.tags import platform_tags
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import ContradictionError, InputError
from cudnn_resolve.facts.assume import fresh_environment
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import folder_of, write_atomic
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.listener import SILENT, Listener, SearchProgress
from cudnn_resolve.locking.change import Change, changes, keep_records
from cudnn_resolve.locking.fits_machine import machine_differences
from cudnn_resolve.locking.merge import Answer, incomplete_files, merge, with_file_details
from cudnn_resolve.locking.model import Difference, Lock
from cudnn_resolve.locking.pep751 import require_pylock
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.select import installed_packages
from cudnn_resolve.locking.stack import stack_of
from cudnn_resolve.locking.up_to_date import request_differences, resolution_differences
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.lock_file import lock_text
from cudnn_resolve.operations.lock_settings import locked_request, settings_from, with_lock_settings
from cudnn_resolve.operations.machine_facts import gather_facts
from cudnn_resolve.operations.options import LOCK, LockRequest, Options
from cudnn_resolve.operations.plan import PlannedTargets, PlanResult, ranges_of, verdict_of_lock
from cudnn_resolve.operations.question import Question, gather_book, gather_question
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.operations.settings import with_settings
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Range
from cudnn_resolve.resolution.open_request import open_request
from cudnn_resolve.resolution.resolve import resolve_together

_LOCK_WARNINGS = frozenset(
    {"advisory", "cuda-majors", "cudnn-majors", "driver-policy", "extra-not-installable", "from-source", "known-in-part", "left-out"}
    | {"overlay", "same-build", "older-repository", "older-toolkit", "requirements-guessed", "several-indexes"}
)
"""Warnings of a plan that apply to a lock; the others are about the environment or unknown facts of the machine."""


class _Answers(Struct, frozen=True, kw_only=True):
    """The answers for all platforms."""

    question: Question
    """For the first platform."""
    answers: tuple[Answer, ...]
    warnings: tuple[str, ...]


class LockResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `lock`: the lock, or the plan with the conflict."""

    path: str
    """`-` if nothing was written."""
    lock: Lock | None = None
    text: str = ""
    changes: tuple[Change, ...] = ()
    """Changes to the old lock."""
    warnings: tuple[str, ...] = ()
    plan: PlanResult | None = None
    """Contains the conflict if there is no lock."""
    old: Lock | None = None
    """The previous lock."""
    old_text: str | None = None
    ranges: tuple[Range, ...] = ()
    """Versions that each party allows on the first platform, if requested."""

    @property
    def is_new(self) -> bool:
        """True if the file did not have this content yet."""
        return self.lock is not None and self.path != "-" and self.text != self.old_text

    @property
    def status(self) -> Literal["ok", "unsatisfiable"]:
        """`unsatisfiable` for a conflict."""
        return "ok" if self.lock is not None else "unsatisfiable"

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `lock --format json`."""
        from cudnn_resolve.report.document import LockDocument, document, encode_lock

        if self.plan is not None:
            more = {"targets": self.plan.targets, "conflict": self.plan.conflict, "ranges": self.ranges}
            return document(LockDocument, None, status=self.status, path=None, **more)
        assert self.lock is not None
        place = {"path": None, "text": self.text} if self.path == "-" else {"path": self.path}
        return encode_lock(self.lock, changes=self.changes, warnings=self.warnings, ranges=self.ranges, **place)


class LockCheckResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `lock(check=True)`: everything that is wrong with the lock."""

    lock: Lock
    differences: tuple[Difference, ...] = ()
    overlays: tuple[str, ...] = ()
    """Remarks on tables that override the shipped ones."""

    @property
    def status(self) -> Literal["current", "outdated"]:
        """`outdated` if there is any difference."""
        return "outdated" if self.differences else "current"

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `lock --check --format json`."""
        from cudnn_resolve.report.document import encode_check

        return encode_check(self.lock, self.differences, self.overlays)


def make_lock(request: LockRequest, listener: Listener = SILENT, machines: Sequence[Facts] = ()) -> LockResult:
    """Resolve for every platform and write the lock; there is none if there is no resolution.

    `machines`, one for each platform, replace those that the request describes.
    """
    _refuse_contradictions(request)
    path = request.output or LOCK
    old_text = None if path == "-" else _read_text(path)
    old = read(old_text, path) if old_text is not None else None
    options = with_lock_settings(request, settings_from(old, path, request) if old is not None else None)
    if old is not None:
        for note in old.notes:
            listener.note(note)
        if old.tool is None:
            listener.note(f"{path} was written by {old.file.created_by}; its pins are kept where possible")
    upgraded = frozenset() if request.upgrade else _upgraded_packages(request, old, listener)
    answers = _resolve_platforms(options, None if request.upgrade else old, upgraded, listener, machines)
    if isinstance(answers, PlannedTargets):
        ranges = ranges_of(answers.question, answers.outcome)
        return LockResult(path=path, plan=recast(PlanResult, answers.plan, ranges=ranges), ranges=ranges)
    result = _merged(answers, options, old, path)
    result = replace(result, old_text=old_text, ranges=ranges_of(answers.question, answers.answers[0].resolution))
    for note in answers.question.source.notes:
        listener.note(f"note: {note}")
    if result.is_new:
        write_atomic(path, result.text)
    return result


def check_lock(request: LockRequest, listener: Listener) -> LockCheckResult:
    """Compare the existing lock with its request, the tables and the machines."""
    _refuse_contradictions(request)
    path = request.output or LOCK
    lock = _existing(path)
    book, machines = _machines(request)
    differences: list[Difference] = []
    options = _on_locked_platforms(request, lock, path)
    answers = _resolve_platforms(options, lock, frozenset(), listener)
    if isinstance(answers, PlannedTargets):
        assert answers.plan.conflict is not None
        conflict = answers.plan.conflict
        because = "; ".join(f"{cause.what}: {cause.because}" for cause in conflict.causes) or None
        differences.append(Difference(what="resolution", locked=f"{len(lock.packages)} packages", now=conflict.message, because=because))
    else:
        question = answers.question
        if lock.tool is not None:
            differences += request_differences(lock.tool.request, locked_request(options, question.request, folder_of(path)))
        differences += resolution_differences(lock, answers.answers, question.source)
    for facts in machines:
        differences += (misfit for misfit in machine_differences(lock, facts, book) if misfit not in differences)
        if lock.tool is None:
            differences = [*(fault for fault in _broken_by_foreign_lock(path, facts, book) if fault not in differences), *differences]
    return LockCheckResult(lock=lock, differences=tuple(differences), overlays=book.remarks)


def _broken_by_foreign_lock(path: str, facts: Facts, book: Book) -> Iterator[Difference]:
    """Errors in the verdict on a lock of another tool."""
    verdict = verdict_of_lock(path, _read_text(path) or "", facts, book)
    broken = [f"{framework.name} {framework.version}" for framework in verdict.frameworks if framework.status == "breaks"]
    what = f"verdict on {', '.join(broken) or 'the lock'}"
    for finding in verdict.findings:
        if finding.severity == "error":
            because = finding.evidence[0].text if finding.evidence else None
            yield Difference(what=what, locked="breaks", now=finding.summary, because=because)


_TARGETS = ("framework", "packages", "requirement", "constraint", "group", "cuda", "cudnn")
"""Settings that say what is requested."""


def plan_behind_lock(path: str, request: Options, listener: Listener) -> PlannedTargets:
    """The resolution behind the pins of a lock, for a machine like this one, with a plan without actions."""
    lock = _existing(path)
    lock_request = recast(LockRequest, request, allow_break=(), reinstall_package=())
    stored = settings_from(lock, path, lock_request)  # the request of the lock, whatever the project's settings ask for today
    lock_request = with_settings(lock_request, {name: value for name, value in stored.items() if name in _TARGETS})
    answers = _resolve_platforms(_on_locked_platforms(lock_request, lock, path), lock, frozenset(), listener)
    if isinstance(answers, PlannedTargets):
        return answers
    here = next(iter(platform_tags()), "")
    resolutions = [answer.resolution for answer in answers.answers]
    resolution = next((candidate for candidate in resolutions if here.endswith(candidate.machine.arch)), resolutions[0])
    for package in lock.packages:
        pin = next((pin for pin in resolution.pip if pin.name == package.name), None)
        if pin is not None and package.version is not None and pin.version not in (None, str(package.version)):
            locked = f"{path} holds {package.name} {package.version}"
            listener.note(f"note: {locked}; the reasons are for {pin.version}, which an updated lock would hold")
    targets = tuple(target.text for target in resolution.request.targets)
    plan = Plan(targets=targets, facts=answers.question.facts)
    return PlannedTargets(plan=plan, question=answers.question, outcome=resolution)


def _refuse_contradictions(request: LockRequest) -> None:
    """Reject options that exclude each other; raises WorldError if locks cannot be read or written here."""
    if request.check and (request.upgrade or request.upgrade_package):
        raise ContradictionError("--check changes nothing, but --upgrade asks for changes")
    if request.no_facts and not request.check:
        hint = "to lock for another machine, say --platform and --python-version"
        raise ContradictionError("--no-facts needs --check", hint=hint)
    if request.no_facts and (request.facts or request.python):
        raise ContradictionError("--no-facts cannot be combined with --facts or --python", hint=None)
    if request.check and request.output == "-":
        raise ContradictionError("--check reads the lock from a file", hint=f"name it: -o FILE, default {LOCK}")
    for word in request.packages:
        if word.endswith((".lock", ".toml")):
            _refuse_lock_file(word)
    require_pylock()


def _refuse_lock_file(word: str) -> None:
    """Reject a requirement that names a lock file; raises InputError or ContradictionError."""
    from cudnn_resolve.package_lists.read_list import kind_of, not_a_pylock

    text = _read_text(word) if disk.is_regular(word) else None
    if text is None:
        return
    if refusal := not_a_pylock(text, word):
        raise refusal
    if kind_of(text) is not None:
        raise ContradictionError(f"{word} is a lock, not a requirement", hint=f"name it after -o: -o {word}")


def _read_text(path: str) -> str | None:
    """Text of the lock; None without one."""
    try:
        return lock_text(path)
    except InputError as error:
        if error.code == "input-missing":
            return None
        raise


def _existing(path: str) -> Lock:
    """The lock at `path`; InputError without one."""
    text = _read_text(path)
    if text is None:
        raise InputError(f"there is no lock {path}", code="lock-missing", hint="`cudnn-resolve lock` writes one")
    return read(text, path)


def _upgraded_packages(request: LockRequest, old: Lock | None, listener: Listener) -> frozenset[str]:
    """The packages of `--upgrade-package`; notes those that are not in the lock."""
    names = frozenset(str(canonicalize_name(name)) for name in request.upgrade_package)
    known = {package.name for package in old.packages} if old is not None else set()
    for name in sorted(names - known):
        listener.note(f"{name} is not in the lock: there is no pin to upgrade")
    return names


def _merged(answers: _Answers, options: LockRequest, old: Lock | None, path: str) -> LockResult:
    """Merge the answers into a lock, with what is still valid of the old one."""
    question = answers.question
    base = folder_of("." if path == "-" else path, is_folder=path == "-")
    completed_answers = _completed(answers.answers, old, question.source)
    matrix = "+".join(layer.version() for layer in question.book.layers)
    lock = merge(completed_answers, request=locked_request(options, question.request, base), matrix=matrix, base=base)
    lock = keep_records(lock, old)
    preload_note = lock.tool.preload_note if lock.tool is not None else None  # installers of the lock cannot set up the preload
    warnings = answers.warnings if preload_note is None else (*answers.warnings, preload_note)
    return LockResult(path=path, lock=lock, text=write(lock), old=old, changes=changes(old, lock), warnings=warnings)


def _completed(answers: Sequence[Answer], old: Lock | None, source: IndexClient) -> Sequence[Answer]:
    """Add sizes and hashes that the index did not list: from the old lock, else by requesting the files."""
    known, lacking = incomplete_files(answers, old)
    if lacking:
        known.update(zip((file.url for file in lacking), source.completed(lacking), strict=True))
    return with_file_details(answers, known)


def _on_locked_platforms(request: LockRequest, lock: Lock, path: str) -> LockRequest:
    """The present request, for the platforms and the Python of an existing lock."""
    settings = settings_from(lock, path, request)
    if lock.tool is None:
        return with_lock_settings(request, settings)
    settings["python-version"] = lock.tool.python
    settings.setdefault("platforms", [stack.platform for stack in lock.tool.stacks])
    unset = dict.fromkeys(("machine", "driver", "python_version", "glibc", "os", "facts", "python", "platform", "given"))
    return with_lock_settings(replace(request, gpu=(), platforms=(), **unset), settings)


def _machines(request: LockRequest) -> tuple[Book, tuple[Facts, ...]]:
    """The tables, and the machines that a lock must fit: with `no_facts` none, unless facts are stated."""
    options = with_lock_settings(request, None)
    book = gather_book(options)
    stated = options.assumptions
    if options.no_facts and not (stated.elsewhere or stated.driver or stated.gpus or stated.glibc or stated.os):
        return book, ()
    if options.no_facts:
        options = replace(options, given=Facts())
    return book, tuple(gather_facts(platform_options, book) for platform_options in _by_platform(options))


def _by_platform(options: LockRequest, machines: Sequence[Facts] = ()) -> list[LockRequest]:
    """The options for each platform, or for each of the machines."""
    if machines:
        return [replace(options, given=facts, platform=None, platforms=()) for facts in machines]
    return [replace(options, platform=platform) for platform in options.platforms or (options.platform,)]


def _resolve_platforms(
    options: LockRequest, old: Lock | None, upgraded: frozenset[str], listener: Listener, machines: Sequence[Facts] = ()
) -> _Answers | PlannedTargets:
    """Resolve for each platform, or return the conflict; pins of the old lock are preferred, except those `upgraded`."""
    first_options, *other_options = _by_platform(options, machines)
    first = gather_question(first_options, fresh=True, verb="lock", listener=listener)
    context = first.request.context
    if len(options.platforms) > 1:
        platforms = (("--platform", name) for name in options.platforms)
        context = (*(pair for pair in context if pair[0] != "--platform"), *platforms)
    if options.output is not None:
        context = (*context, ("--output", options.output))
    first = replace(first, request=replace(first.request, context=context))
    others = (_on_other_platform(first, other) for other in other_options)
    questions = [_for_lock(question, old, upgraded) for question in (first, *others)]
    progress = SearchProgress(listener)
    requests = [(question.machine, open_request(question.request, first.source, progress)) for question in questions]
    outcome = resolve_together(first.book, requests)
    if isinstance(outcome, tuple):
        number, conflict = outcome
        plan = make_plan(questions[number].facts, conflict, first.book, first.source)
        return PlannedTargets(plan=plan, question=first, outcome=conflict)
    answers, warnings = [], dict[str, None]()
    for resolution, question in zip(outcome, questions, strict=True):
        plan = make_plan(fresh_environment(question.facts), resolution, question.book, question.source)
        answers.append(Answer(resolution=resolution, stack=stack_of(resolution, plan.environment, question.book)))
        warnings.update((warning.message, None) for warning in plan.warnings if warning.code in _LOCK_WARNINGS)
    return _Answers(question=first, answers=tuple(answers), warnings=tuple(warnings))


def _on_other_platform(question: Question, options: LockRequest) -> Question:
    """The same question for another platform."""
    facts = gather_facts(options, question.book)
    return replace(question, facts=facts, machine=replace(machine_of(facts, question.book), pip={}, requires={}))


def _for_lock(question: Question, old: Lock | None, upgraded: frozenset[str]) -> Question:
    """The question for a system without CUDA libraries or packages, preferring the pins of the old lock."""
    machine, request = replace(question.machine, toolkits=(), cudnn=(), apt={}), question.request
    if machine.python is not None:  # a lock is for every patch release of its Python
        machine = replace(machine, python_full=f"{machine.python[0]}.{machine.python[1]}")
    if old is not None:
        pinned = (package for name, package in installed_packages(old, machine).items() if name not in upgraded)
        preferences = {package.name: str(package.version) for package in pinned if package.version is not None}
        request = replace(request, preferences=preferences)
    return replace(question, machine=machine, request=request)
