"""Remedies that are plans: solved for this machine first, so that only working ones are proposed, with their changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Remedy

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.planning.model import Plan
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.resolution.model import Failure, Resolution

_SHOWN = 5
_ROUNDS = 300
"""Search rounds for a plan that is only proposed; `apply` searches longer."""
_ALL_ROUNDS = 900
"""The same for all searches together: several families of majors, and each installed companion, are tried."""
_EXPLAINED = 200
"""A search that failed after more rounds is not explained: an explanation takes many searches."""
_EXPLAINED_TARGETS = 2
"""Nor is one for more frameworks: explaining a conflict of four takes 20 s."""


def tried_plan(
    text: str, command: str, facts: Facts, book: Book, wishes: Request | None = None, *, brings: frozenset[str] = frozenset()
) -> Iterator[Remedy]:
    """The remedy with its changes on this machine; without such a plan, the nearest alternatives.

    `wishes`: the user's options for plans, which the command repeats. A plan of wheels only, with none of `brings`, does not help.
    """
    request = _request(command, book, wishes)
    found = _found(request, facts, book)
    plan = _plan(request, found, facts, book)
    command = repeated(command, wishes)
    if found is None:
        yield Remedy(text=text, command=command)
    elif plan is None:
        command = command.replace("cudnn-resolve apply ", "cudnn-resolve plan ", 1)
        yield Remedy(text="no plan satisfies all of this on this machine; show the conflict", command=command)
    elif plan.conflict is None and brings and not plan.apt and not brings & {name.name for name in plan.pip}:
        return
    elif plan.conflict is None:
        yield Remedy(text=f"{text}: {_changes(plan)}", command=command)
    else:
        yield Remedy(text=f"no such plan is possible on this machine: {plan.conflict.message}")
        for relaxation in plan.conflict.relaxations[:2]:
            yield Remedy(text=f"{relaxation.change}: {relaxation.result}", command=relaxation.command)


def is_possible(command: str, facts: Facts, book: Book, wishes: Request | None = None) -> bool:
    """True if a plan for a command is found quickly."""
    from cudnn_resolve.resolution.model import Resolution

    return isinstance(_found(_request(command, book, wishes), facts, book), Resolution)


def is_known(command: str) -> bool:
    """False for a command in which the user must fill in the framework."""
    return "FRAMEWORK" not in command


def repeated(command: str, wishes: Request | None) -> str:
    """Add the user's options for environment and plans to our commands; leave others unchanged."""
    if wishes is None or not command.startswith(("cudnn-resolve apply ", "cudnn-resolve plan ")):
        return command
    words: list[str] = []
    if "--reinstall-package" not in command:  # it keeps the installed release
        words += ["--device", wishes.device] if wishes.device != "gpu" else []
        for option, limit in (("--cuda", wishes.cuda), ("--cudnn", wishes.cudnn)):
            words += [option, limit.text] if limit is not None and f"{option} " not in command else []
    for option, value in wishes.context:
        if option != "--facts" and f"{option} " not in f"{command} ":
            words += [option, value] if value else [option]
    return f"{command} {shlex.join(words)}" if words else command


def _request(command: str, book: Book, wishes: Request | None) -> Request | None:
    """Request of a command, completed by the user's options; None if the matrix does not know a target."""
    from cudnn_resolve.errors import CudnnResolveError
    from cudnn_resolve.requirement.model import Request
    from cudnn_resolve.requirement.target import parse_limit, parse_target

    words = shlex.split(command)
    given = [(word, words[place + 1]) for place, word in enumerate(words[:-1])]
    asked = wishes or Request(targets=())
    try:
        asked = replace(asked, targets=tuple(parse_target(text, book) for option, text in given if option == "-f"))
        for option, text in given:
            if option == "--driver-policy":
                asked = replace(asked, driver_policy="strict" if text == "strict" else "minor")
            elif option == "--cuda":
                asked = replace(asked, cuda=parse_limit(text, option))
            elif option == "--cudnn":
                asked = replace(asked, cudnn=parse_limit(text, option))
    except CudnnResolveError:
        return None
    return asked


def _found(request: Request | None, facts: Facts, book: Book) -> Resolution | Failure | None:
    """Solve a request; None without a request, or if the search takes too long."""
    from cudnn_resolve.errors import CudnnResolveError
    from cudnn_resolve.requirement.machine import machine_of
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.resolution.open_request import Budget, open_request
    from cudnn_resolve.resolution.strategies import attempt

    if request is None:
        return None
    try:
        budget = Budget(_ALL_ROUNDS)
        found = attempt(book, machine_of(facts, book), replace(open_request(request), budget=budget), rounds=_ROUNDS)
    except CudnnResolveError:
        return None
    is_long = not isinstance(found, Resolution) and (found.exhausted or found.rounds > _EXPLAINED)
    return None if budget.left <= 0 or is_long else found  # a truncated search may miss the best result, or any


def _plan(request: Request | None, found: Resolution | Failure | None, facts: Facts, book: Book) -> Plan | None:
    """Plan of a result, or the conflict; None without a result, or if explaining the conflict takes too long."""
    from cudnn_resolve.errors import CudnnResolveError
    from cudnn_resolve.planning.make_plan import make_plan
    from cudnn_resolve.resolution.model import Resolution

    try:
        if isinstance(found, Resolution):
            return make_plan(facts, found, book)
        if request is None or found is None or len(request.targets) > _EXPLAINED_TARGETS:
            return None
        from cudnn_resolve.requirement.machine import machine_of
        from cudnn_resolve.resolution.conflict import explain

        return make_plan(facts, explain(book, machine_of(facts, book), request), book)
    except CudnnResolveError:
        return None


def _changes(plan: Plan) -> str:
    """Short description of a plan's changes."""
    words = [
        f"{step.name} {step.version}" if step.action != "remove" else f"without {step.name}" for step in plan.pip if step.action != "keep"
    ]
    words = [f"apt {step.name}" for step in plan.apt if step.action != "keep"] + words
    if not words:
        ways = [target.value for target in plan.environment if target.kind != "none"]
        return (
            f"nothing to install; the loader needs {'; '.join(ways[:2])}"
            if ways
            else "all installed packages fit already: the fault is in another environment, or in what the loader finds"
        )
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
