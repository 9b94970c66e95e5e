"""The door of the program: whatever happens inside becomes a message and an exit code."""

from __future__ import annotations

import errno
import sys
import types
from collections.abc import Callable
from importlib import import_module

import pytest

from cudnn_resolve import __version__
from cudnn_resolve.cli.main import VERBS, main
from cudnn_resolve.errors import ExitCode, InputError, MatrixError, UsageError, WorldError


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Makes `detect` do something else."""

    def install(act: Callable[[], int]) -> None:
        module = types.ModuleType("cudnn_resolve.cli.detect")
        module.add_arguments = lambda parser: parser.add_argument("-v", action="count")  # type: ignore[attr-defined]
        module.run = lambda _: act()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


def raising(error: BaseException) -> Callable[[], int]:
    def act() -> int:
        raise error

    return act


def test_every_verb_has_a_module() -> None:
    for name in VERBS:
        module = import_module(f"cudnn_resolve.cli.{name}")
        assert callable(module.run), name
        assert callable(module.add_arguments), name


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == f"cudnn-resolve {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_names_every_verb(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in VERBS)


@pytest.mark.parametrize("words", [["detect", "--help"], ["help", "detect"], ["detect", "-h", "--nonsense"]])
def test_help_of_a_verb(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "usage: cudnn-resolve detect" in capsys.readouterr().out


def test_no_verb_shows_the_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: cudnn-resolve COMMAND" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [(["plann"], "did you mean plan"), (["zzz"], "the commands are detect"), (["--offline"], "is an option, but no command")],
)
def test_an_unknown_verb_is_answered_with_the_nearest(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err


def test_the_exit_code_is_that_of_the_verb(verb: Callable[[Callable[[], int]], None]) -> None:
    verb(lambda: ExitCode.NO)

    assert main(["detect"]) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("m", code="c", context="k", hint="h"), 2),
        (InputError("m", code="c", context="k", hint="h"), 2),
        (WorldError("m", code="c", context="k", hint="h"), 3),
    ],
)
def test_an_error_says_what_where_and_what_next(
    error: Exception, code: int, verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    verb(raising(error))

    assert main(["detect"]) == code
    assert capsys.readouterr().err == "error: m\n  in: k\nhint: h\n"


def test_every_fault_of_a_table_is_told(verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(MatrixError("m", faults=("f1", "f2"))))

    assert main(["detect"]) == 2
    assert capsys.readouterr().err == "error: m\n  f1\n  f2\n"


def test_a_hostile_message_reaches_no_terminal(verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(InputError("a\x1b[2Jb", code="c", hint="x\u202ey")))

    main(["detect"])

    assert capsys.readouterr().err == "error: a\\x1b[2Jb\nhint: x\\u202ey\n"


def test_a_bug_is_one_line_and_a_request(verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(KeyError("x")))

    assert main(["detect"]) == 3
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: KeyError: 'x'\nhint: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object: Cannot allocate memory"),
    ],
)
def test_memory_that_ends_is_no_bug(
    error: Exception, verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    verb(raising(error))

    assert main(["detect"]) == 3
    err = capsys.readouterr().err
    assert err.startswith(
        "error: not enough memory: the system gave this process no more\nhint: free memory, or raise the limit of this process"
    )


@pytest.mark.parametrize("words", [["detect", "-vv"], ["detect", "-v", "-v"]])
def test_a_bug_shows_where_it_is_to_who_asks(
    words: list[str], verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    verb(raising(KeyError("x")))

    assert main(words) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_shows_where_it_is_under_debug(
    verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDNN_RESOLVE_DEBUG", "1")
    verb(raising(KeyError("x")))

    main(["detect"])

    assert "Traceback" in capsys.readouterr().err


def test_what_the_system_refuses_is_no_bug(verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(OSError(errno.ENOSPC, "No space left on device", "/full/x")))

    assert main(["detect"]) == 3
    assert capsys.readouterr().err == "error: the system refused: No space left on device\n  in: /full/x\n"


def test_an_interruption_is_one_word(verb: Callable[[Callable[[], int]], None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(KeyboardInterrupt()))

    assert main(["detect"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
