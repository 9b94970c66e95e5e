"""Logs as they lie on a disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.host.files import read_log
from cudnn_resolve.host.tables import open_book

BOOK = open_book()
_FILE = "libcudnn_ops_infer.so.8"
MESSAGE = f"Could not load library {_FILE}. Error: {_FILE}: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize("zeros", [15, 16, 17, 5000, 5001, 3 << 20])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
@pytest.mark.parametrize("before", ["", "a line before\n"])
def test_a_hole_hides_nothing_behind_it(tmp_path: Path, zeros: int, encoding: str, before: str) -> None:
    if encoding == "utf-16-le":
        zeros += zeros % 2
    log = tmp_path / "log"
    log.write_bytes(before.encode(encoding) + bytes(zeros) + f"{MESSAGE}\n{MESSAGE}\n".encode(encoding))
    found = diagnose(Reader(BOOK.symptoms()).read(read_log(str(log))), None, BOOK)
    assert [one.cause for one in found.findings][:1] == ["cudnn_missing"]


def test_standard_input_has_holes_too() -> None:
    code = "from cudnn_resolve.host.files import read_log\nprint(b''.join(read_log('-')))"
    done = subprocess.run([sys.executable, "-c", code], input=bytes(6000) + b"x", capture_output=True, check=True)
    assert done.stdout == b"b'x'\n"
