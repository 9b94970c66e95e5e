"""The terminal, and the environment variables that say how to use it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TextIO

DEFAULT_WIDTH = 100


def wants_color(stream: TextIO | None) -> bool:
    """Whether to write colours to `stream`: it is a terminal that shows them, or FORCE_COLOR is set; NO_COLOR and TERM=dumb forbid it."""
    if stream is None or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return os.environ.get("TERM", "") not in ("", "dumb") and is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def is_measured(stream: TextIO | None) -> bool:
    """Whether lines must fit a width: that of a terminal, or the one in COLUMNS."""
    return bool(os.environ.get("COLUMNS")) or is_terminal(stream)


def width(stream: TextIO | None) -> int:
    """Columns of the terminal behind `stream`, at least 60; 100 if it is no terminal. COLUMNS takes precedence."""
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
    """Whether CUDNN_RESOLVE_DEBUG asks for the traceback of an internal error."""
    return os.environ.get("CUDNN_RESOLVE_DEBUG", "") not in ("", "0")


def prepare_output() -> None:
    """Escape what the terminal's encoding cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def silence(stream: TextIO | None) -> None:
    """Discard what is still buffered for `stream`, so that the interpreter does not fail on it at exit."""
    try:
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    except (OSError, ValueError):  # not a real file, as under a test
        return


def drop_output() -> None:
    """Flush standard output as far as possible and discard the rest."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        silence(sys.stdout)


def leave(code: int) -> NoReturn:
    """End the process now, after flushing its output, without waiting for threads."""
    drop_output()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    os._exit(code)


NOTEBOOK_VARIABLES = ("JPY_PARENT_PID", "COLAB_RELEASE_TAG", "COLAB_GPU", "KAGGLE_KERNEL_RUN_TYPE", "CI")
"""Set where a terminal may exist with nobody at it: cells of notebooks have one, and some CI systems."""


def is_live(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal on which a line can be redrawn."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("JPY_PARENT_PID")


def can_answer() -> bool:
    """Whether a user at a terminal can answer a question."""
    return not any(os.environ.get(name) for name in NOTEBOOK_VARIABLES) and is_terminal(sys.stdin) and is_terminal(sys.stderr)


def ask(question: str) -> bool:
    """Whether the user answers with y; end of input means no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        sys.stderr.write("\n")
        return False


class Delayed:
    """A call that is made after a delay unless it is cancelled, and never while somebody holds `turn`."""

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self._timer: threading.Timer | None = None

    @property
    def is_due(self) -> bool:
        """Whether the call is still to be made."""
        return self._timer is not None

    def begin(self, seconds: float, call: Callable[[], None]) -> None:
        """Schedule the call."""
        self._timer = threading.Timer(seconds, self._make, (call,))
        self._timer.daemon = True
        self._timer.start()

    def give_up(self) -> None:
        """Cancel the call."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _make(self, call: Callable[[], None]) -> None:
        with self.turn:
            if self._timer is not None:
                self._timer = None
                call()
