"""What `apply` looks at afterwards on a machine with a GPU, and the words by which it can be done again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from cudnn_resolve.cli import apply
from cudnn_resolve.cli.arguments import lock_among, request_of
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.execution.environment import ask_environment
from cudnn_resolve.execution.journal import Journal
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.task import Task
from cudnn_resolve.facts.model import Driver, Facts, Gpu
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.operations import apply as operation
from cudnn_resolve.operations import validate
from cudnn_resolve.operations.apply import Stopped, stopped, validation_failures
from cudnn_resolve.operations.options import ApplyRequest
from cudnn_resolve.validation.model import Check, Validation

TASK = Task(targets=("torch",), cudnn={"torch": "9.1.0.70"})
WITH_GPU = Facts(driver=Driver(version="550.54.15"), gpus=(Gpu(name="Tesla T4"),))


@pytest.mark.parametrize("facts", [Facts(), Facts(driver=None, gpus=()), Facts(driver=None, gpus=WITH_GPU.gpus)])
def test_without_a_gpu_nothing_is_tested(facts: Facts) -> None:
    assert validation_failures(TASK, facts) == ()


@pytest.mark.parametrize(("status", "said"), [("passed", ()), ("failed", ("validation: torch/conv2d: no kernel image",))])
def test_with_a_gpu_the_stack_is_seen_at_work(monkeypatch: pytest.MonkeyPatch, status: str, said: tuple[str, ...]) -> None:
    asked = []

    def validation_of(wish: object, facts: Facts, *_: object) -> Validation:
        asked.append((wish, facts))
        return Validation(checks=(Check(id="torch/conv2d", status=status, detail="no kernel image"),))  # type: ignore[arg-type]

    monkeypatch.setattr(validate, "validation_of", validation_of)

    assert validation_failures(TASK, WITH_GPU) == said
    assert [facts for _, facts in asked] == [WITH_GPU]


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="x", description="")
    apply.add_arguments(parser)
    return lock_among(parser.parse(list(words)))


@pytest.mark.parametrize(
    "words",
    [
        ("-f", "torch==2.6.0", "-f", "jax", "--cuda", ">=12,<13", "--yes", "--python", "/env/bin/python"),
        ("path/to/pylock.toml", "--installer", "uv", "--dry-run"),
        ("-r", "r.txt", "--offline", "--no-hashes", "--gpu", "T4", "-q"),
    ],
)
def test_the_words_of_a_command_line_ask_for_the_same(words: tuple[str, ...]) -> None:
    first = parsed(*words)

    again = parsed(*request_of(ApplyRequest, first).command_words())

    for name in ("framework", "requirement", "cuda", "python", "lock", "installer", "offline", "no_hashes", "gpu"):
        assert getattr(again, name) == getattr(first, name)
    assert not again.yes
    assert not again.dry_run


def test_what_is_said_with_resume_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "then").mkdir()
    monkeypatch.chdir(tmp_path)
    asked: list[argparse.Namespace] = []
    monkeypatch.setattr(apply, "run", asked.append)
    found = Stopped(words=("--installer=pip", "--no-hashes", "--framework=torch"), folder=str(tmp_path / "then"), python="/env/bin/python")

    apply.run_again(found, parsed("--resume", "--no-validate", "--installer", "uv", "--dry-run", "-o", "said.txt"))

    assert vars(asked[0]).items() >= {"installer": "uv", "no_validate": True, "no_hashes": True, "dry_run": True, "resume": False}.items()
    assert (asked[0].output, asked[0].python, Path.cwd()) == (str(tmp_path / "said.txt"), "/env/bin/python", tmp_path / "then")
    apply.run_again(found, parsed("--resume"))
    assert (asked[1].installer, asked[1].no_validate, asked[1].output) == ("pip", False, None)


def test_what_was_stopped_before_it_had_a_journal_is_resumed_and_not_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = ask_environment(LinuxHost(), sys.executable)
    monkeypatch.setattr(operation, "_environment", lambda _: environment)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    journals = Journals(environment)

    def words() -> tuple[str, ...] | None:
        found = stopped()
        return found.words if found else None

    assert words() is None
    for name in ("first", "third"):
        journals.mark(["planning", name])
        assert words() == ("planning", name)
        journal = journals.open()
        journal.add("begin", schema=1, id=journal.id, prefix=environment.prefix, words=[name])
        assert words() == (name,)
        journals.unmark()
        journal.add("dropped", why="interrupted")
        assert words() == (name,)
    journals.mark(["fourth"])
    journals.open().add("begin", schema=1, id=3, prefix=environment.prefix, words=["fourth"])
    for one in journals.all()[-1:]:
        Journal.resume(one).add("commit")
    assert words() is None
