"""The command `cudnn-resolve`: runs a verb, and turns its outcome or error into an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise

from cudnn_resolve._version import __version__
from cudnn_resolve.cli.parser import Parser, nearest
from cudnn_resolve.cli.printing import clear_status, expect, show_error
from cudnn_resolve.errors import CudnnResolveError, ExitCode, UsageError, WorldError, did_you_mean, out_of_memory
from cudnn_resolve.host import terminal
from cudnn_resolve.host.interrupt import resend_dropped_signals
from cudnn_resolve.report.text import wrap

PROGRAM = "cudnn-resolve"
VERBS: Mapping[str, str] = {
    "detect": "print facts about this machine and a Python environment",
    "plan": "find a stack that works, and print the necessary changes",
    "lock": "write a pylock.toml that pip and uv can install, or check one",
    "doctor": "diagnose a log or the machine, and propose commands that help",
    "check": "say whether an environment, a lock or an image will run, and if not, what is wrong",
    "validate": "run convolutions through cuDNN and every framework, and check the results",
    "apply": "execute a plan, and put everything back if it fails",
    "bundle": "collect a lock and all its files, to install without a network",
    "why": "print the chain of reasons behind a pin, or behind its absence",
    "fleet": "detect, plan, lock, check, apply and validate for many machines at once",
    "matrix": "look up which versions work together",
    "clean": "show and free the disk space held by undo and caches",
    "completion": "print the completion script for bash, zsh or fish",
}
"""Each verb is a module of that name with `add_arguments(parser)` and `run(args)`, which returns the exit code."""
_ACTIVITIES = {
    "detect": "inspecting the machine",
    "doctor": "reading the log and the machine",
    "check": "judging packages",
    "validate": "inspecting the environment",
    "fleet": "reading facts",
    "matrix": "reading the tables",
    "clean": "measuring disk usage",
    **dict.fromkeys(("plan", "lock", "why", "bundle", "apply"), "looking for a stack that works"),
}
"""Activity to show if a verb has printed nothing for a second."""
_OPTIONS_WITH_VALUE = ("-o", "--output", "--format")
"""Options that may stand before the verb and take the next word as their value."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""128 + signal number, as in shells."""
EXIT_CODES = (
    "exit codes: 0 done, or nothing to do; 1 the answer is no; 2 the command line or an input file is wrong; 3 the machine, the disk or "
    "the network refused; 4 `apply` failed and put everything back; 5 `apply` failed and something is left; 130 interrupted"
)
"""Text for the help and the manual page."""
_NO_MEMORY = ("can't start new thread", "Cannot allocate memory")
"""Texts of a RuntimeError of threads, and of an ImportError of the loader, for lack of memory."""
_GC_THRESHOLD = 1_000_000
"""New objects between two collections: rows and candidates live until the end, and a plan has some 100,000 of them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of the process) and return the exit code; prints errors, never raises."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    terminal.prepare_output()
    if argv is None:
        resend_dropped_signals()
    code = answer(words)
    gc.freeze()  # otherwise a last collection at exit takes 20 ms
    if code == INTERRUPTED and argv is None:
        from cudnn_resolve.host.process import end_running

        end_running()
        terminal.leave(code)  # a thread that was starting at Ctrl-C may never end, and Python would wait for it
    return code


def answer(words: list[str]) -> int:
    """Run a command line in a process that goes on, such as a notebook kernel, and return the exit code; never raises."""
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed its end, like `head`
        terminal.silence(sys.stdout)
        return BROKEN_PIPE
    except KeyboardInterrupt:
        clear_status()
        _print_message("interrupted")
        return INTERRUPTED
    except CudnnResolveError as error:
        return _fail(error, words)
    except OSError as error:
        return _fail(_world(error), words)
    except MemoryError:
        return _fail(out_of_memory(), words)
    except Exception as error:  # noqa: BLE001 - the last resort: anything else is a bug, and is reported in one line
        return _explain_bug(error, words)
    finally:
        clear_status(is_over=True)
    return code


def _run(words: list[str]) -> int:
    if not words:
        _print_message(_overview())
        return ExitCode.USAGE
    first, *rest = _verb_first(words)
    if first in ("-V", "--version", "version"):
        print(f"{PROGRAM} {__version__}")
        return ExitCode.OK
    if first in ("-h", "--help") or (first == "help" and not rest):
        print(_overview())
        return ExitCode.OK
    name = rest[0] if first == "help" else first
    if name not in VERBS:
        raise _unknown(name)
    parser, run = verb(name, whole=first == "help")
    try:
        args = parser.parse(["--help"] if first == "help" else rest)
    except SystemExit:  # argparse, after --help
        return ExitCode.OK
    if not getattr(args, "quiet", 0):
        expect(_ACTIVITIES.get(name, ""))
    return int(run(args))


def verb(name: str, *, whole: bool = False) -> tuple[Parser, Callable[[argparse.Namespace], int]]:
    """The parser of a verb and its `run` function; with `whole`, the help shows every option."""
    module = import_module(f"cudnn_resolve.cli.{name}")
    parser = Parser(prog=f"{PROGRAM} {name}", description=f"{VERBS[name][0].upper()}{VERBS[name][1:]}.", whole=whole)
    module.add_arguments(parser)
    return parser, module.run


def _verb_first(words: list[str]) -> list[str]:
    """Move the verb before the options that precede it."""
    if not words[0].startswith("-") or words[0] in ("-h", "--help", "-V", "--version"):
        return words
    pairs = enumerate(zip(["", *words], words, strict=False))
    position = next((index for index, (before, word) in pairs if word in VERBS and before not in _OPTIONS_WITH_VALUE), 0)
    return [words[position], *words[:position], *words[position + 1 :]]


def _overview() -> str:
    width = terminal.width(sys.stdout)
    about = "Plans GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together."
    lines = [
        *(f"usage: {PROGRAM} COMMAND [OPTIONS]", ""),
        *(*wrap(about, width=width), "", "commands:"),
        *(line for name, summary in VERBS.items() for line in wrap(summary, width=width, first=f"  {name:<10}  ")),
        *("", "options:", "  -h, --help     show this help", "  -V, --version  show the version", ""),
        *wrap("-q, -v, --no-color, --format and -o may also precede the command.", width=width),
        *wrap(f"`{PROGRAM} COMMAND --help` shows the most important options, `--help-all` every one.", width=width),
        "",
        *wrap(EXIT_CODES, width=width),
    ]
    return "\n".join(lines)


def _unknown(word: str) -> UsageError:
    if word.startswith("-"):
        hint = f"the commands are {', '.join(VERBS)}"
        return UsageError(f"{word} is an option, but no command is given", code="usage-command", hint=hint)
    near = nearest(word, (*VERBS, "help", "version"))
    hint = did_you_mean(near) or f"the commands are {', '.join(VERBS)}"
    return UsageError(f"there is no command {word!r}", code="usage-command", hint=hint)


def _world(error: OSError) -> WorldError:
    """Error for an unexpected refusal of the system, such as a full disk behind standard output."""
    if error.errno == errno.ENOMEM:
        return out_of_memory()
    reason = error.strerror or str(error) or type(error).__name__
    return WorldError(f"the system refused: {reason}", code="system", context=error.filename if isinstance(error.filename, str) else None)


def _fail(error: CudnnResolveError, words: list[str]) -> int:
    terminal.drop_output()
    show_error(error)
    if "--format=json" in words or ("--format", "json") in pairwise(words):
        _print_error(error)
    return error.exit_code


def _print_error(error: CudnnResolveError) -> None:
    """Print an error as JSON to standard output, for programs that read it."""
    from cudnn_resolve.report.document import encode_error
    from cudnn_resolve.report.encode_json import render

    try:
        print(render(encode_error(error)), end="")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # standard output is full or closed, which may have been the error
        terminal.silence(sys.stdout)


def _print_message(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def _explain_bug(error: Exception, words: list[str]) -> int:
    if any(word in str(error) for word in _NO_MEMORY):
        return _fail(out_of_memory(), words)
    terminal.drop_output()
    if terminal.wants_traceback() or sum(word.count("v") for word in words if word.strip("v") == "-") > 1 or words.count("--verbose") > 1:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, ImportError):
        return _explain_missing(error)
    bug = CudnnResolveError(
        f"internal error: {type(error).__name__}: {error}",
        code="internal",
        hint="this is a bug in cudnn-resolve: please report it with the command line, "
        "the traceback that `-vv` adds, and the output of `cudnn-resolve detect`",
    )
    return _fail(bug, words)


def _explain_missing(error: ImportError) -> int:
    """Report a missing library of the program; an interrupted apply in its own environment may have removed it."""
    from cudnn_resolve.execution.payload_recover import unfinished

    hints = [f"an apply was interrupted, and `python3 {path}` puts the environment back" for path in unfinished()]
    hint = "; ".join(hints) or "install cudnn-resolve again"
    show_error(CudnnResolveError(f"a library that cudnn-resolve needs cannot be imported: {error}", code="broken-installation", hint=hint))
    return ExitCode.WORLD
