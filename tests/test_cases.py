"""Requests whose right answer is known from a rule and its source, each in a file of tests/cases/.

A folder says what the answer is: `fits` holds requests with a plan, `conflicts` those without one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.matrix.book import Book
from tests.program import run
from tests.schemas import fit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).parent
CASES = sorted((TESTS / "cases").glob("*/*.toml"))
MACHINES = TESTS / "machines"
KEYS = {"args", "why", "files", "expect"}
"""`args`: options of `plan` as a shell splits them, `@NAME` for a file of tests/machines; `why`: what makes the answer right, and how
that is known; `files`: name to text of files that lie in the current directory; `expect`: what must hold, see `CHECKS`."""
Plan = Mapping[str, Any]


def pinned(plan: Plan) -> dict[str, str]:
    return {one["name"]: one["version"] for one in plan["pip"] if one["action"] != "remove"}


def codes(plan: Plan) -> set[str]:
    return {one["code"] for one in plan["warnings"]}


def holds(version: str | None, spec: str) -> bool:
    return version is not None and SpecifierSet(spec).contains(version, prereleases=True)


def meets(plan: Plan, text: str) -> bool:
    wanted = Requirement(text)
    return holds(pinned(plan).get(canonicalize_name(wanted.name)), str(wanted.specifier))


def brings(plan: Plan, text: str) -> bool:
    name, _, version = text.partition("=")
    return any(
        fnmatchcase(one["name"], name) and fnmatchcase(one["version"], version or "*") and one["action"] != "keep" for one in plan["apt"]
    )


def in_conflict(plan: Plan, text: str) -> bool:
    told = {key: plan["conflict"][key] for key in ("message", "causes")}
    return text.casefold() in json.dumps(told, ensure_ascii=False).casefold()


def relaxes(plan: Plan, text: str) -> bool:
    return text.casefold() in json.dumps(plan["conflict"]["relaxations"], ensure_ascii=False).casefold()


def action(plan: Plan, text: str) -> bool:
    name, _, wanted = text.partition(" ")
    return {one["name"]: one["action"] for one in plan["pip"]}.get(name, "absent") in wanted.split("|")


CHECKS: Mapping[str, Callable[[Plan, str], bool]] = {
    "pins": meets,
    "absent": lambda plan, name: name not in pinned(plan),
    "actions": action,
    "cuda": lambda plan, spec: holds(plan["stack"]["cuda"], spec),
    "cudnn": lambda plan, spec: holds(plan["stack"]["cudnn"], spec),
    "no_cudnn": lambda plan, _: plan["stack"]["cudnn"] is None,
    "driver_min": lambda plan, spec: holds(plan["stack"]["driver_min"], spec),
    "libraries": lambda plan, text: [one["libraries"] for one in plan["stack"]["frameworks"]] == text.split(),
    "apt": brings,
    "no_apt": lambda plan, _: not plan["apt"],
    "not_by_apt": lambda plan, text: not brings(plan, text),
    "repository": lambda plan, name: {one["repository"] for one in plan["apt"]} == {name},
    "overrides": lambda plan, name: name in {one["package"] for one in plan["overrides"]},
    "overrides_because": lambda plan, text: any(text in one["reason"] for one in plan["overrides"]),
    "no_overrides": lambda plan, _: not plan["overrides"],
    "environment": lambda plan, kind: kind in {one["kind"] for one in plan["environment"]},
    "warns": lambda plan, code: any(fnmatchcase(one, code) for one in codes(plan)),
    "no_warns": lambda plan, code: not any(fnmatchcase(one, code) for one in codes(plan)),
    "warns_of": lambda plan, text: text in " ".join(one["message"] for one in plan["warnings"]),
    "unpinned": lambda plan, name: name in plan["unpinned"],
    "must_say": in_conflict,
    "must_not_say": lambda plan, text: not in_conflict(plan, text),
    "must_relax": relaxes,
    "must_not_relax": lambda plan, text: not relaxes(plan, text),
}
"""What may be expected: a text or a list of texts for each, every one of which must hold. `must_say` looks at the message and the causes
of a conflict alone, `must_relax` at its relaxations alone."""


class Case:
    """One file."""

    def __init__(self, path: Path) -> None:
        found = tomllib.loads(path.read_text("utf-8"))
        assert set(found) <= KEYS, f"unknown keys: {sorted(set(found) - KEYS)}"
        assert len(found["why"]) > 20, "it must say what makes the answer right"
        self.fits = path.parent.name == "fits"
        self.argv = [str(MACHINES / f"{word[1:]}.json") if word.startswith("@") else word for word in shlex.split(found["args"])]
        self.files: Mapping[str, str] = found.get("files", {})
        expect = found["expect"]
        assert expect, "it must expect something"
        assert set(expect) <= set(CHECKS), f"unknown expectations: {sorted(set(expect) - set(CHECKS))}"
        self.expected = [(key, str(one)) for key, value in expect.items() for one in (value if isinstance(value, list) else [value])]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[list[str]], Plan]:
    """A function that answers the plan for the options, with its exit code held against its status."""
    monkeypatch.chdir(tmp_path)

    def answer(words: list[str]) -> Plan:
        done = run("plan", "--offline", "--format", "json", *words)
        assert not done.stderr
        found: Plan = json.loads(done.stdout)
        assert done.returncode == {"ok": 0, "unsatisfiable": 1}[found["status"]]
        return found

    return answer


@lru_cache(maxsize=1)
def shipped() -> Book:
    return open_book(())


def check_laws(found: Plan) -> None:
    """What holds for every plan whatever was asked."""
    book = shipped()
    pins = pinned(found)
    assert len(pins) == sum(one["action"] != "remove" for one in found["pip"]), "a package stands twice"
    assert all(one["because"] for one in found["pip"]), "a pin without a reason"
    slots = [slot for name in pins if (slot := book.slot(name)) is not None]
    assert sorted(set(slots)) == sorted(slots), "two packages own the same files"
    for one in found["stack"]["frameworks"]:
        if one["cudnn"] and one["cudnn_built"]:
            loaded, built = (tuple(map(int, one[key].split(".")[:2])) for key in ("cudnn", "cudnn_built"))
            assert loaded[0] == built[0], f"{one['name']} loads another major of cuDNN"
            assert len(built) < 2 or loaded >= built, f"{one['name']} loads an older minor of cuDNN"
    assert found["environment"], "nothing is said about the loader"
    assert all("LD_LIBRARY_PATH=" not in one["value"] for one in found["environment"])
    for number, step in enumerate(found["steps"]):
        assert not step["needs_root"] or step["kind"] == "ldconfig" or all(before["needs_root"] for before in found["steps"][:number])


@pytest.mark.parametrize("path", CASES, ids=[f"{path.parent.name}/{path.stem}" for path in CASES])
def test_a_case(path: Path, plan: Callable[[list[str]], Plan]) -> None:
    case = Case(path)
    for name, text in case.files.items():
        Path(name).write_text(text, "utf-8")

    found = plan(case.argv)

    message = found["conflict"] and json.dumps(found["conflict"], indent=1, ensure_ascii=False)
    assert (found["status"] == "ok") == case.fits, message or pinned(found)
    if path in CASES[::9]:
        fit(found)
    if case.fits:
        check_laws(found)
    else:
        check_proposals(found["conflict"]["relaxations"], plan)
    faults = [f"{key}: {text}" for key, text in case.expected if not CHECKS[key](found, text)]
    seen = {key: found[key] for key in ("stack", "pip", "apt", "overrides", "environment", "warnings", "conflict")}
    assert not faults, json.dumps(seen, indent=1, ensure_ascii=False)


def check_proposals(relaxations: Sequence[Mapping[str, Any]], plan: Callable[[list[str]], Plan]) -> None:
    """What a conflict proposes works."""
    for relaxation in relaxations:
        with edited(relaxation["change"]):
            for words in commands(relaxation["command"]):
                assert words[:2] == ["cudnn-resolve", "plan"]
                found = plan(words[2:])
                assert found["status"] == "ok", f"{words} leads to {found['conflict']}"


@contextmanager
def edited(change: str) -> Iterator[None]:
    """The line of a file changed as a relaxation says, where it says so, for as long as this lasts."""
    told = re.match(r"edit ([^:]+):(\d+): (?:without `(.+)`|(.+?) instead of (.+?) \()", change)
    if told is None:
        assert not change.startswith("edit")
        yield
        return
    file, number = Path(told[1]), int(told[2])
    before = file.read_text("utf-8")
    lines = before.splitlines()
    assert (told[3] or told[5]) in lines[number - 1]
    lines[number - 1] = "" if told[3] else lines[number - 1].replace(told[5], told[4])
    file.write_text("\n".join(lines) + "\n", "utf-8")
    yield
    file.write_text(before, "utf-8")


def commands(line: str) -> Iterator[list[str]]:
    """The program's own command lines among those that a relaxation proposes: other programs may come before them."""
    words = shlex.split(line.replace(", then ", " && "))
    while words:
        end = words.index("&&") if "&&" in words else len(words)
        if words[0] != "apt-get":
            yield words[:end]
        words = words[end + 1 :]


def test_there_are_cases_of_both_kinds() -> None:
    kinds = [path.parent.name for path in CASES]
    assert kinds.count("fits") >= 30
    assert kinds.count("conflicts") >= 15
    assert sum(os.path.getsize(path) for path in CASES) < 100_000
