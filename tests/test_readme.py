"""What the README and the pages of docs/ show is what the program prints, and what they name is there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import docs_reference
import pytest

from cudnn_resolve.cli.main import VERBS
from cudnn_resolve.cli.parser import Parser
from tests import program
from tests.fleet_maker import told, write

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
TABLES = ("docs/plan.md", "docs/validate.md")
"""Pages with a table of options."""
ELISION = "…"


class Sample(NamedTuple):
    """One command shown in the README, with what it is said to print; a line of one dot-dot-dot stands for any lines."""

    command: str
    lines: list[str]


def blocks(kind: str, text: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def samples() -> list[Sample]:
    found = (block.splitlines() for text in (README, *PAGES.values()) for block in blocks("console", text))
    return [Sample(first.removeprefix("$ "), rest) for first, *rest in found]


def run(command: str, cwd: Path) -> list[str]:
    name, *words = shlex.split(command)
    assert name == "cudnn-resolve"
    alone = (
        ["--offline"] if words[0] in ("plan", "why", "lock") or words[:2] in (["fleet", "plan"], ["fleet", "lock"]) else []
    )  # as printed where no index can be asked
    shutil.copy(ROOT / "tests" / "lists" / "requirements.txt", cwd)
    hosts = {f"node{number:02d}": told(f"n{number}", driver="535.104.05") for number in range(1, 9)}
    write(cwd / "facts", **hosts, k1=told("k1", "K80", "470.82.01"), k2=told("k2", "K80", "470.82.01"), b1=told("b1", "B200", "570.86.15"))
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


@pytest.mark.slow
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
    tables = "\n".join(line for name in TABLES for line in PAGES[name].splitlines() if line.startswith("| `-"))
    tables = re.sub(r"`(?!-)[\w.]+(?: [^`]*)?`", "", re.sub(r"\([^()|]*`-[^()|]*\)", "", tables))  # commands of other programs
    options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", tables))
    documents = {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md")}
    links = {(name, link) for name, text in documents.items() for link in re.findall(r"\]\((?!https?:)([^)#]+)[)#]", text)}

    assert len(options) > 10
    assert {option for option in options if option not in helps} == set()
    assert {link for name, link in links if not ((ROOT / name).parent / link).exists()} == set()


def test_modules_that_the_documents_name_exist() -> None:
    texts = {name: (ROOT / name).read_text("utf-8") for name in ("CONTRIBUTING.md", "SECURITY.md", "matrices/README.md", *PAGES)}
    named = {(page, path) for page, text in texts.items() for path in re.findall(r"`((?:[\w.-]+/)+\w+\.py)\b", text)}

    assert len(named) > 30
    assert {(page, path) for page, path in named if not any((ROOT / top / path).exists() for top in ("", "cudnn_resolve"))} == set()


def test_no_page_has_formulas_that_nothing_draws() -> None:
    assert [name for name, text in PAGES.items() if re.search(r"\$\$|\\(?:frac|sum|left)\b", text)] == []


def test_the_picture_is_what_is_drawn(tmp_path: Path) -> None:
    words = "why cudnn torch==2.6.0 tensorflow==2.18.0 --gpu T4 --driver 550.54.15 --python-version 3.11 --offline --format svg"

    assert program.run(*words.split(), cwd=tmp_path).stdout == (ROOT / "docs/assets/cudnn.svg").read_text("utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 180
    assert README.index("$ cudnn-resolve plan") < README.index("$ cudnn-resolve check")


def commands() -> list[str]:
    """Every command of this program that is shown to be typed."""
    every = (
        line
        for text in (README, *PAGES.values())
        for kind in ("sh", "console")
        for block in blocks(kind, text)
        for line in block.splitlines()
    )
    parts = (part for line in every for part in re.split(r"\s\|\s|\s&&\s", line.partition("  #")[0].removeprefix("$ ")))
    found = (re.search(r"(?:^|/|\s)(cudnn-resolve [a-z].*)", part) for part in parts)
    return list(dict.fromkeys(one[1].strip() for one in found if one))


@pytest.mark.parametrize("command", commands())
def test_a_command_that_is_shown_can_be_typed(command: str) -> None:
    _, verb, *words = shlex.split(command)
    parser = Parser(prog="cudnn-resolve", description="")
    import_module(f"cudnn_resolve.cli.{verb}").add_arguments(parser)

    parser.parse(words)


def errors() -> list[tuple[str, str]]:
    """Each message of the page of errors, with the causes that it may have."""
    return re.findall(r"<!-- cause: (.*?) -->\n```text\n(.*?)^```", PAGES["docs/errors.md"], re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("causes", "message"), errors(), ids=[causes for causes, _ in errors()])
def test_doctor_knows_the_errors_of_the_page(causes: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(message)

    done = program.run("doctor", "a.log", "--no-facts", "--format", "json", cwd=tmp_path)

    assert json.loads(done.stdout)["findings"][0]["cause"] in causes.split(", ")


def test_every_part_that_is_generated_is_made() -> None:
    asked = {name for text in PAGES.values() for name in re.findall("<!-- generated: (.*?) -->", text)}
    made = {name: docs_reference.on_page_markdown(f"<!-- generated: {name} -->") for name in asked}

    assert asked == set(docs_reference.GENERATED)
    assert {name for name, text in made.items() if len(text) < 1000} == set()
    assert all(f"\n## {verb}\n" in f"\n{made['commands']}" for verb in VERBS)


@pytest.mark.slow
def test_the_rows_that_are_shown_are_sound(tmp_path: Path) -> None:
    files = re.findall(r"<!-- file: (.*?) -->\n```toml\n(.*?)^```", PAGES["docs/rows.md"], re.MULTILINE | re.DOTALL)
    for name, text in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)

    done = program.run("matrix", "check", "--matrix", "our-matrix", cwd=tmp_path)

    assert files
    assert done.returncode == 0, done.stdout


def test_every_page_stands_in_the_navigation_and_links_to_what_is_there() -> None:
    listed = re.findall(r"^\s*- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    links = {(name, link) for name, text in PAGES.items() for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text)}

    assert sorted(f"docs/{name}" for name in listed) == sorted(PAGES)
    assert {link for name, link in links if not ((ROOT / name).parent / link).exists()} == set()
