"""Tools that change something: how they end when we are asked to."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cudnn_resolve.host.interrupt import InterruptError, interruptible
from cudnn_resolve.host.run_tool import Tooling, run_tool

SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(0.2)\nprint('a line' * 20000)\nprint('whole', flush=True)"


def interrupt(line: str) -> None:
    if line == "begun":
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize(("outlives", "whole"), [(True, True), (False, False)])
def test_a_tool_that_must_not_be_torn_off_is_awaited_and_its_output_kept(tmp_path: Path, *, outlives: bool, whole: bool) -> None:
    tooling = Tooling(log=str(tmp_path / "log.txt"), on_line=interrupt)

    with interruptible(), pytest.raises(InterruptError, match="SIGTERM"):
        run_tool((sys.executable, "-c", SLOW), tooling, env=dict(os.environ), outlives=outlives)

    assert (tmp_path / "log.txt").read_text().endswith("whole\n") == whole


def test_a_program_that_a_tool_leaves_behind_is_not_awaited(tmp_path: Path) -> None:
    wait = f"import os, time\nfor _ in range(200):\n    os.path.exists({str(tmp_path / 'over')!r}) and os._exit(0)\n    time.sleep(0.1)\n"
    stays = f"{wait}open({str(tmp_path / 'late')!r}, 'w')"
    tool = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {stays!r}])\nprint('begun', flush=True)\nprint('whole')"
    tooling = Tooling(log=str(tmp_path / "log.txt"), on_line=interrupt)

    with interruptible(), pytest.raises(InterruptError, match="SIGTERM"):
        run_tool((sys.executable, "-c", tool), tooling, env=dict(os.environ), outlives=True)

    (tmp_path / "over").touch()
    assert (tmp_path / "log.txt").read_text().endswith("whole\n")
    assert not (tmp_path / "late").exists(), "it held the pipe open all the time"


@pytest.mark.parametrize("outlives", [True, False])
def test_a_program_that_holds_the_pipe_is_not_awaited_without_an_interrupt_either(tmp_path: Path, *, outlives: bool) -> None:
    wait = f"import os, time\nfor _ in range(200):\n    os.path.exists({str(tmp_path / 'over')!r}) and os._exit(0)\n    time.sleep(0.1)\n"
    tool = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {wait!r}])\nprint('whole')"
    began = time.monotonic()

    done = run_tool((sys.executable, "-c", tool), Tooling(log=str(tmp_path / "log.txt")), env=dict(os.environ), outlives=outlives)

    (tmp_path / "over").touch()
    assert (done.ok, done.tail) == (True, ("whole",))
    assert time.monotonic() - began < 15


def test_lines_are_whole_however_they_come(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import os\nfor part in (b'a', b'b\\r\\n\\n', b'c' * 5000, b'\\nlast'): os.write(1, part)"

    done = run_tool((sys.executable, "-c", code), Tooling(log=str(tmp_path / "log.txt"), on_line=lines.append), env=dict(os.environ))

    assert "".join(lines) == "ab" + "c" * 5000 + "last"
    assert (lines[:2], lines[-1], done.tail) == (["ab", ""], "last", tuple(lines))


def test_a_tool_that_is_not_there(tmp_path: Path) -> None:
    done = run_tool(("/nonexistent/tool",), Tooling(log=str(tmp_path / "log.txt")), env={})

    assert (done.ok, done.returncode) == (False, None)
    assert "No such file" in done.why()
