"""A plan from targets and the plan from its own lock say the same of every package, in every case of tests/cases/ that has a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from cudnn_resolve.cli import plan as verb
from cudnn_resolve.cli.arguments import request_of
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.locking.merge import Answer, merge
from cudnn_resolve.locking.model import Lock, LockedRequest
from cudnn_resolve.locking.stack import stack_of
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.operations.options import Options
from cudnn_resolve.operations.question import Question, gather_question
from cudnn_resolve.operations.settings import project_settings, with_settings
from cudnn_resolve.planning.from_lock import plan_of_lock
from cudnn_resolve.planning.make_plan import make_plan
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.requirement.machine import machine_of
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.model import PipPin, Resolution
from cudnn_resolve.resolution.resolve import resolve
from tests.test_cases import CASES, Case

FITS = [path for path in CASES if path.parent.name == "fits"]
Said = dict[str, tuple[str, str | None, str, bool]]


@pytest.fixture
def question(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path], Question]:
    """A function that asks what a case asks."""
    monkeypatch.chdir(tmp_path)

    def ask(path: Path) -> Question:
        case = Case(path)
        for name, text in case.files.items():
            Path(name).write_text(text, "utf-8")
        parser = Parser(prog="cudnn-resolve plan", description="")
        verb.add_arguments(parser)
        return gather_question(with_settings(request_of(Options, parser.parse(["--offline", *case.argv])), project_settings()))

    return ask


def planned(asked: Question, facts: Facts) -> tuple[Plan, Resolution]:
    found = resolve(asked.book, machine_of(facts, asked.book), asked.request)
    if not isinstance(found, Resolution):
        pytest.skip("there is no plan; tests/test_cases.py says whether there should be one")
    return make_plan(facts, found, asked.book), found


def locked(asked: Question, plan: Plan, resolution: Resolution) -> Lock:
    """The lock of a resolution; offline nobody knows its files, so each package has one that fits everywhere."""
    pins = tuple(with_file(pin) for pin in resolution.pip if pin.version is not None)
    answer = Answer(resolution=replace(resolution, pip=pins), stack=stack_of(resolution, plan.environment, asked.book))
    return merge([answer], request=LockedRequest(), matrix=None, base="/project")


def with_file(pin: PipPin) -> PipPin:
    name = f"{pin.name.replace('-', '_')}-{pin.version}-py3-none-any.whl"
    return replace(pin, file=File(name, f"https://index.example/{name}", {"sha256": "0" * 64}))


def said(plan: Plan) -> Said:
    """What a plan does with each package of pip and of the system."""
    assert len({*(one.name for one in plan.pip), *(one.name for one in plan.apt)}) == len(plan.pip) + len(plan.apt)
    system: Said = {one.name: (one.action, one.installed, one.version, False) for one in plan.apt}
    return {**system, **{one.name: (one.action, one.installed, one.version, one.reinstall) for one in plan.pip}}


def differences(asked: Question, facts: Facts, plan: Plan, resolution: Resolution) -> Mapping[str, object]:
    """What a plan and the plan of its own lock do not do alike, on one machine."""
    again, misfits = plan_of_lock(locked(asked, plan, resolution), "/project", facts, asked.book)
    assert again is not None, misfits
    from_targets, from_lock = said(plan), said(again)
    names = {*from_targets, *from_lock}
    return {name: (from_targets.get(name), from_lock.get(name)) for name in names if from_targets.get(name) != from_lock.get(name)}


def carried_out(plan: Plan, book: Book) -> Facts:
    """The machine once the plan is carried out, frameworks under the names that the index of a variant gives them: `2.6.0+cu124`."""
    assert plan.stack is not None
    variants = {one.name: one.variant for one in plan.stack.frameworks}
    pip = dict(or_none(plan.facts.packages.pip) or {})
    for one in plan.pip:
        if one.action == "remove":
            del pip[one.name]
        else:
            named = f"{one.version}+{variants.get(one.name)}"
            framework = book.framework_of(one.name)
            known = {build.wheel_version for build in book.framework(framework).builds} if framework is not None else ()
            pip[one.name] = named if named in known else one.version
    return replace(plan.facts, packages=replace(plan.facts.packages, pip=pip))


@pytest.mark.parametrize("path", FITS, ids=lambda path: path.stem)
def test_a_plan_and_the_plan_of_its_lock_do_the_same(path: Path, question: Callable[[Path], Question]) -> None:
    asked = question(path)
    plan, resolution = planned(asked, asked.facts)
    assert not differences(asked, asked.facts, plan, resolution)

    after = carried_out(plan, asked.book)
    assert not differences(asked, after, *planned(asked, after))
