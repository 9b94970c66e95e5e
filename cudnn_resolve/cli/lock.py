"""`cudnn-resolve lock`: the resolution as a `pylock.toml` that pip and uv install; with `--check`, whether it still is the right one."""

from __future__ import annotations

import argparse
import os.path
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.cli.lock_question import Sitting, answers_of, asked_of, fit_facts, locked_settings, only_platform, sitting_of
from cudnn_resolve.cli.options import Options, add_common_options
from cudnn_resolve.cli.printing import emit, say, style_of, width_of
from cudnn_resolve.errors import ExitCode, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudnn_resolve.index.client import IndexClient
    from cudnn_resolve.locking.change import Change
    from cudnn_resolve.locking.difference import Difference
    from cudnn_resolve.locking.merge import Answer
    from cudnn_resolve.locking.model import Lock
    from cudnn_resolve.planning.model import Plan

FILE = "pylock.toml"
"""Where a lock is, unless `-o` says otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lock`."""
    add_common_options(parser, ("text", "json"), platforms=True)
    group = parser.add_argument_group("the lock", f"It is {FILE}, or the file of -o; `-o -` prints it and reads none.")
    group.add_argument("--check", action="store_true", help="write nothing; say whether the lock is still right, and fits this machine")
    group.add_argument("--no-facts", action="store_true", help="with --check: nothing of this machine counts, as in a CI job")
    group.add_argument("-U", "--upgrade", action="store_true", help="leave no pin of the lock as it is; without it, all that can stay do")
    group.add_argument("-P", "--upgrade-package", metavar="NAME", action="append", help="upgrade this package only; repeatable")
    parser.epilog = (
        "What is not said is taken from [tool.cudnn-resolve] of pyproject.toml, then from the lock that is there. Exit code 0: the lock is "
        "written, or current; 1: there is no resolution, or the lock is outdated; 2: the request or the lock cannot be read; 3: no index "
        "answers, or a package has no hash."
    )


def run(args: argparse.Namespace) -> int:
    """Write the lock, or with `--check` hold the one that is there against the present."""
    refuse_contradictions(args)
    if args.check:
        lock, found = check_of(args)
        options = sitting_of(args, None).options
        emit(_render_check(lock, found, options), replace(options, output=None))
        return ExitCode.NO if found else ExitCode.OK
    made = lock_of(args)
    options = replace(made.options, output=None)
    if made.lock is None:
        emit(_render_conflict(made, options), options)
        return ExitCode.NO
    _write(made)
    if made.path == "-":
        emit(made.text, options)
    elif options.format == "json":
        emit(_json(encode(made)), options)
    return ExitCode.OK


def answer(args: argparse.Namespace) -> dict[str, Any]:
    """The object that `--format json` prints; the lock is written."""
    from cudnn_resolve.report.lock_json import encode_check

    refuse_contradictions(args)
    if args.check:
        return encode_check(*check_of(args))
    made = lock_of(args)
    if made.lock is not None:
        _write(made)
    return encode(made)


class Made(Struct, frozen=True, kw_only=True):
    """What `lock` made: a lock and its text, or the plan that says why there is none."""

    options: Options
    path: str
    lock: Lock | None = None
    text: str = ""
    old: Lock | None = None
    old_text: str | None = None
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    plan: Plan | None = None


def refuse_contradictions(args: argparse.Namespace) -> None:
    """UsageError for options of `lock` that contradict each other; WorldError where no lock can be read or written here."""
    from cudnn_resolve.locking.pep751 import require

    if args.check and (args.upgrade or args.upgrade_package):
        raise UsageError(
            "--check changes nothing, and --upgrade asks for changes", code="usage-contradiction", hint="leave one of them out"
        )
    if args.no_facts and not args.check:
        hint = "to lock for another machine say --platform and --python-version"
        raise UsageError("--no-facts belongs to --check", code="usage-contradiction", hint=hint)
    if args.no_facts and (args.facts or args.python):
        raise UsageError("--no-facts and --facts or --python contradict each other", code="usage-contradiction")
    if args.check and args.output == "-":
        raise UsageError("--check reads the lock from a file", code="usage-contradiction", hint=f"name it: -o FILE, default {FILE}")
    if args.format == "json" and args.output == "-":
        hint = "leave one of them out: with -o FILE the object goes to standard output and the lock to the file"
        raise UsageError("-o - and --format json would both go to standard output", code="usage-contradiction", hint=hint)
    require()


def lock_of(args: argparse.Namespace) -> Made:
    """The lock behind the options, not yet written; without one where there is no resolution."""
    from cudnn_resolve.host.files import folder_of
    from cudnn_resolve.locking.change import changes, with_records
    from cudnn_resolve.locking.merge import merge
    from cudnn_resolve.locking.write import write

    path = args.output or FILE
    old_text = None if path == "-" else read_text(path)
    old = _read(old_text, path) if old_text is not None else None
    sitting = sitting_of(args, locked_settings(old, path, args) if old is not None else None)
    _warn(old, sitting, args)
    found = answers_of(sitting, old, frozenset() if args.upgrade else _names(args, old, sitting), keep=not args.upgrade)
    if found.conflict is not None:
        return Made(options=sitting.options, path=path, plan=found.conflict)
    assert found.request is not None
    assert found.source is not None
    for note in found.source.notes:
        say(f"note: {note}", sitting.options)
    base = folder_of("." if path == "-" else path, is_folder=path == "-")
    answers = _completed(found.answers, old, found.source)
    made = merge(answers, asked=asked_of(sitting, found.request, base), matrix=found.matrix, base=base)
    made = with_records(made, old)
    return Made(
        options=sitting.options,
        path=path,
        lock=made,
        text=write(made),
        old=old,
        old_text=old_text,
        changes=changes(old, made),
        warnings=found.warnings,
    )


def _completed(answers: Sequence[Answer], old: Lock | None, source: IndexClient) -> Sequence[Answer]:
    """The answers with sizes and hashes that the index did not give: from the old lock, and where it can be asked for them."""
    from cudnn_resolve.locking.complete import completed, incomplete

    known, lacking = incomplete(answers, old)
    if lacking:
        known.update(zip((one.url for one in lacking), source.completed(lacking), strict=True))
    return completed(answers, known)


def check_of(args: argparse.Namespace) -> tuple[Lock, tuple[Difference, ...]]:
    """The lock that is there, and every way in which it is not what it should be."""
    from cudnn_resolve.host.files import folder_of
    from cudnn_resolve.locking.check import asked_otherwise, outdated
    from cudnn_resolve.locking.difference import Difference
    from cudnn_resolve.locking.fit import fit

    path = args.output or FILE
    text = read_text(path)
    if text is None:
        raise InputError(f"there is no lock {path}", code="lock-missing", hint="`cudnn-resolve lock` writes one")
    lock = _read(text, path)
    book, facts = fit_facts(args)
    found: list[Difference] = []
    sitting = only_platform(args, lock, path)
    answers = answers_of(sitting, lock, frozenset(), keep=True)
    if answers.conflict is not None and answers.conflict.conflict is not None:
        conflict = answers.conflict.conflict
        because = "; ".join(f"{one.what}: {one.because}" for one in conflict.causes)
        found.append(Difference(what="resolution", locked=f"{len(lock.packages)} packages", now=conflict.message, because=because or None))
    else:
        assert answers.request is not None
        if lock.tool is not None:
            found += asked_otherwise(lock.tool.asked, asked_of(sitting, answers.request, folder_of(path)))
        found += outdated(lock, answers.answers, answers.source)
    for one in facts:
        found += (difference for difference in fit(lock, one, book) if difference not in found)
    return lock, tuple(found)


def read_text(path: str) -> str | None:
    """The text of the lock; None where there is none."""
    from cudnn_resolve.host.files import read_bounded
    from cudnn_resolve.locking.read import LIMIT_BYTES

    try:
        return read_bounded(path, LIMIT_BYTES, "lock")
    except InputError as error:
        if error.code == "input-missing":
            return None
        raise


def _read(text: str, path: str) -> Lock:
    from cudnn_resolve.locking.read import read

    return read(text, path)


def _names(args: argparse.Namespace, old: Lock | None, sitting: Sitting) -> frozenset[str]:
    """The packages of `--upgrade-package`; one that the lock does not have is said."""
    from packaging.utils import canonicalize_name

    names = frozenset(str(canonicalize_name(one)) for one in args.upgrade_package or ())
    known = {one.name for one in old.packages} if old is not None else set()
    for name in sorted(names - known):
        say(f"{name} is not in the lock: there is no pin of it to leave", sitting.options)
    return names


def _warn(old: Lock | None, sitting: Sitting, args: argparse.Namespace) -> None:
    for note in old.notes if old is not None else ():
        say(note, sitting.options)
    if old is not None and old.tool is None:
        say(f"{args.output or FILE} was written by {old.created_by}; its pins are kept where they can be", sitting.options)


def _write(made: Made) -> None:
    """Writes the lock to its file, and says what it changes."""
    from cudnn_resolve.report.lock import change_lines, summary

    assert made.lock is not None
    options, what = made.options, summary(made.lock)
    if made.path == "-":
        say(what, options)
    elif made.text == made.old_text:
        say(f"{made.path} stays as it is: {what}", options)
    else:
        from cudnn_resolve.host.files import write_atomic

        write_atomic(made.path, made.text)
        say(f"wrote {made.path}: {what}", options)
    if made.lock.tool is not None and made.lock.tool.has_overrides:
        say(f"it has overrides: `uv pip sync {made.path}`, or `pip install --no-deps -r {made.path}`", options)
    if made.path != "-" and not re.fullmatch(r"pylock(\.[^.]+)?\.toml", os.path.basename(made.path)):
        say("warning: pip and uv take a file for a lock where its name is pylock.toml or pylock.NAME.toml only", options)
    for text in made.warnings:
        say(f"warning: {text}", options)
    if made.old is not None:
        for line in change_lines(made.changes, verbose=options.verbose > 0):
            say(line, options)
        if made.old.tool is not None and made.old.tool.validation and made.lock.tool is not None and not made.lock.tool.validation:
            say("what was proven of the old pins is left out; `cudnn-resolve validate --record` proves the new ones", options)


def encode(made: Made) -> dict[str, Any]:
    """The object that `--format json` prints."""
    from cudnn_resolve.report.lock_json import encode_conflict, encode_lock

    if made.lock is None:
        assert made.plan is not None
        return encode_conflict(made.plan)
    place = (None, made.text) if made.path == "-" else (made.path, None)
    return {**encode_lock(made.lock, made.changes, *place), "warnings": list(made.warnings)}


def _json(value: dict[str, Any]) -> str:
    from cudnn_resolve.report.json import render

    return render(value)


def _render_conflict(made: Made, options: Options) -> str:
    if options.format == "json":
        return _json(encode(made))
    from cudnn_resolve.report.plan import render

    assert made.plan is not None
    return render(made.plan, style=style_of(options), width=width_of(options), verbose=options.verbose > 0)


def _render_check(lock: Lock, found: tuple[Difference, ...], options: Options) -> str:
    if options.format == "json":
        from cudnn_resolve.report.lock_json import encode_check

        return _json(encode_check(lock, found))
    from cudnn_resolve.report.lock import render_check

    return render_check(lock, found, options.output or FILE, style=style_of(options), width=width_of(options))
