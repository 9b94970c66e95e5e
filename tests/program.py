"""The program as its users run it, but in this process: that takes a small part of the time of a process of its own.

What only a process can show (signals, pipes, closed or full outputs, what is imported at the start) is tested with one:
`tests/functional/test_cli.py`.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from cudnn_resolve.cli.main import main

ROOT = Path(__file__).resolve().parents[1]


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


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
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
