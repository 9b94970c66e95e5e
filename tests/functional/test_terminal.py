"""Every verb on a terminal: colours that are switched off again, lines that fit, and no escape code as text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.apply_world import lend_pip
from tests.program import ROOT, run
from tests.small_wheels import write_wheel
from tests.terminal import on_terminal

FACTS = ("--facts", str(ROOT / "tests/machines/workstation.json"))
PLAN = ("-f", "torch==2.6.0", *FACTS, "--offline")
VERBS = {
    "detect": ("detect", *FACTS),
    "detect -v": ("detect", "-v", *FACTS),
    "plan": ("plan", *PLAN),
    "plan -v": ("plan", "-v", *PLAN),
    "plan, none": ("plan", "-f", "torch==2.0.0", *FACTS, "--offline", "--python-version", "3.14"),
    "why": ("why", "nvidia-cudnn-cu12", *PLAN),
    "lock": ("lock", "-f", "torch==2.6.0", "--python-version", "3.11", "--platform", "linux_x86_64", "--offline"),
    "doctor": ("doctor", "error.log", "--no-facts"),
    "matrix list": ("matrix", "list"),
    "matrix show torch": ("matrix", "show", "torch"),
    "matrix show torch 2.6": ("matrix", "show", "torch", "2.6"),
    "matrix show cuda": ("matrix", "show", "cuda", "12.4"),
    "matrix show gpu": ("matrix", "show", "gpu", "T4"),
    "help": ("--help",),
    "help of a verb": ("apply", "--help"),
    "wrong word": ("plan", "-f", "tensorflw"),
    "validate": ("validate",),
    "history": ("apply", "--history"),
}
LOG = "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file or directory\n"


WIDER = ("plan", "detect", "matrix show torch 2.6")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "columns"), [*((name, 60) for name in VERBS), *((name, 80) for name in WIDER)])
def test_a_verb_draws_what_a_terminal_shows(tmp_path: Path, name: str, columns: int) -> None:
    (tmp_path / "error.log").write_text(LOG)

    shown = on_terminal(VERBS[name], columns, cwd=tmp_path)

    assert shown.text.strip()
    assert "Traceback" not in shown.text
    assert shown.faults() == []
    assert shown.wide(columns) == []


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "answer", "code", "said"), [(60, "n", 1, "nothing was changed: not confirmed"), (80, "y", 0, "done:")])
def test_apply_shows_its_plan_before_it_asks(tmp_path: Path, columns: int, answer: str, code: int, said: str) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True, with_pip=False)
    lend_pip(next(environment.glob("lib/python3*/site-packages")))
    lines = ['lock-version = "1.0"', 'created-by = "a test"', ""]
    for package in ("demo", "other"):
        file = write_wheel(tmp_path / "wheels", package, "1.0")
        place = f'{{name = "{file.filename}", path = "wheels/{file.filename}", hashes = {{sha256 = "{file.hashes["sha256"]}"}}}}'
        lines += ["[[packages]]", f'name = "{package}"', 'version = "1.0"', f"wheels = [{place}]", ""]
    (tmp_path / "pylock.toml").write_text("\n".join(lines))
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "UV_CACHE_DIR": str(tmp_path / "cache")}

    shown = on_terminal(("apply", "--python", str(environment)), columns, cwd=tmp_path, env=env, answer=answer)

    assert shown.returncode == code, shown.text
    assert "+ demo 1.0" in shown.text
    assert said in shown.text
    assert "\x1b[1m" in shown.raw  # it has colours
    assert shown.faults() == []
    assert shown.wide(columns) == []


@pytest.mark.parametrize("words", [("detect", *FACTS), ("plan", *PLAN), ("matrix", "show", "torch")])
def test_nothing_is_cut_where_nobody_reads_columns(tmp_path: Path, words: tuple[str, ...]) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}

    done = run(*words, environ=environ, cwd=tmp_path)

    assert done.stdout.strip()
    assert "…" not in done.stdout
    assert "no room for" not in done.stdout


PROGRESS = """
from cudnn_resolve.cli.arguments import Output
from cudnn_resolve.cli.printing import messages
listener = messages(Output())
listener.tell("asking [bold]an index[/] " + "x" * 200)
listener.begin("fetching 3 files\x1b[2J", 10 << 20)
listener.advance(5 << 20)
listener.note("a word")
listener.advance(5 << 20)
listener.begin("installing")
listener.end()
"""


def test_what_takes_a_while_is_drawn_and_leaves_nothing_behind_but_what_was_done(tmp_path: Path) -> None:
    shown = on_terminal((), 60, cwd=tmp_path, code=PROGRESS)

    assert shown.returncode == 0, shown.text
    assert "asking [bold]an index[/]" in shown.raw
    assert "5.0/10.0 MiB" in shown.raw
    left = [re.sub(r"\d+\.\d s$", "N s", line) for line in shown.lines if line]  # a busy machine takes longer than 0.0 s
    assert left == ["a word", "fetching 3 files\\x1b[2J, 10 MiB, N s", "installing, N s"]
    assert shown.raw.count("\x1b[?25l") == shown.raw.count("\x1b[?25h")  # the cursor is there again


STATES = """
from cudnn_resolve.cli.arguments import Output
from cudnn_resolve.cli.printing import messages, clear_status
listener = messages(Output())
for host in ("n1", "n2", "n3"):
    listener.state(host, "ok", "facts")
for name in ("t4", "a100"):
    listener.state(name, "waiting")
listener.state("t4", "no: \x1b[2J[/bold]")
clear_status(is_over=True)
"""


def test_a_table_counts_those_that_are_waited_for_and_says_what_others_wrote_as_text(tmp_path: Path) -> None:
    shown = on_terminal((), 60, cwd=tmp_path, code=STATES)

    assert shown.returncode == 0, shown.text
    assert "1 of 2" in shown.raw
    assert "4 of 5" not in shown.raw
    assert "no: \\x1b[2J[/bold]" in shown.raw
    assert [line for line in shown.lines if line] == []


def test_what_takes_a_while_is_said_in_plain_lines_in_a_pipe(tmp_path: Path) -> None:
    code = f"{PROGRESS}import sys; assert not any(name.startswith('rich') for name in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "fetching 3 files\\x1b[2J, 10 MiB …\na word\ninstalling …\n"
