"""A remedy that is a plan: tried for this machine, so that it is only proposed where it works, with what it would change."""

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
"""Steps of the search for a plan that is only proposed; `apply` searches on."""
_ALL_ROUNDS = 900
"""The same for all such searches: several families of majors, and each installed companion, are tried."""
_EXPLAINED = 200
"""A search that failed after more steps is not explained: each explanation takes many such searches."""
_EXPLAINED_TARGETS = 2
"""Nor is one for more frameworks than these: what contradicts what among four takes twenty seconds to tell apart."""


def planned(
    text: str, command: str, facts: Facts, book: Book, wishes: Request | None = None, *, brings: frozenset[str] = frozenset()
) -> Iterator[Remedy]:
    """The remedy with what it would change here; where there is no such plan, the nearest that there is.

    `wishes` says how the user wants plans made; the command repeats it. A plan of wheels alone that has none of `brings` helps nothing.
    """
    request = _request(command, book, wishes)
    found = _found(request, facts, book)
    plan = _plan(request, found, facts, book)
    command = repeated(command, wishes)
    if found is None:
        yield Remedy(text=text, command=command)
    elif plan is None:
        told = command.replace("cudnn-resolve apply ", "cudnn-resolve plan ", 1)
        yield Remedy(text="there is no plan for all of that on this machine; this says what contradicts what", command=told)
    elif plan.conflict is None and brings and not plan.apt and not brings & {one.name for one in plan.pip}:
        return
    elif plan.conflict is None:
        yield Remedy(text=f"{text}: {_changes(plan)}", command=command)
    else:
        yield Remedy(text=f"there is no plan for that on this machine: {plan.conflict.message}")
        for relaxation in plan.conflict.relaxations[:2]:
            yield Remedy(text=f"{relaxation.change}: {relaxation.result}", command=relaxation.command)


def on_windows(plan: Remedy, python: str, wheels: str, lines: list[tuple[int, int]]) -> Iterator[Remedy]:
    """The remedy with pip in the place of a plan. `lines`: the Pythons of these wheels where the one at hand is not known.

    An older one would refuse them: first comes an environment of one of those.
    """
    done = replace(plan, command=f"{python} -m pip install -U {wheels}")
    if not lines:
        yield done
        return
    least, new, most = (f"{one[0]}.{one[1]}" for one in (lines[0], lines[len(lines) // 2], lines[-1]))
    text = f"{plan.text}; its wheels are for Python {least} to {most}, so first make an environment of one of them"
    yield replace(
        plan, text=text, command=f"uv venv --seed --python {new} .venv-{new} && .venv-{new}\\Scripts\\python -m pip install {wheels}"
    )
    yield replace(done, text=f"or, where `{python} --version` says one of these, install it there")


def is_possible(command: str, facts: Facts, book: Book, wishes: Request | None = None) -> bool:
    """True where there is a plan for what a command asks for, and it is found soon."""
    from cudnn_resolve.resolution.model import Resolution

    return isinstance(_found(_request(command, book, wishes), facts, book), Resolution)


def is_known(command: str) -> bool:
    """False for a command of which the user must know the framework."""
    return "FRAMEWORK" not in command


def repeated(command: str, wishes: Request | None) -> str:
    """A command of ours with the options that say which environment is meant and how the user wants plans made; others as they are."""
    if wishes is None or not command.startswith(("cudnn-resolve apply ", "cudnn-resolve plan ")):
        return command
    words: list[str] = []
    if "--reinstall-package" not in command:  # which keeps the release that is there
        words += ["--device", wishes.device] if wishes.device != "gpu" else []
        for option, limit in (("--cuda", wishes.cuda), ("--cudnn", wishes.cudnn)):
            words += [option, limit.text] if limit is not None and f"{option} " not in command else []
    for option, value in wishes.context:
        if option != "--facts" and f"{option} " not in f"{command} ":
            words += [option, value] if value else [option]
    return f"{command} {shlex.join(words)}" if words else command


def _request(command: str, book: Book, wishes: Request | None) -> Request | None:
    """What a command asks for, with the user's wishes where it has none of its own; None where the matrix does not know a target."""
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
    """The answer to a request, or that there is none; None where there is no request, or the search takes long."""
    from cudnn_resolve.errors import CudnnResolveError
    from cudnn_resolve.requirement.machine import machine_of
    from cudnn_resolve.resolution.attempt import attempt
    from cudnn_resolve.resolution.model import Resolution
    from cudnn_resolve.resolution.open_request import Budget

    if request is None:
        return None
    try:
        budget = Budget(_ALL_ROUNDS)
        found = attempt(book, machine_of(facts, book), request, rounds=_ROUNDS, budget=budget)
    except CudnnResolveError:
        return None
    is_long = not isinstance(found, Resolution) and (found.exhausted or found.rounds > _EXPLAINED)
    return None if budget.left <= 0 or is_long else found  # what was found may not be the best, and what was not may be there


def _plan(request: Request | None, found: Resolution | Failure | None, facts: Facts, book: Book) -> Plan | None:
    """The plan of an answer, or the conflict; None where there is no answer, or to explain that there is none takes long."""
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
    """What a plan would change, in a few words."""
    words = [f"{one.name} {one.version}" if one.action != "remove" else f"without {one.name}" for one in plan.pip if one.action != "keep"]
    words += [f"apt {one.name}" for one in plan.apt if one.action != "keep"]
    if not words:
        ways = [one.value for one in plan.environment if one.kind != "none"]
        return (
            f"nothing is to be installed; the loader needs {'; '.join(ways[:2])}"
            if ways
            else "every package here fits already: what is wrong is in another environment, or in what the loader finds"
        )
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
