from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from cudnn_resolve.host import process
from cudnn_resolve.host.process import run_process
from cudnn_resolve.host.protocol import CommandResult


def run(*argv: str, seconds: float = 10, text: str | None = None, limit: int = 1 << 20, memory: int | None = None) -> CommandResult:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(process, "OUTPUT_LIMIT_BYTES", limit)
        return run_process(argv, timeout_seconds=seconds, env=dict(os.environ), text=text, memory_limit_mib=memory)


def python(code: str, seconds: float = 10, text: str | None = None, memory: int | None = None) -> CommandResult:
    return run(sys.executable, "-I", "-S", "-c", code, seconds=seconds, text=text, memory=memory)


def is_alive(pid: int) -> bool:
    """Does a process run; one that is dead and not yet buried does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_program_that_works_gives_its_output() -> None:
    result = python("import sys; print('out'); print('err', file=sys.stderr)")

    assert result == CommandResult(returncode=0, stdout="out\n", stderr="err\n")
    assert result.ok
    assert result.why() == ""


def test_a_program_that_fails_gives_its_status_and_last_words() -> None:
    result = python("import sys; sys.exit('no such thing')")

    assert (result.returncode, result.ok) == (1, False)
    assert result.why() == "exited with status 1: no such thing"


def test_a_crash_names_its_signal() -> None:
    result = python("import os, signal; os.kill(os.getpid(), signal.SIGABRT)")

    assert (result.signal, result.returncode) == ("SIGABRT", None)
    assert result.why() == "crashed (SIGABRT)"


@pytest.mark.slow
def test_a_program_that_hangs_is_stopped_and_keeps_what_it_said() -> None:
    before = time.monotonic()
    result = python("import time; print('so far', flush=True); time.sleep(60)", seconds=1)

    assert (result.timed_out, result.stdout, result.returncode) == (True, "so far\n", None)
    assert time.monotonic() - before < 10


@pytest.mark.slow
def test_its_children_are_stopped_with_it() -> None:
    code = "import os, time\npid = os.fork()\nif pid: print(pid, flush=True)\ntime.sleep(60)"
    result = python(code, seconds=1)

    assert result.timed_out
    for _ in range(100):
        if not is_alive(int(result.stdout)):
            break
        time.sleep(0.02)
    assert not is_alive(int(result.stdout))


_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        for number in range(3): os.close(number)
        if os.fork() == 0: os.setsid()
        time.sleep(60)
    os._exit(0)
time.sleep({seconds})
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 60])
def test_what_left_its_session_is_ended_too(seconds: float) -> None:
    result = python(_DAEMON.format(seconds=seconds), seconds=2)

    assert result.timed_out == (seconds == 60)
    assert result.stdout
    for _ in range(100):
        if not is_alive(int(result.stdout)):
            break
        time.sleep(0.02)
    assert not is_alive(int(result.stdout))


@pytest.mark.slow
def test_what_it_leaves_behind_does_not_hold_us_up() -> None:
    before = time.monotonic()
    result = python("import os, time\nif os.fork() == 0: time.sleep(60)\nelse: print('done', flush=True); os._exit(3)")

    assert (result.returncode, result.stdout) == (3, "done\n")
    assert time.monotonic() - before < 10


def test_what_a_program_said_before_it_ended_is_heard_however_busy_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    waitid = os.waitid
    monkeypatch.setattr(os, "waitid", lambda kind, pid, options: waitid(kind, pid, options & ~os.WNOHANG))
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.0)

    assert run_process(["sh", "-c", "sleep 0.2; echo said"], timeout_seconds=30, env=os.environ).stdout == "said\n"


def test_output_that_is_not_kept_whole_is_told_of_a_program_that_ended_before_anybody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    waitid = os.waitid
    monkeypatch.setattr(os, "waitid", lambda kind, pid, options: waitid(kind, pid, options & ~os.WNOHANG))
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.0)

    assert run("sh", "-c", "sleep 0.2; echo said", limit=4).flooded
    assert not run("sh", "-c", "sleep 0.2; echo said", limit=5).flooded


def test_output_without_end_is_cut_and_stopped() -> None:
    result = run(sys.executable, "-c", "while True: print('x' * 10000)", limit=100_000)

    assert result.flooded
    assert len(result.stdout) == 100_000
    assert result.why() == "printed too much and was stopped"


def test_errors_without_end_are_cut_and_stopped() -> None:
    result = run(sys.executable, "-c", "import os\nwhile True: os.write(2, b'x' * 10000)", limit=100_000)

    assert result.flooded


def test_bytes_that_are_no_text_are_replaced() -> None:
    result = python(r"import os; os.write(1, b'a\xff\xfeb')")

    assert result.stdout == "a\ufffd\ufffdb"


def test_input_larger_than_a_pipe_arrives() -> None:
    result = python("import sys; print(len(sys.stdin.buffer.read()))", text="é" * 200_000)

    assert result.stdout == "400000\n"


def test_a_program_that_does_not_read_its_input_is_no_failure() -> None:
    assert python("print('no thanks')", text="x" * 1_000_000).stdout == "no thanks\n"


def test_without_input_there_is_none_to_wait_for() -> None:
    assert python("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_a_closed_output_does_not_end_the_wait() -> None:
    result = python("import os, time; os.close(1); os.close(2); time.sleep(0.1); os._exit(7)")

    assert result.returncode == 7


@pytest.mark.parametrize("name", ["there-is-no-such-program", "/nowhere/at/all", "bad\0name"])
def test_a_missing_program_is_an_answer(name: str) -> None:
    result = run(name)

    assert result.missing
    assert name in result.why()


def test_a_file_that_is_no_program_is_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("not a program")

    assert run(str(file)).missing  # not executable
    file.chmod(0o755)
    assert run(str(file)).missing  # no format of a program
    assert run(str(tmp_path)).missing


@pytest.mark.slow
def test_memory_can_be_limited() -> None:
    code = "import time; time.sleep(0.3)\ntry: x = bytearray(2 << 30)\nexcept MemoryError: print('refused')"

    assert python(code, memory=512).stdout == "refused\n"


@pytest.mark.slow
def test_memory_is_limited_where_nobody_says_so_but_what_is_only_reserved_is_not() -> None:
    code = "import mmap, time; time.sleep(0.3)\nmmap.mmap(-1, 1 << 40, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    code += "try: x = bytearray(1 << 40)\nexcept MemoryError: print('refused')"

    assert python(code).stdout == "refused\n"


def test_the_environment_is_the_one_that_was_given() -> None:
    result = run_process(
        [sys.executable, "-c", "import os; print(os.environ.get('A'), os.environ.get('B'))"], timeout_seconds=10, env={"A": "1"}
    )

    assert result.stdout == "1 None\n"
