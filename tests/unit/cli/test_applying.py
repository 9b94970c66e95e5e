"""What `apply` looks at afterwards on a machine with a GPU, and the words by which it can be done again."""

from __future__ import annotations

import argparse

import pytest

from cudnn_resolve.cli import apply, validate
from cudnn_resolve.cli.applying import seen_at_work
from cudnn_resolve.cli.options import Options
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.execution.task import Task
from cudnn_resolve.facts.model import Driver, Facts, Gpu
from cudnn_resolve.validation.model import Check, Validation

TASK = Task(targets=("torch",), cudnn={"torch": "9.1.0.70"})
WITH_GPU = Facts(driver=Driver(version="550.54.15"), gpus=(Gpu(name="Tesla T4"),))


@pytest.mark.parametrize("facts", [Facts(), Facts(driver=None, gpus=()), Facts(driver=None, gpus=WITH_GPU.gpus)])
def test_without_a_gpu_nothing_is_tested(facts: Facts) -> None:
    assert seen_at_work(TASK, facts, Options()) == ()


@pytest.mark.parametrize(("status", "said"), [("passed", ()), ("failed", ("validation: torch/conv2d: no kernel image",))])
def test_with_a_gpu_the_stack_is_seen_at_work(monkeypatch: pytest.MonkeyPatch, status: str, said: tuple[str, ...]) -> None:
    asked = []

    def validation_of(options: Options, wish: object, facts: Facts) -> Validation:
        asked.append((wish, facts))
        del options
        return Validation(checks=(Check(id="torch/conv2d", status=status, detail="no kernel image"),))  # type: ignore[arg-type]

    monkeypatch.setattr(validate, "validation_of", validation_of)

    assert seen_at_work(TASK, WITH_GPU, Options()) == said
    assert [facts for _, facts in asked] == [WITH_GPU]


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="x", description="")
    apply.add_arguments(parser)
    return parser.parse(list(words))


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

    again = parsed(*apply.words_of(first))

    for name in ("framework", "requirement", "cuda", "python", "lock", "installer", "offline", "no_hashes", "gpu"):
        assert getattr(again, name) == getattr(first, name)
    assert not again.yes
    assert not again.dry_run
