"""`completion`: scripts that real shells take, and what they complete."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudnn_resolve.cli.completion import gpu_words
from cudnn_resolve.host.tables import open_book
from tests.program import run

CHECKED = {"bash": ("bash", "-n"), "zsh": ("zsh", "-n"), "fish": ("fish", "--no-execute")}
ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
function=$(complete -p cudnn-resolve | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" cudnn-resolve "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash."""
    path = tmp_path_factory.mktemp("completion") / "cudnn-resolve"
    path.write_text(run("completion", "bash").stdout, encoding="utf-8")
    return path


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    done = subprocess.run(["bash", "-c", ASK, "bash", str(script), "cudnn-resolve", *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("shell", list(CHECKED))
def test_a_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    done = run("completion", shell)
    (tmp_path / "script").write_text(done.stdout, encoding="utf-8")

    assert done.returncode == 0
    assert "cudnn-resolve" in done.stdout
    if shutil.which(shell):
        subprocess.run([*CHECKED[shell], str(tmp_path / "script")], check=True)


@pytest.mark.slow
def test_commands_options_and_words_are_completed(script: Path) -> None:
    assert completed(script, "pl") == ["plan"]
    assert completed(script, "plan", "--gp") == ["--gpu"]
    assert "torch==2.6.0" in completed(script, "plan", "-f", "torch==2.6")
    assert "tensorflow==2.15.1" in completed(script, "plan", "tensorflow==2.15")
    assert "A100" in completed(script, "plan", "--gpu", "A1")
    assert "g5." in completed(script, "check", "--machine", "g5")
    assert "RTX-4090" in completed(script, "plan", "--gpu", "RTX-40")
    assert completed(script, "matrix", "sh") == ["show"]
    assert completed(script, "matrix", "show", "tensorf") == ["tensorflow"]
    assert completed(script, "validate", "-f", "tor") == ["torch"]
    assert completed(script, "validate", "--gpu", "A1") == []


def test_every_gpu_is_offered_by_a_word_that_is_taken() -> None:
    book = open_book()
    known = {word: book.card(word) for word in gpu_words(book)}

    assert None not in known.values(), [word for word, card in known.items() if card is None]
    assert {card.name for card in known.values() if card} == {card.name for card in book.cards()}


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_completes_frameworks_with_versions_and_names_of_gpus(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(run("completion", "fish").stdout, encoding="utf-8")
    asked = (
        "cudnn-resolve plan --gpu A1",
        "cudnn-resolve plan --gpu RTX-40",
        "cudnn-resolve plan -f torch==2.6",
        "cudnn-resolve check --machine g5",
    )
    lines = ["source $argv[1]", *(f"complete -C '{one}'" for one in asked)]

    done = subprocess.run(
        ["fish", "--no-config", "-c", "; ".join(lines), str(tmp_path / "script")], capture_output=True, text=True, check=True
    )

    offered = {line.partition("\t")[0] for line in done.stdout.splitlines()}
    assert {"A100", "RTX-4090", "torch==2.6.0", "g5."} <= offered


def test_a_shell_that_is_none_is_told(tmp_path: Path) -> None:
    done = run("completion", "tcl", cwd=tmp_path)

    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr


def test_without_shtab_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "shtab", None)

    done = run("completion", "bash")

    assert done.returncode == 3
    assert "cudnn-resolve[completion]" in done.stderr
