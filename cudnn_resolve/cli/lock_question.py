"""What a lock is asked for: the options over what the old lock remembers, and the answers for each platform."""

from __future__ import annotations

import argparse
import os.path
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.cli.gather import Question, gather_book, gather_facts, gather_question
from cudnn_resolve.cli.options import Options, options_of
from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.model import Facts

if TYPE_CHECKING:
    from cudnn_resolve.index.client import IndexClient
    from cudnn_resolve.locking.merge import Answer
    from cudnn_resolve.locking.model import Asked, Lock
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import Plan
    from cudnn_resolve.requirement.machine import Machine
    from cudnn_resolve.requirement.model import Extra, Request
    from cudnn_resolve.resolution.model import Conflict, Resolution

FILES = {"requirement": "requirement_files", "constraint": "constraint_files", "group": "groups"}
"""Options that name files, and the fields that hold them."""
STATED = ("index-strategy", "exclude-newer", "no-binary", "only-binary")
"""Options besides the facts that decide what comes out, and that do not depend on where this is."""

TOLD = frozenset(
    {"advisory", "cuda-majors", "cudnn-majors", "driver-policy", "extra-not-installable", "from-source", "known-in-part", "left-out"}
    | {"same-build", "older-repository", "older-toolkit", "requirements-guessed", "several-indexes"}
)
"""Warnings of a plan that hold for a lock, too; the others speak of the environment or of what is not known of the machine."""


class Sitting(Struct, frozen=True, kw_only=True):
    """The options of one `lock`, and the platforms that it is for."""

    options: Options
    platforms: tuple[str, ...]
    """As they were said; empty = this machine's."""


class Found(Struct, frozen=True, kw_only=True):
    """The answers for all platforms, or the plan that says why there is none for one."""

    answers: tuple[Answer, ...] = ()
    matrix: str | None = None
    warnings: tuple[str, ...] = ()
    """What should be known of the answers, in words."""
    conflict: Plan | None = None
    request: Request | None = None
    source: IndexClient | None = None


def sitting_of(args: argparse.Namespace, remembered: Mapping[str, Any] | None) -> Sitting:
    """The options of a command line over the project's settings over what an old lock remembers.

    UsageError where they contradict each other.
    """
    from cudnn_resolve.host.settings import read_project_settings

    below = {**(remembered or {}), **read_project_settings(".")}
    platforms = tuple(args.platform or below.pop("platforms", ()))
    if len({one.endswith(("aarch64", "arm64")) for one in platforms}) < len(platforms):
        raise UsageError("--platform names one architecture twice", code="usage-platform", hint="one lock holds each architecture once")
    plain = argparse.Namespace(**{**vars(args), "platform": platforms[0] if platforms else None})
    given = getattr(args, "given", None)
    if args.python or args.facts or given:  # a machine is named: nothing of another one is remembered
        for name in ("python-version", "platform", "driver", "gpu", "glibc", "os"):
            below.pop(name, None)
        plain.platform, platforms = args.platform[0] if args.platform else None, tuple(args.platform or ())
    return Sitting(options=replace(options_of(plain, below), given=given, repeated=_repeated(args)), platforms=platforms)


def _repeated(args: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """What is said of the old lock, for a lock that is proposed instead."""
    return (
        *((("--upgrade", ""),) if args.upgrade else ()),
        *(("--upgrade-package", name) for name in args.upgrade_package or ()),
    )


def locked_settings(lock: Lock, path: str, args: argparse.Namespace) -> dict[str, Any]:
    """What a lock remembers of its request, as settings below those of the project.

    Who names on the command line what he wants names all of it: frameworks, files and limits of the lock do not count then.
    UsageError where the lock leads to files elsewhere.
    """
    if lock.tool is None:
        return {}
    asked = lock.tool.asked
    out: dict[str, Any] = {
        "driver-policy": asked.driver_policy,
        "device": asked.device if asked.device == "cpu" else None,
        "channel": asked.channel,
        "strict-pins": asked.strict_pins,
    }
    if not (args.framework or args.requirement or args.group):
        folder = os.path.dirname(path)
        out.update({"framework": list(asked.said), "cuda": asked.cuda, "cudnn": asked.cudnn})
        out.update({name: [_from(folder, value, name) for value in values] for name, values in asked.files if name in FILES})
    for name, values in asked.stated:
        if name in ("gpu", "no-binary", "only-binary"):
            out[name] = list(values)
        elif name == "platform":
            out["platforms"] = list(values)
        elif name in ("no-variant-indexes", "pre"):
            out[name] = values == ("true",)
        elif name in ("driver", "python-version", "glibc", "os", *STATED) and values:
            out[name] = values[0]
    return {name: value for name, value in out.items() if value is not None}


def _from(folder: str, value: str, name: str) -> str:
    """A file as the lock names it, seen from here; a dependency group without a file is one of the project beside the lock.

    UsageError for one that lies neither in the folder of the lock nor in the working directory: a lock comes from others, too.
    """
    from cudnn_resolve.host.files import folder_of

    file, colon, group = value.rpartition(":") if name == "group" else (value, "", "")
    where = os.path.join(folder, file or "pyproject.toml")
    roots = (folder_of(os.path.join(folder, "x")), folder_of(".", is_folder=True))
    if not any(f"{folder_of(where)}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        raise UsageError(
            f"the lock was made with --{name} {value}, which leads out of its folder and of this one",
            code="lock-file-outside",
            hint=f"if that is meant, say so again: --{name} FILE",
        )
    return f"{where}{colon}{group}" if name == "group" else where


def asked_of(sitting: Sitting, request: Request, base: str) -> Asked:
    """What a lock in the folder `base` remembers of its request."""
    from cudnn_resolve.locking.model import Asked

    options, stated = sitting.options, sitting.options.assumptions
    facts: dict[str, tuple[str, ...]] = {
        "platform": tuple(sorted(sitting.platforms)),
        "python-version": _one(stated.python_version),
        "driver": _one(stated.driver),
        "gpu": stated.gpus,
        "glibc": _one(stated.glibc),
        "os": _one(stated.os),
        "index-strategy": _one(options.index_strategy),
        "exclude-newer": _one(options.exclude_newer),
        "no-binary": options.no_binary,
        "only-binary": options.only_binary,
        "pre": ("true",) if options.pre else (),
        "no-variant-indexes": () if options.variant_indexes else ("true",),
    }
    files = {name: tuple(_to(base, one, name) for one in getattr(options, field) if one != "-") for name, field in FILES.items()}
    return Asked(
        targets=tuple(_said(request)),
        said=options.frameworks,
        requirements=tuple(dict.fromkeys(_required(one, request, base) for one in request.extras)),
        files=tuple((name, values) for name, values in files.items() if values),
        cuda=options.cuda,
        cudnn=options.cudnn,
        driver_policy=options.driver_policy,
        device=options.device or "gpu",
        channel=options.channel,
        strict_pins=options.strict_pins,
        stated=tuple((name, values) for name, values in facts.items() if values),
    )


def _said(request: Request) -> Iterator[str]:
    """The targets as a lock remembers them, each with its marker."""
    for target in (*request.targets, *request.conditional):
        yield f"{target.text}; {target.marker}" if target.marker is not None else target.text


def _required(extra: Extra, request: Request, base: str) -> str:
    """A further requirement as a lock in the folder `base` remembers it; a project of the user's by its place, whatever its version."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    from cudnn_resolve.locking.file import path_from

    direct = request.direct.get(canonicalize_name(Requirement(extra.text).name))
    if direct is not None and not extra.constraint:
        return f"{direct.name} @ {path_from(base, direct.folder) if direct.folder is not None else direct.url}"
    return f"-c {extra.text}" if extra.constraint else extra.text


def _one(value: str | None) -> tuple[str, ...]:
    return (value,) if value else ()


def _to(base: str, value: str, name: str) -> str:
    """A file that an option names, as a lock in the folder `base` names it."""
    from cudnn_resolve.host.files import folder_of
    from cudnn_resolve.locking.file import path_from

    file, colon, group = value.rpartition(":") if name == "group" else (value, "", "")
    if name == "group" and not colon:
        file = "pyproject.toml"
    where = os.path.join(folder_of(file), os.path.basename(file))
    shown = path_from(base, where)
    return f"{shown}:{group}" if name == "group" else shown


def only_platform(args: argparse.Namespace, lock: Lock, path: str) -> Sitting:
    """What the lock is asked when it is checked: the present request, on the platforms and the Python that it is for.

    UsageError where the lock is another program's and nothing is asked for.
    """
    remembered = locked_settings(lock, path, args)
    plain = argparse.Namespace(**{**vars(args), **dict.fromkeys(("driver", "gpu", "python_version", "glibc", "os", "facts", "python"))})
    plain.platform = plain.given = None
    if lock.tool is not None:
        remembered["python-version"] = lock.tool.python
        remembered.setdefault("platforms", [one.platform for one in lock.tool.stacks])
    else:
        plain = args
    return sitting_of(plain, remembered)


def fit_facts(args: argparse.Namespace) -> tuple[Book, tuple[Facts, ...]]:
    """The tables, and the facts of each machine that a lock is held against: none with `--no-facts`, unless some are stated."""
    sitting = sitting_of(args, None)
    options = sitting.options
    book = gather_book(options)
    stated = options.assumptions
    if args.no_facts and not (stated.elsewhere or stated.driver or stated.gpus or stated.glibc or stated.os):
        return book, ()
    if args.no_facts:
        options = replace(options, given=Facts())
    return book, tuple(gather_facts(one, book) for one in _each(options, sitting.platforms))


def _each(options: Options, platforms: Sequence[str]) -> list[Options]:
    """The options for each platform."""
    return [
        replace(options, assumptions=replace(options.assumptions, platform=one)) for one in platforms or (options.assumptions.platform,)
    ]


def answers_of(sitting: Sitting, old: Lock | None, upgraded: frozenset[str], *, keep: bool) -> Found:
    """The answer for each platform; with `keep`, the pins of the old lock are tried first, but for those `upgraded`."""
    from cudnn_resolve.planning.make import make_plan

    options, *others = _each(sitting.options, sitting.platforms)
    first = gather_question(options, fresh=True, verb="lock")
    if len(sitting.platforms) > 1:
        first = replace(first, request=replace(first.request, context=_with_platforms(first.request.context, sitting.platforms)))
    if options.output is not None:
        first = replace(first, request=replace(first.request, context=(*first.request.context, ("--output", options.output))))
    questions = [first, *(_elsewhere(first, one) for one in others)]  # the same request, of the same indexes
    questions = [_fresh(one, old if keep else None, upgraded) for one in questions]
    outcomes = _together(questions)
    if outcomes is None:
        asked, conflict = _torn(questions)
        return Found(conflict=make_plan(asked.facts, conflict, asked.book, asked.source))
    matrix = "+".join(layer.version() for layer in first.book.layers)
    found = [_answer(one, question) for one, question in zip(outcomes, questions, strict=True)]
    told = tuple(dict.fromkeys(text for _, texts in found for text in texts))
    return Found(answers=tuple(answer for answer, _ in found), matrix=matrix, warnings=told, request=first.request, source=first.source)


def _elsewhere(question: Question, options: Options) -> Question:
    """The question for another platform."""
    from cudnn_resolve.requirement.machine import machine_of

    facts = gather_facts(options, question.book)
    return replace(question, facts=facts, machine=replace(machine_of(facts, question.book), pip={}, requires={}))


def _with_platforms(context: Sequence[tuple[str, str]], platforms: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The options that describe machine and environment, with every platform that the lock is for."""
    return (*(pair for pair in context if pair[0] != "--platform"), *(("--platform", one) for one in platforms))


def _fresh(question: Question, old: Lock | None, upgraded: frozenset[str]) -> Question:
    """The question for an environment without anything in it, on a system without libraries; the pins of the old lock preferred."""
    from cudnn_resolve.locking.select import applies

    machine, request = replace(question.machine, toolkits=(), cudnn=(), apt={}), question.request
    if machine.python is not None:  # a lock is for every patch release of its Python
        machine = _on(machine, machine.python)
    if old is not None:
        entries = (one for one in old.packages if one.version is not None and one.name not in upgraded)
        request = replace(request, preferences={one.name: one.version or "" for one in entries if applies(one.marker, old, machine)})
    return replace(question, machine=machine, request=request)


def _together(questions: Sequence[Question]) -> list[Resolution] | None:
    """A resolution for each platform, all for one Python; None where there is none for one of them."""
    from cudnn_resolve.resolution.resolve import PYTHONS

    for python in PYTHONS if questions[0].machine.python is None else (None,):
        found = []
        for question in questions:
            outcome = _attempt(question, python)
            if outcome is None:
                break
            found.append(outcome)
        if len(found) == len(questions):
            return found
    return None


def _attempt(question: Question, python: tuple[int, int] | None) -> Resolution | None:
    """The resolution on a Python, None = that of the machine; None where there is none, which nobody has to explain yet."""
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.resolution.opened import opened
    from cudnn_resolve.resolution.resolve import attempt, with_what_remains
    from cudnn_resolve.resolution.settle import NO_TARGET

    machine, request = _on(question.machine, python), opened(question.request, question.source, question.tell)
    try:
        found = attempt(question.book, machine, request)
    except UsageError as error:
        if python is None or error.code != NO_TARGET:
            raise
        return None  # on this Python nothing is asked for; another may be meant
    return with_what_remains(question.book, machine, request, found) if isinstance(found, Resolution) else None


def _on(machine: Machine, python: tuple[int, int] | None) -> Machine:
    return machine if python is None else replace(machine, python=python, python_full=f"{python[0]}.{python[1]}")


def _torn(questions: Sequence[Question]) -> tuple[Question, Conflict]:
    """The platform for which there is no resolution, and why; where each has one, but for another Python, why the next has none there."""
    from cudnn_resolve.resolution.model import Conflict
    from cudnn_resolve.resolution.resolve import resolve

    python = None
    for question in questions:
        found = resolve(question.book, _on(question.machine, python), question.request, question.source, tell=question.tell)
        if isinstance(found, Conflict):
            return question, found
        python = found.machine.python
    raise AssertionError("what cannot be had together cannot be had for one of the platforms")


def _answer(resolution: Resolution, question: Question) -> tuple[Answer, list[str]]:
    """The answer for one platform, and what should be known of it."""
    from cudnn_resolve.facts.assume import fresh_environment
    from cudnn_resolve.locking.merge import Answer
    from cudnn_resolve.locking.model import LockedEnvironment
    from cudnn_resolve.locking.stack import stack_of
    from cudnn_resolve.planning.make import make_plan

    plan = make_plan(fresh_environment(question.facts), resolution, question.book, question.source)
    ways = tuple(LockedEnvironment(one.kind, one.value, one.why) for one in plan.environment)
    answer = Answer(resolution=resolution, stack=stack_of(resolution, ways, question.book))
    return answer, [one.message for one in plan.warnings if one.code in TOLD]
