"""The program in a real terminal: narrow, made narrower while it works, interrupted, without colours, and redirected."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apply_world import lend_pip
from tests.program import run
from tests.small_wheels import write_wheel
from tests.tmux import ROOT, Terminal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here; .ci/run installs it")]
PLAN = ("plan", "-f", "torch==2.6.0", "--facts", str(ROOT / "tests/machines/workstation.json"), "--offline")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Terminals that are closed afterwards."""
    opened: list[Terminal] = []

    def open_one(columns: int, **env: str) -> Terminal:
        opened.append(Terminal(tmp_path, columns, env={"XDG_CACHE_HOME": str(tmp_path / "cache"), **env}))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def wrapped_by_the_terminal(lines: list[str], columns: int) -> list[str]:
    """Lines of words that fill the terminal to its edge: it broke them, and not the program."""
    return [line for line in lines if len(line) >= columns and " " in line.strip() and "cudnn-resolve" not in line and "/" not in line]


@pytest.mark.parametrize("columns", [60, 100])
def test_a_plan_fits_the_terminal(terminal: Callable[..., Terminal], columns: int) -> None:
    shown = terminal(columns)
    shown.program(*PLAN)

    lines = shown.wait("code=0")

    assert any("cuDNN" in line for line in lines)
    assert wrapped_by_the_terminal(lines, columns) == []
    assert "\x1b[" in "".join(shown.lines(codes=True))
    assert shown.has_cursor()


def test_no_color_leaves_plain_text(terminal: Callable[..., Terminal]) -> None:
    shown = terminal(80, NO_COLOR="1")
    shown.program(*PLAN)

    shown.wait("code=0")

    assert "\x1b" not in "".join(shown.lines(codes=True))


def test_what_is_redirected_is_plain_and_whole(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    shown = terminal(60)
    shown.program(*PLAN, after="> plan.txt 2> messages.txt")

    shown.wait("code=0")

    text = (tmp_path / "plan.txt").read_text("utf-8")
    assert "\x1b" not in text + (tmp_path / "messages.txt").read_text("utf-8")
    assert "…" not in text
    assert any(len(line) > 60 for line in text.splitlines())


def test_ctrl_c_ends_a_long_wait_at_once_and_leaves_a_clean_screen(terminal: Callable[..., Terminal]) -> None:
    shown = terminal(80)
    shown.program("matrix", "html", "-o", "site")
    shown.wait("reading the releases")
    shown.press("C-c")

    lines = [line for line in shown.wait("code=") if line.strip()]

    assert lines[lines.index("code=130") - 1].removeprefix("^C") == "interrupted"  # the terminal echoes ^C
    assert "reading the releases" not in "".join(lines)
    assert "Traceback" not in "".join(lines)
    assert shown.has_cursor()


WORK = """
import time
from cudnn_resolve.cli.arguments import Output
from cudnn_resolve.cli.printing import messages, clear_status, expect
listener = messages(Output())
expect("over before a second has passed")
clear_status()
expect("reading the tables")
time.sleep(2.5)
listener.tell("asking an index " + "x" * 200)
time.sleep(1.2)
expect("what a bar takes the place of")
listener.begin("fetching 3 files", 40 << 20)
for _ in range(40):
    listener.advance(1 << 20)
    time.sleep(0.1)
listener.end()
print("all done")
"""


def test_a_bar_shows_rate_and_time_left_and_survives_a_terminal_that_becomes_narrow(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text(WORK)
    shown = terminal(100)
    shown.type(f"clear; {shlex.quote(sys.executable)} work.py")

    assert "1 s  reading the tables" in shown.wait("1 s  reading")
    assert any(line.startswith("3 s  asking an index") for line in shown.wait("3 s  asking"))
    assert any("/s" in line and "MiB" in line and "0:" in line for line in shown.wait("MB/s"))
    shown.resize(60)
    lines = [line for line in shown.wait("all done") if line.strip()]

    end = lines.index("all done")  # the shell's prompt may be there already
    assert lines[end - 1].startswith("fetching 3 files, 40 MiB, ")
    assert not any("s  " in line for line in lines[:end])
    assert shown.has_cursor()


def test_a_long_log_is_told_with_rate_and_time_left_and_leaves_no_line(terminal: Callable[..., Terminal]) -> None:
    shown = terminal(80)
    shown.type("mkfifo part; (for piece in 1 2 3 4; do head -c 1500000 /dev/zero | tr '\\0' 'a\\n'; sleep 1; done; echo done) >part &")
    shown.program("doctor", "-", "--no-facts", after="< part")

    assert any("MB/s" in line for line in shown.wait("reading the log: "))
    lines = shown.wait("code=0")
    assert not any("reading the log" in line for line in lines)
    assert shown.has_cursor()


def test_a_table_of_classes_stands_while_they_are_worked_on_and_ctrl_c_ends_it_at_once(terminal: Callable[..., Terminal]) -> None:
    shown = terminal(80)
    shown.program("fleet", "plan", "torch", "tensorflow", "jax", "--offline", "--from", str(ROOT / "tests/machines"))
    lines = shown.wait("  waiting")
    assert any("working on the classes" in line for line in lines), lines
    assert any(re.fullmatch(r"\d+ of \d+", line.strip()) for line in lines), lines
    shown.press("C-c")

    lines = [line for line in shown.wait("code=") if line.strip()]

    # The terminal itself echoes ^C, before or after the table is wiped away.
    assert lines[lines.index("code=130") - 1].removeprefix("^C") == "interrupted"
    assert not any("waiting" in line for line in lines)
    assert "Traceback" not in "".join(lines)
    assert shown.has_cursor()


def test_ctrl_c_at_the_question_of_apply_changes_nothing(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True, with_pip=False)
    lend_pip(next(environment.glob("lib/python3*/site-packages")))
    file = write_wheel(tmp_path / "wheels", "demo", "1.0")
    place = f'{{name = "{file.filename}", path = "wheels/{file.filename}", hashes = {{sha256 = "{file.hashes["sha256"]}"}}}}'
    lock = ['lock-version = "1.0"', 'created-by = "a test"', "", "[[packages]]", 'name = "demo"', 'version = "1.0"', f"wheels = [{place}]"]
    (tmp_path / "pylock.toml").write_text("\n".join([*lock, ""]))
    shown = terminal(60, XDG_STATE_HOME=str(tmp_path / "state"))
    shown.program("apply", "--python", str(environment), after="")
    shown.wait("Apply this plan? [y/N]")
    shown.press("C-c")

    lines = shown.wait("code=130")

    assert "Traceback" not in "".join(lines)
    assert not list(environment.glob("lib/python3*/site-packages/demo*"))
    assert shown.has_cursor()


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here; .ci/run installs it")
def test_zsh_completes_frameworks_with_versions_and_names_of_gpus(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions/_cudnn-resolve").write_text(run("completion", "zsh").stdout, "utf-8")
    shell = terminal(100)
    shell.type("exec zsh -f")
    shell.type("fpath=(functions $fpath); autoload -Uz compinit; compinit -u -D; echo re''ady")
    shell.wait("ready")

    for typed, offered in (("plan -f torch==2.6", "torch==2.6.0"), ("plan --gpu RTX-40", "RTX-4090"), ("doc", "doctor")):
        shell.wait_for_prompt("#" if os.geteuid() == 0 else "%")
        shell.tmux("send-keys", "-l", f"cudnn-resolve {typed}")
        shell.press("Tab")
        shell.wait(offered)
        shell.press("C-c")
