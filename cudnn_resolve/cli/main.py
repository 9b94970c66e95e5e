"""The command `cudnn-resolve`: finds the verb, runs it, and turns whatever happens into an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from types import MappingProxyType

from cudnn_resolve._version import __version__
from cudnn_resolve.cli.parser import Parser, nearest
from cudnn_resolve.cli.printing import clear_status, expect, show_error
from cudnn_resolve.errors import CudnnResolveError, ExitCode, UsageError, WorldError, out_of_memory
from cudnn_resolve.host import terminal
from cudnn_resolve.host.interrupt import resend_dropped_signals
from cudnn_resolve.report.text import wrap

PROGRAM = "cudnn-resolve"
VERBS = MappingProxyType(
    {
        "detect": "print the facts of this machine and of a Python environment",
        "plan": "find a stack that works, and print what would have to change",
        "lock": "write the resolution as a pylock.toml that pip and uv install, or check one",
        "doctor": "say what is wrong, from a log or from the machine, and what to type",
        "check": "say whether an environment, a lock or an image will run, and what is wrong if not",
        "validate": "run real convolutions through cuDNN and every framework, and judge what comes out",
        "apply": "carry a plan out, and put everything back if it fails",
        "bundle": "write a lock with every file that it names, to install from without a network",
        "why": "print the chain of reasons behind one pin, or behind its absence",
        "fleet": "detect, plan, lock, check, apply and validate for many machines at once",
        "matrix": "look up which versions work together",
        "clean": "show and free what undo and caches hold of the disk",
        "completion": "print the script by which bash, zsh or fish completes these commands",
    }
)
"""Each verb is the module of that name: `add_arguments(parser)` and `run(args)`, which answers the exit code."""
_AWAITED = {
    "detect": "looking at the machine",
    "doctor": "reading the log and the machine",
    "check": "judging what is installed or listed",
    "validate": "looking at the environment",
    "fleet": "reading the facts of the machines",
    "matrix": "reading the tables",
    "clean": "counting what lies on the disk",
    **dict.fromkeys(("plan", "lock", "why", "bundle", "apply"), "looking for a stack that works"),
}
"""What a verb is about when nothing has been said of it for a second."""
_VALUED = ("-o", "--output", "--format")
"""Options before the verb whose next word is their value."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""128 + signal number, as shells report programs that ended so."""
EXIT_CODES = (
    "exit codes: 0 done, or nothing to do; 1 the answer is no; 2 the command line or an input file is wrong; 3 the machine, the disk or "
    "the network refused; 4 `apply` failed and put everything back; 5 `apply` failed and something is left; 130 interrupted"
)
"""For the help and the manual page."""
_NO_MEMORY = ("can't start new thread", "Cannot allocate memory")
"""How a RuntimeError of threads, and an ImportError of the loader, say that memory is short."""
_GC_THRESHOLD = 1_000_000
"""New objects between two collections: rows and candidates are values that live until the end, and a plan has some 100,000 of them."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of one command line (default: that of the process); prints, and never raises."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    terminal.prepare_output()
    if argv is None:
        resend_dropped_signals()
    code = answer(words)
    gc.freeze()  # else Python looks through all of it once more before it ends, 20 ms
    if code == INTERRUPTED and argv is None:
        from cudnn_resolve.host.process import end_running

        end_running()
        terminal.leave(code)  # a thread that was just begun when Ctrl-C came is waited for by nobody's word, for ever
    return code


def answer(words: list[str]) -> int:
    """The exit code of a command line in a process that goes on, such as a notebook's kernel; prints, and never raises."""
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        terminal.silence(sys.stdout)
        return BROKEN_PIPE
    except KeyboardInterrupt:
        clear_status()
        _tell("interrupted")
        return INTERRUPTED
    except CudnnResolveError as error:
        return _fail(error, words)
    except OSError as error:
        return _fail(_world(error), words)
    except MemoryError:
        return _fail(out_of_memory(), words)
    except Exception as error:  # noqa: BLE001 - the last door: whatever comes here is our mistake, and is said in one line
        return _explain_bug(error, words)
    finally:
        clear_status(is_over=True)
    return code


def _run(words: list[str]) -> int:
    if not words:
        _tell(_overview())
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
        expect(_AWAITED.get(name, ""))
    return int(run(args))


def verb(name: str, *, whole: bool = False) -> tuple[Parser, Callable[[argparse.Namespace], int]]:
    """The parser of a verb, whose help shows the options that matter most or the `whole` of them, and what carries it out."""
    module = import_module(f"cudnn_resolve.cli.{name}")
    parser = Parser(prog=f"{PROGRAM} {name}", description=f"{VERBS[name][0].upper()}{VERBS[name][1:]}.", whole=whole)
    module.add_arguments(parser)
    return parser, module.run


def _verb_first(words: list[str]) -> list[str]:
    """The words with the command before the options that were given before it."""
    if not words[0].startswith("-") or words[0] in ("-h", "--help", "-V", "--version"):
        return words
    pairs = enumerate(zip(["", *words], words, strict=False))
    place = next((at for at, (before, word) in pairs if word in VERBS and before not in _VALUED), 0)
    return [words[place], *words[:place], *words[place + 1 :]]


def _overview() -> str:
    width = terminal.width(sys.stdout)
    about = "Plans GPU deep-learning environments that load and run: driver, CUDA, cuDNN and frameworks solved together."
    lines = [
        *(f"usage: {PROGRAM} COMMAND [OPTIONS]", ""),
        *(*wrap(about, width=width), "", "commands:"),
        *(line for name, summary in VERBS.items() for line in wrap(summary, width=width, first=f"  {name:<10}  ")),
        *("", "options:", "  -h, --help     show this help", "  -V, --version  show the version", ""),
        *wrap("-q, -v, --no-color, --format and -o may stand before the command, too.", width=width),
        *wrap(f"`{PROGRAM} COMMAND --help` shows the options that matter most, `--help-all` every one.", width=width),
        "",
        *wrap(EXIT_CODES, width=width),
    ]
    return "\n".join(lines)


def _unknown(word: str) -> UsageError:
    if word.startswith("-"):
        hint = f"the commands are {', '.join(VERBS)}"
        return UsageError(f"{word} is an option, and no command is given", code="usage-command", hint=hint)
    near = nearest(word, (*VERBS, "help", "version"))
    hint = f"did you mean {' or '.join(near)}?" if near else f"the commands are {', '.join(VERBS)}"
    return UsageError(f"there is no command {word!r}", code="usage-command", hint=hint)


def _world(error: OSError) -> WorldError:
    """What the system refused where no verb expected it, such as a full disk behind standard output."""
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
    """Print an error as an object to standard output, for who reads objects there."""
    from cudnn_resolve.report.document import encode_error
    from cudnn_resolve.report.json import render

    try:
        print(render(encode_error(error)), end="")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # it is full or closed, which may have been the error
        terminal.silence(sys.stdout)


def _tell(text: str) -> None:
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
        hint="this is a mistake in cudnn-resolve: please report it with the command line, "
        "what `-vv` adds to this message, and the output of `cudnn-resolve detect`",
    )
    return _fail(bug, words)


def _explain_missing(error: ImportError) -> int:
    """Say that a library of the program is gone; an apply that was cut off in the program's own environment may have taken it away."""
    from cudnn_resolve.execution.payload_recover import unfinished

    ways = [f"an apply did not come to its end, and `python3 {path}` puts the environment back" for path in unfinished()]
    hint = "; ".join(ways) or "install cudnn-resolve again"
    show_error(CudnnResolveError(f"a library that cudnn-resolve needs cannot be imported: {error}", code="broken-installation", hint=hint))
    return ExitCode.WORLD
