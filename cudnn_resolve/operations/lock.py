"""`lock`: the request on every platform, resolved and merged into one lock; or a lock held against the present."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from packaging.tags import platform_tags
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.assume import fresh_environment
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.host import disk
from cudnn_resolve.host.files import folder_of, read_bounded, write_atomic
from cudnn_resolve.index.client import IndexClient
from cudnn_resolve.locking.change import Change, changes, keep_records
from cudnn_resolve.locking.check import request_differences, resolution_differences
from cudnn_resolve.locking.foreign import kind_of, not_a_pylock
from cudnn_resolve.locking.merge import Answer, incomplete_files, merge, with_file_details
from cudnn_resolve.locking.model import Difference, Lock
from cudnn_resolve.locking.pep751 import require_pylock
from cudnn_resolve.locking.read_pylock import LIMIT_BYTES, read
from cudnn_resolve.locking.select import applies, machine_differences
from cudnn_resolve.locking.stack import stack_of
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.gather import Question, gather_book, gather_facts, gather_question
from cudnn_resolve.operations.listener import SILENT, Listener, SearchProgress
from cudnn_resolve.operations.lock_memory import asked_of, remembered, with_memory
from cudnn_resolve.operations.options import LOCK, LockRequest, Options
from cudnn_resolve.operations.plan import Answered, PlanResult, ranges_of, verdict_of_lock
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.operations.settings import with_settings
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.resolution.model import Conflict, Range, Resolution
from cudnn_resolve.resolution.open_request import opened
from cudnn_resolve.resolution.resolve import resolve_together

TOLD = frozenset(
    {"advisory", "cuda-majors", "cudnn-majors", "driver-policy", "extra-not-installable", "from-source", "known-in-part", "left-out"}
    | {"overlay", "same-build", "older-repository", "older-toolkit", "requirements-guessed", "several-indexes"}
)
"""Warnings of a plan that hold for a lock, too; the others speak of the environment or of what is not known of the machine."""


class _Answers(Struct, frozen=True, kw_only=True):
    """The answers for all platforms, or the plan that says why there is none for one."""

    question: Question
    """That of the first platform."""
    answers: tuple[Answer, ...] = ()
    warnings: tuple[str, ...] = ()
    """What should be known of the answers, in words."""
    conflict: Plan | None = None
    outcome: Conflict | None = None


class LockResult(Struct, Result, frozen=True, kw_only=True):
    """What `lock` returns: the lock that was made, or the plan with the conflict."""

    path: str
    """`-` where none was written."""
    lock: Lock | None = None
    text: str = ""
    changes: tuple[Change, ...] = ()
    """Against the lock that was there."""
    warnings: tuple[str, ...] = ()
    plan: PlanResult | None = None
    """With the conflict, where there is no lock."""
    old: Lock | None = None
    """The lock that was there."""
    old_text: str | None = None
    ranges: tuple[Range, ...] = ()
    """Where they are asked for: the versions that each party allows, on the first platform."""

    @property
    def is_new(self) -> bool:
        """True where the file did not hold it yet."""
        return self.lock is not None and self.path != "-" and self.text != self.old_text

    @property
    def status(self) -> Literal["ok", "unsatisfiable"]:
        """`unsatisfiable` where there is a conflict."""
        return "ok" if self.lock is not None else "unsatisfiable"

    def to_json(self) -> dict[str, Any]:
        """The object that `lock --format json` prints."""
        from cudnn_resolve.report.document import LockDocument, document, encode_lock

        if self.plan is not None:
            more = {"targets": self.plan.targets, "conflict": self.plan.conflict, "ranges": self.ranges}
            return document(LockDocument, None, status=self.status, path=None, **more)
        assert self.lock is not None
        place = {"path": None, "text": self.text} if self.path == "-" else {"path": self.path}
        return encode_lock(self.lock, changes=self.changes, warnings=self.warnings, ranges=self.ranges, **place)


class LockCheckResult(Struct, Result, frozen=True, kw_only=True):
    """What `lock(check=True)` returns: every way in which the lock is not what it should be."""

    lock: Lock
    differences: tuple[Difference, ...] = ()
    overlays: tuple[str, ...] = ()
    """Tables that lie over the shipped ones, in words."""

    @property
    def status(self) -> Literal["current", "outdated"]:
        """`outdated` where there is a difference."""
        return "outdated" if self.differences else "current"

    def to_json(self) -> dict[str, Any]:
        """The object that `lock --check --format json` prints."""
        from cudnn_resolve.report.document import encode_check

        return encode_check(self.lock, self.differences, self.overlays)


def make_lock(request: LockRequest, listener: Listener = SILENT, machines: Sequence[Facts] = ()) -> LockResult:
    """Resolve for every platform and write the lock; without one where there is no resolution.

    `machines`: one of each platform, in the place of those that the request describes.
    """
    _refuse_contradictions(request)
    path = request.output or LOCK
    old_text = None if path == "-" else _read_text(path)
    old = read(old_text, path) if old_text is not None else None
    options = with_memory(request, remembered(old, path, request) if old is not None else None)
    if old is not None:
        for note in old.notes:
            listener.note(note)
        if old.tool is None:
            listener.note(f"{path} was written by {old.file.created_by}; its pins are kept where they can be")
    upgraded = frozenset() if request.upgrade else _names(request, old, listener)
    found = _answers(options, None if request.upgrade else old, upgraded, listener, machines)
    if found.conflict is not None:
        assert found.outcome is not None
        ranges = ranges_of(found.question, found.outcome) if request.ranges else ()
        return LockResult(path=path, plan=recast(PlanResult, found.conflict, ranges=ranges), ranges=ranges)
    made = _merged(found, options, old, path)
    if request.ranges and found.answers:
        made = replace(made, ranges=ranges_of(found.question, found.answers[0].resolution))
    for note in found.question.source.notes:
        listener.note(f"note: {note}")
    if made.is_new:
        write_atomic(path, made.text)
    return replace(made, old_text=old_text)


def check_lock(request: LockRequest, listener: Listener = SILENT) -> LockCheckResult:
    """The lock that is there, and every way in which it is not what it should be."""
    _refuse_contradictions(request)
    path = request.output or LOCK
    lock = _existing(path)
    book, facts = _machines(request)
    found: list[Difference] = []
    options = _only_platforms(request, lock, path)
    answers = _answers(options, lock, frozenset(), listener)
    if answers.conflict is not None and answers.conflict.conflict is not None:
        conflict = answers.conflict.conflict
        because = "; ".join(f"{one.what}: {one.because}" for one in conflict.causes)
        found.append(Difference(what="resolution", locked=f"{len(lock.packages)} packages", now=conflict.message, because=because or None))
    else:
        question = answers.question
        if lock.tool is not None:
            found += request_differences(lock.tool.request, asked_of(options, question.request, folder_of(path)))
        found += resolution_differences(lock, answers.answers, question.source)
    for one in facts:
        found += (difference for difference in machine_differences(lock, one, book) if difference not in found)
        if lock.tool is None:
            found = [*(difference for difference in _broken(path, one, book) if difference not in found), *found]
    return LockCheckResult(lock=lock, differences=tuple(found), overlays=book.remarks)


def _broken(path: str, facts: Facts, book: Book) -> Iterator[Difference]:
    """What `check` says breaks with a lock that another tool made."""
    verdict = verdict_of_lock(path, _read_text(path) or "", facts, book)
    broken = ", ".join(f"{one.name} {one.version}" for one in verdict.frameworks if one.status == "breaks") or "the lock"
    for one in verdict.findings:
        if one.severity == "error":
            because = one.evidence[0].text if one.evidence else None
            yield Difference(what=f"verdict on {broken}", locked="breaks", now=one.summary, because=because)


_TARGETS = ("framework", "packages", "requirement", "constraint", "group", "cuda", "cudnn")
"""Settings that say what is asked for."""


def plan_behind(path: str, request: Options, listener: Listener = SILENT) -> Answered:
    """What leads to the pins of a lock for a machine like this one: the resolution, in a plan without actions."""
    lock = _existing(path)
    asked = recast(LockRequest, request, allow_break=(), reinstall_package=())
    old = remembered(lock, path, asked)  # what the lock was made for, whatever the project's settings ask for by now
    asked = with_settings(asked, {name: value for name, value in old.items() if name in _TARGETS})
    found = _answers(_only_platforms(asked, lock, path), lock, frozenset(), listener)
    if found.conflict is not None:
        assert found.outcome is not None
        return Answered(plan=found.conflict, question=found.question, outcome=found.outcome)
    here = next(iter(platform_tags()), "")
    answer = next((one for one in found.answers if here.endswith(one.resolution.machine.arch)), found.answers[0])
    targets = tuple(target.text for target in answer.resolution.request.targets)
    plan = Plan(targets=targets, facts=found.question.facts)
    for one in lock.packages:
        pin = next((pin for pin in answer.resolution.pip if pin.name == one.name), None)
        if pin is not None and one.version is not None and pin.version not in (None, str(one.version)):
            listener.note(f"note: {path} holds {one.name} {one.version}; renewed it would hold {pin.version}, of which this tells")
    return Answered(plan=plan, question=found.question, outcome=answer.resolution)


def _refuse_contradictions(request: LockRequest) -> None:
    """UsageError for options that contradict each other; WorldError where no lock can be read or written here."""
    if request.check and (request.upgrade or request.upgrade_package):
        raise UsageError(
            "--check changes nothing, and --upgrade asks for changes", code="usage-contradiction", hint="leave one of them out"
        )
    if request.no_facts and not request.check:
        hint = "to lock for another machine say --platform and --python-version"
        raise UsageError("--no-facts belongs to --check", code="usage-contradiction", hint=hint)
    if request.no_facts and (request.facts or request.python):
        raise UsageError("--no-facts and --facts or --python contradict each other", code="usage-contradiction")
    if request.check and request.output == "-":
        raise UsageError("--check reads the lock from a file", code="usage-contradiction", hint=f"name it: -o FILE, default {LOCK}")
    for word in request.packages:
        if word.endswith((".lock", ".toml")):
            _refuse_lock(word)
    require_pylock()


def _refuse_lock(word: str) -> None:
    """InputError or UsageError where a requirement is the name of a lock."""
    text = _read_text(word) if disk.is_regular(word) else None
    if text is None:
        return
    if refusal := not_a_pylock(text, word):
        raise refusal
    if kind_of(text) is not None:
        raise UsageError(f"{word} is a lock, and no requirement", code="usage-contradiction", hint=f"name it after -o: -o {word}")


def _read_text(path: str) -> str | None:
    """The text of the lock; None where there is none."""
    try:
        return read_bounded(path, LIMIT_BYTES, "lock")
    except InputError as error:
        if error.code == "input-missing":
            return None
        raise


def _existing(path: str) -> Lock:
    """The lock at `path`; InputError where there is none."""
    text = _read_text(path)
    if text is None:
        raise InputError(f"there is no lock {path}", code="lock-missing", hint="`cudnn-resolve lock` writes one")
    return read(text, path)


def _names(request: LockRequest, old: Lock | None, listener: Listener) -> frozenset[str]:
    """The packages of `--upgrade-package`; one that the lock does not have is said."""
    names = frozenset(str(canonicalize_name(one)) for one in request.upgrade_package)
    known = {one.name for one in old.packages} if old is not None else set()
    for name in sorted(names - known):
        listener.note(f"{name} is not in the lock: there is no pin of it to leave")
    return names


def _merged(found: _Answers, options: LockRequest, old: Lock | None, path: str) -> LockResult:
    """The lock of the answers, with what is still known from the old one."""
    question = found.question
    base = folder_of("." if path == "-" else path, is_folder=path == "-")
    answers = _completed(found.answers, old, question.source)
    matrix = "+".join(layer.version() for layer in question.book.layers)
    made = merge(answers, request=asked_of(options, question.request, base), matrix=matrix, base=base)
    made = keep_records(made, old)
    unable = made.tool.preload_note if made.tool is not None else None  # what an installer of the lock cannot do
    warnings = found.warnings if unable is None else (*found.warnings, unable)
    return LockResult(path=path, lock=made, text=write(made), old=old, changes=changes(old, made), warnings=warnings)


def _completed(answers: Sequence[Answer], old: Lock | None, source: IndexClient) -> Sequence[Answer]:
    """The answers with sizes and hashes that the index did not give: from the old lock, and where it can be asked for them."""
    known, lacking = incomplete_files(answers, old)
    if lacking:
        known.update(zip((one.url for one in lacking), source.completed(lacking), strict=True))
    return with_file_details(answers, known)


def _only_platforms(request: LockRequest, lock: Lock, path: str) -> LockRequest:
    """What a lock is asked when it is checked: the present request, on the platforms and the Python that it is for."""
    below = remembered(lock, path, request)
    if lock.tool is None:
        return with_memory(request, below)
    below["python-version"] = lock.tool.python
    below.setdefault("platforms", [one.platform for one in lock.tool.stacks])
    nothing = dict.fromkeys(("machine", "driver", "python_version", "glibc", "os", "facts", "python", "platform", "given"))
    return with_memory(replace(request, gpu=(), platforms=(), **nothing), below)


def _machines(request: LockRequest) -> tuple[Book, tuple[Facts, ...]]:
    """The tables, and the facts of each machine that a lock is held against: none with `no_facts`, unless some are stated."""
    options = with_memory(request, None)
    book = gather_book(options)
    stated = options.assumptions
    if options.no_facts and not (stated.elsewhere or stated.driver or stated.gpus or stated.glibc or stated.os):
        return book, ()
    if options.no_facts:
        options = replace(options, given=Facts())
    return book, tuple(gather_facts(one, book) for one in _each(options))


def _each(options: LockRequest, machines: Sequence[Facts] = ()) -> list[LockRequest]:
    """The options for each platform, or for each of the machines."""
    if machines:
        return [replace(options, given=one, platform=None, platforms=()) for one in machines]
    return [replace(options, platform=one) for one in options.platforms or (options.platform,)]


def _answers(
    options: LockRequest, old: Lock | None, upgraded: frozenset[str], listener: Listener, machines: Sequence[Facts] = ()
) -> _Answers:
    """The answer for each platform; the pins of the old lock are tried first, but for those `upgraded`."""
    one, *others = _each(options, machines)
    first = gather_question(one, fresh=True, verb="lock", listener=listener)
    context = first.request.context
    if len(options.platforms) > 1:
        context = (*(pair for pair in context if pair[0] != "--platform"), *(("--platform", name) for name in options.platforms))
    if options.output is not None:
        context = (*context, ("--output", options.output))
    first = replace(first, request=replace(first.request, context=context))
    questions = [_fresh(each, old, upgraded) for each in (first, *(_elsewhere(first, other) for other in others))]
    source = first.source
    tell = SearchProgress(listener)
    found = resolve_together(first.book, [(each.machine, opened(each.request, source, tell)) for each in questions])
    if isinstance(found, tuple):
        number, conflict = found
        return _Answers(question=first, conflict=make_plan(questions[number].facts, conflict, first.book, source), outcome=conflict)
    answers = [_answer(resolution, question) for resolution, question in zip(found, questions, strict=True)]
    told = dict.fromkeys(text for _, texts in answers for text in texts)
    return _Answers(question=first, answers=tuple(answer for answer, _ in answers), warnings=tuple(told))


def _elsewhere(question: Question, options: LockRequest) -> Question:
    """The same question for another platform."""
    facts = gather_facts(options, question.book)
    return replace(question, facts=facts, machine=replace(machine_of(facts, question.book), pip={}, requires={}))


def _fresh(question: Question, old: Lock | None, upgraded: frozenset[str]) -> Question:
    """The question for an empty environment on a system without libraries, the pins of the old lock preferred."""
    machine, request = replace(question.machine, toolkits=(), cudnn=(), apt={}), question.request
    if machine.python is not None:  # a lock is for every patch release of its Python
        machine = replace(machine, python_full=f"{machine.python[0]}.{machine.python[1]}")
    if old is not None:
        entries = (one for one in old.packages if one.version is not None and one.name not in upgraded)
        request = replace(request, preferences={one.name: str(one.version) for one in entries if applies(one.marker, old, machine)})
    return replace(question, machine=machine, request=request)


def _answer(resolution: Resolution, question: Question) -> tuple[Answer, list[str]]:
    """The answer for one platform, and what should be known of it."""
    plan = make_plan(fresh_environment(question.facts), resolution, question.book, question.source)
    answer = Answer(resolution=resolution, stack=stack_of(resolution, plan.environment, question.book))
    return answer, [one.message for one in plan.warnings if one.code in TOLD]
