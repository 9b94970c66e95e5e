"""How far a harvest is, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys

import harvest_progress
import pytest


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_elsewhere_a_line_now_and_then_has_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("harvest_progress.time.monotonic", iter(range(0, 200, 4)).__next__)

    assert list(harvest_progress.progress("abcdefg", "pages", 7)) == list("abcdefg")

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == ["harvest: 2 of 7 pages, 10.0/min, 30 s left", "harvest: 5 of 7 pages, 12.5/min, 10 s left"]


def test_a_terminal_has_a_bar_and_what_is_redirected_stays_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    for number in harvest_progress.progress(range(3), "packages", 3):
        sys.stdout.write(f"package {number}\n")

    assert capsys.readouterr().out == "package 0\npackage 1\npackage 2\n"
    assert "packages" in shown.getvalue()
    assert "3/3" in shown.getvalue()
