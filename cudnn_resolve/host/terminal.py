"""The terminal and the environment variables that say how to speak to it."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn, TextIO

DEFAULT_WIDTH = 100


def wants_color(stream: TextIO | None) -> bool:
    """True where `stream` is a terminal that shows colours, or FORCE_COLOR is set, and nobody asked for none (NO_COLOR, TERM=dumb)."""
    if stream is None or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return os.environ.get("TERM", "") not in ("", "dumb") and is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """True where `stream` is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def is_measured(stream: TextIO | None) -> bool:
    """True where lines have a width to keep to: that of the terminal, or the one that COLUMNS says."""
    return bool(os.environ.get("COLUMNS")) or is_terminal(stream)


def width(stream: TextIO | None) -> int:
    """Columns of the terminal behind `stream`, at least 60; 100 where it is none. COLUMNS overrules."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isascii() and stated.isdigit() and 0 < int(stated[:6]) < 10_000:
        return max(60, int(stated[:6]))
    if stream is None or not is_terminal(stream):
        return DEFAULT_WIDTH
    try:
        return max(60, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def wants_traceback() -> bool:
    """True where CUDNN_RESOLVE_DEBUG asks to see where an internal error comes from."""
    return os.environ.get("CUDNN_RESOLVE_DEBUG", "") not in ("", "0")


def prepare_output() -> None:
    """Write what the terminal's encoding cannot show as an escape, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def silence(stream: TextIO | None) -> None:
    """Discard what is still buffered for `stream`, so that the interpreter does not fail on it when it exits."""
    try:
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    except (OSError, ValueError):  # not a real file, as under a test
        return


def drop_output() -> None:
    """Flush standard output as far as possible, and discard the rest."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        silence(sys.stdout)


def leave(code: int) -> NoReturn:
    """End the process now, with what was printed, and wait for no thread."""
    drop_output()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    os._exit(code)


NOTEBOOK_VARIABLES = ("JPY_PARENT_PID", "COLAB_RELEASE_TAG", "COLAB_GPU", "KAGGLE_KERNEL_RUN_TYPE", "CI")
"""Where a terminal may be there with nobody at it: the cells of notebooks have one, and some CI systems."""


def is_live(stream: TextIO | None) -> bool:
    """True where `stream` is a terminal on which a line can be drawn anew."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("JPY_PARENT_PID")


def can_answer() -> bool:
    """True where somebody sits at a terminal and can answer a question."""
    return not any(os.environ.get(name) for name in NOTEBOOK_VARIABLES) and is_terminal(sys.stdin) and is_terminal(sys.stderr)


def ask(question: str) -> bool:
    """True where the answer begins with y; an end of input is a no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        sys.stderr.write("\n")
        return False
