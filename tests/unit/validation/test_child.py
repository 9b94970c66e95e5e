"""The protocol between the program and its children, with real children and hostile output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.validation import child
from cudnn_resolve.validation.answers import ChildReport, one_line
from cudnn_resolve.validation.child import last_lines, run_payload
from tests.unit.validation.recordings import answered, telling


@pytest.fixture(autouse=True)
def _payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads of a test are taken from its folder."""
    monkeypatch.setattr(child, "FOLDERS", [*child.FOLDERS, str(tmp_path)])


def run(tmp_path: Path, program: str, *, seconds: float = 20.0, memory_mib: int = 4096, **env: str) -> ChildReport:
    """A payload of a test, run as those of the program are."""
    (tmp_path / "payload_of_test.py").write_text(program, "utf-8")
    host = LinuxHost()
    return run_payload(
        host, sys.executable, {"payload": "payload_of_test"}, env={**host.environ, **env}, seconds=seconds, memory_mib=memory_mib
    )


def test_what_is_told_comes_back_in_order(tmp_path: Path) -> None:
    told = run(tmp_path, "def run(question, tell):\n    tell('step', 'one')\n    tell('x', 1)\n    tell('x', 2)\n")

    assert list(told.values("x", int)) == [1, 2]
    assert told.last("x", int) == 2
    assert told.step == "one"
    assert told.failure == ""


def test_what_a_framework_prints_is_no_answer(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "def run(question, tell):\n"
        '    print(\'cudnn-resolve-answer ["x", "printed"]\', flush=True)\n'
        '    os.write(1, b\'cudnn-resolve-answer ["x", "written"]\\n\')\n'
        "    os.system('echo shell')\n"
        "    tell('x', 'told')\n"
    )

    told = run(tmp_path, program)

    assert list(told.values("x", str)) == ["told"]
    assert "shell" in told.output


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no\\x1b[31m')", "ValueError: no?[31m"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(7)", "exited with status 7"),
        ("import os; os.abort()", "crashed (SIGABRT)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed (SIGSEGV)"),
        ("import ctypes; ctypes.string_at(0)", "crashed (SIGSEGV)"),
    ],
)
def test_every_end_is_a_result(tmp_path: Path, body: str, words: str) -> None:
    told = run(tmp_path, f"def run(question, tell):\n    tell('step', 'the end')\n    {body}\n")

    assert words in told.failure
    assert told.step == "the end"


@pytest.mark.slow
def test_a_child_that_hangs_is_stopped(tmp_path: Path) -> None:
    told = run(tmp_path, "import time\ndef run(question, tell):\n    tell('step', 'sleep')\n    time.sleep(60)\n", seconds=1.0)

    assert told.failure == "did not end within 1 s and was stopped"
    assert told.step == "sleep"


@pytest.mark.slow
def test_a_child_that_eats_memory_is_stopped(tmp_path: Path) -> None:
    program = "def run(question, tell):\n    tell('step', 'eat')\n    kept = []\n    while True:\n        kept.append(bytearray(8 << 20))\n"

    told = run(tmp_path, program, memory_mib=200)

    assert told.failure == "held more than 200 MiB of memory and was stopped"
    assert told.step == "eat"


def test_a_child_that_prints_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.host.process.OUTPUT_LIMIT_BYTES", 1 << 20)

    told = run(tmp_path, "def run(question, tell):\n    while True:\n        print('x' * 1000)\n")

    assert told.failure == "printed too much and was stopped"
    assert len(told.output) == 12


def test_a_child_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    """Whoever is killed (Ctrl-C, a closed terminal) leaves no child computing on the card."""
    program = "import os, time\ndef run(question, tell):\n    tell('pid', os.getpid())\n    time.sleep(60)\n"
    (tmp_path / "payload_of_test.py").write_text(program, "utf-8")
    question = child.program_text({"payload": "payload_of_test", "memory_mib": 1000})
    code = (
        "import subprocess, sys\n"
        "pipe = subprocess.PIPE\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child.START!r}], stdin=pipe, stdout=pipe, start_new_session=True)\n"
        f"child.stdin.write({question!r}.encode()); child.stdin.close()\n"
        "for line in child.stdout:\n"
        "    if b'pid' in line: print(line.decode(), flush=True); break\n"
        "import time; time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        pid = json.loads(asker.stdout.readline().removeprefix("cudnn-resolve-answer "))[1]
        asker.send_signal(signal.SIGKILL)
        asker.wait(10)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and _state(pid) != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}") or _state(pid) == "Z"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_modules_beside_the_payloads_do_not_stand_before_those_of_the_target(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("here = True\n", "utf-8")

    told = run(tmp_path, "def run(question, tell):\n    import model\n    tell('x', model.here)\n", PYTHONPATH=str(tmp_path))

    assert told.last("x", bool) is True


@pytest.mark.parametrize(
    "stdout",
    [
        "cudnn-resolve-answer",
        "cudnn-resolve-answer {",
        "cudnn-resolve-answer " + "[" * 100_000,
        'cudnn-resolve-answer ["x"]',
        'cudnn-resolve-answer ["x", 1, 2]',
        'cudnn-resolve-answer [1, "x"]',
        'cudnn-resolve-answer {"x": 1}',
        "\x00\x1b[2J\ufffd",
    ],
)
def test_lines_that_are_no_answers_are_passed_over(stdout: str) -> None:
    told = answered(CommandResult(returncode=0, stdout=f'{stdout}\ncudnn-resolve-answer ["y", 1]\ncudnn-resolve-answer ["end", null]'))

    assert told.events == (("y", 1), ("end", None))
    assert told.failure == ""


def test_of_endless_answers_only_so_many_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_MOST_EVENTS", 10)

    assert len(telling(*[("x", 1)] * 50).events) == 10


def test_last_lines_are_few_short_and_harmless() -> None:
    text = "\n".join([*(f"line {number}" for number in range(50)), "", "\x1b[31mred\x07", "y" * 10_000])

    lines = last_lines(text)

    assert len(lines) == 12
    assert lines[-2] == "?[31mred?"
    assert lines[-1] == "y" * 400
    assert lines[0] == "line 40"


def test_what_tensorflow_always_says_is_no_last_word() -> None:
    assert last_lines("E Unable to register cuDNN factory: x\nreal") == ("real",)


def test_a_text_in_one_line() -> None:
    assert one_line(" a\n\tb\u202e ", 4) == "a b?"
