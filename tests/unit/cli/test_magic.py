"""The magics of notebooks, given to a shell that is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cudnn_resolve
from cudnn_resolve.cli.magic import CellError


class Shell:
    """What IPython hands in."""

    def __init__(self) -> None:
        self.magics: dict[tuple[str, str], Callable[..., Any]] = {}

    def register_magic_function(self, function: Callable[..., Any], kind: str, name: str) -> None:
        self.magics[kind, name] = function


@pytest.fixture
def magics() -> dict[tuple[str, str], Callable[..., Any]]:
    shell = Shell()
    cudnn_resolve.load_ipython_extension(shell)
    return shell.magics


def test_a_line_is_a_command_line(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    magics["line", "cudnn"]("matrix show tensorflow 2.15")

    assert "8.9" in capsys.readouterr().out


def test_a_wrong_line_fails_its_cell(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CellError, match="exit code 2") as caught:
        magics["line", "cudnn"]("plann")

    assert "did you mean" in capsys.readouterr().err
    assert caught.value._render_traceback_() == ["cudnn-resolve ended with exit code 2"]


def test_doctor_judges_the_last_error(magics: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "libcudnn.so.8: cannot open shared object file: No such file or directory"
    monkeypatch.setattr(sys, "last_value", ImportError(text), raising=False)
    stdin = sys.stdin

    magics["line", "cudnn"]("doctor --format=json")

    assert text in capsys.readouterr().out
    assert sys.stdin is stdin


def test_a_cell_runs_in_an_environment_and_fails_as_it_fails_there(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    magics["cell", "cudnn_run"](f"{sys.executable} word", "import sys\nprint(sys.executable, sys.argv[1:])\nsys.stderr.write('aside')\n")
    assert capsys.readouterr() == (f"{sys.executable} ['word']\n", "aside")

    with pytest.raises(CellError, match="exit code 1"):
        magics["cell", "cudnn_run"](sys.executable, "fine = 1\nraise ValueError('no')\n")
    shown = capsys.readouterr().err
    assert "line 2" in shown
    assert "ValueError: no" in shown

    with pytest.raises(CellError, match="nothing was run"):
        magics["cell", "cudnn_run"]("/nowhere", "print(1)")


def test_what_a_cell_prints_is_shown_as_it_comes(magics: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cell waits for a file that is written when its first line has been shown."""
    answer = tmp_path / "answer"
    shown: list[str] = []

    def write(text: str) -> None:
        shown.append(text)
        answer.touch()

    monkeypatch.setattr(sys.stdout, "write", write)
    magics["cell", "cudnn_run"](
        sys.executable, f"import os, time\nprint('1')\nwhile not os.path.exists({str(answer)!r}): time.sleep(0.01)\nprint('2')"
    )

    assert "".join(shown) == "1\n2\n"


def test_the_package_alone_imports_none_of_it() -> None:
    source = "import sys, cudnn_resolve; print([name for name in sys.modules if name.startswith(('IPython', 'cudnn_resolve.'))])"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['cudnn_resolve._version']"
