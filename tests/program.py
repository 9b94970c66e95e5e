"""The program as its users run it, but in this process: that takes a small part of the time of a process of its own.

What only a process can show (signals, pipes, closed or full outputs, what is imported at the start) is tested with one:
`tests/functional/test_cli.py`.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from cudnn_resolve.cli.main import main
from cudnn_resolve.host import tables
from cudnn_resolve.matrix.book import Book

ROOT = Path(__file__).resolve().parents[1]
_open = tables.open_book


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@cache
def shipped() -> Book:
    """The book of the shipped tables, read once: its answers are of its rows alone, and hold whatever was asked before."""
    return _open()


def opened(matrix_dirs: Sequence[str] = (), project_dirs: Sequence[str] = ()) -> Book:
    """What `tables.open_book` gives, the shipped tables alone being read once."""
    return _open(matrix_dirs, project_dirs) if matrix_dirs or project_dirs else shipped()


def run(*words: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None, text: str = "") -> Done:
    """What the program does with these words in a folder, `environ` being all of its environment and `text` its standard input."""
    out, err = _stream(), _stream()
    with (
        mock.patch.multiple(sys, stdin=_stream(text), stdout=out, stderr=err),
        mock.patch.dict(os.environ, environ or {}, clear=environ is not None),
        _folder(cwd),
        _collector(),
    ):
        code = main(words)
    done = Done(code, _written(out), _written(err))
    assert "internal error" not in done.stderr, done.stderr
    return done


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8", newline="")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return str(content.decode("utf-8"))


@contextmanager
def _folder(cwd: Path | None) -> Iterator[None]:
    """A working directory for a while."""
    if cwd is None:
        yield
        return
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(cwd)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def _collector() -> Iterator[None]:
    """The garbage collector as it was: a program that ends soon freezes what it made, which would grow here from test to test."""
    thresholds = gc.get_threshold()
    try:
        with mock.patch.object(gc, "freeze"):
            yield
    finally:
        gc.set_threshold(*thresholds)
