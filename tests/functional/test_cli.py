"""The real command line: what an argument, a file or a pipe may do to it; in a process of its own where only that shows it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.program import Done, run

MACHINES = Path(__file__).parents[1] / "machines"
ARGV = [sys.executable, "-m", "cudnn_resolve"]


def start(*words: str, env: Mapping[str, str] | None = None, **keywords: object) -> subprocess.CompletedProcess[str]:
    """What the program did in a process of its own; a message of it is never a traceback."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [*ARGV, *words],
        env={**os.environ, **(env or {})},
        text=True,
        check=False,
        timeout=60,
        **{"capture_output": True, "stdin": subprocess.DEVNULL, **keywords},  # type: ignore[call-overload]
    )
    assert "Traceback" not in (done.stderr or "")
    return done


def is_explained(done: Done | subprocess.CompletedProcess[str], code: int, *words: str) -> bool:
    """Nothing on standard output, and on standard error what is wrong and what to do next."""
    assert done.returncode == code, done.stderr
    assert not done.stdout
    assert done.stderr.startswith("error: ")
    assert "\x1b" not in done.stderr
    missing = [word for word in words if word not in done.stderr]
    assert not missing, done.stderr
    return True


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["detct"], "did you mean detect?"),
        (["plan", "--drivr", "550"], "did you mean --driver"),
        (["plan", "--format", "jsom"], "did you mean json?"),
        (["detect", "--facts"], "expected one argument"),
        (["detect", "torch"], "does not take 'torch'"),
        (["plan", "-f", "torch", "--facts", "a", "--python", "b"], "cannot be combined with"),
        (["plan", "-f", "torch", "--cuda", "new"], "is not a version specifier"),
        (["plan", "-f", "torch", "--python-version", "eleven"], "is not a Python version"),
        (["plan", "-f", "torch", "--python-version", "3.11", "--driver", "12.4"], "the driver's version is meant"),
        (["plan", "-f", "torch", "--python-version", "3.11", "--gpu", "none"], "--device cpu"),
        (["plan", "-f", "torch", "--python-version", "3.11", "--os", "ubuntu"], "is not a distribution with its release"),
        (["plan", "-f", "torch", "--platform", "win_amd64"], "linux_x86_64"),
    ],
)
def test_a_wrong_command_line_is_explained(words: list[str], expected: str) -> None:
    assert is_explained(run(*words), 2, expected, "hint: ")


def test_no_command_is_a_mistake() -> None:
    done = start()

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: cudnn-resolve COMMAND")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["ends in the middle"]),
        (b'{"schema": "cudnn-resolve/detect/1", "gpus": [{"na', ["JSON"]),
        (b"[]", ["expected an object, found list"]),
        (b"\xff{}", ["is not UTF-8"]),
        (b"\x00" * 100, ["is not JSON"]),
        (b"[" * 1_000_000, ["nested too deeply"]),
        (b'{"a": NaN}', ["NaN"]),
        (b'{"driver": {}, "driver": null}', ["duplicate key"]),
        (b'{"schema": "cudnn-resolve/detect/7"}', ["cudnn-resolve/detect/1", "cudnn-resolve/detect/7"]),
        (
            b'{"gpus": null, "packages": {"pip": {"numpy": 1}}}',
            ["gpus: expected a list", "packages.pip.numpy: expected text, found number"],
        ),
        (b'{"packages": {"pip": {"\\u001b]0;x\\u0007": "1"}}}', ["control character"]),
        (b'{"driver": {"version": "' + b"9" * 100_000 + b'"}}', ["driver.version"]),
    ],
)
@pytest.mark.parametrize("verb", [["detect"], ["plan", "-f", "torch", "--offline"]], ids=["detect", "plan"])
def test_a_hostile_facts_file_is_explained(verb: list[str], content: bytes, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(content)

    assert is_explained(run(*verb, "--facts", str(path)), 2, *words, str(path), "hint: ")


def test_a_facts_file_of_a_terabyte_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    assert is_explained(run("detect", "--facts", str(path)), 2, "too large")


@pytest.mark.parametrize(("name", "word"), [("gone.json", "there is no file"), (".", "is a directory")])
def test_a_facts_file_that_is_none(name: str, word: str, tmp_path: Path) -> None:
    assert is_explained(run("detect", "--facts", str(tmp_path / name)), 2, word)


def test_facts_come_from_standard_input() -> None:
    with (MACHINES / "notebook.json").open() as file:
        done = start("detect", "--facts", "-", "--format", "json", stdin=file)

    assert done.returncode == 0
    assert json.loads(done.stdout)["note"].startswith("made up")


def test_text_and_json_of_a_machine() -> None:
    text = run("detect", "--facts", str(MACHINES / "workstation.json"))
    found = run("detect", "--facts", str(MACHINES / "workstation.json"), "--format", "json")

    assert (text.returncode, text.stderr) == (0, "")
    assert len(text.stdout.splitlines()) <= 40
    assert "!" in text.stdout
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads(found.stdout)["schema"] == "cudnn-resolve/detect/1"


def test_what_detect_writes_detect_reads(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"

    assert run("detect", "--facts", str(MACHINES / "workstation.json"), "--format", "json", "-o", str(first)).returncode == 0
    assert run("detect", "--facts", str(first), "--format", "json", "-o", str(second)).returncode == 0

    assert first.read_bytes() == second.read_bytes()


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({"note": "\x1b]0;pwned\x07", "problems": [{"what": "\x1b[2J", "why": "\x9b1m"}]}))

    done = run("detect", "--facts", str(path), "-v")

    assert done.returncode == 0
    assert not [char for char in done.stdout if char != "\n" and not char.isprintable()]
    assert "\\x1b]0;pwned\\x07" in done.stdout


def test_an_encoding_that_cannot_show_a_name_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text('{"note": "中文"}', "utf-8")

    done = start("detect", "--facts", str(path), env={"PYTHONIOENCODING": "ascii"})

    assert done.returncode == 0
    assert "\\u4e2d\\u6587" in done.stdout


@pytest.mark.slow
def test_a_read_only_home_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)
    monkeypatch.chdir(home)
    places = {name: str(home / "below") for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    for env in ({"HOME": str(home), **places}, {"HOME": "/dev/null", **dict.fromkeys(places, "/dev/null/x")}):
        done = run("detect", "--facts", str(MACHINES / "notebook.json"), environ={**os.environ, **env})
        assert (done.returncode, done.stderr) == (0, "")
        listed = start("matrix", "list", env=env)  # reads the tables where it cannot keep copies of them
        assert (listed.returncode, listed.stderr) == (0, "")


def test_a_working_directory_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f'mkdir "{gone}" && cd "{gone}" && rmdir "{gone}" && exec "$@"'
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    done = subprocess.run(
        ["sh", "-c", script, "sh", *ARGV, "detect", "--facts", "x.json"], env=env, capture_output=True, text=True, check=False
    )

    assert is_explained(done, 2, "there is no file x.json")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f'"{sys.executable}" -m cudnn_resolve detect --facts "{MACHINES / "notebook.json"}" --format json; echo "code $?" >&2'

    done = subprocess.run(["sh", "-c", f"({script}) | true; sleep 0.3"], capture_output=True, text=True, check=False)

    assert done.stderr in ("code 141\n", "code 0\n")  # 0 where all of it was in the pipe before the reader went


def test_a_reader_that_is_gone_is_a_broken_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    done = start("detect", "--facts", str(MACHINES / "notebook.json"), capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_standard_output_is_said() -> None:
    script = f'"{sys.executable}" -m cudnn_resolve detect --facts "{MACHINES / "notebook.json"}" >&-'

    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)

    assert is_explained(done, 3, "standard output is closed", "-o FILE")


def test_everything_closed_does_not_crash() -> None:
    script = f'"{sys.executable}" -m cudnn_resolve detect --facts "{MACHINES / "notebook.json"}" <&- >&- 2>&-'

    assert subprocess.run(["sh", "-c", script], check=False).returncode == 3


@pytest.mark.parametrize("words", [["detect", "--facts", str(MACHINES / "notebook.json")], ["--version"], ["--help"], ["detect", "--help"]])
def test_a_full_disk_behind_standard_output_is_said(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = start(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)

    assert done.returncode == 3
    assert done.stderr == "error: the system refused: No space left on device\n"


def test_a_result_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    facts = str(MACHINES / "notebook.json")

    assert is_explained(run("detect", "--facts", "gone", "-o", str(path)), 2, "gone")
    assert path.read_text() == "old"
    assert is_explained(run("detect", "--facts", facts, "-o", str(tmp_path)), 3, "is a directory")
    assert is_explained(run("detect", "--facts", facts, "-o", str(tmp_path / "no" / "x")), 3, "no directory")
    assert is_explained(run("detect", "--facts", facts, "-o", "/dev/full"), 3, "No space left")
    assert run("detect", "--facts", facts, "-o", str(path)).returncode == 0
    assert path.read_text().startswith("  System")
    assert os.listdir(tmp_path) == ["out.json"]


@pytest.mark.slow
def test_an_interruption_is_one_word(tmp_path: Path) -> None:
    fifo = tmp_path / "facts.json"
    os.mkfifo(fifo)
    argv = ["env", "--default-signal=INT", *ARGV, "detect", "--facts", str(fifo)]  # a shell's background job hands on that it is ignored
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with fifo.open("w"):  # opens only once the program reads
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_a_lock_that_is_not_there_and_facts_that_come_late(tmp_path: Path) -> None:
    argv = [*ARGV, "plan", str(tmp_path / "pylock.toml"), "--facts", "-"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):  # the facts may be wrong, too: they are read first
        process.wait(1)
    _, err = process.communicate("{}", timeout=20)

    assert (process.returncode, err.splitlines()[0]) == (2, f"error: there is no file {tmp_path}/pylock.toml")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["detect"], ["plan", "-f", "torch", "--offline"]])
def test_an_interruption_leaves_no_program_behind(tmp_path: Path, words: list[str]) -> None:
    """An interpreter is asked by a thread, which is not waited for."""
    python, told = tmp_path / "python", tmp_path / "pid"
    os.mkfifo(told)
    python.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 60\n")
    python.chmod(0o755)
    argv = ["env", "--default-signal=INT", *ARGV, *words, "--python", str(python)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child = int(told.read_text())
    for _ in range(10):  # Python loses one that comes while it tidies up behind an import
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=2)
            break

    assert process.returncode == 130
    ends = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < ends
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_an_interruption_waits_for_no_thread() -> None:
    """A pool of which a thread was being begun when Ctrl-C came does not know that thread, and nobody ends it."""
    code = """
import sys, threading
from cudnn_resolve.cli import main
def interrupted(words):
    threading.Thread(target=threading.Event().wait).start()
    print("so far")
    raise KeyboardInterrupt
main._run = interrupted
sys.exit(main.main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "so far\n", "interrupted\n")


def test_a_pipe_may_be_a_facts_file(tmp_path: Path) -> None:
    fifo = tmp_path / "facts.json"
    os.mkfifo(fifo)
    process = subprocess.Popen([*ARGV, "detect", "--facts", str(fifo)], stdout=subprocess.PIPE, text=True)
    fifo.write_text((MACHINES / "notebook.json").read_text())
    out, _ = process.communicate(timeout=20)

    assert process.returncode == 0
    assert "535.104.05" in out


@pytest.mark.parametrize(
    ("env", "words", "colored"),
    [
        ({"TERM": "xterm"}, [], True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, [], False),
        ({"TERM": "dumb"}, [], False),
        ({"TERM": "xterm"}, ["--no-color"], False),
    ],
)
def test_colours_on_a_terminal_only(env: dict[str, str], words: list[str], colored: object) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    main, inner = pty.openpty()
    argv = [*ARGV, "detect", "--facts", str(MACHINES / "workstation.json"), *words]

    subprocess.run(argv, env={**clean, **env}, stdout=inner, stderr=inner, stdin=subprocess.DEVNULL, check=True)
    os.close(inner)
    shown = os.read(main, 1 << 16)
    os.close(main)

    assert (b"\x1b[" in shown) == bool(colored)
    assert b"550.54.15" in shown


def test_version_and_module_are_one() -> None:
    assert start("--version").stdout == run("--version").stdout
    assert run("--version").stdout.startswith("cudnn-resolve ")


@pytest.mark.slow
def test_this_machine_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a checkout may have a ./.venv of another Python
    path = tmp_path / "here.json"

    text = start("detect")
    written = start("detect", "--format", "json", "-o", str(path))
    again = run("detect", "--facts", str(path), "--format", "json")

    assert (text.returncode, written.returncode, again.returncode) == (0, 0, 0)
    assert f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}" in text.stdout
    assert json.loads(again.stdout) == json.loads(path.read_text())
    assert stat.S_ISREG(path.stat().st_mode)


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    assert is_explained(run("detect", "--python", str(tmp_path / "python")), 2, str(tmp_path / "python"), "hint: ")
