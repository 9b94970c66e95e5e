"""Every command of this program that a finding proposes is one that its own parser takes."""

from __future__ import annotations

import shlex
from functools import cache
from importlib import import_module

import pytest

from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.diagnosis.model import Diagnosis
from cudnn_resolve.matrix.symptom import RemedyRow
from cudnn_resolve.requirement.target import parse_limit, parse_target
from tests.written_logs import Case, book, broken, judged, written

LOGS = [*written(), *broken()]
NVCC = "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (11.8). Please make sure\n"


def own_commands(found: Diagnosis) -> list[str]:
    """The commands of this program among all remedies."""
    every = [remedy.command or "" for one in found.findings for remedy in one.remedy]
    return [part for command in every for part in command.split(" && ") if part.startswith("cudnn-resolve ")]


@cache
def parser_of(verb: str) -> Parser:
    parser = Parser(prog="p", description="d")
    import_module(f"cudnn_resolve.cli.{verb}").add_arguments(parser)
    return parser


@cache
def parses(command: str) -> bool:
    """True where the parser of the verb takes the words, and each framework in them is one; raises UsageError otherwise."""
    verb, *words = shlex.split(command)[1:]
    args = parser_of(verb).parse(words)
    targets = [parse_target(one, book()) for one in getattr(args, "framework", None) or () if one != "FRAMEWORK"]
    limit = getattr(args, "cuda", None)
    return all(targets) and (limit is None or parse_limit(limit, "--cuda") is not None)


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case.name)
def test_a_command_of_this_program_can_be_typed(case: Case) -> None:
    assert all(map(parses, own_commands(judged(case.log))))


@pytest.mark.slow
def test_every_sample_of_a_row_has_such_commands() -> None:
    samples = {one for row in book().symptoms() for one in row.sample}
    assert all(parses(command) for command in {each for one in samples for each in own_commands(judged(one + "\n"))})


def test_the_toolkit_of_a_message_is_its_version() -> None:
    assert "cudnn-resolve plan -f torch --cuda 12.4" in own_commands(judged(NVCC))


def test_no_framework_is_raised_without_its_build() -> None:
    every = [(row.command or "").replace("jax-cuda12-", "").replace("jax[cuda13]", "") for row in book().rows(RemedyRow)]
    assert not [one for one in every if "pip install -U" in one and any(name in one for name in ("torch", "tensorflow", "jax", "paddle"))]
