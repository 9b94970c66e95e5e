"""What the README shows is what the program prints, and what it names is there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import program

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
ELISION = "…"


class Sample(NamedTuple):
    """One command shown in the README, with what it is said to print; a line of one dot-dot-dot stands for any lines."""

    command: str
    lines: list[str]


def samples() -> list[Sample]:
    blocks = re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [Sample(first.removeprefix("$ "), rest) for first, *rest in (block.splitlines() for block in blocks)]


def run(command: str, cwd: Path) -> list[str]:
    name, *words = shlex.split(command)
    assert name == "cudnn-resolve"
    alone = ["--offline"] if words[0] in ("plan", "why", "lock") else []  # as printed where no index can be asked
    shutil.copy(ROOT / "tests" / "lists" / "requirements.txt", cwd)
    done = program.run(*words, *alone, cwd=cwd)
    assert done.returncode in (0, 1), done.stderr
    return [line.rstrip().removesuffix(" --offline") for line in done.stdout.splitlines()]


def misprints(shown: list[str], printed: list[str]) -> list[str]:
    """The shown lines that were not printed where they are shown: in order, and one after the other but for elisions."""
    place, free = 0, False
    for line in shown:
        if line.strip() == ELISION:
            free = True
            continue
        found = next((at for at in range(place, len(printed) if free else min(place + 1, len(printed))) if printed[at] == line), None)
        if found is None:
            return [line, *printed[place : place + 3]]
        place, free = found + 1, False
    return [] if free or place == len(printed) else printed[place:]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.command)
def test_sample_is_what_is_printed(sample: Sample, tmp_path: Path) -> None:
    assert misprints(sample.lines, run(sample.command, tmp_path)) == []


def test_there_are_samples() -> None:
    assert {shlex.split(sample.command)[1] for sample in samples()} >= {"plan", "matrix"}


@pytest.mark.parametrize(
    ("shown", "printed"),
    [(["a"], ["b"]), (["a", "c"], ["a", "b", "c"]), (["a"], ["a", "b"]), (["a", "…", "d"], ["a", "b"]), (["…", "b"], ["b", "c"])],
)
def test_a_misprint_is_seen(shown: list[str], printed: list[str]) -> None:
    assert misprints(shown, printed)


@pytest.mark.parametrize("shown", [["a", "b", "c"], ["a", "…", "c"], ["…", "c"], ["a", "  …"], ["…"]])
def test_an_elision_stands_for_any_lines(shown: list[str]) -> None:
    assert misprints(shown, ["a", "b", "c"]) == []


def test_options_and_files_that_the_documents_name_exist(tmp_path: Path) -> None:
    helps = "\n".join("\n".join(run(f"cudnn-resolve help {verb}", tmp_path)) for verb in ("plan", "detect", "validate", "why", "matrix"))
    tables = "\n".join(line for line in README.splitlines() if line.startswith("| `-"))
    tables = re.sub(r"`(?!-)[\w.]+(?: [^`]*)?`", "", re.sub(r"\([^()|]*`-[^()|]*\)", "", tables))  # commands of other programs
    options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", tables))
    documents = {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md")}
    links = {(name, link) for name, text in documents.items() for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text)}

    assert len(options) > 10
    assert {option for option in options if option not in helps} == set()
    assert {link for name, link in links if not ((ROOT / name).parent / link).exists()} == set()
