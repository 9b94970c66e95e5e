"""Notebook magics (`%load_ext cudnn_resolve`): `%cudnn VERB ...`, and `%%cudnn_run DIR` for cells in another environment.

IPython passes itself in: nothing of it is imported here.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from cudnn_resolve.cli.main import VERBS, answer
from cudnn_resolve.cli.printing import show_error
from cudnn_resolve.errors import CudnnResolveError, UsageError

_LOG_WORDS = ("-", "--no-facts")


class CellError(Exception):
    """A cell failed with an error that has been printed already."""

    def _render_traceback_(self) -> list[str]:
        """Traceback for IPython, without the frames of this program."""
        return [str(self)]


def load(shell: Any) -> None:
    """Register the magics with an IPython shell."""
    shell.register_magic_function(cudnn, "line", "cudnn")
    shell.register_magic_function(cudnn_run, "cell", "cudnn_run")


def cudnn(line: str) -> None:
    """Run a command line of cudnn-resolve: `%cudnn plan tensorflow==2.15`.

    `%cudnn doctor` judges the last error of this kernel, if any, unless a log or `--no-facts` is given.
    """
    words = _words(line)
    text = _last_error() if words[:1] == ["doctor"] and all(word.startswith("-") and word not in _LOG_WORDS for word in words[1:]) else None
    if text is None:
        code = answer(words or ["help"])
    else:
        before: Any = sys.stdin
        sys.stdin = SimpleNamespace(buffer=BytesIO(text.encode("utf-8", "replace")), isatty=lambda: False)
        try:
            code = answer([*words, "-"])
        finally:
            sys.stdin = before
    if code not in (0, 1):  # "no" and findings are answers, not failures
        name = words[0] if words[:1] and words[0] in VERBS else "cudnn-resolve"
        raise CellError(f"{name} ended with exit code {code}")


def cudnn_run(line: str, cell: str) -> None:
    """Run the cell in the environment of a folder, `%%cudnn_run tf215`; further words become `sys.argv`."""
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.host.notebook import run_cell
    from cudnn_resolve.probe.python import choose_python

    words = _words(line)
    try:
        if not words:
            raise UsageError("no environment is named", code="usage-argument", hint="name its folder: `%%cudnn_run tf215`")
        python, _ = choose_python(LinuxHost(), words[0])
    except CudnnResolveError as error:
        show_error(error)
        raise CellError(f"nothing was run: {error.message}") from None
    code = run_cell(python, cell, words[1:], sys.stdout.write, sys.stderr.write)
    if code:
        raise CellError(f"the cell ended with {f'signal {-code}' if code < 0 else f'exit code {code}'} in {words[0]}")


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise CellError(f"nothing was run: {error} in {line.strip()}") from None


def _last_error() -> str | None:
    """Traceback of the last error of this kernel; None without one."""
    value = getattr(sys, "last_value", None)
    return None if value is None or isinstance(value, CellError) else "".join(traceback.format_exception(value))
